/* Loop devices: a file as a block device that goes away with its last user. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Attaches `file`; its device's path in `path`, the open device returned (close it once mounted), or
 * -1. The device detaches itself when nobody uses it any more, however that came about. */
int loop_attach(int file, bool read_only, char *path, size_t size, struct error *err);
