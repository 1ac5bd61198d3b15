/* /v1/sandboxes: made, listed, looked at, changed, started, stopped, deleted. */
#include "front/native/body.h"
#include "front/native/parts.h"

#include "base/clock.h"
#include "base/parse.h"
#include "base/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_DEFAULT 100
#define LIST_MAX 1000
#define LIST_BYTES (1U << 20)
#define FILTER_LABELS_MAX 16

static const char *const no_query[] = {NULL};

/* ---- one sandbox ---- */

static void add_revision(struct job *job, const struct sandbox_view *view)
{
    char tag[32];

    (void)snprintf(tag, sizeof(tag), "\"%llu\"", (unsigned long long)view->revision);
    http_add_header(job->request, "ETag", tag);
}

void sandbox_answer(void *arg, const struct sandbox_view *view, const struct error *err)
{
    struct job *job = arg;

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    add_revision(job, view);
    print_sandbox(job_out(job), NULL, view, NULL);
    job_answer(job, 200);
}

static void created(void *arg, const struct sandbox_view *view, bool is_new,
                    const struct error *err)
{
    struct job *job = arg;
    char location[64];

    if (err != NULL) {
        job_problem(job, err);
        return;
    }
    add_revision(job, view);
    if (is_new && view->boxed_ns > view->begun_ns) {
        uint64_t boxed_ns = job_wall_ns(view->boxed_ns);

        job_step(job, "keeper", job_wall_ns(view->begun_ns), boxed_ns);
        job_step(job, "commit", boxed_ns, job_wall_ns(clock_monotonic_ns()));
    }
    (void)snprintf(job->sandbox, sizeof(job->sandbox), "%s", view->id);
    (void)snprintf(location, sizeof(location), "/v1/sandboxes/%s", view->id);
    print_sandbox(job_out(job), NULL, view, &is_new);
    job_answer_made(job, is_new ? 201 : 200, location);
}

static void free_sandbox_body(void *data)
{
    struct body_sandbox *body = data;

    read_free(&body->owner);
    free(body);
}

/* ---- a create without a name that is repeated after a restart ----
 *
 * What was answered is forgotten with the process, but the sandbox is there. So it has a name that no
 * client can give, and none is shown: of the key, the body and the time. */

#define ONCE_NAME BODY_OUR_NAMES "once:"
#define ONCE_NAME_SIZE (sizeof(ONCE_NAME) + (size_t)2 * SHA256_TEXT + 32)

static void hash_text(const void *data, size_t size, char text[SHA256_TEXT])
{
    struct sha256 hash;

    sha256_begin(&hash);
    sha256_add(&hash, data, size);
    sha256_end(&hash, text);
}

struct earlier {
    const char *name; /* without the time */
    uint64_t now_ms;
    bool is_there, is_same;
    char id[64];
};

static bool look_at_earlier(void *arg, const struct sandbox_view *view)
{
    struct earlier *earlier = arg;

    if (view->created_ms + ONCE_KEEP_MS <= earlier->now_ms)
        return true;
    earlier->is_there = true;
    earlier->is_same = strncmp(view->name, earlier->name, strlen(earlier->name)) == 0;
    (void)snprintf(earlier->id, sizeof(earlier->id), "%s", view->id);
    return false;
}

static int find_earlier(const struct job *job, struct earlier *earlier, struct error *err)
{
    struct engine_caller reader = job->caller;
    struct sandbox_filter filter = {.state = NULL};
    char prefix[sizeof(ONCE_NAME) + SHA256_TEXT];
    char next[64];

    /* It is about what this caller made. */
    reader.scopes |= ENGINE_READ;
    /* Up to the body: this array ends where that begins. */
    (void)snprintf(prefix, sizeof(prefix), "%s", earlier->name);
    filter.name_prefix = prefix;
    return engine_list(job->native->options.engine, &reader, &filter, NULL, LIST_MAX,
                       look_at_earlier, earlier, next, err);
}

static void answer_earlier(struct job *job, const struct earlier *earlier)
{
    struct engine_caller reader = job->caller;
    struct sandbox_view view;
    struct error err;

    reader.scopes |= ENGINE_READ;
    if (!earlier->is_same) {
        job_fail(job, "idempotency_conflict",
                 "this Idempotency-Key was used for a request with another body");
        return;
    }
    if (engine_look(job->native->options.engine, &reader, earlier->id, &view, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    http_add_header(job->request, "Idempotent-Replayed", "true");
    created(job, &view, true, NULL);
}

/* False: it was made before, and is answered. */
static bool name_after_key(struct job *job, struct body_sandbox *body)
{
    const char *key = http_header(job->request, "Idempotency-Key");
    struct earlier earlier = {.now_ms = job_wall_ms()};
    char of_key[SHA256_TEXT], of_body[SHA256_TEXT];
    struct error err;
    char *name;

    if (key == NULL || body->spec.name != NULL)
        return true;
    hash_text(key, strlen(key), of_key);
    job_body_hash(job, of_body);
    name = read_room(&body->owner, ONCE_NAME_SIZE);
    if (name == NULL)
        return true;
    (void)snprintf(name, ONCE_NAME_SIZE, ONCE_NAME "%s:%s:", of_key, of_body);
    earlier.name = name;
    if (find_earlier(job, &earlier, &err) < 0) {
        job_problem(job, &err);
        return false;
    }
    if (earlier.is_there) {
        answer_earlier(job, &earlier);
        return false;
    }
    (void)snprintf(name + strlen(name), ONCE_NAME_SIZE - strlen(name), "%llx",
                   (unsigned long long)earlier.now_ms);
    body->spec.name = name;
    return true;
}

/* A repetition of its key finds the sandbox, so such a create keeps its place. */
static void client_gone(void *arg)
{
    struct job *job = arg;

    if (job->once == NULL)
        engine_create_leave(job->native->options.engine, job);
}

HANDLER(sandbox_create)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct body_sandbox *body;
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    body = job_own(job, sizeof(*body), free_sandbox_body);
    if (body == NULL)
        return;
    if (body_sandbox(job_body(job), job_wall_ms(), body, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    if (!job_once(job, true) || !name_after_key(job, body))
        return;
    http_body_done(request);
    http_on_gone(request, client_gone, job);
    engine_create(native->options.engine, &job->caller, &body->spec, created, job);
}

HANDLER(sandbox_get)
{
    struct native *native = data;
    struct job *job = job_begin_for(request, ENGINE_LOOK);
    struct sandbox_view view;
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    if (engine_look(native->options.engine, &job->caller, http_param(request, "id"), &view, &err) <
        0)
        job_problem(job, &err);
    else
        sandbox_answer(job, &view, NULL);
}

/* "12", as the body says it, or "\"12\"", as ETag does; "*" is whatever it is. */
static int read_if_match(struct http_request *request, uint64_t *revision, struct error *err)
{
    const char *text = http_header(request, "If-Match");
    char number[24];
    size_t length;

    *revision = 0;
    if (text == NULL || strcmp(text, "*") == 0)
        return 0;
    length = strlen(text);
    if (length >= 2 && text[0] == '"' && text[length - 1] == '"') {
        text++;
        length -= 2;
    }
    (void)snprintf(number, sizeof(number), "%.*s", (int)(length < 23 ? length : 23), text);
    if (parse_count("header \"If-Match\"", number, 1, UINT64_MAX, revision, err) == 0)
        return 0;
    (void)snprintf(err->code, sizeof(err->code), "bad_request");
    return -1;
}

HANDLER(sandbox_patch)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct body_change body = {0};
    uint64_t revision;
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return;
    if (body_change(job_body(job), job_wall_ms(), &body, &err) < 0 ||
        read_if_match(request, &revision, &err) < 0) {
        job_problem(job, &err);
    } else {
        /* The change is copied by the engine before it returns. */
        body.change.if_revision = revision;
        http_body_done(request);
        engine_change_sandbox(native->options.engine, &job->caller, http_param(request, "id"),
                              &body.change, sandbox_answer, job);
    }
    read_free(&body.owner);
}

static void deleted(void *arg, const struct error *err)
{
    if (err != NULL && strcmp(err->code, "sandbox_gone") != 0)
        job_problem(arg, err);
    else
        job_answer_nothing(arg);
}

HANDLER(sandbox_delete)
{
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_WRITE);

    if (job != NULL && job_query(job, no_query))
        engine_delete_sandbox(native->options.engine, &job->caller, http_param(request, "id"),
                              deleted, job);
}

/* For a request that says all by its path: nothing but {} may be in it. */
static struct job *begin_plain(struct http_request *request)
{
    struct job *job = job_begin_for(request, ENGINE_LIFE);
    struct error err;

    if (job == NULL || !job_query(job, no_query))
        return NULL;
    if (body_none(job_body(job), &err) < 0) {
        job_problem(job, &err);
        return NULL;
    }
    if (!job_once(job, true))
        return NULL;
    http_body_done(request);
    return job;
}

HANDLER(sandbox_start)
{
    struct native *native = data;
    struct job *job = begin_plain(request);

    if (job != NULL)
        engine_start_sandbox(native->options.engine, &job->caller, http_param(request, "id"),
                             sandbox_answer, job);
}

HANDLER(sandbox_stop)
{
    struct native *native = data;
    struct job *job = begin_plain(request);

    if (job != NULL)
        engine_stop_sandbox(native->options.engine, &job->caller, http_param(request, "id"),
                            sandbox_answer, job);
}

/* ---- the list ---- */

/* A page has an end in bytes, too: labels and environments may be large. */
static bool print_one(void *arg, const struct sandbox_view *view)
{
    struct out *out = arg;

    print_sandbox(out, NULL, view, NULL);
    return !out->has_failed && out->used < LIST_BYTES;
}

struct list_query {
    struct sandbox_filter filter;
    const char *labels[FILTER_LABELS_MAX + 1];
    const char *cursor;
    uint64_t limit;
};

static int read_labels(const struct job *job, struct list_query *query, struct error *err)
{
    const char *name, *value;
    size_t used = 0;

    for (size_t i = 0; http_query_at(job->request, i, &name, &value); i++) {
        if (strcmp(name, "label") != 0)
            continue;
        if (strchr(value, '=') == NULL || value[0] == '=')
            return error_set(err, "bad_request", 0, "query parameter \"label\" must be KEY=VALUE");
        if (used == FILTER_LABELS_MAX)
            return error_set(err, "bad_request", 0,
                             "query parameter \"label\" may be there %d times", FILTER_LABELS_MAX);
        query->labels[used++] = value;
    }
    query->filter.labels = used > 0 ? query->labels : NULL;
    return 0;
}

static int read_list_query(const struct job *job, struct list_query *query, struct error *err)
{
    static const char *const states[] = {"creating", "running", "paused", "stopped",
                                         "archived", "error",   NULL};
    int state = 0;

    query->limit = LIST_DEFAULT;
    query->cursor = http_query(job->request, "cursor");
    query->filter.state = http_query(job->request, "state");
    query->filter.name_prefix = http_query(job->request, "name_prefix");
    if (job_query_word(job, "state", states, &state, err) < 0 ||
        job_query_count(job, "limit", 1, LIST_MAX, &query->limit, err) < 0 ||
        job_query_flag(job, "all_tenants", &query->filter.all_tenants, err) < 0)
        return -1;
    if (query->filter.all_tenants && (job->caller.scopes & ENGINE_OPERATOR) == 0)
        return error_set(err, "forbidden", 0,
                         "the list of all tenants needs the scope \"operator\"");
    if (query->cursor != NULL && query->cursor[0] == '\0')
        query->cursor = NULL;
    return read_labels(job, query, err);
}

HANDLER(sandbox_list)
{
    static const char *const known[] = {"state",  "name_prefix", "label", "limit",
                                        "cursor", "all_tenants", NULL};
    struct native *native = data;
    struct job *job = job_begin(request, ENGINE_READ);
    struct list_query query = {.cursor = NULL};
    char next[64] = "";
    struct error err;
    struct out *out;

    if (job == NULL || !job_query(job, known))
        return;
    if (read_list_query(job, &query, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    out = job_out(job);
    out_object(out, NULL);
    out_array(out, "sandboxes");
    if (engine_list(native->options.engine, &job->caller, &query.filter, query.cursor,
                    (size_t)query.limit, print_one, out, next, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    out_array_end(out);
    out_text(out, "next", next[0] != '\0' ? next : NULL);
    out_object_end(out);
    job_answer(job, 200);
}
