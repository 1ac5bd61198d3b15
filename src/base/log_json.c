/* A log line as one JSON object: see log.h. The same text as for people, and the key=value pairs at its
 * end once more as fields, so that no place that logs has to say things twice. Whatever bytes come in, what
 * goes out is one line of JSON in UTF-8. */
#include "base/log_parts.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct json {
    char *at, *end; /* what closes the object always has room behind `end` */
};

static void put(struct json *json, const char *text)
{
    while (*text != '\0' && json->at < json->end)
        *json->at++ = *text++;
}

static void put_text(struct json *json, const char *text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + size;

    put(json, "\"");
    while (at < end && json->at + 12 < json->end) {
        size_t bad, length = utf8_length(at, (size_t)(end - at), &bad);
        char escaped[8];

        if (length == 0)
            put(json, "\xef\xbf\xbd");
        else if (*at == '"' || *at == '\\' || *at < 0x20 || *at == 0x7f) {
            (void)snprintf(escaped, sizeof(escaped), "\\u%04x", *at);
            put(json, escaped);
        } else {
            memcpy(json->at, at, length);
            json->at += length;
        }
        at += length > 0 ? length : 1;
    }
    put(json, "\"");
}

static void put_field(struct json *json, const char *name, const char *text)
{
    put(json, ",\"");
    put(json, name);
    put(json, "\":");
    put_text(json, text, strlen(text));
}

/* The end of one word, which may have a value between quotes; *is_pair: it is key=value. */
static const char *word_end(const char *word, bool *is_pair)
{
    size_t key = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_");
    const char *at = word + key + 1;

    *is_pair = key > 0 && word[key] == '=';
    if (!*is_pair || *at != '"')
        return word + strcspn(word, " ");
    for (at++; *at != '\0' && *at != '"'; at++)
        if (*at == '\\' && at[1] != '\0')
            at++;
    if (*at != '"' || (at[1] != ' ' && at[1] != '\0'))
        *is_pair = false;
    return *at == '"' ? at + 1 : at;
}

/* Where the pairs at its end begin. */
static const char *pairs_of(const char *text)
{
    const char *pairs = NULL;

    for (const char *word = text; *word != '\0';) {
        bool is_pair;
        const char *end = word_end(word, &is_pair);

        if (!is_pair)
            pairs = NULL;
        else if (pairs == NULL)
            pairs = word;
        word = end + strspn(end, " ");
    }
    return pairs;
}

static void put_pairs(struct json *json, const char *pairs)
{
    bool is_first = true;

    put(json, ",\"fields\":{");
    for (const char *word = pairs; *word != '\0';) {
        bool is_pair;
        const char *end = word_end(word, &is_pair), *value = strchr(word, '=') + 1;
        bool is_quoted = *value == '"' && end > value + 1;

        if (json->at + (end - word) * 6 + 32 > json->end)
            break;
        if (!is_first)
            put(json, ",");
        is_first = false;
        put_text(json, word, (size_t)(value - 1 - word));
        put(json, ":");
        put_text(json, value + is_quoted, (size_t)(end - value) - 2 * (size_t)is_quoted);
        word = end + strspn(end, " ");
    }
    put(json, "}");
}

size_t log_json(char *into, size_t room, const struct log_entry *entry)
{
    struct json json = {into, into + room - 2};
    const char *pairs = pairs_of(entry->text);
    char number[40];

    put(&json, "{\"time\":");
    put_text(&json, entry->time, strlen(entry->time));
    put_field(&json, "level", entry->level);
    put_field(&json, "part", entry->part);
    put_field(&json, "code", entry->code);
    /* Half of the room: the pairs, and the end of the object, shall have some, too. */
    json.end = into + room / 2;
    put_field(&json, "text", entry->text);
    json.end = into + room - 2;
    if (pairs != NULL)
        put_pairs(&json, pairs);
    if (entry->left_out > 0) {
        (void)snprintf(number, sizeof(number), ",\"left_out\":%u", entry->left_out);
        put(&json, number);
    }
    *json.at++ = '}';
    *json.at++ = '\n';
    return (size_t)(json.at - into);
}
