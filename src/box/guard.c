/* The guard of a box: see guard.h. */
#include "box/guard.h"

#include "base/fd.h"
#include "box/cgroup_enter.h"
#include "box/idmap.h"
#include "box/proto.h"
#include "box/sys.h"
#include "box/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Between maker and guard. */
struct guard_packet {
    uint32_t type;
    bool delegated;    /* MADE: init makes groups for commands */
    bool limited;      /* MADE: with limits of their own */
    bool wants_report; /* FINISH */
    struct box_report report;
};

/* ---- the guard's own process ---- */

static void say(int socket, const struct guard_packet *packet, const int *fds, size_t count)
{
    (void)proto_send(socket, packet, sizeof(*packet), NULL, 0, fds, count);
}

static void say_error(int socket, const struct error *error)
{
    struct guard_failed failed = {.type = GUARD_FAILED, .error = *error};

    (void)proto_send(socket, &failed, sizeof(failed), NULL, 0, NULL, 0);
}

static void say_go(int socket, const int *fds, size_t count)
{
    struct guard_word go = {.type = GUARD_GO};

    (void)proto_send(socket, &go, sizeof(go), NULL, 0, fds, count);
}

static void tell_made(int socket, const struct cgroup *cgroup)
{
    struct guard_packet packet = {.type = GUARD_MADE,
                                  .delegated = cgroup->delegated,
                                  .limited = cgroup_leaves_limited(cgroup)};
    int fds[2] = {cgroup_into_fd(cgroup), cgroup_leaves_fd(cgroup)};

    say(socket, &packet, fds, fds[0] < 0 ? 0 : fds[1] < 0 ? 1 : 2);
}

/* Said before the kill, so that whoever hears of that end finds it. Where nobody reads, a few wait. */
static void tell_memory(void *arg)
{
    const int *socket = arg;
    struct guard_packet packet = {.type = GUARD_MEMORY};

    (void)proto_send_now(*socket, &packet, sizeof(packet), NULL, 0, NULL, 0);
}

/* What came in one packet. */
struct word {
    union {
        uint32_t type;
        struct guard_packet packet;
        struct guard_watch watch;
    };
    ssize_t size;
    pid_t sender; /* as the kernel knows it: the child cannot know its own pid */
    int fds[PROTO_FDS_MAX];
};

_Static_assert(sizeof(struct guard_packet) >= sizeof(struct guard_watch), "all fit into a packet");

/* False at the end of both others. A packet that was cut is none, and has no size. */
static bool hear(int socket, struct word *word)
{
    word->size = proto_receive_from(socket, &word->packet, sizeof(word->packet), word->fds,
                                    &word->sender, 0);
    if (word->size < 0 && errno == EMSGSIZE) {
        word->size = 0;
        return true;
    }
    return word->size > 0;
}

static bool is_whole(const struct word *word, enum guard_type type, size_t size)
{
    return word->size == (ssize_t)size && word->type == type && word->sender != 0;
}

/* Boxes are met by the kernel's OOM killer before anything of the host, and leave no core: a
 * core_pattern that starts a program heeds no other limit than 1. Set from here, for only who holds
 * CAP_SYS_RESOURCE outside sets what the box cannot take back; who lacks it has done what it could. */
static void bind_child(pid_t child)
{
    struct rlimit core = {1, 1};
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)child);
    (void)fd_write_file(AT_FDCWD, path, "200");
    (void)syscall(SYS_prlimit64, child, RLIMIT_CORE, &core, NULL);
}

/* The child's ids: all it can do before it has them is wait. */
static int map_child(int socket, const struct guard_order *order, pid_t child, struct error *err)
{
    bind_child(child);
    if (idmap_set(child, order->way, order->uid_map, order->gid_map, err) < 0)
        return -1;
    say_go(socket, NULL, 0);
    return 0;
}

/* What the guard holds of its box. */
struct held {
    struct cgroup cgroup;
    bool made; /* the cgroups */
    struct watch watch;
    struct disk disk;
    pid_t disk_watcher;
    int disk_watcher_end; /* its pidfd, until it has ended */
    int userns;           /* of the box, where the disk needs it */
    struct guard_page *page;
    int socket; /* ours */
    int keep;   /* the lock of the box's ids */
};

static uint32_t at_most_u32(uint64_t value)
{
    return value > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)value;
}

/* The lock of a disk goes last: whoever has got the disk then gets its ids, too. */
static void let_go(struct held *held)
{
    int lock = fd_take(&held->disk.lock);

    disk_remove(&held->disk, held->userns);
    fd_close(&held->keep);
    fd_close(&lock);
}

static void finish(int socket, struct held *held, bool wants_report)
{
    struct cgroup *cgroup = held->made ? &held->cgroup : NULL;
    const struct watch *watch = &held->watch;
    struct guard_packet packet = {.type = GUARD_REPORT};
    struct cgroup_usage usage = {0};
    struct error err;

    if (cgroup != NULL && wants_report && cgroup_usage(cgroup, &usage) == 0)
        packet.report = (struct box_report){.oom_kills = at_most_u32(usage.oom_kills),
                                            .usage_known = usage.known,
                                            .cpu_ns = usage.cpu_ns,
                                            .peak_memory_bytes = usage.peak_memory_bytes};
    packet.report.oom_kills += watch->memory_kills;
    packet.report.oom_killed = packet.report.oom_kills > 0;
    packet.report.pids_exceeded = watch->killed_for_pids;
    packet.report.disk_exceeded = disk_was_full(held->disk_watcher);
    if (watch->peak_bytes > packet.report.peak_memory_bytes)
        packet.report.peak_memory_bytes = watch->peak_bytes;
    let_go(held);
    if (cgroup != NULL && cgroup_remove(cgroup, &err) < 0)
        say_error(socket, &err);
    else
        say(socket, &packet, NULL, 0);
}

/* The maker is gone: what it left is ended and removed, however long that takes. Nobody waits, and as
 * long as processes live the ids must stay locked. */
static void clean_up(struct held *held)
{
    struct pollfd gone = {.fd = held->watch.init, .events = POLLIN};
    struct error err;

    (void)sys_pidfd_send_signal(held->watch.init, SIGKILL);
    while (held->watch.init >= 0 && poll(&gone, 1, -1) < 0)
        continue;
    if (held->made)
        do
            (void)cgroup_kill(&held->cgroup);
        while (cgroup_remove(&held->cgroup, &err) < 0 && err.errnum == EBUSY);
    (void)disk_was_full(held->disk_watcher);
    let_go(held);
}

enum heard {
    HEARD_CHILD,
    HEARD_WATCH,
    HEARD_HURRY,
    HEARD_FINISH,
    HEARD_FINISH_UNREPORTED,
    HEARD_END
};

static bool is_watched(const struct watch *watch)
{
    return watch->fds[WATCH_PROC] >= 0 && (watch->memory_bytes != 0 || watch->pids != 0);
}

/* What is written lies in the scratch, but where a disk of its own is counted by who watches that. */
static int look(struct held *held)
{
    int pause = watch_look(&held->watch);

    if (held->page != NULL && held->disk.parent < 0)
        atomic_store(&held->page->files_bytes, held->watch.files_bytes);
    return pause;
}

/* Until somebody has said something, the box is watched; it ends with whoever watches its disk. */
static void watch_meanwhile(int socket, struct held *held)
{
    struct watch *watch = &held->watch;
    struct pollfd wait[2] = {{.fd = socket, .events = POLLIN}, {.events = POLLIN}};

    do {
        int pause = is_watched(watch) ? look(held) : -1;

        wait[1].fd = held->disk_watcher_end;
        wait[0].revents = wait[1].revents = 0;
        if (poll(wait, 2, pause) > 0 && wait[1].revents != 0) {
            (void)sys_pidfd_send_signal(watch->init, SIGKILL);
            fd_close(&held->disk_watcher_end);
        }
    } while (wait[0].revents == 0);
}

/* The next that matters: the child's words, the maker's end in order, or the end of both. All else is passed
 * over. */
static enum heard await_word(int socket, struct held *held, struct word *word)
{
    for (;;) {
        watch_meanwhile(socket, held);
        if (!hear(socket, word))
            return HEARD_END;
        if (is_whole(word, GUARD_HELLO, sizeof(struct guard_word)))
            return HEARD_CHILD;
        if (is_whole(word, GUARD_WATCH, sizeof(word->watch)))
            return HEARD_WATCH;
        if (is_whole(word, GUARD_HURRY, sizeof(word->packet)))
            return HEARD_HURRY;
        if (is_whole(word, GUARD_FINISH, sizeof(word->packet)))
            return word->packet.wants_report ? HEARD_FINISH : HEARD_FINISH_UNREPORTED;
        proto_fds_close(word->fds);
    }
}

/* Its fds move to 3 and following and everything else is closed: a pipe of the maker's that stayed open here
 * would keep its reader waiting. */
static int settle(int *socket, int *keep, struct disk *disk, struct error *err)
{
    enum { OWNED = 4 };
    int *owned[OWNED] = {socket, keep, &disk->parent, &disk->lock};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int moved[OWNED];
    bool failed = null < 0;

    for (int i = 0; i < OWNED; i++) {
        moved[i] = fcntl(*owned[i] >= 0 ? *owned[i] : null, F_DUPFD_CLOEXEC, 16);
        failed |= moved[i] < 0;
    }
    if (failed)
        return error_set(err, "guard_failed", errno,
                         "the box's guard has too few fds; raise the limit (ulimit -n)");
    for (int i = 0; i < 3; i++)
        (void)dup2(null, i);
    for (int i = 0; i < OWNED; i++) {
        (void)dup3(moved[i], 3 + i, O_CLOEXEC);
        *owned[i] = *owned[i] >= 0 ? 3 + i : -1;
    }
    (void)sys_close_range(3 + OWNED, ~0U, 0);
    return 0;
}

/* A limit that no cgroup keeps is kept by the watchdog and by what the kernel counts per user. */
static unsigned unlimited(const struct cgroup_host *host, const struct cgroup_limits *limits)
{
    return (host->limits_memory || limits->memory_bytes == 0 ? 0U : (unsigned)CGROUP_MEMORY) |
           (host->limits_pids || limits->pids == 0 ? 0U : (unsigned)CGROUP_PIDS) |
           (host->limits_cpu || limits->cpu_milli == 0 ? 0U : (unsigned)CGROUP_CPU);
}

static int make(int socket, const struct guard_order *order, struct cgroup *cgroup,
                struct error *err)
{
    static struct cgroup_host host; /* the groups borrow it */

    (void)cgroup_probe(&host, err); /* where there is none, there is a watchdog */
    host.box_mounts = !order->mounts;
    /* A v2 group without controllers serves leaves, and a box of one command has none. */
    if (!order->announce && host.v2_controllers == 0)
        fd_close(&host.v2);
    if (cgroup_make(&host, order->name, &order->limits, order->owner, order->group, order->leaves,
                    cgroup, err) < 0)
        return -1;
    if (order->announce)
        tell_made(socket, cgroup);
    return 0;
}

/* The child goes into its v1 groups by itself, through the gate: moving it from here would wait until
 * nothing on the host forks. It was not born into a v2 group where it could not wait for one; should
 * there be one all the same (some controllers on v1, some on v2), it is moved. */
static int open_gate(int socket, const struct guard_order *order, const struct cgroup *cgroup,
                     pid_t child, struct error *err)
{
    struct guard_gate said = {.type = GUARD_GATE};
    int fds[PROTO_FDS_MAX];
    char text[32];

    (void)snprintf(text, sizeof(text), "%d", (int)child);
    if (!order->announce && cgroup_into_fd(cgroup) >= 0 &&
        fd_write_file(cgroup_into_fd(cgroup), "cgroup.procs", text) < 0)
        return error_set(err, "cgroup_failed", errno, "cannot move the box into its cgroup");
    if (cgroup_gate_open(cgroup, &said.gate, err) < 0)
        return -1;
    said.gate.watched = unlimited(cgroup->host, &order->limits);
    (void)proto_send(socket, &said, sizeof(said), NULL, 0, fds, cgroup_gate_fds(&said.gate, fds));
    cgroup_gate_close(&said.gate);
    return 0;
}

/* Who is to remove or count what the box's ids own has to be root of them. */
static int userns_keep(const struct guard_order *order, struct word *word, struct held *held,
                       struct error *err)
{
    if (held->disk.parent < 0 || order->way == IDMAP_OWN)
        return 0;
    held->userns = fd_take(&word->fds[0]);
    return held->userns >= 0
               ? 0
               : error_set(err, "limits_failed", 0, "cannot have the box's disk watched");
}

/* Until the child can go into its groups. They are made before it where it is born into one, else beside
 * its work. */
static enum heard begin(int socket, const struct guard_order *order, struct held *held,
                        bool *failed, struct error *err)
{
    struct cgroup *cgroup = &held->cgroup;
    struct word word;
    enum heard heard;

    *failed = true;
    if (order->announce && !(held->made = make(socket, order, cgroup, err) == 0))
        return HEARD_CHILD;
    heard = await_word(socket, held, &word);
    *failed = false;
    if (heard != HEARD_CHILD)
        return heard;
    held->watch.init = (int)syscall(SYS_pidfd_open, word.sender, 0);
    *failed = userns_keep(order, &word, held, err) < 0 ||
              map_child(socket, order, word.sender, err) < 0 ||
              (!held->made && !(held->made = make(socket, order, cgroup, err) == 0)) ||
              open_gate(socket, order, cgroup, word.sender, err) < 0;
    proto_fds_close(word.fds);
    if (!*failed) {
        unsigned watched = unlimited(cgroup->host, &order->limits);

        held->watch.memory_bytes = (watched & CGROUP_MEMORY) != 0 ? order->limits.memory_bytes : 0;
        held->watch.pids = (watched & CGROUP_PIDS) != 0 ? order->limits.pids : 0;
    }
    return HEARD_CHILD;
}

/* The box ends with its watchdog: init has the one end of a pipe whose other end dies with us. */
static int bind_to_us(int socket, struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(err, "limits_failed", errno, "cannot bind the box to its watchdog");
    say_go(socket, &ends[0], 1);
    (void)close(ends[0]);
    return 0;
}

/* A watchdog that sees nothing is none, and such a box is not made. */
static int watch_begin(int socket, struct held *held, struct word *word, struct error *err)
{
    struct watch *watch = &held->watch;

    for (size_t i = 0; i < WATCH_FDS; i++)
        watch->fds[i] = fd_take(&word->fds[i]);
    watch->space = word->watch.space;
    watch->on_memory = tell_memory;
    watch->arg = &held->socket;
    (void)look(held);
    if (!watch->sees && watch->space == 0)
        return error_set(err, "limits_failed", 0,
                         "the box's watchdog cannot see its processes, so it would have no limits");
    if (held->disk.parent >= 0) {
        held->disk_watcher = disk_watch(&held->disk, held->userns, watch->fds[WATCH_PROC],
                                        watch->fds[WATCH_SCRATCH], watch->init,
                                        held->page != NULL ? &held->page->files_bytes : NULL, err);
        if (held->disk_watcher < 0)
            return -1;
        held->disk_watcher_end = (int)syscall(SYS_pidfd_open, held->disk_watcher, 0);
        if (held->disk_watcher_end < 0)
            return error_set(err, "limits_failed", errno, "cannot start the disk's watchdog");
    }
    return bind_to_us(socket, err);
}

static _Noreturn void run(const struct guard_order *order, struct guard_page *page, int socket)
{
    static struct held held = {
        .watch = {.fds = {-1, -1}, .init = -1, .maps = -1}, .userns = -1, .disk_watcher_end = -1};
    enum heard heard;
    struct error err;
    struct word word;
    sigset_t all;
    bool failed;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid();
    sys_take_short_turns(false); /* as a watchdog it has to be in time */
    (void)prctl(PR_SET_NAME, "cove-guard");
    (void)prctl(PR_SET_DUMPABLE, 0); /* it is a copy of its maker, secrets and all */
    held.disk = order->disk;
    held.keep = order->keep;
    held.page = page;
    if (settle(&socket, &held.keep, &held.disk, &err) < 0) {
        say_error(socket, &err);
        _exit(1);
    }
    held.socket = socket;
    heard = begin(socket, order, &held, &failed, &err);
    if (failed)
        say_error(socket, &err);
    while (heard <= HEARD_HURRY) {
        if (heard == HEARD_HURRY && held.made)
            cgroup_unthrottle(&held.cgroup);
        heard = await_word(socket, &held, &word);
        if (heard == HEARD_WATCH && watch_begin(socket, &held, &word, &err) < 0)
            say_error(socket, &err);
        proto_fds_close(word.fds);
    }
    if (heard != HEARD_END)
        finish(socket, &held, heard == HEARD_FINISH);
    else
        clean_up(&held);
    _exit(0);
}

/* ---- the maker's side ---- */

/* Where there is none, nobody knows what the guard counts, and all else goes on. */
static struct guard_page *page_make(void)
{
    void *page = mmap(NULL, sizeof(struct guard_page), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return NULL;
    atomic_init(&((struct guard_page *)page)->files_bytes, UINT64_MAX);
    return page;
}

static void page_drop(struct guard_page **page)
{
    if (*page != NULL)
        (void)munmap(*page, sizeof(**page));
    *page = NULL;
}

int guard_start(const struct guard_order *order, struct guard *guard, struct error *err)
{
    struct guard_page *page;
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "guard_failed", errno, "cannot make the guard's socket");
    /* Before anybody can send: a packet has the pid only if this was set when it was sent. */
    if (setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)) < 0) {
        (void)error_set(err, "guard_failed", errno, "cannot prepare the guard's socket");
        (void)close(pair[0]);
        (void)close(pair[1]);
        return -1;
    }
    page = page_make();
    pid = fork();
    if (pid == 0) {
        (void)close(pair[0]);
        run(order, page, pair[1]);
    }
    (void)close(pair[1]);
    if (pid < 0) {
        page_drop(&page);
        (void)close(pair[0]);
        return error_set(err, "guard_failed", errno, "cannot start the box's guard");
    }
    /* The next box's processes have no business with it. */
    if (page != NULL)
        (void)madvise(page, sizeof(*page), MADV_DONTFORK);
    *guard = (struct guard){.socket = pair[0], .pid = pid, .page = page};
    return 0;
}

static int lost(struct error *err)
{
    return error_set(err, "guard_failed", 0, "the box's guard ended; start the box again");
}

/* Waits for a packet of this type; an error of the guard's ends the wait. Bytes that were meant for a
 * child which died are passed over, and so are kills, which the report counts. */
static int await(struct guard *guard, uint32_t type, struct guard_packet *packet,
                 int fds[PROTO_FDS_MAX], struct error *err)
{
    union {
        uint32_t type;
        struct guard_packet packet;
        struct guard_failed failed;
    } any;

    for (;;) {
        ssize_t n = proto_receive(guard->socket, &any, sizeof(any), fds, 0);

        if (n == (ssize_t)sizeof(any.failed) && any.type == GUARD_FAILED) {
            *err = any.failed.error;
            return -1;
        }
        if (n == (ssize_t)sizeof(any.packet) && any.type == type) {
            *packet = any.packet;
            return 0;
        }
        if (n <= 0)
            return lost(err);
        proto_fds_close(fds);
    }
}

int guard_wait_made(struct guard *guard, int *into, int *leaves, bool *delegated, bool *limited,
                    struct error *err)
{
    struct guard_packet packet;
    int fds[PROTO_FDS_MAX];

    if (await(guard, GUARD_MADE, &packet, fds, err) < 0)
        return -1;
    *into = fds[0];
    *leaves = fds[1];
    *delegated = packet.delegated;
    *limited = packet.limited;
    return 0;
}

void guard_hurry(struct guard *guard)
{
    struct guard_packet packet = {.type = GUARD_HURRY};

    (void)proto_send(guard->socket, &packet, sizeof(packet), NULL, 0, NULL, 0);
}

int guard_tell_finish(struct guard *guard, bool wants_report, struct error *err)
{
    struct guard_packet packet = {.type = GUARD_FINISH, .wants_report = wants_report};

    guard->told = true;
    return proto_send(guard->socket, &packet, sizeof(packet), NULL, 0, NULL, 0) < 0 ? lost(err) : 0;
}

int guard_finish(struct guard *guard, struct box_report *report, struct error *err)
{
    struct guard_packet packet;
    int fds[PROTO_FDS_MAX];
    int done = guard->told ? 0 : guard_tell_finish(guard, report != NULL, err);

    if (done == 0)
        done = await(guard, GUARD_REPORT, &packet, fds, err);
    if (done == 0 && report != NULL)
        *report = packet.report;
    fd_close(&guard->socket);
    page_drop(&guard->page);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return done;
}

bool guard_has_finished(struct guard *guard)
{
    struct guard_packet packet;
    ssize_t got;

    while ((got = recv(guard->socket, &packet, sizeof(packet), MSG_DONTWAIT | MSG_PEEK)) ==
               (ssize_t)sizeof(packet) &&
           packet.type == GUARD_MEMORY) {
        (void)recv(guard->socket, &packet, sizeof(packet), MSG_DONTWAIT);
        guard->memory_kills++;
    }
    return got >= 0 || errno != EAGAIN;
}

uint32_t guard_memory_kills(struct guard *guard)
{
    struct guard_packet packet;

    /* As long as nothing was asked of it, it says nothing else. */
    while (!guard->told && guard->socket >= 0 &&
           recv(guard->socket, &packet, sizeof(packet), MSG_DONTWAIT) == (ssize_t)sizeof(packet))
        guard->memory_kills += packet.type == GUARD_MEMORY;
    return guard->memory_kills;
}
