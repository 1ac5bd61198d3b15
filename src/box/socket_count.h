/* Counting what the sockets of many boxes hold (socket_memory.h), in a process of its own: a box with very many sockets
 * takes seconds. */
#pragma once

#include "box/processes.h"

/* A box that holds less is never ended for it. */
#define SOCKETS_LEAST (32ULL << 20)

/* Begins with the box `first`, and writes a counted_found in bytes to `out` whenever many more were found. It says on
 * stderr, once, what it could not count. */
void sockets_count(const struct counted_box *boxes, size_t count, size_t first, int out);
