/* What the files of a worker share. io.c reads and writes frames, and has the threads; places.c says
 * whose turn it is, work.c does what the frames say; grants.c keeps manifests.
 *
 * Each context is worked on by one thread at a time, its owner; frames for it that come meanwhile wait in its box.
 * All that more than one thread looks at is under one lock. */
#pragma once

#include "kernel/numbers.h"
#include "kernel/parts.h"
#include "kernel/proto.h"

#define RUNNERS_MIN 8U
#define RUNNERS_MAX 24U /* with those of others in the process less than KERNEL_WORKER_TASKS */

/* What a context is taken to hold of its image's memory until it was looked at: so much is a few runs of little code. */
#define HELD_GUESS (512U << 10)

/* A frame from the engine. */
struct message {
    struct message *next;
    struct proto_head head;
    struct place *copy; /* of PROTO_FORK */
    uint8_t body[];
};

struct grants {
    size_t refs;
    struct kernel_manifest *manifest;
    size_t size;
    uint8_t bytes[]; /* as they came */
};

/* In a list of places; not in one: `at` is NULL. */
struct link_place {
    struct place *next, **at;
};
struct places {
    struct place *first, **last;
};

/* A context, or the one of a single run. */
struct place {
    /* Under the lock. */
    struct number by_context; /* first; 0 for a single run's, and once it was dropped */
    struct number by_run;     /* of the run that was asked for */
    struct message *first, **last;
    bool is_owned, is_ready;
    enum kernel_end stop;   /* of the run; KERNEL_END_VALUE: nobody stopped it */
    uint64_t wake_ns;       /* when it is stepped */
    uint64_t rest_ns;       /* when it gives back what it does not need */
    struct link_place link; /* in the list of those that are ready, that wait, or that are idle */
    struct places *list;
    bool step_due, rest_due, is_freeing;
    uint64_t held; /* what it is counted with, of its image's memory */
    /* The owner's; `context` is set under the lock, for whoever interrupts it. */
    struct kernel_context *context;
    struct grants *grants;
    uint64_t run; /* that is under way; 0: none */
    uint32_t cancels;
    bool is_single, is_over;
    struct error error; /* why there is no context */
};

struct worker {
    pthread_mutex_t lock;
    struct kernel_image *image;
    uint8_t key[KERNEL_KEY_BYTES];
    uint64_t memory_bytes; /* 0: no bound */
    uint64_t result_bytes; /* most of a result's texts */
    uint64_t held;         /* of all contexts */
    unsigned freeing;      /* contexts that are over, and not free yet */
    pthread_cond_t freed;
    bool is_greeted;
    struct numbers contexts, runs;
    struct places ready, waiting, idle;
    unsigned running, runners;
    uint64_t timer_ns; /* when the timer goes off; 0: it is not set */
    int events, timer, wake;
    pthread_mutex_t sending;
};
extern struct worker worker;

/* ---- main.c ---- */
_Noreturn void worker_die(void);

/* ---- io.c ---- */
int io_open(struct error *err);
_Noreturn void io_loop(void);
void io_send(struct wire *wire); /* all of it, and empties it */
void io_wake(void);              /* one thread looks what is ready */
void io_timer(uint64_t at_ns);   /* under the lock: it goes off then at the latest */
void io_failed(struct wire *wire, enum proto_kind kind, uint64_t number, const struct error *err);

/* ---- places.c ---- */
void places_init(struct places *places);
void places_take(struct message *message); /* what was read; under the lock */
void places_expire(void);                  /* the timer went off; under the lock */
struct place *places_next(void);           /* one that is ready, now owned; under the lock */
void place_work(struct place *place);
/* The rest of these are under the lock. */
void list_remove(struct place *place);
void make_ready(struct place *place);
void make_idle(struct place *place);
void held_set(struct place *place, uint64_t held);
void free_begin(struct place *place);
void free_end(struct place *place);

/* ---- work.c; the owner's ---- */
void work_message(struct place *place, const struct message *message);
void work_step(struct place *place);
void work_rest(struct place *place); /* gives back what is not needed, and counts what is */
void work_end(struct place *place);  /* frees it */

/* ---- grants.c ---- */
struct grants *grants_get(const uint8_t *bytes, size_t size, struct error *err);
void grants_share(struct grants *grants);
void grants_drop(struct grants *grants);
