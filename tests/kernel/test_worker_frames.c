/* Frames that nobody sends who means well. What a worker is sent so ends it; what a worker says so ends it for the
 * engine, which never blocks, keeps nothing for what is only claimed, and hears of nothing twice. */
#include "check.h"
#include "kernel/proto.h"
#include "worker_kit.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct kernel_grants nothing;
static const struct kernel_source one = {.text = "1 + 1", .size = 5};

static void hello(struct wire *wire)
{
    static const uint8_t key[KERNEL_KEY_BYTES] = {1};

    wire_begin(wire, PROTO_HELLO, 0);
    wire_u32(wire, PROTO_VERSION);
    wire_raw(wire, key, sizeof(key));
    wire_u64(wire, 0);
    wire_u64(wire, 0);
    wire_end(wire);
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
    uint8_t key[KERNEL_KEY_BYTES] = {0};

    wire_begin(wire, PROTO_HELLO, 0);
    wire_u32(wire, PROTO_VERSION + 1);
    wire_raw(wire, key, sizeof(key));
    wire_u64(wire, 0);
    wire_u64(wire, 0);
    wire_end(wire);
}

static void to_hello_twice(struct wire *wire)
{
    hello(wire);
    hello(wire);
}

static void to_no_kind(struct wire *wire)
{
    hello(wire);
    raw_head(wire, 0, 12, 1);
}

static void to_own_kind(struct wire *wire)
{
    hello(wire);
    raw_head(wire, 0, PROTO_MADE, 1);
}

static void to_no_number(struct wire *wire)
{
    hello(wire);
    raw_head(wire, 0, PROTO_DROP, 0);
}

static void to_too_large(struct wire *wire)
{
    hello(wire);
    raw_head(wire, PROTO_BODY_MAX + 1, PROTO_NEW, 1);
}

static void to_empty_body(struct wire *wire)
{
    hello(wire);
    raw_head(wire, 0, PROTO_NEW, 1);
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
    to_no_hello,   to_other_version, to_hello_twice,   to_no_kind,        to_own_kind,
    to_no_number,  to_too_large,     to_empty_body,    to_more_behind,    to_many_grants,
    to_nul_within, to_twice,         to_source_claims, to_end_of_nothing, to_settle_short,
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

static void hostile_engine(void)
{
    for (size_t i = 0; i < sizeof(to_worker) / sizeof(to_worker[0]); i++) {
        struct wire wire = {0};
        int socket, status = 0;
        pid_t pid = worker_exec(&socket);

        to_worker[i](&wire);
        CHECK(send(socket, wire.data, wire.size, MSG_NOSIGNAL) == (ssize_t)wire.size, "sent");
        CHECK(drained(socket), "%zu: the worker goes on", i);
        (void)close(socket);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 1,
              "%zu: it ends with status %#x", i, (unsigned)status);
        wire_free(&wire);
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

static void put_done(struct wire *wire, uint64_t run)
{
    struct kernel_result what = result();

    wire_begin(wire, PROTO_DONE, run);
    (void)wire_result(wire, &what);
    wire_end(wire);
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

static void from_ready_twice(struct wire *wire)
{
    put(wire, PROTO_READY, 0);
}

static void from_unknown_context(struct wire *wire)
{
    put(wire, PROTO_MADE, 99);
}

static void from_run_made(struct wire *wire)
{
    put(wire, PROTO_MADE, RUN);
}

static void from_made_twice(struct wire *wire)
{
    put(wire, PROTO_MADE, BASE);
    put(wire, PROTO_MADE, BASE);
}

static void from_snapshot_of_nobody(struct wire *wire)
{
    wire_begin(wire, PROTO_BYTES, BASE);
    wire_bytes(wire, "x", 1);
    wire_end(wire);
}

static void from_done_twice(struct wire *wire)
{
    put_done(wire, RUN);
    put_done(wire, RUN);
}

static void from_context_done(struct wire *wire)
{
    put_done(wire, BASE);
}

static void from_call_of_nobody(struct wire *wire)
{
    put_call(wire, OTHER + 5, 1);
}

static void from_call_of_context(struct wire *wire)
{
    put_call(wire, BASE, 1);
}

static void from_call_twice(struct wire *wire)
{
    put_call(wire, RUN, 3);
    put_call(wire, RUN, 3);
}

static void from_call_back(struct wire *wire)
{
    put_call(wire, RUN, 3);
    put_call(wire, RUN, 2);
}

static void from_call_after_end(struct wire *wire)
{
    put_done(wire, RUN);
    put_call(wire, RUN, 1);
}

static void from_call_flood(struct wire *wire)
{
    for (uint32_t i = 0; i <= PROTO_CALLS_MAX; i++)
        put_call(wire, RUN, i + 1);
}

static void from_cancel_of_nothing(struct wire *wire)
{
    put_cancel(wire, RUN);
}

static void from_cancel_twice(struct wire *wire)
{
    put_call(wire, RUN, 1);
    put_cancel(wire, RUN);
    put_cancel(wire, RUN);
}

static void from_failed_otherwise(struct wire *wire)
{
    put_failed(wire, PROTO_SNAPSHOT, BASE);
}

static void from_failed_run_as_context(struct wire *wire)
{
    put_failed(wire, PROTO_NEW, RUN);
}

static void from_failed_kind(struct wire *wire)
{
    put_failed(wire, 77, BASE);
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
    wire_begin(wire, PROTO_DONE, RUN);
    (void)wire_result(wire, &what);
    wire_end(wire);
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
    wire_begin(wire, PROTO_DONE, RUN);
    (void)wire_result(wire, &what);
    wire_end(wire);
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

static void from_engine_kind(struct wire *wire)
{
    raw_head(wire, 0, PROTO_DROP, BASE);
}

static void from_no_number(struct wire *wire)
{
    raw_head(wire, 0, PROTO_MADE, 0);
}

static void (*const from_worker[])(struct wire *) = {
    from_not_ready,
    from_ready_twice,
    from_unknown_context,
    from_run_made,
    from_made_twice,
    from_snapshot_of_nobody,
    from_done_twice,
    from_context_done,
    from_call_of_nobody,
    from_call_of_context,
    from_call_twice,
    from_call_back,
    from_call_after_end,
    from_call_flood,
    from_cancel_of_nothing,
    from_cancel_twice,
    from_failed_otherwise,
    from_failed_run_as_context,
    from_failed_kind,
    from_long_error,
    from_other_end,
    from_many_logs,
    from_logs_claimed,
    from_more_behind,
    from_large_result,
    from_short,
    from_no_op,
    from_too_large,
    from_engine_kind,
    from_no_number,
};

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

static void hostile_worker(void)
{
    for (size_t i = 0; i < sizeof(from_worker) / sizeof(from_worker[0]); i++) {
        struct remote_event event = {0};
        struct wire wire = {0};
        struct error err;
        int fake;
        struct remote *remote = opened(&fake);

        put(&wire, PROTO_READY, 0);
        from_worker[i](&wire);
        CHECK(send(fake, wire.data, wire.size, MSG_NOSIGNAL) == (ssize_t)wire.size, "sent");
        while (remote_next(remote, &event) == 1 && event.kind != REMOTE_GONE)
            continue;
        CHECK(event.kind == REMOTE_GONE && strcmp(event.error.code, "bad_worker") == 0,
              "%zu: it is believed", i);
        CHECK(remote_next(remote, &event) == 0, "and nothing is heard any more");
        CHECK(remote_run(remote, OTHER + 1, 0, NULL, &one, &err) < 0 &&
                  strcmp(err.code, "kernel_gone") == 0,
              "or asked");
        remote_close(remote);
        (void)close(fake);
        wire_free(&wire);
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
    hostile_worker();
    claims();
    deaf();
    return check_finish();
}
