/* What people write for sizes, times and counts, parsed once at the edge. */
#pragma once

#include "base/err.h"

#include <stdint.h>

/* "512M", "2G", "65536", "1.5G"; K, M, G, T are powers of 1024, a final B, i or iB is allowed,
 * and small letters. */
int parse_size(const char *what, const char *text, uint64_t *bytes, struct error *err);

/* "90s", "1.5m", "250ms", "2h", "1d", "30" (seconds); 0 means none. */
int parse_duration(const char *what, const char *text, uint64_t *ms, struct error *err);

/* "2", "1.5", "0.25": thousandths of a CPU. */
int parse_cpus(const char *what, const char *text, uint32_t *milli, struct error *err);

/* A whole number from `low` to `high`, decimal. */
int parse_count(const char *what, const char *text, uint64_t low, uint64_t high, uint64_t *value,
                struct error *err);
