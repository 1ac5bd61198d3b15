/* Slots: see slots.h. */
#include "keeper/slots.h"

#include "base/fd.h"
#include "box/network_bound.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define INIT_UID_PLAIN 1000 /* of a plain box's init, in the box */

/* ---- networks ---- */

static void go_home(const struct slots *slots)
{
    /* In a box's network we would listen and connect for it: rather not at all. */
    if (setns(slots->home, CLONE_NEWNET) < 0)
        abort();
}

/* Its owner is the host's root and not the box's, so what a box may do there is said here: a root that
 * can bind port 80 in a box made otherwise can do so in this one. */
static int network_fill(enum box_privileges privileges)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    _cleanup_close_ int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (any < 0 || ioctl(any, SIOCSIFFLAGS, &request) < 0)
        return -1;
    network_bound();
    return privileges == BOX_SYSTEM
               ? fd_write_file(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
               : 0;
}

static int network_make(const struct slots *slots, enum box_privileges privileges,
                        struct error *err)
{
    _cleanup_close_ int network = -1;
    bool failed;

    if (unshare(CLONE_NEWNET) < 0)
        return error_set(err, "network_failed", errno, "cannot make a network namespace");
    network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    failed = network < 0 || network_fill(privileges) < 0;
    if (failed)
        (void)error_set(err, "network_failed", errno, "cannot prepare a network namespace");
    go_home(slots);
    return failed ? -1 : fd_take(&network);
}

/* ---- one slot ---- */

static void name_of(const struct slots *slots, uint32_t number, char name[CGROUP_NAME_MAX])
{
    (void)snprintf(name, CGROUP_NAME_MAX, "%s-%u", slots->prefix, number);
}

static void slot_remove(struct slots *slots, struct slot *slot)
{
    struct error ignored;

    if (slot->cgroup.host != NULL)
        (void)cgroup_remove(&slot->cgroup, &ignored);
    fd_close(&slot->network);
    if (slot->ids.count > 0)
        ids_release(&slots->pool, &slot->ids);
    slots->table[slot->number] = NULL;
    free(slot);
}

static int slot_fill(struct slots *slots, struct slot *slot, struct error *err)
{
    char name[CGROUP_NAME_MAX];
    uid_t owner;

    if (ids_take(&slots->pool, &slot->ids, err) < 0)
        return -1;
    owner = slot->ids.first + (slot->privileges == BOX_PLAIN ? INIT_UID_PLAIN : 0);
    name_of(slots, slot->number, name);
    return cgroup_make(&slots->host, name, &slot->limits, owner, owner, true, &slot->cgroup, err);
}

static struct slot *slot_new(struct slots *slots, const struct cgroup_limits *limits,
                             enum box_privileges privileges, struct error *err)
{
    struct slot *slot = calloc(1, sizeof(*slot));
    uint32_t number = 0;

    while (number < slots->table_used && slots->table[number] != NULL)
        number++;
    if (slot == NULL || number == SLOTS_MAX) {
        free(slot);
        (void)error_set(err, "capacity", slot == NULL ? ENOMEM : 0,
                        "there is no room for one more box: end others first");
        return NULL;
    }
    *slot = (struct slot){
        .number = number, .network = -1, .privileges = privileges, .limits = *limits};
    slots->table[number] = slot;
    if (number == slots->table_used) {
        slots->table_used++;
        janitor_tell(slots->janitor, (uint32_t)slots->table_used, -1);
    }
    if (slot_fill(slots, slot, err) == 0)
        return slot;
    slot_remove(slots, slot);
    return NULL;
}

static bool limits_equal(const struct cgroup_limits *one, const struct cgroup_limits *other)
{
    return one->memory_bytes == other->memory_bytes && one->cpu_milli == other->cpu_milli &&
           one->pids == other->pids;
}

/* One whose network is made rather than any. */
static struct slot *unused_find(const struct slots *slots, const struct cgroup_limits *limits,
                                enum box_privileges privileges)
{
    struct slot *found = NULL;

    for (size_t i = 0; slots->unused > 0 && i < slots->table_used; i++) {
        struct slot *slot = slots->table[i];

        if (slot == NULL || slot->is_used || slot->is_worn || slot->privileges != privileges ||
            !limits_equal(&slot->limits, limits))
            continue;
        found = slot;
        if (slot->network >= 0)
            break;
    }
    return found;
}

int slots_take(struct slots *slots, const struct box_limits *limits, enum box_privileges privileges,
               struct slot **out, struct error *err)
{
    struct cgroup_limits wanted = {
        .memory_bytes = limits->memory_bytes, .cpu_milli = limits->cpu_milli, .pids = limits->pids};
    struct slot *slot = unused_find(slots, &wanted, privileges);

    if (slot == NULL) {
        slot = slot_new(slots, &wanted, privileges, err);
        if (slot == NULL)
            return -1;
        slots->unused++;
    }
    if (slot->network < 0)
        slot->network = network_make(slots, privileges, err);
    if (slot->network < 0)
        return -1;
    slots->wanted = wanted;
    slots->wanted_privileges = privileges;
    slots->is_wanted = true;
    slot->is_used = true;
    slots->unused--;
    (void)cgroup_usage(&slot->cgroup, &slot->begun);
    *out = slot;
    return 0;
}

void slots_give(struct slots *slots, struct slot *slot)
{
    slot->is_used = false;
    slots->unused++;
    slot->is_worn |= cgroup_renew(&slot->cgroup) < 0;
    /* Never lent twice: what a box can leave in one is more than anybody could look for (counters of what it
     * dialled in vain, ports in TIME_WAIT), and who had a socket of it has it still. */
    fd_close(&slot->network);
}

void slots_usage(const struct slot *slot, struct cgroup_usage *usage)
{
    if (cgroup_usage(&slot->cgroup, usage) < 0)
        return;
    usage->cpu_ns -= slot->begun.cpu_ns;
    usage->oom_kills -= slot->begun.oom_kills;
}

/* ---- tending ---- */

static bool is_wanted(const struct slots *slots, const struct slot *slot)
{
    return slots->is_wanted && slot->privileges == slots->wanted_privileges &&
           limits_equal(&slot->limits, &slots->wanted);
}

static bool make_ahead(struct slots *slots)
{
    struct slot *slot = NULL;
    struct error ignored;
    size_t ready = 0;

    for (size_t i = 0; i < slots->table_used && slot == NULL; i++) {
        struct slot *other = slots->table[i];

        if (other == NULL || other->is_used || other->is_worn || !is_wanted(slots, other))
            continue;
        ready++;
        if (other->network < 0)
            slot = other;
    }
    if (slot == NULL && ready < SLOTS_SPARE) {
        slot = slot_new(slots, &slots->wanted, slots->wanted_privileges, &ignored);
        if (slot != NULL)
            slots->unused++;
    }
    if (slot == NULL)
        return false;
    /* Where it fails, whoever needs one is told why. */
    slot->network = network_make(slots, slot->privileges, &ignored);
    return slot->network >= 0;
}

/* One that is worn, or one too many: of the kind that is wanted last, for make_ahead() would make that
 * again at once, and so on for ever. */
static bool remove_one(struct slots *slots, size_t kept)
{
    struct slot *found = NULL;

    for (size_t i = 0; i < slots->table_used; i++) {
        struct slot *slot = slots->table[i];

        if (slot == NULL || slot->is_used || (!slot->is_worn && slots->unused <= kept))
            continue;
        if (slot->is_worn || !is_wanted(slots, slot)) {
            found = slot;
            break;
        }
        if (found == NULL)
            found = slot;
    }
    if (found == NULL)
        return false;
    slots->unused--;
    slot_remove(slots, found);
    return true;
}

bool slots_shed(struct slots *slots)
{
    bool had = slots->unused > 0;

    while (remove_one(slots, 0))
        continue;
    return had;
}

bool slots_tend(struct slots *slots)
{
    if (!slots->is_open)
        return false;
    if (remove_one(slots, SLOTS_UNUSED))
        return true;
    return slots->is_wanted && make_ahead(slots);
}

/* ---- beginning and end ---- */

static bool host_limits_all(const struct cgroup_host *host)
{
    return host->limits_memory && host->limits_cpu && host->limits_pids;
}

int slots_open(struct slots *slots, bool may_use, struct error *err)
{
    uint32_t random;
    struct error why;

    slots->home = slots->janitor = slots->pool.lock = -1;
    slots->host.v2 = -1;
    if (cgroup_probe(&slots->host, &why) < 0)
        slots->host = (struct cgroup_host){.v2 = -1};
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return error_set(err, "no_random", errno, "cannot get random bytes");
    (void)snprintf(slots->prefix, sizeof(slots->prefix), "k%08x", random);
    if (may_use && ids_open(&slots->pool, err) < 0)
        return -1;
    if (janitor_start(slots, err) < 0)
        return -1;
    if (!may_use)
        return 0;
    slots->home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    slots->is_open = slots->home >= 0 && host_limits_all(&slots->host);
    return 0;
}

void slots_close(struct slots *slots)
{
    bool is_left = false;

    /* What a box still has, which does not end, is the janitor's; its ids stay locked that long. */
    for (size_t i = 0; i < slots->table_used; i++)
        if (slots->table[i] != NULL && slots->table[i]->is_used)
            is_left = true;
        else if (slots->table[i] != NULL)
            slot_remove(slots, slots->table[i]);
    slots->is_open = false;
    fd_close(&slots->janitor);
    if (slots->janitor_pid > 0 && !is_left)
        (void)waitpid(slots->janitor_pid, NULL, 0);
    fd_close(&slots->home);
    ids_close(&slots->pool);
    cgroup_host_close(&slots->host);
}
