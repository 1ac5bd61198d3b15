/* cove: what must be true before any command runs.
 *
 * What the caller left open beside its standard streams is closed here, first of all: a descriptor
 * that reached a box would be a door out of it. */
#include "base/fd.h"
#include "cmd/cmd.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* A closed 0, 1 or 2 would be the next file that is opened, and the command would get that. */
static int stdio_fill(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            return fd_fill_stdio();
    return 0;
}

int main(int argc, char **argv)
{
    static const char version_line[] = "cove " COVE_VERSION "\n";
    static char help[] = "help", version[] = "version";

    /* The keeper closes them itself, but for the sockets that a service manager gave it. */
    if (argc < 2 || strcmp(argv[1], "serve") != 0)
        (void)close_range(3, ~0U, 0);
    if (stdio_fill() < 0) {
        cmd_say("/dev/null: it cannot be opened in place of a closed standard stream; open 0, 1 "
                "and 2 before cove starts");
        return CMD_FAILED;
    }
    if (argc < 2) {
        (void)cmd_overview(STDERR_FILENO);
        return CMD_FAILED;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        argv[1] = help;
    else if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return cmd_print(version_line, sizeof(version_line) - 1) == 0 ? 0 : CMD_FAILED;
    else if (strcmp(argv[1], "--version") == 0)
        argv[1] = version;
    return cmd_run_words(argc - 1, argv + 1);
}
