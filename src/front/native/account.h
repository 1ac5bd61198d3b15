/* What is noted of each request when it is over: its line in the audit log, numbers, and spans. What stays
 * has a line when it begins, too, for the engine may be killed before it is over.
 *
 * Nothing here waits, and nothing that a request holds but its route, sandbox and peer is noted: no path
 * as it was sent, no query, no header, no body, no secret. Of a fault of ours the log has the error's text, which
 * the client has, too; of a full host also the figures, which a tenant does not get. */
#pragma once

#include "base/rate.h"
#include "front/native/account_share.h"
#include "http/http.h"

#include <stdbool.h>
#include <stdint.h>

struct native;
struct job;

/* So many of a second are told, and the others counted. */
struct account_pace {
    struct rate rate;
    uint64_t left_out;
};

struct account {
    /* Refusals are cheap to cause, so there is a bound on how many lines of a second those of callers get who are
     * nobody. */
    struct account_pace nobody;
    struct account_shares shares; /* of all other lines */
    /* In the log: those that a client, or its sandbox, can cause at will; and those of a full host. */
    struct account_pace failed, full;
    /* In the log, too: keys and tokens that were refused. */
    struct account_pace keys;
};

/* The request begins: gives it its id, which the answer's header tells. */
void account_begin(struct job *job);
/* It is admitted and will stay: a stream, a terminal, a watch. Once; later calls do nothing. */
void account_began(struct job *job);
/* A body of so many bytes comes or goes, UINT64_MAX: nobody knows how many. What is short is over soon. */
void account_transfer(struct job *job, uint64_t bytes);
/* The same of any other that has been under way for a second: called of all now and then. */
void account_linger(struct job *job);
/* A run that its request outlives has ended, `end` says how, or was refused, `code` says why; the other is NULL.
 * `kernel`: or NULL, or empty. */
void account_run(struct job *job, const char *kernel, const char *end, const char *code,
                 uint64_t began_ns);
/* Whether an answer is a fault of ours, or of the host, that the operator has to see to. */
bool account_is_fault(unsigned status, const char *code);
/* Whether it is said that the host is full, which an operator has the figures of. */
bool account_is_full(const char *code);
/* Whether the log has the reason that the client was told: of both, and of a key that is refused. */
bool account_is_logged(unsigned status, const char *code);
/* Whether a route's pattern is that of a sandbox, or of something in one. */
bool account_is_of_sandbox(const char *pattern);
void account_over(const struct http_request *request, unsigned status, void *native);
