/* Asking the name servers of the host: what lies between resolve.c, which decides who asks when, and
 * upstream.c, which knows how. */
#pragma once

#include "net/parts.h"

#define UPSTREAM_TICK_MS 100

struct upstream;
struct upstream_ask;
struct upstream_channel;

/* One family's part of an answer. */
struct upstream_half {
    struct upstream_ask *ask;
    bool is_over;
    enum dns_code
        code; /* with DNS_OK and no address: the name exists, and has none of this family */
    uint32_t ttl_s;
    size_t count;
    struct policy_address addresses[RESOLVED_MAX];
};

struct upstream_ask {
    struct upstream_half halves[2]; /* A, AAAA */
    unsigned pending;               /* halves that are not over; lives until there is none */
    void (*over)(struct upstream_ask *ask); /* of each half; maybe before upstream_ask() returns */
    struct upstream_channel *channel;
};

/* `servers` as of net_options; NULL: the host's. "bad_resolvers". */
int upstream_open(uv_loop_t *loop, const char *servers, struct upstream **out, struct error *err);
/* What was asked is over, with DNS_FAILED, before this returns; `closed` comes when nothing is left in the loop, maybe before this
 * returns, too. */
void upstream_close(struct upstream *upstream, void (*closed)(void *arg), void *arg);
void upstream_ask(struct upstream *upstream, const char *name, struct upstream_ask *ask);
/* Every UPSTREAM_TICK_MS while something is asked, never from within `over`: questions are repeated or given
 * up, and channels that are not used any more are freed. */
void upstream_tick(struct upstream *upstream);
