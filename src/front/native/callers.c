/* Whoever stays may lose his right meanwhile: a key ends, a token is revoked or its time is over. So the
 * callers of all requests under way are looked at again each second, and who may ask no more is shown out:
 * streams, waits, uploads and downloads are cut, WebSockets are told why.
 *
 * It is one place for all routes, so that none can forget it. The engine's owner on its socket has no key
 * that could end; who sees a port that is public may do so as long as it is. Whatever is carried to a port ends
 * with the box. What is short is answered, as it was begun by right; what is not is noted in the audit log while it
 * lasts. */
#include "front/native/parts.h"

#include <stdlib.h>
#include <string.h>

#define TICK_MS 1000

static bool lives(struct engine *engine, struct engine_caller *caller)
{
    if (strcmp(caller->key_id, "socket") == 0)
        return true;
    return engine_caller_lives(engine, caller);
}

/* Why it is shown out; NULL: it is not. */
static const char *ended(struct job *job)
{
    struct engine *engine = job->native->options.engine;

    if (!lives(engine, &job->caller))
        return job->caller.sandbox[0] != '\0' ? "the token has ended" : "the key has ended";
    /* A client that keeps its half open would keep the network of a box that is no more. */
    if (job->reached_box != 0 && engine_port_box(engine, job->own_id) != job->reached_box)
        return "the sandbox has ended";
    return NULL;
}

static void tick(uv_timer_t *timer)
{
    struct native *native = timer->data;

    /* Nobody is gone before the loop's next turn, so the list stays as it is. */
    for (struct job *job = native->called; job != NULL; job = job->next_called) {
        const char *reason = ended(job);

        account_linger(job);
        metrics_moved(native, job);
        if (reason != NULL)
            http_expel(job->request, reason);
    }
    if (native->called == NULL)
        (void)uv_timer_stop(timer);
}

/* Made when it is needed first. */
static bool make_timer(struct native *native)
{
    if (native->calls != NULL)
        return true;
    native->calls = malloc(sizeof(*native->calls));
    if (native->calls == NULL)
        return false;
    (void)uv_timer_init(native->options.loop, native->calls);
    native->calls->data = native;
    uv_unref((uv_handle_t *)native->calls);
    return true;
}

void callers_end_with(struct job *job, struct proc *proc)
{
    struct error ignored; /* it has ended */

    if (!lives(job->native->options.engine, &job->caller))
        (void)proc_kill(proc, &ignored);
}

bool callers_add(struct job *job)
{
    struct native *native = job->native;

    if (!make_timer(native))
        return false;
    job->next_called = native->called;
    if (job->next_called != NULL)
        job->next_called->previous_called = job;
    native->called = job;
    job->is_called = true;
    if (!uv_is_active((uv_handle_t *)native->calls))
        (void)uv_timer_start(native->calls, tick, TICK_MS, TICK_MS);
    return true;
}

void callers_remove(struct job *job)
{
    struct native *native = job->native;

    if (!job->is_called)
        return;
    *(job->previous_called != NULL ? &job->previous_called->next_called
                                   : &native->called) = job->next_called;
    if (job->next_called != NULL)
        job->next_called->previous_called = job->previous_called;
    job->is_called = false;
}

static void closed(uv_handle_t *handle)
{
    free(handle);
}

void callers_close(struct native *native)
{
    if (native->calls != NULL)
        uv_close((uv_handle_t *)native->calls, closed);
    native->calls = NULL;
}
