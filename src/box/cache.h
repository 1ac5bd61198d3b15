/* The caller's own directory for what boxes leave on disk, ~/.cache/cove or below XDG_CACHE_HOME. */
#pragma once

#include "base/err.h"

#include <stddef.h>

/* Opens the directory of that name in it; made if it is missing, and the caller's alone. */
int cache_open(const char *name, struct error *err);

/* Makes, or opens, a directory that only the caller gets into. */
int cache_make(int dir, const char *name, struct error *err);

/* Makes a directory of a new name, PREFIX and random, locked as long as the fd is open; the fd. */
int cache_make_own(int dir, const char *prefix, char *name, size_t size, struct error *err);

/* Removes directories of that prefix that nobody has locked: those of who was killed. What ids of boxes
 * own in there stays. */
void cache_sweep(int dir, const char *prefix);
