/* What this host is, and whether it is ready: the routes that need no key, and the names of roots. */
#include "front/native/parts.h"

#include "front/native/problem.h"

/* Scripts of a page get no type to guess, and no page may embed what is here. */
static void keep_from_pages(struct http_request *request)
{
    http_add_header(request, "X-Content-Type-Options", "nosniff");
    http_add_header(request, "Cross-Origin-Resource-Policy", "same-origin");
}

static void answer_ok(struct http_request *request)
{
    static const char body[] = "{\"status\":\"ok\"}\n";

    job_answer_bytes(http_data(request), 200, "application/json", body, sizeof(body) - 1);
}

HANDLER(host_health)
{
    (void)data;
    keep_from_pages(request);
    answer_ok(request);
}

HANDLER(host_ready)
{
    struct native *native = data;
    struct error err;

    keep_from_pages(request);
    if (native->is_draining)
        (void)error_set(&err, "draining", 0, "the engine is about to end");
    else if (engine_is_ready(native->options.engine, &err)) {
        answer_ok(request);
        return;
    }
    problem_answer(native, request, 503,
                   problem_of(err.code)->status == 503 ? err.code : "not_ready", err.text, 1);
}

HANDLER(host_version)
{
    struct native *native = data;
    const struct keeper_host *host = engine_host(native->options.engine);
    struct out *out = job_out(http_data(request));

    keep_from_pages(request);
    out_object(out, NULL);
    out_text(out, "version", native->options.version);
    out_text(out, "api", "v1");
    out_text(out, "level", host != NULL ? host->level : NULL);
    out_text(out, "limits", host != NULL ? host->limits : NULL);
    out_text(out, "ids", host != NULL ? host->ids : NULL);
    out_text(out, "disk", host != NULL ? host->disk : NULL);
    out_array(out, "warnings");
    for (size_t i = 0; host != NULL && i < sizeof(host->warnings) / sizeof(host->warnings[0]); i++)
        if (host->warnings[i][0] != '\0')
            out_text(out, NULL, host->warnings[i]);
    out_array_end(out);
    out_object_end(out);
    job_answer(http_data(request), 200);
}

HANDLER(host_openapi)
{
    (void)data;
    keep_from_pages(request);
    job_answer_bytes(http_data(request), 200, "application/yaml", native_openapi,
                     native_openapi_size);
}

typedef bool print_call(void *arg, const char *name, bool is_read_only);

static bool print_name(void *arg, const char *name, bool is_read_only)
{
    (void)is_read_only;
    out_text(arg, NULL, name);
    return true;
}

static bool print_read_only(void *arg, const char *name, bool is_read_only)
{
    if (is_read_only)
        out_text(arg, NULL, name);
    return true;
}

static void print_named(struct out *out, const char *key, const struct job *job,
                        enum keeper_kind kind, print_call *print)
{
    out_array(out, key);
    engine_named_each(job->native->options.engine, &job->caller, kind, print, out);
    out_array_end(out);
}

HANDLER(host_roots)
{
    static const char *const no_query[] = {NULL};
    struct job *job = job_begin(request, ENGINE_READ);
    struct out *out;

    (void)data;
    if (job == NULL || !job_query(job, no_query))
        return;
    out = job_out(job);
    out_object(out, NULL);
    print_named(out, "roots", job, KEEPER_ROOT, print_name);
    print_named(out, "mounts", job, KEEPER_MOUNT, print_name);
    print_named(out, "mounts_read_only", job, KEEPER_MOUNT, print_read_only);
    out_object_end(out);
    job_answer(job, 200);
}
