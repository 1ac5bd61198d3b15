/* Runs: begun, what their code asks of us, and how they end.
 *
 * A worker that was taken over says of runs what it likes: that is told to nobody but its own tenant, calls of
 * tools are asked for only where the manifest names them, and a run that it does not end in time ends with it. */
#include "base/clock.h"
#include "engine/fetch.h"
#include "engine/kernels_parts.h"
#include "kernel/meta.h"
#include "kernel/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After the run's limit of time, in which the worker ends it: it may have many to see to. */
#define GRACE_MS 600000
#define LOOK_AGAIN_MS 15000
#define DRAIN_MS 2000U           /* for runs, when the engine is about to end */
#define TOOL_META_MAX (4U << 20) /* more is not even looked at */
#define TOOL_DEPTH_MAX 1000U     /* of the arguments' JSON, as of what is read of a client */
#define TOOLS_OPEN_MAX 1024U     /* of a run, in flight */

struct kernel_run {
    TAILQ_ENTRY(kernel_run) next; /* of the worker's, the oldest first; or of those that are lost */
    struct worker *worker;
    char key[NUMBER_KEY];
    uint64_t number;
    struct context *context; /* NULL: of its own, or deleted */
    struct grants *grants;
    struct fetch_run *fetch; /* NULL: it has fetched nothing */
    struct kernel_run_calls calls;
    uint32_t *open; /* calls of tools that wait for their answers */
    size_t open_count, open_room;
    bool is_left; /* nobody is told */
    bool is_over; /* its worker is gone, and so is what is above: `failure` is to be told */
    struct error failure;
    struct alarm patience;
};

static void run_free(struct kernel_run *run)
{
    grants_drop(run->grants);
    free(run->open);
    free(run);
}

/* It is under way no more. */
static void run_unlist(struct kernel_run *run)
{
    struct worker *worker = run->worker;

    clock_clear(worker->kernels->engine->clock, &run->patience);
    fetch_run_free(run->fetch);
    run->fetch = NULL;
    (void)map_remove(&worker->runs, run->key);
    TAILQ_REMOVE(&worker->run_list, run, next);
    worker->runs_count--;
    if (run->context != NULL) {
        run->context->run = NULL;
        context_rest(run->context);
    }
    run->context = NULL;
    worker_rest(worker);
}

static void run_end(struct kernel_run *run, const struct kernel_result *result,
                    const struct error *err)
{
    run_unlist(run);
    if (!run->is_left)
        run->calls.done(run->calls.arg, result, err);
    run_free(run);
}

/* ---- calls ---- */

static void refuse(struct kernel_run *run, uint32_t call, const char *code, const char *text)
{
    struct error ignored;

    (void)remote_settle_error(run->worker->remote, run->number, call, code, text, &ignored);
}

static bool open_add(struct kernel_run *run, uint32_t call)
{
    if (run->open_count == TOOLS_OPEN_MAX)
        return false;
    if (run->open_count == run->open_room) {
        size_t room = run->open_room != 0 ? 2 * run->open_room : 8;
        uint32_t *more = realloc(run->open, room * sizeof(*more));

        if (more == NULL)
            return false;
        run->open = more;
        run->open_room = room;
    }
    run->open[run->open_count++] = call;
    return true;
}

/* False: nobody waits for that, or no more. */
static bool open_take(struct kernel_run *run, uint32_t call)
{
    for (size_t i = 0; i < run->open_count; i++)
        if (run->open[i] == call) {
            run->open[i] = run->open[--run->open_count];
            return true;
        }
    return false;
}

static void tool_called(struct kernel_run *run, const struct kernel_call *call)
{
    if (call->meta.size > TOOL_META_MAX)
        refuse(run, call->id, "E2BIG", "the arguments of a tool are too large: at most 4 MiB");
    else if (run->is_left || run->calls.tool == NULL)
        refuse(run, call->id, "ENOTCONN",
               "nobody is there to answer tools: run it over /v1/kernels/connect");
    else
        run->calls.tool(run->calls.arg, call->id, call->meta);
}

bool kernel_tool_read(struct kernel_text asked, struct kernel_tool *tool)
{
    struct meta_value name, args;

    if (meta_member_early(asked, "name", TOOL_DEPTH_MAX, &name) != 0 ||
        meta_string(&name, tool->name, sizeof(tool->name)) != 0 ||
        meta_member_early(asked, "args", TOOL_DEPTH_MAX, &args) != 0)
        return false;
    tool->args = args.text;
    return true;
}

bool engine_kernel_tool(struct kernel_run *run, uint32_t call, const struct kernel_tool *tool)
{
    bool may = false;

    if (run->is_over)
        return false;
    if (tool == NULL)
        refuse(run, call, "EINVAL", "a tool is called by its name, with arguments as JSON");
    else if (!kernel_manifest_has_tool(run->grants->manifest, tool->name, strlen(tool->name)))
        refuse(run, call, "EACCES", "the tool is denied: allow it with \"tools\"");
    else if (!open_add(run, call))
        refuse(run, call, "EAGAIN", "too many tools are called at once");
    else
        may = true;
    worker_asked(run->worker);
    return may;
}

/* ---- fetch: answered from within what asks, or later; nothing here ends the run ---- */

static void fetch_settled(void *arg, uint32_t call, const char *meta, size_t meta_size,
                          const uint8_t *bytes, size_t bytes_size)
{
    struct kernel_run *run = arg;
    struct error ignored;

    (void)remote_settle(run->worker->remote, run->number, call, meta, meta_size, bytes, bytes_size,
                        &ignored);
    worker_asked(run->worker);
}

static void fetch_failed(void *arg, uint32_t call, const char *code, const char *text)
{
    struct kernel_run *run = arg;

    refuse(run, call, code, text);
    worker_asked(run->worker);
}

static void *fetch_gives(void *arg)
{
    struct kernel_run *run = arg;

    return remote_take(run->worker->remote);
}

/* False: it asks for no fetch. */
static bool fetch_called(struct kernel_run *run, const struct kernel_call *call)
{
    static const struct fetch_answers answers = {
        .settle = fetch_settled, .fail = fetch_failed, .give = fetch_gives};
    struct kernels *kernels = run->worker->kernels;
    struct error err;

    if (call->op.size < 6 || memcmp(call->op.data, "fetch.", 6) != 0)
        return false;
    if (run->fetch == NULL &&
        (kernels_fetches(kernels, &err) != 0 ||
         fetch_run_new(kernels->fetches, run->worker->tenant, run->grants->given.hosts, &answers,
                       run, &run->fetch, &err) != 0)) {
        refuse(run, call->id, err.code, err.text);
        return true;
    }
    return fetch_run_take(run->fetch, call);
}

void run_called(struct worker *worker, const char *key, const struct kernel_call *call)
{
    struct kernel_run *run = map_get(&worker->runs, key);

    if (run == NULL)
        return;
    if (kernel_text_is(call->op, "tool"))
        tool_called(run, call);
    else if (!fetch_called(run, call))
        refuse(run, call->id, "ENOSYS", "this is not there in a worker");
    worker_asked(worker);
}

void run_cancelled(struct worker *worker, const char *key, const struct kernel_call *call)
{
    struct kernel_run *run = map_get(&worker->runs, key);

    if (run != NULL && run->fetch != NULL)
        (void)fetch_run_take(run->fetch, call);
}

int engine_kernel_settle(struct kernel_run *run, uint32_t call, const char *value, size_t size,
                         struct error *err)
{
    struct meta_text meta = {0};
    int settled = 0;

    if (run->is_over || !open_take(run, call))
        return 0;
    meta_put(&meta, "{\"value\":");
    meta_put_bytes(&meta, value, size);
    meta_put(&meta, "}");
    if (meta.failed)
        settled = remote_settle_error(run->worker->remote, run->number, call, "ENOMEM",
                                      "there is no memory for the tool's answer", err);
    else if (meta.size > KERNEL_META_MAX)
        settled = remote_settle_error(run->worker->remote, run->number, call, "E2BIG",
                                      "the tool's answer is too large", err);
    else
        settled = remote_settle(run->worker->remote, run->number, call, meta.data, meta.size, NULL,
                                0, err);
    free(meta.data);
    /* Who waits for it hears at least that. */
    if (settled != 0)
        refuse(run, call, "EIO", "the tool's answer was lost");
    worker_asked(run->worker);
    return settled;
}

int engine_kernel_settle_error(struct kernel_run *run, uint32_t call, const char *message,
                               struct error *err)
{
    int settled;

    if (run->is_over || !open_take(run, call))
        return 0;
    settled = remote_settle_error(run->worker->remote, run->number, call, "", message, err);
    worker_asked(run->worker);
    return settled;
}

/* ---- what stays ---- */

struct kernel_kept {
    struct kernels *kernels;
    uint64_t serial; /* of the worker, which may be gone */
    struct remote_kept *kept;
};

struct kernel_kept *engine_kernel_keep(struct kernel_run *run)
{
    struct remote_kept *kept = worker_keep(run->worker);
    struct kernel_kept *all;

    if (kept == NULL)
        return NULL;
    all = engine_alloc(sizeof(*all));
    *all = (struct kernel_kept){run->worker->kernels, run->worker->serial, kept};
    return all;
}

void engine_kernel_kept_free(struct kernel_kept *kept)
{
    worker_kept_free(kept->kernels, kept->serial, kept->kept);
    free(kept);
}

/* ---- the end ---- */

void run_done(struct worker *worker, const char *key, const struct kernel_result *result)
{
    struct kernel_run *run = map_get(&worker->runs, key);

    if (run == NULL)
        return;
    if ((unsigned)result->end < KERNEL_ENDS)
        worker->kernels->counts.runs[result->end]++;
    if (run->context != NULL) {
        run->context->used_ms = clock_wall_ms();
        run->context->runs++;
        run->context->memory_bytes = result->memory_bytes;
    }
    run_end(run, result, NULL);
}

bool run_failed(struct worker *worker, const char *key, const struct error *err)
{
    struct kernel_run *run = map_get(&worker->runs, key);
    struct error why = *err;

    if (run == NULL)
        return false;
    run_end(run, NULL, &why);
    return true;
}

/* Told from the loop: who has just begun one does not expect to hear of it yet. */
void runs_lost(struct worker *worker, const struct error *why)
{
    struct kernels *kernels = worker->kernels;

    while (!TAILQ_EMPTY(&worker->run_list)) {
        struct kernel_run *run = TAILQ_FIRST(&worker->run_list);

        run_unlist(run);
        run->is_over = true;
        run->failure = *why;
        if (strcmp(why->code, "kernel_gone") == 0)
            (void)error_set(&run->failure, "kernel_gone", 0,
                            "the run ended with its worker: %.300s; run it again", why->text);
        kernels->counts.runs_lost++;
        TAILQ_INSERT_TAIL(&kernels->lost, run, next);
    }
}

void runs_tell_lost(struct kernels *kernels)
{
    while (!TAILQ_EMPTY(&kernels->lost)) {
        struct kernel_run *run = TAILQ_FIRST(&kernels->lost);

        TAILQ_REMOVE(&kernels->lost, run, next);
        if (!run->is_left && !kernels->engine->is_closing)
            run->calls.done(run->calls.arg, NULL, &run->failure);
        run_free(run);
    }
}

/* The worker should have ended it long ago, unless others were before it. */
static void overdue(void *arg)
{
    struct kernel_run *run = arg;
    struct error err;

    if (run != TAILQ_FIRST(&run->worker->run_list)) {
        clock_set(run->worker->kernels->engine->clock, &run->patience,
                  clock_monotonic_ns() + LOOK_AGAIN_MS * 1000000ULL, overdue, run);
        return;
    }
    (void)error_set(&err, "kernel_gone", 0,
                    "the tenant's worker, which they lived in, did not end a run at its limit of "
                    "time, and was ended");
    worker_end(run->worker, &err, false);
}

/* Its context, if it has one, will be gone as well. */
static void drained(void *arg)
{
    struct kernel_run *run = arg;
    struct error err;

    (void)error_set(&err, "kernel_gone", 0,
                    "the engine is about to restart, and kernels end with it: the run was ended "
                    "after %u s; run it again",
                    DRAIN_MS / 1000);
    run->worker->kernels->counts.runs_lost++;
    run_end(run, NULL, &err);
}

void runs_drain(struct worker *worker)
{
    struct kernel_run *run = NULL;

    TAILQ_FOREACH(run, &worker->run_list, next)
    {
        clock_set(worker->kernels->engine->clock, &run->patience,
                  clock_monotonic_ns() + DRAIN_MS * 1000000ULL, drained, run);
    }
}

/* ---- the begin ---- */

static int source_check(const struct kernel_source *source, struct error *err)
{
    if (source->size > KERNEL_SOURCE_MAX)
        return error_set(err, "bad_request", 0, "the code is larger than %u bytes",
                         KERNEL_SOURCE_MAX);
    if (source->cpu_ms > KERNEL_MS_MAX || source->wall_ms > KERNEL_MS_MAX)
        return error_set(err, "bad_manifest", 0, "a limit of time is at most %u ms", KERNEL_MS_MAX);
    return 0;
}

static int place_find(struct engine *engine, const struct engine_caller *caller,
                      const struct kernel_run_spec *spec, struct kernel_run *run, struct error *err)
{
    if (spec->context == NULL)
        return grants_new(engine, spec->grants, NULL, &run->grants, err) != 0
                   ? -1
                   : worker_of(engine->kernels, caller->tenant, &run->worker, err);
    run->context = context_find(engine->kernels, caller, spec->context, err);
    if (run->context == NULL || engine_accepts(engine, err) != 0 ||
        context_is_free(run->context, err) != 0)
        return -1;
    run->grants = grants_hold(run->context->grants);
    run->worker = run->context->worker;
    return 0;
}

static int run_begin(struct kernel_run *run, const struct kernel_run_spec *spec, struct error *err)
{
    struct worker *worker = run->worker;
    uint64_t wall_ms = run->grants->given.wall_ms;

    if (worker->runs_count >= KERNELS_RUNS)
        return error_set(err, "too_many_runs", 0,
                         "tenant '%s' has %u runs under way: wait for some to end", worker->tenant,
                         KERNELS_RUNS);
    kernels_number(worker, &run->number, run->key);
    if (remote_run(worker->remote, run->number, run->context != NULL ? run->context->number : 0,
                   run->context != NULL ? NULL : &run->grants->given, &spec->source, err) != 0)
        return -1;
    map_put(&worker->runs, run->key, run);
    TAILQ_INSERT_TAIL(&worker->run_list, run, next);
    worker->runs_count++;
    if (run->context != NULL) {
        clock_clear(worker->kernels->engine->clock, &run->context->patience);
        run->context->work = CONTEXT_RUN;
        run->context->run = run;
    }
    if (spec->source.wall_ms != 0 && spec->source.wall_ms < wall_ms)
        wall_ms = spec->source.wall_ms;
    /* What waits for a box has that time besides. */
    if (worker->step != WORKER_READY)
        wall_ms += ENGINE_READY_MS;
    clock_set(worker->kernels->engine->clock, &run->patience,
              clock_monotonic_ns() + (wall_ms + GRACE_MS) * 1000000ULL, overdue, run);
    return 0;
}

struct kernel_run *engine_kernel_run(struct engine *engine, const struct engine_caller *caller,
                                     const struct kernel_run_spec *spec,
                                     const struct kernel_run_calls *calls, struct error *err)
{
    struct kernel_run *run;

    if (caller_may(caller, ENGINE_WRITE, err) != 0 || source_check(&spec->source, err) != 0)
        return NULL;
    run = engine_alloc(sizeof(*run));
    run->calls = *calls;
    if (place_find(engine, caller, spec, run, err) != 0 || run_begin(run, spec, err) != 0) {
        if (run->worker != NULL)
            worker_rest(run->worker);
        run_free(run);
        return NULL;
    }
    worker_asked(run->worker);
    return run;
}

void engine_kernel_stop(struct kernel_run *run)
{
    struct error ignored;

    if (run->is_over)
        return;
    (void)remote_stop(run->worker->remote, run->number, KERNEL_END_STOPPED, &ignored);
    worker_asked(run->worker);
}

void engine_kernel_leave(struct kernel_run *run)
{
    run->is_left = true;
    engine_kernel_stop(run);
}

void run_leave_context(struct kernel_run *run)
{
    engine_kernel_stop(run);
    run->context->run = NULL;
    run->context = NULL;
}
