/* System calls and constants that libc does not wrap, or wraps on one libc only.
 *
 * The same sources are built with glibc (cove) and with musl (init, zygote), so everything newer
 * than Linux 5.2 goes through here. Each returns as the system call does: -1 and errno. */
#pragma once

#include "base/fd.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Not in every libc's headers; the numbers are the kernel's. */
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef MNT_DETACH
#define MNT_DETACH 2
#endif
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

/* Propagation types of mount_setattr(2); <linux/mount.h> has them, glibc's too, musl's not. */
#ifndef MS_PRIVATE
#define MS_PRIVATE (1 << 18)
#endif

static inline int sys_open_tree(int dir, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dir, path, flags);
}

static inline int sys_move_mount(int from, const char *from_path, int to, const char *to_path,
                                 unsigned flags)
{
    return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

static inline int sys_mount_setattr(int dir, const char *path, unsigned flags,
                                    struct mount_attr *attr)
{
    return (int)syscall(SYS_mount_setattr, dir, path, flags, attr, sizeof(*attr));
}

static inline int sys_fsopen(const char *type)
{
    return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

static inline int sys_fsconfig(int fs, unsigned command, const char *key, const void *value,
                               int aux)
{
    return (int)syscall(SYS_fsconfig, fs, command, key, value, aux);
}

static inline int sys_fsmount(int fs, unsigned attributes)
{
    return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
    return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_umount(const char *path, int flags)
{
    return (int)syscall(SYS_umount2, path, flags);
}

static inline pid_t sys_clone3(struct clone_args *args)
{
    return (pid_t)syscall(SYS_clone3, args, sizeof(*args));
}

static inline int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL /* from Linux 6.9 */
#endif

static inline int sys_pidfd_open(int pid, unsigned flags)
{
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

static inline int sys_pidfd_getfd(int pidfd, int fd)
{
    return (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

static inline int sys_pidfd_send_signal(int pidfd, int signal_number)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0);
}

/* As the kernel has it; newer libcs have one of their own. */
struct sys_sched_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

/* Asks for turns of a processor of 0.1 ms, the shortest there are, which come the sooner for it (Linux 6.12; before,
 * nothing changes). Threads and children have them too where `hands_on` says so, and else the usual ones. They would then
 * lose a nice value below 0 and any other policy, so where there is one of these nothing is asked. */
static inline void sys_take_short_turns(bool hands_on)
{
    struct sys_sched_attr attr = {0};

    if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0 || attr.policy != 0 ||
        (attr.nice < 0 && !hands_on))
        return;
    attr.size = sizeof(attr);
    attr.flags = hands_on ? 0 : 1; /* SCHED_FLAG_RESET_ON_FORK */
    attr.runtime = 100000;
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

static inline int sys_execveat(int fd, char *const argv[], char *const env[])
{
    return (int)syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
}
