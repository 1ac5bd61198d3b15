/* JSON that goes to a server and comes from one.
 *
 * What comes is hostile: a field that is missing or of another type than asked for is just not there,
 * and whoever needs it says so. jansson is used in doc.c; its types do not travel. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct doc; /* a value; all but doc_parse() and doc_new() lend */

/* ---- reading ---- */

int doc_parse(const char *text, size_t size, struct doc **out, struct error *err);
void doc_free(struct doc *doc);
void doc_freep(struct doc **doc);
struct doc *doc_keep(
    const struct doc *doc); /* one more owner of a lent value, which must not be changed */
#define _cleanup_doc_ __attribute__((cleanup(doc_freep)))

/* Each takes a NULL as an object without members. */
const struct doc *doc_get(const struct doc *doc, const char *key);
const char *doc_text(const struct doc *doc, const char *key); /* NULL: none; "" is a text */
bool doc_true(const struct doc *doc, const char *key);
bool doc_number(const struct doc *doc, const char *key, uint64_t *value); /* whole, not negative */
double doc_real(const struct doc *doc, const char *key);                  /* 0: none */

bool doc_is_array(const struct doc *doc);
size_t doc_count(const struct doc *doc); /* of an array; 0: it is none */
const struct doc *doc_at(const struct doc *doc, size_t index);
struct doc *doc_at_own(struct doc *doc, size_t index); /* to be changed */
const char *doc_own_text(const struct doc *doc);       /* where the value itself is a text */

/* The members of an object, one after the other: pass NULL first, then what came back. */
const char *doc_next_key(const struct doc *doc, const char *key);

/* Writes it to standard output with a newline: in one line, or to a terminal for people, where what
 * could steer it is escaped. */
int doc_print(const struct doc *doc, struct error *err);

/* The same always in one line: of a stream. */
int doc_print_line(const struct doc *doc, struct error *err);

/* ---- building: -1 where there is no memory, or a text is no UTF-8 ---- */

struct doc *doc_new(void);
struct doc *doc_new_array(void);
int doc_set_text(struct doc *doc, const char *key, const char *value); /* NULL: nothing is set */
int doc_set_number(struct doc *doc, const char *key, uint64_t value);
int doc_set_real(struct doc *doc, const char *key, double value);
int doc_set_true(struct doc *doc, const char *key);
int doc_set_flag(struct doc *doc, const char *key, bool value);
int doc_set(struct doc *doc, const char *key, struct doc *value); /* takes it */
int doc_set_copy(struct doc *doc, const char *key, const struct doc *value);
int doc_add_text(struct doc *doc, const char *value);
int doc_add(struct doc *doc, struct doc *value); /* takes it */
int doc_add_copy(struct doc *doc, const struct doc *value);

/* Its text, to be freed; NULL: no memory. */
char *doc_dump(const struct doc *doc, struct error *err);
