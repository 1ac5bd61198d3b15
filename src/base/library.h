/* What is used of others' software where it is there, and found by name. */
#pragma once

#include <stddef.h>

/* The functions of a library, of which `found` gets as many as there are names: the program's own where it is linked in,
 * as in the npm package, else the shared library's. NULL, or the name of what is missing. */
const char *library_find(const char *library, const char *const *names, size_t count, void **found);

/* The file of the authorities that this machine believes, at the first of the places that distributions have for it;
 * NULL if there is none. */
const char *library_authorities(void);
