/* Whether a text is JSON: looked at and not parsed, so that nothing is built of what others made up. */
#include "front/native/text.h"

#include "base/utf8.h"

#include <string.h>

#define DEPTH_MAX 1000

struct reader {
    const char *at, *end;
    unsigned depth;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n' ||
                                        *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
}

static bool take(struct reader *reader, char c)
{
    if (reader->at == reader->end || *reader->at != c)
        return false;
    reader->at++;
    return true;
}

static bool take_word(struct reader *reader, const char *word)
{
    size_t size = strlen(word);

    if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, word, size) != 0)
        return false;
    reader->at += size;
    return true;
}

static bool take_digits(struct reader *reader)
{
    const char *begin = reader->at;

    while (reader->at < reader->end && is_digit(*reader->at))
        reader->at++;
    return reader->at > begin;
}

static bool take_number(struct reader *reader)
{
    (void)take(reader, '-');
    if (!take(reader, '0') && !take_digits(reader))
        return false;
    if (take(reader, '.') && !take_digits(reader))
        return false;
    if (!take(reader, 'e') && !take(reader, 'E'))
        return true;
    if (!take(reader, '+'))
        (void)take(reader, '-');
    return take_digits(reader);
}

static bool take_escape(struct reader *reader)
{
    if (reader->at == reader->end)
        return false;
    if (*reader->at != 'u')
        return strchr("\"\\/bfnrt", *reader->at++) != NULL && reader->at[-1] != '\0';
    reader->at++;
    for (int i = 0; i < 4; i++, reader->at++) {
        char c = reader->at < reader->end ? *reader->at : 'x';

        if (!is_digit(c) && ((c | 0x20) < 'a' || (c | 0x20) > 'f'))
            return false;
    }
    return true;
}

static bool take_string(struct reader *reader)
{
    if (!take(reader, '"'))
        return false;
    while (reader->at < reader->end) {
        unsigned char c = (unsigned char)*reader->at++;

        if (c == '"')
            return true;
        if (c < 0x20 || (c == '\\' && !take_escape(reader)))
            return false;
    }
    return false;
}

static bool take_value(struct reader *reader);

static bool take_members(struct reader *reader, bool is_object)
{
    const char close = is_object ? '}' : ']';

    skip_space(reader);
    if (take(reader, close))
        return true;
    do {
        skip_space(reader);
        if (is_object) {
            if (!take_string(reader))
                return false;
            skip_space(reader);
            if (!take(reader, ':'))
                return false;
            skip_space(reader);
        }
        if (!take_value(reader))
            return false;
        skip_space(reader);
    } while (take(reader, ','));
    return take(reader, close);
}

static bool take_value(struct reader *reader)
{
    bool is_good;

    if (reader->at == reader->end || reader->depth == DEPTH_MAX)
        return false;
    switch (*reader->at) {
    case '{':
    case '[':
        reader->depth++;
        is_good = take_members(reader, *reader->at++ == '{');
        reader->depth--;
        return is_good;
    case '"':
        return take_string(reader);
    case 't':
        return take_word(reader, "true");
    case 'f':
        return take_word(reader, "false");
    case 'n':
        return take_word(reader, "null");
    default:
        return take_number(reader);
    }
}

bool text_is_json(const void *data, size_t size)
{
    struct reader reader = {.at = data, .end = (const char *)data + size};

    return size > 0 && utf8_is_valid(data, size) && take_value(&reader) && reader.at == reader.end;
}
