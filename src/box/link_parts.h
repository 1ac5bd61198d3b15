/* What a `struct link` is, for the two who have one: link_open(), and a `struct box` within itself.
 *
 * The box's own is the plain one: it waits where the socket is full, and its commands are not held,
 * so that a command of `cove run` costs one request and two answers. */
#pragma once

#include "box/link.h"

struct link_request; /* one that waits for room in the socket */

struct link {
    int control;
    int poll; /* an epoll of `control`; -1 of a plain one */
    bool is_plain;
    bool is_watched; /* `poll` is somebody else's, and says `data` */
    void *data;

    struct error failure; /* what the set-up child said; the reason of LINK_GONE */
    bool failed;
    bool is_gone;

    /* What init may still answer: everything else is a box that does not speak the protocol, so that
     * no flood of answers, and of fds, is longer than what was asked for. */
    uint32_t version; /* of init: ours where it was made just now, else what it says */
    bool is_ready;
    bool in_table;
    bool awaits_welcome; /* all answers before that one are stale */
    uint32_t hello;      /* the id of the last one */
    uint32_t stale;      /* answers that were thrown away */
    uint32_t entries;    /* of this table */
    uint32_t commands;   /* asked for, neither started nor refused */
    uint32_t briefs;     /* of these, or refused since: those that are not held */
    uint32_t running;
    uint32_t files;

    struct link_request *first, **last;
    size_t waiting_bytes;
};

/* A plain one. `control` stays the caller's to close. */
void link_begin_plain(struct link *link, int control);

/* link_exec(), and for a plain link without holding. */
int link_start(struct link *link, uint32_t id, const struct link_command *command,
               struct error *err);
