/* What a process printed, as it is: bytes of its log from an offset on.
 *
 * What is promised in the header (Cove-From to Cove-Next) is what was there when it was sent; more may
 * have come since, and is asked for from Cove-Next on. */
#include "front/native/body.h"
#include "front/native/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE (256U << 10)

struct output {
    struct pull pull; /* first */
    int stream;
    bool has_offset, has_tail;
    uint64_t offset, limit, tail;
    uint64_t at, end;
};

static int step(struct pull *pull, struct proc *proc, struct out *out)
{
    struct output *output = (struct output *)pull;
    uint64_t left = output->end - output->at;
    size_t size = left < NATIVE_CHUNK ? (size_t)left : NATIVE_CHUNK;
    uint64_t from = output->at;
    ssize_t got;
    char *room;

    if (size == 0)
        return 0;
    room = out_room(out, size);
    if (room == NULL)
        return -1;
    got = proc_read(proc, output->stream == 0 ? PROC_STDOUT : PROC_STDERR, output->at, room, size,
                    &from, &pull->why);
    if (got <= 0 || from != output->at)
        return -1;
    out->used -= size - (size_t)got;
    output->at += (uint64_t)got;
    return output->at < output->end;
}

/* From where to where, and how many of the bytes that were asked for are there no more. */
static uint64_t choose_range(struct output *output, const struct proc_view *view)
{
    uint64_t bytes = view->out_bytes[output->stream];
    uint64_t oldest = view->out_from[output->stream];
    uint64_t wanted = output->offset;
    uint64_t dropped;

    if (output->has_tail)
        wanted = bytes > output->tail ? bytes - output->tail : 0;
    if (wanted > bytes)
        wanted = bytes;
    output->at = wanted > oldest ? wanted : oldest;
    if (output->at > bytes)
        output->at = bytes;
    dropped = output->at - wanted;
    output->end = bytes - output->at > output->limit ? output->at + output->limit : bytes;
    return dropped;
}

static void add_number(struct http_request *request, const char *name, uint64_t value)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    http_add_header(request, name, text);
}

static void add_headers(const struct output *output, const struct job *job,
                        const struct proc_view *view, uint64_t dropped)
{
    bool has_ended = view->state != PROC_STARTING && view->state != PROC_RUNNING;
    bool is_all = output->end == view->out_bytes[output->stream];

    add_number(job->request, "Cove-From", output->at);
    add_number(job->request, "Cove-Next", output->end);
    add_number(job->request, "Cove-Dropped", dropped);
    http_add_header(job->request, "Cove-Ended", has_ended && is_all ? "true" : "false");
    /* These bytes are a box's: no browser shall see a page in them. */
    http_add_header(job->request, "X-Content-Type-Options", "nosniff");
}

static void output_found(struct job *job, struct proc *proc)
{
    static const char type[] = "application/octet-stream";
    struct output *output = job->own;
    struct proc_view view;
    struct out *out;
    int status;

    proc_look(proc, &view);
    add_headers(output, job, &view, choose_range(output, &view));
    if (output->end - output->at > AT_ONCE) {
        pull_begin(&output->pull, job, proc, type, step);
        return;
    }
    out = job_out(job);
    do
        status = step(&output->pull, proc, out);
    while (status > 0);
    if (status < 0)
        pull_fail(&output->pull, job, view.id);
    else
        job_answer_bytes(job, 200, type, out->data, out->used);
}

static int read_query(const struct job *job, struct output *output, struct error *err)
{
    static const char *const streams[] = {"stdout", "stderr", NULL};

    output->limit = UINT64_MAX;
    output->has_offset = http_query(job->request, "offset") != NULL;
    output->has_tail = http_query(job->request, "tail") != NULL;
    if (output->has_offset && output->has_tail)
        return error_set(err, "bad_request", 0,
                         "query parameters \"offset\" and \"tail\" exclude each other");
    if (job_query_word(job, "stream", streams, &output->stream, err) < 0 ||
        job_query_count(job, "offset", 0, INT64_MAX, &output->offset, err) < 0 ||
        job_query_count(job, "tail", 0, INT64_MAX, &output->tail, err) < 0)
        return -1;
    return job_query_count(job, "limit", 0, INT64_MAX, &output->limit, err);
}

HANDLER(process_output)
{
    static const char *const known[] = {"stream", "offset", "limit", "tail", NULL};
    struct job *job = job_begin_for(request, ENGINE_LOOK);
    struct output *output;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, known))
        return;
    output = job_own(job, sizeof(*output), free);
    if (output == NULL)
        return;
    if (read_query(job, output, &err) < 0)
        job_problem(job, &err);
    else
        process_find(job, output_found);
}
