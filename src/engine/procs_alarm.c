/* Timers that ring once, and what time it is. Each is an allocation of its own, for libuv closes a
 * handle later than its owner may end. */
#include "engine/procs_parts.h"

#include <stdlib.h>
#include <time.h>

struct proc_alarm {
    uv_timer_t timer; /* first */
    void (*ring)(void *arg);
    void *arg;
};

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void on_time(uv_timer_t *timer)
{
    struct proc_alarm *alarm = (struct proc_alarm *)timer;

    alarm->ring(alarm->arg);
}

struct proc_alarm *proc_alarm_set(uv_loop_t *loop, uint64_t ms, void (*ring)(void *arg), void *arg)
{
    struct proc_alarm *alarm = calloc(1, sizeof(*alarm));

    if (alarm == NULL)
        return NULL;
    alarm->ring = ring;
    alarm->arg = arg;
    /* Neither can fail with these arguments. The loop's own time is that of the turn's beginning. */
    uv_update_time(loop);
    (void)uv_timer_init(loop, &alarm->timer);
    (void)uv_timer_start(&alarm->timer, on_time, ms, 0);
    return alarm;
}

void proc_alarm_drop(struct proc_alarm **alarm)
{
    if (*alarm != NULL)
        uv_close((uv_handle_t *)&(*alarm)->timer, on_closed);
    *alarm = NULL;
}

static uint64_t now_ms(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000U + (uint64_t)now.tv_nsec / 1000000U;
}

uint64_t procs_wall_ms(void)
{
    return now_ms(CLOCK_REALTIME);
}

uint64_t procs_monotonic_ms(void)
{
    return now_ms(CLOCK_MONOTONIC);
}
