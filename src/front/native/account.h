/* What is noted of each request when it is over: its line in the audit log, numbers, and spans.
 *
 * Nothing here waits, and nothing that a request holds but its route, sandbox and peer is noted: no path
 * as it was sent, no query, no header, no body, no secret. */
#pragma once

#include "http/http.h"

struct native;
struct job;

struct account {
    /* Refusals are cheap to cause, so there is a bound on how many lines of a second they get. */
    uint64_t refused_second;
    unsigned refused, left_out;
};

/* The request begins: gives it its id, which the answer's header tells. */
void account_begin(struct job *job);
void account_over(const struct http_request *request, unsigned status, void *native);
