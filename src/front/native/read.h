/* JSON on its way in: a body is checked against a table of its fields and lands in a struct.
 *
 * Parsed once, strictly: what is no field is named, as is what has another type or range; text is
 * UTF-8 without NUL; nesting and the number of values are bounded before anything is built. The only
 * file that knows jansson. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum read_kind {
    READ_TEXT,          /* const char *; `low`..`high` bytes */
    READ_LINE,          /* the same without control characters */
    READ_BOOL,          /* bool */
    READ_FLAG,          /* int: 0 or 1, so that -1 can stand for one that is not there */
    READ_COUNT,         /* uint64_t; a whole number from `low` to `high` */
    READ_MILLI,         /* uint64_t; a number, `low`..`high` thousandths */
    READ_WORD,          /* int: which of `words` */
    READ_WORDS,         /* unsigned: a bit for each of `words` in an array */
    READ_TIME,          /* uint64_t: RFC 3339 to milliseconds */
    READ_TEXTS,         /* const char *const *, NULL-terminated; `low`..`high` of them */
    READ_PAIRS,         /* const char *const *: an object's "name=text"; at most `high` */
    READ_BYTES,         /* struct read_bytes: base64 */
    READ_RAW,           /* struct read_bytes: text as it is */
    READ_NAME_OR_COUNT, /* struct read_name_or_count */
    READ_OBJECT,        /* fields of `inner`, in the struct at `at` */
    READ_OBJECTS,       /* struct read_objects: an array of `inner`, `high` of them at most */
    READ_NOT_YET,       /* of a room that is not built: "not_yet" */
};

/* In a table: of a room that is not built. */
#define READ_LATER(name_)                     \
    {                                         \
        .name = (name_), .kind = READ_NOT_YET \
    }

struct read_field {
    const char *name; /* NULL ends a table */
    enum read_kind kind;
    size_t at;
    uint64_t low, high;
    const char *const *words;
    const struct read_field *inner;
    size_t inner_size; /* READ_OBJECTS: of an element */
    bool null_is_zero; /* null says "none"; elsewhere it is as if the field were not there */
    bool is_needed;
};

struct read_bytes {
    const void *data; /* NULL: not there */
    size_t size;
};
struct read_name_or_count {
    const char *name; /* or NULL */
    uint64_t count;
};
struct read_objects {
    void *list;
    size_t count;
};

/* Owner of all texts that were read; starts as {0}. */
struct read_pool;
struct read_owner {
    void *json;
    struct read_pool *pool;
};
void read_free(struct read_owner *owner);

#define READ_NAME_MAX 256     /* of the name in a pair */
#define READ_VALUE_MAX 131071 /* what Linux takes as one argument, MAX_ARG_STRLEN - 1 */

/* A text as JSON; `json` is NULL where it is none, and `why` says why. */
struct read_parsed {
    void *json;
    struct error why;
};
/* Touches nothing but what it is given, so that any thread may call it. */
void read_parse(const void *data, size_t size, struct read_parsed *parsed);
void read_parsed_free(struct read_parsed *parsed);

struct read_body {
    const void *data;
    size_t size;
    struct read_parsed
        *parsed; /* or NULL: it is parsed when it is read. The owner gets its JSON. */
};

/* `what` names the body in errors. A body of no bytes is an empty object if `may_be_empty`. */
int read_object(const char *what, struct read_body body, bool may_be_empty,
                const struct read_field *fields, void *into, struct read_owner *owner,
                struct error *err);

/* Memory that lives as long as the owner; NULL without any. */
void *read_room(struct read_owner *owner, size_t size);
