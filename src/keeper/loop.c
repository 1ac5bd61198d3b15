/* The loop: see loop.h. */
#include "keeper/loop.h"

#include "base/fd.h"

#include <errno.h>
#include <sys/epoll.h>

int loop_open(struct loop *loop, struct error *err)
{
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    return loop->epoll >= 0 ? 0 : error_set(err, "capacity", errno, "cannot wait for events");
}

void loop_close(struct loop *loop)
{
    fd_close(&loop->epoll);
}

int loop_add(struct loop *loop, struct source *source, int fd, uint32_t events, source_ready ready,
             void *owner, struct error *err)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    *source = (struct source){.fd = fd, .ready = ready, .owner = owner};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return 0;
    source->fd = -1;
    return error_set(err, "capacity", errno, "cannot wait for one more event");
}

void loop_change(struct loop *loop, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (source->fd >= 0)
        (void)epoll_ctl(loop->epoll, EPOLL_CTL_MOD, source->fd, &event);
}

void loop_remove(struct loop *loop, struct source *source)
{
    if (source->fd >= 0)
        (void)epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
    source->fd = -1;
}

int loop_turn(struct loop *loop, int timeout_ms)
{
    struct epoll_event event;
    int n = epoll_wait(loop->epoll, &event, 1, timeout_ms);

    if (n <= 0)
        return n < 0 && errno != EINTR ? -1 : 0;
    ((struct source *)event.data.ptr)->ready(event.data.ptr, event.events);
    return 1;
}
