/* JSON on its way out: see out.h. Whatever bytes it is given, what it writes is valid JSON in UTF-8. */
#include "front/native/out.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void out_free(struct out *out)
{
    free(out->data);
    *out = (struct out){0};
}

void out_reset(struct out *out, size_t most)
{
    if (out->capacity > most)
        out_free(out);
    out->used = 0;
    out->last = 0;
    out->has_failed = false;
}

void out_sent(struct out *out)
{
    if (out->used > 0)
        out->last = out->data[out->used - 1];
    out->used = 0;
}

char *out_room(struct out *out, size_t size)
{
    char *room;

    if (out->has_failed)
        return NULL;
    if (size > out->capacity - out->used) {
        size_t wanted = out->used + size;
        size_t capacity = out->capacity < 2048 ? 4096 : out->capacity * 2;
        char *data;

        if (capacity < wanted)
            capacity = wanted;
        data = realloc(out->data, capacity);
        if (data == NULL) {
            out->has_failed = true;
            return NULL;
        }
        out->data = data;
        out->capacity = capacity;
    }
    room = out->data + out->used;
    out->used += size;
    return room;
}

void out_raw(struct out *out, const void *data, size_t size)
{
    char *room = out_room(out, size);

    if (room != NULL && size > 0)
        memcpy(room, data, size);
}

/* A comma unless this is the first of its object or array, and the key. Within a string nothing is
 * begun, so the last byte says which. */
static void begin(struct out *out, const char *key)
{
    char last = out->used > 0 ? out->data[out->used - 1] : out->last;

    if (last != '{' && last != '[' && last != '\n' && last != 0)
        out_raw(out, ",", 1);
    if (key == NULL)
        return;
    out_raw(out, "\"", 1);
    out_quoted(out, key, strlen(key));
    out_raw(out, "\":", 2);
}

void out_object(struct out *out, const char *key)
{
    begin(out, key);
    out_raw(out, "{", 1);
}

void out_object_end(struct out *out)
{
    out_raw(out, "}", 1);
}

void out_array(struct out *out, const char *key)
{
    begin(out, key);
    out_raw(out, "[", 1);
}

void out_array_end(struct out *out)
{
    out_raw(out, "]", 1);
}

void out_text(struct out *out, const char *key, const char *value)
{
    if (value == NULL) {
        out_null(out, key);
        return;
    }
    out_quote(out, key);
    out_quoted(out, value, strlen(value));
    out_quote_end(out);
}

void out_text_or_none(struct out *out, const char *key, const char *value)
{
    if (value != NULL)
        out_text(out, key, value);
}

void out_number(struct out *out, const char *key, uint64_t value)
{
    char digits[24];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    begin(out, key);
    out_raw(out, digits + at, sizeof(digits) - at);
}

void out_signed(struct out *out, const char *key, int64_t value)
{
    char text[24];
    int used = snprintf(text, sizeof(text), "%" PRId64, value);

    begin(out, key);
    out_raw(out, text, (size_t)used);
}

void out_milli(struct out *out, const char *key, uint64_t thousandths)
{
    char text[24];
    int used = snprintf(text, sizeof(text), "%" PRIu64 ".%03u", thousandths / 1000,
                        (unsigned)(thousandths % 1000));

    while (text[used - 1] == '0')
        used--;
    if (text[used - 1] == '.')
        used--;
    begin(out, key);
    out_raw(out, text, (size_t)used);
}

void out_bool(struct out *out, const char *key, bool value)
{
    begin(out, key);
    out_raw(out, value ? "true" : "false", value ? 4 : 5);
}

void out_null(struct out *out, const char *key)
{
    begin(out, key);
    out_raw(out, "null", 4);
}

void out_time(struct out *out, const char *key, uint64_t ms)
{
    char text[CLOCK_TEXT_SIZE];

    if (ms == 0) {
        out_null(out, key);
        return;
    }
    clock_format(ms, text);
    out_text(out, key, text);
}

void out_quote(struct out *out, const char *key)
{
    begin(out, key);
    out_raw(out, "\"", 1);
}

void out_quote_end(struct out *out)
{
    out_raw(out, "\"", 1);
}

static void escape(struct out *out, unsigned char byte)
{
    static const char named[] = "\bb\tt\nn\ff\rr\"\"\\\\";
    char text[7] = "\\u00";

    for (const char *pair = named; *pair != '\0'; pair += 2) {
        if ((unsigned char)pair[0] == byte) {
            text[1] = pair[1];
            out_raw(out, text, 2);
            return;
        }
    }
    hex_encode(&byte, 1, text + 4);
    out_raw(out, text, strlen(text));
}

/* Up to where a JSON string may hold these bytes as they are. */
static size_t plain_length(const unsigned char *bytes, size_t size)
{
    size_t at = 0;
    size_t bad;

    while (at < size) {
        size_t length = 1;

        if (bytes[at] < 0x20 || bytes[at] == '"' || bytes[at] == '\\' || bytes[at] == 0x7f)
            break;
        if (bytes[at] >= 0x80)
            length = utf8_length(bytes + at, size - at, &bad);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}

void out_quoted(struct out *out, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    while (size > 0) {
        size_t plain = plain_length(bytes, size);
        size_t bad = 1;

        out_raw(out, bytes, plain);
        bytes += plain;
        size -= plain;
        if (size == 0)
            return;
        if (bytes[0] < 0x80) {
            escape(out, bytes[0]);
        } else {
            (void)utf8_length(bytes, size, &bad);
            out_raw(out, "\xEF\xBF\xBD", 3);
        }
        bytes += bad;
        size -= bad;
    }
}

void out_quoted_base64(struct out *out, const void *data, size_t size)
{
    char *room = out_room(out, BASE64_SIZE(size));

    if (room != NULL)
        base64_encode(data, size, room);
}
