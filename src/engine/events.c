/* What happened, in order: the newest in a ring, and some thousands in the store, so that who was cut
 * off can go on where he was.
 *
 * Events are told at once and written down a moment later, many in one entry of the stream: two for
 * each command would cost more than the command. A number is never given twice: after a restart the
 * count goes on far above what was told last, and who asks for what lies between is told of a gap. */
#include "engine/parts.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING 4096U
#define BATCH 256U
#define FLUSH_NS 20000000ULL /* 20 ms */
#define ENTRIES_KEPT 1000U   /* of the stream */
#define RESTART_STEP (1ULL << 24)
#define AT_ONCE 512U /* to one listener, then the others have their turn */
#define ENTRIES_AT_ONCE (AT_ONCE / BATCH)

struct event {
    uint64_t sequence, time_ms;
    char type[32], tenant[64], sandbox[KEEPER_ID_LENGTH + 4], process[PROCS_ID_MAX], reason[32];
};

struct engine_listener {
    struct engine_listener *next;
    struct events *events;
    char tenant[64], key_id[24];
    bool all, is_dead, is_sated, is_cut;
    uint64_t at;    /* the next one it is to get */
    uint64_t entry; /* of the stream, where that is or comes later; 0: it is not known */
    bool (*event)(void *arg, const struct engine_event *event);
    void *arg;
};

struct events {
    struct engine *engine;
    struct event ring[RING]; /* by sequence */
    uint64_t first, next;    /* in the ring: first <= sequence < next */
    uint64_t flushed;        /* up to here they are with the store */
    size_t writing;
    struct alarm flush;
    struct engine_listener *listeners;
    bool is_telling, will_tell;
};

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
    return object;
}

static void get_text(const json_t *object, const char *key, char *into, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));

    (void)snprintf(into, size, "%s", text != NULL ? text : "");
}

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
    };

    if (listener->all || strcmp(listener->tenant, event->tenant) == 0)
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
    json_decref(array);
    return true;
}

/* The last entry that begins with `sequence` or before, else the first there is. */
static int entry_find(struct engine *engine, uint64_t sequence, uint64_t *entry, struct error *err)
{
    uint64_t low, high, oldest, end, begins = 0;

    if (store_read(engine->store, "events", 1, 1, first_of, &begins, &low, &high, err) != 0)
        return -1;
    while (high > low + 1) {
        uint64_t middle = low + (high - low) / 2;

        begins = 0;
        if (store_read(engine->store, "events", middle, 1, first_of, &begins, &oldest, &end, err) !=
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
    struct events *events = listener->events;
    struct replay replay = {.listener = listener, .until = events->first};
    uint64_t first, next;
    struct error err;

    if ((listener->entry == 0 &&
         entry_find(events->engine, listener->at, &listener->entry, &err) != 0) ||
        store_read(events->engine->store, "events", listener->entry, ENTRIES_AT_ONCE, replay_entry,
                   &replay, &first, &next, &err) != 0) {
        log_say(LOG_LEVEL_WARN, "store_failed", "old events cannot be read: %s", err.text);
        replay.any = false;
    }
    if (!replay.any && takes_more(listener) && listener->at < events->first)
        listener->at = events->first;
}

static void tell_listener(struct engine_listener *listener)
{
    struct events *events = listener->events;

    if (listener->at < events->first) {
        replay(listener);
        return;
    }
    for (unsigned i = 0; i < AT_ONCE && takes_more(listener) && listener->at < events->next; i++)
        tell_one(listener, &events->ring[listener->at % RING]);
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

static void tell(void *arg)
{
    struct events *events = arg;
    bool more = false;

    events->will_tell = false;
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

static void flush_now(void *arg);

static void written(void *arg, uint64_t sequence, const struct error *err)
{
    struct events *events = arg;

    (void)sequence;
    events->writing--;
    if (err != NULL)
        log_say(LOG_LEVEL_WARN, "store_failed", "events could not be written: %s", err->text);
    engine_settled(events->engine);
}

static void flush_now(void *arg)
{
    struct events *events = arg;

    clock_clear(events->engine->clock, &events->flush);
    while (events->flushed < events->next) {
        json_t *array = json_array();
        char *text;

        for (unsigned i = 0; i < BATCH && events->flushed < events->next; i++)
            (void)json_array_append_new(array,
                                        event_format(&events->ring[events->flushed++ % RING]));
        text = json_dumps(array, JSON_COMPACT);
        json_decref(array);
        if (text == NULL)
            continue;
        events->writing++;
        store_publish(events->engine->store, "events", text, strlen(text), ENTRIES_KEPT, written,
                      events);
        free(text);
    }
}

void events_flush(struct engine *engine)
{
    flush_now(engine->events);
}

bool events_pending(const struct engine *engine)
{
    return engine->events->writing > 0 || engine->events->flushed < engine->events->next;
}

bool events_has_listener(const struct engine *engine)
{
    return engine->events->listeners != NULL;
}

void events_add(struct engine *engine, const char *type, const char *tenant, const char *sandbox,
                const char *process, const char *reason)
{
    struct events *events = engine->events;
    struct event *event = &events->ring[events->next % RING];

    *event = (struct event){.sequence = events->next, .time_ms = clock_wall_ms()};
    (void)snprintf(event->type, sizeof(event->type), "%s", type);
    (void)snprintf(event->tenant, sizeof(event->tenant), "%s", tenant);
    (void)snprintf(event->sandbox, sizeof(event->sandbox), "%s", sandbox);
    (void)snprintf(event->process, sizeof(event->process), "%s", process != NULL ? process : "");
    (void)snprintf(event->reason, sizeof(event->reason), "%s", reason != NULL ? reason : "");
    events->next++;
    if (events->next - events->first > RING)
        events->first = events->next - RING;
    if (events->next - events->flushed >= BATCH)
        flush_now(events);
    else if (events->flush.place == 0)
        clock_set(engine->clock, &events->flush, clock_monotonic_ns() + FLUSH_NS, flush_now,
                  events);
    if (events->listeners != NULL)
        tell_soon(events);
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
        event_parse(json_array_get(array, count - 1), &event);
        span->last = event.sequence;
    }
    json_decref(array);
    return true;
}

/* Of what the store has, one entry at either end. */
static int span_read(struct engine *engine, struct span *span, struct error *err)
{
    uint64_t first, next, after, end;

    *span = (struct span){0};
    if (store_read(engine->store, "events", 1, 1, span_entry, span, &first, &next, err) != 0)
        return -1;
    if (next <= 1)
        return 0;
    return store_read(engine->store, "events", next - 1, 1, span_entry, span, &after, &end, err);
}

/* Whether all from `sequence` on can still be told. */
static bool is_whole(struct events *events, uint64_t sequence)
{
    struct span span;
    struct error err;

    if (sequence >= events->first)
        return sequence <= events->next;
    /* What an earlier life of the engine told last, it may not have written. */
    if (span_read(events->engine, &span, &err) != 0 || span.first == 0)
        return false;
    return sequence >= span.first && sequence <= span.last;
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
        .events = events,
        .all = (caller->scopes & ENGINE_OPERATOR) != 0,
        .at = sequence == 0 ? events->next : sequence,
        .event = event,
        .arg = arg,
        .next = events->listeners,
    };
    memcpy(listener->tenant, caller->tenant, sizeof(listener->tenant));
    memcpy(listener->key_id, caller->key_id, sizeof(listener->key_id));
    *missed = sequence != 0 && !is_whole(events, sequence);
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
    if (!listener->events->is_telling)
        bury_listeners(listener->events);
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

int events_open(struct engine *engine, struct error *err)
{
    struct events *events = engine_alloc(sizeof(*events));
    struct span span;

    engine->events = events;
    events->engine = engine;
    if (span_read(engine, &span, err) != 0)
        return -1;
    events->next = span.last > 0 ? (span.last / RESTART_STEP + 1) * RESTART_STEP : 1;
    events->first = events->flushed = events->next;
    return 0;
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
    free(events);
    engine->events = NULL;
}
