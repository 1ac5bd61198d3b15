/* Runs over a WebSocket, whose code may call tools: functions of the client.
 *
 * One JSON object in each text frame. Who connects names his runs, and hears of each what it calls and how it ended;
 * calls are answered in any order. When he goes away his runs are stopped. What waits to be read by him is bounded:
 * beyond that tools fail and he is not heard, and then he is cut off. */
#include "front/native/kernels.h"

#include "base/clock.h"
#include "front/native/parts.h"
#include "front/native/text.h"

#include "kernel/meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define MESSAGE_BYTES (4U << 20)
#define RUNS_MOST 64U
#define SEND_BYTES (256U << 10) /* so much may wait in the socket */
#define CALLS_BYTES \
    (8U << 20) /* beyond so much of ours, tools are not called, and nothing is heard */
#define TOLD_MAX \
    (256U << 20) /* bytes that wait for all clients; a tenant's share is more than one result */
#define DEPTH_MAX 1000U /* of an answer's JSON, as of what text_is_json() takes */
#define RUN_ID_SIZE 65
#define KERNEL_ID_SHOWN 24
#define CLOSE_AWAY 1001
#define CLOSE_SLOW 1008

struct frame {
    TAILQ_ENTRY(frame) next;
    size_t size;
    char text[];
};

struct connection;
struct client_run {
    TAILQ_ENTRY(client_run) next;
    struct connection *connection;
    struct kernel_run *run;
    char id[RUN_ID_SIZE], kernel[KERNEL_ID_SHOWN]; /* kernel: or empty */
    uint64_t began_ns;
};

struct connection {
    struct job *job;
    TAILQ_HEAD(frames, frame) frames; /* that the socket has no room for */
    TAILQ_HEAD(client_runs, client_run) runs;
    size_t queued, waiting; /* bytes: in `frames`, in the socket */
    struct hold hold;       /* of what waits */
    unsigned runs_count;
    bool is_over;
};

/* What is kept for it, with so much more. What its socket may always have is not counted: nothing tells of the end of
 * that. */
static bool keep(struct connection *connection, size_t more)
{
    size_t waiting = connection->waiting > SEND_BYTES ? connection->waiting : 0;

    return hold_resize(&connection->job->native->told, &connection->hold,
                       connection->queued + waiting + more, TOLD_MAX);
}

static void frames_free(struct connection *connection)
{
    while (!TAILQ_EMPTY(&connection->frames)) {
        struct frame *frame = TAILQ_FIRST(&connection->frames);

        TAILQ_REMOVE(&connection->frames, frame, next);
        free(frame);
    }
    connection->queued = 0;
    (void)keep(connection, 0);
}

static void connection_free(void *data)
{
    struct connection *connection = data;

    connection->waiting = 0;
    frames_free(connection);
    free(connection);
}

static void run_remove(struct client_run *run)
{
    TAILQ_REMOVE(&run->connection->runs, run, next);
    run->connection->runs_count--;
    free(run);
}

/* Nothing more is sent or heard. */
static void leave(struct connection *connection)
{
    connection->is_over = true;
    while (!TAILQ_EMPTY(&connection->runs)) {
        struct client_run *run = TAILQ_FIRST(&connection->runs);

        engine_kernel_leave(run->run);
        account_run(connection->job, run->kernel, "left", NULL, run->began_ns);
        run_remove(run);
    }
    frames_free(connection);
}

static void hang_up(struct connection *connection, unsigned code, const char *reason)
{
    if (connection->is_over)
        return;
    leave(connection);
    http_websocket_close(connection->job->request, code, reason);
}

static void cut(struct job *job)
{
    hang_up(job->own, CLOSE_AWAY, "the engine is about to restart, and kernels end with it");
}

/* ---- out ---- */

static void pump(struct connection *connection)
{
    while (!connection->is_over && connection->waiting <= SEND_BYTES &&
           !TAILQ_EMPTY(&connection->frames)) {
        struct frame *frame = TAILQ_FIRST(&connection->frames);

        TAILQ_REMOVE(&connection->frames, frame, next);
        connection->queued -= frame->size;
        connection->waiting = http_websocket_send(connection->job->request, true, frame->text,
                                                  frame->size);
        free(frame);
    }
    (void)keep(connection, 0);
}

static void drained(void *arg)
{
    struct connection *connection = arg;

    connection->waiting = 0;
    pump(connection);
    if (!connection->is_over && connection->queued <= CALLS_BYTES)
        http_websocket_resume(connection->job->request);
}

static struct out *say(struct connection *connection, const char *type, const char *run)
{
    struct out *out = job_out(connection->job);

    out_object(out, NULL);
    out_text(out, "type", type);
    out_text(out, "run", run);
    return out;
}

static void said(struct connection *connection, struct out *out)
{
    struct frame *frame;
    bool is_next, is_kept;

    out_object_end(out);
    if (connection->is_over)
        return;
    is_next = TAILQ_EMPTY(&connection->frames) && connection->waiting <= SEND_BYTES;
    is_kept = !out->has_failed && keep(connection, out->used);
    if (is_kept && is_next) {
        connection->waiting = http_websocket_send(connection->job->request, true, out->data,
                                                  out->used);
        (void)keep(connection, 0);
        return;
    }
    frame = is_kept ? malloc(sizeof(*frame) + out->used) : NULL;
    if (frame == NULL) {
        hang_up(connection, CLOSE_SLOW, "more waits for this client than can be kept");
        return;
    }
    frame->size = out->used;
    memcpy(frame->text, out->data, out->used);
    TAILQ_INSERT_TAIL(&connection->frames, frame, next);
    connection->queued += frame->size;
}

static void say_error(struct connection *connection, const char *run, const struct error *err)
{
    struct out *out = say(connection, "error", run);

    out_text(out, "code", err->code);
    out_text(out, "detail", err->text);
    said(connection, out);
}

/* ---- runs ---- */

static void run_ended(void *arg, const struct kernel_result *result, const struct error *err)
{
    struct client_run *run = arg;
    struct connection *connection = run->connection;
    char id[RUN_ID_SIZE];
    struct out *out;

    memcpy(id, run->id, sizeof(id));
    account_run(connection->job, run->kernel, result != NULL ? kernel_end_name(result->end) : NULL,
                err != NULL ? err->code : NULL, run->began_ns);
    run_remove(run);
    if (err != NULL) {
        say_error(connection, id, err);
        return;
    }
    out = say(connection, "done", id);
    print_kernel_result(out, "result", result);
    said(connection, out);
}

static void refuse_call(struct client_run *run, uint32_t call, const char *why)
{
    struct error ignored;

    (void)engine_kernel_settle_error(run->run, call, why, &ignored);
}

static void tool_called(void *arg, uint32_t call, const char *name, struct kernel_text args)
{
    struct client_run *run = arg;
    struct connection *connection = run->connection;
    struct out *out;

    if (connection->queued > CALLS_BYTES) {
        refuse_call(run, call, "the client that answers tools does not read what they are asked");
        return;
    }
    if (!text_is_json(args.data, args.size)) {
        refuse_call(run, call, "the arguments of a tool are JSON");
        return;
    }
    out = say(connection, "call", run->id);
    out_number(out, "call", call);
    out_text(out, "name", name);
    print_json(out, "args", args.data, args.size);
    said(connection, out);
}

static struct client_run *run_find(struct connection *connection, const char *id)
{
    struct client_run *run;

    TAILQ_FOREACH(run, &connection->runs, next)
    if (strcmp(run->id, id) == 0)
        return run;
    return NULL;
}

static int run_check(struct connection *connection, const struct kernel_body *body,
                     struct error *err)
{
    unsigned retry_ms;

    if (body->code.data == NULL)
        return error_set(err, "bad_request", 0, "field \"code\" is missing");
    if (run_find(connection, body->id) != NULL)
        return error_set(err, "bad_request", 0, "the run \"%s\" is under way: name another",
                         body->id);
    if (connection->runs_count == RUNS_MOST)
        return error_set(err, "too_many_runs", 0, "%u runs of one connection are the most",
                         RUNS_MOST);
    return engine_rate(connection->job->native->options.engine, &connection->job->caller, &retry_ms,
                       err);
}

static int run_begin(struct connection *connection, const struct kernel_body *body,
                     struct error *err)
{
    struct kernel_run_calls calls = {.done = run_ended, .tool = tool_called};
    struct kernel_run_spec spec;
    struct kernel_grants grants;
    struct client_run *run;

    if (run_check(connection, body, err) < 0 ||
        kernel_body_run(body, body->context, &grants, &spec, err) < 0)
        return -1;
    run = calloc(1, sizeof(*run));
    if (run == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for another run now");
    run->connection = connection;
    run->began_ns = clock_monotonic_ns();
    (void)snprintf(run->id, sizeof(run->id), "%s", body->id);
    (void)snprintf(run->kernel, sizeof(run->kernel), "%s",
                   body->context != NULL ? body->context : "");
    calls.arg = run;
    run->run = engine_kernel_run(connection->job->native->options.engine, &connection->job->caller,
                                 &spec, &calls, err);
    if (run->run == NULL) {
        free(run);
        return -1;
    }
    TAILQ_INSERT_TAIL(&connection->runs, run, next);
    connection->runs_count++;
    return 0;
}

/* ---- in ---- */

static int obey(struct connection *connection, const struct kernel_body *body, struct error *err)
{
    struct client_run *run;

    if (body->type == MESSAGE_RUN) {
        if (run_begin(connection, body, err) == 0)
            return 0;
        account_run(connection->job, body->context, NULL, err->code, clock_monotonic_ns());
        return -1;
    }
    run = run_find(connection, body->id);
    if (run == NULL) /* it has just ended */
        return 0;
    if (body->type == MESSAGE_ERROR)
        return engine_kernel_settle_error(run->run, (uint32_t)body->call,
                                          body->message != NULL ? body->message : "it failed", err);
    engine_kernel_stop(run->run);
    return 0;
}

/* A tool's answer: its value may be large and deep, and goes on as it is. */
static int take_result(struct connection *connection, struct kernel_text text, struct error *err)
{
    struct meta_value value, member;
    struct client_run *run;
    char id[RUN_ID_SIZE];
    uint64_t call;

    if (meta_member_early(text, "run", DEPTH_MAX, &member) < 0 ||
        meta_string(&member, id, sizeof(id)) < 0 ||
        meta_member_early(text, "call", DEPTH_MAX, &member) < 0 ||
        meta_count(&member, UINT32_MAX, &call) < 0)
        return error_set(err, "bad_request", 0,
                         "a result is JSON and has \"run\" and \"call\", as the call has them");
    run = run_find(connection, id);
    if (!text_is_json(text.data, text.size)) {
        (void)error_set(err, "bad_request", 0,
                        "the tool's answer is no JSON, or nested deeper than %u", DEPTH_MAX);
        /* Or it would wait for as long as it may. */
        if (run != NULL)
            refuse_call(run, (uint32_t)call, err->text);
        return -1;
    }
    if (run == NULL)
        return 0;
    if (meta_member_early(text, "value", DEPTH_MAX, &value) < 0)
        value.text = (struct kernel_text){"null", 4};
    return engine_kernel_settle(run->run, (uint32_t)call, value.text.data, value.text.size, err);
}

static int take(struct connection *connection, bool is_text, struct kernel_text text,
                struct read_owner *owner, struct error *err)
{
    struct kernel_body body = {.language = 0};
    struct meta_value type;
    char word[16];

    if (!is_text)
        return error_set(err, "bad_request", 0, "messages are text: one JSON object each");
    if (meta_member_early(text, "type", DEPTH_MAX, &type) == 0 &&
        meta_string(&type, word, sizeof(word)) == 0 && strcmp(word, "result") == 0)
        return take_result(connection, text, err);
    if (read_object("a message", (struct read_body){text.data, text.size, NULL}, false,
                    kernel_fields_message, &body, owner, err) < 0)
        return -1;
    if (obey(connection, &body, err) == 0)
        return 0;
    say_error(connection, body.id, err);
    return 0;
}

static bool message(void *arg, bool is_text, const void *data, size_t size)
{
    struct connection *connection = arg;
    struct read_owner owner = {0};
    struct error err;

    if (!connection->is_over &&
        take(connection, is_text, (struct kernel_text){data, size}, &owner, &err) < 0)
        say_error(connection, NULL, &err);
    read_free(&owner);
    return connection->is_over || connection->queued <= CALLS_BYTES;
}

static void closed(void *arg, unsigned code)
{
    (void)code;
    leave(arg);
}

HANDLER(kernels_connect)
{
    static const char *const no_query[] = {NULL};
    struct job *job = job_begin(request, ENGINE_WRITE);
    struct http_websocket_options options = {
        .message_bytes = MESSAGE_BYTES, .message = message, .drained = drained, .closed = closed};
    struct connection *connection;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, no_query))
        return;
    if (!http_is_websocket(request)) {
        http_add_header(request, "Upgrade", "websocket");
        job_fail(job, "upgrade_required",
                 "runs with tools are spoken of over a WebSocket: connect to this address by ws: "
                 "or wss:");
        return;
    }
    connection = job_own(job, sizeof(*connection), connection_free);
    if (connection == NULL)
        return;
    connection->job = job;
    connection->hold.tenant = job->caller.tenant;
    TAILQ_INIT(&connection->frames);
    TAILQ_INIT(&connection->runs);
    options.arg = connection;
    if (http_websocket(request, &options, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    account_began(job);
    job_on_drain(job, cut);
}
