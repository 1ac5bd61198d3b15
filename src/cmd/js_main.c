/* cove-js: the part of cove that runs code in this process. cove has seen to what was left open. */
#include "cmd/cmd.h"
#include "cmd/js.h"

int main(int argc, char **argv)
{
    return js_run(&cmd_js, argc, argv);
}
