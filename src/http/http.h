/* The HTTP/1.1 server: routes, bodies, streams; no word of any API.
 *
 * One loop, one thread. Listening sockets come from outside, TCP or unix. Everything a client may do
 * is bounded: connections, header bytes, body bytes, the time to send either, what waits to be
 * written. A handler is called when the request is whole (or, with HTTP_STREAM_BODY, when its header
 * is) and answers then or later; libmicrohttpd is used in this room and its types do not travel. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct http_server;
struct http_request;

typedef void (*http_handler)(struct http_request *request, void *data);

enum http_route_flags {
    HTTP_STREAM_BODY = 1, /* the handler is called before the body and takes it by http_on_body() */
};

struct http_route {
    const char *method;
    const char *pattern; /* "/v1/sandboxes/{id}/exec": {name} is one segment, percent-decoded */
    http_handler handler;
    unsigned flags;
};

struct http_limits {
    size_t connections;      /* default 4,096 */
    size_t body_bytes;       /* 4 MiB; not with HTTP_STREAM_BODY */
    size_t header_bytes;     /* 32 KiB */
    unsigned header_ms;      /* 10 s: for all of the header */
    unsigned idle_ms;        /* 75 s: between two requests of a connection */
    size_t backlog_bytes;    /* 1 MiB: a stream whose client does not read is not written beyond this */
};

struct http_options {
    const struct http_route *routes;
    size_t routes_count;
    void *data; /* for the handlers */
    struct http_limits limits; /* 0: the default */
    /* Every request, before any handler: returns false when it has answered it (no such host, no key,
     * a foreign origin). May be NULL. */
    bool (*admit)(struct http_request *request, void *data);
    /* For what this room refuses by itself (no such route, a body too large, ...): answers in the
     * form of the API. `code` is stable. */
    void (*refuse)(struct http_request *request, unsigned status, const char *code,
                   const char *detail, void *data);
};

int http_start(uv_loop_t *loop, const struct http_options *options, struct http_server **out,
               struct error *err);

/* Accepts on a listening socket, which it takes. */
int http_listen(struct http_server *server, int socket, struct error *err);

/* Takes no more connections and no more requests on those there are; `done` when the last request is
 * answered, or after `most_ms`, when the rest is cut. */
void http_drain(struct http_server *server, unsigned most_ms, void (*done)(void *arg), void *arg);
void http_stop(struct http_server *server);

/* ---- a request ---- */

const char *http_method(const struct http_request *request);
const char *http_path(const struct http_request *request); /* as sent, without the query */
const char *http_param(const struct http_request *request, const char *name);  /* of the pattern */
const char *http_query(const struct http_request *request, const char *name);  /* decoded, or NULL */
const char *http_header(const struct http_request *request, const char *name); /* any case, or NULL */
const void *http_body(const struct http_request *request, size_t *size); /* followed by a NUL */

struct http_peer {
    bool is_unix;
    uid_t uid; /* unix only, by SO_PEERCRED */
    gid_t gid;
    pid_t pid;
    bool is_loopback;
    char address[64];
};
const struct http_peer *http_peer(const struct http_request *request);

/* A place for the caller's own data of this request, freed with it. */
void http_set_data(struct http_request *request, void *data, void (*free_data)(void *data));
void *http_data(const struct http_request *request);

/* Called once if the client is gone before the answer was complete; never after. It is noticed also
 * while nothing is being written. */
void http_on_gone(struct http_request *request, void (*gone)(void *arg), void *arg);

/* Parts of a body as they come (HTTP_STREAM_BODY); size 0 is its end. Returning false holds the body
 * back until http_body_resume(). */
void http_on_body(struct http_request *request,
                  bool (*part)(void *arg, const void *data, size_t size), void *arg);
void http_body_resume(struct http_request *request);

/* ---- the answer: exactly one of http_answer() and http_stream() ---- */

/* Before it. Names and values are checked for what would break a header. */
void http_add_header(struct http_request *request, const char *name, const char *value);

/* The body is copied. After this the request is gone. */
void http_answer(struct http_request *request, unsigned status, const char *content_type,
                 const void *body, size_t size);

/* Begins an answer in parts (chunked); the header goes out at once. */
void http_stream(struct http_request *request, unsigned status, const char *content_type);
/* Copies; returns how many bytes wait to be written now. Beyond limits.backlog_bytes the caller stops
 * and goes on when `drained` is called. */
size_t http_write(struct http_request *request, const void *data, size_t size);
void http_on_drained(struct http_request *request, void (*drained)(void *arg), void *arg);
/* The answer is complete; the request is gone. */
void http_finish(struct http_request *request);
/* The answer cannot be completed: the connection is cut, so that nobody takes it for whole. */
void http_abort(struct http_request *request);
