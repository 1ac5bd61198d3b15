/* Texts of a request: one line, one value of JSON. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* One value of JSON (RFC 8259), nothing before and behind it. */
bool text_is_json(const void *data, size_t size);

/* No byte below 0x20 and no 0x7f. */
bool text_is_line(const char *text);
