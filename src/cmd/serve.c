/* `cove serve`: becomes the keeper, which starts the engine. Nothing is done here that the keeper would
 * have to trust: it reads its options itself. */
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/scope.h"
#include "keeper/words.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Beside cove, as it is built, or where it is installed. */
static const char *const places[] = {"cove-keeper", "../libexec/cove/cove-keeper"};

#define ROW(name, enumerator, argument, fallback, help) \
    {name, argument, fallback, help, NULL, 0, 0},
static const struct option_row rows[] = {KEEPER_WORDS(ROW)};

static const struct option_table table = {
    .command = "serve",
    .about =
        "Runs the engine, behind an API: HTTP at an address and on a unix socket. It stays in the\n"
        "foreground and logs to standard error; SIGTERM ends it with all that runs in it. Who\n"
        "uses sandboxes on one machine needs no server of his own: one starts by itself.",
    OPTION_ROWS(rows),
};

static int serve_run(const struct cmd *cmd, int argc, char **argv)
{
    char self[PATH_MAX], path[PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (options_have(cmd->table, "help", argc, argv))
        return options_help_print(cmd->table);
    if (length <= 0) {
        cmd_say("serve: cannot find out where cove lies: %s", strerror(errno)); // NOLINT
        return CMD_FAILED;
    }
    self[length] = '\0';
    slash = strrchr(self, '/');
    *slash = '\0';
    scope_obtain(argv);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", self, places[i]);
        (void)execv(path, argv);
        if (errno != ENOENT)
            break;
    }
    cmd_say("serve: cannot start %s: %s; install cove anew, with cove-keeper and cove-engine", path,
            strerror(errno)); // NOLINT(concurrency-mt-unsafe): there is one thread
    return CMD_FAILED;
}

const struct cmd cmd_serve = {
    .name = "serve",
    .summary = "run the server: the engine of sandboxes that live, behind an API",
    .run = serve_run,
    .table = &table};
