/* The engine's memory: see heap.c. */
#pragma once

#include "quickjs.h"

#include <stdbool.h>
#include <stddef.h>

extern const JSMallocFunctions heap_functions;

/* Bytes that may be had (0: all there are), that are had, and how often the limit, or the host, said no. */
extern size_t heap_limit, heap_used, heap_refused;

/* Forgets all that is free: what is made from now on lies together. Once, as the last step of an image. */
void heap_settle(void);
