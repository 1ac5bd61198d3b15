/* The guest that runs JavaScript, and TypeScript, whose types it takes away before. */
#pragma once

#include "kernel/guest.h"

extern const struct kernel_guest kernel_guest_js;
