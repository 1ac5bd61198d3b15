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
    uint64_t tail;
};

static int take_follow(void *into, const char *value, struct error *err)
{
    (void)value;
    (void)err;
    ((struct logs *)into)->follows = true;
    return 0;
}

static int take_stdout(void *into, const char *value, struct error *err)
{
    (void)value;
    (void)err;
    ((struct logs *)into)->only[0] = true;
    return 0;
}

static int take_stderr(void *into, const char *value, struct error *err)
{
    (void)value;
    (void)err;
    ((struct logs *)into)->only[1] = true;
    return 0;
}

static int take_tail(void *into, const char *value, struct error *err)
{
    struct logs *logs = into;

    logs->has_tail = true;
    return parse_size("--tail", value, &logs->tail, err);
}

static const struct option_row rows[] = {
    {"follow", NULL, NULL, "go on with what comes, until the command ends", take_follow, 'f'},
    {"stdout", NULL, NULL, "standard output alone", take_stdout, 0},
    {"stderr", NULL, NULL, "standard error alone", take_stderr, 0},
    {"tail", "SIZE", "all that is kept", "the newest bytes of each stream", take_tail, 0},
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table table = {
    .command = "logs",
    .usage = "SANDBOX [PROCESS]",
    .head = "Usage: cove logs [options] SANDBOX [PROCESS]\n"
            "\n"
            "Prints what a command wrote to standard output and standard error, each on ours: the\n"
            "command with this id of cove ps, or the newest one.\n"
            "\n"
            "Options:\n",
    .tail = "",
    .rows = rows,
    .rows_count = sizeof(rows) / sizeof(rows[0]),
    .words = 2,
    .words_least = 1,
};

/* The id of the process that was started last. */
static int newest_find(struct client *client, const char *sandbox, char id[64], struct error *err)
{
    _cleanup_doc_ struct doc *answer = NULL;
    char path[API_PATH_MAX];
    const struct client_request request = {.path = path};
    const struct doc *processes;
    unsigned long long newest = 0;

    if (api_sandbox_path(path, sandbox, "/processes", err) < 0 ||
        client_call(client, &request, &answer, err) < 0)
        return -1;
    processes = doc_get(answer, "processes");
    for (size_t i = 0; i < doc_count(processes); i++) {
        const char *text = doc_text(doc_at(processes, i), "id");
        unsigned long long number = text == NULL ? 0 : strtoull(text, NULL, 10);

        newest = number > newest ? number : newest;
    }
    if (newest == 0)
        return error_set(err, "process_not_found", 0, "nothing was started in this sandbox yet");
    (void)snprintf(id, 64, "%llu", newest);
    return 0;
}

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
    }
    if (logs->follows)
        return follow_run(follow, &ended, err);
    for (int stream = 0; stream < 2; stream++)
        if (follow_fetch(follow, stream, stream_bytes(process, stream), err) < 0)
            return -1;
    return 0;
}

static int logs_run(const struct logs *logs, const struct option_words *words, struct error *err)
{
    _cleanup_client_ struct client *client = NULL;
    const char *process = words->word[1];
    char newest[64];
    char path[API_PATH_MAX];
    struct follow follow = {.process = path, .watch_fd = -1};

    if (client_open(&client, err) < 0)
        return -1;
    if (process == NULL) {
        if (newest_find(client, words->word[0], newest, err) < 0)
            return -1;
        process = newest;
    }
    follow.client = client;
    if (api_process_path(path, words->word[0], process, "", err) < 0)
        return -1;
    return output_print(logs, &follow, err);
}

int cmd_logs(int argc, char **argv)
{
    struct logs logs = {0};
    struct option_words words;
    struct error err;
    int status;

    if (!options_begin(&table, &logs, argc, argv, &words, &status))
        return status;
    return logs_run(&logs, &words, &err) < 0 ? api_fail(&err) : 0;
}
