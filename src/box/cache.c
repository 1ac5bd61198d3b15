/* The caller's cache: see cache.h. */
#include "box/cache.h"

#include "base/fd.h"
#include "base/list.h"
#include "base/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int cache_make(int dir, const char *name, struct error *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return error_set(err, "cache_failed", errno, "cannot make the directory %s in the cache",
                         name);
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, "cache_failed", errno, "cannot open the directory %s of the cache",
                         name);
    if (st.st_uid != geteuid())
        return error_set(
            err, "cache_failed", 0,
            "the directory %s of the cache belongs to somebody else: remove it, or set "
            "XDG_CACHE_HOME to a directory of yours",
            name);
    if ((st.st_mode & 077) != 0 && fchmod(fd, 0700) < 0)
        return error_set(err, "cache_failed", errno, "cannot close the directory %s of the cache",
                         name);
    return fd_take(&fd);
}

int cache_open(const char *name, struct error *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    _cleanup_close_ int top = -1, ours = -1;
    char path[PATH_MAX];

    if (cache != NULL && cache[0] == '/')
        (void)snprintf(path, sizeof(path), "%s", cache);
    else if (home != NULL && home[0] == '/')
        (void)snprintf(path, sizeof(path), "%s/.cache", home);
    else
        return error_set(err, "cache_failed", 0,
                         "there is no place for a cache: set XDG_CACHE_HOME or HOME");
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set(err, "cache_failed", errno, "cannot make the directory %s", path);
    top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return error_set(err, "cache_failed", errno, "cannot open the directory %s", path);
    ours = cache_make(top, "cove", err);
    return ours < 0 ? -1 : cache_make(ours, name, err);
}

/* ---- directories that somebody works on ---- */

int cache_make_own(int dir, const char *prefix, char *name, size_t size, struct error *err)
{
    _cleanup_close_ int fd = -1;
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return error_set(err, "no_random", errno, "cannot get random bytes for the cache");
    (void)snprintf(name, size, "%s%016llx", prefix, (unsigned long long)random);
    fd = cache_make(dir, name, err);
    if (fd < 0)
        return -1;
    (void)flock(fd, LOCK_EX | LOCK_NB); /* nobody else knows the name yet */
    return fd_take(&fd);
}

/* Who makes one has this long to lock it. */
#define LEFT_AFTER_S 60

void cache_sweep(int dir, const char *prefix)
{
    DIR *list = list_open(dir, ".");
    const struct dirent *entry;
    struct stat st;

    if (list == NULL)
        return;
    while ((entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): a list of our own
        _cleanup_close_ int left = -1;

        if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        left = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (left >= 0 && fstat(left, &st) == 0 && time(NULL) - st.st_ctim.tv_sec > LEFT_AFTER_S &&
            flock(left, LOCK_EX | LOCK_NB) == 0)
            (void)remove_tree(dir, entry->d_name);
    }
    (void)closedir(list);
}
