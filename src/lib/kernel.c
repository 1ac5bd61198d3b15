/* libcove's kernels: see include/cove.h. Runs go to their end in the caller's thread; what code asks for in between is
 * answered by the caller's functions, while the guest is not entered.
 *
 * An answer of fetch() is kept here and read piece by piece, for code may never read it. What comes from the code is
 * hostile: a callback sees names that are granted and headers that are headers. */
#include "cove.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/routes.h"
#include "kernel/meta.h"
#include "kernel/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECE (1U << 20)     /* of a body, for one read */
#define BODY_MAX (64U << 20) /* of an answer */
#define STRING_SLACK 8U      /* that meta_string() wants behind a string */
#define STREAMS_MAX 64U      /* answers that were not read to their end */
#define HEADERS_MAX 256UL    /* of a request, and of an answer */

/* What kernels that were forked from one share. */
struct shared {
    atomic_uint users;
    struct kernel_manifest *manifest;
    cove_tool_fn *tool;
    cove_fetch_fn *fetch;
    void *data;
};

struct stream {
    uint32_t number;
    size_t size, at;
    uint8_t body[];
};

struct cove_kernel {
    struct kernel_context *context;
    struct shared *shared;
    struct stream *streams[STREAMS_MAX];
    uint32_t last_stream;
    bool is_running;
    pthread_mutex_t
        lock; /* of `is_running`, which only the run's thread sets, and of `is_stopped` */
    pthread_cond_t stopped; /* of a run that waits for a timer */
    bool is_stopped;
    struct cove_run_result result;
    struct cove_log *logs;
    size_t logs_room;
};

struct cove_answer {
    bool given, failed;
    char code[32];
    struct meta_text text; /* of an error: its message */
    const void *body;      /* of a response, copied by the time the callback is over */
    struct stream *stream;
};

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

/* ---- answers ---- */

static bool answer_begin(struct cove_answer *answer)
{
    if (answer->given)
        return false;
    answer->given = true;
    return true;
}

void cove_answer_json(struct cove_answer *answer, const char *json, size_t size)
{
    if (!answer_begin(answer))
        return;
    meta_put(&answer->text, "{\"value\":");
    meta_put_bytes(&answer->text, json, size);
    meta_put(&answer->text, "}");
}

void cove_answer_error(struct cove_answer *answer, const char *code, const char *message)
{
    if (!answer_begin(answer))
        return;
    answer->failed = true;
    (void)snprintf(answer->code, sizeof(answer->code), "%s", code);
    meta_put_bytes(&answer->text, message, strlen(message));
    meta_put_bytes(&answer->text, "", 1);
}

static void headers_put(struct meta_text *text, const char *const *headers)
{
    meta_put(text, ",\"headers\":[");
    for (size_t i = 0; headers != NULL && headers[i] != NULL && headers[i + 1] != NULL; i += 2) {
        meta_put(text, i > 0 ? ",[" : "[");
        meta_put_string(text, headers[i], strlen(headers[i]));
        meta_put(text, ",");
        meta_put_string(text, headers[i + 1], strlen(headers[i + 1]));
        meta_put(text, "]");
    }
    meta_put(text, "]");
}

void cove_answer_response(struct cove_answer *answer, int status, const char *const *headers,
                          const void *body, size_t size)
{
    struct stream *stream;

    if (status < 100 || status > 599 || size > BODY_MAX) {
        cove_answer_error(answer, "EBADMSG",
                          "the host's answer to a request is none, or too large");
        return;
    }
    if (!answer_begin(answer))
        return;
    stream = malloc(sizeof(*stream) + size);
    if (stream == NULL) {
        answer->given = false;
        cove_answer_error(answer, "ENOMEM", "the host has no memory for an answer");
        return;
    }
    *stream = (struct stream){.size = size};
    if (size > 0)
        memcpy(stream->body, body, size);
    answer->stream = stream;
    meta_put(&answer->text, "\"status\":");
    meta_put_number(&answer->text, (uint64_t)status);
    headers_put(&answer->text, headers);
}

static void answer_clear(struct cove_answer *answer)
{
    free(answer->text.data);
    free(answer->stream);
    *answer = (struct cove_answer){0};
}

static int settle_error(struct cove_kernel *kernel, const struct kernel_call *call,
                        const struct error *why, struct error *err)
{
    return kernel_settle_error(kernel->context, call->id, why->code, why->text, err);
}

/* Tells the code; what is not needed for that is let go. */
static int answer_settle(struct cove_kernel *kernel, const struct kernel_call *call,
                         struct cove_answer *answer, struct error *err)
{
    struct kernel_context *context = kernel->context;
    uint32_t id = call->id;

    if (!answer->given)
        return kernel_settle_error(context, id, "ENOSYS", "the host gave no answer", err);
    if (answer->text.failed)
        return kernel_settle_error(context, id, "ENOMEM", "the host has no memory", err);
    if (answer->failed)
        return kernel_settle_error(context, id, answer->code, answer->text.data, err);
    if (answer->text.size > KERNEL_META_MAX)
        return kernel_settle_error(context, id, "E2BIG", "the host's answer is too large", err);
    return kernel_settle(context, id, answer->text.data, answer->text.size, NULL, 0, err);
}

/* ---- tools ---- */

static int tool_call(struct cove_kernel *kernel, const struct kernel_call *call, struct error *err)
{
    static const char nothing[] = "{}";
    struct cove_answer answer = {0};
    struct meta_value name, args;
    struct cove_text given = {nothing, strlen(nothing)};
    char text[128];
    int status;

    /* The manifest has this name, or the call had not come so far. */
    if (kernel->shared->tool == NULL || meta_member(call->meta, "name", &name) < 0 ||
        meta_string(&name, text, sizeof(text)) < 0)
        return kernel_settle_error(kernel->context, call->id, "ENOSYS",
                                   "this kernel's host answers no tool", err);
    if (meta_member(call->meta, "args", &args) == 0)
        given = (struct cove_text){args.text.data, args.text.size};
    kernel->shared->tool(kernel->shared->data, text, given, &answer);
    if (answer.stream != NULL) {
        answer_clear(&answer);
        cove_answer_error(&answer, "EBADMSG", "the host answered a tool with a response");
    }
    status = answer_settle(kernel, call, &answer, err);
    answer_clear(&answer);
    return status;
}

/* ---- fetch ---- */

/* The strings of a JSON text in their order, as C strings; NULL: no memory, or they are no headers. */
struct strings {
    const char *list[2 * HEADERS_MAX + 1];
    size_t count;
    char *room;
};

static int strings_take(struct strings *strings, struct kernel_text json)
{
    size_t at = 0;
    char *to;

    strings->room = to = malloc(json.size + STRING_SLACK);
    if (to == NULL)
        return -1;
    while (at < json.size) {
        struct meta_value value = {.text = {json.data + at, 1}};

        if (json.data[at++] != '"')
            continue;
        while (at < json.size && json.data[at] != '"')
            at += json.data[at] == '\\' ? 2 : 1;
        if (at++ >= json.size || strings->count == 2 * HEADERS_MAX)
            return -1;
        value.text.size = (size_t)(json.data + at - value.text.data);
        if (meta_string(&value, to, value.text.size + STRING_SLACK) < 0 ||
            to[strcspn(to, "\r\n")] != 0 ||
            (strings->count % 2 == 0 &&
             (*to == 0 || strpbrk(to, " :\t\"(),/;<=>?@[\\]{}") != NULL)))
            return -1;
        strings->list[strings->count++] = to;
        to += strlen(to) + 1;
    }
    strings->list[strings->count] = NULL;
    return strings->count % 2 == 0 ? 0 : -1;
}

static char *member_copy(const struct kernel_call *call, const char *name)
{
    struct meta_value value;
    char *text;

    if (meta_member(call->meta, name, &value) < 0)
        return NULL;
    text = malloc(value.text.size + STRING_SLACK);
    if (text != NULL && meta_string(&value, text, value.text.size + STRING_SLACK) < 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* A place for one more answer, or NULL. */
static struct stream **stream_place(struct cove_kernel *kernel)
{
    for (size_t i = 0; i < STREAMS_MAX; i++)
        if (kernel->streams[i] == NULL)
            return &kernel->streams[i];
    return NULL;
}

/* The stream is the kernel's from here on; its number goes to the code with the head. */
static void stream_keep(struct cove_kernel *kernel, struct cove_answer *answer,
                        struct stream **place)
{
    struct meta_text text = {0};

    answer->stream->number = ++kernel->last_stream;
    meta_put(&text, "{\"stream\":");
    meta_put_number(&text, answer->stream->number);
    meta_put(&text, ",");
    meta_put_bytes(&text, answer->text.data, answer->text.size);
    meta_put(&text, "}");
    free(answer->text.data);
    answer->text = text;
    *place = answer->stream;
    answer->stream = NULL;
}

/* What is not that of a request is no business of a callback's. */
static bool request_is_one(const struct cove_request *request, const struct kernel_call *call,
                           struct strings *headers)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    const char *method = request->method, *url = request->url;
    struct meta_value value;

    return method != NULL && url != NULL && *method != 0 && method[strspn(method, letters)] == 0 &&
           url[strcspn(url, "\r\n ")] == 0 &&
           (meta_member(call->meta, "headers", &value) < 0 ||
            strings_take(headers, value.text) == 0);
}

static int fetch_answer(struct cove_kernel *kernel, const struct kernel_call *call,
                        const struct cove_request *request, struct stream **place,
                        struct error *err)
{
    struct cove_answer answer = {0};
    int status;

    kernel->shared->fetch(kernel->shared->data, request, &answer);
    if (answer.stream != NULL)
        stream_keep(kernel, &answer, place);
    else if (answer.given && !answer.failed) {
        answer_clear(&answer);
        cove_answer_error(&answer, "EBADMSG", "the host answered a request without a response");
    }
    status = answer_settle(kernel, call, &answer, err);
    answer_clear(&answer);
    return status;
}

static int fetch_start(struct cove_kernel *kernel, const struct kernel_call *call,
                       struct error *err)
{
    _cleanup_free_ char *method = member_copy(call, "method"), *url = member_copy(call, "url");
    struct stream **place = stream_place(kernel);
    struct strings headers = {0};
    struct cove_request request = {.kernel = kernel,
                                   .method = method,
                                   .url = url,
                                   .headers = headers.list,
                                   .body = call->bytes,
                                   .body_size = call->bytes_size};
    int status;

    if (kernel->shared->fetch == NULL)
        return kernel_settle_error(kernel->context, call->id, "EACCES",
                                   "no host can be reached: the program that runs this kernel gave "
                                   "it no fetch function (struct cove_grants)",
                                   err);
    if (place == NULL)
        return kernel_settle_error(kernel->context, call->id, "EMFILE",
                                   "too many answers are open: read them or cancel them first",
                                   err);
    if (request_is_one(&request, call, &headers))
        status = fetch_answer(kernel, call, &request, place, err);
    else
        status = kernel_settle_error(kernel->context, call->id, "EINVAL", "this is no request",
                                     err);
    free(headers.room);
    return status;
}

static struct stream **stream_of(struct cove_kernel *kernel, const struct kernel_call *call)
{
    struct meta_value value;
    uint64_t number;

    if (meta_member(call->meta, "stream", &value) < 0 ||
        meta_count(&value, UINT32_MAX, &number) < 0)
        return NULL;
    for (size_t i = 0; i < STREAMS_MAX; i++)
        if (kernel->streams[i] != NULL && kernel->streams[i]->number == number)
            return &kernel->streams[i];
    return NULL;
}

static void stream_drop(struct stream **at)
{
    free(*at);
    *at = NULL;
}

static int fetch_read(struct cove_kernel *kernel, const struct kernel_call *call, struct error *err)
{
    struct stream **at = stream_of(kernel, call);
    const char *meta = "{\"end\":false}";
    struct stream *stream;
    size_t size;
    int status;

    if (at == NULL)
        return kernel_settle_error(kernel->context, call->id, "EBADF",
                                   "there is no answer of this number to be read", err);
    stream = *at;
    size = stream->size - stream->at < PIECE ? stream->size - stream->at : PIECE;
    if (stream->at + size == stream->size)
        meta = "{\"end\":true}";
    status = kernel_settle(kernel->context, call->id, meta, strlen(meta), stream->body + stream->at,
                           size, err);
    stream->at += size;
    if (stream->at == stream->size)
        stream_drop(at);
    return status;
}

/* What is answered at once. */
static int answer_now(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                      struct error *err)
{
    struct cove_kernel *kernel = data;
    struct stream **at;

    (void)answer;
    if (!kernel_text_is(call->op, "fetch.cancel"))
        return error_set(err, "ENOSYS", 0, "this kernel's host knows no call '%.*s'",
                         (int)call->op.size, call->op.data);
    at = stream_of(kernel, call);
    if (at != NULL)
        stream_drop(at);
    return 0;
}

static void streams_drop(struct cove_kernel *kernel)
{
    for (size_t i = 0; i < STREAMS_MAX; i++)
        stream_drop(&kernel->streams[i]);
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
    kernel_set_answerer(context, answer_now, kernel);
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
    streams_drop(kernel);
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
    streams_drop(kernel);
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
    count = policy_views(&at, own);
    routes_open(&routes);
    for (size_t i = 0; i < count; i++)
        if (routes_is_own(&routes, own[i].bytes))
            own[kept++] = own[i];
    routes_close(&routes);
    verdict = policy_dial(policy, is_name ? name : NULL, &at, port, POLICY_TCP, own, kept);
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

static int call_answer(struct cove_kernel *kernel, const struct kernel_call *call,
                       struct error *err)
{
    struct error why;

    if (kernel_text_is(call->op, "tool"))
        return tool_call(kernel, call, err);
    if (kernel_text_is(call->op, "fetch.start"))
        return fetch_start(kernel, call, err);
    if (kernel_text_is(call->op, "fetch.read"))
        return fetch_read(kernel, call, err);
    (void)error_set(&why, "ENOSYS", 0, "this kernel's host knows no call '%.*s'",
                    (int)call->op.size, call->op.data);
    return settle_error(kernel, call, &why, err);
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
            if (call_answer(kernel, &call, err) < 0)
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
    streams_drop(kernel);
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
