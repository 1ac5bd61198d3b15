/* `cove cp` out of a sandbox: a file, or a tar that is unpacked here.
 *
 * What comes is whatever somebody in the sandbox wants it to be. So nothing is written but below the one
 * directory that was named: every name is walked from its fd with no link on the way, no link is ever
 * written through, devices and FIFOs are left out, set-id bits are dropped, a file takes its name when it is
 * whole, no right is given that the caller's umask withholds, and a directory that was there before keeps its
 * rights and times. */
#include "cmd/cp.h"

#include "base/fd.h"
#include "box/tool/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE_BITS 0777U

/* The rights that an entry asks for, as far as the caller's umask gives them. */
static mode_t rights_of(unsigned long mode)
{
    mode_t mask = umask(0);

    (void)umask(mask);
    return (mode_t)mode & MODE_BITS & ~mask;
}

/* ---- one file ---- */

static int copy_body(struct cp *cp, int fd, const char *name, struct error *err)
{
    ssize_t n;

    while ((n = client_read(cp->client, cp->block, sizeof(cp->block), err)) > 0) {
        if (fd_write_full(fd, cp->block, (size_t)n) < 0) {
            client_abandon(cp->client);
            return error_set(err, "write", errno, "%.300s: it cannot be written", name);
        }
        cp_moved(cp, (size_t)n);
    }
    return n < 0 ? -1 : 0;
}

/* Of "mode=0644; uid=0; gid=0; mtime=1.000000002". */
static void apply_entry(const char *text, int fd)
{
    const char *mode = text != NULL ? strstr(text, "mode=") : NULL;
    const char *time = text != NULL ? strstr(text, "mtime=") : NULL;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    char *end;

    if (mode != NULL)
        (void)fchmod(fd, rights_of(strtoul(mode + 5, NULL, 8)));
    if (time == NULL)
        return;
    times[1].tv_sec = strtoll(time + 6, &end, 10);
    times[1].tv_nsec = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    if (times[1].tv_nsec >= 0 && times[1].tv_nsec < 1000000000)
        (void)futimens(fd, times);
}

/* A new file beside where it goes; nobody else may read what is not whole. */
static int temporary(int dir, char name[32], struct error *err)
{
    uint64_t random;
    int fd;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return error_set(err, "random", errno, "getrandom: the kernel refused it");
    (void)snprintf(name, 32, ".cove-cp-%016" PRIx64, random);
    fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(err, "write", errno, "%s: it cannot be made", name);
    return fd;
}

static int directory_of(const char *path, const char **name, struct error *err)
{
    char text[CP_PATH_MAX];
    const char *slash = strrchr(path, '/');
    int dir;

    *name = slash != NULL ? slash + 1 : path;
    (void)snprintf(text, sizeof(text), "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
                   slash == NULL ? "." : path);
    dir = open(text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return error_set(err, "not_a_directory", errno, "%.300s: it cannot be opened", text);
    return dir;
}

static int file_to(struct cp *cp, int dir, const char *name, const char *shown, struct error *err)
{
    _cleanup_close_ int fd = -1;
    char temporary_name[32];
    struct stat st;

    /* What is no file, such as /dev/null, is written to and not replaced. */
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode) &&
        !S_ISLNK(st.st_mode)) {
        fd = openat(dir, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? error_set(err, "write", errno, "%.300s: it cannot be written", shown)
                      : copy_body(cp, fd, shown, err);
    }
    fd = temporary(dir, temporary_name, err);
    if (fd < 0)
        return -1;
    if (copy_body(cp, fd, shown, err) == 0) {
        apply_entry(client_header(cp->client, "cove-entry"), fd);
        if (renameat(dir, temporary_name, dir, name) == 0)
            return 0;
        (void)error_set(err, "write", errno, "%.300s: it cannot be written", shown);
    }
    (void)unlinkat(dir, temporary_name, 0);
    return -1;
}

static int get(struct cp *cp, const struct cp_place *source, const char *route, struct error *err)
{
    static char url[CP_URL_MAX];
    struct client_request request = {.path = url};

    if (cp_url(cp, source, route, source->path, "", url, err) < 0)
        return -1;
    if (client_start(cp->client, &request, err) < 0)
        return -1;
    cp->total = client_left(cp->client);
    return 0;
}

static int file_out(struct cp *cp, const struct cp_place *source, const char *target, bool into,
                    struct error *err)
{
    _cleanup_close_ int dir = -1;
    char path[CP_PATH_MAX + 300], base[256];
    const char *name;
    int status;

    if ((size_t)snprintf(path, sizeof(path), "%s%s%s", target, into ? "/" : "",
                         into ? cp_base(source->path, base) : "") >= CP_PATH_MAX)
        return error_set(err, "bad_value", 0, "%.60s: the path is too long", target);
    dir = directory_of(path, &name, err);
    if (dir < 0 || get(cp, source, "/files", err) < 0)
        return -1;
    status = file_to(cp, dir, name, path, err);
    if (status < 0)
        client_abandon(cp->client);
    return status;
}

/* ---- a tar ---- */

/* Directories that were made here get their rights when all is in them. */
struct later {
    struct later *next;
    mode_t mode;
    struct timespec modified;
    char path[];
};

struct unpack {
    struct cp *cp;
    int root;
    bool has_made_root;
    struct later *later;
    struct tar_reader reader;
};

static int tar_read(void *arg, void *data, size_t size, struct error *err)
{
    struct cp *cp = arg;
    size_t done = 0;

    while (done < size) {
        ssize_t n = client_read(cp->client, (char *)data + done, size - done, err);

        if (n < 0)
            return -1;
        if (n == 0)
            return done == 0 ? 1 : error_set(err, "bad_archive", 0, "the archive ends too early");
        done += (size_t)n;
    }
    return 0;
}

/* The name without the first part, which is what was asked for: NULL where it may not be used. "" is the
 * directory itself. */
static const char *name_below(char *path)
{
    char *slash = strchr(path, '/');
    char *name = slash != NULL ? slash + 1 : path + strlen(path);
    size_t length = strlen(name);

    if (*path == '/' || strncmp(path, "../", 3) == 0 || strcmp(path, "..") == 0)
        return NULL;
    while (length > 0 && name[length - 1] == '/')
        name[--length] = '\0';
    for (const char *at = name; *at != '\0'; at += strcspn(at, "/"), at += *at == '/') {
        size_t part = strcspn(at, "/");

        if (part == 0 || part > 255 || (part == 1 && at[0] == '.') ||
            (part == 2 && at[0] == '.' && at[1] == '.'))
            return NULL;
    }
    return length < CP_PATH_MAX ? name : NULL;
}

static int open_directory(int root, const char *path)
{
    return fd_open_below(root, *path != '\0' ? path : ".", O_RDONLY | O_DIRECTORY, 0, FD_NO_LINKS);
}

/* The directory that `path` is to be in, made where the archive did not say it. */
static int parent_of(const struct unpack *unpack, const char *path, const char **name,
                     struct error *err)
{
    const char *slash = strrchr(path, '/');
    char text[CP_PATH_MAX];
    int dir;

    *name = slash != NULL ? slash + 1 : path;
    (void)snprintf(text, sizeof(text), "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    dir = open_directory(unpack->root, text);
    if (dir < 0)
        return error_set(err, "write", errno,
                         "%.300s: the directory it is in cannot be used without following a link",
                         path);
    return dir;
}

static int cannot(struct error *err, const char *path)
{
    return error_set(err, "write", errno, "%.300s: it cannot be made", path);
}

/* Makes room for a thing that is no directory. */
static void make_room(int dir, const char *name)
{
    (void)unlinkat(dir, name, 0);
}

static int keep_later(struct unpack *unpack, const char *path, const struct tar_entry *entry,
                      struct error *err)
{
    struct later *later = malloc(sizeof(*later) + strlen(path) + 1);

    if (later == NULL)
        return option_no_memory(err);
    later->mode = rights_of(entry->mode);
    later->modified = (struct timespec){entry->modified_s, entry->modified_ns};
    memcpy(later->path, path, strlen(path) + 1);
    later->next = unpack->later;
    unpack->later = later;
    return 0;
}

static int make_directory(struct unpack *unpack, int dir, const char *name, const char *path,
                          const struct tar_entry *entry, struct error *err)
{
    struct stat st;

    if (*path == '\0')
        return unpack->has_made_root ? keep_later(unpack, path, entry, err) : 0;
    if (mkdirat(dir, name, 0700) == 0)
        return keep_later(unpack, path, entry, err);
    if (errno == EEXIST && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return 0; /* whose it is, has said what its rights are */
    errno = EEXIST;
    return cannot(err, path);
}

static int make_file(struct unpack *unpack, int dir, const char *name, const char *path,
                     const struct tar_entry *entry, struct error *err)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {entry->modified_s, entry->modified_ns}};
    struct tar_reader *reader = &unpack->reader;
    struct cp *cp = unpack->cp;
    _cleanup_close_ int fd = -1;
    char temporary_name[32];

    fd = temporary(dir, temporary_name, err);
    if (fd < 0)
        return -1;
    while (reader->left > 0) {
        size_t size = reader->left < sizeof(cp->block) ? (size_t)reader->left : sizeof(cp->block);

        if (tar_read(cp, cp->block, size, err) != 0)
            goto failed;
        reader->left -= size;
        if (fd_write_full(fd, cp->block, size) < 0) {
            (void)error_set(err, "write", errno, "%.300s: it cannot be written", path);
            goto failed;
        }
        cp_moved(cp, size);
    }
    (void)fchmod(fd, rights_of(entry->mode));
    (void)futimens(fd, times);
    if (renameat(dir, temporary_name, dir, name) == 0)
        return 0;
    (void)cannot(err, path);
failed:
    (void)unlinkat(dir, temporary_name, 0);
    return -1;
}

/* To a file of the archive that is below the root already. */
static int make_hard_link(struct unpack *unpack, int dir, const char *name, const char *path,
                          const struct tar_entry *entry, struct error *err)
{
    const char *target = name_below(entry->target), *target_name;
    _cleanup_close_ int target_dir = -1;
    struct stat st;

    if (target == NULL || *target == '\0')
        return error_set(err, "bad_archive", 0, "%.300s: its link leads out of the archive", path);
    target_dir = parent_of(unpack, target, &target_name, err);
    if (target_dir < 0)
        return -1;
    if (fstatat(target_dir, target_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return error_set(err, "bad_archive", 0, "%.300s: it is linked to what is no file", path);
    make_room(dir, name);
    return linkat(target_dir, target_name, dir, name, 0) == 0 ? 0 : cannot(err, path);
}

static int make_symlink(int dir, const char *name, const char *path, const struct tar_entry *entry,
                        struct error *err)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {entry->modified_s, entry->modified_ns}};

    make_room(dir, name);
    if (symlinkat(entry->target, dir, name) != 0)
        return cannot(err, path);
    (void)utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int unpack_one(struct unpack *unpack, struct error *err)
{
    const struct tar_entry *entry = &unpack->reader.entry;
    const char *path = name_below(entry->path), *name;
    _cleanup_close_ int dir = -1;

    if (path == NULL || (*path == '\0' && entry->type != TAR_DIRECTORY))
        return error_set(err, "bad_archive", 0,
                         "the sandbox sent a name that leads out of the directory; nothing more is "
                         "taken from it");
    dir = parent_of(unpack, path, &name, err);
    if (dir < 0)
        return -1;
    switch (entry->type) {
    case TAR_DIRECTORY:
        return make_directory(unpack, dir, name, path, entry, err);
    case TAR_FILE:
        return make_file(unpack, dir, name, path, entry, err);
    case TAR_HARD_LINK:
        return make_hard_link(unpack, dir, name, path, entry, err);
    case TAR_SYMLINK:
        return make_symlink(dir, name, path, entry, err);
    default:
        cp_warn(unpack->cp, path, "it is a device or a FIFO");
        return 0;
    }
}

/* Deepest first: that is the order of the list. */
static void apply_later(struct unpack *unpack)
{
    for (struct later *later = unpack->later, *next; later != NULL; later = next) {
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, later->modified};
        _cleanup_close_ int dir = open_directory(unpack->root, later->path);

        if (dir >= 0) {
            (void)futimens(dir, times);
            (void)fchmod(dir, later->mode);
        }
        next = later->next;
        free(later);
    }
}

static int unpack_all(struct cp *cp, int root, bool has_made_root, struct error *err)
{
    struct unpack *unpack = calloc(1, sizeof(*unpack));
    int status;

    if (unpack == NULL)
        return option_no_memory(err);
    unpack->cp = cp;
    unpack->root = root;
    unpack->has_made_root = has_made_root;
    tar_begin(&unpack->reader, tar_read, cp);
    while ((status = tar_next(&unpack->reader, err)) > 0) {
        status = unpack_one(unpack, err);
        if (status < 0)
            break;
    }
    /* What follows the archive's end is nothing; but a connection that was cut says so. */
    while (status == 0) {
        ssize_t n = client_read(cp->client, cp->block, sizeof(cp->block), err);

        if (n == 0)
            break;
        status = n < 0 ? -1 : 0;
    }
    apply_later(unpack);
    free(unpack);
    if (status < 0)
        client_abandon(cp->client);
    return status;
}

/* The directory that gets what is in the source: that which was named, or one below it. */
static int open_root(const struct cp_place *source, const char *target, bool into, bool *has_made,
                     struct error *err)
{
    _cleanup_close_ int above = -1;
    char base[256];
    int root;

    *has_made = false;
    if (!into) {
        *has_made = mkdir(target, 0777) == 0;
        if (!*has_made && errno != EEXIST)
            return cannot(err, target);
        root = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return root >= 0 ? root : cannot(err, target);
    }
    above = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above < 0)
        return cannot(err, target);
    if (*cp_base(source->path, base) == '\0')
        return fd_take(&above);
    *has_made = mkdirat(above, base, 0777) == 0;
    if (!*has_made && errno != EEXIST)
        return cannot(err, base);
    root = openat(above, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return root >= 0 ? root : cannot(err, base);
}

static int tree_out(struct cp *cp, const struct cp_place *source, const char *target, bool into,
                    struct error *err)
{
    _cleanup_close_ int root = -1;
    bool has_made;

    if (get(cp, source, "/tar", err) < 0)
        return -1;
    root = open_root(source, target, into, &has_made, err);
    if (root < 0) {
        client_abandon(cp->client);
        return -1;
    }
    return unpack_all(cp, root, has_made, err);
}

/* ---- which ---- */

int cp_out(struct cp *cp, const struct cp_place *source, const char *target, bool into,
           struct error *err)
{
    bool is_directory = false, is_stream = strcmp(target, "-") == 0;
    int there = cp_look(cp, source, source->path, &is_directory, err);

    if (there < 0)
        return -1;
    if (there == 0)
        return error_set(err, "file_not_found", 0, "%.300s: there is no such file in the sandbox",
                         source->path);
    if (!is_stream)
        return is_directory ? tree_out(cp, source, target, into, err)
                            : file_out(cp, source, target, into, err);
    if (get(cp, source, is_directory ? "/tar" : "/files", err) < 0)
        return -1;
    return copy_body(cp, STDOUT_FILENO, "standard output", err);
}
