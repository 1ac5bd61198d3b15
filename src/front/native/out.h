/* JSON on its way out: one growing text.
 *
 * Written by hand because an answer to `exec` is on the hot path and holds up to megabytes of output:
 * building a tree of it first would copy all of it twice. Commas are placed by what was written last,
 * so callers only say what is there. A buffer is kept and used again; without memory it only remembers
 * that, and its owner asks once at the end. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct out {
    char *data;
    size_t used, capacity;
    char last; /* byte that was sent on; 0: none */
    bool has_failed;
};

void out_free(struct out *out);
/* Empties it; a buffer that grew beyond `most` is given back. */
void out_reset(struct out *out, size_t most);

/* Empties it in the middle: what it held was sent on, and more of the same follows. */
void out_sent(struct out *out);

/* Room for `size` more bytes, counted as used; NULL without memory. */
char *out_room(struct out *out, size_t size);
void out_raw(struct out *out, const void *data, size_t size);

/* `key` is NULL in an array and at the top. */
void out_object(struct out *out, const char *key);
void out_object_end(struct out *out);
void out_array(struct out *out, const char *key);
void out_array_end(struct out *out);

void out_text(struct out *out, const char *key, const char *value);         /* NULL: null */
void out_text_or_none(struct out *out, const char *key, const char *value); /* NULL: left out */
void out_number(struct out *out, const char *key, uint64_t value);
void out_signed(struct out *out, const char *key, int64_t value);
void out_milli(struct out *out, const char *key, uint64_t thousandths);
void out_bool(struct out *out, const char *key, bool value);
void out_null(struct out *out, const char *key);
void out_time(struct out *out, const char *key, uint64_t ms); /* 0: null */

/* A value in parts: key and opening quote, parts, closing quote. Parts are cut between characters
 * where they are text, and at multiples of 3 where they are base64. */
void out_quote(struct out *out, const char *key);
void out_quoted(struct out *out, const void *data, size_t size);
void out_quoted_base64(struct out *out, const void *data, size_t size);
void out_quote_end(struct out *out);
