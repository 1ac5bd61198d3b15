/* `cove logs`: what a command wrote, while it runs and after it has ended. */
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/follow.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct logs {
    struct options_common common;
    bool follows, only[2];
    bool has_tail;
    uint64_t tail;  /* bytes */
    uint64_t lines; /* UINT64_MAX: all */
};

static int take_lines(void *into, const char *value, struct error *err)
{
    struct logs *logs = into;

    if (strcmp(value, "all") == 0)
        return 0;
    return parse_count("--tail", value, 0, UINT64_MAX - 1, &logs->lines, err);
}

static int take_tail(void *into, const char *value, struct error *err)
{
    struct logs *logs = into;

    logs->has_tail = true;
    return parse_size("--tail-bytes", value, &logs->tail, err);
}

static const struct option_row rows[] = {
    {"follow", NULL, NULL, "go on with what comes, until the command ends", NULL, 'f',
     offsetof(struct logs, follows)},
    {"stdout", NULL, NULL, "standard output alone", NULL, 0, offsetof(struct logs, only[0])},
    {"stderr", NULL, NULL, "standard error alone", NULL, 0, offsetof(struct logs, only[1])},
    {"tail", "LINES", "all that is kept", "the newest lines of each stream", take_lines, 'n', 0},
    {"tail-bytes", "SIZE", "all that is kept", "the newest bytes of each stream", take_tail, 0, 0},
    OPTION_JSON(
        "print the lines of the API's stream, one object each, with the text and where it stood"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "logs",
    .usage = "SANDBOX [PROCESS]",
    .about =
        "Prints what a command wrote to standard output and standard error, each on ours: the\n"
        "command with this id of cove ps, or the newest one.",

    OPTION_ROWS(rows),
    .words = 2,
    .words_least = 1,
};

/* How many bytes a stream has had so far. */
static uint64_t stream_bytes(const struct doc *process, int stream)
{
    uint64_t bytes;

    return doc_number(doc_get(process, stream == 0 ? "stdout" : "stderr"), "bytes", &bytes) ? bytes
                                                                                            : 0;
}

static int output_print(const struct logs *logs, struct follow *follow, struct error *err)
{
    _cleanup_doc_ struct doc *process = NULL;
    _cleanup_doc_ struct doc *ended = NULL;
    const struct client_request request = {.path = follow->process};

    if (client_call(follow->client, &request, &process, err) < 0)
        return -1;
    for (int stream = 0; stream < 2; stream++) {
        uint64_t end = stream_bytes(process, stream);

        follow->is_left_out[stream] = (logs->only[0] || logs->only[1]) && !logs->only[stream];
        if (logs->has_tail && end > logs->tail)
            follow->from[stream] = end - logs->tail;
        else if (!doc_number(doc_get(process, stream == 0 ? "stdout" : "stderr"), "from",
                             &follow->from[stream]))
            follow->from[stream] = 0; /* what the log lost before is known from cove ps */
        if (logs->lines != UINT64_MAX && !follow->is_left_out[stream] &&
            follow_tail(follow, stream, end, logs->lines, err) < 0)
            return -1;
    }
    if (logs->common.json) {
        /* What has ended ends by itself, and says how. */
        follow->is_json = true;
        follow->has_end = !logs->follows && api_process_runs(process);
        for (int stream = 0; stream < 2; stream++)
            follow->end[stream] = stream_bytes(process, stream);
        if (follow_is_at_end(follow))
            return 0;
    }
    if (logs->follows)
        api_end_unread(follow->client);
    if (logs->follows || logs->common.json)
        return follow_run(follow, &ended, err);
    for (int stream = 0; stream < 2; stream++)
        if (follow_fetch(follow, stream, stream_bytes(process, stream), err) < 0)
            return -1;
    return 0;
}

static int logs_call(struct client *client, void *options, const struct option_words *words,
                     struct error *err)
{
    struct follow follow = {.client = client, .process = words->process, .watch_fd = -1};

    return output_print(options, &follow, err);
}

static int logs_run(const struct cmd *cmd, int argc, char **argv)
{
    struct logs logs = {.lines = UINT64_MAX};

    return api_command(cmd, argc, argv, &logs, logs_call);
}

const struct cmd cmd_logs = {.name = "logs",
                             .summary = "print what a command wrote",
                             .run = logs_run,
                             .table = &table,
                             .target = CMD_TARGET_PROCESS};
