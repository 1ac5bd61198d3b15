/* What the parts of `cove run` share: run.c drives the box, run_stdio.c moves bytes between the
 * caller and the command where they cannot be passed through, run_env.c makes the environment,
 * run_json.c writes the result for programs. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "box/box.h"
#include "box/tool/input_end.h"
#include "cmd/run_options.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

/* ---- the environment (run_env.c) ---- */

#define RUN_ENV_OWN 5 /* PATH, HOME, USER, LANG, TERM */

struct run_env {
    const char **list; /* NULL-terminated "K=V"; borrows from `own` and from the options */
    char own[RUN_ENV_OWN][320];
};

int run_env_make(struct run_env *env, const struct run_options *options,
                 const struct box_user *user, struct error *err);
void run_env_free(struct run_env *env);

/* ---- standard input and output (run_stdio.c) ---- */

#define RUN_PUMP_MAX 16384
#define RUN_POLL_MAX 5 /* fds of run_stdio_poll() */

/* Bytes on their way from one fd to another. */
struct run_pump {
    int from, to;       /* -1 where that side is closed; 0, 1 and 2 are never closed */
    bool from_terminal; /* the caller's */
    bool from_master;   /* the command's */
    bool to_blocks;     /* `to` is in blocking mode, which is not ours to change */
    bool to_terminal;   /* `to` is the box's terminal: an end of file is a character */
    bool last;          /* the writers are dead: what can be read now is all there is */
    int broken;         /* errno of a failed write; 0: somebody reads */
    uint64_t pause_ns;  /* when to look at a terminal again that is another job's now */
    size_t budget;      /* with `last`: the most that may still come */
    size_t start, used;
    /* Of what is typed at the box's terminal. */
    struct input_end end;
    char data[RUN_PUMP_MAX];
};

struct run_stdio {
    int child[3]; /* what the command gets; ours to close above 2 */
    bool tty;     /* the command gets a terminal instead */
    bool raw;     /* the caller's terminal is in raw mode: put `saved` back */
    struct termios saved;
    struct run_pump input, output[2];
    int captured[2]; /* pipes from the command with --json */
    struct buf_tail capture[2];
};

void run_stdio_init(struct run_stdio *stdio);

/* Decides what the command gets as 0, 1 and 2. A terminal is never passed in: whoever holds it
 * could type into it. */
int run_stdio_open(struct run_stdio *stdio, const struct run_options *options, struct error *err);

/* The size of the caller's terminal, or the traditional one. */
void run_stdio_size(const struct run_stdio *stdio, uint16_t *rows, uint16_t *columns);

/* Closes what the command got; call it when the command has it. */
void run_stdio_release(struct run_stdio *stdio);

/* Takes the command's terminal, gives it its size and puts the caller's into raw mode. */
int run_stdio_attach(struct run_stdio *stdio, int master, struct error *err);

/* The caller's terminal has another size, or is ours again after a stop. */
void run_stdio_resize(struct run_stdio *stdio);
void run_stdio_resume(struct run_stdio *stdio);

/* Fills in what to wait for: how many; `*wake_ns` is lowered to when to look again anyway. */
size_t run_stdio_poll(struct run_stdio *stdio, struct pollfd *fds, uint64_t now_ns,
                      uint64_t *wake_ns);

/* Moves what can be moved. */
void run_stdio_serve(struct run_stdio *stdio, const struct pollfd *fds, size_t count,
                     uint64_t now_ns);

/* Tells the command on the box's terminal, as long as it runs, that its input has ended; and us, what to do if it takes
 * no end. */
enum input_end_act run_stdio_end(struct run_stdio *stdio, uint64_t now_ns);

/* 0, or the errno with which our own output failed: EPIPE or EIO where nobody reads it any more. */
int run_stdio_broken(const struct run_stdio *stdio);

/* The box is gone: takes the rest of its output without waiting for more. Output that is still to
 * be written keeps run_stdio_is_done() false. */
void run_stdio_finish(struct run_stdio *stdio);
bool run_stdio_is_done(const struct run_stdio *stdio);

/* Puts the caller's terminal back as it was. May be called twice. */
void run_stdio_restore(struct run_stdio *stdio);
void run_stdio_free(struct run_stdio *stdio);

/* ---- the result (run_json.c) ---- */

#define RUN_WARNINGS_MAX 4

struct run_result {
    int status; /* as of waitpid(2), if `ended` */
    bool ended; /* the command ended of itself or by a signal */
    bool timed_out;
    int exit_status; /* of cove */
    uint64_t wall_ns;
    const char *level, *limits, *ids, *disk; /* constants of box.h */
    char warnings[RUN_WARNINGS_MAX][480];    /* what the box says of itself; "" ends them */
    struct box_report report;
    struct error refused; /* why the command did not start; no text if it did */
};

/* "SIGKILL"; `buffer` is used for a number without a name. */
const char *run_signal_name(int number, char *buffer, size_t size);

/* Writes one object and a newline to standard output. */
int run_json_result(const struct run_result *result, const struct buf_tail capture[2]);
