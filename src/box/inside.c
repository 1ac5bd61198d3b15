/* The set-up child: see inside.h. Built with both libcs; allocates nothing. */
#include "box/inside.h"

#include "base/fd.h"
#include "base/kernel.h"
#include "box/cgroup_enter.h"
#include "box/filter/filter.h"
#include "box/guard.h"
#include "box/landlock.h"
#include "box/network_bound.h"
#include "box/proto.h"
#include "box/spawn.h"
#include "box/sys.h"
#include "box/tree.h"
#include "box/view.h"
#include "box/watch.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define KEYCTL_JOIN_SESSION 1

/* Enough for a Node or JVM server, few enough that a box cannot fill the host's file table. */
#define NOFILE_MAX 16384
#define SIGPENDING_MAX 1024

#define WATCHED_NICE 10

/* Waits for a packet of our maker's or the guard's: `size` bytes of this type with fds, or the error that ends
 * us. */
static int await(int socket, enum guard_type type, void *word, size_t size, int fds[PROTO_FDS_MAX],
                 struct error *err)
{
    union {
        uint32_t type;
        struct guard_gate gate;
        struct guard_failed failed;
    } packet;
    ssize_t n = proto_receive(socket, &packet, sizeof(packet), fds, 0);

    /* The other end closed with something of ours unread: what it said before comes after this. */
    if (n < 0 && errno == ECONNRESET)
        n = proto_receive(socket, &packet, sizeof(packet), fds, 0);
    if (n == (ssize_t)size && packet.type == type) {
        memcpy(word, &packet, size);
        return 0;
    }
    if (n == (ssize_t)sizeof(packet.failed) && packet.type == GUARD_FAILED)
        *err = packet.failed.error;
    else
        (void)error_set(err, "create_failed", 0, "who made the box ended before it stood");
    return -1;
}

static int await_go(int socket, int fds[PROTO_FDS_MAX], struct error *err)
{
    struct guard_word go;

    return await(socket, GUARD_GO, &go, sizeof(go), fds, err);
}

/* ---- the network namespace, made beside the rest: it takes as long as all of it ---- */

struct network {
    long pid;
    long fd;                                        /* or -errno */
    char stack[16384] __attribute__((aligned(16))); /* whoever shares our memory has another */
};

static int make_network(void *argument)
{
    static struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    struct network *network = argument;
    long fd, done;

    done = spawn_raw(SYS_unshare, CLONE_NEWNET, 0, 0, 0);
    fd = spawn_raw(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0, 0);
    if (done == 0)
        done = fd;
    if (done >= 0)
        done = spawn_raw(SYS_ioctl, fd, SIOCSIFFLAGS, (long)(uintptr_t)&lo, 0);
    if (done == 0)
        network_bound();
    if (done == 0)
        done = spawn_raw(SYS_openat, AT_FDCWD, (long)(uintptr_t) "/proc/thread-self/ns/net",
                         O_RDONLY | O_CLOEXEC, 0);
    network->fd = done;
    return 0;
}

static int start_network(const struct plan *plan, struct network *network, struct error *err)
{
    static const uint32_t no_key[4];
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_FILES,
        .exit_signal = SIGCHLD,
        .stack = (uint64_t)(uintptr_t)network->stack,
        .stack_size = sizeof(network->stack),
    };

    network->pid = 0;
    network->fd = -EIO;
    if (!plan->own_network)
        return 0;
    network->pid = spawn_clone3(&args, no_key, make_network, network);
    if (network->pid < 0)
        return error_set(err, "namespace_failed", (int)-network->pid,
                         "cannot make the box's network namespace");
    return 0;
}

static int await_network(struct network *network, struct error *err)
{
    while (network->pid > 0 && waitpid((pid_t)network->pid, NULL, __WALL) < 0)
        if (errno != EINTR)
            return error_set(err, "namespace_failed", errno, "cannot await the box's network");
    network->pid = 0;
    return 0;
}

static int enter_network(const struct plan *plan, struct network *network, struct error *err)
{
    if (!plan->own_network)
        return 0;
    if (await_network(network, err) < 0)
        return -1;
    if (network->fd < 0)
        return error_set(err, "namespace_failed", (int)-network->fd,
                         "cannot make the box's network namespace");
    if (setns((int)network->fd, CLONE_NEWNET) < 0)
        return error_set(err, "namespace_failed", errno, "cannot enter the box's network");
    if (plan->network_out >= 0) {
        const int fd = (int)network->fd;

        if (proto_send(plan->network_out, "n", 1, NULL, 0, &fd, 1) < 0)
            return error_set(err, "namespace_failed", errno, "cannot tell of the box's network");
    }
    return 0;
}

/* A box's uptime begins with it, and tells nothing of the host's. A new time namespace is entered when
 * a program starts, and that only from Linux 6.3 on: before, it would be in the way of vfork. */
static void start_clocks(struct plan *plan)
{
    struct timespec mono, boot;
    char offsets[96];

    if (!kernel_is_at_least(6, 3) || unshare(CLONE_NEWTIME) < 0)
        return;
    (void)clock_gettime(CLOCK_MONOTONIC, &mono);
    (void)clock_gettime(CLOCK_BOOTTIME, &boot);
    (void)snprintf(offsets, sizeof(offsets), "monotonic -%lld 0\nboottime -%lld 0\n",
                   (long long)mono.tv_sec, (long long)boot.tv_sec);
    plan->own_clocks = fd_write_file(AT_FDCWD, "/proc/self/timens_offsets", offsets) == 0;
}

/* What the plan names on the host, taken into our own mounts with the caller's rights, while we still
 * have them. The mount replaces the place under the same number: the plan is our maker's, too. */
static int take_place(int place, uint64_t attributes, struct error *err)
{
    struct mount_attr attr = {.attr_set = attributes, .propagation = MS_PRIVATE};
    char self[32], path[4096];
    _cleanup_close_ int mount = -1;
    struct stat named, taken;
    ssize_t length;

    (void)snprintf(self, sizeof(self), "/proc/self/fd/%d", place);
    length = readlink(self, path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    mount = sys_open_tree(AT_FDCWD, path,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW);
    if (mount < 0 || fstat(place, &named) < 0 || fstat(mount, &taken) < 0)
        return error_set(err, "bad_mount", errno, "cannot mount %.300s into the box", path);
    if (named.st_dev != taken.st_dev || named.st_ino != taken.st_ino)
        return error_set(err, "bad_mount", 0,
                         "cannot mount %.300s into the box: it was replaced meanwhile; try again",
                         path);
    if (sys_mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0 ||
        dup3(mount, place, O_CLOEXEC) < 0)
        return error_set(err, "bad_mount", errno, "cannot mount %.300s into the box", path);
    return 0;
}

static int take_places(const struct plan *plan, struct error *err)
{
    if (!plan->opens_paths)
        return 0;
    if (plan->lower >= 0 && take_place(plan->lower, MOUNT_ATTR_NODEV, err) < 0)
        return -1;
    if (plan->upper >= 0 && take_place(plan->upper, MOUNT_ATTR_NODEV, err) < 0)
        return -1;
    for (size_t i = 0; i < plan->binds_count; i++)
        if (take_place(plan->binds[i].mount,
                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                           (plan->binds[i].read_only ? (unsigned)MOUNT_ATTR_RDONLY : 0U),
                       err) < 0)
            return -1;
    return 0;
}

/* From here on we are id 0 of the box's range, and nobody outside it; or, where there is one id, what
 * we are already. */
static int become_root(const struct plan *plan, struct error *err)
{
    if (plan->one_id)
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return error_set(err, "ids_failed", errno, "cannot become root of the box's ids");
    /* Changing ids forgets it, so it comes after. If the parent is gone already, init will see the
     * end of its control socket. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    return 0;
}

static int build_from_host(const struct plan *plan, struct tree *tree, struct error *err)
{
    /* Anywhere would do that is in nobody's way; on "/" itself it would later take a second umount,
     * and each waits for all CPUs. */
    if (tree_attach(tree->scratch, AT_FDCWD, "/tmp") < 0)
        return error_set(err, "mount_failed", errno,
                         "cannot attach the box's tmpfs on /tmp; make that directory on the host");
    if (plan->root_kind != BOX_ROOT_HOST)
        return 0;
    if (mkdirat(tree->scratch, "base", 0755) < 0 ||
        (tree->base = sys_open_tree(tree->scratch, "base", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)) <
            0 ||
        tree_attach(tree->base, tree->scratch, "base") < 0)
        return error_set(err, "mount_failed", errno, "cannot make the box's root");
    return tree_host_base(tree->base, plan, err);
}

/* The zygote's root is the base already. The scratch goes on /tmp, where the box's own root or /tmp
 * then covers it: nothing in here can unmount that. */
static int build_from_zygote(const struct plan *plan, struct tree *tree, struct error *err)
{
    if (tree_attach(tree->scratch, AT_FDCWD, "/tmp") < 0)
        return error_set(err, "mount_failed", errno, "cannot attach the box's tmpfs");
    if (plan->root_kind != BOX_ROOT_HOST)
        return 0;
    tree->base = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return tree->base >= 0 ? 0 : error_set(err, "mount_failed", errno, "cannot open the root");
}

/* A root of the box's own is attached before anything is mounted in it. */
static int build_root(const struct plan *plan, struct tree *tree, struct error *err)
{
    int opened;

    if (plan->root_kind == BOX_ROOT_HOST && !plan->own_root) {
        tree->root = tree->base;
        return 0;
    }
    opened = plan->own_root ? tree_own_root(plan, tree, err) : tree_overlay(plan, tree, err);
    if (opened < 0)
        return -1;
    if (plan->from_zygote ? tree_attach(tree->root, AT_FDCWD, "/") < 0
                          : (mkdirat(tree->scratch, "root", 0755) < 0 && errno != EEXIST) ||
                                tree_attach(tree->root, tree->scratch, "root") < 0)
        return error_set(err, "mount_failed", errno, "cannot attach the box's root");
    return plan->own_root ? tree_fill_root(plan, tree, err) : 0;
}

/* From a zygote all that shows the host is read-only already. */
static int seal(const struct plan *plan, const struct tree *tree, struct error *err)
{
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};

    if (plan->root_kind != BOX_ROOT_HOST || plan->from_zygote)
        return 0;
    if (plan->own_root)
        return tree_seal_root(tree, err);
    if (sys_mount_setattr(tree->root, "", AT_EMPTY_PATH, &read_only) < 0)
        return error_set(err, "mount_failed", errno, "cannot make the box's root read-only");
    return 0;
}

/* The groups are made by the guard meanwhile: they are waited for as late as possible. */
static int enter_cgroups(struct plan *plan, struct network *network, struct error *err)
{
    int fds[PROTO_FDS_MAX];
    struct guard_gate said;

    if (plan->has_guard) {
        if (await(plan->go, GUARD_GATE, &said, sizeof(said), fds, err) < 0)
            return -1;
        if (cgroup_gate_take(&said.gate, fds, proto_fds_count(fds)) < 0)
            return error_set(err, "create_failed", 0,
                             "the box's guard gave other groups than it made");
        plan->gate = said.gate;
    }
    if (cgroup_enter(&plan->gate) < 0)
        return error_set(err, "cgroup_failed", errno, "cannot enter the box's cgroups");
    if (unshare(CLONE_NEWCGROUP) < 0)
        return error_set(err, "namespace_failed", errno, "cannot make a cgroup namespace");
    view_keep_cpus(plan); /* after the cpuset, which may have chosen already */
    if (plan->gate.own_view && plan->leaves_too && tree_cgroup2(0, &plan->leaves, err) < 0)
        return -1;
    /* The network's maker is in the box's group, too, and none may be there then. */
    if (plan->leaves >= 0 && await_network(network, err) < 0)
        return -1;
    if (plan->leaves >= 0 && cgroup_settle(plan->leaves) < 0)
        return error_set(err, "cgroup_failed", errno, "cannot settle in the box's cgroup");
    return 0;
}

/* From here on the guard watches us, where no cgroup keeps the limits. */
static int begin_watch(struct plan *plan, const struct tree *tree, struct error *err)
{
    _cleanup_close_ int proc = -1;
    struct guard_watch watch = {.type = GUARD_WATCH};
    int fds[PROTO_FDS_MAX];
    struct stat st;

    if (!plan->gate.watched && !plan->disk_watched)
        return 0;
    if (plan->is_stale) {
        if (stat("/proc/self/ns/pid", &st) < 0)
            return error_set(err, "limits_failed", errno, "cannot have the box watched");
        watch.space = st.st_ino;
    }
    proc = openat(tree->root, "proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    fds[WATCH_PROC] = proc;
    fds[WATCH_SCRATCH] = tree->scratch;
    if (proc < 0 || proto_send(plan->go, &watch, sizeof(watch), NULL, 0, fds, WATCH_FDS) < 0)
        return error_set(err, "limits_failed", errno, "cannot have the box watched");
    if (await_go(plan->go, fds, err) < 0)
        return -1;
    plan->watchdog = fds[0];
    /* It has to be in time however busy the box is; RLIMIT_NICE lets nobody in here go back. Who runs
     * lower already stays there. */
    if (plan->gate.watched && getpriority(PRIO_PROCESS, 0) < WATCHED_NICE &&
        setpriority(PRIO_PROCESS, 0, WATCHED_NICE) < 0)
        return error_set(err, "limits_failed", errno, "cannot lower the box's priority");
    return 0;
}

static int leave_host(const struct tree *tree, struct error *err)
{
    if (fchdir(tree->root) < 0 || sys_pivot_root(".", ".") < 0)
        return error_set(err, "mount_failed", errno, "cannot make the box's root the root");
    /* Both roots are mounted on "/" now, the host's on top. */
    if (sys_umount(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return error_set(err, "mount_failed", errno, "cannot detach the host's root");
    return 0;
}

/* A root of the box's own lies on top of the zygote's, where nothing is but what the box has, too. */
static int leave_zygote(const struct tree *tree, struct error *err)
{
    if (tree->root == tree->base)
        return 0;
    if (fchdir(tree->root) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return error_set(err, "mount_failed", errno, "cannot make the box's root the root");
    return 0;
}

static int build_tree(struct plan *plan, struct network *network, struct error *err)
{
    struct tree tree = {.scratch = -1, .base = -1, .root = -1, .etc = -1, .dev = -1};
    int built;

    if (tree_tmpfs(plan->disk_bytes, plan->disk_inodes, &tree.scratch, err) < 0)
        return -1;
    built = plan->from_zygote ? build_from_zygote(plan, &tree, err)
                              : build_from_host(plan, &tree, err);
    if (built < 0)
        return -1;
    if (build_root(plan, &tree, err) < 0 || tree_own(plan, &tree, err) < 0 ||
        tree_binds(plan, &tree, err) < 0 || enter_cgroups(plan, network, err) < 0 ||
        tree_cgroups(plan, &tree, err) < 0 ||
        (plan->gate.watched != 0 && tree_hold_zero(&tree, err) < 0) ||
        begin_watch(plan, &tree, err) < 0 || seal(plan, &tree, err) < 0)
        return -1;
    /* Before the root changes: the helper still uses it. */
    if (enter_network(plan, network, err) < 0)
        return -1;
    return plan->from_zygote ? leave_zygote(&tree, err) : leave_host(&tree, err);
}

static int set_limit(int resource, rlim_t most, struct error *err)
{
    struct rlimit limit;

    if (syscall(SYS_prlimit64, 0, resource, NULL, &limit) < 0)
        return error_set(err, "limits_failed", errno, "cannot read a resource limit");
    if (limit.rlim_max > most)
        limit.rlim_max = most;
    if (limit.rlim_cur > limit.rlim_max)
        limit.rlim_cur = limit.rlim_max;
    if (resource == RLIMIT_NOFILE || resource == RLIMIT_CORE)
        limit.rlim_cur = limit.rlim_max;
    if (syscall(SYS_prlimit64, 0, resource, &limit, NULL) < 0)
        return error_set(err, "limits_failed", errno, "cannot set a resource limit");
    return 0;
}

static int set_limits(const struct plan *plan, struct error *err)
{
    /* NPROC counts within the user namespace: a second fork-bomb wall, and the only one where no
     * cgroup can be had. No page is locked (MAP_LOCKED): another box may be charged for it. Signals that wait, timers and message queues are counted as the box's maker's, too:
     * without a limit one box could have all that there are, and others, the host among them, none. */
    if (set_limit(RLIMIT_CORE, 1, err) < 0 || set_limit(RLIMIT_NOFILE, NOFILE_MAX, err) < 0 ||
        set_limit(RLIMIT_NPROC, plan->pids, err) < 0 ||
        set_limit(RLIMIT_SIGPENDING, SIGPENDING_MAX, err) < 0 ||
        set_limit(RLIMIT_MSGQUEUE, 0, err) < 0 || set_limit(RLIMIT_MEMLOCK, 0, err) < 0 ||
        set_limit(RLIMIT_RTPRIO, 0, err) < 0 || set_limit(RLIMIT_NICE, 0, err) < 0)
        return -1;
    if (plan->disk_watched && set_limit(RLIMIT_FSIZE, plan->disk_bytes, err) < 0)
        return -1;
    return 0;
}

/* Control on 3, the leaves on 4, init's program on 5, the watchdog's pipe on 6, nothing else: the plan's own fds lie above,
 * for box_create() and the zygote open them with stdio filled. */
static int place_fds(const struct plan *plan, int *control_now, struct error *err)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int control, leaves = -1, watchdog = -1, init;

    control = fcntl(plan->control, F_DUPFD_CLOEXEC, 16);
    init = fcntl(plan->init, F_DUPFD_CLOEXEC, 16);
    if (plan->leaves >= 0)
        leaves = fcntl(plan->leaves, F_DUPFD_CLOEXEC, 16);
    if (plan->watchdog >= 0)
        watchdog = fcntl(plan->watchdog, F_DUPFD_CLOEXEC, 16);
    if (null < 0 || control < 0 || init < 0 || (plan->leaves >= 0 && leaves < 0) ||
        (plan->watchdog >= 0 && watchdog < 0))
        return error_set(err, "fds_failed", errno, "cannot arrange the box's fds");
    if (dup3(control, PROTO_CONTROL_FD, 0) < 0 || dup3(init, 5, O_CLOEXEC) < 0 ||
        dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        return error_set(err, "fds_failed", errno, "cannot arrange the box's fds");
    if (leaves >= 0 ? dup2(leaves, PROTO_LEAVES_FD) < 0
                    : (close(PROTO_LEAVES_FD) < 0 && errno != EBADF))
        return error_set(err, "fds_failed", errno, "cannot arrange the box's fds");
    if (watchdog >= 0 && dup2(watchdog, PROTO_WATCHDOG_FD) < 0)
        return error_set(err, "fds_failed", errno, "cannot arrange the box's fds");
    if (sys_close_range(watchdog >= 0 ? PROTO_WATCHDOG_FD + 1 : PROTO_WATCHDOG_FD, ~0U, 0) < 0)
        return error_set(err, "fds_failed", errno, "cannot close the fds of the outside");
    *control_now = PROTO_CONTROL_FD;
    return 0;
}

/* What uid 0 of a `system` box holds, in its own user namespace only: what apt, su and sudo need. */
static const unsigned char system_caps[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,     CAP_SETUID,
    CAP_SETGID, CAP_KILL,         CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_SETFCAP,
};

static uint64_t caps_kept(const struct plan *plan)
{
    uint64_t kept = 0;

    if (plan->privileges == BOX_SYSTEM)
        for (size_t i = 0; i < sizeof(system_caps); i++)
            kept |= 1ULL << system_caps[i];
    /* Through an idmapped bind a file capability would count on the host as the owner's there. */
    if (plan->no_set_id)
        kept &= ~(1ULL << CAP_SETFCAP);
    return kept;
}

/* The bounding set decides what init has after its exec: exactly the profile's. */
static int drop_caps(const struct plan *plan, struct error *err)
{
    uint64_t kept = caps_kept(plan);

    for (unsigned cap = 0; cap < 64; cap++) {
        if ((kept & 1ULL << cap) != 0)
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                break; /* past the kernel's last one */
            return error_set(err, "caps_failed", errno, "cannot drop capability %u", cap);
        }
    }
    return 0;
}

static int become_user(const struct plan *plan, struct error *err)
{
    if (plan->privileges == BOX_SYSTEM || plan->one_id)
        return 0; /* init stays root of the box; each command gets its own user */
    if (setgroups(plan->groups_count, plan->groups) < 0 ||
        setresgid(plan->gid, plan->gid, plan->gid) < 0 ||
        setresuid(plan->uid, plan->uid, plan->uid) < 0)
        return error_set(err, "ids_failed", errno, "cannot become user %u:%u in the box", plan->uid,
                         plan->gid);
    return 0;
}

/* Init's program may be read by nobody, which keeps everybody in the box from looking into init: the
 * kernel asks whether we could read it when we execute it. Where its owner is an id of the box (an
 * ordinary user's own), these two capabilities would let us. What init keeps is decided by the bounding
 * set, not by this. */
static int blind(struct error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &header, data) < 0)
        return error_set(err, "caps_failed", errno, "cannot read our capabilities");
    data[0].effective &= ~(1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH);
    if (syscall(SYS_capset, &header, data) < 0)
        return error_set(err, "caps_failed", errno, "cannot drop capabilities");
    return 0;
}

/* To where init looks for it, from the lowest number that was free. */
static int place_listener(int listener, struct error *err)
{
    if (listener < 0)
        return 0;
    if (listener == PROTO_LISTENER_FD
            ? fcntl(listener, F_SETFD, 0) < 0
            : dup3(listener, PROTO_LISTENER_FD, 0) < 0 || close(listener) < 0)
        return error_set(err, "fds_failed", errno, "cannot arrange the box's fds");
    return 0;
}

/* Everything is given up here; the filter last, for it forbids what came before. */
static int lock_down(const struct plan *plan, struct error *err)
{
    struct sock_filter program[FILTER_MAX];
    size_t count;
    int failed, listener;

    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION, NULL) < 0 && errno != ENOSYS)
        return error_set(err, "keyring_failed", errno, "cannot make a session keyring");
    if (setsid() < 0 && errno != EPERM)
        return error_set(err, "session_failed", errno, "cannot make a session");
    (void)umask(022);
    if (set_limits(plan, err) < 0 || drop_caps(plan, err) < 0)
        return -1;
    if (plan->privileges == BOX_PLAIN && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set(err, "caps_failed", errno, "cannot set no_new_privs");
    if (landlock_confine(plan, err) < 0 || become_user(plan, err) < 0)
        return -1;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (blind(err) < 0)
        return -1;
    count = filter_program(program,
                           (plan->no_set_id ? FILTER_NO_SETID : 0) |
                               (plan->gate.watched ? FILTER_WATCHED : 0),
                           plan->filter_key);
    failed = filter_load(program, count, &listener);
    if (failed == -FILTER_NO_ROOM)
        return error_set(
            err, "no_memory", 0,
            "cannot load the system call filter: the host's memory for compiled "
            "filters (net.core.bpf_jit_limit) is used up; try again when boxes or "
            "other programs have ended, or raise that limit, as root; see cove doctor");
    if (failed < 0)
        return error_set(err, "filter_failed", -failed, "cannot load the system call filter");
    return place_listener(listener, err);
}

static int prepare(struct plan *plan, int *control, struct error *err)
{
    struct network network;
    int fds[PROTO_FDS_MAX];

    /* Needs no ids, so it begins before we have any. */
    if (start_network(plan, &network, err) < 0)
        return -1;
    start_clocks(plan);
    if (take_places(plan, err) < 0)
        return -1;
    if (await_go(plan->go, fds, err) < 0)
        return -1;
    if (fds[0] >= 0)
        plan->lower = fds[0];
    if (become_root(plan, err) < 0)
        return -1;
    (void)umask(0);
    if (build_tree(plan, &network, err) < 0)
        return -1;
    if (sethostname(plan->hostname, strlen(plan->hostname)) < 0)
        return error_set(err, "namespace_failed", errno, "cannot set the box's host name");
    if (place_fds(plan, control, err) < 0)
        return -1;
    return lock_down(plan, err);
}

static void report(int control, const struct error *error)
{
    struct proto_failed failed = {.head.type = PROTO_FAILED, .error = *error};

    (void)proto_send(control, &failed, sizeof(failed), NULL, 0, NULL, 0);
}

/* With our user namespace, where somebody has to be root in it: nobody else may open it. */
static void say_hello(const struct plan *plan)
{
    struct guard_word hello = {.type = GUARD_HELLO};
    _cleanup_close_ int userns = -1;

    if (plan->disk_watched)
        userns = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    (void)proto_send(plan->go, &hello, sizeof(hello), NULL, 0, &userns, userns >= 0);
}

/* Closes all but what the plan names: whoever waits for a file system that does not answer is not to keep its maker's
 * sockets and locks open meanwhile. */
static void keep_own(const struct plan *plan)
{
    int own[8 + PLAN_BINDS_MAX] = {plan->control,     plan->init,   plan->go,    plan->watchdog,
                                   plan->network_out, plan->leaves, plan->lower, plan->upper};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), from = STDERR_FILENO + 1, next;

    for (size_t i = 0; i < plan->binds_count; i++)
        own[8 + i] = plan->binds[i].mount;
    for (int i = 0; i < from; i++)
        (void)dup2(null, i); /* its log */
    do {
        next = INT_MAX;
        for (size_t i = 0; i < 8 + plan->binds_count; i++)
            if (own[i] >= from && own[i] < next)
                next = own[i];
        if (next > from)
            (void)sys_close_range((unsigned)from, (unsigned)next - 1, 0);
        from = next + (next < INT_MAX);
    } while (next < INT_MAX);
}

#define SIGNALS_LAST 64

_Noreturn void inside_enter(struct plan *plan)
{
    static const unsigned long by_default[4]; /* the kernel's struct sigaction, all zero */
    char name[] = "cove-init";
    char *argv[] = {name, NULL}, *env[] = {NULL};
    struct error err = {0};
    sigset_t all;

    /* Not in the plan: our maker shares it, and closes its own fds by it. */
    int control = plan->control;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    /* What our maker or its caller ignores is ignored by no command; libc hides two of them. */
    for (int number = 1; number <= SIGNALS_LAST; number++)
        (void)syscall(SYS_rt_sigaction, number, &by_default, NULL, sizeof(uint64_t));
    if (plan->apart)
        keep_own(plan);
    if (plan->has_guard)
        say_hello(plan);
    if (prepare(plan, &control, &err) == 0) {
        (void)sys_execveat(5, argv, env);
        (void)error_set(&err, "init_failed", errno, "cannot start the box's init");
    }
    report(control, &err);
    _exit(1);
}
