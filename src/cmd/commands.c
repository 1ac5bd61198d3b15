/* The table of commands, and what is said of all of them. A new command is a file, which ends with its
 * row, and a line here. */
#include "base/fd.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct cmd_row cmd_rows[] = {
    {&cmd_run, "Without a server"},
    {&cmd_js, NULL},
    {&cmd_doctor, NULL},
    {&cmd_create, "Sandboxes that live, with a server that starts by itself"},
    {&cmd_ls, NULL},
    {&cmd_info, NULL},
    {&cmd_top, NULL},
    {&cmd_df, NULL},
    {&cmd_net, NULL},
    {&cmd_ports, NULL},
    {&cmd_port, NULL},
    {&cmd_events, NULL},
    {&cmd_stop, NULL},
    {&cmd_start, NULL},
    {&cmd_rm, NULL},
    {&cmd_exec, "Commands in a sandbox"},
    {&cmd_shell, NULL},
    {&cmd_attach, NULL},
    {&cmd_ps, NULL},
    {&cmd_logs, NULL},
    {&cmd_wait, NULL},
    {&cmd_kill, NULL},
    {&cmd_cp, "Files of a sandbox"},
    {&cmd_root, "The server"},
    {&cmd_mount, NULL},
    {&cmd_key, NULL},
    {&cmd_quota, NULL},
    {&cmd_serve, NULL},
    {&cmd_config, NULL},
    {&cmd_server, NULL},
    {&cmd_help, "cove itself"},
    {&cmd_man, NULL},
    {&cmd_completion, NULL},
    {&cmd_version, NULL},
};
const size_t cmd_rows_count = sizeof(cmd_rows) / sizeof(cmd_rows[0]);

const char cmd_about[] =
    "cove runs programs that nobody has read yet, where they can touch nothing.";

const char cmd_statuses[] =
    "0      what was asked for was done; of run, exec and wait: the command ended with 0\n"
    "1-255  of run, exec and wait: the status with which the command ended\n"
    "1      of doctor: a box of level full cannot be made here, or no server started; of js: the code threw\n"
    "124    the time was up: of the command, of the code, or of cove wait --timeout\n"
    "125    cove itself failed, and said why on standard error\n"
    "126    of run and exec: the command cannot be executed\n"
    "127    of run and exec: the command is not there\n"
    "128+N  of run, exec and wait: signal N killed the command\n";

/* ---- finding ---- */

const struct cmd *cmd_find(const char *name)
{
    for (size_t i = 0; i < cmd_rows_count; i++)
        if (strcmp(cmd_rows[i].cmd->name, name) == 0)
            return cmd_rows[i].cmd;
    /* It is asked by the shells' scripts, and by nobody else. */
    if (strcmp(cmd_complete.name, name) == 0)
        return &cmd_complete;
    return NULL;
}

const struct cmd *cmd_find_verb(const struct cmd *cmd, const char *name)
{
    for (size_t i = 0; i < cmd->verbs_count; i++)
        if (strcmp(cmd->verbs[i].name, name) == 0)
            return &cmd->verbs[i];
    return NULL;
}

/* The nearest of `one` and `other` to what was meant, by its distance so far. */
static void nearer(const char *meant, const char *name, const char **nearest, size_t *best)
{
    size_t distance = cmd_distance(meant, name);

    if (distance < *best) {
        *best = distance;
        *nearest = name;
    }
}

int cmd_unknown(const char *name)
{
    const char *nearest = NULL;
    size_t best = (size_t)-1;

    for (size_t i = 0; i < cmd_rows_count; i++)
        nearer(name, cmd_rows[i].cmd->name, &nearest, &best);
    if (nearest != NULL && cmd_is_near(name, best))
        cmd_say("%s: there is no such command; did you mean cove %s?", name, nearest);
    else
        cmd_say("%s: there is no such command; cove help lists them, cove run -- COMMAND runs one "
                "in a box",
                name);
    return CMD_FAILED;
}

static int verb_unknown(const struct cmd *cmd, const char *name)
{
    const char *nearest = NULL;
    size_t best = (size_t)-1;

    for (size_t i = 0; i < cmd->verbs_count; i++)
        nearer(name, cmd->verbs[i].name, &nearest, &best);
    if (nearest != NULL && cmd_is_near(name, best))
        cmd_say("%s %s: there is no such command; did you mean cove %s %s?", cmd->name, name,
                cmd->name, nearest);
    else
        cmd_say("%s %s: there is no such command; cove %s --help lists what there is", cmd->name,
                name, cmd->name);
    return CMD_FAILED;
}

/* ---- help ---- */

int cmd_overview(int fd)
{
    _cleanup_free_ char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL)
        return CMD_FAILED;
    (void)fprintf(out, "%s\n\nUsage: cove COMMAND [...]\n", cmd_about);
    for (size_t i = 0; i < cmd_rows_count; i++) {
        if (cmd_rows[i].heading != NULL)
            (void)fprintf(out, "\n%s:\n", cmd_rows[i].heading);
        (void)fprintf(out, "  %-10s %s\n", cmd_rows[i].cmd->name, cmd_rows[i].cmd->summary);
    }
    (void)fputs("\nExit status:\n", out);
    option_lines(out, cmd_statuses);
    (void)fputs("\nTry:\n"
                "  cove run -- sh -c 'id; ls /home'\n"
                "  cove run --workspace . -- make\n"
                "  cove create work && cove shell work\n"
                "  cove help run\n",
                out);
    if (fclose(out) != 0)
        return CMD_FAILED;
    return fd_write_full(fd, text, size) == 0 ? 0 : CMD_FAILED;
}

static int verbs_print(const struct cmd *cmd)
{
    char text[1024];
    size_t used = (size_t)snprintf(text, sizeof(text), "Usage: cove %s VERB [options] ...\n\n",
                                   cmd->name);

    for (size_t i = 0; i < cmd->verbs_count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "  cove %s %-6s %s\n", cmd->name,
                                 cmd->verbs[i].name, cmd->verbs[i].summary);
    used += (size_t)snprintf(text + used, sizeof(text) - used,
                             "\nEach of them says more with --help.\n");
    return cmd_print(text, used) == 0 ? 0 : CMD_FAILED;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run_one(const struct cmd *cmd, int argc, char **argv)
{
    const struct cmd *verb;

    if (cmd->verbs == NULL)
        return cmd->run(cmd, argc, argv);
    if (argc < 2) {
        cmd_say("%s: missing argument: VERB; cove %s --help lists them", cmd->name, cmd->name);
        return CMD_FAILED;
    }
    if (asks_for_help(argv[1]))
        return verbs_print(cmd);
    verb = cmd_find_verb(cmd, argv[1]);
    return verb == NULL ? verb_unknown(cmd, argv[1]) : verb->run(verb, argc - 1, argv + 1);
}

int cmd_run_words(int argc, char **argv)
{
    const struct cmd *cmd = cmd_find(argv[0]);
    bool is_known;
    int status;

    if (cmd != NULL)
        return run_one(cmd, argc, argv);
    status = cmd_run_other(argc, argv, &is_known);
    return is_known ? status : cmd_unknown(argv[0]);
}

/* `cove help key new` is `cove key new --help`. */
static int help_run(const struct cmd *cmd, int argc, char **argv)
{
    static char help[] = "--help";
    char *words[4] = {help, help, help, NULL};
    int count = 0;

    if (argc < 2)
        return cmd_overview(STDOUT_FILENO);
    if (asks_for_help(argv[1]))
        return options_help_print(cmd->table);
    for (; count < 2 && argv[count + 1] != NULL; count++)
        words[count] = argv[count + 1];
    words[count + 1] = NULL;
    return cmd_run_words(count + 1, words);
}

static const struct option_row help_rows[] = {OPTION_HELP};

static const struct option_table help_table = {
    .command = "help",
    .usage = "[COMMAND [VERB]]",
    .about =
        "Says what cove can do, or what one of its commands can, as --help after that command does.",
    OPTION_ROWS(help_rows),
};

const struct cmd cmd_help = {.name = "help",
                             .summary = "say what cove, or one of its commands, can do",
                             .run = help_run,
                             .table = &help_table};
