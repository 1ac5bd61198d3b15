/* Time: monotonic for measuring and for limits, the wall clock's for what outlives a process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

uint64_t clock_monotonic_ns(void);

/* Milliseconds since 1970; never negative. */
uint64_t clock_wall_ms(void);

/* RFC 3339 in UTC with milliseconds, "2026-03-01T12:00:00.000Z". What lies after the year 9999 is its
 * last millisecond. */
#define CLOCK_TEXT_SIZE 25
void clock_format(uint64_t wall_ms, char text[CLOCK_TEXT_SIZE]);

/* RFC 3339 with any offset and fraction (what is below a millisecond is cut); from 1970 to 9999. False: it is none. */
bool clock_parse(const char *text, uint64_t *wall_ms);
