/* The zygote's own program: see box/zygote.h. One request at a time, no state between them. */
#include "base/fd.h"
#include "box/cgroup_enter.h"
#include "box/guard.h"
#include "box/inside.h"
#include "box/owner.h"
#include "box/proto.h"
#include "box/sys.h"
#include "box/zygote/zygote.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct making {
    int control, network, into, leaves, upper;
    int go[2];
    int pidfd;
};

static int fail(struct zygote_answer *answer, const char *step)
{
    answer->errnum = errno != 0 ? errno : EIO;
    (void)snprintf(answer->step, sizeof(answer->step), "%s", step);
    return -1;
}

static int take(const int *fds, size_t *next, uint32_t flags, uint32_t flag)
{
    return (flags & flag) != 0 ? fds[(*next)++] : -1;
}

static int write_map(const char *path, const struct zygote_request *request)
{
    char map[64];

    (void)snprintf(map, sizeof(map), "0 %u %u", request->first_id, request->ids_count);
    return fd_write_file(AT_FDCWD, path, map);
}

/* A layer as this box sees it: its ids on disk are the box's own. */
static int map_layer(pid_t pid, int layer)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP};
    _cleanup_close_ int userns = -1;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0)
        return -1;
    attr.userns_fd = (unsigned)userns;
    return sys_mount_setattr(layer, "", AT_EMPTY_PATH, &attr);
}

static int release(const struct zygote_request *request, struct making *making, pid_t pid,
                   struct zygote_answer *answer)
{
    struct guard_word go = {.type = GUARD_GO};
    _cleanup_close_ int lower = -1;
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    (void)fd_write_file(AT_FDCWD, path, "200"); /* see guard.c */
    (void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    if (write_map(path, request) < 0)
        return fail(answer, "uid_map");
    (void)snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
    if (write_map(path, request) < 0)
        return fail(answer, "gid_map");
    if (request->plan.root_kind != BOX_ROOT_HOST) {
        lower = sys_open_tree(AT_FDCWD, "/" ZYGOTE_LOWER, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (lower < 0 || map_layer(pid, lower) < 0)
            return fail(answer, "idmap");
    }
    /* The child has it already, and has to wait for us. */
    if (making->upper >= 0 && map_layer(pid, making->upper) < 0)
        return fail(answer, "idmap of the disk");
    if (proto_send(making->go[1], &go, sizeof(go), NULL, 0, &lower, lower >= 0 ? 1 : 0) < 0)
        return fail(answer, "release");
    return 0;
}

static int make_box(struct zygote_request *request, struct making *making,
                    struct zygote_answer *answer)
{
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&making->pidfd,
        .exit_signal = SIGCHLD,
    };
    struct owner owner;
    pid_t pid;

    if (making->network >= 0 && setns(making->network, CLONE_NEWNET) < 0)
        return fail(answer, "network");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, making->go) < 0)
        return fail(answer, "socketpair");
    if (making->into >= 0) {
        args.flags |= 0x200000000ULL; /* CLONE_INTO_CGROUP: a constant musl's headers may lack */
        args.cgroup = (unsigned)making->into;
    }
    request->plan.control = making->control;
    request->plan.init = ZYGOTE_INIT_FD;
    request->plan.go = making->go[0];
    request->plan.leaves = making->leaves;
    request->plan.lower = -1;
    request->plan.upper = making->upper;
    request->plan.binds_count = 0;
    request->plan.own_network = making->network < 0;
    request->plan.network_out = -1;
    owner_become(&owner, request->first_id);
    pid = sys_clone3(&args);
    if (pid == 0)
        inside_enter(&request->plan);
    owner_leave(&owner);
    if (pid < 0)
        return fail(answer, "clone");
    return release(request, making, pid, answer);
}

static int take_fds(struct zygote_request *request, size_t size, const int fds[PROTO_FDS_MAX],
                    struct making *making)
{
    size_t count = proto_fds_count(fds), next = 1;

    if (!zygote_request_fits(request, size, count))
        return -1;
    making->control = fds[0];
    making->network = take(fds, &next, request->flags, ZYGOTE_NETWORK);
    making->into = take(fds, &next, request->flags, ZYGOTE_INTO);
    making->leaves = take(fds, &next, request->flags, ZYGOTE_LEAVES);
    making->upper = take(fds, &next, request->flags, ZYGOTE_UPPER);
    return cgroup_gate_take(&request->plan.gate, fds + next, count - next);
}

static void serve_one(struct zygote_request *request, size_t size, const int fds[PROTO_FDS_MAX])
{
    struct zygote_answer answer = {.type = ZYGOTE_ANSWER};
    struct making making = {.go = {-1, -1}, .pidfd = -1};

    errno = EPROTO;
    /* A child that is not released sees the end of its go socket and ends. */
    if (take_fds(request, size, fds, &making) < 0)
        (void)fail(&answer, "request");
    else
        (void)make_box(request, &making, &answer);
    fd_close(&making.go[0]);
    fd_close(&making.go[1]);
    (void)proto_send(ZYGOTE_SOCKET_FD, &answer, sizeof(answer), NULL, 0, &making.pidfd,
                     answer.errnum == 0 ? 1 : 0);
    fd_close(&making.pidfd);
}

int main(void)
{
    static struct zygote_request request;
    int fds[PROTO_FDS_MAX];

    /* Boxes are waited for by their pidfds, elsewhere; here they leave no zombie. */
    (void)signal(SIGCHLD, SIG_IGN);
    for (;;) {
        ssize_t n = proto_receive(ZYGOTE_SOCKET_FD, &request, sizeof(request), fds, 0);

        if (n <= 0)
            return 0;
        serve_one(&request, (size_t)n, fds);
        proto_fds_close(fds);
    }
}
