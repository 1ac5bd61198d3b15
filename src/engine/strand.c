/* See strand.h. What leaves the memory was given to the store before, many events in one entry: two writes for
 * each command would cost more than the command. Of what the store has, one entry after the other is read, and no
 * more than a turn of the loop has time for. */
#include "engine/strand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING_LEAST 64U
#define ENTRIES_KEPT 1000U /* of a stream: 64,000 events at most, and 1,000 at least */

void event_release(struct event *event)
{
    event_traffic_free(event->traffic);
    event->traffic = NULL;
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
    set_text(object, "kernel", event->kernel);
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

static uint64_t get_sequence(const json_t *object)
{
    return (uint64_t)json_integer_value(json_object_get(object, "sequence"));
}

/* To be released. */
static void event_parse(const json_t *object, struct event *event)
{
    *event = (struct event){
        .sequence = get_sequence(object),
        .time_ms = (uint64_t)json_integer_value(json_object_get(object, "time_ms")),
    };
    get_text(object, "type", event->type, sizeof(event->type));
    get_text(object, "tenant", event->tenant, sizeof(event->tenant));
    get_text(object, "sandbox", event->sandbox, sizeof(event->sandbox));
    get_text(object, "kernel", event->kernel, sizeof(event->kernel));
    get_text(object, "process", event->process, sizeof(event->process));
    get_text(object, "reason", event->reason, sizeof(event->reason));
    get_text(object, "key", event->key, sizeof(event->key));
    event->traffic = event_traffic_parse(json_object_get(object, "traffic"));
}

/* ---- in memory ---- */

void strand_init(struct strand *strand, struct engine *engine, const char *kind, const char *tenant,
                 size_t most, uint64_t from)
{
    *strand = (struct strand){.engine = engine, .most = most, .from = from, .settled = from - 1};
    (void)snprintf(strand->stream, sizeof(strand->stream), "%s%s%s", kind,
                   *tenant != '\0' ? "/" : "", tenant);
}

static struct event *event_at(const struct strand *strand, size_t index)
{
    return &strand->ring[(strand->start + index) % strand->room];
}

void strand_free(struct strand *strand)
{
    for (size_t i = 0; i < strand->count; i++)
        event_release(event_at(strand, i));
    free(strand->ring);
}

static void grow(struct strand *strand)
{
    size_t room = strand->room == 0 ? RING_LEAST : strand->room * 2;
    struct event *ring = engine_alloc(room * sizeof(*ring));

    for (size_t i = 0; i < strand->count; i++)
        ring[i] = *event_at(strand, i);
    free(strand->ring);
    strand->ring = ring;
    strand->room = room;
    strand->start = 0;
}

/* What is dropped was given to the store before: a batch is much smaller than a ring. */
void strand_add(struct strand *strand, const struct event *event)
{
    if (strand->count == strand->room && strand->room < strand->most)
        grow(strand);
    if (strand->count == strand->room) {
        strand->from = event_at(strand, 0)->sequence + 1;
        event_release(event_at(strand, 0));
        strand->start = (strand->start + 1) % strand->room;
        strand->count--;
    }
    if (event->traffic != NULL)
        event_traffic_hold(event->traffic);
    *event_at(strand, strand->count++) = *event;
    strand->unwritten++;
}

/* The first in the ring with this number or a higher one. */
static size_t ring_find(const struct strand *strand, uint64_t sequence)
{
    size_t low = 0, high = strand->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (event_at(strand, middle)->sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- into the store ---- */

struct batch {
    struct strand *strand;
    uint64_t last; /* of its numbers */
};

static void written(void *arg, uint64_t entry, const struct error *err)
{
    struct batch *batch = arg;
    struct strand *strand = batch->strand;

    (void)entry;
    if (batch->last > strand->settled)
        strand->settled = batch->last;
    free(batch);
    strand->writing--;
    if (err != NULL)
        log_say(LOG_LEVEL_WARN, "store_failed", "events could not be written: %s", err->text);
    engine_settled(strand->engine);
}

void strand_flush(struct strand *strand)
{
    while (strand->unwritten > 0) {
        json_t *array = json_array();
        struct batch *batch;
        uint64_t last = 0;
        char *text;

        for (unsigned i = 0; i < STRAND_BATCH && strand->unwritten > 0; i++) {
            const struct event *event = event_at(strand, strand->count - strand->unwritten--);

            last = event->sequence;
            (void)json_array_append_new(array, event_format(event));
        }
        text = json_dumps(array, JSON_COMPACT);
        json_decref(array);
        if (text == NULL) {
            strand->settled = last;
            continue;
        }
        batch = engine_alloc(sizeof(*batch));
        *batch = (struct batch){strand, last};
        strand->writing++;
        store_publish(strand->engine->store, strand->stream, text, strlen(text), ENTRIES_KEPT,
                      written, batch);
        free(text);
    }
}

bool strand_is_written(const struct strand *strand)
{
    return strand->unwritten == 0 && strand->writing == 0;
}

/* ---- what the store has ---- */

struct span {
    uint64_t first, last; /* numbers; 0: none */
};

static bool span_entry(void *arg, const struct store_value *value)
{
    struct span *span = arg;
    json_t *array = json_loadb(value->data, value->size, 0, NULL);
    size_t count = json_array_size(array);

    if (count > 0) {
        if (span->first == 0)
            span->first = get_sequence(json_array_get(array, 0));
        span->last = get_sequence(json_array_get(array, count - 1));
    }
    json_decref(array);
    return true;
}

/* One entry at either end. *is_all: none of its beginning is gone. */
static int span_read(const struct strand *strand, struct span *span, bool *is_all,
                     struct error *err)
{
    struct store *store = strand->engine->store;
    uint64_t first, next, after, end;

    *span = (struct span){0};
    if (store_read(store, strand->stream, 1, 1, span_entry, span, &first, &next, err) != 0)
        return -1;
    *is_all = first <= 1;
    if (next <= 1)
        return 0;
    return store_read(store, strand->stream, next - 1, 1, span_entry, span, &after, &end, err);
}

int strand_last(const struct strand *strand, uint64_t *last, struct error *err)
{
    struct span span;
    bool is_all;

    if (span_read(strand, &span, &is_all, err) != 0)
        return -1;
    *last = span.last;
    return 0;
}

bool strand_has(const struct strand *strand, uint64_t sequence)
{
    struct span span;
    struct error err;
    bool is_all;

    if (sequence >= strand->from)
        return true;
    return span_read(strand, &span, &is_all, &err) == 0 && (is_all || sequence >= span.first);
}

/* The last entry that begins with `sequence` or before, else the first there is. */
static int entry_find(const struct strand *strand, uint64_t sequence, uint64_t *entry,
                      struct error *err)
{
    struct store *store = strand->engine->store;
    uint64_t low, high, oldest, end;
    struct span span = {0};

    if (store_read(store, strand->stream, 1, 1, span_entry, &span, &low, &high, err) != 0)
        return -1;
    while (high > low + 1) {
        uint64_t middle = low + (high - low) / 2;

        span = (struct span){0};
        if (store_read(store, strand->stream, middle, 1, span_entry, &span, &oldest, &end, err) !=
            0)
            return -1;
        if (span.first <= sequence)
            low = middle;
        else
            high = middle;
    }
    *entry = low > 0 ? low : 1;
    return 0;
}

/* ---- reading ---- */

void strand_reader_begin(struct strand_reader *reader, const struct strand *strand, uint64_t entry)
{
    *reader = (struct strand_reader){
        .strand = strand, .entry = entry, .budget = STRAND_ENTRIES_AT_ONCE};
}

static bool entry_take(void *arg, const struct store_value *value)
{
    struct strand_reader *reader = arg;

    reader->array = json_loadb(value->data, value->size, 0, NULL);
    reader->entry = value->revision;
    reader->index = 0;
    reader->is_read = true;
    reader->is_over = false;
    return true;
}

/* The one after that which was read, else the one at `entry`. One that is no JSON has no events. */
static void entry_next(struct strand_reader *reader, uint64_t sequence)
{
    const struct strand *strand = reader->strand;
    uint64_t wanted, first, next;
    struct error err;
    int failed = 0;

    if (reader->is_read)
        reader->entry++;
    reader->is_read = false;
    json_decref(reader->array);
    reader->array = NULL;
    reader->is_over = true; /* unless there is one */
    if (reader->entry == 0)
        failed = entry_find(strand, sequence, &reader->entry, &err);
    wanted = reader->entry;
    if (failed != 0 || store_read(strand->engine->store, strand->stream, wanted, 1, entry_take,
                                  reader, &first, &next, &err) != 0)
        log_say(LOG_LEVEL_WARN, "store_failed", "old events cannot be read: %s", err.text);
}

/* Whether there is one that only the store has: it is in `event` then. */
static bool peek_stored(struct strand_reader *reader, uint64_t sequence)
{
    if (reader->event.sequence >= sequence && reader->event.sequence > 0)
        return true; /* it was not told yet */
    while (!reader->is_over) {
        while (reader->index < json_array_size(reader->array)) {
            event_release(&reader->event);
            event_parse(json_array_get(reader->array, reader->index++), &reader->event);
            if (reader->event.sequence >= sequence)
                return true;
        }
        if (reader->budget == 0)
            return false;
        reader->budget--;
        entry_next(reader, sequence);
    }
    return false;
}

enum strand_found strand_peek(struct strand_reader *reader, uint64_t sequence,
                              const struct event **event)
{
    const struct strand *strand = reader->strand;
    size_t index;

    if (sequence < strand->from) {
        if (peek_stored(reader, sequence) && reader->event.sequence < strand->from) {
            *event = &reader->event;
            return STRAND_EVENT;
        }
        if (!reader->is_over && reader->event.sequence < strand->from)
            return STRAND_LATER;
        if (reader->is_over && strand->settled + 1 < strand->from)
            return STRAND_LATER; /* some of it is on its way into the store */
        sequence = strand->from;
    }
    index = ring_find(strand, sequence);
    if (index == strand->count)
        return STRAND_END;
    *event = event_at(strand, index);
    return STRAND_EVENT;
}

uint64_t strand_reader_end(struct strand_reader *reader)
{
    event_release(&reader->event);
    json_decref(reader->array);
    reader->array = NULL;
    return reader->entry;
}
