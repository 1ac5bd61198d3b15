/* Probes: what a box needs of this host, each tried for real in a child.
 *
 * A kernel, a container's filter or a security module can refuse each step on its own, and some
 * answer by killing: so a probe is a forked child with a time limit, which notes every step before
 * it takes it. Nothing here judges or explains; the command line does. Nothing of the host changes:
 * what a probe makes lives in namespaces that end with it, and its cgroups are removed again. */
#pragma once

#include "box/ids.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum probe_id {
    PROBE_KERNEL,       /* the system calls that 5.15 has and that nothing can replace */
    PROBE_USERNS,       /* a user namespace can be made */
    PROBE_USERNS_CAPS,  /* it comes with capabilities: AppArmor may give one without */
    PROBE_IDS,          /* a range of ids for each box */
    PROBE_NAMESPACES,   /* mount, pid, ipc, uts and cgroup namespaces, and a tmpfs */
    PROBE_NETWORK,      /* a network namespace, its loopback up */
    PROBE_PROC,         /* a fresh /proc */
    PROBE_DEVPTS,       /* terminals of the box's own */
    PROBE_OVERLAY,      /* an overlay on tmpfs, with user xattrs: for --root */
    PROBE_IDMAP,        /* an idmapped mount of the current directory: of root of the host */
    PROBE_EROFS,        /* erofs images: for root's --root */
    PROBE_SECCOMP,      /* the filter of a box */
    PROBE_LANDLOCK,     /* the wall behind the wall */
    PROBE_CLOCKS,       /* a time namespace */
    PROBE_MEMFD,        /* a program from memory */
    PROBE_CGROUP,       /* limits by cgroups */
    PROBE_PROCESS_LIMIT /* RLIMIT_NPROC is counted per user namespace */
};
#define PROBE_COUNT (PROBE_PROCESS_LIMIT + 1)

enum probe_state {
    PROBE_SKIPPED, /* not tried: it needs what failed, or root */
    PROBE_WORKS,
    PROBE_PARTLY, /* it works with less: `found` says what */
    PROBE_FAILS,
};

struct probe_result {
    enum probe_state state;
    char step[64]; /* what was being done last */
    int errnum;    /* of that step; 0 where it is no system call that failed */
    int signal;    /* the child was killed by it: SIGSYS is a seccomp filter's */
    bool timed_out;
    char found[128]; /* what there is, for a person */
    /* Facts that decide what to advise. */
    enum ids_gap ids_gap;
    bool ids_refused; /* there are enough, and taking or mapping them fails */
    uint64_t ids_count;
    int legacy_errnum; /* PROBE_USERNS: of unshare(2), where clone3 failed; 0: that works */
};

/* What can be said of one mechanism. */
void probe_run(enum probe_id id, struct probe_result *result);

/* Runs `function` in a child of ours and waits for its end, `limit_ms` at most. `shared` is memory
 * that both see (probe_share()). The child's wait status, or -1 if its time was up. */
int probe_in_child(void (*function)(void *shared), void *shared, unsigned limit_ms);

/* Zeroed memory that a child and its maker see alike; NULL if there is none. */
void *probe_share(size_t size);
void probe_unshare(void *shared, size_t size);
