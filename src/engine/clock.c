/* See clock.h. Times are the kernel's monotonic clock, which nobody sets. */
#include "engine/clock.h"

#include "base/clock.h"

#include <stdbool.h>
#include <stdlib.h>

struct clock {
    uv_timer_t timer;
    struct alarm **heap; /* heap[1] rings first */
    uint32_t count, room;
};

static void put(struct clock *clock, uint32_t place, struct alarm *alarm)
{
    clock->heap[place] = alarm;
    alarm->place = place;
}

static void sift(struct clock *clock, struct alarm *alarm, uint32_t place)
{
    while (place > 1 && clock->heap[place / 2]->at_ns > alarm->at_ns) {
        put(clock, place, clock->heap[place / 2]);
        place /= 2;
    }
    for (;;) {
        uint32_t child = 2 * place;

        if (child < clock->count && clock->heap[child + 1]->at_ns < clock->heap[child]->at_ns)
            child++;
        if (child > clock->count || clock->heap[child]->at_ns >= alarm->at_ns)
            break;
        put(clock, place, clock->heap[child]);
        place = child;
    }
    put(clock, place, alarm);
}

static void remove_alarm(struct clock *clock, struct alarm *alarm)
{
    struct alarm *last = clock->heap[clock->count--];
    uint32_t place = alarm->place;

    alarm->place = 0;
    if (last != alarm)
        sift(clock, last, place);
}

static void rang(uv_timer_t *timer);

static void wind(struct clock *clock)
{
    uint64_t now = clock_monotonic_ns(), wait = 0;

    if (clock->count == 0) {
        (void)uv_timer_stop(&clock->timer);
        return;
    }
    if (clock->heap[1]->at_ns > now)
        wait = (clock->heap[1]->at_ns - now + 999999) / 1000000;
    uv_update_time(clock->timer.loop);
    (void)uv_timer_start(&clock->timer, rang, wait, 0);
}

static void rang(uv_timer_t *timer)
{
    struct clock *clock = timer->data;
    uint64_t now = clock_monotonic_ns();

    while (clock->count > 0 && clock->heap[1]->at_ns <= now) {
        struct alarm *alarm = clock->heap[1];

        remove_alarm(clock, alarm);
        alarm->ring(alarm->arg);
    }
    wind(clock);
}

struct clock *clock_new(uv_loop_t *loop)
{
    struct clock *clock = calloc(1, sizeof(*clock));

    if (clock == NULL || uv_timer_init(loop, &clock->timer) != 0)
        abort();
    clock->timer.data = clock;
    return clock;
}

void clock_set(struct clock *clock, struct alarm *alarm, uint64_t at_ns, void (*ring)(void *arg),
               void *arg)
{
    struct alarm *first = clock->count > 0 ? clock->heap[1] : NULL;
    uint64_t first_ns = first != NULL ? first->at_ns : 0;

    if (alarm->place > 0)
        remove_alarm(clock, alarm);
    if (clock->count + 2 > clock->room) {
        clock->room = clock->room > 0 ? 2 * clock->room : 64;
        clock->heap = realloc(clock->heap, clock->room * sizeof(struct alarm *));
        if (clock->heap == NULL)
            abort();
    }
    *alarm = (struct alarm){.at_ns = at_ns, .ring = ring, .arg = arg};
    clock->count++;
    sift(clock, alarm, clock->count);
    if (first == NULL || at_ns < first_ns)
        wind(clock);
}

/* The timer is left as it is: it rings for nobody and is wound again then. */
void clock_clear(struct clock *clock, struct alarm *alarm)
{
    if (alarm->place == 0)
        return;
    remove_alarm(clock, alarm);
    if (clock->count == 0)
        wind(clock);
}

static void closed(uv_handle_t *handle)
{
    struct clock *clock = handle->data;

    free(clock->heap);
    free(clock);
}

void clock_free(struct clock *clock)
{
    if (clock != NULL)
        uv_close((uv_handle_t *)&clock->timer, closed);
}
