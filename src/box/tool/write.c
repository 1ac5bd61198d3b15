/* The verb write: files from the input, each whole or not at all.
 *
 * A file is written without a name, or under a random one that begins with a dot where the file system knows
 * no such files, and takes its own when it is whole. It keeps mode and owner of what it replaces; a link is
 * followed to what it leads to, as editors do, and stays. What its user may not write to is not replaced
 * either. Where the new file could not be what the old one was (its owner's, in a directory of others, a
 * mount of its own) the old one is written in place. Set-id bits go, as they go with any write. */
#include "box/tool/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SPLICE_LEAST 65536
#define SPLICE_MAX (1U << 20)

struct target {
    struct place place;
    struct tool_file asked;
    struct stat was;
    bool is_there; /* there is such a file, `was` */
    bool is_named; /* the temporary one has a name */
    bool is_in_place;
    int fd;
    char temporary[TOOL_NAME_MAX];
    char path[TOOL_PATH_MAX];
};

static void target_close(struct target *target)
{
    if (target->is_named)
        (void)unlinkat(target->place.dir, target->temporary, 0);
    target->is_named = false;
    fd_close(&target->fd);
    place_close(&target->place);
}

/* ---- opening ---- */

static mode_t usual_mode(mode_t bits)
{
    mode_t mask = umask(0);

    (void)umask(mask);
    return bits & ~mask;
}

static int look_at_old(struct target *target, struct error *err)
{
    const struct place *place = &target->place;

    if (fstatat(place->dir, place->name, &target->was, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            return fail(err, errno, "", "look at what is there");
        if (place->is_directory_asked)
            return fail(
                err, EISDIR, "is_directory",
                "a path that ends with a slash is that of a directory; leave the slash out");
        return 0;
    }
    target->is_there = true;
    if ((target->asked.flags & TOOL_NEW) != 0)
        return fail(err, EEXIST, "exists",
                    "it is there already; leave \"new\" out to replace it, or take another name");
    if (S_ISDIR(target->was.st_mode))
        return fail(err, EISDIR, "is_directory", "it is a directory; name a file in it");
    if (!S_ISREG(target->was.st_mode))
        return fail_not_regular(err);
    if (faccessat(place->dir, place->name, W_OK, AT_EACCESS) < 0)
        return fail(err, errno, "", "write to it");
    return 0;
}

static int open_temporary(struct target *target)
{
    const int flags = O_WRONLY | O_CLOEXEC;

    target->fd = openat(target->place.dir, ".", O_TMPFILE | flags, 0600);
    if (target->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return target->fd;
    tool_temporary(target->temporary);
    target->fd = openat(target->place.dir, target->temporary, O_CREAT | O_EXCL | O_NOFOLLOW | flags,
                        0600);
    target->is_named = target->fd >= 0;
    return target->fd;
}

static int set_owner_and_mode(struct target *target)
{
    const struct tool_file *asked = &target->asked;
    uid_t uid = asked->uid != UINT32_MAX ? asked->uid
                : target->is_there       ? target->was.st_uid
                                         : (uid_t)-1;
    gid_t gid = asked->gid != UINT32_MAX ? asked->gid
                : target->is_there       ? target->was.st_gid
                                         : (gid_t)-1;
    mode_t mode = target->is_there ? target->was.st_mode & 01777 : usual_mode(0666);
    struct stat st;

    if (fstat(target->fd, &st) < 0)
        return -1;
    if (asked->mode != UINT32_MAX)
        mode = asked->mode & 07777;
    if (((uid != (uid_t)-1 && uid != st.st_uid) || (gid != (gid_t)-1 && gid != st.st_gid)) &&
        fchown(target->fd, uid, gid) < 0)
        return -1;
    return (st.st_mode & 07777) == mode ? 0 : fchmod(target->fd, mode);
}

/* What was asked for in place: an offset, or the end. */
static int open_at(struct target *target, struct error *err)
{
    const struct tool_file *asked = &target->asked;
    int flags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC;
    bool is_new = !target->is_there;
    struct stat st;

    if ((asked->flags & TOOL_APPEND) != 0)
        flags |= O_APPEND;
    if ((asked->flags & (TOOL_APPEND | TOOL_AT)) == 0)
        flags |= O_TRUNC;
    if (is_new)
        flags |= O_CREAT | ((asked->flags & TOOL_NEW) != 0 ? O_EXCL : 0);
    target->is_in_place = true;
    target->fd = openat(target->place.dir, target->place.name, flags, usual_mode(0666));
    if (target->fd < 0 || fstat(target->fd, &st) < 0)
        return fail(err, errno, "", "open it for writing");
    if (!S_ISREG(st.st_mode))
        return fail_not_regular(err);
    if ((asked->flags & TOOL_AT) != 0 &&
        (asked->offset > INT64_MAX || lseek(target->fd, (off_t)asked->offset, SEEK_SET) < 0))
        return fail(err, asked->offset > INT64_MAX ? EFBIG : errno, "", "go to the offset");
    if ((asked->mode != UINT32_MAX || asked->uid != UINT32_MAX || asked->gid != UINT32_MAX) &&
        set_owner_and_mode(target) < 0)
        return tool_fail_owner(err, "set its owner and mode");
    return 0;
}

static int open_target(struct target *target, struct error *err)
{
    const struct tool_file *asked = &target->asked;

    if (look_at_old(target, err) < 0)
        return -1;
    if ((asked->flags & (TOOL_AT | TOOL_APPEND)) != 0)
        return open_at(target, err);
    if (open_temporary(target) < 0) {
        if (target->is_there && (errno == EACCES || errno == EROFS || errno == EPERM))
            return open_at(target, err);
        return fail(err, errno, "", "make a file in its directory");
    }
    if (set_owner_and_mode(target) < 0) {
        if (!target->is_there || errno != EPERM)
            return tool_fail_owner(err, "set its owner and mode");
        if (target->is_named)
            (void)unlinkat(target->place.dir, target->temporary, 0);
        target->is_named = false;
        fd_close(&target->fd);
        return open_at(target, err);
    }
    return 0;
}

/* TOOL_DIRECTORY: the last part, too. */
static int make_directory(struct target *target, struct error *err)
{
    const struct tool_file *asked = &target->asked;
    const struct place *place = &target->place;
    struct stat st;
    _cleanup_close_ int fd = -1;

    if (mkdirat(place->dir, place->name, 0777) < 0 &&
        (errno != EEXIST || (asked->flags & TOOL_NEW) != 0))
        return fail(err, errno, "", "make the directory");
    fd = place_open_path(place, &st, err);
    if (fd < 0)
        return -1;
    if (!S_ISDIR(st.st_mode))
        return fail(err, ENOTDIR, "", "make the directory");
    if ((asked->uid != UINT32_MAX || asked->gid != UINT32_MAX) &&
        fchownat(fd, "", asked->uid, asked->gid, AT_EMPTY_PATH) < 0)
        return fail(err, errno, "", "set its owner");
    if (asked->mode != UINT32_MAX && tool_chmod(fd, asked->mode & 07777) < 0)
        return fail(err, errno, "", "set its mode");
    return 0;
}

/* ---- data ---- */

static int write_block(struct tool *tool, struct target *target, struct error *err)
{
    static char block[SPLICE_LEAST];
    ssize_t n = hear_some(&tool->hear, block, sizeof(block), err);

    if (n < 0)
        return -1;
    tool->say.bytes += (uint64_t)n;
    return fd_write_full(target->fd, block, (size_t)n) < 0 ? fail(err, errno, "", "write to it")
                                                           : 0;
}

/* One frame; what is left of it after an error is passed over by hear_head(). */
static int write_data(struct tool *tool, struct target *target, bool *splices, struct error *err)
{
    while (tool->hear.left > 0) {
        struct pollfd more = {.fd = tool->hear.fd, .events = POLLIN};
        ssize_t n;

        if (!*splices || tool->hear.left < SPLICE_LEAST) {
            if (write_block(tool, target, err) < 0)
                return -1;
            continue;
        }
        n = splice(tool->hear.fd, NULL, target->fd, NULL, (size_t)tool->hear.left, SPLICE_F_MOVE);
        if (n > 0) {
            tool->hear.left -= (uint64_t)n;
            tool->say.bytes += (uint64_t)n;
        } else if (n == 0) {
            return fail(err, 0, "input_ended",
                        "the input ended before it was whole; send all of it");
        } else if (errno == EAGAIN) {
            (void)poll(&more, 1, -1);
        } else if (errno == EINVAL) {
            *splices = false; /* no pipe, a file that is appended to, or a file system without */
        } else if (errno != EINTR) {
            return fail(err, errno, "", "write to it");
        }
    }
    return 0;
}

/* ---- the end of a file ---- */

/* Into the old file, where a new one cannot take its name (a mount). */
static int copy_in_place(struct target *target, struct error *err)
{
    char from[FD_PATH_MAX];
    static char block[SPLICE_LEAST];
    _cleanup_close_ int in = -1, out = -1;
    ssize_t n;

    fd_path(target->fd, from);
    in = target->is_named ? openat(target->place.dir, target->temporary,
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                          : open(from, O_RDONLY | O_CLOEXEC);
    out = openat(target->place.dir, target->place.name,
                 O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (in < 0 || out < 0)
        return fail(err, errno, "", "write to it in place");
    while ((n = fd_read_full(in, block, sizeof(block))) > 0)
        if (fd_write_full(out, block, (size_t)n) < 0)
            return fail(err, errno, "", "write to it in place");
    return n < 0 ? fail(err, errno, "", "write to it in place") : 0;
}

static int link_temporary(struct target *target, const char *name)
{
    char from[FD_PATH_MAX];

    if (linkat(target->fd, "", target->place.dir, name, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno == EEXIST)
        return -1;
    fd_path(target->fd, from);
    return linkat(AT_FDCWD, from, target->place.dir, name, AT_SYMLINK_FOLLOW);
}

static int take_name(struct target *target, struct error *err)
{
    const struct place *place = &target->place;

    /* The usual case, a new file: one step, and it cannot come over another. */
    if (!target->is_named && !target->is_there) {
        if (link_temporary(target, place->name) == 0)
            return 0;
        if (errno != EEXIST || (target->asked.flags & TOOL_NEW) != 0)
            return fail(err, errno, "", "give the file its name");
    }
    if (!target->is_named) {
        tool_temporary(target->temporary);
        if (link_temporary(target, target->temporary) < 0)
            return fail(err, errno, "", "give the file a name");
        target->is_named = true;
    }
    if ((target->asked.flags & TOOL_NEW) != 0) {
        if (linkat(place->dir, target->temporary, place->dir, place->name, 0) < 0)
            return fail(err, errno, "", "give the file its name");
        return 0; /* the temporary name goes with the target */
    }
    if (renameat(place->dir, target->temporary, place->dir, place->name) == 0) {
        target->is_named = false;
        return 0;
    }
    if (errno == EBUSY || errno == EXDEV)
        return copy_in_place(target, err);
    return fail(err, errno, "", "replace the file");
}

/* ---- the input ---- */

static int begin(struct tool *tool, struct target *target, uint32_t size, struct error *err)
{
    unsigned flags = PLACE_FOLLOW;
    size_t path_size = size - sizeof(target->asked);

    *target = (struct target){.place = PLACE_NONE, .fd = -1};
    if (size <= sizeof(target->asked) || path_size > sizeof(target->path))
        return fail(err, 0, "bad_input", "a file of the input has no path");
    if (hear_bytes(&tool->hear, &target->asked, sizeof(target->asked), err) < 0 ||
        hear_bytes(&tool->hear, target->path, path_size, err) < 0)
        return -1;
    if (target->path[path_size - 1] != '\0')
        return fail(err, 0, "bad_input", "a path of the input does not end");
    tool->at = target->path;
    if ((target->asked.flags & TOOL_PARENTS) != 0)
        flags |= PLACE_PARENTS;
    return place_find(&tool->places, target->path, flags, &target->place, err);
}

static int finish(struct tool *tool, struct target *target, unsigned number, struct error *err)
{
    if ((target->asked.flags & TOOL_DIRECTORY) == 0 && !target->is_in_place &&
        take_name(target, err) < 0)
        return -1;
    tool->say.count++;
    return tool_tell(tool, TOOL_WROTE, number, target->path, &target->place, err);
}

/* The input goes wrong for all; anything else for this file alone. */
static bool is_of_all(const struct error *err)
{
    return strcmp(err->code, "bad_input") == 0 || strcmp(err->code, "input_ended") == 0;
}

/* Tells what went wrong with the file, and lets go of it; -1 where no other can follow. */
static int give_up(struct tool *tool, struct target *target, unsigned number, struct error *err)
{
    if (is_of_all(err))
        return -1;
    tool_fail(tool, number, target->path, err);
    say_flush(&tool->say);
    target_close(target);
    return 0;
}

static int open_any(struct target *target, struct error *err)
{
    return (target->asked.flags & TOOL_DIRECTORY) != 0 ? make_directory(target, err)
                                                       : open_target(target, err);
}

/* From TOOL_FILE to TOOL_COMMIT. After an error, which is told at once, the rest of it is passed over. */
static int write_one(struct tool *tool, struct target *target, uint32_t size, unsigned number,
                     struct error *err)
{
    bool is_well, splices = true;
    uint32_t type;

    is_well = begin(tool, target, size, err) == 0 && open_any(target, err) == 0;
    if (!is_well && give_up(tool, target, number, err) < 0)
        return -1;
    for (;;) {
        if (hear_head(&tool->hear, &type, &size, err) < 0)
            return -1;
        if (type == TOOL_COMMIT)
            break;
        if (type != TOOL_DATA)
            return fail(err, 0, "bad_input", "a file of the input has no end");
        if (!is_well || target->fd < 0)
            continue;
        is_well = write_data(tool, target, &splices, err) == 0;
        if (!is_well && give_up(tool, target, number, err) < 0)
            return -1;
    }
    if (is_well && finish(tool, target, number, err) < 0)
        return give_up(tool, target, number, err);
    say_flush(&tool->say);
    return 0;
}

int verb_write(struct tool *tool, struct error *err)
{
    static struct target target;
    uint32_t type, size;

    for (unsigned number = 0;; number++) {
        int done;

        tool->at = "";
        if (hear_head(&tool->hear, &type, &size, err) < 0)
            return -1;
        if (type == TOOL_FINISH)
            return 0;
        if (type != TOOL_FILE)
            return fail(err, 0, "bad_input", "the input has data of no file");
        done = write_one(tool, &target, size, number, err);
        target_close(&target);
        if (done < 0)
            return -1;
    }
}
