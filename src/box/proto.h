/* What is said over the control socket of a box (SOCK_SEQPACKET): the outside asks, the box's set-up
 * child and then its init answer.
 *
 * Every message is one packet that starts with `struct proto_head`. The outside treats what it
 * reads as hostile (proto_answer_check); init trusts its requests, which come from the one process
 * that made it, or to which that one gave its end. Numbers are only ever added.
 *
 * Version 2 holds commands (PROTO_EXEC_HOLD): all that is known of one is kept until it is
 * acknowledged, for the outside may be killed and another one take its place. Who configured init for
 * version 1 asks for nothing of that, and so hears of none of it.
 *
 * Version 3 executes programs that are handed to it (PROTO_EXEC_PROGRAM), and of commands that are not
 * held it knows that they are of who asked for them: PROTO_HELLO kills those that still run, and no more
 * is said of them. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROTO_VERSION 3
#define PROTO_VERSION_LEAST 1      /* that init still takes */
#define PROTO_VERSION_WITH_HELLO 2 /* an earlier one would not answer */
#define PROTO_VERSION_WITH_PROGRAM 3
#define PROTO_CONTROL_FD 3  /* init's end of the socket */
#define PROTO_LEAVES_FD 4   /* the delegated cgroup directory, where there is one */
#define PROTO_WATCHDOG_FD 6 /* a pipe that ends with the box's watchdog, where there is one */
#define PROTO_LISTENER_FD \
    7 /* tells of watches that init is to add, where the kernel has such a thing */

/* A request with more than this much of strings carries them in a sealed memfd. */
#define PROTO_INLINE_MAX 32768
#define PROTO_STRINGS_MAX (4U << 20)
#define PROTO_GROUPS_MAX 32
#define PROTO_FDS_MAX 16
#define PROTO_COMMANDS_MAX 4096 /* that init knows at once: running, or held */
#define PROTO_PATH_MAX 4096     /* with its NUL */
#define PROTO_ERRNO_MAX 4095

enum proto_type {
    /* outside -> init */
    PROTO_CONFIG = 1, /* once, first */
    PROTO_EXEC,
    PROTO_SIGNAL,
    PROTO_KILL,
    PROTO_HELLO, /* PROTO_WELCOME, a PROTO_ENTRY for each command that is held, PROTO_TABLE_END */
    PROTO_ACK,   /* a held command that ended is forgotten */
    PROTO_SHUT,  /* init closes its duplicate of a held command's stdin */
    PROTO_OPEN,  /* PROTO_OPENED */
    /* init -> outside */
    PROTO_FAILED = 64, /* set-up failed: the last answer */
    PROTO_READY,
    PROTO_STARTED, /* carries the terminal's fd where one was asked for */
    PROTO_REFUSED,
    PROTO_EXITED,
    PROTO_WELCOME,
    PROTO_ENTRY,
    PROTO_TABLE_END,
    PROTO_BEGUN, /* in place of PROTO_STARTED where the command is held */
    PROTO_OPENED,
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
    uint32_t clone_key[4]; /* opens calls in the filter; see filter/filter.h */
};

enum proto_exec_flags {
    PROTO_EXEC_TTY = 1,
    PROTO_EXEC_MEMFD = 2,
    PROTO_EXEC_USER = 4,
    PROTO_EXEC_PIPES = 8,     /* init makes pipes for the stdio; it takes HOLD, too */
    PROTO_EXEC_NO_STDIN = 16, /* with PIPES: but for 0, which is /dev/null */
    PROTO_EXEC_HOLD = 32,     /* all that is known of it is kept until PROTO_ACK */
    PROTO_EXEC_LIMITS = 64,   /* a struct proto_limits follows, before the strings */
    PROTO_EXEC_PROGRAM = 128, /* the last fd is executed, in place of what argv[0] names */
};

/* Followed by, or with the memfd holding, the strings: cwd, argv..., env..., each with its NUL.
 * fds: 0, 1, 2 of the command (not with TTY or PIPES), then the memfd (with MEMFD), then the program
 * (with PROGRAM).
 *
 * With HOLD the id of a command that is held is answered with what is known of it, and one that is
 * not above all that were ever held is refused (EEXIST): nothing is started twice. */
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

/* Of one command, as rlimits; 0: as the box. */
struct proto_limits {
    uint64_t memory_bytes;
    uint64_t file_bytes;
    uint32_t cpu_seconds;
    uint32_t open_files;
};

struct proto_signal {
    struct proto_head head;
    int32_t signal_number;
};

struct proto_hello {
    struct proto_head head; /* the id is the asker's own: a number that no other one has */
    uint32_t version;       /* of the outside */
    uint32_t pad;
};

/* Followed by the path, with its NUL. Opened below the root of the box, as init, without waiting
 * for anything; never a set-id file, and nothing of /proc, where init would see itself. */
struct proto_open {
    struct proto_head head;
    uint64_t flags; /* of open(2) */
    uint32_t mode;
    uint32_t path_size;
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

struct proto_welcome {
    struct proto_head
        head;         /* the id of the PROTO_HELLO: one that was killed may have said that, too */
    uint32_t version; /* of init */
    uint32_t pad;
};

enum proto_held_flags {
    PROTO_HELD_ENDED = 1, /* else status and cpu_ns are 0 */
    PROTO_HELD_TTY = 2,   /* fds is 1: the terminal's master */
};

/* PROTO_BEGUN, PROTO_ENTRY. With a fd for each bit of `fds`: the outside's end of 0, 1, 2. */
struct proto_held {
    struct proto_head head;
    int32_t pid;
    uint32_t flags;
    uint32_t fds;
    int32_t status;
    uint64_t cpu_ns;
};

/* With the fd where errnum is 0. */
struct proto_opened {
    struct proto_head head;
    int32_t errnum;
    uint32_t pad;
};

union proto_answer {
    struct proto_head head;
    struct proto_failed failed;
    struct proto_started started;
    struct proto_refused refused;
    struct proto_exited exited;
    struct proto_welcome welcome;
    struct proto_held held;
    struct proto_opened opened;
};

/* Sends one packet with up to PROTO_FDS_MAX fds. */
int proto_send(int socket, const void *packet, size_t size, const void *more, size_t more_size,
               const int *fds, size_t fds_count);

/* The same without waiting: EAGAIN where there is no room. */
int proto_send_now(int socket, const void *packet, size_t size, const void *more, size_t more_size,
                   const int *fds, size_t fds_count);

/* Receives one packet: its size, 0 at end, -1 (EAGAIN with MSG_DONTWAIT). The fds that came are in
 * `fds` (close-on-exec), the rest -1. A packet that was cut, or has more fds, is EMSGSIZE, and its fds are
 * closed. */
ssize_t proto_receive(int socket, void *packet, size_t size, int fds[PROTO_FDS_MAX], int flags);

/* The same, with the sender as the kernel knows it: 0 where the socket did not have SO_PASSCRED. */
ssize_t proto_receive_from(int socket, void *packet, size_t size, int fds[PROTO_FDS_MAX],
                           pid_t *sender, int flags);

/* Of fds that were received: how many came, and their end. */
size_t proto_fds_count(const int fds[PROTO_FDS_MAX]);
void proto_fds_close(int fds[PROTO_FDS_MAX]);

/* Whether an answer of `size` bytes with `fds_count` fds has the form its type demands; terminates
 * its texts. What the fds are is for others to see (link.c). */
bool proto_answer_check(union proto_answer *answer, size_t size, size_t fds_count);
