/* What a box sees of itself: see view.h. Built with both libcs; allocates nothing. */
#include "box/view.h"

#include "base/fd.h"
#include "box/sys.h"
#include "box/tree.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#define CPUS_SIZE (1U << 20) /* of /proc/cpuinfo: hundreds of processors fit */

/* How many CPUs the box has. */
static unsigned count_cpus(const struct plan *plan)
{
    unsigned wanted = (plan->cpu_milli + 999) / 1000, have;
    cpu_set_t all;

    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        return 1;
    have = (unsigned)CPU_COUNT(&all);
    return plan->cpu_milli == 0 || wanted >= have ? have : wanted;
}

void view_keep_cpus(const struct plan *plan)
{
    unsigned wanted = count_cpus(plan), have, skip, kept = 0;
    cpu_set_t all, mine;

    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        return;
    have = (unsigned)CPU_COUNT(&all);
    if (wanted >= have)
        return; /* there is no limit, or the cpuset has made the choice */
    if (getrandom(&skip, sizeof(skip), GRND_NONBLOCK) != sizeof(skip))
        skip = 0;
    CPU_ZERO(&mine);
    skip %= have;
    /* Twice around the allowed ones, so that a choice may wrap. */
    for (unsigned i = 0; i < 2 * CPU_SETSIZE && kept < wanted; i++) {
        unsigned cpu = i % CPU_SETSIZE;

        if (!CPU_ISSET(cpu, &all))
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        CPU_SET(cpu, &mine);
        kept++;
    }
    (void)sched_setaffinity(0, sizeof(mine), &mine);
}

static int put(int dir, const char *name, const char *text, size_t size, int proc,
               struct error *err)
{
    _cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

    if (fd < 0 || fd_write_full(fd, text, size) < 0)
        return error_set(err, "mount_failed", errno, "cannot write the box's /proc/%s", name);
    return tree_bind(dir, name, proc, name,
                     MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                     err);
}

/* Covers it by an empty directory: anybody may write to /proc/pressure, and it shows the host; /proc/fs shows the disks of
 * all boxes. */
static int hide(int dir, const char *name, int proc, struct error *err)
{
    struct stat st;

    if (fstatat(proc, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* a kernel without it */
    if (mkdirat(dir, name, 0555) < 0)
        return error_set(err, "mount_failed", errno, "cannot make the box's /proc/%s", name);
    return tree_bind(dir, name, proc, name,
                     MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                     err);
}

/* Covers what tells of single boxes beside: their disks, and locks of open files, cove's own among them, which the
 * kernel shows to everybody. By the empty file that covers keys: each takes 9 us, so that what only sums up the host
 * stays. */
static int blank(int proc, struct error *err)
{
    static const char *const names[] = {"diskstats", "locks", "partitions"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        _cleanup_close_ int empty = sys_open_tree(proc, "keys",
                                                  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

        /* ENOENT: a kernel without it. */
        if (empty < 0 || (tree_attach(empty, proc, names[i]) < 0 && errno != ENOENT))
            return error_set(err, "mount_failed", errno, "cannot cover the box's /proc/%s",
                             names[i]);
    }
    return 0;
}

static int put_meminfo(const struct plan *plan, int dir, int proc, struct error *err)
{
    static const char *const zero[] = {"Buffers",  "Cached",      "SwapCached", "Active",
                                       "Inactive", "SwapTotal",   "SwapFree",   "Dirty",
                                       "Shmem",    "SReclaimable"};
    char text[1024];
    unsigned long long kib = plan->memory_bytes / 1024;
    int n = snprintf(
        text, sizeof(text),
        "MemTotal:       %8llu kB\nMemFree:        %8llu kB\nMemAvailable:   %8llu kB\n", kib, kib,
        kib);

    for (size_t i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s:%*s%8u kB\n", zero[i],
                      15 - (int)strlen(zero[i]), "", 0U);
    return put(dir, "meminfo", text, (size_t)n, proc, err);
}

static int put_stat(const struct plan *plan, unsigned cpus, int dir, int proc, struct error *err)
{
    char text[32768];
    int n = snprintf(text, sizeof(text), "cpu  0 0 0 0 0 0 0 0 0 0\n");
    struct timespec now, up = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (!plan->own_clocks)
        (void)clock_gettime(CLOCK_BOOTTIME, &up);
    for (unsigned i = 0; i < cpus && (size_t)n < sizeof(text) - 256; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", i);
    n += snprintf(text + n, sizeof(text) - (size_t)n,
                  "intr 0\nctxt 0\nbtime %lld\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n",
                  (long long)(now.tv_sec - up.tv_sec));
    return put(dir, "stat", text, (size_t)n, proc, err);
}

/* The first `cpus` paragraphs of the host's: the models are the same, the count is not. */
static int put_cpus(char text[CPUS_SIZE], unsigned cpus, int dir, int proc, struct error *err)
{
    _cleanup_close_ int from = openat(proc, "cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = from < 0 ? -1 : fd_read_full(from, text, CPUS_SIZE - 1);
    char *end = text;

    if (n < 0)
        return error_set(err, "mount_failed", errno, "cannot read /proc/cpuinfo");
    text[n] = '\0';
    for (unsigned i = 0; i < cpus && end != NULL; i++) {
        end = strstr(end, "\n\n");
        if (end != NULL)
            end += 2;
    }
    if (end == NULL)
        end = text + n;
    return put(dir, "cpuinfo", text, (size_t)(end - text), proc, err);
}

/* Whoever shares our memory may be at the same: so it is no static text. */
static int put_cpuinfo(unsigned cpus, int dir, int proc, struct error *err)
{
    char *text = mmap(NULL, CPUS_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int done;

    if (text == MAP_FAILED)
        return error_set(err, "no_memory", errno, "there is no memory to read /proc/cpuinfo");
    done = put_cpus(text, cpus, dir, proc, err);
    (void)munmap(text, CPUS_SIZE);
    return done;
}

int view_proc(const struct plan *plan, int scratch, int proc, struct error *err)
{
    static const char load[] = "0.00 0.00 0.00 1/1 1\n";
    _cleanup_close_ int dir = -1;
    unsigned cpus = count_cpus(plan);

    if (mkdirat(scratch, "proc", 0755) < 0)
        return error_set(err, "mount_failed", errno, "cannot make the box's view of itself");
    dir = openat(scratch, "proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return error_set(err, "mount_failed", errno, "cannot open the box's view of itself");
    if (put_meminfo(plan, dir, proc, err) < 0 || put_stat(plan, cpus, dir, proc, err) < 0 ||
        put(dir, "loadavg", load, sizeof(load) - 1, proc, err) < 0 ||
        put(dir, "keys", "", 0, proc, err) < 0 || blank(proc, err) < 0 ||
        hide(dir, "pressure", proc, err) < 0 || hide(dir, "fs", proc, err) < 0)
        return -1;
    return plan->cpu_milli != 0 ? put_cpuinfo(cpus, dir, proc, err) : 0;
}
