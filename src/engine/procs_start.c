/* Starting a command: who runs it, what it is given, and what is tried again.
 *
 * It becomes a process, with a number and a line in the journal, when init is asked for it and not
 * before: numbers rise in the order in which init hears them. A shell line is bash's where the box
 * has one, which is found out by trying; a home that is not there is "/", as login(1) has it. */
#include "engine/procs_parts.h"

#include "base/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_ENV 6
/* Of a command: its pipes, its output, and the journal if it is the first. */
#define FDS_LEAST 8

/* ---- copies ---- */

static size_t list_size(const char *const *list, size_t *count)
{
    size_t size = 0;

    for (*count = 0; list != NULL && list[*count] != NULL; ++*count)
        size += strlen(list[*count]) + 1;
    return size;
}

static char *put(char **at, const char *text)
{
    char *to = *at;
    size_t size = strlen(text) + 1;

    memcpy(to, text, size);
    *at += size;
    return to;
}

static char *put_if(char **at, const char *text)
{
    return text != NULL ? put(at, text) : NULL;
}

static size_t size_of(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

/* All texts of a spec in one block: pointers first. */
static int copy_spec(struct start *start, const struct proc_spec *spec)
{
    const char *const line[] = {"/bin/bash", "-c", spec->shell_line, NULL};
    const char *const *argv = spec->shell_line != NULL ? line : spec->argv;
    size_t argc, envc;
    size_t size = list_size(argv, &argc) + list_size(spec->env, &envc) + size_of(spec->cwd) +
                  size_of(spec->user) + size_of(spec->tag);
    char *at = malloc((argc + envc + 2) * sizeof(char *) + size);

    if (at == NULL)
        return -1;
    start->block = at;
    start->argv = (const char **)(void *)at;
    start->env = start->argv + argc + 1;
    at += (argc + envc + 2) * sizeof(char *);
    for (size_t i = 0; i < argc; i++)
        start->argv[i] = put(&at, argv[i]);
    start->argv[argc] = NULL;
    for (size_t i = 0; i < envc; i++)
        start->env[i] = put(&at, spec->env[i]);
    start->env[envc] = NULL;
    start->cwd = put_if(&at, spec->cwd);
    start->user = put_if(&at, spec->user);
    start->tag = put_if(&at, spec->tag);
    start->is_shell = start->with_bash = spec->shell_line != NULL;
    return 0;
}

void start_free(struct start *start)
{
    proc_alarm_drop(&start->alarm);
    for (int i = 0; i < 2; i++)
        free(start->accounts.texts[i]);
    free(start->block);
    free(start);
}

void start_wait(struct start *start)
{
    struct start **last = &start->procs->starts;

    while (*last != NULL)
        last = &(*last)->next;
    *last = start;
    start->procs->waiting_starts++;
}

void start_unlink(struct start *start)
{
    struct procs *procs = start->procs;

    for (struct start **at = &procs->starts; *at != NULL; at = &(*at)->next)
        if (*at == start) {
            *at = start->next;
            procs->waiting_starts--;
            break;
        }
}

/* ---- for people ---- */

static bool is_plain(const char *word)
{
    return *word != '\0' && word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "0123456789%+,-./:=@_")] == '\0';
}

/* The words as a shell would take them, near enough to be read; cut where it is long. */
static char *command_text(const struct start *start)
{
    char text[JOURNAL_COMMAND_MAX], clean[JOURNAL_COMMAND_MAX];
    size_t used = 0;

    if (start->is_shell) {
        journal_text_clean(clean, sizeof(clean), start->argv[2], true);
        return strdup(clean);
    }
    text[0] = '\0';
    for (const char *const *word = start->argv; *word != NULL && used < sizeof(text) - 1; word++) {
        int n = snprintf(text + used, sizeof(text) - used, "%s%s%s%s", used > 0 ? " " : "",
                         is_plain(*word) ? "" : "'", *word, is_plain(*word) ? "" : "'");

        used += n > 0 ? (size_t)n : 0;
    }
    journal_text_clean(clean, sizeof(clean), text, true);
    return strdup(clean);
}

/* ---- its environment ---- */

static bool names(const char *const *list, const char *pair)
{
    size_t key = strcspn(pair, "=") + 1;

    for (; list != NULL && *list != NULL; list++)
        if (strncmp(*list, pair, key) == 0)
            return true;
    return false;
}

struct environment {
    char own[OWN_ENV][320];
    const char **list;
};

static void fill_own(struct environment *environment, const struct box_user *user)
{
    char name[80];

    if (user->name[0] != '\0')
        (void)snprintf(name, sizeof(name), "%s", user->name);
    else
        (void)snprintf(name, sizeof(name), "%u", (unsigned)user->uid);
    (void)snprintf(environment->own[0], sizeof(environment->own[0]),
                   "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    (void)snprintf(environment->own[1], sizeof(environment->own[1]), "HOME=%s", user->home);
    (void)snprintf(environment->own[2], sizeof(environment->own[2]), "USER=%s", name);
    (void)snprintf(environment->own[3], sizeof(environment->own[3]), "LOGNAME=%s", name);
    (void)snprintf(environment->own[4], sizeof(environment->own[4]), "SHELL=%s", user->shell);
    (void)snprintf(environment->own[5], sizeof(environment->own[5]), "LANG=C.UTF-8");
}

/* The command's own, over the sandbox's, over what every command has. */
static int make_environment(const struct start *start, struct environment *environment)
{
    const char *const *sandbox = (const char *const *)start->procs->env;
    const char *const *command = (const char *const *)start->env;
    size_t count = OWN_ENV + 1, of_sandbox, of_command;

    (void)list_size(sandbox, &of_sandbox);
    (void)list_size(command, &of_command);
    environment->list = calloc(count + of_sandbox + of_command, sizeof(char *));
    if (environment->list == NULL)
        return -1;
    fill_own(environment, &start->as);
    count = 0;
    for (size_t i = 0; i < OWN_ENV; i++)
        if (!names(sandbox, environment->own[i]) && !names(command, environment->own[i]))
            environment->list[count++] = environment->own[i];
    for (size_t i = 0; i < of_sandbox; i++)
        if (!names(command, sandbox[i]))
            environment->list[count++] = sandbox[i];
    for (size_t i = 0; i < of_command; i++)
        environment->list[count++] = command[i];
    return 0;
}

/* ---- asking init ---- */

const char *start_cwd(const struct start *start)
{
    const char *cwd = start->cwd != NULL ? start->cwd : start->procs->cwd;

    return cwd != NULL ? cwd : start->at_root || start->as.home[0] != '/' ? "/" : start->as.home;
}

const struct box_user *start_user(struct start *start)
{
    const struct procs *procs = start->procs;

    return !procs->is_system || (start->is_default && procs->user == NULL) ? NULL : &start->as;
}

static int ask_init(struct start *start, struct error *err)
{
    struct procs *procs = start->procs;
    struct environment environment;
    struct link_command command = {
        .argv = start->argv,
        .cwd = start_cwd(start),
        .user = start_user(start),
        .stdio = LINK_PIPES,
        .no_stdin = !start->has_stdin,
        .limits = start->limits,
    };
    _cleanup_free_ const char **argv = NULL;
    int result;

    if (make_environment(start, &environment) < 0)
        return error_set(err, "no_memory", ENOMEM, "cannot prepare the command");
    if (start->is_shell)
        start->argv[0] = start->with_bash ? "/bin/bash" : "/bin/sh";
    if (start->rows > 0) {
        argv = terminal_argv(start);
        command.argv = argv;
        command.program = procs->programs[TOOL_PROGRAM_TOOL];
    }
    command.env = environment.list;
    if (start->rows > 0 && argv == NULL)
        result = error_set(err, "no_memory", ENOMEM, "cannot prepare the command");
    else
        result = link_exec(procs->link, start->proc->number, &command, err);
    free(environment.list);
    if (result < 0 && strcmp(err->code, "outdated") == 0)
        (void)snprintf(err->code, sizeof(err->code), "sandbox_outdated");
    return result;
}

static struct proc *make_proc(struct start *start, struct error *err)
{
    struct procs *procs = start->procs;
    char tag[PROCS_TAG_MAX + 1];
    struct proc *proc;

    if (procs->next_number >= JOURNAL_NUMBER_MAX) {
        (void)error_set(err, "too_many_processes", 0,
                        "the sandbox has no more numbers for processes; make another one");
        return NULL;
    }
    proc = procs_new(procs, procs->next_number);
    if (proc == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot keep one more process");
        return NULL;
    }
    proc->command = command_text(start);
    if (start->tag != NULL) { /* as it will read after a restart */
        journal_text_clean(tag, sizeof(tag), start->tag, false);
        proc->tag = strdup(tag);
    }
    proc->started_ms = procs_wall_ms();
    proc->until_ms = start->timeout_ms > 0 ? procs_monotonic_ms() + start->timeout_ms : 0;
    proc->log_bytes = start->log_bytes;
    proc->has_stdin = start->has_stdin;
    proc->rows = start->rows;
    proc->columns = start->columns;
    return proc;
}

static void unmake_proc(struct proc *proc)
{
    free(proc->tag);
    free(proc->command);
    free(proc);
}

int start_send(struct start *start, struct error *err)
{
    struct procs *procs = start->procs;
    struct proc *proc = make_proc(start, err);

    if (proc == NULL)
        return -1;
    if (procs->has_no_bash)
        start->with_bash = false;
    if (procs_insert(procs, proc, err) < 0) {
        unmake_proc(proc);
        return -1;
    }
    procs->next_number++;
    start->proc = proc;
    if (proc_record_start(proc, err) < 0 || ask_init(start, err) < 0) {
        proc_record(proc, JOURNAL_FORGET);
        procs_remove(procs, proc);
        start->proc = NULL;
        unmake_proc(proc);
        return -1;
    }
    proc->start = start;
    procs->running++;
    return 0;
}

/* ---- answers ---- */

void start_fail(struct start *start, const struct error *err)
{
    struct proc *proc = start->proc;
    struct procs *procs = start->procs;
    struct error why = *err;

    if (start->tool != NULL) {
        tool_known(start->tool, &why);
        return;
    }
    procs_enter(procs);
    if (proc == NULL) {
        start_unlink(start);
    } else {
        proc->start = NULL;
        if (!procs->is_closed)
            proc_fail(proc, &why);
    }
    start->done(start->arg, procs->is_closed ? NULL : proc, &why);
    start_free(start);
    procs_leave(procs);
}

void start_known(struct start *start, const struct error *err)
{
    struct error why;

    if (start->tool != NULL) {
        tool_known(start->tool, err);
        return;
    }
    if (err != NULL) {
        start_fail(start, err);
        return;
    }
    start_unlink(start);
    if (start_send(start, &why) < 0)
        start_fail(start, &why);
}

void start_runs(struct proc *proc, pid_t pid)
{
    struct procs *procs = proc->procs;
    struct start *start = proc->start;

    proc->start = NULL;
    proc->state = PROC_RUNNING;
    proc->pid = pid;
    proc_time(proc);
    start->done(start->arg, proc, NULL);
    start_free(start);
    if (procs->calls.started != NULL && !procs->is_closed)
        procs->calls.started(procs->arg, proc);
}

/* Init takes a number that was refused again, but none below one that it started since. */
static int renumber(struct proc *proc, struct error *err)
{
    struct procs *procs = proc->procs;

    if (proc->number + 1 == procs->next_number)
        return 0;
    proc_record(proc, JOURNAL_FORGET);
    procs_remove(procs, proc); /* which leaves room for one */
    proc->number = procs->next_number++;
    (void)snprintf(proc->id, sizeof(proc->id), "%u", proc->number);
    for (int i = 0; i < 2; i++)
        log_init(&proc->streams[i].log_file, procs->directory, proc->number, i);
    (void)procs_insert(procs, proc, err);
    return proc_record_start(proc, err);
}

static bool try_again(struct start *start, enum box_step step, int errnum)
{
    if (step == BOX_STEP_CWD && start->cwd == NULL && start->procs->cwd == NULL &&
        !start->at_root) {
        start->at_root = true;
        return true;
    }
    if (step == BOX_STEP_EXEC && errnum == ENOENT && start->is_shell && start->with_bash) {
        start->with_bash = false;
        start->procs->has_no_bash = true;
        return true;
    }
    return false;
}

void start_say_refused(const struct start *start, enum box_step step, int errnum, struct error *err)
{
    const char *cwd = start->cwd != NULL ? start->cwd : start->procs->cwd;

    switch (step) {
    case BOX_STEP_CWD:
        (void)error_set(err, "bad_cwd", errnum,
                        "%.200s: the command cannot start in that directory of the box",
                        cwd != NULL ? cwd : "/");
        return;
    case BOX_STEP_USER:
        (void)error_set(err, "user_not_found", errnum, "the box cannot run commands as %.64s",
                        start->user != NULL ? start->user : "its user");
        return;
    case BOX_STEP_EXEC:
        (void)error_set(err,
                        errnum == ENOENT || errnum == ENOTDIR ? "command_not_found"
                        : errnum == EACCES                    ? "not_executable"
                                                              : "start_failed",
                        errnum, "%.200s: the box cannot execute it; check the name and the file",
                        start->argv[0]);
        return;
    case BOX_STEP_SPAWN:
    case BOX_STEP_TTY:
        break;
    }
    (void)error_set(err, errnum == EAGAIN ? "too_many_processes" : "start_failed", errnum,
                    "the box cannot start %.200s; end something in it and try again",
                    start->argv[0]);
}

void start_refused(struct proc *proc, enum box_step step, int errnum)
{
    struct start *start = proc->start;
    struct error err;

    if (try_again(start, step, errnum)) {
        if (renumber(proc, &err) == 0 && ask_init(start, &err) == 0)
            return;
    } else {
        start_say_refused(start, step, errnum, &err);
    }
    start_fail(start, &err);
}

/* ---- the verb ---- */

/* Ended, but a daemon holds their pipes, which are fds of ours as long. */
static size_t lingering(const struct procs *procs)
{
    size_t count = 0;

    for (size_t i = 0; i < procs->count; i++) {
        const struct proc *proc = procs->list[i];

        count += proc->has_ended &&
                 (proc->streams[0].watched.fd >= 0 || proc->streams[1].watched.fd >= 0);
    }
    return count;
}

static int check(const struct procs *procs, const struct proc_spec *spec, struct error *err)
{
    if (spec->shell_line == NULL &&
        (spec->argv == NULL || spec->argv[0] == NULL || spec->argv[0][0] == '\0'))
        return error_set(err, "bad_request", 0, "there is no command; give argv or a shell line");
    if (spec->tag != NULL && strlen(spec->tag) > PROCS_TAG_MAX)
        return error_set(err, "bad_request", 0, "the tag has more than %d bytes; shorten it",
                         PROCS_TAG_MAX);
    if ((spec->rows == 0) != (spec->columns == 0) || spec->rows > PROCS_TERMINAL_MAX ||
        spec->columns > PROCS_TERMINAL_MAX)
        return error_set(err, "bad_request", 0, "a terminal has 1 to %d rows and columns",
                         PROCS_TERMINAL_MAX);
    if (spec->rows > 0 && (procs->programs == NULL || procs->programs[TOOL_PROGRAM_TOOL] < 0))
        return error_set(err, "not_supported", 0, "this engine was built without terminals");
    if (procs->is_closed)
        return error_set(err, "sandbox_stopped", 0, "the sandbox was closed");
    if (procs_link_check(procs, err) < 0)
        return -1;
    if (!fd_are_left(FDS_LEAST))
        return error_set(err, "capacity", EMFILE,
                         "the engine can open no files for the command now; end something, or "
                         "allow it more (LimitNOFILE=)");
    /* So none takes the last, and a tenant that comes late always finds some: as with places, http/owners.c. */
    if (!fd_are_left(FDS_LEAST + procs->task.share->streams))
        return error_set(err, "capacity", EMFILE,
                         "commands of the tenant have %u pipes open, as many as the engine can "
                         "still open files for all others; end some, or allow it more "
                         "(LimitNOFILE=)",
                         procs->task.share->streams);
    if (procs->running + procs->waiting_starts >= PROCS_RUNNING_MAX)
        return error_set(err, "too_many_processes", 0,
                         "%d commands run in the sandbox; end one before the next",
                         PROCS_RUNNING_MAX);
    if (procs->count >= PROCS_RUNNING_MAX &&
        procs->running + procs->waiting_starts + lingering(procs) >= PROCS_RUNNING_MAX)
        return error_set(err, "too_many_processes", 0,
                         "%d commands of the sandbox run, or left something that holds their "
                         "output open; end some of it before the next",
                         PROCS_RUNNING_MAX);
    return 0;
}

/* Init may be out of processors, stopped, or not ours any more. Should it start the command after all,
 * that is ended when it is heard. */
void start_say_late(const struct start *start, struct error *err)
{
    (void)error_set(err, "sandbox_failed", ETIMEDOUT,
                    "the box has not started the command within %u ms; is it short of processors? "
                    "Try again, or stop the sandbox and start it",
                    start->wait_ms);
}

static void on_no_answer(void *arg)
{
    struct start *start = arg;
    struct procs *procs = start->procs;
    struct error err, ignored;

    if (start->proc != NULL && procs->link != NULL)
        (void)link_kill(procs->link, start->proc->number, &ignored);
    start_say_late(start, &err);
    start_fail(start, &err);
}

static unsigned wait_of(const struct proc_spec *spec)
{
    return spec->timeout_ms > 0 && spec->timeout_ms < PROCS_START_MS - PROCS_GRACE_MS
               ? (unsigned)spec->timeout_ms + PROCS_GRACE_MS
               : PROCS_START_MS;
}

struct start *start_new(struct procs *procs, const struct proc_spec *spec, void (*ring)(void *arg),
                        struct error *err)
{
    struct start *start = calloc(1, sizeof(*start));

    if (start == NULL || copy_spec(start, spec) < 0) {
        free(start);
        (void)error_set(err, "no_memory", ENOMEM, "cannot prepare the command");
        return NULL;
    }
    start->procs = procs;
    start->timeout_ms = spec->timeout_ms;
    start->has_stdin = spec->has_stdin || spec->rows > 0;
    start->rows = spec->rows;
    start->columns = spec->columns;
    start->limits = spec->limits;
    start->log_bytes = spec->log_bytes == 0                ? PROCS_LOG_DEFAULT
                       : spec->log_bytes < PROCS_LOG_LEAST ? PROCS_LOG_LEAST
                                                           : spec->log_bytes;
    if (procs->log_share > 0 && start->log_bytes > procs->log_share)
        start->log_bytes = procs->log_share > PROCS_LOG_LEAST ? procs->log_share : PROCS_LOG_LEAST;
    start->wait_ms = wait_of(spec);
    start->alarm = proc_alarm_set(procs->loop, start->wait_ms, ring, start);
    return start;
}

static int begin(struct procs *procs, const struct proc_spec *spec, procs_done done, void *arg,
                 struct error *err)
{
    struct start *start;
    int known;

    if (check(procs, spec, err) < 0)
        return -1;
    start = start_new(procs, spec, on_no_answer, err);
    if (start == NULL)
        return -1;
    start->done = done;
    start->arg = arg;
    known = user_want(start, err);
    if (known < 0 || (known > 0 && start_send(start, err) < 0)) {
        start_free(start);
        return -1;
    }
    if (known == 0)
        start_wait(start);
    return 0;
}

void procs_start(struct procs *procs, const struct proc_spec *spec, procs_done done, void *arg)
{
    struct error err;

    if (begin(procs, spec, done, arg, &err) < 0)
        done(arg, NULL, &err);
}
