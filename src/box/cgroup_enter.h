/* How the first process of a box gets into its groups from inside, on every kind of host.
 *
 * These few calls run in the set-up child: no allocation, any libc, hence all here. A process that
 * moves itself as a single thread need not wait until the whole host has no fork in flight, which
 * is what a move by somebody else costs (measured on v1: 0.07 ms against 7). The fds come from
 * outside and must be closed before anything of the user's runs. */
#pragma once

#include "base/fd.h"
#include "box/cgroup.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* v1: through the doors that cgroup_gate_open() opened, before the cgroup namespace is unshared.
 * Whoever opened them must be root, the process need not be, but it must have one thread. 0, or -1
 * (errno). */
static inline int cgroup_enter(const struct cgroup_gate *gate)
{
    for (size_t i = 0; i < gate->doors_count; i++)
        if (write(gate->doors[i], "0", 1) != 1)
            return -1;
    return 0;
}

/* A gate as a packet: its fds, which go beside it, doors first. How many. */
static inline size_t cgroup_gate_fds(const struct cgroup_gate *gate, int *fds)
{
    memcpy(fds, gate->doors, gate->doors_count * sizeof(int));
    memcpy(fds + gate->doors_count, gate->views, gate->views_count * sizeof(int));
    return gate->doors_count + gate->views_count;
}

/* And back, in the process that got `count` of them: -1 where the gate speaks of others. */
static inline int cgroup_gate_take(struct cgroup_gate *gate, const int *fds, size_t count)
{
    if (gate->doors_count > CGROUP_V1_MAX || gate->views_count > CGROUP_V1_MAX ||
        gate->doors_count + gate->views_count != count)
        return -1;
    memcpy(gate->doors, fds, gate->doors_count * sizeof(int));
    memcpy(gate->views, fds + gate->doors_count, gate->views_count * sizeof(int));
    return 0;
}

/* v2 with leaves, after the cgroup namespace was unshared in the box's group. A group whose children
 * have controllers may hold no process, so the process goes into a child `init` and switches them
 * on. It cannot be born there: its namespace would be rooted there too, and a process may only be
 * born inside what its parent's namespace shows (`nsdelegate`). Nothing to do, and nothing done,
 * where v2 has no controllers. 0, or -1 (errno). */
static inline int cgroup_settle(int leaves)
{
    static const char *const needed[] = {"memory", "cpu ", "pids"}; /* there is "cpuset", too */
    char have[256];
    ssize_t n = fd_read_file(leaves, "cgroup.controllers", have, sizeof(have) - 1);

    if (n < 0)
        return -1;
    if (n > 0)
        have[n - 1] = ' '; /* for the newline */
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (strstr(have, needed[i]) == NULL)
            return 0;
    if (mkdirat(leaves, "init", 0755) < 0 || fd_write_file(leaves, "init/cgroup.procs", "0") < 0 ||
        fd_write_file(leaves, "cgroup.subtree_control", "+memory +cpu +pids") < 0)
        return -1;
    return 0;
}
