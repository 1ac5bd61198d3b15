/* What happens to a sandbox by itself: its box stands or ends, its processes start and end, its time is
 * over, nobody has used it for long.
 *
 * Nothing in here closes the processes of a sandbox: these functions are called from within them. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/remove.h"
#include "engine/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_MOST_NS (60ULL * 1000000000) /* the wall clock may be set meanwhile */
#define AGAIN_NS 1000000000ULL            /* where what had to be done then failed */
#define IDLE_MOST_MS (10ULL * 365 * 24 * 3600 * 1000)

void sandbox_event(struct sandbox *sandbox, const char *type)
{
    events_add(sandbox->engine, type, sandbox->record->tenant, sandbox->id, NULL,
               sandbox->record->reason);
}

void sandbox_touch(struct sandbox *sandbox)
{
    sandbox->touched_ns = clock_monotonic_ns();
}

/* ---- processes ---- */

static void box_stands(void *arg)
{
    struct sandbox *sandbox = arg;

    if (sandbox->step == STEP_READY)
        start_ready(sandbox);
}

void sandbox_fall(struct sandbox *sandbox, const char *reason)
{
    struct verb *verb = verb_new(VERB_FALL, NULL);

    (void)snprintf(verb->reason, sizeof(verb->reason), "%s", reason);
    sandbox_push(sandbox, verb);
}

static void box_gone(void *arg, const struct error *err)
{
    struct sandbox *sandbox = arg;

    if (sandbox->step == STEP_READY) {
        struct error why = *err;

        (void)error_set(&why, "sandbox_failed", err->errnum, "the box could not be made: %.300s",
                        err->text);
        start_give_up(sandbox, &why);
        return;
    }
    if (sandbox->step == STEP_END || sandbox->engine->is_closing)
        return; /* it was told to end */
    if (sandbox->step == STEP_COMMIT && sandbox->from_pool) {
        sandbox->has_lost = true; /* nobody was told of it yet: he gets another one */
        return;
    }
    sandbox_fall(sandbox, "box_ended");
}

static void process_event(struct sandbox *sandbox, const struct proc *proc, const char *type)
{
    struct proc_view view;
    const char *reason;

    proc_look(proc, &view);
    reason = view.oom_killed ? "oom" : view.timed_out ? "timed_out" : view.reason;
    if (view.oom_killed && strcmp(type, "process.exited") == 0)
        events_add(sandbox->engine, "process.oom", sandbox->record->tenant, sandbox->id, view.id,
                   NULL);
    if (view.state == PROC_LOST && strcmp(type, "process.exited") == 0)
        type = "process.lost";
    events_add(sandbox->engine, type, sandbox->record->tenant, sandbox->id, view.id, reason);
}

static void process_started(void *arg, const struct proc *proc)
{
    sandbox_touch(arg);
    process_event(arg, proc, "process.started");
}

static void process_ended(void *arg, const struct proc *proc)
{
    sandbox_touch(arg);
    process_event(arg, proc, "process.exited");
}

/* ---- was it out of memory? ---- */

struct question {
    struct engine *engine;
    char sandbox[KEEPER_ID_LENGTH + 4], process[PROCS_ID_MAX];
    uint32_t seen; /* when the process was killed: those after are its cause */
};

static void usage_answered(void *arg, const union keeper_answer *answer, int fd,
                           const struct error *err)
{
    struct question *question = arg;
    struct sandbox *sandbox = map_get(&question->engine->ids, question->sandbox);
    struct proc *proc = NULL;
    bool was_oom = err == NULL && answer->report.oom_kills > question->seen;

    fd_close(&fd);
    if (sandbox != NULL && sandbox->procs != NULL)
        proc = procs_find(sandbox->procs, question->process);
    if (was_oom && sandbox != NULL && answer->report.oom_kills > sandbox->oom_seen)
        sandbox->oom_seen = answer->report.oom_kills;
    free(question);
    if (proc != NULL)
        procs_oom(proc, was_oom);
}

/* With an empty name of a process: how often so far, for what an engine before us heard of is no cause of
 * what ends from now on. */
static void ask_oom(struct sandbox *sandbox, const char *process)
{
    struct question *question = engine_alloc(sizeof(*question));
    union keeper_request request = {.of_box = {.box = sandbox->box}};

    question->engine = sandbox->engine;
    question->seen = sandbox->oom_seen;
    memcpy(question->sandbox, sandbox->id, sizeof(sandbox->id));
    (void)snprintf(question->process, sizeof(question->process), "%s", process);
    keeper_client_ask(sandbox->engine->keeper, KEEPER_USAGE, &request, usage_answered, question);
}

static void process_killed(void *arg, struct proc *proc)
{
    struct proc_view view;

    proc_look(proc, &view);
    ask_oom(arg, view.id);
}

static bool disk_is_low(void *arg)
{
    const struct sandbox *sandbox = arg;

    return capacity_disk_is_low(sandbox->engine);
}

static bool texts_are_many(void *arg)
{
    const struct sandbox *sandbox = arg;

    return shares_texts_are_many(sandbox->engine, sandbox->record->tenant);
}

static const struct procs_calls calls = {
    .ready = box_stands,
    .gone = box_gone,
    .started = process_started,
    .ended = process_ended,
    .killed = process_killed,
    .disk_is_low = disk_is_low,
    .texts_are_many = texts_are_many,
};

/* ---- their files ---- */

int sandbox_directory(struct sandbox *sandbox, struct error *err)
{
    int all = sandbox->engine->sandboxes_dir, dir;

    if (mkdirat(all, sandbox->id, 0700) != 0 && errno != EEXIST)
        return error_set(err, "store_failed", errno, "cannot make the directory sandboxes/%s",
                         sandbox->id);
    dir = openat(all, sandbox->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return error_set(err, "store_failed", errno, "cannot open the directory sandboxes/%s",
                         sandbox->id);
    return dir;
}

/* One that falls just now, or is stopped, has its reason not yet on record. */
static const char *why_no_box(const struct sandbox *sandbox)
{
    if (sandbox->record->state != SANDBOX_RUNNING)
        return sandbox->record->reason;
    return sandbox->active != NULL && sandbox->active->reason[0] != '\0' ? sandbox->active->reason
                                                                         : "box_ended";
}

int sandbox_open_procs(struct sandbox *sandbox, struct error *err)
{
    const struct record *record = sandbox->record;
    struct procs_options options = {
        .loop = sandbox->engine->options.loop,
        .share = shares_turns(sandbox->engine, record->tenant),
        .calls = &calls,
        .arg = sandbox,
        .env = (const char *const *)record->env,
        .cwd = record->cwd,
        .user = record->user,
        .is_system = record->privileges == BOX_SYSTEM,
        .keep_ms = sandbox->engine->options.output_keep_ms,
        .log_share = record->limits.disk_bytes,
        .programs = sandbox->engine->programs,
    };
    struct error why;

    if (sandbox->procs != NULL)
        return 0;
    options.directory = sandbox_directory(sandbox, err);
    if (options.directory < 0)
        return -1;
    if (procs_open(&options, &sandbox->procs, err) == 0) {
        /* What ran when the engine before us wrote last ran in a box that is no more. */
        if (sandbox->box == 0)
            procs_detach(sandbox->procs, why_no_box(sandbox));
        else if (outdated_check(sandbox, &why) != 0)
            procs_refuse(sandbox->procs, &why);
        return 0;
    }
    if (strcmp(err->code, "journal_failed") == 0)
        (void)snprintf(err->code, sizeof(err->code), "store_failed");
    return -1;
}

int sandbox_attach(struct sandbox *sandbox, struct link *link, bool anew, struct error *err)
{
    if (sandbox_open_procs(sandbox, err) != 0) {
        link_close(link);
        return -1;
    }
    sandbox->oom_seen = 0;
    disk_room_wake(sandbox);
    if (anew) /* nothing that ran before is in this box */
        procs_detach(sandbox->procs, sandbox->record->reason);
    else
        ask_oom(sandbox, "");
    return procs_attach(sandbox->procs, link, anew, err);
}

void sandbox_detach(struct sandbox *sandbox, const char *reason)
{
    ports_end(sandbox);
    network_end(sandbox);
    if (sandbox->procs != NULL)
        procs_detach(sandbox->procs, reason);
}

struct removal {
    uv_work_t work;
    struct engine *engine;
    int dir;
    char name[NAME_MAX + 1];
};

static void removal_work(uv_work_t *work)
{
    struct removal *removal = work->data;

    (void)remove_tree(removal->dir, removal->name);
}

static void removal_done(uv_work_t *work, int status)
{
    struct removal *removal = work->data;
    struct engine *engine = removal->engine;

    (void)status;
    free(removal);
    engine->removals--;
    engine_settled(engine);
    engine_free_if_done(engine);
}

/* In the loop's pool: to unlink logs of hundreds of megabytes takes a while. What is left of it by a
 * crash is removed at the next start. */
void engine_remove_files(struct engine *engine, const char *name)
{
    struct removal *removal = engine_alloc(sizeof(*removal));

    removal->work.data = removal;
    removal->engine = engine;
    removal->dir = engine->sandboxes_dir;
    (void)snprintf(removal->name, sizeof(removal->name), "%s", name);
    engine->removals++;
    if (uv_queue_work(engine->options.loop, &removal->work, removal_work, removal_done) != 0) {
        engine->removals--;
        free(removal);
    }
}

/* ---- time ---- */

static void rang(void *arg);

uint64_t sandbox_deadline_ns(const struct record *record)
{
    uint64_t now = clock_wall_ms(), wait;

    if (record->deadline_ms == 0)
        return UINT64_MAX;
    if (record->deadline_ms <= now)
        return 0;
    wait = record->deadline_ms - now;
    return wait < WAIT_MOST_NS / 1000000 ? wait * 1000000 : WAIT_MOST_NS;
}

static uint64_t deadline_wait_ns(const struct record *record)
{
    if (record->state != SANDBOX_RUNNING && record->then != SANDBOX_THEN_KILL)
        return UINT64_MAX;
    return sandbox_deadline_ns(record);
}

static uint64_t idle_wait_ns(const struct sandbox *sandbox)
{
    const struct record *record = sandbox->record;
    uint64_t now = clock_monotonic_ns(), end;

    if (record->idle_ms == 0 || record->idle_ms > IDLE_MOST_MS || record->state != SANDBOX_RUNNING)
        return UINT64_MAX;
    end = sandbox->touched_ns + record->idle_ms * 1000000;
    return end > now ? end - now : 0;
}

void sandbox_arm(struct sandbox *sandbox)
{
    uint64_t deadline = deadline_wait_ns(sandbox->record), idle = idle_wait_ns(sandbox);
    uint64_t wait = deadline < idle ? deadline : idle, now = clock_monotonic_ns();

    if (wait == 0 && sandbox->timed_ns > 0 && now - sandbox->timed_ns < AGAIN_NS)
        wait = AGAIN_NS;
    if (wait == UINT64_MAX || sandbox->record->state == SANDBOX_DELETED)
        clock_clear(sandbox->engine->clock, &sandbox->timer);
    else
        clock_set(sandbox->engine->clock, &sandbox->timer, now + wait, rang, sandbox);
}

static void time_is_over(struct sandbox *sandbox, const char *reason)
{
    bool ends = sandbox->record->then == SANDBOX_THEN_KILL;
    struct verb *verb = verb_new(ends ? VERB_DELETE : VERB_STOP, NULL);

    (void)snprintf(verb->reason, sizeof(verb->reason), "%s", reason);
    sandbox->timed_ns = clock_monotonic_ns();
    sandbox_push(sandbox, verb);
}

/* While a verb is at work this does nothing: its end sets the alarm again. */
static void rang(void *arg)
{
    struct sandbox *sandbox = arg;

    if (sandbox->active != NULL)
        return;
    if (deadline_wait_ns(sandbox->record) == 0) {
        time_is_over(sandbox, "deadline");
        return;
    }
    if (idle_wait_ns(sandbox) == 0) {
        /* What runs in an outdated one nobody knows. */
        if (sandbox->files == 0 && sandbox->protocol == 0 && !ports_in_use(sandbox) &&
            (sandbox->procs == NULL || procs_running(sandbox->procs) == 0)) {
            time_is_over(sandbox, "idle");
            return;
        }
        sandbox_touch(sandbox);
    }
    sandbox_arm(sandbox);
}
