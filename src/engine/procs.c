/* The processes of one sandbox: the list of them, turns of the loop, and the verbs that look.
 *
 * All fds of a sandbox are in one epoll set, which is in the loop's: so the loop learns of none of
 * them (adding a handle of libuv's costs five system calls). The set being ready readies a task of the
 * tenant's share (net/turns.h), which serves one of those fds. So sandboxes take turns within a tenant, and
 * tenants do. Never add an fd without limiting what it may do in a turn. */
#include "engine/procs_parts.h"

#include "base/fd.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP_DEFAULT_MS (24ULL * 3600 * 1000)

/* ---- the list ---- */

/* Where `number` is, or would be. */
static size_t place_of(const struct procs *procs, uint32_t number)
{
    size_t low = 0, high = procs->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (procs->list[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct proc *procs_by_number(const struct procs *procs, uint32_t number)
{
    size_t place = place_of(procs, number);

    return place < procs->count && procs->list[place]->number == number ? procs->list[place] : NULL;
}

struct proc *procs_after(const struct procs *procs, uint32_t number)
{
    size_t place = place_of(procs, number + 1);

    return place < procs->count ? procs->list[place] : NULL;
}

struct proc *procs_new(struct procs *procs, uint32_t number)
{
    struct proc *proc = calloc(1, sizeof(*proc));

    if (proc == NULL)
        return NULL;
    proc->procs = procs;
    proc->number = number;
    (void)snprintf(proc->id, sizeof(proc->id), "%u", number);
    for (int i = 0; i < 2; i++) {
        proc->streams[i].watched.fd = -1;
        proc->streams[i].proc = proc;
        proc->streams[i].which = i;
        log_init(&proc->streams[i].log_file, procs->directory, number, i);
    }
    proc->input.watched.fd = proc->input.ours[0] = proc->input.ours[1] = -1;
    proc->input.proc = proc;
    return proc;
}

int procs_insert(struct procs *procs, struct proc *proc, struct error *err)
{
    size_t place = place_of(procs, proc->number);

    if (procs->count == procs->room) {
        size_t room = procs->room == 0 ? 8 : procs->room * 2;
        struct proc **list = reallocarray(procs->list, room, sizeof(struct proc *));

        if (list == NULL)
            return error_set(err, "no_memory", ENOMEM, "cannot keep one more process");
        procs->list = list;
        procs->room = room;
    }
    memmove(procs->list + place + 1, procs->list + place,
            (procs->count - place) * sizeof(struct proc *));
    procs->list[place] = proc;
    procs->count++;
    return 0;
}

void procs_remove(struct procs *procs, struct proc *proc)
{
    size_t place = place_of(procs, proc->number);

    if (place == procs->count || procs->list[place] != proc)
        return;
    procs->count--;
    memmove(procs->list + place, procs->list + place + 1,
            (procs->count - place) * sizeof(struct proc *));
}

static void proc_free(struct proc *proc)
{
    if (proc->start != NULL)
        start_free(proc->start);
    for (int i = 0; i < 2; i++)
        log_close(&proc->streams[i].log_file);
    free(proc->tag);
    free(proc->command);
    free(proc->failure);
    free(proc);
}

static void bury(struct proc *proc)
{
    struct procs *procs = proc->procs;

    if (proc->is_buried) /* by what was called back when it was closed */
        return;
    proc_alarm_drop(&proc->alarm);
    proc_alarm_drop(&proc->lost);
    proc->is_buried = true;
    proc->next_grave = procs->graves;
    procs->graves = proc;
    procs_soon(procs);
}

void proc_release(struct proc *proc)
{
    struct procs *procs = proc->procs;

    if (proc->is_buried || proc->follows != NULL || proc->waits != NULL)
        return;
    if (procs == NULL) { /* closed: its last follower is gone */
        proc_free(proc);
        return;
    }
    if (!proc->is_hidden || proc->streams[0].watched.fd >= 0 || proc->streams[1].watched.fd >= 0 ||
        (procs->link != NULL && !proc->is_acknowledged))
        return;
    procs_remove(procs, proc);
    procs->hidden--;
    bury(proc);
}

/* ---- turns ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    free(handle);
}

static void handle_close(void *handle_pointer)
{
    uv_handle_t **handle = handle_pointer;

    if (*handle != NULL)
        uv_close(*handle, on_handle_closed);
    *handle = NULL;
}

void procs_enter(struct procs *procs)
{
    procs->busy++;
}

static void free_lists(struct procs *procs)
{
    free(procs->env);
    free(procs->cwd);
    free(procs->user);
    free(procs->list);
}

static void procs_free(struct procs *procs)
{
    handle_close(&procs->poll);
    fd_close(&procs->epoll);
    journal_close(&procs->journal);
    fd_close(&procs->directory);
    free_lists(procs);
    free(procs);
}

void procs_leave(struct procs *procs)
{
    struct proc *proc;

    while (procs->busy == 1 && (proc = procs->dirty) != NULL) {
        procs->dirty = proc->next_dirty;
        proc->is_dirty = false;
        proc_tell(proc);
    }
    procs->busy--;
    while (procs->busy == 0 && (proc = procs->graves) != NULL) {
        procs->graves = proc->next_grave;
        proc_free(proc);
    }
    if (procs->busy == 0 && procs->is_closed)
        procs_free(procs);
}

void procs_soon(struct procs *procs)
{
    if (!procs->is_closed && (procs->busy == 0 || procs->unread_link))
        task_ready(&procs->task);
}

void procs_dirty(struct procs *procs, struct proc *proc)
{
    if (proc->is_dirty || proc->is_buried)
        return;
    proc->is_dirty = true;
    proc->next_dirty = procs->dirty;
    procs->dirty = proc;
    procs_soon(procs);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct procs *procs = poll->data;

    (void)status;
    (void)events;
    task_ready(&procs->task);
}

/* One fd, and the next is another: epoll(7) puts what it tells of behind the others. */
static void on_turn(struct task *task)
{
    struct procs *procs = (struct procs *)(void *)((char *)task - offsetof(struct procs, task));
    struct epoll_event event;

    procs_enter(procs);
    if (procs->unread_link)
        procs_link_turn(procs);
    if (!procs->is_closed && epoll_wait(procs->epoll, &event, 1, 0) == 1) {
        struct watched *watched = event.data.ptr;

        task_ready(task);
        watched->act(watched, event.events);
    }
    procs_leave(procs);
}

int watched_set(struct procs *procs, struct watched *watched, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watched};
    int op = watched->is_set ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (epoll_ctl(procs->epoll, op, watched->fd, &event) < 0)
        return -1;
    watched->is_set = true;
    return 0;
}

/* By hand: what is closed leaves the set only when init closes its duplicate, too. */
void watched_unset(struct procs *procs, struct watched *watched)
{
    if (watched->is_set)
        (void)epoll_ctl(procs->epoll, EPOLL_CTL_DEL, watched->fd, NULL);
    watched->is_set = false;
}

void watched_open(struct procs *procs, struct watched *watched, int fd)
{
    watched->fd = fd;
    procs->task.share->streams++;
}

void watched_close(struct procs *procs, struct watched *watched)
{
    watched_unset(procs, watched);
    if (watched->fd >= 0)
        procs->task.share->streams--;
    fd_close(&watched->fd);
}

/* ---- open and close ---- */

static char **copy_list(const char *const *list)
{
    size_t count = 0, size = 0;
    char **copy, *at;

    for (; list != NULL && list[count] != NULL; count++)
        size += strlen(list[count]) + 1;
    copy = malloc((count + 1) * sizeof(*copy) + size);
    if (copy == NULL)
        return NULL;
    at = (char *)(copy + count + 1);
    for (size_t i = 0; i < count; i++) {
        copy[i] = at;
        at = stpcpy(at, list[i]) + 1;
    }
    copy[count] = NULL;
    return copy;
}

static int copy_options(struct procs *procs, const struct procs_options *options)
{
    procs->env = copy_list(options->env);
    if (procs->env == NULL)
        return -1;
    if (options->cwd != NULL && (procs->cwd = strdup(options->cwd)) == NULL)
        return -1;
    if (options->user != NULL && (procs->user = strdup(options->user)) == NULL)
        return -1;
    return 0;
}

static int make_handle(struct procs *procs)
{
    procs->poll = malloc(sizeof(*procs->poll));
    if (procs->poll == NULL)
        return -1;
    procs->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (procs->epoll < 0 || uv_poll_init(procs->loop, procs->poll, procs->epoll) < 0) {
        int saved = errno;

        free(procs->poll);
        procs->poll = NULL;
        errno = saved;
        return -1;
    }
    procs->poll->data = procs;
    return uv_poll_start(procs->poll, UV_READABLE, on_readable) < 0 ? -1 : 0;
}

int procs_open(const struct procs_options *options, struct procs **out, struct error *err)
{
    struct procs *procs = calloc(1, sizeof(*procs));
    int directory = options->directory;

    if (procs == NULL) {
        fd_close(&directory);
        return error_set(err, "no_memory", ENOMEM, "cannot keep the processes of a sandbox");
    }
    *procs = (struct procs){
        .loop = options->loop,
        .directory = directory,
        .epoll = -1,
        .task = {.share = options->share, .run = on_turn},
        .arg = options->arg,
        .is_system = options->is_system,
        .keep_ms = options->keep_ms > 0 ? options->keep_ms : KEEP_DEFAULT_MS,
        .log_share = options->log_share,
        .programs = options->programs,
        .next_number = 1,
        .journal.fd = -1,
        .link_watched = {.act = procs_link_act, .fd = -1},
    };
    if (options->calls != NULL)
        procs->calls = *options->calls;
    if (copy_options(procs, options) < 0 || make_handle(procs) < 0) {
        (void)error_set(err, "capacity", errno, "cannot keep the processes of a sandbox");
        procs_free(procs);
        return -1;
    }
    if (procs_recover(procs, err) < 0) {
        procs_close(procs, false);
        return -1;
    }
    *out = procs;
    return 0;
}

static void proc_close(struct proc *proc, bool forget)
{
    static const struct error closed = {
        .code = "sandbox_stopped", .text = "the sandbox is closed; nothing more of it is heard"};
    struct procs *procs = proc->procs;

    stdin_end(proc, &closed);
    for (int i = 0; i < 2; i++) {
        watched_close(procs, &proc->streams[i].watched);
        if (forget)
            log_remove(&proc->streams[i].log_file);
        log_close(&proc->streams[i].log_file);
        proc->streams[i].log_file.directory = -1;
    }
    proc_alarm_drop(&proc->alarm);
    proc_alarm_drop(&proc->lost);
    proc_uncount_texts(proc);
    proc_let_go(proc, &closed);
    if (proc->follows == NULL)
        bury(proc);
    else
        proc->procs = NULL;
}

void procs_close(struct procs *procs, bool forget)
{
    static const struct error closed = {.code = "sandbox_stopped",
                                        .text = "the sandbox is closed; the command did not start"};
    struct proc *proc;

    if (procs->is_closed)
        return;
    procs_enter(procs);
    procs->is_closed = true;
    task_drop(&procs->task);
    tools_lose(procs, "sandbox_stopped", "the sandbox is closed; nothing more of it is heard");
    while (procs->starts != NULL)
        start_fail(procs->starts, &closed);
    procs_link_drop(procs);
    user_forget(procs);
    proc_alarm_drop(&procs->expiry);
    proc_alarm_drop(&procs->retry);
    proc_alarm_drop(&procs->pause);
    procs->dirty = NULL;
    while (procs->count > 0) {
        proc = procs->list[procs->count - 1];
        if (proc->start != NULL)
            start_fail(proc->start, &closed);
        procs->count--;
        proc->is_dirty = false;
        proc_close(proc, forget);
    }
    if (forget)
        journal_remove(&procs->journal);
    procs_leave(procs);
}

/* ---- how many, and how much ---- */

size_t procs_running(const struct procs *procs)
{
    return procs->running;
}

bool procs_is_quiet(const struct procs *procs)
{
    if (procs->busy > 0 || procs->link != NULL || procs->starts != NULL || procs->tools != NULL ||
        procs->journal_owes)
        return false;
    for (size_t i = 0; i < procs->count; i++) {
        const struct proc *proc = procs->list[i];

        if (!proc->has_ended || proc->is_dirty || proc->follows != NULL || proc->waits != NULL ||
            proc->streams[0].watched.fd >= 0 || proc->streams[1].watched.fd >= 0)
            return false;
    }
    return true;
}

uint64_t procs_log_bytes(const struct procs *procs)
{
    return procs->log_bytes;
}

/* ---- forgetting ---- */

static void hide(struct proc *proc)
{
    struct procs *procs = proc->procs;

    for (int i = 0; i < 2; i++)
        log_remove(&proc->streams[i].log_file);
    proc_count_log(proc, 0);
    proc_uncount_texts(proc);
    proc->is_hidden = true;
    procs->ended--;
    procs->hidden++;
    proc_let_go(proc, NULL);
    proc_release(proc);
}

/* Whoever follows is not cut off, and nor is a daemon that still writes: its pipe would break. */
static bool may_go(const struct proc *proc)
{
    return proc->has_ended && !proc->is_hidden && proc->follows == NULL && proc->waits == NULL &&
           proc->streams[0].watched.fd < 0 && proc->streams[1].watched.fd < 0;
}

void proc_count_texts(struct proc *proc)
{
    proc->texts = sizeof(*proc) + (proc->command != NULL ? strlen(proc->command) : 0) +
                  (proc->tag != NULL ? strlen(proc->tag) : 0);
    proc->procs->task.share->texts += proc->texts;
}

void proc_uncount_texts(struct proc *proc)
{
    proc->procs->task.share->texts -= proc->texts;
    proc->texts = 0;
}

bool procs_are_many(const struct procs *procs)
{
    return procs->ended > PROCS_ENDED_MAX ||
           (procs->ended > PROCS_ENDED_LEAST && procs->calls.texts_are_many != NULL &&
            procs->calls.texts_are_many(procs->arg));
}

void procs_limit_ended(struct procs *procs)
{
    struct proc *proc = procs_after(procs, 0);

    for (; procs_are_many(procs) && proc != NULL; proc = procs_after(procs, proc->number))
        if (may_go(proc))
            hide(proc);
}

static void on_expiry(void *arg)
{
    struct procs *procs = arg;
    uint64_t now = procs_wall_ms();

    proc_alarm_drop(&procs->expiry);
    procs_enter(procs);
    for (struct proc *proc = procs_after(procs, 0); proc != NULL;
         proc = procs_after(procs, proc->number))
        if (may_go(proc) && now > proc->ended_ms && now - proc->ended_ms >= procs->keep_ms)
            hide(proc);
    procs_expect_expiry(procs);
    procs_leave(procs);
}

/* Now and then: nobody waits for it to the second. */
void procs_expect_expiry(struct procs *procs)
{
    uint64_t every = procs->keep_ms / 4;

    if (procs->expiry == NULL && procs->ended > 0 && !procs->is_closed)
        procs->expiry = proc_alarm_set(procs->loop,
                                       every < 10      ? 10
                                       : every > 60000 ? 60000
                                                       : every,
                                       on_expiry, procs);
}

int proc_forget(struct proc *proc, struct error *err)
{
    struct procs *procs = proc->procs;

    if (procs == NULL || proc->is_hidden)
        return error_set(err, "process_not_found", 0, "process %s is no more", proc->id);
    if (!proc->has_ended)
        return error_set(err, "process_running", 0,
                         "process %s runs; kill it before it can be forgotten", proc->id);
    procs_enter(procs);
    proc_record(proc, JOURNAL_FORGET);
    hide(proc);
    procs_leave(procs);
    return 0;
}

/* ---- verbs that look ---- */

struct proc *procs_find(struct procs *procs, const char *id)
{
    struct proc *found;
    uint64_t number = 0;

    for (const char *at = id; *at != '\0'; at++) {
        if (*at < '0' || *at > '9' || number > JOURNAL_NUMBER_MAX)
            return NULL;
        number = number * 10 + (uint64_t)(*at - '0');
    }
    if (number == 0 || number > JOURNAL_NUMBER_MAX || *id == '0')
        return NULL;
    found = procs_by_number(procs, (uint32_t)number);
    return found != NULL && !found->is_hidden ? found : NULL;
}

void procs_each(struct procs *procs, bool (*each)(void *arg, struct proc *proc), void *arg)
{
    procs_enter(procs);
    for (struct proc *proc = procs_after(procs, 0); proc != NULL && !procs->is_closed;
         proc = procs_after(procs, proc->number))
        if (!proc->is_hidden && !each(arg, proc))
            break;
    procs_leave(procs);
}

bool proc_is_awaited(const struct proc *proc)
{
    return !proc->has_ended && !proc->input.is_open &&
           (proc->state == PROC_STARTING || proc->awaits_table);
}

void proc_look(const struct proc *proc, struct proc_view *view)
{
    /* After a restart, until init has said what it has. */
    bool may_run = proc->state == PROC_LOST && proc->awaits_table && !proc->has_ended;

    *view = (struct proc_view){
        .id = proc->id,
        .tag = proc->tag,
        .command = proc->command,
        .pid = proc->pid,
        .state = may_run ? PROC_RUNNING : proc->state,
        .timed_out = proc->timed_out,
        .oom_killed = proc->oom_killed,
        .exit_code = proc->exit_code,
        .signal = proc->signal,
        .reason = proc->reason[0] != '\0' && !may_run ? proc->reason : NULL,
        .started_ms = proc->started_ms,
        .ended_ms = proc->ended_ms,
        .cpu_ns = proc->cpu_ns,
        .is_awaited = proc_is_awaited(proc),
        .has_terminal = proc->rows > 0,
        .rows = proc->rows,
        .columns = proc->columns,
    };
    if (proc->failure != NULL)
        view->failure = *proc->failure;
    for (int i = 0; i < 2; i++) {
        view->out_bytes[i] = proc->streams[i].log_file.bytes;
        view->out_from[i] = proc->streams[i].log_file.from;
    }
}
