/* TLS handshakes: whose turn it is, and where they are worked on.
 *
 * To sign for a client takes up to milliseconds, so it is done in the loop's pool, of which they never have more
 * than a part, and peers take turns: who asks for many waits behind his own. Who has said nothing has no
 * memory of ours but his connection's. A handshake that is being worked on keeps its socket until that is
 * done, whatever becomes of the connection. */
#include "http/parts.h"

#include "base/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

/* Of the pool's four threads: what is to be written to the disk waits for none of these. */
#define WORKING_MAX 2
#define TLS_RECORD_HANDSHAKE 0x16

struct http_handshake {
    TAILQ_ENTRY(http_handshake) next;
    struct http_server *server;
    struct http_conn *conn; /* NULL: it is gone */
    struct http_tls *tls;
    int fd;
    unsigned house;
    bool is_waiting, is_working;
    enum http_tls_step step; /* how far the last turn came */
    uv_work_t work;
};

static void serve(struct http_server *server);

/* ---- the end ---- */

static void release(struct http_handshake *handshake)
{
    struct http_server *server = handshake->server;

    TAILQ_REMOVE(&server->handshakes, handshake, next);
    server->handshakes_count--;
    server->handshakes_houses[handshake->house]--;
    http_tls_free(handshake->tls);
    free(handshake);
}

bool http_handshake_lost(struct http_conn *conn)
{
    struct http_handshake *handshake = conn->handshake;

    conn->handshake = NULL;
    if (!handshake) {
        return false;
    }
    handshake->conn = NULL;
    if (handshake->is_working) {
        return true;
    }
    release(handshake);
    return false;
}

/* ---- a turn ---- */

static void work(uv_work_t *work_of)
{
    struct http_handshake *handshake = work_of->data;

    handshake->step = http_tls_handshake(handshake->tls);
}

static void worked(uv_work_t *work_of, int status)
{
    struct http_handshake *handshake = work_of->data;
    struct http_server *server = handshake->server;
    struct http_conn *conn = handshake->conn;
    (void)status;

    handshake->is_working = false;
    server->handshakes_working--;
    if (!conn) {
        fd_close(&handshake->fd);
        release(handshake);
    } else if (handshake->step == HTTP_TLS_DONE) {
        conn->tls = handshake->tls;
        handshake->tls = NULL;
        conn->handshake = NULL;
        release(handshake);
        http_conn_secured(conn);
    } else if (handshake->step == HTTP_TLS_BROKEN) {
        http_conn_cut(conn);
    } else {
        http_conn_watch(conn);
    }
    serve(server);
    http_server_free_when_closed(server);
}

/* Of the peer who has waited longest for a turn. */
static struct http_handshake *choose(struct http_server *server)
{
    const uint64_t *turns = server->house_turns;
    struct http_handshake *handshake, *best = NULL;

    TAILQ_FOREACH(handshake, &server->handshakes, next)
    {
        // cppcheck-suppress uninitvar ; it does not see that the list sets it
        if (handshake->is_waiting && (!best || turns[handshake->house] < turns[best->house])) {
            best = handshake;
        }
    }
    return best;
}

static void serve(struct http_server *server)
{
    struct http_handshake *handshake;

    while (!server->is_stopped && server->handshakes_working < WORKING_MAX &&
           (handshake = choose(server)) != NULL) {
        server->house_turns[handshake->house] = ++server->handshakes_turn;
        handshake->is_waiting = false;
        handshake->is_working = true;
        server->handshakes_working++;
        http_conn_watch(handshake->conn);
        (void)uv_queue_work(server->loop, &handshake->work, work, worked);
    }
}

/* ---- the begin ---- */

/* One of the peer who has most, and of his the oldest. */
static void make_room(struct http_server *server)
{
    const unsigned short *houses = server->handshakes_houses;
    struct http_handshake *handshake, *victim = NULL;

    if (server->handshakes_count < server->limits.handshakes) {
        return;
    }
    TAILQ_FOREACH(handshake, &server->handshakes, next)
    {
        // cppcheck-suppress uninitvar ; it does not see that the list sets it
        if (handshake->conn && !handshake->is_working &&
            (!victim || houses[handshake->house] > houses[victim->house])) {
            victim = handshake;
        }
    }
    if (victim) {
        http_conn_cut(victim->conn);
    }
}

static struct http_handshake *begin(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    struct http_handshake *handshake;

    make_room(server);
    handshake = calloc(1, sizeof(*handshake));
    if (!handshake) {
        return NULL;
    }
    handshake->tls = http_tls_new(server->certificate, conn->fd);
    if (!handshake->tls) {
        free(handshake);
        return NULL;
    }
    handshake->server = server;
    handshake->conn = conn;
    handshake->fd = conn->fd;
    handshake->house = conn->house;
    handshake->work.data = handshake;
    TAILQ_INSERT_TAIL(&server->handshakes, handshake, next);
    server->handshakes_count++;
    server->handshakes_houses[conn->house]++;
    return handshake;
}

/* What comes first: a byte of TLS; a letter, which begins an HTTP request; or nothing of use. */
static void look(struct http_conn *conn)
{
    unsigned char first = 0;
    ssize_t got = recv(conn->fd, &first, 1, MSG_PEEK);

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got > 0 && first >= 'A' && first <= 'Z') {
        http_conn_is_clear(conn);
        return;
    }
    if (got > 0 && first == TLS_RECORD_HANDSHAKE) {
        conn->handshake = begin(conn);
    }
    if (!conn->handshake) {
        http_conn_cut(conn);
    }
}

void http_handshake_polled(struct http_conn *conn)
{
    if (!conn->handshake) {
        look(conn);
    } else if (conn->handshake->is_waiting) {
        http_conn_cut(conn); /* he has left */
        return;
    }
    if (conn->state != CONN_HANDSHAKE || !conn->handshake || conn->handshake->is_working) {
        return;
    }
    conn->handshake->is_waiting = true;
    http_conn_watch(conn);
    serve(conn->server);
}

int http_handshake_events(const struct http_conn *conn)
{
    const struct http_handshake *handshake = conn->handshake;

    if (!handshake) {
        return UV_READABLE | UV_DISCONNECT;
    }
    if (handshake->is_working) {
        return 0;
    }
    if (handshake->is_waiting) {
        return UV_DISCONNECT;
    }
    return handshake->step == HTTP_TLS_WRITES ? UV_WRITABLE : UV_READABLE;
}
