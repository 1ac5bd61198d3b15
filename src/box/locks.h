/* File locks: memory of the kernel that no cgroup counts and no limit bounds. The kernel tells root how many there are
 * on the host. Where these are too many, a process of its own counts those of each box. Where all boxes together hold
 * too many of what it saw, its parent ends the box that holds most. docs/decisions/0015-file-locks.md says why so. */
#pragma once

#include "box/processes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCKS_HOST_MAX \
    50000 /* 10 MB of the kernel's memory; boxes are counted when the host has more */
#define LOCKS_BOXES_MAX 40000 /* of all boxes together, as far as they are seen */
#define LOCKS_LEAST 10000     /* a box with fewer is never ended for them */
#define LOCKS_BOX_MAX 100000  /* more of one box are not counted: it is ended at once */

/* In place of a number: the box has locked an anonymous file, which no program does that means well. */
#define LOCKS_ANONYMOUS UINT64_MAX

#define LOCKS_PERIOD_MS 250

struct locks_watch {
    /* The kernel's two counts of all locks: of the places, which costs microseconds, and of those in use. -1: it tells
     * us nothing. */
    int places, in_use;
    /* An eventfd. A lock on it keeps everybody from locking any anonymous file: they share one inode, and each close
     * of one walks over its locks. */
    int anonymous;
    bool holds, holds_whole; /* that lock, and flock(2) of it */
    int holder;              /* the process that has locked an anonymous file, or 0 */
    int counted_holder;
    uint64_t counted,
        counted_ns; /* locks in use at the last count, and when that ended; 0: none yet */
};

/* Opens the kernel's counts where there are some and we may read them, and takes the lock on anonymous files. */
void locks_open(struct locks_watch *watch);

/* Tells whether boxes are to be counted now. Cheap: one read of a few bytes, as a rule. */
bool locks_is_due(struct locks_watch *watch, uint64_t now_ns);

/* A count has ended. `again`: the next one need not wait, for a box was ended. */
void locks_counted(struct locks_watch *watch, uint64_t now_ns, bool again);

/* Counts the boxes, beginning with `first`, and writes a counted_found to `out` whenever more were found. `holder` is
 * of the watch. To be called in a process of its own: a box can make each step of this take minutes. */
void locks_count(int holder, const struct counted_box *boxes, size_t count, size_t first, int out);
