/* What a sandbox uses, and what the host has left. */
#include "front/native/parts.h"

static void number_or_null(struct out *out, const char *key, bool is_known, uint64_t number)
{
    if (is_known)
        out_number(out, key, number);
    else
        out_null(out, key);
}

static void answer_usage(void *arg, const struct sandbox_usage *usage, const struct error *err)
{
    struct job *job = arg;
    struct out *out;

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    out = job_out(job);
    out_object(out, NULL);
    out_text(out, "state", sandbox_state_name(usage->state));
    number_or_null(out, "cpu_ns", usage->is_known, usage->cpu_ns);
    number_or_null(out, "memory_bytes", usage->is_known, usage->memory_bytes);
    number_or_null(out, "peak_memory_bytes", usage->is_known, usage->peak_memory_bytes);
    number_or_null(out, "disk_bytes", usage->disk_bytes != UINT64_MAX, usage->disk_bytes);
    out_object_end(out);
    job_answer(job, 200);
}

HANDLER(usage_get)
{
    static const char *const no_query[] = {NULL};
    struct native *native = data;
    struct job *job = job_begin_for(request, ENGINE_LOOK);

    if (job != NULL && job_query(job, no_query))
        engine_usage(native->options.engine, &job->caller, http_param(request, "id"), answer_usage,
                     job);
}

HANDLER(capacity_get)
{
    static const char *const no_query[] = {NULL};
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_OPERATOR);
    struct engine_capacity capacity;
    struct error err;
    struct out *out;

    if (job == NULL || !job_query(job, no_query))
        return;
    if (engine_capacity(native->options.engine, &job->caller, &capacity, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    out = job_out(job);
    out_object(out, NULL);
    number_or_null(out, "memory_available_bytes", capacity.memory_available != UINT64_MAX,
                   capacity.memory_available);
    number_or_null(out, "disk_bytes", capacity.disk_bytes != UINT64_MAX, capacity.disk_bytes);
    number_or_null(out, "disk_available_bytes", capacity.disk_available != UINT64_MAX,
                   capacity.disk_available);
    out_object_end(out);
    job_answer(job, 200);
}
