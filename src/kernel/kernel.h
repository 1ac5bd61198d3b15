/* Kernels: a snippet of JavaScript or TypeScript in a sandbox of its own that is made in microseconds.
 *
 * The language's engine is WebAssembly, compiled ahead to machine code (wasm2c, gcc): it reaches its own
 * memory and the host functions of this room, and nothing else. An *image* is the memory of an engine that
 * has booted; a *context* is a copy of it that runs code, keeps its state from run to run, and is put back
 * by copying the pages that it changed.
 *
 * A context belongs to one thread at a time; images and manifests may be shared by threads. A run goes on
 * the calling thread, on a stack of the kernel's own, and is stopped by a timer of that thread at the limit
 * of its CPU time, wherever it is. What it asks of the host comes out as calls: those that can be
 * answered at once (files, by the manifest) are answered here, the rest waits for kernel_settle().
 *
 * Traps are signals: the first use takes SIGSEGV and SIGBUS, and one real-time signal, for the process. A
 * fault that is not a guest's, in the guest's own memory, goes to the handler that was there before, or
 * kills the process: it is never survived. */
#pragma once

#include "base/err.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL_CPU_MS_DEFAULT 5000U
#define KERNEL_WALL_MS_DEFAULT 30000U
#define KERNEL_MEMORY_DEFAULT (128ULL << 20)
#define KERNEL_MEMORY_MAX (4ULL << 30)
#define KERNEL_MS_MAX 86400000U       /* of either limit: a day */
#define KERNEL_SOURCE_MAX (16U << 20) /* bytes of one run's source */
#define KERNEL_META_MAX (16U << 20)   /* bytes of the JSON of a call, or of its answer */
#define KERNEL_GRANTS_MAX 256U        /* of each kind */
#define KERNEL_LOGS_MAX 65536U        /* records of one run's log; more are counted as dropped */
#define KERNEL_ENTROPY_BYTES 32
#define KERNEL_KEY_BYTES 32

struct kernel_image;
struct kernel_manifest;
struct kernel_context;

/* Bytes that are lent: not ended by a NUL, and gone with the next call on their context. */
struct kernel_text {
    const char *data;
    size_t size;
};
bool kernel_text_is(struct kernel_text text, const char *word);

/* ---- the manifest: what code may reach; what is absent is denied ---- */

/* Lists end with NULL, or are NULL. 0 is the default of a limit. */
struct kernel_grants {
    const char *const *hosts;       /* rules as in policy.h; "*" is all of the public internet */
    const char *const *read_paths;  /* absolute; a directory grants all below it */
    const char *const *write_paths; /* absolute; what is to be created may not be there yet */
    const char *const *env;         /* "NAME=VALUE" */
    const char *const *tools;       /* names of host functions */
    const char *const *argv;        /* process.argv after the program and the script */
    uint32_t cpu_ms;
    uint32_t wall_ms;
    uint64_t memory_bytes;
};

/* Opens the paths: what they name then is what is granted. "bad_manifest" names the grant. */
int kernel_manifest_new(const struct kernel_grants *grants, struct kernel_manifest **out,
                        struct error *err);
void kernel_manifest_free(struct kernel_manifest *manifest); /* after its contexts */
void kernel_manifest_freep(struct kernel_manifest **manifest);
const struct policy *kernel_manifest_policy(const struct kernel_manifest *manifest);
bool kernel_manifest_has_tool(const struct kernel_manifest *manifest, const char *name,
                              size_t size);

/* ---- images ---- */

/* The JavaScript engine with its prelude, booted when this library was built. */
int kernel_image_js(struct kernel_image **out, struct error *err);

/* Boots it with other scripts for a prelude: (name, source) pairs of C strings that end with NULL.
 * "bad_prelude" says what the scripts threw. */
int kernel_image_boot(const char *const *scripts, struct kernel_image **out, struct error *err);

/* A copy of a live context that no run is under way in, to make any number of contexts of. */
int kernel_image_of(struct kernel_context *context, struct kernel_image **out, struct error *err);

void kernel_image_free(struct kernel_image *image); /* after its contexts */
void kernel_image_freep(struct kernel_image **image);
size_t kernel_image_bytes(const struct kernel_image *image); /* of memory that all contexts share */

/* ---- contexts ---- */

/* A pristine one. `entropy` seeds its random numbers: KERNEL_ENTROPY_BYTES that nobody else was given. */
int kernel_context_new(struct kernel_image *image, const struct kernel_manifest *manifest,
                       const uint8_t *entropy, struct kernel_context **out, struct error *err);
/* Fresh entropy from the system: what is taken where `entropy` is NULL. */
int kernel_entropy(uint8_t entropy[KERNEL_ENTROPY_BYTES], struct error *err);

/* Back to what it was when it was new; a run that is under way is forgotten. "kernel_busy" in a host function
 * of its own. */
int kernel_context_reset(struct kernel_context *context, const uint8_t *entropy, struct error *err);
/* A second one in the same state, with other random numbers; "kernel_busy" while a run is under way.
 * What the host keeps for it (open files) stays with the first. */
int kernel_context_fork(struct kernel_context *context, const uint8_t *entropy,
                        struct kernel_context **out, struct error *err);
/* For one that will not run for a while: gives back the memory that it shares with its image again. Half of
 * what a run writes is as it was by its end (counts of references). It takes microseconds. */
void kernel_context_rest(struct kernel_context *context);
/* Bytes of its image's memory that it has of its own; what it grew by is not in there. */
uint64_t kernel_context_held(const struct kernel_context *context);
void kernel_context_free(struct kernel_context *context);
void kernel_context_freep(struct kernel_context **context);

/* What all contexts of the process together may grow by, before any of them is made (0: no bound): beyond it a run
 * has no more memory, as at its own limit. And what they have grown by. */
void kernel_memory_bound(uint64_t bytes);
uint64_t kernel_memory_grown(void);

/* Its state as bytes, to be freed, and back, also in another process. They are signed with `key`: what
 * was not made with it, or was changed since, or belongs to another image is refused ("bad_snapshot"). */
int kernel_snapshot(struct kernel_context *context, const uint8_t key[KERNEL_KEY_BYTES],
                    uint8_t **bytes, size_t *size, struct error *err);
int kernel_restore(struct kernel_image *image, const struct kernel_manifest *manifest,
                   const uint8_t *entropy, const uint8_t key[KERNEL_KEY_BYTES],
                   const uint8_t *bytes, size_t size, struct kernel_context **out,
                   struct error *err);

/* ---- runs ---- */

enum kernel_language { KERNEL_JS, KERNEL_TS };

struct kernel_source {
    const char *text;
    size_t size;
    const char *filename; /* in stacks; NULL: "<run>" */
    enum kernel_language language;
    bool module;
    /* Tighter than the manifest's; 0: as there. */
    uint32_t cpu_ms;
    uint32_t wall_ms;
};

enum kernel_status {
    KERNEL_DONE = 1, /* the result is there */
    KERNEL_WAITS,    /* for kernel_settle(), or for the time of kernel_wait_ms() */
};

/* How a run ended. */
enum kernel_end {
    KERNEL_END_VALUE,
    KERNEL_END_ERROR,    /* it threw */
    KERNEL_END_DEADLOCK, /* it waits for a promise that nothing can settle any more */
    KERNEL_END_CPU,
    KERNEL_END_WALL,
    KERNEL_END_MEMORY,
    KERNEL_END_STACK,
    KERNEL_END_TRAP,    /* the engine itself failed; only this context is harmed */
    KERNEL_END_STOPPED, /* by kernel_stop() */
};

enum kernel_level { KERNEL_LOG, KERNEL_INFO, KERNEL_WARN, KERNEL_ERROR, KERNEL_DEBUG };

struct kernel_log {
    enum kernel_level level;
    struct kernel_text text;
};

struct kernel_result {
    enum kernel_end end;
    /* The state that was there before is gone: the next run begins with a pristine context. */
    bool state_lost;
    bool has_value;            /* `value` is the result as JSON; without: JSON cannot hold it */
    bool is_final;             /* it was given by __finalAnswer__ */
    bool has_value_error;      /* `value_error` says why JSON cannot hold it */
    struct kernel_text output; /* the value for people */
    struct kernel_text type;   /* "number", "object", ... */
    struct kernel_text value, value_error;
    struct kernel_text errors; /* what was printed as warning or error */
    /* Of what was thrown, or of what ended it. */
    struct kernel_text name, message, stack, code;
    uint32_t line, column; /* 0: not known */
    int32_t exit_code;     /* of process.exit(), else 0, or 1 after an error */
    const struct kernel_log *logs;
    size_t logs_count;
    uint32_t logs_dropped; /* what did not fit */
    uint64_t cpu_ns, wall_ns;
    uint64_t memory_bytes; /* of the context, afterwards */
};

/* Begins a run, and goes on with one that waits. -1 is an error of the caller's or of the machine; what
 * code does is never one: it is a result. */
int kernel_run(struct kernel_context *context, const struct kernel_source *source,
               enum kernel_status *status, struct error *err);
int kernel_step(struct kernel_context *context, enum kernel_status *status, struct error *err);

/* Of a run that waits: how long until kernel_step() has something to do without a kernel_settle(), by
 * a timer of the code's or by the run's limit of time. */
uint64_t kernel_wait_ms(const struct kernel_context *context);

/* Ends a run that waits; its result says `end`, which is KERNEL_END_STOPPED or KERNEL_END_WALL. */
void kernel_stop(struct kernel_context *context, enum kernel_end end);

/* From any thread, while the context is there: ends a run wherever it is, its own code or what is native; its
 * result says `end`, which is KERNEL_END_STOPPED or KERNEL_END_WALL. It holds for each run until it is taken back
 * with KERNEL_END_VALUE. One that waits ends when it is stepped. */
void kernel_interrupt(struct kernel_context *context, enum kernel_end end);

/* What the first run of a thread does: a stack and timers for guests. Afterwards runs make none of them. */
int kernel_thread_prepare(struct error *err);

/* Of the last run. */
const struct kernel_result *kernel_result(const struct kernel_context *context);
const char *kernel_end_name(enum kernel_end end); /* "value", "error", "cpu", ... */

/* ---- calls of the host ---- */

/* What code asks for that takes time: op "fetch.start", "fetch.read", "tool", ...; texts are borrowed
 * until it is settled. A tool's name and a host are not checked here. */
struct kernel_call {
    uint32_t id;
    struct kernel_text op, meta; /* JSON */
    const uint8_t *bytes;
    size_t bytes_size;
};

/* The next call that was not taken yet; false: there is none. Calls are taken in their order and settled
 * in any. */
bool kernel_call_next(struct kernel_context *context, struct kernel_call *call);

/* Answers it: JSON ("null" for NULL) and bytes, if not NULL. One that is not there any more is let go. */
int kernel_settle(struct kernel_context *context, uint32_t id, const char *meta, size_t meta_size,
                  const uint8_t *bytes, size_t bytes_size, struct error *err);
int kernel_settle_error(struct kernel_context *context, uint32_t id, const char *code,
                        const char *message, struct error *err);

/* Answers to synchronous calls that this room does not answer itself. `meta` is JSON; 0, or -1 with an
 * error whose code and text the code sees. The memory is malloc()ed and taken. */
struct kernel_answer {
    char *meta;
    size_t meta_size;
    uint8_t *bytes;
    size_t bytes_size;
};
typedef int kernel_answerer(void *data, const struct kernel_call *call,
                            struct kernel_answer *answer, struct error *err);
void kernel_set_answerer(struct kernel_context *context, kernel_answerer *answerer, void *data);
