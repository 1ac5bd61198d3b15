/* Frames that nobody sends who means well. What a worker is sent so ends it; what a worker says so ends it for the
 * engine, which never blocks, keeps nothing for what is only claimed, and hears of nothing twice. */
#include "check.h"
#include "kernel/proto.h"
#include "worker_kit.h"

#include "base/clock.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct kernel_grants nothing;
static const struct kernel_source one = {.text = "1 + 1", .size = 5};

static void hello_of(struct wire *wire, uint32_t version)
{
    static const uint8_t key[KERNEL_KEY_BYTES] = {1};

    wire_begin(wire, PROTO_HELLO, 0);
    wire_u32(wire, version);
    wire_raw(wire, key, sizeof(key));
    wire_u64(wire, 0);
    wire_u64(wire, 0);
    wire_end(wire);
}

static void hello(struct wire *wire)
{
    hello_of(wire, PROTO_VERSION);
}

static void raw_head(struct wire *wire, uint32_t size, uint32_t kind, uint64_t number)
{
    struct proto_head head = {size, kind, number};

    wire_raw(wire, &head, sizeof(head));
}

/* ---- to a worker ---- */

static void to_no_hello(struct wire *wire)
{
    wire_begin(wire, PROTO_DROP, 1);
    wire_end(wire);
}

static void to_other_version(struct wire *wire)
{
    hello_of(wire, PROTO_VERSION + 1);
}

static void to_hello_twice(struct wire *wire)
{
    hello(wire);
    hello(wire);
}

static void to_more_behind(struct wire *wire)
{
    hello(wire);
    wire_begin(wire, PROTO_NEW, 1);
    wire_grants(wire, &nothing);
    wire_u32(wire, 0);
    wire_end(wire);
}

static void to_many_grants(struct wire *wire)
{
    hello(wire);
    wire_begin(wire, PROTO_NEW, 1);
    wire_u32(wire, KERNEL_GRANTS_MAX + 1);
    for (unsigned i = 0; i <= KERNEL_GRANTS_MAX; i++)
        wire_string(wire, "x");
    wire_end(wire);
}

static void to_nul_within(struct wire *wire)
{
    hello(wire);
    wire_begin(wire, PROTO_NEW, 1);
    wire_u32(wire, 1);
    wire_bytes(wire, "a\0b", 4);
    wire_end(wire);
}

static void to_twice(struct wire *wire)
{
    hello(wire);
    for (int i = 0; i < 2; i++) {
        wire_begin(wire, PROTO_NEW, 1);
        wire_grants(wire, &nothing);
        wire_end(wire);
    }
}

static void to_source_claims(struct wire *wire)
{
    hello(wire);
    wire_begin(wire, PROTO_RUN, 1);
    wire_u64(wire, 0);
    for (int i = 0; i < 4; i++)
        wire_u32(wire, 0);
    wire_string(wire, "x");
    wire_u32(wire, UINT32_MAX);
    wire_end(wire);
}

static void to_end_of_nothing(struct wire *wire)
{
    hello(wire);
    wire_begin(wire, PROTO_STOP, 1);
    wire_u32(wire, KERNEL_END_VALUE);
    wire_end(wire);
}

static void to_settle_short(struct wire *wire)
{
    hello(wire);
    wire_begin(wire, PROTO_RUN, 1);
    wire_u64(wire, 0);
    wire_source(wire, &(struct kernel_source){.text = "await new Promise(r => setTimeout(r, 1e6))",
                                              .size = 42});
    wire_grants(wire, &nothing);
    wire_end(wire);
    wire_begin(wire, PROTO_SETTLE, 1);
    wire_u32(wire, 1);
    wire_end(wire);
}

static void (*const to_worker[])(struct wire *) = {
    to_no_hello,   to_other_version, to_hello_twice,   to_more_behind,    to_many_grants,
    to_nul_within, to_twice,         to_source_claims, to_end_of_nothing, to_settle_short,
};

/* Heads without a body, behind a hello. */
static const struct proto_head to_worker_heads[] = {
    {0, 12, 1}, /* no kind */
    {0, PROTO_MADE, 1}, {0, PROTO_DROP, 0}, {PROTO_BODY_MAX + 1, PROTO_NEW, 1}, {0, PROTO_NEW, 1},
};

/* Until the worker is gone; false: it goes on. */
static bool drained(int socket)
{
    uint64_t until = clock_monotonic_ns() + WORKER_PATIENCE * 1000000000ULL;
    struct pollfd fd = {socket, POLLIN, 0};
    char bytes[4096];

    while (clock_monotonic_ns() < until) {
        ssize_t got;

        if (poll(&fd, 1, 1000) <= 0)
            continue;
        got = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            return true;
    }
    return false;
}

static void ends_worker(const char *what, size_t i, struct wire *wire)
{
    int socket, status = 0;
    pid_t pid = worker_exec(&socket);

    CHECK(send(socket, wire->data, wire->size, MSG_NOSIGNAL) == (ssize_t)wire->size, "sent");
    CHECK(drained(socket), "%s %zu: the worker goes on", what, i);
    (void)close(socket);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 1,
          "%s %zu: it ends with status %#x", what, i, (unsigned)status);
    wire_free(wire);
}

static void hostile_engine(void)
{
    for (size_t i = 0; i < sizeof(to_worker) / sizeof(to_worker[0]); i++) {
        struct wire wire = {0};

        to_worker[i](&wire);
        ends_worker("frame", i, &wire);
    }
    for (size_t i = 0; i < sizeof(to_worker_heads) / sizeof(to_worker_heads[0]); i++) {
        struct wire wire = {0};

        hello(&wire);
        wire_raw(&wire, &to_worker_heads[i], sizeof(to_worker_heads[i]));
        ends_worker("head", i, &wire);
    }
}

/* Byte by byte, as a slow socket has it. */
static void crumbs(void)
{
    struct worker_end end = {0};
    struct remote_options options = {.key = {1}};
    struct wire wire = {0};
    int socket, fake[2];
    struct error err;

    end.pid = worker_exec(&socket);
    hello(&wire);
    wire_begin(&wire, PROTO_RUN, 7);
    wire_u64(&wire, 0);
    wire_source(&wire, &one);
    wire_grants(&wire, &nothing);
    wire_end(&wire);
    for (size_t i = 0; i < wire.size; i++) {
        CHECK(send(socket, wire.data + i, 1, MSG_NOSIGNAL) == 1, "a byte");
        if (i % 16 == 0)
            (void)usleep(1000);
    }
    wire_free(&wire);
    /* And back, to an end that asked the same of somebody else. */
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fake) == 0, "a socket");
    CHECK(remote_open(fake[0], &options, &end.remote, &err) == 0, "opened");
    CHECK(remote_run(end.remote, 7, 0, NULL, &one, &err) == 0, "asked");
    for (bool done = false; !done;) {
        char byte;

        CHECK(recv(socket, &byte, 1, 0) == 1 && send(fake[1], &byte, 1, 0) == 1, "a byte");
        done = remote_next(end.remote, &end.event) == 1 && end.event.kind != REMOTE_READY;
    }
    CHECK(end.event.kind == REMOTE_DONE && end.event.number == 7 &&
              kernel_text_is(end.event.result->output, "2"),
          "a result");
    (void)close(socket);
    (void)close(fake[1]);
    (void)worker_end(&end);
}

/* The questions that the engine asks in turns(). */
static bool hears_restore(int socket, const uint8_t *bytes, size_t size)
{
    static const uint32_t kinds[] = {PROTO_HELLO,    PROTO_NEW,     PROTO_SNAPSHOT,
                                     PROTO_SNAPSHOT, PROTO_RESTORE, PROTO_DROP};
    size_t room = size + (64U << 10), there = 0, at = 0, i = 0;
    uint8_t *all = malloc(room);
    struct proto_head head = {0};
    bool is_good = all != NULL;
    ssize_t got;

    while (all != NULL && (got = recv(socket, all + there, room - there, MSG_DONTWAIT)) > 0)
        there += (size_t)got;
    for (; is_good && at + sizeof(head) <= there; at += head.size, i++) {
        memcpy(&head, all + at, sizeof(head));
        at += sizeof(head);
        is_good = i < sizeof(kinds) / sizeof(kinds[0]) && head.kind == kinds[i] &&
                  head.size <= there - at &&
                  (head.kind != PROTO_RESTORE ||
                   memcmp(all + at + head.size - size, bytes, size) == 0);
    }
    free(all);
    return is_good && at == there && i == sizeof(kinds) / sizeof(kinds[0]);
}

/* Large frames go through a socket that has room for all of them in turns of a MiB, and come whole. */
static void turns(void)
{
    const size_t size = 6U << 20;
    const int room = 16 << 20;
    struct remote_options options = {.key = {1}};
    struct remote_event event = {0};
    struct wire wire = {0};
    uint8_t *bytes = malloc(size), *copy = malloc(size), *block;
    const uint8_t *came;
    int pair[2], left = 0;
    unsigned calls = 0;
    struct remote *remote;
    struct error err;

    CHECK(bytes != NULL && copy != NULL &&
              socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0,
          "made");
    if (bytes == NULL || copy == NULL ||
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) != 0 ||
        setsockopt(pair[1], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) != 0) {
        (void)printf("only root gives a socket so much room\n");
        free(bytes);
        free(copy);
        return;
    }
    for (size_t i = 0; i < size; i++)
        bytes[i] = copy[i] = (uint8_t)(i * 7 >> 3);
    CHECK(remote_open(pair[0], &options, &remote, &err) == 0, "opened");
    CHECK(remote_new(remote, 1, &nothing, &err) == 0 && remote_snapshot(remote, 1, &err) == 0 &&
              remote_snapshot(remote, 1, &err) == 0,
          "asked");
    wire_begin(&wire, PROTO_READY, 0);
    wire_end(&wire);
    wire_begin(&wire, PROTO_MADE, 1);
    wire_end(&wire);
    wire_begin(&wire, PROTO_BYTES, 1);
    wire_bytes(&wire, bytes, size);
    wire_end(&wire);
    wire_begin(&wire, PROTO_BYTES, 1);
    wire_bytes(&wire, bytes, 300 << 10);
    wire_end(&wire);
    wire_begin(&wire, PROTO_MADE, 2);
    wire_end(&wire);
    CHECK(send(pair[1], wire.data, wire.size, MSG_DONTWAIT) == (ssize_t)wire.size, "all at once");
    CHECK(remote_next(remote, &event) == 1 && event.kind == REMOTE_READY, "ready");
    CHECK(remote_next(remote, &event) == 1 && event.kind == REMOTE_MADE, "made");
    CHECK(remote_next(remote, &event) == 0 && ioctl(pair[0], FIONREAD, &left) == 0 &&
              left > (int)size - (2 << 20),
          "%d are left after a turn", left);
    while (remote_next(remote, &event) == 0)
        calls++;
    CHECK(calls >= 4 && event.kind == REMOTE_SNAPSHOT && event.size == size &&
              memcmp(event.bytes, bytes, size) == 0,
          "it comes whole, in %u turns", calls);
    /* A smaller one after it is not kept in the large one's block. */
    while (remote_next(remote, &event) == 0)
        continue;
    CHECK(event.kind == REMOTE_SNAPSHOT && event.size == 300 << 10, "the next one");
    /* Bytes that were taken stay, whatever follows. */
    came = event.bytes;
    block = remote_take(remote);
    CHECK(block != NULL && came > block && malloc_usable_size(block) < 1U << 20,
          "it is taken, and no more");
    /* And back. */
    CHECK(remote_restore(remote, 2, &nothing, bytes, size, &err) == 0 &&
              remote_waiting(remote) > size - (2U << 20),
          "%zu wait after a turn", remote_waiting(remote));
    CHECK(remote_drop(remote, 1, &err) == 0, "what follows");
    CHECK(remote_next(remote, &event) == 1 && event.kind == REMOTE_MADE && event.number == 2,
          "made");
    while (remote_waiting(remote) > 0)
        CHECK(remote_next(remote, &event) == 0, "nothing more comes");
    CHECK(hears_restore(pair[1], copy, size), "all was sent, in its order");
    CHECK(memcmp(came, copy, 300 << 10) == 0, "and it is as it was");
    free(block);
    free(copy);
    wire_free(&wire);
    remote_close(remote);
    (void)close(pair[1]);
}

/* ---- from a worker ---- */

#define RESULT_MOST 1000
enum { BASE = 1, RUN, OTHER };

static struct kernel_result result(void)
{
    static const struct kernel_text text = {"2", 1};

    return (struct kernel_result){.output = text,
                                  .type = text,
                                  .value = text,
                                  .value_error = text,
                                  .errors = text,
                                  .name = text,
                                  .message = text,
                                  .stack = text,
                                  .code = text};
}

static void put(struct wire *wire, enum proto_kind kind, uint64_t number)
{
    wire_begin(wire, kind, number);
    wire_end(wire);
}

static void put_call(struct wire *wire, uint64_t run, uint32_t id)
{
    struct kernel_call call = {.id = id, .op = {"tool", 4}, .meta = {"{}", 2}};

    wire_begin(wire, PROTO_CALL, run);
    wire_call(wire, &call);
    wire_end(wire);
}

static void put_result(struct wire *wire, uint64_t run, const struct kernel_result *what)
{
    wire_begin(wire, PROTO_DONE, run);
    (void)wire_result(wire, what);
    wire_end(wire);
}

static void put_done(struct wire *wire, uint64_t run)
{
    struct kernel_result what = result();

    put_result(wire, run, &what);
}

static void put_failed(struct wire *wire, uint32_t kind, uint64_t number)
{
    struct error err;

    error_set(&err, "no", 0, "no");
    wire_begin(wire, PROTO_FAILED, number);
    wire_u32(wire, kind);
    wire_error(wire, &err);
    wire_end(wire);
}

static void put_cancel(struct wire *wire, uint64_t run)
{
    wire_begin(wire, PROTO_CANCEL, run);
    wire_bytes(wire, "fetch.cancel", 12);
    wire_bytes(wire, "{}", 2);
    wire_end(wire);
}

static void from_not_ready(struct wire *wire)
{
    wire->size = 0;
    put(wire, PROTO_MADE, BASE);
}

static void from_snapshot_of_nobody(struct wire *wire)
{
    wire_begin(wire, PROTO_BYTES, BASE);
    wire_bytes(wire, "x", 1);
    wire_end(wire);
}

static void from_call_flood(struct wire *wire)
{
    for (uint32_t i = 0; i <= PROTO_CALLS_MAX; i++)
        put_call(wire, RUN, i + 1);
}

static void from_long_error(struct wire *wire)
{
    char text[ERROR_TEXT_MAX + 1];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    wire_begin(wire, PROTO_FAILED, RUN);
    wire_u32(wire, PROTO_RUN);
    wire_u32(wire, 0);
    wire_string(wire, "no");
    wire_string(wire, text);
    wire_end(wire);
}

static void from_other_end(struct wire *wire)
{
    struct kernel_result what = result();

    what.end = (enum kernel_end)77;
    put_result(wire, RUN, &what);
}

static void from_many_logs(struct wire *wire)
{
    put_done(wire, RUN);
    /* The last number of the frame is how many logs there are. */
    memset(wire->data + wire->size - 4, 0xff, 4);
}

static void from_logs_claimed(struct wire *wire)
{
    uint32_t count = KERNEL_LOGS_MAX;

    put_done(wire, RUN);
    memcpy(wire->data + wire->size - 4, &count, 4);
}

static void from_more_behind(struct wire *wire)
{
    struct kernel_result what = result();

    wire_begin(wire, PROTO_DONE, RUN);
    (void)wire_result(wire, &what);
    wire_u32(wire, 0);
    wire_end(wire);
}

static void from_large_result(struct wire *wire)
{
    static const char text[RESULT_MOST];
    struct kernel_result what = result();

    what.output = (struct kernel_text){text, sizeof(text)};
    put_result(wire, RUN, &what);
}

static void from_short(struct wire *wire)
{
    struct kernel_result what = result();

    wire_begin(wire, PROTO_DONE, RUN);
    (void)wire_result(wire, &what);
    wire->size -= 5;
    wire_end(wire);
}

static void from_no_op(struct wire *wire)
{
    struct kernel_call call = {.id = 1, .op = {"", 0}, .meta = {"{}", 2}};

    wire_begin(wire, PROTO_CALL, RUN);
    wire_call(wire, &call);
    wire_end(wire);
}

static void from_too_large(struct wire *wire)
{
    raw_head(wire, PROTO_BODY_MAX + 1, PROTO_DONE, RUN);
}

static void (*const from_worker[])(struct wire *) = {
    from_not_ready, from_snapshot_of_nobody, from_call_flood,  from_long_error,   from_other_end,
    from_many_logs, from_logs_claimed,       from_more_behind, from_large_result, from_short,
    from_no_op,     from_too_large,
};

/* Whole frames, one by one right, behind PROTO_READY: of a number, with a kind or the number of a call. */
static const struct {
    const char *what;
    struct {
        enum { NO_MORE, BARE, CALL, DONE, FAILED, CANCEL } frame;
        uint64_t number;
        uint32_t with;
    } steps[3];
} out_of_turn[] = {
    {"ready twice", {{BARE, 0, PROTO_READY}}},
    {"a context that nobody asked for", {{BARE, 99, PROTO_MADE}}},
    {"a run that is made", {{BARE, RUN, PROTO_MADE}}},
    {"nobody is made", {{BARE, 0, PROTO_MADE}}},
    {"made twice", {{BARE, BASE, PROTO_MADE}, {BARE, BASE, PROTO_MADE}}},
    {"a kind of the engine's", {{BARE, BASE, PROTO_DROP}}},
    {"done twice", {{DONE, RUN, 0}, {DONE, RUN, 0}}},
    {"a context that is done", {{DONE, BASE, 0}}},
    {"a call of nobody", {{CALL, OTHER + 5, 1}}},
    {"a call of a context", {{CALL, BASE, 1}}},
    {"a call twice", {{CALL, RUN, 3}, {CALL, RUN, 3}}},
    {"calls that count back", {{CALL, RUN, 3}, {CALL, RUN, 2}}},
    {"a call after the end", {{DONE, RUN, 0}, {CALL, RUN, 1}}},
    {"nothing is cancelled", {{CANCEL, RUN, 0}}},
    {"cancelled twice", {{CALL, RUN, 1}, {CANCEL, RUN, 0}, {CANCEL, RUN, 0}}},
    {"a context failed as a snapshot", {{FAILED, BASE, PROTO_SNAPSHOT}}},
    {"a run failed as a context", {{FAILED, RUN, PROTO_NEW}}},
    {"failed as no kind", {{FAILED, BASE, 77}}},
};

static void put_step(struct wire *wire, size_t row, size_t step)
{
    uint64_t number = out_of_turn[row].steps[step].number;
    uint32_t with = out_of_turn[row].steps[step].with;

    switch (out_of_turn[row].steps[step].frame) {
    case BARE:
        put(wire, (enum proto_kind)with, number);
        break;
    case CALL:
        put_call(wire, number, with);
        break;
    case DONE:
        put_done(wire, number);
        break;
    case FAILED:
        put_failed(wire, with, number);
        break;
    case CANCEL:
        put_cancel(wire, number);
        break;
    case NO_MORE:
        break;
    }
}

/* An end that asked for BASE, RUN and OTHER, and what plays the worker. */
static struct remote *opened(int *fake)
{
    const struct remote_options options = {.key = {1}, .result_bytes = RESULT_MOST};
    struct remote *remote;
    struct error err;
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "a socket");
    CHECK(remote_open(pair[0], &options, &remote, &err) == 0, "opened");
    CHECK(remote_new(remote, BASE, &nothing, &err) == 0, "asked for a context");
    CHECK(remote_run(remote, RUN, BASE, NULL, &one, &err) == 0, "for a run");
    CHECK(remote_run(remote, OTHER, 0, NULL, &one, &err) == 0, "for another");
    *fake = pair[1];
    return remote;
}

static void ends_remote(const char *what, size_t i, struct wire *wire)
{
    struct remote_event event = {0};
    struct error err;
    int fake;
    struct remote *remote = opened(&fake);

    CHECK(send(fake, wire->data, wire->size, MSG_NOSIGNAL) == (ssize_t)wire->size, "sent");
    while (remote_next(remote, &event) == 1 && event.kind != REMOTE_GONE)
        continue;
    CHECK(event.kind == REMOTE_GONE && strcmp(event.error.code, "bad_worker") == 0,
          "%s (%zu): it is believed", what, i);
    CHECK(remote_next(remote, &event) == 0, "and nothing is heard any more");
    CHECK(remote_run(remote, OTHER + 1, 0, NULL, &one, &err) < 0 &&
              strcmp(err.code, "kernel_gone") == 0,
          "or asked");
    remote_close(remote);
    (void)close(fake);
    wire_free(wire);
}

static void hostile_worker(void)
{
    for (size_t i = 0; i < sizeof(from_worker) / sizeof(from_worker[0]); i++) {
        struct wire wire = {0};

        put(&wire, PROTO_READY, 0);
        from_worker[i](&wire);
        ends_remote("frame", i, &wire);
    }
    for (size_t i = 0; i < sizeof(out_of_turn) / sizeof(out_of_turn[0]); i++) {
        struct wire wire = {0};

        put(&wire, PROTO_READY, 0);
        for (size_t step = 0; step < 3; step++)
            put_step(&wire, i, step);
        ends_remote(out_of_turn[i].what, i, &wire);
    }
}

/* What is only claimed takes no memory, and what does not come is not waited for. */
static void claims(void)
{
    struct remote_event event;
    struct wire wire = {0};
    int fake;
    struct remote *remote = opened(&fake);

    put(&wire, PROTO_READY, 0);
    raw_head(&wire, PROTO_BODY_MAX, PROTO_DONE, RUN);
    CHECK(send(fake, wire.data, wire.size, MSG_NOSIGNAL) == (ssize_t)wire.size, "sent");
    CHECK(remote_next(remote, &event) == 1 && event.kind == REMOTE_READY, "ready");
    for (int i = 0; i < 100; i++)
        CHECK(remote_next(remote, &event) == 0, "no event");
    CHECK(remote_waiting(remote) == 0 && !remote_wants_write(remote), "all was sent");
    (void)close(fake);
    CHECK(remote_next(remote, &event) == 1 && event.kind == REMOTE_GONE &&
              strcmp(event.error.code, "kernel_gone") == 0,
          "it is gone");
    remote_close(remote);
    wire_free(&wire);
}

/* A worker that reads nothing: nothing blocks, and there is an end to what waits for it. */
static void deaf(void)
{
    const size_t size = 8U << 20;
    char *text = calloc(1, size);
    const struct kernel_source large = {.text = text, .size = size};
    struct remote_event event;
    struct error err = {0};
    uint64_t run = OTHER;
    int fake;
    struct remote *remote = opened(&fake);

    while (run < 1000 && remote_run(remote, ++run, 0, NULL, &large, &err) == 0)
        continue;
    CHECK(strcmp(err.code, "kernel_busy") == 0, "%s", err.text);
    CHECK(remote_waiting(remote) > 200U << 20 && remote_waiting(remote) < 300U << 20, "%zu",
          remote_waiting(remote));
    CHECK(remote_next(remote, &event) == 0 && remote_wants_write(remote), "it waits to write");
    (void)close(fake);
    CHECK(remote_next(remote, &event) == 1 && event.kind == REMOTE_GONE, "it is gone");
    CHECK(!remote_wants_write(remote), "and nothing waits any more");
    remote_close(remote);
    free(text);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    hostile_engine();
    crumbs();
    turns();
    hostile_worker();
    claims();
    deaf();
    return check_finish();
}
