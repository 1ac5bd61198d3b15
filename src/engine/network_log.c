/* See network_log.h. Lines come from what boxes do, so each addition costs little: of the refusals, which are
 * searched, there are few. */
#include "engine/network_log.h"

#include "engine/parts.h"

#include <stdlib.h>
#include <string.h>

struct log_line {
    TAILQ_ENTRY(log_line) next;
    struct net_record is; /* its texts follow */
    uint64_t order, times;
};

/* Together ENGINE_NETWORK_LINES. */
static const size_t most[LOG_PARTS] = {
    [LOG_WENT] = 128, [LOG_ASKED] = 56, [LOG_REFUSED] = 64, [LOG_LIMITED] = 8};
/* That a log has in any case. */
static const size_t least[LOG_PARTS] = {
    [LOG_WENT] = 8, [LOG_ASKED] = 3, [LOG_REFUSED] = 4, [LOG_LIMITED] = 1};
/* Of which a log that is to give up a line does: the first of these that has more than its least. */
static const enum log_part given_up[LOG_PARTS] = {LOG_REFUSED, LOG_LIMITED, LOG_ASKED, LOG_WENT};

_Static_assert(ENGINE_NETWORK_LINES == 256, "the parts of a log are this together");

void log_room_init(struct log_room *room, size_t lines)
{
    *room = (struct log_room){.most = lines};
    TAILQ_INIT(&room->large);
}

void network_log_init(struct network_log *log, struct log_room *tenant, struct log_room *all)
{
    *log = (struct network_log){.rooms = {[LOG_OF_TENANT] = tenant, [LOG_OF_ALL] = all}};
    for (unsigned i = 0; i < LOG_PARTS; i++)
        TAILQ_INIT(&log->parts[i]);
}

static enum log_part part_of(const struct net_record *record)
{
    bool is_limit = strcmp(record->reason, "limit") == 0;
    bool is_cut = is_limit || strcmp(record->reason, "cut") == 0;

    if (!record->allowed)
        return is_limit ? LOG_LIMITED : LOG_REFUSED;
    if (!is_cut && strcmp(record->reason, "allowed") != 0)
        return LOG_REFUSED;
    return record->kind == NET_LOOKUP ? LOG_ASKED : LOG_WENT;
}

/* ---- room ---- */

static void list_large(struct network_log *log, bool is_newest)
{
    bool is_large = false;

    for (unsigned i = 0; i < LOG_PARTS; i++)
        is_large |= log->counts[i] > least[i];
    if (is_large == log->is_large && !is_newest)
        return;
    for (unsigned i = 0; i < LOG_SHARES; i++) {
        if (log->is_large)
            TAILQ_REMOVE(&log->rooms[i]->large, log, large[i]);
        if (is_large)
            TAILQ_INSERT_TAIL(&log->rooms[i]->large, log, large[i]);
    }
    log->is_large = is_large;
}

static void drop_oldest(struct network_log *log, enum log_part part)
{
    struct log_line *line = TAILQ_FIRST(&log->parts[part]);

    TAILQ_REMOVE(&log->parts[part], line, next);
    free(line);
    log->counts[part]--;
    log->gone++;
    for (unsigned i = 0; i < LOG_SHARES; i++)
        log->rooms[i]->count--;
    list_large(log, false);
}

static void give_up(struct network_log *log)
{
    unsigned i = 0;

    while (i < LOG_PARTS - 1 && log->counts[given_up[i]] <= least[given_up[i]])
        i++;
    drop_oldest(log, given_up[i]);
}

/* Another log gives up a line for this one, or the same part of this one does, unless that has no more than its
 * least. */
static void make_room(struct network_log *log, enum log_part part)
{
    if (log->counts[part] == most[part])
        drop_oldest(log, part);
    for (unsigned i = 0; i < LOG_SHARES; i++) {
        struct log_room *room = log->rooms[i];

        while (room->count >= room->most) {
            struct network_log *other = TAILQ_FIRST(&room->large);

            if (other == log)
                other = TAILQ_NEXT(other, large[i]);
            if (other == NULL && log->counts[part] < least[part])
                break;
            if (other == NULL) {
                drop_oldest(log, part);
                return;
            }
            give_up(other);
        }
    }
}

/* ---- lines ---- */

static bool is_same_text(const char *one, const char *other)
{
    return one == other || (one != NULL && other != NULL && strcmp(one, other) == 0);
}

static bool is_same(const struct net_record *one, const struct net_record *other)
{
    return one->kind == other->kind && one->port == other->port && one->allowed == other->allowed &&
           strcmp(one->reason, other->reason) == 0 && is_same_text(one->name, other->name) &&
           (one->name != NULL || memcmp(&one->address, &other->address, sizeof(one->address)) == 0);
}

static struct log_line *refusal_find(const struct network_log *log, enum log_part part,
                                     const struct net_record *record)
{
    struct log_line *line = TAILQ_LAST(&log->parts[part], log_lines);

    while (line != NULL && !is_same(&line->is, record))
        line = TAILQ_PREV(line, log_lines, next);
    return line;
}

static size_t text_room(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

static const char *text_put(char **at, const char *text)
{
    char *put = *at;

    if (text == NULL)
        return NULL;
    *at = stpcpy(put, text) + 1;
    return put;
}

static struct log_line *line_new(const struct net_record *record)
{
    struct log_line *line = engine_alloc(sizeof(*line) + text_room(record->name) +
                                         text_room(record->rule) + text_room(record->reason));
    char *at = (char *)(line + 1);

    line->is = *record;
    line->is.name = text_put(&at, record->name);
    line->is.rule = text_put(&at, record->rule);
    line->is.reason = text_put(&at, record->reason);
    line->times = 1;
    return line;
}

void network_log_add(struct network_log *log, const struct net_record *record)
{
    const enum log_part part = part_of(record);
    const bool is_refusal = part == LOG_REFUSED || part == LOG_LIMITED;
    struct log_line *line = is_refusal ? refusal_find(log, part, record) : NULL;

    if (line != NULL) {
        line->times++;
        line->is.time_ms = record->time_ms;
        TAILQ_REMOVE(&log->parts[part], line, next);
    } else {
        make_room(log, part);
        line = line_new(record);
        log->counts[part]++;
        for (unsigned i = 0; i < LOG_SHARES; i++)
            log->rooms[i]->count++;
    }
    line->order = ++log->order;
    TAILQ_INSERT_TAIL(&log->parts[part], line, next);
    list_large(log, true);
}

void network_log_free(struct network_log *log)
{
    for (unsigned i = 0; i < LOG_PARTS; i++)
        while (log->counts[i] > 0)
            drop_oldest(log, i);
}

/* ---- looking ---- */

size_t network_log_count(const struct network_log *log)
{
    size_t count = 0;

    for (unsigned i = 0; i < LOG_PARTS; i++)
        count += log->counts[i];
    return count;
}

void network_log_each(const struct network_log *log, size_t limit,
                      bool (*each)(void *arg, const struct net_record *line, uint64_t times),
                      void *arg)
{
    size_t skip = network_log_count(log);
    const struct log_line *at[LOG_PARTS];

    skip = skip > limit ? skip - limit : 0;
    for (unsigned i = 0; i < LOG_PARTS; i++)
        at[i] = TAILQ_FIRST(&log->parts[i]);
    for (;;) {
        const struct log_line *line;
        unsigned oldest = LOG_PARTS;

        for (unsigned i = 0; i < LOG_PARTS; i++)
            if (at[i] != NULL && (oldest == LOG_PARTS || at[i]->order < at[oldest]->order))
                oldest = i;
        if (oldest == LOG_PARTS)
            return;
        line = at[oldest];
        at[oldest] = TAILQ_NEXT(line, next);
        if (skip > 0)
            skip--;
        else if (!each(arg, &line->is, line->times))
            return;
    }
}
