/* Turns of output: however many streams a tenant's boxes keep ready, another tenant's are moved as often, and a
 * round of the loop is short. No box is needed: the streams are pipes, which the test keeps full. */
#include "check.h"
#include "engine/procs_parts.h"

#include "base/fd.h"
#include "base/remove.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY 12    /* sandboxes of the loud tenant */
#define STREAMS 16 /* of each */
#define OTHERS \
    100 /* streams of the other tenant's one sandbox: more than a half of MANY * STREAMS */
#define ROUNDS 30
/* How many turns a round has is a matter of the machine's speed. On a slow one it is one, and the first of each sandbox
 * finds little, so that fewer bytes say nothing. */
#define ENOUGH_BYTES (400ULL * 65536)
#define ROUNDS_MOST 3000

static uv_loop_t loop;
static struct turns *turns;
static char path[] = "/tmp/cove-test-turns-XXXXXX";

struct sandbox {
    struct procs *procs;
    unsigned count;
    struct proc *proc[OTHERS];
    int pipe[OTHERS]; /* the writer's end */
};

static int directory_new(unsigned number)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "%s/%u", path, number);
    if (mkdir(name, 0700) < 0)
        abort();
    return open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void add_stream(struct sandbox *sandbox)
{
    struct proc *proc = procs_new(sandbox->procs, sandbox->count + 1);
    struct error err;
    int ends[2];

    if (proc == NULL || procs_insert(sandbox->procs, proc, &err) < 0 ||
        pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        abort();
    proc->state = PROC_RUNNING;
    proc->log_bytes = PROCS_LOG_LEAST;
    stream_open(&proc->streams[0], ends[0]);
    sandbox->proc[sandbox->count] = proc;
    sandbox->pipe[sandbox->count++] = ends[1];
}

static void sandbox_begin(struct sandbox *sandbox, struct share *share, unsigned streams)
{
    static unsigned number;
    struct procs_options options = {
        .loop = &loop, .share = share, .directory = directory_new(number++)};
    struct error err;

    *sandbox = (struct sandbox){0};
    if (procs_open(&options, &sandbox->procs, &err) < 0)
        abort();
    for (unsigned i = 0; i < streams; i++)
        add_stream(sandbox);
}

static void sandbox_end(struct sandbox *sandbox)
{
    procs_close(sandbox->procs, true);
    for (unsigned i = 0; i < sandbox->count; i++)
        fd_close(&sandbox->pipe[i]);
}

static void fill(struct sandbox *sandbox)
{
    static const char zeros[65536];

    for (unsigned i = 0; i < sandbox->count; i++)
        while (write(sandbox->pipe[i], zeros, sizeof(zeros)) > 0)
            ;
}

/* Of all, or of the stream that has least or most. */
struct moved {
    uint64_t all, least, most;
};

static struct moved moved_of(const struct sandbox *sandbox)
{
    struct moved moved = {.least = UINT64_MAX};

    for (unsigned i = 0; i < sandbox->count; i++) {
        uint64_t bytes = sandbox->proc[i]->streams[0].log_file.bytes;

        moved.all += bytes;
        moved.least = bytes < moved.least ? bytes : moved.least;
        moved.most = bytes > moved.most ? bytes : moved.most;
    }
    return moved;
}

static uint64_t moved_by_all(const struct sandbox *sandboxes, unsigned count)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < count; i++)
        all += moved_of(&sandboxes[i]).all;
    return all;
}

static void check_shares(struct sandbox *loud, struct sandbox *quiet)
{
    uint64_t of_loud, of_quiet, least = UINT64_MAX, most = 0;

    (void)uv_run(&loop, UV_RUN_NOWAIT); /* from now on they are watched */
    for (unsigned round = 0;
         round < ROUNDS ||
         (round < ROUNDS_MOST && moved_by_all(loud, MANY) + moved_of(quiet).all < ENOUGH_BYTES);
         round++) {
        for (unsigned i = 0; i < MANY; i++)
            fill(&loud[i]);
        fill(quiet);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        if (round == 0)
            CHECK(moved_by_all(loud, MANY) + moved_of(quiet).all < (uint64_t)MANY * STREAMS * 65536,
                  "one round moves as much as one tenant has ready");
    }
    of_loud = moved_by_all(loud, MANY);
    of_quiet = moved_of(quiet).all;
    CHECK(of_quiet > 0 && of_loud > 0, "%llu and %llu bytes moved", (unsigned long long)of_loud,
          (unsigned long long)of_quiet);
    CHECK(of_quiet * 2 >= of_loud && of_loud * 2 >= of_quiet,
          "%llu bytes of the loud tenant, %llu of the other", (unsigned long long)of_loud,
          (unsigned long long)of_quiet);
    for (unsigned i = 0; i < MANY; i++) {
        struct moved moved = moved_of(&loud[i]);

        CHECK(moved.most - moved.least <= PROCS_TURN_BYTES, "a stream has %llu, another %llu",
              (unsigned long long)moved.least, (unsigned long long)moved.most);
        least = moved.all < least ? moved.all : least;
        most = moved.all > most ? moved.all : most;
    }
    CHECK(most - least <= PROCS_TURN_BYTES, "a sandbox has %llu, another of its tenant %llu",
          (unsigned long long)least, (unsigned long long)most);
}

/* ---- what is kept of processes that have ended ---- */

static bool texts_are_many;

static bool say_whether_many(void *arg)
{
    (void)arg;
    return texts_are_many;
}

static void end_one(struct procs *procs, uint32_t number)
{
    struct proc *proc = procs_new(procs, number);
    struct error err;

    if (proc == NULL || procs_insert(procs, proc, &err) < 0)
        abort();
    proc->command = strdup("a command");
    proc->state = PROC_EXITED;
    proc->has_ended = true;
    procs->ended++;
    procs_enter(procs);
    proc_count_texts(proc);
    procs_limit_ended(procs);
    procs_leave(procs);
}

static void check_texts(void)
{
    static const struct procs_calls calls = {.texts_are_many = say_whether_many};
    struct share tenant;
    struct procs_options options = {
        .loop = &loop, .share = &tenant, .directory = directory_new(1000), .calls = &calls};
    struct procs *procs;
    struct error err;
    uint64_t each;

    share_init(&tenant, turns);
    if (procs_open(&options, &procs, &err) < 0)
        abort();
    end_one(procs, 1);
    each = tenant.texts;
    CHECK(each > strlen("a command"), "an ended process counts %llu bytes",
          (unsigned long long)each);
    for (uint32_t number = 2; number <= 40; number++)
        end_one(procs, number);
    CHECK(procs->ended == 40 && tenant.texts == 40 * each, "40 are kept where there is room");
    texts_are_many = true;
    end_one(procs, 41);
    CHECK(procs->ended == PROCS_ENDED_LEAST && tenant.texts == PROCS_ENDED_LEAST * each,
          "%zu are kept where the tenant has too much", procs->ended);
    CHECK(procs_by_number(procs, 41) != NULL && procs_by_number(procs, 25) == NULL,
          "the oldest are forgotten");
    procs_close(procs, true);
    CHECK(tenant.texts == 0, "%llu bytes count for a sandbox that is closed",
          (unsigned long long)tenant.texts);
    share_leave(&tenant);
}

int main(void)
{
    struct sandbox loud[MANY], quiet;
    struct share of_loud, of_quiet;
    struct error err;

    (void)signal(SIGPIPE, SIG_IGN);
    if (mkdtemp(path) == NULL || uv_loop_init(&loop) < 0 ||
        turns_open(&loop, PROCS_ROUND_NS, &turns, &err) < 0)
        abort();
    share_init(&of_loud, turns);
    share_init(&of_quiet, turns);
    for (unsigned i = 0; i < MANY; i++)
        sandbox_begin(&loud[i], &of_loud, STREAMS);
    sandbox_begin(&quiet, &of_quiet, OTHERS);
    check_shares(loud, &quiet);
    check_texts();
    for (unsigned i = 0; i < MANY; i++)
        sandbox_end(&loud[i]);
    sandbox_end(&quiet);
    share_leave(&of_loud);
    share_leave(&of_quiet);
    turns_close(turns, NULL, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop) == 0, "a handle is left");
    CHECK(remove_tree(AT_FDCWD, path) == 0, "a file is left");
    return check_finish();
}
