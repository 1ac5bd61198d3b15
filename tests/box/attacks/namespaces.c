/* Entries 41 to 45: mounts, namespaces and the kernel's large interfaces. */
#include "attack.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef AF_ALG
#define AF_ALG 38
#endif
#define SYS_OPEN_TREE 428
#define SYS_MOVE_MOUNT 429
#define SYS_FSOPEN 430
#define SYS_FSCONFIG 431
#define SYS_FSMOUNT 432
#define SYS_FSPICK 433
#define SYS_CLONE3 435
#define SYS_MOUNT_SETATTR 442
#define SYS_STATMOUNT 457
#define SYS_LISTMOUNT 458
#define SYS_OPEN_TREE_ATTR 467

static const struct {
    const char *name;
    unsigned long flag;
    bool in_clone; /* clone() keeps the signal in the lowest bits */
} namespaces[] = {
    {"time", 0x00000080, false}, {"mnt", 0x00020000, true}, {"cgroup", 0x02000000, true},
    {"uts", 0x04000000, true},   {"ipc", 0x08000000, true}, {"user", 0x10000000, true},
    {"pid", 0x20000000, true},   {"net", 0x40000000, true},
};
#define NAMESPACES (sizeof(namespaces) / sizeof(namespaces[0]))

static void mount_cgroups(void)
{
    REFUSED("mount cgroup", mount("none", "/tmp", "cgroup", 0, "memory"), EPERM);
    REFUSED("mount cgroup2", mount("none", "/tmp", "cgroup2", 0, NULL), EPERM);
    REFUSED("remount cgroup rw", mount(NULL, "/sys/fs/cgroup", NULL, MS_REMOUNT | MS_BIND, NULL),
            EPERM);
}

static void mount_things(void)
{
    static const char *const types[] = {"tmpfs", "proc",       "sysfs",   "overlay",
                                        "ext4",  "devpts",     "debugfs", "securityfs",
                                        "fuse",  "binfmt_misc"};
    uint64_t attributes[8] = {0};
    char what[64];

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        (void)snprintf(what, sizeof(what), "mount %s", types[i]);
        REFUSED(what, mount("none", "/tmp", types[i], 0, NULL), EPERM);
    }
    REFUSED("bind /", mount("/", "/tmp", NULL, MS_BIND | MS_REC, NULL), EPERM);
    REFUSED("remount / rw", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
    REFUSED("move /tmp", mount("/tmp", "/home", NULL, MS_MOVE, NULL), EPERM);
    REFUSED("make shared", mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL), EPERM);
    REFUSED("umount /proc/keys", umount2("/proc/keys", 0), EPERM);
    REFUSED("umount /proc lazily", umount2("/proc", MNT_DETACH), EPERM);
    REFUSED("open_tree", syscall(SYS_OPEN_TREE, AT_FDCWD, "/", 1U), EPERM);
    REFUSED("open_tree without clone", syscall(SYS_OPEN_TREE, AT_FDCWD, "/", 0U), EPERM);
    REFUSED("open_tree_attr",
            syscall(SYS_OPEN_TREE_ATTR, AT_FDCWD, "/", 1U, attributes, sizeof(attributes[0]) * 4),
            EPERM);
    REFUSED("move_mount", syscall(SYS_MOVE_MOUNT, AT_FDCWD, "/tmp", AT_FDCWD, "/home", 0), EPERM);
    REFUSED("fsopen", syscall(SYS_FSOPEN, "tmpfs", 0), EPERM);
    REFUSED("fsconfig", syscall(SYS_FSCONFIG, 0, 6, NULL, NULL, 0), EPERM);
    REFUSED("fsmount", syscall(SYS_FSMOUNT, 0, 0, 0), EPERM);
    REFUSED("fspick", syscall(SYS_FSPICK, AT_FDCWD, "/", 0), EPERM);
    REFUSED("mount_setattr",
            syscall(SYS_MOUNT_SETATTR, AT_FDCWD, "/", 0, attributes, sizeof(attributes[0]) * 4),
            EPERM);
    REFUSED("pivot_root", syscall(SYS_pivot_root, "/", "/tmp"), EPERM);
    REFUSED("statmount", syscall(SYS_STATMOUNT, attributes, attributes, 8, 0), ENOSYS);
    REFUSED("listmount", syscall(SYS_LISTMOUNT, attributes, attributes, 8, 0), ENOSYS);
}

/* The old way out: chroot below, keep a directory above, climb. With CAP_SYS_CHROOT it works, and
 * must end at the box's own root. */
static int climb(void *argument)
{
    const struct stat *root = argument;
    int above = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat found;

    (void)mkdir("/tmp/jail", 0755);
    if (chroot("/tmp/jail") < 0)
        return 3;
    if (fchdir(above) < 0)
        return 4;
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            return 5;
    if (chroot(".") < 0 || stat("/", &found) < 0)
        return 6;
    if (found.st_dev != root->st_dev || found.st_ino != root->st_ino)
        return 1;
    return access("/attack/attack", X_OK) == 0 ? 0 : 7;
}

static void break_chroot(void)
{
    struct stat root;
    int status;

    if (!attack_is_root()) {
        REFUSED("chroot", chroot("/tmp"), EPERM);
        return;
    }
    (void)stat("/", &root);
    status = attack_child(climb, &root);
    attack_check("climbing out of a chroot", WIFEXITED(status) && WEXITSTATUS(status) == 0,
                 "status %#x", (unsigned)status);
}

static void new_namespaces(void)
{
    char what[64];

    for (size_t i = 0; i < NAMESPACES; i++) {
        (void)snprintf(what, sizeof(what), "unshare %s", namespaces[i].name);
        REFUSED(what, syscall(SYS_unshare, namespaces[i].flag), EPERM);
        (void)snprintf(what, sizeof(what), "unshare %s, with high bits", namespaces[i].name);
        REFUSED(what, syscall(SYS_unshare, namespaces[i].flag | 0x100000000UL), EPERM);
    }
    REFUSED("unshare user and net", syscall(SYS_unshare, 0x50000000UL), EPERM);
    REFUSED("unshare every flag", syscall(SYS_unshare, 0xffffffffUL), EPERM);
}

static void clone_namespaces(void)
{
    char what[64];

    for (size_t i = 0; i < NAMESPACES; i++) {
        uint64_t arguments[11] = {0};
        long child;

        if (namespaces[i].in_clone) {
            (void)snprintf(what, sizeof(what), "clone %s", namespaces[i].name);
            errno = 0;
            child = syscall(SYS_clone, namespaces[i].flag | SIGCHLD, 0UL, NULL, NULL, 0UL);
            if (child == 0)
                _exit(0);
            attack_refused(what, child, (const int[]){EPERM, 0});
        }
        (void)snprintf(what, sizeof(what), "clone3 %s", namespaces[i].name);
        arguments[0] = namespaces[i].flag;
        arguments[4] = SIGCHLD;
        errno = 0;
        child = syscall(SYS_CLONE3, arguments, sizeof(arguments), 0UL, 0UL, 0UL, 0UL);
        if (child == 0)
            _exit(0);
        attack_refused(what, child, (const int[]){ENOSYS, 0});
    }
}

/* Init opens clone3 for itself with a key of 128 bits. Guessing must not help. */
static void guess_clone3_key(void)
{
    static const uint64_t guesses[] = {0, 1, ~0ULL, 0x0123456789abcdefULL, 0x100000001ULL};
    int through = 0;

    for (size_t i = 0; i < sizeof(guesses) / sizeof(guesses[0]); i++) {
        for (size_t j = 0; j < sizeof(guesses) / sizeof(guesses[0]); j++) {
            uint64_t arguments[11] = {[4] = SIGCHLD};
            long child = syscall(SYS_CLONE3, arguments, sizeof(arguments), guesses[i], guesses[j],
                                 guesses[i], guesses[j]);

            if (child == 0)
                _exit(0);
            through += child > 0 || errno != ENOSYS;
        }
    }
    attack_check("guessing the key of clone3", through == 0, "%d guesses went through", through);
}

static void join_namespaces(void)
{
    static const char *const names[] = {"mnt",  "cgroup", "uts", "ipc",
                                        "user", "pid",    "net", "time"};
    char path[64];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/1/ns/%s", names[i]);
        REFUSED(path, open(path, O_RDONLY | O_CLOEXEC), EACCES, EPERM, ENOENT);
        (void)snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        REFUSED(path, syscall(SYS_setns, fd, 0), EPERM);
        if (fd >= 0)
            (void)close(fd);
    }
    REFUSED("setns by a pidfd of init", syscall(SYS_setns, (int)syscall(434, 1, 0), 0x20000),
            EPERM);
}

static void namespaces_all(void)
{
    new_namespaces();
    clone_namespaces();
    guess_clone3_key();
    join_namespaces();
}

static long write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    long n = fd < 0 ? -1 : write(fd, text, strlen(text));
    int error = errno;

    if (fd >= 0)
        (void)close(fd);
    errno = error;
    return n;
}

/* What people do with a user namespace of their own. */
static void nested_user(void)
{
    REFUSED("user and mount namespaces", syscall(SYS_unshare, 0x10020000UL), EPERM);
    REFUSED("overlay in a namespace", mount("none", "/tmp", "overlay", 0, "lowerdir=/usr:/bin"),
            EPERM);
    REFUSED("nf_tables", socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER), EAFNOSUPPORT);
    REFUSED("packet socket", socket(AF_PACKET, SOCK_RAW, 0x0300), EAFNOSUPPORT);
    REFUSED("packet socket by its old name", socket(AF_INET, SOCK_PACKET, 0x0300), EAFNOSUPPORT,
            EPERM);
    REFUSED("map of ids", write_text("/proc/self/uid_map", "0 0 1\n"), EACCES, EPERM, EROFS);
    REFUSED("setgroups", write_text("/proc/self/setgroups", "deny\n"), EACCES, EPERM, EROFS);
}

struct io_uring_parameters {
    uint32_t words[30];
};

/* Each program takes of a budget of the whole host, and without any left no filter can be loaded. One
 * that lets everything pass does nothing where the wall is missing. */
static void socket_programs(void)
{
    struct sock_filter pass = {.code = 0x06, .k = 0xffffffff};
    struct sock_fprog program = {.len = 1, .filter = &pass};
    int bpf = -1, local = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    REFUSED("SO_ATTACH_FILTER",
            setsockopt(local, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), EPERM);
    REFUSED("SO_ATTACH_FILTER, UDP",
            setsockopt(udp, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), EPERM);
    REFUSED("SO_ATTACH_BPF", setsockopt(udp, SOL_SOCKET, SO_ATTACH_BPF, &bpf, sizeof(bpf)), EPERM);
    REFUSED("SO_ATTACH_REUSEPORT_CBPF",
            setsockopt(udp, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof(program)),
            EPERM);
    REFUSED("SO_ATTACH_REUSEPORT_EBPF",
            setsockopt(udp, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &bpf, sizeof(bpf)), EPERM);
    (void)close(local);
    (void)close(udp);
}

static void large_interfaces(void)
{
    char attributes[144] = {0};
    struct io_uring_parameters parameters = {0};
    unsigned long context = 0;

    REFUSED("bpf: map", syscall(SYS_bpf, 0, attributes, sizeof(attributes)), EPERM);
    REFUSED("bpf: program", syscall(SYS_bpf, 5, attributes, sizeof(attributes)), EPERM);
    socket_programs();
    REFUSED("perf_event_open", syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0), EPERM);
    REFUSED("userfaultfd", syscall(SYS_userfaultfd, 0), EPERM);
    REFUSED("userfaultfd, user mode only", syscall(SYS_userfaultfd, 1), EPERM);
    REFUSED("/dev/userfaultfd", attack_open("/dev/userfaultfd", O_RDWR), ENOENT);
    REFUSED("io_uring_setup", syscall(425, 8, &parameters), ENOSYS);
    REFUSED("io_uring_enter", syscall(426, 0, 1, 0, 0, NULL, 0), ENOSYS);
    REFUSED("io_uring_register", syscall(427, 0, 0, NULL, 0), ENOSYS);
    REFUSED("io_setup", syscall(SYS_io_setup, 1, &context), ENOSYS);
    REFUSED("add_key",
            syscall(SYS_add_key, "user", "cove-attack", attack_word(0, "secret"), 6UL, -3), EPERM);
    REFUSED("request_key", syscall(SYS_request_key, "user", "cove-attack", NULL, -3), EPERM);
    REFUSED("keyctl: the session's keyring", syscall(SYS_keyctl, 0, -3, 0), EPERM);
    REFUSED("keyctl: the user's keyring", syscall(SYS_keyctl, 0, -4, 1), EPERM);
    REFUSED("keyctl: search", syscall(SYS_keyctl, 10, -4, "user", "cove-attack", 0), EPERM);
    REFUSED("keyctl: persistent keyring", syscall(SYS_keyctl, 22, -1, -3), EPERM);
    REFUSED("memfd_secret", syscall(447, 0), ENOSYS);
}

const struct attack namespaces_attacks[] = {
    {41, mount_cgroups}, {42, mount_things},     {42, break_chroot}, {43, namespaces_all},
    {44, nested_user},   {45, large_interfaces}, {0, NULL},
};
