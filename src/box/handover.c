/* What the next program of a keeper needs of a box, its cgroups and its ids: see base/hand.h.
 *
 * Everything that is added to one of these structs is added here or does not outlive an upgrade; a
 * change here is another format (keeper/handover.h). The guard of a cold box, the janitor and old zygotes
 * stay the programs that they were: what is said to them is part of that format, too. */
#include "base/fd.h"
#include "base/hand.h"
#include "box/cgroup.h"
#include "box/handle.h"

#include <stdlib.h>

/* ---- ids ---- */

/* Not the parts of a user's pool: it is opened for the one who takes next. */
HAND_COVERS(struct ids_pool, (IDS_SLOTS + 7) / 8 + 273);

void ids_pool_hand(struct hand *hand, struct ids_pool *pool)
{
    hand_fd(hand, &pool->lock);
    hand_u32(hand, &pool->next, IDS_SLOTS);
    for (size_t i = 0; i < sizeof(pool->taken); i += sizeof(uint32_t)) {
        uint32_t word = 0;

        for (size_t j = i; j < i + sizeof(word) && j < sizeof(pool->taken); j++)
            word |= (uint32_t)pool->taken[j] << 8 * (j - i);
        hand_u32(hand, &word, UINT32_MAX);
        for (size_t j = i; j < i + sizeof(word) && j < sizeof(pool->taken); j++)
            pool->taken[j] = (uint8_t)(word >> 8 * (j - i));
    }
}

HAND_COVERS(struct ids, 24);

void ids_hand(struct hand *hand, struct ids *ids)
{
    uint32_t kind = ids->kind;

    hand_u32(hand, &kind, IDS_SINGLE);
    ids->kind = (enum ids_kind)kind;
    hand_u32(hand, &ids->first, UINT32_MAX);
    hand_u32(hand, &ids->first_group, UINT32_MAX);
    hand_u32(hand, &ids->count, IDS_COUNT);
    hand_u32(hand, &ids->slot, IDS_SLOTS - 1);
    hand_u32(hand, &ids->slots, 1);
}

/* ---- cgroups ---- */

HAND_COVERS(struct cgroup_host, 192);

void cgroup_host_hand(struct hand *hand, struct cgroup_host *host)
{
    uint64_t count = host->v1_count;

    hand_u64(hand, &count, CGROUP_V1_MAX);
    host->v1_count = (size_t)count;
    for (size_t i = 0; i < host->v1_count; i++) {
        hand_fd(hand, &host->v1[i].parent);
        hand_u32(hand, &host->v1[i].controllers, UINT32_MAX);
    }
    hand_text(hand, host->mems, sizeof(host->mems));
    hand_fd(hand, &host->v2);
    hand_u32(hand, &host->v2_controllers, UINT32_MAX);
    hand_bool(hand, &host->limits_memory);
    hand_bool(hand, &host->limits_cpu);
    hand_bool(hand, &host->limits_pids);
    hand_bool(hand, &host->box_mounts);
}

/* Not `cpus`, which are for a box that is made. */
HAND_COVERS(struct cgroup, 208);

void cgroup_hand(struct hand *hand, struct cgroup *cgroup, const struct cgroup_host *host)
{
    cgroup->host = host;
    hand_text(hand, cgroup->name, sizeof(cgroup->name));
    hand_u32(hand, &cgroup->v1_made, (1U << CGROUP_V1_MAX) - 1);
    hand_bool(hand, &cgroup->v2_made);
    hand_bool(hand, &cgroup->delegated);
    hand_fd(hand, &cgroup->into);
    hand_fd(hand, &cgroup->leaves);
}

/* ---- boxes ---- */

/* Not its page, which is its maker's memory: nobody knows what it counts then. Nor `memory_kills`: who
 * compares it with what it was begins anew, too. */
HAND_COVERS(struct guard, 24);

static void guard_hand(struct hand *hand, struct guard *guard)
{
    hand_fd(hand, &guard->socket);
    hand_pid(hand, &guard->pid);
    hand_bool(hand, &guard->told);
}

/* Not what its maker alone asks for: `user`, `privileges`, `one_id`, `is_stale`, `is_watched`, `disk_watched`
 * and the warnings, which were read then; `settling`, for an engine has ended that waited; nor `ids` and the rest of `pool`, for of ids that are given back
 * the lock is all. Nobody speaks over the link of a keeper's box. */
HAND_COVERS(struct box, sizeof(struct link) + sizeof(struct ids_pool) + 2784);
HAND_COVERS(struct link, 608);

void box_hand(struct hand *hand, struct box **box, const struct cgroup *lent)
{
    struct box *it = hand->is_reading ? calloc(1, sizeof(*it)) : *box;

    if (hand->is_reading)
        *box = it;
    if (it == NULL) {
        hand_fault(hand, "no memory");
        return;
    }
    if (hand->is_reading) {
        it->magic = BOX_MAGIC;
        it->settling = -1;
        it->lent = lent;
        link_begin_plain(&it->link, -1);
    }
    hand_fd(hand, &it->link.control);
    hand_fd(hand, &it->pidfd);
    if (!hand->is_reading)
        (void)box_settling(it);
    hand_fd(hand, &it->network);
    hand_u32(hand, &it->protocol, UINT32_MAX);
    hand_bool(hand, &it->is_ending);
    hand_bool(hand, &it->cold);
    hand_bool(hand, &it->ids_are_lent);
    guard_hand(hand, &it->guard);
    hand_text(hand, it->group, sizeof(it->group));
    /* Its ids are its lock's: they are free when the last copy of that is closed. */
    hand_fd(hand, &it->pool.lock);
    if (it->cold != (lent == NULL) || it->link.control < 0)
        if (!hand->is_trial)
            hand_fault(hand, "a box that is none");
}

void box_drop(struct box *box)
{
    int *owned[] = {&box->link.control, &box->pidfd,        &box->network,
                    &box->settling,     &box->guard.socket, &box->pool.lock};

    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        fd_close(owned[i]);
    free(box);
}
