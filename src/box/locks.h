/* File locks: memory of the kernel that no cgroup counts and no limit bounds. The kernel tells root how many there
 * are on the host. Where that is abnormal, the locks of each box are counted, and a box with more than LOCKS_MAX is
 * to be ended. docs/decisions/0015-file-locks.md says why so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCKS_MAX 100000 /* of one box: 20 MB of the kernel's memory */
#define LOCKS_PERIOD_MS 250

struct locks_watch {
    int fd;            /* the kernel's count; -1: it tells us nothing */
    uint64_t least;    /* that it said since the last count of boxes; 0: it was normal */
    uint64_t count_ns; /* when that was */
};

/* A box, by the inode of its pid namespace. */
struct locks_holder {
    uint64_t space;
    uint64_t count, cpu_ns; /* its locks; what it took to count them */
    bool is_over;
};

/* Opens the kernel's count where there is one and we may read it. */
void locks_open(struct locks_watch *watch);

/* Tells whether boxes are to be counted now. Cheap: one read of a few bytes. */
bool locks_is_due(struct locks_watch *watch, uint64_t now_ns);

/* Returns the inode of the pid namespace whose PID 1 this is, or 0. */
uint64_t locks_space(int init);

/* Counts the locks of all holders. Calls `on_over` at once, and once, for a holder that has more than LOCKS_MAX, or
 * so many open files that two seconds of a CPU do not suffice to look at them. */
void locks_count(struct locks_holder *holders, size_t count,
                 void (*on_over)(void *arg, size_t holder), void *arg);
