/* Answers that are given again to who repeats a request with its Idempotency-Key.
 *
 * Of each tenant the newest are kept, for 24 hours, in memory and within bounds. Only successes: what
 * failed did nothing, and may succeed when it is repeated. Keys and bodies are kept as SHA-256. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ONCE_KEEP_MS 86400000ULL
#define ONCE_ENTRIES_MAX 4096        /* of a tenant */
#define ONCE_BYTES_MAX (8U << 20)    /* of a tenant: answers */
#define ONCE_ANSWER_MAX (512U << 10) /* a longer one is not kept, which a repetition is told */
#define ONCE_KEY_MAX 255
#define ONCE_WAITERS_MAX 4 /* of one request: all are answered in one go, each with a copy */

struct once_table;
struct once; /* one request; owned by the table */

struct once_table *once_table_new(void);
void once_table_free(struct once_table *table);

/* 1 to 255 visible ASCII characters. */
bool once_key_is_good(const char *key);

enum once_found {
    ONCE_NEW,       /* go ahead, and call once_finish() */
    ONCE_RUNNING,   /* somebody does it: once_wait() */
    ONCE_DONE,      /* `*out` has the answer */
    ONCE_OTHER,     /* the key was used for another request */
    ONCE_NO_MEMORY, /* or everything that this tenant may have is running */
};

/* `what` is all that makes the request: method, path, body, and what bounds the caller. */
struct once_part {
    const void *data;
    size_t size;
};
enum once_found once_begin(struct once_table *table, const char *tenant, const char *key,
                           const struct once_part *what, size_t parts, uint64_t now_ms,
                           struct once **out);

struct once_answer {
    unsigned status;          /* 0: there is none; who did it could not finish */
    bool was_too_large;       /* status only: the body was not kept */
    const char *content_type; /* of static life */
    const char *location;     /* or NULL */
    const void *body;
    size_t size;
};
const struct once_answer *once_answer(const struct once *once);

/* The waiter is told by once_finish(), unless it left before. */
struct once_waiter {
    struct once_waiter *next;
    void (*done)(void *arg, const struct once_answer *answer);
    void *arg;
};
/* False: as many wait for this request as may. */
bool once_wait(struct once *once, struct once_waiter *waiter);
void once_leave(struct once *once, struct once_waiter *waiter);
bool once_has_waiters(const struct once *once);

/* Tells those who wait, and keeps the answer (copied) if it is a success; `once` is not the caller's any
 * more. With answer NULL: nothing came of it. */
void once_finish(struct once_table *table, struct once *once, const struct once_answer *answer);
