/* Paths below what is granted: opened by the kernel's own rules for that, and judged by what they are and not by what
 * they are called. What is opened here never lies above its grant, nor in /proc, which shows the host's own
 * process. */
#include "base/fd.h"
#include "kernel/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the path, or as much of it as there is, is of /proc: what cannot be opened there does not say either which
 * processes there are. */
static bool leads_to_proc(int dir, const char *path)
{
    _cleanup_close_ int fd = fd_open_below(dir, path, O_PATH, 0, FD_BENEATH);
    char above[PATH_MAX], *slash;

    (void)snprintf(above, sizeof(above), "%s", path);
    while (fd < 0 && (slash = strrchr(above, '/')) != NULL) {
        *slash = 0;
        fd = fd_open_below(dir, above, O_PATH, 0, FD_BENEATH);
    }
    return fd >= 0 && path_is_proc(fd);
}

int path_open(int dir, const char *path, int flags, mode_t mode)
{
    int fd = fd_open_below(dir, path, (unsigned)flags, (flags & O_CREAT) != 0 ? mode : 0,
                           FD_BENEATH);
    int errnum = errno;

    if (fd < 0 ? leads_to_proc(dir, path) : path_is_proc(fd)) {
        fd_close(&fd);
        errnum = EXDEV;
    }
    errno = errnum;
    return fd;
}

bool path_is_readable(const struct kernel_manifest *manifest, int dir, const char *name, bool doubt)
{
    _cleanup_close_ int at = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    struct stat here, granted, above = {0};

    for (unsigned depth = 0; at >= 0 && fstat(at, &here) == 0; depth++) {
        int up;

        if (depth > 0 && here.st_dev == above.st_dev && here.st_ino == above.st_ino)
            return false; /* the root is above itself */
        for (size_t i = 0; i < manifest->reads_count; i++) {
            const struct grant *grant = &manifest->reads[i];

            if (grant->name != NULL && (depth > 0 || strcmp(grant->name, name) != 0))
                continue;
            if (fstat(grant->dir, &granted) < 0)
                return doubt;
            if (granted.st_dev == here.st_dev && granted.st_ino == here.st_ino)
                return true;
        }
        above = here;
        up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        fd_close(&at);
        at = up;
    }
    return doubt;
}
