/* The box: a hostile Linux program that can touch nothing, from the outside.
 *
 * A box is a set of namespaces with an init of ours as PID 1 (init/). It is created cold by
 * box_create(), or by a zygote (zygote.h) whose mount namespace is ready. Commands run inside
 * through init; their output never passes through us. Everything that is left in a box dies with
 * box_destroy(), or when this process dies, however it dies.
 *
 * One thread drives a box. Nothing here prints. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum box_privileges {
    BOX_PLAIN,  /* no capabilities, no_new_privs, nosuid */
    BOX_SYSTEM, /* root inside: what apt, su and sudo need, in the box's own user namespace */
};

enum box_root_kind {
    BOX_ROOT_HOST,  /* the host's system directories, read-only */
    BOX_ROOT_DIR,   /* a directory, writable through an overlay */
    BOX_ROOT_EROFS, /* an erofs image, writable through an overlay */
};

struct root_taken;

struct box_bind {
    const char *source; /* on the host: a directory or a file */
    const char *target; /* in the box: absolute */
    bool read_only;
    /* The source, opened before (root.h), by whoever rules the host's mounts; NULL: box_create() opens it. Borrowed. */
    const struct root_taken *taken;
};

struct box_limits {
    uint64_t memory_bytes;
    uint32_t cpu_milli; /* thousandths of a CPU; 0: all of the host's */
    uint32_t pids;
    uint64_t disk_bytes; /* what the box writes, /tmp and home too; held in memory */
    uint64_t disk_inodes;
};

struct disk_kept;
struct ids;

struct box_spec {
    enum box_root_kind root_kind;
    const char *root_path; /* BOX_ROOT_DIR, BOX_ROOT_EROFS */
    bool is_empty; /* BOX_ROOT_HOST without anything of the host: for a program that is handed to
                            * it (link.h) */
    bool
        own_root; /* BOX_ROOT_HOST: the directory / lies on the box's disk, and may be written to by the
                    * box's root, or by its user if plain. Else it is read-only, and Landlock stands
                    * behind the mounts: a rule for / would hold for what is mounted below, too */
    const struct box_bind *binds;
    size_t binds_count;
    enum box_privileges privileges;
    const char *user;     /* NAME, UID, NAME:GROUP or UID:GID; NULL: `user` if plain, else `root` */
    const char *hostname; /* NULL: "box" */
    struct box_limits limits;
    const struct disk_kept
        *disk; /* outlives the box and holds what it writes: all of an image or of a root of
                                   * its own, of the host's view the home and /tmp (disk.h). Borrowed. NULL: what is
                                   * written goes */
    bool
        many_commands; /* with a cgroup leaf for each, so that one can be killed as a whole; else the
                         * box ends with its first command */
    bool
        allow_set_id; /* what is written to binds may be set-id: only where nobody else gets at it */
    /* No set-id file can be made in it, as with binds that are written to: such may come later (attach.h). */
    bool forbid_set_id;
    bool
        allow_no_fresh_proc; /* where the host forbids a /proc of the box's own (a container that masks
                               * parts of its own does), show that one, read-only, instead of failing */
    bool keeps_network;      /* box_network() is going to be asked for */
    /* box_create() does not wait for the set-up, which a file system of the host may hold up for ever: box_settling()
     * says when it is over. Goes with `keeps_network`. Warnings, and whether it is weaker, are not known then. */
    bool apart;
    void (*tell)(const char *what); /* of work that takes long; may be NULL */
};

/* Who runs the commands of a box, resolved against the box's own /etc/passwd and /etc/group. */
#define BOX_GROUPS_MAX 32
struct box_user {
    uid_t uid;
    gid_t gid;
    gid_t groups[BOX_GROUPS_MAX]; /* supplementary */
    size_t groups_count;
    char name[64]; /* empty where the id has no entry */
    char home[256];
    char shell[256];
};

struct box_command {
    const char *const *argv;     /* NULL-terminated; argv[0] is looked up in the PATH of `env` */
    const char *const *env;      /* NULL-terminated "K=V": the whole environment */
    const char *cwd;             /* in the box; NULL: the user's home */
    const struct box_user *user; /* NULL: the box's own user. Another one needs BOX_SYSTEM */
    bool tty;                    /* a terminal of the box's own devpts, sent with BOX_STARTED */
    uint16_t tty_rows, tty_columns;
    int stdio[3]; /* ignored with `tty`; borrowed: the caller closes them after box_exec() */
};

enum box_event_kind {
    BOX_READY,   /* the box stands: it is locked down and its init waits for commands */
    BOX_STARTED, /* the command runs: `pid` (in the box), `tty` fd or -1 (given to the caller) */
    BOX_REFUSED, /* the command did not start: `errnum`, `step` */
    BOX_EXITED,  /* the command ended: `status` as of waitpid() */
    BOX_GONE,    /* the box ended: `error` says why; its last event */
};

enum box_step { BOX_STEP_CWD = 1, BOX_STEP_USER, BOX_STEP_TTY, BOX_STEP_SPAWN, BOX_STEP_EXEC };

struct box_event {
    enum box_event_kind kind;
    uint32_t command; /* the id given to box_exec() */
    pid_t pid;
    int tty;
    int status;
    int errnum;
    enum box_step step;
    struct error error;
};

struct box_report {
    bool oom_killed;
    bool pids_exceeded; /* it was ended for that; only where a watchdog limits them */
    bool disk_exceeded; /* it was ended for that; only where the disk is watched */
    bool usage_known;   /* else the last two are 0 */
    uint32_t oom_kills; /* how often; 0 from the guard of an older version, which says yes or no */
    uint64_t cpu_ns;    /* all processes of the box */
    uint64_t peak_memory_bytes; /* with what it wrote to its disk */
};

struct box;

/* Makes a box. Returns as soon as its init is being set up: a failure in there arrives as
 * BOX_GONE. `spec` is not kept. The process is dumpable (prctl(2)) for a moment, for else the kernel lets
 * nobody give the box of an ordinary user its ids. */
int box_create(const struct box_spec *spec, struct box **out, struct error *err);

/* How strong the box is. One line per way in which it is weaker than elsewhere is at box_warning(), NULL
 * after the last. */
const char *box_level(const struct box *box);       /* "full" or "no-fresh-proc" */
const char *box_limits_kind(const struct box *box); /* "cgroup", or "rlimit": with a watchdog */
const char *box_ids_kind(const struct box *box);    /* "range", "slice" or "single" */
const char *box_disk_kind(const struct box *box);   /* "hard" or "watched" */
const char *box_warning(const struct box *box, size_t index);

/* The user that box_spec.user named. */
const struct box_user *box_default_user(const struct box *box);

/* Asks init to run a command; its events carry `id`. May be called at once after box_create(). */
int box_exec(struct box *box, uint32_t id, const struct box_command *command, struct error *err);

/* Sends a signal to the process group of a command. */
int box_signal(struct box *box, uint32_t id, int signal_number, struct error *err);

/* Kills a command and all that it started, daemons too where the host has cgroup v2. */
int box_kill(struct box *box, uint32_t id, struct error *err);

/* An fd that polls readable when box_next() has something to say. */
int box_fd(const struct box *box);

/* Takes the next event: 1 if there was one, 0 if not, -1 on error. Does not block. */
int box_next(struct box *box, struct box_event *event, struct error *err);

/* A duplicate of the box's control socket, for another process to drive the box by (link.h) while this
 * one keeps it: the box lives as long as anybody has one. Who hands it on does not call box_exec(),
 * box_signal(), box_kill() and box_next() from then on. The fd, or -1. */
int box_control_dup(const struct box *box, struct error *err);

/* Its network namespace, to be opened (network.h): borrowed. -1: it was not kept, or a zygote's slot has it, or
 * the box has failed before it had one. */
int box_network(struct box *box);

/* Of a box that is set up apart: an fd that polls readable when there is news, and -1 when the set-up is over. Takes the
 * news, and does not wait. */
int box_settling(struct box *box);
/* Closes that fd. */
void box_settled(struct box *box);

/* Its ids, of a cold one. */
const struct ids *box_ids(const struct box *box);

/* The pidfd of its init, borrowed; -1 once that is known to be gone. */
int box_init(const struct box *box);

/* Ends a box without waiting: 0 when `*wait_fd` has to poll readable before this is called again, 1 when
 * box_destroy(), with a report, will not wait. Nobody needs to have asked before. */
int box_end(struct box *box, int *wait_fd);

/* The box takes its time to end: its CPU limit is lifted, which it may be held up by. */
void box_hurry(struct box *box);

struct cgroup_host;
struct cgroup_usage;

/* What a living box used so far, in groups that were made below the same place as `host` names. */
int box_usage(struct box *box, const struct cgroup_host *host, struct cgroup_usage *out);

/* What it wrote that ends with it: its files in memory. 0, or -1 where nobody counts that. */
int box_files(const struct box *box, const struct cgroup_host *host, uint64_t *bytes);

/* As cgroup_pids() and cgroup_limit_pids(). */
int box_pids(const struct box *box, const struct cgroup_host *host, uint64_t *now, uint64_t *most);
int box_limit_pids(const struct box *box, const struct cgroup_host *host, uint64_t most);

/* Kills what is left, waits until all of it is gone (processes, mounts, cgroups) and frees the
 * handle. `report` may be NULL. */
int box_destroy(struct box *box, struct box_report *report, struct error *err);

/* ---- another program takes the boxes of this process over (base/hand.h) ---- */

struct hand;
struct cgroup;

/* All that is needed to look after a box, and to end it; `lent` is what a zygote's box was lent. What was
 * read and not sound is to be dropped. Nothing more is said to a box that was handed on. */
void box_hand(struct hand *hand, struct box **box, const struct cgroup *lent);
/* Frees what was read, and nothing else: no process is touched. */
void box_drop(struct box *box);

/* Which version of the init protocol its init was told to speak, and that of boxes made from now on. */
uint32_t box_protocol(const struct box *box);
uint32_t box_protocol_now(void);
