/* What the files of the store share. The loop's side owns all of it but what `writer` and `mutex` say. */
#pragma once

#include "store/schema.h"
#include "store/store.h"
#include "store/write.h"

#include <pthread.h>

/* What waits for the disk, at most; more is refused. */
#define STORE_WAITING_BYTES (64U << 20)

struct store {
    uv_loop_t *loop;
    uv_async_t *woken; /* freed by its own close callback */
    struct db reader;
    int lock;
    size_t pending;              /* asked for, `done` not called yet */
    size_t waiting_bytes;        /* of those */
    struct store_watch *watches; /* in the order of their making */
    struct histogram commits;    /* from asking to being on the disk */
    unsigned telling;            /* who is in a callback of a watch */

    struct writer writer; /* the thread's, from its start to its end */
    pthread_t thread;

    pthread_mutex_t mutex; /* for the rest */
    pthread_cond_t work, answers;
    struct write *asked, **asked_end;
    struct write *answered, **answered_end;
    bool is_ending;
};

/* store_open() for another layout, which the tests of migrations need. */
int store_open_as(const char *directory, uv_loop_t *loop, const struct schema *schema,
                  struct store **out, struct error *err);

/* Tells a change to those who watch. */
void watch_tell(struct store *store, const struct write *write);
/* Frees the watches that are left. */
void watch_end(struct store *store);
