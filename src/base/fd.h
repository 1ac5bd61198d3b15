/* File descriptors: who owns them, and whole reads and writes.
 *
 * A local that owns an fd is declared `_cleanup_close_ int fd = -1;` and handed over with
 * fd_take(). Every fd is O_CLOEXEC. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _cleanup_close_ _cleanup_(fd_closep)
#define _cleanup_free_ _cleanup_(freep)

void fd_closep(int *fd);
void freep(void *pointer_to_pointer);

/* Closes `*fd` if it is open and leaves -1; errno is kept. */
void fd_close(int *fd);

/* Gives the fd away: the variable becomes -1. */
int fd_take(int *fd);

/* Reads until end of file or until `size` bytes are there; how many, or -1. */
ssize_t fd_read_full(int fd, void *data, size_t size);

/* Writes all of it, or -1. */
int fd_write_full(int fd, const void *data, size_t size);

/* Reads a whole small file below `dir` (AT_FDCWD allowed) into `text`, which it terminates; the
 * length, or -1 (EFBIG if it does not fit). */
ssize_t fd_read_file(int dir, const char *path, char *text, size_t size);

/* Writes `text` to an existing file (a kernel setting, say) in one write; 0 or -1. */
int fd_write_file(int dir, const char *path, const char *text);

/* openat2(2), which is asked again up to FD_OPENAT2_TRIES times while it answers EAGAIN: below a root
 * (RESOLVE_BENEATH, RESOLVE_IN_ROOT) each ".." does so when anything on the host was renamed or mounted
 * meanwhile. `key`: the two registers behind its arguments, for the filter of a box; NULL: none. */
#define FD_OPENAT2_TRIES 64
struct open_how;
int fd_openat2(int dir, const char *path, const struct open_how *how, const unsigned long key[2]);

/* How a path that somebody else wrote is looked up below a directory. Links into /proc are followed by none. A tool in a
 * box walks by itself, part by part (box/tool/place.c): the filter of some boxes has no openat2(2). */
enum fd_way {
    FD_IN_ROOT,  /* as if the directory were the root: ".." and absolute links stay in it */
    FD_BENEATH,  /* links are followed, but what leads out of the directory is refused */
    FD_NO_LINKS, /* the same, and no link is followed */
};
int fd_open_below(int dir, const char *path, uint64_t flags, uint64_t mode, enum fd_way way);

/* Whether this process may open about so many more; by the lowest that it has not. */
bool fd_are_left(unsigned count);

/* Opens /dev/null on 0, 1 and 2 where they are closed, so that no later fd lands there. */
int fd_fill_stdio(void);
