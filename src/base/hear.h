/* Hears what a child says until it ends, as text: for whoever starts a program to be asked something. */
#pragma once

#include <stddef.h>

/* Reads until the end, or until the time is up. Without the end of the last line; where there is more than `size`
 * takes, the newest of it. */
void hear_all(int fd, char *text, size_t size, unsigned limit_ms);
