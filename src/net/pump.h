/* What a pump is made of; for pump.c, pipes.c and meter.c alone. */
#pragma once

#include "net/carry.h"

struct pump_side {
    struct watch watch;
    struct pump *pump;
    int fd;
    bool can_read, can_write; /* as far as is known */
    bool has_urgent;          /* it sent what splice(2) stops at: it is copied from now on */
    bool has_failed;          /* it is gone; what it had said may still be read */
};

/* From sides[i] to sides[1 - i]. */
struct pump_way {
    int pipe; /* that holds what is on its way; -1: nothing is */
    size_t in_pipe;
    bool has_ended; /* nothing more comes, and what came is through */
    bool is_shut;   /* and the other side was told */
    uint64_t carried;
};

struct pump {
    struct task task;
    struct share *share;
    struct pipes *pipes;
    struct meter *meter;
    struct pump_side sides[2]; /* client, server */
    struct pump_way ways[2];   /* to the server, to the client */
    char *first;               /* goes to the server before all else */
    size_t first_size, first_sent;
    TAILQ_ENTRY(pump) waiting; /* in its meter's line */
    bool is_waiting;
    bool is_spent;
    void (*over)(void *arg, enum pump_end end, const struct pump_counts *counts);
    void *arg;
};

void pump_wait(struct pump *pump);
void pump_wake(struct pump *pump);

/* ---- pipes.c ---- */

/* The number of an empty pipe, or -1 where there is none for this share. */
int pipes_borrow(struct pipes *pipes, struct share *share);
/* `is_empty` false: what it holds is thrown away with it. */
void pipes_return(struct pipes *pipes, struct share *share, int pipe, bool is_empty);
int pipes_in(const struct pipes *pipes, int pipe);
int pipes_out(const struct pipes *pipes, int pipe);
/* Where bytes are copied through if there is no pipe: for the length of a call. */
#define PIPES_SCRATCH ((size_t)64 << 10)
char *pipes_scratch(struct pipes *pipes);
