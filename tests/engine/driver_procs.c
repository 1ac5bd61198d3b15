/* Runs commands of one box as an engine does, and says what did not hold.
 *
 *   driver_procs DIRECTORY SCENARIO
 *
 * The directory is empty and becomes the sandbox's. A holder, this program, keeps the box; what an
 * engine does is done here or, where it is to be killed, in a child. test_procs.py names what each
 * scenario is for; they are in the files beside. */
#include "driver_procs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

const char *directory;
struct box *box;
uv_loop_t loop;
struct procs *procs;
unsigned gone, ended;
int answers_oom = -1;
static int programs[TOOL_PROGRAMS];
static struct turns *turns;
static struct share share;

/* ---- an engine ---- */

void die(const char *what, const struct error *err)
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

void open_procs(uint64_t keep_ms)
{
    struct error err;
    struct procs_options options = {
        .loop = &loop,
        .share = &share,
        .directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        .calls = &calls,
        .env = sandbox_env,
        .is_system = true,
        .keep_ms = keep_ms,
        .programs = programs,
    };

    if (procs_open(&options, &procs, &err) < 0)
        die("procs_open", &err);
}

void attach(bool anew)
{
    struct error err;
    struct link *link;
    int control = box_control_dup(box, &err);

    if (control < 0 || link_open(control, &link, &err) < 0 ||
        procs_attach(procs, link, anew, &err) < 0)
        die("attach", &err);
}

void make_box(void)
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
    const char *root = getenv("COVE_TEST_ROOT");
    struct error err;

    if (root != NULL) {
        spec.root_kind = BOX_ROOT_DIR;
        spec.root_path = root;
    }
    if (box_create(&spec, &box, &err) < 0)
        die("box_create", &err);
}

void loop_begin(void)
{
    struct error err;

    (void)uv_loop_init(&loop);
    (void)signal(SIGPIPE, SIG_IGN);
    if (turns_open(&loop, PROCS_ROUND_NS, &turns, &err) < 0)
        die("turns_open", &err);
    share_init(&share, turns);
}

void engine_begin(uint64_t keep_ms)
{
    loop_begin();
    open_procs(keep_ms);
    attach(true);
}

void turn_for(uint64_t ms)
{
    uint64_t until = procs_monotonic_ms() + ms;

    while (procs_monotonic_ms() < until) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        (void)usleep(500);
    }
}

/* Turns the loop until `*flag`; false if it takes too long. */
bool turn_until(const volatile bool *flag)
{
    uint64_t until = procs_monotonic_ms() + PATIENCE_MS;

    while (!*flag && procs_monotonic_ms() < until)
        if (uv_run(&loop, UV_RUN_NOWAIT) == 0 || !*flag)
            (void)usleep(50);
    return *flag;
}

/* Turns the loop until it has printed so many bytes, or that takes too long. */
void turn_until_printed(struct proc *proc, enum proc_stream stream, uint64_t bytes)
{
    uint64_t until = procs_monotonic_ms() + PATIENCE_MS;
    struct proc_view view;

    do {
        turn_for(10);
        proc_look(proc, &view);
    } while (view.out_bytes[stream] < bytes && procs_monotonic_ms() < until);
}

void on_done(void *arg, struct proc *proc, const struct error *err)
{
    struct outcome *outcome = arg;

    CHECK(!outcome->told, "told twice");
    outcome->told = true;
    outcome->proc = proc;
    outcome->err = err != NULL ? *err : (struct error){0};
}

struct outcome start_spec(const struct proc_spec *spec)
{
    struct outcome outcome = {0};

    procs_start(procs, spec, on_done, &outcome);
    CHECK(turn_until(&outcome.told), "nobody said that it runs");
    return outcome;
}

struct proc *start(const char *line)
{
    struct outcome outcome = start_spec(&(struct proc_spec){.shell_line = line});

    if (outcome.err.code[0] != '\0')
        die(line, &outcome.err);
    return outcome.proc;
}

struct proc_view wait_end(struct proc *proc)
{
    struct outcome outcome = {0};
    struct proc_view view;

    CHECK(proc_wait(proc, 0, on_done, &outcome) != NULL, "no memory");
    CHECK(turn_until(&outcome.told), "its end was not told");
    proc_look(proc, &view);
    return view;
}

struct proc_view run(const char *line)
{
    return wait_end(start(line));
}

/* All of a stream from `from` on, as one text; how long it is. */
size_t read_all(struct proc *proc, enum proc_stream stream, uint64_t from, char **text)
{
    size_t room = 1 << 20, used = 0;
    struct error err;
    uint64_t at;
    ssize_t n;

    *text = malloc(room);
    while ((n = proc_read(proc, stream, from + used, *text + used, room - used - 1, &at, &err)) >
           0) {
        CHECK(at == from + used, "a gap at %llu", (unsigned long long)(from + used));
        used += (size_t)n;
        if (room - used < 2)
            *text = realloc(*text, room *= 2);
    }
    CHECK(n == 0, "%s", err.text);
    (*text)[used] = '\0';
    return used;
}

bool prints(struct proc *proc, enum proc_stream stream, const char *expected)
{
    _cleanup_free_ char *text = NULL;

    (void)read_all(proc, stream, 0, &text);
    if (strcmp(text, expected) != 0)
        printf("printed: \"%.300s\"\n", text);
    return strcmp(text, expected) == 0;
}

size_t files(void)
{
    DIR *dir = opendir(directory);
    size_t count = 0;

    while (readdir(dir) != NULL)
        count++;
    (void)closedir(dir);
    return count - 2;
}

/* What the lines of seq(1) are. */
size_t seq(char *text, unsigned from, unsigned to)
{
    size_t used = 0;

    for (unsigned i = from; i <= to; i++)
        used += (size_t)sprintf(text + used, "%u\n", i);
    return used;
}

static unsigned checks_passed, checks_failed;

void driver_check(bool holds, const char *file, int line, const char *condition, const char *fmt,
                  ...)
{
    va_list args;

    if (holds) {
        checks_passed++;
        return;
    }
    checks_failed++;
    printf("%s:%d: failed: %s: ", file, line, condition);
    va_start(args, fmt);
    (void)vprintf(fmt, args);
    va_end(args);
    putchar('\n');
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
    {"other_root", other_root, 0, false, false},
    {"hostile_accounts", hostile_accounts, 0, false, false},
    {"daemon_keeps_pipe", daemon_keeps_pipe, 0, false, false},
    {"daemon_floods", daemon_floods, 0, false, false},
    {"timeout_kills_tree", timeout_kills_tree, 0, false, false},
    {"gap_beyond_limit", gap_beyond_limit, 0, false, false},
    {"shared_limit", shared_limit, 0, false, false},
    {"disk_full", disk_full, 0, false, true},
    {"thousand_followers", thousand_followers, 0, false, false},
    {"stdin_to_cat_and_back", stdin_to_cat_and_back, 0, false, false},
    {"stdin_that_nobody_reads", stdin_that_nobody_reads, 0, false, false},
    {"killed_engine", killed_engine, 0, true, false},
    {"restart_keeps_timeout", restart_keeps_timeout, 0, false, false},
    {"closed_in_callbacks", closed_in_callbacks, 0, false, false},
    {"init_that_lies", init_that_lies, 0, false, false},
    {"box_dies", box_dies, 0, false, false},
    {"ended_are_forgotten", ended_are_forgotten, 300, false, false},
    {"many_ended", many_ended, 0, false, false},
    {"floods_starve_nobody", floods_starve_nobody, 0, false, false},
    {"true_after_true", true_after_true, 0, false, false},
    {"tools", tools, 0, false, false},
    {"tools_cancelled", tools_cancelled, 0, false, false},
    {"tools_without_pids", tools_without_pids, 0, false, false},
    {"tools_of_killed_engine", tools_of_killed_engine, 0, true, false},
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
        if (tool_programs_open(programs, &err) < 0)
            die("tool_programs_open", &err);
        make_box();
        if (scenarios[i].small_disk)
            mount_small_disk();
        if (!scenarios[i].is_own)
            engine_begin(scenarios[i].keep_ms);
        scenarios[i].act();
        procs_close(procs, false);
        share_leave(&share);
        turns_close(turns, NULL, NULL);
        while (uv_run(&loop, UV_RUN_NOWAIT) != 0)
            continue;
        CHECK(uv_loop_close(&loop) == 0, "handles are left in the loop");
        if (box_destroy(box, NULL, &err) < 0)
            die("box_destroy", &err);
        printf("%u passed, %u failed\n", checks_passed, checks_failed);
        return checks_failed > 0 || checks_passed == 0;
    }
    return 2;
}
