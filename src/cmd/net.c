/* `cove net`: whom a sandbox may reach, and what came of what it tried; and `set`, which changes the first. */
#include "cmd/net.h"

#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

struct net_command {
    struct options_common common;
    uint64_t limit;
    uint64_t connections, lookups, rate, bytes; /* 0: not said */
};

static int take_limit(void *into, const char *value, struct error *err)
{
    return parse_count("--limit", value, 0, 256, &((struct net_command *)into)->limit, err);
}

static int take_connections(void *into, const char *value, struct error *err)
{
    return parse_count("--connections", value, 1, 65536, &((struct net_command *)into)->connections,
                       err);
}

static int take_lookups(void *into, const char *value, struct error *err)
{
    return parse_count("--lookups", value, 1, 100000, &((struct net_command *)into)->lookups, err);
}

static int take_rate(void *into, const char *value, struct error *err)
{
    return parse_size("--rate", value, &((struct net_command *)into)->rate, err);
}

static int take_bytes(void *into, const char *value, struct error *err)
{
    return parse_size("--bytes", value, &((struct net_command *)into)->bytes, err);
}

static const struct option_row rows[] = {
    {"limit", "NUMBER", "20", "of what it tried, the newest so many; at most 256", take_limit, 'n',
     0},
    {"connections", "NUMBER", "256", "with set: how many may be open at once", take_connections, 0,
     0},
    {"lookups", "NUMBER", "50", "with set: names it may ask for in a second", take_lookups, 0, 0},
    {"rate", "SIZE", "none", "with set: bytes in a second, both ways together", take_rate, 0, 0},
    {"bytes", "SIZE", "none", "with set: bytes in its life, both ways together", take_bytes, 0, 0},
    OPTION_JSON("print what the API says"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "net",
    .usage = "SANDBOX [set POLICY]",
    .about =
        "Shows whom a sandbox may reach, and what came of what it tried. With set POLICY that is\n"
        "what it may reach from now on: connections that would now be refused are cut, the others\n"
        "go on. Without a POLICY, set changes the bounds that are named.",
    .notes =
        "POLICY is none, public (the public internet), or allow=RULE,RULE...; after either of\n"
        "the last two, deny=RULE,RULE... takes some away. A RULE is a name, *.NAME, an address\n"
        "or a CIDR, with :PORT or :PORT-PORT where not all are meant.",
    .examples = "cove net work\n"
                "cove net work set allow=example.com:443,*.example.org\n"
                "cove net work set public,deny=*.example.com\n"
                "cove net work set none",
    OPTION_ROWS(rows),
    .words = 3,
    .words_least = 1,
};

/* ---- a policy, for the API ---- */

static int rules_set(struct doc *object, const char *key, const char *const *rules)
{
    struct doc *list = doc_new_array();
    int failed = 0;

    for (; rules != NULL && *rules != NULL; rules++)
        failed |= doc_add_text(list, *rules);
    if (failed == 0)
        return doc_set(object, key, list);
    doc_free(list);
    return failed;
}

int net_policy(const char *what, const char *text, struct doc **out, struct error *err)
{
    struct policy *policy;
    struct doc *object;
    struct error why;
    int failed = 0;

    if (policy_new_text(text, &policy, &why) != 0)
        return error_set(err, "bad_value", 0, "%s: %.400s", what, why.text);
    object = doc_new();
    failed |= doc_set_text(object, "mode", policy_mode_name(policy_mode(policy)));
    failed |= rules_set(object, "allow", policy_allow(policy));
    failed |= rules_set(object, "deny", policy_deny(policy));
    policy_free(policy);
    if (failed == 0) {
        *out = object;
        return 0;
    }
    doc_free(object);
    return option_no_memory(err);
}

/* ---- set ---- */

static int number_set(struct doc *object, const char *key, uint64_t value)
{
    return value == 0 ? 0 : doc_set_number(object, key, value);
}

static int change_make(const struct net_command *options, const struct option_words *words,
                       struct doc **out, struct error *err)
{
    _cleanup_doc_ struct doc *network = NULL;
    int failed = 0;

    if (words->count == 3 && net_policy("net", words->word[2], &network, err) < 0)
        return -1;
    if (network == NULL)
        network = doc_new();
    failed |= number_set(network, "connections", options->connections);
    failed |= number_set(network, "lookups_per_second", options->lookups);
    failed |= number_set(network, "bytes_per_second", options->rate);
    failed |= number_set(network, "bytes", options->bytes);
    if (doc_next_key(network, NULL) == NULL)
        return error_set(err, "bad_value", 0,
                         "net: set what? write a POLICY such as none or public, or a bound such as "
                         "--rate 1M");
    *out = doc_new();
    if (failed != 0 || doc_set_copy(*out, "network", network) < 0)
        return option_no_memory(err);
    return 0;
}

static int set_call(struct client *client, const struct net_command *options,
                    const struct option_words *words, struct error *err)
{
    _cleanup_doc_ struct doc *body = NULL;
    _cleanup_doc_ struct doc *sandbox = NULL;
    struct client_request request = {.method = "PATCH", .path = words->sandbox};

    if (change_make(options, words, &body, err) < 0)
        return -1;
    request.json = body;
    if (client_call(client, &request, &sandbox, err) < 0)
        return -1;
    return options->common.json ? doc_print(sandbox, err) : 0;
}

/* ---- show ---- */

static void line(struct show_table *shown, const char *what, const char *text)
{
    show_cell(shown, what);
    show_cell(shown, text);
}

static void rules_show(struct show_table *shown, const char *what, const struct doc *rules)
{
    for (size_t i = 0; i < doc_count(rules); i++)
        line(shown, what, doc_own_text(doc_at(rules, i)));
}

static void bound_show(struct show_table *shown, const char *what, const struct doc *policy,
                       const char *key, bool is_size)
{
    char text[SHOW_VALUE_MAX];
    uint64_t value;

    if (!doc_number(policy, key, &value))
        return;
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    line(shown, what, is_size ? show_size(value, text) : text);
}

static uint64_t count_of(const struct doc *counts, const char *key)
{
    uint64_t value = 0;

    (void)doc_number(counts, key, &value);
    return value;
}

static int policy_show(const struct doc *answer, struct error *err)
{
    const struct doc *policy = doc_get(answer, "policy"), *counts = doc_get(answer, "counts");
    char text[256], out[SHOW_VALUE_MAX], in[SHOW_VALUE_MAX];
    struct show_table shown;

    show_table_begin(&shown, 2, NULL);
    line(&shown, "mode", doc_text(policy, "mode"));
    rules_show(&shown, "allow", doc_get(policy, "allow"));
    rules_show(&shown, "deny", doc_get(policy, "deny"));
    bound_show(&shown, "connections at most", policy, "connections", false);
    bound_show(&shown, "lookups in a second", policy, "lookups_per_second", false);
    bound_show(&shown, "bytes in a second", policy, "bytes_per_second", true);
    bound_show(&shown, "bytes in all", policy, "bytes", true);
    (void)snprintf(text, sizeof(text), "%llu now, %llu in all; refused %llu; lookups %llu",
                   (unsigned long long)count_of(counts, "connections"),
                   (unsigned long long)count_of(counts, "connections_total"),
                   (unsigned long long)count_of(counts, "denied"),
                   (unsigned long long)count_of(counts, "lookups"));
    line(&shown, "connections", text);
    (void)snprintf(text, sizeof(text), "%s out, %s in",
                   show_size(count_of(counts, "bytes_out"), out),
                   show_size(count_of(counts, "bytes_in"), in));
    line(&shown, "carried", text);
    return show_table_print(&shown, err);
}

static void record_show(struct show_table *shown, const struct doc *record)
{
    const char *verdict = doc_text(record, "verdict");
    bool is_denied = verdict != NULL && strcmp(verdict, "denied") == 0;
    const char *rule = doc_text(record, "rule"), *reason = doc_text(record, "reason");
    char text[512], number[SHOW_VALUE_MAX];
    uint64_t port, times = count_of(record, "times");
    size_t used;

    show_cell(shown, doc_text(record, "time"));
    show_cell_in(shown, is_denied ? SHOW_RED : SHOW_GREEN, verdict);
    show_cell(shown, doc_text(record, "name"));
    show_cell(shown, doc_text(record, "address"));
    if (doc_number(record, "port", &port))
        show_cell_number(shown, port);
    else
        show_cell(shown, NULL);
    show_cell(shown, show_size(count_of(record, "bytes_out"), number));
    show_cell(shown, show_size(count_of(record, "bytes_in"), number));
    used = (size_t)snprintf(text, sizeof(text), "%.64s%s%.400s", reason != NULL ? reason : "",
                            rule != NULL ? ": " : "", rule != NULL ? rule : "");
    if (times > 1)
        (void)snprintf(text + used, sizeof(text) - used, " (%llu times)",
                       (unsigned long long)times);
    show_cell(shown, text);
}

static int records_show(const struct doc *records, struct error *err)
{
    static const char *const headings[] = {"TIME", "VERDICT", "NAME", "ADDRESS",
                                           "PORT", "OUT",     "IN",   "WHY"};
    struct show_table shown;

    if (doc_count(records) == 0)
        return 0;
    show_table_begin(&shown, sizeof(headings) / sizeof(headings[0]), headings);
    for (size_t i = 0; i < doc_count(records); i++)
        record_show(&shown, doc_at(records, i));
    if (cmd_out("\n", 1, err) < 0) {
        show_table_free(&shown);
        return -1;
    }
    return show_table_print(&shown, err);
}

static int show_call(struct client *client, const struct net_command *options,
                     const struct option_words *words, struct error *err)
{
    _cleanup_doc_ struct doc *answer = NULL;
    char path[API_PATH_MAX], rest[32];
    const struct client_request request = {.path = path};

    (void)snprintf(rest, sizeof(rest), "/network?limit=%llu", (unsigned long long)options->limit);
    if (api_path(path, words->sandbox, rest, err) < 0 ||
        client_call(client, &request, &answer, err) < 0)
        return -1;
    if (options->common.json)
        return doc_print(answer, err);
    if (policy_show(answer, err) < 0)
        return -1;
    return records_show(doc_get(answer, "records"), err);
}

static int net_call(struct client *client, void *into, const struct option_words *words,
                    struct error *err)
{
    const struct net_command *options = into;
    bool has_bound = options->connections + options->lookups + options->rate + options->bytes > 0;

    if (words->count == 1 && has_bound)
        return error_set(err, "bad_value", 0,
                         "net: a bound is changed with set: cove net %.64s set --rate ...",
                         words->word[0]);
    if (words->count == 1)
        return show_call(client, options, words, err);
    if (strcmp(words->word[1], "set") != 0)
        return error_set(err, "bad_value", 0,
                         "net %.64s: only set may follow the sandbox, and then a policy",
                         words->word[1]);
    return set_call(client, options, words, err);
}

static int net_run(const struct cmd *cmd, int argc, char **argv)
{
    struct net_command options = {.limit = 20};

    return api_command(cmd, argc, argv, &options, net_call);
}

const struct cmd cmd_net = {.name = "net",
                            .summary = "show or change whom a sandbox may reach, and what it tried",
                            .run = net_run,
                            .table = &table,
                            .target = CMD_TARGET_SANDBOX};
