/* Bytes as hexadecimal digits: lower case is written, either is read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define HEX_SIZE(size) (2 * (size_t)(size) + 1)

/* Writes HEX_SIZE(size) bytes, of which the last is a NUL. */
void hex_encode(const void *data, size_t size, char *into);

/* The value of a digit, or -1. */
int hex_digit(char c);

/* Reads `size` bytes of as many pairs of digits; false where one is none. */
bool hex_decode(const char *text, size_t size, void *into);
