/* How long the input of each owner may hold the loop: bodies, frames, and the bytes of ports, on as many connections as
 * there are.
 *
 * The time that a lane has spent of a round is measured; a connection that comes when all is spent waits in the lane's line with
 * what it has sent, mostly in the kernel, and is not looked at before its turn. Request heads have lines of their own:
 * whose they are is known only when they are read. */
#include "http/parts.h"

void http_turn_begin(struct http_server *server)
{
    server->turn_began = uv_hrtime();
}

void http_turn_end(struct http_conn *conn)
{
    struct http_server *server = conn->server;

    server->spent_ns[conn->lane] += uv_hrtime() - server->turn_began;
}

bool http_turn_is_long(const struct http_server *server)
{
    return uv_hrtime() - server->turn_began >= (uint64_t)server->limits.turn_us * 1000;
}

static bool is_spent(const struct http_server *server, unsigned lane)
{
    return server->spent_ns[lane] >= (uint64_t)server->limits.turn_us * 1000;
}

bool http_turn_waits(struct http_conn *conn)
{
    struct http_server *server = conn->server;

    if (conn->is_broken || conn->state < CONN_BODY || conn->state > CONN_PROXY) {
        return false;
    }
    if (conn->is_put_off) {
        return true;
    }
    if (!is_spent(server, conn->lane)) {
        return false;
    }
    conn->is_put_off = true;
    conn->put_off_lane = conn->lane;
    TAILQ_INSERT_TAIL(&server->put_off[conn->lane], conn, put_off_next);
    server->put_off_count++;
    http_server_wake(server);
    return true;
}

void http_turn_leave(struct http_conn *conn)
{
    if (conn->is_put_off) {
        conn->is_put_off = false;
        TAILQ_REMOVE(&conn->server->put_off[conn->put_off_lane], conn, put_off_next);
        conn->server->put_off_count--;
    }
}

void http_turns_serve(struct http_server *server)
{
    struct http_conn *conn;

    for (size_t lane = 0; lane < HTTP_LANES && server->put_off_count > 0; lane++) {
        while (!is_spent(server, (unsigned)lane) &&
               (conn = TAILQ_FIRST(&server->put_off[lane])) != NULL) {
            http_turn_leave(conn);
            http_turn_begin(server);
            http_conn_turn(conn, true);
            server->spent_ns[lane] += uv_hrtime() - server->turn_began;
        }
    }
}
