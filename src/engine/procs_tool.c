/* Tools: verbs of ours that run in the box for a request, and are gone with it.
 *
 * No process of a client's: its ids are from a range of their own, init does not hold it, and kills it
 * for the next engine. Its pipes are made here and not by init, so that nobody in the box shares the
 * descriptions of our ends. One that was cancelled stays until its end is heard, so that what runs is
 * counted, and says nothing more. */
#include "engine/procs_parts.h"

#include "base/fd.h"
#include "box/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Above all that the journal gives to processes. */
#define TOOL_ID_FIRST 0x80000000U
/* Two pipes, and as many again while they are on their way. */
#define FDS_LEAST 8

_Static_assert(TOOL_ID_FIRST > JOURNAL_NUMBER_MAX, "no process has the id of a tool");

struct tool {
    struct procs *procs;
    struct tool *next;
    uint32_t id;         /* 0: init was not asked yet */
    struct start *start; /* until it runs */
    int ours[2];         /* of its input and output, until the caller has them */
    int theirs[2];
    bool is_grep, takes_input;
    bool is_silent;  /* nobody hears of it any more */
    bool is_leaving; /* its place is free */
    struct proc_alarm *alarm;
    struct tool_calls calls;
    void *arg;
};

bool tool_is_id(uint32_t id)
{
    return id >= TOOL_ID_FIRST;
}

static struct tool *by_id(const struct procs *procs, uint32_t id)
{
    struct tool *tool = procs->tools;

    while (tool != NULL && tool->id != id)
        tool = tool->next;
    return tool;
}

static uint32_t next_id(struct procs *procs)
{
    uint32_t id;

    do
        id = TOOL_ID_FIRST | procs->next_tool++;
    while (by_id(procs, id) != NULL);
    return id;
}

/* ---- ends ---- */

static void close_fds(struct tool *tool)
{
    for (int i = 0; i < 2; i++) {
        fd_close(&tool->ours[i]);
        fd_close(&tool->theirs[i]);
    }
}

static void drop_start(struct tool *tool)
{
    if (tool->start == NULL)
        return;
    if (tool->id == 0)
        start_unlink(tool->start);
    start_free(tool->start);
    tool->start = NULL;
}

static void tool_free(struct tool *tool)
{
    struct procs *procs = tool->procs;

    for (struct tool **at = &procs->tools; *at != NULL; at = &(*at)->next)
        if (*at == tool) {
            *at = tool->next;
            procs->tools_count--;
            procs->tools_leaving -= tool->is_leaving;
            break;
        }
    proc_alarm_drop(&tool->alarm);
    drop_start(tool);
    close_fds(tool);
    free(tool);
}

/* Its last call, unless it is silent. */
static void end(struct tool *tool, bool failed, const struct error *err)
{
    struct procs *procs = tool->procs;
    struct tool_calls calls = tool->calls;
    struct error why = err != NULL ? *err : (struct error){0};
    bool is_silent = tool->is_silent;
    void *arg = tool->arg;

    procs_enter(procs);
    tool_free(tool);
    if (!is_silent)
        calls.ended(arg, failed, err != NULL ? &why : NULL);
    procs_leave(procs);
}

/* Killed; what it takes until its end is heard is nobody's business. */
static void silence(struct tool *tool)
{
    struct error ignored;

    tool_leave(tool);
    tool->is_silent = true;
    if (tool->id == 0 || tool->procs->link == NULL) {
        end(tool, true, NULL);
        return;
    }
    (void)link_kill(tool->procs->link, tool->id, &ignored);
    proc_alarm_drop(&tool->alarm);
    if (tool->start != NULL)
        proc_alarm_drop(&tool->start->alarm);
    close_fds(tool);
}

/* Its caller is told, whenever it ends. */
static void give_up(struct tool *tool, const struct error *err)
{
    struct procs *procs = tool->procs;
    struct tool_calls calls = tool->calls;
    void *arg = tool->arg;

    procs_enter(procs);
    silence(tool);
    calls.ended(arg, false, err);
    procs_leave(procs);
}

static void on_timeout(void *arg)
{
    static const struct error late = {
        .code = "timeout", .text = "the request took too long in the sandbox, and was ended"};

    give_up(arg, &late);
}

/* Init has not started it. */
static void on_no_answer(void *arg)
{
    struct start *start = arg;
    struct error err;

    start_say_late(start, &err);
    give_up(start->tool, &err);
}

/* ---- asking ---- */

static int open_pipes(struct tool *tool, struct error *err)
{
    int input[2], output[2];

    if (!fd_are_left(FDS_LEAST) || pipe2(input, O_CLOEXEC) < 0)
        return error_set(err, "capacity", EMFILE,
                         "the engine can open no files for the request now");
    tool->theirs[0] = input[0];
    tool->ours[0] = input[1];
    if (pipe2(output, O_CLOEXEC) < 0)
        return error_set(err, "capacity", errno,
                         "the engine can open no files for the request now");
    tool->ours[1] = output[0];
    tool->theirs[1] = output[1];
    for (int i = 0; i < 2; i++)
        if (fcntl(tool->ours[i], F_SETFL, O_NONBLOCK) < 0)
            return error_set(err, "capacity", errno, "cannot prepare the request");
    if (!tool->takes_input)
        fd_close(&tool->ours[0]);
    return 0;
}

/* What a link says, as procs.h says it. */
static void translate(struct error *err)
{
    static const char *const codes[][2] = {{"outdated", "sandbox_outdated"},
                                           {"busy", "capacity"},
                                           {"no_fds", "capacity"},
                                           {"box_gone", "sandbox_stopped"}};

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(err->code, codes[i][0]) == 0) {
            (void)snprintf(err->code, sizeof(err->code), "%s", codes[i][1]);
            return;
        }
}

static int ask(struct tool *tool, struct error *err)
{
    static const char *const no_env[] = {NULL};
    struct procs *procs = tool->procs;
    struct start *start = tool->start;
    /* Its stderr is the end of a pipe that takes no writes: what a tool has to say it says in frames. */
    struct link_command command = {
        .argv = start->argv,
        .env = no_env,
        .cwd = start_cwd(start),
        .user = start_user(start),
        .stdio = LINK_GIVEN,
        .fds = {tool->theirs[0], tool->theirs[1], tool->theirs[0]},
        .program = procs->programs[tool->is_grep ? TOOL_PROGRAM_GREP : TOOL_PROGRAM_TOOL],
        .is_brief = true,
    };

    if (link_exec(procs->link, tool->id, &command, err) == 0)
        return 0;
    translate(err);
    return -1;
}

static int send_it(struct tool *tool, struct error *err)
{
    if (open_pipes(tool, err) < 0)
        return -1;
    tool->id = next_id(tool->procs);
    return ask(tool, err);
}

void tool_known(struct tool *tool, const struct error *err)
{
    struct error why;

    start_unlink(tool->start);
    if (err != NULL)
        why = *err;
    else if (send_it(tool, &why) == 0)
        return;
    end(tool, false, &why);
}

/* ---- answers ---- */

static void started(struct tool *tool)
{
    struct error ignored;
    int input = fd_take(&tool->ours[0]), output = fd_take(&tool->ours[1]);

    drop_start(tool);
    close_fds(tool);
    if (tool->is_silent)
        (void)link_kill(tool->procs->link, tool->id, &ignored);
    else
        tool->calls.started(tool->arg, input, output);
}

static void refused(struct tool *tool, enum box_step step, int errnum)
{
    struct start *start = tool->start;
    struct error err;

    if (step == BOX_STEP_CWD && start->cwd == NULL && tool->procs->cwd == NULL && !start->at_root &&
        !tool->is_silent) {
        start->at_root = true; /* a home that is not there */
        if (ask(tool, &err) == 0)
            return;
    } else {
        start_say_refused(start, step, errnum, &err);
    }
    end(tool, false, &err);
}

static void exited(struct tool *tool, int status)
{
    struct error err;

    if (tool->start == NULL && WIFEXITED(status) && WEXITSTATUS(status) <= 1) {
        end(tool, WEXITSTATUS(status) == 1, NULL);
        return;
    }
    if (WIFSIGNALED(status))
        (void)error_set(&err, "tool_killed", 0,
                        "what did the request in the sandbox was killed there by signal %d; is the "
                        "sandbox short of memory?",
                        WTERMSIG(status));
    else
        (void)error_set(&err, "tool_killed", 0,
                        "what did the request in the sandbox ended with status %d; try again",
                        WEXITSTATUS(status));
    end(tool, false, &err);
}

void tool_event(struct procs *procs, struct link_event *event)
{
    struct tool *tool = by_id(procs, event->id);
    bool runs = tool != NULL && (tool->start == NULL);

    if (tool == NULL)
        return;
    if (event->kind == LINK_EXITED)
        exited(tool, event->status);
    else if (event->kind == LINK_STARTED && !runs)
        started(tool);
    else if (event->kind == LINK_REFUSED && !runs)
        refused(tool, event->step, event->errnum);
}

void tools_lose(struct procs *procs, const char *code, const char *text)
{
    struct tool *tool = procs->tools;
    struct error err;

    (void)error_set(&err, code, 0, "%s", text);
    while (tool != NULL) {
        if (tool->id == 0) { /* it waits for its user still */
            tool = tool->next;
            continue;
        }
        end(tool, false, &err);
        tool = procs->tools; /* that may have ended others */
    }
}

/* ---- the verbs ---- */

static int check(const struct procs *procs, const struct tool_spec *spec, struct error *err)
{
    if (procs->programs == NULL ||
        procs->programs[spec->is_grep ? TOOL_PROGRAM_GREP : TOOL_PROGRAM_TOOL] < 0)
        return error_set(err, "not_supported", 0, "this engine was built without its tools");
    if (procs->is_closed)
        return error_set(err, "sandbox_stopped", 0, "the sandbox was closed");
    if (procs_link_check(procs, err) < 0)
        return -1;
    /* Those that were killed go in a moment; only where they do not, they count. */
    if (procs_tools(procs) >= PROCS_TOOLS_MAX || procs->tools_count >= (size_t)2 * PROCS_TOOLS_MAX)
        return error_set(err, "capacity", 0,
                         "%d requests work in the sandbox; try again when one of them is done",
                         PROCS_TOOLS_MAX);
    return 0;
}

static struct start *make_start(struct procs *procs, const struct tool_spec *spec,
                                struct error *err)
{
    struct proc_spec command = {.user = spec->user, .cwd = spec->cwd};
    _cleanup_free_ const char **argv = NULL;
    struct start *start;
    size_t count = 0;

    while (spec->argv[count] != NULL)
        count++;
    argv = calloc(count + 2, sizeof(*argv));
    if (argv == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot prepare the request");
        return NULL;
    }
    argv[0] = spec->is_grep ? "cove-grep" : "cove-tool";
    memcpy(argv + 1, spec->argv, count * sizeof(*argv));
    command.argv = argv;
    start = start_new(procs, &command, on_no_answer, err);
    return start;
}

struct tool *procs_tool(struct procs *procs, const struct tool_spec *spec,
                        const struct tool_calls *calls, void *arg, struct error *err)
{
    struct tool *tool;
    int known;

    if (check(procs, spec, err) < 0)
        return NULL;
    tool = calloc(1, sizeof(*tool));
    if (tool == NULL) {
        (void)error_set(err, "no_memory", ENOMEM, "cannot prepare the request");
        return NULL;
    }
    *tool = (struct tool){.procs = procs,
                          .ours = {-1, -1},
                          .theirs = {-1, -1},
                          .is_grep = spec->is_grep,
                          .takes_input = spec->takes_input,
                          .calls = *calls,
                          .arg = arg,
                          .next = procs->tools};
    procs->tools = tool;
    procs->tools_count++;
    tool->start = make_start(procs, spec, err);
    if (tool->start == NULL) {
        tool_free(tool);
        return NULL;
    }
    tool->start->tool = tool;
    known = user_want(tool->start, err);
    if (known < 0 || (known > 0 && send_it(tool, err) < 0)) {
        tool_free(tool);
        return NULL;
    }
    if (known == 0)
        start_wait(tool->start);
    if (spec->timeout_ms > 0)
        tool->alarm = proc_alarm_set(procs->loop, spec->timeout_ms, on_timeout, tool);
    return tool;
}

size_t procs_tools(const struct procs *procs)
{
    return procs->tools_count - procs->tools_leaving;
}

void tool_leave(struct tool *tool)
{
    tool->procs->tools_leaving += !tool->is_leaving;
    tool->is_leaving = true;
}

void tool_cancel(struct tool *tool)
{
    silence(tool);
}
