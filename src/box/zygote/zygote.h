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
enum { ZYGOTE_NETWORK = 1, ZYGOTE_INTO = 2, ZYGOTE_LEAVES = 4, ZYGOTE_UPPER = 8 };

struct zygote_request {
    uint32_t flags;
    uint32_t first_id, ids_count;
    struct plan plan;
};

/* With the pidfd of the box's init where errnum is 0. */
struct zygote_answer {
    int32_t errnum;
    char step[32];
};
