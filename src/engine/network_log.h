/* The log of what a sandbox tried: its newest lines, in memory.
 *
 * What went through, what was asked for and what was refused each have a part of their own, so that no number of
 * refusals pushes out what was carried; and the same refusal again is one line, with a count. How many lines all
 * logs of a tenant have, and all there are, is bounded: the log that got none for longest gives some up then,
 * down to a few that each has for ever. */
#pragma once

#include "net/net.h"

#include <sys/queue.h>

enum log_part {
    LOG_WENT,    /* connections */
    LOG_ASKED,   /* names that were found */
    LOG_REFUSED, /* and what failed */
    LOG_LIMITED, /* refused for a bound: it tries very much, and that would be gone soon */
    LOG_PARTS,
};

enum log_share { LOG_OF_TENANT, LOG_OF_ALL, LOG_SHARES };

TAILQ_HEAD(log_lines, log_line);

struct network_log {
    struct log_room *rooms[LOG_SHARES];
    TAILQ_ENTRY(network_log) large[LOG_SHARES]; /* of the rooms' lists, if `is_large` */
    bool is_large;                              /* some part has more than its least */
    struct log_lines parts[LOG_PARTS];          /* the oldest first */
    size_t counts[LOG_PARTS];
    uint64_t order; /* of the newest line */
    uint64_t gone;
};

/* What several logs share. */
struct log_room {
    size_t count, most;                       /* lines */
    TAILQ_HEAD(log_large, network_log) large; /* the one that got none for longest first */
};

void log_room_init(struct log_room *room, size_t most);
void network_log_init(struct network_log *log, struct log_room *tenant, struct log_room *all);
void network_log_free(struct network_log *log);
void network_log_add(struct network_log *log, const struct net_record *record);
size_t network_log_count(const struct network_log *log);
/* The newest `limit`, the oldest of them first; `times` is how often the same happened. */
void network_log_each(const struct network_log *log, size_t limit,
                      bool (*each)(void *arg, const struct net_record *line, uint64_t times),
                      void *arg);
