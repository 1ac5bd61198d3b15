/* Bytes that are kept for clients who are slow, counted over all of a kind: so many in all, and of these a tenant
 * has a quarter and no more than is left for all others, so that nobody's slowness is another one's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct hold {
    LIST_ENTRY(hold) next; /* while it has bytes */
    const char *tenant;    /* outlives it */
    size_t bytes;
};

struct holds {
    LIST_HEAD(hold_list, hold) list;
    size_t bytes;
};

/* False, and nothing is changed: that would be more than the tenant's share of `most` (tenancy_may_have()). Less than
 * before always may be; 0 forgets it. */
bool hold_resize(struct holds *holds, struct hold *hold, size_t bytes, size_t most);
