/* The little JSON that calls of the host need: members of an object are found in a text and read where they
 * lie, and texts are written. Nothing is allocated to read; hostile text is refused, never trusted. */
#pragma once

#include "kernel/kernel.h"

#define META_DEPTH_MAX 64

struct meta_value {
    struct kernel_text text; /* from its first to its last character */
};

/* The value of the object's member of this name, the last if there are several; -1: there is none, or the
 * text up to its end is no JSON object. */
int meta_member(struct kernel_text object, const char *name, struct meta_value *value);
/* The first of this name, with values that are nested this deep: what comes behind it is not looked at. */
int meta_member_early(struct kernel_text object, const char *name, unsigned depth,
                      struct meta_value *value);

/* -1 where it is something else. A string is cut by nothing: it must fit, and hold no NUL. */
int meta_string(const struct meta_value *value, char *text, size_t size);
int meta_count(const struct meta_value *value, uint64_t most, uint64_t *number);
bool meta_is_true(const struct meta_value *value);

/* ---- writing ---- */

/* Grows; where there is no memory `data` becomes NULL, and stays so. */
struct meta_text {
    char *data;
    size_t size, room;
    bool failed;
};

void meta_put(struct meta_text *text, const char *raw);
void meta_put_bytes(struct meta_text *text, const char *raw, size_t size);
/* In quotes. What is not UTF-8 becomes U+FFFD. */
void meta_put_string(struct meta_text *text, const char *string, size_t size);
void meta_put_number(struct meta_text *text, uint64_t number);
