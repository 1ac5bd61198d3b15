/* A tenant's share of the lines of a second in the audit log, which has so many bytes for all: else a key that only
 * reads could push out what everybody did. What a tenant changes has a share apart from what it reads, which is
 * cheaper. */
#pragma once

#include "engine/map.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define ACCOUNT_SHARE 1000

struct account_share {
    LIST_ENTRY(account_share) next;
    char tenant[64];
    unsigned reads, changes; /* that had a line */
};

struct account_shares {
    LIST_HEAD(account_share_list, account_share) list; /* of those with lines in this second */
    struct map tenants;                                /* the same, by name */
    uint64_t second, left_out;
};

/* True: this line is one of the share of this second; else it is counted. */
bool account_share_may(struct account_shares *shares, const char *tenant, bool is_read,
                       uint64_t second);
void account_shares_forget(struct account_shares *shares);
