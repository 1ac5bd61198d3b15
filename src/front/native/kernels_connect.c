/* Runs over a WebSocket, whose code may call tools: functions of the client.
 *
 * One JSON object in each text frame. Who connects names his runs, and hears of each what it calls and how it ended;
 * calls are answered in any order. When he goes away his runs are stopped. What waits to be read by him is bounded:
 * beyond that tools fail and the client is not heard, and then it is cut off.
 *
 * Large messages are read, and large calls and results printed, beside the loop (beside.c). Nothing overtakes them: while
 * a message is read the next is not taken, and what is said waits behind what is being printed. */
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
#define CLOSE_LATER 1013

struct connection;

/* A message to the client. */
struct frame {
    struct beside beside; /* first: it is printed so */
    TAILQ_ENTRY(frame) next;
    struct connection *connection; /* NULL: that is gone, and a thread prints it still */
    struct out text;
    bool is_printing;
    /* While it is printed: */
    struct kernel_kept *kept;
    struct kernel_result result; /* or of a tool: */
    struct kernel_text asked;
    struct kernel_tool tool;
    uint64_t run; /* 0: a result */
    uint32_t call;
    bool is_tool, is_json;
    char id[RUN_ID_SIZE];
};

/* The content of a message: of a result where its parts lie, of others all. */
struct heard {
    struct kernel_text text;
    bool is_result, is_answer, is_json;
    char id[RUN_ID_SIZE];
    uint64_t call;
    struct kernel_text value;
    struct read_parsed parsed;
};

/* A large one. */
struct incoming {
    struct beside beside;          /* first */
    struct connection *connection; /* NULL: that is gone, and a thread reads it still */
    void *data;
    struct heard heard;
};

struct client_run {
    TAILQ_ENTRY(client_run) next;
    struct connection *connection;
    struct kernel_run *run;
    uint64_t number;                               /* of the connection, from 1 on */
    char id[RUN_ID_SIZE], kernel[KERNEL_ID_SHOWN]; /* kernel: or empty */
    uint64_t began_ns;
};

struct connection {
    struct job *job;
    TAILQ_HEAD(frames, frame) frames; /* that the socket has no room for, or that are printed */
    TAILQ_HEAD(client_runs, client_run) runs;
    struct incoming *incoming; /* or NULL; meanwhile it is not heard */
    size_t queued, waiting;    /* bytes: in `frames`, in the socket */
    struct hold hold;          /* of what waits */
    unsigned runs_count;
    uint64_t runs_number;
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

static void frame_free(struct frame *frame)
{
    if (frame->kept != NULL)
        engine_kernel_kept_free(frame->kept);
    out_free(&frame->text);
    free(frame);
}

static void incoming_free(struct incoming *incoming)
{
    read_parsed_free(&incoming->heard.parsed);
    free(incoming->data);
    free(incoming);
}

/* The piece that a thread has is let go when it is done. */
static void frames_free(struct connection *connection)
{
    while (!TAILQ_EMPTY(&connection->frames)) {
        struct frame *frame = TAILQ_FIRST(&connection->frames);

        TAILQ_REMOVE(&connection->frames, frame, next);
        frame->connection = NULL;
        if (!frame->is_printing || beside_cancel(&frame->beside))
            frame_free(frame);
    }
    connection->queued = 0;
    (void)keep(connection, 0);
}

static void incoming_leave(struct connection *connection)
{
    struct incoming *incoming = connection->incoming;

    connection->incoming = NULL;
    if (incoming == NULL)
        return;
    incoming->connection = NULL;
    if (beside_cancel(&incoming->beside))
        incoming_free(incoming);
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
    incoming_leave(connection);
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

/* A large one is handed over, not copied. */
static void send_frame(struct connection *connection, struct frame *frame)
{
    struct http_request *request = connection->job->request;
    struct out text = frame->text;

    if (text.used <= SEND_BYTES) {
        connection->waiting = http_websocket_send(request, true, text.data, text.used);
        return;
    }
    frame->text = (struct out){0};
    connection->waiting = http_websocket_send_taken(request, true, text.data, text.used);
}

static void pump(struct connection *connection)
{
    while (!connection->is_over && connection->waiting <= SEND_BYTES &&
           !TAILQ_EMPTY(&connection->frames)) {
        struct frame *frame = TAILQ_FIRST(&connection->frames);

        if (frame->is_printing)
            break;
        TAILQ_REMOVE(&connection->frames, frame, next);
        connection->queued -= frame->text.used;
        send_frame(connection, frame);
        frame_free(frame);
    }
    (void)keep(connection, 0);
}

static void hear_on(struct connection *connection)
{
    if (!connection->is_over && connection->incoming == NULL && connection->queued <= CALLS_BYTES)
        http_websocket_resume(connection->job->request);
}

static void drained(void *arg)
{
    struct connection *connection = arg;

    connection->waiting = 0;
    pump(connection);
    hear_on(connection);
}

static struct out *begin(struct out *out, const char *type, const char *run)
{
    out_object(out, NULL);
    out_text(out, "type", type);
    out_text(out, "run", run);
    return out;
}

static struct out *say(struct connection *connection, const char *type, const char *run)
{
    return begin(job_out(connection->job), type, run);
}

static void too_much(struct connection *connection)
{
    hang_up(connection, CLOSE_SLOW, "more waits for this client than can be kept");
}

static struct frame *frame_new(struct connection *connection)
{
    struct frame *frame = calloc(1, sizeof(*frame));

    if (frame == NULL)
        return NULL;
    frame->connection = connection;
    TAILQ_INSERT_TAIL(&connection->frames, frame, next);
    return frame;
}

/* It has its text. */
static void frame_ready(struct frame *frame)
{
    struct connection *connection = frame->connection;

    if (frame->text.has_failed || !keep(connection, frame->text.used)) {
        too_much(connection);
        return;
    }
    connection->queued += frame->text.used;
    pump(connection);
}

static void said(struct connection *connection, struct out *out)
{
    struct frame *frame;

    out_object_end(out);
    if (connection->is_over)
        return;
    if (TAILQ_EMPTY(&connection->frames) && connection->waiting <= SEND_BYTES && !out->has_failed &&
        keep(connection, out->used)) {
        connection->waiting = http_websocket_send(connection->job->request, true, out->data,
                                                  out->used);
        (void)keep(connection, 0);
        return;
    }
    frame = out->has_failed ? NULL : frame_new(connection);
    if (frame == NULL) {
        too_much(connection);
        return;
    }
    out_raw(&frame->text, out->data, out->used);
    frame_ready(frame);
}

static void say_error(struct connection *connection, const char *run, const struct error *err)
{
    struct out *out = say(connection, "error", run);

    out_text(out, "code", err->code);
    out_text(out, "detail", err->text);
    said(connection, out);
}

/* ---- runs ---- */

static void refuse_call(struct client_run *run, uint32_t call, const char *why)
{
    struct error ignored;

    (void)engine_kernel_settle_error(run->run, call, why, &ignored);
}

/* `tool` is NULL where it is none. */
static bool may_call(struct client_run *run, uint32_t call, const struct kernel_tool *tool)
{
    if (!engine_kernel_tool(run->run, call, tool))
        return false;
    if (run->connection->queued <= CALLS_BYTES)
        return true;
    refuse_call(run, call, "the client that answers tools does not read what they are asked");
    return false;
}

static void refuse_args(struct client_run *run, uint32_t call)
{
    refuse_call(run, call, "the arguments of a tool are JSON");
}

static bool print_call(struct out *out, uint32_t call, const struct kernel_tool *tool)
{
    out_number(out, "call", call);
    out_text(out, "name", tool->name);
    return print_json(out, "args", tool->args.data, tool->args.size);
}

/* ---- large calls and results, printed by a thread ---- */

static void frame_print(struct beside *beside)
{
    struct frame *frame = (struct frame *)beside;
    struct out *out = begin(&frame->text, frame->run != 0 ? "call" : "done", frame->id);
    char *fitting;

    if (frame->run == 0) {
        print_kernel_result(out, "result", &frame->result);
    } else {
        frame->is_tool = kernel_tool_read(frame->asked, &frame->tool);
        frame->is_json = frame->is_tool && print_call(out, frame->call, &frame->tool);
    }
    out_object_end(out);
    fitting = out->has_failed ? NULL : realloc(out->data, out->used);
    if (fitting == NULL)
        return;
    out->data = fitting;
    out->capacity = out->used;
}

/* Whether it is to be said: its run goes on, and may call that. */
static bool call_is_good(const struct frame *frame)
{
    struct client_run *run = NULL;

    TAILQ_FOREACH(run, &frame->connection->runs, next)
    {
        if (run->number == frame->run)
            break;
    }
    if (run == NULL || !may_call(run, frame->call, frame->is_tool ? &frame->tool : NULL))
        return false;
    if (!frame->is_json)
        refuse_args(run, frame->call);
    return frame->is_json;
}

static void frame_printed(struct beside *beside, bool is_closing)
{
    struct frame *frame = (struct frame *)beside;
    struct connection *connection = frame->connection;

    frame->is_printing = false;
    engine_kernel_kept_free(frame->kept);
    frame->kept = NULL;
    if (connection == NULL) {
        frame_free(frame);
    } else if (!is_closing && (frame->run == 0 || call_is_good(frame))) {
        frame_ready(frame);
    } else {
        TAILQ_REMOVE(&connection->frames, frame, next);
        frame_free(frame);
        pump(connection);
    }
}

/* For frame_print(), which is told the rest; NULL: what the engine tells is small. */
static struct frame *frame_beside(struct client_run *run, const char *id)
{
    struct connection *connection = run->connection;
    struct frame *frame = frame_new(connection);

    if (frame == NULL)
        return NULL;
    frame->kept = engine_kernel_keep(run->run);
    if (frame->kept == NULL) {
        TAILQ_REMOVE(&connection->frames, frame, next);
        free(frame);
        return NULL;
    }
    frame->beside = (struct beside){.work = frame_print, .done = frame_printed};
    frame->is_printing = true;
    (void)snprintf(frame->id, sizeof(frame->id), "%s", id);
    return frame;
}

static void frame_begin(struct connection *connection, struct frame *frame)
{
    beside_add(&frame->beside, connection->job->native, connection->job->caller.tenant);
}

/* ---- what runs say ---- */

static void run_ended(void *arg, const struct kernel_result *result, const struct error *err)
{
    struct client_run *run = arg;
    struct connection *connection = run->connection;
    struct frame *frame = result != NULL ? frame_beside(run, run->id) : NULL;
    char id[RUN_ID_SIZE];
    struct out *out;

    memcpy(id, run->id, sizeof(id));
    account_run(connection->job, run->kernel, result != NULL ? kernel_end_name(result->end) : NULL,
                err != NULL ? err->code : NULL, run->began_ns);
    run_remove(run);
    if (err != NULL) {
        say_error(connection, id, err);
    } else if (frame != NULL) {
        frame->result = *result;
        connection->job->native->results_printed++;
        frame_begin(connection, frame);
    } else {
        out = say(connection, "done", id);
        print_kernel_result(out, "result", result);
        said(connection, out);
    }
}

static void tool_called(void *arg, uint32_t call, struct kernel_text asked)
{
    struct client_run *run = arg;
    struct connection *connection = run->connection;
    struct frame *frame = frame_beside(run, run->id);
    struct kernel_tool tool;
    struct out *out;

    if (frame != NULL) {
        frame->asked = asked;
        frame->run = run->number;
        frame->call = call;
        connection->job->native->calls_printed++;
        frame_begin(connection, frame);
        return;
    }
    if (!may_call(run, call, kernel_tool_read(asked, &tool) ? &tool : NULL))
        return;
    out = say(connection, "call", run->id);
    if (print_call(out, call, &tool))
        said(connection, out);
    else
        refuse_args(run, call);
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
    run->number = ++connection->runs_number;
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
static void hear_result(struct heard *heard)
{
    struct kernel_text text = heard->text;
    struct meta_value value, member;

    heard->is_answer = meta_member_early(text, "run", DEPTH_MAX, &member) == 0 &&
                       meta_string(&member, heard->id, sizeof(heard->id)) == 0 &&
                       meta_member_early(text, "call", DEPTH_MAX, &member) == 0 &&
                       meta_count(&member, UINT32_MAX, &heard->call) == 0;
    heard->is_json = heard->is_answer && text_is_json(text.data, text.size);
    heard->value = (struct kernel_text){"null", 4};
    if (heard->is_json && meta_member_early(text, "value", DEPTH_MAX, &value) == 0)
        heard->value = value.text;
}

/* Looks at nothing else: any thread may do it. */
static void hear(struct heard *heard)
{
    struct meta_value type;
    char word[16];

    heard->is_result = meta_member_early(heard->text, "type", DEPTH_MAX, &type) == 0 &&
                       meta_string(&type, word, sizeof(word)) == 0 && strcmp(word, "result") == 0;
    if (heard->is_result)
        hear_result(heard);
    else
        read_parse(heard->text.data, heard->text.size, &heard->parsed);
}

static int take_result(struct connection *connection, const struct heard *heard, struct error *err)
{
    struct client_run *run;

    if (!heard->is_answer)
        return error_set(err, "bad_request", 0,
                         "a result is JSON and has \"run\" and \"call\", as the call has them");
    run = run_find(connection, heard->id);
    if (!heard->is_json) {
        (void)error_set(err, "bad_request", 0,
                        "the tool's answer is no JSON, or nested deeper than %u", DEPTH_MAX);
        /* Or it would wait for as long as it may. */
        if (run != NULL)
            refuse_call(run, (uint32_t)heard->call, err->text);
        return -1;
    }
    return run == NULL ? 0
                       : engine_kernel_settle(run->run, (uint32_t)heard->call, heard->value.data,
                                              heard->value.size, err);
}

static void take(struct connection *connection, struct heard *heard)
{
    struct read_body text = {heard->text.data, heard->text.size, &heard->parsed};
    struct kernel_body body = {.language = 0};
    struct read_owner owner = {0};
    struct error err;

    if (heard->is_result) {
        if (take_result(connection, heard, &err) < 0)
            say_error(connection, NULL, &err);
    } else if (read_object("a message", text, false, kernel_fields_message, &body, &owner, &err) <
               0) {
        say_error(connection, NULL, &err);
    } else if (obey(connection, &body, &err) < 0) {
        say_error(connection, body.id, &err);
    }
    read_free(&owner);
}

/* ---- large messages, read by a thread ---- */

static void incoming_hear(struct beside *beside)
{
    hear(&((struct incoming *)beside)->heard);
}

static void incoming_heard(struct beside *beside, bool is_closing)
{
    struct incoming *incoming = (struct incoming *)beside;
    struct connection *connection = incoming->connection;

    if (connection != NULL) {
        connection->incoming = NULL;
        if (!is_closing)
            take(connection, &incoming->heard);
    }
    incoming_free(incoming);
    if (connection != NULL)
        hear_on(connection);
}

static void hear_beside(struct connection *connection, size_t size)
{
    struct job *job = connection->job;
    struct incoming *incoming = calloc(1, sizeof(*incoming));

    if (incoming == NULL) {
        hang_up(connection, CLOSE_LATER, "there is no memory for this message now");
        return;
    }
    incoming->beside = (struct beside){.work = incoming_hear, .done = incoming_heard};
    incoming->connection = connection;
    incoming->data = http_websocket_take(job->request);
    incoming->heard.text = (struct kernel_text){incoming->data, size};
    connection->incoming = incoming;
    job->native->messages_parsed++;
    beside_add(&incoming->beside, job->native, job->caller.tenant);
}

static bool message(void *arg, bool is_text, const void *data, size_t size)
{
    struct connection *connection = arg;
    struct heard heard = {.text = {data, size}};
    struct error err;

    if (connection->is_over)
        return true;
    if (!is_text) {
        (void)error_set(&err, "bad_request", 0, "messages are text: one JSON object each");
        say_error(connection, NULL, &err);
    } else if (size >= BODIES_LARGE) {
        hear_beside(connection, size);
    } else {
        hear(&heard);
        take(connection, &heard);
        read_parsed_free(&heard.parsed);
    }
    return connection->is_over ||
           (connection->incoming == NULL && connection->queued <= CALLS_BYTES);
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
