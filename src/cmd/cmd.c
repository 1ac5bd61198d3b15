/* What every command uses to talk to people: see cmd.h. No stdio buffers, because cove starts too
 * often to set them up and a line that is written at once is not mixed with another's. */
#include "cmd/cmd.h"

#include "base/fd.h"
#include "cmd/show.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CMD_LINE_MAX 1024
#define CMD_WORD_MAX 32 /* of names that a misspelt one is compared with */

bool cmd_has_colours(int fd)
{
    const char *unwanted = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");

    return (unwanted == NULL || unwanted[0] == '\0') && terminal != NULL && terminal[0] != '\0' &&
           strcmp(terminal, "dumb") != 0 && isatty(fd) == 1;
}

static void say(const char *before, const char *fmt, va_list args)
{
    bool has_colours = cmd_has_colours(STDERR_FILENO);
    char text[CMD_LINE_MAX];
    char shown[CMD_LINE_MAX];
    char line[CMD_LINE_MAX + 32];
    int used = snprintf(text, sizeof(text), "%s", before);

    if (vsnprintf(text + used, sizeof(text) - (size_t)used, fmt, args) < 0)
        return;
    /* A path or a name in the text may hold a newline or a terminal's escape sequence. */
    show_escape(shown, sizeof(shown), text);
    used = snprintf(line, sizeof(line), "%scove:%s %s\n", has_colours ? "\033[1m" : "",
                    has_colours ? "\033[0m" : "", shown);
    (void)fd_write_full(STDERR_FILENO, line, (size_t)used);
}

void cmd_say(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say("", fmt, args);
    va_end(args);
}

bool cmd_warns(void)
{
    const char *wanted = getenv("COVE_WARNINGS");

    return wanted == NULL || strcmp(wanted, "none") != 0;
}

void cmd_no_warnings(void)
{
    (void)setenv("COVE_WARNINGS", "none", 1);
}

void cmd_warn(const char *fmt, ...)
{
    va_list args;

    if (!cmd_warns())
        return;
    va_start(args, fmt);
    say("warning: ", fmt, args);
    va_end(args);
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

int cmd_out(const char *text, size_t size, struct error *err)
{
    if (cmd_print(text, size) < 0)
        return error_set(err, "stdio", errno, "standard output: it cannot be written");
    return 0;
}

int cmd_print_line(char *text)
{
    size_t size;
    int result;

    if (text == NULL) {
        errno = ENOMEM;
        return -1;
    }
    size = strlen(text);
    text[size] = '\n'; /* in place of the NUL: one write, no second copy */
    result = cmd_print(text, size + 1);
    free(text);
    return result;
}

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t cmd_distance(const char *one, const char *other)
{
    size_t rows[3][CMD_WORD_MAX + 1]; /* this one, the one above, the one above that */
    size_t width = strlen(other);
    size_t height = strlen(one);

    if (width > CMD_WORD_MAX || height > CMD_WORD_MAX)
        return CMD_WORD_MAX;
    if (height >= 2 && height < width && memcmp(one, other, height) == 0)
        return 1;
    for (size_t x = 0; x <= width; x++)
        rows[0][x] = x;
    for (size_t y = 1; y <= height; y++) {
        size_t *row = rows[y % 3];
        const size_t *above = rows[(y + 2) % 3];
        const size_t *twice_above = rows[(y + 1) % 3];

        row[0] = y;
        for (size_t x = 1; x <= width; x++) {
            row[x] = min_of(above[x - 1] + (one[y - 1] == other[x - 1] ? 0 : 1),
                            min_of(above[x], row[x - 1]) + 1);
            if (x > 1 && y > 1 && one[y - 1] == other[x - 2] && one[y - 2] == other[x - 1])
                row[x] = min_of(row[x], twice_above[x - 2] + 1); /* two that changed places */
        }
    }
    return rows[height % 3][width];
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
