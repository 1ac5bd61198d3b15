/* `cove version`: what this is, and what the server is that the other commands would use, in a form that a script can
 * compare. It starts no server. */
#include "cmd/api.h"
#include "cmd/client.h"
#include "cmd/cmd.h"
#include "cmd/commit.h"
#include "cmd/options.h"
#include "cmd/show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVER_MS 3000 /* a server that takes the connection and then hangs keeps nobody waiting */

#define NO_SERVER "no_server"

static const struct option_row rows[] = {
    OPTION_JSON("print an object with them"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "version",
    .about =
        "Prints the version of this cove, of which commit and for which machine it was built, and the\n"
        "version of the server, if one runs. cove --version prints the first line alone.",
    OPTION_ROWS(rows),
};

/* NULL: none runs, which `err` says of one that is not there, or what else is the matter. */
static struct doc *server_ask(char *address, size_t size, struct error *err)
{
    const struct client_request request = {.path = "/v1/version", .answer_ms = SERVER_MS};
    _cleanup_client_ struct client *client = NULL;
    struct doc *said = NULL;
    const char *path, *url = getenv("COVE_URL");
    bool is_named = url != NULL && url[0] != '\0';

    (void)error_set(err, NO_SERVER, 0, "none runs");
    if ((is_named ? client_open(&client, err) : client_open_running(&client)) < 0 ||
        client_call(client, &request, &said, err) < 0) {
        if (client_was_cut(err) || strcmp(err->code, "no_answer") == 0)
            (void)error_set(err, NO_SERVER, 0, "none runs");
        return NULL;
    }
    path = client_socket(client);
    if (path != NULL)
        (void)snprintf(address, size, "unix:%s", path);
    else
        (void)snprintf(address, size, "%s", url);
    return said;
}

static int print_json(const struct doc *said, const char *address, const struct error *fault,
                      struct error *err)
{
    _cleanup_doc_ struct doc *all = doc_new();
    struct doc *server = said != NULL ? doc_new() : NULL;
    int failed = all == NULL || doc_set_text(all, "version", COVE_VERSION) < 0 ||
                 doc_set_text(all, "machine", COVE_MACHINE) < 0;

    if (failed == 0 && COVE_COMMIT[0] != '\0')
        failed = doc_set_text(all, "commit", COVE_COMMIT) < 0 ||
                 doc_set_text(all, "commit_at", COVE_COMMIT_DATE) < 0;
    if (failed == 0 && said != NULL)
        failed = server == NULL || doc_set(all, "server", server) < 0 ||
                 doc_set_text(server, "address", address) < 0 ||
                 doc_set_text(server, "version", doc_text(said, "version")) < 0 ||
                 doc_set_text(server, "api", doc_text(said, "api")) < 0;
    if (failed == 0 && said == NULL && strcmp(fault->code, NO_SERVER) != 0)
        failed = doc_set_text(all, "server_error", fault->text) < 0;
    return failed == 0 ? doc_print(all, err) : option_no_memory(err);
}

static int print_text(const struct doc *said, const char *address, const struct error *fault,
                      struct error *err)
{
    const char *version = doc_text(said, "version");
    char text[WIRE_PATH_MAX + ERROR_TEXT_MAX + 512], shown[ERROR_TEXT_MAX];
    int used = snprintf(text, sizeof(text), "cove %s\n", COVE_VERSION);

    if (COVE_COMMIT[0] != '\0')
        used += snprintf(text + used, sizeof(text) - (size_t)used, "commit   %s, %s\n", COVE_COMMIT,
                         COVE_COMMIT_DATE);
    used += snprintf(text + used, sizeof(text) - (size_t)used, "machine  %s\n", COVE_MACHINE);
    show_escape(shown, sizeof(shown),
                version != NULL                       ? version
                : strcmp(fault->code, NO_SERVER) == 0 ? "none runs"
                                                      : fault->text);
    (void)snprintf(text + used, sizeof(text) - (size_t)used, "server   %s%s%s\n", shown,
                   version != NULL ? " at " : "", version != NULL ? address : "");
    return cmd_out(text, strlen(text), err);
}

static int version_run(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};
    _cleanup_doc_ struct doc *said = NULL;
    char address[WIRE_PATH_MAX + 16];
    struct option_words words;
    struct error fault, err = {0};
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    said = server_ask(address, sizeof(address), &fault);
    if ((options.json ? print_json : print_text)(said, address, &fault, &err) < 0)
        return cmd_fail(&err);
    return 0;
}

const struct cmd cmd_version = {.name = "version",
                                .summary = "print the version, and that of the server",
                                .run = version_run,
                                .table = &table};
