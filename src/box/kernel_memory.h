/* The memory of the host that the kernel keeps for itself and gives no name to: it grows when a box fills sockets.
 *
 * SUnreclaim of /proc/meminfo is not enough: copies of what a socket sent lie in pages, not in slabs. So it is what
 * remains of all memory when everything that has a name is taken away, and what lies free in lists of one CPU, which
 * can be a gigabyte. */
#pragma once

#include "box/growth.h"

#include <stddef.h>
#include <stdint.h>

/* It may grow so much, and a little for each box, before boxes are counted. */
#define KERNEL_MEMORY_GROWTH (128ULL << 20)
#define KERNEL_MEMORY_BOX (512ULL << 10)

/* The rest by these texts, of pages that are so large; 0 where they do not tell. */
uint64_t kernel_memory_of(const char *meminfo, const char *zoneinfo, size_t page);

/* The rest now; 0 where the kernel does not tell us. Reads two small files, in 0.06 ms. */
uint64_t kernel_memory_read(void);

/* Tells whether boxes are to be counted, for so much remains `now`. */
bool kernel_memory_has_grown(struct growth *memory, uint64_t now, size_t boxes, uint64_t now_ns);
