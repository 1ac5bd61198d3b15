/* cove-tool: one verb of the engine's, run inside a box as a command of it. See tool.h.
 *
 * Static and small, for it is started for every request. It has the rights of the user of the box who
 * runs it and no others, and must never be trusted by the engine with more than that. */
#include "box/tool/verbs.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

static int verb_find(struct tool *tool, struct error *err)
{
    if (tool->options.pattern != NULL)
        return fail(err, 0, "bad_option", "find by a pattern: that is what cove-grep does");
    return search_find(tool, NULL, NULL, err);
}

static const struct tool_row rows[] = {
    {"stat", 1, UINT_MAX, verb_stat},
    {"list", 1, 1, verb_list},
    {"find", 1, UINT_MAX, verb_find},
    {"usage", 1, 1, verb_usage},
    {"read", 1, 1, verb_read},
    {"write", 0, 0, verb_write},
    {"mkdir", 1, UINT_MAX, verb_mkdir},
    {"symlink", 2, 2, verb_symlink},
    {"move", 2, 2, verb_move},
    {"copy", 2, 2, verb_copy},
    {"remove", 1, UINT_MAX, verb_remove},
    {"chmod", 1, UINT_MAX, verb_chmod},
    {"chown", 1, UINT_MAX, verb_chown},
    {"getxattr", 1, 1, verb_getxattr},
    {"setxattr", 1, 1, verb_setxattr},
    {"removexattr", 1, 1, verb_removexattr},
    {"tar-out", 1, UINT_MAX, verb_tar_out},
    {"tar-in", 1, 1, verb_tar_in},
    {"watch", 1, 1, verb_watch},
    {NULL, 0, 0, NULL},
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "term") == 0)
        return term_main(argc - 1, argv + 1);
    return tool_run(rows, argc - 1, argv + 1);
}
