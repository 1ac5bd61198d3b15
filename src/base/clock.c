/* Time: see clock.h. */
#include "base/clock.h"

#include <time.h>

uint64_t clock_monotonic_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}
