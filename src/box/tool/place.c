/* Places: see parts.h. A path is looked up once and held by fd.
 *
 * Without --beneath the kernel looks up all but the last part. With it we go part by part, each opened
 * without following, and read links ourselves: openat2(2) would do it in one call, but the filter of some
 * boxes has none, and two ways of deciding what is beneath are one too many. */
#include "box/tool/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40
#define DIRECTORY (O_PATH | O_DIRECTORY | O_CLOEXEC)

void place_close(struct place *place)
{
    fd_close(&place->dir);
}

void fd_path(int fd, char path[FD_PATH_MAX])
{
    (void)snprintf(path, FD_PATH_MAX, "/proc/self/fd/%d", fd);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Of a part of the path before its last one. */
static int fail_above(struct error *err, int errnum)
{
    if (errnum == ENOENT)
        return fail(err, errnum, "no_parent",
                    "the directory above it is not there; check the path, or make that directory "
                    "first");
    if (errnum == ENOTDIR)
        return fail(err, errnum, "not_a_directory",
                    "what stands above it in the path is no directory; check the path");
    return fail(err, errnum, "", "open the directory above it");
}

/* ---- anywhere ---- */

/* Opens the directory, and makes what is missing of it. What is made is entered without following. */
static int make_parents(int from, const char *path, struct error *err)
{
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): `path` is a text of the caller's
    _cleanup_close_ int at = openat(from, *path == '/' ? "/" : ".", DIRECTORY);
    char name[TOOL_NAME_MAX];

    while (at >= 0) {
        size_t length;
        int next;

        path += strspn(path, "/");
        length = strcspn(path, "/");
        if (length == 0)
            return fd_take(&at);
        if (length >= sizeof(name))
            return fail(err, ENAMETOOLONG, "", "make a directory above it");
        memcpy(name, path, length);
        name[length] = '\0';
        path += length;
        next = openat(at, name, DIRECTORY);
        if (next < 0 && errno == ENOENT) {
            if (mkdirat(at, name, 0777) < 0 && errno != EEXIST)
                return fail(err, errno, "", "make the directory %s above it", name);
            next = openat(at, name, DIRECTORY | O_NOFOLLOW);
        }
        fd_close(&at);
        at = next;
    }
    return fail_above(err, errno);
}

static int open_parent(int from, const char *path, unsigned flags, struct error *err)
{
    int dir = openat(from, path, DIRECTORY);

    if (dir >= 0)
        return dir;
    if (errno == ENOENT && (flags & PLACE_PARENTS) != 0)
        return make_parents(from, path, err);
    return fail_above(err, errno);
}

/* Divides into what is above and the last part, "." if that is none to be made or removed. */
static int divide(const char *path, char above[TOOL_PATH_MAX], struct place *place,
                  struct error *err)
{
    size_t length = strnlen(path, TOOL_PATH_MAX), cut, start;

    if (length == 0)
        return fail(err, ENOENT, "no_parent", "the path is empty; name a file or directory");
    if (length == TOOL_PATH_MAX)
        return fail(err, ENAMETOOLONG, "", "look up the path");
    for (cut = length; cut > 0 && path[cut - 1] == '/'; cut--)
        ;
    for (start = cut; start > 0 && path[start - 1] != '/'; start--)
        ;
    place->is_directory_asked = cut < length;
    if (cut - start >= sizeof(place->name))
        return fail(err, ENAMETOOLONG, "", "look up the path");
    memcpy(place->name, path + start, cut - start);
    place->name[cut - start] = '\0';
    if (cut == start || is_dots(place->name)) {
        memcpy(above, path, length + 1);
        (void)snprintf(place->name, sizeof(place->name), ".");
    } else {
        memcpy(above, path, start);
        (void)snprintf(above + start, TOOL_PATH_MAX - start, "%s", start == 0 ? "." : "");
    }
    return 0;
}

static int find_anywhere(const char *path, unsigned flags, struct place *place, struct error *err)
{
    char above[TOOL_PATH_MAX], target[TOOL_PATH_MAX];
    _cleanup_close_ int from = -1;
    bool is_asked = false;

    for (int links = 0; links < LINKS_MAX; links++) {
        ssize_t length;

        if (divide(path, above, place, err) < 0)
            return -1;
        is_asked |= place->is_directory_asked;
        place->is_directory_asked = is_asked;
        place->dir = open_parent(from < 0 ? AT_FDCWD : from, above, flags, err);
        if (place->dir < 0)
            return -1;
        length = (flags & PLACE_FOLLOW) == 0 && !is_asked
                     ? -1
                     : readlinkat(place->dir, place->name, target, sizeof(target) - 1);
        if (length < 0)
            return 0;
        target[length] = '\0';
        path = target;
        fd_close(&from);
        from = fd_take(&place->dir);
    }
    return fail(err, ELOOP, "", "follow its links");
}

/* ---- beneath ---- */

/* What was entered so far, by its names alone: to go up is to walk down again, one name less. */
struct descent {
    int top, at; /* `at` may be `top`, and is not ours then */
    char names[TOOL_PATH_MAX];
    size_t length;
};

static void descent_close(struct descent *descent)
{
    if (descent->at != descent->top)
        fd_close(&descent->at);
}

static int descent_enter(struct descent *descent, int fd, const char *name)
{
    size_t length = strlen(name);

    if (descent->length + length + 2 > sizeof(descent->names)) {
        errno = ENAMETOOLONG;
        fd_close(&fd);
        return -1;
    }
    memcpy(descent->names + descent->length, name, length + 1);
    descent->length += length;
    descent->names[descent->length++] = '/';
    descent->names[descent->length] = '\0';
    descent_close(descent);
    descent->at = fd;
    return 0;
}

static int descent_up(struct descent *descent)
{
    char names[TOOL_PATH_MAX], *at = names;
    size_t length = descent->length;

    if (length == 0) {
        errno = EXDEV;
        return -1;
    }
    for (length--; length > 0 && descent->names[length - 1] != '/'; length--)
        ;
    memcpy(names, descent->names, length);
    names[length] = '\0';
    descent_close(descent);
    descent->at = descent->top;
    descent->length = 0;
    while (*at != '\0') {
        char *name = strsep(&at, "/");
        int fd = openat(descent->at, name, DIRECTORY | O_NOFOLLOW);

        if (fd < 0 || descent_enter(descent, fd, name) < 0)
            return -1;
    }
    return 0;
}

/* The directory of that name, made if it is asked for; -2: it is a link, whose target is in `target`. */
static int enter_or_link(struct descent *descent, const char *name, unsigned flags,
                         char target[TOOL_PATH_MAX])
{
    int fd = openat(descent->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    ssize_t length;
    struct stat st;

    if (fd < 0 && errno == ENOENT && (flags & PLACE_PARENTS) != 0) {
        if (mkdirat(descent->at, name, 0777) < 0 && errno != EEXIST)
            return -1;
        fd = openat(descent->at, name, DIRECTORY | O_NOFOLLOW);
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        fd_close(&fd);
        return -1;
    }
    if (S_ISDIR(st.st_mode))
        return descent_enter(descent, fd, name);
    length = S_ISLNK(st.st_mode) ? readlinkat(fd, "", target, TOOL_PATH_MAX - 1) : -1;
    fd_close(&fd);
    if (length < 0) {
        errno = ENOTDIR;
        return -1;
    }
    target[length] = '\0';
    return -2;
}

static int outside(const struct places *places, struct error *err)
{
    return fail(err, EXDEV, "outside",
                "it leads out of %.120s, and this caller may go nowhere else; name what is below",
                places->prefix);
}

/* Puts the link's target in front of what is left of the path. */
static int splice_target(const char *target, const char *rest, char path[TOOL_PATH_MAX],
                         struct error *err)
{
    char joined[2 * TOOL_PATH_MAX];
    int length = snprintf(joined, sizeof(joined), "%s%s%s", target, *rest != '\0' ? "/" : "", rest);

    if (length >= TOOL_PATH_MAX)
        return fail(err, ENAMETOOLONG, "", "follow its links");
    memcpy(path, joined, (size_t)length + 1);
    return 0;
}

static int descend(const struct places *places, struct descent *descent, const char *path,
                   unsigned flags, struct place *place, struct error *err)
{
    char rest[TOOL_PATH_MAX], target[TOOL_PATH_MAX];
    int links = 0;

    (void)snprintf(rest, sizeof(rest), "%s", path);
    (void)snprintf(place->name, sizeof(place->name), ".");
    for (;;) {
        char name[TOOL_NAME_MAX];
        const char *at = rest + strspn(rest, "/");
        size_t length = strcspn(at, "/");
        bool is_last = at[length + strspn(at + length, "/")] == '\0';
        int entered;

        if (length == 0)
            return 0;
        if (length >= sizeof(name))
            return fail(err, ENAMETOOLONG, "", "look up the path");
        memcpy(name, at, length);
        name[length] = '\0';
        memmove(rest, at + length, strlen(at + length) + 1);
        if (strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            if (descent_up(descent) < 0)
                return errno == EXDEV ? outside(places, err)
                                      : fail(err, errno, "", "go up from a directory");
            continue;
        }
        if (is_last) {
            ssize_t size = -1;

            place->is_directory_asked |= *rest != '\0';
            if ((flags & PLACE_FOLLOW) != 0 || place->is_directory_asked)
                size = readlinkat(descent->at, name, target, sizeof(target) - 1);
            if (size < 0) {
                memcpy(place->name, name, length + 1);
                return 0;
            }
            target[size] = '\0';
            entered = -2;
        } else {
            entered = enter_or_link(descent, name, flags, target);
        }
        if (entered == -1)
            return fail_above(err, errno);
        if (entered == -2 && *target == '/')
            return outside(places, err);
        if (entered == -2 && links++ == LINKS_MAX)
            return fail(err, ELOOP, "", "follow its links");
        if (entered == -2 && splice_target(target, rest + strspn(rest, "/"), rest, err) < 0)
            return -1;
    }
}

static int find_beneath(const struct places *places, const char *path, unsigned flags,
                        struct place *place, struct error *err)
{
    struct descent descent = {.top = places->beneath, .at = places->beneath};
    int found;

    if (strnlen(path, TOOL_PATH_MAX) == TOOL_PATH_MAX)
        return fail(err, ENAMETOOLONG, "", "look up the path");
    if (*path == '\0')
        return fail(err, ENOENT, "no_parent", "the path is empty; name a file or directory");
    if (*path == '/') {
        size_t length = strlen(places->prefix);

        if (strncmp(path, places->prefix, length) != 0 ||
            (path[length] != '/' && path[length] != '\0' && places->prefix[length - 1] != '/'))
            return outside(places, err);
        path += length;
    }
    found = descend(places, &descent, path, flags, place, err);
    if (found == 0) {
        place->dir = descent.at != descent.top ? fd_take(&descent.at)
                                               : fcntl(descent.top, F_DUPFD_CLOEXEC, 3);
        if (place->dir < 0)
            found = fail(err, errno, "", "hold the directory");
    }
    if (descent.at >= 0)
        descent_close(&descent);
    return found;
}

/* ---- both ---- */

/* What code in the box puts in the way must not move the bound: no link of the way to it is followed. */
static int enter_bound(int from, const char *name, const char *beneath, struct error *err)
{
    _cleanup_close_ int fd = openat(from, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(err, errno, "", "open the directory %.120s", beneath);
    if (S_ISLNK(st.st_mode))
        return fail(err, EXDEV, "outside",
                    "\"%.60s\" on the way to %.120s is a link, which code in the sandbox may turn; "
                    "name the path that it leads to",
                    name, beneath);
    if (!S_ISDIR(st.st_mode))
        return fail(err, ENOTDIR, "", "open the directory %.120s", beneath);
    return fd_take(&fd);
}

int places_open(struct places *places, const char *beneath, struct error *err)
{
    _cleanup_close_ int at = -1;

    *places = (struct places){.beneath = -1, .prefix = beneath};
    if (beneath == NULL)
        return 0;
    if (*beneath == '\0')
        return fail(err, ENOENT, "no_parent", "the path is empty; name a file or directory");
    at = open(*beneath == '/' ? "/" : ".", DIRECTORY);
    while (at >= 0) {
        char name[TOOL_NAME_MAX];
        size_t length;
        int next;

        beneath += strspn(beneath, "/");
        length = strcspn(beneath, "/");
        if (length == 0) {
            places->beneath = fd_take(&at);
            return 0;
        }
        if (length >= sizeof(name))
            return fail(err, ENAMETOOLONG, "", "open the directory %.120s", places->prefix);
        memcpy(name, beneath, length);
        name[length] = '\0';
        beneath += length;
        next = enter_bound(at, name, places->prefix, err);
        if (next < 0)
            return -1;
        fd_close(&at);
        at = next;
    }
    return fail(err, errno, "", "open the directory %.120s", places->prefix);
}

int place_find(const struct places *places, const char *path, unsigned flags, struct place *place,
               struct error *err)
{
    *place = PLACE_NONE;
    return places->beneath < 0 ? find_anywhere(path, flags, place, err)
                               : find_beneath(places, path, flags, place, err);
}

int place_stat(const struct place *place, struct stat *st, struct error *err)
{
    if (fstatat(place->dir, place->name, st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(err, errno, "", "look at it");
    if (place->is_directory_asked && !S_ISDIR(st->st_mode))
        return fail(err, ENOTDIR, "", "look at it");
    return 0;
}

int fail_not_regular(struct error *err)
{
    return fail(err, 0, "not_regular",
                "it is no regular file; leave FIFOs, sockets and devices to commands in the "
                "sandbox");
}

int place_open_file(const struct place *place, int flags, struct stat *st, struct error *err)
{
    _cleanup_close_ int fd = -1;

    if (place_stat(place, st, err) < 0)
        return -1;
    if (S_ISDIR(st->st_mode))
        return fail(err, EISDIR, "is_directory",
                    "it is a directory; list it, or fetch it as a tar");
    if (!S_ISREG(st->st_mode))
        return fail_not_regular(err);
    fd = openat(place->dir, place->name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) < 0)
        return fail(err, errno, "", "open it");
    if (!S_ISREG(st->st_mode))
        return fail_not_regular(err);
    return fd_take(&fd);
}

int place_open_directory(const struct place *place, struct error *err)
{
    int fd = openat(place->dir, place->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? fail(err, errno, "", "open the directory") : fd;
}

int place_open_path(const struct place *place, struct stat *st, struct error *err)
{
    _cleanup_close_ int fd = openat(place->dir, place->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fstat(fd, st) < 0)
        return fail(err, errno, "", "look at it");
    if (place->is_directory_asked && !S_ISDIR(st->st_mode))
        return fail(err, ENOTDIR, "", "look at it");
    return fd_take(&fd);
}

void place_target(int dir, const char *name, const struct stat *st, char *target, size_t size)
{
    ssize_t length = S_ISLNK(st->st_mode) ? readlinkat(dir, name, target, size - 1) : 0;

    target[length < 0 ? 0 : length] = '\0';
}

void place_open_up(int dir, const char *name)
{
    _cleanup_close_ int at = openat(dir, name, DIRECTORY | O_NOFOLLOW);
    struct stat st;

    if (at >= 0 && fstat(at, &st) == 0 && (st.st_mode & 0700) != 0700 && st.st_uid == geteuid())
        (void)tool_chmod(at, 0700);
}
