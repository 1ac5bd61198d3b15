/* A pump: two sockets, and what one says is carried to the other, half-closes too, until both have said all or
 * one is gone. Bytes move from socket to pipe to socket and never come to us; never with SPLICE_F_MORE, which holds
 * back small writes for 200 ms. Nothing is read that the other side has no room for, so that whoever is slow
 * slows down the one who sends, and an idle pump is its two sockets and nothing else.
 *
 * Whose peer sent a RST is gone: what it had said before goes on as far as it is taken at once, then the other
 * side gets a RST too. A truncated stream must never look like a whole one. */
#include "net/pump.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* In one turn so much each way. */
#define PART ((size_t)256 << 10)

/* What waits in the kernel for one who does not read, at most; what is on its way to one who does is not bounded
 * by it. */
#define UNSENT (256 << 10)

/* Whoever is so near fills any network with this much on its way; more of it only leaves the processor's cache, which
 * costs a fifth of the rate. A box always is. Anybody further away gets what the kernel finds out. */
#define NEAR_US 200U
#define NEAR_ROOM (256 << 10)

/* ---- sockets ---- */

static void bound_near(int fd)
{
    static const int room = NEAR_ROOM;
    struct tcp_info info = {.tcpi_rtt = 0}; /* not connected yet, or no TCP */
    socklen_t size = sizeof(info);

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_rtt > 0 &&
        info.tcpi_rtt <= NEAR_US)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
}

void pump_prepare(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 60}, {IPPROTO_TCP, TCP_KEEPINTVL, 15},
        {IPPROTO_TCP, TCP_KEEPCNT, 4},   {IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT},
        {SOL_SOCKET, SO_OOBINLINE, 1},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof(options[i].value)); /* a unix socket has none of them */
    bound_near(fd);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void pump_reset(int *fd)
{
    static const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    if (*fd >= 0)
        (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    fd_close(fd);
}

static void note(struct watch *watch, uint32_t events)
{
    struct pump_side *side = (struct pump_side *)watch;

    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        side->can_read = true;
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        side->can_write = true;
    if (events & EPOLLPRI)
        side->has_urgent = true;
    if (events & EPOLLERR)
        side->has_failed = true;
    task_ready(&side->pump->task);
}

/* ---- the meter's line ---- */

void pump_wait(struct pump *pump)
{
    if (pump->is_waiting)
        return;
    pump->is_waiting = true;
    pump->meter->waiting_count++;
    TAILQ_INSERT_TAIL(&pump->meter->waiting, pump, waiting);
}

static void leave_line(struct pump *pump)
{
    TAILQ_REMOVE(&pump->meter->waiting, pump, waiting);
    pump->meter->waiting_count--;
    pump->is_waiting = false;
}

void pump_wake(struct pump *pump)
{
    leave_line(pump);
    task_ready(&pump->task);
}

/* ---- the end ---- */

/* A side that was told that nothing more comes has all there was; any other one learns that it has not. */
static void release(struct pump *pump, bool is_cut)
{
    task_drop(&pump->task);
    if (pump->is_waiting)
        leave_line(pump);
    for (unsigned i = 0; i < 2; i++) {
        struct pump_side *side = &pump->sides[i];
        struct pump_way *way = &pump->ways[i];

        turns_unwatch(pump->share->turns, side->fd);
        if (!is_cut && pump->ways[1 - i].is_shut)
            fd_close(&side->fd);
        else
            pump_reset(&side->fd);
        if (way->pipe >= 0)
            pipes_return(pump->pipes, pump->share, way->pipe, false);
    }
    free(pump->first);
    free(pump);
}

void pump_count(const struct pump *pump, struct pump_counts *out)
{
    *out = (struct pump_counts){pump->ways[0].carried, pump->ways[1].carried};
}

static void finish(struct pump *pump, enum pump_end end)
{
    void (*over)(void *arg, enum pump_end end, const struct pump_counts *counts) = pump->over;
    struct pump_counts counts;
    void *arg = pump->arg;

    pump_count(pump, &counts);
    release(pump, end == PUMP_SPENT);
    over(arg, end, &counts);
}

void pump_cut(struct pump *pump)
{
    release(pump, true);
}

/* ---- one way ---- */

static void carried(struct pump *pump, unsigned i, size_t size)
{
    pump->ways[i].carried += size;
    if (pump->meter != NULL)
        *(i == 0 ? &pump->meter->bytes_out : &pump->meter->bytes_in) += size;
}

/* False where the call that gave `n` got no further; then the side knows why. */
static bool has_written(struct pump_side *to, ssize_t n)
{
    if (n > 0)
        return true;
    if (n < 0 && errno == EAGAIN)
        to->can_write = false;
    else if (n == 0 || errno != EINTR)
        to->has_failed = true;
    return n < 0 && errno == EINTR;
}

static bool has_read(struct pump_way *way, struct pump_side *from, ssize_t n)
{
    if (n > 0)
        return true;
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno != EAGAIN)
        from->has_failed = true;
    from->can_read = false;
    /* An error is told once, and what comes after it looks like an end. */
    way->has_ended = n == 0 && !from->has_failed;
    return way->has_ended;
}

static bool send_first(struct pump *pump, struct pump_side *to)
{
    ssize_t n = send(to->fd, pump->first + pump->first_sent, pump->first_size - pump->first_sent,
                     MSG_NOSIGNAL | MSG_DONTWAIT);

    if (!has_written(to, n))
        return false;
    if (n > 0) {
        carried(pump, 0, (size_t)n);
        pump->first_sent += (size_t)n;
    }
    if (pump->first_sent == pump->first_size) {
        free(pump->first);
        pump->first = NULL;
    }
    return true;
}

static bool drain(struct pump *pump, unsigned i)
{
    struct pump_way *way = &pump->ways[i];
    struct pump_side *to = &pump->sides[1 - i];
    ssize_t n = splice(pipes_out(pump->pipes, way->pipe), NULL, to->fd, NULL, way->in_pipe,
                       SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

    if (!has_written(to, n))
        return false;
    if (n > 0) {
        way->in_pipe -= (size_t)n;
        carried(pump, i, (size_t)n);
    }
    return true;
}

/* Where there is no pipe: what is read is only looked at, and taken once the other side has it. */
static ssize_t copy(struct pump *pump, unsigned i, size_t size)
{
    struct pump_side *from = &pump->sides[i], *to = &pump->sides[1 - i];
    char *scratch = pipes_scratch(pump->pipes);
    ssize_t n, taken;

    if (size > PIPES_SCRATCH)
        size = PIPES_SCRATCH;
    n = recv(from->fd, scratch, size, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0)
        return has_read(&pump->ways[i], from, n) ? 0 : -1;
    n = send(to->fd, scratch, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0)
        return has_written(to, n) ? 0 : -1;
    carried(pump, i, (size_t)n);
    taken = recv(from->fd, scratch, (size_t)n, MSG_DONTWAIT | MSG_TRUNC);
    if (taken != n) { /* it was there a moment ago: it must not be sent a second time */
        from->has_failed = to->has_failed = true;
        return -1;
    }
    return n;
}

/* How much was read; 0: nothing yet, but try again; -1: there is no more for now. */
static ssize_t fill(struct pump *pump, unsigned i, size_t size)
{
    struct pump_way *way = &pump->ways[i];
    struct pump_side *from = &pump->sides[i];
    ssize_t n;
    char c;

    if (way->pipe < 0 && !from->has_urgent)
        way->pipe = pipes_borrow(pump->pipes, pump->share);
    if (way->pipe < 0 || from->has_urgent)
        return copy(pump, i, size);
    n = splice(from->fd, NULL, pipes_in(pump->pipes, way->pipe), NULL, size,
               SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (n == 0 && recv(from->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
        from->has_urgent = true; /* not the end */
        return 0;
    }
    if (n <= 0)
        return has_read(way, from, n) ? 0 : -1;
    way->in_pipe += (size_t)n;
    return n;
}

static void shut(struct pump *pump, unsigned i)
{
    struct pump_way *way = &pump->ways[i];
    struct pump_side *to = &pump->sides[1 - i];

    if (way->is_shut || !to->can_write) /* one that is connecting would be given up by it */
        return;
    if (shutdown(to->fd, SHUT_WR) < 0)
        to->has_failed = true;
    else
        way->is_shut = true;
}

/* True where there is more to do, and only this turn is over. */
static bool move(struct pump *pump, unsigned i)
{
    struct pump_way *way = &pump->ways[i];
    struct pump_side *from = &pump->sides[i], *to = &pump->sides[1 - i];
    size_t left = PART, size;
    ssize_t n;

    while (!to->has_failed) {
        if (i == 0 && pump->first != NULL) {
            if (!to->can_write || !send_first(pump, to))
                return false;
        } else if (way->in_pipe > 0) {
            if (!to->can_write || !drain(pump, i))
                return false;
        } else if (way->has_ended) {
            shut(pump, i);
            return false;
        } else {
            if (!from->can_read || !to->can_write)
                return false;
            if (left == 0)
                return true;
            size = pump->meter != NULL ? meter_allow(pump->meter, pump, left) : left;
            if (size == 0) {
                pump->is_spent |= !pump->is_waiting;
                return false;
            }
            n = fill(pump, i, size);
            if (n < 0)
                return false;
            if (pump->meter != NULL)
                meter_take(pump->meter, (size_t)n);
            left -= (size_t)n;
        }
    }
    return false;
}

static bool move_and_return(struct pump *pump, unsigned i)
{
    struct pump_way *way = &pump->ways[i];
    bool has_more = move(pump, i);

    if (way->pipe >= 0 && way->in_pipe == 0) {
        pipes_return(pump->pipes, pump->share, way->pipe, true);
        way->pipe = -1;
    }
    return has_more;
}

/* ---- both ---- */

static void run(struct task *task)
{
    struct pump *pump = (struct pump *)((char *)task - offsetof(struct pump, task));
    unsigned gone;
    bool has_more;

    has_more = move_and_return(pump, 0);
    has_more |= move_and_return(pump, 1);
    gone = (unsigned)pump->sides[0].has_failed + pump->sides[1].has_failed;
    if (pump->ways[0].is_shut && pump->ways[1].is_shut)
        finish(pump, PUMP_DONE);
    else if (gone == 2 || (gone == 1 && !has_more && !pump->is_waiting))
        finish(pump, PUMP_BROKEN);
    else if (pump->is_spent)
        finish(pump, PUMP_SPENT);
    else if (has_more)
        task_ready(&pump->task);
}

struct pump *pump_new(const struct pump_options *options)
{
    struct pump *pump = calloc(1, sizeof(*pump));
    int fds[2] = {options->client, options->server};

    if (pump == NULL ||
        (options->first_size > 0 && (pump->first = malloc(options->first_size)) == NULL)) {
        free(pump);
        pump_reset(&fds[0]);
        pump_reset(&fds[1]);
        return NULL;
    }
    if (options->first_size > 0)
        memcpy(pump->first, options->first, options->first_size);
    pump->first_size = options->first_size;
    pump->share = options->share;
    pump->pipes = options->pipes;
    pump->meter = options->meter;
    pump->over = options->over;
    pump->arg = options->arg;
    pump->task = (struct task){.share = options->share, .run = run};
    for (unsigned i = 0; i < 2; i++) {
        pump->ways[i].pipe = -1;
        pump->sides[i] = (struct pump_side){.watch.note = note, .pump = pump, .fd = fds[i]};
        pump_prepare(fds[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        if (turns_watch(pump->share->turns, fds[i], EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP,
                        &pump->sides[i].watch) < 0) {
            pump_cut(pump);
            return NULL;
        }
    }
    return pump;
}
