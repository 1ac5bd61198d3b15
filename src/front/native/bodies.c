/* Large bodies: parsed in the loop's pool before their handlers are asked, because a body of some MiB takes tens of
 * milliseconds, in which the loop would hear nobody else.
 *
 * A tenant has one body there at a time, and tenants take turns, so nobody waits behind all that another one sends.
 * Until a body was parsed nothing is begun: a client that leaves meanwhile has asked for nothing. The text stays the
 * request's, and is charged as it was; a thread reads it, and nothing else of the job. */
#include "front/native/parts.h"

#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>

/* Of the pool's four threads: the disk, handshakes and names need the others. */
#define WORKING_MAX 2

struct reading {
    TAILQ_ENTRY(reading) next; /* of those that wait, or of those that are worked on */
    struct job *job;
    const void *data;
    size_t size;
    struct read_parsed parsed;
    char hash[SHA256_TEXT]; /* or empty: nobody needs it */
    bool needs_hash, is_working, is_gone;
    uv_work_t work;
};

static void serve(struct native *native);

static void hash_text(const void *data, size_t size, char text[SHA256_TEXT])
{
    struct sha256 hash;

    sha256_begin(&hash);
    sha256_add(&hash, data, size);
    sha256_end(&hash, text);
}

static void work(uv_work_t *work_of)
{
    struct reading *reading = work_of->data;

    read_parse(reading->data, reading->size, &reading->parsed);
    if (reading->needs_hash)
        hash_text(reading->data, reading->size, reading->hash);
}

static void worked(uv_work_t *work_of, int status)
{
    struct reading *reading = work_of->data;
    struct job *job = reading->job;
    struct native *native = job->native;
    (void)status;

    TAILQ_REMOVE(&native->bodies.working, reading, next);
    native->bodies.working_count--;
    reading->is_working = false;
    http_on_gone(job->request, NULL, NULL);
    serve(native);
    if (reading->is_gone || native->bodies.is_closing)
        job_abort(job);
    else
        http_route(job->request)->handler(job->request, native);
}

/* ---- turns ---- */

static bool is_same_tenant(const struct reading *one, const struct reading *other)
{
    return strcmp(one->job->caller.tenant, other->job->caller.tenant) == 0;
}

static bool is_at_work(const struct native *native, const struct reading *reading)
{
    const struct reading *other;

    TAILQ_FOREACH(other, &native->bodies.working, next)
    if (is_same_tenant(reading, other))
        return true;
    return false;
}

static struct reading *choose(const struct native *native)
{
    struct reading *reading;

    TAILQ_FOREACH(reading, &native->bodies.waiting, next)
    if (!is_at_work(native, reading))
        return reading;
    return NULL;
}

/* Its tenant has had a turn: the tenant's other bodies wait behind everybody else's. */
static void leave_waiting(struct native *native, struct reading *reading)
{
    struct reading *last = TAILQ_LAST(&native->bodies.waiting, readings), *other, *after;

    for (other = TAILQ_FIRST(&native->bodies.waiting); other != NULL; other = after) {
        after = other != last ? TAILQ_NEXT(other, next) : NULL;
        if (other != reading && !is_same_tenant(other, reading))
            continue;
        TAILQ_REMOVE(&native->bodies.waiting, other, next);
        if (other != reading)
            TAILQ_INSERT_TAIL(&native->bodies.waiting, other, next);
    }
    native->bodies.waiting_count--;
}

static void serve(struct native *native)
{
    struct reading *reading;

    while (!native->bodies.is_closing && native->bodies.working_count < WORKING_MAX &&
           (reading = choose(native)) != NULL) {
        leave_waiting(native, reading);
        TAILQ_INSERT_TAIL(&native->bodies.working, reading, next);
        native->bodies.working_count++;
        native->bodies.parsed++;
        reading->is_working = true;
        (void)uv_queue_work(native->options.loop, &reading->work, work, worked);
    }
}

/* The body stays until no thread reads it. */
static void gone(void *arg)
{
    struct reading *reading = arg;
    struct native *native = reading->job->native;

    reading->is_gone = true;
    if (reading->is_working)
        return;
    TAILQ_REMOVE(&native->bodies.waiting, reading, next);
    native->bodies.waiting_count--;
    job_abort(reading->job);
}

/* ---- the begin and the end ---- */

void bodies_open(struct native *native)
{
    TAILQ_INIT(&native->bodies.waiting);
    TAILQ_INIT(&native->bodies.working);
}

static bool is_large(const struct http_request *request)
{
    size_t size;

    (void)http_body(request, &size);
    return size >= BODIES_LARGE;
}

HANDLER(bodies_take)
{
    struct native *native = data;
    struct job *job = http_data(request);
    struct reading *reading;

    if (job == NULL || !is_large(request)) {
        http_route(request)->handler(request, native);
        return;
    }
    /* It was admitted before it came, and takes several times its size when it is read: what is there now counts. */
    if (!admit_memory_is_left(job))
        return;
    reading = calloc(1, sizeof(*reading));
    if (reading == NULL) {
        job_fail(job, "capacity", "there is no memory for this request now");
        return;
    }
    reading->job = job;
    reading->data = http_body(request, &reading->size);
    reading->needs_hash = http_header(request, "Idempotency-Key") != NULL;
    reading->work.data = reading;
    job->reading = reading;
    TAILQ_INSERT_TAIL(&native->bodies.waiting, reading, next);
    native->bodies.waiting_count++;
    http_on_gone(request, gone, reading);
    serve(native);
}

struct read_body job_body(struct job *job)
{
    struct read_body body = {NULL, 0, job->reading != NULL ? &job->reading->parsed : NULL};

    body.data = http_body(job->request, &body.size);
    return body;
}

void job_body_hash(struct job *job, char text[SHA256_TEXT])
{
    size_t size;
    const void *data = http_body(job->request, &size);

    if (job->reading != NULL && job->reading->needs_hash)
        memcpy(text, job->reading->hash, SHA256_TEXT);
    else
        hash_text(data, size, text);
}

void job_body_free(struct job *job)
{
    if (job->reading == NULL)
        return;
    read_parsed_free(&job->reading->parsed);
    free(job->reading);
    job->reading = NULL;
}

void native_settle(struct native *native)
{
    native->bodies.is_closing = true;
    while (!TAILQ_EMPTY(&native->bodies.waiting))
        gone(TAILQ_FIRST(&native->bodies.waiting));
    while (native->bodies.working_count > 0)
        (void)uv_run(native->options.loop, UV_RUN_ONCE);
}
