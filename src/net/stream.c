/* DNS over TCP: questions with their length before them, one at a time, each answered before the next is read.
 * Who is slow to ask or to take an answer has ten seconds for each. */
#include "net/carry.h"

#include "base/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define ANSWER_MAX 65535U

struct stream {
    struct watch watch;
    struct task task;
    struct alarm patience;
    struct net_box *box;
    int fd;
    void (*over)(void *arg);
    void *arg;
    bool is_asking;  /* a question is looked for */
    uint8_t *answer; /* that is on its way, with its length; NULL: none */
    size_t answer_size, answer_sent;
    size_t used;
    bool has_ended, is_late;
    uint8_t question[2 + DNS_QUESTION_MAX];
};

static struct turns *turns_of(const struct stream *stream)
{
    return net_turns(net_box_net(stream->box));
}

void stream_cut(struct stream *stream)
{
    if (stream->is_asking)
        lookups_forget(net_box_lookups(stream->box), stream);
    task_drop(&stream->task);
    turns_calm(turns_of(stream), &stream->patience);
    turns_unwatch(turns_of(stream), stream->fd);
    if (stream->has_ended)
        fd_close(&stream->fd);
    else
        pump_reset(&stream->fd);
    free(stream->answer);
    free(stream);
}

static void finish(struct stream *stream)
{
    void (*over)(void *arg) = stream->over;
    void *arg = stream->arg;

    stream_cut(stream);
    over(arg);
}

static void renew(struct stream *stream)
{
    turns_alarm(turns_of(stream), &stream->patience, ALARM_PATIENCE);
}

/* ---- answers ---- */

static void take_answer(struct stream *stream, const uint8_t *packet, size_t size)
{
    if (size > 0 && size <= ANSWER_MAX)
        stream->answer = malloc(size + 2);
    if (stream->answer == NULL) {
        stream->is_late = true; /* cut, in its turn */
        return;
    }
    stream->answer[0] = (uint8_t)(size >> 8);
    stream->answer[1] = (uint8_t)size;
    memcpy(stream->answer + 2, packet, size);
    stream->answer_size = size + 2;
    stream->answer_sent = 0;
}

static void on_answer(void *arg, const uint8_t *packet, size_t size)
{
    struct stream *stream = arg;

    stream->is_asking = false;
    take_answer(stream, packet, size);
    renew(stream);
    task_ready(&stream->task);
}

static void send_answer(struct stream *stream)
{
    ssize_t n = send(stream->fd, stream->answer + stream->answer_sent,
                     stream->answer_size - stream->answer_sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n > 0)
        stream->answer_sent += (size_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        stream->is_late = true;
    if (n > 0 || errno == EINTR)
        task_ready(&stream->task);
    if (stream->answer_sent < stream->answer_size)
        return;
    free(stream->answer);
    stream->answer = NULL;
}

/* ---- questions ---- */

static void ask(struct stream *stream, size_t size)
{
    uint8_t question[DNS_QUESTION_MAX];

    memcpy(question, stream->question + 2, size);
    stream->used -= size + 2;
    memmove(stream->question, stream->question + 2 + size, stream->used);
    stream->is_asking = true;
    turns_calm(turns_of(stream), &stream->patience); /* the answer has its own */
    lookups_ask(net_box_lookups(stream->box), question, size, on_answer, stream);
}

/* False where nothing more is there for now. */
static bool read_some(struct stream *stream)
{
    ssize_t n = recv(stream->fd, stream->question + stream->used,
                     sizeof(stream->question) - stream->used, MSG_DONTWAIT);

    if (n > 0) {
        stream->used += (size_t)n;
        return true;
    }
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    stream->has_ended = n == 0 && stream->used == 0;
    stream->is_late = true;
    return false;
}

static void read_question(struct stream *stream)
{
    size_t size;

    do {
        size = stream->used >= 2 ? (size_t)stream->question[0] << 8 | stream->question[1] : 0;
        if (stream->used >= 2 && (size == 0 || size > DNS_QUESTION_MAX)) {
            stream->is_late = true;
            return;
        }
        if (stream->used >= 2 && stream->used >= 2 + size) {
            ask(stream, size);
            return;
        }
    } while (read_some(stream));
}

/* One question, or one answer, in each turn. */
static void run(struct task *task)
{
    struct stream *stream = (struct stream *)((char *)task - offsetof(struct stream, task));

    if (stream->answer != NULL && !stream->is_late)
        send_answer(stream);
    else if (stream->answer == NULL && !stream->is_asking && !stream->is_late)
        read_question(stream);
    if (stream->is_late)
        finish(stream);
}

static void on_patience(struct alarm *alarm)
{
    struct stream *stream = (struct stream *)((char *)alarm - offsetof(struct stream, patience));

    stream->is_late = true;
    task_ready(&stream->task);
}

static void note(struct watch *watch, uint32_t events)
{
    struct stream *stream = (struct stream *)watch;

    (void)events;
    task_ready(&stream->task);
}

struct stream *stream_new(struct net_box *box, int fd, void (*over)(void *arg), void *arg)
{
    struct stream *stream = calloc(1, sizeof(*stream));

    if (stream == NULL) {
        pump_reset(&fd);
        return NULL;
    }
    stream->watch.note = note;
    stream->task = (struct task){.share = net_box_share(box), .run = run};
    stream->patience.ring = on_patience;
    stream->box = box;
    stream->fd = fd;
    stream->over = over;
    stream->arg = arg;
    pump_prepare(fd);
    if (turns_watch(turns_of(stream), fd, EPOLLIN | EPOLLOUT, &stream->watch) < 0) {
        stream_cut(stream);
        return NULL;
    }
    renew(stream);
    return stream;
}
