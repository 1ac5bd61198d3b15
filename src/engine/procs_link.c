/* What init says of the processes, and what is asked of it when there is a box.
 *
 * Init may have been taken over: events name numbers that may be nobody's, come twice or in any order.
 * What does not fit is dropped, its fds closed. After a restart, or when we lost a message for want
 * of fds, init is asked for its table, and the table is what holds. */
#include "engine/procs_parts.h"

#include "base/fd.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_EVENTS 64
#define HELLO_AGAIN_MS 100

static void close_fds(struct link_event *event)
{
    for (int i = 0; i < 3; i++)
        fd_close(&event->fds[i]);
}

/* ---- fds ---- */

static void take_fds(struct proc *proc, struct link_event *event)
{
    if (event->is_tty) /* nobody asks for one */
        return;
    for (int i = 0; i < 2; i++)
        if (event->fds[1 + i] >= 0 && proc->streams[i].watched.fd < 0)
            stream_open(&proc->streams[i], fd_take(&event->fds[1 + i]));
    if (event->fds[0] >= 0 && proc->has_stdin && proc->input.watched.fd < 0 && !proc->has_ended)
        stdin_open(proc, fd_take(&event->fds[0]));
}

/* ---- init's table ---- */

static void hello(struct procs *procs);

static void on_hello_again(void *arg)
{
    struct procs *procs = arg;

    proc_alarm_drop(&procs->link_alarm);
    hello(procs);
}

static void hello_later(struct procs *procs)
{
    if (procs->link_alarm == NULL)
        procs->link_alarm = proc_alarm_set(procs->loop, HELLO_AGAIN_MS, on_hello_again, procs);
}

static void hello(struct procs *procs)
{
    struct error ignored;

    if (procs->link == NULL)
        return;
    procs->lost_message = false;
    for (size_t i = 0; i < procs->count; i++)
        procs->list[i]->awaits_table = true;
    if (link_hello(procs->link, &ignored) < 0)
        hello_later(procs);
    else
        tools_lose(procs, "tool_killed",
                   "the engine lost sight of the request, for it could open no more files; try "
                   "again");
}

/* One that we know nothing of was forgotten by us, with a daemon that kept its pipes: they must not
 * break. Anything else is an invention of init's, and does no harm in the same way. */
static struct proc *take_stranger(struct procs *procs, uint32_t number)
{
    struct proc *proc;
    struct error ignored;

    /* Numbers are not init's to use up; a few more than we know of come from a lost journal. */
    if (number == 0 || procs->hidden >= PROCS_HIDDEN_MAX ||
        number >= JOURNAL_NUMBER_MAX - PROCS_HIDDEN_MAX ||
        number > procs->next_number + PROCS_HIDDEN_MAX)
        return NULL;
    proc = procs_new(procs, number);
    if (proc == NULL || procs_insert(procs, proc, &ignored) < 0) {
        free(proc);
        return NULL;
    }
    proc->is_hidden = proc->has_ended = true;
    proc->state = PROC_LOST;
    procs->hidden++;
    if (number >= procs->next_number)
        procs->next_number = number + 1;
    return proc;
}

static void take_entry(struct procs *procs, struct link_event *event)
{
    struct proc *proc = procs_by_number(procs, event->id);
    struct error ignored;

    if (proc == NULL)
        proc = take_stranger(procs, event->id);
    if (proc == NULL) {
        (void)link_ack(procs->link, event->id, &ignored);
        return;
    }
    proc->awaits_table = false;
    procs_dirty(procs, proc);
    if (proc->is_acknowledged) { /* it was not heard */
        (void)link_ack(procs->link, event->id, &ignored);
        return;
    }
    if (!proc->has_ended)
        proc->pid = event->pid;
    take_fds(proc, event);
    if (proc->state == PROC_STARTING)
        start_runs(proc, event->pid);
    else if (!proc->has_ended && proc->state != PROC_RUNNING) {
        proc->state = PROC_RUNNING;
        proc->reason[0] = '\0';
        procs->running++;
        proc_time(proc);
    }
    if (procs->is_closed)
        return;
    if (event->has_ended)
        proc_exited(proc, event->status, event->cpu_ns);
    else if (proc->has_ended && proc->timed_out)
        (void)link_kill(procs->link, event->id, &ignored);
    else
        stdin_settle(proc);
}

static void take_table_end(struct procs *procs)
{
    static const struct error lost = {
        .code = "start_failed", .text = "the box did not hear of the command; start it again"};

    if (procs->lost_message) /* perhaps an entry; the table is asked for again */
        return;
    for (struct proc *proc = procs_after(procs, 0); proc != NULL && !procs->is_closed;
         proc = procs_after(procs, proc->number)) {
        if (!proc->awaits_table)
            continue;
        proc->awaits_table = false;
        if (proc->has_ended || proc->exit_heard)
            continue;
        if (proc->state == PROC_STARTING)
            start_fail(proc->start, &lost);
        else {
            if (proc->state == PROC_LOST)
                procs->running++;
            for (int i = 0; i < 2; i++)
                stream_finish(&proc->streams[i]);
            proc->exit_heard = proc->is_acknowledged = true; /* nothing more will be heard */
            proc_end(proc, PROC_LOST, "not_in_box");
        }
    }
}

/* ---- events ---- */

static void take_started(struct procs *procs, struct link_event *event)
{
    struct proc *proc = procs_by_number(procs, event->id);
    struct error ignored;

    if (proc != NULL && proc->state == PROC_FAILED && !proc->exit_heard)
        (void)link_kill(procs->link, event->id, &ignored); /* nobody waits for it any more */
    if (proc == NULL || proc->state != PROC_STARTING)
        return;
    take_fds(proc, event);
    procs_dirty(procs, proc);
    start_runs(proc, event->pid);
}

static void take_gone(struct procs *procs, const struct error *err)
{
    struct error why = *err;

    procs_link_drop(procs);
    if (procs->calls.gone != NULL)
        procs->calls.gone(procs->arg, &why);
    else
        procs_detach(procs, why.code);
}

static void take_event(struct procs *procs, struct link_event *event)
{
    struct proc *proc = procs_by_number(procs, event->id);

    if (tool_is_id(event->id) && (event->kind == LINK_STARTED || event->kind == LINK_REFUSED ||
                                  event->kind == LINK_EXITED)) {
        tool_event(procs, event);
        close_fds(event);
        return;
    }
    switch (event->kind) {
    case LINK_READY:
        if (procs->calls.ready != NULL)
            procs->calls.ready(procs->arg);
        break;
    case LINK_HELLO:
        break;
    case LINK_ENTRY:
        take_entry(procs, event);
        break;
    case LINK_TABLE_END:
        take_table_end(procs);
        break;
    case LINK_STARTED:
        take_started(procs, event);
        break;
    case LINK_REFUSED:
        if (proc != NULL && proc->state == PROC_STARTING)
            start_refused(proc, event->step, event->errnum);
        break;
    case LINK_EXITED:
        if (proc != NULL && (proc->state == PROC_RUNNING || proc->has_ended))
            proc_exited(proc, event->status, event->cpu_ns);
        break;
    case LINK_OPENED:
        user_opened(procs, event->id, event->fds[0]);
        break;
    case LINK_GONE:
        take_gone(procs, &event->error);
        break;
    }
    close_fds(event);
}

void procs_link_turn(struct procs *procs)
{
    struct link_event event;
    struct error err;
    int got = 0;

    procs->unread_link = false;
    for (int i = 0; i < TURN_EVENTS && procs->link != NULL && !procs->is_closed; i++) {
        got = link_next(procs->link, &event, &err);
        if (got < 0) {
            procs->lost_message = true;
            hello_later(procs);
        }
        if (got <= 0)
            return;
        take_event(procs, &event);
    }
    /* There may be more, which the set need not show. */
    if (procs->link != NULL && !procs->is_closed) {
        procs->unread_link = true;
        procs_soon(procs);
    }
}

void procs_link_act(struct watched *watched, uint32_t events)
{
    struct procs *procs = (struct procs *)(void *)((char *)watched -
                                                   offsetof(struct procs, link_watched));

    (void)events;
    procs_link_turn(procs);
}

/* ---- attach, detach ---- */

int procs_attach(struct procs *procs, struct link *link, bool anew, struct error *err)
{
    if (procs->link != NULL) {
        link_close(link);
        return error_set(err, "already_attached", 0, "the sandbox has a box already");
    }
    procs->has_no_bash = false;
    procs->next_open = 0;
    if (link_watch(link, procs->epoll, &procs->link_watched) < 0) {
        link_close(link);
        return error_set(err, "capacity", errno, "cannot hear the box");
    }
    procs->link_watched.is_set = true;
    procs->link = link;
    procs_enter(procs);
    if (!anew)
        hello(procs);
    user_prefetch(procs);
    /* Some may have been heard, and is in no socket any more. */
    procs->unread_link = true;
    procs_soon(procs);
    procs_leave(procs);
    return 0;
}

void procs_hear(struct procs *procs)
{
    procs_enter(procs);
    if (procs->link != NULL)
        procs_link_turn(procs);
    procs_leave(procs);
}

void procs_link_drop(struct procs *procs)
{
    if (procs->link == NULL)
        return;
    procs->link_watched.is_set = false;
    proc_alarm_drop(&procs->link_alarm);
    link_close(procs->link);
    procs->link = NULL;
    procs->unread_link = false;
    user_forget(procs);
}

int procs_link_check(const struct procs *procs, struct error *err)
{
    if (procs->link != NULL)
        return 0;
    if (procs->refusal.code[0] == '\0')
        return error_set(err, "sandbox_stopped", 0,
                         "the sandbox does not run; start it before its commands");
    *err = procs->refusal;
    return -1;
}

void procs_refuse(struct procs *procs, const struct error *why)
{
    procs->refusal = *why;
    for (size_t i = 0; i < procs->count; i++)
        if (!procs->list[i]->has_ended)
            (void)snprintf(procs->list[i]->reason, sizeof(procs->list[i]->reason), "%s", why->code);
}

static void lose(struct proc *proc, const char *reason)
{
    static const struct error stopped = {.code = "sandbox_stopped",
                                         .text = "the sandbox stopped before the command ran"};

    for (int i = 0; i < 2; i++)
        stream_finish(&proc->streams[i]);
    if (proc->state == PROC_STARTING) {
        start_fail(proc->start, &stopped);
    } else if (!proc->has_ended && proc->exit_heard) {
        proc_check_end(proc);
        procs_oom(proc, false);
    }
    if (proc->has_ended || proc->procs == NULL || proc->is_buried)
        return;
    if (proc->state == PROC_LOST)
        proc->procs->running++;
    if (proc->timed_out) {
        proc->exit_code = PROCS_EXIT_TIMED_OUT;
        proc_end(proc, PROC_EXITED, NULL);
    } else {
        proc_end(proc, PROC_LOST, reason);
    }
}

void procs_detach(struct procs *procs, const char *reason)
{
    static const struct error stopped = {.code = "sandbox_stopped",
                                         .text = "the sandbox stopped before the command ran"};
    bool is_full = strcmp(reason, "disk_exceeded") == 0;

    procs_enter(procs);
    procs->refusal = (struct error){0};
    for (int i = 0; i < PROCS_HIDDEN_MAX / TURN_EVENTS && procs->link != NULL; i++) {
        procs_link_turn(procs);
        if (!procs->unread_link)
            break;
    }
    procs_link_drop(procs);
    /* A write that is sent again would end the sandbox again. */
    tools_lose(
        procs, is_full ? "disk_full" : "sandbox_stopped",
        is_full ? "the sandbox has more on its disk than its limit allows, and was stopped for that"
                : "the sandbox stopped before it was done");
    while (procs->starts != NULL && !procs->is_closed)
        start_fail(procs->starts, &stopped);
    for (struct proc *proc = procs_after(procs, 0); proc != NULL && !procs->is_closed;
         proc = procs_after(procs, proc->number)) {
        lose(proc, reason);
        if (procs->is_closed)
            break;
        proc->exit_heard = proc->is_acknowledged = true; /* the next box knows nothing of it */
        proc_release(proc);
    }
    procs_leave(procs);
}
