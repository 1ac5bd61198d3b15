/* What a zygote and its maker say to each other, and how its mount namespace looks. */
#pragma once

#include "box/plan.h"

#include <stdint.h>

#define ZYGOTE_SOCKET_FD 3
#define ZYGOTE_INIT_FD 4 /* sealed memfd of init's program */

/* Where the lower layer of an image root stands in a zygote's root. */
#define ZYGOTE_LOWER "lower"

/* Its fds: the box's end of the control socket, then those whose flag is set, in this order, then those
 * of the gate in the plan. */
enum {
    ZYGOTE_NETWORK = 1,
    ZYGOTE_INTO = 2,
    ZYGOTE_LEAVES = 4,
    ZYGOTE_UPPER = 8,
    ZYGOTE_FLAGS = 15,
};

enum zygote_type { ZYGOTE_REQUEST = 1, ZYGOTE_ANSWER, ZYGOTE_FAILED };

struct zygote_request {
    uint32_t type;
    uint32_t flags;
    uint32_t first_id, ids_count;
    struct plan plan;
};

/* With the pidfd of the box's init where errnum is 0. */
struct zygote_answer {
    uint32_t type;
    int32_t errnum;
    char step[32];
};

/* It says this before its program runs. */
struct zygote_failed {
    uint32_t type;
    struct error error;
};

/* Whether a packet is a request, and its fds are at least those of its flags. */
static inline bool zygote_request_fits(const struct zygote_request *request, size_t size,
                                       size_t fds_count)
{
    return size == sizeof(*request) && request->type == ZYGOTE_REQUEST &&
           (request->flags & ~(uint32_t)ZYGOTE_FLAGS) == 0 &&
           fds_count > (size_t)__builtin_popcount(request->flags);
}
