/* What is counted of requests, and the page that says all that is counted, in Prometheus' text format.
 *
 * Counting is an addition in memory; all else is done when somebody looks. What a client can choose is no
 * label: routes, statuses and at most METRICS_TENANTS tenants are. */
#pragma once

#include "base/histogram.h"
#include "http/http.h"

#define METRICS_STATUSES 20
#define METRICS_TENANTS 100

struct metrics_route {
    struct {
        unsigned status;
        uint64_t count;
    } of[METRICS_STATUSES]; /* the last is for the rest, if there are so many */
};

struct metrics {
    struct metrics_route *routes; /* by row, and one more for what fits none */
    struct histogram create, exec, first;
    struct histogram turns; /* CPU of each round of the loop, in which nobody else was heard */
    uint64_t turn_ns;       /* that its thread had used when this one began */
    uv_prepare_t *turn;
    struct {
        char name[64];
        uint64_t requests, received, sent;
    } tenants[METRICS_TENANTS + 1]; /* the last is for those beyond */
    size_t tenants_count, tenant_last;
    uint64_t started_ms;
};

struct native;
struct job;
int metrics_open(struct native *native); /* -1: no memory */
void metrics_close(struct native *native);
/* Of one that is under way: what it has got and sent. */
void metrics_moved(struct native *native, struct job *job);
void metrics_over(struct native *native, const struct http_request *request, struct job *job,
                  unsigned status, uint64_t took_ns);
