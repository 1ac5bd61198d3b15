/* Entries 29, 32 to 36, 38 and 74: files that must not be reached, changed or made, and mounts that stay. */
#include "attack.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- 29: what the host's view shows ---- */

/* The root itself, where it is the box's own, is no place of the host. */
static void change_root(void)
{
    static const char *const places[] = {"/usr", "/usr/bin", "/usr/lib", "/etc",    "/proc", "/sys",
                                         "/bin", "/etc/ssl", "/dev",     "/attack", "/"};
    bool is_own = strcmp(attack_word(0, ""), "own") == 0;
    size_t count = sizeof(places) / sizeof(places[0]) - is_own;
    char path[64];

    for (size_t i = 0; i < count; i++) {
        (void)snprintf(path, sizeof(path), "%s/cove-was-here", places[i]);
        REFUSED(path, attack_open(path, O_WRONLY | O_CREAT | O_EXCL), EROFS, EACCES, EPERM, ENOENT);
        REFUSED(path, mkdir(path, 0755), EROFS, EACCES, EPERM, ENOENT);
        REFUSED(path, symlink("/", path), EROFS, EACCES, EPERM, ENOENT);
    }
    REFUSED("removing /usr/bin/env", unlink("/usr/bin/env"), EROFS, EACCES, EPERM);
    REFUSED("renaming /usr", rename("/usr", "/tmp/usr"), EROFS, EACCES, EPERM, EXDEV, EBUSY);
    REFUSED("mode of /usr/bin/env", chmod("/usr/bin/env", 0777), EROFS, EPERM, EACCES);
    REFUSED("owner of /usr/bin/env", chown("/usr/bin/env", getuid(), getgid()), EROFS, EPERM,
            EACCES);
    REFUSED("truncating /etc/passwd", truncate("/etc/passwd", 0), EROFS, EACCES, EPERM);
    REFUSED("times of /usr/bin/env", utimensat(AT_FDCWD, "/usr/bin/env", NULL, 0), EROFS, EACCES,
            EPERM);
    REFUSED("an attribute of /usr/bin/env", setxattr("/usr/bin/env", "user.cove", "1", 1, 0), EROFS,
            EACCES, EPERM);
    REFUSED("remounting / writable", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
    REFUSED("remounting /usr writable", mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL),
            EPERM);
    REFUSED("a bind over /etc", mount("/tmp", "/etc", NULL, MS_BIND, NULL), EPERM);
    REFUSED("unmounting /proc/keys", umount2("/proc/keys", MNT_DETACH), EPERM);
    REFUSED("unmounting /proc/sys", umount2("/proc/sys", MNT_DETACH), EPERM);
    REFUSED("unmounting /sys", umount2("/sys", MNT_DETACH), EPERM);
    REFUSED("unmounting /usr", umount2("/usr", MNT_DETACH), EPERM);
}

/* ---- 74: what is mounted in a root that can be written stays where it is ---- */

static long exchange(const char *one, const char *other)
{
    return syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, 1U << 1); /* RENAME_EXCHANGE */
}

static void replace_mounts(void)
{
    static const char *const mounts[] = {"/usr", "/etc", "/dev", "/proc", "/sys", "/attack"};

    (void)mkdir("/beside", 0755);
    attack_check("a link that leads beside them", symlink("/beside", "/leads-beside") == 0, "%d",
                 errno);
    attack_check("writing beside them", access("/beside", W_OK) == 0, "%d", errno);
    for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
        REFUSED(mounts[i], rename(mounts[i], "/elsewhere"), EBUSY);
        REFUSED(mounts[i], rename("/beside", mounts[i]), EBUSY);
        REFUSED(mounts[i], exchange("/beside", mounts[i]), EBUSY);
        REFUSED(mounts[i], rename("/leads-beside", mounts[i]), EBUSY, EISDIR);
        REFUSED(mounts[i], rmdir(mounts[i]), EBUSY);
        REFUSED(mounts[i], unlink(mounts[i]), EISDIR, EBUSY);
    }
    /* The directories above a bind, which a test mounts there. */
    REFUSED("/data", rename("/data", "/elsewhere"), EBUSY);
    REFUSED("/data/deep", rename("/data/deep", "/data/elsewhere"), EBUSY);
    REFUSED("/data/deep/ref", rename("/data/deep/ref", "/data/deep/elsewhere"), EBUSY);
    REFUSED("/data/deep", exchange("/beside", "/data/deep"), EBUSY, EXDEV);
    REFUSED("/data/deep", rmdir("/data/deep"), EBUSY);
    REFUSED("/data", rmdir("/data"), EBUSY);
}

/* ---- 33: devices ---- */

static void list_devices(void)
{
    static const char *const known[] = {".",      "..",      "null", "zero", "full",
                                        "random", "urandom", "tty",  "fd",   "stdin",
                                        "stdout", "stderr",  "ptmx", "pts",  "shm"};
    DIR *directory = opendir("/dev");
    struct dirent *entry;
    int strangers = 0;
    char first[300] = "";

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        bool found = false;

        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            found = found || strcmp(entry->d_name, known[i]) == 0;
        if (!found) {
            strangers++;
            (void)snprintf(first, sizeof(first), "%s", entry->d_name);
        }
    }
    attack_check("what is in /dev", directory != NULL && strangers == 0, "%d too many: %s",
                 strangers, first);
    if (directory != NULL)
        (void)closedir(directory);
}

static void open_devices(void)
{
    static const char *const names[] = {"mem",
                                        "kmem",
                                        "port",
                                        "kmsg",
                                        "kvm",
                                        "fuse",
                                        "loop-control",
                                        "loop0",
                                        "vda",
                                        "sda",
                                        "nvme0n1",
                                        "console",
                                        "tty0",
                                        "tty1",
                                        "ttyS0",
                                        "net/tun",
                                        "hpet",
                                        "rtc0",
                                        "vhost-net",
                                        "vhost-vsock",
                                        "vsock",
                                        "uinput",
                                        "mapper/control",
                                        "btrfs-control",
                                        "autofs",
                                        "cpu_dma_latency",
                                        "userfaultfd",
                                        "snapshot",
                                        "watchdog",
                                        "hwrng",
                                        "dri/card0"};
    char path[64];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "/dev/%s", names[i]);
        REFUSED(path, attack_open(path, O_RDONLY), ENOENT);
    }
}

static void make_devices(void)
{
    static const struct {
        const char *name;
        mode_t type;
        unsigned major, minor;
    } nodes[] = {{"mem", S_IFCHR, 1, 1},    {"kmsg", S_IFCHR, 1, 11}, {"fuse", S_IFCHR, 10, 229},
                 {"kvm", S_IFCHR, 10, 232}, {"loop0", S_IFBLK, 7, 0}, {"vda", S_IFBLK, 254, 0},
                 {"sda", S_IFBLK, 8, 0},    {"null", S_IFCHR, 1, 3},  {"console", S_IFCHR, 5, 1}};
    static const char *const places[] = {"/tmp", "/dev/shm", "/home/user", "/dev", "/workspace"};
    char path[64];

    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        for (size_t j = 0; j < sizeof(places) / sizeof(places[0]); j++) {
            if (access(places[j], W_OK) < 0)
                continue;
            (void)snprintf(path, sizeof(path), "%s/node-%s", places[j], nodes[i].name);
            REFUSED(path,
                    mknod(path, nodes[i].type | 0666, makedev(nodes[i].major, nodes[i].minor)),
                    EPERM, EACCES, EROFS);
        }
    }
    (void)snprintf(path, sizeof(path), "/tmp/node-%s", "whiteout");
    if (mknod(path, S_IFCHR | 0666, 0) == 0)
        REFUSED("opening a node of number 0:0", attack_open(path, O_RDWR), EACCES, ENXIO, EPERM);
}

static void devices(void)
{
    list_devices();
    open_devices();
    make_devices();
}

/* ---- 32: set-id and capability bits ---- */

/* Run as a copy that has such bits: says who it became. */
static void be_set_id(void)
{
    uid_t real, effective, saved;
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];

    (void)getresuid(&real, &effective, &saved);
    attack_value("euid", effective);
    attack_value("egid", getegid());
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "CapEff:", 7) == 0)
            attack_value("CapEff", (long long)strtoull(line + 7, NULL, 16));
    if (file != NULL)
        (void)fclose(file);
    if (strcmp(attack_word(0, ""), "become") == 0)
        REFUSED("setuid(0)", setuid(0), EPERM, EINVAL); /* a box may have no 0 */
}

/* Making a set-id file in every way there is. */
static void make_set_id(const char *directory)
{
    static const mode_t bits[] = {04755, 02755, 06755};
    char path[256], what[320];

    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
        struct stat st;
        mode_t mode = bits[i];
        int fd, dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        (void)snprintf(path, sizeof(path), "%s/plain", directory);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0755);
        (void)snprintf(what, sizeof(what), "mode %o in %s: ", (unsigned)mode, directory);
        REFUSED("chmod", syscall(SYS_fchmodat, AT_FDCWD, path, mode), EPERM);
        REFUSED("fchmod", syscall(SYS_fchmod, fd, mode), EPERM);
        REFUSED("fchmodat2", syscall(452, AT_FDCWD, path, mode, 0), EPERM);
        REFUSED("fchmodat2 of an fd", syscall(452, fd, "", mode, 0x1000), EPERM);
#ifdef SYS_chmod
        REFUSED("old chmod", syscall(SYS_chmod, path, mode), EPERM);
        (void)snprintf(path, sizeof(path), "%s/new-open", directory);
        REFUSED("open", syscall(SYS_open, path, O_CREAT | O_WRONLY, mode), EPERM);
        (void)snprintf(path, sizeof(path), "%s/new-creat", directory);
        REFUSED("creat", syscall(SYS_creat, path, mode), EPERM);
        (void)snprintf(path, sizeof(path), "%s/new-mkdir", directory);
        REFUSED("mkdir", syscall(SYS_mkdir, path, mode), EPERM);
        (void)snprintf(path, sizeof(path), "%s/new-mknod", directory);
        REFUSED("mknod", syscall(SYS_mknod, path, S_IFREG | mode, 0), EPERM);
#endif
        REFUSED("openat", syscall(SYS_openat, dir, "new-openat", O_CREAT | O_WRONLY, mode), EPERM);
        REFUSED("O_TMPFILE", syscall(SYS_openat, AT_FDCWD, directory, O_TMPFILE | O_RDWR, mode),
                EPERM);
        REFUSED("openat2",
                syscall(437, dir, "new-openat2", &(uint64_t[3]){O_CREAT | O_WRONLY, mode, 0}, 24UL),
                ENOSYS);
        REFUSED("mkdirat", syscall(SYS_mkdirat, dir, "new-mkdirat", mode), EPERM);
        REFUSED("mknodat", syscall(SYS_mknodat, dir, "new-mknodat", S_IFREG | mode, 0), EPERM);
        REFUSED("io_uring", syscall(425, 8, &(uint64_t[15]){0}), ENOSYS);
        (void)snprintf(path, sizeof(path), "%s/plain", directory);
        attack_check(what, fstat(fd, &st) == 0 && (st.st_mode & 06000) == 0, "%o",
                     (unsigned)st.st_mode);
        (void)close(fd);
        (void)close(dir);
    }
}

static void set_id(void)
{
    if (strcmp(attack_word(0, ""), "make") == 0)
        make_set_id(attack_word(1, "/workspace"));
    else
        be_set_id();
}

/* ---- 34: the overlay ---- */

static void fool_overlay(void)
{
    static const char *const names[] = {"user.overlay.opaque",    "user.overlay.whiteout",
                                        "user.overlay.redirect",  "user.overlay.metacopy",
                                        "user.overlay.origin",    "user.overlay.upper",
                                        "trusted.overlay.opaque", "trusted.overlay.redirect"};
    const char *directory = attack_word(0, "/lower");
    char path[256];
    int gone = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = strstr(names[i], "redirect") != NULL ? "/../../../../etc" : "y";

        (void)setxattr(directory, names[i], value, strlen(value), 0);
        if (strncmp(names[i], "trusted.", 8) == 0)
            REFUSED(names[i], setxattr(directory, names[i], value, strlen(value), 0), EPERM,
                    EOPNOTSUPP);
    }
    (void)snprintf(path, sizeof(path), "%s/kept", directory);
    gone = access(path, R_OK);
    attack_check("a lower file after attributes of the guest", gone == 0, "%d", errno);
    (void)snprintf(path, sizeof(path), "%s/whiteout", directory);
    if (mknod(path, S_IFCHR, 0) == 0)
        REFUSED("a whiteout made by hand", attack_open(path, O_RDONLY), EACCES, ENXIO, EPERM,
                ENOENT);
    (void)snprintf(path, sizeof(path), "%s/removed", directory);
    attack_check("removing a lower file", unlink(path) == 0, "%d", errno);
    attack_check("a file of that name again", attack_open(path, O_WRONLY | O_CREAT) >= 0, "%d",
                 errno);
    REFUSED("the overlay's own upper directory", attack_open("/upper", O_RDONLY), ENOENT);
    REFUSED("the overlay's own work directory", attack_open("/work", O_RDONLY), ENOENT);
}

/* ---- 35: handles ---- */

struct handle {
    unsigned size;
    int type;
    unsigned char bytes[128];
};

static void shock(void)
{
    static const char *const places[] = {"/", "/usr", "/workspace", "/tmp", "/proc"};
    struct handle handle;
    int mount;

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int fd = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        handle = (struct handle){.size = sizeof(handle.bytes)};
        REFUSED("a handle", syscall(SYS_name_to_handle_at, AT_FDCWD, places[i], &handle, &mount, 0),
                EPERM);
        REFUSED(places[i], syscall(SYS_open_by_handle_at, fd, &handle, O_RDONLY), EPERM);
        /* The root of most file systems has the number 2, or 1. */
        handle = (struct handle){.size = 8, .type = 1, .bytes = {2}};
        REFUSED("the inode 2", syscall(SYS_open_by_handle_at, fd, &handle, O_RDONLY), EPERM);
        if (fd >= 0)
            (void)close(fd);
    }
}

/* ---- 36: the workspace ---- */

static void leave_workspace(void)
{
    unsigned other = (unsigned)attack_number(0, 4242);
    struct stat root, above;
    char path[512] = "/workspace";

    (void)stat("/", &root);
    for (int i = 0; i < 40; i++)
        (void)strcat(path, "/..");
    attack_check("climbing by ..",
                 stat(path, &above) == 0 && above.st_ino == root.st_ino &&
                     above.st_dev == root.st_dev,
                 "%llu", (unsigned long long)above.st_ino);
    (void)unlink("/workspace/up");
    attack_check("climbing by a link",
                 symlink("/../../../../../../root", "/workspace/up") == 0 &&
                     stat("/workspace/up/.ssh", &above) < 0,
                 "%d", errno);
    (void)unlink("/workspace/up");
    REFUSED("a hard link out", link("/workspace/kept", "/tmp/link"), EXDEV, EPERM, EACCES);
    REFUSED("a hard link in", link("/etc/passwd", "/workspace/link"), EXDEV, EPERM, EACCES);
    REFUSED("renaming out", rename("/workspace/kept", "/tmp/kept"), EXDEV, EACCES);
    REFUSED("a device of the host's", mknod("/workspace/node", S_IFCHR | 0666, makedev(1, 1)),
            EPERM, EACCES);
    REFUSED("a file of another", attack_open("/workspace/foreign", O_WRONLY), EACCES, EPERM);
    REFUSED("its owner", chown("/workspace/foreign", getuid(), getgid()), EPERM, EINVAL);
    REFUSED("a file for another", chown("/workspace/kept", other, other), EPERM, EINVAL, EOVERFLOW);
}

/* ---- 38: locks ---- */

static void lock_lower(void)
{
    const char *path = attack_word(0, "/usr/bin/env");
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    REFUSED("a lease on a file of the host's", fcntl(fd, F_SETLEASE, F_RDLCK), EINVAL);
    REFUSED("a write lease", fcntl(fd, F_SETLEASE, F_WRLCK), EINVAL);
    REFUSED("a write lock", fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK}), EBADF);
    /* The user of a box owns what its caller handed in, read-only, too: the owner could hold up all others. */
    REFUSED("a write lease on a file of a mount",
            fcntl(open("/attack/attack", O_RDONLY | O_CLOEXEC), F_SETLEASE, F_WRLCK), EINVAL);
    REFUSED("hearing of reads in a directory",
            fcntl(open("/usr/bin", O_RDONLY | O_CLOEXEC), F_NOTIFY, DN_ACCESS), EINVAL);
    (void)flock(fd, LOCK_EX | LOCK_NB);
    attack_check("holding what locks there are", fd >= 0, "%s", path);
    (void)sleep((unsigned)attack_number(1, 0));
}

const struct attack filesystem_attacks[] = {
    {29, change_root},     {32, set_id},     {33, devices},        {34, fool_overlay}, {35, shock},
    {36, leave_workspace}, {38, lock_lower}, {74, replace_mounts}, {0, NULL},
};
