/* Mounts that come to boxes which run, and leave them again.
 *
 * The keeper alone knows where a name leads. Each change is made by a process of its own (box/attach.h), for a program in
 * the box can make it wait; it is noted when that has ended, and answered then. A box has one such change at a time. */
#pragma once

#include "keeper/loop.h"
#include "keeper/request.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* At once, of all boxes. */
#define MOUNTS_CHANGING_MAX 16

struct keeper;
struct boxed;

/* A change under way. */
struct mount_change {
    struct source ended; /* first member */
    struct keeper *keeper;
    /* 0: none. */
    pid_t pid;
    int pidfd, socket;
    bool is_attach;
    /* Also where `mount` does not say so: it was registered so. */
    bool read_only;
    /* The request that waits; 0: nobody. */
    uint32_t asked;
    uint64_t box;
    struct keeper_mount mount;
    uint64_t device, inode;
};

struct mounts {
    struct mount_change table[MOUNTS_CHANGING_MAX];
};

/* Begins what a checked request asks for: 1, and it is answered later; 0: it is so already; -1. An error's code is the
 * one for the client. */
int mounts_attach(struct keeper *keeper, struct boxed *boxed, const struct keeper_attach *attach,
                  struct error *err);
int mounts_detach(struct keeper *keeper, struct boxed *boxed, const struct keeper_detach *detach,
                  struct error *err);

/* Nobody waits any more; what is under way goes on, and is noted. */
void mounts_forget(struct keeper *keeper);

/* Waits for all that is under way, and notes it. */
void mounts_wait(struct keeper *keeper);
