/* Turns: sockets that are watched, tasks that are ready, alarms; all in one fd and four handles of the loop. In a
 * round of the loop tasks are run for `round_ns` and no longer, a task of each share in turn: a request
 * to the API waits for no more than that, however many boxes carry however much. */
#include "net/carry.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 256

struct turns {
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_check_t check;
    uv_idle_t idle; /* while there are tasks, so that the loop does not sleep */
    uv_timer_t timer;
    int epoll;
    unsigned handles;
    uint64_t round_ns;
    TAILQ_HEAD(shares, share) shares;
    TAILQ_HEAD(alarms, alarm) alarms[ALARM_KINDS];
    uint64_t timer_at;
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- tasks ---- */

void share_init(struct share *share, struct turns *turns)
{
    *share = (struct share){.turns = turns};
    TAILQ_INIT(&share->tasks);
}

void share_leave(struct share *share)
{
    if (share->is_ready)
        TAILQ_REMOVE(&share->turns->shares, share, next);
    share->is_ready = false;
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void on_check(uv_check_t *check);

void task_ready(struct task *task)
{
    struct share *share = task->share;
    struct turns *turns = share->turns;

    if (task->is_ready)
        return;
    task->is_ready = true;
    TAILQ_INSERT_TAIL(&share->tasks, task, next);
    if (!share->is_ready) {
        share->is_ready = true;
        TAILQ_INSERT_TAIL(&turns->shares, share, next);
    }
    (void)uv_check_start(&turns->check, on_check);
    (void)uv_idle_start(&turns->idle, on_idle);
}

void task_drop(struct task *task)
{
    if (task->is_ready)
        TAILQ_REMOVE(&task->share->tasks, task, next);
    task->is_ready = false;
}

/* One task of the share whose turn it is. The share goes behind the others before: both may be freed by it. */
static void run_one(struct turns *turns)
{
    struct share *share = TAILQ_FIRST(&turns->shares);
    struct task *task = TAILQ_FIRST(&share->tasks);

    TAILQ_REMOVE(&turns->shares, share, next);
    share->is_ready = false;
    if (task == NULL)
        return;
    task_drop(task);
    if (!TAILQ_EMPTY(&share->tasks)) {
        share->is_ready = true;
        TAILQ_INSERT_TAIL(&turns->shares, share, next);
    }
    task->run(task);
}

/* Once in a round, behind all that the round heard. */
static void on_check(uv_check_t *check)
{
    struct turns *turns = check->data;
    uint64_t until = clock_monotonic_ns() + turns->round_ns;

    while (!TAILQ_EMPTY(&turns->shares)) {
        run_one(turns);
        if (clock_monotonic_ns() >= until)
            return;
    }
    (void)uv_check_stop(&turns->check);
    (void)uv_idle_stop(&turns->idle);
}

/* ---- sockets ---- */

static void on_events(uv_poll_t *poll, int status, int events)
{
    struct turns *turns = poll->data;
    struct epoll_event all[EVENTS_AT_ONCE];
    int count = epoll_wait(turns->epoll, all, EVENTS_AT_ONCE, 0);

    (void)status;
    (void)events;
    for (int i = 0; i < count; i++) {
        struct watch *watch = all[i].data.ptr;

        watch->note(watch, all[i].events);
    }
}

int turns_watch(struct turns *turns, int fd, uint32_t edges, struct watch *watch)
{
    struct epoll_event event = {.events = edges | EPOLLET, .data.ptr = watch};

    return epoll_ctl(turns->epoll, EPOLL_CTL_ADD, fd, &event);
}

void turns_unwatch(struct turns *turns, int fd)
{
    (void)epoll_ctl(turns->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* ---- alarms ---- */

static const uint64_t alarm_ms[ALARM_KINDS] = {
    [ALARM_SOON] = ALARM_SOON_MS,
    [ALARM_STAGGER] = ALARM_STAGGER_MS,
    [ALARM_PATIENCE] = ALARM_PATIENCE_MS,
};

static void on_timer(uv_timer_t *timer);

/* A timer that is due too early is left alone: it looks again then. */
static void start_timer(struct turns *turns)
{
    uint64_t now = uv_now(turns->loop), first = UINT64_MAX;

    for (size_t kind = 0; kind < ALARM_KINDS; kind++) {
        const struct alarm *alarm = TAILQ_FIRST(&turns->alarms[kind]);

        if (alarm != NULL && alarm->at_ms < first)
            first = alarm->at_ms;
    }
    if (first == UINT64_MAX)
        return;
    if (uv_is_active((uv_handle_t *)&turns->timer) && turns->timer_at <= first)
        return;
    turns->timer_at = first;
    (void)uv_timer_start(&turns->timer, on_timer, first > now ? first - now : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct turns *turns = timer->data;
    uint64_t now = uv_now(turns->loop);

    for (size_t kind = 0; kind < ALARM_KINDS; kind++) {
        struct alarm *alarm;

        /* One that is set anew is due later, so this ends. */
        while ((alarm = TAILQ_FIRST(&turns->alarms[kind])) != NULL && alarm->at_ms <= now) {
            turns_calm(turns, alarm);
            alarm->ring(alarm);
        }
    }
    start_timer(turns);
}

void turns_alarm(struct turns *turns, struct alarm *alarm, enum alarm_kind kind)
{
    turns_calm(turns, alarm);
    alarm->kind = kind;
    alarm->at_ms = uv_now(turns->loop) + alarm_ms[kind];
    alarm->is_set = true;
    TAILQ_INSERT_TAIL(&turns->alarms[kind], alarm, next);
    start_timer(turns);
}

void turns_calm(struct turns *turns, struct alarm *alarm)
{
    if (alarm->is_set)
        TAILQ_REMOVE(&turns->alarms[alarm->kind], alarm, next);
    alarm->is_set = false;
}

/* ---- begin and end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct turns *turns = handle->data;

    if (--turns->handles > 0)
        return;
    fd_close(&turns->epoll);
    if (turns->closed != NULL)
        turns->closed(turns->closed_arg);
    free(turns);
}

int turns_open(uv_loop_t *loop, uint64_t round_ns, struct turns **out, struct error *err)
{
    struct turns *turns = calloc(1, sizeof(*turns));
    int result;

    if (turns == NULL)
        return error_set(err, "net_failed", ENOMEM, "cannot watch what boxes carry");
    turns->loop = loop;
    turns->round_ns = round_ns;
    TAILQ_INIT(&turns->shares);
    for (size_t kind = 0; kind < ALARM_KINDS; kind++)
        TAILQ_INIT(&turns->alarms[kind]);
    turns->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (turns->epoll < 0) {
        (void)error_set(err, "net_failed", errno, "cannot watch what boxes carry");
        free(turns);
        return -1;
    }
    result = uv_poll_init(loop, &turns->poll, turns->epoll);
    if (result != 0) {
        (void)error_set(err, "net_failed", -result, "cannot watch what boxes carry");
        fd_close(&turns->epoll);
        free(turns);
        return -1;
    }
    (void)uv_check_init(loop, &turns->check);
    (void)uv_idle_init(loop, &turns->idle);
    (void)uv_timer_init(loop, &turns->timer);
    turns->poll.data = turns->check.data = turns->idle.data = turns->timer.data = turns;
    turns->handles = 4;
    (void)uv_poll_start(&turns->poll, UV_READABLE, on_events);
    *out = turns;
    return 0;
}

void turns_close(struct turns *turns, void (*closed)(void *arg), void *arg)
{
    turns->closed = closed;
    turns->closed_arg = arg;
    uv_close((uv_handle_t *)&turns->poll, on_closed);
    uv_close((uv_handle_t *)&turns->check, on_closed);
    uv_close((uv_handle_t *)&turns->idle, on_closed);
    uv_close((uv_handle_t *)&turns->timer, on_closed);
}
