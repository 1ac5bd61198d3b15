/* Answers in parts and without end: who is behind is written to no more, who is quick lets others have
 * their turn, and where nothing happens a line every 15 seconds says that the stream still lives, which
 * also finds out whether somebody is there. */
#include "front/native/parts.h"

#include "base/clock.h"

#include <stdlib.h>

#define TICK_MS 1000
#define TURN_BYTES (64U << 10)
#define TURNS_MS 1                    /* in one round of the loop: then others are heard */
#define MOST_MS (24ULL * 3600 * 1000) /* that a client may ask for */

static uint64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

static void turn(uv_idle_t *idle);

/* ---- the timer and the idler: made when they are needed first ---- */

static uint64_t next_tick(const struct native *native, uint64_t now)
{
    uint64_t wait = TICK_MS;

    for (const struct stream *stream = native->streams; stream != NULL; stream = stream->next)
        if (stream->end_ms != 0 && stream->end_ms < now + wait)
            wait = stream->end_ms > now ? stream->end_ms - now : 0;
    return wait;
}

static void tick(uv_timer_t *timer)
{
    static const char line[] = "{\"type\":\"keepalive\"}\n";
    struct native *native = timer->data;
    uint64_t now = now_ms();

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

    if (stream->wants_turn)
        return;
    stream->wants_turn = true;
    stream->turn_next = NULL;
    stream->turn_previous = native->turn_last;
    *(native->turn_last != NULL ? &native->turn_last->turn_next : &native->turn_first) = stream;
    native->turn_last = stream;
    native->turns++;
    (void)uv_idle_start(native->idle, turn);
}

static void turn_drop(struct stream *stream)
{
    struct native *native = stream->job->native;

    if (!stream->wants_turn)
        return;
    stream->wants_turn = false;
    native->turns--;
    *(stream->turn_previous != NULL ? &stream->turn_previous->turn_next
                                    : &native->turn_first) = stream->turn_next;
    *(stream->turn_next != NULL ? &stream->turn_next->turn_previous
                                : &native->turn_last) = stream->turn_previous;
}

/* One for each that waits now, the longest waiting first; who wants another stands at the end of the line.
 * `more` may end any stream. With a thousand of them this takes its time, so the loop hears others in
 * between. */
static void turn(uv_idle_t *idle)
{
    struct native *native = idle->data;
    uint64_t begun = now_ms();

    for (size_t left = native->turns;
         left > 0 && native->turn_first != NULL && now_ms() - begun < TURNS_MS; left--) {
        struct stream *stream = native->turn_first;

        turn_drop(stream);
        stream->more(stream);
    }
    if (native->turn_first == NULL)
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
    stream->more(stream);
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
    if (make_handles(native) == 0 && has_keepalive && !uv_is_active((uv_handle_t *)native->timer))
        (void)uv_timer_start(native->timer, tick, TICK_MS, TICK_MS);
}

void stream_remove(struct stream *stream)
{
    struct native *native = stream->job->native;

    turn_drop(stream);
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

bool stream_sent(struct stream *stream, size_t size, size_t waiting)
{
    struct native *native = stream->job->native;

    stream->written_ms = now_ms();
    stream->turn_bytes += size;
    stream->is_full = waiting > NATIVE_BACKLOG;
    if (stream->is_full || stream->turn_bytes < TURN_BYTES || native->idle == NULL)
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
