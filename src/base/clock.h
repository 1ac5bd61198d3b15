/* Time: monotonic for measuring and for limits. */
#pragma once

#include <stdint.h>

uint64_t clock_monotonic_ns(void);
