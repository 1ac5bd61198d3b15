/* See account_share.h. */
#include "front/native/account_share.h"

#include <stdio.h>
#include <stdlib.h>

void account_shares_forget(struct account_shares *shares)
{
    struct account_share *share;

    map_free(&shares->tenants);
    while ((share = LIST_FIRST(&shares->list)) != NULL) {
        LIST_REMOVE(share, next);
        free(share);
    }
}

static struct account_share *share_of(struct account_shares *shares, const char *tenant)
{
    struct account_share *share = map_get(&shares->tenants, tenant);

    if (share != NULL || (share = calloc(1, sizeof(*share))) == NULL)
        return share;
    (void)snprintf(share->tenant, sizeof(share->tenant), "%s", tenant);
    LIST_INSERT_HEAD(&shares->list, share, next);
    map_put(&shares->tenants, share->tenant, share);
    return share;
}

bool account_share_may(struct account_shares *shares, const char *tenant, enum account_kind kind,
                       uint64_t second)
{
    unsigned most = kind == ACCOUNT_REFUSAL ? ACCOUNT_REFUSALS : ACCOUNT_SHARE;
    struct account_share *share;

    if (second != shares->second)
        account_shares_forget(shares);
    shares->second = second;
    share = share_of(shares, tenant);
    if (share == NULL)
        return true; /* rather a line too many than none */
    if (share->taken[kind] >= most) {
        shares->left_out++;
        return false;
    }
    share->taken[kind]++;
    return true;
}
