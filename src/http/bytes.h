/* Bytes that wait, at the end of which more are put and from the start of which some are taken. */
#pragma once

#include <stddef.h>

/* In `data[start .. start + size)`, followed by a NUL. */
struct http_bytes {
    char *data;
    size_t start;
    size_t size;
    size_t capacity;
};

/* Appends; -1 where there is no memory. */
int http_bytes_add(struct http_bytes *bytes, const void *data, size_t size);
void http_bytes_take(struct http_bytes *bytes, size_t size);
void http_bytes_free(struct http_bytes *bytes);
