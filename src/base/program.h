/* Programs of the host that cove starts: only where the system keeps them. PATH is the caller's, and may
 * lead into a workspace in which a box left a program of the same name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The path of the program; false where there is none. */
bool program_find(const char *name, char *path, size_t size);
