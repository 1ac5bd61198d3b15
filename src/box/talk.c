/* Talking to a box: commands, events, its end. See box.h.
 *
 * The talking itself is a link's (link.c), with which whatever else drives a box talks, too: here is
 * only what a box knows besides, its user and how it ends. */
#include "base/fd.h"
#include "box/handle.h"
#include "box/proto.h"
#include "box/switches.h"
#include "box/sys.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
    uint32_t now = box_protocol_now();
    struct proto_config config = {
        .head.type = PROTO_CONFIG,
        .version = now < PROTO_VERSION ? now : PROTO_VERSION,
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

uint32_t box_protocol(const struct box *box)
{
    return box->protocol;
}

uint32_t box_protocol_now(void)
{
    return PROTO_VERSION + switched_ahead();
}

/* ---- requests ---- */

int box_control_dup(const struct box *box, struct error *err)
{
    int fd = fcntl(box->link.control, F_DUPFD_CLOEXEC, 0);

    return fd >= 0 ? fd : error_set(err, "no_fds", errno, "cannot hand on the socket of a box");
}

const struct ids *box_ids(const struct box *box)
{
    return &box->ids;
}

int box_init(const struct box *box)
{
    return box->pidfd;
}

int box_exec(struct box *box, uint32_t id, const struct box_command *command, struct error *err)
{
    const struct box_user *user = command->user != NULL ? command->user : &box->user;
    struct link_command asked = {
        .argv = command->argv,
        .env = command->env,
        .cwd = command->cwd != NULL ? command->cwd : user->home,
        .user = box->privileges == BOX_SYSTEM && !box->one_id ? user : NULL,
        .stdio = command->tty ? LINK_TTY : LINK_GIVEN,
        .rows = command->tty_rows,
        .columns = command->tty_columns,
    };

    assert(box->magic == BOX_MAGIC);
    memcpy(asked.fds, command->stdio, sizeof(asked.fds));
    return link_start(&box->link, id, &asked, err);
}

int box_signal(struct box *box, uint32_t id, int signal_number, struct error *err)
{
    assert(box->magic == BOX_MAGIC);
    return link_signal(&box->link, id, signal_number, err);
}

int box_kill(struct box *box, uint32_t id, struct error *err)
{
    assert(box->magic == BOX_MAGIC);
    return link_kill(&box->link, id, err);
}

/* ---- events ---- */

int box_fd(const struct box *box)
{
    return link_fd(&box->link);
}

int box_next(struct box *box, struct box_event *event, struct error *err)
{
    /* What else a link says, a plain one never does. */
    static const enum box_event_kind kinds[] = {[LINK_READY] = BOX_READY,
                                                [LINK_STARTED] = BOX_STARTED,
                                                [LINK_REFUSED] = BOX_REFUSED,
                                                [LINK_EXITED] = BOX_EXITED,
                                                [LINK_GONE] = BOX_GONE};
    struct link_event heard;
    int got;

    assert(box->magic == BOX_MAGIC);
    memset(event, 0, sizeof(*event));
    event->tty = -1;
    got = link_next(&box->link, &heard, err);
    if (got > 0)
        *event = (struct box_event){.kind = kinds[heard.kind],
                                    .command = heard.id,
                                    .pid = heard.pid,
                                    .tty = heard.fds[0],
                                    .status = heard.status,
                                    .errnum = heard.errnum,
                                    .step = heard.step,
                                    .error = heard.error};
    return got;
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
    return guard_has_finished(&box->guard);
}

void box_hurry(struct box *box)
{
    if (box->cold && box->guard.socket >= 0 && !box->guard.told)
        guard_hurry(&box->guard);
    else if (box->lent != NULL)
        cgroup_unthrottle(box->lent);
}

int box_usage(struct box *box, const struct cgroup_host *host, struct cgroup_usage *out)
{
    struct cgroup cgroup;
    int status;

    if (box->lent != NULL)
        return cgroup_usage(box->lent, out);
    cgroup_borrow(host, box->group, &cgroup);
    status = cgroup_usage(&cgroup, out);
    if (box->cold)
        out->oom_kills += guard_memory_kills(&box->guard);
    return status;
}

int box_pids(const struct box *box, const struct cgroup_host *host, uint64_t *now, uint64_t *most)
{
    struct cgroup cgroup;

    if (box->lent != NULL)
        return cgroup_pids(box->lent, now, most);
    cgroup_borrow(host, box->group, &cgroup);
    return cgroup_pids(&cgroup, now, most);
}

int box_limit_pids(const struct box *box, const struct cgroup_host *host, uint64_t most)
{
    struct cgroup cgroup;

    if (box->lent != NULL)
        return cgroup_limit_pids(box->lent, most);
    cgroup_borrow(host, box->group, &cgroup);
    return cgroup_limit_pids(&cgroup, most);
}

int box_files(const struct box *box, const struct cgroup_host *host, uint64_t *bytes)
{
    struct cgroup cgroup;

    /* What the guard counts is the disk's alone; a cgroup knows shared memory of any kind. */
    if (box->guard.page != NULL) {
        *bytes = atomic_load(&box->guard.page->files_bytes);
        if (*bytes != UINT64_MAX)
            return 0;
    }
    if (box->lent != NULL)
        return cgroup_files(box->lent, bytes);
    cgroup_borrow(host, box->group, &cgroup);
    return cgroup_files(&cgroup, bytes);
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
    fd_close(&box->network);
    fd_close(&box->settling);
    fd_close(&box->link.control);
    if (box->lent != NULL)
        cgroup_leaves_remove(box->lent);
    if (box->cold && box->guard.socket >= 0)
        ended = guard_finish(&box->guard, report, err);
    if (ended == 0 && report != NULL && !report->usage_known && box->cold)
        bill(&usage, report);
    if (box->cold && box->pool.lock >= 0 && !box->ids_are_lent)
        ids_release(&box->pool, &box->ids);
    if (box->cold && box->pool.lock >= 0)
        ids_close(&box->pool);
    box->magic = 0;
    free(box);
    return ended;
}
