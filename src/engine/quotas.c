/* What a tenant may have, and how often it may ask. A quota that nobody set is no limit.
 *
 * What is used is counted when somebody asks, over all sandboxes: a count that is kept beside them
 * would one day be wrong. */
#include "engine/parts.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct account {
    struct account *next;
    char tenant[64];
    struct engine_quota quota;
    struct rate requests;
};

struct quotas {
    struct map accounts;
    struct account *all;
};

struct quotas *quotas_new(void)
{
    return engine_alloc(sizeof(struct quotas));
}

void quotas_free(struct quotas *quotas)
{
    for (struct account *account = quotas->all, *next; account != NULL; account = next) {
        next = account->next;
        free(account);
    }
    map_free(&quotas->accounts);
    free(quotas);
}

static void quota_keep(struct quotas *quotas, const char *tenant, const struct engine_quota *quota)
{
    struct account *account = map_get(&quotas->accounts, tenant);

    if (account == NULL) {
        account = engine_alloc(sizeof(*account));
        (void)snprintf(account->tenant, sizeof(account->tenant), "%s", tenant);
        account->next = quotas->all;
        quotas->all = account;
        map_put(&quotas->accounts, account->tenant, account);
    }
    account->quota = *quota;
    account->requests = (struct rate){0};
}

/* ---- text ---- */

static uint64_t number_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

void quotas_load(struct engine *engine, const struct store_value *value)
{
    json_t *object = json_loadb(value->data, value->size, JSON_REJECT_DUPLICATES, NULL);
    const char *tenant = value->key + strlen("quota/");
    struct engine_quota quota = {
        .sandboxes = number_of(object, "sandboxes"),
        .cpu_milli = number_of(object, "cpu_milli"),
        .memory_bytes = number_of(object, "memory_bytes"),
        .disk_bytes = number_of(object, "disk_bytes"),
        .ports = number_of(object, "ports"),
        .pids = number_of(object, "pids"),
    };
    uint64_t rate = number_of(object, "requests_per_second");
    struct error err;

    quota.requests_per_second = rate > UINT32_MAX ? UINT32_MAX : (uint32_t)rate;
    if (!json_is_object(object) || tenant_name_check(tenant, &err) != 0) {
        log_say(LOG_LEVEL_ERROR, "bad_record",
                "a quota cannot be read, and its tenant may make nothing until it is set anew: %s",
                log_quote(value->key).text);
        quota = (struct engine_quota){1, 1, 1, 1, 1, 1, 1};
    }
    if (strlen(tenant) < 64)
        quota_keep(engine_quotas(engine), tenant, &quota);
    json_decref(object);
}

static json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

static char *quota_format(const struct engine_quota *quota)
{
    json_t *object = json_pack("{so,so,so,so,so,so,so}", "sandboxes", number(quota->sandboxes),
                               "cpu_milli", number(quota->cpu_milli), "memory_bytes",
                               number(quota->memory_bytes), "disk_bytes", number(quota->disk_bytes),
                               "ports", number(quota->ports), "pids", number(quota->pids),
                               "requests_per_second", number(quota->requests_per_second));
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;

    json_decref(object);
    if (text == NULL)
        abort();
    return text;
}

/* ---- what is used ---- */

static uint64_t cpu_of(const struct engine *engine, const struct record *record)
{
    return record->limits.cpu_milli > 0 ? record->limits.cpu_milli : engine->host.cpus * 1000ULL;
}

/* Of memory and processors, what has a box or is about to, also one that is being ended; of disks, all
 * there are. */
static bool uses_box(const struct sandbox *sandbox)
{
    return sandbox->box != 0 || sandbox->record->state == SANDBOX_CREATING ||
           sandbox->step == STEP_MAKE;
}

/* Also those that its record is about to have. */
static uint64_t declared_ports(const struct sandbox *sandbox)
{
    const struct record *record = sandbox->record, *next = sandbox->next;

    return next != NULL && next->ports_count > record->ports_count ? next->ports_count
                                                                   : record->ports_count;
}

static void used_by(struct engine *engine, const char *tenant, struct engine_quota *used)
{
    *used = (struct engine_quota){0};
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL;
         sandbox = sandbox->newer) {
        const struct record *record = sandbox->record;

        if (strcmp(record->tenant, tenant) != 0)
            continue;
        if (record->state != SANDBOX_DELETED) {
            used->sandboxes++;
            used->disk_bytes += record->limits.disk_bytes;
            used->ports += declared_ports(sandbox);
        }
        if (!uses_box(sandbox))
            continue;
        used->memory_bytes += record->limits.memory_bytes;
        used->cpu_milli += cpu_of(engine, record);
        used->pids += record->limits.pids;
    }
    used->memory_bytes += kernels_memory_of(engine, tenant);
    used->cpu_milli += kernels_cpu_of(engine, tenant);
}

#define AMOUNT_MAX 24

/* A number as people read it: of bytes "2G", where no rest is left. */
static const char *amount(uint64_t number, bool is_bytes, char text[AMOUNT_MAX])
{
    static const char *const units[] = {"", "K", "M", "G", "T", "P"};
    size_t unit = 0;

    for (; is_bytes && number >= 1024 && number % 1024 == 0 &&
           unit + 1 < sizeof(units) / sizeof(*units);
         unit++)
        number /= 1024;
    (void)snprintf(text, AMOUNT_MAX, "%llu%s", (unsigned long long)number, units[unit]);
    return text;
}

static int within(const char *what, const char *tenant, uint64_t used, uint64_t more,
                  uint64_t quota, struct error *err)
{
    bool is_bytes = strncmp(what, "bytes ", 6) == 0;
    char most[AMOUNT_MAX], has[AMOUNT_MAX], asks[AMOUNT_MAX];

    if (quota == 0 || (more <= quota && used <= quota - more))
        return 0;
    return error_set(err, "quota", 0,
                     "tenant '%s' may have %s %s, has %s and asks for %s more; stop or delete "
                     "sandboxes, or ask the operator",
                     tenant, amount(quota, is_bytes, most), what, amount(used, is_bytes, has),
                     amount(more, is_bytes, asks));
}

int quota_check_ports(struct engine *engine, const char *tenant, uint64_t more, struct error *err)
{
    const struct account *account = map_get(&engine_quotas(engine)->accounts, tenant);
    uint64_t most = engine->options.ports;
    struct engine_quota used;

    if (account != NULL && account->quota.ports > 0)
        most = account->quota.ports;
    if (most == 0 || more == 0)
        return 0;
    used_by(engine, tenant, &used);
    return within("ports of this host", tenant, used.ports, more, most, err);
}

int quota_check(struct engine *engine, const struct record *record, bool is_new, struct error *err)
{
    const struct account *account = map_get(&engine_quotas(engine)->accounts, record->tenant);
    const struct engine_quota *quota = account != NULL ? &account->quota : NULL;
    struct engine_quota used;

    if (is_new && quota_check_ports(engine, record->tenant, record->ports_count, err) != 0)
        return -1;
    if (quota == NULL)
        return 0;
    used_by(engine, record->tenant, &used);
    if (is_new &&
        (within("sandboxes", record->tenant, used.sandboxes, 1, quota->sandboxes, err) != 0 ||
         within("bytes of disk", record->tenant, used.disk_bytes, record->limits.disk_bytes,
                quota->disk_bytes, err) != 0))
        return -1;
    if (within("bytes of memory", record->tenant, used.memory_bytes, record->limits.memory_bytes,
               quota->memory_bytes, err) != 0 ||
        within("processes", record->tenant, used.pids, record->limits.pids, quota->pids, err) != 0)
        return -1;
    return within("thousandths of a processor", record->tenant, used.cpu_milli,
                  cpu_of(engine, record), quota->cpu_milli, err);
}

uint64_t quota_cpu(struct engine *engine, const char *tenant)
{
    const struct account *account = map_get(&engine_quotas(engine)->accounts, tenant);

    return account != NULL ? account->quota.cpu_milli : 0;
}

uint64_t quota_disk(struct engine *engine, const char *tenant)
{
    const struct account *account = map_get(&engine_quotas(engine)->accounts, tenant);

    return account != NULL ? account->quota.disk_bytes : 0;
}

int quota_check_worker(struct engine *engine, const char *tenant, uint64_t memory_bytes,
                       uint64_t cpu_milli, struct error *err)
{
    const struct account *account = map_get(&engine_quotas(engine)->accounts, tenant);
    struct engine_quota used;

    if (account == NULL)
        return 0;
    used_by(engine, tenant, &used);
    if (within("bytes of memory", tenant, used.memory_bytes, memory_bytes,
               account->quota.memory_bytes, err) != 0)
        return -1;
    return within("thousandths of a processor", tenant, used.cpu_milli, cpu_milli,
                  account->quota.cpu_milli, err);
}

/* ---- the verbs ---- */

struct quota_verb {
    struct engine *engine;
    char tenant[64];
    struct engine_quota quota;
    engine_done done;
    void *arg;
};

static void quota_committed(void *arg, uint64_t revision, const struct error *err)
{
    struct quota_verb *verb = arg;

    (void)revision;
    if (err == NULL) {
        quota_keep(engine_quotas(verb->engine), verb->tenant, &verb->quota);
        events_add(verb->engine, "quota.changed", verb->tenant, NULL, NULL, NULL);
    }
    verb->done(verb->arg, err);
    free(verb);
}

void engine_quota_set(struct engine *engine, const struct engine_caller *caller, const char *tenant,
                      const struct engine_quota *quota, engine_done done, void *arg)
{
    struct quota_verb *verb;
    char key[STORE_KEY_MAX], *text;
    struct error err;

    if (caller_may(caller, ENGINE_OPERATOR, &err) != 0 || engine_accepts(engine, &err) != 0 ||
        tenant_name_check(tenant, &err) != 0) {
        done(arg, &err);
        return;
    }
    verb = engine_alloc(sizeof(*verb));
    *verb = (struct quota_verb){.engine = engine, .quota = *quota, .done = done, .arg = arg};
    (void)snprintf(verb->tenant, sizeof(verb->tenant), "%s", tenant);
    (void)snprintf(key, sizeof(key), "quota/%s", tenant);
    text = quota_format(quota);
    store_put(engine->store, key, text, strlen(text), STORE_ANY, quota_committed, verb);
    free(text);
}

int engine_quota_get(struct engine *engine, const struct engine_caller *caller, const char *tenant,
                     struct engine_quota *quota, struct engine_quota *used, struct error *err)
{
    const struct account *account;
    bool own = strcmp(tenant, caller->tenant) == 0;

    if (caller_may(caller, own ? ENGINE_READ : ENGINE_OPERATOR, err) != 0 ||
        tenant_name_check(tenant, err) != 0)
        return -1;
    account = map_get(&engine_quotas(engine)->accounts, tenant);
    *quota = account != NULL ? account->quota : (struct engine_quota){0};
    used_by(engine, tenant, used);
    return 0;
}

/* At once there may be what a second brings. */
int engine_rate(struct engine *engine, const struct engine_caller *caller, unsigned *retry_ms,
                struct error *err)
{
    struct account *account = map_get(&engine_quotas(engine)->accounts, caller->tenant);
    uint64_t now = clock_monotonic_ns(), rate;

    engine->used_ns = now;
    *retry_ms = 0;
    if (account == NULL || account->quota.requests_per_second == 0)
        return 0;
    rate = account->quota.requests_per_second;
    if (rate_take(&account->requests, rate, rate, now))
        return 0;
    *retry_ms = (unsigned)((account->requests.at_ns + 1000000000 / rate - now) / 1000000 + 1);
    return error_set(err, "too_many_requests", 0,
                     "tenant '%s' may ask %u times a second; come back in %u ms", caller->tenant,
                     account->quota.requests_per_second, *retry_ms);
}
