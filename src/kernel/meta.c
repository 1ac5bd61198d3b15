/* See meta.h. */
#include "kernel/meta.h"

#include "base/hex.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *at, *end;
};

static void space_skip(struct reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n' ||
                                        *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
}

static bool take(struct reader *reader, char c)
{
    space_skip(reader);
    if (reader->at == reader->end || *reader->at != c)
        return false;
    reader->at++;
    return true;
}

static int string_skip(struct reader *reader)
{
    if (!take(reader, '"'))
        return -1;
    while (reader->at < reader->end) {
        char c = *reader->at++;

        if (c == '"')
            return 0;
        if ((unsigned char)c < 0x20)
            return -1;
        if (c == '\\' && reader->at++ == reader->end)
            return -1;
    }
    return -1;
}

static int value_skip(struct reader *reader, unsigned depth);

/* After the opening bracket. */
static int inside_skip(struct reader *reader, bool object, unsigned depth)
{
    char close = object ? '}' : ']';

    if (take(reader, close))
        return 0;
    do {
        if (object && (string_skip(reader) < 0 || !take(reader, ':')))
            return -1;
        if (value_skip(reader, depth) < 0)
            return -1;
    } while (take(reader, ','));
    return take(reader, close) ? 0 : -1;
}

static int value_skip(struct reader *reader, unsigned depth)
{
    const char *begin;

    if (depth == 0)
        return -1;
    space_skip(reader);
    if (reader->at == reader->end)
        return -1;
    if (*reader->at == '"')
        return string_skip(reader);
    if (take(reader, '{'))
        return inside_skip(reader, true, depth - 1);
    if (take(reader, '['))
        return inside_skip(reader, false, depth - 1);
    begin = reader->at;
    while (reader->at < reader->end &&
           strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *reader->at) != NULL &&
           *reader->at != 0)
        reader->at++;
    return reader->at > begin ? 0 : -1;
}

/* The text between the quotes is the name's, letter by letter: no member that is asked for needs an escape. */
static bool name_is(const char *begin, const char *end, const char *name)
{
    size_t size = strlen(name);

    return (size_t)(end - begin) == size + 2 && memcmp(begin + 1, name, size) == 0;
}

static int member_find(struct kernel_text object, const char *name, unsigned depth, bool early,
                       struct meta_value *value)
{
    struct reader reader = {object.data, object.data + object.size};
    bool found = false;

    if (!take(&reader, '{'))
        return -1;
    if (take(&reader, '}'))
        return -1;
    do {
        const char *begin, *end;

        space_skip(&reader);
        begin = reader.at;
        if (string_skip(&reader) < 0)
            return -1;
        end = reader.at;
        if (!take(&reader, ':'))
            return -1;
        space_skip(&reader);
        if (name_is(begin, end, name)) {
            begin = reader.at;
            if (value_skip(&reader, depth) < 0)
                return -1;
            value->text = (struct kernel_text){begin, (size_t)(reader.at - begin)};
            if (early)
                return 0;
            found = true;
        } else if (value_skip(&reader, depth) < 0) {
            return -1;
        }
    } while (take(&reader, ','));
    if (!take(&reader, '}'))
        return -1;
    space_skip(&reader);
    return found && reader.at == reader.end ? 0 : -1;
}

int meta_member(struct kernel_text object, const char *name, struct meta_value *value)
{
    return member_find(object, name, META_DEPTH_MAX, false, value);
}

int meta_member_early(struct kernel_text object, const char *name, unsigned depth,
                      struct meta_value *value)
{
    return member_find(object, name, depth, true, value);
}

/* ---- strings ---- */

static int hex4(const char *at, const char *end, uint32_t *code)
{
    *code = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);

        if (digit < 0)
            return -1;
        *code = *code * 16 + (uint32_t)digit;
    }
    return 0;
}

static size_t utf8_put(char *into, uint32_t code)
{
    if (code < 0x80) {
        into[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        into[0] = (char)(0xc0 | code >> 6);
        into[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        into[0] = (char)(0xe0 | code >> 12);
        into[1] = (char)(0x80 | (code >> 6 & 0x3f));
        into[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    into[0] = (char)(0xf0 | code >> 18);
    into[1] = (char)(0x80 | (code >> 12 & 0x3f));
    into[2] = (char)(0x80 | (code >> 6 & 0x3f));
    into[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* After "\u": a surrogate must have its other half. */
static int escape_unicode(const char **at, const char *end, uint32_t *code)
{
    uint32_t low;

    if (hex4(*at, end, code) < 0)
        return -1;
    *at += 4;
    if (*code >= 0xdc00 && *code < 0xe000)
        return -1;
    if (*code < 0xd800 || *code >= 0xdc00)
        return *code == 0 ? -1 : 0;
    if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u' || hex4(*at + 2, end, &low) < 0 ||
        low < 0xdc00 || low >= 0xe000)
        return -1;
    *at += 6;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

int meta_string(const struct meta_value *value, char *text, size_t size)
{
    static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    const char *at = value->text.data, *end = at + value->text.size;
    size_t used = 0;

    if (value->text.size < 2 || *at != '"')
        return -1;
    at++;
    end--;
    while (at < end) {
        uint32_t code;

        if (used + 4 >= size)
            return -1;
        if (*at != '\\') {
            if (*at == 0)
                return -1;
            text[used++] = *at++;
            continue;
        }
        at++;
        if (*at == 'u') {
            at++;
            if (escape_unicode(&at, end, &code) < 0)
                return -1;
            used += utf8_put(text + used, code);
            continue;
        }
        for (code = 0; code < sizeof(escapes) - 1 && escapes[code] != *at; code += 2)
            continue;
        if (code >= sizeof(escapes) - 1)
            return -1;
        text[used++] = escapes[code + 1];
        at++;
    }
    text[used] = 0;
    return 0;
}

int meta_count(const struct meta_value *value, uint64_t most, uint64_t *number)
{
    *number = 0;
    if (value->text.size == 0 || value->text.size > 19)
        return -1;
    for (size_t i = 0; i < value->text.size; i++) {
        char c = value->text.data[i];

        if (c < '0' || c > '9')
            return -1;
        *number = *number * 10 + (uint64_t)(c - '0');
    }
    return *number <= most ? 0 : -1;
}

bool meta_is_true(const struct meta_value *value)
{
    return value->text.size == 4 && memcmp(value->text.data, "true", 4) == 0;
}

/* ---- writing ---- */

void meta_put_bytes(struct meta_text *text, const char *raw, size_t size)
{
    if (text->failed)
        return;
    if (text->room - text->size <= size) {
        size_t room = 2 * text->room + size + 64;
        char *more = realloc(text->data, room);

        if (more == NULL) {
            free(text->data);
            *text = (struct meta_text){.failed = true};
            return;
        }
        text->data = more;
        text->room = room;
    }
    memcpy(text->data + text->size, raw, size);
    text->size += size;
    text->data[text->size] = 0;
}

void meta_put(struct meta_text *text, const char *raw)
{
    meta_put_bytes(text, raw, strlen(raw));
}

void meta_put_number(struct meta_text *text, uint64_t number)
{
    char digits[24];

    meta_put_bytes(text, digits, (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, number));
}

void meta_put_string(struct meta_text *text, const char *string, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)string;
    char escape[8];

    meta_put(text, "\"");
    for (size_t i = 0; i < size;) {
        size_t bad, length = utf8_length(bytes + i, size - i, &bad);

        if (length == 0) {
            meta_put(text, "\xef\xbf\xbd");
            i++;
            continue;
        }
        if (bytes[i] == '"' || bytes[i] == '\\') {
            escape[0] = '\\';
            escape[1] = (char)bytes[i];
            meta_put_bytes(text, escape, 2);
        } else if (bytes[i] < 0x20) {
            (void)snprintf(escape, sizeof(escape), "\\u%04x", bytes[i]);
            meta_put(text, escape);
        } else {
            meta_put_bytes(text, string + i, length);
        }
        i += length;
    }
    meta_put(text, "\"");
}
