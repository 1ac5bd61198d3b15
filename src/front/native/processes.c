/* Processes that are there: listed, looked at, waited for, written to, signalled, killed, forgotten. */
#include "front/native/body.h"
#include "front/native/parts.h"

#include <stdlib.h>
#include <string.h>

#define KILL_WAIT_MS 5000 /* until DELETE answers, if what it killed does not die */

static const char *const no_query[] = {NULL};

/* ---- which process ---- */

static void found(void *arg, struct procs *procs, const struct error *err)
{
    struct job *job = arg;
    const char *id = http_param(job->request, "pid");
    struct proc *proc = err == NULL ? procs_find(procs, id) : NULL;

    if (err != NULL)
        job_problem(job, err);
    else if (proc == NULL)
        job_fail(job, "process_not_found",
                 "there is no process \"%.64s\" in this sandbox, or it was forgotten", id);
    else
        job->then(job, proc);
}

void process_find(struct job *job, void (*then)(struct job *job, struct proc *proc))
{
    job->then = then;
    engine_procs(job->native->options.engine, &job->caller, http_param(job->request, "id"), false,
                 false, found, job);
}

/* ---- looked at ---- */

static void answer_process(struct job *job, struct proc *proc)
{
    struct proc_view view;

    proc_look(proc, &view);
    print_process(job_out(job), NULL, &view);
    job_answer(job, 200);
}

HANDLER(process_get)
{
    struct job *job = job_begin_for(request, ENGINE_LOOK);

    (void)data;
    if (job != NULL && job_query(job, no_query))
        process_find(job, answer_process);
}

static bool print_one(void *arg, struct proc *proc)
{
    struct proc_view view;

    proc_look(proc, &view);
    print_process(arg, NULL, &view);
    return true;
}

static void answer_list(void *arg, struct procs *procs, const struct error *err)
{
    struct job *job = arg;
    struct out list = {0};
    struct out *out;

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    /* Not into the buffer of all answers: going through the processes may tell others of an end, who are answered
     * from that one meanwhile. */
    out_object(&list, NULL);
    out_array(&list, "processes");
    procs_each(procs, print_one, &list);
    out_array_end(&list);
    out_object_end(&list);
    out = job_out(job);
    out_raw(out, list.data, list.used);
    out->has_failed = out->has_failed || list.has_failed;
    out_free(&list);
    job_answer(job, 200);
}

HANDLER(process_list)
{
    struct native *native = data;
    struct job *job = job_begin_for(request, ENGINE_LOOK);

    if (job != NULL && job_query(job, no_query))
        engine_procs(native->options.engine, &job->caller, http_param(request, "id"), false, false,
                     answer_list, job);
}

/* ---- waited for ---- */

struct waiting {
    struct job *job;
    struct proc *proc;
    struct proc_wait *wait;
    void (*end)(struct job *job, struct proc *proc);
    bool is_told;
    unsigned holds; /* the job's, and one while proc_wait() has not returned */
};

static void waiting_drop(void *data)
{
    struct waiting *waiting = data;

    if (--waiting->holds == 0)
        free(waiting);
}

static void waited(void *arg, struct proc *proc, const struct error *err)
{
    struct waiting *waiting = arg;

    (void)proc;
    waiting->is_told = true;
    waiting->wait = NULL;
    job_on_drain(waiting->job, NULL);
    if (err != NULL && strcmp(err->code, "wait_timeout") != 0)
        job_problem(waiting->job, err);
    else
        waiting->end(waiting->job, waiting->proc);
}

static void waiter_gone(void *arg)
{
    struct waiting *waiting = arg;

    if (waiting->wait != NULL)
        proc_wait_cancel(waiting->wait);
    job_abort(waiting->job);
}

/* A wait may be asked for again at the next engine. */
static void wait_cut(struct job *job)
{
    struct waiting *waiting = job->own;

    if (waiting->wait != NULL)
        proc_wait_cancel(waiting->wait);
    waiting->wait = NULL;
    job_fail(job, "draining",
             job->native->is_stopping
                 ? "the server ends, and the process with it"
                 : "the engine is about to restart; wait for the process again then");
}

/* `end` when the process has ended, or when the time is over. */
static void wait_for(struct job *job, struct proc *proc, uint64_t timeout_ms,
                     void (*end)(struct job *job, struct proc *proc))
{
    struct waiting *waiting = job_own(job, sizeof(*waiting), waiting_drop);
    struct proc_wait *wait;

    if (waiting == NULL)
        return;
    *waiting = (struct waiting){.job = job, .proc = proc, .end = end, .holds = 2};
    http_on_gone(job->request, waiter_gone, waiting);
    wait = proc_wait(proc, timeout_ms, waited, waiting);
    if (!waiting->is_told)
        waiting->wait = wait;
    if (wait != NULL && end == answer_process)
        job_on_drain(job, wait_cut);
    if (!waiting->is_told && wait == NULL)
        job_fail(job, "no_memory", "there is no memory to wait for a process now");
    waiting_drop(waiting);
}

static void wait_found(struct job *job, struct proc *proc)
{
    uint64_t timeout_ms = job->number;

    if (timeout_ms == 0)
        answer_process(job, proc);
    else
        wait_for(job, proc, timeout_ms == UINT64_MAX ? 0 : timeout_ms, answer_process);
}

HANDLER(process_wait)
{
    static const char *const known[] = {"timeout_ms", NULL};
    struct job *job = job_begin_for(request, ENGINE_LOOK);
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, known))
        return;
    job->number = UINT64_MAX;
    if (job_query_count(job, "timeout_ms", 0, BODY_TIME_MAX_MS, &job->number, &err) < 0)
        job_problem(job, &err);
    else
        process_find(job, wait_found);
}

/* ---- signalled, killed, forgotten ---- */

static void signal_found(struct job *job, struct proc *proc)
{
    struct error err;

    if (proc_signal(proc, (int)job->number, &err) < 0)
        job_problem(job, &err);
    else
        job_answer_nothing(job);
}

HANDLER(process_signal)
{
    struct job *job = job_begin_for(request, ENGINE_EXEC);
    struct error err;
    int number;

    (void)data;
    if (job == NULL || !job_query(job, no_query))
        return;
    if (body_signal(job_body(job), &number, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    job->number = (uint64_t)number;
    if (!job_once(job, true))
        return;
    http_body_done(request);
    process_find(job, signal_found);
}

static void answer_killed(struct job *job, struct proc *proc)
{
    (void)proc;
    job_answer_nothing(job);
}

/* Whoever looks at it after the answer sees that it has ended; so the end is waited for. */
static void delete_found(struct job *job, struct proc *proc)
{
    struct proc_view view;
    struct error err;
    bool runs;

    proc_look(proc, &view);
    runs = view.state == PROC_STARTING || view.state == PROC_RUNNING;
    if ((runs ? proc_kill(proc, &err) : proc_forget(proc, &err)) < 0)
        job_problem(job, &err);
    else if (runs)
        wait_for(job, proc, KILL_WAIT_MS, answer_killed);
    else
        job_answer_nothing(job);
}

HANDLER(process_delete)
{
    struct job *job = job_begin_for(request, ENGINE_EXEC);

    (void)data;
    if (job != NULL && job_query(job, no_query))
        process_find(job, delete_found);
}

/* ---- written to ---- */

#define STDIN_PART ((size_t)256 << 10) /* as much of a body comes at once */

/* The body goes on as fast as the process reads: the next part is taken when this one is in the pipe. */
struct input {
    struct native *native;
    struct job *job;
    struct proc *proc;      /* NULL: it has ended */
    struct proc_wait *wait; /* so that its end, after which it may be forgotten, is heard of */
    struct hold kept;       /* room for the part that waits for the process */
    bool closes, is_writing, is_gone, is_told;
    unsigned holds; /* the job's, and one while proc_wait() has not returned */
};

static void input_drop(void *data)
{
    struct input *input = data;

    if (--input->holds > 0)
        return;
    (void)native_keeps(input->native, &input->kept, 0);
    free(input);
}

static void input_leave(struct input *input)
{
    if (input->wait != NULL)
        proc_wait_cancel(input->wait);
    input->wait = NULL;
}

static void input_done(struct input *input, const struct error *err)
{
    input_leave(input);
    if (input->is_gone)
        job_abort(input->job);
    else if (err != NULL)
        job_problem(input->job, err);
    else
        job_answer_nothing(input->job);
}

static void written(void *arg, struct proc *proc, const struct error *err)
{
    struct input *input = arg;

    (void)proc;
    input->is_writing = false;
    if (err != NULL || input->is_gone)
        input_done(input, err);
    else
        http_body_resume(input->job->request);
}

static bool take_part(void *arg, const void *data, size_t size)
{
    struct input *input = arg;
    struct error err;

    if (input->proc == NULL) {
        (void)error_set(&err, "process_ended", 0, "the process has ended and reads nothing more");
        input_done(input, &err);
        return false;
    }
    if (size == 0) {
        bool has_failed = input->closes && proc_stdin_close(input->proc, &err) < 0;

        input_done(input, has_failed ? &err : NULL);
        return false;
    }
    input->is_writing = true;
    proc_stdin_write(input->proc, data, size, written, input);
    return false;
}

static void input_gone(void *arg)
{
    struct input *input = arg;

    input->is_gone = true;
    if (!input->is_writing)
        input_done(input, NULL);
}

static void process_ended(void *arg, struct proc *proc, const struct error *err)
{
    struct input *input = arg;

    (void)proc;
    (void)err;
    input->is_told = true;
    input->wait = NULL;
    input->proc = NULL;
}

static void stdin_found(struct job *job, struct proc *proc)
{
    struct input *input = job_own(job, sizeof(*input), input_drop);
    struct proc_wait *wait;

    if (input == NULL)
        return;
    *input = (struct input){.job = job, .proc = proc, .closes = job->number != 0, .holds = 2};
    input->native = job->native;
    input->kept.tenant = job->caller.tenant;
    /* Before a byte is taken: a client may repeat what was refused. */
    if (!native_keeps(job->native, &input->kept, STDIN_PART)) {
        input->holds = 1; /* the job's */
        job_fail_kept(job);
        return;
    }
    wait = proc_wait(proc, 0, process_ended, input);
    if (!input->is_told)
        input->wait = wait;
    if (!input->is_told && wait == NULL) {
        job_fail(job, "no_memory", "there is no memory to write to a process now");
    } else {
        http_on_gone(job->request, input_gone, input);
        http_on_body(job->request, take_part, input);
    }
    input_drop(input);
}

HANDLER(process_stdin)
{
    static const char *const known[] = {"close", NULL};
    struct job *job = job_begin_for(request, ENGINE_EXEC);
    bool closes = false;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, known) || !job_once(job, false))
        return;
    if (job_query_flag(job, "close", &closes, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    job->number = closes;
    process_find(job, stdin_found);
}
