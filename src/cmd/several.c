/* `cove start`, `cove stop`, `cove rm`: one request for each of several sandboxes. One that fails is told,
 * and the others have their turn; but a server that is gone is not asked again. */
#include "cmd/api.h"
#include "cmd/cmd.h"

#include <string.h>

/* What differs between them. */
struct several {
    const char *method, *rest;
};

static const struct option_row rows[] = {
    OPTION_JSON("print each sandbox as the API has it"),
    OPTION_HELP,
};

struct several_options {
    struct options_common common;
    bool forces;
};

static const struct option_row rm_rows[] = {
    {"force", NULL, NULL, "a sandbox that is not there is no error; what runs is ended anyway",
     NULL, 'f', offsetof(struct several_options, forces)},
    OPTION_HELP, /* nothing is left to print */
};

static int one_sandbox(struct client *client, const struct several *several, const char *word,
                       bool json, struct error *err)
{
    _cleanup_doc_ struct doc *answer = NULL;
    char path[API_PATH_MAX];
    const struct client_request request = {.method = several->method, .path = path};

    if (api_sandbox_path(path, word, several->rest, err) < 0 ||
        client_call(client, &request, &answer, err) < 0)
        return -1;
    return json && answer != NULL ? doc_print(answer, err) : 0;
}

static int several_run(const struct cmd *cmd, int argc, char **argv)
{
    _cleanup_client_ struct client *client = NULL;
    struct several_options options = {0};
    struct option_words words;
    struct error err;
    int status = 0;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    if (client_open(&client, &err) < 0)
        return api_fail(&err);
    for (char *const *word = words.rest; *word != NULL; word++) {
        if (one_sandbox(client, cmd->more, *word, options.common.json, &err) == 0 ||
            (options.forces && strcmp(err.code, "sandbox_not_found") == 0))
            continue;
        status = api_fail(&err);
        if (client_was_cut(&err))
            break;
    }
    return status;
}

const struct cmd cmd_start = {
    .name = "start",
    .summary = "let stopped sandboxes run again",
    .run = several_run,
    .more = &(const struct several){"POST", "/start"},
    .table =
        &(const struct option_table){
            .command = "start",
            .usage = "SANDBOX...",
            .about = "Starts stopped sandboxes. One that runs already stays as it is.",
            OPTION_ROWS(rows),
            .words_least = 1,
            .many = true,
        },
};

const struct cmd cmd_stop = {
    .name = "stop",
    .summary = "end what runs in sandboxes, and keep their disks",
    .run = several_run,
    .more = &(const struct several){"POST", "/stop"},
    .table =
        &(const struct option_table){
            .command = "stop",
            .usage = "SANDBOX...",
            .about =
                "Ends everything that runs in the sandboxes. A persistent one keeps its disk, and its\n"
                "processes keep their output; cove start lets it run again.",
            OPTION_ROWS(rows),
            .words_least = 1,
            .many = true,
        },
};

const struct cmd cmd_rm = {
    .name = "rm",
    .summary = "delete sandboxes",
    .run = several_run,
    .more = &(const struct several){"DELETE", ""},
    .table =
        &(const struct option_table){
            .command = "rm",
            .usage = "SANDBOX...",
            .about =
                "Ends sandboxes and deletes them with their disks and their output. An id that was\n"
                "deleted before is no error.",
            OPTION_ROWS(rm_rows),
            .words_least = 1,
            .many = true,
        },
};
