/* What a long-running program tells its operator: lines on stderr, one write each.
 *
 *     2026-03-01T12:00:00.000Z warn engine sandbox_failed cannot start: no memory id=c0... ms=12
 *
 * Time, level, program, code (stable, for machines), then a text and key=value pairs. Whatever comes
 * in by the arguments, a line stays one line. What a client or a box named goes through log_quote(),
 * or it could forge a key. It must never hold a secret: no key, no token, no environment, no stdin. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
#define LOG_LEVELS "error", "warn", "info", "debug" /* in this order, for a CONF_CHOICE */

#define LOG_LINE_MAX 1024U
/* Lines of one site in one second; the next line of that site says how many were left out. */
#define LOG_BURST 20U

/* What one place in the code has said lately. All zero at first; threads may share it. */
struct log_site {
    unsigned long long second;
    unsigned said, left_out;
};

/* Before the first line; until then a program is called "cove" and speaks from "info" on. `program` is
 * kept. May be called again with another level. */
void log_start(const char *program, enum log_level level);
/* One JSON object a line from now on: time, level, part (the program), code, text; and `fields`, where the
 * text ends with key=value pairs. */
void log_use_json(bool is_json);
bool log_hears(enum log_level level);

#define log_say(level, code, ...)                           \
    do {                                                    \
        static struct log_site log_site_;                   \
        log_line(&log_site_, (level), (code), __VA_ARGS__); \
    } while (0)

/* For log_say(); `site` NULL: never left out. errno is kept. */
void log_line(struct log_site *site, enum log_level level, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* A text from outside as a value: log_say(..., "name=%s", log_quote(name).text). Cut where it is long. */
struct log_quoted {
    char text[512]; /* the text of an error fits */
};
struct log_quoted log_quote(const char *text);
