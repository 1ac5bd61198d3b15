/* Cgroup v2: one group of the box, in which a process can be born and which can be killed whole.
 *
 * With leaves, init makes a group per command in it, so it is given to init's uid: the directory,
 * and the files that say where processes may come from and what children have. Must never give
 * away a file with a limit. */
#include "box/cgroup_parts.h"

#include "base/fd.h"
#include "box/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- finding a place ---- */

static unsigned granted_at(int mount, const char *path)
{
    char file[PATH_MAX + 32], text[512];

    (void)snprintf(file, sizeof(file), "%s%scgroup.subtree_control", path,
                   path[0] != '\0' ? "/" : "");
    if (fd_read_file(mount, file, text, sizeof(text)) < 0)
        return 0;
    return cgroup_controllers_parse(text);
}

/* Opens the group if boxes can have groups in it. */
static int place_open(int mount, const char *path)
{
    _cleanup_close_ int fd = openat(mount, path[0] != '\0' ? path : ".",
                                    O_PATH | O_DIRECTORY | O_CLOEXEC);

    return fd >= 0 && cgroup_is_usable(fd) ? fd_take(&fd) : -1;
}

/* How much a place is worth: limits first, then the pleasant rest. */
static int worth(unsigned controllers)
{
    return 2 * __builtin_popcount(controllers & CGROUP_LIMITING) +
           __builtin_popcount(controllers & ~(unsigned)CGROUP_LIMITING);
}

void cgroup_v2_find(struct cgroup_host *host, int mount, const char *path, unsigned wanted)
{
    char at[PATH_MAX];
    int best = -1;

    (void)snprintf(at, sizeof(at), "%s", path);
    for (;;) {
        unsigned granted = wanted != 0 ? granted_at(mount, at) & wanted : 0;
        char *slash = strrchr(at, '/');
        int place;

        if (worth(granted) > best && (place = place_open(mount, at)) >= 0) {
            fd_close(&host->v2);
            host->v2 = place;
            host->v2_controllers = granted;
            best = worth(granted);
        }
        /* The nearest one that gives all that limits; cpuset is no reason to go further up. */
        if ((host->v2 >= 0 && (wanted & CGROUP_LIMITING & ~host->v2_controllers) == 0) ||
            at[0] == '\0')
            return;
        *(slash != NULL ? slash : at) = '\0';
    }
}

/* ---- making ---- */

static int refuse(const struct cgroup *cgroup, const char *file, struct error *err)
{
    return error_set(err, "cgroup_failed", errno, "cannot set %s of the cgroup %s", file,
                     cgroup->name);
}

static int limit(const struct cgroup *cgroup, const struct cgroup_limits *limits, struct error *err)
{
    unsigned controllers = cgroup->host->v2_controllers;
    int parent = cgroup->host->v2;
    const char *name = cgroup->name;
    char text[1024];

    if ((controllers & CGROUP_MEMORY) != 0 && limits->memory_bytes != 0) {
        if (cgroup_file_write_number(parent, name, "memory.max", limits->memory_bytes) < 0)
            return refuse(cgroup, "memory.max", err);
        if (cgroup_file_write(parent, name, "memory.swap.max", "0") < 0 && errno != ENOENT)
            return refuse(cgroup, "memory.swap.max", err);
    }
    if ((controllers & CGROUP_PIDS) != 0 && limits->pids != 0 &&
        cgroup_file_write_number(parent, name, "pids.max", limits->pids) < 0)
        return refuse(cgroup, "pids.max", err);
    if (limits->cpu_milli == 0)
        return 0;
    if ((controllers & CGROUP_CPU) != 0) {
        (void)snprintf(text, sizeof(text), "%llu %u",
                       (unsigned long long)cgroup_cpu_quota_us(limits->cpu_milli),
                       CGROUP_CPU_PERIOD_US);
        if (cgroup_file_write(parent, name, "cpu.max", text) < 0)
            return refuse(cgroup, "cpu.max", err);
    }
    cgroup_cpus_format(&cgroup->cpus, text, sizeof(text));
    if ((controllers & CGROUP_CPUSET) != 0 && text[0] != '\0' &&
        cgroup_file_write(parent, name, "cpuset.cpus", text) < 0)
        return refuse(cgroup, "cpuset.cpus", err);
    return 0;
}

/* An ordinary user cannot give a file away. It lets everybody write then: nobody else can move a process
 * in, for that takes rights over the group above, too, but could make empty groups here. */
static int give(int directory, const char *file, uid_t owner, gid_t group)
{
    char path[64];

    if (fchownat(directory, file, owner, group,
                 file[0] == '\0' ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", directory, file);
    return errno == EPERM ? chmod(path, file[0] == '\0' ? 0777 : 0666) : -1;
}

/* Gives the group to init: to make children in it, and to be where its processes come from and go
 * to. The limits stay ours. */
static int delegate(const struct cgroup *cgroup, int directory, uid_t owner, gid_t owner_gid,
                    struct error *err)
{
    static const char *const files[] = {"", "cgroup.procs", "cgroup.subtree_control"};

    if (cgroup_file_write(cgroup->host->v2, cgroup->name, "cgroup.max.descendants",
                          CGROUP_DESCENDANTS_MAX) < 0)
        return refuse(cgroup, "cgroup.max.descendants", err);
    if (cgroup_file_write(cgroup->host->v2, cgroup->name, "cgroup.max.depth", "1") < 0)
        return refuse(cgroup, "cgroup.max.depth", err);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (give(directory, files[i], owner, owner_gid) < 0)
            return error_set(err, "cgroup_failed", errno, "cannot give the cgroup %s to uid %u",
                             cgroup->name, owner);
    return 0;
}

static int leaves_make(struct cgroup *cgroup, int directory, uid_t owner, gid_t owner_gid,
                       struct error *err)
{
    if (delegate(cgroup, directory, owner, owner_gid, err) < 0)
        return -1;
    cgroup->delegated = true;
    if (cgroup->host->box_mounts)
        return 0; /* the box mounts it for itself */
    /* Init keeps this one. Through a directory of the host's tree its ".." would lead to the
     * host's root; through a mount of its own that hangs nowhere it ends here. */
    cgroup->leaves = sys_open_tree(directory, "",
                                   OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    if (cgroup->leaves < 0)
        return error_set(err, "cgroup_failed", errno, "cannot open the cgroup %s", cgroup->name);
    return 0;
}

int cgroup_v2_make(struct cgroup *cgroup, const struct cgroup_limits *limits, uid_t owner,
                   gid_t owner_gid, bool leaves, struct error *err)
{
    _cleanup_close_ int directory = -1;

    if (mkdirat(cgroup->host->v2, cgroup->name, 0755) < 0)
        return error_set(err, "cgroup_failed", errno, "cannot make the cgroup %s", cgroup->name);
    cgroup->v2_made = true;
    directory = openat(cgroup->host->v2, cgroup->name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return error_set(err, "cgroup_failed", errno, "cannot open the cgroup %s", cgroup->name);
    if (limit(cgroup, limits, err) < 0)
        return -1;
    if (leaves && leaves_make(cgroup, directory, owner, owner_gid, err) < 0)
        return -1;
    cgroup->into = fd_take(&directory);
    return 0;
}

/* ---- the rest ---- */

void cgroup_v2_usage(const struct cgroup *cgroup, struct cgroup_usage *out, unsigned *counted)
{
    const char *name = cgroup->name;
    int parent = cgroup->host->v2;
    uint64_t us;

    if (!cgroup->v2_made)
        return;
    if ((cgroup->host->v2_controllers & CGROUP_MEMORY) != 0) {
        (void)cgroup_file_number(parent, name, "memory.events", "oom_kill", &out->oom_kills);
        (void)cgroup_file_number(parent, name, "memory.current", NULL, &out->memory_bytes);
        /* memory.peak came with 5.19; before, what is used now is the best there is. */
        if (cgroup_file_number(parent, name, "memory.peak", NULL, &out->peak_memory_bytes) == 0 ||
            cgroup_file_number(parent, name, "memory.current", NULL, &out->peak_memory_bytes) == 0)
            *counted |= CGROUP_MEMORY;
    }
    /* Counted without a controller too, so it helps a host whose v1 lacks cpuacct. */
    if ((*counted & CGROUP_CPUACCT) == 0 &&
        cgroup_file_number(parent, name, "cpu.stat", "usage_usec", &us) == 0) {
        out->cpu_ns = us * 1000;
        *counted |= CGROUP_CPUACCT;
    }
}

int cgroup_v2_files(const struct cgroup *cgroup, uint64_t *bytes)
{
    if (!cgroup->v2_made || (cgroup->host->v2_controllers & CGROUP_MEMORY) == 0)
        return -1;
    return cgroup_file_number(cgroup->host->v2, cgroup->name, "memory.stat", "shmem", bytes);
}

int cgroup_v2_kill(const struct cgroup *cgroup)
{
    if (cgroup_file_write(cgroup->host->v2, cgroup->name, "cgroup.kill", "1") == 0 ||
        errno == ENOENT)
        return 0;
    return -1;
}
