/* What a connection's bytes pass on their way to its socket and back: nothing, or TLS.
 *
 * Whatever else is asked of the socket (who is there, whether he acknowledges) is asked of itself. */
#include "http/parts.h"

#include <errno.h>
#include <sys/socket.h>

ssize_t http_wire_recv(struct http_conn *conn, void *into, size_t size)
{
    /* What nobody will read needs no reading. */
    if (!conn->tls || conn->state == CONN_LINGER) {
        return recv(conn->fd, into, size, 0);
    }
    return http_tls_recv(conn->tls, into, size);
}

ssize_t http_wire_send(struct http_conn *conn, struct iovec *parts, int count)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};

    return conn->tls ? http_tls_send(conn->tls, parts, count)
                     : sendmsg(conn->fd, &message, MSG_NOSIGNAL);
}

bool http_wire_has_more(const struct http_conn *conn)
{
    return conn->tls && conn->state != CONN_LINGER && http_tls_has_more(conn->tls);
}

bool http_wire_farewell(struct http_conn *conn)
{
    return !conn->tls || http_tls_farewell(conn->tls);
}

void http_wire_shut(struct http_conn *conn)
{
    bool is_said = http_wire_farewell(conn);

    if (conn->is_shutting == is_said) {
        conn->is_shutting = !is_said;
        http_conn_watch(conn);
    }
    if (is_said) {
        (void)shutdown(conn->fd, SHUT_WR);
    }
}
