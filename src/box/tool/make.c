/* Verbs that make what is empty: mkdir, symlink. */
#include "box/tool/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int make_directory(struct tool *tool, const char *path, struct error *err)
{
    const struct options *options = &tool->options;
    _cleanup_place_ struct place place = PLACE_NONE;
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (place_find(&tool->places, path, options->parents ? PLACE_PARENTS : 0, &place, err) < 0)
        return -1;
    if (mkdirat(place.dir, place.name, 0777) < 0) {
        if (errno != EEXIST || !options->parents)
            return fail(err, errno, "", "make the directory");
        place_close(&place);
        if (place_find(&tool->places, path, PLACE_FOLLOW, &place, err) < 0 ||
            place_stat(&place, &st, err) < 0)
            return -1;
        return S_ISDIR(st.st_mode) ? 0 : fail(err, EEXIST, "", "make the directory");
    }
    if (options->mode == TOOL_SAID_NOT)
        return 0;
    fd = place_open_path(&place, &st, err);
    if (fd < 0)
        return -1;
    if (!S_ISDIR(st.st_mode) || tool_chmod(fd, (mode_t)options->mode) < 0)
        return fail(err, S_ISDIR(st.st_mode) ? errno : ENOTDIR, "", "set its mode");
    return 0;
}

int verb_mkdir(struct tool *tool, struct error *err)
{
    for (unsigned i = 0; i < tool->options.operands_count; i++) {
        _cleanup_place_ struct place place = PLACE_NONE;
        const char *path = tool->options.operands[i];

        if (make_directory(tool, path, err) < 0 ||
            place_find(&tool->places, path, PLACE_FOLLOW, &place, err) < 0 ||
            tool_tell(tool, TOOL_ENTRY, i, path, &place, err) < 0)
            tool_fail(tool, i, path, err);
        else
            tool->say.count++;
    }
    return 0;
}

int verb_symlink(struct tool *tool, struct error *err)
{
    const char *target = tool->options.operands[0];
    _cleanup_place_ struct place place = PLACE_NONE;

    tool->at = tool->options.operands[1];
    if (place_find(&tool->places, tool->at, tool->options.parents ? PLACE_PARENTS : 0, &place,
                   err) < 0)
        return -1;
    if (symlinkat(target, place.dir, place.name) < 0)
        return fail(err, errno, "", "make the link");
    tool->say.count = 1;
    return tool_tell(tool, TOOL_ENTRY, 1, tool->at, &place, err);
}
