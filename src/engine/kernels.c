/* Contexts: made, looked at, put back, copied, kept as bytes, and gone.
 *
 * One thing at a time is done with a context: whoever comes meanwhile is told that it is busy. What has ended is
 * known for a while by its id, with the reason, for else nobody could tell a worker's death from a wrong id. */
#include "base/clock.h"
#include "base/fd.h"
#include "engine/fetch.h"
#include "engine/kernels_parts.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS (60ULL * 1000000000) /* for what is no run */
#define FRESH_MS 3600000 /* since its last use a kernel keeps a private engine for so long */

const char *kernel_state_name(enum kernel_state state)
{
    static const char *const names[] = {"idle", "running", "busy"};

    return names[state];
}

void kernels_number(struct worker *worker, uint64_t *number, char key[NUMBER_KEY])
{
    *number = ++worker->number;
    (void)snprintf(key, NUMBER_KEY, "%" PRIx64, *number);
}

/* ---- what is gone ---- */

static void gone_remember(struct kernels *kernels, const struct context *context, const char *why)
{
    struct kernel_gone *gone = engine_alloc(sizeof(*gone));

    memcpy(gone->id, context->id, sizeof(gone->id));
    memcpy(gone->tenant, context->worker->tenant, sizeof(gone->tenant));
    (void)snprintf(gone->why, sizeof(gone->why), "%s", why);
    TAILQ_INSERT_TAIL(&kernels->gone_list, gone, next);
    map_put(&kernels->gone, gone->id, gone);
    if (++kernels->gone_count <= KERNELS_GONE_MAX)
        return;
    gone = TAILQ_FIRST(&kernels->gone_list);
    TAILQ_REMOVE(&kernels->gone_list, gone, next);
    (void)map_remove(&kernels->gone, gone->id);
    kernels->gone_count--;
    free(gone);
}

/* ---- the table ---- */

struct context *context_find(struct kernels *kernels, const struct engine_caller *caller,
                             const char *id, struct error *err)
{
    struct context *context = map_get(&kernels->contexts, id);
    const struct kernel_gone *gone;

    if (context != NULL && context->work != CONTEXT_MAKING &&
        strcmp(context->worker->tenant, caller->tenant) == 0)
        return context;
    gone = map_get(&kernels->gone, id);
    if (gone != NULL && strcmp(gone->tenant, caller->tenant) == 0)
        (void)error_set(err, "kernel_gone", 0,
                        "kernel %s is gone: %s; make another, or restore it from a snapshot", id,
                        gone->why);
    else
        (void)error_set(err, "kernel_not_found", 0,
                        "there is no kernel %.64s: kernels end with the engine; make another, or "
                        "restore it from a snapshot",
                        id);
    return NULL;
}

int context_is_free(const struct context *context, struct error *err)
{
    if (context->work == CONTEXT_REST)
        return 0;
    return error_set(err, "kernel_busy", 0,
                     "kernel %s is busy: one thing at a time is done with it; wait for that, or "
                     "fork it before",
                     context->id);
}

static void context_free(struct context *context)
{
    struct worker *worker = context->worker;

    clock_clear(worker->kernels->engine->clock, &context->patience);
    (void)map_remove(&worker->kernels->contexts, context->id);
    (void)map_remove(&worker->contexts, context->key);
    TAILQ_REMOVE(&worker->list, context, next);
    worker->contexts_count--;
    if (context->parent != NULL)
        context->parent->copy = NULL;
    if (context->copy != NULL)
        context->copy->parent = NULL;
    if (context->run != NULL)
        run_leave_context(context->run);
    grants_drop(context->grants);
    free(context->name);
    free(context);
    worker_rest(worker);
}

static struct context *context_new(struct worker *worker, const struct kernel_spec *spec,
                                   struct grants *grants)
{
    struct context *context = engine_alloc(sizeof(*context));

    context->worker = worker;
    context->grants = grants;
    context->work = CONTEXT_MAKING;
    context->created_ms = context->used_ms = clock_wall_ms();
    context->name = spec->name != NULL ? strdup(spec->name) : NULL;
    engine_id(context->id, KEEPER_ID_LENGTH + 1, KERNELS_ID_FIRST);
    kernels_number(worker, &context->number, context->key);
    map_put(&worker->kernels->contexts, context->id, context);
    map_put(&worker->contexts, context->key, context);
    TAILQ_INSERT_TAIL(&worker->list, context, next);
    worker->contexts_count++;
    return context;
}

static void look(const struct context *context, struct kernel_view *view)
{
    *view = (struct kernel_view){
        .id = context->id,
        .tenant = context->worker->tenant,
        .name = context->name,
        .labels = (const char *const *)context->grants->labels,
        .grants = &context->grants->given,
        .state = context->work == CONTEXT_REST  ? KERNEL_IDLE
                 : context->work == CONTEXT_RUN ? KERNEL_RUNNING
                                                : KERNEL_BUSY,
        .created_ms = context->created_ms,
        .used_ms = context->used_ms,
        .runs = context->runs,
        .memory_bytes = context->memory_bytes,
    };
}

/* ---- what is asked of the worker, and its answers ---- */

static void too_slow(void *arg)
{
    struct context *context = arg;
    struct error err;

    (void)error_set(&err, "kernel_gone", 0,
                    "the tenant's worker, which they lived in, did not answer, and was ended");
    worker_end(context->worker, &err, false);
}

static void begin(struct context *context, enum context_work work, void *arg)
{
    context->work = work;
    context->arg = arg;
    clock_set(context->worker->kernels->engine->clock, &context->patience,
              clock_monotonic_ns() + PATIENCE_NS + ENGINE_READY_MS * 1000000ULL, too_slow, context);
}

/* Of the worker, and of what is known. */
static void context_drop(struct context *context)
{
    struct worker *worker = context->worker;
    struct error ignored;

    (void)remote_drop(worker->remote, context->number, &ignored);
    context_free(context);
    worker_asked(worker);
}

static void event(struct context *context, const char *type, const char *reason)
{
    events_add_kernel(context->worker->kernels->engine, type, context->worker->tenant, context->id,
                      reason);
}

static void unused(void *arg)
{
    struct context *context = arg;

    event(context, "kernel.gone", "idle");
    gone_remember(context->worker->kernels, context, "nobody has used it");
    context_drop(context);
}

void context_rest(struct context *context)
{
    struct engine *engine = context->worker->kernels->engine;

    context->work = CONTEXT_REST;
    clock_set(engine->clock, &context->patience,
              clock_monotonic_ns() + engine->options.kernels_idle_ms * 1000000ULL, unused, context);
}

static void tell(struct context *context, engine_kernel_done done, void *arg)
{
    struct kernel_view view;

    look(context, &view);
    done(arg, &view, NULL);
}

void context_made(struct worker *worker, const char *key)
{
    struct context *context = map_get(&worker->contexts, key);
    bool is_new;

    if (context == NULL || (context->work != CONTEXT_MAKING && context->work != CONTEXT_RESET))
        return;
    is_new = context->work == CONTEXT_MAKING;
    if (context->parent != NULL) {
        context_rest(context->parent);
        context->parent->copy = NULL;
        context->parent = NULL;
    }
    context_rest(context);
    context->used_ms = clock_wall_ms();
    if (is_new)
        event(context, "kernel.created", NULL);
    tell(context, context->done.plain, context->arg);
}

void context_snapshotted(struct worker *worker, const char *key, const uint8_t *bytes, size_t size)
{
    struct context *context = map_get(&worker->contexts, key);
    uint8_t *block = NULL;
    struct error err;

    if (context == NULL || context->work != CONTEXT_SNAPSHOT)
        return;
    context_rest(context);
    if (size > KERNELS_SNAPSHOT_MAX)
        (void)error_set(
            &err, "snapshot_too_large", 0,
            "the snapshot has %zu bytes, and %u is the most: let go of what the kernel need "
            "not keep",
            size, KERNELS_SNAPSHOT_MAX);
    else if ((block = remote_take(worker->remote)) == NULL)
        (void)error_set(&err, "no_memory", 0, "there is no memory for this snapshot now");
    if (block != NULL)
        context->done.bytes(context->arg, block, (size_t)(bytes - block), size, NULL);
    else
        context->done.bytes(context->arg, NULL, 0, 0, &err);
}

/* Out of what was asked of it; `context` may be freed. */
static void give_up(struct context *context, const struct error *why)
{
    enum context_work work = context->work;
    engine_kernel_bytes bytes = context->done.bytes;
    engine_kernel_done plain = context->done.plain;
    void *arg = context->arg;
    struct error err = *why;

    if (work == CONTEXT_MAKING)
        context_free(context);
    else
        context_rest(context);
    if (work == CONTEXT_SNAPSHOT)
        bytes(arg, NULL, 0, 0, &err);
    else
        plain(arg, NULL, &err);
}

bool context_failed(struct worker *worker, const char *key, const struct error *err)
{
    struct context *context = map_get(&worker->contexts, key);

    if (context == NULL)
        return false;
    /* Of a fork the copy is who waits, whichever of the two is named. */
    if (context->work == CONTEXT_FORK && context->copy != NULL)
        context = context->copy;
    if (context->parent != NULL)
        context_rest(context->parent);
    if (context->work != CONTEXT_MAKING && context->work != CONTEXT_RESET &&
        context->work != CONTEXT_SNAPSHOT)
        return false;
    give_up(context, err);
    return true;
}

/* With its worker. */
void context_lost(struct context *context, const struct error *why)
{
    bool waits = context->work == CONTEXT_MAKING || context->work == CONTEXT_RESET ||
                 context->work == CONTEXT_SNAPSHOT;
    enum context_work work = context->work;
    engine_kernel_bytes bytes = context->done.bytes;
    engine_kernel_done plain = context->done.plain;
    void *arg = context->arg;
    struct error err = *why;
    bool is_closing;

    if (work != CONTEXT_MAKING) {
        gone_remember(context->worker->kernels, context, why->text);
        if (!context->worker->kernels->engine->is_closing)
            event(context, "kernel.gone", "worker_ended");
    }
    is_closing = context->worker->kernels->engine->is_closing;
    context_free(context);
    if (!waits || is_closing)
        return;
    if (strcmp(why->code, "kernel_gone") == 0)
        (void)error_set(&err, "kernel_gone", 0, "it ended with its worker: %.300s; try again",
                        why->text);
    if (work == CONTEXT_SNAPSHOT)
        bytes(arg, NULL, 0, 0, &err);
    else
        plain(arg, NULL, &err);
}

/* ---- the verbs ---- */

static int room_check(const struct worker *worker, struct error *err)
{
    uint64_t most = worker->kernels->engine->options.kernels_contexts;

    if (worker->contexts_count < most)
        return 0;
    return error_set(err, "too_many_kernels", 0,
                     "tenant '%s' has %zu kernels, and %" PRIu64 " is the most: delete some, or "
                     "have the operator raise [kernels] contexts",
                     worker->tenant, worker->contexts_count, most);
}

static int spec_take(struct kernels *kernels, const struct engine_caller *caller,
                     const struct kernel_spec *spec, struct context **out, struct error *err)
{
    struct grants *grants;
    struct worker *worker = NULL;

    if (caller_may(caller, ENGINE_WRITE, err) != 0 ||
        grants_new(kernels->engine, &spec->grants, spec->labels, &grants, err) != 0)
        return -1;
    if (worker_of(kernels, caller->tenant, &worker, err) != 0) {
        grants_drop(grants);
        return -1;
    }
    if (room_check(worker, err) != 0) {
        grants_drop(grants);
        worker_rest(worker);
        return -1;
    }
    *out = context_new(worker, spec, grants);
    return 0;
}

static void make(struct engine *engine, const struct engine_caller *caller,
                 const struct kernel_spec *spec, uint8_t *bytes, size_t size,
                 engine_kernel_done done, void *arg)
{
    struct context *context;
    struct worker *worker = NULL;
    struct error err;
    int asked;

    if (spec_take(engine->kernels, caller, spec, &context, &err) != 0) {
        free(bytes);
        done(arg, NULL, &err);
        return;
    }
    worker = context->worker;
    context->done.plain = done;
    asked = bytes == NULL
                ? remote_new(worker->remote, context->number, &context->grants->given, &err)
                : remote_restore(worker->remote, context->number, &context->grants->given, bytes,
                                 size, &err);
    if (asked != 0) {
        context_free(context);
        done(arg, NULL, &err);
        return;
    }
    begin(context, CONTEXT_MAKING, arg);
    worker_asked(worker);
}

void engine_kernel_create(struct engine *engine, const struct engine_caller *caller,
                          const struct kernel_spec *spec, engine_kernel_done done, void *arg)
{
    make(engine, caller, spec, NULL, 0, done, arg);
}

void engine_kernel_restore(struct engine *engine, const struct engine_caller *caller,
                           const struct kernel_spec *spec, uint8_t *bytes, size_t size,
                           engine_kernel_done done, void *arg)
{
    make(engine, caller, spec, bytes, size, done, arg);
}

int engine_kernel_look(struct engine *engine, const struct engine_caller *caller, const char *id,
                       struct kernel_view *view, struct error *err)
{
    const struct context *context;

    if (caller_may(caller, ENGINE_READ, err) != 0)
        return -1;
    context = context_find(engine->kernels, caller, id, err);
    if (context == NULL)
        return -1;
    look(context, view);
    return 0;
}

/* As it is printed below: two numbers. */
static int cursor_read(const char *cursor, uint64_t *serial, uint64_t *number)
{
    char *end;

    if (!isxdigit((unsigned char)cursor[0]))
        return -1;
    *serial = strtoull(cursor, &end, 16);
    if (*end != '-' || !isxdigit((unsigned char)end[1]))
        return -1;
    *number = strtoull(end + 1, &end, 16);
    return *end == '\0' ? 0 : -1;
}

int engine_kernel_list(struct engine *engine, const struct engine_caller *caller,
                       const char *cursor, size_t limit,
                       bool (*each)(void *arg, const struct kernel_view *view), void *arg,
                       char next[64], struct error *err)
{
    struct worker *worker = NULL;
    struct context *context;
    struct kernel_view view;
    uint64_t serial = 0, number = 0;
    size_t count = 0;

    next[0] = '\0';
    if (caller_may(caller, ENGINE_READ, err) != 0)
        return -1;
    if (cursor != NULL && cursor_read(cursor, &serial, &number) != 0)
        return error_set(err, "bad_request", 0, "the cursor is none that was given");
    TAILQ_FOREACH(worker, &engine->kernels->workers, next)
    {
        if (strcmp(worker->tenant, caller->tenant) == 0)
            break;
    }
    /* Of an earlier worker nothing is left. */
    if (worker == NULL || (cursor != NULL && worker->serial != serial))
        return 0;
    TAILQ_FOREACH(context, &worker->list, next)
    {
        if (context->number <= number || context->work == CONTEXT_MAKING)
            continue;
        look(context, &view);
        if (!each(arg, &view) || ++count == limit) {
            if (TAILQ_NEXT(context, next) != NULL)
                (void)snprintf(next, 64, "%" PRIx64 "-%" PRIx64, worker->serial, context->number);
            break;
        }
    }
    return 0;
}

int engine_kernel_delete(struct engine *engine, const struct engine_caller *caller, const char *id,
                         struct error *err)
{
    struct context *context;

    if (caller_may(caller, ENGINE_WRITE, err) != 0)
        return -1;
    context = context_find(engine->kernels, caller, id, err);
    if (context == NULL)
        return -1;
    if (context->work != CONTEXT_REST && context->work != CONTEXT_RUN)
        return context_is_free(context, err);
    event(context, "kernel.deleted", NULL);
    gone_remember(engine->kernels, context, "it was deleted");
    if (context->run != NULL)
        run_leave_context(context->run);
    context_drop(context);
    return 0;
}

/* If it may be changed now; NULL. */
static struct context *take(struct engine *engine, const struct engine_caller *caller,
                            const char *id, struct error *err)
{
    struct context *context;

    if (caller_may(caller, ENGINE_WRITE, err) != 0)
        return NULL;
    context = context_find(engine->kernels, caller, id, err);
    return context != NULL && engine_accepts(engine, err) == 0 && context_is_free(context, err) == 0
               ? context
               : NULL;
}

void engine_kernel_reset(struct engine *engine, const struct engine_caller *caller, const char *id,
                         engine_kernel_done done, void *arg)
{
    struct error err;
    struct context *context = take(engine, caller, id, &err);

    if (context == NULL || remote_reset(context->worker->remote, context->number, &err) != 0) {
        done(arg, NULL, &err);
        return;
    }
    context->done.plain = done;
    begin(context, CONTEXT_RESET, arg);
    worker_asked(context->worker);
}

void engine_kernel_fork(struct engine *engine, const struct engine_caller *caller, const char *id,
                        engine_kernel_done done, void *arg)
{
    struct error err;
    struct context *context = take(engine, caller, id, &err), *copy;
    struct kernel_spec spec;

    if (context == NULL || room_check(context->worker, &err) != 0) {
        done(arg, NULL, &err);
        return;
    }
    spec = (struct kernel_spec){.name = context->name}; /* labels are of the grants */
    copy = context_new(context->worker, &spec, grants_hold(context->grants));
    if (remote_fork(context->worker->remote, context->number, copy->number, &err) != 0) {
        context_free(copy);
        done(arg, NULL, &err);
        return;
    }
    copy->parent = context;
    context->copy = copy;
    copy->done.plain = done;
    begin(copy, CONTEXT_MAKING, arg);
    clock_clear(engine->clock, &context->patience);
    context->work = CONTEXT_FORK; /* until that is made, or not */
    worker_asked(context->worker);
}

void engine_kernel_snapshot(struct engine *engine, const struct engine_caller *caller,
                            const char *id, engine_kernel_bytes done, void *arg)
{
    struct error err;
    struct context *context = take(engine, caller, id, &err);

    if (context == NULL || remote_snapshot(context->worker->remote, context->number, &err) != 0) {
        done(arg, NULL, 0, 0, &err);
        return;
    }
    context->done.bytes = done;
    begin(context, CONTEXT_SNAPSHOT, arg);
    worker_asked(context->worker);
}

/* ---- all of them ---- */

void engine_kernel_count(const struct engine *engine, struct kernel_counts *out)
{
    const struct worker *worker = NULL;

    *out = engine->kernels->counts;
    TAILQ_FOREACH(worker, &engine->kernels->workers, next)
    {
        out->workers++;
        out->contexts += worker->contexts_count;
        out->running += worker->runs_count;
    }
}

uint64_t kernels_memory_of(const struct engine *engine, const char *tenant)
{
    const struct worker *worker = NULL;

    TAILQ_FOREACH(worker, &engine->kernels->workers, next)
    if (strcmp(worker->tenant, tenant) == 0)
        return engine->options.kernels_memory;
    return 0;
}

uint64_t kernels_cpu(const struct engine *engine, uint32_t cpu_milli)
{
    return cpu_milli != 0 ? cpu_milli : engine->host.cpus * 1000ULL;
}

uint64_t kernels_cpu_of(const struct engine *engine, const char *tenant)
{
    const struct worker *worker = NULL;

    TAILQ_FOREACH(worker, &engine->kernels->workers, next)
    if (strcmp(worker->tenant, tenant) == 0)
        return kernels_cpu(engine, worker->cpu_milli);
    return 0;
}

static bool is_fresh(const struct context *context, uint64_t now_ms)
{
    return context->work != CONTEXT_REST || now_ms < context->used_ms ||
           now_ms - context->used_ms < FRESH_MS;
}

/* Kernels that nobody has used for long keep no engine that ends when it has nothing to do. */
bool kernels_are_used(const struct engine *engine)
{
    const struct context *context;
    const struct worker *worker = NULL;
    uint64_t now_ms = clock_wall_ms();

    TAILQ_FOREACH(worker, &engine->kernels->workers, next)
    {
        if (worker->runs_count > 0)
            return true;
        TAILQ_FOREACH(context, &worker->list, next)
        if (is_fresh(context, now_ms))
            return true;
    }
    return false;
}

int kernels_fetches(struct kernels *kernels, struct error *err)
{
    struct engine *engine = kernels->engine;

    if (kernels->fetches != NULL)
        return 0;
    return fetches_new(engine->options.loop, engine->net, &kernels->fetches, err);
}

void kernels_open(struct engine *engine)
{
    struct kernels *kernels = engine_alloc(sizeof(*kernels));

    kernels->engine = engine;
    kernels->program = -1;
    TAILQ_INIT(&kernels->workers);
    TAILQ_INIT(&kernels->dead);
    TAILQ_INIT(&kernels->lost);
    TAILQ_INIT(&kernels->gone_list);
    if (engine->options.kernels_contexts == 0)
        engine->options.kernels_contexts = KERNELS_CONTEXTS;
    if (engine->options.kernels_memory == 0)
        engine->options.kernels_memory = KERNELS_MEMORY;
    if (engine->options.kernels_idle_ms == 0)
        engine->options.kernels_idle_ms = KERNELS_IDLE_MS;
    engine->kernels = kernels;
}

void kernels_lost(struct engine *engine, const char *why)
{
    struct error err;

    if (engine->kernels == NULL)
        return;
    (void)error_set(&err, "kernel_gone", 0, "%s", why);
    while (!TAILQ_EMPTY(&engine->kernels->workers))
        worker_end(TAILQ_FIRST(&engine->kernels->workers), &err, true);
}

void kernels_drain(struct engine *engine)
{
    struct worker *worker = NULL;

    TAILQ_FOREACH(worker, &engine->kernels->workers, next)
    {
        runs_drain(worker);
    }
}

static void fetches_closed(void *arg)
{
    network_close_room(arg);
}

void kernels_close(struct engine *engine)
{
    struct kernels *kernels = engine->kernels;

    if (kernels == NULL) {
        network_close_room(engine);
        return;
    }
    kernels_lost(engine, "the engine ends");
    runs_tell_lost(kernels);
    worker_bury(kernels);
    while (!TAILQ_EMPTY(&kernels->gone_list)) {
        struct kernel_gone *gone = TAILQ_FIRST(&kernels->gone_list);

        TAILQ_REMOVE(&kernels->gone_list, gone, next);
        free(gone);
    }
    map_free(&kernels->contexts);
    map_free(&kernels->gone);
    /* What it dialled is of the network. */
    if (kernels->fetches != NULL)
        fetches_close(kernels->fetches, fetches_closed, engine);
    else
        network_close_room(engine);
    fd_close(&kernels->program);
    explicit_bzero(kernels->key, sizeof(kernels->key));
    free(kernels);
    engine->kernels = NULL;
}
