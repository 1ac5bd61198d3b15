/* cove-keeper: start, loop, end. See keeper.h.
 *
 * Everything that can fail for good fails here, before the first engine: afterwards the keeper goes on
 * whatever happens, for all boxes end with it. */
#include "keeper/keeper.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/set_clock.h"
#include "box/cgroup.h"
#include "box/kernel_memory.h"
#include "box/sys.h"
#include "keeper/check.h"
#include "keeper/find.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define STOP_ENGINE_NS 30000000000ULL
#define STOP_BOXES_NS 10000000000ULL
#define WRITE_DISKS_MS 10000
#define SIGNALS_MAX 65536 /* that wait, where there is no limit */

/* ---- signals ---- */

static void stop_begin(struct keeper *keeper)
{
    if (keeper->is_stopping) {
        /* Asked for twice: nobody wants to wait. */
        engine_signal(keeper, SIGKILL);
        return;
    }
    keeper->is_stopping = true;
    keeper->stop_deadline_ns = clock_monotonic_ns() + STOP_ENGINE_NS;
    notify_say(&keeper->notify, "STOPPING=1");
    engine_signal(keeper, KEEPER_STOP_SIGNAL);
}

static void signals_ready(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;
    struct signalfd_siginfo info;

    (void)events;
    while (read(source->fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP)
            upgrade_begin(keeper);
        else
            stop_begin(keeper);
    }
}

/* Blocked for good: what the keeper forks inherits that, and unblocks what it needs. */
static int signals_open(struct keeper *keeper, struct error *err)
{
    sigset_t blocked, heard;

    (void)sigemptyset(&heard);
    (void)sigaddset(&heard, SIGTERM);
    (void)sigaddset(&heard, SIGINT);
    (void)sigaddset(&heard, SIGHUP);
    blocked = heard;
    (void)sigaddset(&blocked, SIGPIPE); /* whoever read our log may go */
    (void)sigprocmask(SIG_SETMASK, &blocked, NULL);
    keeper->signal_fd = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
    if (keeper->signal_fd < 0)
        return error_set(err, "capacity", errno, "cannot hear signals");
    return loop_add(&keeper->loop, &keeper->signals, keeper->signal_fd, EPOLLIN, signals_ready,
                    keeper, err);
}

/* ---- start ---- */

/* Who may look into this process may do as it does. Not where the keeper is an ordinary user: then the
 * kernel demands that a box's maker can be looked into, and the engine is the same user anyway. */
static void harden(const struct keeper *keeper)
{
    struct rlimit core = {0}, files, signals;

    (void)umask(077);
    (void)setrlimit(RLIMIT_CORE, &core);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        struct rlimit most = {1048576, 1048576};

        if (setrlimit(RLIMIT_NOFILE, &most) < 0) {
            files.rlim_cur = files.rlim_max;
            (void)setrlimit(RLIMIT_NOFILE, &files);
        }
    }
    /* As many as all boxes together may have pending, for it is the limit of who makes their namespaces. The
     * other half is the host's. */
    if (getrlimit(RLIMIT_SIGPENDING, &signals) == 0) {
        rlim_t half = signals.rlim_max == RLIM_INFINITY ? SIGNALS_MAX : signals.rlim_max / 2;

        if (signals.rlim_cur > half)
            signals.rlim_cur = half;
        (void)setrlimit(RLIMIT_SIGPENDING, &signals);
    }
    if (keeper->caller.uid != 0)
        return;
    (void)prctl(PR_SET_DUMPABLE, 0);
    /* All boxes end with it, so it is not to be the one that the kernel chooses. */
    (void)fd_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "-900");
}

static const char *ids_kind_of(const struct caller *caller)
{
    static const char *const kinds[] = {"range", "slice", "single"};
    static struct ids_pool pool;
    struct ids ids = {0};
    struct error ignored;
    char why[100];
    const char *kind = "single";

    if (caller->maps && caller->on_host)
        return kinds[IDS_RANGE];
    if (ids_open_user(&pool, caller, why, sizeof(why), &ignored) < 0)
        return kind;
    if (ids_take_user(&pool, caller, &ids, &ignored) == 0) {
        kind = kinds[ids.kind];
        ids_release(&pool, &ids);
    }
    ids_close(&pool);
    return kind;
}

static void greet(const struct keeper *keeper)
{
    char address[LISTEN_TEXT_MAX] = "";

    if (keeper->uncounted.watch.places < 0 && keeper->caller.uid == 0)
        keeper_say(
            "locks_unwatched",
            "the kernel does not say how many file locks there are: boxes may hold any number; "
            "make /sys/kernel/slab/file_lock_cache visible to the keeper");
    if (kernel_memory_read() == 0)
        keeper_say(
            "sockets_unwatched",
            "the kernel does not say what memory it has: boxes' sockets may hold any amount; "
            "make /proc/meminfo and /proc/zoneinfo visible to the keeper");
    if (keeper->listeners.api_count > 1)
        listen_address_text(keeper->listeners.api[1], address);
    if (keeper->listeners.made_socket)
        keeper_note("listening", "on %s%s%s%s", keeper->places.socket_path,
                    keeper->listeners.api_count > 1 ? " and " : "", address,
                    keeper->listeners.api_count > 1 && keeper->options.has_tls ? " (TLS)" : "");
    keeper_note("operator_key", "the operator's key lies in %s/engine/operator.key",
                keeper->places.data_path);
}

/* Where what takes over one day will lie. */
static int program_find_self(struct keeper *keeper, struct error *err)
{
    ssize_t length = readlink("/proc/self/exe", keeper->program, sizeof(keeper->program) - 1);

    if (length <= 0)
        return error_set(err, "no_engine", errno, "cannot find out where cove-keeper lies");
    keeper->program[length] = '\0';
    return 0;
}

/* It wakes the loop, whose next turn takes the new time. */
static void clock_was_set(struct source *source, uint32_t events)
{
    (void)source;
    (void)events;
    (void)set_clock_heard();
}

static int clock_open(struct keeper *keeper, struct error *err)
{
    static struct source clock;

    if (set_clock_open(err) < 0)
        return -1;
    return set_clock_news() < 0 ? 0
                                : loop_add(&keeper->loop, &clock, set_clock_news(), EPOLLIN,
                                           clock_was_set, keeper, err);
}

/* What every program of this process begins with. */
static int settle(struct keeper *keeper, struct error *err)
{
    caller_look(&keeper->caller);
    harden(keeper);
    crowd_open(&keeper->crowd);
    uncounted_open(&keeper->uncounted);
    return loop_open(&keeper->loop, err) < 0 || signals_open(keeper, err) < 0 ||
                   clock_open(keeper, err) < 0
               ? -1
               : 0;
}

static int begin(struct keeper *keeper, struct error *err)
{
    bool rules_ids;

    notify_open(&keeper->notify);
    if (keeper->options.is_delegated)
        cgroup_make_room();
    if (program_find_self(keeper, err) < 0 || settle(keeper, err) < 0)
        return -1;
    rules_ids = keeper->caller.maps && keeper->caller.on_host;
    keeper->slots.anonymous = keeper->uncounted.watch.anonymous;
    if (places_find(&keeper->places, &keeper->options, err) < 0 || engine_config(keeper, err) < 0 ||
        config_read(keeper->engine.config, keeper->places.config_path, &keeper->config,
                    &keeper->options, err) < 0)
        return -1;
    log_use_json(keeper->options.log_json); /* also for what is said of the start itself */
    if (engine_headers(keeper, err) < 0 || tls_read(keeper, err) < 0 ||
        places_open(&keeper->places, &keeper->options, err) < 0 ||
        listeners_open(&keeper->listeners, &keeper->options, &keeper->places, err) < 0 ||
        names_open(&keeper->names, keeper->places.data, err) < 0 ||
        names_configure(keeper, err) < 0 || slots_open(&keeper->slots, rules_ids, err) < 0)
        return -1;
    boxes_find_level(keeper);
    /* A zygote takes mounts of the host. */
    keeper->slots.is_open = keeper->slots.is_open && keeper->caller.mounts;
    (void)snprintf(keeper->ids_kind, sizeof(keeper->ids_kind), "%s", ids_kind_of(&keeper->caller));
    disks_begin(keeper);
    if (engine_prepare(keeper, err) < 0 || names_serve(keeper, keeper->listeners.keeper, err) < 0)
        return -1;
    keeper->engine.is_first = true;
    greet(keeper);
    return 0;
}

/* ---- loop ---- */

/* What is due; when something is next, 0 for never. */
static uint64_t tick(struct keeper *keeper)
{
    uint64_t now = clock_monotonic_ns();
    uint64_t next = mounts_tick(keeper, now); /* for which an upgrade waits */

    next = keeper_sooner(next, upgrade_tick(keeper, now));
    next = keeper_sooner(next, engine_tick(keeper, now));
    next = keeper_sooner(next, boxes_tick(keeper, now));
    next = keeper_sooner(next, tls_tick(keeper, now));
    next = keeper_sooner(next, crowd_tick(keeper, now));
    next = keeper_sooner(next, uncounted_tick(keeper, now));
    /* As long as this loop turns, whatever the engine does: who restarts us ends all boxes. */
    notify_tick(&keeper->notify, now);
    if (keeper->notify.next_ns > now)
        next = keeper_sooner(next, keeper->notify.next_ns);
    if (!keeper->is_stopping)
        return next;
    if (!keeper->has_ended && now >= keeper->stop_deadline_ns) {
        keeper_say("engine_slow", "the engine does not end by itself and is killed");
        engine_signal(keeper, SIGKILL);
        keeper->stop_deadline_ns = now + STOP_ENGINE_NS;
    }
    return keeper_sooner(next, keeper->stop_deadline_ns);
}

static int timeout_of(uint64_t next_ns)
{
    uint64_t now = clock_monotonic_ns(), ms;

    if (next_ns == 0)
        return -1;
    if (next_ns <= now)
        return 0;
    ms = (next_ns - now + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* One turn, and what nobody waits for where there is nothing else to do. */
static int turn(struct keeper *keeper)
{
    uint64_t asked = set_clock_heard(), next = tick(keeper);
    int handled = loop_turn(&keeper->loop, 0);

    set_clock_ran(SET_CLOCK_KEEPER, asked);
    if (handled != 0)
        return handled;
    if (keeper->is_stopping) /* nothing is made ahead any more */
        return loop_turn(&keeper->loop, timeout_of(next));
    zygotes_tend(&keeper->zygotes, &keeper->names);
    if (slots_tend(&keeper->slots))
        return 1;
    return loop_turn(&keeper->loop, timeout_of(next));
}

static void run(struct keeper *keeper)
{
    uint64_t deadline;

    while (!keeper->has_ended && !(keeper->is_stopping && keeper->engine.pid == 0))
        if (turn(keeper) < 0)
            keeper_say("loop_failed", "waiting for events fails: %s", strerror(errno)); // NOLINT
    keeper->is_stopping = keeper->has_ended = true;
    boxes_end_all(keeper);
    deadline = clock_monotonic_ns() + STOP_BOXES_NS;
    while (keeper->boxes.ending > 0 && clock_monotonic_ns() < deadline) {
        uint64_t next = keeper_sooner(boxes_tick(keeper, clock_monotonic_ns()), deadline);

        (void)loop_turn(&keeper->loop, timeout_of(next));
    }
    disks_write(keeper, WRITE_DISKS_MS);
}

static void end(struct keeper *keeper)
{
    upgrade_close(keeper);
    engine_close(keeper);
    names_close(&keeper->names);
    zygotes_close(&keeper->zygotes);
    slots_close(&keeper->slots);
    listeners_close(&keeper->listeners, &keeper->places);
    places_close(&keeper->places);
}

/* At its start it talks to a person. */
static int fail(const struct error *err, int status)
{
    (void)fprintf(stderr, "cove-keeper: %s: %s\n", err->code, err->text);
    return status;
}

static struct keeper keeper = {
    .loop.epoll = -1,
    .engine = {.program = -1,
               .config = -1,
               .headers = -1,
               .tls = -1,
               .pidfd = -1,
               .socket = -1,
               .requests = -1,
               .ended.fd = -1,
               .asks.fd = -1,
               .hears.fd = -1},
    .listeners.keeper = -1,
    .slots = {.janitor = -1, .home = -1, .pool.lock = -1, .host.v2 = -1, .anonymous = -1},
    .places = {.data = -1, .engine = -1, .disks = -1},
    .notify.socket = -1,
    .uncounted.found.fd = -1,
    .upgrade = {.pidfd = -1, .said = -1, .answered.fd = -1},
};

/* The answer is the status; who asks has its own log open on our stderr. */
static int can_take(void)
{
    struct error err = {0};

    if (upgrade_can_take(&keeper, &err) == 0)
        return 0;
    keeper_say(err.code, "%s", err.text);
    return 1;
}

static int check(void)
{
    return check_start(&keeper) ? 0 : 1;
}

/* Asks something of a server that runs, and says in a line how it ended. */
static int tell(void)
{
    const struct options *options = &keeper.options;
    struct error err = {0};
    pid_t pid;
    int failed;

    if (options->wants_stop)
        failed = find_stop(&keeper, &pid, &err);
    else if (options->wants_reload)
        failed = find_reload(&keeper, &pid, &err);
    else
        failed = find_server(&keeper, &pid, &err);
    if (failed < 0)
        return fail(&err, 1);
    if (options->wants_stop)
        failed = printf("process %d has ended, with its sandboxes\n", (int)pid);
    else if (options->wants_reload)
        failed = printf(failed == 0
                            ? "process %d has read its configuration again\n"
                            : "process %d is of an earlier version and was sent SIGHUP: its log "
                              "says what came of it\n",
                        (int)pid);
    else
        failed = printf("%d\n", (int)pid);
    return failed > 0 && fflush(stdout) == 0 ? 0 : 1;
}

/* What cannot be taken over has nobody who looks after it: all of it ends with us, the janitor sees to
 * that, and nothing of it is touched here, for nobody knows what it is. */
static int resume(int handover)
{
    struct error err = {0};

    if (settle(&keeper, &err) == 0 && upgrade_resume(&keeper, handover, &err) == 0)
        return 0;
    log_say(LOG_LEVEL_ERROR, err.code, "%s; all boxes end: start cove serve again", err.text);
    return -1;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    int handover = upgrade_find();
    bool failed;

    if (fd_fill_stdio() < 0 || options_parse(argc, argv, &keeper.options, &err) < 0)
        return fail(&err, 2);
    if (keeper.options.wants_help) {
        options_help();
        return 0;
    }
    keeper.arguments = argv;
    sys_take_short_turns(false);
    log_start("keeper", LOG_LEVEL_INFO);
    log_use_json(keeper.options.log_json);
    if (keeper.options.can_take != 0)
        return can_take();
    if (keeper.options.wants_check)
        return check();
    if (keeper.options.wants_pid || keeper.options.wants_reload || keeper.options.wants_stop)
        return tell();
    if (handover < 0)
        listen_close_strays();
    if (handover >= 0 && resume(handover) < 0)
        return 1;
    failed = handover < 0 && begin(&keeper, &err) < 0;
    if (failed)
        (void)fail(&err, 1);
    else
        run(&keeper);
    end(&keeper);
    return failed || keeper.has_failed;
}
