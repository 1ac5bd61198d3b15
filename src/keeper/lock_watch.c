/* Watching boxes' file locks: see lock_watch.h. A process of its own counts, because a box can make that slow. */
#include "keeper/lock_watch.h"

#include "base/fd.h"
#include "box/sys.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PERIOD_NS (LOCKS_PERIOD_MS * 1000000ULL)

void lock_watch_open(struct lock_watch *watch)
{
    locks_open(&watch->watch);
}

static bool is_counted(const struct boxed *boxed)
{
    return boxed != NULL && boxed->slot != NULL && boxed->box != NULL && !boxed->is_ending;
}

/* ---- the counter ---- */

static void tell(void *arg, size_t holder)
{
    const uint64_t *handles = arg;

    (void)fd_write_full(3, &handles[holder], sizeof(*handles));
}

static _Noreturn void run(const struct boxes *boxes, int out)
{
    struct locks_holder *holders = calloc(boxes->used, sizeof(*holders));
    uint64_t *handles = calloc(boxes->used, sizeof(*handles));

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (holders == NULL || handles == NULL)
        _exit(1);
    for (size_t i = 0; i < boxes->used; i++) {
        if (!is_counted(boxes->table[i]))
            continue;
        holders[i].space = locks_space(box_init(boxes->table[i]->box));
        handles[i] = boxes->table[i]->handle;
    }
    /* Others wait for the ends of our copies. */
    if (dup2(out, 3) < 0 || sys_close_range(4, ~0U, 0) < 0)
        _exit(1);
    locks_count(holders, boxes->used, tell, handles);
    _exit(0);
}

/* ---- the keeper ---- */

static void end_box(struct keeper *keeper, uint64_t handle)
{
    struct boxed *boxed = boxes_find(&keeper->boxes, handle);

    if (boxed == NULL || boxed->locks_exceeded)
        return;
    boxed->locks_exceeded = true;
    keeper_say("locks_exceeded", "a box of %s held more than %d file locks and is ended",
               boxed->owner[0] != '\0' ? boxed->owner : "no sandbox", LOCKS_MAX);
    (void)sys_pidfd_send_signal(box_init(boxed->box), SIGKILL);
}

static void counter_reap(struct keeper *keeper)
{
    struct lock_watch *locks = &keeper->locks;
    int out = locks->found.fd;

    loop_remove(&keeper->loop, &locks->found);
    fd_close(&out);
    while (waitpid(locks->counter, NULL, 0) < 0 && errno == EINTR)
        continue;
    locks->counter = 0;
}

static void found_ready(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;
    uint64_t handle;
    ssize_t length = read(source->fd, &handle, sizeof(handle));

    (void)events;
    if (length == (ssize_t)sizeof(handle))
        end_box(keeper, handle);
    else if (length >= 0 || errno != EINTR)
        counter_reap(keeper);
}

/* Where it cannot be started, the next look tries again. */
static void counter_start(struct keeper *keeper)
{
    struct lock_watch *locks = &keeper->locks;
    struct error err;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    locks->counter = fork();
    if (locks->counter == 0)
        run(&keeper->boxes, ends[1]);
    (void)close(ends[1]);
    if (locks->counter > 0 &&
        loop_add(&keeper->loop, &locks->found, ends[0], EPOLLIN, found_ready, keeper, &err) == 0)
        return;
    locks->watch.least = 0;
    if (locks->counter > 0) {
        locks->found.fd = ends[0];
        lock_watch_stop(keeper);
        return;
    }
    locks->counter = 0;
    (void)close(ends[0]);
}

uint64_t lock_watch_tick(struct keeper *keeper, uint64_t now_ns)
{
    struct lock_watch *locks = &keeper->locks;

    if (locks->watch.fd < 0 || keeper->boxes.count == 0)
        return 0;
    if (now_ns < locks->next_ns)
        return locks->next_ns;
    locks->next_ns = now_ns + PERIOD_NS;
    if (locks->counter == 0 && locks_is_due(&locks->watch, now_ns))
        counter_start(keeper);
    return locks->next_ns;
}

void lock_watch_stop(struct keeper *keeper)
{
    if (keeper->locks.counter == 0)
        return;
    (void)kill(keeper->locks.counter, SIGKILL);
    counter_reap(keeper);
}
