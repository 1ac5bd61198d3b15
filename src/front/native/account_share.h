/* A tenant's share of the lines of a second in the audit log, which has so many bytes for all: else a key that only
 * reads could push out what everybody did. Changes, reads, which are cheaper, and refusals, which are cheapest, have shares
 * of their own. */
#pragma once

#include "engine/map.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum account_kind { ACCOUNT_READ, ACCOUNT_CHANGE, ACCOUNT_REFUSAL, ACCOUNT_KINDS };

#define ACCOUNT_SHARE 1000
#define ACCOUNT_REFUSALS 100

struct account_share {
    LIST_ENTRY(account_share) next;
    char tenant[64];
    /* Of each kind, that had a line. */
    unsigned taken[ACCOUNT_KINDS];
};

struct account_shares {
    LIST_HEAD(account_share_list, account_share) list; /* of those with lines in this second */
    struct map tenants;                                /* the same, by name */
    uint64_t second, left_out;
};

/* True: this line is one of the share of this second; else it is counted. */
bool account_share_may(struct account_shares *shares, const char *tenant, enum account_kind kind,
                       uint64_t second);
void account_shares_forget(struct account_shares *shares);
