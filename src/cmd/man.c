/* `cove man`: the manual pages, made of the same tables as --help, so that they cannot say another thing.
 * The build installs them; a page that is not installed is read with `cove man ls | man -l -`. */
#include "base/fd.h"
#include "cmd/cmd.h"
#include "cmd/config.h"
#include "cmd/options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_DATE "2026-11-21" /* when these pages last changed their form */

struct man_options {
    struct options_common common;
    bool list;
};

/* ---- roff ---- */

/* Text at the beginning of a line; what would be a request or an escape is none. */
static void roff(FILE *out, const char *text, size_t length)
{
    if (length > 0 && (text[0] == '.' || text[0] == '\''))
        (void)fputs("\\&", out);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\\')
            (void)fputs("\\e", out);
        else if (text[i] == '-')
            (void)fputs("\\-", out);
        else if (text[i] == '\'')
            (void)fputs("\\(aq", out);
        else
            (void)fputc(text[i], out);
    }
}

static void roff_line(FILE *out, const char *text)
{
    roff(out, text, strlen(text));
    (void)fputc('\n', out);
}

/* Lines as they are, up to the end of the text or an empty line; what follows. */
static const char *roff_lines(FILE *out, const char *text)
{
    while (*text != '\0' && *text != '\n') {
        size_t length = strcspn(text, "\n");

        roff(out, text, length);
        (void)fputc('\n', out);
        text += length + (text[length] == '\n' ? 1 : 0);
    }
    return text + (*text == '\n' ? 1 : 0);
}

/* Paragraphs; those that begin with spaces are tables. One that begins with "Exit status: " is a section
 * of its own. `is_first`: nothing stands before it in its section. */
static void roff_paragraphs(FILE *out, const char *text, bool is_first)
{
    static const char statuses[] = "Exit status: ";

    while (text != NULL && *text != '\0') {
        bool is_table = *text == ' ';

        if (strncmp(text, statuses, sizeof(statuses) - 1) == 0) {
            (void)fputs(".SH EXIT STATUS\n", out);
            text += sizeof(statuses) - 1;
            roff(out, (char[]){(char)toupper((unsigned char)*text)}, 1);
            text++;
        } else if (!is_first) {
            (void)fputs(".PP\n", out);
        }
        is_first = false;
        if (is_table)
            (void)fputs(".nf\n", out);
        text = roff_lines(out, text);
        if (is_table)
            (void)fputs(".fi\n", out);
    }
}

static void roff_block(FILE *out, const char *lines)
{
    (void)fputs(".nf\n", out);
    (void)roff_lines(out, lines);
    (void)fputs(".fi\n", out);
}

static void roff_item(FILE *out, const char *name, const char *text)
{
    (void)fputs(".TP\n.B ", out);
    roff_line(out, name);
    roff_line(out, text);
}

/* ---- pages ---- */

static void head_print(FILE *out, const char *name, const char *summary)
{
    char title[64];

    (void)snprintf(title, sizeof(title), "%s", name);
    for (char *at = title; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
    (void)fprintf(out, ".TH %s 1 " PAGE_DATE " \"cove " COVE_VERSION "\" \"cove\"\n.SH NAME\n",
                  title);
    roff(out, name, strlen(name));
    (void)fputs(" \\- ", out);
    roff_line(out, summary);
}

static void synopsis_print(FILE *out, const struct option_table *table)
{
    (void)fputs(".B cove ", out);
    roff_line(out, table->command);
    (void)fputs("[options]", out);
    if (table->usage != NULL) {
        (void)fputc(' ', out);
        roff(out, table->usage, strlen(table->usage));
    }
    (void)fputc('\n', out);
}

static void options_print(FILE *out, const struct option_table *table)
{
    for (size_t i = 0; i < table->rows_count; i++) {
        char name[OPTION_NAME_MAX];
        char text[OPTION_TEXT_MAX];

        option_name(&table->rows[i], name);
        option_text(&table->rows[i], text);
        text[0] = (char)toupper((unsigned char)text[0]);
        (void)strncat(text, ".", sizeof(text) - strlen(text) - 1);
        roff_item(out, name, text);
    }
}

static void table_print(FILE *out, const struct option_table *table)
{
    (void)fputs(".SH SYNOPSIS\n", out);
    synopsis_print(out, table);
    (void)fputs(".SH DESCRIPTION\n", out);
    roff_paragraphs(out, table->about, true);
    (void)fputs(".SH OPTIONS\n", out);
    options_print(out, table);
    roff_paragraphs(out, table->notes, false);
    if (table->examples != NULL) {
        (void)fputs(".SH EXAMPLES\n", out);
        roff_block(out, table->examples);
    }
}

static void verbs_print(FILE *out, const struct cmd *cmd)
{
    (void)fputs(".SH SYNOPSIS\n", out);
    for (size_t i = 0; i < cmd->verbs_count; i++) {
        if (i > 0)
            (void)fputs(".br\n", out);
        synopsis_print(out, cmd->verbs[i].table);
    }
    (void)fputs(".SH DESCRIPTION\n", out);
    for (size_t i = 0; i < cmd->verbs_count; i++) {
        const struct option_table *table = cmd->verbs[i].table;

        (void)fputs(".SS cove ", out);
        roff_line(out, table->command);
        roff_paragraphs(out, table->about, true);
        options_print(out, table);
        roff_paragraphs(out, table->notes, false);
    }
}

static void command_page(FILE *out, const struct cmd *cmd)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "cove-%s", cmd->name);
    head_print(out, name, cmd->summary);
    if (cmd->verbs != NULL)
        verbs_print(out, cmd);
    else
        table_print(out, cmd->table);
    (void)fputs(".SH SEE ALSO\n.BR cove (1)\n", out);
}

/* cove.conf(5) */
static void config_page(FILE *out)
{
    (void)fputs(".TH COVE.CONF 5 " PAGE_DATE " \"cove " COVE_VERSION
                "\" \"cove\"\n.SH NAME\ncove.conf \\- the configuration of cove serve\n"
                ".SH DESCRIPTION\n",
                out);
    roff_paragraphs(
        out,
        "Lines of NAME = VALUE below a [SECTION]. A comment begins with # at the start of a\n"
        "line or after a blank. Sizes are bytes, or have K, M, G or T; times are seconds, or\n"
        "have ms, s, m, h or d.\n"
        "\n"
        "It is read at the start of cove serve and at SIGHUP. A value that is not allowed never\n"
        "replaces a good one.\n",
        true);
    for (size_t i = 0; i < config_words_count; i++) {
        const struct config_word *word = &config_words[i];
        char name[128];

        if (config_begins_section(i))
            (void)fprintf(out, ".SH [%s]\n", word->section);
        if (word->name == NULL) {
            roff_line(out, word->help);
            continue;
        }
        (void)snprintf(name, sizeof(name), "%s%s%s", word->name,
                       word->fallback != NULL && word->fallback[0] != '\0' ? " = " : "",
                       word->fallback != NULL ? word->fallback : "");
        roff_item(out, name, word->help);
    }
    (void)fputs(".SH FILES\n.I /etc/cove/cove.conf\n.br\n.I ~/.config/cove/cove.conf\n"
                ".SH SEE ALSO\n.BR cove\\-config (1),\n.BR cove\\-serve (1)\n",
                out);
}

static const struct {
    const char *name, *text;
} variables[] = {
    {"COVE_URL",
     "The server: unix:/PATH/cove.sock, https://HOST[:PORT] or http://HOST:PORT. Without it, "
     "that of this machine, else one of your own, which starts by itself."},
    {"COVE_API_KEY",
     "The key for the server that COVE_URL names, or for this machine's, if that is "
     "another user's."},
    {"SSL_CERT_FILE, SSL_CERT_DIR",
     "Whom to trust with https, instead of this machine's authorities."},
    {"COVE_WARNINGS", "If it is none, no warnings are printed."},
    {"NO_COLOR", "If it is not empty, nothing is shown in colours."},
    {"XDG_RUNTIME_DIR", "Where the socket and the log of a server of your own are, in cove."},
};

static void main_page(FILE *out)
{
    head_print(out, "cove", "run programs that nobody has read yet");
    (void)fputs(".SH SYNOPSIS\n.B cove\nCOMMAND [...]\n.SH DESCRIPTION\n", out);
    roff_line(out, cmd_about);
    (void)fputs("Each command has a page of its own, such as\n.BR cove\\-run (1).\n.SH COMMANDS\n",
                out);
    for (size_t i = 0; i < cmd_rows_count; i++) {
        if (cmd_rows[i].heading != NULL) {
            (void)fputs(".SS ", out);
            roff_line(out, cmd_rows[i].heading);
        }
        roff_item(out, cmd_rows[i].cmd->name, cmd_rows[i].cmd->summary);
    }
    (void)fputs(".SH EXIT STATUS\n", out);
    for (const char *line = cmd_statuses; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t status = strcspn(line, " ");
        size_t text = status + strspn(line + status, " ");

        (void)fputs(".TP\n.B ", out);
        roff(out, line, status);
        (void)fputc('\n', out);
        roff(out, line + text, strcspn(line + text, "\n"));
        (void)fputc('\n', out);
    }
    (void)fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        roff_item(out, variables[i].name, variables[i].text);
    (void)fputs(".SH EXAMPLES\n", out);
    roff_block(out, "cove run -- sh -c 'id; ls /home'\n"
                    "cove run --workspace . -- make");
}

/* ---- the command ---- */

static const struct option_row rows[] = {
    {"list", NULL, NULL, "print the names of the pages, one a line", NULL, 0,
     offsetof(struct man_options, list)},
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "man",
    .usage = "[COMMAND|cove.conf]",
    .about =
        "Prints a manual page, that of cove, of one of its commands or of cove.conf, as source for\n"
        "man(1).",
    .examples = "cove man exec | man -l -",
    OPTION_ROWS(rows),
    .words = 1,
};

static void pages_list(FILE *out)
{
    (void)fputs("cove\n", out);
    for (size_t i = 0; i < cmd_rows_count; i++)
        (void)fprintf(out, "cove-%s\n", cmd_rows[i].cmd->name);
}

static int page_print(const struct man_options *options, const struct cmd *page, bool is_config)
{
    _cleanup_free_ char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return CMD_FAILED;
    if (options->list)
        pages_list(out);
    else if (is_config)
        config_page(out);
    else if (page == NULL)
        main_page(out);
    else
        command_page(out, page);
    return fclose(out) == 0 && cmd_print(text, size) == 0 ? 0 : CMD_FAILED;
}

static int man_run(const struct cmd *cmd, int argc, char **argv)
{
    struct man_options options = {0};
    const struct cmd *page = NULL;
    struct option_words words;
    bool is_config;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    is_config = words.count > 0 && strcmp(words.word[0], "cove.conf") == 0;
    if (words.count > 0 && !is_config) {
        page = cmd_find(words.word[0]);
        if (page == NULL)
            return cmd_unknown(words.word[0]);
    }
    return page_print(&options, page, is_config);
}

const struct cmd cmd_man = {
    .name = "man", .summary = "print a manual page", .run = man_run, .table = &table};
