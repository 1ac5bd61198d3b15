/* The command line: one file and one row of the table in main.c per command.
 *
 * A command gets its own words (argv[0] is its name) and returns the exit status of cove. It prints
 * what was asked for on standard output and everything else on standard error, in single lines that
 * start with "cove: ". */
#pragma once

#include "base/err.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#define CMD_FAILED 125 /* cove itself failed; what env(1) and container engines use */

struct cmd {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
    bool has_help; /* it knows --help */
};

int cmd_create(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_key(int argc, char **argv);
int cmd_kill(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_mount(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_root(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_start(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_wait(int argc, char **argv);

/* Runs the verb of a command such as `cove key new`, or prints which verbs there are. */
int cmd_verb(const char *name, const struct cmd *verbs, size_t count, int argc, char **argv);

/* Writes "cove: TEXT\n" to standard error as one line: control characters become '?'. */
void cmd_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Says what went wrong; returns CMD_FAILED. */
int cmd_fail(const struct error *err);

/* Writes `text` to standard output; 0, or -1 if it did not all get there. */
int cmd_print(const char *text, size_t size);

/* Adds the signals that a caller sends to a command, without those that are ignored: nohup, and a
 * shell's job in the background, ignore some, and a blocked one would come through. */
void cmd_signals_add(sigset_t *set);

/* Whether such a signal is meant to end the command. */
bool cmd_signal_ends(int number);

/* How many letters must change to make one word of the other: what a misspelt name is near to. The
 * beginning of a name counts as one letter away from it. */
size_t cmd_distance(const char *one, const char *other);

/* Whether a name at this distance is worth suggesting for `word`. */
int cmd_is_near(const char *word, size_t distance);
