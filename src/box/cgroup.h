/* The cgroups of a box: its limits, its bill, and the handle by which all of it can be killed.
 *
 * One box has one group `cove-NAME` in each hierarchy that matters: every v1 hierarchy that holds
 * memory, cpu, cpuacct, cpuset or pids, and cgroup v2. Hosts come in three kinds (v1, pure v2, and
 * hybrid: v1 controllers beside a v2 that has none), and a controller is used where it is. Groups
 * that others made are never changed: what they do not grant is not limited, and said so. */
#pragma once

#include "base/err.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CGROUP_NAME_MAX 48
#define CGROUP_V1_MAX 5
#define CGROUP_VIEW_MAX 40

enum cgroup_controller {
    CGROUP_MEMORY = 1,
    CGROUP_CPU = 2,
    CGROUP_PIDS = 4,
    CGROUP_CPUACCT = 8,
    CGROUP_CPUSET = 16,
};

/* What the host offers, read once. Borrowed by every group made with it. */
struct cgroup_host {
    struct {
        int parent; /* directory of our own group there: boxes become its children */
        unsigned controllers;
    } v1[CGROUP_V1_MAX];
    size_t v1_count;
    char mems[128];          /* v1 cpuset: memory nodes a child may use */
    int v2;                  /* directory in which boxes get their v2 group, or -1 */
    unsigned v2_controllers; /* the ones that are used there */
    bool limits_memory, limits_cpu, limits_pids; /* what can be limited at all */
    bool box_mounts; /* groups are no mounts that we can hand over: a box mounts its own */
};

struct cgroup_limits {
    uint64_t memory_bytes; /* 0 in any of these: no limit */
    uint32_t cpu_milli;
    uint32_t pids;
};

struct cgroup {
    const struct cgroup_host *host;
    char name[CGROUP_NAME_MAX]; /* of the directory */
    unsigned v1_made;           /* bit i: the group in host->v1[i] stands */
    bool v2_made;
    int into;       /* see cgroup_into_fd() */
    int leaves;     /* see cgroup_leaves_fd() */
    bool delegated; /* init makes groups in it */
    cpu_set_t cpus; /* the CPUs of the box, for sched_setaffinity(); the cpuset says the same */
};

struct cgroup_usage {
    bool known;         /* CPU time and memory are counted */
    uint64_t oom_kills; /* processes that the memory limit killed */
    uint64_t cpu_ns;
    uint64_t memory_bytes; /* now */
    uint64_t peak_memory_bytes;
};

/* Finds where groups can be made. Fails with "no_cgroup" where nothing can be limited. */
int cgroup_probe(struct cgroup_host *host, struct error *err);
void cgroup_host_close(struct cgroup_host *host);

/* In a v2 group that was given to this process alone: goes into a child of it and switches the
 * controllers on, for a group with processes of its own can have none below. What fails is found by
 * the next probe. */
void cgroup_make_room(void);

/* Makes the groups of a box and sets its limits. NAME is [a-z0-9-]. With `leaves`, the v2 group is
 * given to `owner` (init's uid on the host), which then makes a group per command in it. Where v2
 * has the controllers this costs the box's first process a move of 5 ms (cgroup_settle()), so a
 * box that runs one command does without. What was made before a failure is removed again. */
int cgroup_make(const struct cgroup_host *host, const char *name,
                const struct cgroup_limits *limits, uid_t owner, gid_t owner_gid, bool leaves,
                struct cgroup *out, struct error *err);

/* For CLONE_INTO_CGROUP, so that the box's first process is born in the v2 group; -1 without v2. */
int cgroup_into_fd(const struct cgroup *cgroup);

/* The v2 directory that init owns; a detached mount, so that ".." leads nowhere. -1: none, or one that
 * the box mounts for itself. The box's first process calls cgroup_settle() with it (cgroup_enter.h). */
int cgroup_leaves_fd(const struct cgroup *cgroup);

/* Whether a group in there then has controllers of its own, in which init repeats the limits. */
bool cgroup_leaves_limited(const struct cgroup *cgroup);

/* What the first process of a box needs to go into its groups and to show them: see cgroup_enter.h.
 * The names are those of the directories in the box's /sys/fs/cgroup. */
struct cgroup_gate {
    uint32_t doors_count, views_count;
    uint32_t watched;         /* controllers' bits: limits that no group keeps */
    uint32_t own_view;        /* there is a v2 group, and the box mounts it for itself */
    int doors[CGROUP_V1_MAX]; /* v1: written to by whoever goes in */
    int views[CGROUP_V1_MAX]; /* detached read-only mounts of the box's own groups */
    char names[CGROUP_V1_MAX]
              [CGROUP_VIEW_MAX]; /* "" for a v2 group, which is all there is to show */
};

/* Opens the gate for a process that is about to be cloned and goes in by itself. A bind of a group's
 * directory and not a mount of its own in the box: that would be a superblock more per hierarchy,
 * and the kernel walks all of them when one is made. */
int cgroup_gate_open(const struct cgroup *cgroup, struct cgroup_gate *gate, struct error *err);
void cgroup_gate_close(struct cgroup_gate *gate);

/* What the box used so far; 0, or -1 where no group stands. */
int cgroup_usage(const struct cgroup *cgroup, struct cgroup_usage *out);

/* What the box's files in memory take: its tmpfs, with what else is shared memory. 0, or -1 where no group
 * counts it. */
int cgroup_files(const struct cgroup *cgroup, uint64_t *bytes);

/* The processes and threads that there are and may be. -1 where no group counts them, or nothing bounds them. */
int cgroup_pids(const struct cgroup *cgroup, uint64_t *now, uint64_t *most);

/* Another bound from now on. One below what there is ends nobody. */
int cgroup_limit_pids(const struct cgroup *cgroup, uint64_t most);

/* To look at the groups of a box that somebody else made here and owns; nothing is to be closed. */
void cgroup_borrow(const struct cgroup_host *host, const char *name, struct cgroup *out);

/* Prepares the groups of a box that is gone for the next one with the same limits: the peak begins
 * again, what else is counted goes on. -1 where they are not as new; then they are to be removed. */
int cgroup_renew(const struct cgroup *cgroup);

/* Lifts the CPU limit: processes that are to die under it would do so for many seconds. */
void cgroup_unthrottle(const struct cgroup *cgroup);

/* Kills every process in the groups, unthrottled; 0 when all are dying, -1 (errno) if some could not be. */
int cgroup_kill(const struct cgroup *cgroup);

/* Removes what init made below, when its box is gone: the group is as new for the next one. */
void cgroup_leaves_remove(const struct cgroup *cgroup);

/* Removes the groups, with what init made below, and closes the fds. Waits up to 2 s for processes
 * that are still dying. */
int cgroup_remove(struct cgroup *cgroup, struct error *err);

/* Closes this process's fds of it and leaves the groups to somebody else. */
void cgroup_forget(struct cgroup *cgroup);

/* Kills and removes the groups of a box of which only NAME is left; those that are gone are fine. */
int cgroup_remove_named(const struct cgroup_host *host, const char *name, struct error *err);

/* The next program of this process goes on with them (base/hand.h): what is read is to be used and
 * removed, and no box is put into it any more. */
struct hand;
void cgroup_host_hand(struct hand *hand, struct cgroup_host *host);
void cgroup_hand(struct hand *hand, struct cgroup *cgroup, const struct cgroup_host *host);
