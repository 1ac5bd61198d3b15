/* multipart/form-data (RFC 7578) as it comes: parts, their names, their bytes.
 *
 * Holds the header of one part (8 KiB) and nothing else, whatever is sent. Strict: a body that two
 * readers could cut in two ways is an error, and an error is final. */
#pragma once

#include "base/err.h"

#include <stddef.h>

struct http_multipart;

/* UTF-8 without control characters, or NULL where it is not told. */
struct http_multipart_part {
    const char *name;
    /* As it was sent, with \" and \\ read as " and \; '%' is a character like any other. That of
     * `filename*`, where there is one. A path is a path: that it may be used is for the caller to say. */
    const char *filename;
    const char *content_type;
};

/* Each returns 0, or -1 with the error, which is that of the call that feeds. */
struct http_multipart_calls {
    int (*begin)(void *arg, const struct http_multipart_part *part, struct error *err);
    int (*data)(void *arg, const void *data, size_t size, struct error *err);
    int (*end)(void *arg, struct error *err);
};

/* For a body of this Content-Type; NULL with the error where it is no form, or tells no boundary. */
struct http_multipart *http_multipart_new(const char *content_type,
                                          const struct http_multipart_calls *calls, void *arg,
                                          struct error *err);
/* 0, or -1 with "bad_request", "no_memory" or a call's error; the same error ever after. */
int http_multipart_feed(struct http_multipart *form, const void *data, size_t size,
                        struct error *err);
/* The body is over; -1 where the form is not. */
int http_multipart_end(struct http_multipart *form, struct error *err);
void http_multipart_free(struct http_multipart *form); /* NULL is allowed */
