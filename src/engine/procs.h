/* The processes of one sandbox: started, listed, read, waited for, killed; kept after exit and after
 * stop, and over a restart of the engine.
 *
 * Each stream of a process goes from its pipe into a file by splice(2), never through our memory, so
 * that what was taken from the pipe is on record however we end. A file is made when there is
 * something to put in. It is addressed by byte offset; beyond its limit the oldest part is punched
 * out and counted as a gap. What happened to a process is a line of a journal. The end of a command is
 * told when it exits and its streams are drained of what they held then; a daemon that keeps a pipe
 * open is drained further, and heard by who follows.
 *
 * A `struct proc` is valid until it is forgotten, and as long as somebody follows it; so is what
 * proc_look() lends. SIGPIPE has to be ignored in the process.
 *
 * Offsets, statuses and texts come from a hostile box: they are limited, never trusted. */
#pragma once

#include "base/err.h"
#include "box/link.h"
#include "box/tool/programs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define PROCS_ID_MAX 24
#define PROCS_TAG_MAX 256
#define PROCS_LOG_DEFAULT (256ULL << 20)
/* For the turns of `share` in a round of the loop: as long as one turn of a stream that floods takes, so that
 * whoever follows it reads as often as there is more. */
#define PROCS_ROUND_NS 100000U

struct share;
struct procs;
struct proc; /* borrowed */

enum proc_stream { PROC_STDOUT, PROC_STDERR }; /* a terminal is all PROC_STDOUT */
enum proc_state {
    PROC_STARTING,
    PROC_RUNNING,
    PROC_EXITED, /* `exit_code` or `signal` */
    PROC_FAILED, /* it could not be started: `failure` */
    PROC_LOST,   /* its box is gone and nobody knows how it ended; `reason` says why */
};

struct proc_spec {
    const char *const *argv; /* either this */
    const char *shell_line;  /* or this, for `/bin/sh -c` (bash where the box has it) */
    const char *const *env;  /* "K=V"; over the sandbox's */
    const char *cwd;         /* NULL: the sandbox's */
    const char *user;        /* NULL: the sandbox's; else NAME, UID, NAME:GROUP, UID:GID */
    const char *tag;
    uint64_t timeout_ms; /* 0: none; then the whole tree is killed: exit 124, timed_out */
    uint64_t log_bytes;  /* 0: PROCS_LOG_DEFAULT; of both streams together, within the share */
    bool has_stdin;      /* else /dev/null */
    /* 0, 0: no terminal. Else the command gets one of this size; all its output is PROC_STDOUT, its input
     * is what proc_stdin_write() brings. It is held by a tool in the box (tool/term.c), not by us. */
    uint16_t rows, columns;
    struct link_limits limits;
};
#define PROCS_TERMINAL_MAX 10000 /* rows, or columns */

struct proc_view {
    const char *id, *tag, *command; /* `command`: for people, one line */
    pid_t pid;                      /* in the box */
    enum proc_state state;
    /* It starts, or the engine has, and the box has not said yet what it has of it: what is written to it
     * after such a start of the engine waits. */
    bool is_awaited;
    bool timed_out, oom_killed;
    int exit_code; /* valid if exited and signal is 0 */
    int signal;
    const char *reason; /* PROC_LOST, PROC_FAILED: a code */
    bool has_terminal;
    uint16_t rows, columns; /* of it, as said last; after a restart of the engine as it began */
    struct error failure;
    uint64_t started_ms, ended_ms; /* wall clock; 0: not yet */
    uint64_t cpu_ns;
    uint64_t out_bytes[2]; /* written so far, by stream */
    uint64_t out_from[2];  /* the oldest offset that is still there */
};

/* What the sandbox that has these processes is told. Any may be NULL. */
struct procs_calls {
    void (*ready)(void *arg); /* the box stands */
    /* It ended; the link is closed. procs_detach() is called next, maybe from here, with why. */
    void (*gone)(void *arg, const struct error *err);
    void (*started)(void *arg, const struct proc *proc);
    void (*ended)(void *arg, const struct proc *proc);
    /* One ended by SIGKILL, or as a shell whose child did (137), and not by us: was it out of memory?
     * Answered by procs_oom(), within two seconds; its end is told after that. */
    void (*killed)(void *arg, struct proc *proc);
    /* Whether the disk has so little left that output is to take no more of it. */
    bool (*disk_is_low)(void *arg);
    /* Whether more is kept of its tenant's ended processes than may be: then the oldest are forgotten. */
    bool (*texts_are_many)(void *arg);
};

struct procs_options {
    uv_loop_t *loop;
    /* Of its tenant, borrowed: what its boxes keep ready is done in the turns of it. */
    struct share *share;
    int directory; /* of this sandbox, 0700; taken */
    const struct procs_calls *calls;
    void *arg;
    const char *const *env; /* of the sandbox; copied */
    const char *cwd;        /* or NULL: the user's home */
    const char *user;       /* or NULL: init's */
    bool is_system;         /* each command gets its user; else all have init's */
    uint64_t keep_ms;       /* ended processes are forgotten after this; 0: 24 h */
    uint64_t log_share; /* of the output of all together: beyond it the longest gives; 0: none */
    const int
        *programs; /* TOOL_PROGRAMS of them, borrowed as long as this is open; NULL: no tools */
};

/* Reads the journal: what ran when it was written last is PROC_LOST until procs_attach() finds it. */
int procs_open(const struct procs_options *options, struct procs **out, struct error *err);

/* The box stands, or is about to. `anew`: it was made just now; else init is asked for what it holds,
 * and what ran on goes on: fds are taken, ends are told, logs are continued. Takes the link. */
int procs_attach(struct procs *procs, struct link *link, bool anew, struct error *err);

/* Takes what the box has said by now, as that it has ended. */
void procs_hear(struct procs *procs);

/* The box has ended or is about to, for `reason` (a code): all that ran is PROC_LOST with it, or has
 * the end that was heard. What the pipes still held is put on record first. */
void procs_detach(struct procs *procs, const char *reason);

/* There is a box, and it cannot be talked to: until procs_detach() `why` is the answer of every verb that
 * would. What ran in there is PROC_LOST as long, with its code as the reason. */
void procs_refuse(struct procs *procs, const struct error *why);

/* Closes; files stay. With `forget` they are removed. */
void procs_close(struct procs *procs, bool forget);

size_t procs_running(const struct procs *procs);
/* Nothing is going on and nobody follows or waits: it can be closed, and opened when it is wanted. */
bool procs_is_quiet(const struct procs *procs);
uint64_t procs_log_bytes(const struct procs *procs); /* output on the disk */

/* ---- verbs. Codes of errors: process_not_found, sandbox_stopped, user_not_found, bad_cwd,
 * process_ended, too_many_processes, stdin_closed, capacity, or that of procs_refuse() ---- */

/* `done` is called once, maybe before this returns, when the command runs or could not be started. If
 * the box refused it there is a process, too, which is PROC_FAILED; its codes are then bad_cwd,
 * user_not_found, command_not_found, not_executable, too_many_processes, start_failed; or, if it has
 * not answered for half a minute or the command's own time, sandbox_failed. */
typedef void (*procs_done)(void *arg, struct proc *proc, const struct error *err);
void procs_start(struct procs *procs, const struct proc_spec *spec, procs_done done, void *arg);

/* By its id. A pid is none: the box gives it to another when it likes. */
struct proc *procs_find(struct procs *procs, const char *id);
void procs_each(struct procs *procs, bool (*each)(void *arg, struct proc *proc), void *arg);
void proc_look(const struct proc *proc, struct proc_view *view); /* texts are borrowed */

/* `done` when it has ended, or after timeout_ms (0: never) with the code "wait_timeout"; never before
 * this returns. NULL: no memory. It ends with `done`. */
struct proc_wait;
struct proc_wait *proc_wait(struct proc *proc, uint64_t timeout_ms, procs_done done, void *arg);
void proc_wait_cancel(struct proc_wait *wait);

/* Up to `size` bytes from `offset` on; *from is where they begin, which is later where a gap is.
 * 0 bytes: there are none yet, or, if it has ended, none to come. */
ssize_t proc_read(struct proc *proc, enum proc_stream stream, uint64_t offset, void *data,
                  size_t size, uint64_t *from, struct error *err);

/* `news` is called when there is more to read than was read by proc_follow_read(), once it is not awaited
 * any more, and once at the end; it is called again only after a read found nothing more. Never called
 * before proc_follow() returns; `follow` may be cancelled in it. NULL: no memory. */
struct proc_follow;
struct proc_follow *proc_follow(struct proc *proc, const uint64_t from[2], void (*news)(void *arg),
                                void *arg);
/* As proc_read() at the follower's own offset, which it moves. -2: the stream has ended, which may be
 * before the process does, or, where a daemon holds it, long after. */
ssize_t proc_follow_read(struct proc_follow *follow, enum proc_stream stream, void *data,
                         size_t size, uint64_t *from, struct error *err);
void proc_follow_cancel(struct proc_follow *follow);

/* `done` when all of it is in the pipe, maybe before this returns, or with an error ("stdin_closed",
 * "process_ended", "capacity": at most 1 MiB waits, so no more is taken at once). */
void proc_stdin_write(struct proc *proc, const void *data, size_t size, procs_done done, void *arg);
int proc_stdin_close(struct proc *proc, struct error *err); /* after what waits */
int proc_signal(struct proc *proc, int signal_number, struct error *err);
int proc_kill(struct proc *proc, struct error *err); /* the whole tree */
/* A client whose process it is follows it; or does so no more. After the last of them was lost without a word it has
 * PROCS_LOST_MS to come back, else the process is hung up, and killed when as long has passed again. */
#define PROCS_LOST_MS 10000
void proc_client_came(struct proc *proc);
void proc_client_left(struct proc *proc, bool is_lost);
/* An ended one, with its output; "process_running" else. What it left running goes on. */
int proc_forget(struct proc *proc, struct error *err);
void procs_oom(struct proc *proc, bool was_oom);
/* Of its terminal; "no_terminal" where it has none. */
int proc_resize(struct proc *proc, uint16_t rows, uint16_t columns, struct error *err);

/* Ends the input that is typed at the terminal, behind what was written. Its program is told so whenever it reads, and is
 * hung up, then killed, if it takes many ends and goes on: see box/tool/input_end.h. Keys that come later call it off. */
int proc_input_end(struct proc *proc, struct error *err);
/* As that, and what fills the screen draws it anew, also where the size is the same. */
int proc_redraw(struct proc *proc, uint16_t rows, uint16_t columns, struct error *err);

/* ---- tools: src/box/tool/tool.h ----
 *
 * One verb of ours, as a command of the box: no process that anybody lists, no log, no journal. Its
 * pipes are the caller's, who moves bytes by splice(2) as link.h says. Whoever cancels kills it. When the
 * engine ends, what runs of it is killed by the next one. At most PROCS_TOOLS_MAX at once of one sandbox:
 * "capacity". */
#define PROCS_TOOLS_MAX 64

struct tool;
struct tool_spec {
    const char *const *argv; /* VERB OPTIONS -- OPERANDS; without the program's own name */
    const char *user;        /* as of a command; NULL: the sandbox's */
    const char *cwd;
    bool takes_input;
    bool is_grep;        /* cove-grep, else cove-tool */
    uint64_t timeout_ms; /* 0: none */
};
struct tool_calls {
    /* It runs. `input` (-1 where it takes none) and `output` are the caller's to close, non-blocking.
     * Not called if it could not be started: `ended` says so alone. */
    void (*started)(void *arg, int input, int output);
    /* It has ended; last call. `err` NULL: its exit status was 0 or 1, which `failed` says; else why there is
     * none: sandbox_stopped, sandbox_outdated, user_not_found, bad_cwd, capacity, timeout, disk_full,
     * tool_killed (a signal), sandbox_gone ... Output may still be in its pipe. */
    void (*ended)(void *arg, bool failed, const struct error *err);
};
/* NULL, and `err`: nothing was started and nothing will be called. Calls come later, never from within. */
struct tool *procs_tool(struct procs *procs, const struct tool_spec *spec,
                        const struct tool_calls *calls, void *arg, struct error *err);
size_t procs_tools(const struct procs *procs); /* that have a place */
/* It ends by itself in a moment, as its input has: its place is free. */
void tool_leave(struct tool *tool);
/* Kills it; `ended` is not called any more, and its place is free. */
void tool_cancel(struct tool *tool);
