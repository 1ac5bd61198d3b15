/* Starting a zygote and asking it for boxes: see zygote.h. */
#include "box/zygote.h"

#include "base/fd.h"
#include "base/hand.h"
#include "box/cgroup_enter.h"
#include "box/embed.h"
#include "box/handle.h"
#include "box/proto.h"
#include "box/root.h"
#include "box/switches.h"
#include "box/sys.h"
#include "box/tree.h"
#include "box/user.h"
#include "box/zygote/zygote.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

struct zygote {
    int socket;
    pid_t pid;
    int root; /* to read accounts from; -1 for the host profile */
    char shell[32];
};

/* ---- the zygote's process, until it runs its own program ---- */

/* The base, with a /proc that is whole: without one the kernel lets no box mount its own. */
static int fill_base(const struct plan *plan, int root, struct error *err)
{
    static const char *const places[] = {"proc", "tmp", "dev", ZYGOTE_LOWER};
    _cleanup_close_ int dev = -1, fs = -1, proc = -1;

    if (plan->root_kind == BOX_ROOT_HOST) {
        if (tree_host_base(root, plan, err) < 0)
            return -1;
    } else {
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
            if (mkdirat(root, places[i], 0755) < 0)
                return error_set(err, "mount_failed", errno, "cannot make /%s", places[i]);
        dev = openat(root, "dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (tree_devices(dev, err) < 0)
            return -1;
        if (tree_attach(plan->lower, root, ZYGOTE_LOWER) < 0)
            return error_set(err, "mount_failed", errno, "cannot attach the root's layer");
    }
    fs = sys_fsopen("proc");
    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ||
        (proc = sys_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)) < 0 ||
        tree_attach(proc, root, "proc") < 0)
        return error_set(err, "mount_failed", errno, "cannot mount the zygote's /proc");
    return 0;
}

static int build_base(const struct plan *plan, struct error *err)
{
    struct mount_attr unshared = {.propagation = MS_PRIVATE};
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};
    _cleanup_close_ int tmpfs = -1, root = -1;

    /* First of all: what is mounted from here on must never show on the host. */
    if (sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &unshared) < 0)
        return error_set(err, "mount_failed", errno, "cannot separate the zygote's mounts");
    (void)umask(0);
    if (tree_tmpfs(0, 0, &tmpfs, err) < 0)
        return -1;
    /* Not on "/", where the detaching below would find it instead of the host's root. */
    if (tree_attach(tmpfs, AT_FDCWD, "/tmp") < 0 || mkdirat(tmpfs, "root", 0755) < 0 ||
        (root = sys_open_tree(tmpfs, "root", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)) < 0 ||
        tree_attach(root, tmpfs, "root") < 0)
        return error_set(err, "mount_failed", errno, "cannot make the zygote's root");
    if (fill_base(plan, root, err) < 0)
        return -1;
    if (sys_mount_setattr(root, "", AT_EMPTY_PATH, &read_only) < 0 || fchdir(root) < 0 ||
        sys_pivot_root(".", ".") < 0 || sys_umount(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return error_set(err, "mount_failed", errno, "cannot enter the zygote's root");
    return 0;
}

static _Noreturn void run(const struct plan *plan, int socket, int init, int program)
{
    char name[] = "cove-zygote";
    char *argv[] = {name, NULL}, *env[] = {NULL};
    struct zygote_failed said = {.type = ZYGOTE_FAILED};
    int null;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (build_base(plan, &said.error) < 0)
        goto failed;
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    socket = fcntl(socket, F_DUPFD_CLOEXEC, 16);
    init = fcntl(init, F_DUPFD_CLOEXEC, 16);
    program = fcntl(program, F_DUPFD_CLOEXEC, 16);
    if (null < 0 || socket < 0 || init < 0 || program < 0 || dup2(null, 0) < 0 ||
        dup2(null, 1) < 0 || dup2(null, 2) < 0 || dup2(socket, ZYGOTE_SOCKET_FD) < 0 ||
        dup2(init, ZYGOTE_INIT_FD) < 0 || dup3(program, 5, O_CLOEXEC) < 0 ||
        sys_close_range(6, ~0U, 0) < 0) {
        (void)error_set(&said.error, "zygote_failed", errno, "cannot arrange the zygote's fds");
        goto failed;
    }
    (void)sys_execveat(5, argv, env);
    (void)error_set(&said.error, "zygote_failed", errno, "cannot start the zygote");
failed:
    (void)proto_send(socket, &said, sizeof(said), NULL, 0, NULL, 0);
    _exit(1);
}

/* ---- its maker's side ---- */

static pid_t clone_zygote(const struct plan *plan, int socket, int init, int program,
                          struct error *err)
{
    struct clone_args args = {.flags = CLONE_NEWNS | CLONE_NEWPID, .exit_signal = SIGCHLD};
    pid_t pid = sys_clone3(&args);

    if (pid == 0)
        run(plan, socket, init, program);
    if (pid < 0)
        return error_set(err, "namespace_failed", errno, "cannot make a zygote's namespaces");
    return pid;
}

static int open_lower(const struct box_spec *spec, struct zygote *zygote, struct plan *plan,
                      struct error *err)
{
    if (spec->root_kind == BOX_ROOT_HOST)
        return 0;
    if (root_layer_open(spec, &plan->lower, err) < 0)
        return -1;
    zygote->root = fcntl(plan->lower, F_DUPFD_CLOEXEC, 3);
    return zygote->root >= 0 ? 0 : error_set(err, "bad_root", errno, "cannot keep the root open");
}

static int start(const struct box_spec *spec, struct zygote *zygote, struct plan *plan,
                 struct error *err)
{
    _cleanup_close_ int init = box_program("cove-init", embed_init_start, embed_init_end, err);
    _cleanup_close_ int program = init < 0 ? -1
                                           : box_program("cove-zygote", embed_zygote_start,
                                                         embed_zygote_end, err);
    struct box_user nobody = {0};
    int pair[2];

    if (program < 0 || box_plan_fill(spec, &nobody, plan, err) < 0)
        return -1;
    if (open_lower(spec, zygote, plan, err) < 0)
        return -1;
    (void)snprintf(plan->shell, sizeof(plan->shell), "%s", zygote->shell);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "zygote_failed", errno, "cannot make the zygote's socket");
    zygote->socket = pair[0];
    zygote->pid = clone_zygote(plan, pair[1], init, program, err);
    (void)close(pair[1]);
    return zygote->pid > 0 ? 0 : -1;
}

int zygote_start(const struct box_spec *spec, struct zygote **out, struct error *err)
{
    struct zygote *zygote = calloc(1, sizeof(*zygote));
    struct plan *plan = calloc(1, sizeof(*plan));
    int started = -1;

    if (zygote == NULL || plan == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot make a zygote");
    } else {
        zygote->socket = zygote->root = -1;
        box_choose_shell(spec, zygote->shell, sizeof(zygote->shell));
        plan->lower = -1;
        started = start(spec, zygote, plan, err);
        fd_close(&plan->lower);
    }
    free(plan);
    if (started < 0) {
        zygote_stop(zygote);
        return -1;
    }
    *out = zygote;
    return 0;
}

void zygote_stop(struct zygote *zygote)
{
    if (zygote == NULL)
        return;
    fd_close(&zygote->socket);
    fd_close(&zygote->root);
    if (zygote->pid > 0) {
        (void)kill(zygote->pid, SIGKILL);
        (void)waitpid(zygote->pid, NULL, 0);
    }
    free(zygote);
}

static int hear(struct zygote *zygote, int *pidfd, struct error *err)
{
    union {
        uint32_t type;
        struct zygote_failed failed;
        struct zygote_answer answer;
    } packet;
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(zygote->socket, &packet, sizeof(packet), fds, 0);

    *pidfd = fds[0];
    if (n == (ssize_t)sizeof(packet.failed) && packet.type == ZYGOTE_FAILED) {
        *err = packet.failed.error;
        return -1;
    }
    if (n != (ssize_t)sizeof(packet.answer) || packet.type != ZYGOTE_ANSWER)
        return error_set(err, "zygote_failed", 0, "the zygote has ended; start it again");
    if (packet.answer.errnum != 0)
        return error_set(err, "zygote_failed", packet.answer.errnum,
                         "the zygote cannot make a box (%.*s)", (int)sizeof(packet.answer.step),
                         packet.answer.step);
    return *pidfd >= 0 ? 0 : error_set(err, "zygote_failed", 0, "the zygote gave no box");
}

/* What the slot lends, and the disk, as flags and fds of a request. */
static int lend(const struct zygote_slot *slot, const struct disk_kept *disk,
                struct zygote_request *request, int *fds, size_t *count, struct error *err)
{
    int into = slot->cgroup != NULL ? cgroup_into_fd(slot->cgroup) : -1;
    int leaves = slot->cgroup != NULL ? cgroup_leaves_fd(slot->cgroup) : -1;
    const struct {
        uint32_t flag;
        int fd;
    } lent[] = {{ZYGOTE_NETWORK, slot->network},
                {ZYGOTE_INTO, into},
                {ZYGOTE_LEAVES, leaves},
                {ZYGOTE_UPPER, disk != NULL ? disk->fd : -1}};

    for (size_t i = 0; i < sizeof(lent) / sizeof(lent[0]); i++)
        if (lent[i].fd >= 0) {
            request->flags |= lent[i].flag;
            fds[(*count)++] = lent[i].fd;
        }
    request->plan.disk_kept = disk != NULL;
    if (leaves >= 0)
        request->plan.leaves = 0; /* any number: init is told that it has them */
    if (slot->cgroup == NULL)
        return 0;
    if (cgroup_gate_open(slot->cgroup, &request->plan.gate, err) < 0)
        return -1;
    *count += cgroup_gate_fds(&request->plan.gate, fds + *count);
    return 0;
}

static int ask(struct zygote *zygote, const struct zygote_slot *slot, const struct disk_kept *disk,
               struct zygote_request *request, struct box *box, struct error *err)
{
    bool limited = slot->cgroup != NULL && cgroup_leaves_limited(slot->cgroup);
    int pair[2], fds[PROTO_FDS_MAX], made;
    size_t count = 1;

    request->type = ZYGOTE_REQUEST;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "create_failed", errno, "cannot make the box's control socket");
    box->link.control = pair[0];
    fds[0] = pair[1];
    made = lend(slot, disk, request, fds, &count, err);
    if (made == 0)
        made = box_send_config(box->link.control, &request->plan, limited, err);
    if (made == 0 && proto_send(zygote->socket, request, sizeof(*request), NULL, 0, fds, count) < 0)
        made = error_set(err, "zygote_failed", errno, "the zygote has ended; start it again");
    (void)close(pair[1]);
    cgroup_gate_close(&request->plan.gate);
    return made == 0 ? hear(zygote, &box->pidfd, err) : -1;
}

static int prepare(struct zygote *zygote, const struct box_spec *spec,
                   const struct zygote_slot *slot, struct box *box, struct zygote_request *request,
                   struct error *err)
{
    const char *who = spec->user;

    if (who == NULL)
        who = spec->privileges == BOX_SYSTEM ? "0" : "1000";
    if (user_resolve(zygote->root, zygote->shell, who, &box->user, err) < 0 ||
        box_plan_fill(spec, &box->user, &request->plan, err) < 0)
        return -1;
    request->plan.from_zygote = true;
    request->plan.one_shot = false;
    request->first_id = slot->ids->first;
    request->ids_count = slot->ids->count;
    return 0;
}

int zygote_box(struct zygote *zygote, const struct box_spec *spec, const struct zygote_slot *slot,
               struct box **out, struct error *err)
{
    struct box *box = calloc(1, sizeof(*box));
    struct zygote_request *request = calloc(1, sizeof(*request));
    struct error ignored;
    int made = -1;

    if (box == NULL || request == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot make a box");
        free(box);
        box = NULL;
    } else {
        box->magic = BOX_MAGIC;
        box->protocol = box_protocol_now();
        box->privileges = spec->privileges;
        box->lent = slot->cgroup;
        link_begin_plain(&box->link, -1);
        box->pidfd = box->network = box->settling = box->guard.socket = box->pool.lock = -1;
        made = prepare(zygote, spec, slot, box, request, err);
        if (made == 0)
            made = ask(zygote, slot, spec->disk, request, box, err);
    }
    free(request);
    if (made < 0) {
        if (box != NULL)
            (void)box_destroy(box, NULL, &ignored);
        return -1;
    }
    *out = box;
    return 0;
}

/* ---- taken over ---- */

HAND_COVERS(struct zygote, 44);

void zygote_hand(struct hand *hand, struct zygote **zygote)
{
    struct zygote *it = hand->is_reading ? calloc(1, sizeof(*it)) : *zygote;

    if (hand->is_reading)
        *zygote = it;
    if (it == NULL) {
        hand_fault(hand, "no memory");
        return;
    }
    hand_fd(hand, &it->socket);
    hand_fd(hand, &it->root);
    hand_pid(hand, &it->pid);
    hand_text(hand, it->shell, sizeof(it->shell));
}

void zygote_drop(struct zygote *zygote)
{
    fd_close(&zygote->socket);
    fd_close(&zygote->root);
    free(zygote);
}

static uint64_t digest(uint64_t sum, const unsigned char *at, const unsigned char *end)
{
    for (; at < end; at++)
        sum = (sum ^ *at) * 1099511628211U; /* FNV-1a: they differ by accident only */
    return sum;
}

uint64_t zygote_programs(void)
{
    uint64_t sum = digest(14695981039346656037U, embed_init_start, embed_init_end);

    return digest(sum, embed_zygote_start, embed_zygote_end) + switched_ahead();
}
