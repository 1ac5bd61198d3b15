/* `cove create`: a sandbox that lives until it is removed. What the caller did not say is not sent, so
 * that the server's own defaults hold. */
#include "base/fd.h"
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/env_file.h"
#include "cmd/mounting.h"
#include "cmd/net.h"

#include <stdio.h>
#include <string.h>

#define WORKSPACE "/workspace"
#define CREATE_ANSWER_MS 180000 /* a box may have to wait for a disk */

struct create {
    struct options_common common;
    const char *name, *root, *privileges, *cwd, *user, *hostname, *then;
    bool ephemeral, mountable;
    uint64_t memory_bytes, disk_bytes, pids, idle_ms, lifetime_ms; /* 0: not said */
    uint32_t cpu_milli;
    struct api_pairs env, labels;
    struct doc *mounts, *network, *ports;
};

static int take_root(void *into, const char *value, struct error *err)
{
    struct create *create = into;

    if (strchr(value, '/') != NULL)
        return option_bad_value(err, "root", value, "a sandbox takes the name of a root, no path",
                                "register it with cove root add NAME PATH, and name it here");
    create->root = value;
    return 0;
}

static int take_privileges(void *into, const char *value, struct error *err)
{
    struct create *create = into;

    if (strcmp(value, "plain") != 0 && strcmp(value, "system") != 0)
        return option_bad_value(err, "privileges", value, "there is no such profile",
                                "choose plain or system");
    create->privileges = value;
    return 0;
}

static int take_memory(void *into, const char *value, struct error *err)
{
    return parse_size("--memory", value, &((struct create *)into)->memory_bytes, err);
}

static int take_disk(void *into, const char *value, struct error *err)
{
    return parse_size("--disk", value, &((struct create *)into)->disk_bytes, err);
}

static int take_cpus(void *into, const char *value, struct error *err)
{
    return parse_cpus("--cpus", value, &((struct create *)into)->cpu_milli, err);
}

static int take_pids(void *into, const char *value, struct error *err)
{
    return parse_count("--pids", value, 1, 4194304, &((struct create *)into)->pids, err);
}

static int take_idle(void *into, const char *value, struct error *err)
{
    return parse_duration("--idle", value, &((struct create *)into)->idle_ms, err);
}

static int take_lifetime(void *into, const char *value, struct error *err)
{
    return parse_duration("--lifetime", value, &((struct create *)into)->lifetime_ms, err);
}

static int take_then(void *into, const char *value, struct error *err)
{
    if (strcmp(value, "stop") != 0 && strcmp(value, "kill") != 0)
        return option_bad_value(err, "then", value, "there is no such end", "choose stop or kill");
    ((struct create *)into)->then = value;
    return 0;
}

static int take_env(void *into, const char *value, struct error *err)
{
    return api_pairs_take(&((struct create *)into)->env, "env", value, true, err);
}

static int take_env_file(void *into, const char *value, struct error *err)
{
    return api_pairs_file_take(&((struct create *)into)->env, value, err);
}

static int take_label(void *into, const char *value, struct error *err)
{
    return api_pairs_take(&((struct create *)into)->labels, "label", value, false, err);
}

static int take_net(void *into, const char *value, struct error *err)
{
    struct create *create = into;

    doc_freep(&create->network);
    return net_policy("--net", value, &create->network, err);
}

/* NUMBER[:public] */
static int take_port(void *into, const char *value, struct error *err)
{
    struct create *create = into;
    struct doc *port = doc_new();
    size_t length = strcspn(value, ":");
    bool is_public = strcmp(value + length, ":public") == 0;
    char text[16];
    uint64_t number;
    int failed = 0;

    (void)snprintf(text, sizeof(text), "%.*s", (int)(length < 15 ? length : 15), value);
    if ((value[length] != '\0' && !is_public) ||
        parse_count("--port", text, 1, 65535, &number, err) < 0) {
        doc_free(port);
        return option_bad_value(err, "port", value, "that is no port of a sandbox",
                                "write a number from 1 to 65535, or NUMBER:public");
    }
    failed |= doc_set_number(port, "port", number);
    if (is_public)
        failed |= doc_set_true(port, "public");
    if (create->ports == NULL)
        create->ports = doc_new_array();
    failed |= doc_add(create->ports, port);
    return failed == 0 ? 0 : option_no_memory(err);
}

static int take_mount(void *into, const char *value, struct error *err)
{
    struct create *create = into;
    struct doc *mount = NULL;
    _cleanup_free_ char *spelt = NULL;

    if (mounting_spell(value, &spelt, err) < 0 || mounting_parse("mount", spelt, &mount, err) < 0)
        return -1;
    if (create->mounts == NULL)
        create->mounts = doc_new_array();
    return doc_add(create->mounts, mount) == 0 ? 0 : option_no_memory(err);
}

static const struct option_row rows[] = {
    {"root", "ROOT", "its own, with the host's /usr, /bin, /lib*, read-only",
     "root of the sandbox, by the name of a registered one: cove root ls", take_root, 0, 0},
    {"privileges", "plain|system", "system",
     "plain: no privilege at all; system: root inside the sandbox, for apt, su and sudo",
     take_privileges, 0, 0},
    {"ephemeral", NULL, NULL,
     "its disk is in memory and ends with it; else what it writes survives cove stop", NULL, 0,
     offsetof(struct create, ephemeral)},
    {"memory", "SIZE", "the server's", "memory of all its processes together", take_memory, 'm', 0},
    {"cpus", "NUMBER", "the server's", "CPUs, such as 2 or 0.5", take_cpus, 0, 0},
    {"disk", "SIZE", "the server's", "what it may write outside of its mounts", take_disk, 0, 0},
    {"pids", "NUMBER", "the server's", "processes and threads", take_pids, 0, 0},
    {"env", "NAME[=VALUE]", NULL,
     "a variable of every command in it; without a value, pass yours on; repeatable", take_env, 'e',
     0},
    ENV_FILE_ROW,
    {"cwd", "DIR", "/workspace if a mount is there, else the user's home",
     "directory in which commands start", NULL, 'w', offsetof(struct create, cwd)},
    {"user", "USER[:GROUP]", "user; root with --privileges system",
     "who runs its commands, by name or number inside the sandbox", NULL, 'u',
     offsetof(struct create, user)},
    {"hostname", "NAME", "box", "host name inside", NULL, 'h', offsetof(struct create, hostname)},
    {"label", "KEY=VALUE", NULL, "a note for yourself, to find it by cove ls --label; repeatable",
     take_label, 'l', 0},
    {"name", "NAME", NULL, "the same as the word NAME", NULL, 0, offsetof(struct create, name)},
    {"mount", "NAME:/TARGET[:ro]", NULL,
     "put a registered directory at TARGET, by its name: cove mount ls; repeatable", take_mount,
     'v', 0},
    {"mountable", NULL, NULL,
     "cove mount attach may bring directories that it writes to; no set-id file can be made in it",
     NULL, 0, offsetof(struct create, mountable)},
    {"net", "POLICY", "the server's, as it comes public",
     "whom it may reach: none, public, or allow=RULE,RULE...; cove net --help says more", take_net,
     0, 0},
    {"port", "NUMBER[:public]", NULL,
     "open a port to the server's host from the start; public: its page at a name of its own needs "
     "no key; repeatable",
     take_port, 0, 0},
    {"idle", "TIME", "none", "how long nothing may run in it before it ends", take_idle, 0, 0},
    {"lifetime", "TIME", "none", "how long it lives at most", take_lifetime, 0, 0},
    {"then", "stop|kill", "the server's",
     "what to do when --idle or --lifetime runs out: stop keeps the disk, kill deletes all",
     take_then, 0, 0},
    OPTION_JSON("print the sandbox as the API has it"),
    {"help", NULL, NULL, "print this", NULL, 0, offsetof(struct options_common, help)},
};

static const struct option_table table = {
    .command = "create",
    .usage = "[NAME]",
    .about =
        "Makes a sandbox that lives until cove rm, and prints its id. With a NAME that a sandbox\n"
        "has already, that one is meant and nothing is made.",
    .notes = "SIZE is bytes, or has a K, M, G or T; TIME is seconds, or has ms, s, m, h or d.",
    .examples = "cove create work\n"
                "cove create --ephemeral --memory 512M --idle 10m --then kill",
    OPTION_ROWS(rows),
    .words = 1,
};

/* Adds `part` under `key` if something is in it. */
static int part_set(struct doc *body, const char *key, struct doc *part, int failed)
{
    if (failed != 0 || doc_next_key(part, NULL) == NULL) {
        doc_free(part);
        return failed;
    }
    return doc_set(body, key, part);
}

static int number_set(struct doc *doc, const char *key, uint64_t value)
{
    return value == 0 ? 0 : doc_set_number(doc, key, value);
}

static int resources_set(const struct create *create, struct doc *body)
{
    struct doc *part = doc_new();
    int failed = 0;

    failed |= number_set(part, "memory_bytes", create->memory_bytes);
    failed |= number_set(part, "disk_bytes", create->disk_bytes);
    failed |= number_set(part, "pids", create->pids);
    if (create->cpu_milli != 0)
        failed |= doc_set_real(part, "cpus", create->cpu_milli / 1000.0);
    return part_set(body, "resources", part, failed);
}

static int lifecycle_set(const struct create *create, struct doc *body)
{
    struct doc *part = doc_new();
    int failed = 0;

    failed |= number_set(part, "lifetime_ms", create->lifetime_ms);
    failed |= number_set(part, "idle_ms", create->idle_ms);
    failed |= doc_set_text(part, "then", create->then);
    return part_set(body, "lifecycle", part, failed);
}

/* NULL: the server's default. */
static const char *cwd_of(const struct create *create)
{
    if (create->cwd != NULL)
        return create->cwd;
    for (size_t i = 0; i < doc_count(create->mounts); i++)
        if (strcmp(doc_text(doc_at(create->mounts, i), "target"), WORKSPACE) == 0)
            return WORKSPACE;
    return NULL;
}

static int body_make(const struct create *create, const char *name, struct doc *body,
                     struct error *err)
{
    int failed = 0;

    failed |= doc_set_text(body, "name", name);
    failed |= doc_set_text(body, "root", create->root);
    failed |= doc_set_text(body, "privileges", create->privileges);
    failed |= doc_set_text(body, "disk_kind", create->ephemeral ? "ephemeral" : NULL);
    failed |= doc_set_text(body, "cwd", cwd_of(create));
    failed |= doc_set_text(body, "user", create->user);
    failed |= doc_set_text(body, "hostname", create->hostname);
    failed |= api_pairs_set(body, "env", &create->env);
    failed |= api_pairs_set(body, "labels", &create->labels);
    if (create->mountable)
        failed |= doc_set_true(body, "mountable");
    if (create->mounts != NULL)
        failed |= doc_set_copy(body, "mounts", create->mounts);
    if (create->network != NULL)
        failed |= doc_set_copy(body, "network", create->network);
    if (create->ports != NULL)
        failed |= doc_set_copy(body, "ports", create->ports);
    failed |= resources_set(create, body);
    failed |= lifecycle_set(create, body);
    if (failed != 0)
        return error_set(err, "bad_value", 0,
                         "create: a word is no UTF-8; a sandbox takes nothing else");
    return 0;
}

static bool rules_are(const struct doc *rules, const struct doc *others)
{
    if (doc_count(rules) != doc_count(others))
        return false;
    for (size_t i = 0; i < doc_count(rules); i++) {
        const char *rule = doc_own_text(doc_at(rules, i)), *other = doc_own_text(doc_at(others, i));

        if (rule == NULL || other == NULL || strcmp(rule, other) != 0)
            return false;
    }
    return true;
}

/* A sandbox that is there already has its own policy: a caller that wanted less must not take it for done. */
static int network_check(const struct create *create, const struct doc *sandbox, struct error *err)
{
    const struct doc *network = doc_get(sandbox, "network");
    const char *mode = doc_text(network, "mode"), *name = doc_text(sandbox, "name");

    if (create->network == NULL || doc_get(sandbox, "created") == NULL ||
        doc_true(sandbox, "created"))
        return 0;
    if (mode != NULL && strcmp(mode, doc_text(create->network, "mode")) == 0 &&
        rules_are(doc_get(network, "allow"), doc_get(create->network, "allow")) &&
        rules_are(doc_get(network, "deny"), doc_get(create->network, "deny")))
        return 0;
    name = name == NULL ? "SANDBOX" : name;
    return error_set(err, "name_conflict", 0,
                     "%.200s: it is there already, with another network policy (%.20s) than --net; "
                     "cove net %.200s shows it, and set changes it",
                     name, mode == NULL ? "not known" : mode, name);
}

static int answer_print(const struct create *create, const struct doc *sandbox, struct error *err)
{
    const struct doc *created = doc_get(sandbox, "created");
    const char *id;
    char line[128];

    if (create->common.json)
        return doc_print(sandbox, err);
    if (api_text(sandbox, "id", &id, err) < 0)
        return -1;
    if (strlen(id) > 64 || id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0')
        return error_set(err, "bad_answer", 0, "the server gave the sandbox an id that is none");
    if (created != NULL && !doc_true(sandbox, "created"))
        cmd_say("it was there already; nothing was made or changed");
    (void)snprintf(line, sizeof(line), "%s\n", id);
    return cmd_out(line, strlen(line), err);
}

static int create_call(struct client *client, void *options, const struct option_words *words,
                       struct error *err)
{
    const struct create *create = options;
    _cleanup_doc_ struct doc *body = doc_new();
    _cleanup_doc_ struct doc *sandbox = NULL;
    char key[CLIENT_KEY_SIZE];
    const struct client_request request = {.method = "POST",
                                           .path = "/v1/sandboxes",
                                           .json = body,
                                           .answer_ms = CREATE_ANSWER_MS,
                                           .repeat_key = key};

    if (create->name != NULL && words->count > 0)
        return error_set(err, "bad_value", 0,
                         "--name %.200s: the sandbox has a name already, %.200s; leave one out",
                         create->name, words->word[0]);
    if (body_make(create, create->name != NULL ? create->name : words->word[0], body, err) < 0 ||
        client_repeat_key(key, err) < 0 || client_call(client, &request, &sandbox, err) < 0 ||
        network_check(create, sandbox, err) < 0)
        return -1;
    return answer_print(create, sandbox, err);
}

static int create_run(const struct cmd *cmd, int argc, char **argv)
{
    struct create create = {0};
    int status = api_command(cmd, argc, argv, &create, create_call);

    api_pairs_free(&create.env);
    api_pairs_free(&create.labels);
    doc_free(create.mounts);
    doc_free(create.network);
    doc_free(create.ports);
    return status;
}

const struct cmd cmd_create = {
    .name = "create",
    .summary = "make a sandbox that lives, or find the one with this name",
    .run = create_run,
    .table = &table};
