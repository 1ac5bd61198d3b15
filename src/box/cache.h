/* The caller's own directory for what boxes leave on disk, ~/.cache/cove or below XDG_CACHE_HOME. */
#pragma once

#include "base/err.h"

/* Opens the directory of that name in it; made if it is missing, and the caller's alone. */
int cache_open(const char *name, struct error *err);

/* Makes, or opens, a directory that only the caller gets into. */
int cache_make(int dir, const char *name, struct error *err);
