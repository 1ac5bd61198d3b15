/* Waiting for many fds: one epoll, one event at a time, so that no handler meets a source that another
 * one has just removed. */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct loop {
    int epoll;
};

struct source;
typedef void (*source_ready)(struct source *source, uint32_t events);

/* Lives within what owns the fd. */
struct source {
    int fd; /* borrowed; -1: not added */
    source_ready ready;
    void *owner;
};

int loop_open(struct loop *loop, struct error *err);
void loop_close(struct loop *loop);

int loop_add(struct loop *loop, struct source *source, int fd, uint32_t events, source_ready ready,
             void *owner, struct error *err);
void loop_change(struct loop *loop, struct source *source, uint32_t events);

/* Before its fd is closed: a copy of it elsewhere would keep the kernel reporting it. */
void loop_remove(struct loop *loop, struct source *source);

/* Handles what is ready, or returns after that many milliseconds (-1: never); 1, 0 or -1. */
int loop_turn(struct loop *loop, int timeout_ms);
