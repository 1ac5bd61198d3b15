/* Streams: from the pipes of a command into its output files, some in each turn of the loop.
 *
 * A pipe that floods gets its share of a turn and comes again in the next; nobody who reads is waited
 * for. After the command has exited its streams owe what they held then, and no more: a daemon that
 * goes on writing does not keep the result back. */
#include "engine/procs_parts.h"

#include "base/fd.h"

#include <sys/ioctl.h>

#define PAUSE_MS 200

static uint64_t kept(const struct stream *stream)
{
    return stream->log_file.bytes - stream->log_file.from;
}

uint64_t proc_log_bytes(const struct proc *proc)
{
    return kept(&proc->streams[0]) + kept(&proc->streams[1]);
}

/* Both streams share the limit: the longer one gives. */
static void limit(struct proc *proc)
{
    while (proc_log_bytes(proc) > proc->log_bytes) {
        struct stream *longer =
            &proc->streams[kept(&proc->streams[1]) > kept(&proc->streams[0]) ? 1 : 0];

        if (!log_trim(&longer->log_file, proc->log_bytes / 16 + LOG_ALIGN))
            log_drop(&longer->log_file);
    }
}

void proc_count_log(struct proc *proc, uint64_t bytes)
{
    proc->procs->log_bytes += bytes - proc->counted;
    proc->counted = bytes;
}

static struct stream *longest(struct procs *procs)
{
    struct stream *longest = NULL;

    for (size_t i = 0; i < procs->count; i++)
        for (int which = 0; which < 2; which++) {
            struct stream *stream = &procs->list[i]->streams[which];

            if (!procs->list[i]->is_hidden && (longest == NULL || kept(stream) > kept(longest)))
                longest = stream;
        }
    return longest;
}

/* All processes share what their sandbox may have on the host's disk, and take no more of one that is
 * nearly full: it is also that of the others. */
static void limit_all(struct procs *procs, uint64_t before)
{
    uint64_t most = procs->log_share > 0 ? procs->log_share : UINT64_MAX;

    if (procs->log_bytes > before && procs->calls.disk_is_low != NULL &&
        procs->calls.disk_is_low(procs->arg) && before < most)
        most = before;
    if (most < PROCS_SHARE_LEAST)
        most = PROCS_SHARE_LEAST;
    while (procs->log_bytes > most) {
        struct stream *stream = longest(procs);

        if (stream == NULL || kept(stream) == 0)
            return;
        if (!log_trim(&stream->log_file, most / 16 + LOG_ALIGN))
            log_drop(&stream->log_file);
        proc_count_log(stream->proc, proc_log_bytes(stream->proc));
        if (stream->proc->has_ended && stream->watched.fd < 0)
            log_close(&stream->log_file);
    }
}

static void ended(struct stream *stream)
{
    struct proc *proc = stream->proc;

    stream->owed = 0;
    watched_close(proc->procs, &stream->watched);
    procs_dirty(proc->procs, proc);
    if (proc->has_ended)
        log_close(&stream->log_file);
}

/* We are out of something: the pipe keeps what it has, and its writer waits. */
static void pause_stream(struct stream *stream);

static void after(struct stream *stream, enum log_state state)
{
    if (state == LOG_ENDED)
        ended(stream);
    else if (state == LOG_EMPTY)
        stream->owed = 0;
    else if (state == LOG_LATER)
        pause_stream(stream);
}

void stream_turn(struct stream *stream, size_t most)
{
    struct proc *proc = stream->proc;
    uint64_t before = stream->log_file.bytes, moved;
    enum log_state state;

    if (stream->watched.fd < 0)
        return;
    if (proc->is_hidden) {
        after(stream, log_discard(stream->watched.fd, most));
        return;
    }
    state = log_pump(&stream->log_file, stream->watched.fd, most);
    moved = stream->log_file.bytes - before;
    if (moved > 0) {
        uint64_t of_all = proc->procs->log_bytes;

        stream->owed -= moved < stream->owed ? moved : stream->owed;
        limit(proc);
        proc_count_log(proc, proc_log_bytes(proc));
        limit_all(proc->procs, of_all);
        procs_dirty(proc->procs, proc);
    }
    after(stream, state);
}

static void on_event(struct watched *watched, uint32_t events)
{
    struct stream *stream = (struct stream *)watched;
    struct proc *proc = stream->proc;

    (void)events;
    stream_turn(stream, PROCS_TURN_BYTES);
    if (proc->exit_heard && !proc->has_ended)
        proc_check_end(proc);
    else if (stream->watched.fd < 0)
        proc_acknowledge(proc);
}

void stream_open(struct stream *stream, int fd)
{
    stream->watched.act = on_event;
    watched_open(stream->proc->procs, &stream->watched, fd);
    procs_dirty(stream->proc->procs, stream->proc);
}

/* At the end of a turn: with a short command it may have ended by then. */
void stream_watch(struct stream *stream)
{
    if (stream->watched.fd >= 0 && !stream->watched.is_set && !stream->is_paused &&
        watched_set(stream->proc->procs, &stream->watched, EPOLLIN) < 0)
        pause_stream(stream);
}

static void on_pause_end(void *arg)
{
    struct procs *procs = arg;

    proc_alarm_drop(&procs->pause);
    procs_enter(procs);
    for (struct proc *proc = procs_after(procs, 0); proc != NULL;
         proc = procs_after(procs, proc->number))
        for (int i = 0; i < 2; i++) {
            proc->streams[i].is_paused = false;
            stream_watch(&proc->streams[i]);
        }
    procs_leave(procs);
}

static void pause_stream(struct stream *stream)
{
    struct procs *procs = stream->proc->procs;

    watched_unset(procs, &stream->watched);
    stream->is_paused = true;
    if (procs->pause == NULL)
        procs->pause = proc_alarm_set(procs->loop, PAUSE_MS, on_pause_end, procs);
}

void stream_owe(struct stream *stream)
{
    int bytes = 0;

    if (stream->watched.fd >= 0 && ioctl(stream->watched.fd, FIONREAD, &bytes) == 0 && bytes > 0)
        stream->owed = (uint64_t)bytes;
}

void stream_finish(struct stream *stream)
{
    if (stream->watched.fd < 0)
        return;
    stream_owe(stream);
    while (stream->watched.fd >= 0 && stream->owed > 0) {
        uint64_t before = stream->log_file.bytes;

        stream_turn(stream,
                    stream->owed < PROCS_TURN_BYTES ? (size_t)stream->owed : PROCS_TURN_BYTES);
        if (stream->proc->is_hidden || stream->log_file.bytes == before)
            break;
    }
    if (stream->watched.fd < 0)
        return;
    if (stream->is_paused && stream->owed > 0 && !stream->proc->is_hidden)
        stream->owed = 0; /* it stays until what we are out of is there again: its end waits not */
    else
        ended(stream);
}
