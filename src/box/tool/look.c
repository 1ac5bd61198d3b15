/* Verbs that look: stat, usage. For list and find see search.c. */
#include "box/tool/verbs.h"

#include <fcntl.h>
#include <limits.h>

int verb_stat(struct tool *tool, struct error *err)
{
    const struct options *options = &tool->options;

    for (unsigned i = 0; i < options->operands_count; i++) {
        _cleanup_place_ struct place place = PLACE_NONE;
        const char *path = options->operands[i];

        if (place_find(&tool->places, path, options->follow ? PLACE_FOLLOW : 0, &place, err) < 0 ||
            tool_tell(tool, TOOL_ENTRY, i, path, &place, err) < 0)
            tool_fail(tool, i, path, err);
    }
    return 0;
}

/* ---- usage ---- */

/* What its files take on the disk; a file of several names counts for each: to know them all would take
 * memory without bound. */
int verb_usage(struct tool *tool, struct error *err)
{
    _cleanup_place_ struct place place = PLACE_NONE;
    _cleanup_walk_ struct walk *walk = NULL;
    struct walk_step step;
    struct stat st;
    int top;

    if (place_find(&tool->places, tool->at, PLACE_FOLLOW, &place, err) < 0 ||
        place_stat(&place, &st, err) < 0)
        return -1;
    tool->say.count = 1;
    tool->say.bytes = (uint64_t)st.st_blocks * 512;
    if (!S_ISDIR(st.st_mode))
        return 0;
    top = place_open_directory(&place, err);
    if (top < 0)
        return -1;
    walk = walk_new(top, &(struct walk_options){.path = tool->at, .depth_max = UINT_MAX}, err);
    if (walk == NULL)
        return -1;
    for (enum walk_kind kind; (kind = walk_next(walk, &step)) != WALK_END;) {
        if (kind == WALK_FAILED)
            say_error(&tool->say, 0, step.path, &step.error);
        if (kind != WALK_ENTRY || fstatat(step.dir, step.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        tool->say.count++;
        tool->say.bytes += (uint64_t)st.st_blocks * 512;
    }
    return 0;
}
