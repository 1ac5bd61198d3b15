/* Text: see text.h. Pure functions; hostile bytes of any length are fine. */
#include "front/native/text.h"

bool text_is_line(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}
