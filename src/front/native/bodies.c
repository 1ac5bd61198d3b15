/* Large bodies: parsed beside the loop (beside.c) before their handlers are asked, because a body of some MiB takes
 * tens of milliseconds.
 *
 * Until a body was parsed nothing is begun: a client that leaves meanwhile has asked for nothing. The text stays the
 * request's, and is charged as it was. */
#include "front/native/parts.h"

#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>

struct reading {
    struct beside beside; /* first */
    struct job *job;
    const void *data;
    size_t size;
    struct read_parsed parsed;
    char hash[SHA256_TEXT]; /* or empty: nobody needs it */
    bool needs_hash, is_gone;
};

static void hash_text(const void *data, size_t size, char text[SHA256_TEXT])
{
    struct sha256 hash;

    sha256_begin(&hash);
    sha256_add(&hash, data, size);
    sha256_end(&hash, text);
}

static void read_it(struct beside *beside)
{
    struct reading *reading = (struct reading *)beside;

    read_parse(reading->data, reading->size, &reading->parsed);
    if (reading->needs_hash)
        hash_text(reading->data, reading->size, reading->hash);
}

static void was_read(struct beside *beside, bool is_closing)
{
    struct reading *reading = (struct reading *)beside;
    struct job *job = reading->job;

    job->native->bodies_parsing--;
    http_on_gone(job->request, NULL, NULL);
    if (reading->is_gone || is_closing)
        job_abort(job);
    else
        http_route(job->request)->handler(job->request, job->native);
}

/* The body stays until no thread reads it. */
static void gone(void *arg)
{
    struct reading *reading = arg;

    reading->is_gone = true;
    if (beside_cancel(&reading->beside))
        was_read(&reading->beside, false);
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
    reading->beside = (struct beside){.work = read_it, .done = was_read};
    reading->job = job;
    reading->data = http_body(request, &reading->size);
    reading->needs_hash = http_header(request, "Idempotency-Key") != NULL;
    job->reading = reading;
    native->bodies_parsing++;
    native->bodies_parsed++;
    http_on_gone(request, gone, reading);
    beside_add(&reading->beside, native, job->caller.tenant);
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
