/* exec (run and wait) and processes (run): the way of a command from its body to its answer.
 *
 * exec is the hot path: one object per request, no file is read for a stream that is empty, and what
 * was printed goes from the log through one buffer into the answer. A client that goes away takes its
 * command with it, unless it said otherwise or somebody waits for the same answer. */
#include "base/utf8.h"
#include "front/native/body.h"
#include "front/native/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STDIN_PIECE (512U << 10)
#define AT_ONCE (128U << 10)  /* of output: more is sent in parts */
#define KEPT_LEAST (4U << 10) /* a body of less is charged to nobody */

enum print_step { PRINT_HEAD, PRINT_TEXT, PRINT_BASE64, PRINT_TAIL };

struct run {
    struct pull pull; /* first */
    struct native *native;
    struct job *job;
    struct body_process body;
    struct hold kept; /* its texts, until they are told */
    char tenant[64];  /* of that hold: the job may be gone before */
    unsigned holds;   /* the job's, and that of input on its way */
    bool is_exec, is_gone, has_ended;
    bool is_killed;    /* because nobody wants it */
    struct proc *proc; /* while `wait` is there */
    struct proc_wait *wait;
    size_t fed;

    enum print_step step;
    int stream;
    bool is_text;
    uint64_t at, from[2], to[2];
};

/* Its texts, input too, are with the process. */
static void forget_texts(struct run *run)
{
    read_free(&run->body.owner);
    run->body.owner = (struct read_owner){NULL, NULL};
    run->body.stdin_data.data = NULL;
    run->body.stdin_data.size = 0;
    (void)native_keeps(run->native, &run->kept, 0);
}

static void run_drop(void *data)
{
    struct run *run = data;

    if (--run->holds > 0)
        return;
    forget_texts(run);
    free(run);
}

/* ---- the answer ---- */

/* What is returned of a stream: the newest bytes, up to the limit. */
static void choose_range(struct run *run, const struct proc_view *view)
{
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = view->out_bytes[i];
        uint64_t limit = run->body.output_limit;

        run->to[i] = bytes;
        run->from[i] = bytes > limit ? bytes - limit : 0;
        if (run->from[i] < view->out_from[i])
            run->from[i] = view->out_from[i];
        if (run->from[i] > run->to[i])
            run->from[i] = run->to[i];
    }
}

/* The next bytes into the native's chunk; 0 at the end, -1 if they are there no more. */
static ssize_t read_on(struct run *run, struct proc *proc)
{
    struct native *native = run->job->native;
    uint64_t left = run->to[run->stream] - run->at;
    size_t size = left < NATIVE_CHUNK ? (size_t)left : NATIVE_CHUNK;
    uint64_t from = run->at;
    ssize_t got;

    if (size == 0)
        return 0;
    got = proc_read(proc, run->stream == 0 ? PROC_STDOUT : PROC_STDERR, run->at, native->chunk,
                    size, &from, &run->pull.why);
    return got <= 0 || from != run->at ? -1 : got;
}

static void begin_stream(struct run *run, struct out *out, int stream)
{
    run->stream = stream;
    run->at = run->from[stream];
    run->is_text = true;
    run->step = PRINT_TEXT;
    out_quote(out, stream == 0 ? "stdout" : "stderr");
}

static void end_stream(struct run *run, struct out *out)
{
    out_quote_end(out);
    if (run->step == PRINT_TEXT && !run->is_text) {
        run->step = PRINT_BASE64;
        run->at = run->from[run->stream];
        out_quote(out, run->stream == 0 ? "stdout_base64" : "stderr_base64");
    } else if (run->stream == 0) {
        begin_stream(run, out, 1);
    } else {
        run->step = PRINT_TAIL;
    }
}

/* The first bytes of a stream whose beginning is cut off may be the rest of a character. */
static size_t skip_inside(struct run *run, size_t size)
{
    size_t inside = 0;

    if (run->at == run->from[run->stream] && run->at > 0)
        inside = utf8_inside(run->job->native->chunk, size);
    run->from[run->stream] += inside;
    run->at += inside;
    return inside;
}

static int print_text(struct run *run, struct proc *proc, struct out *out)
{
    const char *text = run->job->native->chunk;
    ssize_t got = read_on(run, proc);
    size_t size = (size_t)got;
    size_t inside;

    if (got < 0)
        return -1;
    if (got == 0) {
        end_stream(run, out);
        return 1;
    }
    inside = skip_inside(run, size);
    text += inside;
    size -= inside;
    /* The end of this part may be within a character, of which the next part has the rest. */
    if (run->at + size < run->to[run->stream] && utf8_whole(text, size) > 0)
        size = utf8_whole(text, size);
    run->is_text = run->is_text && utf8_is_valid(text, size);
    run->at += size;
    out_quoted(out, text, size);
    return 1;
}

static int print_base64(struct run *run, struct proc *proc, struct out *out)
{
    ssize_t got = read_on(run, proc);
    size_t size = (size_t)got;

    if (got < 0)
        return -1;
    if (got == 0) {
        end_stream(run, out);
        return 1;
    }
    if (run->at + size < run->to[run->stream])
        size -= size % 3;
    if (size == 0)
        return -1;
    run->at += size;
    out_quoted_base64(out, run->job->native->chunk, size);
    return 1;
}

static int print_step(struct pull *pull, struct proc *proc, struct out *out)
{
    struct run *run = (struct run *)pull;
    struct proc_view view;

    switch (run->step) {
    case PRINT_HEAD:
        proc_look(proc, &view);
        out_object(out, NULL);
        print_process(out, "process", &view);
        begin_stream(run, out, 0);
        return 1;
    case PRINT_TEXT:
        return print_text(run, proc, out);
    case PRINT_BASE64:
        return print_base64(run, proc, out);
    case PRINT_TAIL:
        break;
    }
    out_number(out, "stdout_dropped_bytes", run->from[0]);
    out_number(out, "stderr_dropped_bytes", run->from[1]);
    out_object_end(out);
    if (pull->job != NULL) /* in parts, so it is not job_answer() that ends it */
        out_raw(out, "\n", 1);
    return 0;
}

static void answer_exec(struct run *run, struct proc *proc)
{
    struct job *job = run->job;
    struct proc_view view;
    struct out *out;
    int status;

    proc_look(proc, &view);
    job_step(job, "command", view.started_ms * 1000000, view.ended_ms * 1000000);
    job->is_first = strcmp(view.id, "1") == 0;
    choose_range(run, &view);
    if (run->to[0] - run->from[0] + run->to[1] - run->from[1] > AT_ONCE) {
        pull_begin(&run->pull, job, proc, "application/json", print_step);
        return;
    }
    out = job_out(job);
    do
        status = print_step(&run->pull, proc, out);
    while (status > 0);
    if (status < 0)
        pull_fail(&run->pull, job, view.id);
    else
        job_answer(job, 200);
}

static void answer_started(struct run *run, struct proc *proc)
{
    struct job *job = run->job;
    struct proc_view view;
    char location[1024];

    proc_look(proc, &view);
    (void)snprintf(location, sizeof(location), "%s/%s", http_path(job->request), view.id);
    print_process(job_out(job), NULL, &view);
    job_answer_made(job, 201, location);
}

/* ---- its input ---- */

static void feed(struct run *run, struct proc *proc);

/* One that has ended without reading all of it is none the worse. */
static void fed(void *arg, struct proc *proc, const struct error *err)
{
    struct run *run = arg;

    if (err == NULL)
        feed(run, proc);
    else
        forget_texts(run);
    run_drop(run);
}

static void feed(struct run *run, struct proc *proc)
{
    const struct read_bytes *input = &run->body.stdin_data;
    const char *from = (const char *)input->data + run->fed;
    size_t size = input->size - run->fed;
    struct error err;

    if (size > STDIN_PIECE)
        size = STDIN_PIECE;
    if (size == 0) {
        if (!run->body.open_stdin)
            (void)proc_stdin_close(proc, &err); /* or it has ended */
        forget_texts(run);
        return;
    }
    run->fed += size;
    run->holds++;
    proc_stdin_write(proc, from, size, fed, run);
}

/* ---- its life ---- */

/* When the engine ends, its connections are cut, and that says nothing about who wants what. */
static bool nobody_wants_it(const struct run *run)
{
    return run->is_gone && !run->job->native->is_draining && !run->body.detach &&
           !job_has_waiters(run->job);
}

static void kill_unwanted(struct run *run, struct proc *proc)
{
    struct error ignored;

    run->is_killed = proc_kill(proc, &ignored) == 0;
}

/* Its end is heard in any case, and answered into nowhere or to those who wait for the same. */
static void client_gone(void *arg)
{
    struct run *run = arg;

    run->is_gone = true;
    if (run->wait != NULL && nobody_wants_it(run))
        kill_unwanted(run, run->proc);
}

/* The engine is about to end, and the next one knows the command. */
static void goes_on(struct job *job)
{
    struct run *run = job->own;
    const char *sandbox = http_param(job->request, "id");
    struct proc_view view;

    proc_look(run->proc, &view);
    if (run->wait != NULL)
        proc_wait_cancel(run->wait);
    run->wait = NULL;
    if (run->is_gone && job->once == NULL)
        job_abort(job);
    else if (job->native->is_stopping)
        job_fail(job, "draining",
                 "the server ends, and the command with it: process %s has what it printed until "
                 "then",
                 view.id);
    else
        job_fail(job, "still_running",
                 "the engine is about to restart, and the command runs on as process %s: GET "
                 "/v1/sandboxes/%s/processes/%s/wait",
                 view.id, sandbox, view.id);
}

/* What we killed half way has done nothing that a repetition of the request could be answered with. */
static bool is_cut_short(const struct run *run, struct proc *proc)
{
    struct proc_view view;

    proc_look(proc, &view);
    return run->is_killed && view.signal != 0;
}

static void ended(void *arg, struct proc *proc, const struct error *err)
{
    struct run *run = arg;

    job_on_drain(run->job, NULL);
    run->wait = NULL;
    run->has_ended = true;
    if (run->is_gone && (run->job->once == NULL || (err == NULL && is_cut_short(run, proc))))
        job_abort(run->job);
    else if (err != NULL)
        job_problem(run->job, err);
    else
        answer_exec(run, proc);
}

/* The end may be told before proc_wait() returns; the caller holds the run. */
static void wait_for_end(struct run *run, struct proc *proc)
{
    struct proc_wait *wait;

    run->proc = proc;
    wait = proc_wait(proc, 0, ended, run);
    if (!run->has_ended)
        run->wait = wait;
    if (run->has_ended)
        return;
    if (wait == NULL)
        job_fail(run->job, "no_memory", "there is no memory to wait for the command now");
    else if (run->job->native->is_draining && !run->job->native->is_stopping)
        goes_on(run->job);
    else
        job_on_drain(run->job, goes_on);
}

static void started(void *arg, struct proc *proc, const struct error *err)
{
    struct run *run = arg;

    if (err != NULL) {
        job_problem(run->job, err);
        return;
    }
    run->holds++;
    if (run->body.spec.has_stdin)
        feed(run, proc);
    else
        forget_texts(run);
    if (!run->is_exec) {
        answer_started(run, proc);
    } else {
        if (nobody_wants_it(run))
            kill_unwanted(run, proc);
        wait_for_end(run, proc);
    }
    run_drop(run);
}

static void has_procs(void *arg, struct procs *procs, const struct error *err)
{
    struct run *run = arg;

    if (err != NULL)
        job_problem(run->job, err);
    else if (nobody_wants_it(run))
        job_abort(run->job);
    else if (run->job->native->is_draining)
        job_fail(run->job, "draining", "the engine is about to end and begins nothing new");
    else
        procs_start(procs, &run->body.spec, started, run);
}

static void begin(struct http_request *request, struct native *native, bool is_exec)
{
    static const char *const no_query[] = {NULL};
    struct job *job = job_begin_for(request, ENGINE_EXEC);
    struct run *run;
    struct error err;
    size_t size;

    if (job == NULL || !job_query(job, no_query))
        return;
    run = job_own(job, sizeof(*run), run_drop);
    if (run == NULL)
        return;
    run->holds = 1;
    run->native = native;
    run->job = job;
    run->is_exec = is_exec;
    (void)snprintf(run->tenant, sizeof(run->tenant), "%s", job->caller.tenant);
    run->kept.tenant = run->tenant;
    (void)http_body(request, &size);
    if (size >= KEPT_LEAST && !native_keeps(native, &run->kept, size)) {
        job_fail_kept(job);
        return;
    }
    if (body_process(job_body(job), is_exec, &run->body, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    if (!job_once(job, true))
        return;
    http_body_done(request);
    if (is_exec)
        http_on_gone(request, client_gone, run);
    engine_procs(native->options.engine, &job->caller, http_param(request, "id"), true,
                 run->body.start, has_procs, run);
}

HANDLER(run_exec)
{
    begin(request, data, true);
}

HANDLER(run_start)
{
    begin(request, data, false);
}
