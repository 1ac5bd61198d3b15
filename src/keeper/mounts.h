/* Mounts that come to boxes which run, and leave them again.
 *
 * The keeper alone knows where a name leads. Each change is made by a process of its own (box/attach.h), for a program in
 * the box can make it wait, and so can a file system of the host that does not answer; it is noted when that has ended,
 * and answered then, or after CHANGE_NS. A box has one such change at a time. */
#pragma once

#include "keeper/loop.h"
#include "keeper/request.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* At once, of all boxes; and with those that hang, which take no place of another box's. */
#define MOUNTS_CHANGING_MAX 16
#define MOUNTS_ALL_MAX 512

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
    /* `mount_id` is 0 until its process has said that it comes to that. */
    uint64_t device, inode, mount_id;
    /* When it has taken too long; 0: it was killed for that, and the kernel does not let go of it. */
    uint64_t due_ns;
    bool is_killed;
};

struct mounts {
    struct mount_change table[MOUNTS_ALL_MAX];
};

/* Begins what a checked request asks for: 1, and it is answered later; 0: it is so already; -1. An error's code is the
 * one for the client. */
int mounts_attach(struct keeper *keeper, struct boxed *boxed, const struct keeper_attach *attach,
                  struct error *err);
int mounts_detach(struct keeper *keeper, struct boxed *boxed, const struct keeper_detach *detach,
                  struct error *err);

/* Nobody waits any more; what is under way goes on, and is noted. */
void mounts_forget(struct keeper *keeper);

/* Tells whether a change goes on whose end comes within its time. */
bool mounts_are_under_way(const struct keeper *keeper);

/* After they were taken over: changes that hang still. */
void mounts_resume(struct keeper *keeper);

/* Ends changes that take too long; when to be called again, 0 for never. */
uint64_t mounts_tick(struct keeper *keeper, uint64_t now_ns);
