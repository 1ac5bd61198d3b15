/* The guard of a box: a process that owns the box's cgroups, from mkdir to rmdir.
 *
 * It is there before the first group and outlives its maker, so that a maker that is killed leaves
 * nothing behind; and it does the slow cgroup work while the maker clones the box. It runs nothing
 * of the box, reads nothing from it, and ends when its socket does. */
#pragma once

#include "box/box.h"
#include "box/cgroup.h"

#include <sys/types.h>

struct guard {
    int socket;
    pid_t pid;
    bool finished;
};

struct guard_order {
    const char *name; /* of the cgroups */
    struct cgroup_limits limits;
    uid_t owner; /* host ids of the box's init */
    gid_t group;
    bool leaves;    /* a delegated v2 directory for init */
    int joined;     /* gets one byte when the box is in its v1 groups; closed in the maker */
    int keep[1];    /* an fd that must live as long as the box: the lock of its ids */
};

int guard_start(const struct guard_order *order, struct guard *guard, struct error *err);

/* Waits for the groups; the v2 directories (for CLONE_INTO_CGROUP, for init), -1 where none. */
int guard_wait_made(struct guard *guard, int *into, int *leaves, struct error *err);

/* Tells it which process to put into the v1 groups. */
int guard_join(struct guard *guard, pid_t pid, struct error *err);

/* Why the guard gave up, where it did. */
bool guard_failure(struct guard *guard, struct error *err);

/* After the box's last process: what it used; the groups are gone when this returns. */
int guard_finish(struct guard *guard, struct box_report *report, struct error *err);
