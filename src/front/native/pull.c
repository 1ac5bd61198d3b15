/* An answer that is read from a process's log: see parts.h.
 *
 * A small one is printed at once and has a length. A large one goes out in parts, as the client takes
 * them; between two parts its process may be forgotten or its sandbox deleted, so it is looked up again
 * for each. What is lost then cuts the connection, so that nobody takes a part for the whole. */
#include "front/native/parts.h"

#include <stdio.h>
#include <string.h>

static void cut(struct pull *pull)
{
    stream_remove(&pull->stream);
    job_abort(pull->job);
}

static void gone(void *arg)
{
    struct pull *pull = arg;

    pull->is_gone = true;
    if (!pull->is_asking)
        cut(pull);
}

static void send_parts(struct pull *pull, struct proc *proc)
{
    struct http_request *request = pull->job->request;
    struct out *out = job_out(pull->job);
    int status;

    out->last = pull->last;
    do {
        status = pull->step(pull, proc, out);
        if (status < 0 || out->has_failed) {
            cut(pull);
            return;
        }
    } while (stream_send(&pull->stream) && status > 0);
    pull->last = out->last;
    if (status > 0)
        return;
    stream_remove(&pull->stream);
    http_finish(request);
}

static void found(void *arg, struct procs *procs, const struct error *err)
{
    struct pull *pull = arg;
    struct proc *proc = err == NULL ? procs_find(procs, pull->process) : NULL;

    pull->is_asking = false;
    if (proc == NULL || pull->is_gone)
        cut(pull);
    else
        send_parts(pull, proc);
}

static void more(struct stream *stream)
{
    struct pull *pull = (struct pull *)stream;
    struct job *job = pull->job;

    if (pull->is_asking)
        return;
    pull->is_asking = true;
    engine_procs(job->native->options.engine, &job->caller, http_param(job->request, "id"), false,
                 false, found, pull);
}

void pull_fail(const struct pull *pull, struct job *job, const char *process)
{
    if (pull->why.code[0] != '\0')
        job_problem(job, &pull->why);
    else
        job_fail(job, "internal", "the output of process %s could not be read", process);
}

void pull_begin(struct pull *pull, struct job *job, struct proc *proc, const char *content_type,
                int (*step)(struct pull *pull, struct proc *proc, struct out *out))
{
    struct proc_view view;

    proc_look(proc, &view);
    pull->job = job;
    pull->step = step;
    (void)snprintf(pull->process, sizeof(pull->process), "%s", view.id);
    if (!job_stream(job, content_type))
        return;
    stream_add(&pull->stream, job, false, more);
    http_on_gone(job->request, gone, pull);
    send_parts(pull, proc);
}
