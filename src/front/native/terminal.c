/* A terminal over a WebSocket: bytes both ways, and a few words of JSON beside them.
 *
 * Everybody who watches has an offset of his own into what was printed, as those who follow do: who does
 * not read is written to no more, is told what the log dropped meanwhile, and nobody else notices. What he
 * types waits with the process, one message of each at a time. */
#include "front/native/body.h"
#include "front/native/parts.h"
#include "front/native/read.h"

#include <stdlib.h>
#include <string.h>

#define TAIL_USUAL 65536
/* Of what is typed or pasted at once; more comes in several messages. */
#define MESSAGE_MAX (256U << 10)
#define CONTROL_MAX 4096
#define CLOSE_DONE 1000
#define CLOSE_AWAY 1001
#define CLOSE_FAILED 1011

struct terminal {
    struct stream stream; /* first */
    struct job *job;
    struct proc *proc; /* lives as long as `follow` */
    struct proc_follow *follow;
    bool is_read_only, has_from, is_fitted, is_attached, is_writing;
    bool ends_with_key, ends_with_client;
    uint64_t from, tail, rows, columns; /* as the query has them */
    uint64_t at;                        /* of the next byte */
    uint64_t live;                      /* what was there when it attached ends here */
    uint64_t end;                       /* of all, once the process has ended */
    unsigned holds;                     /* the job's, and that of input on its way */
};

static void terminal_drop(void *data)
{
    struct terminal *terminal = data;

    if (--terminal->holds == 0)
        free(terminal);
}

static void leave(struct terminal *terminal, bool is_lost)
{
    if (terminal->follow == NULL)
        return;
    if (terminal->ends_with_client)
        proc_client_left(terminal->proc, is_lost);
    proc_follow_cancel(terminal->follow);
    terminal->follow = NULL;
    stream_remove(&terminal->stream);
}

static void hang_up(struct terminal *terminal, unsigned code, const char *reason)
{
    leave(terminal, false);
    http_websocket_close(terminal->job->request, code, reason);
}

/* It goes on at the next engine, by the offset that the client has. */
static void cut(struct job *job)
{
    hang_up(job->own, CLOSE_AWAY, "the engine is about to restart; attach again");
}

/* ---- what is said beside the bytes ---- */

static struct out *say(struct terminal *terminal, const char *type)
{
    struct out *out = job_out(terminal->job);

    out_object(out, NULL);
    out_text(out, "type", type);
    return out;
}

static bool said(struct terminal *terminal, struct out *out)
{
    size_t waiting;

    out_object_end(out);
    waiting = http_websocket_send(terminal->job->request, true, out->data, out->used);
    return stream_sent(&terminal->stream, out->used, waiting);
}

static void say_error(struct terminal *terminal, const struct error *err)
{
    struct out *out = say(terminal, "error");

    out_text(out, "code", err->code);
    out_text(out, "detail", err->text);
    (void)said(terminal, out);
}

static void say_attached(struct terminal *terminal)
{
    struct out *out = say(terminal, "attached");
    struct proc_view view;

    proc_look(terminal->proc, &view);
    out_number(out, "from", terminal->at);
    out_number(out, "rows", view.rows);
    out_number(out, "columns", view.columns);
    terminal->is_attached = true;
    (void)said(terminal, out);
}

static void say_gap(struct terminal *terminal, uint64_t to)
{
    struct out *out = say(terminal, "gap");

    out_number(out, "from", terminal->at);
    out_number(out, "to", to);
    (void)said(terminal, out);
}

/* ---- out ---- */

static bool is_over(struct terminal *terminal)
{
    struct proc_view view;

    proc_look(terminal->proc, &view);
    if (view.state == PROC_STARTING || view.state == PROC_RUNNING)
        return false;
    if (terminal->end == UINT64_MAX)
        terminal->end = view.out_bytes[PROC_STDOUT];
    return true;
}

/* Some of it: 1, 0 nothing now, -1 on an error. */
static int take_part(struct terminal *terminal, bool *goes_on)
{
    struct native *native = terminal->job->native;
    uint64_t until = terminal->is_attached ? terminal->end : terminal->live;
    uint64_t from = terminal->at;
    size_t size = NATIVE_CHUNK, waiting;
    struct error err;
    ssize_t got;

    if (from >= until)
        return 0;
    if (until - from < size)
        size = (size_t)(until - from);
    got = proc_follow_read(terminal->follow, PROC_STDOUT, native->chunk, size, &from, &err);
    if (got <= 0)
        return got == -1 ? -1 : 0;
    /* The log drops nothing within this call: what was read is still in the chunk. */
    if (from > terminal->at)
        say_gap(terminal, from);
    terminal->at = from + (uint64_t)got;
    waiting = http_websocket_send(terminal->job->request, false, native->chunk, (size_t)got);
    *goes_on = stream_sent(&terminal->stream, (size_t)got, waiting);
    return 1;
}

static void finish(struct terminal *terminal)
{
    struct out *out = say(terminal, "exit");
    struct proc_view view;

    proc_look(terminal->proc, &view);
    print_process(out, "process", &view);
    (void)said(terminal, out);
    hang_up(terminal, CLOSE_DONE, "the process has ended");
}

/* The terminal has the size of who came last. Whoever says from where he goes on has the screen as it is;
 * who has only the end of what was printed gets it drawn. */
static void fit(struct terminal *terminal)
{
    uint16_t rows = (uint16_t)terminal->rows, columns = (uint16_t)terminal->columns;
    struct error ignored; /* it has ended */

    terminal->is_fitted = true;
    if (rows == 0 || terminal->is_read_only)
        return;
    if (terminal->live > 0 && !terminal->has_from)
        (void)proc_redraw(terminal->proc, rows, columns, &ignored);
    else
        (void)proc_resize(terminal->proc, rows, columns, &ignored);
}

/* Not yet where the engine has just started: what the box has of it comes by its own word, and is news. */
static bool takes_input(const struct terminal *terminal)
{
    struct proc_view view;

    proc_look(terminal->proc, &view);
    return !view.is_awaited;
}

/* Before all that is typed while the box has not answered: that goes on its way with the answer itself. */
static void fit_early(struct terminal *terminal)
{
    struct error ignored; /* fit() comes yet */

    if (terminal->rows > 0 && !terminal->is_read_only)
        (void)proc_resize(terminal->proc, (uint16_t)terminal->rows, (uint16_t)terminal->columns,
                          &ignored);
}

static void pump(struct terminal *terminal)
{
    bool goes_on = true;

    while (goes_on) {
        bool was_over = is_over(terminal), takes = takes_input(terminal);
        int got;

        if (takes && !terminal->is_fitted)
            fit(terminal);
        if (!terminal->is_attached && terminal->at >= terminal->live) {
            if (!takes)
                return;
            say_attached(terminal);
        }
        got = take_part(terminal, &goes_on);
        if (got > 0)
            continue;
        if (got < 0)
            hang_up(terminal, CLOSE_FAILED, "what the process printed cannot be read");
        else if (!terminal->is_attached) /* what was there is there no more */
            terminal->live = terminal->at;
        else if (was_over)
            finish(terminal);
        if (got < 0 || terminal->follow == NULL || (terminal->is_attached && !was_over))
            return;
    }
}

static void more(struct stream *stream)
{
    pump((struct terminal *)stream);
}

static void news(void *arg)
{
    struct terminal *terminal = arg;

    if (terminal->follow != NULL)
        stream_news(&terminal->stream);
}

static void drained(void *arg)
{
    struct terminal *terminal = arg;

    if (terminal->follow == NULL)
        return;
    terminal->stream.is_full = false;
    stream_news(&terminal->stream);
}

/* ---- in ---- */

static bool is_for_readers(const struct terminal *terminal, struct error *err)
{
    if (!terminal->is_read_only)
        return true;
    (void)error_set(err, "forbidden", 0,
                    "this watcher only reads; attach without read_only to type");
    return false;
}

static void written(void *arg, struct proc *proc, const struct error *err)
{
    struct terminal *terminal = arg;

    (void)proc;
    terminal->is_writing = false;
    if (terminal->follow != NULL) {
        if (err != NULL && strcmp(err->code, "process_ended") != 0)
            say_error(terminal, err);
        http_websocket_resume(terminal->job->request);
    }
    terminal_drop(terminal);
}

enum control_type { CONTROL_RESIZE, CONTROL_SIGNAL, CONTROL_END, CONTROL_DETACH };

struct control {
    int type;
    uint64_t rows, columns;
    struct read_name_or_count signal;
};

static int read_control(const void *data, size_t size, struct control *control,
                        struct read_owner *owner, struct error *err)
{
    static const char *const types[] = {"resize", "signal", "end", "detach", NULL};
    static const struct read_field fields[] = {
        {.name = "type",
         .kind = READ_WORD,
         .at = offsetof(struct control, type),
         .words = types,
         .is_needed = true},
        {.name = "rows",
         .kind = READ_COUNT,
         .at = offsetof(struct control, rows),
         .low = 1,
         .high = PROCS_TERMINAL_MAX},
        {.name = "columns",
         .kind = READ_COUNT,
         .at = offsetof(struct control, columns),
         .low = 1,
         .high = PROCS_TERMINAL_MAX},
        {.name = "signal",
         .kind = READ_NAME_OR_COUNT,
         .at = offsetof(struct control, signal),
         .low = 1,
         .high = 64},
        {.name = NULL},
    };

    if (size > CONTROL_MAX)
        return error_set(err, "bad_request", 0,
                         "text is for control, of at most %d bytes; send what is typed as binary",
                         CONTROL_MAX);
    if (read_object("a control message", (struct read_body){data, size, NULL}, false, fields,
                    control, owner, err) < 0)
        return -1;
    if (control->type == CONTROL_SIGNAL && control->signal.name != NULL)
        control->signal.count = (uint64_t)body_signal_number(control->signal.name);
    if (control->type == CONTROL_SIGNAL && control->signal.count == 0)
        return error_set(err, "bad_request", 0,
                         "field \"signal\" must be a signal: as \"INT\", or its number");
    return 0;
}

static int obey(struct terminal *terminal, const struct control *control, struct error *err)
{
    switch ((enum control_type)control->type) {
    case CONTROL_RESIZE:
        if (!terminal->is_fitted && control->rows > 0 && control->columns > 0) {
            terminal->rows = control->rows;
            terminal->columns = control->columns;
            fit_early(terminal);
            return 0;
        }
        return proc_resize(terminal->proc, (uint16_t)control->rows, (uint16_t)control->columns,
                           err);
    case CONTROL_SIGNAL:
        return proc_signal(terminal->proc, (int)control->signal.count, err);
    case CONTROL_END:
        return proc_input_end(terminal->proc, err);
    case CONTROL_DETACH:
        break;
    }
    hang_up(terminal, CLOSE_DONE, "detached");
    return 0;
}

static void take_control(struct terminal *terminal, const void *data, size_t size)
{
    struct control control = {.type = CONTROL_DETACH};
    struct read_owner owner = {0};
    struct error err;

    if (read_control(data, size, &control, &owner, &err) < 0 ||
        (control.type != CONTROL_DETACH && !is_for_readers(terminal, &err)) ||
        obey(terminal, &control, &err) < 0)
        say_error(terminal, &err);
    read_free(&owner);
}

static bool message(void *arg, bool is_text, const void *data, size_t size)
{
    struct terminal *terminal = arg;
    struct error err;

    if (terminal->follow == NULL)
        return true;
    if (is_text) {
        take_control(terminal, data, size);
    } else if (!is_for_readers(terminal, &err)) {
        say_error(terminal, &err);
    } else {
        terminal->holds++;
        terminal->is_writing = true;
        proc_stdin_write(terminal->proc, data, size, written, terminal);
    }
    return !terminal->is_writing;
}

static void closed(void *arg, unsigned code)
{
    struct terminal *terminal = arg;

    (void)code;
    if (terminal->ends_with_key && terminal->follow != NULL)
        callers_end_with(terminal->job, terminal->proc);
    leave(terminal, true);
}

/* ---- attaching ---- */

/* Not within a line, where that is near: the middle of an escape sequence would be shown as it is. */
static uint64_t sensible_place(struct terminal *terminal, uint64_t from)
{
    char *chunk = terminal->job->native->chunk;
    const char *line = NULL;
    struct error ignored;
    uint64_t at = from;
    ssize_t got;

    if (from == 0)
        return 0;
    got = proc_read(terminal->proc, PROC_STDOUT, from, chunk, CONTROL_MAX, &at, &ignored);
    if (got > 0)
        line = memchr(chunk, '\n', (size_t)got);
    return line != NULL ? at + (uint64_t)(line - chunk) + 1 : at;
}

static void choose_place(struct terminal *terminal, const struct proc_view *view)
{
    uint64_t bytes = view->out_bytes[PROC_STDOUT], oldest = view->out_from[PROC_STDOUT];

    terminal->live = bytes;
    terminal->end = UINT64_MAX;
    if (terminal->has_from) {
        terminal->at = terminal->from < bytes ? terminal->from : bytes;
        return;
    }
    terminal->at = bytes > terminal->tail ? bytes - terminal->tail : 0;
    if (terminal->at < oldest)
        terminal->at = oldest;
    terminal->at = sensible_place(terminal, terminal->at);
}

static void terminal_found(struct job *job, struct proc *proc)
{
    struct terminal *terminal = job->own;
    struct http_websocket_options options = {.message_bytes = MESSAGE_MAX,
                                             .message = message,
                                             .drained = drained,
                                             .closed = closed,
                                             .arg = terminal};
    struct proc_view view;
    struct error err;

    proc_look(proc, &view);
    if (!view.has_terminal) {
        job_fail(job, "no_terminal", "process %s has no terminal; start one with \"terminal\"",
                 view.id);
        return;
    }
    terminal->proc = proc;
    choose_place(terminal, &view);
    terminal->follow = proc_follow(proc, (uint64_t[2]){terminal->at, UINT64_MAX}, news, terminal);
    if (terminal->follow == NULL) {
        job_fail(job, "capacity", "there is no memory for another watcher now");
        return;
    }
    if (http_websocket(job->request, &options, &err) < 0) {
        proc_follow_cancel(terminal->follow);
        job_problem(job, &err);
        return;
    }
    stream_add(&terminal->stream, job, false, more);
    account_began(job);
    if (terminal->ends_with_client)
        proc_client_came(proc);
    job_on_drain(job, cut);
    if (!takes_input(terminal))
        fit_early(terminal);
    pump(terminal);
}

static int read_query(const struct job *job, struct terminal *terminal, struct error *err)
{
    terminal->has_from = http_query(job->request, "from") != NULL;
    terminal->tail = TAIL_USUAL;
    if (job_query_count(job, "from", 0, INT64_MAX, &terminal->from, err) < 0 ||
        job_query_count(job, "tail", 0, INT64_MAX, &terminal->tail, err) < 0 ||
        job_query_count(job, "rows", 1, PROCS_TERMINAL_MAX, &terminal->rows, err) < 0 ||
        job_query_count(job, "columns", 1, PROCS_TERMINAL_MAX, &terminal->columns, err) < 0 ||
        job_query_flag(job, "ends_with_key", &terminal->ends_with_key, err) < 0 ||
        job_query_flag(job, "ends_with_client", &terminal->ends_with_client, err) < 0 ||
        job_query_flag(job, "read_only", &terminal->is_read_only, err) < 0)
        return -1;
    if (terminal->has_from && http_query(job->request, "tail") != NULL)
        return error_set(err, "bad_request", 0, "\"from\" and \"tail\" say the same: give one");
    if (terminal->is_read_only && (terminal->ends_with_key || terminal->ends_with_client))
        return error_set(err, "bad_request", 0,
                         "\"%s\" ends the process, and \"read_only\" only reads: give one",
                         terminal->ends_with_key ? "ends_with_key" : "ends_with_client");
    if ((terminal->rows == 0) != (terminal->columns == 0))
        return error_set(err, "bad_request", 0, "\"rows\" and \"columns\" go together");
    return 0;
}

HANDLER(process_terminal)
{
    static const char *const known[] = {"from",    "tail",          "read_only",        "rows",
                                        "columns", "ends_with_key", "ends_with_client", NULL};
    const char *read_only = http_query(request, "read_only");
    bool reads = read_only != NULL && strcmp(read_only, "true") == 0;
    struct job *job = job_begin_for(request, reads ? ENGINE_LOOK : ENGINE_EXEC);
    struct terminal *terminal;
    struct error err;

    (void)data;
    if (job == NULL || !job_query(job, known))
        return;
    if (!http_is_websocket(request)) {
        http_add_header(request, "Upgrade", "websocket");
        job_fail(
            job, "upgrade_required",
            "a terminal is spoken to over a WebSocket: connect to this address by ws: or wss:");
        return;
    }
    terminal = job_own(job, sizeof(*terminal), terminal_drop);
    if (terminal == NULL)
        return;
    terminal->holds = 1;
    terminal->job = job;
    if (read_query(job, terminal, &err) < 0)
        job_problem(job, &err);
    else
        process_find(job, terminal_found);
}
