/* `cove wait`: waits for the end of a command and ends as that did. */
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define PAUSE_MS 200
#define ROUND_MS 20000 /* one request; what stands between us and the server may cut longer ones */

struct wait {
    struct options_common common;
    uint64_t timeout_ms; /* 0: none */
};

static int take_timeout(void *into, const char *value, struct error *err)
{
    return parse_duration("--timeout", value, &((struct wait *)into)->timeout_ms, err);
}

static const struct option_row rows[] = {
    {"timeout", "TIME", "none", "wait no longer than this; exit 124", take_timeout, 0, 0},
    OPTION_JSON("print the process as the API has it"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "wait",
    .usage = "SANDBOX [PROCESS]",
    .about =
        "Waits until a command of a sandbox has ended, the newest one or the one with this id of\n"
        "cove ps, and exits with its status: 128+N if signal N killed it, 124 if its time or that\n"
        "of --timeout was up, 125 if cove failed.",

    OPTION_ROWS(rows),
    .words = 2,
    .words_least = 1,
};

/* Fetches the Process when it has ended, or as it is at the deadline (0: none). */
static int process_wait(struct client *client, const char *path_of, uint64_t deadline,
                        struct doc **process, struct error *err)
{
    char path[API_PATH_MAX + 64];
    const struct client_request request = {.path = path};
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    uint64_t heard = api_now_ms();

    for (;;) {
        uint64_t now = api_now_ms();
        uint64_t round = deadline == 0 || deadline > now + ROUND_MS ? ROUND_MS
                         : deadline > now                           ? deadline - now
                                                                    : 1;

        (void)snprintf(path, sizeof(path), "%s/wait?timeout_ms=%llu", path_of,
                       (unsigned long long)round);
        if (client_call(client, &request, process, err) < 0) {
            if (!api_goes_on(client, heard, err))
                return -1;
            continue;
        }
        heard = api_now_ms();
        if (heard - now < PAUSE_MS && round > PAUSE_MS) /* one that does not wait */
            (void)nanosleep(&pause, NULL);
        if (!api_process_runs(*process) || (deadline != 0 && api_now_ms() >= deadline))
            return 0;
        doc_freep(process);
    }
}

static int wait_call(struct client *client, void *into, const struct option_words *words,
                     struct error *err)
{
    const struct wait *options = into;
    uint64_t deadline = options->timeout_ms == 0 ? 0 : api_now_ms() + options->timeout_ms;
    _cleanup_doc_ struct doc *process = NULL;

    if (process_wait(client, words->process, deadline, &process, err) < 0 ||
        (options->common.json && doc_print(process, err) < 0))
        return -1;
    if (!api_process_runs(process))
        return api_process_status(process);
    cmd_say("the command still runs; wait longer with --timeout, or end it with cove kill");
    return API_EXIT_TIMED_OUT;
}

static int wait_run(const struct cmd *cmd, int argc, char **argv)
{
    struct wait options = {0};

    return api_command(cmd, argc, argv, &options, wait_call);
}

const struct cmd cmd_wait = {.name = "wait",
                             .summary = "wait for the end of a command",
                             .run = wait_run,
                             .table = &table,
                             .target = CMD_TARGET_PROCESS};
