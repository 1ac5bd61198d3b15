/* The engine's life: see engine.h. Its start is in engine_start.c. */
#include "keeper/engine.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/proto.h"
#include "box/sys.h"
#include "keeper/keeper.h"
#include "keeper/requests.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define BACKOFF_LEAST_NS 10000000ULL
#define BACKOFF_MOST_NS 2000000000ULL
/* One that ran this long had no trouble with its start. */
#define SETTLED_NS 10000000000ULL
/* As long as others may be silent, so many times that may one that begins: it reads its store, and takes
 * over what lives. */
#define BEGIN_TIMES 20

/* ---- its end ---- */

void engine_signal(struct keeper *keeper, int number)
{
    if (keeper->engine.pid > 0)
        (void)sys_pidfd_send_signal(keeper->engine.pidfd, number);
}

/* Nothing more is read of it, nor said to it. */
static void socket_close(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;

    loop_remove(&keeper->loop, &engine->asks);
    loop_remove(&keeper->loop, &engine->hears);
    fd_close(&engine->socket);
    fd_close(&engine->requests);
    engine->request_used = 0;
    engine->request = (union keeper_request){0};
    engine->is_greeted = engine->has_new_tls = false;
    engine->stage = HELLO_NONE;
    while (engine->pending_count > 0)
        fd_close(&engine->pending[--engine->pending_count].made);
    boxes_forget_engine(&keeper->boxes);
    disks_forget(keeper);
    mounts_forget(keeper);
}

void engine_punish(struct keeper *keeper, const char *why)
{
    keeper_say("bad_engine", "the engine is ended: %s", why);
    engine_signal(keeper, SIGKILL);
    socket_close(keeper);
}

/* It was told to; or it is a private one, which ends when nobody uses it any more. One that only says so has
 * nobody to ask then. */
static bool may_end(const struct keeper *keeper)
{
    return keeper->is_stopping || upgrade_is_ending(keeper) || keeper->options.is_private;
}

void engine_hung_up(struct keeper *keeper, const char *why)
{
    /* A library that is missing is told by the loader, in a line of its own. */
    if (may_end(keeper))
        socket_close(keeper);
    else
        engine_punish(keeper, keeper->engine.is_greeted
                                  ? why
                                  : "it ended before it began; the line above may say why, and "
                                    "cove doctor says what it lacks");
}

static void say_end(const struct keeper *keeper, int status)
{
    if (may_end(keeper) && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    if (WIFEXITED(status))
        keeper_say("engine_ended", "the engine has exited with status %d", WEXITSTATUS(status));
    else
        keeper_say("engine_ended", "the engine was killed by signal %d", WTERMSIG(status));
}

/* It has said itself what is wrong, and will again however often it is started. Nobody needs this keeper yet, and
 * who started it waits for what comes of it. */
static bool has_never_started(const struct engine_child *engine, int status)
{
    return engine->is_first && WIFEXITED(status) && WEXITSTATUS(status) != 0;
}

static void ended(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;
    struct engine_child *engine = &keeper->engine;
    uint64_t now = clock_monotonic_ns();
    int status = 0;

    (void)events;
    if (waitpid(engine->pid, &status, WNOHANG) == 0)
        return;
    loop_remove(&keeper->loop, &engine->ended);
    fd_close(&engine->pidfd);
    engine->pid = 0;
    socket_close(keeper);
    if (has_never_started(engine, status)) {
        keeper->has_ended = keeper->has_failed = true;
        return;
    }
    say_end(keeper, status);
    if (upgrade_is_ending(keeper) && !keeper->is_stopping)
        return;
    if (keeper->is_stopping ||
        (keeper->options.is_private && WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        keeper->has_ended = true;
        return;
    }
    if (engine->backoff_ns < BACKOFF_LEAST_NS || now - engine->started_ns > SETTLED_NS)
        engine->backoff_ns = BACKOFF_LEAST_NS;
    engine->restart_ns = now + engine->backoff_ns;
    engine->backoff_ns *= 2;
    if (engine->backoff_ns > BACKOFF_MOST_NS)
        engine->backoff_ns = BACKOFF_MOST_NS;
}

/* ---- its start ---- */

static void asks(struct source *source, uint32_t events);
static void hears(struct source *source, uint32_t events);

static int watch(struct keeper *keeper, struct error *err)
{
    struct engine_child *engine = &keeper->engine;

    engine->pidfd = (int)syscall(SYS_pidfd_open, engine->pid, 0);
    if (engine->pidfd < 0)
        return error_set(err, "capacity", errno, "cannot watch the engine");
    if (loop_add(&keeper->loop, &engine->ended, engine->pidfd, EPOLLIN, ended, keeper, err) < 0)
        return -1;
    if (loop_add(&keeper->loop, &engine->hears, engine->socket, 0, hears, keeper, err) < 0)
        return -1;
    return loop_add(&keeper->loop, &engine->asks, engine->requests, EPOLLIN, asks, keeper, err);
}

/* Nothing comes in over the socket: whatever fds came would be ours to close. */
static int channels_make(struct engine_child *engine, int *socket, int *requests, struct error *err)
{
    int pair[2], ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "capacity", errno, "cannot make the engine's socket");
    engine->socket = pair[0];
    *socket = pair[1];
    if (shutdown(engine->socket, SHUT_RD) < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        fd_close(&engine->socket);
        return error_set(err, "capacity", errno, "cannot make the engine's pipe");
    }
    engine->requests = ends[0];
    *requests = ends[1];
    /* Of this end only: the engine's waits or not, as it likes. */
    (void)fcntl(engine->socket, F_SETFL, O_NONBLOCK);
    return 0;
}

static int start(struct keeper *keeper, struct error *err)
{
    struct engine_child *engine = &keeper->engine;
    _cleanup_close_ int socket = -1, requests = -1;

    if (channels_make(engine, &socket, &requests, err) < 0)
        return -1;
    engine->pid = engine_fork(keeper, socket, requests, err);
    engine->started_ns = engine->heard_ns = engine->looked_ns = clock_monotonic_ns();
    engine->beats = engine->is_hung = false;
    engine->starts++;
    if (engine->pid > 0 && watch(keeper, err) == 0) {
        janitor_tell(keeper->slots.janitor, (uint32_t)keeper->slots.table_used, engine->pidfd);
        return 0;
    }
    if (engine->pid > 0) {
        (void)kill(engine->pid, SIGKILL);
        (void)waitpid(engine->pid, NULL, 0);
    }
    engine->pid = 0;
    loop_remove(&keeper->loop, &engine->ended);
    fd_close(&engine->pidfd);
    socket_close(keeper);
    return -1;
}

/* ---- whether it hangs ---- */

static uint64_t hang_ns(const struct keeper *keeper)
{
    return (keeper->options.hang_ms > 0 ? keeper->options.hang_ms : KEEPER_HANG_MS) * 1000000ULL;
}

unsigned engine_beat_ms(const struct keeper *keeper)
{
    return (unsigned)(hang_ns(keeper) / KEEPER_BEATS / 1000000);
}

void engine_heard(struct keeper *keeper)
{
    keeper->engine.heard_ns = clock_monotonic_ns();
}

/* Its silence counts only while we look. Whatever kept us from that (a machine that was stopped or had no
 * time for us) may have kept it as well, and what it said meanwhile is still to be read. */
static uint64_t watch_over(struct keeper *keeper, uint64_t now_ns)
{
    struct engine_child *engine = &keeper->engine;
    uint64_t limit = hang_ns(keeper), step = limit / KEEPER_BEATS;

    if (keeper->is_stopping || keeper->has_ended || upgrade_is_ending(keeper))
        return 0; /* it has a time to end in */
    if (now_ns - engine->looked_ns > 2 * step)
        engine->heard_ns = now_ns;
    engine->looked_ns = now_ns;
    if (!engine->beats)
        limit *= BEGIN_TIMES;
    if (!engine->is_hung && now_ns - engine->heard_ns >= limit) {
        keeper_say("engine_hung",
                   "nothing is heard of the engine for %llu s: it is killed, and the next one goes "
                   "on",
                   (unsigned long long)(limit / 1000000000));
        engine->is_hung = true;
        engine_signal(keeper, SIGKILL);
    }
    return now_ns + step;
}

uint64_t engine_tick(struct keeper *keeper, uint64_t now_ns)
{
    struct engine_child *engine = &keeper->engine;
    struct error err;

    if (engine->pid > 0)
        return watch_over(keeper, now_ns);
    if (keeper->is_stopping || keeper->has_ended || upgrade_is_ending(keeper))
        return 0;
    if (now_ns < engine->restart_ns)
        return engine->restart_ns;
    if (start(keeper, &err) == 0)
        return watch_over(keeper, now_ns);
    keeper_say(err.code, "%s", err.text);
    engine->restart_ns = now_ns + BACKOFF_MOST_NS;
    return engine->restart_ns;
}

void engine_close(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;

    if (engine->pid > 0) {
        engine_signal(keeper, SIGKILL);
        (void)waitpid(engine->pid, NULL, 0);
        engine->pid = 0;
    }
    loop_remove(&keeper->loop, &engine->ended);
    socket_close(keeper);
    fd_close(&engine->pidfd);
    fd_close(&engine->program);
    fd_close(&engine->config);
    fd_close(&engine->headers);
    fd_close(&engine->tls);
    if (engine->ids.count > 0)
        ids_release(&keeper->slots.pool, &engine->ids);
}

/* ---- what it is told ---- */

/* False where there is no room now. What cannot be said at all is the engine's loss: it is going. */
static bool say(struct engine_child *engine, const void *answer, size_t size, const int *fd)
{
    return proto_send(engine->socket, answer, size, NULL, 0, fd, fd != NULL ? 1 : 0) == 0 ||
           (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM && errno != ETOOMANYREFS);
}

static int socket_of(const struct boxed *boxed, uint32_t network)
{
    if (network == 0)
        return box_fd(boxed->box);
    return network == KEEPER_NETWORK_TCP ? boxed->network.tcp : boxed->network.udp;
}

static bool say_with_box(struct keeper *keeper, const struct pending *pending)
{
    const struct boxed *boxed = pending->box != 0 ? boxes_find(&keeper->boxes, pending->box) : NULL;
    int socket = boxed != NULL ? socket_of(boxed, pending->network) : pending->made;

    return say(&keeper->engine, &pending->answer, pending->size, socket >= 0 ? &socket : NULL);
}

static void answer_with(struct keeper *keeper, const void *answer, size_t size, uint64_t box,
                        uint32_t network, int made)
{
    struct engine_child *engine = &keeper->engine;
    struct pending *pending = &engine->pending[engine->pending_count];

    if (engine->socket < 0) {
        fd_close(&made);
        return;
    }
    memcpy(&pending->answer, answer, size);
    pending->size = size;
    pending->box = box;
    pending->network = network;
    pending->made = made;
    if (engine->pending_count > 0 || !say_with_box(keeper, pending))
        engine->pending_count++;
    else
        fd_close(&pending->made);
}

void engine_answer(struct keeper *keeper, const void *answer, size_t size, uint64_t box)
{
    answer_with(keeper, answer, size, box, 0, -1);
}

void engine_answer_socket(struct keeper *keeper, uint32_t id, uint64_t box, uint32_t network)
{
    const struct keeper_head answer = {.type = KEEPER_SOCKET, .id = id};

    answer_with(keeper, &answer, sizeof(answer), box, network, -1);
}

void engine_answer_made(struct keeper *keeper, uint32_t id, int made)
{
    const struct keeper_head answer = {.type = KEEPER_SOCKET, .id = id};

    answer_with(keeper, &answer, sizeof(answer), 0, 0, made);
}

static bool say_pending(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;
    size_t said = 0;

    while (said < engine->pending_count && say_with_box(keeper, &engine->pending[said]))
        fd_close(&engine->pending[said++].made);
    engine->pending_count -= said;
    memmove(engine->pending, engine->pending + said,
            engine->pending_count * sizeof(engine->pending[0]));
    return engine->pending_count == 0;
}

static bool say_name(struct engine_child *engine, uint32_t id, const struct name *name)
{
    struct keeper_named answer = {.head = {.type = KEEPER_NAMED, .id = id},
                                  .kind = name->kind,
                                  .is_there = name->is_there,
                                  .read_only = name->read_only};

    memcpy(answer.name, name->name, sizeof(answer.name));
    memcpy(answer.tenants, name->tenants, sizeof(answer.tenants));
    return say(engine, &answer, sizeof(answer), NULL);
}

static void forget_removed(struct name *name)
{
    fd_close(&name->fd);
    free(name->path);
    *name = (struct name){.fd = -1};
}

/* What has changed since it was told; all of it after a hello. */
static bool say_names(struct keeper *keeper, uint32_t id)
{
    struct names *names = &keeper->names;

    for (size_t i = 0; i < names->table_used; i++) {
        struct name *name = &names->table[i];

        if (name->kind == 0 || (name->is_told && !name->is_removed))
            continue;
        if (!say_name(&keeper->engine, id, name))
            return false;
        name->is_told = true;
        if (name->is_removed)
            forget_removed(name);
    }
    return true;
}

static bool say_boxes(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;

    for (; engine->stage_next < keeper->boxes.used; engine->stage_next++) {
        const struct boxed *boxed = keeper->boxes.table[engine->stage_next];
        struct keeper_box answer = {.head = {.type = KEEPER_BOX, .id = engine->hello_id}};
        int control;

        if (boxed == NULL || boxed->is_ending)
            continue;
        answer.box = boxed->handle;
        answer.protocol = box_protocol(boxed->box);
        memcpy(answer.owner, boxed->owner, sizeof(answer.owner));
        memcpy(answer.disk, boxed->disk, sizeof(answer.disk));
        control = box_fd(boxed->box);
        if (!say(engine, &answer, sizeof(answer), &control))
            return false;
    }
    return true;
}

static bool say_disk(struct keeper *keeper, const char *id)
{
    struct keeper_disk_there answer = {
        .head = {.type = KEEPER_DISK, .id = keeper->engine.hello_id}};

    (void)snprintf(answer.disk, sizeof(answer.disk), "%s", id);
    return say(&keeper->engine, &answer, sizeof(answer), NULL);
}

static void host_warn(struct keeper_host *host, size_t *count, const char *text)
{
    (void)snprintf(host->warnings[*count], sizeof(host->warnings[0]), "%s", text);
    ++*count;
}

static void host_describe(const struct keeper *keeper, struct keeper_host *host)
{
    bool is_root = keeper->caller.mounts;
    const struct cgroup_host *cgroups = &keeper->slots.host;
    bool limits = cgroups->limits_memory && cgroups->limits_pids;
    size_t warnings = 0;

    host->cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    host->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    host->is_root = is_root;
    host->protocol = box_protocol_now();
    memcpy(host->tenants, keeper->config.host_tenants, sizeof(host->tenants));
    (void)snprintf(host->level, sizeof(host->level), "%s",
                   keeper->lacks_fresh_proc ? "no-fresh-proc" : "full");
    (void)snprintf(host->limits, sizeof(host->limits), "%s", limits ? "cgroup" : "rlimit");
    (void)snprintf(host->ids, sizeof(host->ids), "%s", keeper->ids_kind);
    (void)snprintf(host->disk, sizeof(host->disk), "%s", is_root ? "hard" : "watched");
    if (keeper->lacks_fresh_proc)
        host_warn(host, &warnings,
                  "this host forbids a /proc of a box's own: processes outside of a sandbox can be "
                  "seen in it, as --allow-level settles for");
    if (!limits)
        host_warn(host, &warnings,
                  "no cgroup limits memory and processes here: a watchdog does, which is late");
    if (!is_root)
        host_warn(host, &warnings,
                  "a disk that is kept is a directory of this user's, counted from time to time: "
                  "what goes beyond its limit is ended a moment late");
    if (strcmp(keeper->ids_kind, "single") == 0)
        host_warn(host, &warnings,
                  "this user has one id only, so boxes do: have ids given to it in /etc/subuid and "
                  "/etc/subgid");
}

static bool say_host(struct keeper *keeper)
{
    struct keeper_host answer = {.head = {.type = KEEPER_HOST, .id = keeper->engine.hello_id}};

    host_describe(keeper, &answer);
    return say(&keeper->engine, &answer, sizeof(answer), NULL);
}

/* True when it is through. */
static bool say_hello(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;
    struct keeper_head done = {.type = KEEPER_DONE, .id = engine->hello_id};

    for (;;) {
        bool said = true;

        switch (engine->stage) {
        case HELLO_HOST:
            said = say_host(keeper);
            break;
        case HELLO_NAMES:
            said = say_names(keeper, engine->hello_id);
            break;
        case HELLO_BOXES:
            said = say_boxes(keeper);
            break;
        case HELLO_DISKS:
            said = disks_each(keeper, &engine->stage_next, say_disk);
            break;
        case HELLO_DONE:
            if (!say(engine, &done, sizeof(done), NULL))
                return false;
            engine->stage = HELLO_NONE;
            return true;
        case HELLO_NONE:
            return true;
        }
        if (!said)
            return false;
        engine->stage++;
        engine->stage_next = 0;
    }
}

static bool say_ended(struct keeper *keeper)
{
    struct boxes *boxes = &keeper->boxes;

    for (size_t i = boxes->owed > 0 ? boxes->used : 0; i-- > 0;) {
        struct boxed *boxed = i < boxes->used ? boxes->table[i] : NULL;

        if (boxed == NULL || boxed->box != NULL || boxed->asked == 0)
            continue;
        boxed->report.head = (struct keeper_head){.type = KEEPER_ENDED, .id = boxed->asked};
        if (!say(&keeper->engine, &boxed->report, sizeof(boxed->report), NULL))
            return false;
        boxes_drop(boxes, boxed);
    }
    return true;
}

static bool say_tls(struct engine_child *engine)
{
    const struct keeper_head news = {.type = KEEPER_TLS};

    if (engine->has_new_tls && engine->tls >= 0 && !say(engine, &news, sizeof(news), &engine->tls))
        return false;
    engine->has_new_tls = false;
    return true;
}

void engine_tell_tls(struct keeper *keeper)
{
    keeper->engine.has_new_tls = keeper->engine.pid > 0;
    engine_wake(keeper);
}

/* Says what it can; true when all is said. */
static bool say_all(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;

    if (!say_pending(keeper))
        return false;
    if (!engine->is_greeted)
        return true;
    return say_hello(keeper) && say_ended(keeper) && say_names(keeper, 0) && say_tls(engine);
}

void engine_wake(struct keeper *keeper)
{
    struct engine_child *engine = &keeper->engine;

    bool is_said;

    if (engine->socket < 0)
        return;
    is_said = say_all(keeper);
    loop_change(&keeper->loop, &engine->asks, is_said ? EPOLLIN : 0);
    loop_change(&keeper->loop, &engine->hears, is_said ? 0 : EPOLLOUT);
}

/* An end that is closed is told of whether it is asked for or not. */
static void asks(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;

    if (say_all(keeper))
        (void)request_serve(keeper);
    else if ((events & EPOLLHUP) != 0)
        engine_hung_up(keeper, "it has closed its pipe");
    engine_wake(keeper);
}

static void hears(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;

    if ((events & (EPOLLHUP | EPOLLERR)) != 0)
        engine_hung_up(keeper, "it has closed its socket");
    engine_wake(keeper);
}
