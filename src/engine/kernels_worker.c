/* A tenant's worker: its box, its process in there, and the socket between that and us.
 *
 * What is asked of it waits in the socket's remote while the box is made, so that nobody else has to wait for that.
 * The box is empty and belongs to nobody: an engine that takes over ends it, as those of the pool. Whatever is wrong
 * with a worker, it is ended as a whole, and the next request makes another. */
#include "base/clock.h"
#include "base/fd.h"
#include "engine/kernels_parts.h"
#include "kernel/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY_FILE "kernels.key"
#define EXEC_ID 1
#define PIDS (KERNEL_WORKER_TASKS + 16) /* and init */
#define IDLE_NS (300ULL * 1000000000)
#define OWN_MEMORY (48ULL << 20) /* of the worker itself: the rest is its contexts' */
#define TURN_EVENTS 256          /* of a turn, or so long, or so many bytes of texts */
#define TURN_NS 2000000ULL
#define TURN_BYTES (1U << 20)
#define KEPT_LEAST (256U << 10) /* bytes of an event that stays */
#define KEPT_MOST 2U            /* of such events: then it is not heard */
#define SAY_HOW_NS 500000000ULL
/* Bytes that a worker has not taken: a snapshot that is being restored is up to half of them, and is no fault of its
 * own. */
#define WAITING_MOST (128U << 20)
#define DISK_BYTES (32U << 20) /* where there are no memfds its image is a file */
#define DISK_INODES 64

/* ---- its end ---- */

static void handle_closed(uv_handle_t *handle)
{
    struct worker *worker = handle->data;

    if (--worker->handles == 0)
        free(worker);
}

static void poll_close(struct worker *worker, uv_poll_t *poll, bool *has)
{
    if (!*has)
        return;
    *has = false;
    worker->handles++;
    uv_close((uv_handle_t *)poll, handle_closed);
}

/* Nothing of it is in a list, or asked for. */
void worker_free(struct worker *worker)
{
    struct engine *engine = worker->kernels->engine;

    clock_clear(engine->clock, &worker->patience);
    clock_clear(engine->clock, &worker->idle);
    worker->handles = 1;
    poll_close(worker, &worker->link_poll, &worker->has_link_poll);
    poll_close(worker, &worker->remote_poll, &worker->has_remote_poll);
    if (worker->remote != NULL)
        remote_close(worker->remote);
    if (worker->link != NULL)
        link_close(worker->link);
    fd_close(&worker->program_end);
    fd_close(&worker->errors);
    map_free(&worker->runs);
    map_free(&worker->contexts);
    if (--worker->handles == 0)
        free(worker);
}

static void bury(void *arg)
{
    struct kernels *kernels = arg;

    kernels->will_bury = false;
    runs_tell_lost(kernels);
    worker_bury(kernels);
    engine_settled(kernels->engine);
}

void worker_bury(struct kernels *kernels)
{
    while (!TAILQ_EMPTY(&kernels->dead)) {
        struct worker *worker = TAILQ_FIRST(&kernels->dead);

        TAILQ_REMOVE(&kernels->dead, worker, next);
        worker_free(worker);
    }
}

void worker_end(struct worker *worker, const struct error *why, bool is_idle)
{
    struct kernels *kernels = worker->kernels;
    struct engine *engine = kernels->engine;
    struct error cause = *why;

    if (worker->step == WORKER_DEAD)
        return;
    worker->step = WORKER_DEAD;
    TAILQ_REMOVE(&kernels->workers, worker, next);
    TAILQ_INSERT_TAIL(&kernels->dead, worker, next);
    clock_clear(engine->clock, &worker->patience);
    clock_clear(engine->clock, &worker->idle);
    if (!is_idle) {
        kernels->counts.workers_lost++;
        log_say(LOG_LEVEL_WARN, "kernel_worker", "the worker of tenant '%s' has ended: %s",
                worker->tenant, cause.text);
    }
    if (worker->box != 0 && !engine->is_lost && !engine->is_closing)
        pool_discard(engine, worker->box, "");
    worker->box = 0;
    runs_lost(worker, &cause);
    while (!TAILQ_EMPTY(&worker->list))
        context_lost(TAILQ_FIRST(&worker->list), &cause);
    if (!kernels->will_bury && !engine->is_closing) {
        kernels->will_bury = true;
        engine_later(engine, bury, kernels);
    }
}

/* A worker that never was ready has said why. */
static bool failed_to_start(struct worker *worker)
{
    char text[200];
    ssize_t got = worker->step == WORKER_STARTING ? read(worker->errors, text, sizeof(text) - 1)
                                                  : -1;
    struct error err;

    if (got <= 0)
        return false;
    text[got] = '\0';
    for (ssize_t i = 0; i < got; i++)
        if (text[i] < ' ' || text[i] > '~')
            text[i] = i == got - 1 ? '\0' : '?';
    (void)error_set(&err, "kernel_failed", 0, "the tenant's worker could not be started: %s", text);
    worker_end(worker, &err, false);
    return true;
}

static void fail(struct worker *worker, const char *what)
{
    struct error err;

    if (failed_to_start(worker))
        return;
    (void)error_set(&err, "kernel_gone", 0, "the tenant's worker, which they lived in, %s", what);
    worker_end(worker, &err, false);
}

static void idle_rings(void *arg)
{
    struct error err;

    (void)error_set(&err, "kernel_gone", 0, "nobody has used them");
    worker_end(arg, &err, true);
}

void worker_rest(struct worker *worker)
{
    if (worker->step != WORKER_DEAD && worker->contexts_count == 0 && worker->runs_count == 0)
        clock_set(worker->kernels->engine->clock, &worker->idle, clock_monotonic_ns() + IDLE_NS,
                  idle_rings, worker);
}

/* ---- what it says ---- */

static void worker_ready(struct worker *worker)
{
    worker->step = WORKER_READY;
    fd_close(&worker->errors);
    clock_clear(worker->kernels->engine->clock, &worker->patience);
}

static void ended_somehow(void *arg)
{
    fail(arg, "has ended");
}

/* Meanwhile whoever asks gets another one. */
static void hung_up(struct worker *worker, const struct error *err)
{
    if (strcmp(err->code, "bad_worker") == 0) {
        log_say(LOG_LEVEL_WARN, "bad_worker", "%s", err->text);
        fail(worker, "said what it must not, and was ended");
        return;
    }
    if (worker->step == WORKER_READY)
        worker->step = WORKER_ENDING;
    clock_set(worker->kernels->engine->clock, &worker->patience, clock_monotonic_ns() + SAY_HOW_NS,
              ended_somehow, worker);
    uv_poll_stop(&worker->remote_poll);
    worker->polled = 0;
}

static void take_event(struct worker *worker, const struct remote_event *event)
{
    char key[NUMBER_KEY];

    (void)snprintf(key, sizeof(key), "%llx", (unsigned long long)event->number);
    switch (event->kind) {
    case REMOTE_READY:
        worker_ready(worker);
        break;
    case REMOTE_MADE:
        context_made(worker, key);
        break;
    case REMOTE_SNAPSHOT:
        context_snapshotted(worker, key, event->bytes, event->size);
        break;
    case REMOTE_CALL:
        run_called(worker, key, &event->call);
        break;
    case REMOTE_CANCEL:
        run_cancelled(worker, key, &event->call);
        break;
    case REMOTE_DONE:
        run_done(worker, key, event->result);
        break;
    case REMOTE_FAILED:
        /* Of what nobody waits for any more. */
        if (!run_failed(worker, key, &event->error))
            (void)context_failed(worker, key, &event->error);
        break;
    case REMOTE_GONE:
        hung_up(worker, &event->error);
        break;
    }
}

static void remote_polled(uv_poll_t *poll, int status, int events);

/* A worker, if it is still there then. */
struct turn {
    struct kernels *kernels;
    uint64_t serial;
};

static struct worker *worker_by(struct kernels *kernels, uint64_t serial)
{
    struct worker *worker = NULL;

    TAILQ_FOREACH(worker, &kernels->workers, next)
    if (worker->serial == serial)
        return worker;
    return NULL;
}

static void take_events(struct worker *worker);

static void take_more(void *arg)
{
    struct turn *turn = arg;
    struct worker *worker = worker_by(turn->kernels, turn->serial);

    free(turn);
    if (worker != NULL)
        take_events(worker);
}

/* Then others have their turn: what the remote has read already makes no socket ready. */
static void turn_end(struct worker *worker)
{
    struct turn *turn = engine_alloc(sizeof(*turn));

    *turn = (struct turn){worker->kernels, worker->serial};
    engine_later(worker->kernels->engine, take_more, turn);
}

static size_t event_bytes(const struct remote_event *event)
{
    return event->size + event->call.meta.size + event->call.bytes_size +
           (event->result != NULL ? wire_result_size(event->result) : 0);
}

static void take_events(struct worker *worker)
{
    uint64_t end_ns = clock_monotonic_ns() + TURN_NS;
    struct remote_event event;
    unsigned taken = 0;
    size_t bytes = 0;
    bool is_over = false;

    if (worker->is_taking)
        return;
    worker->is_taking = true;
    while (worker->step < WORKER_ENDING && worker->kept < KEPT_MOST && !is_over &&
           remote_next(worker->remote, &event) > 0) {
        worker->event_bytes = event_bytes(&event);
        bytes += worker->event_bytes;
        take_event(worker, &event);
        is_over = ++taken == TURN_EVENTS || bytes >= TURN_BYTES || clock_monotonic_ns() >= end_ns;
    }
    worker->is_taking = false;
    if (worker->step < WORKER_ENDING && is_over)
        turn_end(worker);
    if (worker->step == WORKER_READY && remote_waiting(worker->remote) > WAITING_MOST)
        fail(worker, "does not take what it is asked, and was ended");
    worker_asked(worker);
}

static void remote_polled(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    take_events(poll->data);
}

struct remote_kept *worker_keep(struct worker *worker)
{
    struct remote_kept *kept = worker->event_bytes >= KEPT_LEAST ? remote_keep(worker->remote)
                                                                 : NULL;

    worker->kept += kept != NULL;
    return kept;
}

void worker_kept_free(struct kernels *kernels, uint64_t serial, struct remote_kept *kept)
{
    struct worker *worker = worker_by(kernels, serial);

    remote_kept_free(kept);
    if (worker != NULL && worker->kept-- == KEPT_MOST)
        turn_end(worker);
}

void worker_asked(struct worker *worker)
{
    int events = worker->kept < KEPT_MOST ? UV_READABLE : 0;

    if (worker->step >= WORKER_ENDING || worker->is_taking)
        return;
    if (remote_wants_write(worker->remote))
        events |= UV_WRITABLE;
    if (events != worker->polled && uv_poll_start(&worker->remote_poll, events, remote_polled) == 0)
        worker->polled = events;
}

/* ---- its box ---- */

static void too_slow(void *arg)
{
    fail(arg, "did not stand in time");
}

static void close_both(int (*fds)[2])
{
    fd_close(&(*fds)[0]);
    fd_close(&(*fds)[1]);
}

static void program_start(struct worker *worker)
{
    static const char *const argv[] = {"cove-worker", NULL}, *const env[] = {NULL};
    _cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int *program = &worker->kernels->program;
    _cleanup_(close_both) int errors[2] = {-1, -1};
    struct link_command command;
    struct error err;

    /* What it says before it is ready, of why it will not be. */
    if (pipe2(errors, O_CLOEXEC | O_NONBLOCK) != 0)
        errors[1] = -1;
    command = (struct link_command){
        .argv = argv,
        .env = env,
        .cwd = "/",
        .stdio = LINK_GIVEN,
        .fds = {worker->program_end, null, errors[1]},
        .is_brief = true,
    };
    if (null < 0 || errors[1] < 0)
        (void)error_set(&err, "kernel_failed", errno, "there are no files for it now");
    else if (*program < 0)
        *program = kernel_worker_program(&err);
    command.program = *program;
    if (null < 0 || errors[1] < 0 || *program < 0 ||
        link_exec(worker->link, EXEC_ID, &command, &err) != 0) {
        (void)error_set(&err, "kernel_failed", err.errnum,
                        "the worker could not be started: %.300s", err.text);
        worker_end(worker, &err, false);
        return;
    }
    worker->step = WORKER_STARTING;
    worker->errors = fd_take(&errors[0]);
    fd_close(&worker->program_end);
}

static void exited(struct worker *worker, int status)
{
    char what[120];

    if (WIFSIGNALED(status))
        (void)snprintf(what, sizeof(what), "was ended by signal %d%s", WTERMSIG(status),
                       WTERMSIG(status) == SIGKILL
                           ? ": its limit of memory ([kernels] memory) may be the reason"
                           : "");
    else
        (void)snprintf(what, sizeof(what), "has ended with status %d", WEXITSTATUS(status));
    fail(worker, what);
}

static void link_event_take(struct worker *worker, struct link_event *event)
{
    struct error err;

    for (size_t i = 0; i < 3; i++)
        fd_close(&event->fds[i]);
    switch (event->kind) {
    case LINK_READY:
        if (worker->step == WORKER_BOXED)
            program_start(worker);
        break;
    case LINK_STARTED:
        break;
    case LINK_REFUSED:
        (void)error_set(&err, "kernel_failed", event->errnum, "the worker could not be started");
        worker_end(worker, &err, false);
        break;
    case LINK_EXITED:
        exited(worker, event->status);
        break;
    case LINK_GONE:
        (void)error_set(&err, worker->step == WORKER_BOXED ? "kernel_failed" : "kernel_gone", 0,
                        "the box of the tenant's worker has ended: %.300s", event->error.text);
        worker_end(worker, &err, false);
        break;
    default:
        fail(worker, "has an init that says what it must not, and was ended");
    }
}

static void link_polled(uv_poll_t *poll, int status, int events)
{
    struct worker *worker = poll->data;
    struct link_event event;
    struct error err;
    int got = 0;

    (void)status;
    (void)events;
    while (worker->step != WORKER_DEAD && (got = link_next(worker->link, &event, &err)) > 0)
        link_event_take(worker, &event);
    if (worker->step != WORKER_DEAD && got < 0)
        worker_end(worker, &err, false);
}

static int box_take(struct worker *worker, uint64_t box, int fd, struct error *err)
{
    worker->box = box;
    if (link_open(fd, &worker->link, err) != 0)
        return -1;
    if (uv_poll_init(worker->kernels->engine->options.loop, &worker->link_poll,
                     link_fd(worker->link)) != 0)
        return error_set(err, "kernel_failed", 0, "the socket of its box cannot be waited for");
    worker->link_poll.data = worker;
    worker->has_link_poll = true;
    worker->step = WORKER_BOXED;
    (void)uv_poll_start(&worker->link_poll, UV_READABLE, link_polled);
    return 0;
}

/* A box for the worker of this serial, which may have ended meanwhile. */
struct making {
    struct kernels *kernels;
    uint64_t serial;
    struct box_turn turn;
};

static void made(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct making making = *(struct making *)arg;
    struct engine *engine = making.kernels->engine;
    struct worker *worker = NULL;
    struct error why;

    box_turn_leave(engine, &((struct making *)arg)->turn);
    free(arg);
    if (engine->is_closing) {
        fd_close(&fd);
        return;
    }
    worker = worker_by(making.kernels, making.serial);
    if (worker == NULL) {
        fd_close(&fd);
        if (err == NULL)
            pool_discard(engine, answer->made.box, "");
    } else if (err != NULL) {
        why = *err;
        worker_end(worker, &why, false);
    } else if (box_take(worker, answer->made.box, fd, &why) != 0) {
        worker_end(worker, &why, false);
    }
    engine_settled(engine);
}

static void turn_comes(void *arg)
{
    struct making *making = arg;
    struct engine *engine = making->kernels->engine;
    const struct worker *worker = engine->is_closing ? NULL
                                                     : worker_by(making->kernels, making->serial);
    union keeper_request request;

    if (worker == NULL) {
        box_turn_leave(engine, &making->turn);
        free(making);
        return;
    }
    memset(&request, 0, sizeof(request));
    memcpy(request.make.root, KEEPER_ROOT_EMPTY, sizeof(KEEPER_ROOT_EMPTY));
    request.make.privileges = BOX_PLAIN;
    request.make.disk_kind = KEEPER_EPHEMERAL;
    request.make.limits = (struct box_limits){
        .memory_bytes = engine->options.kernels_memory,
        .cpu_milli = worker->cpu_milli,
        .pids = PIDS,
        .disk_bytes = DISK_BYTES,
        .disk_inodes = DISK_INODES,
    };
    keeper_client_ask(engine->keeper, KEEPER_MAKE, &request, made, making);
}

static void box_ask(struct worker *worker)
{
    struct making *making = engine_alloc(sizeof(*making));

    *making = (struct making){.kernels = worker->kernels, .serial = worker->serial};
    box_turn_wait(worker->kernels->engine, BOX_TURN_MAKE, &making->turn, worker->tenant, true,
                  turn_comes, making);
}

/* ---- its begin ---- */

/* A snapshot is its tenant's, and of this engine's directory. */
static int tenant_key(struct kernels *kernels, const char *tenant, uint8_t key[KERNEL_KEY_BYTES],
                      struct error *err)
{
    char text[96];

    _Static_assert(KERNEL_KEY_BYTES == SHA256_BYTES, "one is the other");
    if (!kernels->has_key && secret_open(kernels->engine->options.directory, KEY_FILE,
                                         "snapshots of kernels", kernels->key, err) != 0)
        return -1;
    kernels->has_key = true;
    (void)snprintf(text, sizeof(text), "snapshots/%s", tenant);
    sha256_hmac(kernels->key, text, strlen(text), key);
    return 0;
}

static int remote_begin(struct worker *worker, struct error *err)
{
    struct engine *engine = worker->kernels->engine;
    uint64_t memory = engine->options.kernels_memory;
    struct remote_options options = {.memory_bytes = memory > 2 * OWN_MEMORY ? memory - OWN_MEMORY
                                                                             : memory / 2,
                                     .result_bytes = KERNELS_RESULT_MAX};
    int pair[2], opened;

    if (tenant_key(worker->kernels, worker->tenant, options.key, err) != 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return error_set(err, "capacity", errno, "there is no socket for a worker now");
    worker->program_end = pair[1];
    (void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
    opened = remote_open(pair[0], &options, &worker->remote, err);
    explicit_bzero(options.key, sizeof(options.key));
    if (opened != 0)
        return -1;
    if (uv_poll_init(engine->options.loop, &worker->remote_poll, remote_fd(worker->remote)) != 0)
        return error_set(err, "capacity", 0, "the socket of a worker cannot be waited for");
    worker->remote_poll.data = worker;
    worker->has_remote_poll = true;
    return 0;
}

static uint32_t least(uint32_t one, uint32_t other)
{
    return one == 0 || (other != 0 && other < one) ? other : one;
}

/* Nobody asks for a worker's processors, so it has what one sandbox of the tenant may have; 0: all. */
static uint32_t cpu_of(struct engine *engine, const char *tenant)
{
    uint64_t quota = quota_cpu(engine, tenant);

    return least(least(engine->options.defaults.cpu_milli, engine->options.most.cpu_milli),
                 quota < UINT32_MAX ? (uint32_t)quota : 0);
}

static int worker_new(struct kernels *kernels, const char *tenant, struct worker **out,
                      struct error *err)
{
    struct worker *worker = NULL;
    uint32_t cpu_milli = cpu_of(kernels->engine, tenant);

    if (capacity_check(kernels->engine, err) != 0 ||
        quota_check_worker(kernels->engine, tenant, kernels->engine->options.kernels_memory,
                           kernels_cpu(kernels->engine, cpu_milli), err) != 0)
        return -1;
    worker = engine_alloc(sizeof(*worker));
    worker->cpu_milli = cpu_milli;
    worker->kernels = kernels;
    /* At random: a cursor shows it, and is not to say how many workers others had. */
    if (getrandom(&worker->serial, sizeof(worker->serial), 0) != (ssize_t)sizeof(worker->serial))
        abort();
    worker->program_end = worker->errors = -1;
    TAILQ_INIT(&worker->list);
    TAILQ_INIT(&worker->run_list);
    (void)snprintf(worker->tenant, sizeof(worker->tenant), "%s", tenant);
    if (remote_begin(worker, err) != 0) {
        worker_free(worker);
        return -1;
    }
    TAILQ_INSERT_TAIL(&kernels->workers, worker, next);
    clock_set(kernels->engine->clock, &worker->patience,
              clock_monotonic_ns() + ENGINE_READY_MS * 1000000ULL, too_slow, worker);
    box_ask(worker);
    *out = worker;
    return 0;
}

int worker_of(struct kernels *kernels, const char *tenant, struct worker **out, struct error *err)
{
    struct worker *worker = NULL;

    if (engine_accepts(kernels->engine, err) != 0)
        return -1;
    TAILQ_FOREACH(worker, &kernels->workers, next)
    {
        if (strcmp(worker->tenant, tenant) == 0 && worker->step < WORKER_ENDING)
            break;
    }
    if (worker == NULL && worker_new(kernels, tenant, &worker, err) != 0)
        return -1;
    clock_clear(kernels->engine->clock, &worker->idle);
    *out = worker;
    return 0;
}
