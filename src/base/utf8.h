/* Which bytes are a character of UTF-8, as the Unicode standard has it: no overlong form, no surrogate, nothing above
 * U+10FFFF.
 *
 * A wrong byte becomes U+FFFD where it must be text: one for the longest start of a character, as section 3.9 of the
 * standard advises. A character must never become two of those because a buffer ended within it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the character at `data`, 1 to 4; or 0, with in *bad how many bytes one U+FFFD stands for. *bad == size
 * means that more bytes could still make it a character. There is at least one byte. */
size_t utf8_length(const void *data, size_t size, size_t *bad);

/* The number of the character of that length. */
uint32_t utf8_value(const void *data, size_t length);

bool utf8_is_valid(const void *data, size_t size);

/* How many bytes there are before a character that is not complete at the end: all, or up to 3 less. */
size_t utf8_whole(const void *data, size_t size);

/* How many bytes at the start continue a character that began before: 0 to 3. */
size_t utf8_inside(const void *data, size_t size);
