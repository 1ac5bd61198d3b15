/* Entries 39 to 41: the kernel's files. Opening for writing is the attempt; nothing is written, so
 * a missing wall is found without using it. */
#include "attack.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    int tried, opened, unexpected;
    char first[256];
} walk;

static bool is_refusal(int error)
{
    return error == EROFS || error == EACCES || error == EPERM;
}

static int try_to_write(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type != FTW_F || !S_ISREG(st->st_mode))
        return 0;
    walk.tried++;
    errno = 0;
    if (attack_open(path, O_WRONLY) >= 0)
        walk.opened++;
    else if (is_refusal(errno))
        return 0;
    else if (errno == ENOENT || errno == ENXIO || errno == EIO || errno == EINVAL)
        return 0; /* gone meanwhile, or not a file to open at all */
    else
        walk.unexpected++;
    if (walk.first[0] == '\0')
        (void)snprintf(walk.first, sizeof(walk.first), "%s (%d)", path, errno);
    return 0;
}

static void write_below(const char *path)
{
    memset(&walk, 0, sizeof(walk));
    (void)nftw(path, try_to_write, 32, FTW_PHYS);
    attack_check(path, walk.opened + walk.unexpected == 0, "%d files tried, %d opened, %d odd: %s",
                 walk.tried, walk.opened, walk.unexpected, walk.first);
}

/* All of /proc that does not belong to a process. */
static void write_rest_of_proc(void)
{
    static const char *const names[] = {
        "acpi",       "asound",    "bus",        "driver",    "dynamic_debug", "fs",
        "irq",        "mtrr",      "scsi",       "sysvipc",   "tty",           "sysrq-trigger",
        "kcore",      "kmsg",      "keys",       "key-users", "timer_list",    "kallsyms",
        "slabinfo",   "meminfo",   "stat",       "cpuinfo",   "loadavg",       "uptime",
        "config.gz",  "modules",   "partitions", "swaps",     "vmallocinfo",   "pressure",
        "kpagecount", "kpageflags"};
    char path[64];

    memset(&walk, 0, sizeof(walk));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "/proc/%s", names[i]);
        (void)nftw(path, try_to_write, 32, FTW_PHYS);
    }
    attack_check("the rest of /proc", walk.opened + walk.unexpected == 0,
                 "%d files tried, %d opened, %d odd: %s", walk.tried, walk.opened, walk.unexpected,
                 walk.first);
}

static void write_named(void)
{
    static const char *const paths[] = {
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/kernel/sysrq",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/user/max_user_namespaces",
        "/proc/sys/net/ipv4/ip_forward",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/sys/module/kernel/parameters/panic",
    };

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        REFUSED(paths[i], attack_open(paths[i], O_WRONLY), EROFS, EACCES, EPERM, ENOENT);
    REFUSED("a new file in /proc", attack_open("/proc/new", O_WRONLY | O_CREAT), EROFS, EACCES,
            EPERM, ENOENT);
    REFUSED("a new file in /proc/sys", attack_open("/proc/sys/new", O_WRONLY | O_CREAT), EROFS,
            EACCES, EPERM, ENOENT);
    REFUSED("chmod of core_pattern", chmod("/proc/sys/kernel/core_pattern", 0666), EROFS, EPERM,
            EACCES);
}

static void write_sysctls(void)
{
    write_below("/proc/sys");
    write_rest_of_proc();
    write_named();
}

static void read_secrets(void)
{
    static const char *const paths[] = {
        "/proc/kcore",        "/proc/kmsg",       "/proc/timer_list",
        "/proc/sched_debug",  "/proc/slabinfo",   "/proc/vmallocinfo",
        "/proc/kpagecount",   "/proc/kpageflags", "/proc/kpagecgroup",
        "/proc/pagetypeinfo", "/dev/kmsg",        "/sys/kernel/debug/sched/debug",
    };

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        REFUSED(paths[i], attack_open(paths[i], O_RDONLY), EACCES, EPERM, ENOENT);
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;

    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        (void)closedir(dir);
    return count;
}

/* Files that tell of the host and of other boxes have to be empty. */
static void read_others(void)
{
    static const char *const paths[] = {"/proc/keys", "/proc/diskstats", "/proc/locks",
                                        "/proc/partitions"};

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        FILE *file = fopen(paths[i], "re");
        char line[512];
        int lines = 0;

        while (file != NULL && fgets(line, sizeof(line), file) != NULL)
            lines++;
        attack_check(paths[i], lines == 0, "%d lines", lines);
        if (file != NULL)
            (void)fclose(file);
    }
    attack_check("/proc/fs", count_entries("/proc/fs") <= 2, "it has entries");
}

/* Addresses of the kernel: a column of hexadecimal digits that has to be zero. */
static void read_addresses(const char *path, int column)
{
    FILE *file = fopen(path, "re");
    char line[1024];
    int shown = 0, lines = 0;

    if (file == NULL) {
        attack_check(path, errno == EACCES || errno == ENOENT || errno == EPERM, "%s",
                     strerror(errno));
        return;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        char *at = line;

        lines++;
        for (int i = 0; i < column && at != NULL; i++) {
            at = strchr(at, ' ');
            at = at != NULL ? at + strspn(at, " ") : NULL;
        }
        if (at != NULL && strncmp(at, "0x", 2) == 0)
            at += 2;
        if (at != NULL && isxdigit((unsigned char)*at) && strtoull(at, NULL, 16) != 0)
            shown++;
    }
    attack_check(path, shown == 0, "%d addresses in %d lines", shown, lines);
    (void)fclose(file);
}

static void read_kernel(void)
{
    read_secrets();
    read_others();
    read_addresses("/proc/kallsyms", 0);
    read_addresses("/proc/modules", 5);
    read_addresses("/proc/iomem", 0);
}

static int cgroup_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    const char *name = path + ftw->base;

    if (strcmp(name, "release_agent") == 0) {
        walk.unexpected++;
        (void)snprintf(walk.first, sizeof(walk.first), "%s is there", path);
        return 0;
    }
    return try_to_write(path, st, type, ftw);
}

static int cgroup_directory(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    char made[512];

    (void)st;
    (void)ftw;
    if (type != FTW_D)
        return 0;
    (void)snprintf(made, sizeof(made), "%s/escape", path);
    REFUSED(made, mkdir(made, 0755), EROFS, EACCES, EPERM);
    return 0;
}

/* The processes that a group shows are the box's: none has the number 0, which stands for one that
 * this namespace cannot see. */
static int cgroup_members(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    FILE *file;
    long pid;
    int strangers = 0, members = 0;

    (void)st;
    if (type != FTW_F || strcmp(path + ftw->base, "cgroup.procs") != 0)
        return 0;
    file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%ld", &pid) == 1) {
        members++;
        strangers += pid == 0;
    }
    attack_check(path, strangers == 0, "%d members, %d of the host", members, strangers);
    if (file != NULL)
        (void)fclose(file);
    return 0;
}

static void escape_cgroup(void)
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified",
                                        "/sys/fs/cgroup/memory"};
    char line[512];
    FILE *file = fopen("/proc/self/cgroup", "re");
    int outside = 0;

    memset(&walk, 0, sizeof(walk));
    (void)nftw("/sys/fs/cgroup", cgroup_file, 32, FTW_PHYS);
    attack_check("writing to files of cgroups", walk.opened + walk.unexpected == 0,
                 "%d tried, %d opened: %s", walk.tried, walk.opened, walk.first);
    (void)nftw("/sys/fs/cgroup", cgroup_directory, 32, FTW_PHYS);
    (void)nftw("/sys/fs/cgroup", cgroup_members, 32, FTW_PHYS);
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        char path[128];

        (void)snprintf(path, sizeof(path), "%s/cgroup.procs", roots[i]);
        REFUSED(path, attack_open(path, O_WRONLY), EROFS, EACCES, EPERM, ENOENT);
        (void)snprintf(path, sizeof(path), "%s/../../../sys/fs/cgroup/release_agent", roots[i]);
        REFUSED(path, attack_open(path, O_WRONLY), ENOENT);
    }
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        outside += strstr(line, "cove-") != NULL || strstr(line, "..") != NULL;
    attack_check("/proc/self/cgroup", file != NULL && outside == 0, "%d paths of the host",
                 outside);
    if (file != NULL)
        (void)fclose(file);
}

const struct attack proc_attacks[] = {
    {39, write_sysctls},
    {40, read_kernel},
    {41, escape_cgroup},
    {0, NULL},
};
