/* What a program of the kernels bench measured, for kernels.py. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Adds a line to the file that COVE_BENCH_RAW names, if it does: `what` with "_" for all that is no letter or digit, the
 * unit, no failures, and each sample, of ns or of thousandths of another unit. */
void raw_write(const char *what, const char *unit, const uint64_t *samples, size_t count);
