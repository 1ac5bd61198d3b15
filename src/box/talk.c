/* Talking to a box: commands, events, its end. See box.h.
 *
 * What comes back over the control socket is hostile: proto_answer_check() has seen it before
 * anything here does. */
#include "base/fd.h"
#include "box/handle.h"
#include "box/proto.h"
#include "box/sys.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

const char *box_level(const struct box *box)
{
    return box->is_stale ? "no-fresh-proc" : "full";
}

const char *box_limits_kind(const struct box *box)
{
    return box->is_watched ? "rlimit" : "cgroup";
}

const char *box_ids_kind(const struct box *box)
{
    return box->ids.kind == IDS_RANGE ? "range" : box->ids.kind == IDS_SLICED ? "slice" : "single";
}

const char *box_disk_kind(const struct box *box)
{
    return box->disk_watched ? "watched" : "hard";
}

const char *box_warning(const struct box *box, size_t index)
{
    return index < box->warnings_count ? box->warnings[index] : NULL;
}

const struct box_user *box_default_user(const struct box *box)
{
    return &box->user;
}

int box_send_config(int control, const struct plan *plan, bool leaf_limits, struct error *err)
{
    struct proto_config config = {
        .head.type = PROTO_CONFIG,
        .version = PROTO_VERSION,
        .has_leaves = plan->leaves >= 0 || plan->leaves_too,
        .leaf_limits = leaf_limits,
        .one_shot = plan->one_shot,
        .pids = plan->pids,
        .memory_bytes = plan->memory_bytes,
        .cpu_milli = plan->cpu_milli,
    };

    memcpy(config.clone_key, plan->filter_key, sizeof(config.clone_key));
    if (proto_send(control, &config, sizeof(config), NULL, 0, NULL, 0) < 0)
        return error_set(err, "create_failed", errno, "cannot configure the box's init");
    return 0;
}

/* ---- requests ---- */

static int gone(struct error *err)
{
    return error_set(err, "box_gone", 0, "the box has ended");
}

static int send_request(struct box *box, const void *packet, size_t size, const void *more,
                        size_t more_size, const int *fds, size_t count, struct error *err)
{
    assert(box->magic == BOX_MAGIC);
    if (proto_send(box->control, packet, size, more, more_size, fds, count) == 0)
        return 0;
    if (errno == EPIPE || errno == ECONNRESET)
        return gone(err);
    return error_set(err, "exec_failed", errno, "cannot reach the box's init");
}

static size_t strings_length(const char *const *strings, uint32_t *count)
{
    size_t size = 0;

    for (*count = 0; strings[*count] != NULL; (*count)++)
        size += strlen(strings[*count]) + 1;
    return size;
}

static char *append(char *at, const char *text)
{
    size_t size = strlen(text) + 1;

    memcpy(at, text, size);
    return at + size;
}

/* All strings of a command in one piece: cwd, argv, env. */
static char *pack_strings(const struct box *box, const struct box_command *command,
                          struct proto_exec *request, struct error *err)
{
    const struct box_user *user = command->user != NULL ? command->user : &box->user;
    const char *cwd = command->cwd != NULL ? command->cwd : user->home;
    size_t size = strlen(cwd) + 1 + strings_length(command->argv, &request->argc) +
                  strings_length(command->env, &request->envc);
    char *strings, *at;

    if (size > PROTO_STRINGS_MAX) {
        (void)error_set(err, "too_long", 0,
                        "the command and its environment are too long (%zu bytes, 4 MiB at most)",
                        size);
        return NULL;
    }
    at = strings = malloc(size);
    if (strings == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot prepare the command");
        return NULL;
    }
    at = append(at, cwd);
    for (uint32_t i = 0; i < request->argc; i++)
        at = append(at, command->argv[i]);
    for (uint32_t i = 0; i < request->envc; i++)
        at = append(at, command->env[i]);
    request->strings_size = (uint32_t)size;
    return strings;
}

static int strings_memfd(const char *strings, size_t size, struct error *err)
{
    _cleanup_close_ int fd = memfd_create("cove-exec", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || fd_write_full(fd, strings, size) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_set(err, "exec_failed", errno, "cannot pass a long command to the box");
    return fd_take(&fd);
}

static void set_user(struct proto_exec *request, const struct box_user *user)
{
    request->flags |= PROTO_EXEC_USER;
    request->uid = user->uid;
    request->gid = user->gid;
    request->groups_count = (uint32_t)user->groups_count;
    for (size_t i = 0; i < user->groups_count; i++)
        request->groups[i] = user->groups[i];
}

int box_exec(struct box *box, uint32_t id, const struct box_command *command, struct error *err)
{
    struct proto_exec request = {.head = {.type = PROTO_EXEC, .id = id},
                                 .rows = command->tty_rows,
                                 .columns = command->tty_columns};
    _cleanup_free_ char *strings = pack_strings(box, command, &request, err);
    _cleanup_close_ int memfd = -1;
    int fds[PROTO_FDS_MAX];
    size_t count = 0;

    if (strings == NULL)
        return -1;
    if (command->tty)
        request.flags |= PROTO_EXEC_TTY;
    else
        for (; count < 3; count++)
            fds[count] = command->stdio[count];
    if (box->privileges == BOX_SYSTEM && !box->one_id)
        set_user(&request, command->user != NULL ? command->user : &box->user);
    if (request.strings_size <= PROTO_INLINE_MAX)
        return send_request(box, &request, sizeof(request), strings, request.strings_size, fds,
                            count, err);
    memfd = strings_memfd(strings, request.strings_size, err);
    if (memfd < 0)
        return -1;
    fds[count++] = memfd;
    request.flags |= PROTO_EXEC_MEMFD;
    return send_request(box, &request, sizeof(request), NULL, 0, fds, count, err);
}

int box_signal(struct box *box, uint32_t id, int signal_number, struct error *err)
{
    struct proto_signal request = {.head = {.type = PROTO_SIGNAL, .id = id},
                                   .signal_number = signal_number};

    return send_request(box, &request, sizeof(request), NULL, 0, NULL, 0, err);
}

int box_kill(struct box *box, uint32_t id, struct error *err)
{
    struct proto_head request = {.type = PROTO_KILL, .id = id};

    return send_request(box, &request, sizeof(request), NULL, 0, NULL, 0, err);
}

/* ---- events ---- */

/* Packets that say nothing must not keep the caller from its other work. */
#define PACKETS_MAX 64

int box_fd(const struct box *box)
{
    return box->control;
}

static int say_gone(struct box *box, struct box_event *event)
{
    if (!box->failed)
        (void)error_set(&box->failure, "box_gone", 0,
                        "the box ended before its command did (its init was killed)");
    event->kind = BOX_GONE;
    event->error = box->failure;
    return 1;
}

/* A terminal comes from the box: anything else that was passed for one is refused. */
static bool is_terminal(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && isatty(fd) == 1;
}

static int take_event(struct box *box, union proto_answer *answer, int *tty,
                      struct box_event *event)
{
    event->command = answer->head.id;
    switch (answer->head.type) {
    case PROTO_READY:
        event->kind = BOX_READY;
        return 1;
    case PROTO_STARTED:
        event->kind = BOX_STARTED;
        event->pid = answer->started.pid;
        if (*tty >= 0 && is_terminal(*tty))
            event->tty = fd_take(tty);
        return 1;
    case PROTO_REFUSED:
        event->kind = BOX_REFUSED;
        event->errnum = answer->refused.errnum;
        event->step = (enum box_step)answer->refused.step;
        return 1;
    case PROTO_EXITED:
        event->kind = BOX_EXITED;
        event->status = answer->exited.status;
        return 1;
    case PROTO_FAILED:
        box->failure = answer->failed.error;
        box->failed = true;
        return 0;
    default:
        return 0;
    }
}

int box_next(struct box *box, struct box_event *event, struct error *err)
{
    int taken = 0;

    assert(box->magic == BOX_MAGIC);
    memset(event, 0, sizeof(*event));
    event->tty = -1;
    for (int packets = 0; taken == 0 && packets < PACKETS_MAX; packets++) {
        union proto_answer answer;
        int fds[PROTO_FDS_MAX];
        ssize_t n = proto_receive(box->control, &answer, sizeof(answer), fds, MSG_DONTWAIT);
        size_t count = 0;

        /* The other end closed with something of ours unread: what it said before comes after this. */
        if (n < 0 && errno == ECONNRESET)
            n = proto_receive(box->control, &answer, sizeof(answer), fds, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno != ECONNRESET && errno != EMSGSIZE)
            return error_set(err, "box_gone", errno, "cannot hear the box's init");
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return say_gone(box, event);
        while (count < PROTO_FDS_MAX && fds[count] >= 0)
            count++;
        if (n > 0 && proto_answer_check(&answer, (size_t)n, count)) {
            taken = take_event(box, &answer, &fds[0], event);
        } else {
            box->failed = true;
            (void)error_set(&box->failure, "bad_init", 0,
                            "the box's init does not speak the protocol; the box is ended");
            taken = say_gone(box, event);
        }
        for (size_t i = 0; i < PROTO_FDS_MAX; i++)
            fd_close(&fds[i]);
    }
    return taken;
}

/* ---- the end ---- */

/* A box that takes longer than this to die is held up by its own CPU limit. */
#define HURRY_MS 20

/* Also for one that is no child of ours, but a zygote's. */
static void wait_for(struct box *box)
{
    struct pollfd wait = {.fd = box->pidfd, .events = POLLIN};

    if (box->cold && box->guard.socket >= 0 && poll(&wait, 1, HURRY_MS) == 0)
        guard_hurry(&box->guard);
    while (poll(&wait, 1, -1) < 0 && errno == EINTR)
        continue;
}

/* waitid(2) with the argument that libc leaves out. */
static void reap(int pidfd, struct rusage *usage)
{
    while (syscall(SYS_waitid, P_PIDFD, pidfd, &(siginfo_t){0}, WEXITED, usage) < 0 &&
           errno == EINTR)
        continue;
}

/* What a box used that no cgroup counts: its PID 1 reaped all of it, and the watchdog saw its peak, or
 * was too late for a short one. */
static void bill(const struct rusage *usage, struct box_report *report)
{
    uint64_t largest = (uint64_t)usage->ru_maxrss * 1024;

    report->usage_known = true;
    report->cpu_ns = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000U +
                     (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000U;
    if (report->peak_memory_bytes < largest)
        report->peak_memory_bytes = largest;
}

static bool is_readable(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) > 0;
}

int box_end(struct box *box, int *wait_fd)
{
    struct error ignored;

    assert(box->magic == BOX_MAGIC);
    if (box->pidfd >= 0 && !box->is_ending) {
        (void)sys_pidfd_send_signal(box->pidfd, SIGKILL);
        box->is_ending = true;
    }
    *wait_fd = box->pidfd;
    if (box->pidfd >= 0 && !is_readable(box->pidfd))
        return 0;
    if (!box->cold || box->guard.socket < 0)
        return 1;
    if (!box->guard.told && guard_tell_finish(&box->guard, true, &ignored) < 0)
        return 1;
    *wait_fd = box->guard.socket;
    return is_readable(box->guard.socket);
}

void box_hurry(struct box *box)
{
    if (box->cold && box->guard.socket >= 0 && !box->guard.told)
        guard_hurry(&box->guard);
    else if (box->lent != NULL)
        cgroup_unthrottle(box->lent);
}

int box_usage(const struct box *box, const struct cgroup_host *host, struct cgroup_usage *out)
{
    struct cgroup cgroup;

    if (box->lent != NULL)
        return cgroup_usage(box->lent, out);
    cgroup_borrow(host, box->group, &cgroup);
    return cgroup_usage(&cgroup, out);
}

int box_destroy(struct box *box, struct box_report *report, struct error *err)
{
    struct rusage usage = {0};
    int ended = 0;

    assert(box->magic == BOX_MAGIC);
    if (box->pidfd >= 0) {
        /* The kernel kills all of the box before it reports the end of its PID 1. */
        (void)sys_pidfd_send_signal(box->pidfd, SIGKILL);
        wait_for(box);
        reap(box->pidfd, &usage);
    }
    fd_close(&box->pidfd);
    fd_close(&box->control);
    if (box->lent != NULL)
        cgroup_leaves_remove(box->lent);
    if (box->cold && box->guard.socket >= 0)
        ended = guard_finish(&box->guard, report, err);
    if (ended == 0 && report != NULL && !report->usage_known && box->cold)
        bill(&usage, report);
    if (box->cold && box->pool.lock >= 0)
        ids_release(&box->pool, &box->ids);
    if (box->cold && box->pool.lock >= 0)
        ids_close(&box->pool);
    box->magic = 0;
    free(box);
    return ended;
}
