/* Which bytes are a character of UTF-8, as the Unicode standard has it: no overlong form, no
 * surrogate, nothing above U+10FFFF. */
#pragma once

#include <stddef.h>

/* The length of the UTF-8 character at `text`, or 0 with in `*bad` how many bytes one U+FFFD stands
 * for (the longest start of a character, as the Unicode standard advises in its section 3.9). */
size_t utf8_length(const unsigned char *text, size_t size, size_t *bad);
