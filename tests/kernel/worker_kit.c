/* A worker for tests: see worker_kit.h. It is the engine's program, executed from its memfd as a box does. */
#include "worker_kit.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t worker_exec(int *socket)
{
    static int program = -1;
    char *argv[] = {(char *)"cove-worker", NULL};
    struct error err;
    int pair[2];
    pid_t pid;

    if (program < 0)
        program = kernel_worker_program(&err);
    if (program < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        (void)fprintf(stderr, "no worker: %s\n", err.text);
        exit(1);
    }
    (void)fflush(stdout);
    pid = fork();
    if (pid == 0) {
        (void)dup2(pair[1], 0);
        /* Without a sanitizer it has no environment, as in a box. */
        (void)syscall(SYS_execveat, program, "", argv, environ, AT_EMPTY_PATH);
        _exit(127);
    }
    (void)close(pair[1]);
    *socket = pair[0];
    return pid;
}

bool worker_next(struct worker_end *end)
{
    uint64_t until = clock_monotonic_ns() + WORKER_PATIENCE * 1000000000ULL;

    if (end->event.kind == REMOTE_GONE)
        return false;
    while (remote_next(end->remote, &end->event) == 0) {
        struct pollfd fd = {remote_fd(end->remote), POLLIN, 0};

        if (remote_wants_write(end->remote))
            fd.events |= POLLOUT;
        if (clock_monotonic_ns() > until)
            return false;
        (void)poll(&fd, 1, 1000);
    }
    return true;
}

bool worker_hears(struct worker_end *end, enum remote_kind kind, uint64_t number)
{
    if (!worker_next(end)) {
        (void)printf("nothing was heard of %llu\n", (unsigned long long)number);
        return false;
    }
    if (end->event.kind == kind && end->event.number == number)
        return true;
    (void)printf("heard %d of %llu: %s %s\n", (int)end->event.kind,
                 (unsigned long long)end->event.number, end->event.error.code,
                 end->event.error.text);
    return false;
}

struct worker_end worker_start(uint64_t memory_bytes)
{
    const struct remote_options options = {.key = {1, 2, 3}, .memory_bytes = memory_bytes};
    struct worker_end end = {0};
    struct error err;
    int socket;

    end.pid = worker_exec(&socket);
    if (remote_open(socket, &options, &end.remote, &err) < 0) {
        (void)fprintf(stderr, "no worker: %s\n", err.text);
        exit(1);
    }
    if (!worker_hears(&end, REMOTE_READY, 0))
        exit(1);
    return end;
}

int worker_end(struct worker_end *end)
{
    int status = 0;

    remote_close(end->remote);
    end->remote = NULL;
    (void)waitpid(end->pid, &status, 0);
    return status;
}

bool worker_runs(struct worker_end *end, uint64_t run, uint64_t context,
                 const struct kernel_grants *grants, const char *source)
{
    const struct kernel_source given = {.text = source, .size = strlen(source)};
    struct error err;

    if (remote_run(end->remote, run, context, grants, &given, &err) == 0)
        return true;
    (void)printf("%s\n", err.text);
    return false;
}
