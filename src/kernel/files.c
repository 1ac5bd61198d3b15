/* Files for code: fs.* by the manifest. A path is opened below a granted directory, by the kernel's own
 * rules for that (openat2: beneath it, no magic links), so that no link and no ".." leads out; what the
 * text of the path says decides only which grant is meant (paths.c). What is not granted is denied with the name of
 * the capability that would allow it, whether it is there or not. /proc is below no grant: what it shows is
 * the host's own process, its memory and its variables. */
#include "base/fd.h"
#include "kernel/meta.h"
#include "kernel/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_MAX_FILES 64
#define READ_MAX (64U << 20) /* bytes of one answer */
#define LIST_MAX 100000U     /* entries */
#define LIST_ENTRY_MAX 2048U /* bytes of one, escaped */
#define DEPTH_MAX 64U        /* of what is removed with all below it */

struct files {
    int fd[OPEN_MAX_FILES]; /* -1: free. The code's number is the index + 3 */
};

void files_freep(struct files **files)
{
    if (*files == NULL)
        return;
    for (size_t i = 0; i < OPEN_MAX_FILES; i++)
        fd_close(&(*files)->fd[i]);
    free(*files);
    *files = NULL;
}

/* ---- errors, as Node says them ---- */

static const struct {
    int errnum;
    const char *code, *words;
} errors[] = {
    {ENOENT, "ENOENT", "no such file or directory"},
    {EEXIST, "EEXIST", "file already exists"},
    {ENOTDIR, "ENOTDIR", "not a directory"},
    {EISDIR, "EISDIR", "illegal operation on a directory"},
    {ENOTEMPTY, "ENOTEMPTY", "directory not empty"},
    {EACCES, "EACCES", "permission denied"},
    {EPERM, "EPERM", "operation not permitted"},
    {EROFS, "EROFS", "read-only file system"},
    {ENOSPC, "ENOSPC", "no space left on device"},
    {EDQUOT, "EDQUOT", "disk quota exceeded"},
    {EFBIG, "EFBIG", "file too large"},
    {EINVAL, "EINVAL", "invalid argument"},
    {EBADF, "EBADF", "bad file descriptor"},
    {EMFILE, "EMFILE", "too many open files"},
    {ELOOP, "ELOOP", "too many symbolic links encountered"},
    {ENAMETOOLONG, "ENAMETOOLONG", "name too long"},
    {ENOMEM, "ENOMEM", "not enough memory"},
    {EINTR, "EINTR", "the run's time is up"},
    {EXDEV, "EACCES", "it leads out of what is granted"},
};

static int failed(struct error *err, const char *verb, const char *path, int errnum)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].errnum == errnum)
            return error_set(err, errors[i].code, 0, "%s: %s, %s '%s'", errors[i].code,
                             errors[i].words, verb, path);
    return error_set(err, "EIO", 0, "EIO: i/o error, %s '%s'", verb, path);
}

static int denied(struct error *err, const char *verb, const char *path, bool write)
{
    return error_set(
        err, "EACCES", 0, "EACCES: permission denied, %s '%s': it is not granted; allow it with %s",
        verb, path,
        write ? "allowedWritePaths (--allow-write)" : "allowedReadPaths (--allow-read)");
}

/* ---- paths ---- */

/* A path that the code named: where it begins, and what of it is below that. */
struct place {
    char path[PATH_MAX]; /* as the code wrote it, normal */
    int dir;
    const char *below; /* "." for the directory itself */
    bool is_file;      /* a file that is granted itself: it must be no link by now */
};

static bool grant_holds(const struct grant *grant, const char *path, struct place *place)
{
    size_t size = strlen(grant->path);

    if (strcmp(path, grant->path) == 0) {
        place->below = grant->name != NULL ? grant->name : ".";
        place->is_file = grant->name != NULL;
    } else if (grant->name == NULL && size == 1) {
        place->below = path + 1;
    } else if (grant->name == NULL && strncmp(path, grant->path, size) == 0 && path[size] == '/') {
        place->below = path + size + 1;
    } else {
        return false;
    }
    place->dir = grant->dir;
    return true;
}

static int place_find(const struct kernel_manifest *manifest, const struct kernel_call *call,
                      const char *member, const char *verb, bool write, struct place *place,
                      struct error *err)
{
    const struct grant *grants = write ? manifest->writes : manifest->reads;
    size_t count = write ? manifest->writes_count : manifest->reads_count;
    struct meta_value value;
    char path[PATH_MAX];

    *place->path = 0;
    place->dir = -1;
    place->below = ".";
    place->is_file = false;
    if (meta_member(call->meta, member, &value) < 0 || meta_string(&value, path, sizeof(path)) < 0)
        return error_set(err, "EINVAL", 0, "EINVAL: %s needs a path of at most %d bytes", verb,
                         PATH_MAX - 5);
    if (path_normal(path, place->path) < 0)
        return error_set(err, "ENOENT", 0, "ENOENT: no such file or directory, %s '%s'", verb,
                         path);
    for (size_t i = 0; i < count; i++)
        if (grant_holds(&grants[i], place->path, place))
            return 0;
    return denied(err, verb, place->path, write);
}

/* Opens a file, and nothing that is none: no device, no pipe, no socket. */
static int file_open(const struct place *place, int flags, mode_t mode, const char *verb,
                     struct error *err)
{
    struct stat about = {0};
    int fd = path_open(place->dir, place->below,
                       flags | O_NONBLOCK | O_NOCTTY | (place->is_file ? O_NOFOLLOW : 0), mode);

    if (fd < 0)
        return failed(err, verb, place->path, errno);
    if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode)) {
        bool is_dir = S_ISDIR(about.st_mode);

        fd_close(&fd);
        return is_dir ? failed(err, verb, place->path, EISDIR)
                      : error_set(err, "EACCES", 0,
                                  "EACCES: permission denied, %s '%s': it is no file", verb,
                                  place->path);
    }
    return fd;
}

/* The directory that the last part of the path lies in; `*name` is that part. */
static int parent_open(const struct place *place, const char **name, const char *verb,
                       struct error *err)
{
    char above[PATH_MAX];
    const char *slash = strrchr(place->below, '/');
    int dir;

    if (strcmp(place->below, ".") == 0)
        return failed(err, verb, place->path, EPERM);
    *name = slash != NULL ? slash + 1 : place->below;
    (void)snprintf(above, sizeof(above), "%.*s", slash != NULL ? (int)(slash - place->below) : 1,
                   slash != NULL ? place->below : ".");
    dir = path_open(place->dir, above, O_PATH | O_DIRECTORY, 0);
    return dir < 0 ? failed(err, verb, place->path, errno) : dir;
}

static bool member_is_true(const struct kernel_call *call, const char *name)
{
    struct meta_value value;

    return meta_member(call->meta, name, &value) == 0 && meta_is_true(&value);
}

static bool member_is_false(const struct kernel_call *call, const char *name)
{
    struct meta_value value;

    return meta_member(call->meta, name, &value) == 0 && !meta_is_true(&value);
}

static mode_t member_mode(const struct kernel_call *call, mode_t fallback)
{
    struct meta_value value;
    uint64_t mode;

    if (meta_member(call->meta, "mode", &value) < 0 || meta_count(&value, 07777, &mode) < 0)
        return fallback;
    return (mode_t)mode & 0777; /* never set-id */
}

static int answer_put(struct kernel_answer *answer, struct meta_text *text, struct error *err)
{
    if (text->failed)
        return error_set(err, "ENOMEM", 0, "ENOMEM: not enough memory");
    answer->meta = text->data;
    answer->meta_size = text->size;
    return 0;
}

/* ---- whole files ---- */

/* To begin with; one byte more than there is shows the end. */
static size_t room_for(int fd, size_t most)
{
    struct stat about;

    if (fstat(fd, &about) < 0 || about.st_size <= 0)
        return most < 65536 ? most + 1 : 65536;
    return ((uint64_t)about.st_size < most ? (size_t)about.st_size : most) + 1;
}

/* From `fd`, as much as there is up to `most`; the file may be changed meanwhile. */
static int bytes_read(int fd, size_t most, off_t position, struct kernel_answer *answer,
                      const char *verb, const char *path, struct error *err)
{
    size_t room = room_for(fd, most), used = 0;
    uint8_t *bytes = malloc(room);

    for (;;) {
        size_t piece;
        ssize_t got;

        if (bytes == NULL)
            return failed(err, verb, path, ENOMEM);
        piece = (room < most ? room : most) - used;
        piece = piece < THREAD_PIECE ? piece : THREAD_PIECE;
        if (thread_is_due())
            got = (errno = EINTR, -1);
        else if (piece == 0)
            got = 0;
        else
            got = position >= 0 ? pread(fd, bytes + used, piece, position + (off_t)used)
                                : read(fd, bytes + used, piece);
        if (got < 0) {
            int errnum = errno;

            free(bytes);
            return failed(err, verb, path, errnum);
        }
        if (got == 0)
            break;
        used += (size_t)got;
        if (used == room) {
            uint8_t *more = realloc(bytes, 2 * room);

            if (more == NULL)
                free(bytes);
            bytes = more;
            room *= 2;
        }
    }
    answer->bytes = bytes;
    answer->bytes_size = used;
    return 0;
}

/* All that came with the call; from `position` on, or where the file is. */
static int bytes_write(int fd, const struct kernel_call *call, off_t position, const char *path,
                       struct error *err)
{
    for (size_t done = 0; done < call->bytes_size;) {
        size_t piece = call->bytes_size - done;
        ssize_t put;

        piece = piece < THREAD_PIECE ? piece : THREAD_PIECE;
        if (thread_is_due())
            return failed(err, "write", path, EINTR);
        put = position >= 0 ? pwrite(fd, call->bytes + done, piece, position + (off_t)done)
                            : write(fd, call->bytes + done, piece);
        if (put < 0)
            return failed(err, "write", path, errno);
        done += (size_t)put;
    }
    return 0;
}

static int read_file(const struct kernel_manifest *manifest, const struct kernel_call *call,
                     struct kernel_answer *answer, struct error *err)
{
    struct place place;
    struct stat about;
    _cleanup_close_ int fd = -1;

    if (place_find(manifest, call, "path", "open", false, &place, err) < 0)
        return -1;
    fd = file_open(&place, O_RDONLY, 0, "open", err);
    if (fd < 0)
        return -1;
    if (fstat(fd, &about) == 0 && about.st_size > (off_t)READ_MAX)
        return failed(err, "read", place.path, EFBIG);
    return bytes_read(fd, READ_MAX, -1, answer, "read", place.path, err);
}

static int write_file(const struct kernel_manifest *manifest, const struct kernel_call *call,
                      struct kernel_answer *answer, struct error *err)
{
    struct place place;
    _cleanup_close_ int fd = -1;
    int flags = O_WRONLY | O_CREAT;

    (void)answer;
    if (place_find(manifest, call, "path", "open", true, &place, err) < 0)
        return -1;
    flags |= member_is_true(call, "append") ? O_APPEND : O_TRUNC;
    flags |= member_is_true(call, "exclusive") ? O_EXCL : 0;
    fd = file_open(&place, flags, member_mode(call, 0666), "open", err);
    if (fd < 0)
        return -1;
    return bytes_write(fd, call, -1, place.path, err);
}

/* ---- open files ---- */

/* "r", "w" or "a", then "+", "x" and "s" in any order; -1: something else. */
static int flags_parse(const char *name)
{
    bool both = strchr(name, '+') != NULL;
    int flags = both ? O_RDWR : name[0] == 'r' ? O_RDONLY : O_WRONLY;

    if (name[0] == 0 || strchr("rwa", name[0]) == NULL ||
        strspn(name + 1, "+xs") != strlen(name + 1))
        return -1;
    if (name[0] != 'r')
        flags |= O_CREAT | (name[0] == 'w' ? O_TRUNC : O_APPEND);
    return flags | (strchr(name, 'x') != NULL ? O_EXCL : 0);
}

static int table_add(struct files **files, int fd)
{
    if (*files == NULL) {
        *files = malloc(sizeof(**files));
        if (*files == NULL)
            return errno = ENOMEM, -1;
        for (size_t i = 0; i < OPEN_MAX_FILES; i++)
            (*files)->fd[i] = -1;
    }
    for (int i = 0; i < OPEN_MAX_FILES; i++)
        if ((*files)->fd[i] < 0) {
            (*files)->fd[i] = fd;
            return i + 3;
        }
    return errno = EMFILE, -1;
}

static int *table_find(struct files *files, const struct kernel_call *call)
{
    struct meta_value value;
    uint64_t number;

    if (files == NULL || meta_member(call->meta, "fd", &value) < 0 ||
        meta_count(&value, OPEN_MAX_FILES + 2, &number) < 0 || number < 3 ||
        files->fd[number - 3] < 0)
        return NULL;
    return &files->fd[number - 3];
}

/* {path, flags, mode} -> {fd} */
static int file_open_call(struct files **files, const struct kernel_manifest *manifest,
                          const struct kernel_call *call, struct kernel_answer *answer,
                          struct error *err)
{
    char name[8] = "r";
    struct meta_text text = {0};
    struct meta_value value;
    struct place place;
    int flags, fd, number;

    if (meta_member(call->meta, "flags", &value) == 0 &&
        meta_string(&value, name, sizeof(name)) < 0)
        return error_set(err, "EINVAL", 0, "EINVAL: the flags of an open are not known");
    flags = flags_parse(name);
    if (flags < 0)
        return error_set(err, "EINVAL", 0, "EINVAL: the flags '%s' of an open are not known", name);
    if (((flags & O_ACCMODE) != O_WRONLY &&
         place_find(manifest, call, "path", "open", false, &place, err) < 0) ||
        ((flags & O_ACCMODE) != O_RDONLY &&
         place_find(manifest, call, "path", "open", true, &place, err) < 0))
        return -1;
    fd = file_open(&place, flags, member_mode(call, 0666), "open", err);
    if (fd < 0)
        return -1;
    number = table_add(files, fd);
    if (number < 0) {
        int errnum = errno;

        fd_close(&fd);
        return failed(err, "open", place.path, errnum);
    }
    meta_put(&text, "{\"fd\":");
    meta_put_number(&text, (uint64_t)number);
    meta_put(&text, "}");
    return answer_put(answer, &text, err);
}

static off_t member_position(const struct kernel_call *call)
{
    struct meta_value value;
    uint64_t position;

    if (meta_member(call->meta, "position", &value) < 0 ||
        meta_count(&value, INT64_MAX, &position) < 0)
        return -1;
    return (off_t)position;
}

/* {fd, length, position} -> bytes */
static int file_read(struct files *files, const struct kernel_call *call,
                     struct kernel_answer *answer, struct error *err)
{
    int *fd = table_find(files, call);
    struct meta_value value;
    uint64_t length = READ_MAX;

    if (fd == NULL)
        return failed(err, "read", "", EBADF);
    if (meta_member(call->meta, "length", &value) == 0 && meta_count(&value, READ_MAX, &length) < 0)
        return failed(err, "read", "", EINVAL);
    return bytes_read(*fd, length, member_position(call), answer, "read", "", err);
}

static int written_put(const struct kernel_call *call, struct kernel_answer *answer,
                       struct error *err)
{
    struct meta_text text = {0};

    meta_put(&text, "{\"written\":");
    meta_put_number(&text, call->bytes_size);
    meta_put(&text, "}");
    return answer_put(answer, &text, err);
}

/* {fd, position} + bytes -> {written} */
static int file_write(struct files *files, const struct kernel_call *call,
                      struct kernel_answer *answer, struct error *err)
{
    int *fd = table_find(files, call);
    off_t position = member_position(call);

    if (fd == NULL)
        return failed(err, "write", "", EBADF);
    if (bytes_write(*fd, call, position, "", err) < 0)
        return -1;
    return written_put(call, answer, err);
}

/* {fd} */
static int file_close(struct files *files, const struct kernel_call *call, struct error *err)
{
    int *fd = table_find(files, call);

    if (fd == NULL)
        return failed(err, "close", "", EBADF);
    fd_close(fd);
    return 0;
}

/* ---- directories ---- */

static const char *kind_name(mode_t mode)
{
    return S_ISREG(mode)   ? "file"
           : S_ISDIR(mode) ? "directory"
           : S_ISLNK(mode) ? "symlink"
                           : "other";
}

static void member_put(struct meta_text *text, const char *name, uint64_t number)
{
    meta_put(text, ",\"");
    meta_put(text, name);
    meta_put(text, "\":");
    meta_put_number(text, number);
}

static uint64_t ms_of(struct timespec time)
{
    return time.tv_sec < 0 ? 0 : (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* {path, follow} or {fd} -> {type, size, mode, ...}. What may be written may be looked at. */
static int stat_call(struct files *files, const struct kernel_manifest *manifest,
                     const struct kernel_call *call, struct kernel_answer *answer,
                     struct error *err)
{
    struct meta_text text = {0};
    struct place place = {.path = ""};
    _cleanup_close_ int opened = -1;
    struct meta_value value;
    struct error write_err;
    struct stat about;
    int *fd = NULL;

    if (meta_member(call->meta, "fd", &value) == 0) {
        fd = table_find(files, call);
        if (fd == NULL)
            return failed(err, "fstat", "", EBADF);
    } else {
        if (place_find(manifest, call, "path", "stat", false, &place, err) < 0 &&
            place_find(manifest, call, "path", "stat", true, &place, &write_err) < 0)
            return -1;
        opened = path_open(
            place.dir, place.below,
            O_PATH | (place.is_file || member_is_false(call, "follow") ? O_NOFOLLOW : 0), 0);
    }
    if ((fd == NULL && opened < 0) || fstat(fd != NULL ? *fd : opened, &about) < 0)
        return failed(err, "stat", place.path, errno);
    meta_put(&text, "{\"type\":\"");
    meta_put(&text, kind_name(about.st_mode));
    meta_put(&text, "\"");
    member_put(&text, "size", (uint64_t)about.st_size);
    member_put(&text, "mode", about.st_mode);
    member_put(&text, "ino", about.st_ino);
    member_put(&text, "nlink", about.st_nlink);
    member_put(&text, "atime_ms", ms_of(about.st_atim));
    member_put(&text, "mtime_ms", ms_of(about.st_mtim));
    member_put(&text, "ctime_ms", ms_of(about.st_ctim));
    meta_put(&text, "}");
    return answer_put(answer, &text, err);
}

/* {path} -> {entries: [{name, type}]} */
static int list_call(const struct kernel_manifest *manifest, const struct kernel_call *call,
                     struct kernel_answer *answer, struct error *err)
{
    static const char *const kinds[] = {
        [DT_REG] = "file", [DT_DIR] = "directory", [DT_LNK] = "symlink"};
    struct meta_text text = {0};
    struct dirent *entry;
    struct place place;
    uint32_t count = 0;
    bool is_due = false;
    DIR *dir;
    int fd;

    if (place_find(manifest, call, "path", "scandir", false, &place, err) < 0)
        return -1;
    fd = path_open(place.dir, place.below, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return failed(err, "scandir", place.path, errno);
    dir = fdopendir(fd);
    if (dir == NULL) {
        fd_close(&fd);
        return failed(err, "scandir", place.path, ENOMEM);
    }
    meta_put(&text, "{\"entries\":[");
    while (!(is_due = thread_is_due()) && (entry = readdir(dir)) != NULL && count < LIST_MAX &&
           text.size < KERNEL_META_MAX - LIST_ENTRY_MAX) {
        const char *kind = entry->d_type < sizeof(kinds) / sizeof(kinds[0]) ? kinds[entry->d_type]
                                                                            : NULL;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        meta_put(&text, count++ > 0 ? ",{\"name\":" : "{\"name\":");
        meta_put_string(&text, entry->d_name, strlen(entry->d_name));
        meta_put(&text, ",\"type\":\"");
        meta_put(&text, kind != NULL ? kind : "other");
        meta_put(&text, "\"}");
    }
    (void)closedir(dir);
    if (is_due) {
        free(text.data);
        return failed(err, "scandir", place.path, EINTR);
    }
    meta_put(&text, "]}");
    return answer_put(answer, &text, err);
}

/* One directory, and with `parents` those above it that are not there, below the grant. */
static int directory_make(const struct place *place, bool parents, mode_t mode, struct error *err)
{
    char path[PATH_MAX];
    size_t size = strlen(place->below);

    for (size_t at = parents ? strcspn(place->below, "/") : size; at <= size;
         at += 1 + strcspn(place->below + at + (at < size ? 1 : 0), "/")) {
        struct place part = *place;
        _cleanup_close_ int dir = -1;
        const char *name = "";

        (void)snprintf(path, sizeof(path), "%.*s", (int)at, place->below);
        part.below = path;
        dir = parent_open(&part, &name, "mkdir", err);
        if (dir < 0)
            return -1;
        if (mkdirat(dir, name, mode) < 0 && !(errno == EEXIST && parents))
            return failed(err, "mkdir", place->path, errno);
        if (at == size)
            break;
    }
    return 0;
}

/* {path, recursive, mode} */
static int mkdir_call(const struct kernel_manifest *manifest, const struct kernel_call *call,
                      struct error *err)
{
    bool parents = member_is_true(call, "recursive");
    struct place place;

    if (place_find(manifest, call, "path", "mkdir", true, &place, err) < 0)
        return -1;
    if (strcmp(place.below, ".") == 0)
        return parents ? 0 : failed(err, "mkdir", place.path, EEXIST);
    return directory_make(&place, parents, member_mode(call, 0777), err);
}

/* A directory's entries, then itself. No link is followed. */
static int tree_remove(int above, const char *name, unsigned depth)
{
    struct dirent *entry;
    int status = 0, fd;
    DIR *dir;

    if (unlinkat(above, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    fd = path_open(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0 || depth == 0)
        return fd_close(&fd), depth == 0 ? (errno = ELOOP, -1) : -1;
    dir = fdopendir(fd);
    if (dir == NULL)
        return fd_close(&fd), errno = ENOMEM, -1;
    while (status == 0 && (entry = readdir(dir)) != NULL)
        if (thread_is_due())
            status = (errno = EINTR, -1);
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = tree_remove(dirfd(dir), entry->d_name, depth - 1);
    (void)closedir(dir);
    return status < 0 ? -1 : unlinkat(above, name, AT_REMOVEDIR);
}

/* {path, recursive, force, directory} */
static int remove_call(const struct kernel_manifest *manifest, const struct kernel_call *call,
                       struct error *err)
{
    bool directory = member_is_true(call, "directory");
    const char *verb = directory ? "rmdir" : "unlink", *name = "";
    _cleanup_close_ int dir = -1;
    struct place place;
    int status;

    if (place_find(manifest, call, "path", verb, true, &place, err) < 0)
        return -1;
    dir = parent_open(&place, &name, verb, err);
    if (dir < 0)
        return strcmp(err->code, "ENOENT") == 0 && member_is_true(call, "force") ? 0 : -1;
    if (member_is_true(call, "recursive"))
        status = tree_remove(dir, name, DEPTH_MAX);
    else
        status = unlinkat(dir, name, directory ? AT_REMOVEDIR : 0);
    if (status < 0 && !(errno == ENOENT && member_is_true(call, "force")))
        return failed(err, verb, place.path, errno);
    return 0;
}

/* {path, to}. What may be written only does not become what may be read by being moved. */
static int rename_call(const struct kernel_manifest *manifest, const struct kernel_call *call,
                       struct error *err)
{
    _cleanup_close_ int from_dir = -1, to_dir = -1;
    const char *from_name = "", *to_name = "";
    struct place from, to;

    if (place_find(manifest, call, "path", "rename", true, &from, err) < 0 ||
        place_find(manifest, call, "to", "rename", true, &to, err) < 0)
        return -1;
    from_dir = parent_open(&from, &from_name, "rename", err);
    if (from_dir < 0)
        return -1;
    to_dir = parent_open(&to, &to_name, "rename", err);
    if (to_dir < 0)
        return -1;
    if (manifest->reads_count > 0 && path_is_readable(manifest, to_dir, to_name, true) &&
        !path_is_readable(manifest, from_dir, from_name, false))
        return denied(err, "rename", from.path, false);
    return renameat(from_dir, from_name, to_dir, to_name) < 0
               ? failed(err, "rename", from.path, errno)
               : 0;
}

/* {path} -> {target} */
static int readlink_call(const struct kernel_manifest *manifest, const struct kernel_call *call,
                         struct kernel_answer *answer, struct error *err)
{
    struct meta_text text = {0};
    _cleanup_close_ int fd = -1;
    char target[PATH_MAX];
    struct place place;
    ssize_t size;

    if (place_find(manifest, call, "path", "readlink", false, &place, err) < 0)
        return -1;
    fd = path_open(place.dir, place.below, O_PATH | O_NOFOLLOW, 0);
    if (fd < 0)
        return failed(err, "readlink", place.path, errno);
    size = readlinkat(fd, "", target, sizeof(target));
    if (size < 0)
        return failed(err, "readlink", place.path, errno == ENOENT ? EINVAL : errno);
    meta_put(&text, "{\"target\":");
    meta_put_string(&text, target, (size_t)size);
    meta_put(&text, "}");
    return answer_put(answer, &text, err);
}

/* {path, mode}: never a set-id file. */
static int chmod_call(const struct kernel_manifest *manifest, const struct kernel_call *call,
                      struct error *err)
{
    struct place place;
    _cleanup_close_ int fd = -1;

    if (place_find(manifest, call, "path", "chmod", true, &place, err) < 0)
        return -1;
    fd = file_open(&place, O_RDONLY, 0, "chmod", err);
    if (fd < 0)
        return -1;
    return fchmod(fd, member_mode(call, 0666)) < 0 ? failed(err, "chmod", place.path, errno) : 0;
}

/* {path, mtime_ms} */
static int utimes_call(const struct kernel_manifest *manifest, const struct kernel_call *call,
                       struct error *err)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    struct meta_value value;
    struct place place;
    _cleanup_close_ int fd = -1;
    uint64_t ms;

    if (place_find(manifest, call, "path", "utime", true, &place, err) < 0)
        return -1;
    if (meta_member(call->meta, "mtime_ms", &value) < 0 || meta_count(&value, INT64_MAX, &ms) < 0)
        return failed(err, "utime", place.path, EINVAL);
    fd = file_open(&place, O_RDONLY, 0, "utime", err);
    if (fd < 0)
        return -1;
    times[1] = (struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    return futimens(fd, times) < 0 ? failed(err, "utime", place.path, errno) : 0;
}

int files_call(struct files **files, const struct kernel_manifest *manifest,
               const struct kernel_call *call, struct kernel_answer *answer, struct error *err)
{
    if (kernel_text_is(call->op, "fs.read_file"))
        return read_file(manifest, call, answer, err);
    if (kernel_text_is(call->op, "fs.write_file"))
        return write_file(manifest, call, answer, err);
    if (kernel_text_is(call->op, "fs.open"))
        return file_open_call(files, manifest, call, answer, err);
    if (kernel_text_is(call->op, "fs.read"))
        return file_read(*files, call, answer, err);
    if (kernel_text_is(call->op, "fs.write"))
        return file_write(*files, call, answer, err);
    if (kernel_text_is(call->op, "fs.close"))
        return file_close(*files, call, err);
    if (kernel_text_is(call->op, "fs.stat"))
        return stat_call(*files, manifest, call, answer, err);
    if (kernel_text_is(call->op, "fs.list"))
        return list_call(manifest, call, answer, err);
    if (kernel_text_is(call->op, "fs.mkdir"))
        return mkdir_call(manifest, call, err);
    if (kernel_text_is(call->op, "fs.remove"))
        return remove_call(manifest, call, err);
    if (kernel_text_is(call->op, "fs.readlink"))
        return readlink_call(manifest, call, answer, err);
    if (kernel_text_is(call->op, "fs.chmod"))
        return chmod_call(manifest, call, err);
    if (kernel_text_is(call->op, "fs.utimes"))
        return utimes_call(manifest, call, err);
    if (kernel_text_is(call->op, "fs.rename"))
        return rename_call(manifest, call, err);
    return error_set(err, "ENOSYS", 0, "the host knows no call '%.*s'", (int)call->op.size,
                     call->op.data);
}
