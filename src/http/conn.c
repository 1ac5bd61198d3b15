/* A connection: what it waits for, when its time is over, and how it ends. What its bytes are: see input.c.
 *
 * One request at a time; what a client sends ahead waits, in the kernel beyond a header's worth. While
 * a request is answered its socket stays watched, so that a client that leaves is noticed at once.
 * Whatever the user of this room calls only marks things here and kicks: callbacks come from the loop. */
#include "http/parts.h"

#include "base/fd.h"
#include "http/frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* After an answer to a request that is not read to its end: so long, and so much, is read and thrown
 * away. To close with unread bytes would reset the connection, and the answer would be lost with it. */
#define LINGER_MS 2000
#define LINGER_BYTES ((size_t)16 << 20)
/* To take chunks apart takes time where they are small. */
#define CHUNKED_AT_ONCE ((size_t)64 * 1024)

static void settle(struct http_conn *conn);
static void on_poll(uv_poll_t *poll, int status, int events);

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct http_conn *conn = handle->data;
    struct http_server *server = conn->server;

    if (--conn->handles > 0) {
        return;
    }
    http_bytes_free(&conn->in);
    http_bytes_free(&conn->out);
    http_bytes_free(&conn->behind);
    http_tls_free(conn->tls);
    free(conn);
    http_server_left(server);
}

void http_conn_count_waiting(struct http_conn *conn)
{
    size_t now = conn->state == CONN_HEADER ? http_conn_waits(conn) : 0;

    conn->server->waiting_bytes += now - conn->waiting;
    conn->waiting = now;
}

static void close_conn(struct http_conn *conn)
{
    bool is_kept = conn->state == CONN_HANDSHAKE && http_handshake_lost(conn);

    /* Of one that is owed nothing; any other is to see that something is missing. */
    if (conn->state == CONN_HEADER && conn->out.size == 0 && !conn->is_broken) {
        (void)http_wire_farewell(conn);
    }
    if (conn->state == CONN_LINGER) {
        http_server_lingered(conn);
    } else {
        http_server_leave_place(conn);
    }
    conn->state = CONN_CLOSED;
    http_conn_count_waiting(conn);
    TAILQ_REMOVE(&conn->server->conns, conn, next);
    if (conn->is_kicked) {
        TAILQ_REMOVE(&conn->server->kicked, conn, kicked_next);
        conn->is_kicked = false;
    }
    http_server_leave_line(conn);
    http_turn_leave(conn);
    uv_close((uv_handle_t *)&conn->poll, on_closed);
    uv_close((uv_handle_t *)&conn->timer, on_closed);
    if (!is_kept) {
        fd_close(&conn->fd);
    }
}

void http_conn_cut(struct http_conn *conn)
{
    struct http_request *request = conn->request;
    void (*gone)(void *arg);

    if (conn->state == CONN_CLOSED) {
        return;
    }
    if (request) {
        http_request_let_go(request);
    }
    close_conn(conn);
    conn->request = NULL;
    if (!request) {
        return;
    }
    http_request_part(request);
    request->conn = NULL;
    request->server = NULL;
    if (!request->is_handed) {
        http_request_free(request);
        return;
    }
    if (request->websocket) {
        http_websocket_lost(request);
        return;
    }
    if (request->proxy) {
        http_proxy_lost(request);
        return;
    }
    gone = request->gone;
    request->gone = NULL;
    if (gone) {
        gone(request->gone_arg);
    }
}

void http_conn_kick(struct http_conn *conn)
{
    if (conn->is_kicked || conn->state == CONN_CLOSED) {
        return;
    }
    conn->is_kicked = true;
    TAILQ_INSERT_TAIL(&conn->server->kicked, conn, kicked_next);
    http_server_wake(conn->server);
}

void http_conn_drain(struct http_conn *conn)
{
    if (conn->is_in_line) { /* it closes after that request: see begin() */
        return;
    }
    if (conn->state == CONN_HANDSHAKE ||
        (!conn->request && conn->state == CONN_HEADER && conn->out.size == 0)) {
        http_conn_cut(conn);
        return;
    }
    conn->is_closing = true;
    if (conn->request && conn->request->websocket) {
        http_websocket_close(conn->request, HTTP_CLOSE_AWAY, "the server is shutting down");
    }
}

/* ---- time ---- */

static void on_deadline(struct http_conn *conn)
{
    static const struct http_refusal late = {408, "request_timeout",
                                             "the request took too long to arrive"};

    if (conn->state == CONN_BODY && conn->request && conn->request->collects) {
        conn->request->is_handed = true;
        http_request_refuse(conn->request, &late);
    } else if (conn->state == CONN_HEADER && conn->out.size == 0 && conn->is_in_header) {
        http_conn_refuse(conn, &late);
    } else if ((conn->state == CONN_HANDLING ||
                (conn->state == CONN_PROXY && !http_proxy_is_idle(conn->request))) &&
               !http_conn_is_silent(conn)) {
        http_conn_deadline(conn, conn->server->limits.silent_ms / 2);
    } else if (conn->state == CONN_WEBSOCKET && http_websocket_is_late(conn->request)) {
        return;
    } else if (conn->state == CONN_WEBSOCKET) {
        unsigned ms = http_websocket_tick(conn->request);
        if (ms > 0 && !http_conn_is_silent(conn)) {
            http_conn_deadline(conn, ms);
        } else {
            http_conn_cut(conn);
        }
    } else {
        http_conn_cut(conn);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct http_conn *conn = timer->data;
    uint64_t now = uv_now(conn->server->loop);

    if (conn->deadline == 0) {
        return;
    }
    if (now < conn->deadline) {
        conn->timer_due = conn->deadline;
        uv_timer_start(timer, on_timer, conn->deadline - now, 0);
        return;
    }
    conn->deadline = 0;
    on_deadline(conn);
}

/* 0: none. A timer that is due too early is left alone and looks again then: a deadline moves with
 * each request, and that must cost next to nothing. */
void http_conn_deadline(struct http_conn *conn, unsigned ms)
{
    conn->deadline = ms > 0 ? uv_now(conn->server->loop) + ms : 0;
    if (ms > 0 &&
        (!uv_is_active((uv_handle_t *)&conn->timer) || conn->timer_due > conn->deadline)) {
        conn->timer_due = conn->deadline;
        uv_timer_start(&conn->timer, on_timer, ms, 0);
    }
}

/* Between two requests; each part of an answer that is taken renews it, but not without end. */
void http_conn_renew(struct http_conn *conn)
{
    uint64_t now = uv_now(conn->server->loop);
    unsigned ms = conn->server->limits.idle_ms;

    if (conn->out.size > 0 && conn->answer_until < now + ms) {
        ms = conn->answer_until > now ? (unsigned)(conn->answer_until - now) : 1;
    }
    http_conn_deadline(conn, ms);
}

/* ---- what a request has come to ---- */

void http_conn_answered(struct http_conn *conn, bool is_whole)
{
    if (conn->state == CONN_CLOSED) {
        return;
    }
    if (!is_whole) {
        conn->is_closing = conn->has_unread = true;
    }
    http_owner_done(conn);
    conn->state = CONN_HEADER;
    conn->is_in_header = false;
    conn->answer_until = uv_now(conn->server->loop) + conn->server->limits.answer_ms;
    http_conn_count_waiting(conn);
    if (conn->out.size > 0) {
        http_server_shed(conn->server);
    }
    if (conn->is_processing || conn->state == CONN_CLOSED) {
        return;
    }
    if (conn->is_closing || conn->is_broken || conn->in.size > 0) {
        http_conn_kick(conn);
    } else {
        settle(conn);
    }
}

void http_conn_upgraded(struct http_conn *conn)
{
    conn->state = CONN_WEBSOCKET;
    http_conn_deadline(conn, conn->server->limits.ping_ms);
    if (conn->is_closing && conn->server->is_draining) {
        http_conn_drain(conn);
    }
    if (!conn->is_processing) {
        http_conn_kick(conn);
    }
}

void http_conn_proxied(struct http_conn *conn)
{
    conn->state = CONN_PROXY;
    if (!conn->is_processing) {
        http_conn_kick(conn);
    }
}

void http_conn_continue(struct http_conn *conn)
{
    size_t used;

    if (conn->state == CONN_CLOSED) {
        return;
    }
    if (conn->is_broken) {
        http_conn_cut(conn);
        return;
    }
    if (conn->request && conn->request->has_pipe && conn->out.size == 0 && !conn->is_stuck &&
        !http_conn_flush(conn)) {
        return;
    }
    used = http_conn_process(conn, conn->in.data + conn->in.start, conn->in.size);
    http_bytes_take(&conn->in, used);
    settle(conn);
}

/* ---- what to wait for ---- */

void http_conn_watch(struct http_conn *conn)
{
    int events = conn->out.size > 0 || conn->is_stuck || conn->is_shutting ? UV_WRITABLE : 0;

    switch (conn->state) {
    case CONN_CLOSED:
        return;
    case CONN_HANDSHAKE:
        events = http_handshake_events(conn);
        break;
    case CONN_HEADER:
        /* The same as while a request is handled, so that the kernel need not hear of each. Who has
         * requests in memory for his next turn sends no more of them now. */
        if (conn->out.size == 0) {
            events |= UV_DISCONNECT;
            events |= conn->is_kicked || conn->is_in_line ? 0 : UV_READABLE;
        }
        break;
    case CONN_BODY:
        events |= http_wants_body(conn->request) ? UV_READABLE : 0;
        events |= UV_DISCONNECT;
        break;
    case CONN_HANDLING:
        events |= conn->in.size < HTTP_AHEAD ? UV_READABLE : 0;
        events |= UV_DISCONNECT;
        break;
    case CONN_WEBSOCKET:
        /* Where it is read, its end comes after its last byte, which may say why. */
        if (!http_websocket_reads(conn->request)) {
            events |= UV_DISCONNECT;
        } else if (conn->in.size == 0) {
            events |= UV_READABLE;
        }
        break;
    case CONN_PROXY:
        if (http_proxy_reads(conn->request) && conn->in.size == 0) {
            events |= UV_READABLE;
        }
        break;
    case CONN_LINGER:
        events |= UV_READABLE;
        break;
    }
    if (conn->is_put_off) {
        events &= ~UV_READABLE;
    }
    if ((events & UV_READABLE) && http_wire_has_more(conn)) {
        http_conn_kick(conn);
    }
    if (events != conn->events) {
        conn->events = events;
        uv_poll_start(&conn->poll, events, on_poll);
    }
}

/* The last answer is written. */
static void end_conn(struct http_conn *conn)
{
    if (!conn->has_unread && http_wire_farewell(conn)) {
        http_conn_cut(conn);
        return;
    }
    http_wire_shut(conn);
    conn->state = CONN_LINGER;
    http_bytes_free(&conn->in);
    http_conn_deadline(conn, LINGER_MS);
    http_conn_watch(conn);
    http_server_lingers(conn);
}

/* After anything has happened: what is next, and how long it may take. */
static void settle(struct http_conn *conn)
{
    const struct http_limits *limits = &conn->server->limits;

    if (conn->state == CONN_CLOSED || conn->state == CONN_LINGER) {
        return;
    }
    if (conn->state == CONN_HANDSHAKE) {
        http_conn_watch(conn);
        return;
    }
    if (conn->is_broken) {
        http_conn_kick(conn);
        return;
    }
    if (!conn->request && conn->is_closing && conn->out.size == 0) {
        end_conn(conn);
        return;
    }
    if (conn->state == CONN_PROXY) {
        http_conn_deadline(conn, limits->silent_ms / 2);
    } else if (conn->state == CONN_HANDLING) {
        http_conn_deadline(conn, conn->peer.is_unix ? 0 : limits->silent_ms / 2);
    } else if (conn->state == CONN_BODY && conn->request && !conn->request->collects) {
        http_conn_deadline(conn, http_wants_body(conn->request) ? limits->body_ms : 0);
    } else if (conn->is_in_line) {
        conn->is_in_header = false;
        http_conn_deadline(conn, 0);
    } else if (conn->state == CONN_HEADER && (conn->in.size == 0 || conn->out.size > 0)) {
        conn->is_in_header = false;
        http_conn_renew(conn);
    } else if (conn->state == CONN_HEADER && !conn->is_in_header) {
        conn->is_in_header = true;
        http_conn_deadline(conn, limits->header_ms);
    }
    http_conn_watch(conn);
}

/* ---- reading ---- */

static void take_input(struct http_conn *conn, char *data, size_t size)
{
    bool is_first = conn->in.size == 0;
    size_t used = is_first ? http_conn_process(conn, data, size) : 0;

    if (conn->state == CONN_CLOSED) {
        return;
    }
    if (http_bytes_add(&conn->in, data + used, size - used)) {
        http_conn_cut(conn);
        return;
    }
    if (is_first) {
        settle(conn);
    } else {
        http_conn_continue(conn);
    }
}

static void read_some(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    size_t most = conn->state == CONN_HEADER || conn->state == CONN_HANDLING ? HTTP_AHEAD
                                                                             : HTTP_SCRATCH;
    if (conn->state == CONN_WEBSOCKET) {
        most = http_websocket_most(conn->request);
    } else if (conn->state == CONN_BODY && conn->request && conn->request->head.is_chunked) {
        most = CHUNKED_AT_ONCE;
    }
    ssize_t got = http_wire_recv(conn, server->scratch, most);

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got == 0 && conn->state == CONN_PROXY) {
        http_proxy_shut(conn->request);
        http_conn_watch(conn);
        return;
    }
    if (got <= 0) {
        http_conn_cut(conn);
        return;
    }
    if (conn->state == CONN_WEBSOCKET) {
        http_websocket_heard(conn->request);
    }
    server->received_bytes += (uint64_t)got;
    conn->received += (uint64_t)got;
    conn->moved += (uint64_t)got;
    if (conn->state != CONN_LINGER) {
        take_input(conn, server->scratch, (size_t)got);
        return;
    }
    conn->lingered += (size_t)got;
    if (conn->lingered > LINGER_BYTES) {
        http_conn_cut(conn);
    }
}

void http_conn_turn(struct http_conn *conn, bool was_put_off)
{
    http_conn_continue(conn);
    if (conn->state != CONN_CLOSED && !conn->is_broken && (conn->events & UV_READABLE) &&
        (was_put_off || http_wire_has_more(conn))) {
        read_some(conn);
    }
    if (was_put_off && conn->state == CONN_PROXY && !conn->is_broken) {
        http_proxy_turn(conn->request);
    }
}

static void take_events(struct http_conn *conn, int status, int events)
{
    if (status < 0 || conn->is_broken) {
        http_conn_cut(conn);
        return;
    }
    if (conn->state == CONN_HANDSHAKE) {
        http_handshake_polled(conn);
        return;
    }
    if ((events & UV_WRITABLE) && conn->is_shutting) {
        http_wire_shut(conn);
        http_conn_watch(conn);
    }
    if ((events & UV_WRITABLE) && (conn->out.size > 0 || conn->is_stuck)) {
        if (!http_conn_flush(conn)) {
            return;
        }
        if (http_turn_waits(conn)) {
            http_conn_watch(conn);
        } else {
            http_conn_continue(conn);
        }
        if (conn->state == CONN_CLOSED) {
            return;
        }
    }
    /* Where a body is still read, its end comes after its last byte. */
    if ((events & UV_DISCONNECT) &&
        (conn->is_in_line ||
         (conn->request && (conn->state == CONN_HANDLING || conn->state == CONN_WEBSOCKET ||
                            !http_wants_body(conn->request))))) {
        http_conn_cut(conn);
        return;
    }
    if ((events & UV_READABLE) && (conn->events & UV_READABLE)) {
        if (http_turn_waits(conn)) {
            http_conn_watch(conn);
        } else {
            read_some(conn);
        }
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct http_conn *conn = poll->data;

    http_turn_begin(conn->server);
    take_events(conn, status, events);
    http_turn_end(conn);
}

void http_conn_new(struct http_server *server, int fd, const struct http_peer *peer, unsigned house,
                   bool is_refused)
{
    static const struct http_refusal full = {503, "too_many_connections",
                                             "all connections are taken"};
    struct http_conn *conn = calloc(1, sizeof(*conn));

    if (!conn || uv_poll_init(server->loop, &conn->poll, fd)) {
        fd_close(&fd);
        free(conn);
        return;
    }
    uv_timer_init(server->loop, &conn->timer);
    conn->poll.data = conn->timer.data = conn;
    conn->server = server;
    conn->handles = 2;
    conn->fd = fd;
    conn->peer = *peer;
    TAILQ_INSERT_TAIL(&server->conns, conn, next);
    server->conns_count++;
    conn->house = house;
    conn->lane = house % HTTP_LANES;
    http_server_take_place(conn);
    if (is_refused) {
        http_conn_refuse(conn, &full);
    } else if (peer->is_tls) {
        conn->state = CONN_HANDSHAKE;
        http_conn_deadline(conn, server->limits.header_ms);
        settle(conn);
    } else {
        conn->state = CONN_HEADER;
        settle(conn);
    }
}

void http_conn_secured(struct http_conn *conn)
{
    conn->state = CONN_HEADER;
    settle(conn);
}

void http_conn_is_clear(struct http_conn *conn)
{
    static const struct http_refusal clear = {400, "needs_tls", "this port speaks TLS"};

    conn->state = CONN_HEADER;
    conn->peer.is_tls = false;
    http_conn_refuse(conn, &clear);
}
