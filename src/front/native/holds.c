/* See holds.h. What a tenant holds is added up when somebody grows: those who hold something are few, and a sum that
 * was kept beside them could go wrong. */
#include "front/native/holds.h"

#include "base/tenancy.h"

#include <string.h>

static size_t of_tenant(const struct holds *holds, const char *tenant)
{
    const struct hold *hold;
    size_t bytes = 0;

    LIST_FOREACH(hold, &holds->list, next)
    if (strcmp(hold->tenant, tenant) == 0)
        bytes += hold->bytes;
    return bytes;
}

bool hold_resize(struct holds *holds, struct hold *hold, size_t bytes, size_t most)
{
    if (bytes > hold->bytes &&
        !tenancy_may_have(most, holds->bytes, of_tenant(holds, hold->tenant), bytes - hold->bytes))
        return false;
    if (hold->bytes == 0 && bytes > 0)
        LIST_INSERT_HEAD(&holds->list, hold, next);
    else if (hold->bytes > 0 && bytes == 0)
        LIST_REMOVE(hold, next);
    holds->bytes = holds->bytes - hold->bytes + bytes;
    hold->bytes = bytes;
    return true;
}
