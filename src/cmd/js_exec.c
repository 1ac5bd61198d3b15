/* `cove js` becomes cove-js, which has the kernels: 4 MB of code and data that no other command needs. */
#include "cmd/cmd.h"
#include "cmd/js.h"

int js_run(const struct cmd *cmd, int argc, char **argv)
{
    if (options_have(cmd->table, "help", argc, argv))
        return options_help_print(cmd->table);
    return cmd_become("cove-js", argv);
}
