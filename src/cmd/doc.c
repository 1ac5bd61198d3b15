/* JSON to and from a server: see doc.h. */
#include "cmd/doc.h"

#include "cmd/cmd.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *own(const struct doc *doc)
{
    return (json_t *)(uintptr_t)doc;
}

static struct doc *lent(json_t *json)
{
    return (struct doc *)json;
}

/* ---- reading ---- */

int doc_parse(const char *text, size_t size, struct doc **out, struct error *err)
{
    json_error_t where;
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);

    if (json == NULL)
        return error_set(err, "bad_answer", 0,
                         "the server's answer is no JSON; check that COVE_URL leads to cove");
    *out = lent(json);
    return 0;
}

void doc_free(struct doc *doc)
{
    json_decref(own(doc));
}

void doc_freep(struct doc **doc)
{
    doc_free(*doc);
    *doc = NULL;
}

struct doc *doc_keep(const struct doc *doc)
{
    return lent(json_incref(own(doc)));
}

const struct doc *doc_get(const struct doc *doc, const char *key)
{
    return lent(json_object_get(own(doc), key));
}

const char *doc_own_text(const struct doc *doc)
{
    return json_string_value(own(doc));
}

const char *doc_text(const struct doc *doc, const char *key)
{
    return doc_own_text(doc_get(doc, key));
}

bool doc_true(const struct doc *doc, const char *key)
{
    return json_is_true(own(doc_get(doc, key)));
}

bool doc_number(const struct doc *doc, const char *key, uint64_t *value)
{
    const json_t *number = own(doc_get(doc, key));

    if (!json_is_integer(number) || json_integer_value(number) < 0)
        return false;
    *value = (uint64_t)json_integer_value(number);
    return true;
}

double doc_real(const struct doc *doc, const char *key)
{
    return json_number_value(own(doc_get(doc, key)));
}

bool doc_is_array(const struct doc *doc)
{
    return json_is_array(own(doc));
}

size_t doc_count(const struct doc *doc)
{
    return json_array_size(own(doc));
}

const struct doc *doc_at(const struct doc *doc, size_t index)
{
    return lent(json_array_get(own(doc), index));
}

struct doc *doc_at_own(struct doc *doc, size_t index)
{
    return lent(json_array_get(own(doc), index));
}

const char *doc_next_key(const struct doc *doc, const char *key)
{
    json_t *object = own(doc);
    void *at;

    if (key == NULL)
        at = json_object_iter(object);
    else
        at = json_object_iter_next(object, json_object_key_to_iter(key));
    return at == NULL ? NULL : json_object_iter_key(at);
}

static int print(const struct doc *doc, size_t form, struct error *err)
{
    size_t escapes = isatty(STDOUT_FILENO) == 1 ? JSON_ENSURE_ASCII : 0;
    char *text = json_dumps(own(doc), JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) | escapes | form);

    if (cmd_print_line(text) < 0)
        return error_set(err, "stdio", errno, "standard output: it cannot be written");
    return 0;
}

int doc_print(const struct doc *doc, struct error *err)
{
    return print(doc, isatty(STDOUT_FILENO) == 1 ? JSON_INDENT(2) : JSON_COMPACT, err);
}

int doc_print_line(const struct doc *doc, struct error *err)
{
    return print(doc, JSON_COMPACT, err);
}

/* ---- building ---- */

struct doc *doc_new(void)
{
    return lent(json_object());
}

struct doc *doc_new_array(void)
{
    return lent(json_array());
}

int doc_set_text(struct doc *doc, const char *key, const char *value)
{
    return value == NULL ? 0 : json_object_set_new(own(doc), key, json_string(value));
}

int doc_set_number(struct doc *doc, const char *key, uint64_t value)
{
    return json_object_set_new(own(doc), key,
                               value > INT64_MAX ? NULL : json_integer((json_int_t)value));
}

int doc_set_real(struct doc *doc, const char *key, double value)
{
    return json_object_set_new(own(doc), key, json_real(value));
}

int doc_set_true(struct doc *doc, const char *key)
{
    return json_object_set_new(own(doc), key, json_true());
}

int doc_set_flag(struct doc *doc, const char *key, bool value)
{
    return json_object_set_new(own(doc), key, json_boolean(value));
}

int doc_set(struct doc *doc, const char *key, struct doc *value)
{
    return json_object_set_new(own(doc), key, own(value));
}

int doc_set_copy(struct doc *doc, const char *key, const struct doc *value)
{
    return json_object_set_new(own(doc), key, json_incref(own(value)));
}

int doc_add_text(struct doc *doc, const char *value)
{
    return json_array_append_new(own(doc), json_string(value));
}

int doc_add(struct doc *doc, struct doc *value)
{
    return json_array_append_new(own(doc), own(value));
}

int doc_add_copy(struct doc *doc, const struct doc *value)
{
    return json_array_append_new(own(doc), json_incref(own(value)));
}

char *doc_dump(const struct doc *doc, struct error *err)
{
    char *text = json_dumps(own(doc), JSON_COMPACT | JSON_REAL_PRECISION(15));

    if (text == NULL)
        (void)error_set(err, "no_memory", 0,
                        "memory: the machine has none left for this; end something and try again");
    return text;
}
