/* Id ranges: which host ids a box is, so that no two boxes and no user of the host share one.
 *
 * Root takes ranges of 65,536 ids that nobody of /etc/subuid and /etc/subgid has (ids.c). Others
 * divide what those files, or their own user namespace, give to them (subids.c), and who has nothing
 * there has one id, the caller's own. Every process of the host agrees through byte locks on one
 * file: ids are taken exactly as long as the open file description that locked their bytes lives, so
 * a crash frees them and nothing is ever left behind. */
#pragma once

#include "base/err.h"

#include "box/caller.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define IDS_FIRST 524288U   /* below are the ids of people, services and containers */
#define IDS_END 1879048192U /* from here on systemd and others have ids of their own */
#define IDS_COUNT 65536U    /* of one range, and what it is aligned to */
#define IDS_SLOTS ((IDS_END - IDS_FIRST) / IDS_COUNT)

/* A user's ids are divided into slices: as many ids as system accounts need, and one for nobody. */
#define IDS_SLICE 1024U
#define IDS_SLICE_SPAN (IDS_SLICE + 1)
#define IDS_NOBODY 65534U
#define IDS_PARTS_MAX 16

enum ids_kind {
    IDS_RANGE,  /* 65,536 ids */
    IDS_SLICED, /* IDS_SLICE ids and nobody */
    IDS_SINGLE, /* the caller's own */
};

/* Why there are no more ids than the caller's one. */
enum ids_gap {
    IDS_ENOUGH,
    IDS_NO_PROGRAM, /* newuidmap and newgidmap are missing, or have no rights */
    IDS_NO_ENTRY,   /* in /etc/subuid and /etc/subgid */
    IDS_NO_RIGHTS,  /* no_new_privs keeps newuidmap's from counting */
    IDS_OUTSIDE,    /* the user namespace has none to spare */
};

/* Ids that follow each other, given to a user. */
struct ids_part {
    uint32_t first;
    uint32_t count;
};

/* The ids that may be taken, read once, and the lock file. What was taken through a pool is held by
 * its fd and by every copy of that fd, over fork() too, until it is released or the last copy is
 * closed. */
struct ids_pool {
    int lock;
    uint32_t next; /* slot to try first: neighbours are one lock for the kernel, however many */
    uint8_t taken[(IDS_SLOTS + 7) / 8]; /* by the host's files, or through this pool */

    /* Of a user's pool: slices, counted over all parts. None in a host-wide pool. */
    enum ids_gap gap;
    uint32_t slices;
    struct ids_part uids[IDS_PARTS_MAX], gids[IDS_PARTS_MAX];
};

struct ids {
    enum ids_kind kind;
    uid_t first; /* host id of the box's 0 */
    gid_t first_group;
    uint32_t count;       /* of the ids from 0 on; 0: none were taken */
    uint32_t slot, slots; /* of the pool */
};

/* Opens the host-wide lock file, made if it is missing. */
int ids_open(struct ids_pool *pool, struct error *err);

/* The same with files of the caller's choice: `directory` is made and holds the lock file. */
int ids_open_files(struct ids_pool *pool, const char *directory, const char *subuid,
                   const char *subgid, struct error *err);

/* Takes a range that nobody has. After a fork only one of the two processes may take through the
 * pool: the kernel does not tell them apart. */
int ids_take(struct ids_pool *pool, struct ids *ids, struct error *err);

/* Takes the range that begins with this id; -1 where it is no range's first or somebody has it. */
int ids_take_at(struct ids_pool *pool, uid_t first, struct ids *ids, struct error *err);

/* Gives it back, for all copies of the fd, when no process with these ids lives any more. */
void ids_release(struct ids_pool *pool, struct ids *ids);

void ids_close(struct ids_pool *pool);

/* The next program of this process goes on with them (base/hand.h): what is taken stays so. A pool of a
 * user's keeps its lock alone. */
struct hand;
void ids_pool_hand(struct hand *hand, struct ids_pool *pool);
void ids_hand(struct hand *hand, struct ids *ids);

/* ---- the ids of a user (subids.c) ---- */

/* Opens the pool of a caller that does not rule the host's ids. A pool with `slices` 0 means that there
 * is one id; `why` then says what is missing, for a person. */
int ids_open_user(struct ids_pool *pool, const struct caller *caller, char *why, size_t why_size,
                  struct error *err);

/* Takes ids of that pool: 65,536 where there are many, else a slice, else the caller's one. */
int ids_take_user(struct ids_pool *pool, const struct caller *caller, struct ids *ids,
                  struct error *err);

/* Takes ids through a pool of their own as they were taken before, and no others: "disk_ids" where nobody
 * gives them any more, "ids_in_use" where somebody has them. With `locked` they are ours already. */
int ids_take_again(struct ids_pool *pool, const struct caller *caller, bool locked,
                   const struct ids *before, struct error *err);

/* A user namespace of our own in which we are root of the caller and of all ids that boxes of this
 * caller may have had: what they made can be removed there. Where there is none to make, nothing
 * happens. */
int ids_become_root(const struct caller *caller, struct error *err);

/* The caller's own id, as which one id inside appears outside, so that files of the caller's are the
 * box's too; -1: none does. */
struct ids_lent {
    int64_t inside;
    uint32_t outside;
};

/* A map for the kernel, "INSIDE OUTSIDE COUNT" lines; false where it has no room. */
bool ids_map_text(const struct ids *ids, uint32_t first, const struct ids_lent *lent, char *text,
                  size_t size);

/* Whether an id inside is mapped. */
bool ids_has(const struct ids *ids, const struct ids_lent *lent, uint32_t inside);
