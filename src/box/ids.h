/* Id ranges: which host ids a box is, so that no two boxes and no user of the host share one.
 *
 * Root takes ranges of 65,536 ids that nobody of /etc/subuid and /etc/subgid has. Every process of
 * the host agrees through byte locks on one file: a range is taken exactly as long as the open file
 * description that locked its byte lives, so a crash frees it and nothing is ever left behind. */
#pragma once

#include "base/err.h"

#include <stdint.h>
#include <sys/types.h>

#define IDS_FIRST 524288U   /* below are the ids of people, services and containers */
#define IDS_END 1879048192U /* from here on systemd and others have ids of their own */
#define IDS_COUNT 65536U    /* of one range, and what it is aligned to */
#define IDS_SLOTS ((IDS_END - IDS_FIRST) / IDS_COUNT)

/* The ranges that may be taken, read once, and the lock file. The ranges taken through a pool are
 * held by its fd and by every copy of that fd, over fork() too, until they are released or the last
 * copy is closed. */
struct ids_pool {
    int lock;
    uint32_t next; /* slot to try first: neighbours are one lock for the kernel, however many */
    uint8_t taken[(IDS_SLOTS + 7) / 8]; /* by the host's files, or through this pool */
};

struct ids {
    uid_t first; /* the same for groups */
    uint32_t count;
};

/* Opens the host-wide lock file, made if it is missing. */
int ids_open(struct ids_pool *pool, struct error *err);

/* The same with files of the caller's choice: `directory` is made and holds the lock file. */
int ids_open_files(struct ids_pool *pool, const char *directory, const char *subuid,
                   const char *subgid, struct error *err);

/* Takes a range that nobody has. After a fork only one of the two processes may take through the
 * pool: the kernel does not tell them apart. */
int ids_take(struct ids_pool *pool, struct ids *ids, struct error *err);

/* Gives it back, for all copies of the fd, when no process with these ids lives any more. */
void ids_release(struct ids_pool *pool, struct ids *ids);

void ids_close(struct ids_pool *pool);
