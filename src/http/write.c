/* What goes out on a connection: bytes that are kept where the socket takes no more, and what lies in a
 * pipe, which never passes through this process where splice(2) can do it.
 *
 * A connection moves a turn's worth and no more, so that a download holds up nobody. The pipe comes from
 * where a box writes: that it holds what was announced is looked at, and nothing waits for it. */
#include "http/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define FLUSH_MAX 8
#define LARGE ((size_t)1 << 20)
#define FLUSH_BYTES ((size_t)128 << 10) /* each of them: a large answer takes turns with others */
/* Bytes of a pipe that one client gets before others have their turn: what a pipe holds at most. */
#define TURN_BYTES ((size_t)1 << 20)
/* A client's kernel has acknowledged within that, wherever it is. */
#define ANSWER_MS 1000

void http_conn_break(struct http_conn *conn)
{
    conn->is_broken = true;
    http_conn_kick(conn);
}

/* Where what follows is put: not behind what is large, for that might be moved. */
static struct http_bytes *last(struct http_conn *conn)
{
    return conn->behind.size > 0 || conn->out.size > LARGE ? &conn->behind : &conn->out;
}

void http_conn_send(struct http_conn *conn, struct iovec *parts, int count)
{
    ssize_t sent = 0;

    if (conn->is_broken || conn->state == CONN_CLOSED) {
        return;
    }
    if (conn->out.size == 0) {
        sent = http_wire_send(conn, parts, count);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            http_conn_break(conn);
            return;
        }
        sent = sent < 0 ? 0 : sent;
        conn->server->sent_bytes += (uint64_t)sent;
        conn->moved += (uint64_t)sent;
    }
    for (int i = 0; i < count; i++) {
        conn->sent += parts[i].iov_len;
    }
    for (int i = 0; i < count; i++) {
        size_t skip = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;
        sent -= (ssize_t)skip;
        if (http_bytes_add(last(conn), (const char *)parts[i].iov_base + skip,
                           parts[i].iov_len - skip)) {
            http_conn_break(conn);
            return;
        }
    }
    if (conn->out.size > 0) {
        http_conn_watch(conn);
    }
}

/* It becomes what waits, as it is: behind the little that the socket did not take of what came before it. */
void http_conn_send_taken(struct http_conn *conn, void *block, size_t start, size_t size)
{
    struct http_bytes *into = conn->out.size == 0 ? &conn->out : &conn->behind;
    struct iovec part = {(char *)block + start, size};

    if (into->size > 0 || size == 0 || conn->is_broken || conn->state == CONN_CLOSED) {
        http_conn_send(conn, &part, 1);
        free(block);
        return;
    }
    http_bytes_free(into);
    *into = (struct http_bytes){
        .data = block, .start = start, .size = size, .capacity = start + size};
    conn->sent += size;
    http_conn_watch(conn);
}

static void flush(struct http_conn *conn)
{
    for (unsigned i = 0; i < FLUSH_MAX && conn->out.size > 0; i++) {
        struct http_bytes *out = &conn->out;
        struct iovec part = {out->data + out->start,
                             out->size < FLUSH_BYTES ? out->size : FLUSH_BYTES};
        ssize_t sent = http_wire_send(conn, &part, 1);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (sent < 0) {
            conn->is_broken = true;
            return;
        }
        conn->server->sent_bytes += (uint64_t)sent;
        conn->moved += (uint64_t)sent;
        http_bytes_take(out, (size_t)sent);
        if (out->size == 0) {
            *out = conn->behind;
            conn->behind = (struct http_bytes){0};
        }
        if (!conn->request) {
            http_conn_count_waiting(conn);
            http_conn_renew(conn);
        }
    }
}

/* ---- from a pipe ---- */

/* How much of it lies there: the far end is not ours. */
static size_t pipe_holds(int pipe)
{
    int waiting = 0;

    return ioctl(pipe, FIONREAD, &waiting) || waiting < 0 ? 0 : (size_t)waiting;
}

/* By way of a buffer: for a socket that takes no splice, and to throw away what HEAD does not get. */
static ssize_t copy_some(struct http_conn *conn, struct http_request *request, size_t most)
{
    char *scratch = conn->server->scratch;
    ssize_t got = read(request->pipe, scratch, most < HTTP_SCRATCH ? most : HTTP_SCRATCH);

    if (got > 0 && !request->is_head) {
        struct iovec part = {scratch, (size_t)got};
        http_conn_send(conn, &part, 1);
    }
    return got;
}

static ssize_t move_some(struct http_conn *conn, struct http_request *request, size_t most)
{
    ssize_t moved;

    if (request->is_head || conn->copies || conn->tls) {
        return copy_some(conn, request, most);
    }
    moved = splice(request->pipe, NULL, conn->fd, NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (moved < 0 && errno == EINVAL) {
        conn->copies = true;
        return copy_some(conn, request, most);
    }
    if (moved > 0) {
        conn->server->sent_bytes += (uint64_t)moved;
        conn->moved += (uint64_t)moved;
        conn->sent += (uint64_t)moved;
    }
    return moved;
}

/* Moves a turn's worth from the request's pipe. */
static void pump(struct http_conn *conn, struct http_request *request)
{
    size_t turn = TURN_BYTES;

    conn->is_stuck = false;
    while (request->pipe_left > 0 && conn->out.size == 0 && turn > 0 && !conn->is_broken) {
        size_t most = request->pipe_left < turn ? request->pipe_left : turn;
        size_t holds = pipe_holds(request->pipe);
        ssize_t moved = holds > 0 ? move_some(conn, request, most < holds ? most : holds) : 0;
        if (moved < 0 && errno == EINTR) {
            continue;
        }
        if (moved < 0 && errno == EAGAIN) {
            conn->is_stuck = true;
            return;
        }
        /* Less is in it than was told, or the client is gone: what was announced cannot follow. */
        if (moved <= 0) {
            conn->is_broken = true;
            return;
        }
        request->pipe_left -= (size_t)moved;
        turn -= (size_t)moved;
    }
    if (request->pipe_left > 0 && conn->out.size == 0 && !conn->is_broken) {
        http_conn_kick(conn);
    }
}

/* All of the pipe's bytes are with the kernel. */
static void end_pipe(struct http_conn *conn, struct http_request *request)
{
    void (*sent)(void *arg) = request->pipe_sent;

    request->has_pipe = false;
    if (request->sends_chunks && !request->is_head && request->pipe_size > 0) {
        struct iovec tail = {(void *)(uintptr_t) "\r\n", 2};
        http_conn_send(conn, &tail, 1);
    }
    if (sent && !conn->is_broken) {
        sent(request->pipe_arg);
    }
}

bool http_conn_flush(struct http_conn *conn)
{
    struct http_request *request;

    flush(conn);
    request = conn->request;
    if (request && request->has_pipe && conn->out.size == 0 && !conn->is_broken) {
        pump(conn, request);
        if (request->pipe_left == 0 && conn->out.size == 0 && !conn->is_broken) {
            end_pipe(conn, request);
        }
    }
    request = conn->request;
    if (request && request->websocket && conn->state != CONN_CLOSED) {
        http_websocket_flushed(request);
    }
    if (request && request->waits_for_drain && request->drained && !conn->is_broken &&
        http_conn_waits(conn) <= conn->server->limits.backlog_bytes / 4) {
        request->waits_for_drain = false;
        request->drained(request->drained_arg);
    }
    if (conn->is_broken && conn->state != CONN_CLOSED) {
        http_conn_cut(conn);
    }
    return conn->state != CONN_CLOSED;
}

/* Whether the last that was sent is not answered, though there was time for it. Neither a full window nor
 * a long silence say that: who does not read acknowledges what he is asked, and who is asked nothing says
 * nothing. */
static bool is_unanswered(const struct tcp_info *info)
{
    return info->tcpi_probes >= 3 ||
           (info->tcpi_retransmits > 0 && info->tcpi_last_data_sent >= ANSWER_MS &&
            info->tcpi_last_ack_recv > info->tcpi_last_data_sent);
}

bool http_conn_is_silent(struct http_conn *conn)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    bool was_silent = conn->is_silent;

    if (conn->peer.is_unix || getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size)) {
        return false;
    }
    conn->is_silent = info.tcpi_last_ack_recv >= conn->server->limits.silent_ms &&
                      is_unanswered(&info);
    return was_silent && conn->is_silent;
}
