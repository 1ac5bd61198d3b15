/* An engine on a directory of its own, with a keeper that the test plays, and calls that wait in the
 * loop for their answer. Each answer is counted: what is answered twice, or never, is a failure. */
#pragma once

#include "engine/engine.h"
#include "fake_keeper.h"

#include <stdbool.h>
#include <string.h>
#include <uv.h>

struct rig {
    uv_loop_t loop;
    uv_timer_t patience;
    struct fake fake;
    struct engine *engine;
    struct engine_options options; /* as given; changed before rig_open() */
    char path[64];
    int dir;
    bool opened, lost, drained;
    struct error open_error;
};

/* One answer that is waited for, or will be. */
struct answer {
    unsigned count;
    bool failed, created;
    struct error error;
    char id[24], reason[32], name[64], tenant[64];
    enum sandbox_state state;
    uint64_t revision;
    struct procs *procs;
};

struct rig_key {
    struct answer answer;
    char id[24], secret[128], tenant[64];
};

struct rig_ran {
    struct answer answer;
    struct proc *proc;
    struct proc_view view;
};

extern const struct engine_caller rig_caller, rig_other, rig_reader;

#define IS_CODE(err, wanted) (strcmp((err).code, wanted) == 0)
#define IS(answer, wanted) IS_CODE((answer).error, wanted)

/* Runs a test with a rig of its own, whose engine is open; or is not yet, for a test that sets options. */
void rig_run(void (*test)(struct rig *rig));
void rig_run_unopened(void (*test)(struct rig *rig));

void rig_start(struct rig *rig);
void rig_open(struct rig *rig);    /* waits until it is open */
void rig_begin(struct rig *rig);   /* does not */
void rig_connect(struct rig *rig); /* options of an engine that the test opens itself */
void rig_close(struct rig *rig);   /* the engine; boxes and the directory stay */
void rig_end(struct rig *rig);
void rig_other_keeper(struct rig *rig); /* the next engine's is another one, without boxes */

/* Turns the loop until it holds; false where that takes too long. */
bool rig_until(struct rig *rig, bool (*holds)(void *arg), void *arg);
bool rig_wait(struct rig *rig, struct answer *answer);
/* The same, and whether it was done; whether it failed with this code. */
bool rig_done(struct rig *rig, struct answer *answer);
bool rig_fails(struct rig *rig, struct answer *answer, const char *code);
void rig_turn(struct rig *rig, unsigned ms);
/* Sets this process's clocks ahead and runs what is due then: nobody waits. */
void rig_pass(struct rig *rig, uint64_t ms);

struct sandbox_spec rig_spec(const char *name);
/* These return the answer that they will fill. */
struct answer *rig_create(struct rig *rig, const struct sandbox_spec *spec, struct answer *answer);
struct answer *rig_start_it(struct rig *rig, const char *id, struct answer *answer);
struct answer *rig_stop(struct rig *rig, const char *id, struct answer *answer);
struct answer *rig_delete(struct rig *rig, const char *id, struct answer *answer);
struct answer *rig_procs(struct rig *rig, const char *id, bool start, struct answer *answer);
struct answer *rig_change(struct rig *rig, const char *id, const struct sandbox_change *change,
                          struct answer *answer);
/* Fill the answer that is their `arg`: for calls of the engine by another caller than rig_caller. */
void rig_created(void *arg, const struct sandbox_view *view, bool anew, const struct error *err);
void rig_looked(void *arg, const struct sandbox_view *view, const struct error *err);
void rig_ended(void *arg, const struct error *err);
void rig_procs_there(void *arg, struct procs *procs, const struct error *err);
void rig_ran_done(void *arg, struct proc *proc, const struct error *err); /* a struct rig_ran */

bool rig_key_make(struct rig *rig, const struct engine_caller *caller, const char *tenant,
                  const char *label, unsigned scopes, struct rig_key *key);
struct answer rig_key_end(struct rig *rig, const struct engine_caller *caller, const char *id);
/* Starts a command (NULL: /bin/true); false where it does not start. */
bool rig_exec(struct rig *rig, struct procs *procs, const struct proc_spec *spec,
              struct rig_ran *ran);
bool rig_has_ended(void *arg); /* for rig_until(), with a struct rig_ran that started */
/* As engine_look(): the state, or -1 and the error. */
int rig_look(struct rig *rig, const char *id, struct answer *answer);
/* Waits until it has this state and reason. */
bool rig_becomes(struct rig *rig, const char *id, enum sandbox_state state, const char *reason);
/* A sandbox of this name (or NULL) that runs; its id in `answer`. */
void rig_made(struct rig *rig, const char *name, struct answer *answer);
/* How many this process has open; and for rig_until(), with an int's address, whether it has so many. */
int rig_fds(void);
bool rig_fds_are(void *arg);
