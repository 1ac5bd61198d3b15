/* Turns: what boxes can keep ready without end is done here, a bounded part at a time, and in a round of the loop
 * for a fraction of a millisecond. Each share has one of its tasks run in turn, however many of them are ready.
 *
 * There are two of these. In one a share is a box, and tasks are its connections. In the other a share is a tenant,
 * and tasks are its sandboxes, whose output and messages are taken (engine/procs.c). */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

struct turns;

/* Something to be done for a share, a bounded part of it at a time. */
struct task {
    TAILQ_ENTRY(task) next;
    struct share *share;
    void (*run)(struct task *task); /* may free itself, and its share */
    bool is_ready;
};

/* One that takes turns with others: however many of its tasks are ready, one of them is run in each. */
struct share {
    TAILQ_ENTRY(share) next;
    TAILQ_HEAD(tasks, task) tasks;
    struct turns *turns;
    bool is_ready;
    unsigned pipes;   /* that its pumps hold; see pump.c */
    unsigned streams; /* pipes of its commands that the engine has open; see engine/procs_start.c */
    uint64_t texts;   /* bytes that are kept of its commands that have ended; see engine/procs.c */
};

/* In a round of the loop tasks are run for `round_ns`, or one task if that takes longer. */
int turns_open(uv_loop_t *loop, uint64_t round_ns, struct turns **out, struct error *err);
/* `closed` may be NULL. */
void turns_close(struct turns *turns, void (*closed)(void *arg), void *arg);

void share_init(struct share *share, struct turns *turns);
void share_leave(struct share *share); /* all its tasks were dropped */
/* It is run in this round of the loop or a later one, never from here. */
void task_ready(struct task *task);
void task_drop(struct task *task);
