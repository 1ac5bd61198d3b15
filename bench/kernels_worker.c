/* How long a kernel takes that runs in a process of its own: from asking the real worker, over its socket, to having
 * the result, by a client that waits for each. Beside it, in the same run, the floor: a process that sends back what
 * it is sent, over the same kind of socket.
 * usage: kernels_worker */
#include "base/clock.h"
#include "kernel/remote.h"
#include "kernels_raw.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM_UP 500U
#define COUNT 20000U

static uint64_t samples[COUNT];
static uint64_t last; /* number that was taken */

static void fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "kernels: %s: %s\n", what, why);
    exit(1);
}

static int order(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return a < b ? -1 : a > b;
}

static double us_at(size_t at)
{
    return (double)samples[at] / 1e3;
}

static void report(const char *what, size_t count)
{
    raw_write(what, "ns", samples, count);
    qsort(samples, count, sizeof(samples[0]), order);
    (void)printf("%-44s p50 %9.2f  p95 %9.2f  p99 %9.2f us\n", what, us_at(count / 2),
                 us_at(count * 95 / 100), us_at(count * 99 / 100));
}

/* A child with the other end of a socket as its fd 0; this end. */
static int child(void (*work)(void), pid_t *pid)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        fail("socket", strerror(errno));
    *pid = fork();
    if (*pid == 0) {
        (void)dup2(pair[1], 0);
        work();
        _exit(1);
    }
    (void)close(pair[1]);
    return pair[0];
}

static void echo(void)
{
    char bytes[4096];
    ssize_t got;

    (void)syscall(SYS_close_range, 3U, ~0U, 0U);
    while ((got = recv(0, bytes, sizeof(bytes), 0)) > 0)
        (void)send(0, bytes, (size_t)got, MSG_NOSIGNAL);
}

/* As many bytes there and back as the shortest run has. */
static void floor_of_it(void)
{
    char bytes[110] = {0};
    pid_t pid;
    int socket = child(echo, &pid);

    for (size_t i = 0; i < WARM_UP + COUNT; i++) {
        uint64_t before = clock_monotonic_ns();

        if (send(socket, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes) ||
            recv(socket, bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes))
            fail("echo", strerror(errno));
        if (i >= WARM_UP)
            samples[i - WARM_UP] = clock_monotonic_ns() - before;
    }
    report("a socket to another process and back", COUNT);
    (void)close(socket);
    (void)waitpid(pid, NULL, 0);
}

static int program;

static void worker(void)
{
    char *argv[] = {(char *)"cove-worker", NULL}, *env[] = {NULL};

    (void)syscall(SYS_execveat, program, "", argv, env, 0x1000 /* AT_EMPTY_PATH */);
}

static void hear(struct remote *remote, struct remote_event *event)
{
    struct pollfd fd = {remote_fd(remote), POLLIN, 0};

    do
        (void)poll(&fd, 1, -1);
    while (remote_next(remote, event) == 0);
    if (event->kind == REMOTE_FAILED || event->kind == REMOTE_GONE)
        fail("the worker", event->error.text);
}

static void run(struct remote *remote, uint64_t context, const char *source, const char *wanted)
{
    const struct kernel_source what = {.text = source, .size = strlen(source)};
    struct remote_event event;
    struct error err;

    if (remote_run(remote, ++last, context, NULL, &what, &err) < 0)
        fail(source, err.text);
    hear(remote, &event);
    if (event.kind != REMOTE_DONE || !kernel_text_is(event.result->output, wanted))
        fail(source, "the result is wrong");
}

static void runs(struct remote *remote, uint64_t context, const char *source, const char *wanted,
                 const char *name)
{
    for (size_t i = 0; i < WARM_UP + COUNT; i++) {
        uint64_t before = clock_monotonic_ns();

        run(remote, context, source, wanted);
        if (i >= WARM_UP)
            samples[i - WARM_UP] = clock_monotonic_ns() - before;
    }
    report(name, COUNT);
}

int main(void)
{
    static const struct kernel_grants nothing;
    const struct remote_options options = {.key = {1}};
    struct remote_event event;
    struct remote *remote;
    struct error err;
    uint64_t begun;
    pid_t pid;

    floor_of_it();
    program = kernel_worker_program(&err);
    if (program < 0)
        fail("the worker", err.text);
    begun = clock_monotonic_ns();
    if (remote_open(child(worker, &pid), &options, &remote, &err) < 0)
        fail("the worker", err.text);
    hear(remote, &event);
    (void)printf("%-44s %.0f us\n", "a worker, until it is ready",
                 (double)(clock_monotonic_ns() - begun) / 1e3);
    runs(remote, 0, "1 + 1", "2", "through a worker: pristine context + 1 + 1");
    if (remote_new(remote, ++last, &nothing, &err) < 0)
        fail("context", err.text);
    hear(remote, &event);
    runs(remote, event.number, "1 + 1", "2", "through a worker: live context, 1 + 1");
    remote_close(remote);
    (void)waitpid(pid, NULL, 0);
    return 0;
}
