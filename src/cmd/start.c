/* `cove start`: stopped sandboxes run again, with the disk they had. */
#include "cmd/api.h"
#include "cmd/cmd.h"

static const struct option_row rows[] = {
    {"json", NULL, NULL, "print each sandbox as the API has it", option_take_json, 0},
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table table = {
    .command = "start",
    .usage = "SANDBOX...",
    .head = "Usage: cove start [options] SANDBOX...\n"
            "\n"
            "Starts stopped sandboxes. One that runs already stays as it is.\n"
            "\n"
            "Options:\n",
    .tail = "",
    .rows = rows,
    .rows_count = sizeof(rows) / sizeof(rows[0]),
    .words_least = 1,
    .many = true,
};

int cmd_start(int argc, char **argv)
{
    struct options_common options = {0};
    struct option_words words;
    int status;

    if (!options_begin(&table, &options, argc, argv, &words, &status))
        return status;
    return api_each_sandbox(words.rest, "POST", "/start", options.json);
}
