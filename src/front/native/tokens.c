/* Tokens of one sandbox, and URLs that are signed with one. What may be lent is the engine's to say; the
 * text of a token is in one answer and nowhere else. */
#include "front/native/body.h"
#include "front/native/parts.h"

#include <stdio.h>
#include <string.h>

static const char *const no_query[] = {NULL};

/* Printed, sent, and wiped: the buffer stays, and is used again. */
static void answer_secret(struct job *job)
{
    struct out *out = &job->native->out;

    http_add_header(job->request, "Cache-Control", "no-store");
    job_answer(job, 201);
    if (out->data != NULL)
        explicit_bzero(out->data, out->capacity);
}

static int make(struct job *job, const struct engine_token_spec *spec, struct engine_token *token)
{
    struct error err;

    if (engine_token_make(job->native->options.engine, &job->caller, http_param(job->request, "id"),
                          spec, token, &err) == 0)
        return 0;
    job_problem(job, &err);
    return -1;
}

static void print_token(struct out *out, const struct engine_token_spec *spec,
                        const struct engine_token *token)
{
    out_object(out, NULL);
    out_text(out, "id", token->id);
    out_text(out, "token", token->text);
    out_text(out, "sandbox", token->sandbox);
    out_array(out, "verbs");
    for (size_t i = 0; body_verbs[i] != NULL; i++)
        if ((spec->verbs & 1U << i) != 0)
            out_text(out, NULL, body_verbs[i]);
    out_array_end(out);
    out_text(out, "path", spec->path);
    if (spec->port > 0)
        out_number(out, "port", spec->port);
    else
        out_null(out, "port");
    out_time(out, "expires_at", token->expires_ms);
    out_object_end(out);
}

HANDLER(token_make)
{
    struct job *job = job_begin(request, ENGINE_READ | ENGINE_WRITE);
    struct engine_token token;
    struct body_token body;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, no_query) || !job_once(job, false))
        return;
    if (body_token(job_body(job), &body, &err) < 0) {
        job_problem(job, &err);
    } else if (make(job, &body.spec, &token) == 0) {
        print_token(job_out(job), &body.spec, &token);
        answer_secret(job);
    }
    explicit_bzero(&token, sizeof(token));
    read_free(&body.owner);
}

/* ---- signed URLs ---- */

/* Percent-encoded as a value of a query; room for three of each. */
static void encode(const char *text, char *into)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || strchr("-._~/", c) != NULL;

        into += snprintf(into, 4, is_plain ? "%c" : "%%%02X", c);
    }
    *into = '\0';
}

/* As the caller called this server, if he did by a name: on the unix socket Host means nothing. */
static void print_origin(const struct job *job, char *into, size_t size)
{
    const char *host = http_header(job->request, "Host");

    if (http_peer(job->request)->is_unix || host == NULL)
        *into = '\0';
    else
        (void)snprintf(into, size, "http%s://%s", job_is_tls(job) ? "s" : "", host);
}

static void print_url(struct job *job, const struct engine_token_spec *spec,
                      const struct engine_token *token)
{
    char origin[512], path[3 * ENGINE_TOKEN_PATH_MAX];
    char url[sizeof(origin) + sizeof(path) + ENGINE_TOKEN_TEXT_MAX + 128];
    struct out *out = job_out(job);

    print_origin(job, origin, sizeof(origin));
    encode(spec->path, path);
    (void)snprintf(url, sizeof(url), "%s/v1/sandboxes/%s/files?path=%s&token=%s", origin,
                   token->sandbox, path, token->text);
    out_object(out, NULL);
    out_text(out, "id", token->id);
    out_text(out, "url", url);
    out_text(out, "method", spec->method);
    out_text(out, "path", spec->path);
    out_time(out, "expires_at", token->expires_ms);
    out_object_end(out);
    explicit_bzero(url, sizeof(url));
}

HANDLER(token_sign)
{
    struct job *job = job_begin(request, ENGINE_READ | ENGINE_WRITE);
    struct engine_token token;
    struct body_token body;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, no_query) || !job_once(job, false))
        return;
    if (body_url(job_body(job), &body, &err) < 0) {
        job_problem(job, &err);
    } else if (make(job, &body.spec, &token) == 0) {
        print_url(job, &body.spec, &token);
        answer_secret(job);
    }
    explicit_bzero(&token, sizeof(token));
    read_free(&body.owner);
}

/* ---- their end ---- */

static void ended(void *arg, const struct sandbox_view *view, const struct error *err)
{
    (void)view;
    if (err != NULL)
        job_problem(arg, err);
    else
        job_answer_nothing(arg);
}

HANDLER(tokens_end)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);

    if (job != NULL && job_query(job, no_query))
        engine_tokens_end(native->options.engine, &job->caller, http_param(request, "id"), ended,
                          job);
}
