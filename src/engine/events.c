/* What happened, in order: the newest in memory, and some thousands in the store, so that who was cut off
 * can go on where he was.
 *
 * Each tenant has a history of its own, so that nobody pushes another's out; and there is one of all, for
 * operators. Each history counts for itself: by numbers of all together a tenant would know how much others do.
 * What processes in boxes make by themselves (events with a traffic) is in a strand apart: however much that is,
 * what happened to sandboxes stays known. Events are told at once and written down a moment later. A number is
 * never given twice in a history: after a restart each goes on from the same one, far above what was told last in
 * any. A client that asks for what lies between is told of a gap, unless the engine before us ended well and had
 * told no more. */
#include "engine/strand.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORIES_MOST 256U /* in memory; of the others all is in the store */
#define RESTART_STEP (1ULL << 24)
#define AT_ONCE 512U        /* to one listener, then the others have their turn */
#define ROUND_NS 1000000ULL /* of telling in one turn of the loop, then it hears others */
#define TORN_KEY "events.torn"
#define LIFE_KEY "events.life" /* the first number that an engine may have told last */
#define END_KEY "events.end"   /* what an engine that ended well would have told next */

enum strand_kind {
    STRAND_LIFE, /* what happens to sandboxes, keys, quotas, and commands that somebody asked for */
    STRAND_TRAFFIC, /* what boxes do: network.*, port.* */
    STRANDS,
};

/* Of traffic there may be some all the time, so many go into an entry. */
static const struct {
    const char *stream;
    uint64_t flush_ns;
    size_t most, most_of_all; /* in memory */
} kinds[STRANDS] = {
    [STRAND_LIFE] = {"events", 20000000, 1024, 4096},
    [STRAND_TRAFFIC] = {"traffic", 1000000000, 512, 2048},
};

/* Of one history. None is forgotten as long as the engine lives, or it would give numbers twice. */
struct numbers {
    struct numbers *other;
    char tenant[64]; /* "": of all */
    uint64_t next;
    uint64_t
        last_life; /* what the engine before us would have told next, where it said so; else 0 */
};

struct history {
    struct history *next;
    struct numbers *numbers;
    struct strand strands[STRANDS];
    uint64_t used; /* when, in numbers of all */
    TAILQ_HEAD(listeners, engine_listener) listeners;
    size_t listening;          /* how many these are */
    size_t unheard;            /* so many of the first may have something to hear */
    TAILQ_ENTRY(history) turn; /* while these are some */
};

struct engine_listener {
    TAILQ_ENTRY(engine_listener) next;
    struct events *events;
    struct history *history;
    char key_id[24];
    bool is_dead, is_sated, is_cut;
    bool has_missed_traffic;
    uint64_t at; /* the next one it is to get, or above */
    uint64_t
        entries[STRANDS]; /* of the streams, where that is or comes later; 0: it is not known */
    bool (*event)(void *arg, const struct engine_event *event);
    void *arg;
};

struct events {
    struct engine *engine;
    struct history all;
    struct history *tenants;
    size_t tenants_count;
    struct numbers of_all, *of_tenants;
    struct map numbers; /* of tenants, by name */
    uint64_t life;      /* the first number of this engine's, in each history */
    uint64_t torn;      /* before this number some may have been told that were never written */
    struct alarm flushes[STRANDS];
    size_t listening;                 /* in all histories */
    TAILQ_HEAD(turns, history) turns; /* whose turn to be told it is: the first one's */
    struct engine_listener *telling;
    bool will_tell;
    bool is_noted, is_noting; /* `life`, in the store: before that nothing is told */
};

/* ---- histories ---- */

static void history_init(struct events *events, struct history *history, struct numbers *numbers)
{
    bool is_of_all = numbers->tenant[0] == '\0';

    history->numbers = numbers;
    history->used = events->of_all.next;
    TAILQ_INIT(&history->listeners);
    for (unsigned i = 0; i < STRANDS; i++)
        strand_init(&history->strands[i], events->engine, kinds[i].stream, numbers->tenant,
                    is_of_all ? kinds[i].most_of_all : kinds[i].most, numbers->next);
}

static void count_on_from(uint64_t *last, uint64_t number)
{
    if (number > *last)
        *last = number;
}

/* The number of the last event that the store has; 0: none. */
static int history_last(const struct history *history, uint64_t *last, struct error *err)
{
    uint64_t last_of;

    *last = 0;
    for (unsigned i = 0; i < STRANDS; i++) {
        if (strand_last(&history->strands[i], &last_of, err) != 0)
            return -1;
        count_on_from(last, last_of);
    }
    return 0;
}

static void history_free(struct history *history)
{
    struct engine_listener *listener;

    while ((listener = TAILQ_FIRST(&history->listeners)) != NULL) {
        TAILQ_REMOVE(&history->listeners, listener, next);
        free(listener);
    }
    for (unsigned i = 0; i < STRANDS; i++)
        strand_free(&history->strands[i]);
}

static bool history_is_written(const struct history *history)
{
    bool is_written = true;

    for (unsigned i = 0; i < STRANDS; i++)
        is_written &= strand_is_written(&history->strands[i]);
    return is_written;
}

/* One that nobody has used for longest, and of which the store has all. */
static void history_evict(struct events *events)
{
    struct history **oldest = NULL, *history;

    for (struct history **at = &events->tenants; *at != NULL; at = &(*at)->next)
        if (history_is_written(*at) && (*at)->listening == 0 &&
            (oldest == NULL || (*at)->used < (*oldest)->used))
            oldest = at;
    if (oldest == NULL)
        return;
    history = *oldest;
    *oldest = history->next;
    events->tenants_count--;
    history_free(history);
    free(history);
}

static struct numbers *numbers_new(struct events *events, const char *tenant)
{
    struct numbers *numbers = engine_alloc(sizeof(*numbers));

    (void)snprintf(numbers->tenant, sizeof(numbers->tenant), "%s", tenant);
    numbers->next = events->life;
    numbers->other = events->of_tenants;
    events->of_tenants = numbers;
    map_put(&events->numbers, numbers->tenant, numbers);
    return numbers;
}

/* Before this engine has written anything into it. Where that cannot be read, nobody knows. */
static void last_life_read(const struct events *events, struct history *history)
{
    uint64_t last;
    struct error err;

    if (events->of_all.last_life > 0 && history_last(history, &last, &err) == 0)
        history->numbers->last_life = last + 1;
}

static struct history *history_new(struct events *events, const char *tenant)
{
    struct history *history = engine_alloc(sizeof(*history));
    struct numbers *numbers = map_get(&events->numbers, tenant);

    if (numbers != NULL) {
        history_init(events, history, numbers);
    } else {
        history_init(events, history, numbers_new(events, tenant));
        last_life_read(events, history);
    }
    history->next = events->tenants;
    events->tenants = history;
    events->tenants_count++;
    return history;
}

static struct history *history_of(struct events *events, const char *tenant)
{
    struct history *history = events->tenants;

    while (history != NULL && strcmp(history->numbers->tenant, tenant) != 0)
        history = history->next;
    if (history == NULL) {
        if (events->tenants_count >= HISTORIES_MOST)
            history_evict(events);
        history = history_new(events, tenant);
    }
    history->used = events->of_all.next;
    return history;
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
        .kernel = or_null(event->kernel),
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

/* Of all strands, what has the lowest number. */
static enum strand_found peek(struct strand_reader readers[STRANDS], uint64_t sequence,
                              const struct event **lowest)
{
    enum strand_found found = STRAND_END;

    for (unsigned i = 0; i < STRANDS; i++) {
        const struct event *event = NULL;

        switch (strand_peek(&readers[i], sequence, &event)) {
        case STRAND_LATER:
            return STRAND_LATER; /* it may be that one */
        case STRAND_EVENT:
            if (found == STRAND_END || event->sequence < (*lowest)->sequence)
                *lowest = event;
            found = STRAND_EVENT;
            break;
        case STRAND_END:
            break;
        }
    }
    return found;
}

/* Some of it, one at least: the others have their turn, too. */
static void tell_listener(struct engine_listener *listener, uint64_t until_ns)
{
    struct strand_reader readers[STRANDS];
    enum strand_found found = STRAND_EVENT;
    const struct event *event = NULL;

    for (unsigned i = 0; i < STRANDS; i++)
        strand_reader_begin(&readers[i], &listener->history->strands[i], listener->entries[i]);
    for (unsigned i = 0; i < AT_ONCE && takes_more(listener) && found == STRAND_EVENT &&
                         (i == 0 || clock_monotonic_ns() < until_ns);
         i++) {
        found = peek(readers, listener->at, &event);
        if (found == STRAND_EVENT)
            tell_one(listener, event);
    }
    if (found == STRAND_END)
        listener->at = listener->history->numbers->next;
    for (unsigned i = 0; i < STRANDS; i++)
        listener->entries[i] = strand_reader_end(&readers[i]);
}

static void tell_soon(struct events *events);

static bool has_more(const struct engine_listener *listener)
{
    return takes_more(listener) && listener->at < listener->history->numbers->next;
}

static void history_wake(struct events *events, struct history *history)
{
    if (history->listening == 0)
        return;
    if (history->unheard == 0)
        TAILQ_INSERT_TAIL(&events->turns, history, turn);
    history->unheard = history->listening;
    tell_soon(events);
}

static void history_heard(struct events *events, struct history *history, size_t unheard)
{
    if (history->unheard > 0 && unheard == 0)
        TAILQ_REMOVE(&events->turns, history, turn);
    history->unheard = unheard;
}

static void listener_free(struct engine_listener *listener)
{
    struct events *events = listener->events;
    struct history *history = listener->history;

    TAILQ_REMOVE(&history->listeners, listener, next);
    events->listening--;
    history->listening--;
    if (history->unheard > history->listening)
        history_heard(events, history, history->listening);
    free(listener);
}

/* One listener of that whose turn it is; then it is another history's, and another listener's. */
static void tell_next(struct events *events, uint64_t until_ns)
{
    struct history *history = TAILQ_FIRST(&events->turns);
    struct engine_listener *listener = TAILQ_FIRST(&history->listeners);

    TAILQ_REMOVE(&history->listeners, listener, next);
    TAILQ_INSERT_TAIL(&history->listeners, listener, next);
    TAILQ_REMOVE(&events->turns, history, turn);
    TAILQ_INSERT_TAIL(&events->turns, history, turn);
    history_heard(events, history, history->unheard - 1);
    events->telling = listener;
    if (listener->is_cut) {
        listener->is_cut = false;
        listener->is_sated = true;
        (void)listener->event(listener->arg, NULL);
    } else if (has_more(listener)) {
        tell_listener(listener, until_ns);
    }
    events->telling = NULL;
    if (has_more(listener))
        history_wake(events, history);
    if (listener->is_dead)
        listener_free(listener);
}

/* Some of all: a thousand listeners take their time, so the loop hears others in between, and histories take turns.
 * A listener that is told nothing yet hears all of it once the life's number is noted. */
static void tell(void *arg)
{
    struct events *events = arg;
    uint64_t until_ns = clock_monotonic_ns() + ROUND_NS;

    events->will_tell = false;
    if (!events->is_noted)
        return;
    for (size_t left = events->listening;
         left > 0 && !TAILQ_EMPTY(&events->turns) && clock_monotonic_ns() < until_ns; left--)
        tell_next(events, until_ns);
    if (!TAILQ_EMPTY(&events->turns))
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

static void flush(struct events *events, enum strand_kind kind)
{
    clock_clear(events->engine->clock, &events->flushes[kind]);
    life_note(events);
    for (struct history *history = events->tenants; history != NULL; history = history->next)
        strand_flush(&history->strands[kind]);
    strand_flush(&events->all.strands[kind]);
}

static void flush_life(void *arg)
{
    flush(arg, STRAND_LIFE);
}

static void flush_traffic(void *arg)
{
    flush(arg, STRAND_TRAFFIC);
}

void events_flush(struct engine *engine)
{
    flush_life(engine->events);
    flush_traffic(engine->events);
}

bool events_pending(const struct engine *engine)
{
    /* What a tenant's history has not written, that of all has not either. */
    return !history_is_written(&engine->events->all);
}

bool events_has_listener(const struct engine *engine)
{
    return engine->events->listening > 0;
}

static void history_add(struct events *events, struct history *history, enum strand_kind kind,
                        struct event *event)
{
    event->sequence = history->numbers->next++;
    strand_add(&history->strands[kind], event);
    history_wake(events, history);
}

static void add(struct engine *engine, struct event *event)
{
    const enum strand_kind kind = event->traffic != NULL ? STRAND_TRAFFIC : STRAND_LIFE;
    struct events *events = engine->events;

    /* What a store still answers while it is closed. */
    if (events == NULL || engine->is_closing)
        return;
    history_add(events, &events->all, kind, event);
    if (event->tenant[0] != '\0')
        history_add(events, history_of(events, event->tenant), kind, event);
    if (events->all.strands[kind].unwritten >= STRAND_BATCH)
        flush(events, kind);
    else if (events->flushes[kind].place == 0)
        clock_set(engine->clock, &events->flushes[kind],
                  clock_monotonic_ns() + kinds[kind].flush_ns,
                  kind == STRAND_TRAFFIC ? flush_traffic : flush_life, events);
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

void events_add_kernel(struct engine *engine, const char *type, const char *tenant,
                       const char *kernel, const char *reason)
{
    struct event event = {.time_ms = clock_wall_ms()};

    set(event.type, sizeof(event.type), type);
    set(event.tenant, sizeof(event.tenant), tenant);
    set(event.kernel, sizeof(event.kernel), kernel);
    set(event.reason, sizeof(event.reason), reason);
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

/* Whether it is known of each from `sequence` on whether it was given, and all of those were written. */
static bool is_known(const struct events *events, const struct numbers *numbers, uint64_t sequence)
{
    return sequence >= events->torn && sequence <= numbers->next &&
           (sequence <= numbers->last_life || sequence >= events->life);
}

struct engine_listener *engine_listen(struct engine *engine, const struct engine_caller *caller,
                                      uint64_t sequence, bool *missed,
                                      bool (*event)(void *arg, const struct engine_event *event),
                                      void *arg)
{
    struct events *events = engine->events;
    struct engine_listener *listener;
    struct history *history;
    struct error err;

    if (caller_may(caller, ENGINE_READ, &err) != 0)
        return NULL;
    history = (caller->scopes & ENGINE_OPERATOR) != 0 ? &events->all
                                                      : history_of(events, caller->tenant);
    listener = engine_alloc(sizeof(*listener));
    *listener = (struct engine_listener){
        .events = events,
        .history = history,
        .at = sequence == 0 || sequence > history->numbers->next ? history->numbers->next
                                                                 : sequence,
        .event = event,
        .arg = arg,
    };
    memcpy(listener->key_id, caller->key_id, sizeof(listener->key_id));
    *missed = sequence != 0 && !(is_known(events, history->numbers, sequence) &&
                                 strand_has(&history->strands[STRAND_LIFE], sequence));
    listener->has_missed_traffic = sequence != 0 &&
                                   !strand_has(&history->strands[STRAND_TRAFFIC], sequence);
    TAILQ_INSERT_TAIL(&history->listeners, listener, next);
    history->listening++;
    events->listening++;
    history_wake(events, history);
    return listener;
}

bool engine_listener_missed_traffic(const struct engine_listener *listener)
{
    return listener->has_missed_traffic;
}

void engine_unlisten(struct engine_listener *listener)
{
    if (listener == NULL)
        return;
    listener->is_dead = true;
    if (listener->events->telling != listener)
        listener_free(listener);
}

static void history_end_key(struct events *events, struct history *history, const char *key_id)
{
    struct engine_listener *listener;

    TAILQ_FOREACH(listener, &history->listeners, next)
    {
        listener->is_cut |= strcmp(listener->key_id, key_id) == 0;
    }
    history_wake(events, history);
}

void events_end_key(struct engine *engine, const char *key_id)
{
    struct events *events = engine->events;

    for (struct history *history = events->tenants; history != NULL; history = history->next)
        history_end_key(events, history, key_id);
    history_end_key(events, &events->all, key_id);
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

/* How the engine before us ended is read once: it says nothing about how we do. It may have told numbers of
 * which nothing was written, so the count goes on above all that it may have begun with, too. */
int events_open(struct engine *engine, struct error *err)
{
    struct events *events = engine_alloc(sizeof(*events));
    struct numbers *numbers = &events->of_all;
    uint64_t life, last;

    engine->events = events;
    events->engine = engine;
    TAILQ_INIT(&events->turns);
    history_init(events, &events->all,
                 numbers); /* for what it has, before its own numbers are known */
    if (history_last(&events->all, &last, err) != 0 ||
        number_read(events, END_KEY, &numbers->last_life, err) != 0 ||
        number_read(events, TORN_KEY, &events->torn, err) != 0 ||
        number_read(events, LIFE_KEY, &life, err) != 0)
        return -1;
    if (numbers->last_life < life)
        numbers->last_life = 0; /* said by one before it */
    count_on_from(&last, numbers->last_life);
    count_on_from(&last, events->torn);
    count_on_from(&last, life);
    numbers->next = last > 0 ? (last / RESTART_STEP + 1) * RESTART_STEP : 1;
    events->life = numbers->next;
    if (numbers->last_life > 0) {
        store_put(engine->store, END_KEY, NULL, 0, STORE_ANY, end_noted, NULL);
    } else if (events->life > 1) {
        events->torn = events->life;
        number_put(events, TORN_KEY, events->torn);
    }
    history_init(events, &events->all, numbers);
    life_note(events);
    return 0;
}

uint64_t events_told(const struct engine *engine)
{
    return engine->events->of_all.next - engine->events->life;
}

/* The store is still open, and waits for this when it is closed. */
void events_end(struct engine *engine)
{
    if (engine->events == NULL || engine->events->of_all.next == 0)
        return;
    events_flush(engine);
    number_put(engine->events, END_KEY, engine->events->of_all.next);
}

void events_close(struct engine *engine)
{
    struct events *events = engine->events;

    if (events == NULL)
        return;
    for (struct history *history = events->tenants, *next; history != NULL; history = next) {
        next = history->next;
        history_free(history);
        free(history);
    }
    history_free(&events->all);
    for (struct numbers *numbers = events->of_tenants, *other; numbers != NULL; numbers = other) {
        other = numbers->other;
        free(numbers);
    }
    map_free(&events->numbers);
    free(events);
    engine->events = NULL;
}
