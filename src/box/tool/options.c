/* Options of the tools: one table. Which verb takes what the engine decides, whose table of routes this
 * follows; an option that nobody knows is an error, so that nothing is ever silently left out. */
#include "box/tool/parts.h"

#include <stddef.h>
#include <string.h>

enum kind { FLAG, NUMBER, OCTAL, TEXT, GLOB };

#define FIELD(member) offsetof(struct options, member)

static const struct {
    const char *option;
    enum kind kind;
    size_t at;
    const char *verb; /* only of this one; NULL: of all */
} rows[] = {
    {"--beneath", TEXT, FIELD(beneath), NULL},
    {"--follow", FLAG, FIELD(follow), NULL},
    {"--no-follow", FLAG, FIELD(no_follow), NULL},
    {"--recursive", FLAG, FIELD(recursive), NULL},
    {"--parents", FLAG, FIELD(parents), NULL},
    {"--replace", FLAG, FIELD(replace), NULL},
    {"--missing-ok", FLAG, FIELD(missing_ok), NULL},
    {"--fixed", FLAG, FIELD(is_fixed), NULL},
    {"--ignore-case", FLAG, FIELD(ignore_case), NULL},
    {"--word", FLAG, FIELD(is_word), NULL},
    {"--multiline", FLAG, FIELD(is_multiline), NULL},
    {"--depth", NUMBER, FIELD(depth), NULL},
    {"--limit", NUMBER, FIELD(limit), NULL},
    {"--offset", NUMBER, FIELD(offset), NULL},
    {"--length", NUMBER, FIELD(length), NULL},
    {"--mode", OCTAL, FIELD(mode), NULL},
    {"--before", NUMBER, FIELD(before), NULL},
    {"--after", NUMBER, FIELD(after_lines), "grep"},
    {"--after", TEXT, FIELD(after), NULL},
    {"--per-file", NUMBER, FIELD(per_file), NULL},
    {"--max-file-bytes", NUMBER, FIELD(max_file_bytes), NULL},
    {"--time-limit-ms", NUMBER, FIELD(time_limit_ms), NULL},
    {"--strip", NUMBER, FIELD(strip), NULL},
    {"--limit-bytes", NUMBER, FIELD(limit_bytes), NULL},
    {"--limit-entries", NUMBER, FIELD(limit_entries), NULL},
    {"--hidden", NUMBER, FIELD(hidden), NULL},
    {"--owner", TEXT, FIELD(owner), NULL},
    {"--name", TEXT, FIELD(name), NULL},
    {"--value", TEXT, FIELD(value), NULL},
    {"--pattern", TEXT, FIELD(pattern), NULL},
    {"--type", TEXT, FIELD(type), NULL},
    {"--glob", GLOB, 0, NULL},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static int parse_number(const char *option, const char *text, unsigned base, uint64_t *value,
                        struct error *err)
{
    uint64_t sum = 0;

    if (text == NULL || *text == '\0')
        return fail(err, 0, "bad_option", "%s takes a number", option);
    for (const char *at = text; *at != '\0'; at++) {
        unsigned digit = (unsigned)(*at - '0');

        if (*at < '0' || digit >= base || sum > (UINT64_MAX - digit) / base)
            return fail(err, 0, "bad_option", "%s takes a number, not \"%.60s\"", option, text);
        sum = sum * base + digit;
    }
    *value = sum;
    return 0;
}

static int take(struct options *options, size_t row, const char *value, struct error *err)
{
    void *field = (char *)options + rows[row].at;

    switch (rows[row].kind) {
    case FLAG:
        *(bool *)field = true;
        return 0;
    case NUMBER:
        return parse_number(rows[row].option, value, 10, field, err);
    case OCTAL:
        return parse_number(rows[row].option, value, 8, field, err);
    case TEXT:
        *(const char **)field = value;
        return 0;
    case GLOB:
        if (options->globs_count == TOOL_GLOBS_MAX)
            return fail(err, 0, "bad_option", "at most %d globs can be given", TOOL_GLOBS_MAX);
        options->globs[options->globs_count++] = value;
        return 0;
    }
    return -1;
}

static size_t find_row(const char *verb, const char *option)
{
    size_t row = 0;

    while (row < ROWS && (strcmp(rows[row].option, option) != 0 ||
                          (rows[row].verb != NULL && strcmp(rows[row].verb, verb) != 0)))
        row++;
    return row;
}

static void begin(struct options *options)
{
    memset(options, 0, sizeof(*options));
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind == NUMBER || rows[i].kind == OCTAL)
            *(uint64_t *)((char *)options + rows[i].at) = TOOL_SAID_NOT;
}

int options_parse(int argc, char **argv, struct options *options, struct error *err)
{
    int at = 1;

    begin(options);
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        size_t row = find_row(argv[0], argv[at]);
        const char *value = NULL;

        if (row == ROWS)
            return fail(err, 0, "bad_option", "there is no option \"%.60s\"", argv[at]);
        if (rows[row].kind != FLAG) {
            if (at + 1 >= argc)
                return fail(err, 0, "bad_option", "%s takes a value", argv[at]);
            value = argv[++at];
        }
        if (take(options, row, value, err) < 0)
            return -1;
    }
    if (options->mode != TOOL_SAID_NOT && options->mode > 07777)
        return fail(err, 0, "bad_option", "a mode is at most 7777");
    at += at < argc;
    options->operands = argv + at;
    options->operands_count = (unsigned)(argc - at);
    return 0;
}
