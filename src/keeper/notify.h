/* What a service manager hears: that the keeper is ready, ends, and is alive (sd_notify(3)). */
#pragma once

#include <stdint.h>

struct notify {
    int socket;           /* -1: nobody listens */
    uint64_t watchdog_ns; /* how often it wants to hear; 0: never */
    uint64_t next_ns;     /* when next */
};

/* Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment. */
void notify_open(struct notify *notify);
void notify_say(const struct notify *notify, const char *state);

/* Says that we are alive when it is time. */
void notify_tick(struct notify *notify, uint64_t now_ns);
