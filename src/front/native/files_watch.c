/* What changes below a directory, as it changes: lines of NDJSON without end.
 *
 * The tool that watches outlives the client's connection for a while, and its last changes are kept: who
 * was cut off comes back with the cursor of the last line he read and misses nothing, or is told that he
 * did (`gap`). Of one watch there is one reader; who comes with its cursor takes it over. */
#include "front/native/files.h"
#include "front/native/text.h"

#include "box/tool/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define KEPT 1000
#define KEPT_BYTES (4U << 20) /* of all lines together */
#define KEPT_STEP ((size_t)64 << 10)
#define LINGER_MS 60000 /* without a reader */
#define LINGERING_MAX 4 /* of one sandbox: each holds a tool */

struct change {
    char *line; /* without its cursor and its end */
    size_t size;
};

struct watcher {
    struct watcher *next;
    struct native *native;
    struct files *files;
    uv_timer_t *timer;
    char id[17], sandbox[ENGINE_ID_SIZE], tenant[64], path[FILES_PATH_MAX];
    char beneath[ENGINE_TOKEN_PATH_MAX], user[260]; /* by whose rights it watches */
    bool is_recursive, is_over;
    struct watching *reader;
    uint64_t left_ms;      /* when its last reader went */
    uint64_t first, count; /* numbers of what is kept: [first, first + count) */
    size_t bytes;
    struct hold hold; /* of these */
    struct change kept[KEPT];
};

struct watching {
    struct call call; /* first; its files are the watcher's */
    struct watcher *watcher;
    uint64_t at; /* the next to be told */
    uint64_t for_ms;
    bool recursive;
    const char *user;
};

static void pump(struct watching *watching);

/* ---- a watcher's life ---- */

static void timer_closed(uv_handle_t *handle)
{
    free(handle);
}

static void watcher_free(struct watcher *watcher)
{
    struct watcher **at = &watcher->native->watchers;

    while (*at != watcher)
        at = &(*at)->next;
    *at = watcher->next;
    files_close(watcher->files);
    uv_close((uv_handle_t *)watcher->timer, timer_closed);
    for (uint64_t i = 0; i < watcher->count; i++)
        free(watcher->kept[(watcher->first + i) % KEPT].line);
    (void)native_watches(watcher->native, &watcher->hold, 0);
    free(watcher);
}

void watchers_close(struct native *native)
{
    while (native->watchers != NULL)
        watcher_free(native->watchers);
}

void watchers_drain(struct native *native)
{
    for (struct watcher *watcher = native->watchers, *next; watcher != NULL; watcher = next) {
        next = watcher->next;
        if (watcher->reader == NULL)
            watcher_free(watcher);
    }
}

static void lingered(uv_timer_t *timer)
{
    watcher_free(timer->data);
}

static struct watcher *watcher_new(struct watching *watching, struct error *err)
{
    struct job *job = watching->call.job;
    struct watcher *watcher = calloc(1, sizeof(*watcher));
    uv_timer_t *timer = malloc(sizeof(*timer));
    uint64_t random = 0;

    if (watcher == NULL || timer == NULL ||
        getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        free(watcher);
        free(timer);
        (void)error_set(err, "no_memory", 0, "there is no memory for a watch now");
        return NULL;
    }
    (void)uv_timer_init(job->native->options.loop, timer);
    uv_unref((uv_handle_t *)timer);
    timer->data = watcher;
    watcher->timer = timer;
    watcher->native = job->native;
    watcher->is_recursive = watching->recursive;
    (void)snprintf(watcher->id, sizeof(watcher->id), "%016" PRIx64, random);
    (void)snprintf(watcher->sandbox, sizeof(watcher->sandbox), "%s", job->own_id);
    (void)snprintf(watcher->tenant, sizeof(watcher->tenant), "%s", job->caller.tenant);
    watcher->hold.tenant = watcher->tenant;
    (void)snprintf(watcher->path, sizeof(watcher->path), "%s", watching->call.path);
    (void)snprintf(watcher->beneath, sizeof(watcher->beneath), "%s", job->caller.path);
    (void)snprintf(watcher->user, sizeof(watcher->user), "%s",
                   watching->user != NULL ? watching->user : "");
    watcher->next = job->native->watchers;
    job->native->watchers = watcher;
    return watcher;
}

/* Those of a sandbox that nobody reads are few; the one that was left first goes first. */
static void make_room(struct native *native, const char *sandbox)
{
    struct watcher *oldest = NULL;
    unsigned count = 0;

    for (struct watcher *at = native->watchers; at != NULL; at = at->next) {
        if (at->reader != NULL || strcmp(at->sandbox, sandbox) != 0)
            continue;
        count++;
        if (oldest == NULL || at->left_ms <= oldest->left_ms)
            oldest = at;
    }
    if (count > LINGERING_MAX)
        watcher_free(oldest);
}

/* The reader has gone; the watch goes on for a while, if it can. */
static void watcher_leave(struct watching *watching)
{
    struct watcher *watcher = watching->watcher;

    watching->watcher = NULL;
    if (watcher == NULL || watcher->reader != watching)
        return;
    watcher->reader = NULL;
    if (watcher->is_over || watcher->native->is_draining) {
        watcher_free(watcher);
        return;
    }
    watcher->left_ms = uv_now(watcher->timer->loop);
    files_leave(watcher->files, true);
    (void)uv_timer_start(watcher->timer, lingered, LINGER_MS, 0);
    make_room(watcher->native, watcher->sandbox);
}

static void watcher_take(struct watcher *watcher, struct watching *watching)
{
    struct watching *before = watcher->reader;

    (void)uv_timer_stop(watcher->timer);
    watcher->reader = watching;
    watching->watcher = watcher;
    if (watcher->files != NULL)
        files_leave(watcher->files, false);
    if (before == NULL)
        return;
    before->watcher = NULL;
    call_abort(&before->call);
}

/* ---- what is kept ---- */

static void drop_first(struct watcher *watcher)
{
    struct change *change = &watcher->kept[watcher->first % KEPT];

    watcher->bytes -= change->size;
    free(change->line);
    watcher->first++;
    watcher->count--;
}

/* In steps, for each looks at all that hold something. */
static bool charge(struct watcher *watcher, size_t bytes)
{
    return native_watches(watcher->native, &watcher->hold,
                          (bytes + KEPT_STEP - 1) / KEPT_STEP * KEPT_STEP);
}

static void keep(struct watcher *watcher, const struct out *out)
{
    struct change *change;
    char *line = malloc(out->used);

    if (watcher->count == KEPT)
        drop_first(watcher);
    while (watcher->count > 0 && watcher->bytes + out->used > KEPT_BYTES)
        drop_first(watcher);
    /* Where the tenant's share is full the oldest go, of its own; the newest stays. */
    while (!charge(watcher, watcher->bytes + out->used) && watcher->count > 0)
        drop_first(watcher);
    change = &watcher->kept[(watcher->first + watcher->count) % KEPT];
    *change = (struct change){0};
    if (line != NULL && !out->has_failed) {
        memcpy(line, out->data, out->used);
        *change = (struct change){line, out->used};
        line = NULL;
    }
    free(line);
    watcher->bytes += change->size;
    watcher->count++;
}

static void print_change(struct out *out, const struct files_item *item)
{
    static const char *const names[] = {
        [TOOL_CREATED] = "created",       [TOOL_MODIFIED] = "modified",
        [TOOL_REMOVED] = "removed",       [TOOL_MOVED] = "moved",
        [TOOL_ATTRIBUTES] = "attributes", [TOOL_OVERFLOW] = "overflow",
        [TOOL_WATCHING] = "watching",     [TOOL_UNWATCHED] = "unwatched"};
    bool has_path = item->change.kind != TOOL_OVERFLOW && item->change.kind != TOOL_WATCHING;

    out_object(out, NULL);
    out_text(out, "type", names[item->change.kind]);
    if (has_path || *item->path != '\0')
        files_print_path(out, "path", item->path);
    if (item->change.kind == TOOL_MOVED)
        files_print_path(out, "to", item->change.to);
    else if (*item->change.to != '\0')
        out_text(out, "reason", item->change.to);
    if (has_path)
        out_bool(out, "is_directory", item->change.is_directory);
}

static void print_over(struct out *out, const struct files_item *item)
{
    out_object(out, NULL);
    out_text(out, "type", item->error.code[0] != '\0' ? "failed" : "done");
    if (item->error.code[0] != '\0')
        files_print_error(out, &item->error);
}

/* ---- the tool ---- */

static void tool_news(void *arg)
{
    struct watcher *watcher = arg;
    struct files_item item;

    while (!watcher->is_over && files_next(watcher->files, &item)) {
        struct watching *reader = watcher->reader;
        struct out *out = &watcher->native->out;
        bool is_end = item.kind == FILES_END || item.kind == FILES_FAILED;

        /* Not where it began: what was there can have gone before anybody was told that it is watched. */
        if (is_end && reader != NULL && !reader->call.is_stream && watcher->count == 0) {
            struct error err = item.error;

            if (err.code[0] == '\0')
                (void)error_set(&err, "sandbox_failed", 0, "the watch ended at once");
            watcher->is_over = true;
            job_problem(reader->call.job, &err); /* and with it the watcher goes */
            return;
        }
        out_reset(out, NATIVE_KEPT_BYTES);
        if (item.kind == FILES_CHANGE)
            print_change(out, &item);
        else if (is_end)
            print_over(out, &item);
        else
            continue;
        keep(watcher, out);
        watcher->is_over = is_end;
    }
    if (watcher->reader != NULL && watcher->reader->call.is_stream)
        stream_news(&watcher->reader->call.stream);
    else if (watcher->reader != NULL)
        pump(watcher->reader);
    else if (watcher->is_over)
        watcher_free(watcher);
}

static void tool_room(void *arg)
{
    (void)arg;
}

static void evicted(void *arg, const struct error *err)
{
    struct watcher *watcher = arg;
    struct watching *reader = watcher->reader;

    (void)err;
    watcher->is_over = true;
    if (reader != NULL)
        call_abort(&reader->call); /* and with it the watcher goes */
    else
        watcher_free(watcher);
}

static int watcher_begin(struct watcher *watcher, struct watching *watching, struct error *err)
{
    static const struct files_calls calls = {
        .news = tool_news, .room = tool_room, .evicted = evicted};
    const char *const paths[] = {watcher->path, NULL};
    struct files_spec spec = files_spec(FILES_WATCH, paths);
    struct job *job = watching->call.job;

    spec.recursive = watcher->is_recursive;
    spec.user = watching->user;
    watcher->files = engine_files(job->native->options.engine, &job->caller, job->own_id, &spec,
                                  &calls, watcher, err);
    return watcher->files != NULL ? 0 : -1;
}

/* ---- the reader ---- */

static void print_cursor(struct out *out, const struct watcher *watcher, uint64_t at)
{
    char text[48];

    (void)snprintf(text, sizeof(text), "%s-%" PRIu64, watcher->id, at);
    out_text(out, "cursor", text);
    out_object_end(out);
    out_raw(out, "\n", 1);
}

static void print_gap(struct watching *watching, struct out *out)
{
    out_object(out, NULL);
    out_text(out, "type", "gap");
    print_cursor(out, watching->watcher, watching->at);
}

static bool begin_stream(struct watching *watching);

static void pump(struct watching *watching)
{
    struct watcher *watcher = watching->watcher;
    struct out *out;

    files_hold(watcher->files, watching->call.stream.is_full);
    if (watcher->first + watcher->count == watching->at ||
        (!watching->call.is_stream && !begin_stream(watching)) || watching->call.stream.is_full ||
        watching->call.stream.wants_turn)
        return;
    out = job_out(watching->call.job);
    do {
        const struct change *change;

        if (watching->at < watcher->first) {
            watching->at = watcher->first;
            print_gap(watching, out);
        }
        change = &watcher->kept[watching->at % KEPT];
        watching->at++;
        if (change->line == NULL)
            continue;
        out_raw(out, change->line, change->size);
        print_cursor(out, watcher, watching->at);
    } while (stream_send(&watching->call.stream) && watching->at < watcher->first + watcher->count);
    files_hold(watcher->files, watching->call.stream.is_full);
    if (watcher->is_over && watching->at == watcher->first + watcher->count)
        call_finish(&watching->call);
}

static void more(struct stream *stream)
{
    pump((struct watching *)stream);
}

static void end(struct stream *stream)
{
    call_finish((struct call *)stream);
}

static bool begin_stream(struct watching *watching)
{
    struct call *call = &watching->call;

    if (!job_stream(call->job, "application/x-ndjson"))
        return false;
    stream_add(&call->stream, call->job, true, more);
    account_began(call->job);
    stream_end_after(&call->stream, watching->for_ms, end);
    call->is_stream = true;
    return true;
}

static void gone(void *arg)
{
    call_abort(arg);
}

static void cut(struct job *job)
{
    call_abort(job->own);
}

static void watching_free(void *own)
{
    watcher_leave(own);
}

/* Of the same thing only: a cursor is no key to what another may not see. */
static struct watcher *find(const struct watching *watching, const char *cursor)
{
    const struct job *job = watching->call.job;
    const char *user = watching->user != NULL ? watching->user : "";
    struct watcher *watcher = job->native->watchers;

    while (watcher != NULL &&
           (strncmp(watcher->id, cursor, 16) != 0 || cursor[16] != '-' ||
            strcmp(watcher->sandbox, job->own_id) != 0 ||
            strcmp(watcher->tenant, job->caller.tenant) != 0 ||
            strcmp(watcher->path, watching->call.path) != 0 ||
            strcmp(watcher->beneath, job->caller.path) != 0 || strcmp(watcher->user, user) != 0 ||
            watcher->is_recursive != watching->recursive))
        watcher = watcher->next;
    return watcher;
}

/* Goes on where the cursor says; false: there is no such watch any more. */
static bool resume(struct watching *watching, const char *cursor)
{
    struct watcher *watcher = strlen(cursor) > 17 ? find(watching, cursor) : NULL;
    uint64_t at = watcher != NULL ? strtoull(cursor + 17, NULL, 10) : 0;

    if (watcher == NULL || at > watcher->first + watcher->count)
        return false;
    watcher_take(watcher, watching);
    watching->at = at;
    if (begin_stream(watching))
        pump(watching);
    return true;
}

static void begin(struct watching *watching, bool has_gap)
{
    struct job *job = watching->call.job;
    struct watcher *watcher;
    struct error err;

    watcher = watcher_new(watching, &err);
    if (watcher == NULL) {
        job_problem(job, &err);
        return;
    }
    watching->at = watcher->first;
    watcher_take(watcher, watching);
    if (watcher_begin(watcher, watching, &err) < 0) {
        watcher->is_over = true;
        job_problem(job, &err);
        return;
    }
    if (!has_gap || !begin_stream(watching))
        return;
    print_gap(watching, job_out(job));
    (void)stream_send(&watching->call.stream);
}

HANDLER(files_watch)
{
    static const char *const known[] = {"path", "path_base64", "recursive", "cursor",
                                        "user", "for_ms",      NULL};
    struct native *native = data;
    struct job *job = job_begin_for(request, ENGINE_FILES_READ);
    const char *cursor = http_query(request, "cursor");
    struct watching *watching;
    struct error err;

    if (job == NULL || !job_query(job, known))
        return;
    watching = call_new(job, sizeof(*watching));
    if (watching == NULL)
        return;
    watching->call.free_more = watching_free;
    watching->user = http_query(request, "user");
    /* One sandbox is one, by its id or by its name. */
    if (engine_id_of(native->options.engine, &job->caller, http_param(request, "id"),
                     ENGINE_FILES_READ, job->own_id, &err) < 0 ||
        files_query_path(&watching->call, NULL, &err) < 0 ||
        job_query_flag(job, "recursive", &watching->recursive, &err) < 0 ||
        stream_query(job, &watching->for_ms, &err) < 0) {
        job_problem(job, &err);
        return;
    }
    http_on_gone(request, gone, watching);
    job_on_drain(job, cut);
    if (cursor == NULL || !resume(watching, cursor))
        begin(watching, cursor != NULL);
}
