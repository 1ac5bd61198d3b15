/* Open files: the limit of a process says nothing of a box with hundreds of them, and no cgroup counts them but as
 * memory. The host has one bound for all (fs.file-max), and what a box can do to the kernel by epoll and by pipes grows
 * with their number. So when the host has many more than before, a process of its own counts those of each box, and its
 * parent ends any that has more than FILES_BOX_MAX.
 *
 * Counted is what processes have open; a file that they inherit counts once. One that is only mapped, or on its way
 * through a unix socket, is not: no box is ended for a number of which nobody can say whose it is. */
#pragma once

#include "box/growth.h"
#include "box/processes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILES_BOX_MAX 65536

/* Returns how many the host has, or 0. */
uint64_t files_read(void);

/* Tells whether boxes are to be counted, for there are so many `now`. */
bool files_have_grown(struct growth *files, uint64_t now, uint64_t now_ns);

/* Counts the boxes, beginning with `first`, and writes a counted_found to `out` for each, and now and then. It counts no
 * further than one more than FILES_BOX_MAX; of a box with 16 times as many fds, each counts. To be called in a process of its own: a box decides how long it takes. */
void files_count(const struct counted_box *boxes, size_t count, size_t first, int out);
