/* /v1/kernels: code that is run and answered, and contexts that keep their state from run to run. */
#include "front/native/kernels.h"

#include "base/clock.h"
#include "front/native/body.h"
#include "front/native/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_DEFAULT 100
#define LIST_MAX 1000
#define LIST_BYTES (1U << 20)
#define MANIFEST_HEADER "Cove-Manifest"
#define RESTORING_MAX \
    (256U << 20) /* bytes of all that is on its way; a tenant's share is one of the largest */
#define RESTORING_NS (300ULL * 1000000000) /* for all of a body */

static const char *const no_query[] = {NULL};

/* ---- runs ---- */

struct kernel_job {
    struct beside beside; /* first: a large result is printed so */
    struct job *job;
    struct kernel_run *run;
    struct kernel_kept *kept; /* of that result */
    struct kernel_result result;
    struct out out;
    struct read_owner owner;
    bool is_gone;
};

static void kernel_job_free(void *data)
{
    struct kernel_job *own = data;

    if (own->kept != NULL)
        engine_kernel_kept_free(own->kept);
    out_free(&own->out);
    read_free(&own->owner);
    free(own);
}

static void print_beside(struct beside *beside)
{
    struct kernel_job *own = (struct kernel_job *)beside;

    print_kernel_result(&own->out, NULL, &own->result);
}

static void printed(struct beside *beside, bool is_closing)
{
    struct kernel_job *own = (struct kernel_job *)beside;

    if (is_closing || (own->is_gone && own->job->once == NULL))
        job_abort(own->job);
    else
        job_answer_taken(own->job, 200, &own->out);
}

static void run_ended(void *arg, const struct kernel_result *result, const struct error *err)
{
    struct kernel_job *own = arg;
    struct kernel_run *run = own->run;
    struct job *job = own->job;

    own->run = NULL;
    if (own->is_gone && job->once == NULL) {
        job_abort(job);
    } else if (err != NULL) {
        job_problem(job, err);
    } else if ((own->kept = engine_kernel_keep(run)) != NULL) {
        own->result = *result;
        own->beside = (struct beside){.work = print_beside, .done = printed};
        job->native->results_printed++;
        beside_add(&own->beside, job->native, job->caller.tenant);
    } else {
        print_kernel_result(job_out(job), NULL, result);
        job_answer(job, 200);
    }
}

/* Its end is heard in any case. */
static void run_unwanted(void *arg)
{
    struct kernel_job *own = arg;

    own->is_gone = true;
    if (own->run != NULL && !job_has_waiters(own->job))
        engine_kernel_stop(own->run);
}

static void begin_run(struct http_request *request, struct native *native,
                      const struct read_field *fields, const char *context)
{
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct kernel_body body = {.language = 0};
    struct kernel_run_calls calls = {.done = run_ended};
    struct kernel_run_spec spec;
    struct kernel_grants grants;
    struct kernel_job *own;
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    own = job_own(job, sizeof(*own), kernel_job_free);
    if (own == NULL)
        return;
    own->job = job;
    if (read_object("a run", job_body(job), false, fields, &body, &own->owner, &err) < 0 ||
        kernel_body_run(&body, context, &grants, &spec, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    if (!job_once(job, true))
        return;
    calls.arg = own;
    own->run = engine_kernel_run(native->options.engine, &job->caller, &spec, &calls, &err);
    if (own->run == NULL) {
        job_problem(job, &err);
        return;
    }
    /* The code is with the worker. */
    read_free(&own->owner);
    own->owner = (struct read_owner){NULL, NULL};
    http_body_done(request);
    http_on_gone(request, run_unwanted, own);
}

HANDLER(kernels_run_once)
{
    begin_run(request, data, kernel_fields_once, NULL);
}

HANDLER(kernels_run_in)
{
    begin_run(request, data, kernel_fields_run, http_param(request, "id"));
}

/* ---- contexts ---- */

static void answer_kernel(void *arg, const struct kernel_view *view, const struct error *err)
{
    struct job *job = arg;

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    print_kernel(job_out(job), NULL, view);
    job_answer(job, 200);
}

static void answer_made(void *arg, const struct kernel_view *view, const struct error *err)
{
    struct job *job = arg;
    char location[64];

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    (void)snprintf(job->kernel, sizeof(job->kernel), "%s", view->id);
    (void)snprintf(location, sizeof(location), "/v1/kernels/%s", view->id);
    print_kernel(job_out(job), NULL, view);
    job_answer_made(job, 201, location);
}

HANDLER(kernels_create)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct kernel_body body = {.language = 0};
    struct read_owner owner = {0};
    struct kernel_spec spec;
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    if (read_object("a kernel", job_body(job), true, kernel_fields_make, &body, &owner, &err) < 0) {
        job_problem(job, &err);
    } else if (job_once(job, true)) {
        kernel_body_spec(&body, &spec);
        engine_kernel_create(native->options.engine, &job->caller, &spec, answer_made, job);
    }
    read_free(&owner);
}

HANDLER(kernels_get)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_READ);
    struct kernel_view view;
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    if (engine_kernel_look(native->options.engine, &job->caller, http_param(request, "id"), &view,
                           &err) < 0)
        job_problem(job, &err);
    else
        answer_kernel(job, &view, NULL);
}

HANDLER(kernels_delete)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    if (engine_kernel_delete(native->options.engine, &job->caller, http_param(request, "id"),
                             &err) < 0 &&
        strcmp(err.code, "kernel_gone") != 0)
        job_problem(job, &err);
    else
        job_answer_nothing(job);
}

static bool print_one(void *arg, const struct kernel_view *view)
{
    struct out *out = arg;

    print_kernel(out, NULL, view);
    return !out->has_failed && out->used < LIST_BYTES;
}

HANDLER(kernels_list)
{
    static const char *const known[] = {"limit", "cursor", NULL};
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_READ);
    const char *cursor;
    uint64_t limit = LIST_DEFAULT;
    char next[64];
    struct error err;
    struct out *out;

    if (job == NULL || !job_query(job, known))
        return;
    if (job_query_count(job, "limit", 1, LIST_MAX, &limit, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    cursor = http_query(request, "cursor");
    if (cursor != NULL && *cursor == '\0')
        cursor = NULL;
    out = job_out(job);
    out_object(out, NULL);
    out_array(out, "kernels");
    if (engine_kernel_list(native->options.engine, &job->caller, cursor, (size_t)limit, print_one,
                           out, next, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    out_array_end(out);
    out_text(out, "next", next[0] != '\0' ? next : NULL);
    out_object_end(out);
    job_answer(job, 200);
}

/* For a request that says all by its path. */
static struct job *begin_plain(struct http_request *request, bool may_repeat)
{
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return NULL;
    if (body_none(job_body(job), &err) < 0) {
        job_problem(job, &err);
        return NULL;
    }
    return job_once(job, may_repeat) ? job : NULL;
}

HANDLER(kernels_reset)
{
    struct native *native = data;
    struct job *job = begin_plain(request, true);

    if (job != NULL)
        engine_kernel_reset(native->options.engine, &job->caller, http_param(request, "id"),
                            answer_kernel, job);
}

HANDLER(kernels_fork)
{
    struct native *native = data;
    struct job *job = begin_plain(request, true);

    if (job != NULL)
        engine_kernel_fork(native->options.engine, &job->caller, http_param(request, "id"),
                           answer_made, job);
}

/* ---- snapshots ---- */

static void answer_snapshot(void *arg, void *block, size_t start, size_t size,
                            const struct error *err)
{
    if (err != NULL)
        job_problem(arg, err);
    else
        job_answer_block(arg, 200, "application/octet-stream", block, start, size);
}

HANDLER(kernels_snapshot)
{
    struct native *native = data;
    struct job *job = begin_plain(request, false);

    if (job != NULL)
        engine_kernel_snapshot(native->options.engine, &job->caller, http_param(request, "id"),
                               answer_snapshot, job);
}

/* The bytes are the body as it is, so what the kernel may is said in a header. */
struct restoring {
    struct job *job;
    struct kernel_body body;
    struct read_owner owner;
    uint8_t *bytes;
    size_t size;
    struct hold room;
    bool is_over; /* asked for, or answered */
};

static void restoring_free(void *data)
{
    struct restoring *restoring = data;

    (void)hold_resize(&restoring->job->native->restoring, &restoring->room, 0, RESTORING_MAX);
    read_free(&restoring->owner);
    free(restoring->bytes);
    free(restoring);
}

static void restoring_gone(void *arg)
{
    struct restoring *restoring = arg;

    /* Once it is asked for it is answered by itself. */
    if (!restoring->is_over)
        job_abort(restoring->job);
}

static void restore(struct restoring *restoring)
{
    struct native *native = restoring->job->native;
    uint8_t *bytes = restoring->bytes;
    struct kernel_spec spec;

    kernel_body_spec(&restoring->body, &spec);
    restoring->bytes = NULL;
    engine_kernel_restore(native->options.engine, &restoring->job->caller, &spec, bytes,
                          restoring->size, answer_made, restoring->job);
}

static int restoring_grow(struct restoring *restoring, size_t size, struct error *err)
{
    struct native *native = restoring->job->native;
    size_t room = restoring->room.bytes;
    uint8_t *bytes;

    if (size > KERNELS_SNAPSHOT_MAX)
        return error_set(err, "body_too_large", 0, "a snapshot has at most %u bytes",
                         KERNELS_SNAPSHOT_MAX);
    while (room < size)
        room = room > 0 ? 2 * room : 64 << 10;
    if (clock_monotonic_ns() - restoring->job->began_ns > RESTORING_NS)
        return error_set(err, "request_timeout", 0, "the snapshot did not come within %u s",
                         (unsigned)(RESTORING_NS / 1000000000));
    if (room == restoring->room.bytes)
        return 0;
    if (!hold_resize(&native->restoring, &restoring->room, room, RESTORING_MAX))
        return error_set(err, "capacity", 0,
                         "too many snapshots are being restored now: send it again in a moment");
    bytes = realloc(restoring->bytes, room);
    if (bytes == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for this snapshot now");
    restoring->bytes = bytes;
    return 0;
}

static bool restore_part(void *arg, const void *data, size_t size)
{
    struct restoring *restoring = arg;
    struct error err;

    if (restoring->is_over)
        return true;
    if (size > 0 && restoring_grow(restoring, restoring->size + size, &err) == 0) {
        memcpy(restoring->bytes + restoring->size, data, size);
        restoring->size += size;
        return true;
    }
    restoring->is_over = true;
    if (size > 0)
        job_problem(restoring->job, &err);
    else if (restoring->size == 0)
        job_fail(restoring->job, "bad_snapshot", "the body is empty: send a snapshot's bytes");
    else
        restore(restoring);
    return true;
}

HANDLER(kernels_restore)
{
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct restoring *restoring;
    const char *manifest;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, no_query) || !job_once(job, false))
        return;
    restoring = job_own(job, sizeof(*restoring), restoring_free);
    if (restoring == NULL)
        return;
    restoring->job = job;
    restoring->room.tenant = job->caller.tenant;
    manifest = http_header(request, MANIFEST_HEADER);
    if (manifest != NULL &&
        read_object("header \"" MANIFEST_HEADER "\"",
                    (struct read_body){manifest, strlen(manifest), NULL}, false, kernel_fields_make,
                    &restoring->body, &restoring->owner, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    http_on_gone(request, restoring_gone, restoring);
    http_on_body(request, restore_part, restoring);
}
