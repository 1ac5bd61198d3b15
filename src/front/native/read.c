/* Reading JSON: see read.h. Every error is "bad_request" and names the field by its path, or
 * "not_yet" for a field of what is not built yet. */
#include "front/native/read.h"

#include "base/base64.h"
#include "base/clock.h"
#include "front/native/text.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_MAX 9007199254740992.0 /* up to here each whole number is a double */
#define VALUES_MAX 20000 /* a parsed value takes about 100 bytes, whatever it took in the body */
#define DEPTH_MAX 16
#define SHOWN_MAX 64

struct read_pool {
    struct read_pool *next;
    max_align_t data[];
};

void *read_room(struct read_owner *owner, size_t size)
{
    struct read_pool *piece = calloc(1, sizeof(*piece) + size);

    if (piece == NULL)
        return NULL;
    piece->next = owner->pool;
    owner->pool = piece;
    return piece->data;
}

void read_free(struct read_owner *owner)
{
    while (owner->pool != NULL) {
        struct read_pool *next = owner->pool->next;

        free(owner->pool);
        owner->pool = next;
    }
    json_decref(owner->json);
    owner->json = NULL;
}

struct reader {
    struct read_owner *owner;
    struct error *err;
};

/* Where a value stands: "lifecycle.then", "mounts[2].name". */
struct place {
    const struct place *outer;
    const char *name;
    size_t index;
};

static void place_print(const struct place *place, char *text, size_t size)
{
    size_t used;

    if (place->outer != NULL)
        place_print(place->outer, text, size);
    else
        *text = '\0';
    used = strlen(text);
    if (place->name == NULL)
        (void)snprintf(text + used, size - used, "[%zu]", place->index);
    else
        (void)snprintf(text + used, size - used, "%s%.*s", used > 0 ? "." : "", SHOWN_MAX,
                       place->name);
}

static int refuse(const struct reader *reader, const struct place *place, const char *says)
{
    char where[4 * SHOWN_MAX];

    place_print(place, where, sizeof(where));
    return error_set(reader->err, "bad_request", 0, "field \"%s\" %s", where, says);
}

static int refuse_range(const struct reader *reader, const struct place *place, const char *what,
                        uint64_t low, uint64_t high, const char *unit)
{
    char says[160];

    (void)snprintf(says, sizeof(says), "must be %s %llu to %llu%s", what, (unsigned long long)low,
                   (unsigned long long)high, unit);
    return refuse(reader, place, says);
}

static int no_memory(const struct reader *reader)
{
    return error_set(reader->err, "capacity", 0,
                     "there is no memory for this request now; try again in a second");
}

/* ---- one value ---- */

static int take_text(const struct reader *reader, const struct place *place,
                     const struct read_field *field, const json_t *value, const char **into)
{
    size_t length = json_string_length(value);

    if (!json_is_string(value))
        return refuse(reader, place, "must be a string");
    if (length < field->low || length > field->high)
        return refuse_range(reader, place, "a string of", field->low, field->high, " bytes");
    if (field->kind == READ_LINE && !text_is_line(json_string_value(value)))
        return refuse(reader, place, "must not hold control characters");
    *into = json_string_value(value);
    return 0;
}

static int take_count(const struct reader *reader, const struct place *place,
                      const struct read_field *field, const json_t *value, uint64_t *into)
{
    json_int_t whole = json_integer_value(value);

    /* 80.0 is as whole as 80 (JSON Schema says so, too), and some languages write it so. */
    if (json_is_real(value) && fabs(json_real_value(value)) <= EXACT_MAX &&
        (double)(json_int_t)json_real_value(value) == json_real_value(value))
        whole = (json_int_t)json_real_value(value);
    else if (!json_is_integer(value))
        whole = -1;
    if (whole < 0 || (uint64_t)whole < field->low || (uint64_t)whole > field->high)
        return refuse_range(reader, place, "a whole number from", field->low, field->high, "");
    *into = (uint64_t)whole;
    return 0;
}

static int take_milli(const struct reader *reader, const struct place *place,
                      const struct read_field *field, const json_t *value, uint64_t *into)
{
    double milli = json_number_value(value) * 1000;
    char says[96];

    if (!json_is_number(value) || !(milli >= (double)field->low && milli <= (double)field->high)) {
        (void)snprintf(says, sizeof(says), "must be a number from %g to %g",
                       (double)field->low / 1000, (double)field->high / 1000);
        return refuse(reader, place, says);
    }
    *into = (uint64_t)(milli + 0.5);
    return 0;
}

static int word_index(const struct read_field *field, const json_t *value)
{
    for (int i = 0; json_is_string(value) && field->words[i] != NULL; i++)
        if (strcmp(json_string_value(value), field->words[i]) == 0)
            return i;
    return -1;
}

static int refuse_word(const struct reader *reader, const struct place *place,
                       const struct read_field *field)
{
    char says[160] = "must be one of";

    for (size_t i = 0; field->words[i] != NULL; i++) {
        size_t used = strlen(says);

        (void)snprintf(says + used, sizeof(says) - used, "%s \"%s\"", i > 0 ? "," : "",
                       field->words[i]);
    }
    return refuse(reader, place, says);
}

static int take_word(const struct reader *reader, const struct place *place,
                     const struct read_field *field, const json_t *value, int *into)
{
    *into = word_index(field, value);
    return *into >= 0 ? 0 : refuse_word(reader, place, field);
}

static int take_words(const struct reader *reader, const struct place *place,
                      const struct read_field *field, const json_t *value, unsigned *into)
{
    *into = 0;
    if (!json_is_array(value) || json_array_size(value) == 0)
        return refuse(reader, place, "must be an array with at least one element");
    for (size_t i = 0; i < json_array_size(value); i++) {
        struct place inner = {place, NULL, i};
        int index = word_index(field, json_array_get(value, i));

        if (index < 0)
            return refuse_word(reader, &inner, field);
        *into |= 1U << index;
    }
    return 0;
}

static int take_time(const struct reader *reader, const struct place *place, const json_t *value,
                     uint64_t *into)
{
    if (!json_is_string(value) || !clock_parse(json_string_value(value), into))
        return refuse(reader, place, "must be a time such as \"2030-01-31T12:00:00Z\" (RFC 3339)");
    return 0;
}

/* ---- many values ---- */

static int take_texts(const struct reader *reader, const struct place *place,
                      const struct read_field *field, const json_t *value, const char *const **into)
{
    size_t count = json_array_size(value);
    const char **list;

    if (!json_is_array(value) || count < field->low || count > field->high)
        return refuse_range(reader, place, "an array of", field->low, field->high, " strings");
    list = read_room(reader->owner, (count + 1) * sizeof(*list));
    if (list == NULL)
        return no_memory(reader);
    for (size_t i = 0; i < count; i++) {
        static const struct read_field element = {.kind = READ_TEXT, .high = READ_VALUE_MAX};
        struct place inner = {place, NULL, i};

        if (take_text(reader, &inner, &element, json_array_get(value, i), &list[i]) < 0)
            return -1;
    }
    *into = list;
    return 0;
}

/* "name=text" for each member. As an environment it becomes one argument each, so both together are
 * limited; a name that held "=" would be read as another one. */
static int take_pair(const struct reader *reader, const struct place *place, const char *name,
                     const json_t *value, const char **into)
{
    struct place inner = {place, name, 0};
    size_t name_size = strlen(name);
    size_t value_size = json_string_length(value);
    char *pair;

    if (!json_is_string(value))
        return refuse(reader, &inner, "must be a string");
    if (name_size == 0 || name_size > READ_NAME_MAX || strchr(name, '=') != NULL ||
        !text_is_line(name))
        return refuse(reader, &inner,
                      "is no name: 1 to 256 bytes, without \"=\" and control characters");
    if (name_size + 1 + value_size > READ_VALUE_MAX)
        return refuse(reader, &inner, "is too long: name and value have at most 131070 bytes");
    pair = read_room(reader->owner, name_size + value_size + 2);
    if (pair == NULL)
        return no_memory(reader);
    (void)snprintf(pair, name_size + value_size + 2, "%s=%s", name, json_string_value(value));
    *into = pair;
    return 0;
}

static int take_pairs(const struct reader *reader, const struct place *place,
                      const struct read_field *field, const json_t *object,
                      const char *const **into)
{
    json_t *members = (json_t *)object;
    size_t used = 0;
    const char **list;
    const char *name;
    json_t *value;

    if (!json_is_object(members) || json_object_size(members) > field->high)
        return refuse_range(reader, place, "an object of", 0, field->high, " strings");
    list = read_room(reader->owner, (json_object_size(members) + 1) * sizeof(*list));
    if (list == NULL)
        return no_memory(reader);
    json_object_foreach(members, name, value)
    {
        if (take_pair(reader, place, name, value, &list[used]) < 0)
            return -1;
        used++;
    }
    *into = list;
    return 0;
}

static int take_bytes(const struct reader *reader, const struct place *place,
                      const struct read_field *field, const json_t *value, struct read_bytes *into)
{
    size_t length = json_string_length(value);
    ptrdiff_t size = (ptrdiff_t)length;
    void *room;

    if (!json_is_string(value))
        return refuse(reader, place, "must be a string");
    into->data = json_string_value(value);
    if (field->kind == READ_BYTES) {
        room = read_room(reader->owner, length + 1);
        if (room == NULL)
            return no_memory(reader);
        size = base64_decode(json_string_value(value), length, room);
        if (size < 0)
            return refuse(reader, place, "must be base64 with padding (RFC 4648, section 4)");
        into->data = room;
    }
    into->size = (size_t)size;
    return 0;
}

static int take_name_or_count(const struct reader *reader, const struct place *place,
                              const struct read_field *field, const json_t *value,
                              struct read_name_or_count *into)
{
    if (json_is_string(value) && json_string_length(value) <= SHOWN_MAX) {
        into->name = json_string_value(value);
        return 0;
    }
    return take_count(reader, place, field, value, &into->count);
}

static int take_object(const struct reader *reader, const struct place *place,
                       const struct read_field *fields, const json_t *object, void *into);

static int take_objects(const struct reader *reader, const struct place *place,
                        const struct read_field *field, const json_t *value,
                        struct read_objects *into)
{
    size_t count = json_array_size(value);

    if (!json_is_array(value) || count > field->high)
        return refuse_range(reader, place, "an array of", 0, field->high, " objects");
    into->list = read_room(reader->owner, (count + 1) * field->inner_size);
    if (into->list == NULL)
        return no_memory(reader);
    for (into->count = 0; into->count < count; into->count++) {
        struct place inner = {place, NULL, into->count};

        if (take_object(reader, &inner, field->inner, json_array_get(value, into->count),
                        (char *)into->list + into->count * field->inner_size) < 0)
            return -1;
    }
    return 0;
}

static int take(const struct reader *reader, const struct place *place,
                const struct read_field *field, const json_t *value, void *into)
{
    if (json_is_null(value) && field->kind != READ_NOT_YET) {
        if (field->null_is_zero)
            *(uint64_t *)into = 0;
        return field->is_needed ? refuse(reader, place, "must not be null") : 0;
    }
    switch (field->kind) {
    case READ_TEXT:
    case READ_LINE:
        return take_text(reader, place, field, value, into);
    case READ_BOOL:
    case READ_FLAG:
        if (!json_is_boolean(value))
            return refuse(reader, place, "must be true or false");
        if (field->kind == READ_BOOL)
            *(bool *)into = json_is_true(value);
        else
            *(int *)into = json_is_true(value);
        return 0;
    case READ_COUNT:
        return take_count(reader, place, field, value, into);
    case READ_MILLI:
        return take_milli(reader, place, field, value, into);
    case READ_WORD:
        return take_word(reader, place, field, value, into);
    case READ_WORDS:
        return take_words(reader, place, field, value, into);
    case READ_TIME:
        return take_time(reader, place, value, into);
    case READ_TEXTS:
        return take_texts(reader, place, field, value, into);
    case READ_PAIRS:
        return take_pairs(reader, place, field, value, into);
    case READ_BYTES:
    case READ_RAW:
        return take_bytes(reader, place, field, value, into);
    case READ_NAME_OR_COUNT:
        return take_name_or_count(reader, place, field, value, into);
    case READ_OBJECT:
        return take_object(reader, place, field->inner, value, into);
    case READ_OBJECTS:
        return take_objects(reader, place, field, value, into);
    case READ_NOT_YET:
        break;
    }
    (void)refuse(reader, place, "is for what this version does not have yet: leave it out");
    (void)snprintf(reader->err->code, sizeof(reader->err->code), "not_yet");
    return -1;
}

static int refuse_unknown(const struct reader *reader, const struct place *place,
                          const struct read_field *fields)
{
    char says[320] = "is unknown; known are";

    for (; fields->name != NULL; fields++) {
        size_t used = strlen(says);

        if (fields->kind != READ_NOT_YET && used < sizeof(says))
            (void)snprintf(says + used, sizeof(says) - used, " %s", fields->name);
    }
    return refuse(reader, place, says);
}

static int take_object(const struct reader *reader, const struct place *place,
                       const struct read_field *fields, const json_t *object, void *into)
{
    json_t *members = (json_t *)object;
    const char *name;
    json_t *value;

    if (!json_is_object(members))
        return place == NULL
                   ? error_set(reader->err, "bad_request", 0, "the body must be a JSON object")
                   : refuse(reader, place, "must be an object");
    json_object_foreach(members, name, value)
    {
        struct place inner = {place, name, 0};
        const struct read_field *field = fields;

        while (field->name != NULL && strcmp(field->name, name) != 0)
            field++;
        if (field->name == NULL)
            return refuse_unknown(reader, &inner, fields);
        if (take(reader, &inner, field, value, (char *)into + field->at) < 0)
            return -1;
    }
    for (; fields->name != NULL; fields++) {
        struct place inner = {place, fields->name, 0};

        if (fields->is_needed && json_object_get(members, fields->name) == NULL)
            return refuse(reader, &inner, "is missing");
    }
    return 0;
}

/* ---- a body ---- */

/* Counts values and depth without building anything, so that 4 MiB of "[[],[]" cost no 200 MiB. */
static bool is_bounded(const char *text, size_t size)
{
    size_t values = 0;
    size_t depth = 0;
    bool in_string = false;

    for (size_t at = 0; at < size; at++) {
        char c = text[at];

        if (in_string) {
            at += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            values++;
            if (++depth > DEPTH_MAX)
                return false;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        } else if (c == ',') {
            values++;
        }
        if (values > VALUES_MAX)
            return false;
    }
    return true;
}

void read_parse(const void *data, size_t size, struct read_parsed *parsed)
{
    json_error_t said;

    parsed->json = NULL;
    if (!is_bounded(data, size)) {
        (void)error_set(&parsed->why, "bad_request", 0,
                        "the body has more than %d values, or is nested deeper than %d", VALUES_MAX,
                        DEPTH_MAX);
        return;
    }
    parsed->json = json_loadb(data, size, JSON_REJECT_DUPLICATES, &said);
    if (parsed->json == NULL)
        (void)error_set(&parsed->why, "bad_request", 0,
                        "the body is no JSON: %s (line %d, column %d)", said.text, said.line,
                        said.column);
}

void read_parsed_free(struct read_parsed *parsed)
{
    json_decref(parsed->json);
    parsed->json = NULL;
}

static int take_parsed(struct read_parsed *parsed, struct read_owner *owner, struct error *err)
{
    owner->json = parsed->json;
    parsed->json = NULL;
    if (owner->json != NULL)
        return 0;
    *err = parsed->why;
    return -1;
}

int read_object(const char *what, struct read_body body, bool may_be_empty,
                const struct read_field *fields, void *into, struct read_owner *owner,
                struct error *err)
{
    struct reader reader = {.owner = owner, .err = err};
    struct read_parsed parsed = {0};

    if (body.size == 0 && may_be_empty)
        return 0;
    if (body.size == 0)
        return error_set(err, "bad_request", 0, "the body is empty: send %s as a JSON object",
                         what);
    if (body.parsed == NULL)
        read_parse(body.data, body.size, &parsed);
    if (take_parsed(body.parsed != NULL ? body.parsed : &parsed, owner, err) < 0)
        return -1;
    return take_object(&reader, NULL, fields, owner->json, into);
}
