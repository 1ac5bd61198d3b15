/* What happens, as lines of NDJSON, from a sequence number on.
 *
 * The engine pushes. A client that is behind is written to no more: what comes meanwhile is not taken
 * here and asked for again from the last number it was sent, and where that is too old by then, it is
 * told that there is a gap. */
#include "front/native/parts.h"

#include <stdlib.h>

struct events {
    struct stream stream; /* first */
    struct job *job;
    struct engine_listener *listener;
    uint64_t for_ms;
    uint64_t next;  /* the first that was not sent; 0: only what comes */
    bool missed;    /* some before it are gone */
    bool is_behind; /* one was not taken */
};

/* `to` is not known before the next event comes, so the line says where to begin to wonder. */
static void print_gap(const struct events *events, struct out *out, const char *type)
{
    out_object(out, NULL);
    out_text(out, "type", type);
    out_number(out, "from", events->next);
    out_object_end(out);
    out_raw(out, "\n", 1);
}

static void tell_gap(struct events *events, struct out *out)
{
    if (events->missed)
        print_gap(events, out, "gap");
    events->missed = false;
}

static void gone(void *arg);

static bool event(void *arg, const struct engine_event *event)
{
    struct events *events = arg;
    struct out *out;

    if (event == NULL) { /* the key has ended, and so does what it opened */
        gone(events);
        return false;
    }
    if (events->stream.is_full || events->stream.wants_turn || events->is_behind) {
        events->is_behind = true;
        return false;
    }
    out = job_out(events->job);
    tell_gap(events, out);
    print_event(out, event);
    events->next = event->sequence + 1;
    (void)stream_send(&events->stream);
    return true;
}

static void unlisten(struct events *events)
{
    if (events->listener != NULL)
        engine_unlisten(events->listener);
    events->listener = NULL;
}

static void listen_from(struct events *events)
{
    struct job *job = events->job;

    unlisten(events);
    events->is_behind = false;
    events->listener = engine_listen(job->native->options.engine, &job->caller, events->next,
                                     &events->missed, event, events);
    if (events->listener == NULL) {
        stream_remove(&events->stream);
        job_abort(job);
        return;
    }
    tell_gap(events, job_out(job));
    if (engine_listener_missed_traffic(events->listener))
        print_gap(events, job_out(job), "traffic_gap");
    (void)stream_send(&events->stream);
}

static void more(struct stream *stream)
{
    struct events *events = (struct events *)stream;

    if (events->is_behind)
        listen_from(events);
}

static void gone(void *arg)
{
    struct events *events = arg;

    unlisten(events);
    stream_remove(&events->stream);
    job_abort(events->job);
}

static void end(struct stream *stream)
{
    struct events *events = (struct events *)stream;

    unlisten(events);
    stream_remove(stream);
    http_finish(events->job->request);
}

/* The stream has no end of its own; cut, it is gone on with from its last number. */
static void cut(struct job *job)
{
    gone(job->own);
}

HANDLER(events_stream)
{
    static const char *const known[] = {"from", "for_ms", NULL};
    struct job *job = job_begin(request, ENGINE_READ);
    struct events *events;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, known))
        return;
    events = job_own(job, sizeof(*events), free);
    if (events == NULL)
        return;
    events->job = job;
    if (job_query_count(job, "from", 0, INT64_MAX, &events->next, &err) < 0 ||
        stream_query(job, &events->for_ms, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    if (!job_stream(job, "application/x-ndjson"))
        return;
    stream_add(&events->stream, job, true, more);
    account_began(job);
    stream_end_after(&events->stream, events->for_ms, end);
    http_on_gone(request, gone, events);
    job_on_drain(job, cut);
    /* The past may take a while, and has turns; all that comes is listened to from now on. */
    events->is_behind = events->next != 0;
    if (events->is_behind)
        stream_news(&events->stream);
    else
        listen_from(events);
}
