/* Files of the box, opened for the outside: below the box's root, and never in a way that waits. */
#pragma once

#include "box/proto.h"

/* The file, or -1. The key is the box's: see filter/policy.txt. */
int files_open(const struct proto_open *request, const uint32_t key[4]);
