/* `cove key`: the keys by which programs may use the server. A secret is printed once, on standard
 * output alone, and is never an argument. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <stdio.h>
#include <string.h>

struct key_new {
    struct options_common common;
    const char *tenant;
    struct doc *scopes;
};

static int take_scope(void *into, const char *value, struct error *err)
{
    static const char *const known[] = {"read", "write", "keys", "operator"};
    struct key_new *options = into;

    if (options->scopes == NULL)
        options->scopes = doc_new_array();
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(value, known[i]) == 0)
            return doc_add_text(options->scopes, value) < 0 ? option_no_memory(err) : 0;
    return option_bad_value(err, "scope", value, "there is no such scope",
                            "choose read, write, keys or operator");
}

static const struct option_row new_rows[] = {
    {"scope", "SCOPE", "read and write",
     "what it is for: read, write, keys or operator; repeatable", take_scope, 0, 0},
    {"tenant", "NAME", "yours", "whose sandboxes it can reach", NULL, 0,
     offsetof(struct key_new, tenant)},
    OPTION_JSON("print the key as the API has it, with its secret"),
    OPTION_HELP,
};

static const struct option_table new_table = {
    .command = "key new",
    .usage = "LABEL",
    .about =
        "Makes a key and prints its secret, which is shown this once. LABEL is for you, to know\n"
        "it again. Programs send it to the server; cove takes it from COVE_API_KEY.",

    OPTION_ROWS(new_rows),
    .words = 1,
    .words_least = 1,
};

static const struct option_row ls_rows[] = {
    OPTION_JSON("print them as the API has them"),
    OPTION_HELP,
};

static const struct option_table ls_table = {
    .command = "key ls",
    .about = "Lists the keys that there are, without their secrets.",

    OPTION_ROWS(ls_rows),
};

static const struct option_row rm_rows[] = {
    OPTION_HELP,
};

static const struct option_table rm_table = {
    .command = "key rm",
    .usage = "KEY-ID",
    .about = "Ends a key by its id of cove key ls: who holds it can do nothing more.",

    OPTION_ROWS(rm_rows),
    .words = 1,
    .words_least = 1,
};

/* ---- new ---- */

static int secret_print(const struct doc *key, struct error *err)
{
    const char *secret;
    char line[600];

    if (api_text(key, "secret", &secret, err) < 0)
        return -1;
    for (const char *at = secret; *at != '\0'; at++)
        if (*at <= 0x20 || *at >= 0x7f || at - secret > 512)
            return error_set(err, "bad_answer", 0, "the server's secret is no key's");
    (void)snprintf(line, sizeof(line), "%s\n", secret);
    if (cmd_print(line, strlen(line)) < 0)
        return error_set(
            err, "stdio", 0,
            "standard output: the secret could not be written; remove the key and make "
            "another");
    return 0;
}

static int new_call(struct client *client, void *into, const struct option_words *words,
                    struct error *err)
{
    const struct key_new *options = into;
    _cleanup_doc_ struct doc *body = doc_new();
    _cleanup_doc_ struct doc *key = NULL;
    const struct client_request request = {.method = "POST", .path = "/v1/keys", .json = body};
    struct doc *scopes = doc_new_array();
    int failed = 0;

    if (options->scopes == NULL) {
        failed |= doc_add_text(scopes, "read");
        failed |= doc_add_text(scopes, "write");
        failed |= doc_set(body, "scopes", scopes);
    } else {
        doc_free(scopes);
        failed |= doc_set_copy(body, "scopes", options->scopes);
    }
    failed |= doc_set_text(body, "label", words->word[0]);
    failed |= doc_set_text(body, "tenant", options->tenant);
    if (failed != 0)
        return error_set(err, "bad_value", 0, "key new: a word is no UTF-8; use another");
    if (client_call(client, &request, &key, err) < 0)
        return -1;
    return options->common.json ? doc_print(key, err) : secret_print(key, err);
}

static int new_run(const struct cmd *cmd, int argc, char **argv)
{
    struct key_new options = {0};
    int status = api_command(cmd, argc, argv, &options, new_call);

    doc_free(options.scopes);
    return status;
}

/* ---- ls ---- */

static void scopes_text(const struct doc *scopes, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < doc_count(scopes) && used < size; i++) {
        const char *scope = doc_own_text(doc_at(scopes, i));

        used += (size_t)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ",",
                                 scope == NULL ? "?" : scope);
    }
}

static int keys_show(const struct doc *keys, struct error *err)
{
    static const char *const headings[] = {"ID", "TENANT", "SCOPES", "AGE", "LABEL"};
    struct show_table shown;

    show_table_begin(&shown, sizeof(headings) / sizeof(headings[0]), headings);
    for (size_t i = 0; i < doc_count(keys); i++) {
        const struct doc *key = doc_at(keys, i);
        char age[SHOW_VALUE_MAX];
        char scopes[128];

        scopes_text(doc_get(key, "scopes"), scopes, sizeof(scopes));
        show_cell(&shown, doc_text(key, "id"));
        show_cell(&shown, doc_text(key, "tenant"));
        show_cell(&shown, scopes);
        show_cell(&shown, show_age(doc_text(key, "created_at"), age));
        show_cell(&shown, doc_text(key, "label"));
    }
    return show_table_print(&shown, err);
}

static int ls_call(struct client *client, void *options, const struct option_words *words,
                   struct error *err)
{
    const struct options_common *common = options;
    _cleanup_doc_ struct doc *keys = NULL;

    (void)words;
    if (api_list(client, "/v1/keys", "keys", &keys, err) < 0)
        return -1;
    return common->json ? api_list_print("keys", keys, err) : keys_show(keys, err);
}

/* ---- rm ---- */

static int rm_call(struct client *client, void *options, const struct option_words *words,
                   struct error *err)
{
    char path[API_PATH_MAX] = "/v1/keys/";
    const struct client_request request = {.method = "DELETE", .path = path};

    (void)options;
    if (words->word[0][0] == '\0' || !wire_encode(path, sizeof(path), words->word[0]))
        return error_set(err, "bad_value", 0,
                         "key rm: this is no id of a key; cove key ls lists them");
    return client_call(client, &request, NULL, err);
}

static int ls_run(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};

    return api_command(cmd, argc, argv, &options, ls_call);
}

static int rm_run(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};

    return api_command(cmd, argc, argv, &options, rm_call);
}

static const struct cmd verbs[] = {
    {.name = "new",
     .summary = "make a key and print its secret, this once",
     .run = new_run,
     .table = &new_table},
    {.name = "ls",
     .summary = "list keys, without their secrets",
     .run = ls_run,
     .table = &ls_table},
    {.name = "rm", .summary = "end a key", .run = rm_run, .table = &rm_table},
};

const struct cmd cmd_key = {.name = "key",
                            .summary = "make and end the keys of programs that use the server",
                            .verbs = verbs,
                            .verbs_count = sizeof(verbs) / sizeof(verbs[0])};
