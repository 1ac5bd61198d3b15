/* Opening files for the outside: see files.h.
 *
 * That a path cannot leave the box is the box's root's doing; what has to be kept from happening is that
 * init, who sees more than a command (its own memory holds the box's key, its fds lead to its cgroups),
 * opens itself: no magic link is followed, and nothing of a /proc is given out. */
#include "box/init/files.h"

#include "base/fd.h"
#include "box/filter/filter.h"
#include "box/sys.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

int files_open(const struct proto_open *request, const uint32_t key[4])
{
    static int root = -1;
    _cleanup_close_ int fd = -1;
    struct open_how how = {.flags = request->flags | O_CLOEXEC,
                           .mode = request->mode & ~(uint32_t)(S_ISUID | S_ISGID),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    struct statfs fs;

    /* Neither may stand beside O_PATH, which waits for nothing. */
    if ((request->flags & O_PATH) == 0)
        how.flags |= O_NONBLOCK | O_NOCTTY;
    if (root < 0)
        root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -1;
    /* Where set-id files must not come to be, the filter has no openat2() but with the key: our mode has
     * no such bits. */
    fd = filter_openat2(root, (const char *)(request + 1), &how, key);
    if (fd < 0 || fstatfs(fd, &fs) < 0)
        return -1;
    if (fs.f_type == PROC_SUPER_MAGIC) {
        errno = EACCES;
        return -1;
    }
    return fd_take(&fd);
}
