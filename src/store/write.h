/* Writes: what one is, and how many of them become one commit. Runs in the writer's thread and knows
 * nothing of loops or queues. */
#pragma once

#include "store/schema.h"
#include "store/store.h"

/* Changes that are known for a watch that begins in the past. */
#define WRITE_CHANGES 10000U
/* Pages in the log after which it is moved into the database. */
#define WRITE_LOG_PAGES 1000

enum write_kind { WRITE_PUT, WRITE_LEASE, WRITE_PUBLISH, WRITE_REFUSED };

/* One request and, behind it in the same piece of memory, its texts and data; then its answer. */
struct write {
    struct write *next;
    enum write_kind kind;
    const char *key; /* of a lease or a stream: its name */
    const char *owner;
    const void *data; /* NULL: delete */
    size_t size;
    uint64_t asked_ns;
    uint64_t number; /* if_revision, ttl_ms or keep */
    size_t leave;    /* of the room that is kept */
    store_done done;
    void *arg;

    uint64_t revision;
    bool is_change; /* of a key: watches hear of it */
    bool failed;
    struct error err;
};

struct writer {
    struct db db;
    uint64_t revision, compacted; /* as committed */
    /* The log's file, how far it is known to have blocks, and whether room is kept there. */
    int log;
    off_t log_blocks;
    _Atomic bool keeps_room;
};

/* Opens the database and brings it to that schema. */
int writer_open(struct writer *writer, const char *directory, const struct schema *schema,
                struct error *err);

void writer_close(struct writer *writer);

/* store_keep_room(), from any thread. */
int writer_keep_room(struct writer *writer, struct error *err);

/* Commits all of a list, or answers each with an error. */
void writer_commit(struct writer *writer, struct write *writes);
