/* `cove version`: what this is, in a form that a script can compare. The build defines the number,
 * so that it stands in one place. */
#include "cmd/cmd.h"

int cmd_version(int argc, char **argv)
{
    static const char text[] = "cove " COVE_VERSION "\n";

    if (argc > 1) {
        cmd_say("version: it takes no argument, but was given '%s'; write cove version", argv[1]);
        return CMD_FAILED;
    }
    return cmd_print(text, sizeof(text) - 1) == 0 ? 0 : CMD_FAILED;
}
