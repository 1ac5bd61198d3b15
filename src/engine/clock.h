/* Alarms: deadlines, idle limits, patience. A heap over one timer of the loop, because an alarm that is
 * part of a sandbox must be gone at once when the sandbox is, and a timer of the loop is not. */
#pragma once

#include <stdint.h>
#include <uv.h>

struct clock;

struct alarm {
    uint64_t at_ns; /* monotonic */
    uint32_t place; /* in the heap, from 1; 0: not set */
    void (*ring)(void *arg);
    void *arg;
};

struct clock *clock_new(uv_loop_t *loop);
/* Sets or moves it. It rings once. */
void clock_set(struct clock *clock, struct alarm *alarm, uint64_t at_ns, void (*ring)(void *arg),
               void *arg);
void clock_clear(struct clock *clock, struct alarm *alarm);
void clock_free(struct clock *clock);
