/* The verb tar-in: an archive into a directory.
 *
 * An entry whose name is absolute, has "..", or goes through a link that was not there before ends it by
 * name: a link that is older than this program (its change time, which nobody can set) is the box's own and is
 * followed, /bin for one. With --beneath no link is. Hard links lead to what the archive brought. Devices are
 * refused; set-id bits go where the box has none. What stood in the place of a file goes first. */
#include "box/tool/copy.h"
#include "box/tool/tar.h"
#include "box/tool/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define DIRECTORY (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define LINKS_MAX 40
#define BLOCK (128U << 10)
#define SPLICE_LEAST 65536
#define PADDING_MAX (16U << 20)
#define PENDING_MAX 16384
#define PENDING_BYTES_MAX (4U << 20)

/* Directories get mode and time when all is in them: at the end, or when there are too many. */
struct pending {
    dev_t device;
    ino_t inode;
    char *path;
    mode_t mode;
    struct timespec modified;
};

struct unpacker {
    struct tool *tool;
    int top;
    bool follows; /* links that were there before */
    struct timespec began;
    uid_t uid; /* of all; (uid_t)-1: as the archive says, if root unpacks */
    gid_t gid;
    uint64_t strip;
    struct tar_reader reader;
    int parent; /* the directory whose name `parent_path` is, as the last entry left it; -1 */
    char parent_path[TAR_PATH_MAX];
    struct pending pending[PENDING_MAX];
    size_t pending_count, pending_bytes;
};

static int refuse(struct error *err, const char *why)
{
    return fail(err, 0, "bad_archive", "the archive has an entry %s; leave that out", why);
}

/* ---- names ---- */

/* Without "." and what is stripped; empty where nothing is left of it. */
static int tidy(char *path, uint64_t strip, struct error *err)
{
    char *to = path, *at = path;

    if (*path == '/')
        return refuse(err, "whose name is absolute");
    while (*at != '\0') {
        size_t length = strcspn(at, "/");

        if (length == 2 && memcmp(at, "..", 2) == 0)
            return refuse(err, "whose name has \"..\"");
        if (length >= TOOL_NAME_MAX)
            return fail(err, ENAMETOOLONG, "", "unpack an entry");
        if (length > 0 && !(length == 1 && *at == '.')) {
            if (strip > 0) {
                strip--;
            } else {
                if (to != path)
                    *to++ = '/';
                memmove(to, at, length);
                to += length;
            }
        }
        at += length;
        at += *at == '/';
    }
    *to = '\0';
    return 0;
}

static bool is_older(const struct unpacker *unpacker, const struct stat *st)
{
    return st->st_ctim.tv_sec != unpacker->began.tv_sec
               ? st->st_ctim.tv_sec < unpacker->began.tv_sec
               : st->st_ctim.tv_nsec < unpacker->began.tv_nsec;
}

/* ---- directories on the way ---- */

/* Into the directory `name` of *at, which is made if it is missing. 1: it is a link that may be followed, to
 * `target`. */
static int enter(const struct unpacker *unpacker, int *at, const char *name,
                 char target[TOOL_PATH_MAX], struct error *err)
{
    int fd = openat(*at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ENOENT) {
        if (mkdirat(*at, name, 0777) < 0 && errno != EEXIST)
            return fail(err, errno, "", "make the directory %.100s above it", name);
        fd = openat(*at, name, DIRECTORY);
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        fd_close(&fd);
        return fail(err, errno, "", "open the directory %.100s above it", name);
    }
    if (S_ISDIR(st.st_mode)) {
        fd_close(at);
        *at = fd;
        return 0;
    }
    if (S_ISLNK(st.st_mode))
        place_target(fd, "", &st, target, TOOL_PATH_MAX);
    fd_close(&fd);
    if (!S_ISLNK(st.st_mode))
        return fail(err, ENOTDIR, "", "open the directory %.100s above it", name);
    if (!unpacker->follows || !is_older(unpacker, &st))
        return refuse(err, "that goes through a link");
    return 1;
}

/* The directory of that path below the top. Links that are followed may lead anywhere and up: they are the
 * box's own. */
static int open_directory(const struct unpacker *unpacker, const char *path, struct error *err)
{
    char rest[TAR_PATH_MAX], joined[TAR_PATH_MAX], target[TOOL_PATH_MAX];
    _cleanup_close_ int at = fcntl(unpacker->top, F_DUPFD_CLOEXEC, 3);
    int links = 0;

    (void)snprintf(rest, sizeof(rest), "%s", path);
    for (char *from = rest; at >= 0;) {
        char name[TOOL_NAME_MAX];
        size_t length;
        int entered;

        from += strspn(from, "/");
        length = strcspn(from, "/");
        if (length == 0)
            return fd_take(&at);
        if (length >= sizeof(name))
            return fail(err, ENAMETOOLONG, "", "follow a link");
        memcpy(name, from, length);
        name[length] = '\0';
        from += length;
        entered = enter(unpacker, &at, name, target, err);
        if (entered < 0)
            return -1;
        if (entered == 0)
            continue;
        if (links++ == LINKS_MAX)
            return fail(err, ELOOP, "", "follow its links");
        if (snprintf(joined, sizeof(joined), "%s/%s", target, from) >= (int)sizeof(joined))
            return fail(err, ENAMETOOLONG, "", "follow its links");
        memcpy(rest, joined, sizeof(rest));
        from = rest;
        if (*from == '/') {
            fd_close(&at);
            at = open("/", DIRECTORY);
        }
    }
    return fail(err, errno, "", "open the directory above it");
}

/* The place of a tidy path. Its directory is the last one's, mostly. */
static int find(struct unpacker *unpacker, const char *path, struct place *place, struct error *err)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);

    (void)snprintf(place->name, sizeof(place->name), "%s", slash == NULL ? path : slash + 1);
    place->is_directory_asked = false;
    if (unpacker->parent < 0 || strncmp(unpacker->parent_path, path, length) != 0 ||
        unpacker->parent_path[length] != '\0') {
        fd_close(&unpacker->parent);
        memcpy(unpacker->parent_path, path, length);
        unpacker->parent_path[length] = '\0';
        unpacker->parent = open_directory(unpacker, unpacker->parent_path, err);
    }
    place->dir = unpacker->parent;
    return place->dir < 0 ? -1 : 0;
}

/* ---- what is said of an entry ---- */

static int set_owner(const struct unpacker *unpacker, const struct tar_entry *entry, int fd)
{
    uid_t uid = unpacker->uid;
    gid_t gid = unpacker->gid;
    uint32_t found, none;
    struct error ignored;

    if (uid == (uid_t)-1 && gid == (gid_t)-1) {
        if (geteuid() != 0)
            return 0;
        uid = entry->uid < UINT32_MAX ? (uid_t)entry->uid : (uid_t)-1;
        gid = entry->gid < UINT32_MAX ? (gid_t)entry->gid : (gid_t)-1;
        if (entry->user[0] != '\0' && strchr(entry->user, ':') == NULL &&
            users_find(unpacker->tool->users, entry->user, &found, &none, &ignored) == 0)
            uid = found;
        if (entry->group[0] != '\0' &&
            users_find_group(unpacker->tool->users, entry->group, &found) == 0)
            gid = found;
    }
    if (fchownat(fd, "", uid, gid, AT_EMPTY_PATH) == 0)
        return 0;
    /* An id that the box does not have: what root unpacks is root's then. Who was named must be. */
    return unpacker->uid == (uid_t)-1 && unpacker->gid == (gid_t)-1 ? 1 : -1;
}

static struct timespec modified_of(const struct tar_entry *entry)
{
    return (struct timespec){.tv_sec = entry->modified_s, .tv_nsec = (long)entry->modified_ns};
}

static int set_time(int fd, struct timespec modified)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, modified};

    return utimensat(fd, "", times, AT_EMPTY_PATH);
}

static int set_attributes(const struct tar_entry *entry, int fd)
{
    char path[FD_PATH_MAX];

    fd_path(fd, path);
    for (size_t i = 0; i < entry->attributes_count; i++) {
        const struct tar_attribute *attribute = &entry->attributes[i];

        if (strncmp(attribute->name, "user.", 5) == 0 &&
            setxattr(path, attribute->name, attribute->value, attribute->size, 0) < 0 &&
            errno != ENOTSUP && errno != EPERM)
            return -1;
    }
    return 0;
}

/* Of what has data or may be entered; a link has neither mode nor attributes. */
static int set_all(const struct unpacker *unpacker, const struct tar_entry *entry, int fd,
                   struct error *err)
{
    mode_t mode = entry->mode;
    int owned = set_owner(unpacker, entry, fd);

    if (owned < 0)
        return fail(err, errno, "", "set its owner");
    if (owned > 0)
        mode &= 01777;
    if (entry->type == TAR_SYMLINK)
        return set_time(fd, modified_of(entry)) < 0 ? fail(err, errno, "", "set its time") : 0;
    if (set_attributes(entry, fd) < 0)
        return fail(err, errno, "", "set its attributes");
    if (tool_chmod(fd, mode) < 0 &&
        (errno != EPERM || (mode & 06000) == 0 || tool_chmod(fd, mode & 01777) < 0))
        return fail(err, errno, "", "set its mode");
    return set_time(fd, modified_of(entry)) < 0 ? fail(err, errno, "", "set its time") : 0;
}

/* ---- directories that wait ---- */

static void finish_pending(struct unpacker *unpacker)
{
    /* What is deeper comes later in an archive: from the end, so that no time is changed again. */
    while (unpacker->pending_count > 0) {
        struct pending *pending = &unpacker->pending[--unpacker->pending_count];
        struct error ignored;
        int fd = open_directory(unpacker, pending->path, &ignored);
        struct stat st;

        if (fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == pending->inode &&
            st.st_dev == pending->device) {
            if (tool_chmod(fd, pending->mode) < 0 && errno == EPERM)
                (void)tool_chmod(fd, pending->mode & 01777);
            (void)set_time(fd, pending->modified);
        }
        fd_close(&fd);
        free(pending->path);
    }
    unpacker->pending_bytes = 0;
}

static int add_pending(struct unpacker *unpacker, const struct tar_entry *entry, int fd,
                       mode_t mode, struct error *err)
{
    size_t size = strlen(entry->path) + 1;
    struct pending *pending;
    struct stat st;

    if (unpacker->pending_count == PENDING_MAX ||
        unpacker->pending_bytes + size > PENDING_BYTES_MAX)
        finish_pending(unpacker);
    pending = &unpacker->pending[unpacker->pending_count];
    pending->path = malloc(size);
    if (pending->path == NULL || fstat(fd, &st) < 0) {
        free(pending->path);
        return fail(err, ENOMEM, "", "unpack a directory");
    }
    memcpy(pending->path, entry->path, size);
    pending->device = st.st_dev;
    pending->inode = st.st_ino;
    pending->mode = mode;
    pending->modified = modified_of(entry);
    unpacker->pending_count++;
    unpacker->pending_bytes += size;
    return 0;
}

/* ---- data ---- */

/* Where the input ends here the archive was not whole. */
static int next_frame(struct hear *hear, struct error *err)
{
    int got = hear_data(hear, err);

    if (got == 0)
        return fail(
            err, 0, "bad_archive",
            "the archive ends within an entry; send a tar that is whole and not compressed");
    return got < 0 ? -1 : 0;
}

static int take_data(struct unpacker *unpacker, int fd, struct error *err)
{
    static char block[BLOCK];
    struct hear *hear = &unpacker->tool->hear;
    struct tar_reader *reader = &unpacker->reader;
    bool splices = true;

    while (reader->left > 0) {
        uint64_t some = reader->left;
        ssize_t n = -1;

        if (hear->left == 0 && next_frame(hear, err) != 0)
            return -1;
        some = some < hear->left ? some : hear->left;
        if (splices && some >= SPLICE_LEAST) {
            n = splice(hear->fd, NULL, fd, NULL, (size_t)some, SPLICE_F_MOVE);
            if (n < 0 && errno != EINVAL && errno != EAGAIN && errno != EINTR)
                return fail(err, errno, "", "write its data");
            if (n > 0)
                hear->left -= (uint64_t)n;
            else
                splices = n < 0 && errno == EINTR;
        }
        if (n <= 0) {
            n = hear_some(hear, block, some < sizeof(block) ? (size_t)some : sizeof(block), err);
            if (n < 0)
                return -1;
            if (fd_write_full(fd, block, (size_t)n) < 0)
                return fail(err, errno, "", "write its data");
        }
        reader->left -= (uint64_t)n;
        unpacker->tool->say.bytes += (uint64_t)n;
    }
    return 0;
}

/* ---- entries ---- */

/* What is no directory makes room. */
static int make_room(const struct place *place, struct error *err)
{
    if (unlinkat(place->dir, place->name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno == EISDIR || errno == EPERM)
        return fail(err, EISDIR, "is_directory",
                    "the archive has a file where a directory is; remove that first");
    return fail(err, errno, "", "remove what was there");
}

static int unpack_file(struct unpacker *unpacker, const struct tar_entry *entry,
                       const struct place *place, struct error *err)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    _cleanup_close_ int fd = openat(place->dir, place->name, flags, 0600);

    if (fd < 0 && errno == EEXIST) {
        if (make_room(place, err) < 0)
            return -1;
        fd = openat(place->dir, place->name, flags, 0600);
    }
    if (fd < 0)
        return fail(err, errno, "", "make the file");
    if (take_data(unpacker, fd, err) == 0 && set_all(unpacker, entry, fd, err) == 0)
        return 0;
    (void)unlinkat(place->dir, place->name, 0);
    return -1;
}

/* One that was there stays, and so does a link to one that is the box's own. */
static int unpack_directory(struct unpacker *unpacker, struct tar_entry *entry,
                            const struct place *place, struct error *err)
{
    _cleanup_close_ int fd = -1;
    int owned;
    struct stat st;

    if (mkdirat(place->dir, place->name, 0700) < 0) {
        if (errno != EEXIST || fstatat(place->dir, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return fail(err, errno, "", "make the directory");
        if (S_ISLNK(st.st_mode) && unpacker->follows && is_older(unpacker, &st) &&
            fstatat(place->dir, place->name, &st, 0) == 0 && S_ISDIR(st.st_mode))
            return 0;
        if (!S_ISDIR(st.st_mode) &&
            (make_room(place, err) < 0 || mkdirat(place->dir, place->name, 0700) < 0))
            return fail(err, errno, "", "make the directory");
    }
    fd = openat(place->dir, place->name, DIRECTORY);
    if (fd < 0)
        return fail(err, errno, "", "open the directory");
    owned = set_owner(unpacker, entry, fd);
    if (owned < 0)
        return fail(err, errno, "", "set its owner");
    if (set_attributes(entry, fd) < 0)
        return fail(err, errno, "", "set its attributes");
    return add_pending(unpacker, entry, fd, owned > 0 ? entry->mode & 01777 : entry->mode, err);
}

/* A link or a FIFO, which `make` makes. */
static int unpack_small(struct unpacker *unpacker, const struct tar_entry *entry,
                        const struct place *place, struct error *err)
{
    _cleanup_close_ int fd = -1;

    for (int round = 0;; round++) {
        int made = entry->type == TAR_SYMLINK ? symlinkat(entry->target, place->dir, place->name)
                                              : mkfifoat(place->dir, place->name, 0600);

        if (made == 0)
            break;
        if (errno != EEXIST || round > 0)
            return fail(err, errno, "",
                        entry->type == TAR_SYMLINK ? "make the link" : "make the FIFO");
        if (make_room(place, err) < 0)
            return -1;
    }
    fd = openat(place->dir, place->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail(err, errno, "", "open what was made");
    return set_all(unpacker, entry, fd, err);
}

static int unpack_hard_link(struct unpacker *unpacker, const struct tar_entry *entry,
                            struct error *err)
{
    _cleanup_close_ int fd = -1;
    char source[FD_PATH_MAX];
    struct place place = PLACE_NONE;
    struct stat st;

    if (tidy(entry->target, unpacker->strip, err) < 0 || *entry->target == '\0')
        return refuse(err, "that is a hard link to what is outside");
    if (find(unpacker, entry->target, &place, err) < 0)
        return -1;
    fd = openat(place.dir, place.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(err, errno, "", "make a hard link to an entry that should stand");
    if (S_ISDIR(st.st_mode) || is_older(unpacker, &st))
        return refuse(err, "that is a hard link to what is not of the archive");
    fd_path(fd, source);
    if (find(unpacker, entry->path, &place, err) < 0)
        return -1;
    for (int round = 0;; round++) {
        struct stat is;

        if (linkat(AT_FDCWD, source, place.dir, place.name, AT_SYMLINK_FOLLOW) == 0)
            return 0;
        if (errno != EEXIST || round > 0)
            return fail(err, errno, "", "make the hard link");
        if (fstatat(place.dir, place.name, &is, AT_SYMLINK_NOFOLLOW) == 0 &&
            is.st_ino == st.st_ino && is.st_dev == st.st_dev)
            return 0;
        if (make_room(&place, err) < 0)
            return -1;
    }
}

static int unpack_entry(struct unpacker *unpacker, struct tar_entry *entry, struct error *err)
{
    struct place place;

    if (tidy(entry->path, unpacker->strip, err) < 0)
        return -1;
    if (entry->type == TAR_CHARACTER || entry->type == TAR_BLOCK_DEVICE)
        return refuse(err, "that is a device");
    if (*entry->path == '\0')
        return 0; /* the top, or what is stripped */
    if (entry->type == TAR_HARD_LINK)
        return unpack_hard_link(unpacker, entry, err);
    if (find(unpacker, entry->path, &place, err) < 0)
        return -1;
    switch (entry->type) {
    case TAR_FILE:
        return unpack_file(unpacker, entry, &place, err);
    case TAR_DIRECTORY:
        return unpack_directory(unpacker, entry, &place, err);
    default:
        return unpack_small(unpacker, entry, &place, err);
    }
}

static int check_limits(const struct unpacker *unpacker, const struct tar_entry *entry,
                        struct error *err)
{
    const struct options *options = &unpacker->tool->options;
    const struct say *say = &unpacker->tool->say;

    if (options->limit_entries != TOOL_SAID_NOT && say->count >= options->limit_entries)
        return fail(err, 0, "limit", "the archive has more entries than are allowed; send fewer");
    if (options->limit_bytes != TOOL_SAID_NOT &&
        (entry->size > options->limit_bytes || say->bytes > options->limit_bytes - entry->size))
        return fail(err, 0, "limit", "the archive has more bytes than are allowed; send fewer");
    return 0;
}

static int unpack_all(struct unpacker *unpacker, struct error *err)
{
    struct tar_entry *entry = &unpacker->reader.entry;
    static char at[TOOL_PATH_MAX];
    int got;

    while ((got = tar_next(&unpacker->reader, err)) > 0) {
        (void)snprintf(at, sizeof(at), "%.*s", TOOL_PATH_MAX - 1, entry->path);
        unpacker->tool->at = at;
        if (check_limits(unpacker, entry, err) < 0 || unpack_entry(unpacker, entry, err) < 0)
            return -1;
        unpacker->tool->say.count++;
    }
    return got;
}

/* ---- the input ---- */

static int from_frames(void *arg, void *data, size_t size, struct error *err)
{
    struct hear *hear = arg;
    size_t done = 0;

    while (done < size) {
        size_t some = size - done;

        if (hear->left == 0 && done > 0 && next_frame(hear, err) < 0)
            return -1;
        if (hear->left == 0) {
            int got = hear_data(hear, err);

            if (got <= 0)
                return got < 0 ? -1 : 1;
        }
        some = some < hear->left ? some : (size_t)hear->left;
        if (hear_bytes(hear, (char *)data + done, some, err) < 0)
            return -1;
        done += some;
    }
    return 0;
}

/* What comes behind the archive's end is padding, up to what the largest tapes had as a block. */
static int drain(struct hear *hear, struct error *err)
{
    uint64_t bytes = 0;
    int got;

    while ((got = hear_data(hear, err)) > 0) {
        bytes += hear->left;
        if (bytes > PADDING_MAX)
            return fail(err, 0, "bad_archive",
                        "more than %u MiB follow the archive's end; send the archive alone",
                        PADDING_MAX >> 20);
    }
    return got;
}

int verb_tar_in(struct tool *tool, struct error *err)
{
    static struct unpacker unpacker;
    _cleanup_place_ struct place place = PLACE_NONE;
    unsigned flags = PLACE_FOLLOW | (tool->options.parents ? PLACE_PARENTS : 0);
    _cleanup_close_ int top = -1;
    int done;

    unpacker.tool = tool;
    unpacker.parent = -1;
    unpacker.follows = tool->options.beneath == NULL;
    unpacker.strip = tool->options.strip == TOOL_SAID_NOT ? 0 : tool->options.strip;
    unpacker.uid = unpacker.gid = (uid_t)-1;
    /* The clock of change times is the coarse one; what has its time is not older. */
    (void)clock_gettime(CLOCK_REALTIME_COARSE, &unpacker.began);
    if (tool->options.owner != NULL &&
        users_find(tool->users, tool->options.owner, &unpacker.uid, &unpacker.gid, err) < 0)
        return -1;
    if (place_find(&tool->places, tool->at, flags, &place, err) < 0)
        return -1;
    if (tool->options.parents && mkdirat(place.dir, place.name, 0777) < 0 && errno != EEXIST)
        return fail(err, errno, "", "make the directory");
    top = place_open_directory(&place, err);
    if (top < 0)
        return -1;
    unpacker.top = top;
    tar_begin(&unpacker.reader, from_frames, &tool->hear);
    done = unpack_all(&unpacker, err);
    fd_close(&unpacker.parent);
    finish_pending(&unpacker);
    return done < 0 ? -1 : drain(&tool->hear, err);
}
