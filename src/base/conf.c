/* The configuration: see conf.h.
 *
 * A line is copied, checked and taken apart in place. Nothing is guessed: no quotes, no escapes, no
 * continuation, so that a value is what stands there. Must never read beyond the text, which may be
 * a hostile file's. */
#include "base/conf.h"

#include "base/fd.h"
#include "base/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef __clang__
/* gcc's analyser loses what is stored through an offset and calls it a leak; conf_free() frees it. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

/* Names that an error lists as allowed. */
#define ALLOWED_MAX 320

struct reader {
    const struct conf_row *table;
    const char *what;
    void *target;
    unsigned line;
    unsigned *seen; /* by row: the line that gave it, 0 where none did */
    char section[CONF_NAME_MAX + 1];
    /* Below a section that is not known no line can be judged. */
    bool is_lost;
    conf_fault tell; /* NULL: the first fault ends it */
    void *arg;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_name(const char *text)
{
    size_t length = strspn(text,
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return length > 0 && length <= CONF_NAME_MAX && text[length] == '\0';
}

static char *trim(char *text)
{
    size_t length;

    while (is_blank(*text))
        text++;
    length = strlen(text);
    while (length > 0 && is_blank(text[length - 1]))
        text[--length] = '\0';
    return text;
}

static int no_memory(struct error *err)
{
    return error_set(err, "no_memory", ENOMEM, "there is no memory for the configuration");
}

/* ---- values ---- */

static int value_text(char **text, const char *value, struct error *err)
{
    char *copy = strdup(value);

    if (copy == NULL)
        return no_memory(err);
    free(*text);
    *text = copy;
    return 0;
}

static void list_free(char **list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free(list[i]);
    free(list);
}

static int value_list(const char *name, char ***target, const char *value, struct error *err)
{
    _cleanup_free_ char *copy = strdup(value);
    size_t most = 2, count = 0;
    char **list;

    for (const char *at = value; *at != '\0'; at++)
        most += *at == ',';
    list = copy == NULL ? NULL : calloc(most, sizeof(*list));
    if (list == NULL)
        return no_memory(err);
    for (char *at = copy, *next; at != NULL && *value != '\0'; at = next) {
        const char *item;

        next = strchr(at, ',');
        if (next != NULL)
            *next++ = '\0';
        item = trim(at);
        if (*item == '\0') {
            list_free(list);
            return error_set(err, "bad_value", 0,
                             "%s: \"%s\" has an empty item; separate items by one comma each", name,
                             value);
        }
        list[count] = strdup(item);
        if (list[count++] == NULL) {
            list_free(list);
            return no_memory(err);
        }
    }
    list_free(*target);
    *target = list;
    return 0;
}

static int value_bool(const char *name, bool *target, const char *value, struct error *err)
{
    static const char *const words[] = {"no", "yes", "off", "on", "false", "true"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(value, words[i]) != 0)
            continue;
        *target = i % 2 == 1;
        return 0;
    }
    return error_set(err, "bad_value", 0, "%s: \"%s\" is not yes or no", name, value);
}

static void allow(char *allowed, const char *name)
{
    size_t used = strlen(allowed);

    (void)snprintf(allowed + used, ALLOWED_MAX - used, "%s%s", used == 0 ? "" : ", ", name);
}

static int value_choice(const char *name, const char *const *choices, int *target,
                        const char *value, struct error *err)
{
    char allowed[ALLOWED_MAX] = "";

    for (int i = 0; choices[i] != NULL; i++) {
        if (strcmp(value, choices[i]) == 0) {
            *target = i;
            return 0;
        }
        allow(allowed, choices[i]);
    }
    return error_set(err, "bad_value", 0, "%s: \"%s\" is none of: %s", name, value, allowed);
}

static int value_number(const struct conf_row *row, const char *value, uint64_t *number,
                        struct error *err)
{
    uint64_t high = row->high == 0 ? UINT64_MAX : row->high;

    if (row->type == CONF_COUNT)
        return parse_count(row->name, value, row->low, high, number, err);
    if (row->type == CONF_SIZE && parse_size(row->name, value, number, err) < 0)
        return -1;
    if (row->type == CONF_DURATION && parse_duration(row->name, value, number, err) < 0)
        return -1;
    if (*number < row->low)
        return error_set(err, "bad_value", 0, "%s: \"%s\" is too little; the least is %llu%s",
                         row->name, value, (unsigned long long)row->low,
                         row->type == CONF_SIZE ? " bytes" : "ms");
    if (*number > high)
        return error_set(err, "bad_value", 0, "%s: \"%s\" is too much; the most is %llu%s",
                         row->name, value, (unsigned long long)high,
                         row->type == CONF_SIZE ? " bytes" : "ms");
    return 0;
}

static int value_cpus(const struct conf_row *row, const char *value, uint32_t *target,
                      struct error *err)
{
    uint32_t milli = 0;

    if (!(row->low == 0 && strcmp(value, "0") == 0) &&
        parse_cpus(row->name, value, &milli, err) < 0)
        return -1;
    if (milli < row->low || (row->high != 0 && milli > row->high))
        return error_set(err, "bad_value", 0, "%s: \"%s\" is not from %g to %g CPUs", row->name,
                         value, (double)row->low / 1000, (double)row->high / 1000);
    *target = milli;
    return 0;
}

static int value_set(const struct conf_row *row, void *target, const char *value, struct error *err)
{
    void *at = (char *)target + row->offset;
    uint64_t number = 0;

    if (*value == '\0' && row->type != CONF_LIST)
        return error_set(err, "bad_value", 0,
                         "%s has no value; write one, or leave the line out for the default",
                         row->name);
    switch (row->type) {
    case CONF_TEXT:
        if (row->check != NULL && row->check(value, err) < 0)
            return error_wrap(err, "%s", row->name);
        return value_text(at, value, err);
    case CONF_LIST:
        return value_list(row->name, at, value, err);
    case CONF_SIZE:
    case CONF_DURATION:
    case CONF_COUNT:
        if (value_number(row, value, &number, err) < 0)
            return -1;
        *(uint64_t *)at = number;
        return 0;
    case CONF_CPUS:
        return value_cpus(row, value, at, err);
    case CONF_BOOL:
        return value_bool(row->name, at, value, err);
    case CONF_CHOICE:
        return value_choice(row->name, row->choices, at, value, err);
    case CONF_ANY:
    case CONF_OTHER:
        break;
    }
    return 0;
}

/* Leaves a zero, and a list that has no item where a list is owed. */
static int value_default(const struct conf_row *row, void *target, struct error *err)
{
    void *at = (char *)target + row->offset;

    switch (row->type) {
    case CONF_TEXT:
        *(char **)at = NULL;
        break;
    case CONF_LIST:
        *(char ***)at = NULL;
        return value_list(row->name, at, row->fallback == NULL ? "" : row->fallback, err);
    case CONF_SIZE:
    case CONF_DURATION:
    case CONF_COUNT:
        *(uint64_t *)at = 0;
        break;
    case CONF_CPUS:
        *(uint32_t *)at = 0;
        break;
    case CONF_BOOL:
        *(bool *)at = false;
        break;
    case CONF_CHOICE:
        *(int *)at = 0;
        break;
    case CONF_ANY:
    case CONF_OTHER:
        return 0;
    }
    return row->fallback == NULL ? 0 : value_set(row, target, row->fallback, err);
}

void conf_free(const struct conf_row *table, void *target)
{
    for (const struct conf_row *row = table; row->section != NULL; row++) {
        void *at = (char *)target + row->offset;

        if (row->type == CONF_TEXT) {
            free(*(char **)at);
            *(char **)at = NULL;
        } else if (row->type == CONF_LIST) {
            list_free(*(char ***)at);
            *(char ***)at = NULL;
        } else if (row->type == CONF_SIZE || row->type == CONF_DURATION ||
                   row->type == CONF_COUNT) {
            *(uint64_t *)at = 0;
        } else if (row->type == CONF_CPUS) {
            *(uint32_t *)at = 0;
        } else if (row->type == CONF_BOOL) {
            *(bool *)at = false;
        } else if (row->type == CONF_CHOICE) {
            *(int *)at = 0;
        }
    }
}

/* ---- the table ---- */

static bool has_section(const struct conf_row *table, const char *section)
{
    for (const struct conf_row *row = table; row->section != NULL; row++)
        if (strcmp(row->section, section) == 0)
            return true;
    return false;
}

/* The row of a name, or the one that takes any name of its section. */
static const struct conf_row *row_find(const struct conf_row *table, const char *section,
                                       const char *name)
{
    for (const struct conf_row *row = table; row->section != NULL; row++)
        if (strcmp(row->section, section) == 0 &&
            (row->name == NULL || strcmp(row->name, name) == 0))
            return row;
    return NULL;
}

static int unknown_section(const struct conf_row *table, const char *section, struct error *err)
{
    char allowed[ALLOWED_MAX] = "";

    for (const struct conf_row *row = table; row->section != NULL; row++) {
        bool is_first = true;

        for (const struct conf_row *before = table; before < row; before++)
            is_first = is_first && strcmp(before->section, row->section) != 0;
        if (is_first)
            allow(allowed, row->section);
    }
    return error_set(err, "bad_config", 0, "there is no section [%s]; there are: %s", section,
                     allowed);
}

static int unknown_name(const struct conf_row *table, const char *section, const char *name,
                        struct error *err)
{
    char allowed[ALLOWED_MAX] = "";

    for (const struct conf_row *row = table; row->section != NULL; row++)
        if (strcmp(row->section, section) == 0)
            allow(allowed, row->name);
    return error_set(err, "bad_config", 0, "[%s] has no \"%s\"; it has: %s", section, name,
                     allowed);
}

/* ---- lines ---- */

/* What is behind a '#' that starts the line or follows a blank; a path may have one within. */
static void comment_cut(char *line)
{
    for (char *at = line; *at != '\0'; at++) {
        if (*at == '#' && (at == line || is_blank(at[-1]))) {
            *at = '\0';
            return;
        }
    }
}

static int line_section(struct reader *reader, char *line, struct error *err)
{
    size_t length = strlen(line);
    char *name;

    reader->is_lost = true;
    if (length < 2 || line[length - 1] != ']')
        return error_set(err, "bad_config", 0, "a section is written as [NAME]");
    line[length - 1] = '\0';
    name = trim(line + 1);
    if (!is_name(name))
        return error_set(err, "bad_config", 0,
                         "the name of a section is up to %u letters, digits, \".\", \"_\", \"-\"",
                         CONF_NAME_MAX);
    if (!has_section(reader->table, name))
        return unknown_section(reader->table, name, err);
    (void)snprintf(reader->section, sizeof(reader->section), "%s", name);
    reader->is_lost = false;
    return 0;
}

static int line_set(struct reader *reader, const char *name, const char *value, struct error *err)
{
    const struct conf_row *row = row_find(reader->table, reader->section, name);
    unsigned *seen;

    if (row == NULL)
        return unknown_name(reader->table, reader->section, name, err);
    if (row->type == CONF_OTHER)
        return 0;
    if (row->name == NULL) {
        if (*value == '\0')
            return error_set(err, "bad_value", 0, "%s has no value; write NAME = VALUE", name);
        return row->any(reader->target, row->section, name, value, err);
    }
    seen = &reader->seen[row - reader->table];
    if (*seen != 0)
        return error_set(err, "bad_config", 0, "%s is given again, after line %u; keep one", name,
                         *seen);
    *seen = reader->line;
    return value_set(row, reader->target, value, err);
}

static int line_read(struct reader *reader, char *line, struct error *err)
{
    char *equals, *name;

    comment_cut(line);
    line = trim(line);
    if (*line == '\0')
        return 0;
    if (*line == '[')
        return line_section(reader, line, err);
    equals = strchr(line, '=');
    if (equals == NULL)
        return error_set(err, "bad_config", 0, "a line is NAME = VALUE, [SECTION] or # COMMENT");
    *equals = '\0';
    name = trim(line);
    if (!is_name(name))
        return error_set(err, "bad_config", 0,
                         "what is before \"=\" is a name of up to %u letters, digits, \".\", "
                         "\"_\", \"-\"",
                         CONF_NAME_MAX);
    if (reader->is_lost)
        return 0;
    if (reader->section[0] == '\0')
        return error_set(err, "bad_config", 0,
                         "%s stands before the first section; put [SECTION] above it", name);
    return line_set(reader, name, trim(equals + 1), err);
}

/* Copies the line at `text` (of `size` bytes), for it is taken apart in place. */
static int line_take(struct reader *reader, const char *text, size_t size, struct error *err)
{
    char line[CONF_LINE_MAX + 1];

    if (size > 0 && text[size - 1] == '\r')
        size--;
    if (size > CONF_LINE_MAX)
        return error_set(err, "bad_config", 0, "the line has %zu bytes; the most is %u", size,
                         CONF_LINE_MAX);
    for (size_t i = 0; i < size; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\t') || text[i] == 0x7f)
            return error_set(err, "bad_config", 0,
                             "byte %zu of the line is a control character; the file is text",
                             i + 1);
    memcpy(line, text, size);
    line[size] = '\0';
    return line_read(reader, line, err);
}

static int lines_read(struct reader *reader, const char *text, size_t size, struct error *err)
{
    unsigned faults = 0;
    struct error fault;

    for (size_t at = 0; at < size && faults < CONF_FAULTS_MAX;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end == NULL ? size - at : (size_t)(end - (text + at));

        reader->line++;
        if (line_take(reader, text + at, length, &fault) < 0) {
            (void)error_wrap(&fault, "%s:%u", reader->what, reader->line);
            (void)snprintf(fault.code, sizeof(fault.code), "bad_config");
            if (faults++ == 0)
                *err = fault;
            if (reader->tell == NULL)
                return -1;
            reader->tell(reader->arg, &fault);
        }
        at += length + 1;
    }
    return faults == 0 ? 0 : -1;
}

static int table_default(const struct conf_row *table, void *target, struct error *err)
{
    int status = 0;

    /* All of them even after a failure, so that conf_free() finds no field that was never set. */
    for (const struct conf_row *row = table; row->section != NULL; row++)
        if (value_default(row, target, err) < 0)
            status = -1;
    return status;
}

static size_t table_count(const struct conf_row *table)
{
    size_t count = 0;

    while (table[count].section != NULL)
        count++;
    return count;
}

static int text_read(struct reader *reader, const char *text, size_t size, struct error *err)
{
    const struct conf_row *table = reader->table;
    _cleanup_free_ unsigned *seen = calloc(table_count(table) + 1, sizeof(*seen));
    int status = table_default(table, reader->target, err);

    reader->seen = seen;
    if (status == 0 && seen == NULL)
        status = no_memory(err);
    if (status == 0 && size > CONF_SIZE_MAX)
        status = error_set(err, "bad_config", 0, "%s has more than %u KiB; is it the right file?",
                           reader->what, CONF_SIZE_MAX >> 10);
    if (status == 0)
        status = lines_read(reader, text, size, err);
    if (status < 0)
        conf_free(table, reader->target);
    return status;
}

int conf_parse(const struct conf_row *table, const char *what, const char *text, size_t size,
               void *target, struct error *err)
{
    struct reader reader = {.table = table, .what = what, .target = target};

    return text_read(&reader, text, size, err);
}

int conf_read_all(const struct conf_row *table, const char *what, int fd, void *target,
                  conf_fault tell, void *arg, struct error *err)
{
    struct reader reader = {
        .table = table, .what = what, .target = target, .tell = tell, .arg = arg};
    _cleanup_free_ char *text = malloc(CONF_SIZE_MAX + 1);
    size_t size = 0;

    if (text == NULL)
        return no_memory(err);
    while (size < CONF_SIZE_MAX + 1) {
        ssize_t n = pread(fd, text + size, CONF_SIZE_MAX + 1 - size, (off_t)size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, "bad_config", errno, "cannot read %s", what);
        if (n == 0)
            break;
        size += (size_t)n;
    }
    return text_read(&reader, text, size, err);
}

int conf_read(const struct conf_row *table, const char *what, int fd, void *target,
              struct error *err)
{
    return conf_read_all(table, what, fd, target, NULL, NULL, err);
}

int conf_set(const struct conf_row *table, const char *what, const char *section, const char *name,
             const char *value, void *target, struct error *err)
{
    const struct conf_row *row = row_find(table, section, name);
    int status;

    if (!has_section(table, section))
        status = unknown_section(table, section, err);
    else if (row == NULL)
        status = unknown_name(table, section, name, err);
    else if (row->name == NULL && row->type == CONF_ANY)
        status = row->any(target, section, name, value, err);
    else
        status = value_set(row, target, value, err);
    return status < 0 ? error_wrap(err, "%s", what) : 0;
}
