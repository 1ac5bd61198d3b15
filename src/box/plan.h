/* The plan of one box: everything its set-up child needs, decided and opened beforehand.
 *
 * A flat struct without pointers, so that it can be handed to a zygote in one packet. All parsing,
 * looking up and asking for permission happened before; the child only carries it out (inside.h).
 * Fds are numbers in the child's table, -1 where there is none. */
#pragma once

#include "box/box.h"
#include "box/cgroup.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define PLAN_BINDS_MAX 32
#define PLAN_TARGET_MAX 256

struct plan_bind {
    int mount; /* a detached mount, already idmapped, nosuid, nodev, read-only where asked; or, with
                * `opens_paths`, the place itself */
    bool is_directory;
    bool read_only;
    char target[PLAN_TARGET_MAX];
};

struct plan {
    enum box_root_kind root_kind;
    bool is_empty; /* nothing of the host is in the view */
    bool own_root; /* of the host profile: see box_spec */
    enum box_privileges privileges;
    uid_t uid; /* inside; who runs the commands */
    gid_t gid;
    gid_t groups[BOX_GROUPS_MAX];
    size_t groups_count;
    char home[PLAN_TARGET_MAX]; /* made and given to the user where the root lacks it */
    char shell[32];             /* of the synthetic /etc/passwd */
    char hostname[65];

    uint64_t memory_bytes; /* what a program inside is told; the cgroup enforces it */
    uint64_t disk_bytes;
    uint64_t disk_inodes;
    uint32_t cpu_milli;
    uint32_t pids;

    bool from_zygote; /* the mount namespace is a copy of a zygote's, whose root is the base */
    bool own_clocks;  /* found out by the child: uptime begins with the box */
    bool landlock;    /* use it where the kernel has it */
    bool one_shot;    /* the box ends with its first command */
    bool no_set_id;   /* a writable bind: the filter refuses set-id modes */
    bool own_network; /* the network namespace is new: bring lo up */
    /* The child is a copy of its maker, which does not wait for it. */
    bool apart;
    int network_out;  /* a socket that is sent that namespace; -1: nobody asks */
    bool opens_paths; /* the maker does not rule the host's mounts: the child takes what it needs of
                       * them into its own, as far as the caller's rights go */
    bool one_id;      /* root of the box is no id of its own, and groups stay the caller's */
    bool stale_proc;  /* asked for: take the /proc that is there where a fresh one is forbidden */
    bool is_stale;    /* found out by the child: it did */
    bool disk_kept;   /* `upper` outlives the box */
    bool disk_watched; /* `upper` is a directory on the caller's disk, watched */
    bool leaves_too;   /* init makes groups in the box's v2 group, `leaves` or its own view of it */
    uint32_t filter_key[4];

    int control;    /* our end of the control socket */
    int init;       /* sealed memfd: the program of PID 1 */
    int go;         /* a packet comes when the id maps stand; a zygote's brings the lower layer */
    bool has_guard; /* at the other end of `go`: it learns our pid there, and sends the gate */
    struct cgroup_gate gate; /* from the guard, or with a zygote's request */
    int watchdog;            /* a pipe that ends with it; found out by the child */
    int leaves;              /* delegated cgroup v2 directory */
    int lower; /* root: detached mount of the lower layer (not with BOX_ROOT_HOST); or,
                              * with `opens_paths`, the directory itself */
    int upper; /* a detached mount to hold upper and work, where tmpfs cannot */

    size_t binds_count;
    struct plan_bind binds[PLAN_BINDS_MAX];
};
