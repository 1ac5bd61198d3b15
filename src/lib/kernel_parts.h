/* What the files of libcove's kernels share: kernel.c (their life, and runs), kernel_calls.c (what code
 * asks the embedder for). */
#pragma once

#include "cove.h"

#include "kernel/parts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define STREAMS_MAX 64U /* answers that were not read to their end */

/* What kernels that were forked from one share. */
struct shared {
    atomic_uint users;
    struct kernel_manifest *manifest;
    cove_tool_fn *tool;
    cove_fetch_fn *fetch;
    void *data;
};

struct stream;

struct cove_kernel {
    struct kernel_context *context;
    struct shared *shared;
    struct stream *streams[STREAMS_MAX];
    uint32_t last_stream;
    bool is_running;
    pthread_mutex_t
        lock; /* of `is_running`, which only the run's thread sets, and of `is_stopped` */
    pthread_cond_t stopped; /* of a run that waits for a timer */
    bool is_stopped;
    struct cove_run_result result;
    struct cove_log *logs;
    size_t logs_room;
};

/* ---- kernel_calls.c ---- */

/* Answers one call of the code, by the embedder's functions or the answers that are kept here. */
int host_answer(struct cove_kernel *kernel, const struct kernel_call *call, struct error *err);

/* What is answered at once; `data` is the kernel. */
int host_answer_now(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                    struct error *err);

/* The answers that were not read to their end are let go. */
void host_drop_streams(struct cove_kernel *kernel);
