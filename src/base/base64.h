/* Base64 (RFC 4648): with the standard alphabet and padding, and with that of URLs and without. There is one text for
 * the same bytes, and no other is decoded. The guest of the kernels stands alone and has its own, for scripts, in
 * kernel/js/natives_bytes.c. */
#pragma once

#include <stddef.h>

#define BASE64_SIZE(size) (((size_t)(size) + 2) / 3 * 4)

/* Writes BASE64_SIZE(size) letters, no NUL. */
void base64_encode(const void *data, size_t size, char *into);

/* Returns how many bytes the text stands for, or -1. `into` may be `text`, and has room for 3 bytes for each 4 letters
 * that were begun. */
ptrdiff_t base64_decode(const char *text, size_t size, void *into);

/* The same for URLs; the letters end with a NUL. */
void base64_url_encode(const void *data, size_t size, char *into);
ptrdiff_t base64_url_decode(const char *text, size_t size, void *into);
