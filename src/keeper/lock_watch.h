/* Ends boxes that hold too many file locks (box/locks.h). Of zygotes' boxes; the guard of a cold one does the same. */
#pragma once

#include "box/locks.h"
#include "keeper/loop.h"

#include <stdint.h>
#include <sys/types.h>

struct keeper;

struct lock_watch {
    struct locks_watch watch;
    uint64_t next_ns; /* look */
    pid_t counter;    /* counts; 0: none does */
    struct source found;
};

void lock_watch_open(struct lock_watch *watch);

/* Looks, and has boxes counted; when to be called again, 0 for never. */
uint64_t lock_watch_tick(struct keeper *keeper, uint64_t now_ns);

/* Ends a count that is under way. */
void lock_watch_stop(struct keeper *keeper);
