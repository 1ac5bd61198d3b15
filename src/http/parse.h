/* Reading HTTP/1.1: where a header ends, what it says, what a chunked body holds.
 *
 * Pure functions over bytes, without allocation, so that a fuzzer can drive them. Strict: what two
 * readers could understand in two ways (a bare LF, a folded line, two lengths) is refused and never
 * mended, for a proxy before us may have understood the other. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_FIELDS_MAX 96
#define HTTP_QUERY_MAX 64
#define HTTP_METHOD_MAX 32

/* Why a request is not taken; the strings are literals. */
struct http_refusal {
    unsigned status;
    const char *code;
    const char *detail;
};

struct http_field {
    const char *name;
    const char *value;
};

struct http_head {
    const char *method;
    const char *target; /* as sent: path and query, without the host it may begin with */
    const char *path;   /* as sent, without the query */
    struct http_field fields[HTTP_FIELDS_MAX];
    size_t fields_count;
    struct http_field query[HTTP_QUERY_MAX]; /* decoded */
    size_t query_count;
    uint64_t length; /* of the body; 0 where there is none, or where it is chunked */
    bool is_chunked;
    bool is_old; /* HTTP/1.0 */
    bool keeps_alive;
    bool expects_continue;
};

enum http_scan { HTTP_SCAN_MORE, HTTP_SCAN_WHOLE, HTTP_SCAN_BAD };

/* Looks for the empty line that ends a header. `scanned` is 0 at first and kept between calls on the
 * same bytes and more of them, so that a header that comes byte by byte is not read anew each time. */
enum http_scan http_scan_head(const char *data, size_t size, size_t *scanned, size_t *head_size);

/* Parses a whole header in place: `text` must be writable, and is what `head` points into. The byte
 * after it must be writable, too. `target` has room for `size` bytes: the target is copied there before
 * it is taken apart. 0 or -1, with the reason. */
int http_parse_head(char *text, size_t size, char *target, struct http_head *head,
                    struct http_refusal *no);

/* Percent-decodes `size` bytes into `out`, which may be the same place and is terminated; -1 where an
 * escape is broken, or where the result holds a NUL or is not UTF-8. */
int http_decode(const char *in, size_t size, bool plus_is_space, char *out);

/* Whether a field that is a list of words, in commas, has this one (any case). */
bool http_list_has(const char *list, const char *word);

/* Whether a Content-Length is one number, and one that can be meant. */
bool http_is_length(const char *value);

/* Whether an answer's header may have this name, this value. */
bool http_is_name(const char *name);
bool http_is_value(const char *value);

/* The value of a field by name (any case), or NULL. */
const char *http_field_find(const struct http_head *head, const char *name);

struct http_chunks {
    int state;
    uint64_t left;  /* of the chunk being read */
    unsigned line;  /* bytes of the line being read */
    size_t trailer; /* bytes of all trailers */
};

enum http_chunk { HTTP_CHUNK_MORE, HTTP_CHUNK_PART, HTTP_CHUNK_END, HTTP_CHUNK_BAD };

/* Takes bytes of a chunked body from `*data`, which it moves on. PART: `part` points at bytes of the
 * body. END: the body, trailers and all, is over, and `*data` is behind it. A zeroed struct begins. */
enum http_chunk http_chunk_next(struct http_chunks *chunks, const char **data, size_t *size,
                                const char **part, size_t *part_size);

#define HTTP_ANSWER_FIELDS_MAX 256

struct http_answer {
    unsigned status;
    const char *reason;
    struct http_field fields[HTTP_ANSWER_FIELDS_MAX];
    size_t count;
};

/* Parses a whole header of an answer in place, as http_scan_head() found it; -1 where it is none, or where it
 * could be understood to end in two places. */
int http_parse_answer(char *text, size_t size, struct http_answer *answer);
