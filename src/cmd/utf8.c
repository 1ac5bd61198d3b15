/* Which bytes are a character: see utf8.h. */
#include "cmd/utf8.h"

#include <stdbool.h>

static bool byte_continues(const unsigned char *text, size_t at, size_t size)
{
    return at < size && (text[at] & 0xC0U) == 0x80U;
}

size_t utf8_length(const unsigned char *text, size_t size, size_t *bad)
{
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    size_t length;

    *bad = 1;
    if (text[0] < 0x80)
        return 1;
    if (text[0] < 0xC2 || text[0] > 0xF4)
        return 0;
    length = text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4;
    if (text[0] == 0xE0)
        low = 0xA0; /* shorter forms exist */
    else if (text[0] == 0xED)
        high = 0x9F; /* surrogates */
    else if (text[0] == 0xF0)
        low = 0x90; /* shorter forms exist */
    else if (text[0] == 0xF4)
        high = 0x8F; /* beyond U+10FFFF */
    if (size < 2 || text[1] < low || text[1] > high)
        return 0;
    for (*bad = 2; *bad < length; (*bad)++)
        if (!byte_continues(text, *bad, size))
            return 0;
    return length;
}
