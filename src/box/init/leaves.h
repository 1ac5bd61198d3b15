/* A cgroup v2 leaf for each command, in the directory that was delegated to init.
 *
 * A leaf is what makes "kill the command" mean all it started, daemons that forked twice too. Leaves
 * are kept and used again: making one costs as much as a command. */
#pragma once

#include "box/proto.h"

#include <stdbool.h>

void leaves_open(const struct proto_config *config);

/* An empty leaf: its number, or -1 where there is none to be had (errno). */
int leaves_take(void);

/* The directory of a leaf, for CLONE_INTO_CGROUP. */
int leaves_fd(int leaf);

/* The command of this leaf has ended; what it left running stays in there. */
void leaves_give(int leaf);

/* Kills everything in the leaf. */
int leaves_kill(int leaf);
