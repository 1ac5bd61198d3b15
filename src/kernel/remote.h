/* Kernels in another process: the engine's end of a worker (src/kernel/worker), which is a process of one
 * tenant in a box without anything in it, behind a filter of system calls.
 *
 * Whoever took the worker over holds the other end of the socket: what it says is checked, bounded, and still
 * hostile (texts, JSON, numbers are what the worker says they are). It cannot make this end block, allocate
 * beyond the bounds, or hear of anything that was not its own. One thread drives a remote; nothing here blocks:
 * what the socket has no room for waits in here.
 *
 * Numbers of contexts and runs are the caller's, of one sequence for both, never 0 and never used twice in the life
 * of a remote. Each request but a drop, a stop and a settling is answered once: by what it asked for or by
 * REMOTE_FAILED; those of one context are done in their order. */
#pragma once

#include "kernel/kernel.h"

struct remote;

/* Takes the socket, a stream; the worker is told the key of its tenant's snapshots. `memory_bytes`: all that
 * its contexts together may take, 0: no bound but its box's. */
struct remote_options {
    uint8_t key[KERNEL_KEY_BYTES];
    uint64_t memory_bytes;
    uint64_t result_bytes; /* most of all texts of a result; 0: what a frame holds */
};
/* The program, as a sealed memfd that can be executed; the caller's. It is its bytes copied: once for an engine. It
 * needs nothing but the socket as its fd 0; 1 and 2 may be anything, and are closed once it is ready. Of a box it
 * needs some processes (each thread is one) and, to be fast, /proc. */
#define KERNEL_WORKER_TASKS 32U
int kernel_worker_program(struct error *err);

int remote_open(int socket, const struct remote_options *options, struct remote **out,
                struct error *err);
void remote_close(struct remote *remote); /* the worker ends */
void remote_closep(struct remote **remote);
int remote_fd(const struct remote *remote);           /* poll it readable, */
bool remote_wants_write(const struct remote *remote); /* and writable, then call remote_next() */
size_t remote_waiting(const struct remote *remote);   /* bytes that wait to be sent */

/* ---- contexts; errors come as REMOTE_FAILED with this number ---- */

/* `grants` name no paths here: there are no files where a worker is ("bad_manifest"). */
int remote_new(struct remote *remote, uint64_t context, const struct kernel_grants *grants,
               struct error *err);
/* What is told of it is told of `copy`. */
int remote_fork(struct remote *remote, uint64_t context, uint64_t copy, struct error *err);
/* A run that is under way is stopped. */
int remote_reset(struct remote *remote, uint64_t context, struct error *err);
int remote_drop(struct remote *remote, uint64_t context,
                struct error *err); /* its run is stopped */
int remote_snapshot(struct remote *remote, uint64_t context, struct error *err);
/* The bytes are of malloc(), and taken: they are sent from where they are. */
int remote_restore(struct remote *remote, uint64_t context, const struct kernel_grants *grants,
                   uint8_t *bytes, size_t size, struct error *err);

/* ---- runs ---- */

/* In `context`; or, with 0, in a pristine one that is gone afterwards, with `grants` (else NULL). One run at a
 * time in a context: "kernel_busy", as REMOTE_FAILED with the number of the run. */
int remote_run(struct remote *remote, uint64_t run, uint64_t context,
               const struct kernel_grants *grants, const struct kernel_source *source,
               struct error *err);
int remote_stop(struct remote *remote, uint64_t run, enum kernel_end end, struct error *err);
/* As kernel_settle(). */
int remote_settle(struct remote *remote, uint64_t run, uint32_t call, const char *meta,
                  size_t meta_size, const uint8_t *bytes, size_t bytes_size, struct error *err);
int remote_settle_error(struct remote *remote, uint64_t run, uint32_t call, const char *code,
                        const char *message, struct error *err);

/* ---- what comes back; all texts and bytes are borrowed until the next call of remote_next() ---- */

enum remote_kind {
    REMOTE_READY = 1, /* of the process: it has shut itself in */
    REMOTE_MADE,      /* of remote_new(), remote_fork(), remote_reset(), remote_restore() */
    REMOTE_SNAPSHOT,  /* `bytes`, `size` */
    REMOTE_CALL,      /* the code asks for something that takes time: `call` */
    REMOTE_CANCEL, /* a synchronous call that has no answer ("fetch.cancel"): `call`, whose id says nothing */
    REMOTE_DONE,   /* `result`; calls of it that were not settled are to be forgotten */
    REMOTE_FAILED, /* `error`: what was asked for was not done; `of`: what would have come */
    REMOTE_GONE,   /* the last event: it ended, or said what it must not ("bad_worker"); `error` */
};
struct remote_event {
    enum remote_kind kind;
    enum remote_kind of;
    uint64_t number; /* of the run or the context */
    struct kernel_call call;
    const struct kernel_result *result;
    const uint8_t *bytes;
    size_t size;
    struct error error;
};
/* All texts and bytes of the event that is out, taken: they stay where they are. NULL: there is no memory, and they are
 * borrowed as before. */
struct remote_kept {
    void *bytes;
    struct kernel_log *logs; /* of a result */
};
struct remote_kept *remote_keep(struct remote *remote);
void remote_kept_free(struct remote_kept *kept);
/* The same of an event that has no result: the block of malloc() that all is in. */
void *remote_take(struct remote *remote);
/* Reads, writes, both in bounds; 1 if there was an event, 0 if not (yet): poll it before the next try. */
int remote_next(struct remote *remote, struct remote_event *event);
