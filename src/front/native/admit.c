/* Who may ask: before anything else is looked at, by Host, Origin, key or peer, and rate.
 *
 * A page of any origin and a name that somebody else made point here get nothing. A secret is compared
 * by the engine and never printed. Where something is missing or odd the answer is no. */
#include "front/native/origin.h"
#include "front/native/parts.h"
#include "front/native/problem.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FILES "/v1/sandboxes/{id}/files"

/* For the unix socket any Host will do, for nothing but a program can connect there; but not if it says
 * that it speaks for a page. */
static bool host_is_fine(const struct native *native, const struct http_request *request)
{
    const char *host = http_header(request, "Host");
    bool is_page = http_header(request, "Origin") != NULL;

    if (http_peer(request)->is_unix && !is_page)
        return true;
    return origin_host_is_known(host, (const char *const *)native->hosts);
}

static bool origin_is_fine(const struct http_request *request)
{
    const char *origin = http_header(request, "Origin");

    if (!origin_fetch_is_ours(http_header(request, "Sec-Fetch-Site")))
        return false;
    return origin == NULL || origin_is_host(origin, http_header(request, "Host"));
}

/* Where a token may stand in the URL: what browsers and tools load without headers of their own. */
static bool takes_url_token(const struct http_request *request)
{
    static const char *const patterns[] = {FILES, "/v1/sandboxes/{id}/tar",
                                           "/v1/sandboxes/{id}/processes/{pid}/terminal"};
    const char *pattern = http_pattern(request), *method = http_method(request);

    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0 && strcmp(method, "PUT") != 0)
        return false;
    for (size_t i = 0; pattern != NULL && i < sizeof(patterns) / sizeof(patterns[0]); i++)
        if (strcmp(pattern, patterns[i]) == 0)
            return true;
    return false;
}

/* Of "Authorization: Bearer KEY" or "X-API-Key: KEY"; NULL: none. Another scheme is an empty key, which is wrong. */
static const char *secret_in_header(const struct http_request *request)
{
    const char *authorization = http_header(request, "Authorization");

    if (authorization == NULL)
        return http_header(request, "X-API-Key");
    if (strncasecmp(authorization, "Bearer ", 7) != 0)
        return "";
    return authorization + 7 + strspn(authorization + 7, " ");
}

/* The same, or the query's token. */
static const char *secret_of(struct job *job)
{
    const struct http_request *request = job->request;
    const char *secret = secret_in_header(request);

    if (secret != NULL)
        return secret;
    job->has_url_token = takes_url_token(request) && http_query(request, "token") != NULL;
    return job->has_url_token ? http_query(request, "token") : NULL;
}

/* Only what it was signed for, and nothing that changes what that means. */
static int signed_may(const struct job *job, struct error *err)
{
    const struct engine_caller *caller = &job->caller;
    const char *method = http_method(job->request), *pattern = http_pattern(job->request);
    const char *path = http_query(job->request, "path"), *name, *value;
    bool is_same = pattern != NULL && strcmp(pattern, FILES) == 0 && path != NULL &&
                   strcmp(path, caller->signed_path) == 0;

    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    is_same = is_same && strcmp(method, caller->method) == 0;
    for (size_t i = 0; is_same && http_query_at(job->request, i, &name, &value); i++)
        is_same = strcmp(name, "path") == 0 || strcmp(name, "token") == 0;
    if (is_same)
        return 0;
    return error_set(err, "forbidden", 0, "this URL was signed for %s of one file and nothing else",
                     caller->method);
}

static bool peer_may(const struct native *native, const struct http_peer *peer)
{
    return peer->is_unix && (peer->uid == 0 || peer->uid == native->options.owner);
}

/* A key says who it is, also on the unix socket: there one may want to be less than all. */
static int find_caller(struct job *job, struct error *err)
{
    const struct http_peer *peer = http_peer(job->request);
    const char *secret = secret_of(job);

    /* A key would stand in the logs of every proxy on the way. */
    if (job->has_url_token && !engine_is_token(secret))
        return error_set(err, "bad_key", 0, "a URL takes tokens only; send a key in a header");
    if (secret != NULL &&
        engine_key_check(job->native->options.engine, secret, &job->caller, err) < 0)
        return -1;
    if (secret != NULL)
        return job->caller.method[0] != '\0' ? signed_may(job, err) : 0;
    if (peer->is_unix && !peer_may(job->native, peer))
        return error_set(
            err, "forbidden", 0,
            "user %u may not use this socket without a key, as its owner and root may; "
            "send one (cove does with COVE_API_KEY)",
            (unsigned)peer->uid);
    if (!peer->is_unix)
        return ports_take_public(job) ? 0 : error_set(err, "bad_key", 0, "the request has no key");
    (void)snprintf(job->caller.tenant, sizeof(job->caller.tenant), "default");
    (void)snprintf(job->caller.key_id, sizeof(job->caller.key_id), "socket");
    job->caller.scopes = ENGINE_ALL;
    return 0;
}

static void refuse_rate(struct job *job, unsigned retry_ms, const struct error *err)
{
    const struct problem *problem = problem_of(err->code);

    problem_answer(job->native, job->request, problem->status, problem->code, err->text,
                   retry_ms / 1000 + 1);
}

void admit_refuse(struct http_request *request, unsigned status, const char *code,
                  const char *detail, void *data)
{
    problem_answer(data, request, status, code, detail, problem_of(code)->retry_after_s);
}

static bool refuse(struct native *native, struct http_request *request, const char *code,
                   const char *detail)
{
    admit_refuse(request, problem_of(code)->status, code, detail, native);
    return false;
}

/* When there is no memory for more, anybody may ask for what ends something or says how things are; and an operator,
 * who looks for the cause, for anything. */
bool admit_memory_is_left(struct job *job)
{
    struct error err;

    if ((job->caller.scopes & ENGINE_OPERATOR) != 0 ||
        strcmp(http_method(job->request), "DELETE") == 0 ||
        strcmp(http_path(job->request), "/metrics") == 0 ||
        engine_memory_check(job->native->options.engine, &err) == 0)
        return true;
    job_problem(job, &err);
    return false;
}

bool admit_caller(struct job *job)
{
    /* What is public anybody may ask for: that must not use up what the tenant may ask. */
    bool is_public = strcmp(job->caller.key_id, ENGINE_PUBLIC) == 0;
    unsigned retry_ms = 0;
    struct error err;

    if (!http_lane(job->request, job->caller.tenant, is_public)) {
        job_fail(
            job, "too_many_requests",
            "the tenant has too many requests under way: as many as connections are left for all "
            "others; end some, or ask again later");
        return false;
    }
    if (!is_public && engine_rate(job->native->options.engine, &job->caller, &retry_ms, &err) < 0) {
        refuse_rate(job, retry_ms, &err);
        return false;
    }
    if (!admit_memory_is_left(job))
        return false;
    if (callers_add(job))
        return true;
    job_fail(job, "capacity", "there is no memory for this request now");
    return false;
}

bool admit_find_owner(const struct http_request *request, char *name, size_t size, void *data)
{
    struct native *native = data;
    const char *secret = secret_in_header(request);
    struct engine_caller caller;
    struct error err;

    if (secret == NULL || engine_key_check(native->options.engine, secret, &caller, &err) < 0)
        return false;
    (void)snprintf(name, size, "%s", caller.tenant);
    return true;
}

bool admit_request(struct http_request *request, void *data)
{
    struct native *native = data;
    const char *path = http_path(request);
    struct job *job;
    struct error err;

    if (job_new(native, request, &job) < 0)
        return refuse(native, request, "capacity", "there is no memory for this request now");
    if (ports_take_host(job))
        return false;
    /* It says nothing, and probes ask for it by whatever address they know. */
    if (strcmp(path, "/healthz") != 0 && !host_is_fine(native, request))
        return refuse(native, request, "forbidden_host", "the Host header is not allowed");
    if (!origin_is_fine(request))
        return refuse(native, request, "forbidden_origin",
                      "the request comes from a page of another origin");
    if (routes_path_is_open(path))
        return true;
    if (find_caller(job, &err) < 0) {
        job_problem(job, &err);
        return false;
    }
    return admit_caller(job);
}
