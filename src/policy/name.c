/* Host names: the one form in which they are compared.
 *
 * Strict, for what is taken here as a name must not be an address, a pattern or a control character to
 * anybody after us. The same function reads rules and what boxes ask for. */
#include "policy/parts.h"

#include <stdio.h>
#include <string.h>

#define LABEL_MAX 63

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f');
}

/* What programs read as a part of an IPv4 address: decimal, octal, 0x. */
static bool is_number(const char *label, size_t length)
{
    bool hex = length >= 2 && label[0] == '0' && label[1] == 'x';

    for (size_t i = hex ? 2 : 0; i < length; i++)
        if (!(hex ? is_hex(label[i]) : is_digit(label[i])))
            return false;
    return true;
}

static const char *label_flaw(const char *label, size_t length)
{
    if (length == 0)
        return "between two dots, or before the first, there is nothing";
    if (length > LABEL_MAX)
        return "between two dots there are more than 63 characters";
    if (label[0] == '-' || label[length - 1] == '-')
        return "'-' is only inside of what is between two dots";
    for (size_t i = 0; i < length; i++) {
        char c = label[i];

        if (c == '*')
            return "'*' stands alone or in front of the first dot, as in *.example.com";
        if (!is_digit(c) && (c < 'a' || c > 'z') && c != '-' && c != '_')
            return "it has something else than letters, digits, '-', '_' and '.'";
    }
    return NULL;
}

const char *name_flaw(const char *text, char out[POLICY_NAME_MAX])
{
    size_t length = strnlen(text, POLICY_NAME_MAX + 1), start = 0;
    const char *flaw;

    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] >= 0x80)
            return "it is not ASCII; write its form that begins with xn--";
    if (length > 0 && text[length - 1] == '.')
        length--;
    if (length == 0)
        return "it is empty";
    if (length >= POLICY_NAME_MAX)
        return "it is longer than 253 characters";
    for (size_t i = 0; i < length; i++)
        out[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + ('a' - 'A') : text[i]);
    out[length] = '\0';
    for (size_t i = 0; i <= length; i++) {
        if (i < length && out[i] != '.')
            continue;
        flaw = label_flaw(out + start, i - start);
        if (flaw != NULL)
            return flaw;
        if (i == length && is_number(out + start, i - start))
            return "it ends in a number, and an address has four decimal ones, as 192.0.2.1";
        start = i + 1;
    }
    return NULL;
}

void name_turn(const char *name, size_t length, char *out)
{
    for (size_t i = 0; i < length; i++)
        out[i] = name[length - 1 - i];
    out[length] = '\0';
}

int policy_name(const char *text, char out[POLICY_NAME_MAX], struct error *err)
{
    const char *flaw = name_flaw(text, out);

    if (flaw == NULL)
        return 0;
    out[0] = '\0';
    return error_set(err, "bad_name", 0, "this is no host name: %s", flaw);
}
