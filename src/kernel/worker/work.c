/* What the owner of a context does: runs, calls and their answers, copies, and what a context holds. What it says goes
 * out as a whole once it is done; a single run's context is put back after that. */
#include "kernel/worker/worker.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* So long whoever wants room waits for what is being freed, at most: that may wait for him. */
#define FREE_SECONDS 2U

/* What this thread says, of the place that it works on. */
static _Thread_local struct wire out;

/* ---- runs; the owner's ---- */

/* The run is not under way any more: whoever hears so can ask for the next. */
static void run_forget(struct place *place)
{
    (void)pthread_mutex_lock(&worker.lock);
    numbers_remove(&worker.runs, &place->by_run);
    if (place->stop != KERNEL_END_VALUE && place->context != NULL)
        kernel_interrupt(place->context, KERNEL_END_VALUE);
    place->stop = KERNEL_END_VALUE;
    if (place->is_single)
        free_begin(place);
    (void)pthread_mutex_unlock(&worker.lock);
    place->run = 0;
    place->step_due = false;
    if (place->is_single)
        place->is_over = true;
}

static void run_failed(struct place *place, const struct error *err)
{
    uint64_t run = place->by_run.number;

    if (place->context != NULL)
        kernel_stop(place->context, KERNEL_END_STOPPED);
    run_forget(place);
    io_failed(&out, PROTO_RUN, run, err);
}

static struct kernel_text text_of(const char *text)
{
    return (struct kernel_text){text, strlen(text)};
}

/* What is said of a run in the place of a result that is too large to be said. */
static void result_small(struct kernel_result *result)
{
    static const struct kernel_text none = {"", 0};
    static _Thread_local char message[128];

    (void)snprintf(message, sizeof(message),
                   "the result of the run is too large: with what it printed at most %llu MiB",
                   (unsigned long long)(worker.result_bytes >> 20));
    result->end = KERNEL_END_ERROR;
    result->has_value = false;
    result->has_value_error = false;
    result->output = result->value = result->value_error = result->errors = none;
    result->stack = result->code = result->type = none;
    result->name = text_of("RangeError");
    result->message = text_of(message);
    result->logs_dropped += (uint32_t)result->logs_count;
    result->logs_count = 0;
    result->exit_code = 1;
}

/* What it printed gives way to its value: half of what is left is of the errors, and the log ends early. */
static void result_fit(struct kernel_result *result)
{
    uint64_t size, most = worker.result_bytes, logs = 0, rest;

    if (result->logs_count > KERNEL_LOGS_MAX) {
        result->logs_dropped += (uint32_t)(result->logs_count - KERNEL_LOGS_MAX);
        result->logs_count = KERNEL_LOGS_MAX;
    }
    size = wire_result_size(result);
    if (size <= most)
        return;
    for (size_t i = 0; i < result->logs_count; i++)
        logs += result->logs[i].text.size;
    rest = size - logs - result->errors.size;
    if (rest > most) {
        result_small(result);
        return;
    }
    if (result->errors.size > (most - rest) / 2)
        result->errors.size = (size_t)((most - rest) / 2);
    rest += result->errors.size;
    for (logs = 0; logs < result->logs_count; logs++) {
        rest += result->logs[logs].text.size;
        if (rest > most)
            break;
    }
    result->logs_dropped += (uint32_t)(result->logs_count - logs);
    result->logs_count = (size_t)logs;
}

static void run_done(struct place *place)
{
    struct kernel_result result = *kernel_result(place->context);

    wire_begin(&out, PROTO_DONE, place->run);
    result_fit(&result);
    (void)wire_result(&out, &result);
    wire_end(&out);
    run_forget(place);
}

static void call_out(struct place *place, const struct kernel_call *call)
{
    struct error err;

    if (call->bytes_size + call->meta.size > PROTO_RESULT_MAX) {
        (void)kernel_settle_error(place->context, call->id, "E2BIG",
                                  "a call of the host is too large: at most 64 MiB", &err);
        place->step_due = true;
        return;
    }
    wire_begin(&out, PROTO_CALL, place->run);
    wire_call(&out, call);
    wire_end(&out);
    place->cancels++;
}

/* After each entry into the guest. */
static void entered(struct place *place, enum kernel_status status)
{
    struct kernel_call call;

    place->step_due = false;
    if (status == KERNEL_DONE) {
        run_done(place);
        return;
    }
    while (kernel_call_next(place->context, &call))
        call_out(place, &call);
}

static void step(struct place *place)
{
    enum kernel_status status;
    struct error err;

    if (kernel_step(place->context, &status, &err) < 0)
        run_failed(place, &err);
    else
        entered(place, status);
}

/* A synchronous call that this process does not answer: one that is told, and has no answer. */
static int answer(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                  struct error *err)
{
    struct place *place = data;
    struct wire wire = {0};

    (void)answer;
    if (!kernel_text_is(call->op, "fetch.cancel"))
        return error_set(err, "ENOSYS", 0, "the host knows no call '%.*s'", (int)call->op.size,
                         call->op.data);
    if (place->cancels == 0)
        return 0;
    place->cancels--;
    wire_begin(&wire, PROTO_CANCEL, place->run);
    wire_bytes(&wire, call->op.data, call->op.size);
    wire_bytes(&wire, call->meta.data, call->meta.size);
    wire_end(&wire);
    io_send(&wire);
    wire_free(&wire);
    return 0;
}

/* ---- memory ---- */

/* Gives back what is not needed, and counts what is. */
void work_rest(struct place *place)
{
    uint64_t held;

    kernel_context_rest(place->context);
    if (!slot_can_scan())
        return; /* nobody knows */
    held = kernel_context_held(place->context);
    (void)pthread_mutex_lock(&worker.lock);
    held_set(place, held);
    (void)pthread_mutex_unlock(&worker.lock);
}

static bool is_room(void)
{
    return worker.memory_bytes == 0 ||
           worker.held + kernel_memory_grown() + HELD_GUESS <= worker.memory_bytes;
}

/* For one more context: those that are idle rest first. */
static int room_make(const struct place *place, struct error *err)
{
    struct timespec until = {.tv_sec = (time_t)(clock_wall_ms() / 1000 + FREE_SECONDS)};
    bool is_there, is_wanted = false;
    struct place *idle;

    (void)pthread_mutex_lock(&worker.lock);
    while (!is_room()) {
        if (worker.freeing > (place->is_freeing ? 1U : 0U) &&
            pthread_cond_timedwait(&worker.freed, &worker.lock, &until) == 0)
            continue;
        idle = worker.idle.first;
        if (idle == NULL)
            break;
        list_remove(idle);
        idle->is_owned = true;
        (void)pthread_mutex_unlock(&worker.lock);
        work_rest(idle);
        (void)pthread_mutex_lock(&worker.lock);
        idle->is_owned = false;
        if (idle->first != NULL) {
            make_ready(idle);
            is_wanted = true;
        }
    }
    is_there = is_room();
    (void)pthread_mutex_unlock(&worker.lock);
    if (is_wanted)
        io_wake();
    if (is_there)
        return 0;
    return error_set(err, "no_memory", 0,
                     "the contexts of this worker take all of the %llu bytes that they may; drop "
                     "some of them",
                     (unsigned long long)worker.memory_bytes);
}

/* ---- contexts; the owner's ---- */

/* From here on others may interrupt it. */
static void context_set(struct place *place, struct kernel_context *context)
{
    kernel_set_answerer(context, answer, place);
    (void)pthread_mutex_lock(&worker.lock);
    place->context = context;
    held_set(place, HELD_GUESS);
    if (place->stop != KERNEL_END_VALUE)
        kernel_interrupt(context, place->stop);
    (void)pthread_mutex_unlock(&worker.lock);
}

static void context_free(struct place *place)
{
    struct kernel_context *context = place->context;

    (void)pthread_mutex_lock(&worker.lock);
    place->context = NULL;
    held_set(place, 0);
    (void)pthread_mutex_unlock(&worker.lock);
    kernel_context_free(context);
    (void)pthread_mutex_lock(&worker.lock);
    free_end(place);
    (void)pthread_mutex_unlock(&worker.lock);
    if (place->grants != NULL)
        grants_drop(place->grants);
    place->grants = NULL;
}

/* It could not be made: who asks for something of it hears so, too. By the number that it was asked for with, for
 * its place has none any more where it was dropped meanwhile. */
static void context_failed(struct place *place, uint64_t number, const struct error *err)
{
    place->error = *err;
    place->is_over = true;
    (void)pthread_mutex_lock(&worker.lock);
    numbers_remove(&worker.contexts, &place->by_context);
    (void)pthread_mutex_unlock(&worker.lock);
    io_failed(&out, PROTO_NEW, number, err);
}

static void context_made(uint64_t number)
{
    wire_begin(&out, PROTO_MADE, number);
    wire_end(&out);
}

/* The grants end where `reader` is told that they do: for a manifest is found by its bytes. */
static struct grants *grants_of(struct wire_reader *reader, size_t size, struct error *err)
{
    const uint8_t *bytes = wire_read_raw(reader, size);

    if (bytes == NULL)
        worker_die();
    return grants_get(bytes, size, err);
}

static void do_new(struct place *place, const struct message *message)
{
    struct wire_reader reader = wire_reader(message->body, message->head.size);
    struct kernel_context *context;
    struct error err;

    place->grants = grants_of(&reader, message->head.size, &err);
    if (place->grants == NULL || room_make(place, &err) < 0 ||
        kernel_context_new(worker.image, place->grants->manifest, NULL, &context, &err) < 0) {
        context_failed(place, message->head.number, &err);
        return;
    }
    context_set(place, context);
    context_made(message->head.number);
}

static void do_restore(struct place *place, const struct message *message)
{
    struct wire_reader reader = wire_reader(message->body, message->head.size);
    size_t size = wire_read_u32(&reader, PROTO_RESULT_MAX);
    size_t left = (size_t)(reader.end - reader.at);
    struct kernel_context *context;
    struct error err;

    place->grants = grants_of(&reader, size <= left ? left - size : SIZE_MAX, &err);
    if (place->grants == NULL || room_make(place, &err) < 0 ||
        kernel_restore(worker.image, place->grants->manifest, NULL, worker.key,
                       wire_read_raw(&reader, size), size, &context, &err) < 0) {
        context_failed(place, message->head.number, &err);
        return;
    }
    context_set(place, context);
    context_made(message->head.number);
}

/* The copy is nobody's any more, or its next frame's. */
static void copy_release(struct place *copy)
{
    bool is_free, is_ready;

    (void)pthread_mutex_lock(&worker.lock);
    copy->is_owned = false;
    is_ready = copy->first != NULL;
    is_free = !is_ready && copy->is_over;
    if (is_ready)
        make_ready(copy);
    else if (!is_free)
        make_idle(copy);
    (void)pthread_mutex_unlock(&worker.lock);
    if (is_ready)
        io_wake();
    if (is_free)
        free(copy);
}

static void do_fork(struct place *place, const struct message *message)
{
    struct place *copy = message->copy;
    struct kernel_context *context;
    struct error err = place->error;

    if (place->context == NULL || kernel_context_fork(place->context, NULL, &context, &err) < 0) {
        context_failed(copy, message->head.number, &err);
    } else {
        copy->grants = place->grants;
        grants_share(copy->grants);
        context_set(copy, context);
        context_made(message->head.number);
    }
    /* Before anybody says what was done in it. */
    io_send(&out);
    copy_release(copy);
}

static void do_snapshot(struct place *place, const struct message *message)
{
    struct error err = place->error;
    uint8_t *bytes = NULL;
    size_t size = 0;

    if (place->context == NULL ||
        snapshot_make(place->context, worker.key, PROTO_RESULT_MAX, &bytes, &size, &err) < 0) {
        io_failed(&out, PROTO_SNAPSHOT, message->head.number, &err);
    } else {
        wire_begin(&out, PROTO_BYTES, message->head.number);
        wire_bytes(&out, bytes, size);
        wire_end(&out);
    }
    free(bytes);
}

/* Before a reset and a drop. */
static void end_run(struct place *place)
{
    if (place->run == 0)
        return;
    kernel_stop(place->context, KERNEL_END_STOPPED);
    step(place);
}

static void do_reset(struct place *place, const struct message *message)
{
    struct error err = place->error;

    end_run(place);
    if (place->context == NULL || kernel_context_reset(place->context, NULL, &err) < 0)
        io_failed(&out, PROTO_RESET, message->head.number, &err);
    else
        context_made(message->head.number);
}

static void do_run(struct place *place, const struct message *message)
{
    struct wire_reader reader = wire_reader(message->body, message->head.size);
    struct kernel_source source;
    struct kernel_context *context;
    enum kernel_status status;
    struct error err = place->error;

    (void)wire_read_u64(&reader);
    wire_read_source(&reader, &source);
    if (place->is_single && place->context == NULL) {
        place->grants = grants_of(&reader, (size_t)(reader.end - reader.at), &err);
        if (place->grants != NULL && room_make(place, &err) == 0 &&
            kernel_context_new(worker.image, place->grants->manifest, NULL, &context, &err) == 0)
            context_set(place, context);
    }
    if (!wire_is_done(&reader))
        worker_die();
    place->run = message->head.number;
    place->cancels = 0;
    if (place->context == NULL || kernel_run(place->context, &source, &status, &err) < 0)
        run_failed(place, &err);
    else
        entered(place, status);
}

static void do_settle(struct place *place, const struct message *message)
{
    struct wire_reader reader = wire_reader(message->body, message->head.size);
    uint32_t call = wire_read_u32(&reader, UINT32_MAX);
    struct error err;
    int status;

    if (message->head.kind == PROTO_SETTLE) {
        struct kernel_text meta = wire_read_bytes(&reader, KERNEL_META_MAX);
        bool has_bytes = wire_read_u32(&reader, 1) != 0;
        struct kernel_text bytes = wire_read_bytes(&reader, PROTO_RESULT_MAX);

        if (!wire_is_done(&reader))
            worker_die();
        if (place->run != message->head.number)
            return;
        status = kernel_settle(place->context, call, meta.data, meta.size,
                               has_bytes ? (const uint8_t *)bytes.data : NULL, bytes.size, &err);
    } else {
        const char *code = wire_read_string(&reader, ERROR_CODE_MAX);
        const char *text = wire_read_string(&reader, KERNEL_META_MAX / 8);

        if (!wire_is_done(&reader))
            worker_die();
        if (place->run != message->head.number)
            return;
        status = kernel_settle_error(place->context, call, code, text, &err);
    }
    if (status < 0)
        run_failed(place, &err);
    else
        place->step_due = true;
}

static void do_message(struct place *place, const struct message *message)
{
    switch (message->head.kind) {
    case PROTO_NEW:
        do_new(place, message);
        break;
    case PROTO_RESTORE:
        do_restore(place, message);
        break;
    case PROTO_FORK:
        do_fork(place, message);
        break;
    case PROTO_RESET:
        do_reset(place, message);
        break;
    case PROTO_SNAPSHOT:
        do_snapshot(place, message);
        break;
    case PROTO_DROP:
        end_run(place);
        place->is_over = true;
        break;
    case PROTO_RUN:
        do_run(place, message);
        break;
    case PROTO_STOP:
        if (place->run == message->head.number) {
            kernel_stop(place->context, place->stop);
            place->step_due = true;
        }
        break;
    default:
        do_settle(place, message);
        break;
    }
}

/* ---- for places.c ---- */

static void say(void)
{
    if (out.size > 0)
        io_send(&out);
}

void work_message(struct place *place, const struct message *message)
{
    do_message(place, message);
    say();
}

void work_step(struct place *place)
{
    step(place);
    say();
}

void work_end(struct place *place)
{
    context_free(place);
    free(place);
}
