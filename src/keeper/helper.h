/* Processes of the keeper's own, for work that takes long or may never end.
 *
 * Each is forked, so it begins as a copy of the keeper with all that is open there. One that hangs must hold nothing of the
 * keeper's but what it works with: a socket of a box that stayed open would keep that box alive, and the lock of the data
 * directory would keep the next keeper out. */
#pragma once

#include <stddef.h>

/* The first fd that helper_keep() keeps. */
#define HELPER_FD 3
#define HELPER_FDS_MAX 20

/* In such a process, first of all: it gets this name, ends with the keeper, hears all signals, and is not spared when memory
 * is short. */
void helper_begin(const char *name);

/* Moves these fds to HELPER_FD and following, in this order, and closes all others; 0 to 2 become /dev/null. One that is -1
 * stays none. Ends the process where that fails. */
void helper_keep(const int *fds, size_t count);
