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
    int leaf;      /* cgroup, or -1 */
    const uint32_t *key;

    /* Written by the child where it fails. */
    enum box_step step;
    int errnum;
};

/* Fills cwd, argv and env; false if the strings are not what the request says. */
bool command_strings(struct command_start *start);

/* A terminal of the box's own devpts: its master, or -1. */
int command_terminal(uint16_t rows, uint16_t columns);

/* Starts the program; the child's pid, or -1 where there is none. Where errnum is set, it did not
 * start (step says how far it came) and the child, if any, waits to be reaped. */
pid_t command_start(struct command_start *start);
