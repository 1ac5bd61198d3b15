/* Jobs: see parts.h. Here alone requests are answered, so here alone it is decided what an answer looks
 * like and what of it is kept for a repetition. */
#include "front/native/parts.h"

#include "base/clock.h"
#include "base/parse.h"
#include "front/native/problem.h"
#include "front/native/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define JSON_TYPE "application/json"
#define PROBLEM_TYPE "application/problem+json"
#define WHY_MAX (ERROR_TEXT_MAX + ENGINE_FIGURES_MAX + 4)

uint64_t job_wall_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t job_wall_ns(uint64_t monotonic_ns)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec -
           (clock_monotonic_ns() - monotonic_ns);
}

void job_step(struct job *job, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    if (job->native->options.telemetry == NULL || end_ns < begin_ns ||
        job->steps_count == sizeof(job->steps) / sizeof(job->steps[0]))
        return;
    job->steps[job->steps_count++] = (struct job_step){name, begin_ns, end_ns};
}

/* ---- what is kept for it ---- */

static bool keeps(struct holds *holds, struct hold *hold, size_t bytes)
{
    return bytes == hold->bytes || hold_resize(holds, hold, bytes, (size_t)engine_memory_kept());
}

bool native_keeps(struct native *native, struct hold *hold, size_t bytes)
{
    return keeps(&native->kept, hold, bytes);
}

bool native_watches(struct native *native, struct hold *hold, size_t bytes)
{
    return keeps(&native->watched, hold, bytes);
}

void job_fail_kept(struct job *job)
{
    job_fail(job, "too_many_requests",
             "commands and answers of the tenant keep as much in memory as they may; ask "
             "for less, or wait until input is read and answers are taken");
}

/* A body was admitted before it came, and takes several times its size when it is read: what is there now counts. */
static bool has_memory(struct job *job)
{
    size_t size;

    (void)http_body(job->request, &size);
    return size < BODIES_LARGE || admit_memory_is_left(job);
}

/* ---- a job's life ---- */

void job_on_drain(struct job *job, void (*drain)(struct job *job))
{
    struct native *native = job->native;

    if (job->drain != NULL) {
        *(job->previous_waiting != NULL ? &job->previous_waiting->next_waiting
                                        : &native->waiting) = job->next_waiting;
        if (job->next_waiting != NULL)
            job->next_waiting->previous_waiting = job->previous_waiting;
    }
    job->drain = drain;
    if (drain == NULL)
        return;
    job->previous_waiting = NULL;
    job->next_waiting = native->waiting;
    if (job->next_waiting != NULL)
        job->next_waiting->previous_waiting = job;
    native->waiting = job;
}

static void job_free(void *data)
{
    struct job *job = data;

    job_on_drain(job, NULL);
    callers_remove(job);
    job->native->jobs--;
    if (job->free_own != NULL)
        job->free_own(job->own);
    job_body_free(job);
    free(job->why);
    free(job);
}

int job_new(struct native *native, struct http_request *request, struct job **out)
{
    struct job *job = calloc(1, sizeof(*job));

    if (job == NULL)
        return -1;
    job->native = native;
    job->request = request;
    native->jobs++;
    http_set_data(request, job, job_free);
    account_begin(job);
    *out = job;
    return 0;
}

static const char *scope_name(unsigned scope)
{
    if ((scope & ENGINE_READ) != 0)
        return "read";
    if (scope == ENGINE_WRITE)
        return "write";
    return (scope & ENGINE_KEYS) != 0 ? "keys" : "operator";
}

static bool is_draining(struct job *job)
{
    if (!job->native->is_draining)
        return false;
    job_fail(job, "draining", "the engine is about to end and begins nothing new");
    return true;
}

/* For those who read what was asked: two tenants may call theirs the same, and a name may be gone by the end. */
static void note_sandbox(struct job *job, enum engine_verb verb)
{
    struct error ignored; /* it is shown as it was named then */

    if (job->sandbox[0] == '\0' && account_is_of_sandbox(http_pattern(job->request)))
        (void)engine_id_of(job->native->options.engine, &job->caller,
                           http_param(job->request, "id"), verb, job->sandbox, &ignored);
}

struct job *job_begin_for(struct http_request *request, enum engine_verb verb)
{
    struct job *job = http_data(request);
    bool is_token = job->caller.sandbox[0] != '\0', reads;
    const char *id = http_param(request, "id");
    struct error err;

    note_sandbox(job, verb);
    /* Of a key the engine looks at the sandbox when it is asked; but before that an answer may be found
     * that was kept, and a token is to hear those of its sandbox only. */
    if ((is_token ? engine_may(job->native->options.engine, &job->caller, id, verb, &err)
                  : engine_caller_may(&job->caller, id, verb, &err)) < 0) {
        job_problem(job, &err);
        return NULL;
    }
    reads = verb == ENGINE_LOOK || verb == ENGINE_FILES_READ;
    return (reads || !is_draining(job)) && has_memory(job) ? job : NULL;
}

struct job *job_begin(struct http_request *request, unsigned scope)
{
    struct job *job = http_data(request);

    note_sandbox(job, (scope & ENGINE_WRITE) != 0 ? ENGINE_EXEC : ENGINE_LOOK);
    if (scope != 0 && job->caller.sandbox[0] != '\0') {
        job_fail(job, "forbidden", "no token may do this; use a key");
        return NULL;
    }
    if (scope != 0 && (job->caller.scopes & scope) == 0) {
        job_fail(job, "forbidden", "this key lacks the scope \"%s\"", scope_name(scope));
        return NULL;
    }
    return (scope != ENGINE_WRITE || !is_draining(job)) && has_memory(job) ? job : NULL;
}

void *job_own(struct job *job, size_t size, void (*free_own)(void *own))
{
    void *own = calloc(1, size);

    if (own == NULL) {
        job_fail(job, "capacity", "there is no memory for this request now");
        return NULL;
    }
    job->own = own;
    job->free_own = free_own;
    return own;
}

/* ---- queries ---- */

static bool is_known(const char *name, const char *const *known)
{
    while (*known != NULL && strcmp(*known, name) != 0)
        known++;
    return *known != NULL;
}

/* Which of two would count, nobody could know; but labels of a filter are many. */
static bool is_repeated(const struct job *job, size_t index, const char *name, const char *many)
{
    const char *earlier, *value;

    for (size_t i = 0; i < index && http_query_at(job->request, i, &earlier, &value); i++)
        if (strcmp(earlier, name) == 0)
            return strcmp(name, many) != 0;
    return false;
}

bool job_query_many(struct job *job, const char *const *known, const char *many)
{
    const char *name, *value;

    for (size_t i = 0; http_query_at(job->request, i, &name, &value); i++) {
        if (job->has_url_token && strcmp(name, "token") == 0 && !is_repeated(job, i, name, many))
            continue;
        if (!is_known(name, known)) {
            job_fail(job, "bad_request", "query parameter \"%.64s\" is unknown here", name);
            return false;
        }
        if (is_repeated(job, i, name, many)) {
            job_fail(job, "bad_request", "query parameter \"%.64s\" is there twice", name);
            return false;
        }
    }
    return true;
}

bool job_query(struct job *job, const char *const *known)
{
    return job_query_many(job, known, "label");
}

int job_query_count(const struct job *job, const char *name, uint64_t low, uint64_t high,
                    uint64_t *value, struct error *err)
{
    const char *text = http_query(job->request, name);
    char what[80];

    if (text == NULL)
        return 0;
    (void)snprintf(what, sizeof(what), "query parameter \"%s\"", name);
    if (parse_count(what, text, low, high, value, err) == 0)
        return 0;
    (void)snprintf(err->code, sizeof(err->code), "bad_request");
    return -1;
}

int job_query_word(const struct job *job, const char *name, const char *const *words, int *value,
                   struct error *err)
{
    const char *text = http_query(job->request, name);
    char list[128] = "";

    if (text == NULL)
        return 0;
    for (int i = 0; words[i] != NULL; i++) {
        size_t used = strlen(list);

        if (strcmp(words[i], text) == 0) {
            *value = i;
            return 0;
        }
        (void)snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    return error_set(err, "bad_request", 0, "query parameter \"%s\" must be one of %s", name, list);
}

int job_query_flag(const struct job *job, const char *name, bool *value, struct error *err)
{
    static const char *const words[] = {"false", "true", NULL};
    int word = *value;

    if (job_query_word(job, name, words, &word, err) < 0)
        return -1;
    *value = word == 1;
    return 0;
}

/* ---- answers ---- */

struct out *job_out(struct job *job)
{
    out_reset(&job->native->out, NATIVE_KEPT_BYTES);
    return &job->native->out;
}

static void send_answer(struct http_request *request, const struct once_answer *answer)
{
    if (answer->location != NULL)
        http_add_header(request, "Location", answer->location);
    http_answer(request, answer->status, answer->content_type, answer->body, answer->size);
}

/* The request is answered before those that wait for the same, and the job is gone in between. */
static void finish(struct job *job, const struct once_answer *answer)
{
    struct native *native = job->native;
    struct once *once = job->once;

    send_answer(job->request, answer);
    if (once != NULL)
        once_finish(native->once, once, answer);
}

/* For the log, when it is over: without memory that has the code alone. */
static void note_problem(struct job *job, unsigned status, const char *code, const char *why)
{
    job->code = problem_of(code)->code;
    if (!account_is_logged(status, job->code))
        return;
    free(job->why);
    job->why = strdup(why);
}

static void print_anew(struct out *out, const char *code, unsigned status, const char *detail)
{
    out_reset(out, NATIVE_KEPT_BYTES);
    problem_print(out, code, status, detail);
    out_raw(out, "\n", 1); /* as below */
}

static void problem_send(struct native *native, struct http_request *request, unsigned status,
                         const char *code, const char *detail, unsigned retry_after_s)
{
    struct out *out = &native->out;
    char seconds[16];

    print_anew(out, code, status, detail);
    if (retry_after_s > 0) {
        (void)snprintf(seconds, sizeof(seconds), "%u", retry_after_s);
        http_add_header(request, "Retry-After", seconds);
    }
    if (status == 401)
        http_add_header(request, "WWW-Authenticate", "Bearer realm=\"cove\"");
    http_answer(request, status, PROBLEM_TYPE, out->data, out->has_failed ? 0 : out->used);
}

void problem_answer(struct native *native, struct http_request *request, unsigned status,
                    const char *code, const char *detail, unsigned retry_after_s)
{
    struct job *job = http_data(request);

    if (job != NULL)
        note_problem(job, status, code, detail);
    problem_send(native, request, status, code, detail, retry_after_s);
}

/* A full host's figures say what other tenants use. */
static void add_figures(struct native *native, const struct error *err, char why[WHY_MAX])
{
    char figures[ENGINE_FIGURES_MAX];

    engine_capacity_figures(native->options.engine, figures);
    (void)snprintf(why, WHY_MAX, "%s (%s)", err->text, figures);
}

/* A code that has no row is a fault of ours; the text still says what happened. */
void job_problem(struct job *job, const struct error *err)
{
    const struct problem *problem = problem_of(err->code);
    bool is_operator = (job->caller.scopes & ENGINE_OPERATOR) != 0;
    struct native *native = job->native;
    struct once *once = job->once;
    struct out *out = &native->out;
    char detail[ERROR_TEXT_MAX], why[WHY_MAX];

    (void)snprintf(detail, sizeof(detail), "%s", err->text); /* the error may go with the job */
    if (account_is_full(problem->code))
        add_figures(native, err, why);
    else
        memcpy(why, detail, sizeof(detail));
    note_problem(job, problem->status, problem->code, why);
    problem_send(native, job->request, problem->status, problem->code, is_operator ? why : detail,
                 problem->retry_after_s);
    if (once != NULL) {
        struct once_answer answer = {.status = problem->status, .content_type = PROBLEM_TYPE};

        print_anew(out, problem->code, problem->status, detail); /* others may wait for it */
        answer.body = out->data;
        answer.size = out->has_failed ? 0 : out->used;
        once_finish(native->once, once, &answer);
    }
}

void job_fail(struct job *job, const char *code, const char *fmt, ...)
{
    struct error err;
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)error_set(&err, code, 0, "%s", text);
    job_problem(job, &err);
}

void job_answer_made(struct job *job, unsigned status, const char *location)
{
    struct out *out = &job->native->out;
    struct once_answer answer = {.status = status, .content_type = JSON_TYPE, .location = location};

    out_raw(out, "\n", 1); /* for who looks at it in a terminal */
    if (out->has_failed) {
        job_fail(job, "capacity", "there is no memory for the answer now; ask again in a second");
        return;
    }
    answer.body = out->data;
    answer.size = out->used;
    finish(job, &answer);
}

/* The text may be of the job, which goes with the answer. */
void job_answer_taken(struct job *job, unsigned status, struct out *out)
{
    struct native *native = job->native;
    struct once *once = job->once;
    struct out taken = *out;
    struct once_answer answer = {.status = status, .content_type = JSON_TYPE};

    *out = (struct out){0};
    out_raw(&taken, "\n", 1); /* as above */
    answer.body = taken.data;
    answer.size = taken.used;
    if (taken.has_failed) {
        job_fail(job, "capacity", "there is no memory for the answer now; ask again in a second");
    } else if (once != NULL && (taken.used <= ONCE_ANSWER_MAX || once_has_waiters(once))) {
        finish(job, &answer);
    } else {
        http_answer_taken(job->request, status, JSON_TYPE, taken.data, 0, taken.used);
        answer = (struct once_answer){.status = status, .was_too_large = true};
        if (once != NULL)
            once_finish(native->once, once, &answer);
        return;
    }
    out_free(&taken);
}

void job_answer(struct job *job, unsigned status)
{
    job_answer_made(job, status, NULL);
}

void job_answer_nothing(struct job *job)
{
    struct once_answer answer = {.status = 204, .body = "", .size = 0};

    finish(job, &answer);
}

void job_answer_block(struct job *job, unsigned status, const char *content_type, void *block,
                      size_t start, size_t size)
{
    http_answer_taken(job->request, status, content_type, block, start, size);
}

void job_answer_bytes(struct job *job, unsigned status, const char *content_type, const void *data,
                      size_t size)
{
    struct once_answer answer = {
        .status = status, .content_type = content_type, .body = data, .size = size};

    finish(job, &answer);
}

bool job_stream_sized(struct job *job, unsigned status, const char *content_type, uint64_t length)
{
    if (!streams_may_begin(job)) {
        job_fail_kept(job);
        return false;
    }
    bool is_head = strcmp(http_method(job->request), "HEAD") == 0;
    struct native *native = job->native;
    struct once *once = job->once;
    struct once_answer answer = {.status = 200, .was_too_large = true};

    job->once = NULL;
    if (length != UINT64_MAX)
        http_stream_sized(job->request, status, content_type, length);
    else
        http_stream(job->request, status, content_type);
    if (is_head)
        http_finish(job->request);
    if (once != NULL)
        once_finish(native->once, once, &answer);
    return !is_head;
}

bool job_stream(struct job *job, const char *content_type)
{
    return job_stream_sized(job, 200, content_type, UINT64_MAX);
}

void job_abort(struct job *job)
{
    struct native *native = job->native;
    struct once *once = job->once;

    http_abort(job->request);
    if (once != NULL)
        once_finish(native->once, once, NULL);
}

/* ---- repetitions ---- */

/* The first answer, once more. */
static void replay(struct job *job, const struct once_answer *answer)
{
    if (answer->status == 0) {
        job_fail(job, "capacity",
                 "the first request with this Idempotency-Key was cut off: "
                 "repeat it");
        return;
    }
    if (answer->was_too_large) {
        job_fail(job, "idempotency_conflict",
                 "the first request with this Idempotency-Key was done, but its answer was too "
                 "large to be kept, or others took its room; GET what it made");
        return;
    }
    if (account_is_fault(answer->status, NULL))
        job->why = strdup("it was answered as the first request with its Idempotency-Key");
    http_add_header(job->request, "Idempotent-Replayed", "true");
    send_answer(job->request, answer);
}

static void told(void *arg, const struct once_answer *answer)
{
    replay(arg, answer);
}

static void waiter_gone(void *arg)
{
    struct job *job = arg;

    once_leave(job->waits_for, &job->waiter);
    job_abort(job);
}

static void wait_for(struct job *job, struct once *once)
{
    job->waiter = (struct once_waiter){.done = told, .arg = job};
    if (!once_wait(once, &job->waiter)) {
        job_fail(job, "too_many_requests",
                 "%d repetitions wait for the answer to this Idempotency-Key, the most there may "
                 "be; repeat it when the first request has ended",
                 ONCE_WAITERS_MAX);
        return;
    }
    job->waits_for = once;
    http_on_gone(job->request, waiter_gone, job);
    http_body_done(job->request);
}

static enum once_found begin_once(struct job *job, const char *key, struct once **once)
{
    char body[SHA256_TEXT];
    const char *method = http_method(job->request);
    const char *path = http_path(job->request);
    /* Keys of a tenant may do the same; a token may not see what was answered to another caller. */
    const char *bound = job->caller.sandbox[0] != '\0' ? job->caller.key_id : "";
    struct once_part what[] = {{method, strlen(method)},
                               {path, strlen(path)},
                               {body, sizeof(body)},
                               {bound, strlen(bound)}};

    job_body_hash(job, body);
    return once_begin(job->native->once, job->caller.tenant, key, what, 4, job_wall_ms(), once);
}

bool job_once(struct job *job, bool may)
{
    const char *key = http_header(job->request, "Idempotency-Key");
    struct once *once = NULL;

    if (key == NULL)
        return true;
    if (!may || !once_key_is_good(key)) {
        job_fail(
            job, "bad_request", "%s",
            may ? "header \"Idempotency-Key\" must be 1 to 255 visible ASCII characters"
                : "this request takes no \"Idempotency-Key\": what it does or says is not kept");
        return false;
    }
    switch (begin_once(job, key, &once)) {
    case ONCE_NEW:
        job->once = once;
        return true;
    case ONCE_RUNNING:
        wait_for(job, once);
        return false;
    case ONCE_DONE:
        replay(job, once_answer(once));
        return false;
    case ONCE_OTHER:
        job_fail(job, "idempotency_conflict",
                 "this Idempotency-Key was used for a request with another path or body, or by "
                 "another caller");
        return false;
    case ONCE_NO_MEMORY:
        break;
    }
    job_fail(job, "too_many_requests", "too many requests with an Idempotency-Key are running");
    return false;
}

bool job_is_tls(const struct job *job)
{
    const char *scheme = http_header(job->request, "X-Forwarded-Proto");

    return http_peer(job->request)->is_tls || (scheme != NULL && strcasecmp(scheme, "https") == 0);
}

bool job_has_waiters(const struct job *job)
{
    return job->once != NULL && once_has_waiters(job->once);
}
