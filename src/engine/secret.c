/* Keys of the engine's own, each in a file of its directory that nobody else reads: what is signed with one
 * outlives this process. They are made when they are first wanted, and must never be said anywhere else. */
#include "base/fd.h"
#include "engine/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Whole, or not there: a half one would void all that was signed at the next start. */
static int key_make(int dir, const char *name, const char *of, uint8_t key[SHA256_BYTES],
                    struct error *err)
{
    _cleanup_close_ int fd = -1;
    char fresh[NAME_MAX];

    if (getrandom(key, SHA256_BYTES, 0) != SHA256_BYTES)
        abort();
    (void)snprintf(fresh, sizeof(fresh), "%s.new", name);
    (void)unlinkat(dir, fresh, 0);
    fd = openat(dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_full(fd, key, SHA256_BYTES) != 0 || fsync(fd) != 0 ||
        renameat(dir, fresh, dir, name) != 0 || fsync(dir) != 0)
        return error_set(err, "store_failed", errno,
                         "cannot write %s, the key of all %s, in the engine's directory; see to "
                         "its disk",
                         name, of);
    return 0;
}

int secret_open(int dir, const char *name, const char *of, uint8_t key[SHA256_BYTES],
                struct error *err)
{
    _cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    uint8_t bytes[SHA256_BYTES + 1];
    ssize_t got;

    if (fd < 0 && errno == ENOENT)
        return key_make(dir, name, of, key, err);
    got = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));
    if (got == SHA256_BYTES)
        memcpy(key, bytes, SHA256_BYTES);
    explicit_bzero(bytes, sizeof(bytes));
    if (got == SHA256_BYTES)
        return 0;
    return error_set(err, "store_failed", got < 0 ? errno : 0,
                     "%s in the engine's directory is not a key of %d bytes; restore it from a "
                     "backup, or remove it, which voids all %s",
                     name, SHA256_BYTES, of);
}
