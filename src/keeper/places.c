/* Directories: see places.h. */
#include "keeper/places.h"

#include "base/fd.h"
#include "base/list.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT "cove data 1\n"
#define LOCK_WAIT_MS 1000
#define LOCK_LOOK_MS 10

static int too_long(const char *what, struct error *err)
{
    return error_set(err, "bad_path", 0, "the path of %s is too long; give a shorter one", what);
}

/* A directory of ours, made where it is missing; an fd, or -1. */
static int own_open(int parent, const char *path, const char *shown, mode_t mode, struct error *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (mkdirat(parent, path, mode) < 0 && errno != EEXIST)
        return error_set(err, "no_directory", errno, "cannot make the directory %s", shown);
    fd = openat(parent, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, "no_directory", errno, "cannot open the directory %s", shown);
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return error_set(err, "no_directory", 0,
                         "%s belongs to somebody else, or others may write to it: remove it, or "
                         "name another directory",
                         shown);
    return fd_take(&fd);
}

/* As `mkdir -p` for what lies above a path. */
static void make_above(const char *path)
{
    char part[PATH_MAX];

    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        (void)mkdir(part, 0700); /* what is missing all the same is said when it is used */
    }
}

static const char *environment(const char *name)
{
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): there is one thread

    return value != NULL && value[0] == '/' ? value : NULL;
}

/* VALUE/cove, or HOME/BELOW/cove. */
static int user_path(const char *variable, const char *below, const char *last, char *path,
                     struct error *err)
{
    const char *value = environment(variable), *home = environment("HOME");
    int length;

    if (value == NULL && home == NULL)
        return error_set(err, "no_directory", 0,
                         "neither %s nor HOME says where this user's files are; set one of them",
                         variable);
    length = value != NULL ? snprintf(path, PATH_MAX, "%s/%s", value, last)
                           : snprintf(path, PATH_MAX, "%s/%s/%s", home, below, last);
    return length < PATH_MAX ? 0 : too_long(variable, err);
}

/* ---- run-time files ---- */

static bool is_ours(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

static int run_path(const struct places *places, char *path, struct error *err)
{
    const char *runtime = environment("XDG_RUNTIME_DIR");
    int length;

    if (places->is_system)
        length = snprintf(path, PATH_MAX, "/run/cove");
    else if (runtime != NULL && is_ours(runtime))
        length = snprintf(path, PATH_MAX, "%s/cove", runtime);
    else
        length = snprintf(path, PATH_MAX, "/tmp/cove-%u", (unsigned)geteuid());
    return length < PATH_MAX ? 0 : too_long("XDG_RUNTIME_DIR", err);
}

static int run_directory(const struct places *places, struct error *err)
{
    char path[PATH_MAX];
    int fd;

    if (run_path(places, path, err) < 0)
        return -1;
    fd = own_open(AT_FDCWD, path, path, places->is_system ? 0755 : 0700, err);
    if (fd < 0)
        return -1;
    /* Of the system's, others may look for the socket in there. */
    if (places->is_system)
        (void)fchmod(fd, 0755);
    (void)close(fd);
    return 0;
}

int places_find_socket(struct places *places, const struct options *options, struct error *err)
{
    char directory[PATH_MAX];
    const char *slash;

    if (options->socket != NULL) {
        if (snprintf(places->socket_path, PATH_MAX, "%s", options->socket) >= PATH_MAX)
            return too_long("--socket", err);
    } else {
        if (run_path(places, directory, err) < 0)
            return -1;
        if (snprintf(places->socket_path, PATH_MAX, "%s/cove.sock", directory) >= PATH_MAX)
            return too_long("the socket", err);
    }
    slash = strrchr(places->socket_path, '/');
    if (snprintf(places->keeper_path, PATH_MAX, "%.*skeeper.sock",
                 slash != NULL ? (int)(slash + 1 - places->socket_path) : 0,
                 places->socket_path) >= PATH_MAX)
        return too_long("the socket", err);
    return 0;
}

int places_find(struct places *places, const struct options *options, struct error *err)
{
    struct error ignored;

    *places = (struct places){.data = -1, .engine = -1, .disks = -1};
    places->is_system = geteuid() == 0 && !options->is_private;

    if (options->config != NULL)
        return snprintf(places->config_path, PATH_MAX, "%s", options->config) < PATH_MAX
                   ? 0
                   : too_long("--config", err);
    if (places->is_system)
        (void)snprintf(places->config_path, PATH_MAX, "/etc/cove/cove.conf");
    else if (user_path("XDG_CONFIG_HOME", ".config", "cove/cove.conf", places->config_path,
                       &ignored) < 0)
        places->config_path[0] = '\0';
    if (access(places->config_path, F_OK) < 0)
        places->config_path[0] = '\0';
    return 0;
}

/* ---- data ---- */

static bool is_empty(int directory)
{
    DIR *list = list_open(directory, ".");
    const struct dirent *entry;
    bool empty = list != NULL;

    if (list == NULL)
        return false;
    while (empty &&
           (entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe): a list of ours
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                strcmp(entry->d_name, "lost+found") == 0;
    (void)closedir(list);
    return empty;
}

static int format_check(const struct places *places, struct error *err)
{
    _cleanup_close_ int fd = -1;
    char text[sizeof(FORMAT) + 16];
    ssize_t length = fd_read_file(places->data, "FORMAT", text, sizeof(text));

    if (length >= 0 && strcmp(text, FORMAT) == 0)
        return 0;
    if (length >= 0 || errno != ENOENT)
        return error_set(err, "bad_data", 0,
                         "%s holds the data of another version of cove: use that version, or "
                         "another directory with --data",
                         places->data_path);
    if (!is_empty(places->data))
        return error_set(err, "bad_data", 0,
                         "%s is neither empty nor cove's: give another directory with --data",
                         places->data_path);
    fd = openat(places->data, "FORMAT", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || fd_write_full(fd, FORMAT, sizeof(FORMAT) - 1) < 0 || fsync(fd) < 0)
        return error_set(err, "bad_data", errno, "cannot write %s/FORMAT", places->data_path);
    return 0;
}

/* A child of a keeper that was killed a moment ago may not have come to closing what it does not need. */
static int lock(int directory)
{
    int locked;

    for (int waited = 0;; waited += LOCK_LOOK_MS) {
        locked = flock(directory, LOCK_EX | LOCK_NB);
        if (locked == 0 || errno != EWOULDBLOCK || waited >= LOCK_WAIT_MS)
            return locked;
        (void)poll(NULL, 0, LOCK_LOOK_MS);
    }
}

int places_find_data(struct places *places, const struct options *options, struct error *err)
{
    if (options->data != NULL)
        return snprintf(places->data_path, PATH_MAX, "%s", options->data) < PATH_MAX
                   ? 0
                   : too_long("--data", err);
    if (!places->is_system)
        return user_path("XDG_DATA_HOME", ".local/share", "cove", places->data_path, err);
    (void)snprintf(places->data_path, PATH_MAX, "/var/lib/cove");
    return 0;
}

static int data_open(struct places *places, const struct options *options, struct error *err)
{
    if (places_find_data(places, options, err) < 0)
        return -1;
    if (options->data == NULL && !places->is_system)
        make_above(places->data_path);
    places->data = own_open(AT_FDCWD, places->data_path, places->data_path, 0700, err);
    if (places->data < 0)
        return -1;
    if (lock(places->data) < 0)
        return error_set(err, "in_use", errno == EWOULDBLOCK ? 0 : errno,
                         "another engine uses %s: end it, or give another directory with --data",
                         places->data_path);
    return format_check(places, err);
}

/* What the engine owns need not be ours; that nobody else gets at it is for DIR itself to see to. */
static int engine_open(struct places *places, struct error *err)
{
    if (mkdirat(places->data, "engine", 0700) < 0 && errno != EEXIST)
        return error_set(err, "bad_data", errno, "cannot make %s/engine", places->data_path);
    places->engine = openat(places->data, "engine",
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (places->engine < 0)
        return error_set(err, "bad_data", errno, "cannot open %s/engine", places->data_path);
    return 0;
}

int places_open(struct places *places, const struct options *options, struct error *err)
{
    if (data_open(places, options, err) < 0 || engine_open(places, err) < 0 ||
        (options->socket == NULL && run_directory(places, err) < 0) ||
        places_find_socket(places, options, err) < 0)
        return -1;
    places->disks = own_open(places->data, "disks", "the directory of disks", 0700, err);
    return places->disks >= 0 ? 0 : -1;
}

void places_close(struct places *places)
{
    fd_close(&places->disks);
    fd_close(&places->engine);
    fd_close(&places->data);
}
