/* Files: a call, from the one who asks to the tool and back: see files.h.
 *
 * The tool's pipes are shared with the box's init, so whoever took that over can make them block, empty
 * them or fill them between any two calls of ours. Hence nothing is read from or written to them: bytes
 * move by splice(2) with SPLICE_F_NONBLOCK between theirs and pipes that nobody else has. */
#include "engine/files_parts.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USER_MAX 256
#define TURN_FRAMES 64 /* the same, where little stands in each */
#define TIDY_MS 10000
#define HEAD_BYTES sizeof(struct tool_head)

/* ---- watching ---- */

static void watch_closed(uv_handle_t *handle)
{
    free(handle);
}

void files_watch_close(struct watch **watch)
{
    if (*watch == NULL)
        return;
    uv_close((uv_handle_t *)&(*watch)->poll, watch_closed);
    fd_close(&(*watch)->fd);
    *watch = NULL;
}

static struct watch *watch_new(struct files *files, int fd)
{
    struct watch *watch = engine_alloc(sizeof(*watch));

    watch->files = files;
    watch->fd = fd;
    if (uv_poll_init(files->engine->options.loop, &watch->poll, fd) == 0)
        return watch;
    fd_close(&fd);
    free(watch);
    return NULL;
}

void files_watch_stop(struct watch *watch)
{
    if (watch->is_set)
        (void)uv_poll_stop(&watch->poll);
    watch->is_set = false;
}

static void tell_news(struct files *files)
{
    if (!files->wants_news || files->is_closed)
        return;
    files->wants_news = false;
    files->calls.news(files->arg);
}

static void output_ready(uv_poll_t *poll, int status, int events)
{
    struct watch *watch = (struct watch *)poll;

    (void)status;
    (void)events;
    files_watch_stop(watch);
    task_ready(&watch->files->task);
}

static void on_turn(struct task *task)
{
    tell_news((struct files *)(void *)((char *)task - offsetof(struct files, task)));
}

void files_watch_set(struct watch *watch, int events, uv_poll_cb ready)
{
    if (!watch->is_set && uv_poll_start(&watch->poll, events, ready) == 0)
        watch->is_set = true;
}

/* ---- its life ---- */

static void close_fds(struct files *files)
{
    files_watch_close(&files->output);
    files_watch_close(&files->input);
    for (int i = 0; i < 2; i++) {
        fd_close(&files->ours[i]);
        fd_close(&files->frames[i]);
        fd_close(&files->feed[i]);
    }
}

/* The engine knows it no more. */
static void unlist(struct files *files)
{
    struct engine *engine = files->engine;
    struct sandbox *sandbox;

    if (engine == NULL)
        return;
    sandbox = map_get(&engine->ids, files->sandbox);
    task_drop(&files->task);
    clock_clear(engine->clock, &files->patience);
    if (files->tool != NULL)
        tool_cancel(files->tool);
    files->tool = NULL;
    engine->files_wide -= files->wide;
    files->wide = 0;
    *(files->previous != NULL ? &files->previous->next : &engine->files) = files->next;
    if (files->next != NULL)
        files->next->previous = files->previous;
    files->engine = NULL;
    if (sandbox != NULL)
        quiet_left(sandbox);
}

static void files_free(struct files *files)
{
    unlist(files);
    close_fds(files);
    free(files->argv);
    free(files->user);
    free(files->rest);
    free(files);
}

void files_end_all(struct engine *engine)
{
    struct files *files;

    while ((files = engine->files) != NULL) {
        unlist(files);
        close_fds(files);
        files->is_put_off = false;
        (void)error_set(&files->failure, "draining", 0, "the engine ends; ask again in a moment");
        if (files->is_closed && !files->is_asking)
            files_free(files);
    }
}

static void put_off_done(void *arg)
{
    struct files *files = arg;
    struct error why = files->failure;

    files->is_put_off = false;
    if (!files->is_closed && files->is_evicted && files->calls.evicted != NULL)
        files->calls.evicted(files->arg, &why);
    else if (!files->is_closed)
        tell_news(files);
    else if (!files->is_asking && files->tool == NULL)
        files_free(files);
}

/* News that comes from within a call is told later. */
void files_put_off(struct files *files)
{
    if (files->is_put_off)
        return;
    files->is_put_off = true;
    engine_later(files->engine, put_off_done, files);
}

/* Of one that is closed. What is put off has a pointer to it, and frees it. */
static void let_go(struct files *files)
{
    if (!files->is_put_off) {
        files_free(files);
        return;
    }
    if (files->tool != NULL)
        tool_cancel(files->tool);
    files->tool = NULL;
}

static void no_patience(void *arg)
{
    let_go(arg);
}

/* Whoever reads input removes what is not whole when that ends early; killed, it could not. */
void files_close(struct files *files)
{
    if (files == NULL)
        return;
    files->is_closed = true;
    if (files->engine == NULL) {
        if (!files->is_asking)
            files_free(files);
        return;
    }
    files_watch_close(&files->input);
    if (files->tool != NULL && files->has_started && files_rows[files->verb].takes_input) {
        clock_set(files->engine->clock, &files->patience,
                  clock_monotonic_ns() + TIDY_MS * 1000000ULL, no_patience, files);
        return;
    }
    if (files->tool != NULL)
        tool_cancel(files->tool);
    files->tool = NULL;
    if (!files->is_asking && !files->is_put_off)
        files_free(files);
}

static void fail(struct files *files, const struct error *err)
{
    if (files->failure.code[0] == '\0')
        files->failure = *err;
}

/* Whatever the tool says from now on is not looked at. */
void files_fail_tool(struct files *files, const char *what)
{
    struct error err;

    (void)error_set(&err, "sandbox_failed", 0,
                    "the tool in sandbox %s %s; look at what else runs there, and ask again",
                    files->sandbox, what);
    fail(files, &err);
    if (files->tool != NULL)
        tool_cancel(files->tool);
    files->tool = NULL;
}

/* Who reads input tidies up first: see files_close(). */
void files_evict(struct files *files, const struct error *err)
{
    bool tidies = files_rows[files->verb].takes_input && files->verb != FILES_WATCH;

    fail(files, err);
    files->is_evicted = true;
    if (tidies) {
        tool_leave(files->tool);
    } else {
        tool_cancel(files->tool);
        files->tool = NULL;
    }
    files_put_off(files);
}

/* ---- the tool ---- */

int files_open_pipe(struct files *files, int pipe[2], bool is_large)
{
    if (pipe[0] >= 0)
        return 0;
    if (pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        pipe[0] = pipe[1] = -1;
        return -1;
    }
    if (is_large)
        files_room_widen(files, pipe[1]);
    return 0;
}

static void tool_started(void *arg, int input, int output)
{
    struct files *files = arg;
    bool is_large = files_rows[files->verb].has_bytes;

    files->has_started = true;
    if (is_large)
        files_room_widen(files, output);
    if (input >= 0 && files->verb != FILES_WATCH) {
        files_room_widen(files, input);
        files_room_taken(files);
    }
    files->output = watch_new(files, output);
    if (input >= 0)
        files->input = watch_new(files, input);
    /* Nothing goes through it but its end: there may be many, and Linux counts the room of all pipes. */
    if (input >= 0 && files->verb == FILES_WATCH)
        (void)fcntl(input, F_SETPIPE_SZ, 4096);
    if (files->output == NULL || (input >= 0 && files->input == NULL) ||
        files_open_pipe(files, files->frames, false) != 0 ||
        (is_large && files_open_pipe(files, files->ours, true) != 0)) {
        files_fail_tool(files, "has no pipe that can be used");
        tell_news(files);
        return;
    }
    if (files->wants_news)
        files_watch_set(files->output, UV_READABLE, output_ready);
    files_pump(files);
}

static void tool_ended(void *arg, bool failed, const struct error *err)
{
    struct files *files = arg;
    struct error why;

    (void)failed;
    files->tool = NULL;
    files->has_ended = true;
    if (err != NULL) {
        why = *err;
        if (strcmp(err->code, "tool_killed") == 0)
            (void)error_set(&why, "sandbox_failed", 0,
                            "the tool was killed in sandbox %s; has it memory and processes left?",
                            files->sandbox);
        files->failure = why;
    }
    if (!files->is_closed)
        tell_news(files);
    else if (!files->is_put_off)
        files_free(files);
}

static void begin(struct files *files, struct procs *procs, struct error *err)
{
    static const struct tool_calls calls = {.started = tool_started, .ended = tool_ended};
    struct tool_spec spec = {
        .argv = files->argv,
        .user = files->user,
        .takes_input = files_rows[files->verb].takes_input,
        .is_grep = files->is_grep,
        .timeout_ms = files->timeout_ms,
    };

    if (files_room_make(files, procs, err) == 0)
        files->tool = procs_tool(procs, &spec, &calls, files, err);
}

static void asked(void *arg, struct procs *procs, const struct error *err)
{
    struct files *files = arg;
    struct error why;

    files->is_asking = false;
    if (files->engine == NULL && !files->is_closed)
        return; /* it ended while this waited */
    if (files->is_closed) {
        let_go(files);
        return;
    }
    if (err != NULL) {
        fail(files, err);
    } else {
        begin(files, procs, &why);
        if (files->tool == NULL)
            fail(files, &why);
    }
    if (files->failure.code[0] != '\0')
        files_put_off(files);
}

static int check(struct engine *engine, const struct engine_caller *caller, const char *id,
                 const struct files_spec *spec, struct sandbox **sandbox, struct error *err)
{
    bool looks = files_rows[spec->verb].only_looks;

    if (engine_accepts(engine, err) != 0)
        return -1;
    *sandbox = sandbox_find(engine, caller, id, err);
    if (*sandbox == NULL)
        return -1;
    if (spec->user != NULL && (*spec->user == '\0' || strlen(spec->user) > USER_MAX))
        return error_set(err, "bad_request", 0, "user: a name or a number of 1 to %d bytes",
                         USER_MAX);
    return engine_caller_may(caller, (*sandbox)->id, looks ? ENGINE_FILES_READ : ENGINE_FILES_WRITE,
                             err);
}

struct files *engine_files(struct engine *engine, const struct engine_caller *caller,
                           const char *id, const struct files_spec *spec,
                           const struct files_calls *calls, void *arg, struct error *err)
{
    struct sandbox *sandbox;
    struct files *files;
    const char **argv;

    if (check(engine, caller, id, spec, &sandbox, err) != 0 ||
        files_argv(spec, caller->path, &argv, err) != 0)
        return NULL;
    files = malloc(sizeof(*files));
    if (files == NULL) {
        free(argv);
        (void)error_set(err, "no_memory", 0, "there is no memory for this call now; ask again");
        return NULL;
    }
    memset(files, 0, offsetof(struct files, buffer));
    files->engine = engine;
    memcpy(files->sandbox, sandbox->id, sizeof(files->sandbox));
    files->verb = spec->verb;
    files->argv = argv;
    files->user = spec->user != NULL ? strdup(spec->user) : NULL;
    files->is_grep = spec->verb == FILES_GREP ||
                     (spec->verb == FILES_FIND && spec->pattern != NULL);
    files->timeout_ms = spec->timeout_ms;
    files->calls = *calls;
    files->arg = arg;
    files->task = (struct task){.share = shares_turns(engine, sandbox->record->tenant),
                                .run = on_turn};
    files->ours[0] = files->ours[1] = files->frames[0] = files->frames[1] = -1;
    files->feed[0] = files->feed[1] = -1;
    files->wants_news = true;
    files->is_asking = true;
    files->is_lent = strncmp(caller->key_id, "token:", 6) == 0;
    files->next = engine->files;
    if (files->next != NULL)
        files->next->previous = files;
    engine->files = files;
    quiet_procs(sandbox, asked, files);
    return files;
}

/* ---- what comes ---- */

/* From their pipe into one of ours: -1 and errno, 0 at its end. */
static ssize_t move_in(struct files *files, int pipe, size_t most)
{
    ssize_t n;

    do
        n = splice(files->output->fd, NULL, pipe, NULL, most, SPLICE_F_NONBLOCK);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Of what the next frame is not known, its head is. */
static size_t frame_wants(const struct files *files)
{
    size_t there = files->used - files->start;
    struct tool_head head;

    if (there < HEAD_BYTES)
        return HEAD_BYTES - there;
    memcpy(&head, files->buffer + files->start, HEAD_BYTES);
    return HEAD_BYTES + head.size - there;
}

static ssize_t fill(struct files *files)
{
    size_t want = frame_wants(files);
    ssize_t n;

    if (files->start > 0) {
        memmove(files->buffer, files->buffer + files->start, files->used - files->start);
        files->used -= files->start;
        files->start = 0;
    }
    if (!files_rows[files->verb].has_bytes)
        want = FILES_BUFFER_BYTES - files->used;
    n = move_in(files, files->frames[1], want);
    if (n <= 0)
        return n;
    if (fd_read_full(files->frames[0], files->buffer + files->used, (size_t)n) != n) {
        errno = EIO;
        return -1;
    }
    files->used += (size_t)n;
    return n;
}

/* 1: there is one; 0: it is not whole; -1: it is none. */
static int take_frame(struct files *files, struct files_item *item)
{
    size_t there = files->used - files->start;
    struct tool_head head;

    if (there < HEAD_BYTES)
        return 0;
    memcpy(&head, files->buffer + files->start, HEAD_BYTES);
    if (head.size > files_payload_max(files->verb, head.type) ||
        files_payload_max(files->verb, head.type) == 0)
        return -1;
    if (head.type == TOOL_DATA) {
        /* One that holds nothing would be read for ever, and counted against nothing. */
        if (!files->has_begun || files->is_sized || head.size == 0)
            return -1;
        files->start += HEAD_BYTES;
        files->bytes_left = head.size;
        return 0;
    }
    if (there < HEAD_BYTES + head.size)
        return 0;
    if (files_parse(head.type, files->buffer + files->start + HEAD_BYTES, head.size, item) != 0)
        return -1;
    files->start += HEAD_BYTES + head.size;
    if (item->kind != FILES_BEGIN)
        return 1;
    if (files->has_begun)
        return -1;
    files->has_begun = true;
    files->is_sized = item->begin.size != UINT64_MAX;
    files->bytes_left = files->is_sized ? item->begin.size : 0;
    return 1;
}

/* Whether more bytes follow in a frame that has begun, or begins just here: many small ones go out at
 * once. */
static bool has_more_bytes(struct files *files, struct files_item *item)
{
    struct tool_head head;

    while (files->bytes_left == 0 && !files->is_sized) {
        if (files->used - files->start < HEAD_BYTES && fill(files) <= 0)
            return false;
        if (files->used - files->start < HEAD_BYTES)
            continue;
        memcpy(&head, files->buffer + files->start, HEAD_BYTES);
        if (head.type != TOOL_DATA || take_frame(files, item) != 0)
            return false;
    }
    return files->bytes_left > 0;
}

/* As much as there is now and ours takes: the taker has emptied it. */
static ssize_t take_bytes(struct files *files, struct files_item *item)
{
    size_t moved = 0;
    ssize_t n = 0;

    for (unsigned i = 0; i < TURN_FRAMES && moved < FILES_TURN_BYTES && has_more_bytes(files, item);
         i++) {
        size_t most = FILES_TURN_BYTES - moved;

        n = move_in(files, files->ours[1],
                    files->bytes_left < most ? (size_t)files->bytes_left : most);
        if (n <= 0)
            break;
        moved += (size_t)n;
        files->bytes_left -= (size_t)n;
    }
    if (moved == 0)
        return n;
    memset(item, 0, sizeof(*item));
    item->kind = FILES_BYTES;
    item->bytes.pipe = files->ours[0];
    item->bytes.size = moved;
    return (ssize_t)moved;
}

static bool end_failed(struct files *files, struct files_item *item)
{
    if (files->failure.code[0] == '\0')
        files_fail_tool(files, "ended before it had said all");
    memset(item, 0, sizeof(*item));
    item->kind = FILES_END;
    item->error = files->failure;
    files->is_over = true;
    return true;
}

/* Nothing is there now: wait for more, or for the reason that nothing comes. */
static bool wait_for_news(struct files *files)
{
    files->turn = 0;
    files->wants_news = true;
    if (!files_rows[files->verb].takes_input)
        files_room_waits(files);
    if (files->output != NULL && !files->is_at_end)
        files_watch_set(files->output, UV_READABLE, output_ready);
    return false;
}

/* 1: an item, 0: nothing now, -1: nothing any more. */
static int next_of_tool(struct files *files, struct files_item *item)
{
    ssize_t n;

    for (;;) {
        if (files->bytes_left > 0) {
            n = take_bytes(files, item);
            if (n > 0)
                return 1;
        } else {
            int status = take_frame(files, item);

            if (status > 0)
                return 1;
            if (status < 0) {
                files_fail_tool(files, "said what no tool of ours says");
                return -1;
            }
            if (files->bytes_left > 0)
                continue;
            n = fill(files);
            if (n > 0)
                continue;
        }
        if (n == 0)
            files->is_at_end = true;
        /* What it said is in its pipe when it has ended: nothing more follows. */
        if (n == 0 || errno == EAGAIN)
            return files->has_ended ? -1 : 0;
        files_fail_tool(files, "has a pipe that cannot be read");
        return -1;
    }
}

/* Whoever takes over a box can say more than anybody takes, for as long as he likes: after so many items
 * there is nothing, and news of more once others had their turn. */
static bool is_turn_over(struct files *files)
{
    if (files->turn++ < TURN_FRAMES)
        return false;
    files->turn = 0;
    files->wants_news = true;
    task_ready(&files->task);
    return true;
}

bool files_next(struct files *files, struct files_item *item)
{
    int status;

    files->wants_news = false;
    if (files->is_over || files->engine == NULL || is_turn_over(files))
        return false;
    if (files->output == NULL) {
        if (files->failure.code[0] != '\0' || files->has_ended)
            return end_failed(files, item);
        return wait_for_news(files);
    }
    /* What failed while it runs ends it; what was said before it ended comes first. */
    if (files->failure.code[0] != '\0' && !files->has_ended)
        return end_failed(files, item);
    status = next_of_tool(files, item);
    if (status == 0)
        return wait_for_news(files);
    if (status < 0)
        return end_failed(files, item);
    if (item->kind == FILES_END || item->kind == FILES_FAILED)
        disk_room_explain(files->engine, files->sandbox, &item->error);
    files->is_over = item->kind == FILES_END;
    if (!files_rows[files->verb].takes_input)
        files_room_taken(files);
    return true;
}
