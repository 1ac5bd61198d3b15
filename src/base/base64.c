/* Base64: see base64.h. Pure code; hostile text of any length is fine. */
#include "base/base64.h"

#include <stdint.h>
#include <string.h>

#define COMMON "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static const char standard[] = COMMON "+/", of_urls[] = COMMON "-_";

/* Writes no padding; returns the end. */
static char *encode(const char *alphabet, const unsigned char *from, size_t size, char *into)
{
    while (size > 0) {
        uint32_t three = (uint32_t)from[0] << 16 | (size > 1 ? (uint32_t)from[1] << 8 : 0) |
                         (size > 2 ? from[2] : 0);

        *into++ = alphabet[three >> 18];
        *into++ = alphabet[three >> 12 & 63];
        if (size > 1)
            *into++ = alphabet[three >> 6 & 63];
        if (size > 2)
            *into++ = alphabet[three & 63];
        from += 3;
        size -= size < 3 ? size : 3;
    }
    return into;
}

/* Three bytes of four letters; negative: a letter is none. */
static int32_t three(const signed char *sextets, const char *text, unsigned char *bytes)
{
    const unsigned char *letters = (const unsigned char *)text;
    int32_t bits = sextets[letters[0]] * (1 << 18) | sextets[letters[1]] * (1 << 12) |
                   sextets[letters[2]] * (1 << 6) | sextets[letters[3]];

    bytes[0] = (unsigned char)(bits >> 16);
    bytes[1] = (unsigned char)(bits >> 8);
    bytes[2] = (unsigned char)bits;
    return bits;
}

/* Of letters without padding. By a table, for a loop waits that decodes what clients send. */
static ptrdiff_t decode(const char *alphabet, const char *text, size_t size, void *into)
{
    signed char sextets[256];
    unsigned char *bytes = into, end[3];
    size_t rest = size % 4;
    char last[4];
    int32_t bits = 0;

    if (rest == 1)
        return -1;
    memset(sextets, -1, sizeof(sextets));
    for (signed char i = 0; i < 64; i++)
        sextets[(unsigned char)alphabet[i]] = i;
    for (; size > rest; size -= 4, text += 4, bytes += 3)
        bits |= three(sextets, text, bytes);
    if (rest > 0) {
        memset(last, 'A', sizeof(last));
        memcpy(last, text, rest);
        bits |= three(sextets, last, end);
        memcpy(bytes, end, rest - 1);
        bytes += rest - 1;
        /* Bits of the last letter beyond the bytes must be 0, or two texts would be the same. */
        if (end[2] != 0 || (rest == 2 && end[1] != 0))
            return -1;
    }
    return bits < 0 ? -1 : bytes - (unsigned char *)into;
}

void base64_encode(const void *data, size_t size, char *into)
{
    char *end = encode(standard, data, size, into);

    memset(end, '=', BASE64_SIZE(size) - (size_t)(end - into));
}

ptrdiff_t base64_decode(const char *text, size_t size, void *into)
{
    size_t padding = 0;

    while (padding < 2 && padding < size && text[size - 1 - padding] == '=')
        padding++;
    return size % 4 != 0 ? -1 : decode(standard, text, size - padding, into);
}

void base64_url_encode(const void *data, size_t size, char *into)
{
    *encode(of_urls, data, size, into) = '\0';
}

ptrdiff_t base64_url_decode(const char *text, size_t size, void *into)
{
    return decode(of_urls, text, size, into);
}
