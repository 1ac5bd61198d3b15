/* Any bytes as what a worker says to the engine, or as what the engine asks of a worker: what is no frame ends the
 * worker, and nothing is heard twice, of nobody's, or from outside the frame. The first byte says which of both. */
#include "base/fd.h"
#include "fuzz.h"
#include "kernel/proto.h"
#include "kernel/remote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What was asked for: so many answers may come of each number at most. */
enum { NEW = 1, BASE, SINGLE, RUN, COPY, NUMBERS };
static const unsigned answers_of[NUMBERS] = {
    [NEW] = 1, [BASE] = 3, [SINGLE] = 1, [RUN] = 1, [COPY] = 1};

/* Every byte is looked at, so that one that is not there is seen. */
static void look(const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        (void)((const volatile uint8_t *)data)[i];
}

static void look_text(struct kernel_text text)
{
    look(text.data, text.size);
}

static void look_result(const struct kernel_result *result)
{
    const struct kernel_text texts[] = {result->output,      result->type,   result->value,
                                        result->value_error, result->errors, result->name,
                                        result->message,     result->stack,  result->code};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        look_text(texts[i]);
    for (size_t i = 0; i < result->logs_count; i++) {
        must(result->logs[i].level <= KERNEL_DEBUG);
        look_text(result->logs[i].text);
    }
    must(result->end <= KERNEL_END_STOPPED);
}

static void ask(struct remote *remote)
{
    static const struct kernel_grants grants;
    static const struct kernel_source source = {.text = "1", .size = 1};
    struct error err;

    must(remote_new(remote, NEW, &grants, &err) == 0);
    must(remote_new(remote, BASE, &grants, &err) == 0);
    must(remote_snapshot(remote, BASE, &err) == 0);
    must(remote_reset(remote, BASE, &err) == 0);
    must(remote_fork(remote, BASE, COPY, &err) == 0);
    must(remote_run(remote, SINGLE, 0, &grants, &source, &err) == 0);
    must(remote_run(remote, RUN, BASE, NULL, &source, &err) == 0);
    must(remote_drop(remote, NEW, &err) == 0);
}

static void hear(struct remote *remote, const struct remote_event *event, unsigned answers[NUMBERS])
{
    struct error err;

    must(event->number < NUMBERS);
    switch (event->kind) {
    case REMOTE_READY:
    case REMOTE_GONE:
        must(event->number == 0);
        break;
    case REMOTE_CALL:
        look_text(event->call.op);
        look_text(event->call.meta);
        look(event->call.bytes, event->call.bytes_size);
        must(answers[event->number] == 0 && (event->number == RUN || event->number == SINGLE));
        must(remote_settle(remote, event->number, event->call.id, NULL, 0, NULL, 0, &err) == 0);
        break;
    case REMOTE_CANCEL:
        look_text(event->call.op);
        look_text(event->call.meta);
        must(answers[event->number] == 0 && (event->number == RUN || event->number == SINGLE));
        break;
    case REMOTE_DONE:
        look_result(event->result);
        answers[event->number]++;
        break;
    case REMOTE_FAILED:
        look(event->error.text, strlen(event->error.text));
        answers[event->number]++;
        break;
    default:
        look(event->bytes, event->size);
        answers[event->number]++;
        break;
    }
    must(answers[event->number] <= answers_of[event->number]);
}

static void from_worker(const uint8_t *data, size_t size)
{
    const struct remote_options options = {.key = {1}};
    unsigned answers[NUMBERS] = {0};
    struct remote_event event;
    struct remote *remote;
    struct error err;
    int pair[2];

    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    must(remote_open(pair[0], &options, &remote, &err) == 0);
    ask(remote);
    (void)!send(pair[1], data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)shutdown(pair[1], SHUT_WR);
    do {
        must(remote_next(remote, &event) == 1);
        hear(remote, &event, answers);
    } while (event.kind != REMOTE_GONE);
    must(remote_next(remote, &event) == 0 && remote_stop(remote, RUN, KERNEL_END_WALL, &err) < 0);
    remote_close(remote);
    (void)close(pair[1]);
}

/* As a worker reads it. */
static void to_worker(const struct proto_head *head, const uint8_t *body)
{
    struct wire_reader reader = wire_reader(body, head->size);
    const char **room = NULL;
    struct kernel_grants grants;
    struct kernel_source source;
    size_t size, left;

    switch (head->kind) {
    case PROTO_RUN:
        (void)wire_read_u64(&reader);
        wire_read_source(&reader, &source);
        look(source.text, source.size);
        look(source.filename, strlen(source.filename));
        break;
    case PROTO_RESTORE:
        size = wire_read_u32(&reader, PROTO_RESULT_MAX);
        left = (size_t)(reader.end - reader.at);
        (void)wire_read_raw(&reader, size <= left ? left - size : SIZE_MAX);
        look_text((struct kernel_text){(const char *)wire_read_raw(&reader, size),
                                       reader.bad ? 0 : size});
        break;
    case PROTO_SETTLE:
        (void)wire_read_u32(&reader, UINT32_MAX);
        look_text(wire_read_bytes(&reader, KERNEL_META_MAX));
        (void)wire_read_u32(&reader, 1);
        look_text(wire_read_bytes(&reader, PROTO_RESULT_MAX));
        break;
    case PROTO_SETTLE_ERROR:
        (void)wire_read_u32(&reader, UINT32_MAX);
        look("", strlen(wire_read_string(&reader, ERROR_CODE_MAX)) & 0);
        look("", strlen(wire_read_string(&reader, KERNEL_META_MAX / 8)) & 0);
        break;
    default:
        break;
    }
    wire_read_grants(&reader, &grants, &room);
    if (room != NULL) {
        const char *const *lists[] = {grants.hosts, grants.env, grants.tools, grants.argv};

        for (size_t i = 0; i < 4; i++)
            for (size_t j = 0; lists[i] != NULL && lists[i][j] != NULL; j++)
                look(lists[i][j], strlen(lists[i][j]));
    }
    free(room);
    must(reader.at <= reader.end && (!reader.bad || !wire_is_done(&reader)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proto_head head;

    if (size == 0)
        return 0;
    if (data[0] % 2 == 0) {
        from_worker(data + 1, size - 1);
        return 0;
    }
    data++;
    size--;
    while (size >= sizeof(head)) {
        memcpy(&head, data, sizeof(head));
        data += sizeof(head);
        size -= sizeof(head);
        if (!proto_head_is_sound(&head, false) || head.size > size)
            break;
        to_worker(&head, data);
        data += head.size;
        size -= head.size;
    }
    return 0;
}
