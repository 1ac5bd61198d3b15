/* The janitor: what a killed keeper leaves is ended and removed by it. See slots.h.
 *
 * Forked before the first slot. It holds the lock of the slots' ids, so that nobody else gets them
 * while processes of a box may still live, and does nothing as long as the keeper does. */
#include "base/fd.h"
#include "box/proto.h"
#include "box/sys.h"
#include "keeper/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The engine writes down that its keeper is lost, and has no reason to take longer. */
#define ENGINE_WAIT_MS 10000
#define REMOVE_ROUNDS 600
#define REMOVE_PAUSE_NS 100000000L

struct told {
    uint32_t numbers;
};

void janitor_tell(int janitor, uint32_t numbers, int engine)
{
    struct told told = {.numbers = numbers};

    if (janitor >= 0)
        (void)proto_send(janitor, &told, sizeof(told), NULL, 0, &engine, engine >= 0 ? 1 : 0);
}

/* ---- its own process ---- */

/* Keeps what it needs and closes all else: a listening socket here would keep clients waiting for
 * nobody. */
static int settle(int *socket, struct slots *slots)
{
    int *owned[4 + CGROUP_V1_MAX] = {socket, &slots->pool.lock, &slots->host.v2, &slots->anonymous};
    size_t count = 4;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), base;

    for (size_t i = 0; i < slots->host.v1_count; i++)
        owned[count++] = &slots->host.v1[i].parent;
    base = 16 + (int)count;
    for (size_t i = 0; i < count; i++) {
        int moved = *owned[i] >= 0 ? fcntl(*owned[i], F_DUPFD_CLOEXEC, base) : -1;

        if (*owned[i] >= 0 && moved < 0)
            return -1;
        *owned[i] = moved;
    }
    for (size_t i = 0; i < count; i++) {
        if (*owned[i] < 0)
            continue;
        if (dup3(*owned[i], 3 + (int)i, O_CLOEXEC) < 0)
            return -1;
        *owned[i] = 3 + (int)i;
    }
    for (int i = 0; i < 3; i++)
        (void)dup2(null, i);
    return sys_close_range(3 + (unsigned)count, ~0U, 0);
}

/* Its boxes are dying with their zygote: this waits until they are gone. */
static void remove_all(const struct slots *slots, uint32_t numbers)
{
    char name[CGROUP_NAME_MAX];
    struct error err;

    for (uint32_t i = 0; i < numbers; i++) {
        (void)snprintf(name, sizeof(name), "%s-%u", slots->prefix, i);
        for (int round = 0; round < REMOVE_ROUNDS; round++) {
            struct timespec pause = {.tv_nsec = REMOVE_PAUSE_NS};

            if (cgroup_remove_named(&slots->host, name, &err) == 0)
                break;
            (void)nanosleep(&pause, NULL);
        }
    }
}

static void end_engine(int engine)
{
    struct pollfd wait = {.fd = engine, .events = POLLIN};

    if (engine >= 0 && poll(&wait, 1, ENGINE_WAIT_MS) == 0)
        (void)sys_pidfd_send_signal(engine, SIGKILL);
}

static _Noreturn void run(struct slots *slots, int socket)
{
    struct told told = {0}, heard;
    int fds[PROTO_FDS_MAX], engine = -1;
    sigset_t all;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "cove-janitor");
    (void)prctl(PR_SET_DUMPABLE, 0);
    if (settle(&socket, slots) < 0)
        _exit(1);
    while (proto_receive(socket, &heard, sizeof(heard), fds, 0) > 0) {
        told = heard;
        if (fds[0] >= 0) {
            fd_close(&engine);
            engine = fds[0];
        }
    }
    /* First: until then it may answer as if its boxes were there. */
    end_engine(engine);
    remove_all(slots, told.numbers);
    _exit(0);
}

int janitor_start(struct slots *slots, struct error *err)
{
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "capacity", errno, "cannot make the janitor's socket");
    pid = fork();
    if (pid == 0) {
        static struct slots own; /* it changes the fds' numbers */

        own = *slots;
        (void)close(pair[0]);
        run(&own, pair[1]);
    }
    (void)close(pair[1]);
    if (pid < 0) {
        (void)close(pair[0]);
        return error_set(err, "capacity", errno, "cannot start the janitor");
    }
    slots->janitor = pair[0];
    slots->janitor_pid = pid;
    return 0;
}
