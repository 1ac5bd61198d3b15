/* What every command uses to talk to people: see cmd.h. No stdio buffers, because cove starts too
 * often to set them up and a line that is written at once is not mixed with another's. */
#include "cmd/cmd.h"

#include "base/fd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CMD_LINE_MAX 1024

void cmd_say(const char *fmt, ...)
{
    static const char prefix[] = "cove: ";
    char line[CMD_LINE_MAX];
    size_t size = sizeof(prefix) - 1;
    va_list args;
    int used;

    memcpy(line, prefix, size);
    va_start(args, fmt);
    used = vsnprintf(line + size, sizeof(line) - size - 1, fmt, args);
    va_end(args);
    if (used < 0)
        return;
    size += (size_t)used;
    if (size > sizeof(line) - 2)
        size = sizeof(line) - 2;
    /* A path or a name in the text may hold a newline or a terminal's escape sequence. */
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[size++] = '\n';
    (void)fd_write_full(STDERR_FILENO, line, size);
}

int cmd_fail(const struct error *err)
{
    cmd_say("%s", err->text);
    return CMD_FAILED;
}

int cmd_print(const char *text, size_t size)
{
    return fd_write_full(STDOUT_FILENO, text, size);
}

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t cmd_distance(const char *one, const char *other)
{
    size_t row[CMD_WORD_MAX + 1];
    size_t width = strlen(other);
    size_t height = strlen(one);

    if (width > CMD_WORD_MAX || height > CMD_WORD_MAX)
        return CMD_WORD_MAX;
    if (height >= 2 && height < width && memcmp(one, other, height) == 0)
        return 1;
    for (size_t x = 0; x <= width; x++)
        row[x] = x;
    for (size_t y = 1; y <= height; y++) {
        size_t diagonal = row[0];

        row[0] = y;
        for (size_t x = 1; x <= width; x++) {
            size_t above = row[x];
            size_t change = diagonal + (one[y - 1] == other[x - 1] ? 0 : 1);

            row[x] = min_of(change, min_of(above, row[x - 1]) + 1);
            diagonal = above;
        }
    }
    return row[width];
}

int cmd_is_near(const char *word, size_t distance)
{
    size_t length = strlen(word);

    return distance <= (length < 6 ? 1U : 2U) || distance <= length / 3;
}

void cmd_signals_add(sigset_t *set)
{
    static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    struct sigaction action;

    for (size_t i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
        if (sigaction(forwarded[i], NULL, &action) < 0 || action.sa_handler != SIG_IGN)
            (void)sigaddset(set, forwarded[i]);
}

bool cmd_signal_ends(int number)
{
    return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}
