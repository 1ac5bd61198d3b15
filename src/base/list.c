/* Listing a directory: see list.h. */
#include "base/list.h"

#include "base/fd.h"

#include <fcntl.h>

DIR *list_open(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;

    if (list == NULL)
        fd_close(&fd);
    return list;
}
