/* The caller's cache: see cache.h. */
#include "box/cache.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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
