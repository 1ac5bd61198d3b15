/* What the commands over the native API share: how a person names a sandbox, what a process's end is as
 * an exit status, how the API writes its lists. */
#pragma once

#include "base/err.h"
#include "cmd/client.h"
#include "cmd/cmd.h"
#include "cmd/doc.h"
#include "cmd/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API_PATH_MAX 1200 /* a name of 256 bytes, all of them encoded */

#define API_EXIT_TIMED_OUT 124
#define API_EXIT_NOT_EXECUTABLE 126
#define API_EXIT_NOT_FOUND 127
#define API_EXIT_SIGNAL 128 /* and its number */

/* The path of a sandbox, by its id or its name, with `rest` after it. What looks like an id is one;
 * "name:NAME" is a name whatever it looks like. */
int api_sandbox_path(char path[API_PATH_MAX], const char *word, const char *rest,
                     struct error *err);

/* The path of what lies below another path, such as a sandbox's. */
int api_path(char path[API_PATH_MAX], const char *above, const char *rest, struct error *err);

/* The path of a process of the sandbox with the path `sandbox`. */
int api_process_path(char path[API_PATH_MAX], const char *sandbox, const char *process,
                     struct error *err);

/* Says an error of a command; the exit status of cove for it. */
int api_fail(const struct error *err);

/* Whether a Process runs. */
bool api_process_runs(const struct doc *process);

/* The exit status for a command that did not start, by the code of the reason. */
int api_start_status(const char *code);

/* What came of a Process that has ended, as an exit status; says on standard error what the status
 * alone does not tell. */
int api_process_status(const struct doc *process);

/* The number of "SIGTERM", "TERM", "term" or "15"; 0: there is none. */
int api_signal_number(const char *name);

/* The members of an object of texts as "k=v,k=v". */
void api_pairs_text(const struct doc *pairs, char *text, size_t size);

/* A text that must be there. */
int api_text(const struct doc *doc, const char *key, const char **text, struct error *err);

/* ---- "K=V" options ---- */

struct api_pairs {
    /* NULL: none yet; ours. `file` holds where `object` has nothing. */
    struct doc *object, *file;
};

/* For `take` of an option such as --env: NAME=VALUE, or with `passes` NAME for the caller's own. */
int api_pairs_take(struct api_pairs *pairs, const char *option, const char *value, bool passes,
                   struct error *err);

/* For that of --env-file. */
int api_pairs_file_take(struct api_pairs *pairs, const char *path, struct error *err);

/* Sets what was taken in an object; nothing if that is nothing. */
int api_pairs_set(struct doc *object, const char *key, const struct api_pairs *pairs);
void api_pairs_free(struct api_pairs *pairs);

/* ---- commands ---- */

/* A command of the usual kind: parses its words into `options`, which begins with struct options_common,
 * finds the server and the command's target, and calls. -1 of it is an error to be told, all else the exit status. */
typedef int api_call(struct client *client, void *options, const struct option_words *words,
                     struct error *err);
int api_command(const struct cmd *cmd, int argc, char **argv, void *options, api_call *call);

/* ---- streams, and what lasts ---- */

/* After an error of something that can be gone on with: whether it shall be tried again, for it may be that
 * the server is being replaced. Then it has waited a little. `heard_ms` is when the server was heard last. */
bool api_goes_on(struct client *client, uint64_t heard_ms, const struct error *err);
uint64_t api_now_ms(void);

/* For what only waits and prints: while it waits, cove ends as by SIGPIPE once nobody reads its output, and
 * not with the next line, which may never come. */
void api_end_unread(struct client *client);

/* A line of a stream, which says what it is: 1 with `*event`, to be freed; 0 of an empty one, -1. */
int api_line(const char *line, size_t size, struct doc **event, const char **type,
             struct error *err);

/* ---- lists ---- */

/* Fetches PATH, whose answer has a list at `key`, with all further pages where it has such: into `*list`,
 * to be freed. A list that is none, or has no end, is an error. */
int api_list(struct client *client, const char *path, const char *key, struct doc **list,
             struct error *err);

/* Prints a list for programs: an object with it at `key`, as the API has it. */
int api_list_print(const char *key, const struct doc *list, struct error *err);
