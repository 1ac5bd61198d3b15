/* How long things took, counted by size: what a monitoring system draws. Adding one costs some
 * nanoseconds; no lock, so one thread only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_BOUNDS 17

struct histogram {
    uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* each up to its bound; the last is the rest */
    uint64_t count, sum_ns;
};

void histogram_add(struct histogram *histogram, uint64_t ns);
/* In seconds, as text that is a number: "0.0025". */
const char *histogram_bound(size_t index);
