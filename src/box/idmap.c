/* Idmapped mounts: see idmap.h. */
#include "box/idmap.h"

#include "base/fd.h"
#include "box/sys.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* Ends with its maker, also with one that was gone before the request. */
static int hold(void *maker)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == *(const pid_t *)maker)
        (void)pause();
    return 0;
}

int idmap_write(int pid, const char *uid_map, const char *gid_map, struct error *err)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
    if (fd_write_file(AT_FDCWD, path, uid_map) < 0)
        return error_set(err, "ids_failed", errno, "cannot set the box's user ids (%s)", uid_map);
    (void)snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
    if (fd_write_file(AT_FDCWD, path, gid_map) < 0)
        return error_set(err, "ids_failed", errno, "cannot set the box's group ids (%s)", gid_map);
    return 0;
}

int idmap_open(const struct idmap *map, struct error *err)
{
    /* Shares our memory, so that nothing is copied, and does nothing but wait to be killed. It has
     * our signal handlers, too: the frame of one takes more than a page where vectors are wide. */
    static char stack[65536] __attribute__((aligned(16)));
    pid_t maker = getpid();
    int pid = clone(hold, stack + sizeof(stack), CLONE_NEWUSER | CLONE_VM | SIGCHLD, &maker);
    char uids[64], gids[64], path[64];
    int fd = -1;

    if (pid < 0)
        return error_set(err, "namespace_failed", errno,
                         "cannot make a user namespace for a mount");
    (void)snprintf(uids, sizeof(uids), "%u %u %u", map->on_disk_uid, map->host_uid, map->count);
    (void)snprintf(gids, sizeof(gids), "%u %u %u", map->on_disk_gid, map->host_gid, map->count);
    if (idmap_write(pid, uids, gids, err) == 0) {
        (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            (void)error_set(err, "namespace_failed", errno, "cannot open a mount's user namespace");
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return fd;
}

int idmap_apply(int mount, int userns)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns};

    return sys_mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr);
}
