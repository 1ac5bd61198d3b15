/* Texts of a request: one line, one value of JSON, a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One value of JSON (RFC 8259), nothing before and behind it. */
bool text_is_json(const void *data, size_t size);

/* No byte below 0x20 and no 0x7f. */
bool text_is_line(const char *text);

/* RFC 3339 to milliseconds since 1970, and back (UTC, with milliseconds). */
#define TEXT_TIME_MAX 32
bool text_to_time(const char *text, uint64_t *ms);
void text_from_time(uint64_t ms, char into[TEXT_TIME_MAX]);
