/* A strand of events: the newest in memory, and more of them in a stream of the store, in the order of their
 * numbers.
 *
 * A history has several, so that events of one kind push out none of another. Whoever reads goes through them
 * side by side, each from the store first and then from memory, and is told what has the lowest number. */
#pragma once

#include "engine/event_traffic.h"
#include "engine/parts.h"

#include <jansson.h>

#define STRAND_BATCH 64U /* events in an entry of the stream, at most */
#define STRAND_ENTRIES_AT_ONCE 8U

struct event {
    uint64_t sequence, time_ms;
    char type[32], tenant[64], sandbox[KEEPER_ID_LENGTH + 4], process[PROCS_ID_MAX], reason[32];
    char key[24], kernel[KEEPER_ID_LENGTH + 4];
    struct event_traffic *traffic; /* or NULL */
};
void event_release(struct event *event);

struct strand {
    struct engine *engine;
    char stream[80];
    struct event *ring; /* `count` of them, the oldest at `start` */
    size_t room, start, count, most;
    size_t unwritten; /* the newest of these */
    size_t writing;   /* entries on their way */
    uint64_t from;    /* the ring has all with this number or a higher one */
    uint64_t settled; /* the store has all up to this number, or failed to write them */
};

/* `from`: the number of the next event there will be. */
void strand_init(struct strand *strand, struct engine *engine, const char *kind, const char *tenant,
                 size_t most, uint64_t from);
void strand_free(struct strand *strand);
void strand_add(struct strand *strand, const struct event *event);
void strand_flush(struct strand *strand);
bool strand_is_written(const struct strand *strand);
/* Whether none of its events from `sequence` on is gone. */
bool strand_has(const struct strand *strand, uint64_t sequence);
/* The number of the last event that the store has; 0: none. */
int strand_last(const struct strand *strand, uint64_t *last, struct error *err);

enum strand_found {
    STRAND_EVENT,
    STRAND_END,   /* there is none yet */
    STRAND_LATER, /* enough was read for now */
};

/* Lasts for one turn of the loop; `entry` is kept from one to the next. */
struct strand_reader {
    const struct strand *strand;
    uint64_t entry;  /* of the stream, where to go on; 0: that is not known */
    unsigned budget; /* entries that may still be read */
    bool is_read;    /* `entry` is */
    json_t *array;   /* of it; its next is at `index` */
    size_t index;
    struct event event; /* the one that was found in it */
    bool is_over;       /* the store has no more that is not in the ring */
};
void strand_reader_begin(struct strand_reader *reader, const struct strand *strand, uint64_t entry);
/* The first with this number or a higher one: numbers only rise. It is good until the next call of anything. */
enum strand_found strand_peek(struct strand_reader *reader, uint64_t sequence,
                              const struct event **event);
uint64_t strand_reader_end(struct strand_reader *reader); /* what `entry` is next time */
