/* Who reads and who waits. Readers have offsets of their own into files: how slow they are, and how
 * many, is nothing to the command. */
#include "engine/procs_parts.h"

#include <stdlib.h>

/* ---- reading ---- */

/* Closed with all the others, or forgotten. */
static bool is_no_more(const struct proc *proc)
{
    return proc->procs == NULL || proc->procs->is_closed || proc->is_hidden;
}

static bool is_over(const struct proc *proc, enum proc_stream stream)
{
    return is_no_more(proc) ||
           (proc->streams[stream].watched.fd < 0 && proc->state != PROC_STARTING &&
            (proc->has_ended || proc->pid != 0));
}

static void close_unused(struct proc *proc)
{
    if (!proc->has_ended || proc->follows != NULL)
        return;
    for (int i = 0; i < 2; i++)
        if (proc->streams[i].watched.fd < 0)
            log_close(&proc->streams[i].log_file);
}

ssize_t proc_read(struct proc *proc, enum proc_stream stream, uint64_t offset, void *data,
                  size_t size, uint64_t *from, struct error *err)
{
    ssize_t n;

    *from = offset;
    if (is_no_more(proc))
        return error_set(err, "process_not_found", 0, "process %s is no more", proc->id);
    n = log_read(&proc->streams[stream].log_file, offset, data, size, from, err);
    if (proc->procs->busy == 0)
        close_unused(proc);
    return n;
}

/* ---- followers ---- */

struct proc_follow *proc_follow(struct proc *proc, const uint64_t from[2], void (*news)(void *arg),
                                void *arg)
{
    struct proc_follow *follow = calloc(1, sizeof(*follow));

    if (follow == NULL)
        return NULL;
    *follow = (struct proc_follow){
        .proc = proc,
        .next = proc->follows,
        .at = {from[0], from[1]},
        .is_armed = {true, true},
        .awaits = proc_is_awaited(proc),
        .news = news,
        .arg = arg,
    };
    if (proc->follows != NULL)
        proc->follows->previous = follow;
    proc->follows = follow;
    if (proc->procs != NULL)
        procs_dirty(proc->procs, proc);
    return follow;
}

void proc_follow_cancel(struct proc_follow *follow)
{
    struct proc *proc = follow->proc;

    if (proc->next_follow == follow)
        proc->next_follow = follow->next;
    if (follow->previous != NULL)
        follow->previous->next = follow->next;
    else
        proc->follows = follow->next;
    if (follow->next != NULL)
        follow->next->previous = follow->previous;
    free(follow);
    if (proc->follows != NULL)
        return;
    if (proc->procs != NULL && !proc->is_buried && proc->procs->busy == 0)
        close_unused(proc);
    proc_release(proc);
}

ssize_t proc_follow_read(struct proc_follow *follow, enum proc_stream stream, void *data,
                         size_t size, uint64_t *from, struct error *err)
{
    struct proc *proc = follow->proc;
    ssize_t n;

    *from = follow->at[stream];
    if (is_no_more(proc))
        return -2;
    n = log_read(&proc->streams[stream].log_file, follow->at[stream], data, size, from, err);
    if (n < 0)
        return n;
    if (n > 0) {
        follow->at[stream] = *from + (uint64_t)n;
        return n;
    }
    if (is_over(proc, stream))
        return -2;
    follow->is_armed[stream] = true;
    return 0;
}

/* ---- telling ---- */

static bool has_news(struct proc_follow *follow)
{
    const struct proc *proc = follow->proc;
    bool has = false;

    for (int i = 0; i < 2; i++) {
        if (!follow->is_armed[i] || (proc->streams[i].log_file.bytes <= follow->at[i] &&
                                     !is_over(proc, (enum proc_stream)i)))
            continue;
        follow->is_armed[i] = false;
        has = true;
    }
    if (follow->awaits && !proc_is_awaited(proc)) {
        follow->awaits = false;
        has = true;
    }
    if (proc->has_ended && !follow->end_told)
        has = follow->end_told = true;
    return has;
}

static void tell_followers(struct proc *proc, bool all)
{
    struct proc_follow *follow = proc->follows;

    for (; follow != NULL; follow = proc->next_follow) {
        proc->next_follow = follow->next;
        if (has_news(follow) || all)
            follow->news(follow->arg);
    }
}

static void wait_unlink(struct proc_wait *wait)
{
    if (wait->previous != NULL)
        wait->previous->next = wait->next;
    else
        wait->proc->waits = wait->next;
    if (wait->next != NULL)
        wait->next->previous = wait->previous;
    proc_alarm_drop(&wait->alarm);
}

static void end_waits(struct proc *proc, const struct error *err)
{
    struct proc_wait *wait;

    while ((wait = proc->waits) != NULL) {
        procs_done done = wait->done;
        void *arg = wait->arg;

        wait_unlink(wait);
        free(wait);
        done(arg, proc, err);
    }
}

void proc_tell(struct proc *proc)
{
    for (int i = 0; i < 2 && proc->procs != NULL; i++)
        stream_watch(&proc->streams[i]);
    if (proc->has_ended)
        end_waits(proc, NULL);
    tell_followers(proc, false);
    if (proc->procs != NULL && !proc->is_buried) {
        close_unused(proc);
        proc_release(proc);
    }
}

void proc_let_go(struct proc *proc, const struct error *err)
{
    end_waits(proc, err);
    tell_followers(proc, true);
}

/* ---- waiting ---- */

static void on_wait_over(void *arg)
{
    struct proc_wait *wait = arg;
    struct proc *proc = wait->proc;
    struct procs *procs = proc->procs;
    struct error err;

    (void)error_set(&err, "wait_timeout", 0, "process %s still runs", proc->id);
    procs_enter(procs);
    wait_unlink(wait);
    wait->done(wait->arg, proc, &err);
    free(wait);
    procs_leave(procs);
}

struct proc_wait *proc_wait(struct proc *proc, uint64_t timeout_ms, procs_done done, void *arg)
{
    struct proc_wait *wait = proc->procs != NULL ? calloc(1, sizeof(*wait)) : NULL;

    if (wait == NULL)
        return NULL;
    *wait = (struct proc_wait){.proc = proc, .next = proc->waits, .done = done, .arg = arg};
    if (proc->waits != NULL)
        proc->waits->previous = wait;
    proc->waits = wait;
    if (timeout_ms > 0 && !proc->has_ended)
        wait->alarm = proc_alarm_set(proc->procs->loop, timeout_ms, on_wait_over, wait);
    if (proc->has_ended)
        procs_dirty(proc->procs, proc);
    return wait;
}

void proc_wait_cancel(struct proc_wait *wait)
{
    struct proc *proc = wait->proc;

    wait_unlink(wait);
    free(wait);
    proc_release(proc);
}
