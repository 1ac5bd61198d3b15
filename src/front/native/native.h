/* The native API, /v1: a translator between JSON over HTTP and the engine. It holds no state but the
 * answers of requests that may be repeated, and no policy. `openapi.yaml` beside it is the source of
 * truth, and is served. */
#pragma once

#include "engine/engine.h"
#include "front/native/audit.h"
#include "front/native/telemetry.h"
#include "http/http.h"

struct native_options {
    uv_loop_t *loop;
    struct engine *engine;
    const char *version;
    /* What a request may call this host, beside loopback names and addresses: NULL-terminated; copied.
     * NULL: nothing else. */
    const char *const *hosts;
    const char *port_domain;     /* PORT-ID of this is the port of a sandbox; copied; or NULL */
    uint64_t restarts;           /* engines before this one, since the keeper began */
    struct audit *audit;         /* or NULL; outlives the native */
    struct telemetry *telemetry; /* the same */
    uid_t owner;                 /* who may use the unix socket, beside root; (uid_t)-1: nobody */
};

/* The routes, the limits of streams and the two callbacks of struct http_options; `data` is the native,
 * which must outlive the server. */
struct native;
int native_new(const struct native_options *options, struct native **out, struct error *err);
void native_fill(struct native *native, struct http_options *http);

/* The server that it is behind, whose numbers its metrics show; NULL before that is gone. */
void native_count(struct native *native, struct http_server *server);

/* The server ends: nothing new is begun, 503 "draining". What is at work goes on, and who waits for a
 * command hears how it ended, for it does. */
void native_stop(struct native *native);

/* Requests that are not answered yet. */
size_t native_busy(const struct native *native);

/* From now on nothing new is begun: 503 "draining". Who waits for the end of a command is told that it
 * goes on (503 "still_running"). */
void native_drain(struct native *native);

/* After http_stop(), before the engine is closed: waits for threads that read bodies. */
void native_settle(struct native *native);

/* After http_stop(), when the loop has run. What it has of the loop is closed, so the loop runs once
 * more. */
void native_free(struct native *native);
