/* Errors: see err.h. Nothing here allocates, so that it works in a child after clone. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *err, const char *code, int errnum, const char *fmt, ...)
{
    va_list args;
    int used;

    err->errnum = errnum;
    (void)snprintf(err->code, sizeof(err->code), "%s", code);
    va_start(args, fmt);
    used = vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    if (errnum != 0 && used >= 0 && (size_t)used < sizeof(err->text))
        (void)snprintf(err->text + used, sizeof(err->text) - (size_t)used, ": %s",
                       strerror(errnum));
    return -1;
}

int error_wrap(struct error *err, const char *fmt, ...)
{
    char inner[ERROR_TEXT_MAX];
    va_list args;
    int used;

    memcpy(inner, err->text, sizeof(inner));
    va_start(args, fmt);
    used = vsnprintf(err->text, sizeof(err->text), fmt, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof(err->text) - 3)
        (void)snprintf(err->text + used, sizeof(err->text) - (size_t)used, ": %.*s",
                       (int)(sizeof(err->text) - (size_t)used - 3), inner);
    return -1;
}
