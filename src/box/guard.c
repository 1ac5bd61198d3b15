/* The guard of a box: see guard.h. */
#include "box/guard.h"

#include "base/fd.h"
#include "box/proto.h"
#include "box/sys.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { GUARD_JOIN = 1, GUARD_FINISH, GUARD_MADE, GUARD_FAILED, GUARD_REPORT };

struct guard_packet {
    uint32_t type;
    pid_t pid;
    struct box_report report;
    struct error error;
};

static int say(int socket, const struct guard_packet *packet, const int *fds, size_t count)
{
    return proto_send(socket, packet, sizeof(*packet), NULL, 0, fds, count);
}

static int hear(int socket, struct guard_packet *packet, int fds[PROTO_FDS_MAX], int flags)
{
    ssize_t n = proto_receive(socket, packet, sizeof(*packet), fds, flags);

    if (n == (ssize_t)sizeof(*packet))
        return 1;
    if (n < 0 && errno == EAGAIN)
        return 0;
    return -1;
}

/* ---- the guard's own process ---- */

static _Noreturn void fail(int socket, const struct error *error)
{
    struct guard_packet packet = {.type = GUARD_FAILED, .error = *error};

    (void)say(socket, &packet, NULL, 0);
    _exit(1);
}

static void tell_made(int socket, const struct cgroup *cgroup)
{
    struct guard_packet packet = {.type = GUARD_MADE};
    int fds[2], count = 0;

    if (cgroup_into_fd(cgroup) >= 0)
        fds[count++] = cgroup_into_fd(cgroup);
    if (count == 1 && cgroup_leaves_fd(cgroup) >= 0)
        fds[count++] = cgroup_leaves_fd(cgroup);
    (void)say(socket, &packet, fds, (size_t)count);
}

static void finish(int socket, struct cgroup *cgroup)
{
    struct guard_packet packet = {.type = GUARD_REPORT};
    struct cgroup_usage usage = {0};

    if (cgroup_usage(cgroup, &usage) == 0)
        packet.report = (struct box_report){.oom_killed = usage.oom_kills > 0,
                                            .usage_known = usage.known,
                                            .cpu_ns = usage.cpu_ns,
                                            .peak_memory_bytes = usage.peak_memory_bytes};
    if (cgroup_remove(cgroup, &packet.error) < 0)
        packet.type = GUARD_FAILED;
    (void)say(socket, &packet, NULL, 0);
}

/* True when the box ended in order, false when the maker is gone. */
static bool serve(int socket, int *joined, struct cgroup *cgroup)
{
    struct guard_packet packet;
    struct error err;
    int fds[PROTO_FDS_MAX];

    while (hear(socket, &packet, fds, 0) > 0) {
        if (packet.type == GUARD_FINISH)
            return true;
        if (packet.type != GUARD_JOIN)
            continue;
        /* The box may have died meanwhile; its maker sees that by itself. */
        if (cgroup_join(cgroup, packet.pid, &err) == 0) {
            (void)fd_write_full(*joined, "j", 1);
        } else {
            packet = (struct guard_packet){.type = GUARD_FAILED, .error = err};
            (void)say(socket, &packet, NULL, 0);
        }
        fd_close(joined);
    }
    return false;
}

/* Its fds move to 3, 4 and 5 and everything else is closed: a pipe of the maker's that stayed open
 * here would keep its reader waiting. */
static void settle(int *socket, int *joined, const int *keep)
{
    int from[3] = {*socket, *joined, keep[0]};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int i = 0; i < 3; i++)
        from[i] = from[i] >= 0 ? fcntl(from[i], F_DUPFD_CLOEXEC, 16) : -1;
    for (int i = 0; i < 3; i++) {
        (void)dup2(null, i);
        if (from[i] >= 0)
            (void)dup3(from[i], 3 + i, O_CLOEXEC);
        else
            (void)close(3 + i);
    }
    (void)sys_close_range(6, ~0U, 0);
    *socket = 3;
    *joined = 4;
}

static _Noreturn void run(const struct guard_order *order, int socket)
{
    int joined = order->joined;
    struct cgroup_host host;
    struct cgroup cgroup;
    struct error err;
    sigset_t all;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "cove-guard");
    settle(&socket, &joined, order->keep);
    if (cgroup_probe(&host, &err) < 0 ||
        cgroup_make(&host, order->name, &order->limits, order->owner, order->group, order->leaves,
                    &cgroup, &err) < 0)
        fail(socket, &err);
    tell_made(socket, &cgroup);
    if (serve(socket, &joined, &cgroup)) {
        finish(socket, &cgroup);
        _exit(0);
    }
    (void)cgroup_kill(&cgroup);
    (void)cgroup_remove(&cgroup, &err);
    _exit(0);
}

/* ---- the maker's side ---- */

int guard_start(const struct guard_order *order, struct guard *guard, struct error *err)
{
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "guard_failed", errno, "cannot make the guard's socket");
    pid = fork();
    if (pid == 0) {
        (void)close(pair[0]);
        run(order, pair[1]);
    }
    (void)close(pair[1]);
    if (pid < 0) {
        (void)close(pair[0]);
        return error_set(err, "guard_failed", errno, "cannot start the box's guard");
    }
    *guard = (struct guard){.socket = pair[0], .pid = pid};
    return 0;
}

static int lost(struct error *err)
{
    return error_set(err, "guard_failed", 0, "the box's guard ended; start the box again");
}

int guard_wait_made(struct guard *guard, int *into, int *leaves, struct error *err)
{
    struct guard_packet packet;
    int fds[PROTO_FDS_MAX];

    *into = *leaves = -1;
    if (hear(guard->socket, &packet, fds, 0) <= 0)
        return lost(err);
    if (packet.type == GUARD_FAILED) {
        *err = packet.error;
        return -1;
    }
    *into = fds[0];
    *leaves = fds[1];
    return 0;
}

int guard_join(struct guard *guard, pid_t pid, struct error *err)
{
    struct guard_packet packet = {.type = GUARD_JOIN, .pid = pid};

    return say(guard->socket, &packet, NULL, 0) == 0 ? 0 : lost(err);
}

bool guard_failure(struct guard *guard, struct error *err)
{
    struct guard_packet packet;
    int fds[PROTO_FDS_MAX];

    while (hear(guard->socket, &packet, fds, MSG_DONTWAIT) > 0) {
        for (size_t i = 0; i < PROTO_FDS_MAX; i++)
            fd_close(&fds[i]);
        if (packet.type == GUARD_FAILED) {
            *err = packet.error;
            return true;
        }
    }
    return false;
}

static int await_report(struct guard *guard, struct box_report *report, struct error *err)
{
    struct guard_packet packet = {.type = GUARD_FINISH};
    int fds[PROTO_FDS_MAX];

    if (say(guard->socket, &packet, NULL, 0) < 0)
        return lost(err);
    while (hear(guard->socket, &packet, fds, 0) > 0) {
        for (size_t i = 0; i < PROTO_FDS_MAX; i++)
            fd_close(&fds[i]);
        if (packet.type == GUARD_REPORT) {
            *report = packet.report;
            return 0;
        }
        if (packet.type == GUARD_FAILED) {
            *err = packet.error;
            return -1;
        }
    }
    return lost(err);
}

int guard_finish(struct guard *guard, struct box_report *report, struct error *err)
{
    int done = await_report(guard, report, err);

    fd_close(&guard->socket);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return done;
}
