/* What the files of procs.h share: how the processes of a sandbox are kept, and what each of them does.
 *
 * Callbacks into the sandbox may call any verb, so nothing is freed while `busy`: what is done with
 * lies in `graves` until the turn ends. */
#pragma once

#include "box/user.h"
#include "engine/journal.h"
#include "engine/log.h"
#include "engine/procs.h"
#include "net/turns.h"

#include <sys/epoll.h>

#define PROCS_RUNNING_MAX 1000
#define PROCS_ENDED_MAX 1000
#define PROCS_ENDED_LEAST 16  /* that are kept, whatever the tenant has elsewhere */
#define PROCS_HIDDEN_MAX 4096 /* as many as an init holds */
#define PROCS_LOG_LEAST (4ULL * LOG_ALIGN)
#define PROCS_SHARE_LEAST (1ULL << 20) /* so much output a sandbox has on any disk */
#define PROCS_STDIN_MAX (1U << 20)
/* Of one stream in one turn of the loop: about 0.1 ms. */
#define PROCS_TURN_BYTES (256U << 10)
/* As long may a killed one take until it is said to have ended without its kernel's word. */
#define PROCS_GRACE_MS 2000
#define PROCS_OOM_ANSWER_MS 2000
/* As long may an init take to start a command. */
#define PROCS_START_MS 30000
#define PROCS_EXIT_TIMED_OUT 124

/* ---- alarms: procs_alarm.c ---- */

struct proc_alarm;
/* NULL where there is no memory. Whoever it rings for drops it. */
struct proc_alarm *proc_alarm_set(uv_loop_t *loop, uint64_t ms, void (*ring)(void *arg), void *arg);
void proc_alarm_drop(struct proc_alarm **alarm);
uint64_t procs_wall_ms(void);
uint64_t procs_monotonic_ms(void);

/* ---- what is waited for ---- */

struct watched {
    void (*act)(struct watched *watched, uint32_t events);
    int fd;      /* -1: none */
    bool is_set; /* it is in the epoll set */
};

struct stream {
    struct watched watched; /* first */
    struct proc *proc;
    int which;
    bool is_paused;
    uint64_t owed; /* once its process has exited: as much may still be of it */
    struct proc_log log_file;
};

struct stdin_piece {
    struct stdin_piece *next;
    procs_done done;
    void *arg;
    size_t size, used; /* taken */
    bool is_resize, is_end;
    char data[];
};

struct proc_stdin {
    struct watched watched; /* first */
    struct proc *proc;
    int ours[2]; /* a pipe that nobody else has */
    size_t in_ours;
    struct stdin_piece *first, *last;
    size_t waiting; /* bytes, those in `ours` too */
    size_t moved;   /* of the first piece, into the command's pipe */
    bool is_open, close_after, is_pumping;
};

struct proc_follow {
    struct proc *proc;
    struct proc_follow *next, *previous;
    uint64_t at[2];
    bool is_armed[2], end_told;
    bool awaits; /* to be told when its box has said what it has of the process */
    void (*news)(void *arg);
    void *arg;
};

struct proc_wait {
    struct proc *proc;
    struct proc_wait *next, *previous;
    struct proc_alarm *alarm;
    procs_done done;
    void *arg;
};

/* ---- a process ---- */

struct start; /* procs_start.c: what is known of a command until it runs */

struct proc {
    struct procs *procs; /* NULL: closed, and here only for its followers */
    uint32_t number;
    char id[PROCS_ID_MAX];
    char *tag, *command;
    pid_t pid;
    enum proc_state state;
    bool has_ended;   /* one of the last three states, for good */
    bool is_recorded; /* so says the journal */
    bool is_hidden;   /* forgotten, but its streams must be kept flowing */
    bool is_acknowledged;
    bool exit_heard, asks_oom, oom_asked;
    bool awaits_table; /* it was there when init was asked what it holds */
    bool is_killed;    /* by us */
    bool timed_out, oom_killed, has_stdin;
    uint16_t rows, columns; /* of its terminal; 0: it has none */
    int wait_status;
    int exit_code, signal;
    char reason[ERROR_CODE_MAX];
    struct error *failure;
    uint64_t started_ms, ended_ms, until_ms, log_bytes, cpu_ns;
    uint64_t counted; /* bytes of output, in the sum of its sandbox */
    uint64_t texts;   /* bytes in the sum of its tenant, once it has ended */
    struct stream streams[2];
    struct proc_stdin input;
    struct proc_alarm *alarm; /* timeout, then grace, then the answer of the sandbox */
    struct proc_alarm *redraw;
    struct proc_alarm *lost; /* its clients are */
    unsigned clients;        /* whose it is */
    bool is_hung_up;         /* for they were lost */
    struct start *start;
    struct proc_follow *follows;
    struct proc_follow *next_follow; /* to be told; it may go away meanwhile */
    struct proc_wait *waits;
    struct proc *next_dirty, *next_grave;
    bool is_dirty, is_buried;
};

/* A passwd and a group file that were asked for. */
struct accounts {
    uint32_t open[2]; /* ids of the requests; 0: none, or answered */
    char *texts[2];
};

enum user_state { USER_UNKNOWN, USER_ASKED, USER_KNOWN };

struct procs {
    uv_loop_t *loop;
    int directory, epoll;
    struct procs_calls calls;
    void *arg;
    char **env; /* one block, texts and all */
    char *cwd, *user;
    bool is_system;
    uint64_t keep_ms, log_share;
    uint64_t log_bytes; /* of all processes: the sum of `counted` */

    struct journal journal;
    uint32_t next_number;

    struct link *link;
    struct error refusal; /* why there is none, while there is a box; code empty: there is none */
    struct watched link_watched;
    struct proc_alarm *link_alarm; /* hello again */
    uint32_t next_open;            /* id of a request for a file */

    struct proc **list; /* by number, rising */
    size_t count, room;
    size_t running, ended, hidden, waiting_starts;

    const int *programs;
    struct tool *tools; /* procs_tool.c */
    size_t tools_count, tools_leaving;
    uint32_t next_tool;

    struct start *starts; /* those that wait for who their user is */
    enum user_state user_state;
    struct box_user default_user;
    struct accounts default_accounts;
    bool has_no_bash;

    struct proc *dirty, *graves;
    struct proc_alarm *expiry, *retry, *pause;
    uv_poll_t *poll;
    struct task task;
    bool unread_link, is_closed, journal_owes;
    bool lost_message; /* of init's, since its table was last asked for */
    unsigned busy;
};

/* ---- procs.c ---- */

struct proc *procs_by_number(const struct procs *procs, uint32_t number);
struct proc *procs_new(struct procs *procs, uint32_t number);
int procs_insert(struct procs *procs, struct proc *proc, struct error *err);
void procs_remove(struct procs *procs, struct proc *proc);
/* The one of the next higher number, so that what is looked at may go away meanwhile. */
struct proc *procs_after(const struct procs *procs, uint32_t number);
void procs_dirty(struct procs *procs, struct proc *proc);
/* Its box has not said yet what it has of it, so that nothing of it is moved. */
bool proc_is_awaited(const struct proc *proc);
/* Around whatever may call out. */
void procs_enter(struct procs *procs);
void procs_leave(struct procs *procs);
void procs_soon(struct procs *procs);
void procs_limit_ended(struct procs *procs);
/* The texts of a process that has ended count for its tenant, until it is forgotten. */
void proc_count_texts(struct proc *proc);
void proc_uncount_texts(struct proc *proc);
bool procs_are_many(const struct procs *procs); /* that have ended */
void procs_expect_expiry(struct procs *procs);
/* Frees one that nobody sees any more, once all it has is closed. */
void proc_release(struct proc *proc);

int watched_set(struct procs *procs, struct watched *watched, uint32_t events);
void watched_unset(struct procs *procs, struct watched *watched);
/* Takes the fd, which counts for the tenant as long as it is open. */
void watched_open(struct procs *procs, struct watched *watched, int fd);
void watched_close(struct procs *procs, struct watched *watched);

/* ---- procs_record.c: the journal's side ---- */

int procs_recover(struct procs *procs, struct error *err);
int proc_record_start(struct proc *proc, struct error *err);
void proc_record_end(struct proc *proc); /* tries again later where it cannot */
void proc_record(struct proc *proc, enum journal_kind kind);
void procs_record_shorten(struct procs *procs);

/* ---- procs_stream.c ---- */

void stream_open(struct stream *stream, int fd);
void stream_watch(struct stream *stream);
/* Moves on what is there; once the process exited, its end is told when nothing of it is left. */
void stream_turn(struct stream *stream, size_t most);
void stream_owe(struct stream *stream); /* what it holds now */
/* Takes what is there now, and closes; what could not be taken for want of fds comes later. */
void stream_finish(struct stream *stream);
uint64_t proc_log_bytes(const struct proc *proc);
void proc_count_log(struct proc *proc, uint64_t bytes); /* that it has now */

/* ---- procs_end.c ---- */

void proc_exited(struct proc *proc, int status, uint64_t cpu_ns);
void proc_check_end(struct proc *proc);
void proc_end(struct proc *proc, enum proc_state state, const char *reason);
void proc_fail(struct proc *proc, const struct error *err);
void proc_acknowledge(struct proc *proc);
void proc_time(struct proc *proc); /* its timeout, from now on */

/* ---- procs_link.c ---- */

void procs_link_turn(struct procs *procs);
void procs_link_act(struct watched *watched, uint32_t events);
/* 0 where there is a box to talk to, else -1 and why. */
int procs_link_check(const struct procs *procs, struct error *err);
void procs_link_drop(struct procs *procs);

/* ---- procs_start.c, procs_user.c ---- */

struct start {
    struct start *next; /* of those that wait for who their user is */
    struct procs *procs;
    struct proc *proc; /* once it was sent */
    char *block;       /* all texts below lie in here */
    const char **argv, **env;
    char *cwd, *user, *tag;
    bool is_shell, with_bash, at_root, has_stdin;
    bool is_default; /* its user is the sandbox's */
    bool is_due;
    uint64_t timeout_ms, log_bytes;
    uint16_t rows, columns; /* 0: no terminal */
    struct link_limits limits;
    struct box_user as;
    struct accounts accounts;
    struct proc_alarm *alarm; /* until init has answered */
    unsigned wait_ms;
    struct tool *tool; /* whose it is; NULL: a process's */
    procs_done done;
    void *arg;
};

/* NULL, and `err`. `ring` gets it when init has not answered in time. */
struct start *start_new(struct procs *procs, const struct proc_spec *spec, void (*ring)(void *arg),
                        struct error *err);
void start_wait(struct start *start); /* for who its user is */
void start_unlink(struct start *start);
const char *start_cwd(const struct start *start);
const struct box_user *start_user(struct start *start); /* NULL: init's own ids */
void start_say_refused(const struct start *start, enum box_step step, int errnum,
                       struct error *err);
void start_say_late(const struct start *start, struct error *err);
void start_free(struct start *start);
void start_fail(struct start *start, const struct error *err);
int start_send(struct start *start, struct error *err);
void start_refused(struct proc *proc, enum box_step step, int errnum);
void start_runs(struct proc *proc, pid_t pid);

/* Who runs it: 1 known, 0 start_known() follows, -1. */
int user_want(struct start *start, struct error *err);
void user_opened(struct procs *procs, uint32_t id, int fd);
void user_prefetch(struct procs *procs);
void user_forget(struct procs *procs);
void start_known(struct start *start, const struct error *err); /* NULL: `as` is it */

/* ---- procs_tool.c ---- */

void tool_known(struct tool *tool, const struct error *err); /* who its user is */
bool tool_is_id(uint32_t id);
void tool_event(struct procs *procs, struct link_event *event);
/* All of them, for nothing more is heard of them. */
void tools_lose(struct procs *procs, const char *code, const char *text);

/* ---- procs_stdin.c ---- */

#define TERMINAL_RESIZE_SIZE 12
#define TERMINAL_END_SIZE 8

void stdin_open(struct proc *proc, int fd);
void stdin_end(struct proc *proc, const struct error *err);
/* The box has said what it has of it: moves on what waited for that, or refuses it. */
void stdin_settle(struct proc *proc);
/* Of a terminal: ahead of all that has not begun to move. */
int stdin_resize(struct proc *proc, uint16_t rows, uint16_t columns, struct error *err);
/* The same of the end of what is typed. */
int stdin_finish(struct proc *proc, struct error *err);

/* ---- procs_terminal.c ---- */

/* What holds the terminal, and then the command: one block. */
const char **terminal_argv(const struct start *start);
/* What is sent to it: frames, each a packet of a pipe. Returns their size; `to` NULL: no more. */
size_t terminal_frames(char *to, const void *data, size_t size);
size_t terminal_frame_resize(char to[TERMINAL_RESIZE_SIZE], uint16_t rows, uint16_t columns);
void terminal_frame_end(char to[TERMINAL_END_SIZE]);
void terminal_end(struct proc *proc);

/* ---- procs_follow.c ---- */

void proc_tell(struct proc *proc);                            /* news and ends, to who waits */
void proc_let_go(struct proc *proc, const struct error *err); /* all waits and followers */
