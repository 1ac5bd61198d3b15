/* The command line: one file per command, which ends with its row; commands.c lists them.
 *
 * A command gets its own words (argv[0] is its name) and returns the exit status of cove. It prints
 * what was asked for on standard output and everything else on standard error, in single lines that
 * start with "cove: ". */
#pragma once

#include "base/err.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#define CMD_FAILED 125 /* cove itself failed; what env(1) and container engines use */

struct option_table;

/* The thing that its first words name. It is found once for all commands, before the command's own code runs. */
enum cmd_target {
    CMD_TARGET_NONE,
    CMD_TARGET_SANDBOX,
    CMD_TARGET_PROCESS, /* "SANDBOX [PROCESS]": the process that was started last, where none is named */
    CMD_TARGET_TERMINAL, /* the same, of those that have a terminal */
};

/* What there is to say of a command: the help, the completion of words and the manual pages are made
 * of this. */
struct cmd {
    const char *name;
    const char *summary;
    int (*run)(const struct cmd *cmd, int argc, char **argv); /* NULL: it has verbs */
    const struct option_table *table;                         /* NULL: it has no options */
    const void *more;        /* what tells commands with the same `run` apart */
    const struct cmd *verbs; /* of `cove key new` and the like */
    size_t verbs_count;
    enum cmd_target target;
};

extern const struct cmd cmd_attach, cmd_completion, cmd_config, cmd_cp, cmd_create, cmd_df,
    cmd_doctor, cmd_events, cmd_exec, cmd_help, cmd_info, cmd_js, cmd_key, cmd_kill, cmd_logs,
    cmd_ls, cmd_man, cmd_mount, cmd_net, cmd_port, cmd_ports, cmd_ps, cmd_quota, cmd_rm, cmd_root,
    cmd_run, cmd_serve, cmd_server, cmd_shell, cmd_start, cmd_stop, cmd_top, cmd_version, cmd_wait;
extern const struct cmd cmd_complete; /* for the shells */

/* ---- all commands (commands.c) ---- */

/* They stand in groups, whose headings stand with their first. */
struct cmd_row {
    const struct cmd *cmd;
    const char *heading; /* NULL: it belongs to the group before it */
};
extern const struct cmd_row cmd_rows[];
extern const size_t cmd_rows_count;

extern const char cmd_about[];    /* what cove is, in one sentence */
extern const char cmd_statuses[]; /* the table of exit statuses, in lines */

/* NULL: there is none of this name. */
const struct cmd *cmd_find(const char *name);
const struct cmd *cmd_find_verb(const struct cmd *cmd, const char *name);

/* Runs a command by its words; says so if there is none. */
int cmd_run_words(int argc, char **argv);

/* Runs the command that this is another name of, or says what to do in its place; `*is_known` is false where
 * it is neither. */
int cmd_run_other(int argc, char **argv, bool *is_known);

/* Says that there is no such command, and which may be meant; returns CMD_FAILED. */
int cmd_unknown(const char *name);

/* Prints what there is; 0, or CMD_FAILED. */
int cmd_overview(int fd);

/* ---- the other programs of cove (beside.c) ---- */

/* Where it lies: "not_installed". */
int cmd_beside(const char *name, char path[PATH_MAX], struct error *err);
/* Becomes it; or says why not, and returns CMD_FAILED. */
int cmd_become(const char *name, char **argv);

/* ---- talking to people ---- */

/* Whether this is a terminal that shows colours, and nobody asked for none (NO_COLOR). */
bool cmd_has_colours(int fd);

/* Writes "cove: TEXT\n" to standard error as one line in which nothing steers a terminal. */
void cmd_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same of what is weaker or less than was asked for, as "warning: TEXT"; nothing where COVE_WARNINGS is
 * "none", as cmd_no_warnings() makes it: for --json, and where the caller wants none. */
void cmd_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same where the text holds for this host, whatever is run: once for each user, until the host is started again. */
void cmd_warn_once(const char *text);
void cmd_no_warnings(void);
bool cmd_warns(void);

/* Says what went wrong; returns CMD_FAILED. */
int cmd_fail(const struct error *err);

/* Writes {"error":{"code":...,"message":...}} and a newline to standard output; 0, or -1 (run_json.c). */
int cmd_json_error(const struct error *err);

/* Writes `text` to standard output; 0, or -1 if it did not all get there. */
int cmd_print(const char *text, size_t size);
int cmd_out(const char *text, size_t size, struct error *err);

/* The same for a text of its own memory, which it frees, and with a newline; NULL is ENOMEM. */
int cmd_print_line(char *text);

/* Adds the signals that a caller sends to a command, without those that are ignored: nohup, and a
 * shell's job in the background, ignore some, and a blocked one would come through. */
void cmd_signals_add(sigset_t *set);

/* Whether such a signal is meant to end the command. */
bool cmd_signal_ends(int number);

/* How many letters must change, or neighbours change places, to make one word of the other: what a
 * misspelt name is near to. The beginning of a name counts as one letter away from it. */
size_t cmd_distance(const char *one, const char *other);

/* Whether a name at this distance is worth suggesting for `word`. */
int cmd_is_near(const char *word, size_t distance);
