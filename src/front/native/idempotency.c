/* Idempotency: see idempotency.h. A list per tenant in order of age, which is the order in which entries
 * run out too, and one hash table over all. Hash values are parts of a SHA-256 over the tenant and its
 * key, so nobody can aim at one bucket cheaply. */
#include "front/native/idempotency.h"

#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096

struct once_tenant {
    struct once_tenant *next;
    struct once *oldest, *newest;
    size_t entries, bytes;
    char name[64];
};

struct once {
    char id[SHA256_TEXT];   /* of tenant and key */
    char what[SHA256_TEXT]; /* of the request */
    struct once *in_bucket;
    struct once *older, *newer;
    struct once_tenant *tenant;
    struct once_waiter *waiters;
    uint64_t until_ms;
    bool is_running;
    struct once_answer answer;
    char *held; /* body and location of the answer */
};

struct once_table {
    struct once *buckets[BUCKETS];
    struct once_tenant *tenants;
};

struct once_table *once_table_new(void)
{
    return calloc(1, sizeof(struct once_table));
}

static struct once **bucket_of(struct once_table *table, const char *id)
{
    char digits[4] = {id[0], id[1], id[2], '\0'};

    return &table->buckets[strtoul(digits, NULL, 16) % BUCKETS];
}

static void entry_drop(struct once_table *table, struct once *once)
{
    struct once_tenant *tenant = once->tenant;
    struct once **at = bucket_of(table, once->id);

    while (*at != once)
        at = &(*at)->in_bucket;
    *at = once->in_bucket;
    *(once->older != NULL ? &once->older->newer : &tenant->oldest) = once->newer;
    *(once->newer != NULL ? &once->newer->older : &tenant->newest) = once->older;
    tenant->entries--;
    tenant->bytes -= once->answer.size;
    free(once->held);
    free(once);
}

void once_table_free(struct once_table *table)
{
    while (table != NULL && table->tenants != NULL) {
        struct once_tenant *tenant = table->tenants;

        while (tenant->oldest != NULL)
            entry_drop(table, tenant->oldest);
        table->tenants = tenant->next;
        free(tenant);
    }
    free(table);
}

bool once_key_is_good(const char *key)
{
    size_t length = strlen(key);

    for (size_t i = 0; i < length; i++)
        if (key[i] < 0x21 || key[i] > 0x7e)
            return false;
    return length >= 1 && length <= ONCE_KEY_MAX;
}

static struct once_tenant *tenant_of(struct once_table *table, const char *name)
{
    struct once_tenant *tenant = table->tenants;
    size_t length = strlen(name);

    while (tenant != NULL && strcmp(tenant->name, name) != 0)
        tenant = tenant->next;
    if (tenant != NULL || length >= sizeof(tenant->name))
        return tenant;
    tenant = calloc(1, sizeof(*tenant));
    if (tenant == NULL)
        return NULL;
    memcpy(tenant->name, name, length);
    tenant->next = table->tenants;
    table->tenants = tenant;
    return tenant;
}

/* What has run out, of every tenant; a tenant without entries goes too. */
static void sweep(struct once_table *table, uint64_t now_ms)
{
    struct once_tenant **at = &table->tenants;

    while (*at != NULL) {
        struct once_tenant *tenant = *at;

        while (tenant->oldest != NULL && !tenant->oldest->is_running &&
               tenant->oldest->until_ms <= now_ms)
            entry_drop(table, tenant->oldest);
        if (tenant->oldest == NULL) {
            *at = tenant->next;
            free(tenant);
        } else {
            at = &tenant->next;
        }
    }
}

/* Lets the oldest finished ones go until there is room for one more. */
static bool make_place(struct once_table *table, struct once_tenant *tenant)
{
    struct once *once = tenant->oldest;

    while (once != NULL && tenant->entries >= ONCE_ENTRIES_MAX) {
        struct once *newer = once->newer;

        if (!once->is_running)
            entry_drop(table, once);
        once = newer;
    }
    return tenant->entries < ONCE_ENTRIES_MAX;
}

static void answer_drop(struct once *once)
{
    once->tenant->bytes -= once->answer.size;
    once->answer = (struct once_answer){.status = once->answer.status, .was_too_large = true};
    free(once->held);
    once->held = NULL;
}

/* Of the oldest only the answers go: that they were done is still known, or it would be done twice. */
static bool make_room(struct once_tenant *tenant, size_t bytes)
{
    for (struct once *once = tenant->oldest; once != NULL && tenant->bytes + bytes > ONCE_BYTES_MAX;
         once = once->newer)
        if (!once->is_running && once->answer.size > 0)
            answer_drop(once);
    return tenant->bytes + bytes <= ONCE_BYTES_MAX;
}

static void hash_id(const char *tenant, const char *key, char text[SHA256_TEXT])
{
    struct sha256 hash;

    sha256_begin(&hash);
    sha256_add(&hash, tenant, strlen(tenant) + 1);
    sha256_add(&hash, key, strlen(key));
    sha256_end(&hash, text);
}

/* With lengths, so that no two splits of one text are the same. */
static void hash_what(const struct once_part *parts, size_t count, char text[SHA256_TEXT])
{
    struct sha256 hash;

    sha256_begin(&hash);
    for (size_t i = 0; i < count; i++) {
        uint64_t size = parts[i].size;

        sha256_add(&hash, &size, sizeof(size));
        if (size > 0)
            sha256_add(&hash, parts[i].data, parts[i].size);
    }
    sha256_end(&hash, text);
}

static struct once *entry_add(struct once_table *table, struct once_tenant *tenant,
                              const struct once *like)
{
    struct once *once = malloc(sizeof(*once));
    struct once **bucket = bucket_of(table, like->id);

    if (once == NULL)
        return NULL;
    *once = *like;
    once->tenant = tenant;
    once->is_running = true;
    once->in_bucket = *bucket;
    *bucket = once;
    once->older = tenant->newest;
    *(tenant->newest != NULL ? &tenant->newest->newer : &tenant->oldest) = once;
    tenant->newest = once;
    tenant->entries++;
    return once;
}

enum once_found once_begin(struct once_table *table, const char *tenant_name, const char *key,
                           const struct once_part *what, size_t parts, uint64_t now_ms,
                           struct once **out)
{
    struct once wanted = {.until_ms = now_ms + ONCE_KEEP_MS};
    struct once_tenant *tenant;
    struct once *once;

    sweep(table, now_ms);
    hash_id(tenant_name, key, wanted.id);
    hash_what(what, parts, wanted.what);
    for (once = *bucket_of(table, wanted.id); once != NULL; once = once->in_bucket) {
        if (strcmp(once->id, wanted.id) != 0)
            continue;
        *out = once;
        if (strcmp(once->what, wanted.what) != 0)
            return ONCE_OTHER;
        return once->is_running ? ONCE_RUNNING : ONCE_DONE;
    }
    tenant = tenant_of(table, tenant_name);
    if (tenant == NULL || !make_place(table, tenant))
        return ONCE_NO_MEMORY;
    *out = entry_add(table, tenant, &wanted);
    return *out != NULL ? ONCE_NEW : ONCE_NO_MEMORY;
}

const struct once_answer *once_answer(const struct once *once)
{
    return &once->answer;
}

bool once_wait(struct once *once, struct once_waiter *waiter)
{
    size_t count = 0;

    for (const struct once_waiter *at = once->waiters; at != NULL; at = at->next)
        count++;
    if (count == ONCE_WAITERS_MAX)
        return false;
    waiter->next = once->waiters;
    once->waiters = waiter;
    return true;
}

void once_leave(struct once *once, struct once_waiter *waiter)
{
    struct once_waiter **at = &once->waiters;

    while (*at != NULL && *at != waiter)
        at = &(*at)->next;
    if (*at != NULL)
        *at = waiter->next;
}

bool once_has_waiters(const struct once *once)
{
    return once->waiters != NULL;
}

/* Where there is no room for the answer, that there was one is still known: nothing is done twice. */
static void keep_answer(struct once *once, const struct once_answer *answer)
{
    size_t location = answer->location != NULL ? strlen(answer->location) + 1 : 0;

    once->is_running = false;
    once->answer = (struct once_answer){.status = answer->status, .was_too_large = true};
    if (answer->was_too_large || answer->size > ONCE_ANSWER_MAX)
        return;
    once->is_running = true; /* so that it does not make room for itself */
    if (make_room(once->tenant, answer->size))
        once->held = malloc(location + answer->size + 1);
    once->is_running = false;
    if (once->held == NULL)
        return;
    once->answer = *answer;
    if (location > 0)
        once->answer.location = memcpy(once->held, answer->location, location);
    if (answer->size > 0)
        memcpy(once->held + location, answer->body, answer->size);
    once->answer.body = once->held + location;
    once->tenant->bytes += answer->size;
}

void once_finish(struct once_table *table, struct once *once, const struct once_answer *answer)
{
    static const struct once_answer nothing = {.status = 0};
    const struct once_answer *told = answer != NULL ? answer : &nothing;
    struct once_waiter *waiters = once->waiters;

    once->waiters = NULL;
    if (told->status >= 200 && told->status < 300)
        keep_answer(once, told);
    else
        entry_drop(table, once);
    while (waiters != NULL) {
        struct once_waiter *waiter = waiters;

        waiters = waiter->next;
        waiter->done(waiter->arg, told);
    }
}
