/* A buffer that keeps the newest bytes of a stream and counts what it let go.
 *
 * It grows with what arrives up to its limit and is a ring from there on, so that a command that
 * writes 10 GB costs the limit and no more. It reads into place: there is no second copy. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buf_tail {
    char *data;
    size_t limit;    /* newest bytes that buf_tail_close() leaves */
    size_t capacity; /* of `data` now */
    size_t start;    /* of the oldest byte; 0 until the ring is full */
    size_t used;
    uint64_t dropped;
};

/* Starts an empty buffer; nothing is allocated yet. */
void buf_tail_init(struct buf_tail *tail, size_t limit);

/* Where the next bytes go, and how many fit there in one piece; 0 if there is no memory at all.
 * The oldest bytes are overwritten by them once the ring is full. */
size_t buf_tail_room(struct buf_tail *tail, char **into);

/* Says that `size` bytes were put where buf_tail_room() pointed. */
void buf_tail_commit(struct buf_tail *tail, size_t size);

/* Ends the stream: `data[0..used)` then holds its newest bytes in order, and does not start inside
 * a UTF-8 character if something was dropped before it. */
void buf_tail_close(struct buf_tail *tail);

void buf_tail_free(struct buf_tail *tail);
