/* A disk that is a directory, watched: for an overlay's upper layer where tmpfs has no user xattrs
 * (before Linux 6.6) and nobody may mount a loop device.
 *
 * What is written there lies on the caller's own disk and is removed with the box, by its guard. The
 * limit is kept by counting, so it is late, and what goes beyond it ends the box. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct disk {
    int parent; /* directory that holds it; -1: there is none */
    int lock;   /* the directory itself, locked as long as somebody will remove it */
    char name[40];
    uint64_t bytes, inodes; /* the limits */
};

/* Makes the directory; *place is it. Removes those that somebody left who was killed. */
int disk_make(struct disk *disk, int *place, struct error *err);

/* Removes it. `userns` is that of the box, whose ids own what is in there; -1: the caller does. */
void disk_remove(struct disk *disk, int userns);

/* Closes this process's fds of it and leaves it to somebody else. */
void disk_forget(struct disk *disk);

/* In a process of its own: counts until there is too much, and kills the box then, by the pidfd of its
 * init. `proc` as of watch.h. The process, or -1. */
pid_t disk_watch(const struct disk *disk, int userns, int proc, int init);

/* Whether that process, which is ended by this, found too much. */
bool disk_was_full(pid_t watcher);
