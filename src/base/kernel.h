/* Which kernel this is, for what cannot be tried without harm: everything else is probed by use. */
#pragma once

#include <stdbool.h>

bool kernel_is_at_least(unsigned major, unsigned minor);
