/* A series of measurements, and the file of them that box.py reads.
 *
 * A file holds one line per series: its name, its unit, how many attempts failed, and every sample
 * as it was measured. No statistics here: whoever reads them wants to choose. All room is taken
 * before measuring, so that adding a sample never allocates. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct series {
    const char *name;
    const char *unit; /* of a sample: "ns", "bytes" */
    uint64_t *samples;
    size_t count, capacity;
    size_t failures;
};

/* Takes room for `capacity` samples and ends the program if there is none. `name` and `unit` are
 * borrowed. */
void series_init(struct series *series, const char *name, const char *unit, size_t capacity);

/* A sample beyond the capacity is a mistake in the bench, and ends it. */
void series_add(struct series *series, uint64_t sample);

/* Writes the line of this series; 0 or -1. */
int series_write(const struct series *series, FILE *out);

void series_free(struct series *series);

uint64_t series_now_ns(void);
