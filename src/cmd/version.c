/* `cove version`: what this is, in a form that a script can compare. The build defines the number,
 * so that it stands in one place. */
#include "cmd/cmd.h"
#include "cmd/options.h"

static const struct option_row rows[] = {
    OPTION_JSON("print an object with the version"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "version",
    .about = "Prints the version of this cove. That of a server may be another one.",
    OPTION_ROWS(rows),
};

static int version_run(const struct cmd *cmd, int argc, char **argv)
{
    static const char text[] = "cove " COVE_VERSION "\n";
    static const char json[] = "{\"version\":\"" COVE_VERSION "\"}\n";
    struct options_common options = {0};
    struct option_words words;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    status = options.json ? cmd_print(json, sizeof(json) - 1) : cmd_print(text, sizeof(text) - 1);
    return status == 0 ? 0 : CMD_FAILED;
}

const struct cmd cmd_version = {
    .name = "version", .summary = "print the version", .run = version_run, .table = &table};
