/* What must survive: six verbs on SQLite, and nobody above knows that it is SQLite.
 *
 * Keys are text, values are bytes, and every change has a revision, one counter for the whole store.
 * Reads are of what is committed and answered at once; writes go to a thread that commits many at a
 * time, and `done` is called in the loop's thread when the disk has them. There is no transaction
 * over several keys. */
#pragma once

#include "base/err.h"
#include "base/histogram.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define STORE_KEY_MAX 512
#define STORE_VALUE_MAX (1U << 20)

struct store;

/* `directory` is made if it is missing and holds the database, the FORMAT file and, after a migration,
 * a copy of what was there before. A store of a newer schema is refused ("store_too_new"), one that
 * another process has open, too ("store_busy"), and a damaged one ("store_corrupt"). */
int store_open(const char *directory, uv_loop_t *loop, struct store **out, struct error *err);

/* Waits until what was asked for is on the disk; `done` of it is called before this returns. Not from a
 * callback of the store. The loop has to turn once more, and frees its handle then. */
void store_close(struct store *store);

/* How long writes took, from asking until the disk had them. */
const struct histogram *store_commits(const struct store *store);

/* The last revision that reads see, 0 in a new store: list, then watch from the one after it. It never
 * goes back, restarts included. */
uint64_t store_revision(struct store *store);

struct store_value {
    char *key;
    void *data; /* followed by a NUL that is not counted */
    size_t size;
    uint64_t revision;
};
void store_value_free(struct store_value *value);

/* 1 and the value, 0 where there is none, -1. */
int store_get(struct store *store, const char *key, struct store_value *out, struct error *err);

/* Those whose key begins with `prefix`, in order, after key `after` (may be NULL), at most `limit`;
 * `each` returns false to stop. `value` is the callee's only as long as the call. */
int store_list(struct store *store, const char *prefix, const char *after, size_t limit,
               bool (*each)(void *arg, const struct store_value *value), void *arg,
               struct error *err);

/* `err` is NULL, or has the code "conflict" (the revision was another one; `revision` says which, 0: it is
 * not there), "store_failed" (ENOSPC where the disk is full) or "store_corrupt". In the order in which
 * the writes were asked for, and never before the call that asked has returned. A write that changed
 * nothing (deleted what was not there) has revision 0. A loop with writes that wait is alive. */
typedef void (*store_done)(void *arg, uint64_t revision, const struct error *err);

#define STORE_ANY UINT64_MAX
/* `data` NULL deletes. `if_revision`: the one the key must have now; 0: it must not be there;
 * STORE_ANY: whatever. The data is copied. */
void store_put(struct store *store, const char *key, const void *data, size_t size,
               uint64_t if_revision, store_done done, void *arg);

/* Room that the log has on the disk beyond what is in use, for writes that make room on a disk that is full. */
#define STORE_ROOM (4U << 20)
/* Left by what ends keys and tokens, which must not wait for room. */
#define STORE_ROOM_ENDS (STORE_ROOM - STORE_ROOM / 4)

/* Takes that room, where it has not got it yet. Where the file system cannot keep any there is none. */
int store_keep_room(struct store *store, struct error *err);

/* As store_put(), which leaves all of the room that is kept: this one leaves `leave` bytes of it. */
void store_put_leaving(struct store *store, size_t leave, const char *key, const void *data,
                       size_t size, uint64_t if_revision, store_done done, void *arg);

/* Changes of keys with `prefix`, from `revision` on, in order, as they are committed; `value->data` is
 * NULL for one that was deleted. "compacted" where that far back (10,000 changes) is not known any
 * more. What is past is told before this returns, *out is set then already; a put of it that a later
 * change of the same key has replaced is left out. A callback may end its watch. */
struct store_watch;
int store_watch(struct store *store, const char *prefix, uint64_t revision,
                void (*each)(void *arg, const struct store_value *value), void *arg,
                struct store_watch **out, struct error *err);
void store_unwatch(struct store_watch *watch);

/* Takes or renews a lease: "conflict" while another owner's has not run out. Time is the wall clock's,
 * for it must hold over a restart. `ttl_ms` 0 gives it back. The revision that `done` gets is higher
 * than that of any owner before. */
void store_lease(struct store *store, const char *name, const char *owner, uint64_t ttl_ms,
                 store_done done, void *arg);

/* Appends to a named stream; `done` gets its sequence, which begins with 1 and never has a gap. The
 * oldest beyond `keep` go. Names of streams and leases are as long as keys, and apart from them. */
void store_publish(struct store *store, const char *stream, const void *data, size_t size,
                   uint64_t keep, store_done done, void *arg);

/* From `sequence` on, at most `limit`; *first is the oldest there is, *next the one to come. `each` gets
 * the sequence as `revision`. */
int store_read(struct store *store, const char *stream, uint64_t sequence, size_t limit,
               bool (*each)(void *arg, const struct store_value *value), void *arg, uint64_t *first,
               uint64_t *next, struct error *err);
