/* Any bytes as what a client sends: taken or refused, the same whether they come at once or byte by byte,
 * and what was taken holds nothing that a reader of strings would read otherwise. As the value of Range,
 * as the key of a WebSocket, and as what a server answers, too. */
#include "fuzz.h"
#include "http/frames.h"
#include "http/parse.h"
#include "http/range.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX 65536

static bool is_inside(const char *text, const char *start, size_t size)
{
    return text >= start && text + strlen(text) <= start + size;
}

static void check_head(const struct http_head *head, const char *text, size_t size)
{
    must(http_is_name(head->method) && strlen(head->method) <= HTTP_METHOD_MAX);
    must(head->path[0] == '/' || strcmp(head->path, "*") == 0);
    must(http_is_value(head->path) && !strpbrk(head->path, " \t?#"));
    must(strncmp(head->target, head->path, strlen(head->path)) == 0);
    must(strchr("?", head->target[strlen(head->path)]) != NULL);
    must(!(head->is_chunked && head->length > 0) && !(head->is_chunked && head->is_old));
    must(head->is_old || http_field_find(head, "HOST") != NULL);
    for (size_t i = 0; i < head->fields_count; i++) {
        must(http_is_name(head->fields[i].name) && http_is_value(head->fields[i].value));
        must(is_inside(head->fields[i].value, text, size));
    }
    for (size_t i = 0; i < head->query_count; i++)
        must(head->query[i].value[0] == '\0' || is_inside(head->query[i].value, text, size));
}

/* Where the header ends, told at once and told byte by byte. */
static enum http_scan scan(const char *data, size_t size, size_t *head_size)
{
    size_t scanned = 0, slowly = 0, slow_size = 0;
    enum http_scan found = http_scan_head(data, size, &scanned, head_size);
    enum http_scan slow = HTTP_SCAN_MORE;

    for (size_t i = 1; i <= size && slow == HTTP_SCAN_MORE; i++)
        slow = http_scan_head(data, i, &slowly, &slow_size);
    must(slow == found);
    must(found != HTTP_SCAN_WHOLE || (slow_size == *head_size && *head_size <= size));
    return found;
}

static enum http_chunk read_chunks(const char *data, size_t size, size_t step, char *body,
                                   size_t *body_size, size_t *used)
{
    struct http_chunks chunks = {0};
    enum http_chunk found = HTTP_CHUNK_MORE;
    const char *at = data, *end = data + size, *part = NULL;
    size_t part_size = 0;

    *body_size = 0;
    while (at < end && found != HTTP_CHUNK_END && found != HTTP_CHUNK_BAD) {
        size_t left = (size_t)(end - at) < step ? (size_t)(end - at) : step;
        found = http_chunk_next(&chunks, &at, &left, &part, &part_size);
        if (found == HTTP_CHUNK_PART) {
            must(part >= data && part + part_size <= end && *body_size + part_size <= size);
            memcpy(body + *body_size, part, part_size);
            *body_size += part_size;
        }
    }
    *used = (size_t)(at - data);
    return found;
}

static void check_chunks(const char *data, size_t size)
{
    static char one[INPUT_MAX], other[INPUT_MAX];
    size_t one_size = 0, other_size = 0, one_used = 0, other_used = 0;
    enum http_chunk found = read_chunks(data, size, size, one, &one_size, &one_used);
    enum http_chunk slow = read_chunks(data, size, 1, other, &other_size, &other_used);

    must((found == HTTP_CHUNK_END) == (slow == HTTP_CHUNK_END));
    must((found == HTTP_CHUNK_BAD) == (slow == HTTP_CHUNK_BAD));
    must(one_used == other_used && one_size == other_size && !memcmp(one, other, one_size));
}

/* A range lies in what it is of. */
static void check_range(const char *value)
{
    static const uint64_t sizes[] = {0, 1, 2, 1000, INT64_MAX, UINT64_MAX};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct http_range range;
        enum http_range_kind kind = http_range_parse(value, sizes[i], &range);

        must(kind != HTTP_RANGE_PART || (range.length > 0 && range.offset < sizes[i] &&
                                         range.length <= sizes[i] - range.offset));
        must(kind != HTTP_RANGE_WHOLE || (range.offset == 0 && range.length == sizes[i]));
    }
}

static void check_key(const char *key)
{
    char answer[29];

    if (!http_key_is_sane(key))
        return;
    http_key_answer(key, answer);
    must(strlen(answer) == 28 && answer[27] == '=' && strlen(key) == 24);
}

static void check_answer(char *text, size_t size)
{
    static struct http_answer answer;

    if (http_parse_answer(text, size, &answer) < 0)
        return;
    must(answer.status >= 100 && answer.status <= 999 && answer.count <= HTTP_ANSWER_FIELDS_MAX);
    must(is_inside(answer.reason, text, size) &&
         (*answer.reason == '\0' || http_is_value(answer.reason)));
    for (size_t i = 0; i < answer.count; i++) {
        must(http_is_name(answer.fields[i].name) && is_inside(answer.fields[i].value, text, size));
        must(*answer.fields[i].value == '\0' || http_is_value(answer.fields[i].value));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    struct http_refusal no;
    struct http_head head;
    size_t head_size = 0;
    char *text, *target;

    if (size == 0 || size > INPUT_MAX)
        return 0;
    text = malloc(size + 1);
    must(text != NULL);
    if (scan(bytes, size, &head_size) == HTTP_SCAN_WHOLE) {
        memcpy(text, bytes, head_size);
        target = malloc(head_size);
        must(target != NULL);
        if (http_parse_head(text, head_size, target, &head, &no) == 0)
            check_head(&head, text, head_size);
        else
            must(no.status >= 400 && no.code && no.detail);
        free(target);
        memcpy(text, bytes, head_size);
        text[head_size] = '\0';
        check_answer(text, head_size);
        if (head_size < size)
            check_chunks(bytes + head_size, size - head_size);
    }
    check_chunks(bytes, size);
    if (http_decode(bytes, size, false, text) == 0)
        must(strlen(text) <= size);
    memcpy(text, bytes, size);
    text[size] = '\0';
    check_range(text);
    check_key(text);
    free(text);
    return 0;
}
