/* What is said over the control socket of a box (SOCK_SEQPACKET): the outside asks, the box's set-up
 * child and then its init answer.
 *
 * Every message is one packet that starts with `struct proto_head`. The outside treats what it
 * reads as hostile (proto_answer_check); init trusts its requests, which come from the one process
 * that made it. Numbers are only ever added. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROTO_VERSION 1
#define PROTO_CONTROL_FD 3  /* init's end of the socket */
#define PROTO_LEAVES_FD 4   /* the delegated cgroup directory, where there is one */
#define PROTO_WATCHDOG_FD 6 /* a pipe that ends with the box's watchdog, where there is one */

/* A request with more than this much of strings carries them in a sealed memfd. */
#define PROTO_INLINE_MAX 32768
#define PROTO_STRINGS_MAX (4U << 20)
#define PROTO_GROUPS_MAX 32
#define PROTO_FDS_MAX 16

enum proto_type {
    /* outside -> init */
    PROTO_CONFIG = 1, /* once, first */
    PROTO_EXEC,
    PROTO_SIGNAL,
    PROTO_KILL,
    /* init -> outside */
    PROTO_FAILED = 64, /* set-up failed: the last answer */
    PROTO_READY,
    PROTO_STARTED, /* carries the terminal's fd where one was asked for */
    PROTO_REFUSED,
    PROTO_EXITED,
};

struct proto_head {
    uint32_t type;
    uint32_t id; /* of the command; 0 where none is meant */
};

struct proto_config {
    struct proto_head head;
    uint32_t version;
    uint32_t has_leaves;   /* PROTO_LEAVES_FD is there */
    uint32_t leaf_limits;  /* leaves have controllers: write the limits there too */
    uint32_t pids;         /* limits of a leaf */
    uint64_t memory_bytes; /* ... */
    uint32_t cpu_milli;    /* ... 0: none */
    uint32_t one_shot;     /* init ends with its first command */
    uint32_t clone_key[4]; /* opens clone3 in the filter; see filter/filter.h */
};

enum proto_exec_flags { PROTO_EXEC_TTY = 1, PROTO_EXEC_MEMFD = 2, PROTO_EXEC_USER = 4 };

/* Followed by, or with the memfd holding, the strings: cwd, argv..., env..., each with its NUL.
 * fds: 0, 1, 2 of the command (not with TTY), then the memfd (with MEMFD). */
struct proto_exec {
    struct proto_head head;
    uint32_t flags;
    uint32_t argc, envc;
    uint32_t strings_size;
    uint32_t uid, gid; /* with USER */
    uint32_t groups_count;
    uint32_t groups[PROTO_GROUPS_MAX];
    uint16_t rows, columns;
};

struct proto_signal {
    struct proto_head head;
    int32_t signal_number;
};

struct proto_failed {
    struct proto_head head;
    struct error error;
};

struct proto_started {
    struct proto_head head;
    int32_t pid;
};

#define PROTO_STEP_LAST 5
struct proto_refused {
    struct proto_head head;
    uint32_t step; /* enum box_step */
    int32_t errnum;
};

struct proto_exited {
    struct proto_head head;
    int32_t status; /* as of waitpid(2) */
    uint32_t pad;
    uint64_t cpu_ns;
};

union proto_answer {
    struct proto_head head;
    struct proto_failed failed;
    struct proto_started started;
    struct proto_refused refused;
    struct proto_exited exited;
};

/* Sends one packet with up to PROTO_FDS_MAX fds. */
int proto_send(int socket, const void *packet, size_t size, const void *more, size_t more_size,
               const int *fds, size_t fds_count);

/* Receives one packet: its size, 0 at end, -1 (EAGAIN with MSG_DONTWAIT). The fds that came are in
 * `fds` (close-on-exec), the rest -1. A packet that was cut is EMSGSIZE, and its fds are closed. */
ssize_t proto_receive(int socket, void *packet, size_t size, int fds[PROTO_FDS_MAX], int flags);

/* Whether an answer of `size` bytes has the form its type demands; terminates its texts. */
bool proto_answer_check(union proto_answer *answer, size_t size, size_t fds_count);
