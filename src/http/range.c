/* A field that a server may ignore: what is not exactly right asks for nothing. */
#include "http/range.h"

#include <stdbool.h>
#include <stddef.h>
#include <strings.h>

/* Digits, of which there may be none; what is beyond 64 bits is as good as the largest number. */
static bool number(const char **at, uint64_t *value)
{
    const char *start = *at;

    *value = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        uint64_t digit = (uint64_t)(**at - '0');
        *value = *value > (UINT64_MAX - digit) / 10 ? UINT64_MAX : *value * 10 + digit;
    }
    return *at > start;
}

static enum http_range_kind last(uint64_t count, uint64_t size, struct http_range *range)
{
    if (count == 0) {
        return HTTP_RANGE_NONE;
    }
    if (size == 0) {
        return HTTP_RANGE_WHOLE; /* all of nothing has no Content-Range */
    }
    range->length = count < size ? count : size;
    range->offset = size - range->length;
    return HTTP_RANGE_PART;
}

enum http_range_kind http_range_parse(const char *value, uint64_t size, struct http_range *range)
{
    uint64_t from, to;
    bool has_from, has_to;

    *range = (struct http_range){.length = size};
    if (!value || strncasecmp(value, "bytes=", 6) != 0) {
        return HTTP_RANGE_WHOLE;
    }
    value += 6;
    has_from = number(&value, &from);
    if (*value++ != '-') {
        return HTTP_RANGE_WHOLE;
    }
    has_to = number(&value, &to);
    if (*value != '\0' || (!has_from && !has_to) || (has_from && has_to && to < from)) {
        return HTTP_RANGE_WHOLE;
    }
    if (!has_from) {
        return last(to, size, range);
    }
    if (from >= size) {
        return HTTP_RANGE_NONE;
    }
    range->offset = from;
    range->length = has_to && to < size - 1 ? to - from + 1 : size - from;
    return HTTP_RANGE_PART;
}
