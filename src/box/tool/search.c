/* The verbs list and find.
 *
 * Both tell in one order, by bytes in each directory and a directory before what is in it, so that a page
 * can begin behind any path of the last one. A link that is named is followed, one that is met never is.
 * cove-grep has them, too, for what takes a pattern. */
#include "base/clock.h"
#include "base/glob.h"
#include "box/tool/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

struct search {
    struct tool *tool;
    const struct options *options;
    const char *path;
    unsigned operand;
    bool is_find;
    uint64_t until_ns;
    search_accepts accepts;
    void *arg;
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
    if (search_is_hidden(options, step->name))
        return *enter = false;
    answer = globs_match(options->globs, options->globs_count, step->below);
    if (answer == GLOBS_EXCLUDED)
        return *enter = false;
    return answer == GLOBS_TAKEN && is_type_wanted(options->type, step->type) &&
           (search->accepts == NULL || search->accepts(search->arg, step->below));
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
            if (search->until_ns != 0 && clock_monotonic_ns() > search->until_ns) {
                search->tool->say.is_truncated = true; /* what was found is an answer, too */
                return 0;
            }
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
        return fail(err, 0, "bad_option",
                    "--after is no path below what is searched; send the last one that came");
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
        if (!search->is_find || is_type_wanted(search->options->type, (uint8_t)IFTODT(st.st_mode)))
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

int search_globs_check(const struct options *options, struct error *err)
{
    for (unsigned i = 0; i < options->globs_count; i++) {
        const char *flaw = glob_flaw(options->globs[i]);

        if (flaw != NULL)
            return fail(err, 0, "bad_pattern", "the glob \"%.60s\" has %s; correct it",
                        options->globs[i], flaw);
    }
    return 0;
}

uint64_t search_until(const struct options *options)
{
    /* Longer than a century is no limit. */
    return options->time_limit_ms > UINT64_MAX / 4000000
               ? 0
               : clock_monotonic_ns() + options->time_limit_ms * 1000000;
}

bool search_is_hidden(const struct options *options, const char *name)
{
    return options->hidden == 0 && name[0] == '.';
}

int verb_list(struct tool *tool, struct error *err)
{
    struct search search = {
        .tool = tool, .options = &tool->options, .path = tool->options.operands[0]};

    if (search_globs_check(&tool->options, err) < 0)
        return -1;
    if (tool->options.depth == TOOL_SAID_NOT)
        tool->options.depth = 1;
    return search_one(&search, err);
}

int search_find(struct tool *tool, search_accepts accepts, void *arg, struct error *err)
{
    struct search search = {
        .tool = tool, .options = &tool->options, .is_find = true, .accepts = accepts, .arg = arg};

    if (search_globs_check(&tool->options, err) < 0)
        return -1;
    search.until_ns = search_until(&tool->options);
    for (unsigned i = 0; i < tool->options.operands_count && !tool->say.is_truncated; i++) {
        search.operand = i;
        search.path = tool->options.operands[i];
        if (search_one(&search, err) == 0)
            continue;
        tool_fail(tool, i, search.path, err);
    }
    return 0;
}
