/* What is noted of each request: see account.h. */
#include "front/native/account.h"

#include "base/clock.h"
#include "base/log.h"
#include "front/native/audit.h"
#include "front/native/parts.h"
#include "front/native/telemetry.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define NOBODY_A_SECOND 10 /* lines, of callers who are nobody */
#define FAILED_A_SECOND 1
#define KEYS_A_SECOND 1
#define FULL_A_SECOND 5 /* faults are to have the rest of the log's own bound */
#define LONG_BYTES (1U << 20)
#define LONG_NS 1000000000U
#define SHOWN_MAX 64 /* of a sandbox's name or id, as it was sent */
#define SANDBOX_ROUTE "/v1/sandboxes/{id}"
#define KERNEL_ROUTE "/v1/kernels/{id}"

void account_begin(struct job *job)
{
    uint64_t number = 0;

    /* At random: by numbers in order each client would know how much the others ask. */
    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != (ssize_t)sizeof(number))
        number = clock_monotonic_ns();
    job->began_ns = clock_monotonic_ns();
    (void)snprintf(job->id, sizeof(job->id), "r%016llx", (unsigned long long)number);
    http_add_header(job->request, "Cove-Request-Id", job->id);
}

/* ---- the audit line ---- */

static void print_peer(struct out *out, const struct http_peer *peer)
{
    char text[32];

    if (!peer->is_unix) {
        out_text(out, "peer", peer->address);
        return;
    }
    (void)snprintf(text, sizeof(text), "unix:%u", (unsigned)peer->uid);
    out_text(out, "peer", text);
}

bool account_is_of_sandbox(const char *pattern)
{
    return pattern != NULL && strncmp(pattern, SANDBOX_ROUTE, strlen(SANDBOX_ROUTE)) == 0;
}

static void print_sandbox_of(struct out *out, const struct http_request *request,
                             const struct job *job)
{
    const char *id = account_is_of_sandbox(http_pattern(request)) ? http_param(request, "id")
                                                                  : NULL;
    char text[SHOWN_MAX + 1];

    if (job != NULL && job->sandbox[0] != '\0')
        id = job->sandbox;
    if (id == NULL) {
        out_null(out, "sandbox");
        return;
    }
    (void)snprintf(text, sizeof(text), "%s", id);
    out_text(out, "sandbox", text);
}

static const char *or_null(const char *text)
{
    return text != NULL && *text != '\0' ? text : NULL;
}

/* What the path names, or what was made. */
static void print_kernel_of(struct out *out, const struct http_request *request,
                            const struct job *job)
{
    const char *pattern = http_pattern(request);
    bool is_named = pattern != NULL && strncmp(pattern, KERNEL_ROUTE, strlen(KERNEL_ROUTE)) == 0;
    const char *id = is_named ? http_param(request, "id") : NULL;
    char text[SHOWN_MAX + 1];

    if (job != NULL && job->kernel[0] != '\0')
        id = job->kernel;
    (void)snprintf(text, sizeof(text), "%s", id != NULL ? id : "");
    out_text(out, "kernel", or_null(text));
}

/* `kernel`: NULL where that is the request's. */
static void print_caller(struct out *out, const struct http_request *request, const struct job *job,
                         const char *kernel)
{
    out_time(out, "time", job_wall_ms());
    out_text(out, "request_id", job != NULL ? job->id : NULL);
    out_text(out, "tenant", job != NULL ? or_null(job->caller.tenant) : NULL);
    out_text(out, "key", job != NULL ? or_null(job->caller.key_id) : NULL);
    print_peer(out, http_peer(request));
    out_text(out, "method", or_null(http_method(request)));
    out_text(out, "route", http_pattern(request));
    print_sandbox_of(out, request, job);
    if (kernel != NULL)
        out_text(out, "kernel", or_null(kernel));
    else
        print_kernel_of(out, request, job);
    out_text(out, "target", job != NULL ? or_null(job->target) : NULL);
}

static void print_line(struct out *out, const struct http_request *request, const struct job *job,
                       unsigned status, uint64_t took_ns)
{
    out_object(out, NULL);
    print_caller(out, request, job, NULL);
    out_number(out, "status", status);
    out_text(out, "code", job != NULL ? job->code : NULL);
    out_milli(out, "duration_ms", took_ns / 1000);
    out_object_end(out);
}

/* ---- the spans ---- */

static void fill_random(void *bytes, size_t size)
{
    if (getrandom(bytes, size, 0) != (ssize_t)size)
        memset(bytes, 1, size);
}

static void add_steps(struct telemetry *telemetry, const struct job *job,
                      const struct telemetry_span *whole)
{
    for (size_t i = 0; i < job->steps_count; i++) {
        const struct job_step *step = &job->steps[i];
        struct telemetry_span span = {
            .name = step->name, .begin_ns = step->begin_ns, .end_ns = step->end_ns};

        memcpy(span.trace, whole->trace, sizeof(span.trace));
        memcpy(span.parent, whole->id, sizeof(span.parent));
        memcpy(span.tenant, whole->tenant, sizeof(span.tenant));
        memcpy(span.sandbox, whole->sandbox, sizeof(span.sandbox));
        fill_random(span.id, sizeof(span.id));
        telemetry_add(telemetry, &span);
    }
}

static bool is_open(const struct native *native, const struct http_route *route)
{
    return route != NULL && routes_row((size_t)(route - native->routes))->is_open;
}

static bool is_nobody(const struct job *job)
{
    return job == NULL || job->caller.tenant[0] == '\0';
}

/* Nobody wants to see his own probes; and who has not said who he is gets no say about traces. */
static bool is_traced(const struct native *native, const struct http_route *route,
                      const struct job *job)
{
    return route != NULL && route->handler != metrics_page && !is_open(native, route) &&
           !is_nobody(job);
}

static void trace(struct native *native, const struct http_request *request, const struct job *job,
                  unsigned status)
{
    const struct http_route *route = http_route(request);
    const char *parent = http_header(request, "traceparent"), *id = http_param(request, "id");
    struct telemetry_span span = {.is_server = true, .status = status, .code = job->code};
    bool is_sampled = true;

    if (!is_traced(native, route, job))
        return;
    if (parent == NULL || !telemetry_parent(parent, span.trace, span.parent, &is_sampled)) {
        fill_random(span.trace, sizeof(span.trace));
        memset(span.parent, 0, sizeof(span.parent));
    }
    if (!is_sampled)
        return;
    fill_random(span.id, sizeof(span.id));
    span.begin_ns = job_wall_ns(job->began_ns);
    span.end_ns = job_wall_ns(clock_monotonic_ns());
    span.name = route->method;
    span.route = route->pattern;
    if (job->sandbox[0] != '\0' || !account_is_of_sandbox(route->pattern) || id == NULL)
        id = job->sandbox;
    (void)snprintf(span.tenant, sizeof(span.tenant), "%s", job->caller.tenant);
    (void)snprintf(span.sandbox, sizeof(span.sandbox), "%s", id);
    (void)snprintf(span.request, sizeof(span.request), "%s", job->id);
    telemetry_add(native->options.telemetry, &span);
    add_steps(native->options.telemetry, job, &span);
}

/* True: it is one of the `most` of a second; else it is counted. */
static bool pace_may(struct account_pace *pace, unsigned most)
{
    bool may = rate_take(&pace->rate, most, most, clock_monotonic_ns());

    pace->left_out += !may;
    return may;
}

/* What was left out is told by a line of its own before the next. */
static void tell_left_out(struct native *native, struct out *out)
{
    struct account *account = &native->account;
    uint64_t count = account->nobody.left_out + account->shares.left_out;

    if (count == 0)
        return;
    out_reset(out, NATIVE_KEPT_BYTES);
    out_object(out, NULL);
    out_time(out, "time", job_wall_ms());
    out_number(out, "left_out", count);
    out_object_end(out);
    if (!out->has_failed)
        audit_add(native->options.audit, out->data, out->used);
    account->nobody.left_out = account->shares.left_out = 0;
}

static bool is_in_share(const struct job *job, bool is_refused)
{
    const char *method = http_method(job->request);
    bool is_read = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    enum account_kind kind = is_refused ? ACCOUNT_REFUSAL : is_read ? ACCOUNT_READ : ACCOUNT_CHANGE;

    return account_share_may(&job->native->account.shares, job->caller.tenant, kind,
                             clock_monotonic_ns() / 1000000000U);
}

static bool is_refusal(unsigned status)
{
    return status == 401 || status == 403 || status == 404 || status == 405 || status == 429;
}

/* Whether a call gets its line. What anybody may ask without a key tells nothing of anybody, and its
 * numbers are in the metrics: else a flood of it would rotate away what others did. */
static bool has_line(struct native *native, const struct http_request *request,
                     const struct job *job, unsigned status)
{
    struct account *account = &native->account;

    if (!is_nobody(job))
        return is_in_share(job, is_refusal(status));
    if (is_open(native, http_route(request)) && !is_refusal(status))
        return false;
    return pace_may(&account->nobody, NOBODY_A_SECOND);
}

bool account_is_fault(unsigned status, const char *code)
{
    static const char *const codes[] = {"keeper_lost", "journal_failed", "store_failed"};

    for (size_t i = 0; code != NULL && i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return status == 500;
}

bool account_is_full(const char *code)
{
    return code != NULL && strcmp(code, "capacity") == 0;
}

static bool is_of_key(const char *code)
{
    return code != NULL && strcmp(code, "bad_key") == 0;
}

bool account_is_logged(unsigned status, const char *code)
{
    return account_is_fault(status, code) || account_is_full(code) || is_of_key(code);
}

/* Faults have the log's own bound: each may have a cause of its own. */
static void log_refusal(struct native *native, const struct http_request *request,
                        const struct job *job, unsigned status)
{
    struct account *account = &native->account;
    bool is_full = account_is_full(job->code), is_key = is_of_key(job->code);
    struct account_pace *pace = is_key    ? &account->keys
                                : is_full ? &account->full
                                          : &account->failed;
    unsigned most = is_key ? KEYS_A_SECOND : is_full ? FULL_A_SECOND : FAILED_A_SECOND;
    bool is_told = account_is_fault(status, job->code) && !is_nobody(job);
    const char *pattern = http_pattern(request);

    if (!is_told && !pace_may(pace, most))
        return;
    log_say(LOG_LEVEL_WARN, is_key ? "key_refused" : "request_failed",
            "%s of %s: %s peer=%s why=%s request=%s status=%u unsaid_before=%llu",
            http_method(request), pattern != NULL ? pattern : "?",
            job->code != NULL ? job->code : "?", http_peer(request)->address,
            log_quote(job->why).text, job->id, status, (unsigned long long)pace->left_out);
    pace->left_out = 0;
}

void account_over(const struct http_request *request, unsigned status, void *data)
{
    struct native *native = data;
    struct job *job = http_data(request);
    /* Its own: the native's may be in the middle of another answer. */
    struct out *out = &native->account_out;
    uint64_t took_ns = job != NULL ? clock_monotonic_ns() - job->began_ns : 0;

    metrics_over(native, request, job, status, took_ns);
    if (job != NULL && ((status >= 500 && status != 503) || account_is_logged(status, job->code)))
        log_refusal(native, request, job, status);
    if (native->options.telemetry != NULL && job != NULL)
        trace(native, request, job, status);
    if (native->options.audit == NULL || !has_line(native, request, job, status))
        return;
    tell_left_out(native, out);
    out_reset(out, NATIVE_KEPT_BYTES);
    print_line(out, request, job, status, took_ns);
    if (!out->has_failed)
        audit_add(native->options.audit, out->data, out->used);
}

void account_run(struct job *job, const char *kernel, const char *end, const char *code,
                 uint64_t began_ns)
{
    struct native *native = job->native;
    struct out *out = &native->account_out;

    if (native->options.audit == NULL || !is_in_share(job, code != NULL))
        return;
    tell_left_out(native, out);
    out_reset(out, NATIVE_KEPT_BYTES);
    out_object(out, NULL);
    print_caller(out, job->request, job, kernel != NULL ? kernel : "");
    out_text(out, "phase", "run");
    out_text(out, "end", end);
    out_text(out, "code", code);
    out_milli(out, "duration_ms", (clock_monotonic_ns() - began_ns) / 1000);
    out_object_end(out);
    if (!out->has_failed)
        audit_add(native->options.audit, out->data, out->used);
}

void account_began(struct job *job)
{
    struct native *native = job->native;
    struct out *out = &native->account_out;

    if (job->has_begun)
        return;
    job->has_begun = true;
    if (native->options.audit == NULL || !is_in_share(job, false))
        return;
    tell_left_out(native, out);
    out_reset(out, NATIVE_KEPT_BYTES);
    out_object(out, NULL);
    print_caller(out, job->request, job, NULL);
    out_text(out, "phase", "begun");
    out_object_end(out);
    if (!out->has_failed)
        audit_add(native->options.audit, out->data, out->used);
}

void account_transfer(struct job *job, uint64_t bytes)
{
    if (bytes > LONG_BYTES)
        account_began(job);
}

void account_linger(struct job *job)
{
    if (clock_monotonic_ns() - job->began_ns > LONG_NS)
        account_began(job);
}
