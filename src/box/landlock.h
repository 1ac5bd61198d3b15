/* Landlock, a second wall behind the mounts: writing only where the box may write, no device nodes.
 *
 * Used from Linux 5.19 on (ABI 2): before, any ruleset forbids renames between directories. */
#pragma once

#include "base/err.h"
#include "box/plan.h"

/* Confines this process for good, where the kernel has it. Called with the box's root in place. */
int landlock_confine(const struct plan *plan, struct error *err);
