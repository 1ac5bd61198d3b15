/* Makes the boxes that are measured, as an engine would: a zygote whose root is an overlay's lower
 * layer, and slots that were made ahead of time: a range of ids, cgroups with limits, an empty
 * network namespace.
 *
 * Every step that fails ends the bench with the box's own error: a number of a box that does not
 * work is worth nothing. */
#pragma once

#include "box/zygote.h"

#include <stdbool.h>
#include <stddef.h>

struct slot {
    struct ids ids;
    struct cgroup cgroup;
    int network;
    bool settled;
    size_t next; /* unused slots are a list */
};

struct maker {
    struct zygote *zygote;
    struct ids_pool pool;
    struct cgroup_host host;
    struct slot *slots;
    size_t slots_count, slots_room;
    size_t unused, unused_count;
    const char *prefix, *root;
    uint32_t commands; /* ids given so far */
    int null;
};

/* A box and the slot that it has on loan. */
struct made {
    struct box *box;
    size_t slot;
};

/* `root`, borrowed, is the directory that becomes the lower layer; it holds the static program
 * /true. At most `room` boxes live at once. Cgroups are named `prefix`-NUMBER, for maker_sweep(). */
void maker_open(struct maker *maker, const char *prefix, const char *root, size_t room);

/* Makes slots until `count` are unused. */
void maker_fill(struct maker *maker, size_t count);

/* Creates a box and waits until its init is ready for a command. */
struct made maker_create(struct maker *maker);

/* Closes the fds that this process has of a box's slot. Thousands of boxes have more of them than
 * some hosts let a process have; such a slot is not used again. */
void maker_settle(struct maker *maker, struct made made);

/* Runs /true in the box and waits for its exit status, which must be 0. */
void maker_exec(struct maker *maker, struct box *box);

/* Waits until nothing of the box is left; its slot is used again. */
void maker_destroy(struct maker *maker, struct made made);

/* Removes the slots too. No box may be left. */
void maker_close(struct maker *maker);

/* Removes what a maker left that died: no other process knows the names of its cgroups. */
void maker_sweep(const char *prefix, size_t room);
