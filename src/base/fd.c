/* File descriptors: see fd.h. */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void fd_close(int *fd)
{
    int saved = errno;

    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
    errno = saved;
}

void fd_closep(int *fd)
{
    fd_close(fd);
}

void freep(void *pointer_to_pointer)
{
    void **pointer = pointer_to_pointer;

    free(*pointer);
    *pointer = NULL;
}

int fd_take(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

ssize_t fd_read_full(int fd, void *data, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = read(fd, (char *)data + done, size - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int fd_write_full(int fd, const void *data, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = write(fd, (const char *)data + done, size - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

ssize_t fd_read_file(int dir, const char *path, char *text, size_t size)
{
    _cleanup_close_ int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n;

    if (fd < 0)
        return -1;
    n = fd_read_full(fd, text, size);
    if (n < 0)
        return -1;
    if ((size_t)n == size) {
        errno = EFBIG;
        return -1;
    }
    text[n] = '\0';
    return n;
}

int fd_write_file(int dir, const char *path, const char *text)
{
    _cleanup_close_ int fd = openat(dir, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    size_t size = strlen(text);
    ssize_t n;

    if (fd < 0)
        return -1;
    do
        n = write(fd, text, size);
    while (n < 0 && errno == EINTR);
    if (n >= 0 && (size_t)n != size)
        errno = EIO;
    return n >= 0 && (size_t)n == size ? 0 : -1;
}

int fd_fill_stdio(void)
{
    int fd;

    /* open() gives the lowest free number, so the loop ends with the first fd above 2. */
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (fd < 0)
            return -1;
    } while (fd <= 2);
    (void)close(fd);
    return 0;
}

int fd_openat2(int dir, const char *path, const struct open_how *how, const unsigned long key[2])
{
    static const unsigned long none[2];
    int fd = -1;

    if (key == NULL)
        key = none;
    for (int i = 0; i < FD_OPENAT2_TRIES; i++) {
        fd = (int)syscall(SYS_openat2, dir, path, how, sizeof(*how), key[0], key[1]);
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    return fd;
}

int fd_open_below(int dir, const char *path, uint64_t flags, uint64_t mode, enum fd_way way)
{
    static const uint64_t ways[] = {
        [FD_IN_ROOT] = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
        [FD_BENEATH] = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
        [FD_NO_LINKS] = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS,
    };
    struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode, .resolve = ways[way]};

    return fd_openat2(dir, path, &how, NULL);
}

bool fd_are_left(unsigned count)
{
    _cleanup_close_ int lowest = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    struct rlimit limit;

    if (lowest < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return lowest >= 0 || errno == EBADF;
    return (rlim_t)lowest + count < limit.rlim_cur;
}
