/* Idmapped mounts: see idmap.h. */
#include "box/idmap.h"

#include "base/fd.h"
#include "base/program.h"
#include "box/sys.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define STACK_SIZE 65536

/* Ends with its maker, also with one that was gone before the request. */
static int hold(void *maker)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == *(const pid_t *)maker)
        (void)pause();
    return 0;
}

static int map_write(int pid, const char *uid_map, const char *gid_map, struct error *err)
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

/* Whoever maps its own group has to give up changing groups first. */
static int deny_groups(int pid, struct error *err)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/setgroups", pid);
    if (fd_write_file(AT_FDCWD, path, "deny") < 0)
        return error_set(err, "ids_failed", errno, "cannot set the box's groups");
    return 0;
}

/* A map of all that a user has: IDS_PARTS_MAX lines and one more, of three words. */
#define HELPER_WORDS 64

/* Whoever starts it may have blocked all signals; it shall not. */
static pid_t helper_start(const char *name, int pid, const char *map)
{
    char path[64], number[16], words[1024];
    char *argv[HELPER_WORDS] = {path, number}, *env[] = {NULL}, *rest = words;
    posix_spawnattr_t attributes;
    pid_t helper = -1;
    sigset_t none;

    if (!program_find(name, path, sizeof(path)) || posix_spawnattr_init(&attributes) != 0)
        return -1;
    (void)snprintf(number, sizeof(number), "%d", pid);
    (void)snprintf(words, sizeof(words), "%s", map);
    for (size_t argc = 2; argc < HELPER_WORDS - 1; argc++)
        if ((argv[argc] = strsep(&rest, " \n")) == NULL)
            break;
    (void)sigemptyset(&none);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (posix_spawn(&helper, path, NULL, &attributes, argv, env) != 0)
        helper = -1;
    (void)posix_spawnattr_destroy(&attributes);
    return helper;
}

static int helper_end(const char *name, pid_t helper, const char *map, struct error *err)
{
    int status = -1;

    while (helper > 0 && waitpid(helper, &status, 0) < 0)
        if (errno != EINTR)
            break;
    if (helper > 0 && status == 0)
        return 0;
    return error_set(err, "ids_failed", 0,
                     "%s does not grant the ids that /etc/subuid and /etc/subgid name (%.100s): "
                     "mend these files, or remove this user's entries to do with one id",
                     name, map);
}

/* Both at once: each is a program that takes longer to load than all else that a box needs. */
static int map_by_helpers(int pid, const char *uid_map, const char *gid_map, struct error *err)
{
    pid_t users = helper_start("newuidmap", pid, uid_map);
    pid_t groups = helper_start("newgidmap", pid, gid_map);
    int failed = helper_end("newuidmap", users, uid_map, err);

    return helper_end("newgidmap", groups, gid_map, err) < 0 ? -1 : failed;
}

int idmap_set(int pid, enum idmap_way way, const char *uid_map, const char *gid_map,
              struct error *err)
{
    if (way == IDMAP_HELPERS)
        return map_by_helpers(pid, uid_map, gid_map, err);
    if (way == IDMAP_OWN && deny_groups(pid, err) < 0)
        return -1;
    return map_write(pid, uid_map, gid_map, err);
}

int idmap_open(const struct idmap *map, struct error *err)
{
    char uids[64], gids[64], path[64];
    pid_t maker = getpid();
    int pid, fd = -1;
    char *stack;

    /* Shares our memory, so that nothing is copied, and does nothing but wait to be killed. It has
     * our signal handlers, too: the frame of one takes more than a page where vectors are wide. Other
     * threads may do the same meanwhile. */
    stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED)
        return error_set(err, "no_memory", errno, "there is no memory for a mount's ids");
    pid = clone(hold, stack + STACK_SIZE, CLONE_NEWUSER | CLONE_VM | SIGCHLD, &maker);
    if (pid < 0) {
        (void)error_set(err, "namespace_failed", errno, "cannot make a user namespace for a mount");
        (void)munmap(stack, STACK_SIZE);
        return -1;
    }
    (void)snprintf(uids, sizeof(uids), "%u %u %u", map->on_disk_uid, map->host_uid, map->count);
    (void)snprintf(gids, sizeof(gids), "%u %u %u", map->on_disk_gid, map->host_gid, map->count);
    if (map_write(pid, uids, gids, err) == 0) {
        (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            (void)error_set(err, "namespace_failed", errno, "cannot open a mount's user namespace");
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)munmap(stack, STACK_SIZE);
    return fd;
}

int idmap_apply(int mount, int userns)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns};

    return sys_mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr);
}
