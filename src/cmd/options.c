/* Options of commands: see options.h. */
#include "cmd/options.h"

#include "base/fd.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int option_bad_value(struct error *err, const char *name, const char *value, const char *cause,
                     const char *remedy)
{
    return error_set(err, "bad_value", 0, "--%s %.200s: %s; %s", name, value, cause, remedy);
}

int option_no_memory(struct error *err)
{
    return error_set(err, "no_memory", 0,
                     "memory: the machine has none left for this; end something and try again");
}

bool option_is_one(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && strcmp(word, "--") != 0;
}

const struct option_row *option_find(const struct option_table *table, const char *word,
                                     const char **value)
{
    bool is_letter = word[1] != '-';
    const char *name = word + 2;
    size_t length;

    *value = NULL;
    if (is_letter && word[2] != '\0')
        return NULL;
    length = is_letter ? 0 : strcspn(name, "=");
    for (size_t i = 0; i < table->rows_count; i++) {
        const struct option_row *row = &table->rows[i];

        if (is_letter && row->letter == word[1])
            return row;
        if (is_letter || strlen(row->name) != length || memcmp(row->name, name, length) != 0)
            continue;
        if (name[length] == '=')
            *value = name + length + 1;
        return row;
    }
    return NULL;
}

static int option_unknown(const struct option_table *table, const char *word, struct error *err)
{
    const struct option_row *nearest = NULL;
    size_t best = (size_t)-1;
    char name[64];

    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    for (size_t i = 0; i < table->rows_count; i++) {
        size_t distance = cmd_distance(name + strspn(name, "-"), table->rows[i].name);

        if (distance < best) {
            best = distance;
            nearest = &table->rows[i];
        }
    }
    if (nearest != NULL && cmd_is_near(name + strspn(name, "-"), best))
        return error_set(err, "unknown_option", 0,
                         "%s: there is no such option; did you mean --%s?", name, nearest->name);
    return error_set(err, "unknown_option", 0,
                     "%s: there is no such option; cove %s --help lists them, and -- ends them",
                     name, table->command);
}

/* "-it" as "-i -t": switches whose letters are written together. 1; 0 where it is none such, -1. */
static int letters_take(const struct option_table *table, void *into, const char *word,
                        struct error *err)
{
    const struct option_row *row;
    char one[3] = "-";
    const char *value;

    if (word[1] == '-' || word[2] == '\0')
        return 0;
    for (const char *letter = word + 1; *letter != '\0'; letter++) {
        one[1] = *letter;
        row = option_find(table, one, &value);
        if (row == NULL || row->argument != NULL)
            return 0;
    }
    for (const char *letter = word + 1; *letter != '\0'; letter++) {
        one[1] = *letter;
        row = option_find(table, one, &value);
        if (row->take == NULL)
            *(bool *)((char *)into + row->at) = true;
        else if (row->take(into, NULL, err) < 0)
            return -1;
    }
    return 1;
}

static int option_take(const struct option_table *table, void *into, char **argv, int *at,
                       struct error *err)
{
    const char *value;
    const struct option_row *row = option_find(table, argv[*at], &value);
    int letters = row == NULL ? letters_take(table, into, argv[*at], err) : 0;

    if (letters != 0) {
        *at += 1;
        return letters < 0 ? -1 : 0;
    }
    if (row == NULL)
        return option_unknown(table, argv[*at], err);
    if (row->argument == NULL && value != NULL)
        return error_set(err, "bad_value", 0, "--%s: it takes no value; write --%s alone",
                         row->name, row->name);
    if (row->argument != NULL && value == NULL) {
        value = argv[*at + 1];
        if (value == NULL)
            return error_set(err, "bad_value", 0, "--%s: its value is missing; write --%s %s",
                             row->name, row->name, row->argument);
        *at += 1;
    }
    *at += 1;
    if (row->take != NULL)
        return row->take(into, value, err);
    if (row->argument == NULL)
        *(bool *)((char *)into + row->at) = true;
    else
        *(const char **)((char *)into + row->at) = value;
    return 0;
}

static int word_too_many(const struct option_table *table, const char *word, struct error *err)
{
    return error_set(
        err, "bad_value", 0,
        "%s: there is nothing that '%.200s' could be; cove %s --help says what it takes",
        table->command, word, table->command);
}

int options_parse(const struct option_table *table, void *into, int argc, char **argv,
                  struct option_words *words, struct error *err)
{
    size_t count = 0;
    bool ended = false; /* by "--" */
    int at = 1;

    *words = (struct option_words){0};
    while (at < argc) {
        if (!ended && option_is_one(argv[at])) {
            if (option_take(table, into, argv, &at, err) < 0)
                return -1;
            continue;
        }
        if (!ended && strcmp(argv[at], "--") == 0) {
            ended = true;
            at++;
            continue;
        }
        if (table->command_follows && count == table->words)
            break;
        if (count == table->words && !table->many)
            return word_too_many(table, argv[at], err);
        if (count < OPTIONS_WORDS_MAX)
            words->word[count] = argv[at];
        argv[++count] = argv[at++]; /* never ahead of what is read */
    }
    words->count = count;
    if (table->command_follows) {
        words->rest = argv + at;
    } else {
        argv[count + 1] = NULL;
        words->rest = argv + 1;
    }
    return 0;
}

bool options_begin(const struct option_table *table, void *into, int argc, char **argv,
                   struct option_words *words, int *status)
{
    const struct options_common *common = into;
    struct error err;

    if (options_parse(table, into, argc, argv, words, &err) < 0) {
        *status = cmd_fail(&err);
        return false;
    }
    if (common->help) {
        *status = options_help_print(table);
        return false;
    }
    if (words->count < table->words_least || (table->command_follows && words->rest[0] == NULL)) {
        cmd_say("%s: a word is missing; write cove %s %s", table->command, table->command,
                table->usage);
        *status = CMD_FAILED;
        return false;
    }
    return true;
}

bool options_have(const struct option_table *table, const char *name, int argc, char **argv)
{
    for (int at = 1; at < argc && option_is_one(argv[at]); at++) {
        const char *value;
        const struct option_row *row = option_find(table, argv[at], &value);

        if (row != NULL && strcmp(row->name, name) == 0)
            return true;
        if (row != NULL && row->argument != NULL && value == NULL)
            at++;
    }
    return false;
}

/* Writes `text` in lines of at most `width` columns, each but the first after `indent` spaces. */
static void help_wrap(FILE *out, const char *text, size_t indent, size_t width)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t word = strcspn(text, " ");

        if (column > 0 && column + 1 + word > width) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            column = 0;
        } else if (column > 0) {
            (void)fputc(' ', out);
            column++;
        }
        (void)fprintf(out, "%.*s", (int)word, text);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    (void)fputc('\n', out);
}

void option_name(const struct option_row *row, char name[OPTION_NAME_MAX])
{
    char letter[8] = "";

    if (row->letter != 0)
        (void)snprintf(letter, sizeof(letter), "-%c, ", row->letter);
    (void)snprintf(name, OPTION_NAME_MAX, "%s--%s%s%s", letter, row->name,
                   row->argument == NULL ? "" : " ", row->argument == NULL ? "" : row->argument);
}

void option_text(const struct option_row *row, char text[OPTION_TEXT_MAX])
{
    if (row->fallback == NULL)
        (void)snprintf(text, OPTION_TEXT_MAX, "%s", row->help);
    else
        (void)snprintf(text, OPTION_TEXT_MAX, "%s (default: %s)", row->help, row->fallback);
}

void option_lines(FILE *out, const char *lines)
{
    while (*lines != '\0') {
        size_t length = strcspn(lines, "\n");

        (void)fprintf(out, "  %.*s\n", (int)length, lines);
        lines += length + (lines[length] == '\n' ? 1 : 0);
    }
}

char *options_help(const struct option_table *table)
{
    enum { left = 29, right = 66 };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return NULL;
    (void)fprintf(out, "Usage: cove %s [options]%s%s\n\n%s\n\nOptions:\n", table->command,
                  table->usage == NULL ? "" : " ", table->usage == NULL ? "" : table->usage,
                  table->about);
    for (size_t i = 0; i < table->rows_count; i++) {
        char name[OPTION_NAME_MAX];
        char help[OPTION_TEXT_MAX];

        option_name(&table->rows[i], name);
        option_text(&table->rows[i], help);
        (void)fprintf(out, "  %-*s", left - 2, name);
        if (strlen(name) > left - 3)
            (void)fprintf(out, "\n%*s", left, "");
        help_wrap(out, help, left, right);
    }
    if (table->notes != NULL)
        (void)fprintf(out, "\n%s\n", table->notes);
    if (table->examples != NULL) {
        (void)fputs("\nExamples:\n", out);
        option_lines(out, table->examples);
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    if (common->json)
        cmd_no_warnings();
    }
    return text;
}

int options_help_print(const struct option_table *table)
{
    _cleanup_free_ char *text = options_help(table);

    return text != NULL && cmd_print(text, strlen(text)) == 0 ? 0 : CMD_FAILED;
}
