/* libcove: run one command in a box, from C.
 *
 * A box shows a read-only view of the host's programs, or a root of the caller's choice, has its own
 * processes, files and no network, limits on all it uses, and is gone with all that it wrote when the
 * command has ended. No daemon, no root needed: what a host cannot give is said in the result.
 *
 * All structs begin as zeros; what is left zero has the default that stands beside it. Strings are
 * UTF-8, borrowed, and read before cove_run() returns. Several threads may each run a box. The process
 * must not have turned itself undumpable (prctl(2)) unless it is root's. Nothing is printed, and no signal
 * handler is touched. */
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

#ifdef __cplusplus
}
#endif
#endif
