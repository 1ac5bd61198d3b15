/* Disks that are kept where nobody may mount an image: DIR/disks/ID, a directory each.
 *
 *   DIR/disks/ID        0700, the keeper's user's
 *   DIR/disks/ID/ids    which ids wrote to it, in one form only; written before the disk is there
 *   DIR/disks/ID/files  what the box's overlay, /tmp and home lie in; nothing else is shown to a box
 *
 * No mount of an ordinary user's maps owners, so a disk's ids are its own as long as it is there: the
 * keeper locks them from its start to its end, and nobody else gets them. A disk whose ids cannot be had
 * is not opened with others, ever. */
#pragma once

#include "base/err.h"
#include "box/caller.h"
#include "box/disk.h"
#include "keeper/request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DISK_NEW ".new" /* the end of the name of one that is not whole yet */
#define DISK_ID_SIZE (KEEPER_ID_LENGTH + 4)

/* Ids that are locked for a disk. */
struct disk_claim {
    char disk[DISK_ID_SIZE];
    int lock;
};

struct disk_claims {
    struct disk_claim *table;
    size_t count, room;
    bool lacks;       /* some could not be had */
    uint32_t until_s; /* of the monotonic clock: they are tried again */
};

/* The lock of a disk's ids, or -1. */
int disk_claims_find(const struct disk_claims *claims, const char *disk);

/* Takes the fd. */
void disk_claims_add(struct disk_claims *claims, const char *disk, int lock);
void disk_claims_drop(struct disk_claims *claims, const char *disk);

/* Locks the ids of all disks that are there and not locked. What somebody else has meanwhile is left, and
 * said at the first time; whoever opens such a disk is told, too. */
void disk_claims_take(struct disk_claims *claims, int disks, const struct caller *caller);

/* Again, as long as guards of the keeper before may be ending. Later each waits until it is opened: one
 * whose ids are never to be had holds up no other. */
void disk_claims_retry(struct disk_claims *claims, int disks, const struct caller *caller);

/* In the process of its own: waits until nobody has this lock. */
int disk_lock_wait(int fd, struct error *err);

/* In the process of its own: makes a directory for boxes of this spec, whole or not at all. */
int disk_dir_make(int disks, const struct caller *caller, const char *disk,
                  const struct box_spec *spec, struct disk_kept *out, struct error *err);

/* In the process of its own: opens one; ids that nobody claimed are locked. */
int disk_dir_open(int disks, const struct caller *caller, const char *disk, bool is_claimed,
                  struct disk_kept *out, struct error *err);

/* What its watchdog counted last; 0 or -1. */
int disk_dir_weigh(int disks, const char *disk, uint64_t *bytes);

bool disk_is_dir_name(const char *name);
