/* Mounts of a sandbox that is there: added, removed. The sandbox itself shows them. */
#include "front/native/body.h"
#include "front/native/parts.h"

#include <string.h>

HANDLER(mount_add)
{
    static const char *const no_query[] = {NULL};
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct keeper_mount mount;
    struct error err;

    if (job == NULL || !job_query(job, no_query) || !job_once(job, true))
        return;
    if (body_mount(job_body(job), &mount, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    http_body_done(request);
    engine_mount(native->options.engine, &job->caller, http_param(request, "id"), &mount,
                 sandbox_answer, job);
}

static void unmounted(void *arg, const struct sandbox_view *view, const struct error *err)
{
    (void)view;
    if (err != NULL)
        job_problem(arg, err);
    else
        job_answer_nothing(arg);
}

HANDLER(mount_remove)
{
    static const char *const known[] = {"target", NULL};
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);
    const char *target = http_query(request, "target");

    if (job == NULL || !job_query(job, known))
        return;
    if (target == NULL || strlen(target) >= KEEPER_TARGET_MAX)
        job_fail(job, "bad_request",
                 "query parameter \"target\" must be the path where something is mounted");
    else
        engine_unmount(native->options.engine, &job->caller, http_param(request, "id"), target,
                       unmounted, job);
}
