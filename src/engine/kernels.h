/* Kernels of clients: contexts and runs in the tenant's worker, which is a process in an empty box.
 *
 * A worker is made when its tenant first needs one, and ends when it has had nothing to do for a while, or dies.
 * Contexts live in its memory: they end with it, and with this engine, and what is to be kept is snapshotted. What a
 * worker says is hostile: so are all texts of results, names of tools, and bytes of snapshots. */
#pragma once

#include "engine/engine.h"
#include "kernel/kernel.h"

#define KERNELS_CONTEXTS 1000       /* of a tenant, unless cove.conf says another number */
#define KERNELS_MEMORY (1ULL << 30) /* of a tenant's worker; the same */
#define KERNELS_IDLE_MS 86400000    /* then a kernel that nobody uses ends; the same */
#define KERNELS_RUNS 256            /* of a tenant at once */
#define KERNELS_SNAPSHOT_MAX (64U << 20)
#define KERNELS_NAME_MAX 256
#define KERNELS_LABELS_MAX 64
#define KERNELS_SPEC_MAX (64U << 10)  /* bytes of the labels, and of what a kernel may, together */
#define KERNELS_RESULT_MAX (8U << 20) /* bytes of a result's texts */

struct kernel_run; /* lives until `done`, or engine_kernel_leave() */

enum kernel_state { KERNEL_IDLE, KERNEL_RUNNING, KERNEL_BUSY /* reset, copied */ };
const char *kernel_state_name(enum kernel_state state);

struct kernel_spec {
    const char *name;            /* or NULL; for people: several may have the same */
    const char *const *labels;   /* "key=value", NULL-terminated; or NULL */
    struct kernel_grants grants; /* no paths and no arguments */
};

struct kernel_view {
    const char *id, *tenant, *name;
    const char *const *labels;
    const struct kernel_grants *grants; /* limits are the ones in force */
    enum kernel_state state;
    uint64_t created_ms, used_ms; /* wall clock */
    uint64_t runs;
    uint64_t memory_bytes; /* after its last run; 0: there was none */
};

/* Codes: bad_manifest, kernel_not_found, kernel_gone, kernel_busy, bad_snapshot, too_many_kernels, too_many_runs,
 * capacity, kernel_failed. */
typedef void (*engine_kernel_done)(void *arg, const struct kernel_view *view,
                                   const struct error *err);
void engine_kernel_create(struct engine *engine, const struct engine_caller *caller,
                          const struct kernel_spec *spec, engine_kernel_done done, void *arg);
/* Of bytes that engine_kernel_snapshot() gave to this tenant; of malloc(), and taken. */
void engine_kernel_restore(struct engine *engine, const struct engine_caller *caller,
                           const struct kernel_spec *spec, uint8_t *bytes, size_t size,
                           engine_kernel_done done, void *arg);
int engine_kernel_look(struct engine *engine, const struct engine_caller *caller, const char *id,
                       struct kernel_view *view, struct error *err);
/* The caller's tenant's, in order of creation, after the cursor; see engine_list(). */
int engine_kernel_list(struct engine *engine, const struct engine_caller *caller,
                       const char *cursor, size_t limit,
                       bool (*each)(void *arg, const struct kernel_view *view), void *arg,
                       char next[64], struct error *err);
/* At once; what runs in it ends as "stopped". */
int engine_kernel_delete(struct engine *engine, const struct engine_caller *caller, const char *id,
                         struct error *err);
void engine_kernel_reset(struct engine *engine, const struct engine_caller *caller, const char *id,
                         engine_kernel_done done, void *arg);
void engine_kernel_fork(struct engine *engine, const struct engine_caller *caller, const char *id,
                        engine_kernel_done done, void *arg);
/* The bytes begin at `start` in a block of malloc(), which is the callee's. */
typedef void (*engine_kernel_bytes)(void *arg, void *block, size_t start, size_t size,
                                    const struct error *err);
void engine_kernel_snapshot(struct engine *engine, const struct engine_caller *caller,
                            const char *id, engine_kernel_bytes done, void *arg);

/* ---- runs ---- */

struct kernel_run_spec {
    const char *context;                /* NULL: in a pristine one, that is gone afterwards */
    const struct kernel_grants *grants; /* of that; NULL with a context */
    struct kernel_source source;
};
struct kernel_run_calls {
    /* Once, later; with one of the two. The result is borrowed. */
    void (*done)(void *arg, const struct kernel_result *result, const struct error *err);
    /* A tool is called: `asked` is read by kernel_tool_read(), now or later, and then engine_kernel_tool() is told.
     * NULL: nobody answers such calls. */
    void (*tool)(void *arg, uint32_t call, struct kernel_text asked);
    void *arg;
};
/* NULL, and an error. */
struct kernel_run *engine_kernel_run(struct engine *engine, const struct engine_caller *caller,
                                     const struct kernel_run_spec *spec,
                                     const struct kernel_run_calls *calls, struct error *err);
/* From `done` with a result, and from `tool`: all texts of what is told stay until this is freed. NULL: they are small, or
 * there is no memory. Of a worker's only so many stay at once, and meanwhile it is not heard. */
struct kernel_kept;
struct kernel_kept *engine_kernel_keep(struct kernel_run *run);
void engine_kernel_kept_free(struct kernel_kept *kept);
/* `done` follows. */
void engine_kernel_stop(struct kernel_run *run);
/* Stops it, and nobody is told of it any more. */
void engine_kernel_leave(struct kernel_run *run);
/* The arguments of a tool's call; nothing of `args` is checked but that it is a value of JSON. Any thread may read it.
 * False: it is no call of a tool. */
#define KERNEL_TOOL_NAME_MAX 128
struct kernel_tool {
    char name[KERNEL_TOOL_NAME_MAX];
    struct kernel_text args; /* of `asked` */
};
bool kernel_tool_read(struct kernel_text asked, struct kernel_tool *tool);
/* True: the run may call it (NULL: it could not be read), and it is settled once, in any order. Else the code has been told
 * why not. */
bool engine_kernel_tool(struct kernel_run *run, uint32_t call, const struct kernel_tool *tool);
/* Answers a tool's call; `value` is JSON. One that is not there is let go. */
int engine_kernel_settle(struct kernel_run *run, uint32_t call, const char *value, size_t size,
                         struct error *err);
int engine_kernel_settle_error(struct kernel_run *run, uint32_t call, const char *message,
                               struct error *err);

/* ---- numbers ---- */

#define KERNEL_ENDS (KERNEL_END_STOPPED + 1)
struct kernel_counts {
    size_t workers, contexts, running;
    uint64_t runs[KERNEL_ENDS]; /* that have ended, by how */
    uint64_t runs_lost;         /* with their worker */
    uint64_t workers_lost;      /* that ended otherwise than for having nothing to do */
};
void engine_kernel_count(const struct engine *engine, struct kernel_counts *out);
