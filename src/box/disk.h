/* A disk that is a directory, watched: for what outlives a box where nobody may mount a loop device, and
 * for an overlay's upper layer where tmpfs has no user xattrs (before Linux 6.6), too.
 *
 * What is written there lies on the caller's own disk. Unless it is kept, it is removed with the box, by
 * its guard. The limit is kept by counting, so it is late, and what goes beyond it ends the box. */
#pragma once

#include "base/err.h"
#include "box/box.h"
#include "box/ids.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Which id of a box is the caller's own, so that its files are the box's too. */
enum disk_lends { DISK_LENDS_NONE, DISK_LENDS_ROOT, DISK_LENDS_USER };

/* A disk that outlives its boxes: see box_spec.disk. Where the caller rules the host's mounts, it is a
 * detached mount, and owners in there are ids of the box, whichever host ids those are this time.
 *
 * Elsewhere nothing can map its owners, so the ids that wrote to it first are those of each of its boxes.
 * It is a directory then that everybody may write to and nobody else gets at. */
struct disk_kept {
    int fd; /* the mount; or the directory, whose lock through this fd lasts as long as the box */
    int ids_lock; /* of a directory: what keeps its ids ours, likewise; -1 where that takes nothing */
    struct ids ids;
    enum disk_lends lends;
};

/* What a box of this spec lends, with ids of that kind. */
enum disk_lends disk_lends_of(const struct caller *caller, const struct box_spec *spec,
                              enum ids_kind kind);

struct disk {
    int parent; /* directory that holds it; -1: there is none */
    int lock;   /* the directory itself, locked as long as somebody will remove it */
    char name[40];
    uint64_t bytes, inodes; /* the limits */
    bool is_kept;           /* it outlives the box. What was there before counts */
};

/* A directory that is kept, whose fd is borrowed; `for_overlay`: it has to hold an upper layer. */
int disk_keep(struct disk *disk, int directory, bool for_overlay, struct error *err);

/* Makes the directory; *place is it. Removes those that somebody left who was killed. */
int disk_make(struct disk *disk, int *place, struct error *err);

/* Removes it, unless it is kept. `userns` is that of the box, whose ids own what is in there; -1: the caller does. */
void disk_remove(struct disk *disk, int userns);

/* Closes this process's fds of it and leaves it to somebody else. */
void disk_forget(struct disk *disk);

/* In a process of its own: counts until there is too much, and kills the box then, by the pidfd of its
 * init. `proc` and `scratch` as of watch.h. What was over its limit before may stay so, that files can be
 * deleted, and not grow; what is far over it is an error. Returns after the first look, which has to come
 * before any command of the box. What it counts it says in `*counted`, unless that is NULL, and to
 * disk_counted(). The process, or -1. */
pid_t disk_watch(const struct disk *disk, int userns, int proc, int scratch, int init,
                 _Atomic uint64_t *counted, struct error *err);

/* What was counted last in a directory that is kept, also when no box has it. 0 or -1: nobody knows. */
int disk_counted(int directory, uint64_t *bytes);

/* Whether that process, which is ended by this, found too much. */
bool disk_was_full(pid_t watcher);
