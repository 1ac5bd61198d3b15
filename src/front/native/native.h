/* The native API, /v1: a translator between JSON over HTTP and the engine. It holds no state and no
 * policy. `openapi.yaml` beside it is the source of truth, and is served. */
#pragma once

#include "engine/engine.h"
#include "http/http.h"

struct native_options {
    struct engine *engine;
    const char *version;
    /* What a request may call this host, beside loopback names and addresses: NULL-terminated. */
    const char *const *hosts;
    uid_t owner;       /* who may use the unix socket, beside root; (uid_t)-1: by its file mode alone */
    bool is_draining;
};

/* The routes and the two callbacks of struct http_options; `data` must be the native. */
struct native;
int native_new(const struct native_options *options, struct native **out, struct error *err);
void native_free(struct native *native);
void native_fill(struct native *native, struct http_options *http);
