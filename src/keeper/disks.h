/* Disks that are kept: an ext4 image each, DIR/disks/ID.ext4, sparse, and as large as its box may write;
 * or, where nobody may mount one, a directory each (disk_dirs.h).
 *
 * Making one, repairing it after a crash and mounting it take time, so a process of its own does it and
 * sends the mount; the box is made then. A disk has a lock as long as anything of it is in use, through
 * the fd that its loop device or its guard holds: what a killed keeper has left, the next one waits for. */
#pragma once

#include "base/err.h"
#include "keeper/disk_dirs.h"
#include "keeper/loop.h"
#include "keeper/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DISKS_OPENING_MAX 32

struct keeper;

/* A process of ours, which is waited for by the loop. */
struct disk_child {
    struct source ended; /* first member */
    pid_t pid;           /* 0: none */
    int pidfd;
};

/* A box that waits for its disk. */
struct opening {
    struct source source; /* first member */
    struct keeper *keeper;
    int socket; /* -1: nobody waits */
    struct disk_child child;
    struct keeper_make make;
};

struct disks {
    struct opening table[DISKS_OPENING_MAX];
    struct disk_child sweeper; /* removes what was dropped: a large image takes seconds */
    bool sweeps_again;
    unsigned dropped;
    struct disk_claims claims;
};

/* Removes what was half made, and begins to remove what was dropped. */
void disks_begin(struct keeper *keeper);

/* The same for a program that took over from another one: its processes are waited for. */
void disks_resume(struct keeper *keeper);

/* Opens the disk that a MAKE names, then makes the box and answers; or fails at once. */
int disks_open(struct keeper *keeper, const struct keeper_make *make, struct error *err);

int disks_drop(struct keeper *keeper, const char *id, struct error *err);

/* What is written on it, whether a box has it or not: the blocks of its image, or what was counted last.
 * UINT64_MAX: nobody knows. Nothing of the disk is read. */
uint64_t disks_weigh(const struct keeper *keeper, const char *id);

/* Calls `each` with the ids of those that are there, from the one numbered `*next` on, until it returns
 * false; true when it was called with all. */
bool disks_each(struct keeper *keeper, size_t *next, bool (*each)(struct keeper *, const char *id));

/* At the end, when no box is left: what is in disks lies on what holds them when this returns, or that has
 * taken so long. */
void disks_write(const struct keeper *keeper, int most_ms);

/* Nobody waits any more. */
void disks_forget(struct keeper *keeper);
