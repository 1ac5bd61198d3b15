/* What a kernel does on a thread of the pool: its jobs, one after the other, each until it is done or waits for the
 * world; and what is told of that to the environment that it belongs to. No code here runs on JavaScript's thread but
 * what takes the lock for a moment.
 *
 * A context belongs to the thread whose turn it is. Whatever its code does, it ends with a result. */
#include "parts.h"

#include "base/clock.h"
#include "kernel/meta.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define REST_NS 100000000ULL /* idle for so long, it gives back what it can */

static pthread_once_t image_once = PTHREAD_ONCE_INIT;
static struct kernel_image *image;
static struct error image_error;

static void image_begin(void)
{
    (void)kernel_image_js(&image, &image_error);
}

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static uint8_t key_bytes[KERNEL_KEY_BYTES];
static bool key_is_there;

static void key_begin(void)
{
    key_is_there = getrandom(key_bytes, sizeof(key_bytes), 0) == sizeof(key_bytes);
}

int process_key(uint8_t key[KERNEL_KEY_BYTES], struct error *err)
{
    (void)pthread_once(&key_once, key_begin);
    if (!key_is_there)
        return error_set(err, "kernel_failed", EIO, "the system gives no random bytes");
    memcpy(key, key_bytes, KERNEL_KEY_BYTES);
    return 0;
}

/* ---- references; all with the lock ---- */

void grants_ref(struct grants *grants)
{
    grants->refs++;
}

void grants_unref(struct grants *grants)
{
    if (grants == NULL || --grants->refs > 0)
        return;
    kernel_manifest_free(grants->manifest);
    free(grants);
}

struct instance *instance_new(void)
{
    struct instance *instance = calloc(1, sizeof(*instance));

    if (instance == NULL)
        return NULL;
    instance->refs = 1;
    instance->events_last = &instance->events;
    (void)pthread_mutex_init(&instance->waking, NULL);
    return instance;
}

void instance_unref(struct instance *instance)
{
    if (--instance->refs > 0)
        return;
    (void)pthread_mutex_destroy(&instance->waking);
    free(instance);
}

static void job_free(struct job *job)
{
    free(job->outcome);
    free(job->bytes);
    explicit_bzero(job->key, sizeof(job->key));
    free(job);
}

/* Not inlined: the compiler believes of every event, then, that it may be a job, and warns that it is too small. */
__attribute__((noinline)) void event_free(struct event *event)
{
    if (event->kind == EVENT_DONE)
        job_free((struct job *)event);
    else
        free(event);
}

static void settles_free(struct guest *guest)
{
    while (guest->settles != NULL) {
        struct settle *next = guest->settles->next;

        free(guest->settles);
        guest->settles = next;
    }
    guest->settles_last = &guest->settles;
}

/* The context goes before its manifest. */
static void guest_free(struct guest *guest)
{
    pool_not_later(guest);
    settles_free(guest);
    kernel_context_free(guest->context);
    grants_unref(guest->grants);
    *guest->older = guest->newer;
    if (guest->newer != NULL)
        guest->newer->older = guest->older;
    instance_unref(guest->instance);
    free(guest);
}

static void guest_let_go(struct guest *guest)
{
    if (--guest->refs == 0)
        guest_free(guest);
}

/* ---- telling ---- */

/* With the lock; true: the instance has to be woken, without it. */
static bool event_post(struct instance *instance, struct event *event)
{
    bool wake = !instance->woken;

    if (instance->closed) {
        event_free(event);
        return false;
    }
    event->next = NULL;
    *instance->events_last = event;
    instance->events_last = &event->next;
    instance->woken = true;
    return wake;
}

static void instance_wake(struct instance *instance)
{
    (void)pthread_mutex_lock(&instance->waking);
    if (!instance->gone && !pool_is_over())
        (void)napi_call_threadsafe_function(instance->wake, NULL, napi_tsfn_nonblocking);
    (void)pthread_mutex_unlock(&instance->waking);
}

struct event *instance_take(struct instance *instance)
{
    struct event *events;

    pool_lock();
    events = instance->events;
    instance->events = NULL;
    instance->events_last = &instance->events;
    if (events == NULL)
        instance->woken = false;
    pool_unlock();
    return events;
}

/* With the lock, which is let go. */
static void done_post(struct guest *guest, struct job *job)
{
    struct guest *child = job->child;
    bool wake;

    job->child = NULL;
    if (child != NULL)
        guest_let_go(child);
    job->event.kind = EVENT_DONE;
    wake = event_post(guest->instance, &job->event);
    pool_unlock();
    if (wake)
        instance_wake(guest->instance);
}

/* Texts of a result are lent until the next run: all of them, in one piece. */
static void text_move(struct kernel_text *text, char **at)
{
    if (text->size > 0)
        memcpy(*at, text->data, text->size);
    text->data = *at;
    *at += text->size;
}

static struct outcome *outcome_new(const struct kernel_result *result)
{
    size_t logs = result->logs_count * sizeof(struct kernel_log),
           size = sizeof(struct outcome) + logs;
    struct outcome *outcome;
    struct kernel_log *log;
    char *at;

    size += result->output.size + result->type.size + result->value.size +
            result->value_error.size + result->errors.size + result->name.size +
            result->message.size + result->stack.size + result->code.size;
    for (size_t i = 0; i < result->logs_count; i++)
        size += result->logs[i].text.size;
    outcome = malloc(size);
    if (outcome == NULL)
        return NULL;
    outcome->result = *result;
    log = (struct kernel_log *)(outcome + 1);
    if (logs > 0)
        memcpy(log, result->logs, logs);
    outcome->result.logs = log;
    at = (char *)log + logs;
    text_move(&outcome->result.output, &at);
    text_move(&outcome->result.type, &at);
    text_move(&outcome->result.value, &at);
    text_move(&outcome->result.value_error, &at);
    text_move(&outcome->result.errors, &at);
    text_move(&outcome->result.name, &at);
    text_move(&outcome->result.message, &at);
    text_move(&outcome->result.stack, &at);
    text_move(&outcome->result.code, &at);
    for (size_t i = 0; i < result->logs_count; i++)
        text_move(&log[i].text, &at);
    return outcome;
}

static struct call *call_new(uint32_t ticket, const struct kernel_call *from)
{
    struct call *call = malloc(sizeof(*call) + from->op.size + from->meta.size + from->bytes_size);
    char *at;

    if (call == NULL)
        return NULL;
    *call = (struct call){.event = {.kind = EVENT_CALL, .ticket = ticket},
                          .id = from->id,
                          .op = from->op,
                          .meta = from->meta,
                          .bytes_size = from->bytes_size};
    at = (char *)(call + 1);
    text_move(&call->op, &at);
    text_move(&call->meta, &at);
    if (from->bytes != NULL) {
        if (from->bytes_size > 0)
            memcpy(at, from->bytes, from->bytes_size);
        call->bytes = (const uint8_t *)at;
    }
    return call;
}

/* The one synchronous call, from within the guest: it has no answer. Nothing of it is kept but a number, and no more
 * of these than there were requests, for JavaScript may not look for as long as the code likes to ask. */
static int answer(void *data, const struct kernel_call *call, struct kernel_answer *given,
                  struct error *err)
{
    struct guest *guest = data;
    struct meta_value value;
    struct cancel *event;
    uint64_t stream;
    bool wake;

    (void)given;
    if (!kernel_text_is(call->op, "fetch.cancel"))
        return error_set(err, "ENOSYS", 0, "this kernel's host knows no call '%.*s'",
                         (int)(call->op.size < 64 ? call->op.size : 64), call->op.data);
    if (guest->cancels == 0 || meta_member(call->meta, "stream", &value) < 0 ||
        meta_count(&value, UINT32_MAX, &stream) < 0)
        return 0;
    event = malloc(sizeof(*event));
    if (event == NULL)
        return error_set(err, "ENOMEM", 0, "the host has no memory");
    *event = (struct cancel){{.kind = EVENT_CANCEL, .ticket = guest->jobs->event.ticket},
                             .stream = (uint32_t)stream};
    guest->cancels--;
    pool_lock();
    wake = event_post(guest->instance, &event->event);
    pool_unlock();
    if (wake)
        instance_wake(guest->instance);
    return 0;
}

/* ---- jobs; without the lock ---- */

static int context_open(struct guest *guest, const struct job *job, struct kernel_context **out,
                        struct error *err)
{
    int status;

    (void)pthread_once(&image_once, image_begin);
    if (image == NULL) {
        *err = image_error;
        return -1;
    }
    if (job->kind == JOB_OPEN && job->bytes != NULL)
        status = kernel_restore(image, guest->grants->manifest, NULL, job->key, job->bytes,
                                job->size, out, err);
    else
        status = kernel_context_new(image, guest->grants->manifest, NULL, out, err);
    if (status == 0)
        kernel_set_answerer(*out, answer, guest);
    return status;
}

static int fork_do(struct guest *guest, struct job *job)
{
    struct kernel_context *copy;

    if (kernel_context_fork(guest->context, NULL, &copy, &job->err) < 0)
        return -1;
    kernel_set_answerer(copy, answer, job->child);
    pool_lock();
    job->child->context = copy;
    pool_unlock();
    return 0;
}

static int job_begin(struct guest *guest, struct job *job, enum kernel_status *status)
{
    *status = KERNEL_DONE;
    switch (job->kind) {
    case JOB_OPEN:
        return 0;
    case JOB_RUN:
        return kernel_run(guest->context, &job->source, status, &job->err);
    case JOB_RESET:
        return kernel_context_reset(guest->context, NULL, &job->err);
    case JOB_SNAPSHOT:
        return kernel_snapshot(guest->context, job->key, &job->bytes, &job->size, &job->err);
    case JOB_FORK:
        return fork_do(guest, job);
    }
    return -1;
}

static int job_go_on(struct guest *guest, struct job *job, struct settle *settles,
                     enum kernel_status *status)
{
    int failed = 0;

    while (settles != NULL) {
        struct settle *next = settles->next;

        if (failed == 0 && settles->ok)
            failed = kernel_settle(guest->context, settles->id, settles->meta, settles->meta_size,
                                   settles->bytes, settles->bytes_size, &job->err);
        else if (failed == 0)
            failed = kernel_settle_error(guest->context, settles->id, settles->meta,
                                         settles->meta + strlen(settles->meta) + 1, &job->err);
        /* It can only be too large: the code is told. */
        if (failed < 0 && strcmp(job->err.code, "too_large") == 0) {
            struct error why = job->err;

            failed = kernel_settle_error(guest->context, settles->id, "E2BIG", why.text, &job->err);
        }
        free(settles);
        settles = next;
    }
    return failed < 0 ? failed : kernel_step(guest->context, status, &job->err);
}

/* What the run asks for now. */
static void calls_tell(struct guest *guest, uint32_t ticket)
{
    struct event *events = NULL, **last = &events;
    struct kernel_call call;
    struct error ignored;
    bool wake = false;

    while (kernel_call_next(guest->context, &call)) {
        struct call *event = call_new(ticket, &call);

        if (event == NULL) {
            (void)kernel_settle_error(guest->context, call.id, "ENOMEM", "the host has no memory",
                                      &ignored);
            continue;
        }
        if (kernel_text_is(call.op, "fetch.start"))
            guest->cancels++;
        *last = &event->event;
        last = &event->event.next;
    }
    if (events == NULL)
        return;
    pool_lock();
    while (events != NULL) {
        struct event *next = events->next;

        wake = event_post(guest->instance, events) || wake;
        events = next;
    }
    pool_unlock();
    if (wake)
        instance_wake(guest->instance);
}

/* ---- turns ---- */

/* With the lock. */
static struct job *job_pop(struct guest *guest)
{
    struct job *job = guest->jobs;

    guest->jobs = job->next;
    if (guest->jobs == NULL)
        guest->jobs_last = &guest->jobs;
    guest->begun = false;
    settles_free(guest);
    if (guest->context != NULL)
        kernel_interrupt(guest->context, KERNEL_END_VALUE);
    return job;
}

/* With the lock, let go and taken again. */
static void job_finish(struct guest *guest, int failed)
{
    struct job *job = guest->jobs;
    struct kernel_context *context;

    job->failed = failed < 0;
    if (!job->failed && job->kind == JOB_RUN) {
        job->outcome = outcome_new(kernel_result(guest->context));
        if (job->outcome == NULL) {
            job->failed = true;
            error_set(&job->err, "no_memory", ENOMEM, "a result");
        }
    }
    (void)job_pop(guest);
    context = guest->context;
    if (guest->once)
        guest->context = NULL;
    done_post(guest, job);
    /* After it was told: what is put back now keeps nobody waiting. */
    if (guest->once)
        kernel_context_free(context);
    pool_lock();
}

/* Every job of it is told that it is over, and its memory goes. */
static void guest_end(struct guest *guest)
{
    struct kernel_context *context;

    while (guest->jobs != NULL) {
        struct job *job = job_pop(guest);

        job->failed = true;
        error_set(&job->err, "kernel_disposed", 0, "the kernel was disposed of");
        done_post(guest, job);
        pool_lock();
    }
    context = guest->context;
    guest->context = NULL;
    pool_unlock();
    kernel_context_free(context);
    pool_lock();
}

static bool stop_is_wanted(const struct guest *guest)
{
    return guest->dropped || guest->jobs->stop;
}

/* Of a run: true, it goes on later. */
static bool run_waits(struct guest *guest)
{
    uint32_t ticket = guest->jobs->event.ticket;
    uint64_t due;

    pool_unlock();
    calls_tell(guest, ticket);
    due = clock_monotonic_ns() + 1000000U * kernel_wait_ms(guest->context);
    pool_lock();
    if (guest->settles != NULL || stop_is_wanted(guest))
        return false;
    guest->place = GUEST_WAITS;
    pool_later(guest, due);
    return true;
}

/* With the lock, let go and taken again. The first job of a guest finds it without a context. */
static int context_have(struct guest *guest, struct job *job)
{
    struct kernel_context *context = NULL;
    int status;

    if (guest->context != NULL)
        return 0;
    pool_unlock();
    status = context_open(guest, job, &context, &job->err);
    pool_lock();
    guest->context = context;
    return status;
}

/* One piece of its first job; true: it waits. */
static bool job_turn(struct guest *guest)
{
    struct job *job = guest->jobs;
    struct settle *settles;
    enum kernel_status status = KERNEL_DONE;
    bool stop, begun = guest->begun;
    int failed;

    if (!begun && !stop_is_wanted(guest) && context_have(guest, job) < 0) {
        job_finish(guest, -1);
        return false;
    }
    stop = stop_is_wanted(guest);
    if (stop && !begun) {
        error_set(&job->err, "stopped", 0, "the run was stopped before it began");
        job_finish(guest, -1);
        return false;
    }
    if (!begun)
        guest->cancels = 0;
    guest->begun = true;
    guest->rested = false;
    settles = guest->settles;
    guest->settles = NULL;
    guest->settles_last = &guest->settles;
    pool_unlock();
    if (stop)
        kernel_stop(guest->context, KERNEL_END_STOPPED);
    failed = begun ? job_go_on(guest, job, settles, &status) : job_begin(guest, job, &status);
    if (failed < 0 && begun)
        kernel_stop(guest->context, KERNEL_END_STOPPED);
    pool_lock();
    if (failed == 0 && status == KERNEL_WAITS)
        return run_waits(guest);
    job_finish(guest, failed);
    return false;
}

static void guest_rest(struct guest *guest)
{
    if (guest->rested || guest->context == NULL) {
        guest->place = GUEST_IDLE;
        return;
    }
    if (guest->due == 0) {
        guest->due = clock_monotonic_ns() + REST_NS;
        guest->place = GUEST_IDLE;
        pool_later(guest, guest->due);
        return;
    }
    pool_unlock();
    kernel_context_rest(guest->context);
    pool_lock();
    guest->rested = true;
    guest->due = 0;
    /* Something came meanwhile. */
    if (guest->jobs != NULL || guest->dropped)
        pool_ready(guest);
    else
        guest->place = GUEST_IDLE;
}

void guest_turn(struct guest *guest)
{
    if (guest->place == GUEST_IDLE)
        guest->refs++;
    guest->place = GUEST_RUNS;
    if (guest->jobs != NULL)
        guest->due = 0;
    while (guest->jobs != NULL && !(guest->dropped && !guest->begun)) {
        if (job_turn(guest))
            break;
        /* Others have their turn, too. */
        if (guest->jobs != NULL && pool_has_ready())
            break;
    }
    if (guest->dropped && !guest->begun)
        guest_end(guest);
    if (guest->place == GUEST_RUNS) {
        if (guest->jobs != NULL)
            pool_ready(guest);
        else
            guest_rest(guest);
    }
    if (guest->place == GUEST_IDLE)
        guest_let_go(guest);
}

/* ---- for JavaScript's thread ---- */

struct guest *guest_new(struct instance *instance, struct grants *grants, bool once)
{
    struct guest *guest = calloc(1, sizeof(*guest));

    if (guest == NULL)
        return NULL;
    *guest = (struct guest){.refs = 1, .instance = instance, .grants = grants, .once = once};
    guest->jobs_last = &guest->jobs;
    guest->settles_last = &guest->settles;
    pool_lock();
    grants_ref(grants);
    instance->refs++;
    guest->older = &instance->guests;
    guest->newer = instance->guests;
    if (guest->newer != NULL)
        guest->newer->older = &guest->newer;
    instance->guests = guest;
    pool_unlock();
    return guest;
}

static void refuse(struct guest *guest, struct job *job, const char *code, const char *why)
{
    job->failed = true;
    error_set(&job->err, code, 0, "%s", why);
    done_post(guest, job);
}

void guest_add(struct guest *guest, struct job *job)
{
    pool_lock();
    if (guest->dropped) {
        refuse(guest, job, "kernel_disposed", "the kernel was disposed of");
        return;
    }
    if (!pool_has_threads()) {
        refuse(guest, job, "no_thread", "the system gives no thread for kernels");
        return;
    }
    job->next = NULL;
    *guest->jobs_last = job;
    guest->jobs_last = &job->next;
    if (guest->place == GUEST_IDLE)
        pool_ready(guest);
    pool_unlock();
}

void guest_settle(struct guest *guest, uint32_t ticket, struct settle *settle)
{
    pool_lock();
    if (guest->dropped || guest->jobs == NULL || !guest->begun ||
        guest->jobs->event.ticket != ticket) {
        free(settle);
    } else {
        settle->next = NULL;
        *guest->settles_last = settle;
        guest->settles_last = &settle->next;
        if (guest->place == GUEST_WAITS)
            pool_ready(guest);
    }
    pool_unlock();
}

/* With the lock: what is under way ends soon. */
static void hurry(struct guest *guest)
{
    if (guest->place == GUEST_RUNS && guest->context != NULL && guest->jobs != NULL && guest->begun)
        kernel_interrupt(guest->context, KERNEL_END_STOPPED);
    else if (guest->place == GUEST_WAITS || guest->place == GUEST_IDLE)
        pool_ready(guest);
}

/* With the lock: its first job is nobody's yet, and can be refused. The guest keeps its place in the line; its turn finds
 * what there is then. */
static bool head_waits(const struct guest *guest)
{
    return guest->place == GUEST_READY && !guest->begun && guest->jobs != NULL;
}

void guest_stop(struct guest *guest, uint32_t ticket)
{
    struct job **at;

    pool_lock();
    for (at = &guest->jobs; *at != NULL && (*at)->event.ticket != ticket; at = &(*at)->next)
        continue;
    if (*at == NULL) {
        pool_unlock();
        return;
    }
    (*at)->stop = true;
    if (at == &guest->jobs && !head_waits(guest)) {
        hurry(guest);
        pool_unlock();
    } else {
        struct job *job = *at;

        *at = job->next;
        if (guest->jobs_last == &job->next)
            guest->jobs_last = at;
        refuse(guest, job, "stopped", "the run was stopped before it began");
    }
}

/* With the lock. */
static void drop(struct guest *guest)
{
    if (guest->dropped)
        return;
    guest->dropped = true;
    hurry(guest);
}

void guest_drop(struct guest *guest)
{
    pool_lock();
    drop(guest);
    while (head_waits(guest)) {
        refuse(guest, job_pop(guest), "kernel_disposed", "the kernel was disposed of");
        pool_lock();
    }
    pool_unlock();
}

void guest_unref(struct guest *guest)
{
    pool_lock();
    guest_let_go(guest);
    pool_unlock();
}

void instance_close(struct instance *instance)
{
    struct event *event;

    pool_lock();
    instance->closed = true;
    event = instance->events;
    instance->events = NULL;
    instance->events_last = &instance->events;
    for (struct guest *guest = instance->guests; guest != NULL; guest = guest->newer)
        drop(guest);
    pool_unlock();
    while (event != NULL) {
        struct event *next = event->next;

        event_free(event);
        event = next;
    }
    (void)pthread_mutex_lock(&instance->waking);
    instance->gone = true;
    (void)pthread_mutex_unlock(&instance->waking);
}
