/* Cgroup v1: a group of the box in every hierarchy that holds one of its controllers.
 *
 * v1 can neither give birth into a group nor kill one. So a process is moved in: by another one this
 * costs milliseconds after a quiet time (an RCU grace period), by itself, as a thread, it does not
 * (measured: 0.07 ms against 7). Killing is a loop that first takes away the right to fork. Every hierarchy gets a group, also those without a limit: what a
 * box is shown of cgroups must be its own and never the host's. */
#include "box/cgroup_parts.h"

#include "base/fd.h"
#include "box/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static int refuse(const struct cgroup *cgroup, const char *file, struct error *err)
{
    return error_set(err, "cgroup_failed", errno, "cannot set %s of the cgroup %s", file,
                     cgroup->name);
}

/* Of the memory limit, what TCP and UDP may hold beside it. */
#define BUFFERS_SHARE 4

/* V1 counts buffers of TCP and UDP apart, and only of sockets that are made after this. */
static int limit_buffers(const struct cgroup *cgroup, int parent, uint64_t bytes, struct error *err)
{
    if (cgroup_file_write_number(parent, cgroup->name, "memory.kmem.tcp.limit_in_bytes",
                                 bytes / BUFFERS_SHARE) == 0)
        return 0;
    /* A kernel without it, or that was told to count no memory of its own, leaves the host's own bound. */
    return errno == ENOENT || errno == EOPNOTSUPP
               ? 0
               : refuse(cgroup, "memory.kmem.tcp.limit_in_bytes", err);
}

/* With swap counted, swap is part of the limit; where the kernel does not count it, none is used. */
static int limit_memory(const struct cgroup *cgroup, int parent, uint64_t bytes, struct error *err)
{
    const char *name = cgroup->name;

    if (cgroup_file_write_number(parent, name, "memory.limit_in_bytes", bytes) < 0)
        return refuse(cgroup, "memory.limit_in_bytes", err);
    if (limit_buffers(cgroup, parent, bytes, err) < 0)
        return -1;
    if (cgroup_file_write_number(parent, name, "memory.memsw.limit_in_bytes", bytes) == 0)
        return 0;
    if (errno != ENOENT)
        return refuse(cgroup, "memory.memsw.limit_in_bytes", err);
    (void)cgroup_file_write(parent, name, "memory.swappiness", "0");
    return 0;
}

static int limit_cpu(const struct cgroup *cgroup, int parent, uint32_t cpu_milli, struct error *err)
{
    if (cgroup_file_write_number(parent, cgroup->name, "cpu.cfs_quota_us",
                                 cgroup_cpu_quota_us(cpu_milli)) == 0)
        return 0;
    /* EINVAL: more than a group above us has, whose limit then holds anyway. */
    return errno == EINVAL ? 0 : refuse(cgroup, "cpu.cfs_quota_us", err);
}

/* Both must be set before a process may enter. */
static int limit_cpuset(const struct cgroup *cgroup, int parent, struct error *err)
{
    char cpus[1024];

    cgroup_cpus_format(&cgroup->cpus, cpus, sizeof(cpus));
    if (cpus[0] == '\0' && fd_read_file(parent, "cpuset.effective_cpus", cpus, sizeof(cpus)) < 0)
        return refuse(cgroup, "cpuset.cpus", err);
    if (cgroup_file_write(parent, cgroup->name, "cpuset.cpus", cpus) < 0)
        return refuse(cgroup, "cpuset.cpus", err);
    if (cgroup_file_write(parent, cgroup->name, "cpuset.mems", cgroup->host->mems) < 0)
        return refuse(cgroup, "cpuset.mems", err);
    return 0;
}

static int limit(const struct cgroup *cgroup, size_t hierarchy, const struct cgroup_limits *limits,
                 struct error *err)
{
    int parent = cgroup->host->v1[hierarchy].parent;
    unsigned controllers = cgroup->host->v1[hierarchy].controllers;

    if ((controllers & CGROUP_MEMORY) != 0 && limits->memory_bytes != 0 &&
        limit_memory(cgroup, parent, limits->memory_bytes, err) < 0)
        return -1;
    if ((controllers & CGROUP_CPU) != 0 && limits->cpu_milli != 0 &&
        limit_cpu(cgroup, parent, limits->cpu_milli, err) < 0)
        return -1;
    if ((controllers & CGROUP_PIDS) != 0 && limits->pids != 0 &&
        cgroup_file_write_number(parent, cgroup->name, "pids.max", limits->pids) < 0)
        return refuse(cgroup, "pids.max", err);
    return (controllers & CGROUP_CPUSET) != 0 ? limit_cpuset(cgroup, parent, err) : 0;
}

int cgroup_v1_make(struct cgroup *cgroup, const struct cgroup_limits *limits, struct error *err)
{
    for (size_t i = 0; i < cgroup->host->v1_count; i++) {
        if (mkdirat(cgroup->host->v1[i].parent, cgroup->name, 0755) < 0)
            return error_set(err, "cgroup_failed", errno, "cannot make the cgroup %s",
                             cgroup->name);
        cgroup->v1_made |= 1U << i;
        if (limit(cgroup, i, limits, err) < 0)
            return -1;
    }
    return 0;
}

int cgroup_v1_doors_open(const struct cgroup *cgroup, int doors[CGROUP_V1_MAX], struct error *err)
{
    char path[CGROUP_NAME_MAX + 16];

    for (size_t i = 0; i < CGROUP_V1_MAX; i++)
        doors[i] = -1;
    (void)snprintf(path, sizeof(path), "%s/tasks", cgroup->name);
    for (size_t i = 0; i < cgroup->host->v1_count; i++) {
        doors[i] = openat(cgroup->host->v1[i].parent, path, O_WRONLY | O_CLOEXEC);
        if (doors[i] >= 0)
            continue;
        (void)error_set(err, "cgroup_failed", errno, "cannot open the cgroup %s", cgroup->name);
        while (i-- > 0)
            fd_close(&doors[i]);
        return -1;
    }
    return 0;
}

int cgroup_v1_parent(const struct cgroup *cgroup, unsigned controller)
{
    for (size_t i = 0; i < cgroup->host->v1_count; i++)
        if ((cgroup->host->v1[i].controllers & controller) != 0 && (cgroup->v1_made & 1U << i) != 0)
            return cgroup->host->v1[i].parent;
    return -1;
}

void cgroup_v1_usage(const struct cgroup *cgroup, struct cgroup_usage *out, unsigned *counted)
{
    int memory = cgroup_v1_parent(cgroup, CGROUP_MEMORY),
        cpuacct = cgroup_v1_parent(cgroup, CGROUP_CPUACCT);

    if (memory >= 0) {
        (void)cgroup_file_number(memory, cgroup->name, "memory.oom_control", "oom_kill",
                                 &out->oom_kills);
        (void)cgroup_file_number(memory, cgroup->name, "memory.usage_in_bytes", NULL,
                                 &out->memory_bytes);
        if (cgroup_file_number(memory, cgroup->name, "memory.max_usage_in_bytes", NULL,
                               &out->peak_memory_bytes) == 0)
            *counted |= CGROUP_MEMORY;
    }
    if (cpuacct >= 0 &&
        cgroup_file_number(cpuacct, cgroup->name, "cpuacct.usage", NULL, &out->cpu_ns) == 0)
        *counted |= CGROUP_CPUACCT;
}

int cgroup_v1_files(const struct cgroup *cgroup, uint64_t *bytes)
{
    int memory = cgroup_v1_parent(cgroup, CGROUP_MEMORY);

    return memory < 0
               ? -1
               : cgroup_file_number(memory, cgroup->name, "memory.stat", "total_shmem", bytes);
}

int cgroup_v1_renew(const struct cgroup *cgroup)
{
    int memory = cgroup_v1_parent(cgroup, CGROUP_MEMORY);

    return memory < 0 ? 0
                      : cgroup_file_write(memory, cgroup->name, "memory.max_usage_in_bytes", "0");
}

/* ---- killing ---- */

#define KILL_BATCH 256
#define KILL_WAIT_MS 2000
#define KILL_SLEEP_US 500

/* The first processes of a group; how many, or -1. */
static int processes_read(int parent, const char *name, pid_t pids[KILL_BATCH])
{
    char path[CGROUP_NAME_MAX + 16], text[KILL_BATCH * 8];
    _cleanup_close_ int fd = -1;
    char *at = text, *end;
    ssize_t n;
    int count = 0;

    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", name);
    fd = openat(parent, path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? fd_read_full(fd, text, sizeof(text) - 1) : -1;
    if (n < 0)
        return -1;
    text[n] = '\0';
    /* Only whole lines: the last one may be cut. */
    while (count < KILL_BATCH && (end = strchr(at, '\n')) != NULL) {
        pids[count++] = (pid_t)strtol(at, NULL, 10);
        at = end + 1;
    }
    return count;
}

static bool is_among(pid_t pid, const pid_t *pids, int count)
{
    for (int i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

/* A pid may be used again between the list and the signal, by a process of somebody else. So each
 * is pinned first, and signalled only if the group still lists it: then the pinned process is the
 * listed one, or is dead. */
static int batch_kill(int parent, const char *name)
{
    pid_t before[KILL_BATCH], now[KILL_BATCH];
    int pidfds[KILL_BATCH];
    int count = processes_read(parent, name, before), listed, failed = 0;

    if (count <= 0)
        return count;
    for (int i = 0; i < count; i++)
        pidfds[i] = (int)syscall(SYS_pidfd_open, before[i], 0);
    listed = processes_read(parent, name, now);
    for (int i = 0; i < count; i++) {
        if (pidfds[i] >= 0 && is_among(before[i], now, listed) &&
            sys_pidfd_send_signal(pidfds[i], SIGKILL) < 0 && errno != ESRCH)
            failed = errno;
        fd_close(&pidfds[i]);
    }
    errno = failed;
    return failed == 0 ? count : -1;
}

void cgroup_v1_unthrottle(const struct cgroup *cgroup)
{
    int cpu = cgroup_v1_parent(cgroup, CGROUP_CPU);

    if (cpu >= 0)
        (void)cgroup_file_write(cpu, cgroup->name, "cpu.cfs_quota_us", "-1");
}

int cgroup_v1_kill(const struct cgroup *cgroup)
{
    int pids = cgroup_v1_parent(cgroup, CGROUP_PIDS);
    int parent = pids;

    for (size_t i = 0; parent < 0 && i < cgroup->host->v1_count; i++)
        parent = cgroup_v1_parent(cgroup, cgroup->host->v1[i].controllers);
    if (parent < 0)
        return 0;
    /* A fork bomb must not win the race. */
    if (pids >= 0)
        (void)cgroup_file_write(pids, cgroup->name, "pids.max", "0");
    for (int waited_us = 0; waited_us < KILL_WAIT_MS * 1000; waited_us += KILL_SLEEP_US) {
        struct timespec pause = {.tv_nsec = KILL_SLEEP_US * 1000L};
        int found = batch_kill(parent, cgroup->name);

        if (found == 0 || (found < 0 && errno == ENOENT))
            return 0;
        if (found < 0)
            return -1;
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    }
    errno = ETIMEDOUT;
    return -1;
}
