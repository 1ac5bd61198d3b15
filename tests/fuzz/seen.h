/* What came of an input, in order, with marks between: the same in however many pieces it comes. */
#pragma once

#include "fuzz.h"

#include <string.h>

#define INPUT_MAX 65536

struct seen {
    unsigned char bytes[4 * INPUT_MAX];
    size_t size;
    bool is_open;
};

static inline void note(struct seen *seen, const void *data, size_t size)
{
    must(size <= sizeof(seen->bytes) - seen->size);
    memcpy(seen->bytes + seen->size, data, size);
    seen->size += size;
}

static inline bool seen_same(const struct seen *one, const struct seen *other)
{
    return one->size == other->size && memcmp(one->bytes, other->bytes, one->size) == 0;
}
