/* Names to addresses for all boxes: who asks when, and what is kept of the answers.
 *
 * Each box is a lane with a queue and a cache of its own: nothing that one box asks can be seen, waited
 * for or pushed out by another. A lane may always ask a few names at once; beyond that lanes share what
 * their tenant has, and tenants what there is, and take turns. So whoever has ten thousand names that
 * nobody answers waits for himself. Nobody is called from within a call of his own, nor from within the
 * library below: answers are put down as due, and given out from the loop. */
#include "net/upstream.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#ifndef __clang__
/* The analyser does not see that what tsearch() was given lies in the tree. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

#define LANE_OWN 2 /* names at once that each lane may ask whatever others do */
#define LANE_MAX 16
#define TENANT_MAX 64
#define ALL_MAX 512
#define LANE_WAITING_MAX 256
#define LANE_KEPT_MAX 64
#define KEPT_MAX 16384
#define GIVE_UP_MS 10000
#define OTHER_FAMILY_MS \
    1000 /* of waiting for it, once one has addresses: some servers never answer AAAA */
#define KEEP_S 60
#define KEEP_FAILED_S 2
#define DUE_MAX 256 /* in one round of the loop */

enum entry_state { ENTRY_WAITING, ENTRY_ASKING, ENTRY_KEPT };

/* One name of one lane. */
struct host_entry {
    const char *name; /* its text: the key comes first */
    struct lane *lane;
    enum entry_state state;
    struct upstream_ask ask; /* the result, too */
    uint64_t until_ms;       /* ENTRY_KEPT: it is worth something */
    uint64_t half_ms;        /* ENTRY_ASKING with one half over: since when */
    uint64_t kept_ms;
    bool is_half;  /* in the list of halves */
    bool is_early; /* whoever asks gets one family now */
    unsigned due;  /* lookups that will read it */
    TAILQ_HEAD(entry_lookups, resolver_lookup) lookups;
    TAILQ_ENTRY(host_entry) waiting; /* of the lane */
    TAILQ_ENTRY(host_entry) half;    /* of the resolver, oldest first */
    TAILQ_ENTRY(host_entry) kept, kept_all;
    char text[];
};

struct lane {
    uintptr_t key;
    struct tenant *tenant;
    void *entries; /* a tree, by name */
    size_t entry_count, kept_count, waiting_count;
    unsigned asking;
    TAILQ_HEAD(lane_waiting, host_entry) waiting;
    TAILQ_HEAD(lane_kept, host_entry) kept;
    TAILQ_ENTRY(lane) turn; /* of the tenant, while something waits */
};

struct tenant {
    const char *name;
    struct resolver *resolver;
    void *lanes; /* a tree, by key */
    size_t lane_count;
    unsigned asking;
    TAILQ_HEAD(tenant_turns, lane) turns;
    TAILQ_ENTRY(tenant) turn; /* of the resolver, while a lane waits */
    char text[];
};

struct resolver_lookup {
    struct resolver *resolver;
    struct host_entry *entry; /* NULL: there was no room for one */
    bool is_due, has_failed;
    uint64_t begun_ms;
    resolver_done done;
    void *arg;
    TAILQ_ENTRY(resolver_lookup) link; /* of the entry, or due */
    TAILQ_ENTRY(resolver_lookup) all;  /* oldest first, while it is not due */
};

struct resolver {
    uv_loop_t *loop;
    struct upstream *upstream;
    void *tenants; /* a tree, by name */
    TAILQ_HEAD(resolver_turns, tenant) turns;
    unsigned asking;
    size_t kept_count;
    TAILQ_HEAD(resolver_halves, host_entry) halves;
    TAILQ_HEAD(resolver_kept, host_entry) kept;
    TAILQ_HEAD(lookup_list, resolver_lookup) all, due;
    uv_timer_t tick, soon;
    bool is_starting, is_closing;
    unsigned handles;
    void (*closed)(void *arg);
    void *arg;
};

static void start_some(struct resolver *resolver);
static void entry_over(struct upstream_ask *ask);
static void entry_let_go(struct resolver *resolver, struct host_entry *entry);
static void lookup_free(struct resolver *resolver, struct resolver_lookup *lookup);
static void on_soon(uv_timer_t *timer);
static void on_tick(uv_timer_t *timer);

/* ---- tenants, lanes, entries ---- */

/* What lies in a tree begins with its key, so that a pointer to a key alone finds it. */
static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_keys(const void *a, const void *b)
{
    uintptr_t one = *(const uintptr_t *)a, other = *(const uintptr_t *)b;

    return one < other ? -1 : one > other;
}

/* A new item in a tree that has none of its key; NULL where `item` is, or there is no memory: it is freed. */
static void *tree_put(void **tree, void *item, int (*compare)(const void *, const void *))
{
    if (item != NULL && tsearch(item, tree, compare) != NULL)
        return item;
    free(item);
    return NULL;
}

static struct tenant *tenant_get(struct resolver *resolver, const char *name)
{
    struct tenant **found = tfind(&name, &resolver->tenants, compare_names), *made;
    size_t size = strlen(name) + 1;

    if (found != NULL)
        return *found;
    made = calloc(1, sizeof(*made) + size);
    if (made == NULL)
        return NULL;
    made->name = memcpy(made->text, name, size);
    made->resolver = resolver;
    TAILQ_INIT(&made->turns);
    return tree_put(&resolver->tenants, made, compare_names);
}

static void tenant_let_go(struct resolver *resolver, struct tenant *tenant)
{
    if (tenant->lane_count > 0)
        return;
    (void)tdelete(tenant, &resolver->tenants, compare_names);
    free(tenant);
}

static struct lane *lane_get(struct resolver *resolver, const char *name, const void *key)
{
    const uintptr_t wanted = (uintptr_t)key;
    struct tenant *tenant = tenant_get(resolver, name);
    struct lane **found = tenant == NULL ? NULL : tfind(&wanted, &tenant->lanes, compare_keys);
    struct lane *made;

    if (tenant == NULL || found != NULL)
        return found == NULL ? NULL : *found;
    made = calloc(1, sizeof(*made));
    if (made != NULL) {
        made->key = wanted;
        made->tenant = tenant;
        TAILQ_INIT(&made->waiting);
        TAILQ_INIT(&made->kept);
    }
    made = tree_put(&tenant->lanes, made, compare_keys);
    if (made != NULL)
        tenant->lane_count++;
    else
        tenant_let_go(resolver, tenant);
    return made;
}

static void lane_let_go(struct resolver *resolver, struct lane *lane)
{
    struct tenant *tenant = lane->tenant;

    if (lane->entry_count > 0)
        return;
    (void)tdelete(lane, &tenant->lanes, compare_keys);
    tenant->lane_count--;
    free(lane);
    tenant_let_go(resolver, tenant);
}

/* Waits for its turn. */
static void queue(struct resolver *resolver, struct host_entry *entry)
{
    struct lane *lane = entry->lane;
    struct tenant *tenant = lane->tenant;

    entry->state = ENTRY_WAITING;
    if (TAILQ_EMPTY(&tenant->turns))
        TAILQ_INSERT_TAIL(&resolver->turns, tenant, turn);
    if (lane->waiting_count++ == 0)
        TAILQ_INSERT_TAIL(&tenant->turns, lane, turn);
    TAILQ_INSERT_TAIL(&lane->waiting, entry, waiting);
}

static void unqueue(struct resolver *resolver, struct host_entry *entry)
{
    struct lane *lane = entry->lane;
    struct tenant *tenant = lane->tenant;

    TAILQ_REMOVE(&lane->waiting, entry, waiting);
    if (--lane->waiting_count == 0)
        TAILQ_REMOVE(&tenant->turns, lane, turn);
    if (TAILQ_EMPTY(&tenant->turns))
        TAILQ_REMOVE(&resolver->turns, tenant, turn);
}

static void unkeep(struct resolver *resolver, struct host_entry *entry)
{
    TAILQ_REMOVE(&entry->lane->kept, entry, kept);
    TAILQ_REMOVE(&resolver->kept, entry, kept_all);
    entry->lane->kept_count--;
    resolver->kept_count--;
}

/* Neither asked for nor waited for nor about to be read. */
static void entry_free(struct resolver *resolver, struct host_entry *entry)
{
    struct lane *lane = entry->lane;

    if (entry->state == ENTRY_KEPT)
        unkeep(resolver, entry);
    else if (entry->state == ENTRY_WAITING)
        unqueue(resolver, entry);
    (void)tdelete(entry, &lane->entries, compare_names);
    lane->entry_count--;
    free(entry);
    lane_let_go(resolver, lane);
}

static struct host_entry *entry_find(const struct lane *lane, const char *name)
{
    struct host_entry **found = tfind(&name, &lane->entries, compare_names);

    return found == NULL ? NULL : *found;
}

/* NULL: no memory. It waits for its turn. */
static struct host_entry *entry_new(struct resolver *resolver, struct lane *lane, const char *name)
{
    size_t size = strlen(name) + 1;
    struct host_entry *entry = calloc(1, sizeof(*entry) + size);

    if (entry == NULL)
        return NULL;
    entry->name = memcpy(entry->text, name, size);
    entry->lane = lane;
    entry->ask.over = entry_over;
    TAILQ_INIT(&entry->lookups);
    if (tree_put(&lane->entries, entry, compare_names) == NULL)
        return NULL;
    lane->entry_count++;
    queue(resolver, entry);
    return entry;
}

/* ---- what is due ---- */

static void now_due(struct resolver *resolver, struct resolver_lookup *lookup)
{
    lookup->is_due = true;
    TAILQ_REMOVE(&resolver->all, lookup, all);
    TAILQ_INSERT_TAIL(&resolver->due, lookup, link);
    (void)uv_timer_start(&resolver->soon, on_soon, 0, 0);
}

/* The lookup reads the entry's result, or fails (`has_failed`) and does not need it. */
static void due_of(struct resolver *resolver, struct resolver_lookup *lookup, bool has_failed)
{
    struct host_entry *entry = lookup->entry;

    TAILQ_REMOVE(&entry->lookups, lookup, link);
    lookup->has_failed = has_failed;
    if (has_failed)
        lookup->entry = NULL;
    else
        entry->due++;
    now_due(resolver, lookup);
}

static void all_due(struct resolver *resolver, struct host_entry *entry)
{
    while (!TAILQ_EMPTY(&entry->lookups))
        due_of(resolver, TAILQ_FIRST(&entry->lookups), false);
}

/* What is the case of both families, one behind the other in turns, IPv6 first. */
static enum dns_code merge(const struct upstream_ask *ask, struct policy_address *out,
                           size_t *count, uint32_t *ttl_s)
{
    const struct upstream_half *a = &ask->halves[0], *aaaa = &ask->halves[1];

    *count = 0;
    *ttl_s = KEEP_S;
    for (size_t i = 0; i < RESOLVED_MAX && *count < RESOLVED_MAX; i++) {
        if (aaaa->is_over && i < aaaa->count)
            out[(*count)++] = aaaa->addresses[i];
        if (a->is_over && i < a->count && *count < RESOLVED_MAX)
            out[(*count)++] = a->addresses[i];
    }
    for (size_t i = 0; i < 2; i++)
        if (ask->halves[i].count > 0 && ask->halves[i].ttl_s < *ttl_s)
            *ttl_s = ask->halves[i].ttl_s;
    if (*count > 0)
        return DNS_OK;
    *ttl_s = KEEP_FAILED_S;
    if (a->code == DNS_NO_NAME || aaaa->code == DNS_NO_NAME)
        return DNS_NO_NAME;
    return a->code == DNS_OK && aaaa->code == DNS_OK ? DNS_OK : DNS_FAILED;
}

/* Answers one that is due; what it was is freed before, so that it may do anything. */
static void give_out(struct resolver *resolver, struct resolver_lookup *lookup)
{
    struct policy_address addresses[RESOLVED_MAX];
    struct resolver_lookup gone = *lookup;
    enum dns_code code = DNS_FAILED;
    uint32_t ttl_s = KEEP_FAILED_S;
    size_t count = 0;

    if (!gone.has_failed)
        code = merge(&gone.entry->ask, addresses, &count, &ttl_s);
    lookup_free(resolver, lookup);
    gone.done(gone.arg, addresses, count, ttl_s, code);
}

static void on_soon(uv_timer_t *timer)
{
    struct resolver *resolver = timer->data;

    for (unsigned i = 0; i < DUE_MAX && !resolver->is_closing && !TAILQ_EMPTY(&resolver->due); i++)
        give_out(resolver, TAILQ_FIRST(&resolver->due));
    if (!resolver->is_closing && !TAILQ_EMPTY(&resolver->due))
        (void)uv_timer_start(&resolver->soon, on_soon, 0, 0);
}

/* Takes the lookup out of everything; its entry, too, if that was for it alone. */
static void lookup_free(struct resolver *resolver, struct resolver_lookup *lookup)
{
    struct host_entry *entry = lookup->entry;

    if (lookup->is_due) {
        TAILQ_REMOVE(&resolver->due, lookup, link);
        if (entry != NULL)
            entry->due--;
    } else {
        TAILQ_REMOVE(&resolver->all, lookup, all);
        TAILQ_REMOVE(&entry->lookups, lookup, link);
    }
    free(lookup);
    if (entry != NULL)
        entry_let_go(resolver, entry);
}

/* Frees what nobody needs: one that waits for its turn on nobody's behalf, one whose time is over. */
static void entry_let_go(struct resolver *resolver, struct host_entry *entry)
{
    if (entry->due > 0 || !TAILQ_EMPTY(&entry->lookups) || entry->state == ENTRY_ASKING)
        return;
    if (entry->state == ENTRY_WAITING || entry->until_ms <= uv_now(resolver->loop))
        entry_free(resolver, entry);
}

/* ---- keeping ---- */

/* The oldest that is about to be read stays: then there is one more for a moment. */
static void make_room(struct resolver *resolver, struct lane *lane)
{
    struct host_entry *oldest = TAILQ_FIRST(&lane->kept);

    if (lane->kept_count >= LANE_KEPT_MAX && oldest->due == 0)
        entry_free(resolver, oldest);
    oldest = TAILQ_FIRST(&resolver->kept);
    if (resolver->kept_count >= KEPT_MAX && oldest->due == 0)
        entry_free(resolver, oldest);
}

static void keep(struct resolver *resolver, struct host_entry *entry)
{
    struct policy_address addresses[RESOLVED_MAX];
    uint32_t ttl_s;
    size_t count;

    (void)merge(&entry->ask, addresses, &count, &ttl_s);
    make_room(resolver, entry->lane);
    entry->state = ENTRY_KEPT;
    entry->kept_ms = uv_now(resolver->loop);
    entry->until_ms = entry->kept_ms + ttl_s * 1000ULL;
    TAILQ_INSERT_TAIL(&entry->lane->kept, entry, kept);
    TAILQ_INSERT_TAIL(&resolver->kept, entry, kept_all);
    entry->lane->kept_count++;
    resolver->kept_count++;
}

/* A few of those that can be of no use any more; all are looked at before long. */
static void drop_old(struct resolver *resolver)
{
    uint64_t now = uv_now(resolver->loop);

    for (unsigned i = 0; i < 8 && !TAILQ_EMPTY(&resolver->kept); i++) {
        struct host_entry *oldest = TAILQ_FIRST(&resolver->kept);

        if (oldest->due > 0 || oldest->kept_ms + KEEP_S * 1000ULL > now)
            return;
        entry_free(resolver, oldest);
    }
}

/* ---- asking ---- */

static void no_half(struct resolver *resolver, struct host_entry *entry)
{
    if (entry->is_half)
        TAILQ_REMOVE(&resolver->halves, entry, half);
    entry->is_half = entry->is_early = false;
}

static void entry_done(struct resolver *resolver, struct host_entry *entry)
{
    struct lane *lane = entry->lane;

    no_half(resolver, entry);
    lane->asking--;
    lane->tenant->asking--;
    resolver->asking--;
    all_due(resolver, entry);
    keep(resolver, entry);
    entry_let_go(resolver, entry);
    start_some(resolver);
}

/* One half is over, or both are. */
static void entry_over(struct upstream_ask *ask)
{
    struct host_entry *entry = (struct host_entry *)((char *)ask -
                                                     offsetof(struct host_entry, ask));
    struct resolver *resolver = entry->lane->tenant->resolver;

    if (resolver->is_closing)
        return;
    if (ask->pending == 0) {
        entry_done(resolver, entry);
        return;
    }
    if (ask->halves[0].count + ask->halves[1].count == 0)
        return;
    entry->is_half = true;
    entry->half_ms = uv_now(resolver->loop);
    TAILQ_INSERT_TAIL(&resolver->halves, entry, half);
}

static void start(struct resolver *resolver, struct host_entry *entry)
{
    struct lane *lane = entry->lane;

    unqueue(resolver, entry);
    entry->state = ENTRY_ASKING;
    lane->asking++;
    lane->tenant->asking++;
    resolver->asking++;
    if (!uv_is_active((uv_handle_t *)&resolver->tick))
        (void)uv_timer_start(&resolver->tick, on_tick, UPSTREAM_TICK_MS, UPSTREAM_TICK_MS);
    upstream_ask(resolver->upstream, entry->name, &entry->ask);
}

static bool may_start(const struct resolver *resolver, const struct lane *lane)
{
    return lane->asking < LANE_OWN ||
           (lane->asking < LANE_MAX && lane->tenant->asking < TENANT_MAX &&
            resolver->asking < ALL_MAX);
}

/* The next lane of this tenant whose turn it is, which then is its last; NULL: none may. */
static struct lane *next_lane(const struct resolver *resolver, struct tenant *tenant)
{
    for (struct lane *lane = TAILQ_FIRST(&tenant->turns); lane != NULL;
         lane = TAILQ_NEXT(lane, turn)) {
        if (!may_start(resolver, lane))
            continue;
        TAILQ_REMOVE(&tenant->turns, lane, turn);
        TAILQ_INSERT_TAIL(&tenant->turns, lane, turn);
        return lane;
    }
    return NULL;
}

/* One name of the next tenant whose turn it is. */
static bool start_one(struct resolver *resolver)
{
    for (struct tenant *tenant = TAILQ_FIRST(&resolver->turns); tenant != NULL;
         tenant = TAILQ_NEXT(tenant, turn)) {
        struct lane *lane = next_lane(resolver, tenant);

        if (lane == NULL)
            continue;
        TAILQ_REMOVE(&resolver->turns, tenant, turn);
        TAILQ_INSERT_TAIL(&resolver->turns, tenant, turn);
        start(resolver, TAILQ_FIRST(&lane->waiting));
        return true;
    }
    return false;
}

/* A name may be answered while it is asked for: then the one loop that runs goes on. */
static void start_some(struct resolver *resolver)
{
    if (resolver->is_starting)
        return;
    resolver->is_starting = true;
    while (start_one(resolver))
        ;
    resolver->is_starting = false;
}

/* ---- time ---- */

static void on_tick(uv_timer_t *timer)
{
    struct resolver *resolver = timer->data;
    uint64_t now = uv_now(resolver->loop);
    struct host_entry *entry;

    while ((entry = TAILQ_FIRST(&resolver->halves)) != NULL &&
           entry->half_ms + OTHER_FAMILY_MS <= now) {
        no_half(resolver, entry);
        entry->is_early = true;
        all_due(resolver, entry);
    }
    while (!TAILQ_EMPTY(&resolver->all)) {
        struct resolver_lookup *lookup = TAILQ_FIRST(&resolver->all);

        entry = lookup->entry;
        if (lookup->begun_ms + GIVE_UP_MS > now)
            break;
        due_of(resolver, lookup, true);
        entry_let_go(resolver, entry);
    }
    upstream_tick(resolver->upstream);
    drop_old(resolver);
    if (resolver->asking == 0 && TAILQ_EMPTY(&resolver->all))
        (void)uv_timer_stop(timer);
}

/* ---- what the room sees ---- */

/* The entry that will answer; NULL: there is no room, or no memory. */
static struct host_entry *entry_for(struct resolver *resolver, const char *tenant, const void *key,
                                    const char *name)
{
    struct lane *lane = lane_get(resolver, tenant, key);
    struct host_entry *entry;

    if (lane == NULL)
        return NULL;
    entry = entry_find(lane, name);
    /* One that is about to be read is good for another who asks at the same moment. */
    if (entry != NULL &&
        (entry->state != ENTRY_KEPT || entry->due > 0 || entry->until_ms > uv_now(resolver->loop)))
        return entry;
    if (lane->waiting_count >= LANE_WAITING_MAX)
        entry = NULL;
    else if (entry == NULL)
        entry = entry_new(resolver, lane, name);
    else {
        unkeep(resolver, entry);
        queue(resolver, entry);
    }
    if (entry == NULL)
        lane_let_go(resolver, lane);
    return entry;
}

struct resolver_lookup *resolver_look(struct resolver *resolver, const char *tenant,
                                      const void *lane, const char *name, resolver_done done,
                                      void *arg)
{
    struct resolver_lookup *lookup = calloc(1, sizeof(*lookup));

    drop_old(resolver);
    if (lookup == NULL) {
        done(arg, NULL, 0, KEEP_FAILED_S, DNS_FAILED);
        return NULL;
    }
    lookup->resolver = resolver;
    lookup->done = done;
    lookup->arg = arg;
    lookup->begun_ms = uv_now(resolver->loop);
    TAILQ_INSERT_TAIL(&resolver->all, lookup, all);
    lookup->entry = entry_for(resolver, tenant, lane, name);
    if (lookup->entry == NULL) {
        lookup->has_failed = true;
        now_due(resolver, lookup);
        return lookup;
    }
    TAILQ_INSERT_TAIL(&lookup->entry->lookups, lookup, link);
    if (lookup->entry->state == ENTRY_KEPT || lookup->entry->is_early)
        due_of(resolver, lookup, false);
    else
        start_some(resolver);
    return lookup;
}

void resolver_cancel(struct resolver_lookup *lookup)
{
    lookup_free(lookup->resolver, lookup);
}

int resolver_open(uv_loop_t *loop, const char *servers, struct resolver **out, struct error *err)
{
    struct resolver *resolver = calloc(1, sizeof(*resolver));

    if (resolver == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot prepare to ask for names");
    if (upstream_open(loop, servers, &resolver->upstream, err) < 0) {
        free(resolver);
        return -1;
    }
    resolver->loop = loop;
    TAILQ_INIT(&resolver->turns);
    TAILQ_INIT(&resolver->halves);
    TAILQ_INIT(&resolver->kept);
    TAILQ_INIT(&resolver->all);
    TAILQ_INIT(&resolver->due);
    (void)uv_timer_init(loop, &resolver->tick);
    (void)uv_timer_init(loop, &resolver->soon);
    resolver->tick.data = resolver->soon.data = resolver;
    resolver->handles = 3;
    *out = resolver;
    return 0;
}

/* ---- the end ---- */

static void release(struct resolver *resolver)
{
    if (--resolver->handles > 0)
        return;
    resolver->closed(resolver->arg);
    free(resolver);
}

static void on_timer_closed(uv_handle_t *handle)
{
    release(handle->data);
}

static void on_upstream_closed(void *arg)
{
    release(arg);
}

static void free_entry(void *item)
{
    free(item);
}

static void free_lane(void *item)
{
    struct lane *lane = item;

    tdestroy(lane->entries, free_entry);
    free(lane);
}

static void free_tenant(void *item)
{
    struct tenant *tenant = item;

    tdestroy(tenant->lanes, free_lane);
    free(tenant);
}

void resolver_close(struct resolver *resolver, void (*closed)(void *arg), void *arg)
{
    struct resolver_lookup *lookup;

    resolver->is_closing = true;
    resolver->closed = closed;
    resolver->arg = arg;
    uv_close((uv_handle_t *)&resolver->tick, on_timer_closed);
    uv_close((uv_handle_t *)&resolver->soon, on_timer_closed);
    upstream_close(resolver->upstream, on_upstream_closed, resolver);
    while ((lookup = TAILQ_FIRST(&resolver->all)) != NULL) {
        TAILQ_REMOVE(&resolver->all, lookup, all);
        free(lookup);
    }
    while ((lookup = TAILQ_FIRST(&resolver->due)) != NULL) {
        TAILQ_REMOVE(&resolver->due, lookup, link);
        free(lookup);
    }
    tdestroy(resolver->tenants, free_tenant);
    resolver->tenants = NULL;
}
