/* Rates: so many a second, and as many at once as were left of earlier seconds. A bucket that nobody took from is
 * full. Pure code, but for the clock, which whoever asks brings along. */
#include "net/parts.h"

/* So that nothing overflows; whoever asks is to have it full by then. */
#define PASSED_MAX_MS 3600000U

bool bucket_take(struct bucket *bucket, uint64_t per_second, uint64_t most, uint64_t now_ms)
{
    uint64_t passed = bucket->filled_ms == 0 ? PASSED_MAX_MS : now_ms - bucket->filled_ms;

    if (passed > PASSED_MAX_MS)
        passed = PASSED_MAX_MS;
    bucket->milli += passed * per_second;
    if (bucket->milli > most * 1000)
        bucket->milli = most * 1000;
    bucket->filled_ms = now_ms;
    if (bucket->milli < 1000)
        return false;
    bucket->milli -= 1000;
    return true;
}
