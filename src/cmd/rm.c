/* `cove rm`: sandboxes end for good, with their disks. */
#include "cmd/api.h"
#include "cmd/cmd.h"

static const struct option_row rows[] = {
    {"help", NULL, NULL, "print this", option_take_help, 'h'},
};

static const struct option_table table = {
    .command = "rm",
    .usage = "SANDBOX...",
    .head = "Usage: cove rm SANDBOX...\n"
            "\n"
            "Ends sandboxes and deletes them with their disks and their output. What was deleted\n"
            "before is no error.\n"
            "\n"
            "Options:\n",
    .tail = "",
    .rows = rows,
    .rows_count = sizeof(rows) / sizeof(rows[0]),
    .words_least = 1,
    .many = true,
};

int cmd_rm(int argc, char **argv)
{
    struct options_common options = {0};
    struct option_words words;
    int status;

    if (!options_begin(&table, &options, argc, argv, &words, &status))
        return status;
    return api_each_sandbox(words.rest, "DELETE", "", false);
}
