/* Rates: see rate.h. Pure code. Time that has passed towards the next one is never lost. */
#include "base/rate.h"

#define SECOND_NS 1000000000U

uint64_t rate_left(struct rate *rate, uint64_t per_second, uint64_t at_once, uint64_t now_ns)
{
    __uint128_t more = (__uint128_t)(now_ns - rate->at_ns) * per_second / SECOND_NS;

    if (rate->at_ns == 0 || rate->left >= at_once || more >= at_once - rate->left) {
        rate->left = at_once;
        rate->at_ns = now_ns;
    } else if (more > 0) {
        rate->left += (uint64_t)more;
        rate->at_ns += (uint64_t)((more * SECOND_NS + per_second - 1) / per_second);
    }
    return rate->left;
}

bool rate_take(struct rate *rate, uint64_t per_second, uint64_t at_once, uint64_t now_ns)
{
    if (rate_left(rate, per_second, at_once, now_ns) == 0)
        return false;
    rate->left--;
    return true;
}
