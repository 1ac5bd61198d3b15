/* Verbs that change what is said of a file: chmod, chown, and the extended attributes.
 *
 * What is changed is held by fd. A link that is named is followed, unless --no-follow says otherwise; one
 * that is met in a tree never is: chown changes it itself, chmod passes it over. */
#include "base/hex.h"
#include "box/tool/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- chmod, chown ---- */

struct change {
    struct tool *tool;
    bool is_chown;
    mode_t mode;
    uid_t uid;
    gid_t gid;
};

static int change_fd(const struct change *change, int fd, const struct stat *st, struct error *err)
{
    if (change->is_chown) {
        if (fchownat(fd, "", change->uid, change->gid, AT_EMPTY_PATH) < 0)
            return tool_fail_owner(err, "change its owner");
    } else if (!S_ISLNK(st->st_mode) && tool_chmod(fd, change->mode) < 0) {
        return fail(err, errno, "", "change its mode");
    }
    change->tool->say.count++;
    return 0;
}

static void change_step(const struct change *change, unsigned operand, const struct walk_step *step)
{
    struct error err;
    struct stat st;
    _cleanup_close_ int fd = openat(step->dir, step->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0) {
        if (errno == ENOENT)
            return;
        (void)fail(&err, errno, "", "look at it");
        tool_fail(change->tool, operand, step->path, &err);
    } else if (change_fd(change, fd, &st, &err) < 0) {
        tool_fail(change->tool, operand, step->path, &err);
    }
}

/* A directory is changed on the way in if that leaves it readable, else on the way out. */
static int change_below(const struct change *change, const struct place *place, unsigned operand,
                        const char *path, struct error *err)
{
    bool goes_first = change->is_chown || (change->mode & 0500) == 0500;
    _cleanup_walk_ struct walk *walk = NULL;
    int top = place_open_directory(place, err);
    struct walk_step step;

    if (top < 0)
        return -1;
    walk = walk_new(top, &(struct walk_options){.path = path, .depth_max = UINT_MAX}, err);
    if (walk == NULL)
        return -1;
    for (enum walk_kind kind; (kind = walk_next(walk, &step)) != WALK_END;) {
        if (kind == WALK_FAILED)
            tool_fail(change->tool, operand, step.path, &step.error);
        else if (step.type != DT_DIR || (kind == WALK_ENTRY) == goes_first)
            change_step(change, operand, &step);
    }
    return 0;
}

static int change_one(const struct change *change, unsigned operand, const char *path,
                      struct error *err)
{
    const struct options *options = &change->tool->options;
    _cleanup_place_ struct place place = PLACE_NONE;
    _cleanup_close_ int fd = -1;
    bool is_tree;
    struct stat st;

    if (place_find(&change->tool->places, path, options->no_follow ? 0 : PLACE_FOLLOW, &place,
                   err) < 0)
        return -1;
    fd = place_open_path(&place, &st, err);
    if (fd < 0)
        return -1;
    is_tree = options->recursive && S_ISDIR(st.st_mode);
    if (is_tree && !change->is_chown && (change->mode & 0500) != 0500) {
        if (change_below(change, &place, operand, path, err) < 0)
            return -1;
        is_tree = false;
    }
    if (change_fd(change, fd, &st, err) < 0 ||
        (is_tree && change_below(change, &place, operand, path, err) < 0))
        return -1;
    return tool_tell(change->tool, TOOL_ENTRY, operand, path, &place, err);
}

static int change_all(const struct change *change, struct error *err)
{
    const struct options *options = &change->tool->options;

    for (unsigned i = 0; i < options->operands_count; i++)
        if (change_one(change, i, options->operands[i], err) < 0)
            tool_fail(change->tool, i, options->operands[i], err);
    return 0;
}

int verb_chmod(struct tool *tool, struct error *err)
{
    if (tool->options.mode == TOOL_SAID_NOT)
        return fail(err, 0, "bad_option", "a change of mode needs --mode");
    return change_all(&(struct change){.tool = tool, .mode = (mode_t)tool->options.mode}, err);
}

int verb_chown(struct tool *tool, struct error *err)
{
    struct change change = {.tool = tool, .is_chown = true};

    if (tool->options.owner == NULL)
        return fail(err, 0, "bad_option", "a change of owner needs --owner");
    if (users_find(tool->users, tool->options.owner, &change.uid, &change.gid, err) < 0)
        return -1;
    return change_all(&change, err);
}

/* ---- extended attributes: no call takes an O_PATH fd everywhere, so they go by its name ---- */

struct attributed {
    struct place place;
    int fd;
    char path[FD_PATH_MAX];
};
#define _cleanup_attributed_ _cleanup_(attributed_close)

static void attributed_close(struct attributed *attributed)
{
    place_close(&attributed->place);
    fd_close(&attributed->fd);
}

static int attributed_open(struct tool *tool, struct attributed *attributed, struct error *err)
{
    struct stat st;

    if (place_find(&tool->places, tool->at, PLACE_FOLLOW, &attributed->place, err) < 0)
        return -1;
    attributed->fd = place_open_path(&attributed->place, &st, err);
    if (attributed->fd < 0)
        return -1;
    fd_path(attributed->fd, attributed->path);
    return 0;
}

/* What a disk says of attributes is said of files otherwise. */
static int fail_attribute(struct error *err, int errnum, const char *what)
{
    if (errnum == EOPNOTSUPP)
        return fail(err, errnum, "unsupported",
                    "its file system keeps no attribute of that name; take a name that begins with "
                    "\"user.\", or a file on the sandbox's disk");
    if (errnum == ENOSPC || errnum == E2BIG || errnum == ERANGE)
        return fail(err, errnum, "no_room",
                    "the file system has no room for such an attribute; take a shorter value, or "
                    "remove other attributes of the file");
    if (errnum == ENODATA)
        return fail(err, errnum, "", "find the attribute");
    if (errnum == EPERM)
        return fail(err, errnum, "not_ours",
                    "attributes of that kind are not for sandboxes, and links and FIFOs have none; "
                    "take a name that begins with \"user.\" and a regular file");
    return fail(err, errnum, "", "%s", what);
}

#define VALUE_MAX (TOOL_FRAME_MAX - TOOL_NAME_MAX)

static int say_attribute(struct tool *tool, const char *path, const char *name, struct error *err)
{
    static char value[TOOL_FRAME_MAX];
    ssize_t n = getxattr(path, name, value, VALUE_MAX);

    if (n < 0)
        return fail_attribute(err, errno, "read the attribute");
    say_begin(&tool->say, TOOL_ATTRIBUTE, strlen(name) + 1 + (size_t)n);
    say_bytes(&tool->say, name, strlen(name) + 1);
    say_bytes(&tool->say, value, (size_t)n);
    tool->say.count++;
    return 0;
}

int verb_getxattr(struct tool *tool, struct error *err)
{
    _cleanup_attributed_ struct attributed at = {.place = PLACE_NONE, .fd = -1};
    static char list[XATTR_LIST_MAX];
    ssize_t size;

    if (attributed_open(tool, &at, err) < 0)
        return -1;
    if (tool->options.name != NULL)
        return say_attribute(tool, at.path, tool->options.name, err);
    size = listxattr(at.path, list, sizeof(list));
    if (size < 0)
        return fail_attribute(err, errno, "list its attributes");
    /* One that may not be read, or went just now, is left out. */
    for (const char *name = list; name < list + size; name += strlen(name) + 1)
        (void)say_attribute(tool, at.path, name, err);
    return 0;
}

int verb_setxattr(struct tool *tool, struct error *err)
{
    _cleanup_attributed_ struct attributed at = {.place = PLACE_NONE, .fd = -1};
    const char *hex = tool->options.value;
    static unsigned char value[TOOL_FRAME_MAX];
    size_t size = 0;

    if (tool->options.name == NULL || hex == NULL)
        return fail(err, 0, "bad_option", "an attribute needs --name and --value");
    for (; *hex != '\0'; hex += 2) {
        if (size == VALUE_MAX)
            return fail(err, 0, "limit", "an attribute has at most %d bytes; take a shorter value",
                        VALUE_MAX);
        if (!hex_decode(hex, 1, value + size++))
            return fail(err, 0, "bad_option",
                        "--value is not hexadecimal; send each byte as two digits");
    }
    if (attributed_open(tool, &at, err) < 0)
        return -1;
    if (setxattr(at.path, tool->options.name, value, size, 0) < 0)
        return fail_attribute(err, errno, "set the attribute");
    tool->say.count = 1;
    return tool_tell(tool, TOOL_ENTRY, 0, tool->at, &at.place, err);
}

int verb_removexattr(struct tool *tool, struct error *err)
{
    _cleanup_attributed_ struct attributed at = {.place = PLACE_NONE, .fd = -1};

    if (tool->options.name == NULL)
        return fail(err, 0, "bad_option", "the removal of an attribute needs --name");
    if (attributed_open(tool, &at, err) < 0)
        return -1;
    if (removexattr(at.path, tool->options.name) < 0)
        return fail_attribute(err, errno, "remove the attribute");
    tool->say.count = 1;
    return tool_tell(tool, TOOL_ENTRY, 0, tool->at, &at.place, err);
}
