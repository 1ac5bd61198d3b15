/* Slots: what a zygote's box is lent for its life. A range of ids, cgroups with limits, a network
 * namespace with lo up: made before somebody waits for them, and but for the last used again.
 *
 * A slot serves again only where nothing of its last box can be found in it, and never with the same
 * network. The janitor, a process of its own, knows how many there are, holds the lock of their ids, and
 * removes what a keeper that was killed has left. */
#pragma once

#include "base/err.h"
#include "box/box.h"
#include "box/cgroup.h"
#include "box/ids.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLOTS_MAX 16384
#define SLOTS_SPARE 2   /* made ahead, of the kind that was asked for last */
#define SLOTS_UNUSED 64 /* kept; more are removed */

struct slot {
    uint32_t number; /* its cgroup is called by it */
    struct ids ids;
    struct cgroup cgroup;
    int network; /* of one box only; -1: to be made */
    enum box_privileges privileges;
    struct cgroup_limits limits;
    bool is_used;
    bool is_worn;              /* not to be used again */
    struct cgroup_usage begun; /* what its boxes before had used */
};

struct slots {
    bool is_open; /* false where no zygote can be used */
    struct ids_pool pool;
    struct cgroup_host host;
    char prefix[16];
    struct slot *table[SLOTS_MAX];
    size_t table_used, unused;
    int home; /* our own network namespace */
    int janitor;
    int janitor_pid;
    int anonymous; /* borrowed, for the janitor: its copy keeps the lock (box/locks.h) in an upgrade */
    struct cgroup_limits wanted; /* asked for last */
    enum box_privileges wanted_privileges;
    bool is_wanted;
};

/* Opens the pool and the cgroups and starts the janitor. Where the host does not limit all that a box
 * is limited by, zygotes are not used, and `is_open` stays false. */
int slots_open(struct slots *slots, bool may_use, struct error *err);
void slots_close(struct slots *slots);

int slots_take(struct slots *slots, const struct box_limits *limits, enum box_privileges privileges,
               struct slot **slot, struct error *err);

/* When the last process of its box is gone. */
void slots_give(struct slots *slots, struct slot *slot);

/* What its box used. */
void slots_usage(const struct slot *slot, struct cgroup_usage *usage);

/* Removes what is unused, for whoever has no room else; whether there was any. */
bool slots_shed(struct slots *slots);

/* Makes or removes one slot, when nobody waits for us; whether there is more to do. */
bool slots_tend(struct slots *slots);

/* ---- the janitor ---- */

/* Starts it. It holds copies of the fds in `slots`. */
int janitor_start(struct slots *slots, struct error *err);

/* How many numbers of slots there are, and the engine's pidfd (-1: as before). */
void janitor_tell(int janitor, uint32_t numbers, int engine);
