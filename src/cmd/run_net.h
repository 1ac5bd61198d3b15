/* The network of one `cove run`: the box's two sockets, and a process without rights that has them. */
#pragma once

#include "base/err.h"
#include "box/box.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct run_net {
    pid_t engine; /* 0: none */
    int link;     /* its end is the engine's end; -1 then */
    bool is_ready;
    uint64_t until_ns; /* it has to be ready by then */
};

/* Opens the network of a box that is ready, and has `policy` (a text, not "none") put in force. */
int run_net_begin(struct run_net *net, struct box *box, const char *policy, struct error *err);
/* The link can be read, or it is late. 1: the policy is in force, from now on; 0: nothing new; -1: it will not be. */
int run_net_hear(struct run_net *net, struct error *err);
void run_net_end(struct run_net *net);
