/* Mounts that come to boxes, at their start or while they run, and leave them again.
 *
 * The keeper alone knows where a name leads. Each change is made by a process of its own (box/attach.h), for a program in
 * the box can make it wait, and so can a file system of the host that does not answer; it is noted when that has ended,
 * and answered then, or after CHANGE_NS. A box has one such change at a time.
 *
 * For a box that is made with mounts such a process opens them (mount_starts.c), and the box is set up apart. The keeper
 * itself asks no file system of a mount anything. */
#pragma once

#include "keeper/loop.h"
#include "keeper/request.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* At once, of all boxes; and with those that hang, which take no place of another box's. */
#define MOUNTS_CHANGING_MAX 16
#define MOUNTS_ALL_MAX 512
/* Of one tenant that hang: it gets no more until a file system answers. */
#define MOUNTS_HANGING_MAX 16

struct keeper;
struct boxed;
struct mount_start;

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
    char tenant[KEEPER_NAME_MAX];
    /* A box is made with mounts: its process opens them, then its disk is opened, then `box` is set up. */
    bool is_start;
    /* As long as somebody waits for that; else NULL. */
    struct mount_start *start;
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

/* Begins to open the mounts of a box that a checked request asks for: 0, and request_open() goes on; -1. */
int mounts_start(struct keeper *keeper, const struct keeper_make *make, struct error *err);

/* Finds what was opened for this mount of the request, by the name of this generation; NULL: nothing was. -1 where another
 * name was meant then. */
int mounts_taken(struct keeper *keeper, const struct keeper_make *make, size_t at,
                 uint64_t generation, const struct root_taken **taken, struct error *err);

/* The box of this request is made, and its set-up begins: the request is answered when that is over. NULL: it could not be
 * made. */
void mounts_set_up(struct keeper *keeper, uint32_t asked, struct boxed *boxed);

/* A box is on its end, so nobody waits for its set-up any more. */
void mounts_box_ends(struct boxed *boxed);

/* Nobody waits any more; what is under way in boxes that run goes on, and is noted. */
void mounts_forget(struct keeper *keeper);

/* Tells whether a change goes on whose end comes within its time. */
bool mounts_are_under_way(const struct keeper *keeper);

/* After they were taken over: changes that hang still. */
void mounts_resume(struct keeper *keeper);

/* Ends changes that take too long; when to be called again, 0 for never. */
uint64_t mounts_tick(struct keeper *keeper, uint64_t now_ns);
