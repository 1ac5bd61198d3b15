/* Verbs that look: stat, list, find, usage.
 *
 * `list` and `find` tell in one order, by bytes in each directory and a directory before what is in it, so
 * that a page can begin behind any path of the last one. A link that is named is followed, one that is met
 * never is. */
#include "base/clock.h"
#include "base/glob.h"
#include "box/tool/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

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

/* ---- list, find ---- */

struct search {
    struct tool *tool;
    const struct options *options;
    const char *path;
    unsigned operand;
    bool is_find;
    uint64_t until_ns;
};

static bool is_type_wanted(const char *asked, uint8_t type)
{
    static const struct {
        char letter;
        uint8_t type;
    } types[] = {{'f', DT_REG},  {'d', DT_DIR}, {'l', DT_LNK}, {'p', DT_FIFO},
                 {'s', DT_SOCK}, {'c', DT_CHR}, {'b', DT_BLK}};

    if (asked == NULL)
        return true;
    for (; *asked != '\0'; asked++)
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
            if (types[i].letter == *asked && types[i].type == type)
                return true;
    return false;
}

/* Says it; false: the limit is reached. */
static bool tell(struct search *search, int dir, const char *name, const char *path, unsigned depth)
{
    struct say *say = &search->tool->say;
    char target[TOOL_PATH_MAX];
    struct error err;
    struct stat st;

    if (search->options->limit != TOOL_SAID_NOT && say->count == search->options->limit) {
        say->is_truncated = true;
        return false;
    }
    if (strnlen(path, TOOL_PATH_MAX) == TOOL_PATH_MAX) {
        (void)fail(&err, ENAMETOOLONG, "", "tell such a long path");
        say_error(say, (int)search->operand, path, &err);
        return true;
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        /* What was removed a moment ago is no failure. */
        if (errno != ENOENT) {
            (void)fail(&err, errno, "", "look at it");
            say_error(say, (int)search->operand, path, &err);
        }
        return true;
    }
    place_target(dir, name, &st, target, sizeof(target));
    say_entry(
        say, search->tool->users, TOOL_ENTRY,
        &(struct entry){
            .operand = search->operand, .depth = depth, .st = &st, .path = path, .target = target});
    say->count++;
    return true;
}

/* 1: to be told, 0: not; *enter: what is in it may be. */
static int is_wanted(const struct search *search, const struct walk_step *step, bool *enter)
{
    const struct options *options = search->options;
    enum globs_answer answer;

    *enter = true;
    if (options->hidden == 0 && step->name[0] == '.')
        return *enter = false;
    answer = globs_match(options->globs, options->globs_count, step->below);
    if (answer == GLOBS_EXCLUDED)
        return *enter = false;
    return answer == GLOBS_TAKEN && is_type_wanted(options->type, step->type);
}

static int search_walk(struct search *search, int top, const char *after, struct error *err)
{
    uint64_t depth = search->options->depth;
    struct walk_options how = {
        .path = search->path,
        .after = after,
        .depth_max = depth < UINT_MAX ? (unsigned)depth : UINT_MAX,
    };
    _cleanup_walk_ struct walk *walk = walk_new(top, &how, err);
    struct walk_step step;
    bool enter;

    if (walk == NULL)
        return -1;
    for (unsigned steps = 0;; steps++) {
        enum walk_kind kind = walk_next(walk, &step);

        if (kind == WALK_END)
            return 0;
        if ((steps & 63) == 0) {
            say_flush_late(&search->tool->say);
            if (search->until_ns != 0 && clock_monotonic_ns() > search->until_ns)
                return fail(err, 0, "timeout", "search on: it took as long as it may");
        }
        if (kind == WALK_FAILED && step.error.errnum != ENOENT)
            say_error(&search->tool->say, (int)search->operand, step.path, &step.error);
        if (kind != WALK_ENTRY)
            continue;
        if (is_wanted(search, &step, &enter) &&
            !tell(search, step.dir, step.name, step.path, step.depth))
            return 0;
        if (!enter)
            walk_skip(walk);
    }
}

/* --after is what a list told last: a path that begins with the operand. */
static int after_below(const struct search *search, const char **after, struct error *err)
{
    size_t length = strlen(search->path);

    *after = search->options->after;
    if (*after == NULL)
        return 0;
    if (strncmp(*after, search->path, length) != 0 ||
        (search->path[length - 1] != '/' && (*after)[length] != '/'))
        return fail(err, 0, "bad_option", "begin behind a path that is not below it");
    *after += length;
    return 0;
}

static int search_one(struct search *search, struct error *err)
{
    _cleanup_place_ struct place place = PLACE_NONE;
    const char *after = NULL;
    struct stat st;
    int top;

    if (place_find(&search->tool->places, search->path, PLACE_FOLLOW, &place, err) < 0 ||
        place_stat(&place, &st, err) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode) || search->options->depth == 0) {
        if (!search->is_find || is_type_wanted(search->options->type, IFTODT(st.st_mode)))
            (void)tell(search, place.dir, place.name, search->path, 0);
        return 0;
    }
    top = place_open_directory(&place, err);
    if (top < 0)
        return -1;
    if (!search->is_find && after_below(search, &after, err) < 0) {
        fd_close(&top);
        return -1;
    }
    return search_walk(search, top, after, err);
}

int verb_list(struct tool *tool, struct error *err)
{
    struct search search = {
        .tool = tool, .options = &tool->options, .path = tool->options.operands[0]};

    if (tool->options.depth == TOOL_SAID_NOT)
        tool->options.depth = 1;
    return search_one(&search, err);
}

int verb_find(struct tool *tool, struct error *err)
{
    struct search search = {.tool = tool, .options = &tool->options, .is_find = true};

    if (tool->options.time_limit_ms < UINT64_MAX / 1000000)
        search.until_ns = clock_monotonic_ns() + tool->options.time_limit_ms * 1000000;
    for (unsigned i = 0; i < tool->options.operands_count && !tool->say.is_truncated; i++) {
        search.operand = i;
        search.path = tool->options.operands[i];
        if (search_one(&search, err) == 0)
            continue;
        if (strcmp(err->code, "timeout") == 0)
            return -1;
        tool_fail(tool, i, search.path, err);
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
