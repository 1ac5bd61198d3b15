/* What a process prints, as it prints it: lines of NDJSON until it ends.
 *
 * It pulls: a client that does not read is not written to, and when it reads again it is told what the
 * log has dropped meanwhile. Nobody else notices. */
#include "front/native/body.h"
#include "front/native/lines.h"
#include "front/native/parts.h"

#include <stdlib.h>
#include <string.h>

struct follow {
    struct stream stream; /* first */
    struct job *job;
    struct proc *proc; /* lives as long as `follow` */
    struct proc_follow *follow;
    bool until_close, is_base64, ends_with_key, ends_with_client;
    bool wants[2], is_closed[2];
    uint64_t for_ms, from[2];
    struct lines lines[2];
    uint64_t end[2]; /* of what is told; known when the process has ended */
};

static void leave(struct follow *follow, bool is_lost)
{
    if (follow->ends_with_client)
        proc_client_left(follow->proc, is_lost);
    proc_follow_cancel(follow->follow);
    follow->follow = NULL;
    stream_remove(&follow->stream);
}

static void drop(struct follow *follow, bool is_lost)
{
    if (follow->ends_with_key)
        callers_end_with(follow->job, follow->proc);
    leave(follow, is_lost);
    job_abort(follow->job);
}

static void gone(void *arg)
{
    drop(arg, true);
}

/* What is only a part of a character is not told: it is where the next one begins to read. */
static void end(struct stream *stream)
{
    struct follow *follow = (struct follow *)stream;

    leave(follow, true);
    http_finish(follow->job->request);
}

/* Whoever follows goes on at the next engine, by the offsets that he has. Where there is none, the process
 * has ended, and all that it printed is still to be sent. */
static void cut(struct job *job)
{
    struct follow *follow = job->own;
    struct proc_view view;

    proc_look(follow->proc, &view);
    if (!job->native->is_stopping || view.state == PROC_STARTING || view.state == PROC_RUNNING)
        drop(follow, false);
}

/* One part of one stream: 1 there was something, 0 nothing now, -1 on an error. */
static int take_part(struct follow *follow, int i, struct out *out)
{
    char *chunk = follow->job->native->chunk;
    uint64_t from = follow->lines[i].at;
    size_t size = NATIVE_CHUNK - LINES_ROOM;
    struct error err;
    ssize_t got;

    if (!follow->wants[i] || follow->is_closed[i] || from >= follow->end[i])
        return 0;
    if (follow->end[i] - from < size)
        size = (size_t)(follow->end[i] - from);
    got = proc_follow_read(follow->follow, i == 0 ? PROC_STDOUT : PROC_STDERR, chunk + LINES_ROOM,
                           size, &from, &err);
    if (got == -2) {
        follow->is_closed[i] = true;
        lines_end(&follow->lines[i], out);
    }
    if (got <= 0)
        return got == -1 ? -1 : 0;
    lines_add(&follow->lines[i], out, from, chunk + LINES_ROOM, (size_t)got);
    return 1;
}

static void finish(struct follow *follow, struct out *out)
{
    struct http_request *request = follow->job->request;
    struct proc_view view;

    lines_end(&follow->lines[0], out);
    lines_end(&follow->lines[1], out);
    proc_look(follow->proc, &view);
    out_object(out, NULL);
    out_text(out, "type", "exit");
    print_process(out, "process", &view);
    out_object_end(out);
    out_raw(out, "\n", 1);
    (void)stream_send(&follow->stream);
    leave(follow, false);
    http_finish(request);
}

/* Its end is told when it exits, with what it had printed by then, and not when the last that holds its
 * pipes has closed them; unless that is what the client waits for. */
static bool is_over(struct follow *follow)
{
    struct proc_view view;

    proc_look(follow->proc, &view);
    if (view.state == PROC_STARTING || view.state == PROC_RUNNING)
        return false;
    if (view.state == PROC_EXITED && follow->until_close)
        return (!follow->wants[0] || follow->is_closed[0]) &&
               (!follow->wants[1] || follow->is_closed[1]);
    for (int i = 0; i < 2; i++)
        if (follow->end[i] == UINT64_MAX)
            follow->end[i] = view.out_bytes[i];
    return true;
}

static void pump(struct follow *follow)
{
    struct out *out = job_out(follow->job);
    int got[2] = {0, 0};

    do {
        bool was_over = is_over(follow);

        for (int i = 0; i < 2; i++)
            got[i] = take_part(follow, i, out);
        if (got[0] < 0 || got[1] < 0 || out->has_failed) {
            leave(follow, true);
            job_abort(follow->job);
            return;
        }
        if (got[0] == 0 && got[1] == 0) {
            /* With until=close these reads may be what says that it is over. */
            if (was_over || is_over(follow))
                finish(follow, out);
            else
                (void)stream_send(&follow->stream);
            return;
        }
    } while (stream_send(&follow->stream));
}

static void more(struct stream *stream)
{
    struct follow *follow = (struct follow *)stream;

    pump(follow);
}

/* A thousand may follow one process. */
static void news(void *arg)
{
    struct follow *follow = arg;

    if (follow->follow != NULL)
        stream_news(&follow->stream);
}

static void follow_found(struct job *job, struct proc *proc)
{
    static const char *const names[] = {"stdout", "stderr"};
    struct follow *follow = job->own;
    struct proc_follow *begun;

    follow->job = job;
    follow->proc = proc;
    begun = proc_follow(proc, follow->from, news, follow);
    follow->follow = begun;
    if (begun == NULL) {
        job_fail(job, "capacity", "there is no memory for another follower now");
        return;
    }
    for (int i = 0; i < 2; i++)
        follow->lines[i] = (struct lines){
            .stream = names[i], .is_base64 = follow->is_base64, .at = follow->from[i]};
    follow->end[0] = follow->end[1] = UINT64_MAX;
    if (!job_stream(job, "application/x-ndjson")) {
        proc_follow_cancel(begun);
        return;
    }
    stream_add(&follow->stream, job, true, more);
    account_began(job);
    if (follow->ends_with_client)
        proc_client_came(proc);
    stream_end_after(&follow->stream, follow->for_ms, end);
    http_on_gone(job->request, gone, follow);
    job_on_drain(job, cut);
    stream_news(&follow->stream);
}

static int read_query(const struct job *job, struct follow *follow, struct error *err)
{
    static const char *const encodings[] = {"utf8", "base64", NULL};
    static const char *const streams[] = {"stdout", "stderr", "both", NULL};
    static const char *const untils[] = {"exit", "close", NULL};
    int encoding = 0;
    int stream = 2;
    int until = 0;

    if (job_query_word(job, "encoding", encodings, &encoding, err) < 0 ||
        job_query_word(job, "stream", streams, &stream, err) < 0 ||
        job_query_word(job, "until", untils, &until, err) < 0 ||
        job_query_count(job, "stdout_from", 0, INT64_MAX, &follow->from[0], err) < 0 ||
        job_query_count(job, "stderr_from", 0, INT64_MAX, &follow->from[1], err) < 0 ||
        job_query_flag(job, "ends_with_key", &follow->ends_with_key, err) < 0 ||
        job_query_flag(job, "ends_with_client", &follow->ends_with_client, err) < 0 ||
        stream_query(job, &follow->for_ms, err) < 0)
        return -1;
    follow->is_base64 = encoding == 1;
    follow->wants[0] = stream != 1;
    follow->wants[1] = stream != 0;
    follow->until_close = until == 1;
    return 0;
}

static bool query_is_true(struct http_request *request, const char *name)
{
    const char *value = http_query(request, name);

    return value != NULL && strcmp(value, "true") == 0;
}

HANDLER(process_follow)
{
    static const char *const known[] = {
        "stdout_from", "stderr_from",   "encoding",         "stream", "until",
        "for_ms",      "ends_with_key", "ends_with_client", NULL};
    bool may_end = query_is_true(request, "ends_with_key") ||
                   query_is_true(request, "ends_with_client");
    struct job *job = job_begin_for(request, may_end ? ENGINE_EXEC : ENGINE_LOOK);
    struct follow *follow;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, known))
        return;
    follow = job_own(job, sizeof(*follow), free);
    if (follow == NULL)
        return;
    if (read_query(job, follow, &err) < 0)
        job_problem(job, &err);
    else
        process_find(job, follow_found);
}
