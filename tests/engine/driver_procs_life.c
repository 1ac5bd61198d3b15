/* Scenarios of driver_procs.c: engines that are killed or closed, boxes that die, many and fast. */
#include "driver_procs.h"

#include "box/proto.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- restarts ---- */

#define ROUNDS 400
static const char long_line[] =
    "i=0; while [ $i -lt 400 ]; do i=$((i+1)); seq $((i*10000)) $((i*10000+5000)); "
    "echo $i >&2; sleep 0.01; done; exit 7";

static pid_t worker_begin(int *to, bool anew)
{
    int pipes[2];
    pid_t pid;

    if (pipe2(pipes, O_CLOEXEC) < 0)
        abort();
    pid = fork();
    if (pid != 0) {
        (void)close(pipes[1]);
        *to = pipes[0];
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(60);
    loop_begin();
    open_procs(0);
    attach(anew);
    *to = pipes[1];
    return 0;
}

/* The first one starts two commands, and turns until it is killed. */
static void worker_first(void)
{
    int to;
    pid_t pid = worker_begin(&to, true);
    char byte;

    if (pid == 0) {
        struct outcome cat;

        (void)start(long_line);
        cat = start_spec(&(struct proc_spec){.shell_line = "cat; exit 9", .has_stdin = true});
        proc_stdin_write(cat.proc, "before ", 7, on_done, &(struct outcome){0});
        (void)run("exit 11");
        (void)!write(to, "x", 1);
        turn_for(600000);
        _exit(0);
    }
    CHECK(read(to, &byte, 1) == 1, "the first worker did not start");
    (void)close(to);
    (void)usleep(30000);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

static void check_after_kills(void)
{
    char *expected = malloc(64 << 20), *text;
    size_t size = 0, errors = 0, got;
    static char numbers[8192];
    struct proc *proc = procs_find(procs, "1"), *cat = procs_find(procs, "2");
    struct proc_view view;
    struct error err;

    for (unsigned i = 1; i <= ROUNDS; i++) {
        size += seq(expected + size, i * 10000, i * 10000 + 5000);
        errors += (size_t)sprintf(numbers + errors, "%u\n", i);
    }
    view = wait_end(proc);
    CHECK(view.state == PROC_EXITED && view.exit_code == 7, "state %d exit %d", view.state,
          view.exit_code);
    got = read_all(proc, PROC_STDOUT, 0, &text);
    CHECK(got == size && memcmp(text, expected, size) == 0, "%zu bytes of %zu", got, size);
    CHECK(prints(proc, PROC_STDERR, numbers), "stderr");
    free(text);
    free(expected);
    proc_stdin_write(cat, "after", 5, on_done, &(struct outcome){0});
    CHECK(proc_stdin_close(cat, &err) == 0, "%s", err.text);
    CHECK(wait_end(cat).exit_code == 9 && prints(cat, PROC_STDOUT, "before after"), "cat");
    proc_look(procs_find(procs, "3"), &view);
    CHECK(view.state == PROC_EXITED && view.exit_code == 11, "what had ended");
}

void killed_engine(void)
{
    int to, status, begun = 0, workers = 0;
    pid_t pid;
    char byte;

    worker_first();
    /* Twenty at any moment; where too few of their commands began, more, once theirs have. */
    for (; workers < 20 || (begun < 10 && workers < 40); workers++) {
        pid = worker_begin(&to, false);
        if (pid == 0) {
            /* Each starts one more, whose end mostly nobody hears. */
            struct outcome outcome = {0};

            procs_start(procs, &(struct proc_spec){.shell_line = "echo x; exit 12"}, on_done,
                        &outcome);
            if (turn_until(&outcome.told) && outcome.err.code[0] == '\0')
                (void)!write(to, "x", 1);
            turn_for(600000);
            _exit(0);
        }
        if (workers >= 20)
            (void)poll(&(struct pollfd){.fd = to, .events = POLLIN}, 1, PATIENCE_MS);
        (void)usleep(10000 + (unsigned)random() % 90000);
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        begun += read(to, &byte, 1) == 1;
        (void)close(to);
    }
    loop_begin();
    open_procs(0);
    attach(false);
    turn_for(100);
    check_after_kills();
    status = 0;
    for (uint32_t i = 4; i < procs->next_number; i++) {
        struct proc *proc = procs_by_number(procs, i);
        struct proc_view view;

        if (proc == NULL)
            continue;
        view = wait_end(proc);
        CHECK(view.state == PROC_EXITED || view.state == PROC_LOST, "%u is in state %d", i,
              view.state);
        if (view.state == PROC_EXITED) {
            status++;
            CHECK(view.exit_code == 12 && prints(proc, PROC_STDOUT, "x\n"), "%u", i);
        }
    }
    CHECK(status >= 10, "only %d of the small ones", status);
    CHECK(procs_running(procs) == 0, "%zu run", procs_running(procs));
    printf("%d of %d small ones ran, the next number is %u\n", status, workers, procs->next_number);
}

void restart_keeps_timeout(void)
{
    struct outcome outcome = start_spec(
        &(struct proc_spec){.shell_line = "echo a; sleep 1000", .timeout_ms = 700});
    char id[PROCS_ID_MAX];
    struct proc_view view;

    (void)strcpy(id, outcome.proc->id);
    turn_for(100);
    procs_close(procs, false);
    open_procs(0);
    attach(false);
    view = wait_end(procs_find(procs, id));
    CHECK(view.timed_out && view.exit_code == 124, "exit %d", view.exit_code);
    outcome.proc = start("true");
    CHECK(atoi(outcome.proc->id) == atoi(id) + 1, "the next is %s", outcome.proc->id);
    (void)wait_end(outcome.proc);
}

/* ---- the end of it all, from within ---- */

static struct {
    bool in_done, in_wait, in_news, in_ended, in_stdin, told;
    unsigned orphans;
    struct proc_follow *follow;
} closing;

static void close_now(bool here)
{
    closing.told = closing.told || here;
    if (here)
        procs_close(procs, false);
}

static void close_in_done(void *arg, struct proc *proc, const struct error *err)
{
    (void)proc;
    (void)err;
    close_now(*(bool *)arg);
}

static void close_in_news(void *arg)
{
    char data[16];
    uint64_t from;
    struct error err;
    ssize_t n = proc_follow_read(closing.follow, PROC_STDOUT, data, sizeof(data), &from, &err);

    (void)arg;
    closing.orphans += n == -2;
    close_now(closing.in_news);
}

static void close_in_ended(void *arg, const struct proc *proc)
{
    (void)arg;
    (void)proc;
    close_now(closing.in_ended);
}

static void start_to_close(void)
{
    static const uint64_t from[2] = {0, 0};
    static bool no;
    struct proc *proc;
    struct outcome first = start_spec(
        &(struct proc_spec){.shell_line = "cat; echo x; exit 3", .has_stdin = true});
    struct error err;

    procs->calls.ended = close_in_ended;
    proc = first.proc;
    (void)proc_wait(proc, 0, close_in_done, &closing.in_wait);
    (void)proc_wait(proc, 0, close_in_done, &no);
    closing.follow = proc_follow(proc, from, close_in_news, NULL);
    procs_start(procs, &(struct proc_spec){.shell_line = "true"}, close_in_done, &closing.in_done);
    procs_start(procs, &(struct proc_spec){.shell_line = "true", .user = "user"}, close_in_done,
                &no);
    if (!closing.told)
        proc_stdin_write(proc, "data", 4, close_in_done, &closing.in_stdin);
    if (!closing.told)
        (void)proc_stdin_close(proc, &err);
}

/* Whatever is called may close everything; nothing is touched after that (the sanitizer looks). */
void closed_in_callbacks(void)
{
    bool *const flags[] = {&closing.in_done, &closing.in_wait, &closing.in_news, &closing.in_ended,
                           &closing.in_stdin};
    struct proc_view view;

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        memset(&closing, 0, sizeof(closing));
        *flags[i] = true;
        start_to_close();
        CHECK(turn_until(&closing.told), "never closed: %zu", i);
        turn_for(20);
        /* Its follower outlives it, and may look. */
        CHECK(closing.orphans > 0, "the follower was not told: %zu", i);
        proc_look(closing.follow->proc, &view);
        CHECK(strcmp(view.command, "cat; echo x; exit 3") == 0, "%s", view.command);
        proc_follow_cancel(closing.follow);
        open_procs(0);
        attach(false);
        turn_for(50);
    }
    for (uint32_t i = 1; i < procs->next_number; i++)
        if (procs_by_number(procs, i) != NULL)
            CHECK(procs_by_number(procs, i)->has_ended ||
                      proc_kill(procs_by_number(procs, i), &(struct error){0}) == 0,
                  "%u", i);
}

/* ---- an init that was taken over ---- */

static int liar = -1; /* our end, as init */
static unsigned started, asked, answered;

static void on_any(void *arg, struct proc *proc, const struct error *err)
{
    (void)proc;
    answered++;
    started += arg != NULL && err == NULL;
}

static void attach_liar(void)
{
    struct error err;
    struct link *link;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        abort();
    fd_close(&liar);
    liar = ends[0];
    if (link_open(ends[1], &link, &err) < 0 || procs_attach(procs, link, random() % 2, &err) < 0)
        die("attach", &err);
}

/* Our end, for a command's stdin or output; what the other end holds is any bytes, or none. */
static int any_pipe(bool to_command)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        abort();
    if (!to_command && random() % 2)
        (void)!write(ends[1], ends, sizeof(ends));
    if (random() % 8 == 0)
        (void)!dup(ends[to_command ? 0 : 1]); /* a daemon */
    (void)close(ends[to_command ? 0 : 1]);
    return ends[to_command ? 1 : 0];
}

static void say_held(uint32_t type, uint32_t id, bool has_ended)
{
    struct proto_held held = {.head = {.type = type, .id = id},
                              .pid = (int32_t)(random() % 100 + 2),
                              .flags = has_ended ? PROTO_HELD_ENDED : 0,
                              .fds = (uint32_t)random() % 8,
                              .status = (int32_t)(has_ended ? random() % 256 << 8 : 0)};
    int fds[3];
    size_t count = 0;

    for (int place = 0; place < 3; place++)
        if ((held.fds & 1U << place) != 0)
            fds[count++] = any_pipe(place == 0);
    (void)proto_send_now(liar, &held, sizeof(held), NULL, 0, fds, count);
    while (count > 0)
        (void)close(fds[--count]);
}

static void say(const void *answer, size_t size)
{
    (void)proto_send_now(liar, answer, size, NULL, 0, NULL, 0);
}

static void say_exited(uint32_t id)
{
    struct proto_exited exited = {.head = {.type = PROTO_EXITED, .id = id},
                                  .status = (int32_t)(random() % 4 == 0 ? 9 : random() % 256 << 8)};

    say(&exited, sizeof(exited));
}

static void say_table(uint32_t id)
{
    struct proto_welcome welcome = {.head = {.type = PROTO_WELCOME, .id = id}, .version = 2};
    struct proto_head table_end = {.type = PROTO_TABLE_END};

    say(&welcome, sizeof(welcome));
    for (long i = random() % 8; i > 0; i--)
        say_held(PROTO_ENTRY,
                 random() % 8 == 0 ? (uint32_t)random()
                                   : procs->next_number - 5 + (uint32_t)(random() % 6),
                 random() % 2);
    say(&table_end, sizeof(table_end));
}

static void say_refused(uint32_t id)
{
    struct proto_refused refused = {.head = {.type = PROTO_REFUSED, .id = id},
                                    .step = (uint32_t)random() % 5 + 1,
                                    .errnum = (int32_t)random() % 40 + 1};

    say(&refused, sizeof(refused));
}

/* Mostly as one should, but for whom and how often is as it comes. */
static void answer(const struct proto_head *request)
{
    struct proto_opened opened = {.head = {.type = PROTO_OPENED, .id = request->id}, .errnum = 2};

    if (request->type == PROTO_OPEN)
        say(&opened, sizeof(opened));
    else if (request->type == PROTO_HELLO)
        say_table(request->id);
    else if (request->type == PROTO_EXEC && random() % 8 == 0)
        say_refused(request->id);
    else if (request->type == PROTO_EXEC)
        say_held(PROTO_BEGUN, random() % 16 == 0 ? request->id + 1 : request->id, false);
    if (request->type == PROTO_KILL || (request->type == PROTO_EXEC && random() % 4 == 0))
        say_exited(random() % 8 == 0 ? request->id - 1 : request->id);
}

static void lie(void)
{
    char heard[65536] __attribute__((aligned(8)));
    uint32_t id = procs->next_number - 4 + (uint32_t)(random() % 6);

    while (recv(liar, heard, sizeof(heard), 0) > 0)
        if (random() % 64 != 0)
            answer((const struct proto_head *)(const void *)heard);
    if (random() % 8 == 0)
        say_exited(id);
    switch (random() % 400) {
    case 0:
        say_held(PROTO_BEGUN, id, true);
        break;
    case 1:
        say_refused(id);
        break;
    case 2:
        say_table(0);
        break;
    default:
        break;
    }
}

static void ask_for_something(void)
{
    struct proc *proc = procs->count > 0 ? procs->list[(size_t)random() % procs->count] : NULL;
    struct proc_spec spec = {.shell_line = "x",
                             .user = random() % 3 == 0 ? "7" : NULL,
                             .has_stdin = random() % 2,
                             .timeout_ms = random() % 4 == 0 ? 1 : 0};
    struct error err;
    char data[64] = "";
    uint64_t from;

    if (random() % 3 == 0) {
        asked++;
        procs_start(procs, &spec, on_any, &asked);
    }
    if (proc == NULL || proc->is_hidden)
        return;
    switch (random() % 6) {
    case 0:
        (void)proc_kill(proc, &err);
        break;
    case 1:
        (void)proc_forget(proc, &err);
        break;
    case 2:
        asked++;
        proc_stdin_write(proc, data, sizeof(data), on_any, NULL);
        break;
    case 3:
        (void)proc_stdin_close(proc, &err);
        break;
    case 4:
        (void)proc_read(proc, PROC_STDOUT, 0, data, sizeof(data), &from, &err);
        break;
    default:
        asked++;
        (void)proc_wait(proc, random() % 2 ? 1 : 0, on_any, NULL);
        break;
    }
}

/* It harms its own box only: nothing hangs, nothing leaks, and what is asked is answered. */
void init_that_lies(void)
{
    long rounds = getenv("COUNT") != NULL ? atol(getenv("COUNT")) : 20000;
    struct proc_view view;

    procs_detach(procs, "stopped");
    for (long i = 0; i < rounds; i++) {
        if (procs->link == NULL)
            attach_liar();
        lie();
        ask_for_something();
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        if (i % 500 == 499)
            procs_detach(procs, "stopped");
        if (i % 3000 == 2999) {
            procs_close(procs, false);
            open_procs(0);
        }
    }
    procs_detach(procs, "stopped");
    CHECK(procs_running(procs) == 0, "%zu run", procs_running(procs));
    for (struct proc *proc = procs_after(procs, 0); proc != NULL;
         proc = procs_after(procs, proc->number)) {
        proc_look(proc, &view);
        CHECK(view.state != PROC_RUNNING && view.state != PROC_STARTING, "%s is in state %d",
              view.id, view.state);
    }
    CHECK(procs->hidden == 0, "%zu hidden", procs->hidden);
    CHECK(started > (unsigned)rounds / 100, "only %u started", started);
    CHECK(procs->next_number < 10 * (uint32_t)rounds, "init used up the numbers");
    procs_close(procs, false);
    open_procs(0);
    CHECK(answered == asked, "%u of %u were answered", answered, asked);
    printf("%u of %u started, %u boxes ended\n", started, procs->next_number, gone);
    fd_close(&liar);
}

/* ---- the rest ---- */

void box_dies(void)
{
    struct proc *proc = start("echo said; sleep 1000"), *done = start("exit 3");
    struct outcome outcome = {0};
    struct proc_view view;
    bool is_gone;

    (void)wait_end(done);
    CHECK(proc_wait(proc, 0, on_done, &outcome) != NULL, "no memory");
    turn_until_printed(proc, PROC_STDOUT, strlen("said\n"));
    (void)pidfd_send_signal(box->pidfd, SIGKILL, NULL, 0);
    CHECK(turn_until(&outcome.told), "nobody heard of it");
    is_gone = gone == 1;
    CHECK(is_gone, "%u times gone", gone);
    proc_look(proc, &view);
    CHECK(view.state == PROC_LOST && strcmp(view.reason, "box_failed") == 0, "state %d %s",
          view.state, view.reason);
    CHECK(prints(proc, PROC_STDOUT, "said\n"), "its output");
    outcome = start_spec(&(struct proc_spec){.shell_line = "true"});
    CHECK(strcmp(outcome.err.code, "sandbox_stopped") == 0, "%s", outcome.err.code);
    procs_close(procs, false);
    open_procs(0);
    proc_look(procs_find(procs, "1"), &view);
    CHECK(view.state == PROC_LOST && strcmp(view.reason, "box_failed") == 0, "after a restart");
    proc_look(procs_find(procs, "2"), &view);
    CHECK(view.state == PROC_EXITED && view.exit_code == 3, "after a restart");
}

/* Turns the loop until it is; false if that takes too long. */
static bool is_forgotten(const char *id)
{
    uint64_t until = procs_monotonic_ms() + PATIENCE_MS;

    while (procs_find(procs, id) != NULL && procs_monotonic_ms() < until)
        turn_for(10);
    return procs_find(procs, id) == NULL;
}

void ended_are_forgotten(void)
{
    struct proc *proc = start("echo x; (until test -e /tmp/go; do sleep 0.1; done; echo y) &");

    (void)wait_end(proc);
    (void)run("echo z");
    CHECK(is_forgotten("2"), "the second is still known");
    turn_for(300);
    CHECK(procs_find(procs, "1") != NULL, "one with a daemon went");
    (void)run("touch /tmp/go");
    CHECK(is_forgotten("1"), "the first is still known");
    CHECK(files() == 1, "%zu files", files());
    procs_close(procs, true);
    CHECK(files() == 0, "%zu files", files());
    open_procs(0);
}

void many_ended(void)
{
    static const char *const argv[] = {"/bin/echo", "x", NULL};
    struct outcome outcome;

    for (int i = 0; i < 1100; i++) {
        outcome = start_spec(&(struct proc_spec){.argv = argv});
        (void)wait_end(outcome.proc);
    }
    turn_for(50);
    CHECK(procs->ended == 1000 && procs->count == 1000, "%zu, %zu", procs->ended, procs->count);
    CHECK(files() == 1001, "%zu files", files());
    procs_close(procs, false);
    open_procs(0);
    CHECK(procs->ended == 1000 && procs->next_number == 1101, "%zu, next %u", procs->ended,
          procs->next_number);
}

void floods_starve_nobody(void)
{
    struct proc *floods[4];
    uint64_t worst = 0;
    struct error err;

    for (int i = 0; i < 4; i++)
        floods[i] = start_spec(
                        &(struct proc_spec){.shell_line = "cat /dev/zero", .log_bytes = 4 << 20})
                        .proc;
    turn_for(200);
    for (int i = 0; i < 50; i++) {
        uint64_t before = procs_monotonic_ms(), took;

        CHECK(run("true").exit_code == 0, "true");
        took = procs_monotonic_ms() - before;
        worst = took > worst ? took : worst;
    }
    printf("beside four floods the slowest of 50 took %llu ms\n", (unsigned long long)worst);
    CHECK(worst < 10000, "%llu ms", (unsigned long long)worst);
    for (int i = 0; i < 4; i++) {
        struct proc_view view;

        CHECK(proc_kill(floods[i], &err) == 0, "%s", err.text);
        view = wait_end(floods[i]);
        CHECK(view.out_bytes[0] > 4 << 20, "flood %d moved %llu", i,
              (unsigned long long)view.out_bytes[0]);
    }
}

static struct {
    unsigned left, answered;
    struct timespec begun;
    double took[5000];
} speed;

static void next_true(void);

static void on_true_end(void *arg, struct proc *proc, const struct error *err)
{
    struct timespec now;

    (void)arg;
    (void)proc;
    (void)err;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    speed.took[speed.answered++] = (double)(now.tv_sec - speed.begun.tv_sec) * 1e6 +
                                   (double)(now.tv_nsec - speed.begun.tv_nsec) / 1e3;
    if (speed.left > 0)
        next_true();
}

static void on_true_start(void *arg, struct proc *proc, const struct error *err)
{
    (void)arg;
    if (err != NULL)
        die("true", err);
    (void)proc_wait(proc, 0, on_true_end, NULL);
}

static void next_true(void)
{
    static const char *const argv[] = {"/bin/true", NULL};

    speed.left--;
    (void)clock_gettime(CLOCK_MONOTONIC, &speed.begun);
    procs_start(procs, &(struct proc_spec){.argv = argv, .timeout_ms = 300000}, on_true_start,
                NULL);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* Not a benchmark: says what it takes, and that it ends. */
void true_after_true(void)
{
    unsigned count = getenv("COUNT") != NULL ? (unsigned)atoi(getenv("COUNT")) : 1000;

    (void)run("true");
    speed.left = count;
    next_true();
    while (speed.answered < count)
        (void)uv_run(&loop, UV_RUN_ONCE);
    qsort(speed.took, count, sizeof(double), compare);
    printf("true: p50 %.0f us, p99 %.0f us\n", speed.took[count / 2], speed.took[count * 99 / 100]);
    CHECK(speed.took[count / 2] < 50000, "slow");
}
