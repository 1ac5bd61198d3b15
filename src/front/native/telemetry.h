/* Spans for an OpenTelemetry collector: OTLP over HTTP, in JSON.
 *
 * Whoever has a span hands it over and goes on: it lies in a bounded queue until a thread of its own sends
 * it, with others, by libcurl, which is loaded only where this is configured. A collector that is slow or
 * gone costs spans, which are counted, and never a request. No path, query, header, body or secret may be
 * in a span; what names something in it is static or was bounded by its maker. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct telemetry_options {
    const char *endpoint; /* "http://127.0.0.1:4318": traces go to /v1/traces below it */
    const char *service, *version;
    int headers; /* file of "Name: value" lines, or -1; taken */
};

struct telemetry_span {
    uint8_t trace[16], id[8], parent[8]; /* parent of zeros: none */
    uint64_t begin_ns, end_ns;           /* wall clock */
    bool is_server;                      /* it is a whole request */
    const char *name;                    /* static; of a request the method */
    const char *route, *code;            /* static, or NULL */
    unsigned status;                     /* 0: no answer, or no request */
    char tenant[64], sandbox[32], request[32];
};

struct telemetry;
int telemetry_open(const struct telemetry_options *options, struct telemetry **out,
                   struct error *err);
void telemetry_add(struct telemetry *telemetry, const struct telemetry_span *span);
void telemetry_count(struct telemetry *telemetry, uint64_t *sent, uint64_t *dropped);
/* Sends what there is, within two seconds. */
void telemetry_close(struct telemetry *telemetry);

/* "00-TRACE-PARENT-FLAGS" of W3C Trace Context; false: it is none. */
bool telemetry_parent(const char *text, uint8_t trace[16], uint8_t parent[8], bool *is_sampled);
