/* Options of commands: a table per command is both its parser and its help.
 *
 * "--name VALUE", "--name=VALUE" and "-n VALUE"; "--" ends them. Where a command of a sandbox follows,
 * they also end with its first word, so that its own options are never taken for ours. Names that people
 * know from elsewhere are taken for ours, too (options.c has them). */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define OPTIONS_WORDS_MAX 3

struct option_row {
    const char *name;     /* without the dashes */
    const char *argument; /* NULL: a switch */
    const char *fallback; /* what holds without it; NULL: nothing to say */
    const char *help;
    /* `into` is what options_parse() was given; `value` is NULL for a switch. NULL: it is kept as it
     * is, a switch in a bool, a value in a const char *, `at` in `into`. */
    int (*take)(void *into, const char *value, struct error *err);
    char letter; /* "-e"; 0: none */
    size_t at;
};

/* The rows that most commands have. */
#define OPTION_JSON(what)                                                        \
    {                                                                            \
        "json", NULL, NULL, what, NULL, 0, offsetof(struct options_common, json) \
    }
#define OPTION_ALL_TENANTS(into)                                                                 \
    {                                                                                            \
        "all-tenants", NULL, "your own tenant's", "those of all tenants, for an operator", NULL, \
            0, offsetof(into, all_tenants)                                                       \
    }
#define OPTION_HELP                                                                        \
    {                                                                                      \
        "help", NULL, NULL, "print this", NULL, 'h', offsetof(struct options_common, help) \
    }
#define OPTION_ROWS(list) .rows = (list), .rows_count = sizeof(list) / sizeof((list)[0])

struct option_table {
    const char *command;  /* "run", "key new" */
    const char *usage;    /* of its words: "SANDBOX [PROCESS]"; NULL: none */
    const char *about;    /* what it does, in lines for a terminal */
    const char *notes;    /* what is to be said after the options; NULL: nothing */
    const char *examples; /* a line each, for a shell; NULL: none */
    const struct option_row *rows;
    size_t rows_count;
    size_t words; /* that are no options, at most */
    size_t words_least;
    bool many;            /* there may be more words */
    bool command_follows; /* after these words, with or without a "--" before it */
    bool json_errors;     /* with --json an error is an object on standard output, too */
};

struct option_words {
    const char *word[OPTIONS_WORDS_MAX];
    size_t count;
    char *const *rest; /* with `many` all words, else the command; NULL-terminated, part of argv */
    /* The paths in the API of what a command's target names (cmd.h), which api_command() fills in. */
    const char *sandbox, *process;
};

/* What most commands have: the first member of what they parse into. */
struct options_common {
    bool help;
    bool json;
};

/* Parses the words after `cove`: argv[0] is the command. Words that are no options are moved to the
 * front of argv. */
int options_parse(const struct option_table *table, void *into, int argc, char **argv,
                  struct option_words *words, struct error *err);

/* The same for a command whose options begin with struct options_common: false where there is no more
 * to be done, for its help was printed or its words are wrong; `*status` is the exit status then. */
bool options_begin(const struct option_table *table, void *into, int argc, char **argv,
                   struct option_words *words, int *status);

/* Prints it as an object where the command does so and was asked for JSON. */
void options_error_print(const struct option_table *table, const void *options,
                         const struct error *err);

/* Whether the switch `name` is there, even if the words do not parse. */
bool options_have(const struct option_table *table, const char *name, int argc, char **argv);

/* Its row for a word such as "--memory", "--memory=1G" or "-m", or NULL; `value` is what follows the '='. */
const struct option_row *option_find(const struct option_table *table, const char *word,
                                     const char **value);
bool option_is_one(const char *word);

/* Whether the word of `length` bytes after its dash or dashes is this name or this letter. */
bool option_is_called(const char *name, char letter, const char *word, size_t length);

/* Another tool's word for an option (options_other.c). */
struct option_other {
    /* Those of which it is one, each with a space around it; NULL: all that have `row`. */
    const char *commands;
    const char *name;
    char letter;
    /* That row, or "": it changes nothing here; NULL: `instead` says what to do. */
    const char *row, *instead;
};
const struct option_other *option_other_find(const struct option_table *table, const char *word);

/* "-m, --memory SIZE" and what it does, as in the help. */
#define OPTION_NAME_MAX 64
void option_name(const struct option_row *row, char name[OPTION_NAME_MAX]);
#define OPTION_TEXT_MAX 512
void option_text(const struct option_row *row, char text[OPTION_TEXT_MAX]);

/* The name of the word at this place, in the usage: of "SANDBOX [PROCESS]" the second is PROCESS. With
 * "..." the last stands for all that follow; "" where there are no more. */
void option_usage_word(const char *usage, size_t place, char name[OPTION_NAME_MAX]);

/* Writes each of these lines after two spaces, as it stands in a help. */
void option_lines(FILE *out, const char *lines);

/* The text of `cove COMMAND --help`, to be freed; NULL if there is no memory. */
char *options_help(const struct option_table *table);

/* Prints it; the exit status of cove. */
int options_help_print(const struct option_table *table);

/* "--NAME VALUE: CAUSE; REMEDY"; returns -1. */
int option_bad_value(struct error *err, const char *name, const char *value, const char *cause,
                     const char *remedy);
int option_no_memory(struct error *err);
