/* `cove cp` into a sandbox: a file as it is, a directory as a tar that is made while it is sent.
 *
 * Only what is named is opened, and links in a tree are sent as links. What is no file, directory or link
 * is left out, and said. */
#include "cmd/cp.h"

#include "base/fd.h"
#include "box/tool/tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 512 /* each level holds an fd */
#define MODE_BITS 0777U

static int unreadable(struct error *err, const char *path)
{
    return error_set(err, "read", errno, "%.300s: it cannot be read", path);
}

/* 0, 1: the server has answered, so no more is wanted, -1. */
static int send(struct cp *cp, const void *data, size_t size, struct error *err)
{
    int status = client_send(cp->client, data, size, err);

    cp_moved(cp, size);
    return status;
}

/* ---- a file ---- */

static int send_file(struct cp *cp, int fd, const char *path, struct error *err)
{
    for (;;) {
        ssize_t n = read(fd, cp->block, sizeof(cp->block));
        int status;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return unreadable(err, path);
        if (n == 0)
            return 0;
        status = send(cp, cp->block, (size_t)n, err);
        if (status != 0)
            return status < 0 ? -1 : 0;
    }
}

static int put_file(struct cp *cp, int fd, const struct stat *st, const char *path,
                    const struct cp_place *target, const char *where, struct error *err)
{
    static char url[CP_URL_MAX];
    struct client_request request = {.method = "PUT", .path = url};
    bool is_sized = st != NULL && S_ISREG(st->st_mode);
    char more[40] = "";

    if (is_sized)
        (void)snprintf(more, sizeof(more), "&mode=%04o", (unsigned)st->st_mode & MODE_BITS);
    if (cp_url(cp, target, "/files", where, more, url, err) < 0 ||
        client_begin(cp->client, &request, is_sized ? (uint64_t)st->st_size : UINT64_MAX, err) < 0)
        return -1;
    cp->total = is_sized ? (uint64_t)st->st_size : UINT64_MAX;
    if (send_file(cp, fd, path, err) == 0)
        return client_sent(cp->client, NULL, err);
    client_abandon(cp->client);
    return -1;
}

/* ---- a tree ---- */

struct tree {
    struct cp *cp;
    bool is_answered;
    char path[TAR_PATH_MAX], target[CP_PATH_MAX];
    char header[TAR_HEADER_MAX];
};

static int send_some(struct tree *tree, const void *data, size_t size, struct error *err)
{
    int status = tree->is_answered ? 1 : send(tree->cp, data, size, err);

    tree->is_answered = status > 0;
    return status < 0 ? -1 : 0;
}

static int send_header(struct tree *tree, const struct stat *st, enum tar_type type,
                       struct error *err)
{
    struct tar_entry entry = {
        .type = type,
        .mode = st->st_mode & MODE_BITS,
        .size = type == TAR_FILE ? (uint64_t)st->st_size : 0,
        .modified_s = st->st_mtim.tv_sec,
        .modified_ns = (uint32_t)st->st_mtim.tv_nsec,
        .path = tree->path,
        .target = type == TAR_SYMLINK ? tree->target : NULL,
    };
    int size = tar_header(&entry, tree->header, err);

    return size < 0 ? -1 : send_some(tree, tree->header, (size_t)size, err);
}

/* Exactly as long as its header says. */
static int send_data(struct tree *tree, int fd, uint64_t size, const char *path, struct error *err)
{
    struct cp *cp = tree->cp;
    uint64_t left = size;

    while (left > 0 && !tree->is_answered) {
        ssize_t n = read(fd, cp->block,
                         left < sizeof(cp->block) ? (size_t)left : sizeof(cp->block));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return unreadable(err, path);
        if (n == 0)
            return error_set(err, "read", 0, "%.300s: it became shorter while it was copied", path);
        if (send_some(tree, cp->block, (size_t)n, err) < 0)
            return -1;
        left -= (uint64_t)n;
    }
    memset(cp->block, 0, TAR_BLOCK);
    return size % TAR_BLOCK == 0
               ? 0
               : send_some(tree, cp->block, TAR_BLOCK - (size_t)(size % TAR_BLOCK), err);
}

static int tree_add(struct tree *tree, int dir, const char *name, unsigned depth,
                    struct error *err);

/* In the order of the directory. */
static int add_below(struct tree *tree, int fd, unsigned depth, struct error *err)
{
    size_t used = strlen(tree->path);
    DIR *list = fdopendir(fd);
    const struct dirent *entry;
    int status = 0;

    if (list == NULL) {
        (void)close(fd);
        return unreadable(err, tree->path);
    }
    while (status == 0 && !tree->is_answered && (entry = readdir(list)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(tree->path + used, sizeof(tree->path) - used, "%s", entry->d_name) >=
            sizeof(tree->path) - used)
            status = error_set(err, "read", ENAMETOOLONG, "%.300s", tree->path);
        else
            status = tree_add(tree, dirfd(list), entry->d_name, depth + 1, err);
        tree->path[used] = '\0';
    }
    (void)closedir(list);
    return status;
}

static int add_directory(struct tree *tree, int fd, const struct stat *st, unsigned depth,
                         struct error *err)
{
    size_t used = strlen(tree->path);
    int own = -1;

    if (depth > DEPTH_MAX)
        return error_set(err, "read", 0, "%.300s: it lies too deep to be copied", tree->path);
    if (used + 2 > sizeof(tree->path))
        return error_set(err, "read", ENAMETOOLONG, "%.300s", tree->path);
    if (used > 0) {
        memcpy(tree->path + used, "/", 2);
        if (send_header(tree, st, TAR_DIRECTORY, err) < 0)
            return -1;
    }
    own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return unreadable(err, tree->path);
    return add_below(tree, own, depth, err);
}

/* `dir` and `name` as openat(2) has them; tree->path is its name in the archive. */
static int tree_add(struct tree *tree, int dir, const char *name, unsigned depth, struct error *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    ssize_t length;

    if (fstatat(dir, name, &st, depth == 0 ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
        return depth > 0 && errno == ENOENT ? 0 : unreadable(err, tree->path);
    if (S_ISLNK(st.st_mode)) {
        length = readlinkat(dir, name, tree->target, sizeof(tree->target) - 1);
        if (length < 0)
            return unreadable(err, tree->path);
        tree->target[length] = '\0';
        return send_header(tree, &st, TAR_SYMLINK, err);
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        cp_warn(tree->cp, tree->path, "it is no file, directory or link");
        return 0;
    }
    fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | (depth == 0 ? 0 : O_NOFOLLOW));
    if (fd < 0 || fstat(fd, &st) != 0)
        return unreadable(err, tree->path);
    if (S_ISDIR(st.st_mode))
        return add_directory(tree, fd, &st, depth, err);
    if (!S_ISREG(st.st_mode))
        return 0;
    if (send_header(tree, &st, TAR_FILE, err) < 0)
        return -1;
    return send_data(tree, fd, (uint64_t)st.st_size, tree->path, err);
}

static int send_tree(struct tree *tree, const char *source, const struct cp_place *target,
                     const char *where, struct error *err)
{
    static char url[CP_URL_MAX];
    static const char end[2 * TAR_BLOCK];
    struct client_request request = {.method = "PUT", .path = url};
    struct client *client = tree->cp->client;

    if (cp_url(tree->cp, target, "/tar", where, "", url, err) < 0 ||
        client_begin(client, &request, UINT64_MAX, err) < 0)
        return -1;
    if (tree_add(tree, AT_FDCWD, source, 0, err) == 0 &&
        send_some(tree, end, sizeof(end), err) == 0)
        return client_sent(client, NULL, err);
    client_abandon(client);
    return -1;
}

static int put_tree(struct cp *cp, const char *source, const struct cp_place *target,
                    const char *where, const char *name, struct error *err)
{
    struct tree *tree = calloc(1, sizeof(*tree));
    int status;

    if (tree == NULL)
        return option_no_memory(err);
    tree->cp = cp;
    (void)snprintf(tree->path, sizeof(tree->path), "%s", name);
    status = send_tree(tree, source, target, where, err);
    free(tree);
    return status;
}

/* ---- which ---- */

/* "a/b" as "a" and "b". */
static int split(const char *path, char above[CP_PATH_MAX], char name[256], struct error *err)
{
    size_t length = strlen(path);

    if (*cp_base(path, name) == '\0')
        return error_set(err, "bad_value", 0, "%.300s: name what is to be made there", path);
    while (length > 0 && path[length - 1] == '/')
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    (void)snprintf(above, CP_PATH_MAX, "%.*s", length > 0 ? (int)length : 1,
                   length > 0 ? path : ".");
    return 0;
}

static int tree_in(struct cp *cp, const char *source, const struct cp_place *target, bool into,
                   struct error *err)
{
    char above[CP_PATH_MAX], name[256];
    bool is_directory;
    int there;

    if (into)
        return put_tree(cp, source, target, target->path, cp_base(source, name), err);
    if (split(target->path, above, name, err) < 0)
        return -1;
    there = cp_look(cp, target, target->path, &is_directory, err);
    if (there != 0)
        return there < 0 ? -1
                         : error_set(err, "not_a_directory", 0,
                                     "%.300s: it is there, and no directory", target->path);
    return put_tree(cp, source, target, above, name, err);
}

int cp_in(struct cp *cp, const char *source, const struct cp_place *target, bool into,
          struct error *err)
{
    char path[CP_PATH_MAX + 300], base[256];
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (strcmp(source, "-") == 0) {
        if (into)
            return error_set(
                err, "is_a_directory", 0,
                "%.300s: it is a directory; name the file that standard input is to be",
                target->path);
        return put_file(cp, STDIN_FILENO, NULL, "standard input", target, target->path, err);
    }
    fd = open(source, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return unreadable(err, source);
    if (S_ISDIR(st.st_mode))
        return tree_in(cp, source, target, into, err);
    (void)snprintf(path, sizeof(path), "%s%s%s", target->path, into ? "/" : "",
                   into ? cp_base(source, base) : "");
    return put_file(cp, fd, &st, source, target, path, err);
}
