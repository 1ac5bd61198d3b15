/* Runs commands of one box as an engine does, and says what did not hold.
 *
 *   driver_procs DIRECTORY SCENARIO
 *
 * The directory is empty and becomes the sandbox's. A holder, this program, keeps the box; what an
 * engine does is done here or, where it is to be killed, in a child. test_procs.py names what each
 * scenario is for. */
#include "base/fd.h"
#include "base/sha256.h"
#include "box/handle.h"
#include "check.h"
#include "engine/procs_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 60000

static const char *directory;
static struct box *box;
static uv_loop_t loop;
static struct procs *procs;
static unsigned gone, ended;
static int answers_oom = -1;

/* ---- an engine ---- */

static void die(const char *what, const struct error *err)
{
    printf("%s: %s: %s\n", what, err->code, err->text);
    (void)fflush(stdout);
    _exit(3);
}

static void on_gone(void *arg, const struct error *err)
{
    (void)arg;
    (void)err;
    gone++;
    procs_detach(procs, "box_failed");
}

static void on_ended(void *arg, const struct proc *proc)
{
    (void)arg;
    (void)proc;
    ended++;
}

static void on_killed(void *arg, struct proc *proc)
{
    (void)arg;
    if (answers_oom >= 0)
        procs_oom(proc, answers_oom != 0);
}

static const struct procs_calls calls = {.gone = on_gone, .ended = on_ended, .killed = on_killed};
static const char *const sandbox_env[] = {"OF_SANDBOX=1", "BOTH=sandbox", NULL};

static void open_procs(uint64_t keep_ms)
{
    struct error err;
    struct procs_options options = {
        .loop = &loop,
        .directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        .calls = &calls,
        .env = sandbox_env,
        .is_system = true,
        .keep_ms = keep_ms,
    };

    if (procs_open(&options, &procs, &err) < 0)
        die("procs_open", &err);
}

static void attach(bool anew)
{
    struct error err;
    struct link *link;
    int control = box_control_dup(box, &err);

    if (control < 0 || link_open(control, &link, &err) < 0 ||
        procs_attach(procs, link, anew, &err) < 0)
        die("attach", &err);
}

static void make_box(void)
{
    struct box_spec spec = {
        .root_kind = BOX_ROOT_HOST,
        .privileges = BOX_SYSTEM,
        .many_commands = true,
        .limits = {.memory_bytes = 512ULL << 20,
                   .pids = 512,
                   .disk_bytes = 64 << 20,
                   .disk_inodes = 4096},
    };
    struct error err;

    if (box_create(&spec, &box, &err) < 0)
        die("box_create", &err);
}

static void engine_begin(uint64_t keep_ms)
{
    (void)uv_loop_init(&loop);
    (void)signal(SIGPIPE, SIG_IGN);
    open_procs(keep_ms);
    attach(true);
}

static void turn_for(uint64_t ms)
{
    uint64_t until = procs_monotonic_ms() + ms;

    while (procs_monotonic_ms() < until) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        (void)usleep(500);
    }
}

/* Turns the loop until `*flag`; false if it takes too long. */
static bool turn_until(const volatile bool *flag)
{
    uint64_t until = procs_monotonic_ms() + PATIENCE_MS;

    while (!*flag && procs_monotonic_ms() < until)
        if (uv_run(&loop, UV_RUN_NOWAIT) == 0 || !*flag)
            (void)usleep(50);
    return *flag;
}

struct outcome {
    bool told;
    struct proc *proc;
    struct error err;
};

static void on_done(void *arg, struct proc *proc, const struct error *err)
{
    struct outcome *outcome = arg;

    CHECK(!outcome->told, "told twice");
    outcome->told = true;
    outcome->proc = proc;
    outcome->err = err != NULL ? *err : (struct error){0};
}

static struct outcome start_spec(const struct proc_spec *spec)
{
    struct outcome outcome = {0};

    procs_start(procs, spec, on_done, &outcome);
    CHECK(turn_until(&outcome.told), "nobody said that it runs");
    return outcome;
}

static struct proc *start(const char *line)
{
    struct outcome outcome = start_spec(&(struct proc_spec){.shell_line = line});

    if (outcome.err.code[0] != '\0')
        die(line, &outcome.err);
    return outcome.proc;
}

static struct proc_view wait_end(struct proc *proc)
{
    struct outcome outcome = {0};
    struct proc_view view;

    CHECK(proc_wait(proc, 0, on_done, &outcome) != NULL, "no memory");
    CHECK(turn_until(&outcome.told), "its end was not told");
    proc_look(proc, &view);
    return view;
}

static struct proc_view run(const char *line)
{
    return wait_end(start(line));
}

/* All of a stream from `from` on, as one text; how long it is. */
static size_t read_all(struct proc *proc, enum proc_stream stream, uint64_t from, char **text)
{
    size_t room = 1 << 20, used = 0;
    struct error err;
    uint64_t at;
    ssize_t n;

    *text = malloc(room);
    while ((n = proc_read(proc, stream, from + used, *text + used, room - used - 1, &at, &err)) > 0) {
        CHECK(at == from + used, "a gap at %llu", (unsigned long long)(from + used));
        used += (size_t)n;
        if (room - used < 2)
            *text = realloc(*text, room *= 2);
    }
    CHECK(n == 0, "%s", err.text);
    (*text)[used] = '\0';
    return used;
}

static bool prints(struct proc *proc, enum proc_stream stream, const char *expected)
{
    _cleanup_free_ char *text = NULL;

    (void)read_all(proc, stream, 0, &text);
    if (strcmp(text, expected) != 0)
        printf("printed: \"%.300s\"\n", text);
    return strcmp(text, expected) == 0;
}

static size_t files(void)
{
    DIR *dir = opendir(directory);
    size_t count = 0;

    while (readdir(dir) != NULL)
        count++;
    (void)closedir(dir);
    return count - 2;
}

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

static void exact_bytes(void)
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

static void statuses(void)
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

static void out_of_memory(void)
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

static void users(void)
{
    static const char *const names[][2] = {
        {NULL, "0 0 root /root\n"},          {"user", "1000 1000 user /home/user\n"},
        {"nobody", "65534 65534 nobody /nonexistent\n"}, {"1234", "1234 1234 1234 /\n"},
        {"user:0", "1000 0 user /home/user\n"},
    };
    struct outcome outcome;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        outcome = start_spec(&(struct proc_spec){
            .shell_line = "echo $(id -u) $(id -g) $USER $HOME", .user = names[i][0]});
        if (outcome.err.code[0] != '\0')
            die(names[i][0], &outcome.err);
        (void)wait_end(outcome.proc);
        CHECK(prints(outcome.proc, PROC_STDOUT, names[i][1]), "%s", names[i][1]);
    }
    outcome = start_spec(&(struct proc_spec){.shell_line = "true", .user = "who"});
    CHECK(strcmp(outcome.err.code, "user_not_found") == 0, "%s", outcome.err.code);
    CHECK(outcome.proc == NULL, "a process of nobody");
}

/* The files that name users become what would hang or never end. */
static void hostile_accounts(void)
{
    static const char *const made[] = {
        "rm -f /etc/passwd; mkfifo /etc/passwd",
        "rm -f /etc/passwd; ln -s /dev/zero /etc/passwd",
        "rm -f /etc/passwd; ln -s /proc/self/environ /etc/passwd",
        "rm -f /etc/passwd; mkdir /etc/passwd; rmdir /etc/passwd",
        "head -c 30000000 /dev/zero | tr '\\0' a >/etc/passwd",
    };
    struct outcome outcome;

    if (run("rm -f /etc/passwd").exit_code != 0)
        return; /* nothing of this box can be harmed */
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        CHECK(run(made[i]).exit_code == 0, "%s", made[i]);
        outcome = start_spec(&(struct proc_spec){.shell_line = "true", .user = "user"});
        CHECK(strcmp(outcome.err.code, "user_not_found") == 0, "%s", made[i]);
        outcome = start_spec(&(struct proc_spec){.shell_line = "true", .user = "1000"});
        CHECK(outcome.err.code[0] == '\0' && wait_end(outcome.proc).exit_code == 0, "%s", made[i]);
    }
}

static void daemon_keeps_pipe(void)
{
    uint64_t before = procs_monotonic_ms();
    struct proc *proc = start("(sleep 2; echo late; sleep 0.2; echo later >&2) & echo now; exit 3");
    struct error err;

    CHECK(wait_end(proc).exit_code == 3, "exit");
    CHECK(procs_monotonic_ms() - before < 1500, "the daemon kept the result back");
    CHECK(prints(proc, PROC_STDOUT, "now\n"), "now");
    turn_for(2700);
    CHECK(prints(proc, PROC_STDOUT, "now\nlate\n"), "late");
    CHECK(prints(proc, PROC_STDERR, "later\n"), "later");
    /* One that is forgotten goes on: its pipe does not break. */
    proc = start("(trap '' HUP; for i in 1 2 3 4 5 6; do sleep 0.2; echo x; done; "
                 "touch /tmp/lives) & exit 0");
    (void)wait_end(proc);
    CHECK(proc_forget(proc, &err) == 0, "%s", err.text);
    turn_for(1800);
    CHECK(run("test -e /tmp/lives").exit_code == 0, "it died of its pipe");
    CHECK(files() == 3, "%zu files", files());
}

/* It floods after its parent's end: what came before is in the result, and the result comes. */
static void daemon_floods(void)
{
    uint64_t before = procs_monotonic_ms();
    struct proc *proc = start("echo first; yes & sleep 0.3; exit 4");
    struct proc_view view = wait_end(proc);
    struct error err;
    char first[6];
    uint64_t from;

    CHECK(view.exit_code == 4, "exit %d", view.exit_code);
    CHECK(procs_monotonic_ms() - before < 5000, "kept back");
    if (view.out_from[0] == 0)
        CHECK(proc_read(proc, PROC_STDOUT, 0, first, 6, &from, &err) == 6 &&
                  memcmp(first, "first\n", 6) == 0,
              "its beginning");
    CHECK(run("pkill yes").exit_code == 0, "nothing flooded");
}

static void timeout_kills_tree(void)
{
    struct outcome outcome = start_spec(&(struct proc_spec){
        .shell_line = "trap '' TERM; (setsid sleep 1000 &) ; echo begun; sleep 1000; sleep 1000",
        .timeout_ms = 400});
    uint64_t before = procs_monotonic_ms();
    struct proc_view view = wait_end(outcome.proc);

    CHECK(view.timed_out && view.exit_code == 124 && view.signal == 0, "exit %d signal %d",
          view.exit_code, view.signal);
    CHECK(procs_monotonic_ms() - before < 1500, "late");
    CHECK(prints(outcome.proc, PROC_STDOUT, "begun\n"), "the output so far");
    CHECK(run("! pgrep sleep").exit_code == 0, "some of the tree is left");
    outcome = start_spec(&(struct proc_spec){.shell_line = "sleep 0.1; exit 5", .timeout_ms = 5000});
    CHECK(wait_end(outcome.proc).exit_code == 5, "in time");
    outcome = start_spec(&(struct proc_spec){.shell_line = "sleep 1000 & sleep 1000"});
    CHECK(proc_kill(outcome.proc, &outcome.err) == 0, "%s", outcome.err.text);
    CHECK(wait_end(outcome.proc).signal == SIGKILL, "killed");
    CHECK(run("! pgrep sleep").exit_code == 0, "some of the tree is left");
}

/* What the lines of seq(1) are. */
static size_t seq(char *text, unsigned from, unsigned to)
{
    size_t used = 0;

    for (unsigned i = from; i <= to; i++)
        used += (size_t)sprintf(text + used, "%u\n", i);
    return used;
}

static void gap_beyond_limit(void)
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

static void disk_full(void)
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

static void thousand_followers(void)
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
    CHECK(err == NULL, "%s", err->text);
    if (err != NULL || part == 0) {
        CHECK(err != NULL || proc_stdin_close(feeder->proc, &why) == 0, "%s", why.text);
        feeder->is_done = true;
        return;
    }
    feeder->sent += part;
    proc_stdin_write(feeder->proc, feeder->data + at, part, feed, feeder);
}

static void stdin_to_cat_and_back(void)
{
    struct feeder feeder = {.size = 10 << 20};
    struct outcome outcome = start_spec(&(struct proc_spec){.shell_line = "cat", .has_stdin = true});
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

static void stdin_that_nobody_reads(void)
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
    more = start_spec(&(struct proc_spec){.shell_line = "exec <&-; sleep 0.5", .has_stdin = true});
    turn_for(200);
    memset(&first, 0, sizeof(first));
    proc_stdin_write(more.proc, data, 10, on_done, &first);
    CHECK(first.told && strcmp(first.err.code, "stdin_closed") == 0, "%s", first.err.code);
    CHECK(wait_end(more.proc).exit_code == 0, "it lives on");
}

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
    (void)uv_loop_init(&loop);
    (void)signal(SIGPIPE, SIG_IGN);
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

static void killed_engine(void)
{
    pid_t pid;
    int to, status;

    worker_first();
    for (int i = 0; i < 20; i++) {
        pid = worker_begin(&to, false);
        if (pid == 0) {
            /* Each starts one more, whose end mostly nobody hears. */
            struct outcome outcome = {0};

            procs_start(procs, &(struct proc_spec){.shell_line = "echo x; exit 12"}, on_done,
                        &outcome);
            turn_for(600000);
            _exit(0);
        }
        (void)close(to);
        (void)usleep(10000 + (unsigned)random() % 90000);
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    (void)uv_loop_init(&loop);
    (void)signal(SIGPIPE, SIG_IGN);
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
    printf("%d of 20 small ones ran, the next number is %u\n", status, procs->next_number);
}

static void restart_keeps_timeout(void)
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

/* ---- the rest ---- */

static void box_dies(void)
{
    struct proc *proc = start("echo said; sleep 1000"), *done = start("exit 3");
    struct outcome outcome = {0};
    struct proc_view view;
    bool is_gone;

    (void)wait_end(done);
    CHECK(proc_wait(proc, 0, on_done, &outcome) != NULL, "no memory");
    turn_for(200);
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

static void ended_are_forgotten(void)
{
    struct proc *proc = start("echo x; (sleep 0.8; echo y) &");

    (void)wait_end(proc);
    (void)run("echo z");
    turn_for(600);
    CHECK(procs_find(procs, "2") == NULL, "the second is still known");
    CHECK(procs_find(procs, "1") != NULL, "one with a daemon went");
    turn_for(1000);
    CHECK(procs_find(procs, "1") == NULL, "the first is still known");
    CHECK(files() == 1, "%zu files", files());
    procs_close(procs, true);
    CHECK(files() == 0, "%zu files", files());
    open_procs(0);
}

static void many_ended(void)
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

static void floods_starve_nobody(void)
{
    struct proc *floods[4];
    uint64_t worst = 0;
    struct error err;

    for (int i = 0; i < 4; i++)
        floods[i] = start_spec(&(struct proc_spec){.shell_line = "cat /dev/zero",
                                                   .log_bytes = 4 << 20}).proc;
    for (int i = 0; i < 50; i++) {
        uint64_t before = procs_monotonic_ms(), took;

        CHECK(run("true").exit_code == 0, "true");
        took = procs_monotonic_ms() - before;
        worst = took > worst ? took : worst;
    }
    printf("beside four floods the slowest of 50 took %llu ms\n", (unsigned long long)worst);
    CHECK(worst < 2000, "%llu ms", (unsigned long long)worst);
    for (int i = 0; i < 4; i++) {
        struct proc_view view;

        CHECK(proc_kill(floods[i], &err) == 0, "%s", err.text);
        view = wait_end(floods[i]);
        CHECK(view.out_bytes[0] > 16 << 20, "flood %d moved %llu", i,
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
static void true_after_true(void)
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

static const struct {
    const char *name;
    void (*act)(void);
    uint64_t keep_ms;
    bool is_own, small_disk;
} scenarios[] = {
    {"exact_bytes", exact_bytes, 0, false, false},
    {"statuses", statuses, 0, false, false},
    {"out_of_memory", out_of_memory, 0, false, false},
    {"users", users, 0, false, false},
    {"hostile_accounts", hostile_accounts, 0, false, false},
    {"daemon_keeps_pipe", daemon_keeps_pipe, 0, false, false},
    {"daemon_floods", daemon_floods, 0, false, false},
    {"timeout_kills_tree", timeout_kills_tree, 0, false, false},
    {"gap_beyond_limit", gap_beyond_limit, 0, false, false},
    {"disk_full", disk_full, 0, false, true},
    {"thousand_followers", thousand_followers, 0, false, false},
    {"stdin_to_cat_and_back", stdin_to_cat_and_back, 0, false, false},
    {"stdin_that_nobody_reads", stdin_that_nobody_reads, 0, false, false},
    {"killed_engine", killed_engine, 0, true, false},
    {"restart_keeps_timeout", restart_keeps_timeout, 0, false, false},
    {"box_dies", box_dies, 0, false, false},
    {"ended_are_forgotten", ended_are_forgotten, 300, false, false},
    {"many_ended", many_ended, 0, false, false},
    {"floods_starve_nobody", floods_starve_nobody, 0, false, false},
    {"true_after_true", true_after_true, 0, false, false},
};

/* Nobody else sees it, and it goes with us. */
static void mount_small_disk(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("covetest", directory, "tmpfs", 0, "size=1m") < 0) {
        perror("a small disk");
        _exit(3);
    }
}

int main(int argc, char **argv)
{
    struct error err;

    if (argc != 3)
        return 2;
    directory = argv[1];
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        if (strcmp(argv[2], scenarios[i].name) != 0)
            continue;
        make_box();
        if (scenarios[i].small_disk)
            mount_small_disk();
        if (!scenarios[i].is_own)
            engine_begin(scenarios[i].keep_ms);
        scenarios[i].act();
        procs_close(procs, false);
        while (uv_run(&loop, UV_RUN_NOWAIT) != 0)
            continue;
        CHECK(uv_loop_close(&loop) == 0, "handles are left in the loop");
        if (box_destroy(box, NULL, &err) < 0)
            die("box_destroy", &err);
        return check_finish();
    }
    return 2;
}
