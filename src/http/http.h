/* The HTTP/1.1 server: routes, bodies, streams, with or without TLS; no word of any API.
 *
 * One loop, one thread. Listening sockets come from outside, TCP or unix. Everything a client may do
 * is bounded: connections, header bytes, body bytes, the time to send either, what waits to be
 * written. A handler is called when the request is whole (or, with HTTP_STREAM_BODY, when its header
 * is) and answers then or later, within the handler or from anywhere on the loop. No callback of this
 * room is ever called from within a function that its user calls. */
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
    /* "/v1/sandboxes/{id}/exec": {name} is one segment, not empty, percent-decoded (%2F stays in it,
     * so that a name may hold '/', or be ".."). A last segment "**" is all that follows, maybe nothing behind
     * its '/', and no parameter. The first route that fits is taken, and none with a parameter
     * where one above has all of the path by name; HEAD goes to GET where it has no route of its own. The
     * method "*" is any. */
    const char *pattern;
    http_handler handler;
    unsigned flags;
};

struct http_limits {
    /* Default 4,096, on TCP and on unix sockets each, so that neither takes the places of the other. When all are
     * taken a newcomer evicts a connection that has no request under way, of the owner or, without one, the
     * peer that has most: the oldest that has not asked anything, else the oldest. An owner's that has an answer to
     * read stays if the newcomer's peer has as many. Otherwise the newcomer is answered 503. */
    size_t connections;
    size_t body_bytes; /* 4 MiB; not with HTTP_STREAM_BODY; GET and HEAD have no body at all */
    size_t
        held_bytes; /* 256 MiB: of all bodies and messages of WebSockets that are kept at once, a quarter for
                     * each owner, or peer without one; 503 beyond */
    size_t
        waiting_bytes; /* 256 MiB: of all whole answers that clients do not take; beyond, the largest of
                        * the owner, or peer without one, for whom most bytes wait is cut */
    size_t header_bytes; /* 32 KiB */
    unsigned header_ms;  /* 10 s: for all of the header */
    unsigned
        body_ms; /* 60 s: for all of the body, or of a message; with HTTP_STREAM_BODY, between two
                          * parts */
    /* 250 us: for bodies, frames and the bytes of ports of one owner, or peer without one, in a round of the loop. What
     * it sends beyond has its turn in the next. */
    unsigned turn_us;
    unsigned idle_ms;   /* 75 s: between two requests of a connection; for a client that takes none
                           * of a whole answer */
    unsigned answer_ms; /* 300 s: for all of an answer that is whole */
    /* 1 MiB: a stream whose client does not read is not written beyond this. */
    size_t backlog_bytes;
    unsigned
        silent_ms;    /* 60 s: nothing that was sent is acknowledged: a TCP client that vanished */
    unsigned ping_ms; /* 25 s: how often a WebSocket is asked whether it is there */
    unsigned pong_ms; /* 60 s: for the answer */
    /* 512: handshakes that have begun and are not through; the oldest of the peer that has most of them
     * is cut beyond. Each takes some 50 KiB, and has header_ms, with the silence before it. */
    size_t handshakes;
};

struct http_options {
    const struct http_route *routes;
    size_t routes_count;
    void *data;                /* for the handlers */
    struct http_limits limits; /* 0: the default */
    /* Who comes by TCP speaks TLS, or is not heard: before there is a certificate, nobody is. */
    bool is_tls;
    /* Names the owner of a connection's first request, which admit() has not seen and which has to wait, so that it
     * waits with the owner's and not with strangers'. Returns false if it knows none. Answers nothing. May be NULL. */
    bool (*find_owner)(const struct http_request *request, char *name, size_t size, void *data);
    /* Every request, before any handler and before its body is read: returns false when it has
     * answered it (no such host, no key, a foreign origin). May be NULL. */
    bool (*admit)(struct http_request *request, void *data);
    /* A request whose body is there as a whole: calls the handler of its route, now or later. NULL: it is called. */
    void (*handle)(struct http_request *request, void *data);
    /* For what this room refuses by itself (no such route, a body too large, ...): answers in the
     * form of the API, before it returns. `code` is stable. A request that could not be read has no
     * fields, and "" for method and path; admit() has not seen it. NULL: plain text. */
    void (*refuse)(struct http_request *request, unsigned status, const char *code,
                   const char *detail, void *data);
    /* A request is over, and freed after this: `status` is that of its answer, 0 where it got none, for
     * its client was gone. May be NULL. */
    void (*over)(const struct http_request *request, unsigned status, void *data);
};

int http_start(uv_loop_t *loop, const struct http_options *options, struct http_server **out,
               struct error *err);

/* ---- TLS ---- */

struct http_certificate;
struct http_certificate_files {
    const char *certificate, *key; /* texts, PEM */
    size_t certificate_size, key_size;
    const char *certificate_path, *key_path; /* for whoever has to mend them */
};
/* Looks whether they can be used, and for each other. "bad_certificate", "bad_key". */
int http_certificate_new(const struct http_certificate_files *files, struct http_certificate **out,
                         struct error *err);
void http_certificate_free(struct http_certificate *certificate);
bool http_certificate_is_for(const struct http_certificate *certificate, const char *host);
int64_t http_certificate_seconds_left(const struct http_certificate *certificate);
/* For who connects from now on; taken. Those who are there keep what they have. */
void http_certify(struct http_server *server, struct http_certificate *certificate);

/* Accepts on a listening socket, which it takes. */
int http_listen(struct http_server *server, int socket, struct error *err);

/* Names the owner of a request. Requests of one owner take turns: few are begun in one round of the loop and the
 * others stand in a line of its own, so that an owner of many connections does not keep others waiting. The
 * connection stays its for those that follow.
 * False: the owner has as many requests under way as there are places without any, or, where anybody may send
 * them (`is_public`), half as many, or there is no room for its header in the owner's share of limits.held_bytes; this one is
 * to be refused. Called once for a request. */
bool http_lane(struct http_request *request, const char *name, bool is_public);

/* Takes no more connections and no more requests on those there are; `done` when the last request is
 * answered, or after `most_ms`, when the rest is cut. */
void http_drain(struct http_server *server, unsigned most_ms, void (*done)(void *arg), void *arg);
/* What went through it since it was started. */
struct http_counts {
    size_t open;       /* connections now */
    size_t held_bytes; /* of bodies and messages that are kept whole, now */
    uint64_t accepted; /* connections */
    uint64_t received_bytes, sent_bytes;
};
/* What a request got and sent, its header and what waits to be sent with it, since this was asked last. What
 * its connection carried between two requests belongs to the later one. */
void http_moved(struct http_request *request, uint64_t *received, uint64_t *sent);
void http_count(const struct http_server *server, struct http_counts *out);

/* Cuts everything, and frees the server when the loop has run. Who was told `gone` still has his
 * requests. Routes and data must stay until the loop has run. */
void http_stop(struct http_server *server);

/* ---- a request ----
 *
 * It lives until it is answered, by http_answer(), http_finish() or http_abort(), also if its client
 * is gone: the answer then goes nowhere. */

const char *http_method(const struct http_request *request);
const char *http_path(const struct http_request *request); /* as sent, without the query */
const struct http_route *http_route(const struct http_request *request); /* NULL: none fits */
const char *http_pattern(const struct http_request *request); /* of its route; NULL: none fits */
const char *http_param(const struct http_request *request, const char *name); /* of the pattern */
const char *http_query(const struct http_request *request, const char *name); /* decoded, or NULL */
/* The parts of the query in order, the first by 0; false beyond the last. */
bool http_query_at(const struct http_request *request, size_t index, const char **name,
                   const char **value);
const char *http_header(const struct http_request *request,
                        const char *name);                               /* any case, or NULL */
const void *http_body(const struct http_request *request, size_t *size); /* followed by a NUL */
/* It is read and not needed any more: its memory, and its share of held_bytes, are free at once. Who
 * answers late says so, or keeps others from being heard. */
void http_body_done(struct http_request *request);

struct http_peer {
    bool is_unix;
    uid_t uid; /* unix only, by SO_PEERCRED */
    gid_t gid;
    pid_t pid;
    bool is_loopback; /* TCP only */
    bool is_tls;
    char address[64]; /* without the port; "unix" */
};
const struct http_peer *http_peer(const struct http_request *request);

/* A place for the caller's own data of this request, freed with it. */
void http_set_data(struct http_request *request, void *data, void (*free_data)(void *data));
void *http_data(const struct http_request *request);

/* Called once if the client is gone before the answer was complete; never after. It is noticed also
 * while nothing is being written. A client that only shuts down its sending side counts as gone, for
 * on TCP nobody can tell. The request still has to be answered: http_abort() in `gone` frees it. */
void http_on_gone(struct http_request *request, void (*gone)(void *arg), void *arg);

/* Parts of a body as they come (HTTP_STREAM_BODY); size 0 is its end. This part is taken in any case;
 * returning false holds the next ones back until http_body_resume(). Who takes a body sets
 * http_on_gone(), too, or never hears of one that does not end. */
void http_on_body(struct http_request *request,
                  bool (*part)(void *arg, const void *data, size_t size), void *arg);
void http_body_resume(struct http_request *request);

/* ---- the answer: exactly one of http_answer() and http_stream() ---- */

/* Before it. A name or value that would break the header is left out, and so are the fields that are
 * this room's: Connection, Content-Length, Content-Type, Date, Transfer-Encoding. */
void http_add_header(struct http_request *request, const char *name, const char *value);

/* The body is copied. After this the request is gone. */
void http_answer(struct http_request *request, unsigned status, const char *content_type,
                 const void *body, size_t size);
/* The same with a body that begins at `start` in a block of malloc(), which is taken: it is not copied, and goes out in
 * turns. */
void http_answer_taken(struct http_request *request, unsigned status, const char *content_type,
                       void *block, size_t start, size_t size);

/* Begins an answer in parts (chunked); the header goes out at once. */
void http_stream(struct http_request *request, unsigned status, const char *content_type);
/* Copies; returns how many bytes wait to be written now. Beyond limits.backlog_bytes the caller stops
 * and goes on when `drained` is called, each time that not more than a quarter of it still waits. Who
 * goes on writing beyond twice the limit has his client cut off. */
size_t http_write(struct http_request *request, const void *data, size_t size);
void http_on_drained(struct http_request *request, void (*drained)(void *arg), void *arg);
/* How many bytes its client has still to take. */
size_t http_waiting(const struct http_request *request);
/* The answer is complete; the request is gone. */
void http_finish(struct http_request *request);
/* He may not ask any more: who was told to wait for `gone` is told so soon, from the loop, and a WebSocket
 * closes with 1008 and that reason. What has neither is about to be answered, and is. */
void http_expel(struct http_request *request, const char *reason);
/* The answer cannot be completed: the connection is cut, so that nobody takes it for whole. What
 * waits to be written is lost. */
void http_abort(struct http_request *request);

/* ---- answers of known length, from a pipe ---- */

/* As http_stream(), with Content-Length. What is written has to be exactly so much before
 * http_finish(); else the connection is cut. */
void http_stream_sized(struct http_request *request, unsigned status, const char *content_type,
                       uint64_t length);

/* So many bytes that lie in `pipe` (the read end of one that nobody else has) go out behind all that was
 * written, by splice(2) where the socket takes that; of a chunked answer as one chunk. `pipe` must not be
 * touched until `sent`, which is called when all of it is out, later; not after the client is gone. One
 * at a time, and nothing is written or finished before `sent`. Where less lies in it, the connection is
 * cut: ask FIONREAD first. SIGPIPE has to be ignored in the process. */
void http_write_pipe(struct http_request *request, int pipe, size_t size, void (*sent)(void *arg),
                     void *arg);

/* ---- a reverse proxy: of what it carries, see proxy.c ----
 *
 * http_proxy() answers a request (of a route with HTTP_STREAM_BODY, of whose body nothing was taken) by having a
 * server do so. The request lives until that is over; `gone` is not called any more, http_abort() cuts it. Its
 * status is the server's; 502 where that speaks no HTTP/1.1, or could be understood to end its answer in two places.
 * What fronts take for a word of their own server (X-Accel-Redirect and the like) is not passed on. */
struct http_proxy_options {
    int server; /* taken, where this returns 0: a socket that is connected */
    /* Borrowed until it returns. `target`: path and query, as they are asked for; NULL: the server speaks no HTTP,
     * and hears and says bytes behind a 101 of ours to what the request has as `Upgrade`. `kept`: fields of the request
     * that do not go to the server, ended by NULL. `cookie`: sent in place of such; or NULL. */
    const char *target, *host;
    const char *const *kept;
    bool (*keeps)(const char *name, const char *value); /* more of them; or NULL */
    const char *cookie;
    const char
        *prefix; /* where this server's root is shown: put before paths of Location; or NULL */
    const char *extra; /* whole lines for the header of the answer, each with its end; or NULL */
    bool
        is_guest; /* on an origin of others: it sets no cookies or the like, and its pages are sandboxed */
    bool is_tls;             /* as the client sees us */
    void (*over)(void *arg); /* once; or NULL */
    void *arg;
};
int http_proxy(struct http_request *request, const struct http_proxy_options *options,
               struct error *err);

/* What the client asked for, byte by byte: path and query, without a host before them. */
const char *http_target(const struct http_request *request);

/* ---- WebSocket (RFC 6455) ----
 *
 * A GET with `Upgrade: websocket` is answered by http_websocket() instead of http_answer(). From then on
 * the request lives until `closed` was called, which happens once, always; http_abort() makes it be called
 * soon, from the loop. `gone` is not called any more. Frames, masks, fragments, pings
 * and the closing are this room's; a message of the client that is larger than `message_bytes`, text that is
 * not UTF-8, or an unmasked frame, closes it as the RFC says. A message that is not whole within limits.body_ms
 * closes it with 1008, one for which limits.held_bytes has no room with 1013. A client that answers no ping for 60 s
 * is gone. A draining server closes with 1001. */
struct http_websocket_options {
    size_t message_bytes; /* default 1 MiB */
    const char
        *protocol; /* of Sec-WebSocket-Protocol, which the client must have offered; or NULL */
    /* False holds the next ones back until http_websocket_resume(). */
    bool (*message)(void *arg, bool is_text, const void *data, size_t size);
    void (*drained)(
        void *arg); /* after http_websocket_send() returned more than limits.backlog_bytes */
    /* 1006: without a closing frame. The request is gone after this. */
    void (*closed)(void *arg, unsigned code);
    void *arg;
};
bool http_is_websocket(const struct http_request *request); /* a whole and right request for one */
/* -1: nothing was answered yet; "bad_request", "client_gone", "no_memory". */
int http_websocket(struct http_request *request, const struct http_websocket_options *options,
                   struct error *err);
/* Returns how many bytes wait to be written, as http_write() does, with its limits. */
size_t http_websocket_send(struct http_request *request, bool is_text, const void *data,
                           size_t size);
/* The same of bytes of malloc(), which are taken: they are not copied, and go out in turns. */
size_t http_websocket_send_taken(struct http_request *request, bool is_text, void *data,
                                 size_t size);
/* From within `message`, which has bytes: these are the callee's, to be freed. */
void *http_websocket_take(struct http_request *request);
void http_websocket_resume(struct http_request *request);
/* `closed` follows. `reason` is at most 123 bytes of UTF-8. */
void http_websocket_close(struct http_request *request, unsigned code, const char *reason);
