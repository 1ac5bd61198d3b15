/* The newest bytes of a stream: see buf.h. */
#include "base/buf.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* A pipe holds 64 KiB by default: with less room than that a reader would need several calls for
 * what one could fetch, however small the limit. */
#define BUF_TAIL_STEP 65536U

void buf_tail_init(struct buf_tail *tail, size_t limit)
{
    *tail = (struct buf_tail){.limit = limit};
}

static size_t tail_capacity_max(const struct buf_tail *tail)
{
    return tail->limit > BUF_TAIL_STEP ? tail->limit : BUF_TAIL_STEP;
}

/* Doubles the room. Where there is no memory, what is there already becomes the ring. */
static void tail_grow(struct buf_tail *tail)
{
    size_t most = tail_capacity_max(tail);
    size_t capacity = tail->capacity == 0 ? BUF_TAIL_STEP : tail->capacity;
    char *data;

    if (tail->capacity != 0)
        capacity = capacity > most / 2 ? most : capacity * 2;
    data = realloc(tail->data, capacity);
    if (data == NULL)
        return;
    tail->data = data;
    tail->capacity = capacity;
}

size_t buf_tail_room(struct buf_tail *tail, char **into)
{
    size_t at;

    if (tail->used == tail->capacity && tail->start == 0 &&
        tail->capacity < tail_capacity_max(tail))
        tail_grow(tail);
    if (tail->capacity == 0)
        return 0;
    at = (tail->start + tail->used) % tail->capacity;
    *into = tail->data + at;
    if (tail->used < tail->capacity)
        return tail->capacity - tail->used < tail->capacity - at ? tail->capacity - tail->used
                                                                 : tail->capacity - at;
    return tail->capacity - at;
}

void buf_tail_commit(struct buf_tail *tail, size_t size)
{
    size_t spare = tail->capacity - tail->used;
    size_t lost = size > spare ? size - spare : 0;

    if (lost > 0) {
        tail->start = (tail->start + lost) % tail->capacity;
        tail->dropped += lost;
    }
    tail->used += size - lost;
}

static void bytes_reverse(char *data, size_t size)
{
    for (size_t low = 0, high = size; low + 1 < high; low++) {
        char byte = data[low];

        data[low] = data[--high];
        data[high] = byte;
    }
}

static void tail_drop(struct buf_tail *tail, size_t size)
{
    memmove(tail->data, tail->data + size, tail->used - size);
    tail->used -= size;
    tail->dropped += size;
}

void buf_tail_close(struct buf_tail *tail)
{
    size_t skip;

    if (tail->start != 0) {
        /* A full ring: three reversals turn it in place, for there may be no memory for two. */
        bytes_reverse(tail->data, tail->start);
        bytes_reverse(tail->data + tail->start, tail->capacity - tail->start);
        bytes_reverse(tail->data, tail->capacity);
        tail->start = 0;
    }
    if (tail->used > tail->limit)
        tail_drop(tail, tail->used - tail->limit);
    if (tail->dropped == 0)
        return;
    skip = utf8_inside(tail->data, tail->used);
    if (skip > 0)
        tail_drop(tail, skip);
}

void buf_tail_free(struct buf_tail *tail)
{
    free(tail->data);
    *tail = (struct buf_tail){0};
}
