/* A zygote: makes boxes of one root in well under a millisecond, however many live.
 *
 * A tiny process whose mount namespace holds the base of the root and nothing of the host. All it
 * does is clone: no host mounts to copy, no old root to detach, no fds of its maker to copy. It holds
 * rights in the host's user namespace, so it reads nothing but requests of its maker, and no byte
 * that comes from a box. It dies with its maker. */
#pragma once

#include "box/box.h"
#include "box/cgroup.h"
#include "box/ids.h"

struct zygote;

/* Of the spec it takes the root, the privileges and the host name. */
int zygote_start(const struct box_spec *spec, struct zygote **out, struct error *err);

/* What is made ahead of time and lent to one box for its life. */
struct zygote_slot {
    const struct ids *ids;
    const struct cgroup *cgroup; /* NULL: none */
    int network;                 /* a network namespace with lo up; -1: make a new one */
};

/* Makes a box of the zygote's root. Binds are not taken here: they are bound later. The slot is free
 * again after box_destroy(). */
int zygote_box(struct zygote *zygote, const struct box_spec *spec, const struct zygote_slot *slot,
               struct box **out, struct error *err);

void zygote_stop(struct zygote *zygote);

/* Another program takes it over (base/hand.h); what was read may be dropped, which touches no process. */
struct hand;
void zygote_hand(struct hand *hand, struct zygote **zygote);
void zygote_drop(struct zygote *zygote);

/* Tells apart the programs that zygotes and their boxes run: one that was taken over from another build
 * is to make no more boxes. */
uint64_t zygote_programs(void);
