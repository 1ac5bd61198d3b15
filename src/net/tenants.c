/* What the boxes of one tenant have together. A box is cheap to make: whatever is bounded only by box, a tenant with
 * a thousand of them has a thousand times, and others have what is left. None is forgotten: who stops his boxes and
 * starts them again would have his bounds anew. */
#include "net/parts.h"

#include <stdlib.h>
#include <string.h>

/* Of dials to one address and port: the host has some 28,000 ports of its own to it, and each is gone for a minute
 * after its connection. So many of all tenants that have boxes, each its part. */
#define DIALS_PER_SECOND 150
#define DIALS_AT_ONCE 16000
#define DIALS_PARTS 8 /* at most: who has less could do nothing */
#define LOOKUPS_PER_SECOND 2000
#define LOOKUPS_AT_ONCE 20000

void tenants_init(struct tenants *tenants)
{
    TAILQ_INIT(&tenants->all);
}

struct net_tenant *tenants_join(struct tenants *tenants, const char *name)
{
    size_t size = strlen(name) + 1;
    struct net_tenant *tenant = NULL;

    TAILQ_FOREACH(tenant, &tenants->all, link)
    {
        if (strcmp(tenant->name, name) == 0) {
            tenants->count += tenant->boxes++ == 0;
            return tenant;
        }
    }
    tenant = calloc(1, sizeof(*tenant) + size);
    if (tenant == NULL)
        return NULL;
    memcpy(tenant->name, name, size);
    tenant->boxes = 1;
    tenants->count++;
    TAILQ_INSERT_TAIL(&tenants->all, tenant, link);
    return tenant;
}

void tenants_leave(struct tenants *tenants, struct net_tenant *tenant)
{
    tenants->count -= --tenant->boxes == 0;
}

void tenants_free(struct tenants *tenants)
{
    struct net_tenant *tenant;

    while ((tenant = TAILQ_FIRST(&tenants->all)) != NULL) {
        TAILQ_REMOVE(&tenants->all, tenant, link);
        free(tenant);
    }
}

bool tenant_may_look(struct net_tenant *tenant, uint64_t now_ms)
{
    return rate_take(&tenant->lookups, LOOKUPS_PER_SECOND, LOOKUPS_AT_ONCE, now_ms * 1000000);
}

bool tenants_may_dial(const struct tenants *tenants, struct net_tenant *tenant,
                      const struct policy_address *address, uint16_t port, uint64_t now_ms)
{
    unsigned parts = tenants->count < DIALS_PARTS ? tenants->count : DIALS_PARTS;
    uint32_t hash = 2166136261U;

    /* Two destinations may have one rate between them: it is wide enough for that. */
    for (size_t i = 0; i < sizeof(address->bytes); i++)
        hash = (hash ^ address->bytes[i]) * 16777619U;
    hash = (hash ^ port) * 16777619U;
    return rate_take(&tenant->dials[(hash ^ hash >> 16) % TENANT_DIALS], DIALS_PER_SECOND / parts,
                     DIALS_AT_ONCE / parts, now_ms * 1000000);
}
