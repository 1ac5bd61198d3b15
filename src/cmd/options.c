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

static int take_nothing(void *into, const char *value, struct error *err)
{
    (void)into;
    (void)value;
    (void)err;
    return 0;
}

static const struct option_row nothing = {.name = "", .help = "", .take = take_nothing};

/* Whether the word of `length` bytes after its dash or dashes is this name or this letter. */
bool option_is_called(const char *name, char letter, const char *word, size_t length)
{
    if (word[1] != '-')
        return letter != 0 && letter == word[1];
    return strlen(name) == length && memcmp(name, word + 2, length) == 0;
}

static const struct option_row *row_find(const struct option_table *table, const char *word)
{
    size_t length = word[1] == '-' ? strcspn(word + 2, "=") : 1;

    for (size_t i = 0; i < table->rows_count; i++)
        if (option_is_called(table->rows[i].name, table->rows[i].letter, word, length))
            return &table->rows[i];
    return NULL;
}

/* The row of a word, also by another name. */
static const struct option_row *row_of(const struct option_table *table, const char *word)
{
    const struct option_row *row = row_find(table, word);
    const struct option_other *other = row == NULL ? option_other_find(table, word) : NULL;
    char name[OPTION_NAME_MAX];

    if (other == NULL || other->row == NULL)
        return row;
    if (other->row[0] == '\0')
        return &nothing;
    (void)snprintf(name, sizeof(name), "--%s", other->row);
    return row_find(table, name);
}

const struct option_row *option_find(const struct option_table *table, const char *word,
                                     const char **value)
{
    const struct option_row *row = row_of(table, word);

    *value = NULL;
    if (word[1] == '-') {
        const char *equals = strchr(word, '=');

        *value = equals == NULL ? NULL : equals + 1;
    } else if (word[2] != '\0') { /* "-m512m"; "-it" are two */
        *value = word + 2;
        return row != NULL && row->argument != NULL ? row : NULL;
    }
    return row;
}

static int option_unknown(const struct option_table *table, const char *word, struct error *err)
{
    const struct option_row *nearest = NULL;
    const struct option_other *other = option_other_find(table, word);
    size_t best = (size_t)-1;
    char name[64];

    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    if (other != NULL && other->instead != NULL)
        return error_set(err, "unknown_option", 0, "%s: cove %s has no such option; %s", name,
                         table->command, other->instead);
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

/* The last word "-h" asks for help, also where "-h NAME" is the host name, as of docker. */
static const struct option_row *option_find_at(const struct option_table *table, char **argv,
                                               const char **value)
{
    bool is_help = strcmp(argv[0], "-h") == 0 && argv[1] == NULL;

    return option_find(table, is_help ? "--help" : argv[0], value);
}

static int option_take(const struct option_table *table, void *into, char **argv, int *at,
                       struct error *err)
{
    const char *value;
    const struct option_row *row = option_find_at(table, argv + *at, &value);
    int letters = row == NULL ? letters_take(table, into, argv[*at], err) : 0;

    if (letters != 0) {
        *at += 1;
        return letters < 0 ? -1 : 0;
    }
    if (row == NULL)
        return option_unknown(table, argv[*at], err);
    if (row->argument == NULL && value != NULL)
        /* As it was written: what other tools have may be called otherwise here, or not at all. */
        return error_set(err, "bad_value", 0, "%.*s: it takes no value; write %.*s alone",
                         (int)strcspn(argv[*at], "="), argv[*at], (int)strcspn(argv[*at], "="),
                         argv[*at]);
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
    return error_set(err, "bad_value", 0,
                     "%s: unexpected argument '%.200s'; cove %s --help says what it takes",
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

void option_usage_word(const char *usage, size_t place, char name[OPTION_NAME_MAX])
{
    name[0] = '\0';
    if (usage == NULL)
        return;
    while (*usage != '\0') {
        size_t length;

        usage += strspn(usage, " []");
        length = strcspn(usage, " []");
        if (strncmp(usage, "--", 2) == 0) { /* it only ends the options */
            usage += length;
            continue;
        }
        if (length > 0)
            (void)snprintf(name, OPTION_NAME_MAX, "%.*s", (int)length, usage);
        if (length == 0 || place == 0)
            return;
        usage += length;
        if (strstr(name, "...") == NULL)
            place--;
        if (*usage == '\0' && strstr(name, "...") == NULL)
            name[0] = '\0'; /* there are no more */
    }
}

void options_error_print(const struct option_table *table, const void *options,
                         const struct error *err)
{
    if (table->json_errors && ((const struct options_common *)options)->json)
        (void)cmd_json_error(err);
}

static int missing_word(const struct option_table *table, const struct option_words *words,
                        struct error *err)
{
    char missing[OPTION_NAME_MAX];

    option_usage_word(table->usage, words->count, missing);
    if (missing[0] == '\0') /* behind several SOURCE... */
        option_usage_word(strrchr(table->usage, ' '), 0, missing);
    return error_set(err, "bad_value", 0, "%s: missing argument: %s%s; write cove %s %s",
                     table->command, missing,
                     strcmp(missing, "SANDBOX") == 0 ? " (cove ls lists them)" : "", table->command,
                     table->usage);
}

bool options_begin(const struct option_table *table, void *into, int argc, char **argv,
                   struct option_words *words, int *status)
{
    struct options_common *common = into;
    bool wants_json = options_have(table, "json", argc, argv);
    struct error err;

    if (options_parse(table, into, argc, argv, words, &err) < 0) {
        common->json |= wants_json;
        options_error_print(table, into, &err);
        *status = cmd_fail(&err);
        return false;
    }
    if (common->json)
        cmd_no_warnings();
    if (common->help) {
        *status = options_help_print(table);
        return false;
    }
    if (words->count < table->words_least || (table->command_follows && words->rest[0] == NULL)) {
        (void)missing_word(table, words, &err);
        options_error_print(table, into, &err);
        *status = cmd_fail(&err);
        return false;
    }
    return true;
}

bool options_have(const struct option_table *table, const char *name, int argc, char **argv)
{
    size_t words = 0;

    for (int at = 1; at < argc && strcmp(argv[at], "--") != 0; at++) {
        const struct option_row *row;
        const char *value;

        if (!option_is_one(argv[at])) {
            if (table->command_follows && words++ == table->words)
                break;
            continue;
        }
        row = option_find(table, argv[at], &value);
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
    }
    return text;
}

int options_help_print(const struct option_table *table)
{
    _cleanup_free_ char *text = options_help(table);

    return text != NULL && cmd_print(text, strlen(text)) == 0 ? 0 : CMD_FAILED;
}
