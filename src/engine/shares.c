/* How much is told of what boxes do, by whom and of what kind.
 *
 * Events go to the disk and to whoever listens, and a box can make any number of them. So each sandbox, each tenant
 * and all together have their bounds, each kind for itself: no refusal hides a connection, and no tenant another
 * tenant's. What is too much is counted, and the next that is told says how many that were. */
#include "base/tenancy.h"
#include "engine/parts.h"
#include "net/turns.h"

#include <stdio.h>
#include <stdlib.h>

#define LINES_OF_TENANT 8192U /* of logs; see network_log.h */
#define LINES_OF_ALL 65536U

struct bound {
    unsigned per_second, at_once;
};

static const struct bound of_sandbox = {2, 50}, of_tenant = {20, 200}, of_all = {200, 2000};

struct tenant_shares {
    struct tenant_shares *next;
    char tenant[64];
    struct rate buckets[SHARES];
    struct log_room lines;
    struct share turns;
};

struct shares {
    struct map tenants; /* none is ever forgotten, or it would have its bounds anew */
    struct tenant_shares *all;
    struct rate buckets[SHARES];
    struct log_room lines;
};

static struct shares *shares_of(struct engine *engine)
{
    if (engine->shares == NULL) {
        engine->shares = engine_alloc(sizeof(*engine->shares));
        log_room_init(&engine->shares->lines, LINES_OF_ALL);
    }
    return engine->shares;
}

static struct tenant_shares *tenant_of(struct engine *engine, const char *tenant)
{
    struct shares *shares = shares_of(engine);
    struct tenant_shares *found = map_get(&shares->tenants, tenant);

    if (found != NULL)
        return found;
    found = engine_alloc(sizeof(*found));
    (void)snprintf(found->tenant, sizeof(found->tenant), "%s", tenant);
    log_room_init(&found->lines, LINES_OF_TENANT);
    share_init(&found->turns, engine->turns);
    found->next = shares->all;
    shares->all = found;
    map_put(&shares->tenants, found->tenant, found);
    return found;
}

struct log_room *shares_lines(struct engine *engine, const char *tenant)
{
    return *tenant != '\0' ? &tenant_of(engine, tenant)->lines : &shares_of(engine)->lines;
}

struct share *shares_turns(struct engine *engine, const char *tenant)
{
    return &tenant_of(engine, tenant)->turns;
}

/* True if its sandboxes keep more of ended processes than its share. */
bool shares_texts_are_many(struct engine *engine, const char *tenant)
{
    uint64_t own = tenant_of(engine, tenant)->turns.texts, all = 0;

    for (const struct tenant_shares *other = shares_of(engine)->all; other != NULL;
         other = other->next)
        all += other->turns.texts;
    return !tenancy_may_have(engine_memory_kept(), all, own, 0);
}

static uint64_t left(struct rate *rate, struct bound bound, uint64_t now_ns)
{
    return rate_left(rate, bound.per_second, bound.at_once, now_ns);
}

/* Takes from all three or from none, so that what nobody is told uses up nothing. */
static bool take(struct sandbox *sandbox, enum event_share share)
{
    struct tenant_shares *tenant = tenant_of(sandbox->engine, sandbox->record->tenant);
    struct rate *own = &sandbox->told.buckets[share], *tenants = &tenant->buckets[share],
                *common = &shares_of(sandbox->engine)->buckets[share];
    uint64_t now_ns = clock_monotonic_ns();

    if (left(own, of_sandbox, now_ns) == 0 || left(tenants, of_tenant, now_ns) == 0 ||
        left(common, of_all, now_ns) == 0)
        return false;
    own->left--;
    tenants->left--;
    common->left--;
    return true;
}

void shares_tell(struct sandbox *sandbox, enum event_share share, const char *type,
                 const char *reason, const struct engine_event_traffic *traffic)
{
    struct engine_event_traffic told = *traffic;
    uint64_t *left_out = &sandbox->told.left_out[share];

    if (!take(sandbox, share)) {
        (*left_out)++;
        return;
    }
    told.left_out = *left_out;
    *left_out = 0;
    events_add_traffic(sandbox->engine, type, sandbox->record->tenant, sandbox->id, reason, &told);
}

void shares_free(struct engine *engine)
{
    struct shares *shares = engine->shares;

    if (shares == NULL)
        return;
    map_free(&shares->tenants);
    for (struct tenant_shares *tenant = shares->all, *next; tenant != NULL; tenant = next) {
        next = tenant->next;
        share_leave(&tenant->turns);
        free(tenant);
    }
    free(shares);
    engine->shares = NULL;
}
