/* What is told and kept of what boxes do, where they do as much as they can: no tenant drowns another one, no
 * refusal hides what was carried, and nothing that a box does pushes out what happened to sandboxes. And what is written down of it has turns. */
#include "check.h"
#include "engine/parts.h"
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is told ---- */

struct told {
    unsigned network, ports, life;
    uint64_t left_out, last;
    bool is_ordered, is_over;
};

static bool hear(void *arg, const struct engine_event *event)
{
    struct told *told = arg;
    bool is_port = event != NULL && strncmp(event->type, "port.", 5) == 0;

    if (event == NULL)
        return false;
    told->network += event->traffic != NULL && !is_port;
    told->ports += is_port;
    told->life += event->traffic == NULL;
    told->left_out += event->traffic != NULL ? event->traffic->left_out : 0;
    told->is_ordered = event->sequence > told->last && (told->last == 0 || told->is_ordered);
    told->last = event->sequence;
    told->is_over |= strcmp(event->type, "test.over") == 0;
    return true;
}

static uint64_t until;

static bool heard_last(void *arg)
{
    return ((const struct told *)arg)->last >= until;
}

static bool is_over(void *arg)
{
    return ((const struct told *)arg)->is_over;
}

/* Until all is heard that the tenant was told by now. */
static void hear_all(struct rig *rig, const char *tenant, struct told *told)
{
    events_add(rig->engine, "test.over", tenant, "none", NULL, NULL);
    CHECK(rig_until(rig, is_over, told), "to the end: %u", (unsigned)told->last);
}

static void life(struct rig *rig, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        events_add(rig->engine, "test", "default", "none", NULL, NULL);
}

static struct sandbox *made_for(struct rig *rig, const struct engine_caller *caller)
{
    struct sandbox_spec spec = rig_spec(NULL);
    struct answer answer = {0};

    engine_create(rig->engine, caller, &spec, rig_created, &answer);
    CHECK(rig_done(rig, &answer), "made");
    return map_get(&rig->engine->ids, answer.id);
}

static void flood(struct sandbox *sandbox, enum event_share share, unsigned count)
{
    static const char *const types[SHARES] = {[SHARE_WENT] = "network.connected",
                                              [SHARE_REFUSED] = "network.denied",
                                              [SHARE_PORTS] = "port.opened"};
    const struct engine_event_traffic traffic = {.name = "a.example", .port = 443};

    for (unsigned i = 0; i < count; i++)
        shares_tell(sandbox, share, types[share], "test", &traffic);
}

static void check_no_tenant_silences_another(struct rig *rig)
{
    struct told loud = {0}, quiet = {0};
    struct engine_listener *listener, *other;
    struct sandbox *sandbox, *boxes[45];
    bool missed;

    sandbox = made_for(rig, &rig_other);
    for (unsigned i = 0; i < 45; i++)
        boxes[i] = made_for(rig, &rig_caller);
    listener = engine_listen(rig->engine, &rig_caller, 0, &missed, hear, &loud);
    other = engine_listen(rig->engine, &rig_other, 0, &missed, hear, &quiet);
    for (unsigned i = 0; i < 45; i++)
        for (enum event_share share = 0; share < SHARES; share++)
            flood(boxes[i], share, 100);
    for (enum event_share share = 0; share < SHARES; share++)
        flood(sandbox, share, 10);
    hear_all(rig, rig_other.tenant, &quiet);
    hear_all(rig, rig_caller.tenant, &loud);
    CHECK(quiet.network == 20 && quiet.ports == 10 && quiet.left_out == 0,
          "all of it is told: %u, %u", quiet.network, quiet.ports);
    CHECK(loud.network >= 400 && loud.network < 2000 && loud.ports >= 200 && loud.ports < 1000,
          "a tenant has its bounds: %u, %u", loud.network, loud.ports);
    engine_unlisten(listener);
    engine_unlisten(other);
}

static void check_no_kind_hides_another(struct rig *rig)
{
    struct told told = {0};
    struct engine_listener *listener;
    struct sandbox *sandbox;
    bool missed;

    sandbox = made_for(rig, &rig_caller);
    listener = engine_listen(rig->engine, &rig_caller, 0, &missed, hear, &told);
    flood(sandbox, SHARE_REFUSED, 1000);
    hear_all(rig, "default", &told);
    CHECK(told.network >= 50 && told.network < 1000, "not all of a flood: %u", told.network);
    told = (struct told){0};
    flood(sandbox, SHARE_WENT, 10);
    flood(sandbox, SHARE_PORTS, 10);
    hear_all(rig, "default", &told);
    CHECK(told.network == 10 && told.ports == 10 && told.left_out == 0,
          "what was carried is told: %u, %u", told.network, told.ports);
    told = (struct told){0};
    rig_pass(rig, 600);
    flood(sandbox, SHARE_REFUSED, 1);
    hear_all(rig, "default", &told);
    CHECK(told.network == 1 && told.left_out > 0 && told.left_out < 1000,
          "and how much was left out: %u", (unsigned)told.left_out);
    engine_unlisten(listener);
}

/* ---- the log ---- */

static struct net_record record_of(enum net_record_kind kind, bool allowed, const char *reason,
                                   const char *name)
{
    static uint64_t now = 1000;

    return (struct net_record){.kind = kind,
                               .time_ms = now++,
                               .name = name,
                               .port = kind == NET_LOOKUP ? 0 : 443,
                               .allowed = allowed,
                               .reason = reason,
                               .bytes_out = 7};
}

static void refused(struct network_log *log, const char *name)
{
    struct net_record record = record_of(NET_LOOKUP, false, "no_rule", name);

    network_log_add(log, &record);
}

static void went(struct network_log *log, const char *name)
{
    struct net_record record = record_of(NET_CONNECTION, true, "allowed", name);

    network_log_add(log, &record);
}

static void refused_many(struct network_log *log, unsigned from, unsigned count)
{
    char name[64];

    for (unsigned i = from; i < from + count; i++) {
        (void)snprintf(name, sizeof(name), "n%u.example", i);
        refused(log, name);
    }
}

struct seen {
    unsigned lines, went;
    uint64_t times, last_ms;
    char first[64], last[64];
    bool is_ordered;
};

static bool see(void *arg, const struct net_record *line, uint64_t times)
{
    struct seen *seen = arg;

    if (seen->lines++ == 0)
        (void)snprintf(seen->first, sizeof(seen->first), "%s", line->name);
    (void)snprintf(seen->last, sizeof(seen->last), "%s", line->name);
    seen->went += line->allowed;
    seen->times += times;
    seen->is_ordered = (seen->lines == 1 || seen->is_ordered) && line->time_ms > seen->last_ms;
    seen->last_ms = line->time_ms;
    return true;
}

static struct seen seen_of(const struct network_log *log, size_t limit)
{
    struct seen seen = {0};

    network_log_each(log, limit, see, &seen);
    return seen;
}

static void check_refusals_hide_nothing(void)
{
    struct log_room tenant, all;
    struct network_log log;
    struct net_record cut = record_of(NET_CONNECTION, true, "cut", "cut.example");
    struct net_record found = record_of(NET_LOOKUP, true, "allowed", "found.example");
    struct net_record failed = record_of(NET_LOOKUP, true, "no_such_name", "failed.example");
    struct net_record limited = record_of(NET_LOOKUP, false, "limit", "limited.example");
    struct seen seen;

    log_room_init(&tenant, 1000);
    log_room_init(&all, 1000);
    network_log_init(&log, &tenant, &all);
    went(&log, "first.example");
    network_log_add(&log, &found);
    network_log_add(&log, &cut);
    for (unsigned i = 0; i < 5000; i++) {
        refused(&log, "one.example");
        refused(&log, "other.example");
        network_log_add(&log, &failed);
    }
    seen = seen_of(&log, 256);
    CHECK(seen.lines == 6 && seen.times == 3 + 15000, "the same is one line: %u, %u", seen.lines,
          (unsigned)seen.times);
    refused_many(&log, 0, 5000);
    seen = seen_of(&log, 256);
    CHECK(seen.lines == 3 + 64 && seen.went == 3 && strcmp(seen.first, "first.example") == 0 &&
              strcmp(seen.last, "n4999.example") == 0,
          "refusals push out refusals: %u, %u, %s, %s", seen.lines, seen.went, seen.first,
          seen.last);
    CHECK(log.gone == 3 + 5000 - 64, "and that is counted: %u", (unsigned)log.gone);
    network_log_add(&log, &limited);
    refused_many(&log, 5000, 64);
    seen = seen_of(&log, 65);
    CHECK(seen.lines == 65 && strcmp(seen.first, "limited.example") == 0,
          "that it was too much stays: %s", seen.first);
    refused_many(&log, 4936, 64);
    refused(&log, "n4990.example");
    went(&log, "last.example");
    seen = seen_of(&log, 2);
    CHECK(seen.lines == 2 && strcmp(seen.first, "n4990.example") == 0 &&
              strcmp(seen.last, "last.example") == 0 && seen.times == 3 && seen.is_ordered,
          "the newest, in order: %s, %s", seen.first, seen.last);
    for (unsigned i = 0; i < 1000; i++)
        went(&log, "more.example");
    CHECK(network_log_count(&log) == 128 + 1 + 64 + 1, "%zu", network_log_count(&log));
    CHECK(tenant.count == 128 + 1 + 64 + 1 && all.count == tenant.count, "%zu", tenant.count);
    network_log_free(&log);
    CHECK(tenant.count == 0 && all.count == 0 && TAILQ_EMPTY(&tenant.large), "%zu", tenant.count);
}

#define LOGS 20U

/* Twenty logs where there is room for two; then those of another tenant. */
static void check_rooms(void)
{
    struct log_room one, other, all;
    struct network_log logs[LOGS], quiet;
    struct seen seen;
    size_t count = 0;

    log_room_init(&one, 400);
    log_room_init(&other, 400);
    log_room_init(&all, 500);
    for (unsigned i = 0; i < LOGS; i++) {
        network_log_init(&logs[i], &one, &all);
        for (unsigned j = 0; j < 200; j++)
            went(&logs[i], "a.example");
        refused_many(&logs[i], 0, 200);
    }
    for (unsigned i = 0; i < LOGS; i++)
        count += network_log_count(&logs[i]);
    CHECK(count == one.count && one.count <= 400, "%zu, %zu", count, one.count);
    CHECK(network_log_count(&logs[LOGS - 1]) == 400 - (LOGS - 1) * 12,
          "the newest has what the others need not: %zu", network_log_count(&logs[LOGS - 1]));
    seen = seen_of(&logs[0], 256);
    CHECK(seen.went == 8 && seen.lines == 8 + 4, "the oldest a few: %u, %u", seen.went, seen.lines);
    network_log_init(&quiet, &other, &all);
    for (unsigned i = 0; i < 128; i++)
        went(&quiet, "quiet.example");
    CHECK(network_log_count(&quiet) == 128 && all.count <= 500, "another tenant has room: %zu",
          network_log_count(&quiet));
    for (unsigned i = 0; i < 10; i++)
        for (unsigned j = 0; j < LOGS; j++)
            refused_many(&logs[j], 1000 * (i + 1), 100);
    CHECK(one.count <= 400 && all.count <= 500, "%zu, %zu", one.count, all.count);
    for (unsigned i = 0; i < LOGS; i++) {
        seen = seen_of(&logs[i], 256);
        CHECK(seen.went >= 8 && seen.lines >= 12, "log %u: %u, %u", i, seen.went, seen.lines);
        network_log_free(&logs[i]);
    }
    CHECK(one.count == 0 && all.count == network_log_count(&quiet), "%zu", one.count);
    /* Where nobody else can give up anything. */
    log_room_init(&one, 20);
    network_log_init(&logs[0], &one, &all);
    for (unsigned i = 0; i < 100; i++)
        went(&logs[0], "a.example");
    refused_many(&logs[0], 0, 100);
    seen = seen_of(&logs[0], 256);
    CHECK(seen.went >= 16 && seen.lines - seen.went == 4, "its own refusals, not what went: %u, %u",
          seen.went, seen.lines);
    network_log_free(&logs[0]);
    network_log_free(&quiet);
}

/* ---- history ---- */

static bool has_begun(void *arg)
{
    return events_told(arg) > 0;
}

static bool is_written(void *arg)
{
    return !events_pending(arg);
}

static void traffic(struct rig *rig, unsigned count)
{
    const struct engine_event_traffic what = {.port = 443};

    for (unsigned i = 0; i < count; i++)
        events_add_traffic(rig->engine, "network.denied", "default", "none", "no_rule", &what);
}

/* All from `from` on, by one who may hear as much as `caller`. */
static void heard_from(struct rig *rig, const struct engine_caller *caller, uint64_t from,
                       struct told *told, bool *missed, bool *missed_traffic)
{
    struct engine_listener *listener;

    *told = (struct told){0};
    listener = engine_listen(rig->engine, caller, from, missed, hear, told);
    *missed_traffic = engine_listener_missed_traffic(listener);
    CHECK(rig_until(rig, heard_last, told), "to the end: %u of %u", (unsigned)told->last,
          (unsigned)until);
    engine_unlisten(listener);
}

static void check_boxes_push_out_no_lives(struct rig *rig)
{
    static const struct engine_caller operator= {
        .tenant = "default", .key_id = "socket", .scopes = ENGINE_ALL};
    struct told told;
    bool missed, missed_traffic;
    uint64_t first;

    CHECK(rig_until(rig, has_begun, rig->engine), "the first key is the first event");
    life(rig, 1);
    first = events_told(rig->engine);
    for (unsigned i = 0; i < 20; i++) {
        for (unsigned j = 0; j < 100; j++) { /* an entry each: that of all has 1,000 */
            traffic(rig, 3);
            events_flush(rig->engine);
        }
        life(rig, 1);
        (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
    }
    until = events_told(rig->engine);
    CHECK(rig_until(rig, is_written, rig->engine), "written");
    heard_from(rig, &rig_caller, first, &told, &missed, &missed_traffic);
    CHECK(!missed && told.life == 21 && told.is_ordered, "each life is known: %u", told.life);
    CHECK(missed_traffic && told.network >= 1000 && told.network < 6000,
          "not each connection, which is told: %u", told.network);
    heard_from(rig, &operator, first, &told, &missed, &missed_traffic);
    CHECK(!missed && missed_traffic && told.life >= 21 && told.is_ordered, "nor of all: %u",
          told.life);
    rig_close(rig);
    rig_open(rig);
    heard_from(rig, &rig_caller, first, &told, &missed, &missed_traffic);
    CHECK(!missed && missed_traffic && told.life == 21 && told.is_ordered, "by the next engine: %u",
          told.life);
}

/* The same in every run. */
static unsigned any(void)
{
    static uint32_t state = 1;

    state = state * 1664525U + 1013904223U;
    return state >> 8;
}

/* Wherever one resumes, what is in the store and in memory comes in the order in which it happened, once. */
static void check_order(struct rig *rig)
{
    struct told told;
    bool missed, missed_traffic;

    CHECK(rig_until(rig, has_begun, rig->engine), "the first key is the first event");
    for (unsigned i = 0; i < 300; i++) {
        life(rig, any() % (i < 150 ? 60 : 3));
        traffic(rig, any() % (i < 100 ? 3 : 90));
        if (any() % 20 == 0)
            events_flush(rig->engine);
    }
    until = events_told(rig->engine);
    for (unsigned i = 0; i < 40; i++) {
        uint64_t from = 1 + (uint64_t)any() % until;

        heard_from(rig, &rig_caller, from, &told, &missed, &missed_traffic);
        CHECK(!missed && !missed_traffic && told.is_ordered &&
                  told.life + told.network == until - from + 1,
              "from %u: %u of %u", (unsigned)from, told.life + told.network,
              (unsigned)(until - from + 1));
    }
    rig_close(rig);
    rig_open(rig);
    heard_from(rig, &rig_caller, 1, &told, &missed, &missed_traffic);
    CHECK(!missed && !missed_traffic && told.is_ordered && told.life + told.network == until,
          "after a restart: %u of %u", told.life + told.network, (unsigned)until);
}

/* A number is given once, also where the last that was written was of a box. */
static void check_numbers(struct rig *rig)
{
    struct told told = {0};
    struct engine_listener *listener;
    uint64_t last;
    bool missed;

    listener = engine_listen(rig->engine, &rig_caller, 0, &missed, hear, &told);
    traffic(rig, 10);
    hear_all(rig, "default", &told);
    last = told.last;
    engine_unlisten(listener);
    rig_close(rig);
    rig_open(rig);
    listener = engine_listen(rig->engine, &rig_caller, last + 1, &missed, hear, &told);
    CHECK(!missed && !engine_listener_missed_traffic(listener), "nothing is missed");
    traffic(rig, 1);
    until = last + 1;
    CHECK(rig_until(rig, heard_last, &told), "and what comes is heard");
    CHECK(told.network == 11 && told.is_ordered && told.last > last, "%u", told.network);
    engine_unlisten(listener);
}

/* ---- turns at the disk ---- */

#define SAVED 100U

static unsigned saved_all;

struct saved {
    struct save save; /* first */
    unsigned times;
    bool is_idle;
};

static bool save_it(struct save *one)
{
    struct saved *saved = (struct saved *)one;

    saved->times++;
    saved_all += !saved->is_idle;
    return !saved->is_idle;
}

static void check_saves(void)
{
    struct saved all[SAVED] = {0};
    struct saves saves;
    unsigned turns = 0, most = 0;
    bool are_left;

    saves_init(&saves);
    CHECK(!saves_turn(&saves, save_it), "nothing is left of none");
    for (unsigned i = 0; i < SAVED; i++) {
        saves_add(&saves, &all[i].save);
        saves_add(&saves, &all[i].save);
    }
    do {
        saved_all = 0;
        are_left = saves_turn(&saves, save_it);
        most = saved_all > most ? saved_all : most;
    } while (++turns < SAVED && are_left);
    CHECK(most == 32 && turns == 4, "a few in a turn: %u, in %u turns", most, turns);
    for (unsigned i = 0; i < SAVED; i++)
        CHECK(all[i].times == 1, "each once: %u", all[i].times);
    (void)saves_turn(&saves, save_it);
    for (unsigned i = 0; i < SAVED - 1; i++) {
        saves_remove(&saves, &all[i].save);
        saves_remove(&saves, &all[i].save);
    }
    CHECK(!saves_turn(&saves, save_it) && all[SAVED - 1].times == 2, "one is there: %u",
          all[SAVED - 1].times);
    saves_remove(&saves, &all[SAVED - 1].save);
    for (unsigned i = 0; i < SAVED; i++) {
        all[i].is_idle = i != SAVED - 1;
        saves_add(&saves, &all[i].save);
    }
    CHECK(!saves_turn(&saves, save_it) && all[SAVED - 1].times == 3,
          "what has nothing takes no turn");
}

/* ---- a sandbox that is paused ---- */

static void check_paused(struct rig *rig)
{
    struct sandbox_network none = {.mode = "none",
                                   .connections = UINT64_MAX,
                                   .lookups_per_second = UINT64_MAX,
                                   .bytes_per_second = UINT64_MAX,
                                   .bytes = UINT64_MAX};
    struct sandbox_change change = {
        .deadline_ms = UINT64_MAX, .idle_ms = UINT64_MAX, .then = -1, .network = &none};
    struct sandbox_spec spec = rig_spec("x");
    struct sandbox_traffic traffic_of;
    struct answer made, answer;
    struct sandbox *sandbox;
    struct error err;

    spec.network.mode = "public";
    CHECK(rig_done(rig, rig_create(rig, &spec, &made)), "%s", made.error.text);
    sandbox = map_get(&rig->engine->ids, made.id);
    sandbox->record->state = SANDBOX_PAUSED;
    CHECK(rig_done(rig, rig_change(rig, made.id, &change, &answer)), "changed");
    CHECK(engine_traffic(rig->engine, &rig_caller, made.id, &traffic_of, &err) == 0 &&
              !traffic_of.is_open,
          "nothing is carried any more");
    CHECK(!fake_box_of(&rig->fake, made.id)->is_open, "nor let in");
    sandbox->record->state = SANDBOX_RUNNING;
}

/* ---- turns ---- */

#define CROWD 40

/* Each of these takes longer than a round of telling, so in one turn of the loop one may be told. */
struct crowd {
    uv_check_t check;
    unsigned heard, now, most; /* in all; in this turn of the loop; and in any */
};

static void crowd_turned(uv_check_t *check)
{
    struct crowd *crowd = check->data;

    crowd->most = crowd->now > crowd->most ? crowd->now : crowd->most;
    crowd->now = 0;
}

static bool hear_slowly(void *arg, const struct engine_event *event)
{
    struct crowd *crowd = arg;
    uint64_t end = clock_monotonic_ns() + 2000000;

    if (event == NULL)
        return false;
    crowd->heard++;
    crowd->now++;
    while (clock_monotonic_ns() < end)
        ;
    return true;
}

static bool heard_by_all(void *arg)
{
    return ((const struct crowd *)arg)->heard >= CROWD;
}

static void check_listeners_take_turns(struct rig *rig)
{
    struct crowd crowd = {.heard = 0};
    struct told other = {0};
    struct engine_listener *crowded[CROWD], *alone;
    bool missed;

    (void)uv_check_init(&rig->loop, &crowd.check);
    crowd.check.data = &crowd;
    (void)uv_check_start(&crowd.check, crowd_turned);
    alone = engine_listen(rig->engine, &rig_other, 0, &missed, hear, &other);
    for (unsigned i = 0; i < CROWD; i++)
        crowded[i] = engine_listen(rig->engine, &rig_caller, 0, &missed, hear_slowly, &crowd);
    life(rig, 1);
    events_add(rig->engine, "test.over", rig_other.tenant, "none", NULL, NULL);
    CHECK(rig_until(rig, is_over, &other), "another tenant is told");
    CHECK(crowd.heard <= 2, "and waits for one or two of a crowd, not for %u", crowd.heard);
    CHECK(rig_until(rig, heard_by_all, &crowd), "each is told: %u", crowd.heard);
    CHECK(crowd.most == 1, "%u were told in one turn of the loop", crowd.most);
    for (unsigned i = 0; i < CROWD; i++)
        engine_unlisten(crowded[i]);
    engine_unlisten(alone);
    uv_close((uv_handle_t *)&crowd.check, NULL);
    (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
}

int main(void)
{
    rig_run(check_no_tenant_silences_another);
    rig_run(check_no_kind_hides_another);
    check_refusals_hide_nothing();
    check_rooms();
    rig_run(check_boxes_push_out_no_lives);
    rig_run(check_order);
    rig_run(check_numbers);
    rig_run(check_listeners_take_turns);
    check_saves();
    rig_run(check_paused);
    return check_finish();
}
