/* Tools: they run, say how they ended, and are gone with whoever asked for them. See driver_procs.c.
 *
 * The verb is `term`, the one that does whatever a test wants; where a test wants more of them than a box has
 * terminals, it is `write`, which waits for its input. */
#include "driver_procs.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct seen {
    struct tool *tool;
    int input, output;
    bool has_started, has_ended, failed, is_bad;
    bool cancels; /* in its `started` */
    struct error err;
};

static void on_started(void *arg, int input, int output)
{
    struct seen *seen = arg;

    CHECK(!seen->has_started && !seen->has_ended, "started at the wrong time");
    seen->input = input;
    seen->output = output;
    seen->has_started = true;
    if (seen->cancels)
        tool_cancel(seen->tool);
}

static void on_ended(void *arg, bool failed, const struct error *err)
{
    struct seen *seen = arg;

    CHECK(!seen->has_ended, "ended twice");
    seen->has_ended = true;
    seen->failed = failed;
    seen->is_bad = err != NULL;
    if (err != NULL)
        seen->err = *err;
}

static const struct tool_calls calls = {.started = on_started, .ended = on_ended};

static void begin_verb(struct seen *seen, const char *what, const struct tool_spec *spec)
{
    struct error err = {0};

    *seen = (struct seen){.input = -1, .output = -1, .cancels = seen->cancels};
    seen->tool = procs_tool(procs, spec, &calls, seen, &err);
    CHECK(seen->tool != NULL, "%s: %s", what, err.text);
    CHECK(!seen->has_started && !seen->has_ended, "a call from within");
}

static void begin(struct seen *seen, const char *line, struct tool_spec spec)
{
    const char *argv[] = {"term", "24", "80", "--shell", "--", line, NULL};

    spec.argv = argv;
    begin_verb(seen, line, &spec);
}

/* It runs until its input ends. */
static void begin_waiting(struct seen *seen)
{
    static const char *const argv[] = {"write", NULL};

    begin_verb(seen, "write", &(struct tool_spec){.argv = argv, .takes_input = true});
}

static void let_go(struct seen *seen)
{
    fd_close(&seen->input);
    fd_close(&seen->output);
}

static struct seen run_tool(const char *line, struct tool_spec spec)
{
    struct seen seen = {0};

    begin(&seen, line, spec);
    CHECK(turn_until(&seen.has_ended), "%s: no end", line);
    return seen;
}

static void expect(const char *line, struct tool_spec spec, const char *code)
{
    struct seen seen = run_tool(line, spec);

    CHECK(seen.is_bad && strcmp(seen.err.code, code) == 0, "%s: %s instead of %s: %s", line,
          seen.err.code, code, seen.err.text);
    let_go(&seen);
}

static bool says(struct seen *seen, const char *expected)
{
    char text[4096] = "";
    size_t used = 0;
    ssize_t n;

    while (used < sizeof(text) - 1 &&
           (n = read(seen->output, text + used, sizeof(text) - 1 - used)) > 0)
        used += (size_t)n;
    let_go(seen);
    if (strcmp(text, expected) != 0)
        printf("said: \"%s\"\n", text);
    return strcmp(text, expected) == 0;
}

/* How many processes of the box have that word in their command line. */
static unsigned alive(const char *word)
{
    char line[200];
    _cleanup_free_ char *text = NULL;
    struct proc *proc;

    (void)snprintf(line, sizeof(line), "pgrep -fc '[%c]%s'; true", word[0], word + 1);
    proc = start(line);
    (void)wait_end(proc);
    (void)read_all(proc, PROC_STDOUT, 0, &text);
    return (unsigned)strtoul(text, NULL, 10);
}

static void until_none(const char *word)
{
    unsigned left = 1;

    for (int i = 0; i < 2000 && left > 0; i++)
        left = alive(word);
    CHECK(left == 0, "%u of %s are left", left, word);
}

void tools(void)
{
    struct seen seen = run_tool("id -un; pwd; tty", (struct tool_spec){0});
    struct proc_view view;

    CHECK(!seen.is_bad && !seen.failed && says(&seen, "root\r\n/root\r\n/dev/pts/0\r\n"), "root");
    seen = run_tool("id -un; exit 1", (struct tool_spec){.user = "nobody", .cwd = "/usr"});
    CHECK(!seen.is_bad && seen.failed && says(&seen, "nobody\r\n"), "nobody");
    /* Nobody may read the program, and so none look into what runs of it. */
    seen = run_tool("cat /proc/$PPID/exe; ls /proc/$PPID/fd", (struct tool_spec){.user = "nobody"});
    CHECK(seen.is_bad && strcmp(seen.err.code, "tool_killed") == 0, "%s", seen.err.code);
    let_go(&seen);
    expect("exit 3", (struct tool_spec){0}, "tool_killed");
    expect("kill -9 $PPID", (struct tool_spec){0}, "tool_killed");
    expect("kill -TERM $$", (struct tool_spec){0}, "tool_killed");
    expect("true", (struct tool_spec){.user = "who"}, "user_not_found");
    expect("true", (struct tool_spec){.cwd = "/none"}, "bad_cwd");
    expect("sleep 777", (struct tool_spec){.timeout_ms = 300}, "timeout");
    until_none("sleep 777");
    /* None of all this is a process, nor has it taken a number of one. */
    view = run("true");
    CHECK(strtoul(view.id, NULL, 10) < 4010 && procs_running(procs) == 0, "id %s", view.id);
}

void tools_cancelled(void)
{
    struct seen seen = {0}, many[PROCS_TOOLS_MAX + 1] = {0};
    const char *argv[] = {"term", "24", "80", "--", "true", NULL};
    struct error err = {0};

    begin(&seen, "true", (struct tool_spec){.user = "nobody"}); /* its user is asked for */
    tool_cancel(seen.tool);
    begin(&seen, "sleep 778", (struct tool_spec){0});
    tool_cancel(seen.tool);
    seen.cancels = true;
    begin(&seen, "sleep 778", (struct tool_spec){0});
    CHECK(turn_until(&seen.has_started), "no start");
    let_go(&seen);
    until_none("sleep 778");
    CHECK(!seen.has_ended && procs->tools == NULL, "one that was cancelled");
    for (int i = 0; i < PROCS_TOOLS_MAX; i++)
        begin_waiting(&many[i]);
    CHECK(procs_tool(procs, &(struct tool_spec){.argv = argv}, &calls, &seen, &err) == NULL &&
              strcmp(err.code, "capacity") == 0,
          "one too many: %s", err.code);
    for (int i = 0; i < PROCS_TOOLS_MAX; i++)
        CHECK(turn_until(&many[i].has_started), "no start");
    /* As their box ends under them. */
    procs_detach(procs, "box_ended");
    for (int i = 0; i < PROCS_TOOLS_MAX; i++) {
        CHECK(many[i].has_ended && many[i].is_bad &&
                  strcmp(many[i].err.code, "sandbox_stopped") == 0,
              "%s", many[i].err.code);
        let_go(&many[i]);
    }
    CHECK(procs->tools == NULL, "some are left");
    CHECK(procs_tool(procs, &(struct tool_spec){.argv = argv}, &calls, &seen, &err) == NULL &&
              strcmp(err.code, "sandbox_stopped") == 0,
          "%s", err.code);
}

/* The box has no room for one more process. */
void tools_without_pids(void)
{
    struct proc *hog = start("for i in $(seq 505); do sleep 1000 & done; wait");
    struct seen seen;

    for (int i = 0; i < 2000 && alive("sleep 1000") < 500; i++)
        turn_for(5);
    seen = run_tool("sleep 0 | sleep 0 | sleep 0 | sleep 0 | sleep 0 | sleep 0 | sleep 0",
                    (struct tool_spec){.timeout_ms = 20000});
    printf("without pids: %s %s\n", seen.err.code, seen.err.text);
    let_go(&seen);
    CHECK(proc_kill(hog, &(struct error){0}) == 0, "kill");
    (void)wait_end(hog);
    until_none("sleep 1000");
    seen = run_tool("true", (struct tool_spec){0});
    CHECK(!seen.is_bad, "%s", seen.err.text);
    let_go(&seen);
}

void tools_of_killed_engine(void)
{
    int ready[2];
    struct seen seen;
    struct proc_view view;
    char byte;
    pid_t pid;

    (void)!pipe(ready);
    for (int round = 0; round < 5; round++) {
        pid = fork();
        if (pid == 0) {
            loop_begin();
            open_procs(0);
            attach(round == 0);
            for (int i = 0; i < 3; i++) {
                begin(&seen, "trap '' HUP; sleep 780; sleep 781", (struct tool_spec){0});
                (void)turn_until(&seen.has_started);
            }
            (void)run("true");
            (void)!write(ready[1], "x", 1);
            turn_for(600000);
            _exit(0);
        }
        CHECK(read(ready[0], &byte, 1) == 1, "no worker");
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    loop_begin();
    open_procs(0);
    attach(false);
    until_none("sleep 78");
    view = run("true");
    CHECK(procs_find(procs, "5") != NULL && strtoul(view.id, NULL, 10) < 2010, "id %s", view.id);
    seen = run_tool("echo still", (struct tool_spec){0});
    CHECK(!seen.is_bad && says(&seen, "still\r\n"), "%s", seen.err.text);
}
