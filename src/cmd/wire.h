/* What HTTP/1.1 puts on the wire, as a client reads it: addresses, heads of answers, chunked bodies.
 *
 * Pure functions over bytes that a hostile server may have chosen: what is not exactly as the
 * standard (RFC 9112) has it is refused, never guessed, and every length has a limit. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- where a server is ---- */

#define WIRE_HOST_MAX 256
#define WIRE_PATH_MAX 108 /* of struct sockaddr_un */

struct wire_address {
    bool is_unix;
    bool is_tls;
    bool is_loopback;         /* as far as the name says */
    char path[WIRE_PATH_MAX]; /* of a unix socket */
    char host[WIRE_HOST_MAX]; /* to be looked up: without brackets */
    char port[6];
    char header[WIRE_HOST_MAX + 8]; /* what to say as Host */
};

/* "https://HOST[:PORT][/]", "http://HOST[:PORT][/]", "unix:/PATH" or "unix:///PATH". */
int wire_address_parse(const char *text, struct wire_address *address, struct error *err);

/* ---- the head of an answer ---- */

#define WIRE_HEAD_MAX 65536
#define WIRE_HEADERS_MAX 128

struct wire_header {
    const char *name, *value; /* within the head's text */
};

struct wire_head {
    unsigned status;
    bool closes; /* the connection ends with this answer */
    bool is_chunked;
    bool has_length;
    uint64_t length;
    size_t headers_count;
    struct wire_header headers[WIRE_HEADERS_MAX];
};

/* The length of the head at the start of `data` with its empty line, 0 where that has not come yet. */
size_t wire_head_length(const char *data, size_t size);

/* Parses a whole head in place: `data[0..size)` is changed, and the result borrows from it. */
int wire_head_parse(char *data, size_t size, struct wire_head *head, struct error *err);

/* The value of a header by its name in lower case, or NULL. */
const char *wire_header_get(const struct wire_head *head, const char *name);

/* ---- a chunked body ---- */

enum wire_chunk_state {
    WIRE_CHUNK_SIZE,
    WIRE_CHUNK_EXTENSION,
    WIRE_CHUNK_SIZE_LF,
    WIRE_CHUNK_DATA,
    WIRE_CHUNK_DATA_CR,
    WIRE_CHUNK_DATA_LF,
    WIRE_CHUNK_TRAILER,
    WIRE_CHUNK_TRAILER_LF,
    WIRE_CHUNK_END,
};

struct wire_chunks { /* all zero to begin with */
    enum wire_chunk_state state;
    uint64_t left;    /* of this chunk */
    unsigned digits;  /* of its size */
    unsigned skipped; /* of extensions, or trailers */
    unsigned line;    /* length of this trailer */
};

/* Takes bytes of a chunked body from the front of `data` and moves what is content to its very start:
 * how many bytes were taken, of which `*content` are content now. Stops at the end of the body, or
 * when all was taken. -1 where it is no chunked body. */
ssize_t wire_chunks_take(struct wire_chunks *chunks, char *data, size_t size, size_t *content,
                         struct error *err);

/* ---- texts ---- */

/* Appends `text` as one segment of a path, or one value of a query, percent-encoded; false if it does
 * not fit into `size`. */
bool wire_encode(char *into, size_t size, const char *text);
