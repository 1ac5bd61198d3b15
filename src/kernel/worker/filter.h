/* What a worker can still ask of the system once it has shut itself in: memory, time, and its socket. */
#pragma once

#include "base/err.h"

/* For all threads of the process and for good; anything else ends it at once. There is no way to make a thread
 * or to open anything afterwards. */
int filter_shut_in(struct error *err);
