/* See growth.h. Pure code. */
#include "box/growth.h"

bool growth_is_due(struct growth *growth, uint64_t now, uint64_t most, uint64_t pause_ns,
                   uint64_t now_ns)
{
    if (now == 0)
        return false;
    if (growth->least == 0 || now < growth->least)
        growth->least = now;
    if (now - growth->least < most ||
        (growth->counted_ns != 0 && now_ns - growth->counted_ns < pause_ns))
        return false;
    growth->begun = now;
    return true;
}

void growth_counted(struct growth *growth, bool all, bool ended, uint64_t now_ns)
{
    growth->counted_ns = ended ? 0 : now_ns;
    if (all && !ended)
        growth->least = growth->begun;
}
