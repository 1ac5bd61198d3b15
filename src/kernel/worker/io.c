/* A worker's socket and its threads.
 *
 * All threads wait at one place, and the one that hears of a frame reads it and does at once what it says: nobody
 * has to be woken for it. Before that it lets the next thread hear of the next frame. One thread more than may run
 * guests is there, so that one always listens. */
#include "kernel/worker/worker.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SOCKET 0
#define IN_BYTES (64U << 10)
#define WIRE_KEPT (1U << 20) /* of a thread's buffer for what it says */

/* What has been read: of whichever thread reads, which is one at a time. */
static struct {
    uint8_t bytes[IN_BYTES];
    size_t at, end;
    struct message *partial; /* whose body is read into */
    size_t had;              /* of it */
} in;

int io_open(struct error *err)
{
    struct epoll_event socket = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = SOCKET};
    struct epoll_event timer = {.events = EPOLLIN | EPOLLET}, wake = timer;

    worker.events = epoll_create1(EPOLL_CLOEXEC);
    worker.timer = timer.data.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    worker.wake = wake.data.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker.events < 0 || worker.timer < 0 || worker.wake < 0 ||
        epoll_ctl(worker.events, EPOLL_CTL_ADD, SOCKET, &socket) < 0 ||
        epoll_ctl(worker.events, EPOLL_CTL_ADD, worker.timer, &timer) < 0 ||
        epoll_ctl(worker.events, EPOLL_CTL_ADD, worker.wake, &wake) < 0)
        return error_set(err, "worker_failed", errno, "a kernel's worker cannot wait for frames");
    return 0;
}

/* ---- out ---- */

void io_send(struct wire *wire)
{
    size_t at = 0;

    if (wire->failed)
        worker_die();
    (void)pthread_mutex_lock(&worker.sending);
    while (at < wire->size) {
        ssize_t sent = send(SOCKET, wire->data + at, wire->size - at, MSG_NOSIGNAL);

        if (sent < 0 && errno != EINTR)
            worker_die();
        at += sent > 0 ? (size_t)sent : 0;
    }
    (void)pthread_mutex_unlock(&worker.sending);
    wire->size = 0;
    if (wire->room > WIRE_KEPT)
        wire_free(wire);
}

void io_failed(struct wire *wire, enum proto_kind kind, uint64_t number, const struct error *err)
{
    wire_begin(wire, PROTO_FAILED, number);
    wire_u32(wire, (uint32_t)kind);
    wire_error(wire, err);
    wire_end(wire);
}

/* ---- in ---- */

/* Begins the next frame, once its head is there; false: it is not. */
static bool frame_begin(void)
{
    struct proto_head head;

    if (in.end - in.at < sizeof(head))
        return false;
    memcpy(&head, in.bytes + in.at, sizeof(head));
    in.at += sizeof(head);
    if (!proto_head_is_sound(&head, false))
        worker_die();
    in.partial = malloc(sizeof(*in.partial) + head.size);
    if (in.partial == NULL)
        worker_die();
    *in.partial = (struct message){.head = head};
    in.had = 0;
    return true;
}

/* The next whole frame of what has been read, or NULL. */
static struct message *frame_next(void)
{
    struct message *message;
    size_t size;

    if (in.partial == NULL && !frame_begin())
        return NULL;
    message = in.partial;
    size = message->head.size - in.had;
    if (size > in.end - in.at)
        size = in.end - in.at;
    memcpy(message->body + in.had, in.bytes + in.at, size);
    in.at += size;
    in.had += size;
    if (in.had < message->head.size)
        return NULL;
    in.partial = NULL;
    return message;
}

/* Reads what is there; false: there is nothing more. */
static bool receive(void)
{
    struct message *partial = in.partial;
    bool is_direct = partial != NULL && partial->head.size - in.had > IN_BYTES;
    size_t room;
    ssize_t got;

    if (in.at > 0) {
        memmove(in.bytes, in.bytes + in.at, in.end - in.at);
        in.end -= in.at;
        in.at = 0;
    }
    room = is_direct ? partial->head.size - in.had : IN_BYTES - in.end;
    got = recv(SOCKET, is_direct ? partial->body + in.had : in.bytes + in.end, room, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return errno == EINTR;
    if (got == 0) /* the engine let go */
        _exit(0);
    if (got < 0)
        worker_die();
    if (is_direct)
        in.had += (size_t)got;
    else
        in.end += (size_t)got;
    return (size_t)got == room;
}

/* The socket said that there is something. */
static void frames_read(void)
{
    struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = SOCKET};
    bool more = true;

    while (more) {
        bool is_wanted = false;
        struct message *message;

        more = receive();
        while ((message = frame_next()) != NULL) {
            (void)pthread_mutex_lock(&worker.lock);
            places_take(message);
            (void)pthread_mutex_unlock(&worker.lock);
            is_wanted = true;
        }
        /* Who reads on does nothing of it himself. */
        if (more && is_wanted)
            io_wake();
    }
    if (epoll_ctl(worker.events, EPOLL_CTL_MOD, SOCKET, &again) < 0)
        worker_die();
}

/* ---- the timer ---- */

void io_timer(uint64_t at_ns)
{
    struct itimerspec when = {
        .it_value = {(time_t)(at_ns / 1000000000U), (long)(at_ns % 1000000000U)}};

    if (at_ns == 0 || (worker.timer_ns != 0 && worker.timer_ns <= at_ns))
        return;
    worker.timer_ns = at_ns;
    if (timerfd_settime(worker.timer, TFD_TIMER_ABSTIME, &when, NULL) < 0)
        worker_die();
}

/* ---- threads ---- */

void io_wake(void)
{
    uint64_t one = 1;

    (void)!write(worker.wake, &one, sizeof(one));
}

/* One that is to be worked on by this thread; the others are told if there are more. */
static struct place *place_next(void)
{
    struct place *place;
    bool are_more;

    (void)pthread_mutex_lock(&worker.lock);
    place = places_next();
    are_more = place != NULL && worker.ready.first != NULL && worker.running < worker.runners;
    (void)pthread_mutex_unlock(&worker.lock);
    if (are_more)
        io_wake();
    return place;
}

_Noreturn void io_loop(void)
{
    for (;;) {
        struct epoll_event event;
        struct place *place = place_next();

        if (place != NULL) {
            place_work(place);
            continue;
        }
        if (epoll_wait(worker.events, &event, 1, -1) != 1)
            continue;
        if (event.data.fd == SOCKET) {
            frames_read();
        } else if (event.data.fd == worker.timer) {
            (void)pthread_mutex_lock(&worker.lock);
            places_expire();
            (void)pthread_mutex_unlock(&worker.lock);
        }
    }
}
