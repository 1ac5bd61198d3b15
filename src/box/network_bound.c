/* See network_bound.h. */
#include "box/network_bound.h"

#include "box/spawn.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

/* A socket itself takes 2 KiB or more, which are counted. A group of IPv4 takes a quarter of a KiB, and as much for ten
 * sources: the kernel would allow 20 groups, and 128 KiB of options. A connection that nobody has accepted takes 2.8 KB: Node, nginx and Apache ask for
 * 511 or 512 of them. */
static const char *const bounds[][2] = {
    {"/proc/sys/net/ipv4/igmp_max_memberships", "4"},
    {"/proc/sys/net/ipv4/igmp_max_msf", "1"},
    {"/proc/sys/net/core/optmem_max", "20480"},
    {"/proc/sys/net/core/somaxconn", "512"},
};

void network_bound(void)
{
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        long fd = spawn_raw(SYS_openat, AT_FDCWD, (long)(uintptr_t)bounds[i][0],
                            O_WRONLY | O_CLOEXEC, 0);

        if (fd < 0)
            continue;
        (void)spawn_raw(SYS_write, fd, (long)(uintptr_t)bounds[i][1], (long)strlen(bounds[i][1]),
                        0);
        (void)spawn_raw(SYS_close, fd, 0, 0, 0);
    }
}
