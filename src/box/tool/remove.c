/* The verb remove, and what removes a tree that was made for nothing.
 *
 * Never through a link, however deep; what its owner made unreadable for himself goes, too. */
#include "box/tool/copy.h"
#include "box/tool/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* What goes with this name; looked up before, for then it is no more. */
static uint64_t bytes_of(int dir, const char *name, const struct remove_told *told)
{
    struct stat st;

    if (told->bytes == NULL || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(st.st_mode) || st.st_nlink > 1)
        return 0;
    return (uint64_t)st.st_size;
}

static int remove_name(int dir, const char *name, bool is_directory, const struct remove_told *told)
{
    uint64_t bytes = is_directory ? 0 : bytes_of(dir, name, told);

    if (unlinkat(dir, name, is_directory ? AT_REMOVEDIR : 0) < 0)
        return -1;
    (*told->count)++;
    if (told->bytes != NULL)
        *told->bytes += bytes;
    return 0;
}

/* Of a tree all that can be removed is; `told` hears of the rest. */
static int remove_below(const struct place *place, const char *path, const struct remove_told *told,
                        struct error *err)
{
    struct walk_options how = {.path = path, .depth_max = UINT_MAX, .opens_up = true};
    _cleanup_walk_ struct walk *walk = NULL;
    struct walk_step step;
    int top, failed = 0;

    place_open_up(place->dir, place->name);
    top = place_open_directory(place, err);
    if (top < 0)
        return -1;
    walk = walk_new(top, &how, err);
    if (walk == NULL)
        return -1;
    for (enum walk_kind kind; (kind = walk_next(walk, &step)) != WALK_END;) {
        if (kind == WALK_ENTRY && step.type == DT_DIR)
            continue;
        if (kind != WALK_FAILED && remove_name(step.dir, step.name, kind == WALK_LEAVE, told) == 0)
            continue;
        if (kind != WALK_FAILED)
            (void)fail(&step.error, errno, "", "remove it");
        if (step.error.errnum == ENOENT ||
            (kind == WALK_LEAVE && failed != 0 && errno == ENOTEMPTY))
            continue; /* somebody else removed it; or why not was told */
        failed = -1;
        *err = step.error;
        if (told->tool != NULL)
            tool_fail(told->tool, told->operand, step.path, err);
    }
    return failed;
}

int remove_place(const struct place *place, const char *path, const struct remove_told *told,
                 struct error *err)
{
    struct stat st;

    if (place_stat(place, &st, err) < 0)
        return -1;
    if (strcmp(place->name, ".") == 0)
        return fail(
            err, EBUSY, "unnamed",
            "a path that ends with \".\", \"..\" or \"/\" alone names no directory to remove; "
            "write its name");
    if (S_ISDIR(st.st_mode) && told->is_recursive && remove_below(place, path, told, err) < 0)
        return -1;
    if (remove_name(place->dir, place->name, S_ISDIR(st.st_mode), told) < 0)
        return fail(err, errno, "", S_ISDIR(st.st_mode) ? "remove the directory" : "remove it");
    return 0;
}

static void say_gone(struct tool *tool, const struct tool_gone *gone, const char *path)
{
    size_t size = strlen(path) + 1;

    say_begin(&tool->say, TOOL_GONE, sizeof(*gone) + size);
    say_bytes(&tool->say, gone, sizeof(*gone));
    say_bytes(&tool->say, path, size);
}

int verb_remove(struct tool *tool, struct error *err)
{
    const struct options *options = &tool->options;

    for (unsigned i = 0; i < options->operands_count; i++) {
        _cleanup_place_ struct place place = PLACE_NONE;
        const char *path = options->operands[i];
        struct tool_gone gone = {.operand = i};
        struct remove_told told = {.is_recursive = options->recursive,
                                   .count = &gone.count,
                                   .bytes = &gone.bytes,
                                   .tool = tool,
                                   .operand = i};
        int done;

        *err = (struct error){0};
        done = place_find(&tool->places, path, 0, &place, err) < 0
                   ? -1
                   : remove_place(&place, path, &told, err);
        tool->say.count += gone.count;
        tool->say.bytes += gone.bytes;
        if (done < 0 && (err->errnum != ENOENT || !options->missing_ok))
            tool_fail(tool, i, path, err);
        else
            say_gone(tool, &gone, path);
    }
    return 0;
}
