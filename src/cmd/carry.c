/* Bytes both ways: see carry.h. One buffer each way, and what is full is not read further, so that whoever is slow
 * slows down the other and nobody's memory grows. What comes of the server and is cut is an error here: a half of a
 * file must never look like a whole one. (The other way round a unix socket has no word for it.) */
#include "cmd/carry.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

struct way {
    char data[CARRY_MAX];
    size_t start, end;
    bool has_ended; /* where it comes from has said all */
    bool has_told;  /* and where it goes to knows */
};

struct carried {
    struct conn *conn;
    int fd;
    struct way up, down;  /* to the server, and from it */
    short of_conn, of_fd; /* what has to come before anything can move */
    bool has_moved, is_cut;
};

static bool is_empty(const struct way *way)
{
    return way->start == way->end;
}

static void fill(struct carried *carried, struct way *way, ssize_t got)
{
    way->start = 0;
    way->end = got > 0 ? (size_t)got : 0;
    way->has_ended = got == 0;
    carried->has_moved = true;
}

static void take(struct carried *carried, struct way *way, ssize_t size)
{
    way->start += (size_t)size;
    carried->has_moved = true;
}

/* Of the socket of this machine: what it says when there is nothing to be had now. */
static void wait_or_cut(struct carried *carried, short events)
{
    if (errno == EAGAIN)
        carried->of_fd |= events;
    else if (errno != EINTR)
        carried->is_cut = true;
}

static int carry_up(struct carried *carried, struct error *err)
{
    struct way *up = &carried->up;
    short events = 0;
    ssize_t n;

    if (is_empty(up) && !up->has_ended) {
        n = recv(carried->fd, up->data, sizeof(up->data), 0);
        if (n >= 0)
            fill(carried, up, n);
        else
            wait_or_cut(carried, POLLIN);
    }
    if (up->has_told)
        return 0;
    n = conn_try_send(carried->conn, up->data + up->start, up->end - up->start, &events, err);
    if (n == -1)
        return -1;
    if (n == CONN_WAITS) {
        carried->of_conn |= events;
    } else if (n > 0) {
        take(carried, up, n);
    } else if (up->has_ended && is_empty(up)) {
        conn_end_sending(carried->conn);
        up->has_told = carried->has_moved = true;
    }
    return 0;
}

static int carry_down(struct carried *carried, struct error *err)
{
    struct way *down = &carried->down;
    short events = 0;
    ssize_t n;

    if (is_empty(down) && !down->has_ended) {
        n = conn_try_receive(carried->conn, down->data, sizeof(down->data), &events, err);
        if (n == -1)
            return -1;
        if (n == CONN_WAITS)
            carried->of_conn |= events;
        else
            fill(carried, down, n);
    }
    if (!is_empty(down)) {
        n = send(carried->fd, down->data + down->start, down->end - down->start, MSG_NOSIGNAL);
        if (n >= 0)
            take(carried, down, n);
        else
            wait_or_cut(carried, POLLOUT);
    }
    if (down->has_ended && is_empty(down) && !down->has_told) {
        (void)shutdown(carried->fd, SHUT_WR);
        down->has_told = carried->has_moved = true;
    }
    return 0;
}

/* Also of who is waited for by nobody it is heard when it was cut. */
static int wait_for_either(struct carried *carried, struct error *err)
{
    struct pollfd fds[2] = {{.fd = carried->conn->fd, .events = carried->of_conn},
                            {.fd = carried->fd, .events = carried->of_fd}};

    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return error_set(err, "poll", errno, "poll: the kernel refused it");
        for (int i = 0; i < 2; i++) {
            if ((fds[i].revents & fds[i].events) != 0)
                return 0;
            if ((fds[i].revents & POLLERR) != 0) {
                carried->is_cut = i == 1;
                return i == 1 ? 0 : conn_cut(err, 0);
            }
            if ((fds[i].revents & POLLHUP) != 0) {
                if (fds[i].events != 0)
                    return 0;
                fds[i].fd = -1; /* it has ended both halves, and that is known */
            }
        }
    }
}

int carry(struct conn *conn, const char *first, size_t first_size, int fd, struct error *err)
{
    struct carried carried = {.conn = conn, .fd = fd};

    if (first_size > 0) {
        memcpy(carried.down.data, first, first_size);
        fill(&carried, &carried.down, (ssize_t)first_size);
    }
    while (!carried.is_cut && !(carried.up.has_told && carried.down.has_told)) {
        carried.has_moved = false;
        carried.of_conn = carried.of_fd = 0;
        if (carry_up(&carried, err) < 0 || carry_down(&carried, err) < 0)
            return -1;
        if (!carried.has_moved && !carried.is_cut && wait_for_either(&carried, err) < 0)
            return -1;
    }
    return 0;
}
