/* Ends boxes that hold too much of what no cgroup counts: file locks (box/locks.h), what lies in sockets
 * (box/socket_count.h), and open files (box/open_files.h). A process of its own counts, for a box can make that slow or stand
 * still: then it is killed, and nobody waits for its end. */
#pragma once

#include "box/growth.h"
#include "box/locks.h"
#include "box/open_files.h"
#include "box/socket_count.h"
#include "keeper/loop.h"

#include <stdint.h>
#include <sys/types.h>

#define UNCOUNTED_COUNTERS 4

struct keeper;

/* A process that counts, or was killed and has not ended yet. */
struct uncounted_counter {
    pid_t pid;    /* 0: none */
    uint64_t box; /* that it was counting; 0: it has not said */
};

struct uncounted {
    struct locks_watch watch;
    struct growth memory, files;
    enum counted_what what; /* of the last count */
    uint64_t next_ns;       /* look */
    struct uncounted_counter counters[UNCOUNTED_COUNTERS];
    struct uncounted_counter *counting; /* NULL: none does */
    struct source found;                /* what it says */
    uint64_t began_ns, heard_ns;
    bool has_all;                          /* it has said that it counted every box */
    uint64_t last;                         /* the box that was being counted last */
    struct counted_found most, most_bytes; /* of the count that is under way */
    uint64_t locks, box_locks;             /* that it found: in all boxes, in the last one */
    uint64_t ended, ended_ns;              /* the last box that was, and when */
};

void uncounted_open(struct uncounted *watch);

/* Looks, and has boxes counted; when to be called again, 0 for never. */
uint64_t uncounted_tick(struct keeper *keeper, uint64_t now_ns);

/* Ends the count that is under way. Waits for a moment, so that the next program of this process meets no child that it
 * does not know. */
void uncounted_stop(struct keeper *keeper);
