/* Log lines: see log.h. A line is built on the stack and written at once, so that lines of several
 * threads and processes do not mix; where stderr takes nothing, the line is lost and the program is
 * not held up by it. */
#include "base/log.h"

#include "base/clock.h"
#include "base/log_parts.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What a process is called and how much it says is the same wherever it speaks: the one place here
 * where state of the whole program is the simple thing. */
static const char *log_program = "cove";
static enum log_level log_level_most = LOG_LEVEL_INFO;
static bool log_is_json;

static const char *const level_names[] = {LOG_LEVELS};

void log_start(const char *program, enum log_level level)
{
    log_program = program;
    log_level_most = level;
}

void log_use_json(bool is_json)
{
    log_is_json = is_json;
}

bool log_hears(enum log_level level)
{
    return level <= log_level_most;
}

/* Whether this line may be said; *left_out gets how many were not since the last one. Two threads
 * that meet here may say a line more or count one less, and no harm is done. */
static bool site_may(struct log_site *site, unsigned *left_out)
{
    unsigned long long second = clock_monotonic_ns() / 1000000000U + 1;

    *left_out = 0;
    if (site == NULL)
        return true;
    if (__atomic_exchange_n(&site->second, second, __ATOMIC_RELAXED) != second)
        __atomic_store_n(&site->said, 0, __ATOMIC_RELAXED);
    if (__atomic_fetch_add(&site->said, 1, __ATOMIC_RELAXED) >= LOG_BURST) {
        (void)__atomic_fetch_add(&site->left_out, 1, __ATOMIC_RELAXED);
        return false;
    }
    *left_out = __atomic_exchange_n(&site->left_out, 0, __ATOMIC_RELAXED);
    return true;
}

static bool is_plain(unsigned char c)
{
    return c >= ' ' && c != 0x7f;
}

/* Escapes what could end the line or move a terminal's cursor. Bytes of UTF-8 pass, but for those that
 * are control characters by themselves or, behind 0xc2, in UTF-8. */
static size_t escape(char *into, size_t room, const char *text)
{
    unsigned char before = 0;
    size_t used = 0;

    for (const unsigned char *at = (const unsigned char *)text; *at != '\0' && used + 5 < room;
         at++) {
        bool is_c1 = *at >= 0x80 && *at <= 0x9f && (before < 0x80 || before == 0xc2);

        if (is_plain(*at) && !is_c1)
            into[used++] = (char)*at;
        else
            used += (size_t)snprintf(into + used, room - used, "\\x%02x", *at);
        before = is_c1 ? 0 : *at;
    }
    into[used] = '\0';
    return used;
}

static size_t text_line(char *line, size_t room, const struct log_entry *entry)
{
    size_t used = (size_t)snprintf(line, 128, "%s %s %.32s %.32s ", entry->time, entry->level,
                                   entry->part, entry->code);

    used += escape(line + used, room - used - 32, entry->text);
    if (entry->left_out > 0)
        used += (size_t)snprintf(line + used, room - used, " left_out=%u", entry->left_out);
    line[used++] = '\n';
    return used;
}

void log_line(struct log_site *site, enum log_level level, const char *code, const char *fmt, ...)
{
    int saved = errno;
    char text[LOG_LINE_MAX], line[LOG_JSON_MAX], time[CLOCK_TEXT_SIZE];
    struct log_entry entry = {time, level_names[level], log_program, code, text, 0};
    size_t used;
    va_list args;
    ssize_t written;
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (!log_hears(level) || !site_may(site, &entry.left_out))
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    clock_format(clock_wall_ms(), time);
    used = log_is_json ? log_json(line, sizeof(line), &entry)
                       : text_line(line, LOG_LINE_MAX + 128, &entry);
    /* A terminal that was stopped would hold us up for as long as it is. */
    if (poll(&room, 1, 0) == 0) {
        errno = saved;
        return;
    }
    do
        written = write(STDERR_FILENO, line, used);
    while (written < 0 && errno == EINTR);
    errno = saved;
}

/* As it is where that cannot be mistaken for more than one value, else between quotes. */
struct log_quoted log_quote(const char *text)
{
    struct log_quoted quoted = {""};
    size_t used = 0;
    const unsigned char *at = (const unsigned char *)(text == NULL ? "" : text);
    bool is_simple = *at != '\0';

    for (const unsigned char *look = at; *look != '\0'; look++)
        is_simple = is_simple && is_plain(*look) && strchr(" \"\\=", *look) == NULL;
    if (is_simple && strlen((const char *)at) < sizeof(quoted.text)) {
        (void)snprintf(quoted.text, sizeof(quoted.text), "%s", (const char *)at);
        return quoted;
    }
    quoted.text[used++] = '"';
    /* Room for one escape, for "..." and for the closing quote. */
    for (; *at != '\0' && used + 9 < sizeof(quoted.text); at++) {
        if (*at == '"' || *at == '\\')
            quoted.text[used++] = '\\';
        if (is_plain(*at))
            quoted.text[used++] = (char)*at;
        else
            used += (size_t)snprintf(quoted.text + used, 5, "\\x%02x", *at);
    }
    (void)snprintf(quoted.text + used, sizeof(quoted.text) - used, "%s\"",
                   *at == '\0' ? "" : "...");
    return quoted;
}
