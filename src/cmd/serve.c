/* `cove serve`: becomes the keeper, which starts the engine. Nothing is done here that the keeper would
 * have to trust: it reads its options itself. */
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/scope.h"
#include "keeper/words.h"

#define ROW(name, enumerator, argument, fallback, help) \
    {name, argument, fallback, help, NULL, 0, 0},
static const struct option_row rows[] = {KEEPER_WORDS(ROW)};

static const struct option_table table = {
    .command = "serve",
    .about =
        "Runs the engine, behind an API: HTTP at an address and on a unix socket. It stays in the\n"
        "foreground and logs to standard error; SIGTERM ends it with all that runs in it. On a single\n"
        "machine you need not run this: any command on sandboxes starts a server of your own.",
    OPTION_ROWS(rows),
};

static int serve_run(const struct cmd *cmd, int argc, char **argv)
{
    if (options_have(cmd->table, "help", argc, argv))
        return options_help_print(cmd->table);
    scope_obtain(argv);
    return cmd_become("cove-keeper", argv);
}

const struct cmd cmd_serve = {
    .name = "serve",
    .summary = "run the server: the engine of sandboxes that live, behind an API",
    .run = serve_run,
    .table = &table};
