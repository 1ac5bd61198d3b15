/* A clock that a test sets, in test builds alone. COVE_TEST_CLOCK names a file that the test makes and
 * writes. It says how far the keeper and its engine are ahead of the kernel's clocks, monotonic and wall,
 * and wakes both.
 *
 * The program's own clock_gettime() adds that to what the kernel says, so that it holds for the timers of
 * the loop and of libraries, too. It holds neither for other processes (boxes, kernels' workers, the janitor)
 * nor for a thread that waits for a condition until a moment: that of the traces waits for as much longer
 * as the clock was ahead when it began. A release has none of this. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum set_clock_program { SET_CLOCK_KEEPER, SET_CLOCK_ENGINE, SET_CLOCK_PROGRAMS };

#ifdef COVE_TEST_SWITCHES

#define SET_CLOCK_FDS 2

/* The keeper follows the file that the environment names; without one nothing happens. */
int set_clock_open(struct error *err);
/* The file, and a new fd that is readable whenever it was written. How many: none where there is no file. */
size_t set_clock_give(int fds[SET_CLOCK_FDS]);
/* The engine follows what it was given: these two fds, the first of which is this one. */
int set_clock_take(int first, struct error *err);

/* Readable when the file was written; -1 without one. */
int set_clock_news(void);
/* Reads the news; the number of what was asked for last. */
uint64_t set_clock_heard(void);
/* Says that all has run that was due by the time that this number asked for. */
void set_clock_ran(enum set_clock_program program, uint64_t asked);

/* Without a file: sets this process ahead by so much more. */
void set_clock_advance(uint64_t ns);

#else

#define SET_CLOCK_FDS 0

static inline int set_clock_open(struct error *err)
{
    (void)err;
    return 0;
}

static inline size_t set_clock_give(int *fds)
{
    (void)fds;
    return 0;
}

static inline int set_clock_take(int first, struct error *err)
{
    (void)first;
    (void)err;
    return 0;
}

static inline int set_clock_news(void)
{
    return -1;
}

static inline uint64_t set_clock_heard(void)
{
    return 0;
}

static inline void set_clock_ran(enum set_clock_program program, uint64_t asked)
{
    (void)program;
    (void)asked;
}

#endif
