/* What the files of the addon share. From below: pool.c (threads and their turns), guest.c (what a turn is), judge.c
 * (which address may be dialled), tell.c (what comes back), addon.c (what JavaScript sees).
 *
 * JavaScript has one thread for each environment (the process's own, and one for each of its workers); it never waits here
 * and never enters a kernel. Threads of the pool do, for all environments. What they have to tell goes into the list of
 * the environment's instance, and one call wakes it up for all that lies there. One lock guards all that both sides touch;
 * it is held for moments only. */
#pragma once

#include "kernel/kernel.h"

#define NAPI_VERSION 8
#include <node_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of what a guest asked for: that it is done, or that it calls its host. */
enum event_kind { EVENT_DONE, EVENT_CALL, EVENT_CANCEL };

struct event {
    struct event *next;
    enum event_kind kind;
    uint32_t ticket; /* of the job */
};

/* A call of the host; the texts lie behind it. */
struct call {
    struct event event;
    uint32_t id;
    struct kernel_text op, meta;
    const uint8_t *bytes;
    size_t bytes_size;
};

/* An answer of this number is not wanted any more. */
struct cancel {
    struct event event;
    uint32_t stream;
};

/* A result that is nobody's but the job's: logs and texts lie behind it. */
struct outcome {
    struct kernel_result result;
};

enum job_kind { JOB_OPEN, JOB_RUN, JOB_RESET, JOB_SNAPSHOT, JOB_FORK };

struct job {
    struct event event;
    struct job *next;
    enum job_kind kind;
    bool stop;                   /* asked for */
    struct kernel_source source; /* of a run; the texts lie behind it */
    struct guest *child;         /* of a fork; a reference */
    uint8_t *bytes;              /* of a snapshot, to restore or made; NULL: none */
    size_t size;
    uint8_t key[KERNEL_KEY_BYTES];
    bool failed;
    struct error err;
    struct outcome *outcome; /* of a run */
    char text[];
};

/* An answer to a call, on its way to the guest. */
struct settle {
    struct settle *next;
    uint32_t id;
    bool ok;
    const char *meta; /* JSON; of an error its code, with the message behind its NUL */
    size_t meta_size;
    const uint8_t *bytes; /* NULL: none */
    size_t bytes_size;
    char text[];
};

/* A manifest that is shared by guests. */
struct grants {
    unsigned refs;
    struct kernel_manifest *manifest;
};

enum guest_place {
    GUEST_IDLE,
    GUEST_READY, /* waits for a thread */
    GUEST_RUNS,  /* a thread has it, and all of it but what says otherwise is that one's */
    GUEST_WAITS, /* for an answer, or for its time */
};

/* A kernel, with what it is to do, in order. */
struct guest {
    unsigned refs; /* of JavaScript, of its place unless it is idle, of a job that forks to it */
    struct instance *instance;
    struct grants *grants;
    struct kernel_context *context; /* NULL: none yet */
    bool once;                      /* it goes with its job */
    uint32_t
        cancels; /* what its run may give up: one for each request; of the thread that has it */
    /* From here on by the lock. */
    struct guest *next;           /* of those that are ready */
    struct guest *newer, **older; /* of the instance's */
    enum guest_place place;
    bool dropped;
    bool begun;  /* the first of its jobs is */
    bool rested; /* it holds nothing that it could give back */
    struct job *jobs, **jobs_last;
    struct settle *settles, **settles_last;
    uint64_t due;    /* when it gets a turn by itself */
    size_t times_at; /* in the heap of those, from 1; 0: it is not there */
};

/* What belongs to one environment. */
struct instance {
    unsigned refs; /* of the environment, and of each guest */
    struct guest *guests;
    struct event *events, **events_last;
    bool woken; /* it will look at its events */
    bool closed;
    pthread_mutex_t waking; /* of `gone`, so that nobody calls what is no more */
    bool gone;
    napi_threadsafe_function wake;
    /* Of JavaScript's thread alone. */
    napi_env env;
    napi_ref on_done, on_call, on_cancel;
    uint32_t pending; /* jobs; with none the process may end */
};

/* ---- pool.c ---- */

void pool_lock(void);
void pool_unlock(void);
/* All with the lock. */
void pool_ready(struct guest *guest); /* it gets a turn; takes it out of the heap */
void pool_later(struct guest *guest, uint64_t due);
void pool_not_later(struct guest *guest);
bool pool_has_ready(void);
bool pool_has_threads(void); /* or can make one */
/* By the end of the process: nobody is woken any more. */
bool pool_is_over(void);

/* ---- guest.c ---- */

/* With the lock, which is let go in between: one turn, after which the guest is idle, ready, waiting or gone. */
void guest_turn(struct guest *guest);

struct instance *instance_new(void);
void instance_unref(struct instance *instance); /* with the lock */
/* The environment ends: its runs are stopped, and nothing comes from them any more. */
void instance_close(struct instance *instance);
struct event *instance_take(struct instance *instance);
void event_free(struct event *event);

struct guest *guest_new(struct instance *instance, struct grants *grants, bool once);
void guest_add(struct guest *guest, struct job *job);                           /* takes the job */
void guest_settle(struct guest *guest, uint32_t ticket, struct settle *settle); /* and the answer */
void guest_stop(struct guest *guest, uint32_t ticket);
/* JavaScript needs it no longer. What it was to do ends. */
void guest_drop(struct guest *guest);
/* Only the handle goes; what is under way goes on. */
void guest_unref(struct guest *guest);
void grants_ref(struct grants *grants); /* with the lock */
void grants_unref(struct grants *grants);
/* With which snapshots are signed where no key is given: of this process. */
int process_key(uint8_t key[KERNEL_KEY_BYTES], struct error *err);

/* ---- tell.c ---- */

/* What the instance's wake-up calls. */
void tell_all(napi_env env, napi_value callback, void *context, void *data);

/* ---- judge.c ---- */

/* Why not, in words for the code that asked; 0: it may. `name` NULL: the address itself was asked for. */
int judge_name(const struct kernel_manifest *manifest, const char *name, uint16_t port,
               struct error *err);
int judge_address(const struct kernel_manifest *manifest, const char *name, const char *address,
                  uint16_t port, struct error *err);
