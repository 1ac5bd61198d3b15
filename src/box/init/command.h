/* Starting one command of a box: from a request to a running program. */
#pragma once

#include "box/box.h"
#include "box/proto.h"

#include <sys/types.h>

struct command_start {
    const struct proto_exec *request;
    char *strings; /* cwd, argv..., env..., each with its NUL; checked by command_strings_check() */
    char **argv;   /* argc + 2: room for a shell in front and the NULL behind */
    char **env;    /* envc + 1 */
    int fds[3];    /* of the command; with a terminal, fds[0] is its master */
    const struct proto_limits *limits; /* or NULL */
    int leaf;                          /* cgroup, or -1 */
    int program;                       /* executed in place of argv[0], or -1 */
    const uint32_t *key;

    /* Written by the child where it fails. */
    enum box_step step;
    int errnum;
};

/* Fills cwd, argv and env; false if the strings are not what the request says. */
bool command_strings(struct command_start *start);

/* A terminal of the box's own devpts: its master, or -1. */
int command_terminal(uint16_t rows, uint16_t columns);

/* Pipes for the stdio of a command: its ends and the outside's, which never make their reader or writer
 * wait. Without stdin near[0] is our own 0, /dev/null, and far[0] none. 0, or -1 and none is open. */
int command_pipes(int near[3], int far[3], bool no_stdin);

/* Starts the program; the child's pid, or -1 where there is none. Where errnum is set, it did not
 * start (step says how far it came) and the child, if any, waits to be reaped. */
pid_t command_start(struct command_start *start);
