/* Keys and quotas. What a tenant may do to whose is the engine's to say; a secret is in one answer and
 * nowhere else. */
#include "front/native/body.h"
#include "front/native/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const no_query[] = {NULL};

/* Of the audit log's line. A key is its tenant's: TENANT/KEY. */
static void note_target(struct job *job, const char *tenant, const char *key)
{
    (void)snprintf(job->target, sizeof(job->target), "%.63s%s%.24s", tenant,
                   *key != '\0' ? "/" : "", key);
}

static void made(void *arg, const struct engine_key_view *key, const char *secret,
                 const struct error *err)
{
    struct job *job = arg;
    struct out *out = job_out(job);

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    note_target(job, key->tenant, key->id);
    print_key(out, key, secret);
    http_add_header(job->request, "Cache-Control", "no-store");
    job_answer(job, 201);
    /* The buffer stays, and is used again. */
    if (out->data != NULL)
        explicit_bzero(out->data, out->capacity);
}

HANDLER(key_make)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_KEYS | ENGINE_OPERATOR);
    struct body_key body = {0};
    struct error err;

    if (job == NULL || !job_query(job, no_query) || !job_once(job, false))
        return;
    if (body_key(job_body(job), &body, &err) < 0)
        job_problem(job, &err);
    else
        engine_key_make(native->options.engine, &job->caller,
                        body.tenant != NULL ? body.tenant : job->caller.tenant, body.label,
                        body.scopes, made, job);
    read_free(&body.owner);
}

static bool print_one(void *arg, const struct engine_key_view *key)
{
    print_key(arg, key, NULL);
    return true;
}

HANDLER(key_list)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_KEYS | ENGINE_OPERATOR);
    struct out *out;

    if (job == NULL || !job_query(job, no_query))
        return;
    out = job_out(job);
    out_object(out, NULL);
    out_array(out, "keys");
    engine_key_each(native->options.engine, &job->caller, print_one, out);
    out_array_end(out);
    out_object_end(out);
    job_answer(job, 200);
}

static void answer_done(void *arg, const struct error *err)
{
    if (err != NULL)
        job_problem(arg, err);
    else
        job_answer_nothing(arg);
}

/* One that the caller may not see stays without a target. */
static bool note_key(void *arg, const struct engine_key_view *key)
{
    struct job *job = arg;

    if (strcmp(key->id, http_param(job->request, "id")) != 0)
        return true;
    note_target(job, key->tenant, key->id);
    return false;
}

HANDLER(key_end)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_KEYS | ENGINE_OPERATOR);

    if (job == NULL || !job_query(job, no_query))
        return;
    engine_key_each(native->options.engine, &job->caller, note_key, job);
    engine_key_end(native->options.engine, &job->caller, http_param(request, "id"), answer_done,
                   job);
}

/* ---- quotas ---- */

/* "-" is the caller's own. */
static const char *tenant_named(const struct job *job)
{
    const char *name = http_param(job->request, "name");

    return strcmp(name, "-") == 0 ? job->caller.tenant : name;
}

static void answer_quota(struct job *job)
{
    const char *tenant = tenant_named(job);
    struct engine_quota quota = {0};
    struct engine_quota used = {0};
    struct error err;
    struct out *out;

    if (engine_quota_get(job->native->options.engine, &job->caller, tenant, &quota, &used, &err) <
        0) {
        job_problem(job, &err);
        return;
    }
    out = job_out(job);
    out_object(out, NULL);
    out_text(out, "tenant", tenant);
    print_quota(out, "quota", &quota);
    print_quota(out, "used", &used);
    out_object_end(out);
    job_answer(job, 200);
}

static void quota_is_set(void *arg, const struct error *err)
{
    if (err != NULL)
        job_problem(arg, err);
    else
        answer_quota(arg);
}

/* The job of a request about a tenant's quota, if the tenant could be one. Whoever reads may look at its own. */
static struct job *begin_quota(struct http_request *request, bool looks)
{
    const struct job *asked = http_data(request);
    bool is_own = strcmp(tenant_named(asked), asked->caller.tenant) == 0;
    struct job *job = job_begin(request, looks && is_own ? ENGINE_READ : ENGINE_OPERATOR);

    if (job == NULL || !job_query(job, no_query))
        return NULL;
    if (body_is_tenant(looks ? tenant_named(job) : http_param(request, "name"))) {
        note_target(job, tenant_named(job), "");
        return job;
    }
    job_fail(job, "bad_request",
             "a tenant's name is 1 to 63 lower-case letters, digits, \".\", "
             "\"_\" and \"-\", and does not begin with \".\" or \"-\"");
    return NULL;
}

HANDLER(quota_get)
{
    struct job *job = begin_quota(request, true);

    (void)data;
    if (job != NULL)
        answer_quota(job);
}

HANDLER(quota_put)
{
    struct native *native = data;
    struct job *job = begin_quota(request, false);
    struct engine_quota quota;
    struct error err;

    if (job == NULL)
        return;
    if (body_quota(job_body(job), &quota, &err) < 0)
        job_problem(job, &err);
    else
        engine_quota_set(native->options.engine, &job->caller, http_param(request, "name"), &quota,
                         quota_is_set, job);
}
