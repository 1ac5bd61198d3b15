/* The watchdog of a box whose memory and processes no cgroup limits.
 *
 * It runs in the box's guard: it adds up what the box's processes and its file system hold, as the
 * kernel tells it through files that the set-up child opened, and kills what goes beyond. Memory that
 * neither shows must not exist: such a box has no memfd, no System V IPC and no vmsplice
 * (filter/policy.txt). It begins to count no later than WATCH_PERIOD_MS after it has counted, and looks again
 * before it believes what may be but a child that is about to execute a program (watch.c). */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#define WATCH_PERIOD_MS 40

/* What the set-up child hands over, in this order. */
enum watch_fd {
    WATCH_PROC,    /* a /proc of the box's processes, or of more (`space`) */
    WATCH_SCRATCH, /* the tmpfs that holds what the box writes */
    WATCH_FDS,
};

struct watch {
    uint64_t memory_bytes; /* the limits; 0: none */
    uint32_t pids;
    int fds[WATCH_FDS];
    int init;       /* pidfd of the box's PID 1 */
    uint64_t space; /* inode of the box's pid namespace where /proc shows others too, or 0 */
    bool sees;      /* at the last look there was a process */
    unsigned blind; /* looks in a row without any */
    unsigned over;  /* looks in a row at which there was too much */
    uint64_t over_since_ns, over_bytes; /* the first of them, and what there was then */
    uint64_t looked_ns;                 /* when the last look began */
    uint64_t pair_ns;     /* for how long what may be counted twice was borne lately */
    unsigned kills;       /* of these, those at which something was killed */
    uint64_t killed_ns;   /* the first of those */
    uint64_t dying_bytes; /* what there was at the look after it; 0 before */
    uint32_t memory_kills;
    int told; /* the pid of the last of them */
    bool killed_for_pids;
    void (*on_memory)(void *arg); /* before it kills for memory; or NULL */
    void *arg;
    /* The processes whose mappings are still to be counted; NULL: between two counts. */
    DIR *unmapped;
    /* The file that lists the mappings of one of them; -1: none. */
    int maps;
    /* When that count began, what it has found, and what mappings cost as far as it is known. */
    uint64_t mapped_ns, mapped_bytes, mappings_bytes;
    uint64_t peak_bytes;
    uint64_t files_bytes; /* at the last look: what lies in the scratch */
    uint64_t rough_bytes; /* at the last look: what there is at most */
    bool is_doubtful; /* more was not counted in time, and it is no more than at the look before */
};

/* Looks, and kills if it must. In how many milliseconds to look again. */
int watch_look(struct watch *watch);
