/* What the keeper tells its operator, and the lesser of two moments: see keeper.h. */
#include "base/fd.h"
#include "keeper/keeper.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024

void keeper_say(const char *code, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    size_t size = (size_t)snprintf(line, sizeof(line), "cove-keeper: %s: ", code);
    va_list args;
    int used;

    va_start(args, fmt);
    used = vsnprintf(line + size, sizeof(line) - size - 1, fmt, args);
    va_end(args);
    size += used > 0 ? (size_t)used : 0;
    if (size > sizeof(line) - 2)
        size = sizeof(line) - 2;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[size++] = '\n';
    (void)fd_write_full(STDERR_FILENO, line, size);
}

uint64_t keeper_sooner(uint64_t one, uint64_t other)
{
    if (one == 0 || other == 0)
        return one == 0 ? other : one;
    return one < other ? one : other;
}
