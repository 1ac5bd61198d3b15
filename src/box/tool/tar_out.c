/* The verb tar-out: an archive of what is named, as frames.
 *
 * Names begin with the last part of the operand, "." where it has none. A socket has no place in an archive
 * and what vanished meanwhile is not missed; anything else that cannot be read ends it, so that an archive
 * that is whole holds all. */
#include "box/tool/copy.h"
#include "box/tool/tar.h"
#include "box/tool/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BLOCK (128U << 10)
#define SPLICE_LEAST 65536

struct archiver {
    struct tool *tool;
    struct links *links;
    char path[TAR_PATH_MAX], target[TAR_PATH_MAX];
    char attributes[TAR_EXTENDED_MAX];
    char header[TAR_HEADER_MAX];
};

static void say_data(struct say *say, const void *data, size_t size)
{
    say_begin(say, TOOL_DATA, size);
    say_bytes(say, data, size);
}

/* ---- data ---- */

/* A frame, by splice(2) where pipe and file can: what it promises must come, and a file that became shorter
 * ends the output. */
static void send_frame(struct say *say, int file, size_t size, char block[BLOCK])
{
    bool splices = size >= SPLICE_LEAST;

    say_begin(say, TOOL_DATA, size);
    if (splices)
        say_flush(say);
    while (size > 0) {
        struct pollfd room = {.fd = say->fd, .events = POLLOUT};
        ssize_t n;

        if (splices)
            n = splice(file, NULL, say->fd, NULL, size, SPLICE_F_MOVE);
        else
            n = read(file, block, size < BLOCK ? size : BLOCK);
        if (n > 0) {
            if (!splices)
                say_bytes(say, block, (size_t)n);
            size -= (size_t)n;
        } else if (n < 0 && errno == EAGAIN) {
            (void)poll(&room, 1, -1);
        } else if (n < 0 && errno == EINVAL && splices) {
            splices = false;
        } else if (n == 0 || errno != EINTR) {
            _exit(1);
        }
    }
}

static void send_data(struct say *say, int file, uint64_t size)
{
    static char block[BLOCK];

    for (uint64_t left = size; left > 0;) {
        size_t some = left < TOOL_DATA_MAX ? (size_t)left : TOOL_DATA_MAX;

        send_frame(say, file, some, block);
        left -= some;
    }
    memset(block, 0, TAR_BLOCK);
    if (size % TAR_BLOCK != 0)
        say_data(say, block, (size_t)(TAR_BLOCK - size % TAR_BLOCK));
    say->bytes += size;
}

/* ---- headers ---- */

/* Those of users, as far as there is room. */
static void take_attributes(struct archiver *archiver, int fd, struct tar_entry *entry)
{
    static char list[XATTR_LIST_MAX];
    char path[FD_PATH_MAX];
    size_t used = 0;
    ssize_t size;

    fd_path(fd, path);
    size = listxattr(path, list, sizeof(list));
    for (const char *name = list; name < list + size; name += strlen(name) + 1) {
        ssize_t n;

        if (strncmp(name, "user.", 5) != 0 || entry->attributes_count == TAR_ATTRIBUTES_MAX)
            continue;
        n = getxattr(path, name, archiver->attributes + used, sizeof(archiver->attributes) - used);
        if (n < 0)
            continue;
        entry->attributes[entry->attributes_count++] = (struct tar_attribute){
            name, archiver->attributes + used, (size_t)n};
        used += (size_t)n;
    }
}

static void fill(struct archiver *archiver, const struct stat *st, struct tar_entry *entry)
{
    struct users *users = archiver->tool->users;

    memset(entry, 0, sizeof(*entry));
    entry->mode = st->st_mode & 07777;
    entry->uid = st->st_uid;
    entry->gid = st->st_gid;
    entry->modified_s = st->st_mtim.tv_sec;
    entry->modified_ns = (uint32_t)st->st_mtim.tv_nsec;
    (void)snprintf(entry->user, sizeof(entry->user), "%s", users_name(users, st->st_uid));
    (void)snprintf(entry->group, sizeof(entry->group), "%s", users_group(users, st->st_gid));
    entry->path = archiver->path;
}

static int send_header(struct archiver *archiver, const struct tar_entry *entry, struct error *err)
{
    int size = tar_header(entry, archiver->header, err);

    if (size < 0)
        return -1;
    say_data(&archiver->tool->say, archiver->header, (size_t)size);
    archiver->tool->say.count++;
    return 0;
}

/* ---- entries; archiver->path is the name in the archive ---- */

static int send_file(struct archiver *archiver, const struct place *place, struct error *err)
{
    _cleanup_close_ int file = -1;
    struct tar_entry entry;
    struct stat st;

    file = place_open_file(place, O_RDONLY, &st, err);
    if (file < 0)
        return -1;
    fill(archiver, &st, &entry);
    if (st.st_nlink > 1) {
        const char *known = links_meet(archiver->links, &st, archiver->path);

        if (known != NULL) {
            (void)snprintf(archiver->target, sizeof(archiver->target), "%s", known);
            entry.type = TAR_HARD_LINK;
            entry.target = archiver->target;
            return send_header(archiver, &entry, err);
        }
    }
    entry.type = TAR_FILE;
    entry.size = (uint64_t)st.st_size;
    take_attributes(archiver, file, &entry);
    if (send_header(archiver, &entry, err) < 0)
        return -1;
    send_data(&archiver->tool->say, file, entry.size);
    return 0;
}

static int send_other(struct archiver *archiver, const struct place *place, const struct stat *st,
                      struct error *err)
{
    _cleanup_close_ int fd = -1;
    struct tar_entry entry;

    fill(archiver, st, &entry);
    if (S_ISLNK(st->st_mode)) {
        entry.type = TAR_SYMLINK;
        place_target(place->dir, place->name, st, archiver->target, sizeof(archiver->target));
        entry.target = archiver->target;
    } else if (S_ISDIR(st->st_mode)) {
        entry.type = TAR_DIRECTORY;
        fd = openat(place->dir, place->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
            take_attributes(archiver, fd, &entry);
    } else if (S_ISFIFO(st->st_mode)) {
        entry.type = TAR_FIFO;
    } else if (S_ISSOCK(st->st_mode)) {
        return 0;
    } else {
        return fail_not_regular(err);
    }
    return send_header(archiver, &entry, err);
}

/* ENOENT of what is met in a tree: it went, and is not missed. */
static int send_one(struct archiver *archiver, const struct place *place, bool is_met,
                    struct error *err)
{
    struct stat st;
    int done;

    done = place_stat(place, &st, err);
    if (done == 0)
        done = S_ISREG(st.st_mode) ? send_file(archiver, place, err)
                                   : send_other(archiver, place, &st, err);
    return done < 0 && is_met && err->errnum == ENOENT ? 0 : done;
}

static int name_it(struct archiver *archiver, const char *top, const char *below, bool is_directory,
                   struct error *err)
{
    int length = snprintf(archiver->path, sizeof(archiver->path), "%s%s%s%s", top,
                          *below != '\0' ? "/" : "", below, is_directory ? "/" : "");

    if (length < 0 || (size_t)length >= sizeof(archiver->path))
        return fail(err, ENAMETOOLONG, "", "archive such a long path");
    return 0;
}

static int send_below(struct archiver *archiver, const struct place *place, const char *path,
                      const char *name, struct error *err)
{
    struct walk_options how = {.path = path, .depth_max = UINT_MAX};
    _cleanup_walk_ struct walk *walk = NULL;
    int top = place_open_directory(place, err);
    static char failed[TOOL_PATH_MAX];
    struct walk_step step;

    if (top < 0)
        return -1;
    walk = walk_new(top, &how, err);
    if (walk == NULL)
        return -1;
    for (enum walk_kind kind; (kind = walk_next(walk, &step)) != WALK_END;) {
        struct place here = {.dir = step.dir};
        int done = 0;

        (void)snprintf(here.name, sizeof(here.name), "%s", step.name);
        if (kind == WALK_ENTRY)
            done = name_it(archiver, name, step.below, step.type == DT_DIR, err) < 0
                       ? -1
                       : send_one(archiver, &here, true, err);
        if (kind == WALK_FAILED && step.error.errnum != ENOENT) {
            *err = step.error;
            done = -1;
        }
        if (done < 0) {
            (void)snprintf(failed, sizeof(failed), "%.*s", TOOL_PATH_MAX - 1, step.path);
            archiver->tool->at = failed;
            return -1;
        }
    }
    return 0;
}

/* The last part of the operand; "." where it says no name. */
static void name_of(const char *path, char name[TOOL_NAME_MAX])
{
    size_t end = strnlen(path, TOOL_PATH_MAX), start;

    for (; end > 0 && path[end - 1] == '/'; end--)
        ;
    for (start = end; start > 0 && path[start - 1] != '/'; start--)
        ;
    (void)snprintf(name, TOOL_NAME_MAX, "%.*s", (int)(end - start), path + start);
    if (name[0] == '\0' || strcmp(name, "..") == 0)
        (void)snprintf(name, TOOL_NAME_MAX, ".");
}

static int send_operand(struct archiver *archiver, const char *path, struct error *err)
{
    struct tool *tool = archiver->tool;
    _cleanup_place_ struct place place = PLACE_NONE;
    char name[TOOL_NAME_MAX];
    struct stat st;

    tool->at = path;
    name_of(path, name);
    if (place_find(&tool->places, path, tool->options.follow ? PLACE_FOLLOW : 0, &place, err) < 0 ||
        place_stat(&place, &st, err) < 0 ||
        name_it(archiver, name, "", S_ISDIR(st.st_mode), err) < 0)
        return -1;
    if (send_one(archiver, &place, false, err) < 0)
        return -1;
    return S_ISDIR(st.st_mode) ? send_below(archiver, &place, path, name, err) : 0;
}

/* Before anything is said: what is not there is no archive at all. */
static int check_operands(struct tool *tool, struct error *err)
{
    unsigned flags = tool->options.follow ? PLACE_FOLLOW : 0;

    for (unsigned i = 0; i < tool->options.operands_count; i++) {
        _cleanup_place_ struct place place = PLACE_NONE;
        struct stat st;

        tool->at = tool->options.operands[i];
        if (place_find(&tool->places, tool->at, flags, &place, err) < 0 ||
            place_stat(&place, &st, err) < 0)
            return -1;
    }
    return 0;
}

int verb_tar_out(struct tool *tool, struct error *err)
{
    static const char end[2 * TAR_BLOCK];
    static struct archiver archiver;
    struct stat none = {0};

    archiver.tool = tool;
    archiver.links = links_new();
    if (archiver.links == NULL)
        return fail(err, ENOMEM, "", "begin an archive");
    if (check_operands(tool, err) < 0)
        return -1;
    say_begin_bytes(&tool->say, &(struct entry){.st = &none}, UINT64_MAX, 0);
    for (unsigned i = 0; i < tool->options.operands_count; i++)
        if (send_operand(&archiver, tool->options.operands[i], err) < 0)
            return -1;
    say_data(&tool->say, end, sizeof(end));
    return 0;
}
