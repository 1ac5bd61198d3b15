/* How the engine's loop follows the clock that a test sets: base/set_clock.h. A release follows none. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <uv.h>

struct test_clock {
    bool is_open;
    uv_poll_t news;
    uv_prepare_t turned;
    /* The last number that the loop has read. */
    uint64_t asked;
};

#ifdef COVE_TEST_SWITCHES

/* Does nothing where the keeper gave no clock. */
int test_clock_open(struct test_clock *clock, uv_loop_t *loop, struct error *err);
void test_clock_close(struct test_clock *clock);

#else

static inline int test_clock_open(struct test_clock *clock, uv_loop_t *loop, struct error *err)
{
    (void)clock;
    (void)loop;
    (void)err;
    return 0;
}

static inline void test_clock_close(struct test_clock *clock)
{
    (void)clock;
}

#endif
