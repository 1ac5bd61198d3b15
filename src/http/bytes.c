/* Bytes that wait: grown by doubling, moved to the front where that makes the room, given back when none
 * waits any more, so that a quiet connection holds nothing. */
#include "http/bytes.h"

#include <stdlib.h>
#include <string.h>

int http_bytes_add(struct http_bytes *bytes, const void *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    if (bytes->start > 0 && bytes->start + bytes->size + size + 1 > bytes->capacity) {
        memmove(bytes->data, bytes->data + bytes->start, bytes->size);
        bytes->start = 0;
    }
    if (bytes->size + size + 1 > bytes->capacity) {
        size_t capacity = bytes->capacity > 0 ? bytes->capacity : 256;
        while (capacity < bytes->size + size + 1) {
            capacity *= 2;
        }
        char *grown = realloc(bytes->data, capacity);
        if (!grown) {
            return -1;
        }
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    memcpy(bytes->data + bytes->start + bytes->size, data, size);
    bytes->size += size;
    bytes->data[bytes->start + bytes->size] = '\0';
    return 0;
}

void http_bytes_take(struct http_bytes *bytes, size_t size)
{
    bytes->start += size;
    bytes->size -= size;
    if (bytes->size == 0) {
        http_bytes_free(bytes);
    }
}

void http_bytes_free(struct http_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct http_bytes){0};
}
