/* Processes and their journal: what is written when, and what is made of it after a restart.
 *
 * A start is on record before the command is asked for, so that no id is ever given twice; an end is
 * on record before init forgets it. Where the disk takes no more, a start is refused, and an end is
 * told to who waits but stays with init until it could be written. */
#include "engine/procs_parts.h"

#include "base/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MS 1000

/* ---- writing ---- */

static void line_of_start(const struct proc *proc, struct journal_line *line)
{
    *line = (struct journal_line){
        .kind = JOURNAL_START,
        .number = proc->number,
        .at_ms = proc->started_ms,
        .until_ms = proc->until_ms,
        .log_bytes = proc->log_bytes,
        .has_stdin = proc->has_stdin,
        .rows = proc->rows,
        .columns = proc->columns,
        .tag = proc->tag,
        .command = proc->command,
    };
}

static void line_of_end(const struct proc *proc, struct journal_line *line)
{
    *line = (struct journal_line){
        .kind = JOURNAL_END,
        .number = proc->number,
        .at_ms = proc->ended_ms,
        .state = proc->state,
        .pid = proc->pid,
        .exit_code = proc->exit_code,
        .signal = proc->signal,
        .timed_out = proc->timed_out,
        .oom_killed = proc->oom_killed,
        .cpu_ns = proc->cpu_ns,
        .code = proc->reason[0] != '\0' ? proc->reason : NULL,
        .text = proc->failure != NULL ? proc->failure->text : NULL,
        .errnum = proc->failure != NULL ? proc->failure->errnum : 0,
    };
}

int proc_record_start(struct proc *proc, struct error *err)
{
    struct journal_line line;

    line_of_start(proc, &line);
    return journal_add(&proc->procs->journal, &line, err);
}

/* What a restart should know, and can do without. */
void proc_record(struct proc *proc, enum journal_kind kind)
{
    struct journal_line line = {.kind = kind, .number = proc->number};
    struct error ignored;

    (void)journal_add(&proc->procs->journal, &line, &ignored);
}

static void on_retry(void *arg)
{
    struct procs *procs = arg;

    proc_alarm_drop(&procs->retry);
    procs_enter(procs);
    procs->journal_owes = false;
    for (struct proc *proc = procs_after(procs, 0); proc != NULL;
         proc = procs_after(procs, proc->number))
        if (proc->has_ended && !proc->is_recorded)
            proc_record_end(proc);
    procs_leave(procs);
}

void proc_record_end(struct proc *proc)
{
    struct procs *procs = proc->procs;
    struct journal_line line;
    struct error ignored;

    line_of_end(proc, &line);
    if (!procs->journal_owes && journal_add(&procs->journal, &line, &ignored) == 0) {
        proc->is_recorded = true;
        proc_acknowledge(proc);
        procs_record_shorten(procs);
        return;
    }
    procs->journal_owes = true;
    if (procs->retry == NULL)
        procs->retry = proc_alarm_set(procs->loop, RETRY_MS, on_retry, procs);
}

/* ---- writing it anew ---- */

struct rewrite {
    struct procs *procs;
    uint32_t number; /* of the last */
    bool began, its_timeout, its_end;
};

static bool next_line(void *arg, struct journal_line *line)
{
    struct rewrite *rewrite = arg;
    struct proc *proc = procs_by_number(rewrite->procs, rewrite->number);

    if (!rewrite->began) {
        rewrite->began = true;
        *line = (struct journal_line){.kind = JOURNAL_NEXT, .number = rewrite->procs->next_number};
        return true;
    }
    if (rewrite->its_timeout || rewrite->its_end) {
        if (rewrite->its_timeout)
            *line = (struct journal_line){.kind = JOURNAL_TIMEOUT, .number = rewrite->number};
        else
            line_of_end(proc, line);
        rewrite->its_end = rewrite->its_timeout && proc->has_ended && proc->is_recorded;
        rewrite->its_timeout = false;
        return true;
    }
    do {
        proc = procs_after(rewrite->procs, rewrite->number);
        if (proc == NULL)
            return false;
        rewrite->number = proc->number;
    } while (proc->is_hidden);
    line_of_start(proc, line);
    rewrite->its_timeout = proc->timed_out;
    rewrite->its_end = !proc->timed_out && proc->has_ended && proc->is_recorded;
    return true;
}

void procs_record_shorten(struct procs *procs)
{
    struct rewrite rewrite = {.procs = procs};
    struct error ignored;

    if (journal_is_stale(&procs->journal))
        (void)journal_rewrite(&procs->journal, next_line, &rewrite, &ignored);
}

/* ---- reading ---- */

static char *copy(const char *text)
{
    return text != NULL ? strdup(text) : NULL;
}

static void take_start(struct procs *procs, const struct journal_line *line)
{
    struct error ignored;
    struct proc *proc;

    /* More than could run at once were not written by us. */
    if (procs_by_number(procs, line->number) != NULL || procs->count - procs->ended > 4096)
        return;
    proc = procs_new(procs, line->number);
    if (proc == NULL)
        return;
    if (procs_insert(procs, proc, &ignored) < 0) {
        free(proc);
        return;
    }
    proc->state = PROC_LOST; /* until it is found */
    (void)memcpy(proc->reason, "unknown", sizeof("unknown"));
    proc->started_ms = line->at_ms;
    proc->until_ms = line->until_ms;
    proc->has_stdin = line->has_stdin;
    proc->rows = line->rows;
    proc->columns = line->columns;
    proc->log_bytes = line->log_bytes < PROCS_LOG_LEAST ? PROCS_LOG_LEAST : line->log_bytes;
    proc->tag = copy(line->tag);
    proc->command = copy(line->command);
}

static void take_failure(struct proc *proc, const struct journal_line *line)
{
    proc->failure = calloc(1, sizeof(*proc->failure));
    if (proc->failure == NULL)
        return;
    (void)error_set(proc->failure, line->code != NULL ? line->code : "unknown", 0, "%s",
                    line->text != NULL ? line->text : "");
    proc->failure->errnum = line->errnum;
}

static void forget(struct procs *procs, struct proc *proc)
{
    for (int i = 0; i < 2; i++) {
        proc->streams[i].log_file.is_made = true; /* if it is not, no harm is done */
        log_remove(&proc->streams[i].log_file);
    }
    proc_count_log(proc, 0);
    proc_uncount_texts(proc);
    if (proc->has_ended)
        procs->ended--;
    procs_remove(procs, proc);
    free(proc->tag);
    free(proc->command);
    free(proc->failure);
    free(proc);
}

static void take_end(struct procs *procs, struct proc *proc, const struct journal_line *line)
{
    if (proc->has_ended)
        return;
    proc->has_ended = proc->is_recorded = true;
    procs->ended++;
    proc->state = line->state;
    proc->ended_ms = line->at_ms;
    proc->pid = line->pid;
    proc->exit_code = line->exit_code;
    proc->signal = line->signal;
    proc->timed_out = line->timed_out;
    proc->oom_killed = line->oom_killed;
    proc->cpu_ns = line->cpu_ns;
    memset(proc->reason, 0, sizeof(proc->reason));
    if (line->code != NULL)
        memcpy(proc->reason, line->code, strlen(line->code));
    if (line->state == PROC_FAILED)
        take_failure(proc, line);
    proc_count_texts(proc);
    if (procs_are_many(procs)) /* in the order of their ends they are not, but nearly */
        for (size_t i = 0; i < procs->count; i++)
            if (procs->list[i]->has_ended) {
                forget(procs, procs->list[i]);
                break;
            }
}

static void take_line(void *arg, const struct journal_line *line)
{
    struct procs *procs = arg;
    struct proc *proc = procs_by_number(procs, line->number);
    uint32_t next = line->kind == JOURNAL_NEXT ? line->number : line->number + 1;

    if (next > procs->next_number)
        procs->next_number = next;
    if (line->kind == JOURNAL_START)
        take_start(procs, line);
    else if (line->kind == JOURNAL_END && proc != NULL)
        take_end(procs, proc, line);
    else if (line->kind == JOURNAL_FORGET && proc != NULL)
        forget(procs, proc);
    else if (line->kind == JOURNAL_TIMEOUT && proc != NULL)
        proc->timed_out = true;
}

/* The number of "N.out" or "N.err"; 0: it is not one of these. */
static uint32_t number_of(const char *name)
{
    uint64_t number = 0;

    for (; *name >= '0' && *name <= '9' && number <= JOURNAL_NUMBER_MAX; name++)
        number = number * 10 + (uint64_t)(*name - '0');
    return (strcmp(name, ".out") == 0 || strcmp(name, ".err") == 0) && number < JOURNAL_NUMBER_MAX
               ? (uint32_t)number
               : 0;
}

/* After a power loss the journal may be older than the output: that is of nobody then, and no other may
 * have its number, lest it be taken for his. */
static void clear_strays(struct procs *procs)
{
    DIR *dir = list_open(procs->directory, ".");
    const struct dirent *entry;
    uint32_t number;

    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        number = number_of(entry->d_name);
        if (number == 0 || procs_by_number(procs, number) != NULL)
            continue;
        (void)unlinkat(procs->directory, entry->d_name, 0);
        if (number >= procs->next_number)
            procs->next_number = number + 1;
    }
    (void)closedir(dir);
}

int procs_recover(struct procs *procs, struct error *err)
{
    uint64_t now = procs_wall_ms();
    uint32_t number = 0;
    struct proc *proc;

    if (journal_open(&procs->journal, procs->directory, take_line, procs, err) < 0)
        return -1;
    clear_strays(procs);
    while ((proc = procs_after(procs, number)) != NULL) {
        number = proc->number;
        if (proc->has_ended && now > proc->ended_ms && now - proc->ended_ms >= procs->keep_ms) {
            forget(procs, proc);
            continue;
        }
        for (int i = 0; i < 2; i++)
            log_recover(&proc->streams[i].log_file);
        proc_count_log(proc, proc_log_bytes(proc));
    }
    procs_expect_expiry(procs);
    return 0;
}
