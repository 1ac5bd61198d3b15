/* Rates: so many a second, and as many at once as were left of earlier seconds. One of zeros is full. The clock is
 * brought along by whoever asks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rate {
    uint64_t left;
    uint64_t at_ns; /* when `left` was right */
};

/* Returns how many there are now; the caller takes them out of `left`. */
uint64_t rate_left(struct rate *rate, uint64_t per_second, uint64_t at_once, uint64_t now_ns);

/* Takes one; false: there is none now. */
bool rate_take(struct rate *rate, uint64_t per_second, uint64_t at_once, uint64_t now_ns);
