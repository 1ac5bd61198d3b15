/* libcove: run one command in a box, or a snippet of JavaScript in a kernel, from C.
 *
 * A box shows a read-only view of the host's programs, or a root of the caller's choice, has its own
 * processes, files and no network, limits on all it uses, and is gone with all that it wrote when the
 * command has ended. No daemon, no root needed: what a host cannot give is said in the result.
 *
 * All structs begin as zeros; what is left zero has the default that stands beside it. Strings are
 * UTF-8, borrowed, and read before cove_run() returns. Several threads may each run a box. The process
 * must not have turned itself undumpable (prctl(2)) unless it is root's. Nothing is printed, and no signal
 * handler is touched, but for what a kernel needs: see there. */
#ifndef COVE_H
#define COVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COVE_API __attribute__((visibility("default")))

struct cove_error {
    char code[32];  /* stable, for programs: bad_value, command_not_found, mount_failed, ... */
    char text[512]; /* one sentence for a person: the thing, the cause, the remedy */
    int errnum;     /* the errno behind it, or 0 */
};

struct cove_mount {
    const char *source; /* on the host: a directory or a file */
    const char *target; /* in the box: absolute. One below another one comes after it */
    int writable;
};

struct cove_run {
    const char *const *argv; /* NULL-terminated; argv[0] is looked up in the box's PATH */
    const char *const
        *env;         /* NULL-terminated "K=V", beside PATH, HOME, USER and LANG; NULL: none */
    const char *cwd;  /* NULL: the home of the user */
    const char *user; /* of the box: a name or an id; NULL: an ordinary one */
    const char *
        root; /* a directory that is the box's root, writable, unchanged itself; NULL: the host's */
    const struct cove_mount *mounts;
    size_t mounts_count;

    uint64_t memory_bytes; /* of all processes together; 0: 1 GiB */
    uint64_t disk_bytes;   /* that may be written, /tmp too; 0: 1 GiB */
    uint32_t pids;         /* processes and threads; 0: 512 */
    uint32_t cpu_milli;    /* thousandths of a processor; 0: all there are */
    uint64_t timeout_ms;   /* 0: none */

    /* What the command gets as 0, 1 and 2: fds of the caller, borrowed, as they are; 0: `input` and
     * capturing. A terminal cannot be passed in. */
    int stdin_fd, stdout_fd, stderr_fd;
    const void *input;
    size_t input_size;
    size_t output_limit; /* newest bytes of each that are kept; 0: 1 MiB */

    int cancel_fd;   /* kills the box when it polls readable; 0: none */
    int allow_level; /* not 0: a box without a fresh /proc will do, where the host gives none */
};

struct cove_result {
    int exit_code;            /* of the command; -1 where it ended otherwise */
    int signal;               /* that ended it, or 0 */
    int timed_out;            /* it was killed at its time limit */
    int cancelled;            /* by cancel_fd */
    int oom_killed;           /* it ran out of its memory limit */
    int over_pids, over_disk; /* it was killed for that, on hosts without cgroups */
    char *out, *err;          /* captured, each followed by a NUL; cove_result_free() frees them */
    size_t out_size, err_size;
    uint64_t out_dropped, err_dropped;  /* bytes before those that are kept */
    uint64_t cpu_ns, peak_memory_bytes; /* 0 where the host does not count */
    uint64_t wall_ns;
    const char *level;  /* "full" or "no-fresh-proc" */
    const char *limits; /* "cgroup", or "rlimit": kept by a watchdog */
    const char *ids;    /* "range", "slice" or "single" */
};

/* Runs it and waits. 0: the command ran, and the result says how it ended. -1: it did not, the error says
 * why, and there is nothing to free. Nothing of the box is left in either case. */
COVE_API int cove_run(const struct cove_run *run, struct cove_result *result,
                      struct cove_error *error);
COVE_API void cove_result_free(struct cove_result *result);

COVE_API const char *cove_version(void);

/* ---- kernels: JavaScript and TypeScript in this process, where they can touch nothing ----
 *
 * A kernel is made in microseconds, keeps its state from run to run, and belongs to one thread at a time; as many as
 * there is memory for may be alive. Code in it reaches what `struct cove_grants` names and nothing else.
 *
 * The first run takes SIGSEGV and SIGBUS, and the highest real-time signal that has no handler, for the process, and
 * a thread that runs a kernel must not block them. A fault that is no kernel's goes to the handler that was there
 * before; a program that sets its own handler for SIGSEGV afterwards must pass on to ours what it does not know.
 * Kernels of one process are not safe from each other's side channels. */
struct cove_kernel;

/* Bytes that are lent: not ended by a NUL, and gone with the next call on their kernel. */
struct cove_text {
    const char *data;
    size_t size;
};

/* What a callback answers, once: the first call counts, and without any it is an error. Texts are copied. */
struct cove_answer;
COVE_API void cove_answer_json(struct cove_answer *answer, const char *json, size_t size);
COVE_API void cove_answer_error(struct cove_answer *answer, const char *code, const char *message);
/* `headers`: name, value, name, value, ..., NULL; NULL: none. */
COVE_API void cove_answer_response(struct cove_answer *answer, int status,
                                   const char *const *headers, const void *body, size_t size);

/* `await tools.NAME(args)`: `args` is JSON, and so is the answer. */
typedef void cove_tool_fn(void *data, const char *name, struct cove_text args,
                          struct cove_answer *answer);

/* One hop of a fetch() to a host that `hosts` allows; a redirect is answered as it comes, and each further hop is
 * asked for anew. Before it connects to an address it must ask cove_kernel_may_dial(). */
struct cove_request {
    struct cove_kernel *kernel;
    const char *method, *url;   /* http: or https: */
    const char *const *headers; /* name, value, name, value, ..., NULL: no line ends in them */
    const void *body;
    size_t body_size;
};
typedef void cove_fetch_fn(void *data, const struct cove_request *request,
                           struct cove_answer *answer);

/* What is absent is denied; lists end with NULL, or are NULL. The callbacks are called in cove_kernel_run(), in its
 * thread, one after the other; they cannot call their own kernel but for cove_kernel_may_dial() and
 * cove_kernel_stop(). */
struct cove_grants {
    const char *const *
        hosts; /* NAME, *.NAME, ADDRESS or CIDR, with :PORT if only that; "*": all that is public */
    const char *const *read_paths; /* absolute; a directory grants all below it */
    const char *const *write_paths;
    const char *const *env;   /* "NAME=VALUE" */
    const char *const *tools; /* names that `tool` answers */
    const char *const *argv;
    uint32_t cpu_ms;       /* of CPU time, a run; 0: 5000 */
    uint32_t wall_ms;      /* of time, a run; 0: 30000 */
    uint64_t memory_bytes; /* 0: 128 MiB; at most 4 GiB */
    cove_tool_fn *tool;
    cove_fetch_fn *fetch; /* NULL: no host is reached, whatever `hosts` says */
    void *data;           /* for both */
};

struct cove_source {
    const char *text;
    size_t size;          /* 0: up to its NUL */
    const char *filename; /* in stacks; NULL: "<run>" */
    int typescript, module;
    uint32_t cpu_ms, wall_ms; /* tighter than what is granted; 0: as there */
};

enum cove_level { COVE_LOG, COVE_INFO, COVE_WARN, COVE_ERROR, COVE_DEBUG };

struct cove_log {
    enum cove_level level;
    struct cove_text text;
};

/* What code does is never an error of cove_kernel_run(): it is here. */
struct cove_run_result {
    const char *
        end; /* "value", "error" (it threw), "deadlock", "cpu", "wall", "memory", "stack", "trap", "stopped" */
    int state_lost; /* the next run begins with a pristine kernel: it had to be left by force */
    int has_value; /* `value` is that of the last expression as JSON; without: JSON cannot hold it */
    int is_final;  /* it was given by __finalAnswer__ */
    struct cove_text output; /* the value for people */
    struct cove_text value, type;
    struct cove_text name, message, stack; /* of what was thrown, or ended it */
    uint32_t line, column;                 /* 0: not known */
    int exit_code;                         /* of process.exit(); 1 after an error */
    const struct cove_log *logs;
    size_t logs_count;
    uint32_t logs_dropped; /* lines that were too many */
    uint64_t cpu_ns, wall_ns;
    uint64_t memory_bytes;        /* of the kernel, afterwards */
    struct cove_text errors;      /* what was printed as warning or error */
    struct cove_text value_error; /* why JSON cannot hold the value */
    struct cove_text code;        /* of what was thrown, "ENOENT" for one; empty: it has none */
};

/* Opens the paths: what they name then is what is granted. The callbacks' `data` must outlive the kernel. */
COVE_API int cove_kernel_new(const struct cove_grants *grants, struct cove_kernel **out,
                             struct cove_error *error);
COVE_API void cove_kernel_free(struct cove_kernel *kernel);
/* Runs it to its end. `result` is lent, as its texts are. */
COVE_API int cove_kernel_run(struct cove_kernel *kernel, const struct cove_source *source,
                             const struct cove_run_result **result, struct cove_error *error);
/* From any thread, while the kernel is there: ends the run that is under way, also one that waits for a timer; while a
 * callback is called, when that has returned. The run says "stopped". Without a run it does nothing, and a run that
 * begins afterwards is none of its business. */
COVE_API void cove_kernel_stop(struct cove_kernel *kernel);
/* Back to what it was when it was new, with other random numbers. */
COVE_API int cove_kernel_reset(struct cove_kernel *kernel, struct cove_error *error);
/* A second one in the same state, with other random numbers and no open files. */
COVE_API int cove_kernel_fork(struct cove_kernel *kernel, struct cove_kernel **out,
                              struct cove_error *error);

/* Its state as bytes, for free(), and back, in another process too. They are signed with `key`, 32 secret bytes: what
 * was made with another one, or changed, or by another version of the library, is "bad_snapshot". */
#define COVE_KEY_BYTES 32
COVE_API int cove_kernel_snapshot(struct cove_kernel *kernel, const unsigned char *key,
                                  void **bytes, size_t *size, struct cove_error *error);
COVE_API int cove_kernel_restore(const struct cove_grants *grants, const unsigned char *key,
                                 const void *bytes, size_t size, struct cove_kernel **out,
                                 struct cove_error *error);

/* Whether `address` (as text) may be connected to for a request to `host`, name or address. -1: the error says what
 * forbids it. A name must be looked up once, and what is connected to be what was asked about. */
COVE_API int cove_kernel_may_dial(struct cove_kernel *kernel, const char *host, const char *address,
                                  uint16_t port, struct cove_error *error);

/* Makes a kernel and runs this in it. With 0 it is to be freed by the caller, and the result with it. */
COVE_API int cove_js_run(const struct cove_grants *grants, const struct cove_source *source,
                         struct cove_kernel **out, const struct cove_run_result **result,
                         struct cove_error *error);

#ifdef __cplusplus
}
#endif
#endif
