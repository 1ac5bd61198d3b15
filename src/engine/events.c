/* What happened, in order: the newest in memory, and some thousands in the store, so that who was cut off
 * can go on where he was.
 *
 * Each tenant has a history of its own, so that nobody pushes another's out; and there is one of all, for
 * operators. Numbers are the same in both. Events are told at once and written down a moment later, many
 * in one entry of a stream: two for each command would cost more than the command. A number is never given
 * twice: after a restart the count goes on far above what was told last. Who asks for what lies between is
 * told of a gap, unless the engine before us ended well and had told no more. */
#include "engine/event_traffic.h"
#include "engine/parts.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_LEAST 64U
#define RING_MOST 1024U /* of a tenant */
#define RING_OF_ALL 4096U
#define HISTORIES_MOST 256U /* in memory; of the others all is in the store */
#define BATCH 64U /* in an entry: a tenant has 64,000 events at most, and 1,000 at least */
#define FLUSH_NS 20000000ULL /* 20 ms */
#define ENTRIES_KEPT 1000U   /* of a stream */
#define RESTART_STEP (1ULL << 24)
#define AT_ONCE 512U /* to one listener, then the others have their turn */
#define ENTRIES_AT_ONCE (AT_ONCE / BATCH)
#define TORN_KEY "events.torn"
#define LIFE_KEY "events.life" /* the first number that an engine may have told last */
#define END_KEY "events.end"   /* what an engine that ended well would have told next */

struct event {
    uint64_t sequence, time_ms;
    char type[32], tenant[64], sandbox[KEEPER_ID_LENGTH + 4], process[PROCS_ID_MAX], reason[32];
    char key[24];
    struct event_traffic *traffic; /* or NULL */
};

struct history {
    struct history *next;
    struct events *events;
    char tenant[64]; /* "": of all */
    char stream[80];
    struct event *ring; /* `count` of them, the oldest at `start` */
    size_t room, start, count;
    size_t unwritten; /* the newest of these */
    size_t writing;   /* entries on their way */
    uint64_t from;    /* the ring has all with this number or a higher one */
    uint64_t used;    /* when, in numbers */
};

struct engine_listener {
    struct engine_listener *next;
    struct history *history;
    char key_id[24];
    bool is_dead, is_sated, is_cut;
    uint64_t at;    /* the next one it is to get, or above */
    uint64_t entry; /* of the stream, where that is or comes later; 0: it is not known */
    bool (*event)(void *arg, const struct engine_event *event);
    void *arg;
};

struct events {
    struct engine *engine;
    struct history all;
    struct history *tenants;
    size_t tenants_count;
    uint64_t life, next; /* numbers: the first of this engine's, and the next one */
    uint64_t
        last_life; /* what the engine before us would have told next, where it said so; else 0 */
    uint64_t torn; /* before this number some may have been told that were never written */
    size_t writing;
    struct alarm flush;
    struct engine_listener *listeners;
    bool is_telling, will_tell;
    bool is_noted, is_noting; /* `life`, in the store: before that nothing is told */
};

/* ---- histories ---- */

static void event_release(struct event *event)
{
    event_traffic_free(event->traffic);
    event->traffic = NULL;
}

static struct event *history_at(const struct history *history, size_t index)
{
    return &history->ring[(history->start + index) % history->room];
}

static void history_init(struct events *events, struct history *history, const char *tenant)
{
    history->events = events;
    history->from = events->next;
    history->used = events->next;
    (void)snprintf(history->tenant, sizeof(history->tenant), "%s", tenant);
    (void)snprintf(history->stream, sizeof(history->stream), "events%s%s",
                   *tenant != '\0' ? "/" : "", tenant);
}

static bool is_listened_to(const struct history *history)
{
    const struct engine_listener *listener = history->events->listeners;

    while (listener != NULL && listener->history != history)
        listener = listener->next;
    return listener != NULL;
}

static void ring_free(struct history *history)
{
    for (size_t i = 0; i < history->count; i++)
        event_release(history_at(history, i));
    free(history->ring);
}

/* One that nobody has used for longest, and of which the store has all. */
static void history_evict(struct events *events)
{
    struct history **oldest = NULL, *history;

    for (struct history **at = &events->tenants; *at != NULL; at = &(*at)->next)
        if ((*at)->unwritten == 0 && (*at)->writing == 0 && !is_listened_to(*at) &&
            (oldest == NULL || (*at)->used < (*oldest)->used))
            oldest = at;
    if (oldest == NULL)
        return;
    history = *oldest;
    *oldest = history->next;
    events->tenants_count--;
    ring_free(history);
    free(history);
}

static struct history *history_of(struct events *events, const char *tenant)
{
    struct history *history = events->tenants;

    while (history != NULL && strcmp(history->tenant, tenant) != 0)
        history = history->next;
    if (history == NULL) {
        if (events->tenants_count >= HISTORIES_MOST)
            history_evict(events);
        history = engine_alloc(sizeof(*history));
        history_init(events, history, tenant);
        history->next = events->tenants;
        events->tenants = history;
        events->tenants_count++;
    }
    history->used = events->next;
    return history;
}

static void history_grow(struct history *history)
{
    size_t room = history->room == 0 ? RING_LEAST : history->room * 2;
    struct event *ring = engine_alloc(room * sizeof(*ring));

    for (size_t i = 0; i < history->count; i++)
        ring[i] = *history_at(history, i);
    free(history->ring);
    history->ring = ring;
    history->room = room;
    history->start = 0;
}

/* What is dropped was written before: a batch is much smaller than a ring. */
static void history_add(struct history *history, const struct event *event, size_t most)
{
    if (history->count == history->room && history->room < most)
        history_grow(history);
    if (history->count == history->room) {
        history->from = history_at(history, 0)->sequence + 1;
        event_release(history_at(history, 0));
        history->start = (history->start + 1) % history->room;
        history->count--;
    }
    if (event->traffic != NULL)
        event_traffic_hold(event->traffic);
    *history_at(history, history->count++) = *event;
    history->unwritten++;
}

/* The first in the ring with this number or a higher one. */
static size_t history_find(const struct history *history, uint64_t sequence)
{
    size_t low = 0, high = history->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (history_at(history, middle)->sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- text ---- */

static void set_text(json_t *object, const char *key, const char *text)
{
    if (*text != '\0')
        (void)json_object_set_new(object, key, json_string(text));
}

static json_t *event_format(const struct event *event)
{
    json_t *object = json_pack("{sI,sI}", "sequence", (json_int_t)event->sequence, "time_ms",
                               (json_int_t)event->time_ms);

    set_text(object, "type", event->type);
    set_text(object, "tenant", event->tenant);
    set_text(object, "sandbox", event->sandbox);
    set_text(object, "process", event->process);
    set_text(object, "reason", event->reason);
    set_text(object, "key", event->key);
    if (event->traffic != NULL)
        (void)json_object_set_new(object, "traffic", event_traffic_format(event->traffic));
    return object;
}

static void get_text(const json_t *object, const char *key, char *into, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));

    (void)snprintf(into, size, "%s", text != NULL ? text : "");
}

/* To be released. */
static void event_parse(const json_t *object, struct event *event)
{
    *event = (struct event){
        .sequence = (uint64_t)json_integer_value(json_object_get(object, "sequence")),
        .time_ms = (uint64_t)json_integer_value(json_object_get(object, "time_ms")),
    };
    get_text(object, "type", event->type, sizeof(event->type));
    get_text(object, "tenant", event->tenant, sizeof(event->tenant));
    get_text(object, "sandbox", event->sandbox, sizeof(event->sandbox));
    get_text(object, "process", event->process, sizeof(event->process));
    get_text(object, "reason", event->reason, sizeof(event->reason));
    get_text(object, "key", event->key, sizeof(event->key));
    event->traffic = event_traffic_parse(json_object_get(object, "traffic"));
}

/* ---- telling ---- */

static const char *or_null(const char *text)
{
    return *text != '\0' ? text : NULL;
}

static void tell_one(struct engine_listener *listener, const struct event *event)
{
    struct engine_event view = {
        .sequence = event->sequence,
        .time_ms = event->time_ms,
        .type = event->type,
        .tenant = or_null(event->tenant),
        .sandbox = or_null(event->sandbox),
        .process = or_null(event->process),
        .reason = or_null(event->reason),
        .key = or_null(event->key),
        .traffic = event->traffic != NULL ? event_traffic_look(event->traffic) : NULL,
    };

    listener->is_sated = !listener->event(listener->arg, &view);
    listener->at = event->sequence + 1;
}

static bool takes_more(const struct engine_listener *listener)
{
    return !listener->is_dead && !listener->is_sated;
}

/* ---- what the ring has no more, from the store ---- */

struct replay {
    struct engine_listener *listener;
    uint64_t until;
    bool any;
};

static bool replay_entry(void *arg, const struct store_value *value)
{
    struct replay *replay = arg;
    json_t *array = json_loadb(value->data, value->size, 0, NULL);
    struct event event;

    replay->any = true;
    for (size_t i = 0; i < json_array_size(array) && takes_more(replay->listener); i++) {
        event_parse(json_array_get(array, i), &event);
        if (event.sequence >= replay->listener->at && event.sequence < replay->until)
            tell_one(replay->listener, &event);
        event_release(&event);
    }
    json_decref(array);
    replay->listener->entry = value->revision + 1;
    return takes_more(replay->listener);
}

static bool first_of(void *arg, const struct store_value *value)
{
    json_t *array = json_loadb(value->data, value->size, 0, NULL);
    struct event event;

    event_parse(json_array_get(array, 0), &event);
    *(uint64_t *)arg = event.sequence;
    event_release(&event);
    json_decref(array);
    return true;
}

/* The last entry that begins with `sequence` or before, else the first there is. */
static int entry_find(const struct history *history, uint64_t sequence, uint64_t *entry,
                      struct error *err)
{
    struct store *store = history->events->engine->store;
    uint64_t low, high, oldest, end, begins = 0;

    if (store_read(store, history->stream, 1, 1, first_of, &begins, &low, &high, err) != 0)
        return -1;
    while (high > low + 1) {
        uint64_t middle = low + (high - low) / 2;

        begins = 0;
        if (store_read(store, history->stream, middle, 1, first_of, &begins, &oldest, &end, err) !=
            0)
            return -1;
        if (begins <= sequence)
            low = middle;
        else
            high = middle;
    }
    *entry = low > 0 ? low : 1;
    return 0;
}

/* Some of it: the others have their turn, too. */
static void replay(struct engine_listener *listener)
{
    struct history *history = listener->history;
    struct replay replay = {.listener = listener, .until = history->from};
    uint64_t first, next;
    struct error err;

    if ((listener->entry == 0 && entry_find(history, listener->at, &listener->entry, &err) != 0) ||
        store_read(history->events->engine->store, history->stream, listener->entry,
                   ENTRIES_AT_ONCE, replay_entry, &replay, &first, &next, &err) != 0) {
        log_say(LOG_LEVEL_WARN, "store_failed", "old events cannot be read: %s", err.text);
        replay.any = false;
    }
    if (!replay.any && takes_more(listener) && listener->at < history->from)
        listener->at = history->from;
}

static void tell_listener(struct engine_listener *listener)
{
    const struct history *history = listener->history;
    size_t index;

    if (listener->at < history->from) {
        replay(listener);
        return;
    }
    index = history_find(history, listener->at);
    for (unsigned i = 0; i < AT_ONCE && takes_more(listener) && index < history->count; i++)
        tell_one(listener, history_at(history, index++));
    if (takes_more(listener) && index == history->count)
        listener->at = history->events->next;
}

static void bury_listeners(struct events *events)
{
    struct engine_listener **at = &events->listeners;

    while (*at != NULL) {
        struct engine_listener *listener = *at;

        if (!listener->is_dead) {
            at = &listener->next;
            continue;
        }
        *at = listener->next;
        free(listener);
    }
}

static void tell_soon(struct events *events);

/* Who is told nothing yet is told all of it once the life's number is noted. */
static void tell(void *arg)
{
    struct events *events = arg;
    bool more = false;

    events->will_tell = false;
    if (!events->is_noted)
        return;
    events->is_telling = true;
    for (struct engine_listener *listener = events->listeners; listener != NULL;
         listener = listener->next) {
        if (listener->is_cut && !listener->is_dead) {
            listener->is_cut = false;
            listener->is_sated = true;
            (void)listener->event(listener->arg, NULL);
        }
        if (takes_more(listener))
            tell_listener(listener);
        more |= takes_more(listener) && listener->at < events->next;
    }
    events->is_telling = false;
    bury_listeners(events);
    if (more)
        tell_soon(events);
}

static void tell_soon(struct events *events)
{
    if (events->will_tell)
        return;
    events->will_tell = true;
    engine_later(events->engine, tell, events);
}

/* ---- writing ---- */

static void written(void *arg, uint64_t sequence, const struct error *err)
{
    struct history *history = arg;
    struct events *events = history->events;

    (void)sequence;
    history->writing--;
    events->writing--;
    if (err != NULL)
        log_say(LOG_LEVEL_WARN, "store_failed", "events could not be written: %s", err->text);
    engine_settled(events->engine);
}

static void history_flush(struct history *history)
{
    struct events *events = history->events;

    while (history->unwritten > 0) {
        json_t *array = json_array();
        char *text;

        for (unsigned i = 0; i < BATCH && history->unwritten > 0; i++)
            (void)json_array_append_new(
                array, event_format(history_at(history, history->count - history->unwritten--)));
        text = json_dumps(array, JSON_COMPACT);
        json_decref(array);
        if (text == NULL)
            continue;
        events->writing++;
        history->writing++;
        store_publish(events->engine->store, history->stream, text, strlen(text), ENTRIES_KEPT,
                      written, history);
        free(text);
    }
}

static void life_noted(void *arg, uint64_t revision, const struct error *err)
{
    struct events *events = arg;

    (void)revision;
    events->is_noting = false;
    events->is_noted = err == NULL;
    if (err != NULL)
        log_say(LOG_LEVEL_WARN, "store_failed",
                "no events are told before their first number can be noted, which is tried again: "
                "%s",
                err->text);
    else
        tell_soon(events);
}

static void life_note(struct events *events)
{
    char text[24];

    if (events->is_noted || events->is_noting)
        return;
    events->is_noting = true;
    (void)snprintf(text, sizeof(text), "%" PRIu64, events->life);
    store_put(events->engine->store, LIFE_KEY, text, strlen(text), STORE_ANY, life_noted, events);
}

static void flush_now(void *arg)
{
    struct events *events = arg;

    clock_clear(events->engine->clock, &events->flush);
    life_note(events);
    for (struct history *history = events->tenants; history != NULL; history = history->next)
        history_flush(history);
    history_flush(&events->all);
}

void events_flush(struct engine *engine)
{
    flush_now(engine->events);
}

bool events_pending(const struct engine *engine)
{
    /* What a tenant's history has not written, that of all has not either. */
    return engine->events->writing > 0 || engine->events->all.unwritten > 0;
}

bool events_has_listener(const struct engine *engine)
{
    return engine->events->listeners != NULL;
}

static void add(struct engine *engine, struct event *event)
{
    struct events *events = engine->events;
    struct history *own;

    /* What a store still answers while it is closed. */
    if (events == NULL || engine->is_closing)
        return;
    event->sequence = events->next++;
    own = event->tenant[0] != '\0' ? history_of(events, event->tenant) : NULL;
    history_add(&events->all, event, RING_OF_ALL);
    if (own != NULL)
        history_add(own, event, RING_MOST);
    if (events->all.unwritten >= BATCH)
        flush_now(events);
    else if (events->flush.place == 0)
        clock_set(engine->clock, &events->flush, clock_monotonic_ns() + FLUSH_NS, flush_now,
                  events);
    if (events->listeners != NULL)
        tell_soon(events);
}

static void set(char *into, size_t size, const char *text)
{
    (void)snprintf(into, size, "%s", text != NULL ? text : "");
}

void events_add(struct engine *engine, const char *type, const char *tenant, const char *sandbox,
                const char *process, const char *reason)
{
    struct event event = {.time_ms = clock_wall_ms()};

    set(event.type, sizeof(event.type), type);
    set(event.tenant, sizeof(event.tenant), tenant);
    set(event.sandbox, sizeof(event.sandbox), sandbox);
    set(event.process, sizeof(event.process), process);
    set(event.reason, sizeof(event.reason), reason);
    add(engine, &event);
}

void events_add_key(struct engine *engine, const char *type, const char *tenant,
                    const char *sandbox, const char *key_id)
{
    struct event event = {.time_ms = clock_wall_ms()};

    set(event.type, sizeof(event.type), type);
    set(event.tenant, sizeof(event.tenant), tenant);
    set(event.sandbox, sizeof(event.sandbox), sandbox);
    set(event.key, sizeof(event.key), key_id);
    add(engine, &event);
}

void events_add_traffic(struct engine *engine, const char *type, const char *tenant,
                        const char *sandbox, const char *reason,
                        const struct engine_event_traffic *traffic)
{
    struct event event = {.time_ms = clock_wall_ms(), .traffic = event_traffic_new(traffic)};

    set(event.type, sizeof(event.type), type);
    set(event.tenant, sizeof(event.tenant), tenant);
    set(event.sandbox, sizeof(event.sandbox), sandbox);
    set(event.reason, sizeof(event.reason), reason);
    add(engine, &event);
    event_release(&event);
}

/* ---- listening ---- */

struct span {
    uint64_t first, last;
};

static bool span_entry(void *arg, const struct store_value *value)
{
    struct span *span = arg;
    json_t *array = json_loadb(value->data, value->size, 0, NULL);
    size_t count = json_array_size(array);

    if (count > 0) {
        struct event event;

        event_parse(json_array_get(array, 0), &event);
        if (span->first == 0)
            span->first = event.sequence;
        event_release(&event);
        event_parse(json_array_get(array, count - 1), &event);
        span->last = event.sequence;
        event_release(&event);
    }
    json_decref(array);
    return true;
}

/* Of what the store has, one entry at either end. *is_all: none of its beginning is gone. */
static int span_read(struct engine *engine, const char *stream, struct span *span, bool *is_all,
                     struct error *err)
{
    uint64_t first, next, after, end;

    *span = (struct span){0};
    if (store_read(engine->store, stream, 1, 1, span_entry, span, &first, &next, err) != 0)
        return -1;
    *is_all = first <= 1;
    if (next <= 1)
        return 0;
    return store_read(engine->store, stream, next - 1, 1, span_entry, span, &after, &end, err);
}

/* Whether all from `sequence` on can still be told. */
static bool is_whole(const struct history *history, uint64_t sequence)
{
    const struct events *events = history->events;
    struct span span;
    struct error err;
    bool is_all;

    if (sequence >= history->from)
        return sequence <= events->next;
    if (span_read(events->engine, history->stream, &span, &is_all, &err) != 0)
        return false;
    if (sequence < events->torn || (!is_all && sequence < span.first))
        return false;
    return sequence <= events->last_life || sequence >= events->life;
}

struct engine_listener *engine_listen(struct engine *engine, const struct engine_caller *caller,
                                      uint64_t sequence, bool *missed,
                                      bool (*event)(void *arg, const struct engine_event *event),
                                      void *arg)
{
    struct events *events = engine->events;
    struct engine_listener *listener;
    struct error err;

    if (caller_may(caller, ENGINE_READ, &err) != 0)
        return NULL;
    listener = engine_alloc(sizeof(*listener));
    *listener = (struct engine_listener){
        .history = (caller->scopes & ENGINE_OPERATOR) != 0 ? &events->all
                                                           : history_of(events, caller->tenant),
        .at = sequence == 0 ? events->next : sequence,
        .event = event,
        .arg = arg,
        .next = events->listeners,
    };
    memcpy(listener->key_id, caller->key_id, sizeof(listener->key_id));
    *missed = sequence != 0 && !is_whole(listener->history, sequence);
    if (listener->at > events->next)
        listener->at = events->next;
    events->listeners = listener;
    tell_soon(events);
    return listener;
}

void engine_unlisten(struct engine_listener *listener)
{
    if (listener == NULL)
        return;
    listener->is_dead = true;
    if (!listener->history->events->is_telling)
        bury_listeners(listener->history->events);
}

void events_end_key(struct engine *engine, const char *key_id)
{
    struct events *events = engine->events;

    for (struct engine_listener *listener = events->listeners; listener != NULL;
         listener = listener->next)
        listener->is_cut |= strcmp(listener->key_id, key_id) == 0;
    if (events->listeners != NULL)
        tell_soon(events);
}

/* ---- opening ---- */

static void end_noted(void *arg, uint64_t revision, const struct error *err)
{
    (void)arg;
    (void)revision;
    if (err != NULL && strcmp(err->code, "conflict") != 0)
        log_say(LOG_LEVEL_WARN, "store_failed", "the end of the events could not be noted: %s",
                err->text);
}

static int number_read(struct events *events, const char *key, uint64_t *out, struct error *err)
{
    struct store_value value = {.key = NULL};
    int found = store_get(events->engine->store, key, &value, err);

    *out = 0;
    if (found <= 0)
        return found;
    *out = strtoull(value.data, NULL, 10);
    store_value_free(&value);
    return 0;
}

static void number_put(struct events *events, const char *key, uint64_t number)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, number);
    store_put(events->engine->store, key, text, strlen(text), STORE_ANY, end_noted, NULL);
}

static void count_on_from(uint64_t *last, uint64_t number)
{
    if (number > *last)
        *last = number;
}

/* How the engine before us ended is read once: it says nothing about how we do. It may have told numbers of
 * which nothing was written, so the count goes on above all that it may have begun with, too. */
int events_open(struct engine *engine, struct error *err)
{
    struct events *events = engine_alloc(sizeof(*events));
    struct span span;
    uint64_t life;
    bool is_all;

    engine->events = events;
    events->engine = engine;
    if (span_read(engine, "events", &span, &is_all, err) != 0 ||
        number_read(events, END_KEY, &events->last_life, err) != 0 ||
        number_read(events, TORN_KEY, &events->torn, err) != 0 ||
        number_read(events, LIFE_KEY, &life, err) != 0)
        return -1;
    if (events->last_life < life)
        events->last_life = 0; /* said by one before it */
    count_on_from(&span.last, events->last_life);
    count_on_from(&span.last, events->torn);
    count_on_from(&span.last, life);
    events->next = span.last > 0 ? (span.last / RESTART_STEP + 1) * RESTART_STEP : 1;
    events->life = events->next;
    if (events->last_life > 0) {
        store_put(engine->store, END_KEY, NULL, 0, STORE_ANY, end_noted, NULL);
    } else if (events->life > 1) {
        events->torn = events->life;
        number_put(events, TORN_KEY, events->torn);
    }
    history_init(events, &events->all, "");
    life_note(events);
    return 0;
}

uint64_t events_told(const struct engine *engine)
{
    return engine->events->next - engine->events->life;
}

/* The store is still open, and waits for this when it is closed. */
void events_end(struct engine *engine)
{
    if (engine->events == NULL || engine->events->next == 0)
        return;
    flush_now(engine->events);
    number_put(engine->events, END_KEY, engine->events->next);
}

void events_close(struct engine *engine)
{
    struct events *events = engine->events;

    if (events == NULL)
        return;
    for (struct engine_listener *listener = events->listeners, *next; listener != NULL;
         listener = next) {
        next = listener->next;
        free(listener);
    }
    for (struct history *history = events->tenants, *next; history != NULL; history = next) {
        next = history->next;
        ring_free(history);
        free(history);
    }
    ring_free(&events->all);
    free(events);
    engine->events = NULL;
}
