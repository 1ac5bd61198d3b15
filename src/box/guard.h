/* The guard of a box: a process that owns the box's cgroups, from mkdir to rmdir.
 *
 * It is there before the first group and outlives its maker, so that a maker that is killed leaves
 * nothing behind; and it does the slow cgroup work while the maker clones the box. It also writes the
 * child's id maps, for its maker sleeps until the child has become the box's init. It runs nothing of
 * the box, reads nothing from it, and ends when its socket does. */
#pragma once

#include "box/box.h"
#include "box/cgroup.h"

#include <sys/types.h>

struct guard {
    int socket;
    pid_t pid;
};

struct guard_order {
    const char *name; /* of the cgroups */
    struct cgroup_limits limits;
    uint32_t first_id, ids_count; /* the range that becomes the box's ids */
    uid_t owner;                  /* host ids of the box's init */
    gid_t group;
    bool leaves;   /* a delegated v2 directory for init */
    bool announce; /* the maker will wait for the groups */
    int keep;      /* an fd that must live as long as the box: the lock of its ids */
};

int guard_start(const struct guard_order *order, struct guard *guard, struct error *err);

/* Waits for the groups; the v2 directories (for CLONE_INTO_CGROUP, for init), -1 where none. Whether
 * leaves have limits of their own. */
int guard_wait_made(struct guard *guard, int *into, int *leaves, bool *limited, struct error *err);

/* The set-up child says one byte on guard.socket. It hears one byte when its id maps stand, and then the
 * gate of its groups; a struct error instead of either ends it. */

/* The box is to end and takes its time: its CPU limit is lifted. */
void guard_hurry(struct guard *guard);

/* After the box's last process: what it used (not counted with report NULL); the groups are gone when
 * this returns. */
int guard_finish(struct guard *guard, struct box_report *report, struct error *err);
