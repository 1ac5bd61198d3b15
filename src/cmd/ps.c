/* `cove ps`: the processes of a sandbox, and those that have ended and are kept. */
#include "cmd/api.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <stdio.h>

static const struct option_row rows[] = {
    {"json", NULL, NULL, "print them as the API has them", option_take_json, 0},
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table table = {
    .command = "ps",
    .usage = "SANDBOX",
    .head =
        "Usage: cove ps [options] SANDBOX\n"
        "\n"
        "Lists the commands that were started in a sandbox. Those that have ended are kept for\n"
        "a while, with their output: cove logs.\n"
        "\n"
        "Options:\n",
    .tail = "",
    .rows = rows,
    .rows_count = sizeof(rows) / sizeof(rows[0]),
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
    show_cell(shown, doc_text(process, "state"));
    show_cell(shown, end_of(process, value));
    show_cell(shown, show_age(doc_text(process, "started_at"), value));
    (void)snprintf(value, sizeof(value), "%.1fs", doc_real(process, "cpu_ms") / 1000.0);
    show_cell(shown, value);
    show_cell(shown, doc_text(process, "command"));
}

static int processes_show(const struct doc *processes, struct error *err)
{
    static const char *const headings[] = {"ID", "PID", "STATE", "END", "AGE", "CPU", "COMMAND"};
    struct show_table shown;

    show_table_begin(&shown, sizeof(headings) / sizeof(headings[0]), headings);
    for (size_t i = 0; i < doc_count(processes); i++)
        process_show(&shown, doc_at(processes, i));
    return show_table_print(&shown, err);
}

static int ps_run(const char *word, bool json, struct error *err)
{
    _cleanup_client_ struct client *client = NULL;
    _cleanup_doc_ struct doc *answer = NULL;
    char path[API_PATH_MAX];
    const struct client_request request = {.path = path};

    if (api_sandbox_path(path, word, "/processes", err) < 0 || client_open(&client, err) < 0 ||
        client_call(client, &request, &answer, err) < 0)
        return -1;
    if (!doc_is_array(doc_get(answer, "processes")))
        return error_set(err, "bad_answer", 0,
                         "the server's list of processes is none; check that COVE_URL leads to "
                         "cove");
    return json ? doc_print(answer, err) : processes_show(doc_get(answer, "processes"), err);
}

int cmd_ps(int argc, char **argv)
{
    struct options_common options = {0};
    struct option_words words;
    struct error err;
    int status;

    if (!options_begin(&table, &options, argc, argv, &words, &status))
        return status;
    return ps_run(words.word[0], options.json, &err) < 0 ? api_fail(&err) : 0;
}
