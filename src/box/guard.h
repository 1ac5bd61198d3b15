/* The guard of a box: a process that owns the box's cgroups, from mkdir to rmdir.
 *
 * It is there before the first group and outlives its maker, so that a maker that is killed leaves
 * nothing behind; and it does the slow cgroup work while the maker clones the box. It also writes the
 * child's id maps, for its maker sleeps until the child has become the box's init. Where no cgroup can
 * keep a limit, it is the box's watchdog (watch.h). It runs nothing of the box, reads of it only what
 * the kernel says, and ends when its socket does. */
#pragma once

#include "box/box.h"
#include "box/cgroup.h"
#include "box/disk.h"
#include "box/idmap.h"

#include <stdatomic.h>
#include <sys/types.h>

struct guard {
    int socket;
    pid_t pid;
    bool told;               /* to finish; its answer is to come */
    uint32_t memory_kills;   /* that were heard of */
    struct guard_page *page; /* shared with it; NULL in a process that took the box over */
};

/* What the guard counts while the box lives, for its maker to look at. */
struct guard_page {
    _Atomic uint64_t files_bytes; /* that the box wrote; UINT64_MAX: not counted (yet) */
};

struct guard_order {
    const char *name; /* of the cgroups */
    struct cgroup_limits limits;
    enum idmap_way way; /* how the child gets its ids */
    const char *uid_map, *gid_map;
    uid_t owner; /* host ids of the box's init */
    gid_t group;
    bool mounts;      /* we rule the host's mounts: groups are shown to the child as such */
    bool leaves;      /* a delegated v2 directory for init */
    bool announce;    /* the maker will wait for the groups */
    struct disk disk; /* to be watched and removed; its `parent` is -1 where there is none */
    int keep;         /* an fd that must live as long as the box: the lock of its ids; -1: none */
};

int guard_start(const struct guard_order *order, struct guard *guard, struct error *err);

/* Waits for the groups; the v2 directories (for CLONE_INTO_CGROUP, for init), -1 where none. Whether
 * init may make groups in there, for which it needs the second directory or mounts its own, and whether
 * they have limits of their own. */
int guard_wait_made(struct guard *guard, int *into, int *leaves, bool *delegated, bool *limited,
                    struct error *err);

/* Each packet on guard.socket starts with its type. A guard may be older than the maker that took it over, so
 * numbers are only ever added, and the first five keep their form.
 *
 * The set-up child says GUARD_HELLO, with its user namespace where its disk is watched. It hears GUARD_GO when
 * its id maps stand (from a zygote with the lower layer, where there is one), and then GUARD_GATE with the gate's
 * fds; GUARD_FAILED instead of either ends it. Where the gate says that the box is watched, it says GUARD_WATCH
 * with the fds of enum watch_fd before anything of the user's runs, and hears GUARD_GO when the watchdog sees it,
 * with the end of a pipe that init has to hold. */
enum guard_type {
    GUARD_FINISH = 1,
    GUARD_HURRY,
    GUARD_MADE,
    GUARD_REPORT,
    GUARD_MEMORY,
    GUARD_FAILED,
    GUARD_HELLO,
    GUARD_GO,
    GUARD_GATE,
    GUARD_WATCH,
};

/* GUARD_HELLO and GUARD_GO. */
struct guard_word {
    uint32_t type;
};

struct guard_failed {
    uint32_t type;
    struct error error;
};

struct guard_gate {
    uint32_t type;
    struct cgroup_gate gate;
};

struct guard_watch {
    uint32_t type;
    uint32_t pad;
    uint64_t space; /* inode of the box's pid namespace, where its /proc shows others too; or 0 */
};

/* The box is to end and takes its time: its CPU limit is lifted. */
void guard_hurry(struct guard *guard);

/* How often the watchdog has killed for memory so far; never waits. For a box that stands. */
uint32_t guard_memory_kills(struct guard *guard);
/* Whether guard_finish() would not wait; what was said before the end is not taken for it. */
bool guard_has_finished(struct guard *guard);

/* After the box's last process: tells it to finish. The socket polls readable when guard_finish(), with
 * the same wish for a report, does not wait any more. */
int guard_tell_finish(struct guard *guard, bool wants_report, struct error *err);

/* After the box's last process: what it used (not counted with report NULL); the groups are gone when
 * this returns. */
int guard_finish(struct guard *guard, struct box_report *report, struct error *err);
