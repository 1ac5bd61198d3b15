/* Characters of UTF-8: see utf8.h. Pure code; hostile bytes of any length are fine. */
#include "base/utf8.h"

/* The bytes that may follow a first one: the second has a range of its own where shorter forms exist, where
 * surrogates would be, and where Unicode ends. */
static size_t lead(unsigned char first, unsigned char *low, unsigned char *high)
{
    *low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    *high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

size_t utf8_length(const void *data, size_t size, size_t *bad)
{
    const unsigned char *bytes = data;
    unsigned char low, high;
    size_t length = lead(bytes[0], &low, &high);

    *bad = 1;
    if (length <= 1)
        return length;
    while (*bad < length) {
        if (*bad == size || bytes[*bad] < low || bytes[*bad] > high)
            return 0;
        low = 0x80;
        high = 0xBF;
        ++*bad;
    }
    return length;
}

uint32_t utf8_value(const void *data, size_t length)
{
    const unsigned char *bytes = data;
    uint32_t value = length == 1 ? bytes[0] : bytes[0] & (0x7fU >> length);

    for (size_t i = 1; i < length; i++)
        value = value << 6 | (bytes[i] & 0x3fU);
    return value;
}

size_t utf8_whole(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    size_t bad;

    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char low, high;
        size_t length = lead(bytes[size - back], &low, &high);

        if (length == 1)
            return size;
        if (length > back && utf8_length(bytes + size - back, back, &bad) == 0 && bad == back)
            return size - back;
        if (length != 0)
            return size;
    }
    return size;
}

size_t utf8_inside(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    size_t inside = 0;

    while (inside < size && inside < 3 && (bytes[inside] & 0xC0U) == 0x80U)
        inside++;
    return inside;
}

bool utf8_is_valid(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    size_t bad;

    for (size_t at = 0; at < size;) {
        size_t length = bytes[at] < 0x80 ? 1 : utf8_length(bytes + at, size - at, &bad);

        if (length == 0)
            return false;
        at += length;
    }
    return true;
}
