/* Bytes of a command as text: UTF-8 that is cut between characters.
 *
 * What a box prints is any bytes. A program that reads JSON wants text, so a wrong byte becomes
 * U+FFFD (one for the longest start of a character, as section 3.9 of the Unicode standard advises);
 * a character must never become two of those because a buffer ended within it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the character at `data`, 1 to 4; or 0, with in *bad how many bytes one U+FFFD stands
 * for. *bad == size means that more bytes could still make it a character. */
size_t text_character(const void *data, size_t size, size_t *bad);

/* How many bytes there are before a character that is not complete at the end: all, or up to 3 less. */
size_t text_whole(const void *data, size_t size);

/* How many bytes at the start continue a character that began before: 0 to 3. */
size_t text_inside(const void *data, size_t size);

bool text_is_valid(const void *data, size_t size);

/* One value of JSON (RFC 8259), nothing before and behind it. */
bool text_is_json(const void *data, size_t size);

/* No byte below 0x20 and no 0x7f. */
bool text_is_line(const char *text);

/* RFC 3339 to milliseconds since 1970, and back (UTC, with milliseconds). */
#define TEXT_TIME_MAX 32
bool text_to_time(const char *text, uint64_t *ms);
void text_from_time(uint64_t ms, char into[TEXT_TIME_MAX]);
