/* The network of one `cove run`: the box's two sockets, and a process without rights that has them. */
#pragma once

#include "base/err.h"
#include "box/box.h"

#include <sys/types.h>

struct run_net {
    pid_t engine; /* 0: none */
    int link;     /* its end is the engine's end */
};

/* Opens the network of a box that is ready, and returns when `policy` (a text, not "none") is in force. */
int run_net_begin(struct run_net *net, const struct box *box, const char *policy,
                  struct error *err);
void run_net_end(struct run_net *net);
