/* What a box sees of itself: its own limits instead of the host's, where programs look for them.
 *
 * The files are made once, when the box is made, and bound over the kernel's. */
#pragma once

#include "base/err.h"
#include "box/plan.h"

/* Keeps as many CPUs as the box has, at a random place among those allowed, where no cpuset did. */
void view_keep_cpus(const struct plan *plan);

/* Covers meminfo, stat, cpuinfo, loadavg and keys of the box's /proc. */
int view_proc(const struct plan *plan, int scratch, int proc, struct error *err);
