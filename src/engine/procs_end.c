/* How a process ends: its exit is heard, its streams are drained of what they held then, it is asked
 * whether memory had run out, it is recorded, and told. Or its time is over: then all it started is
 * killed, and its end is told even where the kernel takes its time to kill.
 *
 * An exit code is what init said, or 124 for a timeout; one that nobody heard is not made up. */
#include "engine/procs_parts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define EXIT_KILLED (128 + SIGKILL) /* as a shell says it of its child */

void proc_acknowledge(struct proc *proc)
{
    struct procs *procs = proc->procs;
    struct error ignored;

    if (!proc->is_acknowledged && proc->exit_heard && (proc->is_recorded || proc->is_hidden) &&
        proc->streams[0].watched.fd < 0 && proc->streams[1].watched.fd < 0) {
        /* Where init takes no more requests just now it says so again to who comes after us. */
        proc->is_acknowledged = true;
        if (procs->link != NULL)
            (void)link_ack(procs->link, proc->number, &ignored);
    }
    proc_release(proc);
}

static void finish(struct proc *proc)
{
    static const struct error gone = {
        .code = "process_ended", .text = "the process has ended; nobody reads its standard input"};
    struct procs *procs = proc->procs;

    proc_alarm_drop(&proc->alarm);
    proc_alarm_drop(&proc->lost);
    proc->has_ended = true;
    proc->ended_ms = procs_wall_ms();
    procs->running--;
    procs->ended++;
    proc_count_texts(proc);
    proc_record_end(proc);
    procs_dirty(procs, proc);
    if (procs->calls.ended != NULL && proc->state != PROC_FAILED)
        procs->calls.ended(procs->arg, proc);
    if (procs->is_closed)
        return;
    procs_limit_ended(procs);
    procs_expect_expiry(procs);
    stdin_end(proc, &gone);
}

void proc_end(struct proc *proc, enum proc_state state, const char *reason)
{
    if (proc->has_ended)
        return;
    proc->state = state;
    (void)snprintf(proc->reason, sizeof(proc->reason), "%s", reason != NULL ? reason : "");
    finish(proc);
}

void proc_fail(struct proc *proc, const struct error *err)
{
    proc->failure = malloc(sizeof(*proc->failure));
    if (proc->failure != NULL)
        *proc->failure = *err;
    proc_end(proc, PROC_FAILED, err->code);
}

/* ---- an exit ---- */

static void conclude(struct proc *proc)
{
    if (proc->timed_out) {
        proc->exit_code = PROCS_EXIT_TIMED_OUT;
        proc->signal = 0;
    }
    proc_end(proc, PROC_EXITED, NULL);
}

static void on_no_answer(void *arg)
{
    struct proc *proc = arg;

    proc_alarm_drop(&proc->alarm);
    procs_oom(proc, false);
}

/* Only a kill that was not ours may be the kernel's for want of memory. */
static bool ask_for_memory(struct proc *proc)
{
    struct procs *procs = proc->procs;

    if (procs->calls.killed == NULL || proc->oom_asked || proc->is_killed || proc->timed_out ||
        (proc->signal != SIGKILL && proc->exit_code != EXIT_KILLED))
        return false;
    proc->oom_asked = proc->asks_oom = true;
    proc_alarm_drop(&proc->alarm);
    proc->alarm = proc_alarm_set(procs->loop, PROCS_OOM_ANSWER_MS, on_no_answer, proc);
    procs->calls.killed(procs->arg, proc);
    return true;
}

void procs_oom(struct proc *proc, bool was_oom)
{
    struct procs *procs = proc->procs;

    if (procs == NULL || !proc->asks_oom)
        return;
    proc->asks_oom = false;
    procs_enter(procs);
    proc->oom_killed = was_oom;
    conclude(proc);
    procs_leave(procs);
}

void proc_check_end(struct proc *proc)
{
    if (proc->has_ended || proc->asks_oom || proc->streams[0].owed > 0 || proc->streams[1].owed > 0)
        return;
    if (!ask_for_memory(proc))
        conclude(proc);
}

/* What the pipes hold now is the command's. Mostly that is little, and done at once. */
static void drain(struct stream *stream)
{
    uint64_t before = stream->log_file.bytes;

    if (stream->watched.fd < 0)
        return;
    stream_turn(stream, PROCS_TURN_BYTES);
    if (stream->watched.fd >= 0 &&
        (stream->is_paused || stream->log_file.bytes - before >= PROCS_TURN_BYTES))
        stream_owe(stream);
}

void proc_exited(struct proc *proc, int status, uint64_t cpu_ns)
{
    if (proc->exit_heard)
        return;
    proc->exit_heard = true;
    proc->cpu_ns = cpu_ns;
    if (proc->has_ended) { /* told already; what is left of it is let go */
        proc_acknowledge(proc);
        return;
    }
    proc->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    proc->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    proc_alarm_drop(&proc->alarm);
    for (int i = 0; i < 2; i++)
        drain(&proc->streams[i]);
    proc_check_end(proc);
}

/* ---- a timeout, a kill ---- */

static void kill_tree(struct proc *proc)
{
    struct error ignored;

    if (proc->procs->link != NULL)
        (void)link_kill(proc->procs->link, proc->number, &ignored);
}

static void on_grace_end(void *arg)
{
    struct proc *proc = arg;
    struct procs *procs = proc->procs;

    proc_alarm_drop(&proc->alarm);
    procs_enter(procs);
    kill_tree(proc);
    for (int i = 0; i < 2; i++)
        drain(&proc->streams[i]);
    conclude(proc);
    procs_leave(procs);
}

static void on_timeout(void *arg)
{
    struct proc *proc = arg;
    struct procs *procs = proc->procs;

    proc_alarm_drop(&proc->alarm);
    procs_enter(procs);
    if (!proc->timed_out)
        proc_record(proc, JOURNAL_TIMEOUT);
    proc->timed_out = true;
    kill_tree(proc);
    proc->alarm = proc_alarm_set(procs->loop, PROCS_GRACE_MS, on_grace_end, proc);
    procs_leave(procs);
}

void proc_time(struct proc *proc)
{
    uint64_t now = procs_monotonic_ms();

    proc_alarm_drop(&proc->alarm);
    if (proc->until_ms > 0 && !proc->has_ended && !proc->exit_heard)
        proc->alarm = proc_alarm_set(
            proc->procs->loop, proc->until_ms > now && !proc->timed_out ? proc->until_ms - now : 0,
            on_timeout, proc);
}

static int check_runs(const struct proc *proc, struct error *err)
{
    if (proc->procs == NULL || proc->is_hidden)
        return error_set(err, "process_not_found", 0, "process %s is no more", proc->id);
    if (proc->has_ended || proc->exit_heard)
        return error_set(err, "process_ended", 0, "process %s has ended", proc->id);
    return procs_link_check(proc->procs, err);
}

int proc_kill(struct proc *proc, struct error *err)
{
    if (check_runs(proc, err) < 0 || link_kill(proc->procs->link, proc->number, err) < 0)
        return -1;
    proc->is_killed = true;
    return 0;
}

int proc_signal(struct proc *proc, int signal_number, struct error *err)
{
    if (signal_number < 1 || signal_number > SIGRTMAX)
        return error_set(err, "bad_request", 0, "there is no signal %d", signal_number);
    if (check_runs(proc, err) < 0 ||
        link_signal(proc->procs->link, proc->number, signal_number, err) < 0)
        return -1;
    if (signal_number == SIGKILL)
        proc->is_killed = true;
    return 0;
}

/* ---- the clients whose it is ---- */

static void on_lost(void *arg)
{
    struct proc *proc = arg;
    struct procs *procs = proc->procs;
    struct error ignored; /* it has just ended */

    proc_alarm_drop(&proc->lost);
    procs_enter(procs);
    if (proc->is_hung_up) {
        (void)proc_kill(proc, &ignored);
    } else {
        proc->is_hung_up = true;
        proc->lost = proc_alarm_set(procs->loop, PROCS_LOST_MS, on_lost, proc);
        (void)proc_signal(proc, SIGHUP, &ignored);
    }
    procs_leave(procs);
}

void proc_client_came(struct proc *proc)
{
    proc->clients++;
    proc->is_hung_up = false;
    proc_alarm_drop(&proc->lost);
}

void proc_client_left(struct proc *proc, bool is_lost)
{
    proc->clients--;
    if (!is_lost || proc->clients > 0 || proc->has_ended || proc->procs == NULL ||
        proc->procs->is_closed)
        return;
    proc->lost = proc_alarm_set(proc->procs->loop, PROCS_LOST_MS, on_lost, proc);
}
