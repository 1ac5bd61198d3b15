/* What is noted of each request when it is over: its line in the audit log, numbers, and spans.
 *
 * Nothing here waits, and nothing that a request holds but its route, sandbox and peer is noted: no path
 * as it was sent, no query, no header, no body, no secret. */
#pragma once

#include "http/http.h"

struct native;
struct job;

/* So many of a second are told, and the others counted. */
struct account_pace {
    uint64_t second, left_out;
    unsigned taken;
};

struct account {
    /* Refusals are cheap to cause, so there is a bound on how many lines of a second they get; a closer one
     * for callers who are nobody. */
    struct account_pace refused, nobody;
    struct account_pace failed; /* in the log */
};

/* The request begins: gives it its id, which the answer's header tells. */
void account_begin(struct job *job);
void account_over(const struct http_request *request, unsigned status, void *native);
