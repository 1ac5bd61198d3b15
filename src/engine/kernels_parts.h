/* What the files kernels*.c of this room share.
 *
 * Nothing of a worker is freed while something of it is being called: it is only unlisted, and buried from the
 * loop. */
#pragma once

#include "engine/kernels.h"
#include "engine/parts.h"
#include "kernel/remote.h"

#include <sys/queue.h>

#define KERNELS_ID_FIRST "k"

/* ---- grants (kernels_grants.c): one copy, of a context and those that were forked of it ---- */

struct grants {
    unsigned holds;
    char **labels;
    struct kernel_grants given; /* with the limits in force */
    struct kernel_manifest *manifest;
};
int grants_new(struct engine *engine, const struct kernel_grants *given, const char *const *labels,
               struct grants **out, struct error *err);
struct grants *grants_hold(struct grants *grants);
void grants_drop(struct grants *grants);
/* A list in one block; NULL for NULL. */
char **texts_copy(const char *const *texts);

/* ---- a tenant's worker (kernels_worker.c) ---- */

enum worker_step {
    WORKER_MAKING,   /* the keeper makes its box */
    WORKER_BOXED,    /* the box is about to stand */
    WORKER_STARTING, /* the program is about to shut itself in */
    WORKER_READY,
    WORKER_ENDING, /* it has hung up: its box is about to say how it ended */
    WORKER_DEAD,   /* it is no more, and will be buried */
};

struct context;
struct kernel_run;
struct worker {
    TAILQ_ENTRY(worker) next;
    struct kernels *kernels;
    char tenant[64];
    uint64_t serial;    /* which one this is; no other has it */
    uint32_t cpu_milli; /* 0: all */
    enum worker_step step;
    uint64_t box; /* 0: none */
    struct link *link;
    struct remote *remote;
    int program_end; /* of the socket: the worker's; until it is started */
    int errors;      /* what it says before it is ready */
    uv_poll_t link_poll, remote_poll;
    bool has_link_poll, has_remote_poll;
    int polled;                /* for what, of remote_poll */
    unsigned handles;          /* that are not closed */
    bool is_listed, is_taking; /* events of the remote */
    struct alarm patience, idle;
    uint64_t number;                           /* of the newest run or context */
    struct map runs, contexts;                 /* by their keys */
    TAILQ_HEAD(run_list, kernel_run) run_list; /* the oldest first */
    TAILQ_HEAD(context_list, context) list;    /* in order of creation */
    size_t contexts_count, runs_count;
    size_t event_bytes; /* texts of the event that is out */
    unsigned kept;      /* events with large texts that are not done with yet */
};
struct remote_kept;
/* Of the event that is out, if it has large texts: when these are let go, the worker is heard on. */
struct remote_kept *worker_keep(struct worker *worker);
void worker_kept_free(struct kernels *kernels, uint64_t serial, struct remote_kept *kept);

/* The tenant's, made if there is none. */
int worker_of(struct kernels *kernels, const char *tenant, struct worker **out, struct error *err);
/* After something was asked of its remote. */
void worker_asked(struct worker *worker);
/* It ends: whoever waits for something of it is told why, its contexts are gone. */
void worker_end(struct worker *worker, const struct error *why, bool is_idle);
/* It has one thing less to do. */
void worker_rest(struct worker *worker);
void worker_free(struct worker *worker);
void worker_bury(struct kernels *kernels);

/* ---- contexts (kernels.c) ---- */

#define NUMBER_KEY 24

enum context_work {
    CONTEXT_REST,
    CONTEXT_MAKING,
    CONTEXT_RUN,
    CONTEXT_RESET,
    CONTEXT_FORK, /* of it */
    CONTEXT_SNAPSHOT,
};

struct context {
    TAILQ_ENTRY(context) next;
    struct worker *worker;
    char id[24], key[NUMBER_KEY];
    uint64_t number;
    char *name;
    struct grants *grants;
    enum context_work work;
    struct kernel_run *run; /* CONTEXT_RUN */
    struct context *parent; /* CONTEXT_MAKING by a fork; it is CONTEXT_FORK meanwhile */
    struct context *copy;   /* the same from the other side */
    union {
        engine_kernel_done plain;
        engine_kernel_bytes bytes;
    } done;
    void *arg;
    struct alarm patience;
    uint64_t created_ms, used_ms, runs, memory_bytes;
};

/* What was a context, and why it is none. */
struct kernel_gone {
    TAILQ_ENTRY(kernel_gone) next;
    char id[24], tenant[64], why[160];
};
#define KERNELS_GONE_MAX 16384

void context_made(struct worker *worker, const char *key);
void context_snapshotted(struct worker *worker, const char *key, const uint8_t *bytes, size_t size);
/* False: nothing of this number waits for an answer. */
bool context_failed(struct worker *worker, const char *key, const struct error *err);
void context_lost(struct context *context, const struct error *why);
void context_rest(struct context *context);
struct context *context_find(struct kernels *kernels, const struct engine_caller *caller,
                             const char *id, struct error *err);
int context_is_free(const struct context *context, struct error *err);

/* ---- runs (kernels_run.c) ---- */

void run_called(struct worker *worker, const char *key, const struct kernel_call *call);
void run_cancelled(struct worker *worker, const char *key, const struct kernel_call *call);
void run_done(struct worker *worker, const char *key, const struct kernel_result *result);
bool run_failed(struct worker *worker, const char *key, const struct error *err);
/* All that are under way in this worker; who waits for them is told from the loop. */
void runs_lost(struct worker *worker, const struct error *why);
void runs_tell_lost(struct kernels *kernels);
/* The engine is about to end, and its workers with it: those that do not end soon are ended. */
void runs_drain(struct worker *worker);
/* Its context is about to be no more. */
void run_leave_context(struct kernel_run *run);

/* ---- all of them ---- */

struct kernels {
    struct engine *engine;
    TAILQ_HEAD(worker_list, worker) workers, dead;
    struct run_list lost;      /* runs whose worker is gone */
    int program;               /* of workers; -1: it is not opened yet */
    struct map contexts, gone; /* by id */
    TAILQ_HEAD(gone_list, kernel_gone) gone_list;
    size_t gone_count;
    struct fetches *fetches;   /* NULL: nobody has fetched anything */
    uint8_t key[SHA256_BYTES]; /* of which those of the tenants are derived */
    bool has_key;
    bool will_bury;
    struct kernel_counts counts; /* what only grows */
};
/* What counts of a worker with these. */
uint64_t kernels_cpu(const struct engine *engine, uint32_t cpu_milli);
/* Has `fetches`. */
int kernels_fetches(struct kernels *kernels, struct error *err);
void kernels_number(struct worker *worker, uint64_t *number, char key[NUMBER_KEY]);
