/* One connection to a server: see conn.h. The socket is non-blocking, so that every wait has an end and
 * a signal can be served meanwhile. */
#include "cmd/conn.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#define CONNECT_MS 10000

/* ---- waiting ---- */

static uint64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

uint64_t conn_deadline(unsigned ms)
{
    return ms == UINT_MAX ? CONN_FOREVER : now_ms() + ms;
}

int conn_cut(struct error *err, int errnum)
{
    return error_set(err, "cut", errnum,
                     "the server ended the connection before its answer was whole; look with cove "
                     "ls or cove ps at what it did, and try again");
}

static int no_answer(const struct conn *conn, struct error *err)
{
    return error_set(err, "no_answer", 0,
                     "%s: the server did not answer in time; see whether it is busy and COVE_URL "
                     "leads to it, and try again",
                     conn->address.is_unix ? conn->address.path : conn->address.header);
}

/* Waits until the socket is ready for `events`. */
static int wait_for(struct conn *conn, short events, uint64_t deadline, struct error *err)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = conn->fd, .events = events},
                                {.fd = conn->watch_fd, .events = POLLIN}};
        uint64_t now = now_ms();
        int timeout = -1;
        int ready;

        if (deadline != CONN_FOREVER)
            timeout = deadline <= now              ? 0
                      : deadline - now > 1000000UL ? 1000000
                                                   : (int)(deadline - now);
        ready = poll(fds, 2, timeout);
        if (ready < 0 && errno != EINTR)
            return error_set(err, "poll", errno, "poll: the kernel refused it");
        if (ready > 0 && fds[1].revents != 0)
            conn->watch_call(conn->watch_arg);
        if (ready > 0 && fds[0].revents != 0)
            return 0;
        if (deadline != CONN_FOREVER && now_ms() >= deadline)
            return no_answer(conn, err);
    }
}

/* ---- its life ---- */

void conn_init(struct conn *conn, const struct wire_address *address)
{
    *conn = (struct conn){.address = *address, .fd = -1, .watch_fd = -1};
}

void conn_close(struct conn *conn)
{
    tls_end(conn->tls);
    fd_close(&conn->fd);
}

void conn_free(struct conn *conn)
{
    conn_close(conn);
    tls_free(conn->tls);
    conn->tls = NULL;
}

static int no_server(const struct conn *conn, int errnum, struct error *err)
{
    const struct wire_address *address = &conn->address;

    if (address->is_unix && (errnum == EACCES || errnum == EPERM))
        return error_set(
            err, "no_server", errnum,
            "%s: you may not use this server's socket; ask who runs it, or set COVE_URL",
            address->path);
    return error_set(
        err, "no_server", errnum,
        "%s: no server can be reached there; start one with cove serve, or %s COVE_URL",
        address->is_unix ? address->path : address->header,
        getenv("COVE_URL") != NULL ? "correct" : "set");
}

static int open_unix(struct conn *conn, struct error *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    uint64_t deadline = conn_deadline(CONNECT_MS);

    memcpy(name.sun_path, conn->address.path, sizeof(name.sun_path));
    conn->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (conn->fd < 0)
        return error_set(err, "socket", errno, "socket: the kernel refused it");
    while (connect(conn->fd, (struct sockaddr *)&name, sizeof(name)) < 0) {
        const struct timespec pause = {.tv_nsec = 20000000};
        int errnum = errno;

        /* Its queue is full: the server is busy, or is just being replaced by its next life. */
        if ((errnum == EAGAIN || errnum == EINTR) && now_ms() < deadline) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        fd_close(&conn->fd);
        return no_server(conn, errnum, err);
    }
    return 0;
}

static int open_one(struct conn *conn, const struct addrinfo *info, struct error *err)
{
    int on = 1;
    int failure = 0;
    socklen_t size = sizeof(failure);

    conn->fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                      info->ai_protocol);
    if (conn->fd < 0)
        return error_set(err, "socket", errno, "socket: the kernel refused it");
    (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(conn->fd, info->ai_addr, info->ai_addrlen) < 0) {
        failure = errno;
        if (failure == EINPROGRESS) {
            if (wait_for(conn, POLLOUT, conn_deadline(CONNECT_MS), err) < 0)
                failure = ETIMEDOUT;
            else
                (void)getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &failure, &size);
        }
    }
    if (failure == 0)
        return 0;
    fd_close(&conn->fd);
    return no_server(conn, failure, err);
}

static int open_tcp(struct conn *conn, struct error *err)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *found = NULL;
    int failure = getaddrinfo(conn->address.host, conn->address.port, &wanted, &found);
    int result = -1;

    if (failure != 0)
        return error_set(err, "no_server", 0,
                         "%s: the name of the server leads nowhere: %s; check "
                         "COVE_URL",
                         conn->address.host, gai_strerror(failure));
    for (const struct addrinfo *info = found; info != NULL && result < 0; info = info->ai_next)
        result = open_one(conn, info, err);
    freeaddrinfo(found);
    return result;
}

/* What a call of tls.h left in errno: 0 where it can be tried again now. */
static int tls_wait(struct conn *conn, short events, uint64_t deadline, struct error *err)
{
    if (errno == EPROTO)
        return tls_explain(conn->tls, conn->address.header, err);
    if (errno != EAGAIN)
        return conn_cut(err, errno == ECONNRESET ? 0 : errno);
    /* Its records can come for ever without content. */
    if (deadline != CONN_FOREVER && now_ms() >= deadline)
        return no_answer(conn, err);
    return wait_for(conn, events, deadline, err);
}

static int handshake(struct conn *conn, struct error *err)
{
    uint64_t deadline = conn_deadline(CONNECT_MS);
    short events = 0;

    while (tls_handshake(conn->tls, &events) < 0) {
        if (errno == ECONNRESET || errno == EPIPE)
            return error_set(err, "bad_tls", 0,
                             "%s: the server ended the connection before TLS came about; check "
                             "that COVE_URL has the port of a server that speaks TLS",
                             conn->address.header);
        if (tls_wait(conn, events, deadline, err) < 0)
            return -1;
    }
    return 0;
}

static int open_tls(struct conn *conn, struct error *err)
{
    /* First, for it needs no server to find out that it cannot be. */
    if (conn->tls == NULL && tls_new(conn->address.host, &conn->tls, err) < 0)
        return -1;
    if (open_tcp(conn, err) < 0)
        return -1;
    if (tls_begin(conn->tls, conn->fd, err) < 0 || handshake(conn, err) < 0) {
        conn_close(conn);
        return -1;
    }
    return 0;
}

int conn_open(struct conn *conn, struct error *err)
{
    if (conn->address.is_unix)
        return open_unix(conn, err);
    return conn->address.is_tls ? open_tls(conn, err) : open_tcp(conn, err);
}

bool conn_is_quiet(struct conn *conn)
{
    struct pollfd fd = {.fd = conn->fd, .events = POLLIN};

    return conn->address.is_tls ? tls_is_quiet(conn->tls) : poll(&fd, 1, 0) == 0;
}

/* ---- bytes ---- */

static int send_plain(struct conn *conn, const char *data, size_t size, uint64_t deadline,
                      struct error *err)
{
    while (size > 0) {
        ssize_t n = send(conn->fd, data, size, MSG_NOSIGNAL);

        if (n >= 0) {
            data += n;
            size -= (size_t)n;
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return conn_cut(err, errno);
        if (errno == EAGAIN && wait_for(conn, POLLOUT, deadline, err) < 0)
            return -1;
    }
    return 0;
}

static int send_tls(struct conn *conn, const char *data, size_t size, uint64_t deadline,
                    struct error *err)
{
    short events = 0;

    while (size > 0 || tls_flush(conn->tls, &events) < 0) {
        ssize_t n = size > 0 ? tls_write(conn->tls, data, size, &events) : -1;

        if (n > 0) {
            data += n;
            size -= (size_t)n;
            continue;
        }
        if (n == 0 || errno == EPIPE || errno == ECONNRESET)
            return 0;
        if (tls_wait(conn, events, deadline, err) < 0)
            return -1;
    }
    return 0;
}

int conn_send(struct conn *conn, const char *data, size_t size, uint64_t deadline,
              struct error *err)
{
    return conn->address.is_tls ? send_tls(conn, data, size, deadline, err)
                                : send_plain(conn, data, size, deadline, err);
}

ssize_t conn_receive(struct conn *conn, void *into, size_t size, uint64_t deadline,
                     struct error *err)
{
    for (;;) {
        short events = POLLIN;
        ssize_t n = conn->address.is_tls ? tls_read(conn->tls, into, size, &events)
                                         : recv(conn->fd, into, size, 0);

        if (n >= 0)
            return n;
        if (conn->address.is_tls) {
            if (tls_wait(conn, events, deadline, err) < 0)
                return -1;
        } else if (errno != EAGAIN && errno != EINTR) {
            return conn_cut(err, errno == ECONNRESET ? 0 : errno);
        } else if (errno == EAGAIN && wait_for(conn, POLLIN, deadline, err) < 0) {
            return -1;
        }
    }
}

/* ---- without waiting ---- */

/* What a call left in errno. */
static ssize_t try_failed(struct conn *conn, struct error *err)
{
    if (errno == EAGAIN)
        return CONN_WAITS;
    if (conn->address.is_tls && errno == EPROTO)
        return tls_explain(conn->tls, conn->address.header, err);
    return conn_cut(err, errno == ECONNRESET || errno == EPIPE ? 0 : errno);
}

ssize_t conn_try_send(struct conn *conn, const char *data, size_t size, short *events,
                      struct error *err)
{
    ssize_t n;

    *events = POLLOUT;
    if (!conn->address.is_tls && size == 0)
        return 0;
    do
        n = !conn->address.is_tls ? send(conn->fd, data, size, MSG_NOSIGNAL)
            : size > 0            ? tls_write(conn->tls, data, size, events)
                                  : tls_flush(conn->tls, events);
    while (n < 0 && errno == EINTR);
    return n < 0 ? try_failed(conn, err) : n;
}

ssize_t conn_try_receive(struct conn *conn, void *into, size_t size, short *events,
                         struct error *err)
{
    ssize_t n;

    *events = POLLIN;
    do
        n = conn->address.is_tls ? tls_read(conn->tls, into, size, events)
                                 : recv(conn->fd, into, size, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? try_failed(conn, err) : n;
}

void conn_end_sending(struct conn *conn)
{
    if (conn->address.is_tls)
        tls_end_sending(conn->tls);
    else
        (void)shutdown(conn->fd, SHUT_WR);
}
