/* Runs: into the guest and out of it, and what is told of how a run ended. */
#include "base/clock.h"
#include "kernel/meta.h"
#include "kernel/runtime.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For what only the prelude does (forgetting a run): code of the user's has no part in it. */
#define ABANDON_NS 50000000ULL
#define LOGS_KEPT 1024U /* records that a context keeps room for */

/* ---- entries ---- */

struct work {
    struct kernel_context *context;
    const struct kernel_source *source;
    uint32_t id; /* of a call to settle */
    bool ok;
    const char *meta;
    const uint8_t *bytes;
    size_t meta_size, bytes_size;
    int state; /* out: an enum guest_state; -1: no memory */
};

static void abandon_work(void *data);

static int enter(struct work *work, void (*function)(void *), uint64_t cpu_ns, uint64_t wall_ns,
                 enum kernel_trap *trap, struct kernel_entry *entry, struct error *err)
{
    struct kernel_context *context = work->context;
    struct kernel_context *outer = runtime_context;
    int status;

    *entry = (struct kernel_entry){.work = function,
                                   .data = work,
                                   .slot = context->slot->base,
                                   .interrupt = &context_shared(context)->interrupt,
                                   .poke = function != abandon_work ? &context->poke : NULL,
                                   .cpu_ns = cpu_ns,
                                   .wall_ns = wall_ns};
    runtime_context = context;
    status = thread_enter(entry, trap, err);
    runtime_context = outer;
    if (status == 0) {
        context->cpu_used += entry->cpu_used;
        if (*trap != TRAP_NONE)
            context->in_call = false;
    }
    return status;
}

/* ---- results ---- */

static struct kernel_text text_at(const struct kernel_context *context, struct guest_text text)
{
    const uint8_t *at = context_memory(context, text.at, text.size);

    return at != NULL ? (struct kernel_text){(const char *)at, text.size}
                      : (struct kernel_text){"", 0};
}

static struct kernel_text text_of(const char *text)
{
    return (struct kernel_text){text, strlen(text)};
}

/* What a run printed a lot into is not kept for the next. */
void logs_rest(struct kernel_context *context)
{
    if (context->logs_room <= LOGS_KEPT)
        return;
    free(context->logs);
    context->logs = NULL;
    context->logs_room = 0;
    context->result.logs = NULL;
    context->result.logs_count = 0;
}

/* The records of the log; what has no sense ends it. */
static void logs_read(struct kernel_context *context, const struct guest_shared *shared)
{
    struct kernel_text all = text_at(context, shared->logs);
    struct kernel_result *result = &context->result;
    size_t at = 0;

    logs_rest(context);
    if (all.size > GUEST_LOGS_MAX) /* the engine prints no more */
        all.size = GUEST_LOGS_MAX;
    result->logs_count = 0;
    result->logs_dropped = shared->logs_dropped;
    while (all.size - at >= 2 * sizeof(uint32_t)) {
        uint32_t head[2];

        memcpy(head, all.data + at, sizeof(head));
        at += sizeof(head);
        if (head[0] > GUEST_DEBUG || head[1] > all.size - at)
            break;
        if (result->logs_count == KERNEL_LOGS_MAX) {
            result->logs_dropped++;
            at += head[1];
            continue;
        }
        if (result->logs_count == context->logs_room) {
            size_t room = context->logs_room != 0 ? 2 * context->logs_room : 16;
            struct kernel_log *more = realloc(context->logs, room * sizeof(*more));

            if (more == NULL) {
                result->logs_dropped++;
                break;
            }
            context->logs = more;
            context->logs_room = room;
        }
        context->logs[result->logs_count++] = (struct kernel_log){(enum kernel_level)head[0],
                                                                  {all.data + at, head[1]}};
        at += head[1];
    }
    result->logs = context->logs;
}

/* How a run that threw is counted. Code can throw what looks so; then it is told what it says. */
static enum kernel_end end_of_error(const struct kernel_context *context,
                                    const struct guest_shared *shared)
{
    const struct kernel_result *result = &context->result;
    bool refused = context->refused || shared->memory_refused != 0;

    /* Where there is no memory for an error, null is thrown. */
    if (refused && (result->message.size == 0 || kernel_text_is(result->stack, "Uncaught null") ||
                    (kernel_text_is(result->name, "InternalError") &&
                     kernel_text_is(result->message, "out of memory"))))
        return KERNEL_END_MEMORY;
    return kernel_text_is(result->name, "DeadlockError") ? KERNEL_END_DEADLOCK : KERNEL_END_ERROR;
}

/* What the guest says of its run. */
static void result_read(struct kernel_context *context, const struct guest_shared *shared)
{
    struct kernel_result *result = &context->result;

    result->has_value = (shared->flags & GUEST_HAS_VALUE) != 0;
    result->is_final = (shared->flags & GUEST_FINAL) != 0;
    result->output = text_at(context, shared->output);
    result->value = text_at(context, shared->value);
    result->type = text_at(context, shared->type);
    result->has_value_error = (shared->flags & GUEST_HAS_VALUE_ERROR) != 0;
    result->value_error = text_at(context, shared->value_error);
    result->errors = text_at(context, shared->errors);
    result->code = text_at(context, shared->code);
    result->column = shared->column;
    result->exit_code = shared->exit_code;
    result->name = text_at(context, shared->name);
    result->message = text_at(context, shared->message);
    result->stack = text_at(context, shared->stack);
    result->line = shared->line;
    result->end = (shared->flags & GUEST_HAS_ERROR) == 0 ? KERNEL_END_VALUE
                                                         : end_of_error(context, shared);
}

/* Says in words why the host ended it. */
static void ended(struct kernel_context *context, enum kernel_end end)
{
    const struct kernel_manifest *manifest = context->manifest;
    struct kernel_result *result = &context->result;
    char *said = context->said;
    size_t size = sizeof(context->said);

    result->end = end;
    result->name = text_of(end == KERNEL_END_DEADLOCK ? "DeadlockError" : "Error");
    switch (end) {
    case KERNEL_END_CPU:
        result->name = text_of("TimeoutError");
        (void)snprintf(said, size,
                       "the run used up its %llu ms of CPU time; allow more with cpuMs (--cpu-ms)",
                       (unsigned long long)(context->cpu_limit / 1000000));
        break;
    case KERNEL_END_WALL:
        result->name = text_of("TimeoutError");
        (void)snprintf(said, size,
                       "the run was not done after %llu ms; allow more with wallMs (--wall-ms)",
                       (unsigned long long)(context->wall_limit / 1000000));
        break;
    case KERNEL_END_MEMORY:
        result->name = text_of("InternalError");
        (void)snprintf(said, size,
                       "out of memory: the run may use %llu bytes; allow more with "
                       "memoryLimitBytes (--memory)",
                       (unsigned long long)manifest->memory_bytes);
        break;
    case KERNEL_END_STACK:
        result->name = text_of("RangeError");
        (void)snprintf(said, size, "Maximum call stack size exceeded");
        break;
    case KERNEL_END_DEADLOCK:
        (void)snprintf(
            said, size,
            "the run waits for a promise that can never settle: no timer, no request and "
            "no tool call is pending");
        break;
    case KERNEL_END_STOPPED:
        (void)snprintf(said, size, "the run was stopped");
        break;
    case KERNEL_END_TRAP:
    case KERNEL_END_VALUE:
    case KERNEL_END_ERROR:
        (void)snprintf(said, size, "the engine failed; the context was given up");
        break;
    }
    result->message = text_of(said);
}

static const enum kernel_end end_of_trap[] = {
    [TRAP_MEMORY] = KERNEL_END_TRAP, [TRAP_STACK] = KERNEL_END_STACK,
    [TRAP_CODE] = KERNEL_END_TRAP,   [TRAP_CPU] = KERNEL_END_CPU,
    [TRAP_WALL] = KERNEL_END_WALL,   [TRAP_STOP] = KERNEL_END_STOPPED,
};

/* The end of a run, for whichever reason. */
static enum kernel_status finish(struct kernel_context *context, enum kernel_end end, bool lost)
{
    struct kernel_result *result = &context->result;
    struct guest_shared shared;

    memcpy(&shared, context_shared(context), offsetof(struct guest_shared, input));
    *result = (struct kernel_result){.output = text_of(""),
                                     .type = text_of("undefined"),
                                     .value = text_of(""),
                                     .value_error = text_of(""),
                                     .errors = text_of(""),
                                     .name = text_of(""),
                                     .message = text_of(""),
                                     .stack = text_of(""),
                                     .code = text_of(""),
                                     .exit_code = 1};
    logs_read(context, &shared);
    if (end == KERNEL_END_VALUE) {
        result_read(context, &shared);
        /* The engine does not know what would allow more; or there was no room left to say it. */
        if (result->end == KERNEL_END_MEMORY)
            end = KERNEL_END_MEMORY;
    }
    if (end != KERNEL_END_VALUE)
        ended(context, end);
    result->state_lost = lost;
    result->cpu_ns = context->cpu_used;
    result->wall_ns = clock_monotonic_ns() - context->started;
    result->memory_bytes = context->machine.memory->size;
    if (result->end != KERNEL_END_VALUE)
        thread_rest();
    calls_drop(context);
    context->phase = lost ? PHASE_LOST : PHASE_IDLE;
    return KERNEL_DONE;
}

static enum kernel_status outcome(struct kernel_context *context, enum kernel_trap trap,
                                  const struct kernel_entry *entry, int state)
{
    if (trap != TRAP_NONE) {
        enum kernel_end end = end_of_trap[trap];

        return finish(context, end == KERNEL_END_TRAP && context->refused ? KERNEL_END_MEMORY : end,
                      true);
    }
    switch (state) {
    case GUEST_DONE:
        return finish(context, KERNEL_END_VALUE, false);
    case GUEST_WAITS:
        context->phase = PHASE_WAITS;
        if (context->calls_count == 0 && !(context_shared(context)->wait_ms >= 0)) {
            kernel_stop(context, KERNEL_END_DEADLOCK);
            return KERNEL_DONE;
        }
        if (atomic_load(&context->poke.trap) != TRAP_NONE) {
            kernel_stop(context, end_of_trap[atomic_load(&context->poke.trap)]);
            return KERNEL_DONE;
        }
        return KERNEL_WAITS;
    case GUEST_INTERRUPTED:
        return finish(context,
                      entry->interrupted != TRAP_NONE ? end_of_trap[entry->interrupted]
                                                      : KERNEL_END_CPU,
                      false);
    case GUEST_NO_MEMORY:
        return finish(context, KERNEL_END_MEMORY, false);
    default:
        return finish(context, KERNEL_END_TRAP, true);
    }
}

/* ---- running ---- */

static void configure(struct kernel_context *context)
{
    const struct kernel_manifest *manifest = context->manifest;
    uint32_t json;

    if (manifest->configuration == NULL || context->image->configured)
        return;
    json = context_put(context, manifest->configuration, (uint32_t)manifest->configuration_size);
    if (json != 0)
        (void)context->guest->configure(&context->machine, json,
                                        (uint32_t)manifest->configuration_size);
}

/* The source and the name behind it, each with a NUL: in the place that is there for small ones, or in a
 * block of the guest's. */
static uint32_t source_put(struct kernel_context *context, const struct kernel_source *source,
                           const char *filename, uint32_t *name)
{
    size_t size = source->size, name_size = strlen(filename) + 1;
    uint32_t at;
    uint8_t *into;

    if (size + 1 + name_size <= GUEST_INPUT_MAX)
        at = context->shared_at + (uint32_t)offsetof(struct guest_shared, input);
    else
        at = context->guest->reserve(&context->machine, (uint32_t)(size + 1 + name_size));
    into = at != 0 ? context_memory(context, at, (uint32_t)(size + 1 + name_size)) : NULL;
    if (into == NULL)
        return 0;
    if (size > 0)
        memcpy(into, source->text, size);
    into[size] = 0;
    memcpy(into + size + 1, filename, name_size);
    *name = at + (uint32_t)size + 1;
    return at;
}

static void run_work(void *data)
{
    struct work *work = data;
    struct kernel_context *context = work->context;
    const struct kernel_source *source = work->source;
    uint32_t at, name;

    if (context->phase == PHASE_NEW)
        configure(context);
    at = source_put(context, source, source->filename != NULL ? source->filename : "<run>", &name);
    if (at == 0) {
        work->state = GUEST_NO_MEMORY;
        return;
    }
    work->state = context->guest->run(&context->machine, at, (uint32_t)source->size,
                                      (source->language == KERNEL_TS ? GUEST_RUN_TYPES : 0) |
                                          (source->module ? GUEST_RUN_MODULE : 0),
                                      name);
}

static uint32_t tighter(uint32_t one, uint32_t other)
{
    return other != 0 && other < one ? other : one;
}

static int run_begin(struct kernel_context *context, const struct kernel_source *source,
                     struct error *err)
{
    struct guest_shared *shared;

    if (context->phase == PHASE_WAITS || context->in_call)
        return error_set(err, "kernel_busy", 0,
                         "a run is under way in this context; wait until it is done, or stop it");
    if (source->size > KERNEL_SOURCE_MAX ||
        (source->filename != NULL && strlen(source->filename) > 4096))
        return error_set(err, "too_large", 0, "a source of %zu bytes is too large: at most %u",
                         source->size, KERNEL_SOURCE_MAX);
    if (context->phase == PHASE_LOST && kernel_context_reset(context, NULL, err) < 0)
        return -1;
    context->cpu_limit = 1000000ULL * tighter(context->manifest->cpu_ms, source->cpu_ms);
    context->wall_limit = 1000000ULL * tighter(context->manifest->wall_ms, source->wall_ms);
    context->cpu_used = 0;
    context->started = clock_monotonic_ns();
    context->refused = false;
    shared = context_shared(context);
    shared->interrupt = 0;
    /* What the last run printed is not this one's, however early it ends. */
    shared->logs.size = shared->logs_count = shared->logs_dropped = 0;
    return 0;
}

/* What is left of the run's limits; false: nothing. */
static bool limits_left(const struct kernel_context *context, uint64_t *cpu, uint64_t *wall)
{
    uint64_t since = clock_monotonic_ns() - context->started;

    if (context->cpu_used >= context->cpu_limit || since >= context->wall_limit)
        return false;
    *cpu = context->cpu_limit - context->cpu_used;
    *wall = context->wall_limit - since;
    return true;
}

/* Its time was up before the guest was entered: its state is what it was, also that it never ran. */
static void not_begun(struct kernel_context *context, enum kernel_end end)
{
    enum phase phase = context->phase;

    (void)finish(context, end, false);
    context->phase = phase;
}

static int run_on(struct work *work, void (*function)(void *), enum kernel_status *status,
                  struct error *err)
{
    struct kernel_context *context = work->context;
    struct kernel_entry entry;
    enum kernel_trap trap;
    uint64_t cpu, wall;

    if (!limits_left(context, &cpu, &wall)) {
        enum kernel_end end = context->cpu_used >= context->cpu_limit ? KERNEL_END_CPU
                                                                      : KERNEL_END_WALL;

        if (context->phase == PHASE_WAITS)
            kernel_stop(context, end);
        else
            not_begun(context, end);
        *status = KERNEL_DONE;
        return 0;
    }
    if (enter(work, function, cpu, wall, &trap, &entry, err) < 0)
        return -1;
    *status = outcome(context, trap, &entry, work->state);
    return 0;
}

int kernel_run(struct kernel_context *context, const struct kernel_source *source,
               enum kernel_status *status, struct error *err)
{
    struct work work = {.context = context, .source = source};

    if (run_begin(context, source, err) < 0)
        return -1;
    return run_on(&work, run_work, status, err);
}

static void step_work(void *data)
{
    struct work *work = data;

    work->state = work->context->guest->step(&work->context->machine);
}

int kernel_step(struct kernel_context *context, enum kernel_status *status, struct error *err)
{
    struct work work = {.context = context};

    if (context->phase == PHASE_NEW || context->in_call)
        return error_set(err, "kernel_idle", 0, "no run waits in this context");
    if (context->phase != PHASE_WAITS) {
        /* It ended while a call was settled, or was stopped. */
        *status = KERNEL_DONE;
        return 0;
    }
    return run_on(&work, step_work, status, err);
}

uint64_t kernel_wait_ms(const struct kernel_context *context)
{
    uint64_t since = clock_monotonic_ns() - context->started, wait = 0;
    double timer;

    if (context->phase != PHASE_WAITS)
        return 0;
    if (since < context->wall_limit)
        wait = (context->wall_limit - since + 999999) / 1000000;
    memcpy(&timer, &context_shared(context)->wait_ms, sizeof(timer));
    /* In this form for what is no number, too. */
    if (timer >= 0 && timer < (double)wait)
        wait = (uint64_t)timer + (timer > (double)(uint64_t)timer ? 1 : 0);
    return wait;
}

static void abandon_work(void *data)
{
    struct work *work = data;

    work->context->guest->abandon(&work->context->machine);
}

void kernel_stop(struct kernel_context *context, enum kernel_end end)
{
    struct work work = {.context = context};
    enum kernel_trap trap = TRAP_NONE;
    struct kernel_entry entry;
    struct error err;
    bool lost;

    if (context->phase != PHASE_WAITS || context->in_call)
        return;
    lost = enter(&work, abandon_work, ABANDON_NS, ABANDON_NS, &trap, &entry, &err) < 0 ||
           trap != TRAP_NONE;
    (void)finish(context, end, lost);
}

void kernel_interrupt(struct kernel_context *context, enum kernel_end end)
{
    thread_poke(&context->poke, end == KERNEL_END_STOPPED ? TRAP_STOP
                                : end == KERNEL_END_WALL  ? TRAP_WALL
                                                          : TRAP_NONE);
}

const struct kernel_result *kernel_result(const struct kernel_context *context)
{
    return &context->result;
}

/* ---- settling ---- */

static void settle_work(void *data)
{
    struct work *work = data;
    struct kernel_context *context = work->context;
    uint32_t meta[2] = {context_put(context, work->meta, (uint32_t)work->meta_size),
                        (uint32_t)work->meta_size};
    uint32_t bytes[2] = {0, GUEST_NO_BYTES};

    work->state = -1;
    if (meta[0] == 0)
        return;
    if (work->bytes != NULL) {
        bytes[1] = (uint32_t)work->bytes_size;
        bytes[0] = context_put(context, work->bytes, (uint32_t)work->bytes_size);
        if (bytes[0] == 0)
            return;
    }
    context->guest->settle(&context->machine, work->id, work->ok, meta, bytes);
    work->state = 0;
}

/* Takes the call out of the list; false: it is not there any more. */
static bool pending_take(struct kernel_context *context, uint32_t id)
{
    for (struct pending **at = &context->calls; *at != NULL; at = &(*at)->next)
        if ((*at)->call.id == id) {
            struct pending *call = *at;

            *at = call->next;
            if (context->calls_last == &call->next)
                context->calls_last = at;
            context->calls_count--;
            context->calls_bytes -= call->call.op.size + call->call.meta.size +
                                    call->call.bytes_size;
            free(call);
            return true;
        }
    return false;
}

static int settle(struct work *work, struct error *err)
{
    struct kernel_context *context = work->context;
    struct kernel_entry entry;
    enum kernel_trap trap;
    uint64_t cpu, wall;

    if (work->meta_size > KERNEL_META_MAX || work->bytes_size > KERNEL_MEMORY_DEFAULT)
        return error_set(err, "too_large", 0, "the answer to a call of the host is too large");
    if (context->phase != PHASE_WAITS || context->in_call || !pending_take(context, work->id))
        return 0;
    if (!limits_left(context, &cpu, &wall)) {
        cpu = ABANDON_NS;
        wall = ABANDON_NS;
    }
    if (enter(work, settle_work, cpu, wall, &trap, &entry, err) < 0)
        return -1;
    if (trap != TRAP_NONE)
        (void)outcome(context, trap, &entry, 0);
    else if (work->state < 0)
        kernel_stop(context, KERNEL_END_MEMORY);
    return 0;
}

int kernel_settle(struct kernel_context *context, uint32_t id, const char *meta, size_t meta_size,
                  const uint8_t *bytes, size_t bytes_size, struct error *err)
{
    struct work work = {.context = context,
                        .id = id,
                        .ok = true,
                        .meta = meta != NULL ? meta : "null",
                        .meta_size = meta != NULL ? meta_size : strlen("null"),
                        .bytes = bytes,
                        .bytes_size = bytes_size};

    return settle(&work, err);
}

int kernel_settle_error(struct kernel_context *context, uint32_t id, const char *code,
                        const char *message, struct error *err)
{
    struct meta_text text = {0};
    struct work work = {.context = context, .id = id};
    int status;

    meta_put(&text, "{\"code\":");
    meta_put_string(&text, code, strlen(code));
    meta_put(&text, ",\"message\":");
    meta_put_string(&text, message, strlen(message));
    meta_put(&text, "}");
    if (text.failed)
        return error_set(err, "no_memory", ENOMEM, "the answer to a call of the host");
    work.meta = text.data;
    work.meta_size = text.size;
    status = settle(&work, err);
    free(text.data);
    return status;
}
