/* libcove's kernels: see include/cove.h. Runs go to their end in the caller's thread; what code asks for in between is
 * answered by the caller's functions (kernel_calls.c), while the guest is not entered. */
#include "lib/kernel_parts.h"

#include "base/clock.h"
#include "base/routes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- errors ---- */

static int give_error(struct cove_error *error, const struct error *err)
{
    (void)snprintf(error->code, sizeof(error->code), "%s", err->code);
    (void)snprintf(error->text, sizeof(error->text), "%s", err->text);
    error->errnum = err->errnum;
    return -1;
}

static int busy(struct error *err)
{
    (void)error_set(err, "kernel_busy", 0,
                    "this kernel runs and waits for a callback, which cannot use it");
    return -1;
}

/* ---- kernels ---- */

static pthread_mutex_t image_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel_image *image; /* of the process; made once and kept */

static struct kernel_image *image_get(struct error *err)
{
    struct kernel_image *found;

    (void)pthread_mutex_lock(&image_lock);
    if (image == NULL && kernel_image_js(&image, err) < 0)
        image = NULL;
    found = image;
    (void)pthread_mutex_unlock(&image_lock);
    return found;
}

static void shared_drop(struct shared *shared)
{
    if (shared == NULL || atomic_fetch_sub(&shared->users, 1) > 1)
        return;
    kernel_manifest_free(shared->manifest);
    free(shared);
}

static struct shared *shared_new(const struct cove_grants *grants, struct error *err)
{
    static const struct cove_grants nothing;
    struct kernel_grants given;
    struct shared *shared = calloc(1, sizeof(*shared));

    if (grants == NULL)
        grants = &nothing;
    given = (struct kernel_grants){
        .hosts = grants->hosts,
        .read_paths = grants->read_paths,
        .write_paths = grants->write_paths,
        .env = grants->env,
        .tools = grants->tools,
        .argv = grants->argv,
        .cpu_ms = grants->cpu_ms,
        .wall_ms = grants->wall_ms,
        .memory_bytes = grants->memory_bytes,
    };
    if (shared == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "a kernel");
        return NULL;
    }
    atomic_init(&shared->users, 1);
    shared->tool = grants->tool;
    shared->fetch = grants->fetch;
    shared->data = grants->data;
    if (kernel_manifest_new(&given, &shared->manifest, err) < 0) {
        free(shared);
        return NULL;
    }
    return shared;
}

/* Around a context, whose answers it gives; takes both, also when it fails. */
static int kernel_wrap(struct kernel_context *context, struct shared *shared,
                       struct cove_kernel **out, struct error *err)
{
    struct cove_kernel *kernel = calloc(1, sizeof(*kernel));
    pthread_condattr_t attr;

    if (kernel == NULL) {
        kernel_context_free(context);
        shared_drop(shared);
        (void)error_set(err, "no_memory", ENOMEM, "a kernel");
        return -1;
    }
    kernel->context = context;
    kernel->shared = shared;
    (void)pthread_mutex_init(&kernel->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&kernel->stopped, &attr);
    (void)pthread_condattr_destroy(&attr);
    kernel_set_answerer(context, host_answer_now, kernel);
    *out = kernel;
    return 0;
}

int cove_kernel_new(const struct cove_grants *grants, struct cove_kernel **out,
                    struct cove_error *error)
{
    struct kernel_image *from;
    struct kernel_context *context;
    struct shared *shared;
    struct error err;

    from = image_get(&err);
    shared = from != NULL ? shared_new(grants, &err) : NULL;
    if (shared == NULL)
        return give_error(error, &err);
    if (kernel_context_new(from, shared->manifest, NULL, &context, &err) < 0) {
        shared_drop(shared);
        return give_error(error, &err);
    }
    return kernel_wrap(context, shared, out, &err) < 0 ? give_error(error, &err) : 0;
}

void cove_kernel_free(struct cove_kernel *kernel)
{
    if (kernel == NULL)
        return;
    kernel_context_free(kernel->context);
    host_drop_streams(kernel);
    shared_drop(kernel->shared);
    free(kernel->logs);
    (void)pthread_cond_destroy(&kernel->stopped);
    (void)pthread_mutex_destroy(&kernel->lock);
    free(kernel);
}

int cove_kernel_reset(struct cove_kernel *kernel, struct cove_error *error)
{
    struct error err;

    if (kernel->is_running ? busy(&err) < 0 : kernel_context_reset(kernel->context, NULL, &err) < 0)
        return give_error(error, &err);
    host_drop_streams(kernel);
    return 0;
}

int cove_kernel_fork(struct cove_kernel *kernel, struct cove_kernel **out, struct cove_error *error)
{
    struct kernel_context *context = NULL;
    struct error err;

    if (kernel->is_running ? busy(&err) < 0
                           : kernel_context_fork(kernel->context, NULL, &context, &err) < 0)
        return give_error(error, &err);
    atomic_fetch_add(&kernel->shared->users, 1);
    return kernel_wrap(context, kernel->shared, out, &err) < 0 ? give_error(error, &err) : 0;
}

int cove_kernel_snapshot(struct cove_kernel *kernel, const unsigned char *key, void **bytes,
                         size_t *size, struct cove_error *error)
{
    uint8_t *made = NULL;
    struct error err;

    if (kernel->is_running ? busy(&err) < 0
                           : kernel_snapshot(kernel->context, key, &made, size, &err) < 0)
        return give_error(error, &err);
    *bytes = made;
    return 0;
}

int cove_kernel_restore(const struct cove_grants *grants, const unsigned char *key,
                        const void *bytes, size_t size, struct cove_kernel **out,
                        struct cove_error *error)
{
    struct kernel_image *from;
    struct kernel_context *context;
    struct shared *shared;
    struct error err;

    from = image_get(&err);
    shared = from != NULL ? shared_new(grants, &err) : NULL;
    if (shared == NULL)
        return give_error(error, &err);
    if (kernel_restore(from, shared->manifest, NULL, key, bytes, size, &context, &err) < 0) {
        shared_drop(shared);
        return give_error(error, &err);
    }
    return kernel_wrap(context, shared, out, &err) < 0 ? give_error(error, &err) : 0;
}

int cove_kernel_may_dial(struct cove_kernel *kernel, const char *host, const char *address,
                         uint16_t port, struct cove_error *error)
{
    const struct policy *policy = kernel_manifest_policy(kernel->shared->manifest);
    struct policy_address at, ignored, own[POLICY_VIEWS_MAX];
    struct policy_verdict verdict;
    char name[POLICY_NAME_MAX];
    bool is_name = policy_address_parse(host, &ignored) < 0;
    size_t count, kept = 0;
    struct routes routes;
    struct error err;

    if (policy_address_parse(address, &at) < 0) {
        (void)error_set(&err, "bad_value", 0, "'%.64s' is no address", address);
        return give_error(error, &err);
    }
    if (is_name && policy_name(host, name, &err) < 0)
        return give_error(error, &err);
    /* What is this host's own is forbidden as such, whatever a rule says. */
    count = policy_views(&at, NULL, own);
    routes_open(&routes);
    for (size_t i = 0; i < count; i++)
        if (routes_is_own(&routes, own[i].bytes))
            own[kept++] = own[i];
    routes_close(&routes);
    verdict = policy_dial(policy, is_name ? name : NULL, &at, port, POLICY_TCP, NULL, own, kept);
    if (verdict.allowed)
        return 0;
    (void)error_set(&err, "denied", 0,
                    "%.200s port %u for '%.200s' is denied (%s): allow it with `hosts`, if a rule "
                    "can",
                    address, port, host, verdict.reason);
    return give_error(error, &err);
}

/* ---- runs ---- */

static struct cove_text text_give(struct kernel_text text)
{
    return (struct cove_text){text.data, text.size};
}

static int result_give(struct cove_kernel *kernel, struct error *err)
{
    const struct kernel_result *from = kernel_result(kernel->context);

    if (from->logs_count > kernel->logs_room) {
        struct cove_log *more = realloc(kernel->logs, from->logs_count * sizeof(*more));

        if (more == NULL)
            return error_set(err, "no_memory", ENOMEM, "the log of a run");
        kernel->logs = more;
        kernel->logs_room = from->logs_count;
    }
    for (size_t i = 0; i < from->logs_count; i++)
        kernel->logs[i] = (struct cove_log){(enum cove_level)from->logs[i].level,
                                            text_give(from->logs[i].text)};
    kernel->result = (struct cove_run_result){
        .end = kernel_end_name(from->end),
        .state_lost = from->state_lost,
        .has_value = from->has_value,
        .is_final = from->is_final,
        .output = text_give(from->output),
        .value = text_give(from->value),
        .type = text_give(from->type),
        .name = text_give(from->name),
        .message = text_give(from->message),
        .stack = text_give(from->stack),
        .line = from->line,
        .column = from->column,
        .exit_code = from->exit_code,
        .logs = kernel->logs,
        .logs_count = from->logs_count,
        .logs_dropped = from->logs_dropped,
        .cpu_ns = from->cpu_ns,
        .wall_ns = from->wall_ns,
        .memory_bytes = from->memory_bytes,
        .errors = text_give(from->errors),
        .value_error = text_give(from->value_error),
        .code = text_give(from->code),
    };
    return 0;
}

/* Until something is due, or the run's time is over, or it is stopped. */
static void timer_wait(struct cove_kernel *kernel)
{
    uint64_t due = clock_monotonic_ns() + 1000000U * kernel_wait_ms(kernel->context);
    struct timespec at = {(time_t)(due / 1000000000U), (long)(due % 1000000000U)};
    int status = 0;

    (void)pthread_mutex_lock(&kernel->lock);
    while (!kernel->is_stopped && status == 0)
        status = pthread_cond_timedwait(&kernel->stopped, &kernel->lock, &at);
    (void)pthread_mutex_unlock(&kernel->lock);
}

static void running_set(struct cove_kernel *kernel, bool is_running)
{
    (void)pthread_mutex_lock(&kernel->lock);
    kernel->is_running = is_running;
    kernel->is_stopped = false;
    kernel_interrupt(kernel->context, KERNEL_END_VALUE);
    (void)pthread_mutex_unlock(&kernel->lock);
}

static bool is_stopped(struct cove_kernel *kernel)
{
    bool is;

    (void)pthread_mutex_lock(&kernel->lock);
    is = kernel->is_stopped;
    (void)pthread_mutex_unlock(&kernel->lock);
    return is;
}

void cove_kernel_stop(struct cove_kernel *kernel)
{
    (void)pthread_mutex_lock(&kernel->lock);
    if (kernel->is_running) {
        kernel->is_stopped = true;
        kernel_interrupt(kernel->context, KERNEL_END_STOPPED);
        (void)pthread_cond_signal(&kernel->stopped);
    }
    (void)pthread_mutex_unlock(&kernel->lock);
}

static int run_to_end(struct cove_kernel *kernel, const struct kernel_source *source,
                      struct error *err)
{
    enum kernel_status status;
    struct kernel_call call;

    if (kernel_run(kernel->context, source, &status, err) < 0)
        return -1;
    while (status == KERNEL_WAITS) {
        bool asked = false;

        while (!is_stopped(kernel) && kernel_call_next(kernel->context, &call)) {
            asked = true;
            if (host_answer(kernel, &call, err) < 0)
                return -1;
        }
        if (!asked)
            timer_wait(kernel);
        if (kernel_step(kernel->context, &status, err) < 0)
            return -1;
    }
    return 0;
}

int cove_kernel_run(struct cove_kernel *kernel, const struct cove_source *source,
                    const struct cove_run_result **result, struct cove_error *error)
{
    struct kernel_source given = {
        .text = source->text != NULL ? source->text : "",
        .size = source->size != 0 || source->text == NULL ? source->size : strlen(source->text),
        .filename = source->filename,
        .language = source->typescript ? KERNEL_TS : KERNEL_JS,
        .module = source->module != 0,
        .cpu_ms = source->cpu_ms,
        .wall_ms = source->wall_ms,
    };
    struct error err;
    int status;

    if (kernel->is_running) {
        (void)busy(&err);
        return give_error(error, &err);
    }
    running_set(kernel, true);
    status = run_to_end(kernel, &given, &err);
    running_set(kernel, false);
    kernel_stop(kernel->context, KERNEL_END_STOPPED); /* what the host failed at */
    host_drop_streams(kernel);
    if (status < 0 || result_give(kernel, &err) < 0)
        return give_error(error, &err);
    *result = &kernel->result;
    return 0;
}

int cove_js_run(const struct cove_grants *grants, const struct cove_source *source,
                struct cove_kernel **out, const struct cove_run_result **result,
                struct cove_error *error)
{
    struct cove_kernel *kernel;

    if (cove_kernel_new(grants, &kernel, error) < 0)
        return -1;
    if (cove_kernel_run(kernel, source, result, error) < 0) {
        cove_kernel_free(kernel);
        return -1;
    }
    *out = kernel;
    return 0;
}
