/* Answers in parts and without end: who is behind is written to no more, who is quick lets others have
 * their turn, and where nothing happens a line every 15 seconds says that the stream still lives, which
 * also finds out whether somebody is there. */
#include "front/native/parts.h"

#include "base/clock.h"
#include "base/tenancy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 1000
#define TURN_BYTES (64U << 10)
#define TURNS_MS 1                    /* in one round of the loop: then others are heard */
#define FEW 8                         /* streams of a tenant, which are sent their news at once */
#define MOST_MS (24ULL * 3600 * 1000) /* that a client may ask for */

static uint64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

static void turn(uv_idle_t *idle);

/* ---- the share of a tenant ---- */

static void count(struct stream *stream, size_t waiting)
{
    if (stream->streamer == NULL)
        return;
    stream->job->native->streamed += waiting - stream->waiting;
    stream->streamer->bytes += waiting - stream->waiting;
    stream->waiting = waiting;
}

static bool is_over(const struct native *native, const struct streamer *streamer)
{
    uint64_t most = engine_memory_kept();
    uint64_t all = native->streamed < most ? native->streamed : most;

    return streamer != NULL && !tenancy_may_have(most, all, streamer->bytes, 0);
}

/* ---- the timer and the idler: made when they are needed first ---- */

static uint64_t next_tick(const struct native *native, uint64_t now)
{
    uint64_t wait = TICK_MS;

    for (const struct stream *stream = native->streams; stream != NULL; stream = stream->next)
        if (stream->end_ms != 0 && stream->end_ms < now + wait)
            wait = stream->end_ms > now ? stream->end_ms - now : 0;
    return wait;
}

static void turn_want(struct stream *stream);

/* A client that has taken something makes room for others of its tenant. */
static void look_for_room(struct native *native)
{
    struct stream *stream;

    for (stream = native->streams; stream != NULL; stream = stream->next)
        count(stream, http_waiting(stream->job->request));
    for (stream = native->streams; stream != NULL; stream = stream->next) {
        if (!stream->is_held || is_over(native, stream->streamer))
            continue;
        stream->is_held = false;
        if (!stream->is_full)
            turn_want(stream);
    }
}

static void tick(uv_timer_t *timer)
{
    static const char line[] = "{\"type\":\"keepalive\"}\n";
    struct native *native = timer->data;
    uint64_t now = now_ms();

    look_for_room(native);
    for (struct stream *stream = native->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        if (stream->end_ms != 0 && now >= stream->end_ms) {
            stream->end(stream);
            continue;
        }
        /* One who does not read has enough to read. */
        if (!stream->has_keepalive || stream->is_full ||
            now - stream->written_ms < NATIVE_KEEPALIVE_MS)
            continue;
        stream->written_ms = now;
        stream->is_full = http_write(stream->job->request, line, sizeof(line) - 1) > NATIVE_BACKLOG;
    }
    if (native->streams == NULL)
        (void)uv_timer_stop(timer);
    else
        (void)uv_timer_start(timer, tick, next_tick(native, now), TICK_MS);
}

/* ---- turns ---- */

static void turn_want(struct stream *stream)
{
    struct native *native = stream->job->native;
    struct streamer *streamer = stream->streamer;

    if (stream->wants_turn)
        return;
    if (TAILQ_EMPTY(&streamer->waiting))
        TAILQ_INSERT_TAIL(&native->turning, streamer, turn);
    TAILQ_INSERT_TAIL(&streamer->waiting, stream, turn);
    stream->wants_turn = true;
    native->turns++;
    (void)uv_idle_start(native->idle, turn);
}

static void turn_drop(struct stream *stream)
{
    struct native *native = stream->job->native;
    struct streamer *streamer = stream->streamer;

    if (!stream->wants_turn)
        return;
    stream->wants_turn = false;
    native->turns--;
    TAILQ_REMOVE(&streamer->waiting, stream, turn);
    if (TAILQ_EMPTY(&streamer->waiting))
        TAILQ_REMOVE(&native->turning, streamer, turn);
}

/* The stream whose turn it is; the next turn is another tenant's. */
static struct stream *turn_take(struct native *native)
{
    struct streamer *streamer = TAILQ_FIRST(&native->turning);
    struct stream *stream = TAILQ_FIRST(&streamer->waiting);

    TAILQ_REMOVE(&native->turning, streamer, turn);
    TAILQ_INSERT_TAIL(&native->turning, streamer, turn);
    turn_drop(stream);
    return stream;
}

/* Or it waits until clients of its tenant have taken more. */
static void go_on(struct stream *stream)
{
    struct native *native = stream->job->native;

    if (!is_over(native, stream->streamer)) {
        stream->more(stream);
        return;
    }
    stream->is_held = true;
    if (!uv_is_active((uv_handle_t *)native->timer))
        (void)uv_timer_start(native->timer, tick, TICK_MS, TICK_MS);
}

/* So many as wait now, of each tenant the longest waiting first; who wants another stands at the end of its line.
 * `more` may end any stream. With a thousand of them this takes its time, so the loop hears others in
 * between. */
static void turn(uv_idle_t *idle)
{
    struct native *native = idle->data;
    uint64_t begun = now_ms();

    for (size_t left = native->turns; left > 0 && native->turns > 0 && now_ms() - begun < TURNS_MS;
         left--) {
        go_on(turn_take(native));
    }
    if (native->turns == 0)
        (void)uv_idle_stop(idle);
}

static int make_handles(struct native *native)
{
    uv_timer_t *timer;
    uv_idle_t *idle;

    if (native->timer != NULL)
        return 0;
    timer = malloc(sizeof(*timer));
    idle = malloc(sizeof(*idle));
    if (timer == NULL || idle == NULL) {
        free(timer);
        free(idle);
        return -1;
    }
    (void)uv_timer_init(native->options.loop, timer);
    (void)uv_idle_init(native->options.loop, idle);
    timer->data = native;
    idle->data = native;
    uv_unref((uv_handle_t *)timer);
    native->timer = timer;
    native->idle = idle;
    return 0;
}

static void handle_closed(uv_handle_t *handle)
{
    free(handle);
}

void streams_open(struct native *native)
{
    TAILQ_INIT(&native->streamers);
    TAILQ_INIT(&native->turning);
}

void streams_close(struct native *native)
{
    if (native->timer == NULL)
        return;
    uv_close((uv_handle_t *)native->timer, handle_closed);
    uv_close((uv_handle_t *)native->idle, handle_closed);
    native->timer = NULL;
    native->idle = NULL;
}

/* ---- a stream ---- */

static void drained(void *arg)
{
    struct stream *stream = arg;

    stream->is_full = false;
    count(stream, http_waiting(stream->job->request));
    stream_news(stream);
}

static struct streamer *streamer_of(struct native *native, const char *tenant)
{
    struct streamer *streamer;

    TAILQ_FOREACH(streamer, &native->streamers, next)
    if (strcmp(streamer->tenant, tenant) == 0)
        return streamer;
    streamer = calloc(1, sizeof(*streamer));
    if (streamer == NULL)
        return NULL;
    (void)snprintf(streamer->tenant, sizeof(streamer->tenant), "%s", tenant);
    TAILQ_INIT(&streamer->waiting);
    TAILQ_INSERT_TAIL(&native->streamers, streamer, next);
    return streamer;
}

static void streamer_release(struct native *native, struct streamer *streamer)
{
    if (streamer == NULL || --streamer->streams > 0)
        return;
    TAILQ_REMOVE(&native->streamers, streamer, next);
    free(streamer);
}

void stream_add(struct stream *stream, struct job *job, bool has_keepalive,
                void (*more)(struct stream *stream))
{
    struct native *native = job->native;

    *stream = (struct stream){
        .next = native->streams,
        .job = job,
        .more = more,
        .written_ms = now_ms(),
        .has_keepalive = has_keepalive,
    };
    if (stream->next != NULL)
        stream->next->previous = stream;
    native->streams = stream;
    http_on_drained(job->request, drained, stream);
    /* Without memory for these a stream lives on, only less politely. */
    if (make_handles(native) != 0)
        return;
    stream->streamer = streamer_of(native, job->caller.tenant);
    if (stream->streamer != NULL)
        stream->streamer->streams++;
    if (has_keepalive && !uv_is_active((uv_handle_t *)native->timer))
        (void)uv_timer_start(native->timer, tick, TICK_MS, TICK_MS);
}

void stream_remove(struct stream *stream)
{
    struct native *native = stream->job->native;

    turn_drop(stream);
    count(stream, 0);
    streamer_release(native, stream->streamer);
    stream->streamer = NULL;
    *(stream->previous != NULL ? &stream->previous->next : &native->streams) = stream->next;
    if (stream->next != NULL)
        stream->next->previous = stream->previous;
}

int stream_query(const struct job *job, uint64_t *for_ms, struct error *err)
{
    *for_ms = 0;
    return job_query_count(job, "for_ms", 1, MOST_MS, for_ms, err);
}

void stream_end_after(struct stream *stream, uint64_t for_ms, void (*end)(struct stream *stream))
{
    struct native *native = stream->job->native;
    uint64_t now = now_ms();

    if (for_ms == 0)
        return;
    stream->end_ms = now + for_ms;
    stream->end = end;
    if (native->timer != NULL)
        (void)uv_timer_start(native->timer, tick, next_tick(native, now), TICK_MS);
}

void stream_news(struct stream *stream)
{
    if (stream->is_full || stream->wants_turn || stream->is_held)
        return;
    if (stream->streamer != NULL && stream->streamer->streams > FEW)
        turn_want(stream);
    else
        go_on(stream);
}

bool streams_may_begin(const struct job *job)
{
    const struct native *native = job->native;
    const struct streamer *streamer;

    TAILQ_FOREACH(streamer, &native->streamers, next)
    if (strcmp(streamer->tenant, job->caller.tenant) == 0)
        break;
    return !is_over(native, streamer);
}

bool stream_sent(struct stream *stream, size_t size, size_t waiting)
{
    stream->written_ms = now_ms();
    stream->turn_bytes += size;
    count(stream, waiting);
    stream->is_full = waiting > NATIVE_BACKLOG ||
                      (waiting > 0 && is_over(stream->job->native, stream->streamer));
    if (stream->is_full || stream->turn_bytes < TURN_BYTES || stream->streamer == NULL)
        return !stream->is_full;
    stream->turn_bytes = 0;
    turn_want(stream);
    return false;
}

bool stream_send(struct stream *stream)
{
    struct out *out = &stream->job->native->out;
    size_t size = out->used, waiting;

    if (size == 0)
        return !stream->is_full;
    waiting = http_write(stream->job->request, out->data, size);
    out_sent(out);
    return stream_sent(stream, size, waiting);
}
