/* What guest (WebAssembly) and host tell each other, in one place of the guest's memory: this struct has
 * the same layout for both compilers, for it holds numbers of a fixed size only.
 *
 * The guest is hostile: the host copies a number out once, checks it, and uses the copy. Nothing that the
 * guest writes here decides about more than the guest's own run. */
#pragma once

#include <stdint.h>

#define GUEST_LAYOUT 1U
#define GUEST_NO_BYTES UINT32_MAX    /* in the place of a size: there are none, which is not zero */
#define GUEST_STACK_BYTES (4U << 20) /* scripts/build-kernel.sh says so to the linker */
#define GUEST_STACK_LIMIT \
    (3584U << 10)                  /* for the code that is run; the rest is for the engine's own */
#define GUEST_INPUT_MAX (8U << 10) /* a source of up to this size needs no allocation */
#define GUEST_LOGS_MAX (8U << 20)  /* bytes that one run may print */
#define GUEST_CALLS_MAX 1024U      /* asynchronous calls in flight */
#define GUEST_MEMORY_RESERVE (512U << 10) /* so that "out of memory" can still be told */

/* What run() and step() return. */
enum guest_state {
    GUEST_DONE = 1,    /* the result is there */
    GUEST_WAITS,       /* for a call, or for a timer */
    GUEST_INTERRUPTED, /* it looked at `interrupt` and gave up: what it held is still sound */
    GUEST_NO_MEMORY,   /* not even the error could be made */
};

/* Of run(). */
#define GUEST_RUN_TYPES 1U /* the language's form with types, where it has one */
#define GUEST_RUN_MODULE 2U

/* Of a result. */
#define GUEST_HAS_VALUE 1U
#define GUEST_HAS_ERROR 2U
#define GUEST_FINAL 4U           /* by __finalAnswer__ */
#define GUEST_HAS_VALUE_ERROR 8U /* why JSON cannot hold it */

enum guest_level { GUEST_LOG, GUEST_INFO, GUEST_WARN, GUEST_ERROR, GUEST_DEBUG };

struct guest_text {
    uint32_t at;
    uint32_t size;
};

struct guest_shared {
    /* The host writes. */
    uint32_t layout;       /* the guest: GUEST_LAYOUT */
    uint32_t interrupt;    /* not 0: the engine gives up at its next look */
    uint32_t seeded;       /* `seed` is fresh */
    uint32_t memory_limit; /* bytes that the engine may allocate; 0: none */
    uint64_t seed[4];

    /* The guest writes. */
    double wait_ms; /* until the next timer; negative: there is none */
    uint32_t flags;
    uint32_t line, column; /* of the error; 0: not known */
    int32_t exit_code;
    uint32_t memory_refused; /* how often the limit said no */
    uint32_t logs_count;
    uint32_t logs_dropped;
    struct guest_text logs; /* records of {uint32_t level, size; bytes} without padding */
    struct guest_text output, type, value, value_error, errors, name, message, stack, code;

    uint8_t input[GUEST_INPUT_MAX];
};
