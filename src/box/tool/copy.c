/* Copying: see copy.h. A tree is walked once, with one directory of the copy held open beside; whatever goes
 * wrong, what was made is removed again. */
#include "box/tool/copy.h"

#include "box/tool/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#define BLOCK (256U << 10)

/* ---- one thing ---- */

int copy_set_mode(int fd, mode_t mode)
{
    if (fchmod(fd, mode & 07777) == 0)
        return 0;
    if (errno != EPERM || (mode & 06000) == 0)
        return -1;
    return fchmod(fd, mode & 01777);
}

/* Those of users; what the kernel keeps there for others is not ours to hand on. A file system without
 * attributes takes none. */
static int copy_attributes(int from, int to)
{
    static char list[XATTR_LIST_MAX], value[XATTR_SIZE_MAX];
    char path[FD_PATH_MAX];
    ssize_t size;

    fd_path(from, path);
    size = listxattr(path, list, sizeof(list));
    for (const char *name = list; name < list + size; name += strlen(name) + 1) {
        ssize_t n;

        if (strncmp(name, "user.", 5) != 0 && strncmp(name, "system.posix_acl_", 17) != 0)
            continue;
        n = getxattr(path, name, value, sizeof(value));
        if (n >= 0 && fsetxattr(to, name, value, (size_t)n, 0) < 0 && errno != ENOTSUP &&
            errno != EPERM)
            return -1;
    }
    return 0;
}

static int finish(int from, int to, const struct stat *st, struct error *err)
{
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    mode_t mode = st->st_mode;

    if (copy_attributes(from, to) < 0)
        return fail(err, errno, "", "copy its attributes");
    if (fchown(to, st->st_uid, st->st_gid) < 0) {
        if (errno != EPERM && errno != EINVAL)
            return fail(err, errno, "", "set the owner of the copy");
        mode &= 01777; /* another's set-id program must not become ours */
    }
    if (copy_set_mode(to, mode) < 0 || futimens(to, times) < 0)
        return fail(err, errno, "", "set mode and times of the copy");
    return 0;
}

/* From `at` to `end`, where there are data. */
static int copy_range(int from, int to, off_t at, off_t end)
{
    static char block[BLOCK];
    bool in_kernel = true;

    while (at < end) {
        loff_t in = at, out = at;
        ssize_t n = -1;

        if (in_kernel) {
            n = syscall(SYS_copy_file_range, from, &in, to, &out, (size_t)(end - at), 0);
            in_kernel = n > 0;
        }
        if (!in_kernel) {
            n = pread(from, block, end - at < (off_t)BLOCK ? (size_t)(end - at) : BLOCK, at);
            if (n > 0)
                n = pwrite(to, block, (size_t)n, at);
        }
        if (n < 0 && errno != EINTR)
            return -1;
        if (n == 0)
            return 0; /* it became shorter */
        at += n > 0 ? n : 0;
    }
    return 0;
}

static int copy_data(int from, int to, const struct stat *st, struct error *err)
{
    off_t at = 0, end = st->st_size;

    if (end > 0 && ioctl(to, FICLONE, from) == 0)
        return 0;
    while (at < end) {
        off_t data = lseek(from, at, SEEK_DATA), hole;

        if (data < 0 && errno == ENXIO)
            break;
        if (data < 0)
            data = at; /* no holes here */
        hole = lseek(from, data, SEEK_HOLE);
        hole = hole < 0 || hole > end ? end : hole;
        if (data >= end)
            break;
        if (copy_range(from, to, data, hole) < 0)
            return fail(err, errno, "", "copy its data");
        at = hole;
    }
    return ftruncate(to, end) < 0 ? fail(err, errno, "", "copy its data") : 0;
}

static int copy_file(const struct place *from, const struct place *to, struct error *err)
{
    _cleanup_close_ int in = -1, out = -1;
    struct stat st;

    in = place_open_file(from, O_RDONLY, &st, err);
    if (in < 0)
        return -1;
    out = openat(to->dir, to->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return fail(err, errno, "", "make the copy");
    return copy_data(in, out, &st, err) < 0 ? -1 : finish(in, out, &st, err);
}

/* As far as it may: of what holds nothing. */
static void own(const struct place *to, const struct stat *st)
{
    if (fchownat(to->dir, to->name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        errno = 0;
}

static int copy_link(const struct place *from, const struct place *to, const struct stat *st,
                     struct error *err)
{
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    char target[TOOL_PATH_MAX];

    place_target(from->dir, from->name, st, target, sizeof(target));
    if (symlinkat(target, to->dir, to->name) < 0)
        return fail(err, errno, "", "copy the link");
    own(to, st);
    (void)utimensat(to->dir, to->name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* All but directories. */
static int copy_one(const struct place *from, const struct place *to, const struct stat *st,
                    struct error *err)
{
    if (S_ISREG(st->st_mode))
        return copy_file(from, to, err);
    if (S_ISLNK(st->st_mode))
        return copy_link(from, to, st, err);
    if (!S_ISFIFO(st->st_mode))
        return fail_not_regular(err);
    if (mkfifoat(to->dir, to->name, st->st_mode & 0777) < 0)
        return fail(err, errno, "", "copy the FIFO");
    own(to, st);
    return 0;
}

/* ---- a tree ---- */

struct level {
    dev_t device;
    ino_t inode;
};

struct copier {
    const struct copy_how *how;
    struct links *links;
    int top, at;          /* of the copy; `at` is the one whose content comes */
    struct level *levels; /* of the directories above `at`, and of it */
    size_t depth, slots;
};

static int level_add(struct copier *copier, int fd)
{
    struct stat st;

    if (copier->depth == copier->slots) {
        size_t slots = copier->slots == 0 ? 64 : copier->slots * 2;
        struct level *levels = reallocarray(copier->levels, slots, sizeof(*levels));

        if (levels == NULL)
            return -1;
        copier->levels = levels;
        copier->slots = slots;
    }
    if (fstat(fd, &st) < 0)
        return -1;
    copier->levels[copier->depth++] = (struct level){st.st_dev, st.st_ino};
    return 0;
}

static int enter_copy(struct copier *copier, const char *name, struct error *err)
{
    _cleanup_close_ int fd = -1;

    if (mkdirat(copier->at, name, 0700) < 0)
        return fail(err, errno, "", "make a directory of the copy");
    fd = openat(copier->at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || level_add(copier, fd) < 0)
        return fail(err, errno, "", "open a directory of the copy");
    fd_close(&copier->at);
    copier->at = fd_take(&fd);
    return 0;
}

static int leave_copy(struct copier *copier, const struct walk_step *step, struct error *err)
{
    _cleanup_close_ int from = openat(step->dir, step->name,
                                      O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const struct level *above = &copier->levels[copier->depth - 2];
    _cleanup_close_ int up = openat(copier->at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st, is;

    if (from < 0 || up < 0 || fstat(from, &st) < 0 || fstat(up, &is) < 0)
        return fail(err, errno, "", "leave a directory of the copy");
    if (is.st_dev != above->device || is.st_ino != above->inode)
        return fail(err, 0, "moved", "somebody moved it meanwhile; ask again");
    if (finish(from, copier->at, &st, err) < 0)
        return -1;
    copier->depth--;
    fd_close(&copier->at);
    copier->at = fd_take(&up);
    return 0;
}

static int copy_entry(struct copier *copier, const struct walk_step *step, struct error *err)
{
    struct place from = {.dir = step->dir}, to = {.dir = copier->at};
    struct stat st;

    (void)snprintf(from.name, sizeof(from.name), "%s", step->name);
    (void)snprintf(to.name, sizeof(to.name), "%s", step->name);
    if (fstatat(step->dir, step->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail(err, errno, "", "look at it");
    copier->how->tool->say.count++;
    if (step->type == DT_DIR) {
        if (st.st_dev == copier->levels[0].device && st.st_ino == copier->levels[0].inode)
            return fail(err, EINVAL, "into_itself",
                        "a directory cannot be copied into itself; name another place for it");
        return enter_copy(copier, step->name, err);
    }
    if (st.st_nlink > 1 && !S_ISDIR(st.st_mode)) {
        const char *known = links_meet(copier->links, &st, step->below);

        if (known != NULL && linkat(copier->top, known, copier->at, step->name, 0) == 0)
            return 0;
    }
    copier->how->tool->say.bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    if (copy_one(&from, &to, &st, err) == 0)
        return 0;
    if (strcmp(err->code, "not_regular") != 0)
        return -1;
    tool_fail(copier->how->tool, 0, step->path, err); /* left out, and said so */
    return 0;
}

static int copy_below(struct copier *copier, int from, struct error *err)
{
    struct walk_options how = {.path = copier->how->path, .depth_max = UINT_MAX};
    _cleanup_walk_ struct walk *walk = walk_new(from, &how, err);
    static char failed[TOOL_PATH_MAX];
    struct walk_step step;
    int done = walk == NULL ? -1 : 0;

    while (done == 0) {
        enum walk_kind kind = walk_next(walk, &step);

        if (kind == WALK_END)
            break;
        if (kind == WALK_FAILED) {
            *err = step.error;
            done = -1;
        } else if (kind == WALK_ENTRY) {
            done = copy_entry(copier, &step, err);
        } else {
            done = leave_copy(copier, &step, err);
        }
        if (done < 0) {
            (void)snprintf(failed, sizeof(failed), "%s", step.path);
            copier->how->tool->at = failed;
        }
    }
    return done;
}

static int copy_tree(const struct place *from, const struct place *to, const struct copy_how *how,
                     struct error *err)
{
    struct copier copier = {.how = how, .top = -1, .at = -1, .links = links_new()};
    _cleanup_close_ int in = place_open_directory(from, err), top = -1;
    int done = -1;
    struct stat st;

    if (in >= 0 && mkdirat(to->dir, to->name, 0700) < 0)
        (void)fail(err, errno, "", "make the copy");
    else if (in >= 0)
        top = place_open_directory(to, err);
    if (top >= 0) {
        copier.top = top;
        copier.at = fcntl(top, F_DUPFD_CLOEXEC, 3);
        if (copier.links == NULL || copier.at < 0 || fstat(in, &st) < 0 ||
            level_add(&copier, top) < 0)
            (void)fail(err, errno, "", "make the copy");
        else
            done = copy_below(&copier, fcntl(in, F_DUPFD_CLOEXEC, 3), err);
        if (done == 0)
            done = finish(in, top, &st, err);
    }
    fd_close(&copier.at);
    free(copier.levels);
    links_free(copier.links);
    return done;
}

/* ---- under a temporary name, then its own ---- */

int copy_rename(const struct place *from, const struct place *to, bool replaces)
{
    struct stat st;

    if (replaces)
        return renameat(from->dir, from->name, to->dir, to->name);
    if (syscall(SYS_renameat2, from->dir, from->name, to->dir, to->name, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    if (fstatat(to->dir, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    return renameat(from->dir, from->name, to->dir, to->name);
}

int copy_place(const struct place *from, const struct place *to, const struct copy_how *how,
               struct error *err)
{
    struct remove_told told = {.is_recursive = true, .count = &(uint64_t){0}};
    struct place temporary = {.dir = to->dir};
    struct error ignored;
    const char *to_path = how->tool->at;
    struct stat st, is;
    int done;

    how->tool->at = how->path; /* whose failure it is, until the copy takes its name */
    if (place_stat(from, &st, err) < 0)
        return -1;
    if (S_ISDIR(st.st_mode) && !how->is_recursive)
        return fail(err, EISDIR, "is_directory",
                    "it is a directory; copy it with all that is in it by \"recursive\": true");
    if (!how->replaces && fstatat(to->dir, to->name, &is, AT_SYMLINK_NOFOLLOW) == 0) {
        how->tool->at = to_path;
        return fail(err, EEXIST, "", "make the copy");
    }
    tool_temporary(temporary.name);
    how->tool->say.count++;
    if (!S_ISDIR(st.st_mode))
        how->tool->say.bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    done = S_ISDIR(st.st_mode) ? copy_tree(from, &temporary, how, err)
                               : copy_one(from, &temporary, &st, err);
    if (done == 0)
        how->tool->at = to_path;
    if (done == 0 && copy_rename(&temporary, to, how->replaces) < 0)
        done = fail(err, errno, "", "give the copy its name");
    if (done < 0)
        (void)remove_place(&temporary, "", &told, &ignored);
    return done;
}

/* ---- the verbs ---- */

static int find_two(struct tool *tool, struct place *from, struct place *to, struct error *err)
{
    const struct options *options = &tool->options;

    if (place_find(&tool->places, options->operands[0], 0, from, err) < 0)
        return -1;
    tool->at = options->operands[1];
    return place_find(&tool->places, tool->at, options->parents ? PLACE_PARENTS : 0, to, err);
}

int verb_copy(struct tool *tool, struct error *err)
{
    _cleanup_place_ struct place from = PLACE_NONE, to = PLACE_NONE;
    const struct options *options = &tool->options;
    struct copy_how how = {.tool = tool,
                           .path = options->operands[0],
                           .is_recursive = options->recursive,
                           .replaces = options->replace};

    if (find_two(tool, &from, &to, err) < 0 || copy_place(&from, &to, &how, err) < 0)
        return -1;
    return tool_tell(tool, TOOL_ENTRY, 1, options->operands[1], &to, err);
}

/* Onto another file system: the copy stands before the old one goes. */
static int move_by_copy(struct tool *tool, const struct place *from, const struct place *to,
                        struct error *err)
{
    const struct options *options = &tool->options;
    struct copy_how how = {.tool = tool,
                           .path = options->operands[0],
                           .is_recursive = true,
                           .replaces = options->replace};
    struct remove_told told = {.is_recursive = true, .count = &(uint64_t){0}};

    if (copy_place(from, to, &how, err) < 0)
        return -1;
    tool->at = options->operands[0];
    return remove_place(from, tool->at, &told, err);
}

static int fail_rename(struct error *err, int errnum)
{
    if (errnum == EINVAL)
        return fail(err, errnum, "into_itself",
                    "a directory cannot be moved into itself; name another place for it");
    return fail(err, errnum, "", "give it the name");
}

int verb_move(struct tool *tool, struct error *err)
{
    _cleanup_place_ struct place from = PLACE_NONE, to = PLACE_NONE;
    const struct options *options = &tool->options;
    struct stat st;

    if (find_two(tool, &from, &to, err) < 0)
        return -1;
    tool->at = options->operands[0];
    if (place_stat(&from, &st, err) < 0)
        return -1;
    tool->at = options->operands[1];
    if (copy_rename(&from, &to, options->replace) < 0 &&
        (errno != EXDEV ? fail_rename(err, errno) : move_by_copy(tool, &from, &to, err)) < 0)
        return -1;
    tool->say.count = 1;
    return tool_tell(tool, TOOL_ENTRY, 1, options->operands[1], &to, err);
}
