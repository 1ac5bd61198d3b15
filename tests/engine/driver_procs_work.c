/* Scenarios of driver_procs.c: output, ends, users, input, readers. */
#include "driver_procs.h"

#include "base/sha256.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- scenarios ---- */

static void check_hash(struct proc *proc, enum proc_stream stream)
{
    _cleanup_free_ char *data = NULL, *sum = NULL;
    size_t size = read_all(proc, stream, 0, &data);
    char text[SHA256_TEXT];
    struct sha256 hash;

    (void)read_all(proc, stream == PROC_STDOUT ? PROC_STDERR : PROC_STDOUT, 0, &sum);
    sha256_begin(&hash);
    sha256_add(&hash, data, size);
    sha256_end(&hash, text);
    CHECK(size == 64 << 20, "%zu bytes", size);
    CHECK(strncmp(text, sum, SHA256_TEXT - 1) == 0, "%s is not %s", text, sum);
}

void exact_bytes(void)
{
    struct proc *out = start("mkfifo /tmp/a; sha256sum </tmp/a >/tmp/b & "
                             "head -c 67108864 /dev/urandom | tee /tmp/a; wait; cat /tmp/b >&2");
    struct proc *err = start("exec 3>&1 1>&2 2>&3; mkfifo /tmp/c; sha256sum </tmp/c >/tmp/d & "
                             "head -c 67108864 /dev/urandom | tee /tmp/c; wait; cat /tmp/d >&2");

    CHECK(wait_end(out).exit_code == 0, "it failed");
    CHECK(wait_end(err).exit_code == 0, "it failed");
    check_hash(out, PROC_STDOUT);
    check_hash(err, PROC_STDERR);
    CHECK(procs_log_bytes(procs) >= 128 << 20 && procs_log_bytes(procs) < 129 << 20, "of the disk");
}

void statuses(void)
{
    static const char *const nothing[] = {"/nowhere/at/all", NULL};
    static const char *const words[] = {"/bin/echo", "two words", "$HOME", NULL};
    static const char *const env[] = {"BOTH=command", "X=y z", NULL};
    _cleanup_free_ char *text = NULL;
    struct outcome outcome;
    struct proc_view view;
    struct proc *proc;

    CHECK(run("exit 0").exit_code == 0, "0");
    CHECK(run("exit 255").exit_code == 255, "255");
    CHECK(ended == 2, "%u ends", ended);
    CHECK(files() == 1, "commands without output have %zu files", files());
    view = run("kill -TERM $$");
    CHECK(view.signal == SIGTERM && view.exit_code == 0, "signal %d", view.signal);
    outcome = start_spec(&(struct proc_spec){.argv = nothing});
    CHECK(strcmp(outcome.err.code, "command_not_found") == 0, "%s", outcome.err.code);
    proc_look(outcome.proc, &view);
    CHECK(view.state == PROC_FAILED && strcmp(view.reason, "command_not_found") == 0, "state");
    outcome = start_spec(&(struct proc_spec){.shell_line = "true", .cwd = "/nowhere"});
    CHECK(strcmp(outcome.err.code, "bad_cwd") == 0, "%s", outcome.err.code);
    outcome = start_spec(&(struct proc_spec){.argv = words, .env = env, .tag = "a\"b\\\n"});
    (void)wait_end(outcome.proc);
    CHECK(prints(outcome.proc, PROC_STDOUT, "two words $HOME\n"), "argv");
    proc_look(outcome.proc, &view);
    CHECK(strcmp(view.tag, "a\"b\\\n") == 0, "tag %s", view.tag);
    CHECK(strcmp(view.command, "/bin/echo 'two words' '$HOME'") == 0, "%s", view.command);
    outcome = start_spec(&(struct proc_spec){
        .shell_line = "echo $OF_SANDBOX $BOTH $X $USER $LOGNAME $HOME; pwd; test -n \"$PATH\"",
        .env = env,
        .cwd = "/usr"});
    CHECK(wait_end(outcome.proc).exit_code == 0, "no PATH");
    CHECK(prints(outcome.proc, PROC_STDOUT, "1 command y z root root /root\n/usr\n"), "env");
    proc = start("echo $BASH_VERSION; echo e >&2; sleep 0.1; kill -STOP $$");
    turn_for(300);
    CHECK(proc_signal(proc, SIGCONT, &outcome.err) == 0, "%s", outcome.err.text);
    /* Again, where it stopped after that one only. */
    for (uint64_t until = procs_monotonic_ms() + PATIENCE_MS;
         !proc->has_ended && procs_monotonic_ms() < until; turn_for(300))
        (void)proc_signal(proc, SIGCONT, &outcome.err);
    CHECK(wait_end(proc).exit_code == 0, "after a signal");
    (void)read_all(proc, PROC_STDOUT, 0, &text);
    CHECK(text[0] >= '4' && text[0] <= '9', "the line is not bash's");
    CHECK(prints(proc, PROC_STDERR, "e\n"), "stderr");
    CHECK(proc_signal(proc, SIGCONT, &outcome.err) < 0 &&
              strcmp(outcome.err.code, "process_ended") == 0,
          "a signal to one that ended");
    CHECK(procs_find(procs, view.id) != NULL && procs_find(procs, "999") == NULL, "find");
    CHECK(procs_running(procs) == 0, "%zu run", procs_running(procs));
}

void out_of_memory(void)
{
    struct proc_view view;

    answers_oom = 1;
    view = run("kill -KILL $$");
    CHECK(view.oom_killed && view.signal == SIGKILL, "the answer is not there");
    CHECK(run("sh -c 'kill -KILL $$'; exit $?").oom_killed, "nor that of a shell's child");
    CHECK(!run("exit 1").oom_killed, "asked of one that was not killed");
    answers_oom = -1; /* whoever should know says nothing */
    view = run("kill -KILL $$");
    CHECK(!view.oom_killed && view.signal == SIGKILL, "without an answer");
}

void users(void)
{
    static const char *const names[][2] = {
        {NULL, "0 0 root /root /root\n"},
        {"user", "1000 1000 user /home/user /home/user\n"},
        {"nobody", "65534 65534 nobody /nonexistent /\n"},
        {"1234", "1234 1234 1234 / /\n"},
        {"user:0", "1000 0 user /home/user /home/user\n"},
    };
    struct outcome outcome;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        outcome = start_spec(&(struct proc_spec){
            .shell_line = "echo $(id -u) $(id -g) $USER $HOME $(pwd)", .user = names[i][0]});
        if (outcome.err.code[0] != '\0')
            die(names[i][0], &outcome.err);
        (void)wait_end(outcome.proc);
        CHECK(prints(outcome.proc, PROC_STDOUT, names[i][1]), "%s", names[i][1]);
    }
    outcome = start_spec(&(struct proc_spec){.shell_line = "true", .user = "who"});
    CHECK(strcmp(outcome.err.code, "user_not_found") == 0, "%s", outcome.err.code);
    CHECK(outcome.proc == NULL, "a process of nobody");
}

/* A root of busybox alone, in which everything can be changed: no bash, users of its own. */
void other_root(void)
{
    struct outcome outcome;
    struct proc *proc = start("echo $HOME; pwd");

    CHECK(wait_end(proc).exit_code == 0, "without bash");
    CHECK(prints(proc, PROC_STDOUT, "/home\n/home\n"), "its home");
    outcome = start_spec(&(struct proc_spec){.shell_line = "id -u; id -g; id -G", .user = "alice"});
    CHECK(outcome.err.code[0] == '\0', "%s", outcome.err.text);
    (void)wait_end(outcome.proc);
    CHECK(prints(outcome.proc, PROC_STDOUT, "77\n78\n78 79\n"), "alice");
    CHECK(run("echo new:x:80:81::/tmp:/bin/sh >>/etc/passwd").exit_code == 0, "a new user");
    outcome = start_spec(&(struct proc_spec){.shell_line = "id -u; pwd", .user = "new:staff"});
    CHECK(outcome.err.code[0] == '\0', "%s", outcome.err.text);
    (void)wait_end(outcome.proc);
    CHECK(prints(outcome.proc, PROC_STDOUT, "80\n/tmp\n"), "new");
}

/* The files that name users become what would hang or never end. */
void hostile_accounts(void)
{
    static const char *const made[] = {
        "rm /etc/passwd",
        "mkfifo /etc/passwd",
        "rm -f /etc/passwd; ln -s /dev/zero /etc/passwd",
        "rm -f /etc/passwd; ln -s /proc/self/environ /etc/passwd",
        "rm -f /etc/passwd; ln -s passwd /etc/passwd",
        "rm -f /etc/passwd; mkdir /etc/passwd",
        "rmdir /etc/passwd; head -c 30000000 /dev/zero | tr '\\0' a >/etc/passwd",
        "head -c 3000000 /dev/zero >/etc/passwd",
    };
    struct outcome outcome;

    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        CHECK(run(made[i]).exit_code == 0, "%s", made[i]);
        outcome = start_spec(&(struct proc_spec){.shell_line = "true", .user = "alice"});
        CHECK(strcmp(outcome.err.code, "user_not_found") == 0, "%s: %s", made[i], outcome.err.text);
        outcome = start_spec(&(struct proc_spec){.shell_line = "true", .user = "77"});
        CHECK(outcome.err.code[0] == '\0' && wait_end(outcome.proc).exit_code == 0, "%s", made[i]);
    }
}

void daemon_keeps_pipe(void)
{
    uint64_t before = procs_monotonic_ms();
    struct proc *proc = start("(until test -e /tmp/go; do sleep 0.1; done; echo late; sleep 0.2; "
                              "echo later >&2) & echo now; exit 3");
    struct outcome outcome;
    struct error err;

    CHECK(wait_end(proc).exit_code == 3, "exit");
    CHECK(procs_monotonic_ms() - before < 15000, "the daemon kept the result back");
    CHECK(prints(proc, PROC_STDOUT, "now\n"), "now");
    CHECK(run("touch /tmp/go").exit_code == 0, "go");
    turn_until_printed(proc, PROC_STDERR, strlen("later\n"));
    CHECK(prints(proc, PROC_STDOUT, "now\nlate\n"), "late");
    CHECK(prints(proc, PROC_STDERR, "later\n"), "later");
    /* One that is forgotten goes on: its pipe does not break. */
    proc = start("(trap '' HUP; for i in 1 2 3 4 5 6; do sleep 0.2; echo x; done; "
                 "touch /tmp/lives) & exit 0");
    (void)wait_end(proc);
    CHECK(proc_forget(proc, &err) == 0, "%s", err.text);
    outcome = start_spec(
        &(struct proc_spec){.shell_line = "until test -e /tmp/lives; do sleep 0.1; done",
                            .timeout_ms = PATIENCE_MS / 2});
    CHECK(wait_end(outcome.proc).exit_code == 0, "it died of its pipe");
    CHECK(files() == 3, "%zu files", files());
}

/* It floods after its parent's end: what came before is in the result, and the result comes. */
void daemon_floods(void)
{
    uint64_t before = procs_monotonic_ms();
    struct proc *proc = start("echo first; yes & sleep 0.3; exit 4");
    struct proc_view view = wait_end(proc);
    struct error err;
    char first[6];
    uint64_t from;

    CHECK(view.exit_code == 4, "exit %d", view.exit_code);
    CHECK(procs_monotonic_ms() - before < 15000, "kept back");
    if (view.out_from[0] == 0)
        CHECK(proc_read(proc, PROC_STDOUT, 0, first, 6, &from, &err) == 6 &&
                  memcmp(first, "first\n", 6) == 0,
              "its beginning");
    CHECK(run("pkill yes").exit_code == 0, "nothing flooded");
}

/* What was killed has still to run for it. */
#define NO_SLEEP "for i in $(seq 100); do pgrep sleep >/dev/null || exit 0; sleep 0.1; done; exit 1"

void timeout_kills_tree(void)
{
    struct outcome outcome = start_spec(&(struct proc_spec){
        .shell_line = "trap '' TERM; (setsid sleep 1000 &) ; echo begun; sleep 1000; sleep 1000",
        .timeout_ms = 2000});
    uint64_t before = procs_monotonic_ms();
    struct proc_view view = wait_end(outcome.proc);

    CHECK(view.timed_out && view.exit_code == 124 && view.signal == 0, "exit %d signal %d",
          view.exit_code, view.signal);
    CHECK(procs_monotonic_ms() - before < 10000, "late");
    CHECK(prints(outcome.proc, PROC_STDOUT, "begun\n"), "the output so far");
    CHECK(run(NO_SLEEP).exit_code == 0, "some of the tree is left");
    outcome = start_spec(
        &(struct proc_spec){.shell_line = "sleep 0.1; exit 5", .timeout_ms = 5000});
    CHECK(wait_end(outcome.proc).exit_code == 5, "in time");
    outcome = start_spec(&(struct proc_spec){.shell_line = "sleep 1000 & sleep 1000"});
    CHECK(proc_kill(outcome.proc, &outcome.err) == 0, "%s", outcome.err.text);
    CHECK(wait_end(outcome.proc).signal == SIGKILL, "killed");
    CHECK(run(NO_SLEEP).exit_code == 0, "some of the tree is left");
}

void gap_beyond_limit(void)
{
    char *expected = malloc(32 << 20), *text;
    size_t size = seq(expected, 1, 3000000), got;
    struct outcome outcome = start_spec(
        &(struct proc_spec){.shell_line = "seq 3000000; echo e >&2", .log_bytes = 1 << 20});
    struct proc_view view = wait_end(outcome.proc);
    char path[256];
    struct stat st;

    CHECK(view.out_bytes[0] == size, "%llu bytes", (unsigned long long)view.out_bytes[0]);
    CHECK(view.out_from[0] > 0 && size - view.out_from[0] <= 1 << 20 &&
              size - view.out_from[0] > 512 << 10,
          "from %llu", (unsigned long long)view.out_from[0]);
    got = read_all(outcome.proc, PROC_STDOUT, view.out_from[0], &text);
    CHECK(got == size - view.out_from[0] && memcmp(text, expected + view.out_from[0], got) == 0,
          "the newest bytes");
    free(text);
    (void)snprintf(path, sizeof(path), "%s/%s.out", directory, view.id);
    CHECK(stat(path, &st) == 0 && st.st_size == (off_t)size && st.st_blocks * 512 < 3 << 19,
          "%lld on the disk", (long long)st.st_blocks * 512);
    /* And so after a restart. */
    procs_close(procs, false);
    open_procs(0);
    attach(false);
    proc_look(procs_find(procs, "1"), &view);
    CHECK(view.out_bytes[0] == size && size - view.out_from[0] == got, "from %llu",
          (unsigned long long)view.out_from[0]);
    free(expected);
}

void shared_limit(void)
{
    const uint64_t share = 4 << 20;
    struct outcome outcome;
    struct proc_view view;
    struct stat st;
    char path[256];
    off_t on_disk = 0;

    procs->log_share = share;
    for (int i = 0; i < 4; i++) {
        outcome = start_spec(
            &(struct proc_spec){.shell_line = "seq 400000", .log_bytes = 1ULL << 40});
        CHECK(outcome.proc->log_bytes == share, "it may have no more than all");
        view = wait_end(outcome.proc);
        CHECK(view.exit_code == 0 && procs_log_bytes(procs) <= share, "%llu bytes",
              (unsigned long long)procs_log_bytes(procs));
    }
    CHECK(procs_log_bytes(procs) > share / 2, "and not much less: %llu",
          (unsigned long long)procs_log_bytes(procs));
    for (int i = 1; i <= 4; i++) {
        (void)snprintf(path, sizeof(path), "%s/%d.out", directory, i);
        on_disk += stat(path, &st) == 0 ? st.st_blocks * 512 : 0;
    }
    CHECK(on_disk <= (off_t)share + (1 << 20), "%lld on the disk", (long long)on_disk);
    CHECK(proc_forget(outcome.proc, &outcome.err) == 0, "%s", outcome.err.text);
    procs_close(procs, false);
    open_procs(0);
    CHECK(procs_log_bytes(procs) > 0 && procs_log_bytes(procs) < share, "counted at a restart");
    attach(false);
}

void disk_full(void)
{
    char *expected = malloc(32 << 20), *text;
    size_t size = seq(expected, 1, 1000000), got;
    struct proc_view view;
    struct proc *proc;

    proc = start("seq 1000000; exit 6");
    view = wait_end(proc);
    CHECK(view.exit_code == 6, "a full disk ended it");
    CHECK(view.out_bytes[0] == size && view.out_from[0] > 0, "%llu of %zu",
          (unsigned long long)view.out_bytes[0], size);
    got = read_all(proc, PROC_STDOUT, view.out_from[0], &text);
    CHECK(got == size - view.out_from[0] && memcmp(text, expected + view.out_from[0], got) == 0,
          "the newest bytes");
    free(text);
    free(expected);
}

/* ---- followers ---- */

struct reader {
    struct proc_follow *follow;
    struct proc *proc;
    struct sha256 hash;
    uint64_t read;
    unsigned news, limit;
    bool over[2], saw_end;
};

static unsigned readers_done;

static void on_news(void *arg)
{
    struct reader *reader = arg;
    char data[8192];
    struct error err;
    uint64_t from;
    struct proc_view view;
    ssize_t n = 0;

    reader->news++;
    for (int stream = 0; stream < 2; stream++)
        while ((n = proc_follow_read(reader->follow, (enum proc_stream)stream, data, sizeof(data),
                                     &from, &err)) != 0) {
            if (n == -2) {
                reader->over[stream] = true;
                break;
            }
            CHECK(n > 0, "%s", err.text);
            if (n < 0 || stream == 1)
                break;
            CHECK(from == reader->read, "a gap at %llu", (unsigned long long)reader->read);
            sha256_add(&reader->hash, data, (size_t)n);
            reader->read += (uint64_t)n;
        }
    proc_look(reader->proc, &view);
    reader->saw_end = view.state == PROC_EXITED;
    if (reader->over[0] && reader->over[1] && reader->saw_end && reader->follow != NULL) {
        proc_follow_cancel(reader->follow);
        reader->follow = NULL;
        readers_done++;
    }
}

static void reader_begin(struct reader *reader, struct proc *proc)
{
    const uint64_t from[2] = {0, 0};

    *reader = (struct reader){.proc = proc};
    sha256_begin(&reader->hash);
    reader->follow = proc_follow(proc, from, on_news, reader);
}

void thousand_followers(void)
{
    enum { COUNT = 1000 };
    struct reader *readers = calloc(COUNT + 1, sizeof(*readers));
    struct proc *proc = start("for i in 1 2 3 4 5 6 7 8 9 10; do seq 2000; sleep 0.05; done");
    char first[SHA256_TEXT], other[SHA256_TEXT];
    const uint64_t nowhere[2] = {0, 0};
    uint64_t until = procs_monotonic_ms() + PATIENCE_MS;
    struct reader stalled = {.proc = proc};

    /* One that never reads, and one that goes away, are nothing to the rest. */
    stalled.follow = proc_follow(proc, nowhere, on_news, &stalled);
    proc_follow_cancel(stalled.follow);
    for (int i = 0; i < COUNT; i++)
        reader_begin(&readers[i], proc);
    CHECK(wait_end(proc).exit_code == 0, "exit");
    while (readers_done < COUNT && procs_monotonic_ms() < until)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK(readers_done == COUNT, "%u are done", readers_done);
    reader_begin(&readers[COUNT], proc);
    turn_for(50);
    CHECK(readers[COUNT].read == readers[0].read && readers[COUNT].follow == NULL, "afterwards");
    sha256_end(&readers[0].hash, first);
    CHECK(readers[0].read == 88930, "%llu", (unsigned long long)readers[0].read);
    for (int i = 1; i <= COUNT; i++) {
        sha256_end(&readers[i].hash, other);
        CHECK(strcmp(first, other) == 0, "reader %d read something else", i);
    }
    CHECK(stalled.news == 0, "told after it was cancelled");
    free(readers);
}

/* ---- standard input ---- */

struct feeder {
    struct proc *proc;
    char *data;
    size_t size, sent;
    bool is_done;
};

static void feed(void *arg, struct proc *proc, const struct error *err)
{
    struct feeder *feeder = arg;
    size_t part = feeder->size - feeder->sent < 200000 ? feeder->size - feeder->sent : 200000;
    size_t at = feeder->sent;
    struct error why;

    (void)proc;
    CHECK(err == NULL, "%s", err != NULL ? err->text : "");
    if (err != NULL || part == 0) {
        CHECK(err != NULL || proc_stdin_close(feeder->proc, &why) == 0, "%s", why.text);
        feeder->is_done = true;
        return;
    }
    feeder->sent += part;
    proc_stdin_write(feeder->proc, feeder->data + at, part, feed, feeder);
}

void stdin_to_cat_and_back(void)
{
    struct feeder feeder = {.size = 10 << 20};
    struct outcome outcome = start_spec(
        &(struct proc_spec){.shell_line = "cat", .has_stdin = true});
    _cleanup_free_ char *text = NULL;

    feeder.proc = outcome.proc;
    feeder.data = malloc(feeder.size);
    for (size_t i = 0; i < feeder.size; i++)
        feeder.data[i] = (char)(random() >> 8);
    feed(&feeder, outcome.proc, NULL);
    CHECK(turn_until(&feeder.is_done), "it is not taken");
    CHECK(wait_end(outcome.proc).exit_code == 0, "cat");
    CHECK(read_all(outcome.proc, PROC_STDOUT, 0, &text) == feeder.size &&
              memcmp(text, feeder.data, feeder.size) == 0,
          "what came back");
    free(feeder.data);
    CHECK(run("cat").exit_code == 0, "without stdin there is an end of file");
}

void stdin_that_nobody_reads(void)
{
    static char data[256 << 10];
    struct outcome first = {0}, parts[8] = {{0}}, more;
    struct outcome outcome = start_spec(
        &(struct proc_spec){.shell_line = "sleep 1000", .has_stdin = true});
    unsigned refused = 0;
    struct error err;

    /* As an init does that was taken over: what is shared blocks now. */
    (void)fcntl(outcome.proc->input.watched.fd, F_SETFL, O_WRONLY);
    (void)fcntl(outcome.proc->streams[0].watched.fd, F_SETFL, O_RDONLY);
    proc_stdin_write(outcome.proc, data, 1000, on_done, &first);
    CHECK(first.told && first.err.code[0] == '\0', "what there is room for");
    for (int i = 0; i < 8; i++) {
        proc_stdin_write(outcome.proc, data, sizeof(data), on_done, &parts[i]);
        refused += parts[i].told && strcmp(parts[i].err.code, "capacity") == 0;
    }
    CHECK(refused >= 3 && refused <= 5, "%u were refused", refused);
    CHECK(run("echo others go on").exit_code == 0, "another");
    CHECK(proc_kill(outcome.proc, &err) == 0, "%s", err.text);
    CHECK(wait_end(outcome.proc).signal == SIGKILL, "killed");
    for (int i = 0; i < 8; i++)
        CHECK(parts[i].told && parts[i].err.code[0] != '\0', "part %d", i);
    more = start_spec(&(struct proc_spec){
        .shell_line = "exec <&-; echo closed; until test -e /tmp/go; do sleep 0.1; done",
        .has_stdin = true});
    turn_until_printed(more.proc, PROC_STDOUT, strlen("closed\n"));
    memset(&first, 0, sizeof(first));
    proc_stdin_write(more.proc, data, 10, on_done, &first);
    CHECK(first.told && strcmp(first.err.code, "stdin_closed") == 0, "%s", first.err.code);
    CHECK(run("touch /tmp/go").exit_code == 0, "go");
    CHECK(wait_end(more.proc).exit_code == 0, "it lives on");
}
