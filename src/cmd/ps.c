/* `cove ps`: the processes of a sandbox, and those that have ended and are kept. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <stdio.h>

static const struct option_row rows[] = {
    OPTION_JSON("print them as the API has them"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "ps",
    .usage = "SANDBOX",
    .about =
        "Lists the commands that were started in a sandbox. Those that have ended are kept for\n"
        "a while, with their output: cove logs.",

    OPTION_ROWS(rows),
    .words = 1,
    .words_least = 1,
};

/* How it ended, in few letters; NULL: it has not. */
static const char *end_of(const struct doc *process, char buffer[SHOW_VALUE_MAX])
{
    const char *signal_name = doc_text(process, "signal");
    uint64_t code;

    if (doc_true(process, "timed_out"))
        return "timeout";
    if (doc_true(process, "oom_killed"))
        return "memory";
    if (signal_name != NULL)
        return signal_name;
    if (!doc_number(process, "exit_code", &code))
        return doc_text(process, "reason");
    (void)snprintf(buffer, SHOW_VALUE_MAX, "%llu", (unsigned long long)code);
    return buffer;
}

static void process_show(struct show_table *shown, const struct doc *process)
{
    char value[SHOW_VALUE_MAX];
    uint64_t number;

    show_cell(shown, doc_text(process, "id"));
    if (doc_number(process, "pid", &number) && number > 0)
        show_cell_number(shown, number);
    else
        show_cell(shown, NULL);
    show_cell_state(shown, doc_text(process, "state"));
    show_cell(shown, end_of(process, value));
    show_cell(shown, show_age(doc_text(process, "started_at"), value));
    (void)snprintf(value, sizeof(value), "%.1fs", doc_real(process, "cpu_ms") / 1000.0);
    show_cell(shown, value);
    show_cell(shown, doc_text(process, "command"));
}

static int processes_show(const struct doc *processes, struct error *err)
{
    static const char *const headings[] = {"ID", "PID", "STATE", "EXIT", "AGE", "CPU", "COMMAND"};
    struct show_table shown;

    show_table_begin(&shown, sizeof(headings) / sizeof(headings[0]), headings);
    for (size_t i = 0; i < doc_count(processes); i++)
        process_show(&shown, doc_at(processes, i));
    return show_table_print(&shown, err);
}

static int ps_call(struct client *client, void *options, const struct option_words *words,
                   struct error *err)
{
    const struct options_common *common = options;
    _cleanup_doc_ struct doc *processes = NULL;
    char path[API_PATH_MAX];

    if (api_path(path, words->sandbox, "/processes", err) < 0 ||
        api_list(client, path, "processes", &processes, err) < 0)
        return -1;
    return common->json ? api_list_print("processes", processes, err)
                        : processes_show(processes, err);
}

static int ps_run(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};

    return api_command(cmd, argc, argv, &options, ps_call);
}

const struct cmd cmd_ps = {.name = "ps",
                           .summary = "list the commands of a sandbox",
                           .run = ps_run,
                           .table = &table,
                           .target = CMD_TARGET_SANDBOX};
