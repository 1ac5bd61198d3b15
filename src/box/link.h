/* The outside end of a box's control socket: commands, files, and what the box says of them.
 *
 * Whoever makes a box (box.h) holds such an end; it may be handed to another process, and to a next
 * one when that one is killed: init keeps what has not been acknowledged. Everything that comes out
 * of here was checked and is still hostile: fds are pipes, terminals or files of the box, numbers
 * are what the box says they are.
 *
 * fds come non-blocking, but whoever took over the init of a box shares their descriptions and can
 * make them block again, or read them empty between a poll and a read: they are used with calls that
 * never wait whatever the flag says, which for pipes is splice(2) with SPLICE_F_NONBLOCK.
 *
 * One thread drives a link. Nothing here blocks: requests that the socket has no room for wait in
 * here, and link_next() sends them. */
#pragma once

#include "base/err.h"
#include "box/box.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct link;

/* Takes the socket. */
int link_open(int control, struct link **out, struct error *err);
void link_close(struct link *link); /* the box ends only if nobody else has this socket */

/* Polls readable when link_next() has something to do. Not the socket itself. */
int link_fd(const struct link *link);

/* From now on `epoll`, which is borrowed, says with `data` when link_next() has something to do, and link_fd() is
 * of no use any more: of many links, each is one fd less. 0 or -1 with errno. */
int link_watch(struct link *link, int epoll, void *data);

/* Asks init who it is, and for all it holds: LINK_HELLO, a LINK_ENTRY per command that was not
 * acknowledged, LINK_TABLE_END. What a killed predecessor did not hear is in there; what init said
 * to that one is thrown away up to LINK_HELLO (LINK_READY, too: who says hello stands), and so is
 * what it said to us before. A command that was asked for before this and is not in the table did not
 * start. */
int link_hello(struct link *link, struct error *err);

/* Where the stdio of a command comes from. */
enum link_stdio {
    LINK_GIVEN, /* the three fds of the request; borrowed */
    LINK_PIPES, /* pipes that init makes and whose far ends come with LINK_STARTED; init keeps
                 * duplicates until the command is acknowledged */
    LINK_TTY,   /* a terminal; its master comes with LINK_STARTED, and init keeps a duplicate */
};

/* Limits of one command, as rlimits; 0: as the box. */
struct link_limits {
    uint64_t memory_bytes; /* address space of one process */
    uint64_t file_bytes;
    uint32_t cpu_seconds;
    uint32_t open_files;
};

struct link_command {
    const char *const *argv;     /* NULL-terminated; argv[0] is looked up in the PATH of `env` */
    const char *const *env;      /* NULL-terminated "K=V": the whole environment */
    const char *cwd;             /* in the box */
    const struct box_user *user; /* NULL: init's own ids */
    enum link_stdio stdio;
    bool no_stdin; /* with LINK_PIPES: /dev/null instead of a pipe */
    int fds[3];    /* with LINK_GIVEN */
    uint16_t rows, columns;
    struct link_limits limits;
    /* Executed in place of what argv[0] names, which is then only what it is called; borrowed. A program,
     * no script. 0: none. Inits before protocol 3 do not know it: "outdated". */
    int program;
    /* Not held: LINK_EXITED is the last of it, its id is free then, and link_hello() kills it. Such ids
     * need not rise, but are none of those that are held. With LINK_GIVEN and a program only. */
    bool is_brief;
};

/* Starts a command, which init holds until link_ack(). Ids are the caller's, never used twice in the
 * life of a box, and rise: an id that init holds is answered with what it knows (LINK_STARTED, and
 * LINK_EXITED if it ended), another one that is not above all that were started is LINK_REFUSED with
 * EEXIST. Nothing is started twice. A command that was refused is not held, and its id may be tried
 * again. Errors: "too_long", "no_memory", "busy" (init takes no more requests), "box_gone". */
int link_exec(struct link *link, uint32_t id, const struct link_command *command,
              struct error *err);

/* To the process group of a command. */
int link_signal(struct link *link, uint32_t id, int signal_number, struct error *err);

/* The command and all that it started, daemons too where the host has cgroup v2. */
int link_kill(struct link *link, uint32_t id, struct error *err);

/* Init closes its duplicate of the pipe to this command's stdin, so that the command sees an end of
 * file once the caller's is closed, too. */
int link_close_stdin(struct link *link, uint32_t id, struct error *err);

/* The end of this command is on record: init forgets it and closes its duplicates. */
int link_ack(struct link *link, uint32_t id, struct error *err);

/* Opens a file below the box's root with openat2(RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS), as init;
 * O_NONBLOCK, O_NOCTTY and O_CLOEXEC are added, set-id bits of `mode` are not. The answer is
 * LINK_OPENED with the fd or an errno; EACCES for what is in /proc, where init would see itself. */
int link_open_file(struct link *link, uint32_t id, const char *path, uint64_t flags, uint32_t mode,
                   struct error *err);

enum link_event_kind {
    LINK_READY,     /* the box stands */
    LINK_HELLO,     /* `version`: which protocol this init speaks */
    LINK_ENTRY,     /* a command that init holds: `pid`, `has_ended`, `status`, `cpu_ns`, `fds` */
    LINK_TABLE_END, /* no more entries */
    LINK_STARTED,   /* `pid`, `fds`: our ends of LINK_PIPES, or fds[0] the terminal, `is_tty` */
    LINK_REFUSED,   /* the command did not start: `step`, `errnum` */
    LINK_EXITED,    /* `status` as of waitpid(), `cpu_ns` */
    LINK_OPENED,    /* `errnum`, or `fds[0]`; the caller checks what kind of file it is */
    LINK_GONE,      /* the last event; `error` says why */
};

struct link_event {
    enum link_event_kind kind;
    uint32_t id;
    uint32_t version;
    pid_t pid; /* in the box */
    bool has_ended;
    bool is_tty;
    int status;
    uint64_t cpu_ns;
    int errnum;
    enum box_step step;
    int fds[3]; /* given to the caller, -1 where none: pipes are pipes, a terminal is a terminal */
    struct error error;
};

/* 1 if there was an event, 0 if not (yet), -1 on an error of ours, after which link_hello() asks for
 * what was lost ("no_fds": we have none left). A box that does not speak the protocol, or answers what
 * it was not asked, is LINK_GONE with the code "bad_init": its caller ends it. */
int link_next(struct link *link, struct link_event *event, struct error *err);
