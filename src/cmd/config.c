/* `cove config`: shows the names of cove.conf and what a file says, and tries it.
 *
 * `check` becomes the keeper, which asks the engine: their tables say which values are allowed. The others read the
 * text alone, so they need no server, and no right but to read the file. */
#include "cmd/config.h"

#include "base/conf.h"
#include "base/fd.h"
#include "cmd/cmd.h"
#include "cmd/doc.h"
#include "cmd/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(section, name, fallback, help) {section, name, fallback, help},
#define OWN(section, help) {section, NULL, NULL, help},
const struct config_word config_words[] = {CONFIG_WORDS(KEY, OWN)};
const size_t config_words_count = sizeof(config_words) / sizeof(config_words[0]);

struct config_options {
    struct options_common common;
    const char *path;
};

bool config_begins_section(size_t i)
{
    return i == 0 || strcmp(config_words[i].section, config_words[i - 1].section) != 0;
}

/* ---- reading ---- */

static bool is_known(const char *section, const char *name)
{
    for (size_t i = 0; i < config_words_count; i++)
        if (strcmp(config_words[i].section, section) == 0 &&
            (config_words[i].name == NULL || strcmp(config_words[i].name, name) == 0))
            return true;
    return false;
}

/* Keeps one line as {SECTION: {NAME: VALUE}}. */
static int line_take(void *said, const char *section, const char *name, const char *value,
                     struct error *err)
{
    struct doc *of_section = (struct doc *)(uintptr_t)doc_get(said, section);

    if (!is_known(section, name))
        return error_set(err, "bad_config", 0,
                         "[%s] has no \"%s\"; cove config sample prints what it has", section,
                         name);
    if (of_section == NULL) {
        of_section = doc_new();
        if (of_section == NULL || doc_set(said, section, of_section) < 0)
            return option_no_memory(err);
    }
    return doc_set_text(of_section, name, value) == 0 ? 0 : option_no_memory(err);
}

static int said_read(const char *path, struct doc *said, struct error *err)
{
    struct conf_row *rows = calloc(config_words_count + 1, sizeof(*rows));
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    size_t count = 0;
    int result;

    if (fd < 0) {
        free(rows);
        return error_set(err, "bad_config", errno, "cannot read %s", path);
    }
    if (rows == NULL)
        return option_no_memory(err);
    for (size_t i = 0; i < config_words_count; i++)
        if (config_begins_section(i))
            rows[count++] = (struct conf_row){
                .section = config_words[i].section, .type = CONF_ANY, .any = line_take};
    result = conf_read(rows, path, fd, said, err);
    free(rows);
    return result;
}

/* ---- showing ---- */

/* The lines of a section whose names are the operator's own. */
static void print_own(FILE *out, const struct doc *said)
{
    for (const char *name = doc_next_key(said, NULL); name != NULL; name = doc_next_key(said, name))
        (void)fprintf(out, "%s = %s\n", name, doc_text(said, name));
}

static void default_print(FILE *out, const char *mark, const struct config_word *word)
{
    (void)fprintf(out, "%s%s =%s%s\n", mark, word->name, word->fallback != NULL ? " " : "",
                  word->fallback != NULL ? word->fallback : "");
}

/* As a file that says the same: what is not set stands in a comment, with its default. */
static void print_all(FILE *out, const struct doc *said)
{
    for (size_t i = 0; i < config_words_count; i++) {
        const struct config_word *word = &config_words[i];
        const struct doc *section = doc_get(said, word->section);
        const char *value = word->name != NULL ? doc_text(section, word->name) : NULL;

        if (config_begins_section(i))
            (void)fprintf(out, "%s[%s]\n", i > 0 ? "\n" : "", word->section);
        if (word->name == NULL)
            print_own(out, section);
        else if (value != NULL)
            (void)fprintf(out, "%s = %s\n", word->name, value);
        else
            default_print(out, "# ", word);
    }
}

static int word_json(const struct config_word *word, const struct doc *said, struct doc *into)
{
    const char *value = doc_text(doc_get(said, word->section), word->name);
    struct doc *one = doc_new();

    if (one == NULL || doc_set(into, word->name, one) < 0)
        return -1;
    return doc_set_text(one, "value", value != NULL ? value : word->fallback) < 0 ||
                   doc_set_text(one, "default", word->fallback) < 0 ||
                   doc_set_flag(one, "is_set", value != NULL) < 0
               ? -1
               : 0;
}

static int own_json(const struct doc *said, struct doc *into)
{
    for (const char *name = doc_next_key(said, NULL); name != NULL;
         name = doc_next_key(said, name)) {
        struct doc *one = doc_new();

        if (one == NULL || doc_set(into, name, one) < 0 ||
            doc_set_text(one, "value", doc_text(said, name)) < 0 ||
            doc_set_flag(one, "is_set", true) < 0)
            return -1;
    }
    return 0;
}

static int all_json(const char *path, const struct doc *said, struct error *err)
{
    _cleanup_doc_ struct doc *all = doc_new();
    struct doc *settings = doc_new(), *section = NULL;
    int failed = all == NULL || settings == NULL || doc_set(all, "settings", settings) < 0 ||
                 doc_set_text(all, "path", path[0] != '\0' ? path : NULL) < 0;

    for (size_t i = 0; failed == 0 && i < config_words_count; i++) {
        const struct config_word *word = &config_words[i];

        if (config_begins_section(i)) {
            section = doc_new();
            failed = section == NULL || doc_set(settings, word->section, section) < 0;
        }
        if (failed == 0)
            failed = word->name != NULL ? word_json(word, said, section)
                                        : own_json(doc_get(said, word->section), section);
    }
    return failed == 0 ? doc_print(all, err) : option_no_memory(err);
}

/* ---- the verbs ---- */

static const struct option_row show_rows[] = {
    {"config", "FILE", "/etc/cove/cove.conf; cove/cove.conf in XDG_CONFIG_HOME", "the file", NULL,
     0, offsetof(struct config_options, path)},
    OPTION_JSON("print an object with each value, its default, and whether the file sets it"),
    OPTION_HELP,
};

static const struct option_table show_table = {
    .command = "config show",
    .about =
        "Prints all that cove.conf may say, with the values that hold: those that the file sets,\n"
        "and in comments the defaults of all others.",
    OPTION_ROWS(show_rows),
};

static int show(const struct config_options *options, struct error *err)
{
    char path[PATH_MAX];
    _cleanup_doc_ struct doc *said = doc_new();
    _cleanup_free_ char *text = NULL;
    size_t size = 0;
    FILE *out;

    if (said == NULL)
        return option_no_memory(err);
    if (config_find(options->path, path, err) < 0 ||
        (path[0] != '\0' && said_read(path, said, err) < 0))
        return -1;
    if (options->common.json)
        return all_json(path, said, err);
    out = open_memstream(&text, &size);
    if (out == NULL)
        return option_no_memory(err);
    (void)fprintf(out, "# %s\n", path[0] != '\0' ? path : "there is no file: all defaults");
    print_all(out, said);
    return fclose(out) == 0 ? cmd_out(text, size, err) : option_no_memory(err);
}

static int show_run(const struct cmd *cmd, int argc, char **argv)
{
    struct config_options options = {.path = NULL};
    struct option_words words;
    struct error err;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    return show(&options, &err) < 0 ? cmd_fail(&err) : 0;
}

static const struct option_row check_rows[] = {
    {"config", "FILE", "/etc/cove/cove.conf; cove/cove.conf in XDG_CONFIG_HOME", "the file", NULL,
     0, offsetof(struct config_options, path)},
    OPTION_HELP,
};

static const struct option_table check_table = {
    .command = "config check",
    .about =
        "Says whether a server could start with cove.conf, and starts nothing: each value, the\n"
        "files that it names, the engine's libraries, and the address.\n"
        "\n"
        "Exit status: 0 if it could; 1 if not, with a line for each fault, that names the file,\n"
        "the line and the value.",
    OPTION_ROWS(check_rows),
};

static int check_run(const struct cmd *cmd, int argc, char **argv)
{
    struct config_options options = {.path = NULL};
    char *serve[] = {"serve", "--check", NULL, NULL, NULL};
    struct option_words words;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    if (options.path != NULL) {
        serve[2] = "--config";
        serve[3] = (char *)(uintptr_t)options.path;
    }
    return cmd_become("cove-keeper", serve);
}

static const struct option_row sample_rows[] = {OPTION_HELP};

static const struct option_table sample_table = {
    .command = "config sample",
    .about =
        "Prints a cove.conf that sets nothing: each name stands in a comment, with its default and\n"
        "what it does.",
    .examples = "cove config sample | sudo tee /etc/cove/cove.conf",
    OPTION_ROWS(sample_rows),
};

static void sample_print(FILE *out)
{
    (void)fputs(
        "# The configuration of cove serve. A name that is not set has its default, which stands here.\n"
        "# cove config check tries a file; SIGHUP to cove serve puts it in force.\n",
        out);
    for (size_t i = 0; i < config_words_count; i++) {
        const struct config_word *word = &config_words[i];

        if (config_begins_section(i))
            (void)fprintf(out, "\n[%s]\n", word->section);
        (void)fprintf(out, "# %s\n", word->help);
        if (word->name != NULL)
            default_print(out, "#", word);
    }
}

static int sample_run(const struct cmd *cmd, int argc, char **argv)
{
    struct options_common options = {0};
    _cleanup_free_ char *text = NULL;
    struct option_words words;
    size_t size = 0;
    FILE *out;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    out = open_memstream(&text, &size);
    if (out == NULL)
        return CMD_FAILED;
    sample_print(out);
    return fclose(out) == 0 && cmd_print(text, size) == 0 ? 0 : CMD_FAILED;
}

static const struct cmd verbs[] = {
    {.name = "show",
     .summary = "print the values that hold",
     .run = show_run,
     .table = &show_table},
    {.name = "check",
     .summary = "say whether a server could start with it",
     .run = check_run,
     .table = &check_table},
    {.name = "sample",
     .summary = "print a file with all names and their defaults",
     .run = sample_run,
     .table = &sample_table},
};

const struct cmd cmd_config = {.name = "config",
                               .summary = "the configuration of the server: show it, try it",
                               .verbs = verbs,
                               .verbs_count = sizeof(verbs) / sizeof(verbs[0])};
