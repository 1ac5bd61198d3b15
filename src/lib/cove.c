/* libcove: see include/cove.h.
 *
 * One loop in the caller's thread, on box.h. The process belongs to somebody else: no signal handler, no
 * exit, nothing printed, no fd that is inherited. The one signal that our own writing can raise, SIGPIPE, is
 * held back in this thread and taken away again. */
#include "cove.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "box/box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMAND 1
#define MEMORY_BYTES (1ULL << 30)
#define DISK_BYTES (1ULL << 30)
#define DISK_INODES 262144
#define PIDS 512
#define OUTPUT_LIMIT (1U << 20)
#define EVENTS_AT_ONCE 64
#define ENV_OWN 4

enum { SLOT_BOX, SLOT_CANCEL, SLOT_IN, SLOT_OUT, SLOT_ERR, SLOTS };

struct state {
    const struct cove_run *run;
    struct box *box;
    int child[3]; /* what the command gets; ours where they were not given */
    int ours[3];  /* our ends of the pipes, or -1 */
    bool is_given[3];
    size_t written; /* of the input */
    struct buf_tail tail[2];
    uint64_t start_ns, end_ns, deadline_ns;
    bool is_over, ran, exited, timed_out, cancelled;
    bool at_root;
    int status;
    struct error error;
};

/* ---- the command ---- */

static bool has_variable(const char *const *env, const char *pair)
{
    size_t key = strcspn(pair, "=") + 1;

    for (size_t i = 0; env != NULL && env[i] != NULL; i++)
        if (strncmp(env[i], pair, key) == 0)
            return true;
    return false;
}

static int command_send(struct state *state, const char *cwd)
{
    const struct box_user *user = box_default_user(state->box);
    const struct cove_run *run = state->run;
    _cleanup_free_ const char **env = NULL;
    char own[ENV_OWN][320];
    struct box_command command = {.argv = run->argv, .cwd = cwd};
    size_t given = 0, count = 0;

    while (run->env != NULL && run->env[given] != NULL)
        given++;
    env = calloc(ENV_OWN + given + 1, sizeof(*env));
    if (env == NULL)
        return error_set(&state->error, "no_memory", 0,
                         "memory: there is none for the environment");
    (void)snprintf(own[0], sizeof(own[0]),
                   "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    (void)snprintf(own[1], sizeof(own[1]), "HOME=%s", user->home[0] == '\0' ? "/" : user->home);
    if (user->name[0] == '\0')
        (void)snprintf(own[2], sizeof(own[2]), "USER=%u", (unsigned)user->uid);
    else
        (void)snprintf(own[2], sizeof(own[2]), "USER=%s", user->name);
    (void)snprintf(own[3], sizeof(own[3]), "LANG=C.UTF-8");
    for (size_t i = 0; i < ENV_OWN; i++)
        if (!has_variable(run->env, own[i]))
            env[count++] = own[i];
    for (size_t i = 0; i < given; i++)
        env[count++] = run->env[i];
    command.env = env;
    memcpy(command.stdio, state->child, sizeof(command.stdio));
    return box_exec(state->box, COMMAND, &command, &state->error);
}

static void refused(struct state *state, const struct box_event *event)
{
    const char *name = state->run->argv[0], *cause = strerror(event->errnum);

    state->is_over = true;
    if (event->step == BOX_STEP_EXEC && event->errnum == ENOENT)
        (void)error_set(&state->error, "command_not_found", event->errnum,
                        "%.200s is not in the box; check the name, or bring it in by a mount",
                        name);
    else if (event->step == BOX_STEP_EXEC)
        (void)error_set(&state->error, "command_not_executable", event->errnum,
                        "%.200s cannot be executed; check its mode and its format", name);
    else if (event->step == BOX_STEP_CWD)
        (void)error_set(&state->error, "cwd_missing", event->errnum,
                        "the directory %.200s cannot be entered; name one that the user can",
                        state->run->cwd != NULL ? state->run->cwd : "/");
    else if (event->step == BOX_STEP_USER)
        (void)error_set(&state->error, "user_refused", 0,
                        "the box cannot become user %.100s (%s); choose another", state->run->user,
                        cause);
    else
        (void)error_set(&state->error, "spawn_refused", 0,
                        "no process could be started for %.200s (%s); raise its limits", name,
                        cause);
}

static void event_take(struct state *state, struct box_event *event)
{
    switch (event->kind) {
    case BOX_READY:
        break;
    case BOX_STARTED:
        fd_close(&event->tty);
        state->ran = true;
        for (size_t i = 0; i < 3; i++)
            if (!state->is_given[i])
                fd_close(&state->child[i]);
        break;
    case BOX_REFUSED:
        /* A user such as nobody has a home that does not exist; login(1) starts at the root then. */
        if (event->step == BOX_STEP_CWD && state->run->cwd == NULL && !state->at_root) {
            state->at_root = true;
            if (command_send(state, "/") == 0)
                break;
            state->is_over = true;
            break;
        }
        refused(state, event);
        break;
    case BOX_EXITED:
        state->status = event->status;
        state->exited = state->is_over = true;
        break;
    case BOX_GONE:
        state->error = event->error;
        state->is_over = true;
        break;
    }
}

static void events_take(struct state *state)
{
    struct box_event event;

    for (int i = 0; i < EVENTS_AT_ONCE && !state->is_over; i++) {
        int got = box_next(state->box, &event, &state->error);

        if (got == 0)
            return;
        if (got < 0)
            state->is_over = true;
        else
            event_take(state, &event);
    }
}

/* ---- standard input and output ---- */

static int stdio_open(struct state *state)
{
    const struct cove_run *run = state->run;
    const int given[3] = {run->stdin_fd, run->stdout_fd, run->stderr_fd};

    for (size_t i = 0; i < 3; i++) {
        int ends[2];

        if (given[i] > 0) {
            if (isatty(given[i]))
                return error_set(&state->error, "bad_value", 0,
                                 "fd %d is a terminal: whoever holds it in a box could type into "
                                 "it; pass a pipe",
                                 given[i]);
            state->is_given[i] = true;
            state->child[i] = given[i];
            continue;
        }
        if (pipe2(ends, O_CLOEXEC) < 0)
            return error_set(&state->error, "no_fds", errno, "cannot make a pipe for the command");
        state->child[i] = ends[i == 0 ? 0 : 1];
        state->ours[i] = ends[i == 0 ? 1 : 0];
        (void)fcntl(state->ours[i], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

static void input_write(struct state *state)
{
    const struct cove_run *run = state->run;
    ssize_t n = 0;

    if (state->written < run->input_size)
        n = write(state->ours[0], (const char *)run->input + state->written,
                  run->input_size - state->written);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        state->written += (size_t)n;
    if (n < 0 || state->written >= run->input_size)
        fd_close(&state->ours[0]);
}

/* False: there is no more to read now, or ever. */
static bool output_read(struct state *state, size_t which)
{
    int *fd = &state->ours[which + 1];
    char *into;
    size_t room = buf_tail_room(&state->tail[which], &into);
    ssize_t n = room > 0 ? read(*fd, into, room) : 0;

    if (n > 0) {
        buf_tail_commit(&state->tail[which], (size_t)n);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        fd_close(fd);
    return false;
}

/* ---- the loop ---- */

static void wait_for(struct state *state, struct pollfd fds[SLOTS])
{
    uint64_t now = clock_monotonic_ns();
    uint64_t left = state->deadline_ns > now ? state->deadline_ns - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000U),
                               .tv_nsec = (long)(left % 1000000000U)};

    fds[SLOT_BOX] = (struct pollfd){.fd = box_fd(state->box), .events = POLLIN};
    fds[SLOT_CANCEL] = (struct pollfd){.fd = state->run->cancel_fd > 0 ? state->run->cancel_fd : -1,
                                       .events = POLLIN};
    fds[SLOT_IN] = (struct pollfd){.fd = state->ours[0], .events = POLLOUT};
    fds[SLOT_OUT] = (struct pollfd){.fd = state->ours[1], .events = POLLIN};
    fds[SLOT_ERR] = (struct pollfd){.fd = state->ours[2], .events = POLLIN};
    if (ppoll(fds, SLOTS, state->deadline_ns == UINT64_MAX ? NULL : &timeout, NULL) < 0)
        for (size_t i = 0; i < SLOTS; i++)
            fds[i].revents = 0;
}

static void loop(struct state *state)
{
    while (!state->is_over) {
        struct pollfd fds[SLOTS];

        wait_for(state, fds);
        if (fds[SLOT_BOX].revents != 0)
            events_take(state);
        if (!state->is_over && clock_monotonic_ns() >= state->deadline_ns)
            state->timed_out = state->is_over = true;
        if (!state->is_over && fds[SLOT_CANCEL].revents != 0)
            state->cancelled = state->is_over = true;
        if (fds[SLOT_IN].revents != 0)
            input_write(state);
        for (size_t i = 0; i < 2; i++)
            if (fds[SLOT_OUT + i].revents != 0)
                (void)output_read(state, i);
    }
    state->end_ns = clock_monotonic_ns();
}

/* ---- the whole ---- */

static int check(const struct cove_run *run, struct error *err)
{
    if (run->argv == NULL || run->argv[0] == NULL || run->argv[0][0] == '\0')
        return error_set(err, "bad_value", 0, "argv names no command; its first word must be one");
    if (run->input != NULL && run->stdin_fd > 0)
        return error_set(err, "bad_value", 0, "input and stdin_fd are both given; leave one out");
    for (size_t i = 0; i < run->mounts_count; i++)
        if (run->mounts[i].source == NULL || run->mounts[i].target == NULL ||
            run->mounts[i].target[0] != '/')
            return error_set(err, "bad_value", 0, "mount %zu needs a source and an absolute target",
                             i);
    return 0;
}

static int start(struct state *state)
{
    const struct cove_run *run = state->run;
    struct box_spec spec = {
        .root_kind = run->root != NULL ? BOX_ROOT_DIR : BOX_ROOT_HOST,
        .root_path = run->root,
        .binds_count = run->mounts_count,
        .privileges = BOX_PLAIN,
        .user = run->user,
        .limits = {.memory_bytes = run->memory_bytes > 0 ? run->memory_bytes : MEMORY_BYTES,
                   .cpu_milli = run->cpu_milli,
                   .pids = run->pids > 0 ? run->pids : PIDS,
                   .disk_bytes = run->disk_bytes > 0 ? run->disk_bytes : DISK_BYTES,
                   .disk_inodes = DISK_INODES},
        .allow_no_fresh_proc = run->allow_level != 0,
    };
    _cleanup_free_ struct box_bind *binds = calloc(run->mounts_count + 1, sizeof(*binds));

    if (binds == NULL)
        return error_set(&state->error, "no_memory", 0, "memory: there is none for the mounts");
    for (size_t i = 0; i < run->mounts_count; i++)
        binds[i] = (struct box_bind){.source = run->mounts[i].source,
                                     .target = run->mounts[i].target,
                                     .read_only = run->mounts[i].writable == 0};
    spec.binds = binds;
    if (box_create(&spec, &state->box, &state->error) < 0)
        return -1;
    state->start_ns = clock_monotonic_ns();
    state->deadline_ns = run->timeout_ms == 0 || run->timeout_ms > UINT64_MAX / 2000000U
                             ? UINT64_MAX
                             : state->start_ns + run->timeout_ms * 1000000U;
    if (stdio_open(state) < 0)
        return -1;
    if (command_send(state, run->cwd) == 0)
        return 0;
    events_take(state); /* if the box has gone already, it says why */
    return -1;
}

/* What is left of a stream, for the caller to free; NULL where there is no memory for it. */
static char *text_take(struct buf_tail *tail, size_t *size, uint64_t *dropped)
{
    char *text;

    buf_tail_close(tail);
    text = calloc(1, tail->used + 1);
    if (text == NULL)
        return NULL;
    if (tail->used > 0)
        memcpy(text, tail->data, tail->used);
    *size = tail->used;
    *dropped = tail->dropped;
    return text;
}

static void fill(struct state *state, const struct box_report *report, struct cove_result *result)
{
    result->exit_code = -1;
    if (state->exited && WIFEXITED(state->status))
        result->exit_code = WEXITSTATUS(state->status);
    else if (state->exited && WIFSIGNALED(state->status))
        result->signal = WTERMSIG(state->status);
    else if (!state->timed_out && !state->cancelled)
        result->signal = SIGKILL; /* the box went down with it for a limit */
    result->timed_out = state->timed_out;
    result->cancelled = state->cancelled;
    result->oom_killed = report->oom_killed;
    result->over_pids = report->pids_exceeded;
    result->over_disk = report->disk_exceeded;
    result->cpu_ns = report->cpu_ns;
    result->peak_memory_bytes = report->peak_memory_bytes;
    result->wall_ns = state->end_ns - state->start_ns;
    result->out = text_take(&state->tail[0], &result->out_size, &result->out_dropped);
    result->err = text_take(&state->tail[1], &result->err_size, &result->err_dropped);
}

static int run_box(struct state *state, struct cove_result *result)
{
    struct box_report report = {0};
    struct error destroyed;
    int began = start(state);
    bool ended;

    if (began == 0)
        loop(state);
    if (state->box == NULL)
        return -1;
    result->level = box_level(state->box);
    result->limits = box_limits_kind(state->box);
    result->ids = box_ids_kind(state->box);
    ended = box_destroy(state->box, &report, &destroyed) == 0;
    for (size_t i = 0; i < 2; i++)
        while (state->ours[i + 1] >= 0 && output_read(state, i)) {
        }
    if (began < 0)
        return -1;
    if (!ended) { /* something of it may be left: that must not look like success */
        state->error = destroyed;
        return -1;
    }
    if (!state->exited && !state->timed_out && !state->cancelled &&
        !(state->ran && (report.oom_killed || report.pids_exceeded || report.disk_exceeded)))
        return -1;
    fill(state, &report, result);
    return 0;
}

int cove_run(const struct cove_run *run, struct cove_result *result, struct cove_error *error)
{
    struct state state = {.run = run, .child = {-1, -1, -1}, .ours = {-1, -1, -1}};
    struct timespec none = {0};
    sigset_t pipe_signal, before, pending;
    bool was_pending;
    int ran = -1;

    memset(result, 0, sizeof(*result));
    memset(error, 0, sizeof(*error));
    (void)sigemptyset(&pipe_signal);
    (void)sigaddset(&pipe_signal, SIGPIPE);
    (void)sigpending(&pending);
    was_pending = sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    for (size_t i = 0; i < 2; i++)
        buf_tail_init(&state.tail[i], run->output_limit > 0 ? run->output_limit : OUTPUT_LIMIT);
    if (check(run, &state.error) == 0)
        ran = run_box(&state, result);
    for (size_t i = 0; i < 3; i++) {
        fd_close(&state.ours[i]);
        if (!state.is_given[i])
            fd_close(&state.child[i]);
        if (i < 2)
            buf_tail_free(&state.tail[i]);
    }
    if (!was_pending)
        while (sigtimedwait(&pipe_signal, NULL, &none) > 0) {
        }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ran == 0)
        return 0;
    (void)snprintf(error->code, sizeof(error->code), "%s", state.error.code);
    (void)snprintf(error->text, sizeof(error->text), "%s", state.error.text);
    error->errnum = state.error.errnum;
    return -1;
}

void cove_result_free(struct cove_result *result)
{
    free(result->out);
    free(result->err);
    memset(result, 0, sizeof(*result));
}

const char *cove_version(void)
{
    return COVE_VERSION;
}
