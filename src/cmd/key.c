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

static int take_tenant(void *into, const char *value, struct error *err)
{
    (void)err;
    ((struct key_new *)into)->tenant = value;
    return 0;
}

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
     "what it is for: read, write, keys or operator; repeatable", take_scope, 0},
    {"tenant", "NAME", "yours", "whose sandboxes it can reach", take_tenant, 0},
    {"json", NULL, NULL, "print the key as the API has it, with its secret", option_take_json, 0},
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table new_table = {
    .command = "key new",
    .usage = "LABEL",
    .head =
        "Usage: cove key new [options] LABEL\n"
        "\n"
        "Makes a key and prints its secret, which is shown this once. LABEL is for you, to know\n"
        "it again. Programs send it to the server; cove takes it from COVE_API_KEY.\n"
        "\n"
        "Options:\n",
    .tail = "",
    .rows = new_rows,
    .rows_count = sizeof(new_rows) / sizeof(new_rows[0]),
    .words = 1,
    .words_least = 1,
};

static const struct option_row ls_rows[] = {
    {"json", NULL, NULL, "print them as the API has them", option_take_json, 0},
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table ls_table = {
    .command = "key ls",
    .head = "Usage: cove key ls [options]\n"
            "\n"
            "Lists the keys that there are, without their secrets.\n"
            "\n"
            "Options:\n",
    .tail = "",
    .rows = ls_rows,
    .rows_count = sizeof(ls_rows) / sizeof(ls_rows[0]),
};

static const struct option_row rm_rows[] = {
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table rm_table = {
    .command = "key rm",
    .usage = "ID",
    .head = "Usage: cove key rm ID\n"
            "\n"
            "Ends a key by its id of cove key ls: who holds it can do nothing more.\n"
            "\n"
            "Options:\n",
    .tail = "",
    .rows = rm_rows,
    .rows_count = sizeof(rm_rows) / sizeof(rm_rows[0]),
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

static int key_make(const struct key_new *options, const char *label, struct error *err)
{
    _cleanup_client_ struct client *client = NULL;
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
    failed |= doc_set_text(body, "label", label);
    failed |= doc_set_text(body, "tenant", options->tenant);
    if (failed != 0)
        return error_set(err, "bad_value", 0, "key new: a word is no UTF-8; use another");
    if (client_open(&client, err) < 0 || client_call(client, &request, &key, err) < 0)
        return -1;
    return options->common.json ? doc_print(key, err) : secret_print(key, err);
}

static int key_new(int argc, char **argv)
{
    struct key_new options = {0};
    struct option_words words;
    struct error err;
    int status = 0;

    if (options_begin(&new_table, &options, argc, argv, &words, &status) &&
        key_make(&options, words.word[0], &err) < 0)
        status = api_fail(&err);
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

static int key_ls(int argc, char **argv)
{
    _cleanup_client_ struct client *client = NULL;
    _cleanup_doc_ struct doc *answer = NULL;
    const struct client_request request = {.path = "/v1/keys"};
    struct options_common options = {0};
    struct option_words words;
    struct error err;
    int status;

    if (!options_begin(&ls_table, &options, argc, argv, &words, &status))
        return status;
    if (client_open(&client, &err) < 0 || client_call(client, &request, &answer, &err) < 0)
        return api_fail(&err);
    status = options.json ? doc_print(answer, &err) : keys_show(doc_get(answer, "keys"), &err);
    return status < 0 ? api_fail(&err) : 0;
}

/* ---- rm ---- */

static int key_rm(int argc, char **argv)
{
    _cleanup_client_ struct client *client = NULL;
    char path[API_PATH_MAX] = "/v1/keys/";
    const struct client_request request = {.method = "DELETE", .path = path};
    struct options_common options = {0};
    struct option_words words;
    struct error err;
    int status;

    if (!options_begin(&rm_table, &options, argc, argv, &words, &status))
        return status;
    if (words.word[0][0] == '\0' || !wire_encode(path, sizeof(path), words.word[0])) {
        cmd_say("key rm: this is no id of a key; cove key ls lists them");
        return CMD_FAILED;
    }
    if (client_open(&client, &err) < 0 || client_call(client, &request, NULL, &err) < 0)
        return api_fail(&err);
    return 0;
}

int cmd_key(int argc, char **argv)
{
    static const struct cmd verbs[] = {
        {"new", "make a key and print its secret, this once", key_new, true},
        {"ls", "list keys, without their secrets", key_ls, true},
        {"rm", "end a key", key_rm, true},
    };

    return cmd_verb("key", verbs, sizeof(verbs) / sizeof(verbs[0]), argc, argv);
}
