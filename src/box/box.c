/* The box from the outside: see box.h. This file makes a cold one; talk.c talks to it.
 *
 * The order matters twice. For safety: the guard is there before the first cgroup, and the child
 * waits until its ids are mapped. For speed: whatever can be done beside the child is, and nothing
 * is probed that a failing call would tell as well. */
#include "box/box.h"

#include "base/fd.h"
#include "box/embed.h"
#include "box/handle.h"
#include "box/inside.h"
#include "box/owner.h"
#include "box/proto.h"
#include "box/root.h"
#include "box/spawn.h"
#include "box/switches.h"
#include "box/sys.h"
#include "box/user.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* MFD_EXEC, which hosts with vm.memfd_noexec demand. */
#define MFD_EXECUTABLE 0x10U
#define CGROUP2_MAGIC 0x63677270

/* What box_create() holds until the box stands. */
struct making {
    struct plan plan;
    struct caller caller;
    struct root_ids range;
    struct ids_lent user_lent, group_lent;
    struct disk disk; /* the guard's, once there is one */
    int place;        /* of the root, where the child takes it from there */
    char why_one_id[100];
    int control;
    int network;      /* where the child says which it has, and whose other end the set-up closes */
    int into, leaves; /* cgroup v2 directories */
    bool limited;     /* the leaves have limits of their own */
};

int box_program(const char *name, const unsigned char *start, const unsigned char *end,
                struct error *err)
{
    _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXECUTABLE);

    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 all are executable */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    /* Only executable, not readable: the kernel then makes the process one that nobody in the box
     * can trace or look into. */
    if (fd < 0 || fd_write_full(fd, start, (size_t)(end - start)) < 0 || fchmod(fd, 0111) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_set(err, "init_failed", errno, "cannot prepare the box's %s", name);
    return fd_take(&fd);
}

int box_plan_fill(const struct box_spec *spec, const struct box_user *user, struct plan *plan,
                  struct error *err)
{
    const struct box_limits *limits = &spec->limits;

    plan->root_kind = spec->root_kind;
    plan->is_empty = spec->is_empty;
    plan->own_root = spec->own_root && spec->root_kind == BOX_ROOT_HOST;
    plan->privileges = spec->privileges;
    plan->uid = user->uid;
    plan->gid = user->gid;
    plan->groups_count = user->groups_count;
    memcpy(plan->groups, user->groups, sizeof(plan->groups));
    (void)snprintf(plan->home, sizeof(plan->home), "%s", user->home);
    (void)snprintf(plan->hostname, sizeof(plan->hostname), "%s",
                   spec->hostname != NULL ? spec->hostname : "box");
    plan->memory_bytes = limits->memory_bytes;
    plan->disk_bytes = limits->disk_bytes;
    plan->disk_inodes = limits->disk_inodes;
    plan->cpu_milli = limits->cpu_milli;
    plan->pids = limits->pids;
    plan->landlock = !switched_off("landlock");
    plan->own_network = true;
    plan->one_shot = !spec->many_commands;
    plan->no_set_id = spec->forbid_set_id;
    plan->apart = spec->apart;
    for (size_t i = 0; i < spec->binds_count; i++)
        plan->no_set_id |= !spec->binds[i].read_only && !spec->allow_set_id;
    plan->control = plan->init = plan->go = plan->leaves = plan->watchdog = -1;
    plan->lower = plan->upper = plan->network_out = -1;
    if (getrandom(plan->filter_key, sizeof(plan->filter_key), 0) != sizeof(plan->filter_key))
        return error_set(err, "no_random", errno, "cannot get random bytes for the box");
    return 0;
}

void box_choose_shell(const struct box_spec *spec, char *shell, size_t size)
{
    bool bash = spec->root_kind == BOX_ROOT_HOST && access("/bin/bash", X_OK) == 0;

    (void)snprintf(shell, size, "%s", bash ? "/bin/bash" : "/bin/sh");
}

/* ---- ids ---- */

/* Those of the disk, for its life. */
static int take_ids_of_disk(const struct disk_kept *disk, struct box *box, struct making *making,
                            struct error *err)
{
    box->ids = disk->ids;
    box->ids_are_lent = true;
    (void)snprintf(making->why_one_id, sizeof(making->why_one_id),
                   "its disk was made when there was no other");
    if (disk->ids_lock < 0)
        return 0;
    box->pool.lock = fcntl(disk->ids_lock, F_DUPFD_CLOEXEC, 3);
    return box->pool.lock >= 0 ? 0
                               : error_set(err, "ids_failed", errno, "cannot keep the box's ids");
}

static int take_ids(const struct box_spec *spec, struct box *box, struct making *making,
                    struct error *err)
{
    const struct caller *caller = &making->caller;

    if (spec->disk != NULL && !caller->mounts)
        return take_ids_of_disk(spec->disk, box, making, err);
    if (caller->maps && caller->on_host)
        return ids_open(&box->pool, err) < 0 ? -1 : ids_take(&box->pool, &box->ids, err);
    /* What it wrote would be the host's root's. */
    if (caller->uid == 0 && caller->on_host)
        return error_set(
            err, "no_ids", 0,
            "this root may not give a box other ids than its own (it lacks CAP_SETUID or "
            "CAP_SETGID): give it these capabilities, or run cove as an ordinary user");
    if (ids_open_user(&box->pool, caller, making->why_one_id, sizeof(making->why_one_id), err) < 0)
        return -1;
    return ids_take_user(&box->pool, caller, &box->ids, err);
}

/* Where the kernel maps no owners for us, one id of the box is the caller's own, so that its files are
 * the box's too: the user's with binds, root's with an image alone. */
static void lend_id(const struct box_spec *spec, const struct box *box, struct making *making)
{
    const struct caller *caller = &making->caller;
    enum disk_lends lends = disk_lends_of(caller, spec, box->ids.kind);
    bool to_user = lends == DISK_LENDS_USER;

    making->user_lent = (struct ids_lent){.inside = -1, .outside = caller->uid};
    making->group_lent = (struct ids_lent){.inside = -1, .outside = caller->gid};
    if (lends == DISK_LENDS_NONE)
        return;
    making->user_lent.inside = to_user ? box->user.uid : 0;
    making->group_lent.inside = to_user ? box->user.gid : 0;
}

/* Only ids that the box has can be used in it. */
static int check_user(const struct box_spec *spec, struct box *box, const struct making *making,
                      struct error *err)
{
    struct box_user *user = &box->user;
    size_t kept = 0;

    if (box->ids.kind == IDS_SINGLE && spec->privileges == BOX_SYSTEM && user->uid != 0)
        return error_set(err, "no_ids", 0,
                         "user %u needs a second id beside root's, and here a box has only one: %s",
                         user->uid, making->why_one_id);
    if (!ids_has(&box->ids, &making->user_lent, user->uid) ||
        !ids_has(&box->ids, &making->group_lent, user->gid))
        return error_set(
            err, "no_ids", 0,
            "user %u:%u is not among the ids that this box has (0 to %u): choose another, "
            "or have more ids given to this user in /etc/subuid and /etc/subgid",
            user->uid, user->gid, box->ids.count - 1);
    for (size_t i = 0; i < user->groups_count; i++)
        if (box->ids.kind != IDS_SINGLE && ids_has(&box->ids, &making->group_lent, user->groups[i]))
            user->groups[kept++] = user->groups[i];
    user->groups_count = kept;
    return 0;
}

static uint32_t host_id(const struct ids *ids, uint32_t first, const struct ids_lent *lent,
                        uint32_t inside)
{
    if (lent->inside == (int64_t)inside)
        return lent->outside;
    return inside < ids->count ? first + inside : first + IDS_SLICE; /* nobody of a slice */
}

/* ---- opening what the plan needs ---- */

static int open_lower(const struct box_spec *spec, struct box *box, struct making *making,
                      int *lower, struct error *err)
{
    char *warning = box->warnings[box->warnings_count];

    if (spec->root_kind == BOX_ROOT_HOST)
        return 0;
    if (!making->caller.mounts) {
        *lower = fd_take(&making->place);
        return 0;
    }
    if (root_open(spec, &making->range, lower, warning, BOX_WARNING_MAX, err) < 0)
        return -1;
    if (warning[0] != '\0')
        box->warnings_count++;
    return 0;
}

/* A disk that is kept: its ids on disk are the box's, whichever those are this time. */
static int open_mount(const struct box_spec *spec, struct making *making, struct error *err)
{
    const struct root_ids *range = &making->range;
    struct idmap map = {.host_uid = range->first, .host_gid = range->first, .count = range->count};
    _cleanup_close_ int userns = -1;

    userns = idmap_open(&map, err);
    if (userns < 0)
        return -1;
    making->plan.upper = fcntl(spec->disk->fd, F_DUPFD_CLOEXEC, 3);
    if (making->plan.upper < 0 || idmap_apply(making->plan.upper, userns) < 0)
        return error_set(err, "disk_failed", errno, "cannot map the owners of the box's disk");
    return 0;
}

static void limit_disk(const struct box_spec *spec, struct box *box, struct making *making)
{
    box->disk_watched = making->plan.disk_watched = true;
    making->disk.bytes = spec->limits.disk_bytes;
    making->disk.inodes = spec->limits.disk_inodes;
}

/* The same where it is a directory. What it lends is as it was, or files would change hands. */
static int open_directory(const struct box_spec *spec, struct box *box, struct making *making,
                          struct error *err)
{
    if (spec->disk->lends != disk_lends_of(&making->caller, spec, box->ids.kind))
        return error_set(err, "disk_ids", 0,
                         "this disk was written by a box with another root or without these "
                         "mounts, and its files would belong to others in this one: give it what "
                         "it was made with");
    limit_disk(spec, box, making);
    making->plan.upper = fcntl(spec->disk->fd, F_DUPFD_CLOEXEC, 3);
    if (making->plan.upper < 0)
        return error_set(err, "disk_failed", errno, "cannot take the box's disk");
    return disk_keep(&making->disk, spec->disk->fd, spec->root_kind != BOX_ROOT_HOST, err);
}

static int open_disk(const struct box_spec *spec, struct box *box, struct making *making,
                     struct error *err)
{
    making->plan.disk_kept = true;
    return making->caller.mounts ? open_mount(spec, making, err)
                                 : open_directory(spec, box, making, err);
}

static int open_roots(const struct box_spec *spec, struct box *box, struct making *making,
                      struct error *err)
{
    struct plan *plan = &making->plan;
    const char *who = spec->user;
    struct box_user *user = &box->user;
    int lower = -1;

    box_choose_shell(spec, plan->shell, sizeof(plan->shell));
    if (who == NULL)
        who = spec->privileges == BOX_SYSTEM ? "0" : "1000";
    making->range = (struct root_ids){.first = box->ids.first, .count = box->ids.count};
    if (open_lower(spec, box, making, &lower, err) < 0)
        return -1;
    if (user_resolve(lower, plan->shell, who, user, err) < 0) {
        fd_close(&lower);
        return -1;
    }
    lend_id(spec, box, making);
    if (check_user(spec, box, making, err) < 0 || box_plan_fill(spec, user, plan, err) < 0) {
        fd_close(&lower);
        return -1;
    }
    plan->lower = lower;
    plan->opens_paths = !making->caller.mounts;
    plan->one_id = box->one_id = box->ids.kind == IDS_SINGLE;
    plan->stale_proc = spec->allow_no_fresh_proc;
    making->range.user = user->uid;
    making->range.group = user->gid;
    if (spec->disk != NULL)
        return open_disk(spec, box, making, err);
    if (spec->root_kind == BOX_ROOT_HOST || root_tmpfs_has_xattrs(&making->caller))
        return 0;
    if (!making->caller.mounts) {
        limit_disk(spec, box, making);
        return disk_make(&making->disk, &plan->upper, err);
    }
    return root_upper_open(&spec->limits, &making->range, &plan->upper, err);
}

static int open_binds(const struct box_spec *spec, struct making *making, struct error *err)
{
    struct plan *plan = &making->plan;

    if (spec->binds_count > PLAN_BINDS_MAX)
        return error_set(err, "bad_mount", 0, "a box takes %d mounts at most", PLAN_BINDS_MAX);
    for (size_t i = 0; i < spec->binds_count; i++) {
        int opened = making->caller.mounts
                         ? root_bind_open(&spec->binds[i], &making->range, &plan->binds[i], err)
                         : root_bind_place_open(&spec->binds[i], &making->caller, &plan->binds[i],
                                                err);

        if (opened < 0)
            return -1;
        plan->binds_count++;
    }
    return 0;
}

static int open_channels(const struct box_spec *spec, struct making *making, struct error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "create_failed", errno, "cannot make the box's control socket");
    making->control = pair[0];
    making->plan.control = pair[1];
    if (spec->keeps_network) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
            return error_set(err, "create_failed", errno, "cannot make a socket for the box");
        making->network = pair[0];
        making->plan.network_out = pair[1];
    }
    making->plan.init = box_program("cove-init", embed_init_start, embed_init_end, err);
    return making->plan.init >= 0 ? 0 : -1;
}

/* ---- the guard and the cgroups ---- */

static bool has_pure_v2(void)
{
    struct statfs fs;

    return statfs("/sys/fs/cgroup", &fs) == 0 && fs.f_type == CGROUP2_MAGIC;
}

/* Only a child that is born into a v2 group needs the groups before it is there. */
static bool needs_groups_first(const struct box_spec *spec)
{
    return spec->many_commands || has_pure_v2();
}

static enum idmap_way id_way(const struct box *box, const struct caller *caller)
{
    if (box->ids.kind == IDS_SINGLE)
        return IDMAP_OWN;
    return caller->maps ? IDMAP_WRITE : IDMAP_HELPERS;
}

static int start_guard(const struct box_spec *spec, struct box *box, struct making *making,
                       struct error *err)
{
    uint32_t user = spec->privileges == BOX_PLAIN ? making->plan.uid : 0;
    uint32_t group = spec->privileges == BOX_PLAIN ? making->plan.gid : 0;
    uint64_t random;
    char name[32], uid_map[160], gid_map[160];
    struct guard_order order = {
        .name = name,
        .limits = {.memory_bytes = spec->limits.memory_bytes,
                   .cpu_milli = spec->limits.cpu_milli,
                   .pids = spec->limits.pids},
        .way = id_way(box, &making->caller),
        .uid_map = uid_map,
        .gid_map = gid_map,
        .owner = host_id(&box->ids, box->ids.first, &making->user_lent, user),
        .group = host_id(&box->ids, box->ids.first_group, &making->group_lent, group),
        .mounts = making->caller.mounts,
        .leaves = spec->many_commands,
        .announce = needs_groups_first(spec),
        .disk = making->disk,
        .keep = box->pool.lock,
    };

    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return error_set(err, "no_random", errno, "cannot get random bytes for the box");
    (void)snprintf(name, sizeof(name), "%016llx", (unsigned long long)random);
    if (!ids_map_text(&box->ids, box->ids.first, &making->user_lent, uid_map, sizeof(uid_map)) ||
        !ids_map_text(&box->ids, box->ids.first_group, &making->group_lent, gid_map,
                      sizeof(gid_map)))
        return error_set(err, "ids_failed", 0, "cannot write down the box's ids");
    if (guard_start(&order, &box->guard, err) < 0)
        return -1;
    (void)snprintf(box->group, sizeof(box->group), "%s", name);
    disk_forget(&making->disk);
    making->plan.go = box->guard.socket;
    making->plan.has_guard = true;
    return 0;
}

/* ---- the child ---- */

/* The child shares our memory while we sleep: nothing is copied, unless it is one that is set up apart. It needs some
 * room for the files it makes for /proc. Other threads may make boxes meanwhile, so its stack is nobody else's. */
#define CHILD_STACK_SIZE (256U << 10)

static int enter(void *plan)
{
    inside_enter(plan);
}

static int clone_child(struct box *box, struct making *making, struct error *err)
{
    struct clone_args args = {
        .flags = (making->plan.apart ? 0U : CLONE_VM | CLONE_VFORK) | CLONE_NEWUSER | CLONE_NEWNS |
                 CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&box->pidfd,
        .exit_signal = SIGCHLD,
        .stack_size = CHILD_STACK_SIZE,
    };
    static const uint32_t no_key[4];
    sigset_t all, before;
    struct owner owner;
    bool has_owner;
    void *stack;
    long pid;
    int dumpable = prctl(PR_GET_DUMPABLE);

    stack = mmap(NULL, CHILD_STACK_SIZE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED)
        return error_set(err, "no_memory", errno, "there is no memory for the box's first process");
    args.stack = (uint64_t)(uintptr_t)stack;

    if (making->into >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (unsigned)making->into;
    }
    /* No handler of ours may run in the child, on our memory. */
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    /* No root's guard sets for the child what it may not set itself, and the kernel lets it only as long
     * as this memory is dumpable; which it is no more when a child that shares it has become somebody
     * else. */
    if (!making->caller.mounts)
        (void)prctl(PR_SET_DUMPABLE, 1);
    has_owner = making->caller.maps && making->caller.on_host && box->ids.kind == IDS_RANGE;
    if (has_owner)
        owner_become(&owner, box->ids.first);
    pid = spawn_clone3(&args, no_key, enter, &making->plan);
    if (has_owner)
        owner_leave(&owner);
    if (!making->caller.mounts)
        (void)prctl(PR_SET_DUMPABLE, dumpable == 1);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    (void)munmap(stack, CHILD_STACK_SIZE);
    if (pid < 0)
        return error_set(err, "namespace_failed", (int)-pid,
                         pid == -ENOSPC || pid == -EPERM || pid == -ENOSYS
                             ? "cannot make namespaces here (inside a box or another sandbox, or "
                               "forbidden by this host); run cove on the host itself"
                             : "cannot make the box's namespaces");
    return 0;
}

static void close_making(struct making *making)
{
    struct plan *plan = &making->plan;
    int *owned[] = {&plan->control,  &plan->init,      &plan->lower,
                    &plan->upper,    &making->control, &making->into,
                    &making->leaves, &making->network, &plan->network_out};

    disk_remove(&making->disk, -1); /* where no guard took it */
    fd_close(&making->place);
    for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++)
        fd_close(owned[i]);
    for (size_t i = 0; i < plan->binds_count; i++)
        fd_close(&plan->binds[i].mount);
}

static void add(char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(char *text, const char *fmt, ...)
{
    size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, fmt);
    (void)vsnprintf(text + used, BOX_WARNING_MAX - used, fmt, arguments);
    va_end(arguments);
}

/* All that is weaker than elsewhere, in one line. */
static void warn(struct box *box, const struct making *making)
{
    char *text = box->warnings[box->warnings_count];

    if (box->is_stale)
        add(text, "level=no-fresh-proc (processes outside of the box can be seen in its /proc), ");
    if (box->is_watched)
        add(text, "limits=rlimit (%s), ",
            making->plan.gate.watched == CGROUP_CPU
                ? "no cgroup limits CPU here, so CPUs are whole ones"
                : "no cgroup can be made here, so a watchdog limits memory and processes, and CPUs "
                  "are whole ones");
    if (box->disk_watched)
        add(text, "disk=watched (it is a directory of yours, counted from time to time), ");
    if (box->one_id)
        add(text, "ids=single (%s; your groups stay), ", making->why_one_id);
    if (text[0] == '\0')
        return;
    text[strlen(text) - 2] = '\0'; /* the last comma */
    add(text, "; cove doctor says more");
    box->warnings_count++;
}

/* The child says which network it has, for a keeper that may not look into its init cannot enter it by a pid. The fd stays
 * open, for a loop may have it. */
int box_settling(struct box *box)
{
    int fds[PROTO_FDS_MAX];
    ssize_t n = 1;
    char said;

    while (box->settling >= 0 && n > 0) {
        n = proto_receive(box->settling, &said, sizeof(said), fds, MSG_DONTWAIT);
        if (n > 0 && fds[0] >= 0) {
            fd_close(&box->network);
            box->network = fd_take(&fds[0]);
            proto_fds_close(fds);
        }
    }
    return n == 0 || (n < 0 && errno != EAGAIN) ? -1 : box->settling;
}

void box_settled(struct box *box)
{
    fd_close(&box->settling);
}

int box_network(struct box *box)
{
    (void)box_settling(box);
    return box->network;
}

static int make(const struct box_spec *spec, struct box *box, struct making *making,
                struct error *err)
{
    caller_look(&making->caller);
    /* Before the ids: to unpack an image takes a box of its own, and there may be ids for one only. */
    if (!making->caller.mounts && spec->root_kind != BOX_ROOT_HOST &&
        root_place_open(spec, &making->place, err) < 0)
        return -1;
    if (take_ids(spec, box, making, err) < 0 || open_roots(spec, box, making, err) < 0 ||
        start_guard(spec, box, making, err) < 0 || open_binds(spec, making, err) < 0 ||
        open_channels(spec, making, err) < 0)
        return -1;
    if (needs_groups_first(spec) &&
        guard_wait_made(&box->guard, &making->into, &making->leaves, &making->plan.leaves_too,
                        &making->limited, err) < 0)
        return -1;
    making->plan.leaves = making->leaves;
    if (box_send_config(making->control, &making->plan, making->limited, err) < 0 ||
        clone_child(box, making, err) < 0)
        return -1;
    box->link.control = fd_take(&making->control);
    box->settling = fd_take(&making->network);
    if (!spec->apart) {
        (void)box_settling(box); /* it is said by now, or it never is: see clone_child() */
        box_settled(box);
    }
    /* The child has written into our plan what it found, unless it has one of its own. */
    box->is_stale = making->plan.is_stale;
    box->is_watched = making->plan.gate.watched != 0;
    warn(box, making);
    return 0;
}

int box_create(const struct box_spec *spec, struct box **out, struct error *err)
{
    struct box *box;
    struct making *making;
    int made;

    box = calloc(1, sizeof(*box));
    making = calloc(1, sizeof(*making));
    if (box == NULL || making == NULL) {
        free(box);
        free(making);
        return error_set(err, "no_memory", ENOMEM, "cannot make a box");
    }
    box->magic = BOX_MAGIC;
    box->protocol = box_protocol_now();
    box->cold = true;
    box->privileges = spec->privileges;
    link_begin_plain(&box->link, -1);
    box->pidfd = box->network = box->settling = box->guard.socket = box->pool.lock = -1;
    making->control = making->network = making->into = making->leaves = making->disk.parent = -1;
    making->disk.lock = making->place = -1;
    making->plan.control = making->plan.init = making->plan.lower = making->plan.upper = -1;
    making->plan.network_out = -1;
    made = make(spec, box, making, err);
    close_making(making);
    free(making);
    if (made < 0) {
        struct error ignored;

        (void)box_destroy(box, NULL, &ignored);
        return -1;
    }
    *out = box;
    return 0;
}
