/* What the tests of workers share: a real worker behind a socket, and what it says. */
#pragma once

#include "kernel/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Seconds that something may take on a machine that does other things. */
#define WORKER_PATIENCE 60

struct worker_end {
    struct remote *remote;
    pid_t pid;
    struct remote_event event; /* the last */
};

/* Ready. `socket` of worker_exec() is this end. */
struct worker_end worker_start(uint64_t memory_bytes);
pid_t worker_exec(int *socket);
/* Ends it; its status of waitpid(). */
int worker_end(struct worker_end *end);

/* The next event; false: there was none in time. */
bool worker_next(struct worker_end *end);
/* The next event is this, of this number. */
bool worker_hears(struct worker_end *end, enum remote_kind kind, uint64_t number);

bool worker_runs(struct worker_end *end, uint64_t run, uint64_t context,
                 const struct kernel_grants *grants, const char *source);
/* Runs, and checks that the output is this. */
#define WORKER_IS(end, run, context, grants, source, wanted)                                     \
    do {                                                                                         \
        const struct kernel_result *got_;                                                        \
        const uint64_t run_ = run;                                                               \
        CHECK(worker_runs(end, run_, context, grants, source), "%s is asked for", source);       \
        CHECK(worker_hears(end, REMOTE_DONE, run_), "%s ends", source);                          \
        got_ = (end)->event.result;                                                              \
        CHECK(got_ != NULL && got_->output.size == strlen(wanted) &&                             \
                  memcmp(got_->output.data, wanted, got_->output.size) == 0,                     \
              "%s is '%.*s' (%.*s)", source, got_ != NULL ? (int)got_->output.size : 0,          \
              got_ != NULL ? got_->output.data : "", got_ != NULL ? (int)got_->message.size : 0, \
              got_ != NULL ? got_->message.data : "");                                           \
    } while (0)
