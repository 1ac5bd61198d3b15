/* How much a box may carry: a bucket of tokens that fills with time, and all that it may ever carry. Asking takes
 * nothing; what went is taken, to the byte. Pumps that find the bucket empty wait in a line and are woken
 * together, each then getting its part of what there is. */
#include "net/pump.h"

#include "base/clock.h"

/* An eighth of a second's worth may go at once, and never less than a packet or a few. */
#define BURST_PARTS 8
#define BURST_MIN 16384U
/* Less than so much is not worth a system call, if more is wanted. */
#define GRAIN 1024U

static uint64_t burst_of(const struct meter *meter)
{
    uint64_t burst = meter->rate / BURST_PARTS;

    return burst < BURST_MIN ? BURST_MIN : burst;
}

static void on_alarm(struct alarm *alarm)
{
    struct meter *meter = (struct meter *)((char *)alarm - offsetof(struct meter, alarm));

    while (!TAILQ_EMPTY(&meter->waiting))
        pump_wake(TAILQ_FIRST(&meter->waiting));
}

void meter_init(struct meter *meter, struct turns *turns)
{
    *meter = (struct meter){.turns = turns, .left = UINT64_MAX, .alarm.ring = on_alarm};
    TAILQ_INIT(&meter->waiting);
}

void meter_set(struct meter *meter, uint64_t rate, uint64_t left)
{
    meter->rate = rate;
    meter->left = left;
    meter->tokens = (struct rate){0};
    on_alarm(&meter->alarm); /* under the new bounds some may go on */
}

void meter_end(struct meter *meter)
{
    turns_calm(meter->turns, &meter->alarm);
}

size_t meter_allow(struct meter *meter, struct pump *pump, size_t want)
{
    uint64_t there, share;

    if (want > meter->left)
        want = (size_t)meter->left;
    if (meter->rate == 0 || want == 0)
        return want;
    there = rate_left(&meter->tokens, meter->rate, burst_of(meter), clock_monotonic_ns());
    share = there / (meter->waiting_count + 1);
    if (share < GRAIN)
        share = there < GRAIN ? there : GRAIN;
    if (share >= want)
        return want;
    if (share >= GRAIN)
        return (size_t)share;
    pump_wait(pump);
    if (!meter->alarm.is_set)
        turns_alarm(meter->turns, &meter->alarm, ALARM_SOON);
    return 0;
}

void meter_take(struct meter *meter, size_t size)
{
    if (meter->left != UINT64_MAX)
        meter->left -= size;
    if (meter->rate != 0)
        meter->tokens.left -= size;
}
