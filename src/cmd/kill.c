/* `cove kill`: a command of a sandbox ends, with all that it started; or gets a signal. */
#include "cmd/api.h"
#include "cmd/cmd.h"

#include <string.h>

struct kill {
    struct options_common common;
    int signal_number; /* 0: kill the whole tree */
};

static int take_signal(void *into, const char *value, struct error *err)
{
    struct kill *options = into;

    options->signal_number = api_signal_number(value);
    if (options->signal_number == 0)
        return option_bad_value(err, "signal", value, "there is no such signal",
                                "write a name such as TERM, or a number from 1 to 64");
    return 0;
}

static const struct option_row rows[] = {
    {"signal", "SIGNAL", NULL, "send this signal, such as TERM or HUP, instead of killing all",
     take_signal, 's', 0},
    OPTION_JSON("print the process as the API has it then"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "kill",
    .usage = "SANDBOX [PROCESS]",
    .about =
        "Kills a command of a sandbox, the newest one or the one with this id of cove ps, with\n"
        "everything that it started; its output stays. With --signal it is only told, and may do as\n"
        "it likes.",

    OPTION_ROWS(rows),
    .words = 2,
    .words_least = 1,
};

static int signal_send(struct client *client, const char *process, int number, struct error *err)
{
    _cleanup_doc_ struct doc *body = doc_new();
    char path[API_PATH_MAX];
    const struct client_request request = {.method = "POST", .path = path, .json = body};

    if (doc_set_number(body, "signal", (uint64_t)number) < 0)
        return option_no_memory(err);
    if (api_path(path, process, "/signal", err) < 0)
        return -1;
    return client_call(client, &request, NULL, err);
}

/* To delete one that has ended would be to forget it, with its output. */
static int tree_kill(struct client *client, const char *path, struct error *err)
{
    _cleanup_doc_ struct doc *process = NULL;
    const struct client_request look = {.path = path};
    const struct client_request end = {.method = "DELETE", .path = path};

    if (client_call(client, &look, &process, err) < 0)
        return -1;
    if (!api_process_runs(process))
        return error_set(err, "process_ended", 0,
                         "%.64s: this process has ended already; cove ps shows how",
                         strrchr(path, '/') + 1);
    return client_call(client, &end, NULL, err);
}

static int kill_call(struct client *client, void *into, const struct option_words *words,
                     struct error *err)
{
    const struct kill *options = into;
    const struct client_request look = {.path = words->process};
    _cleanup_doc_ struct doc *process = NULL;

    if ((options->signal_number != 0
             ? signal_send(client, words->process, options->signal_number, err)
             : tree_kill(client, words->process, err)) < 0)
        return -1;
    if (!options->common.json)
        return 0;
    return client_call(client, &look, &process, err) < 0 ? -1 : doc_print(process, err);
}

static int kill_run(const struct cmd *cmd, int argc, char **argv)
{
    struct kill options = {0};

    return api_command(cmd, argc, argv, &options, kill_call);
}

const struct cmd cmd_kill = {.name = "kill",
                             .summary = "kill a command with all it started, or send it a signal",
                             .run = kill_run,
                             .table = &table,
                             .target = CMD_TARGET_PROCESS};
