/* What a box costs from within one process: create, exec, destroy, and thousands of them idle.
 *
 * usage: box OUT ROOT TRUE EMPTY_DIRECTORY
 * ROOT is the lower layer (with /true), TRUE the same program on the host. Writes series.h's lines;
 * bench/box.py judges them. A number and what it is compared with are measured in turn, never one
 * after the other. */
#include "base/fd.h"
#include "maker.h"
#include "series.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALIVE_FEW 1000
#define ALIVE_MANY 5000
#define EXTRA_MOUNTS 1000

#define EXEC_ROUNDS 2000
#define CREATE_ROUNDS 500
#define ALIVE_ROUNDS 200
#define ALIVE_EXECS 500
#define BLOCKS ((size_t)40) /* of the comparison with extra mounts */
#define BLOCK_ROUNDS 10
#define CYCLE_WINDOWS 20 /* of creation throughput */
#define CYCLES 50
#define FDS_NEEDED (2 * ALIVE_MANY + 1000) /* a box has a control socket and a pidfd */

static FILE *out;

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void finish(struct series *series)
{
    if (series_write(series, out) < 0)
        fail("cannot write the results");
    series_free(series);
}

/* Each sample is one create: from asking the zygote until init is ready; and one destroy: until the
 * last of the box is gone. */
static void create_destroy(struct maker *maker, size_t rounds, struct series *create,
                           struct series *destroy)
{
    for (size_t i = 0; i < rounds; i++) {
        uint64_t start = series_now_ns();
        struct made made = maker_create(maker);
        uint64_t ready = series_now_ns();

        if (create != NULL)
            series_add(create, ready - start);
        maker_destroy(maker, made);
        if (destroy != NULL)
            series_add(destroy, series_now_ns() - ready);
    }
}

/* ---- exec ---- */

static uint64_t time_spawn(const char *program)
{
    char *argv[] = {"true", NULL}, *env[] = {NULL};
    uint64_t start = series_now_ns();
    int status;
    pid_t pid;

    errno = posix_spawn(&pid, program, NULL, NULL, argv, env);
    if (errno != 0 || waitpid(pid, &status, 0) != pid || status != 0)
        fail("cannot spawn the static true");
    return series_now_ns() - start;
}

static uint64_t time_exec(struct maker *maker, struct box *box)
{
    uint64_t start = series_now_ns();

    maker_exec(maker, box);
    return series_now_ns() - start;
}

static void bench_exec(struct maker *maker, const char *program)
{
    struct made made = maker_create(maker);
    struct series exec, spawn;

    series_init(&exec, "exec", "ns", EXEC_ROUNDS);
    series_init(&spawn, "exec_floor", "ns", EXEC_ROUNDS);
    for (size_t i = 0; i < EXEC_ROUNDS / 10; i++)
        (void)time_exec(maker, made.box); /* warm */
    for (size_t i = 0; i < EXEC_ROUNDS; i++) {
        series_add(&exec, time_exec(maker, made.box));
        series_add(&spawn, time_spawn(program));
    }
    maker_destroy(maker, made);
    finish(&exec);
    finish(&spawn);
}

static void bench_first(struct maker *maker)
{
    struct series first;

    series_init(&first, "create_first_exec", "ns", CREATE_ROUNDS);
    for (size_t i = 0; i < CREATE_ROUNDS; i++) {
        uint64_t start = series_now_ns();
        struct made made = maker_create(maker);

        maker_exec(maker, made.box);
        series_add(&first, series_now_ns() - start);
        maker_destroy(maker, made);
    }
    finish(&first);
}

/* ---- create and destroy ---- */

static void bench_create(struct maker *maker)
{
    struct series create, destroy;

    series_init(&create, "create", "ns", CREATE_ROUNDS);
    series_init(&destroy, "destroy", "ns", CREATE_ROUNDS);
    create_destroy(maker, CREATE_ROUNDS, &create, &destroy);
    finish(&create);
    finish(&destroy);
}

static void bench_throughput(struct maker *maker)
{
    struct series cycles;

    series_init(&cycles, "cycles", "ns", CYCLE_WINDOWS);
    for (size_t i = 0; i < CYCLE_WINDOWS; i++) {
        uint64_t start = series_now_ns();

        create_destroy(maker, CYCLES, NULL, NULL);
        series_add(&cycles, (series_now_ns() - start) / CYCLES);
    }
    finish(&cycles);
}

/* ---- a host with many mounts ---- */

/* Only ever in a mount namespace of the caller's own. */
static void add_mounts(const char *place)
{
    char path[4096];

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("bench", place, "tmpfs", MS_NOSUID | MS_NODEV, NULL) < 0)
        fail("cannot make a private mount namespace");
    for (size_t i = 0; i < EXTRA_MOUNTS; i++) {
        (void)snprintf(path, sizeof(path), "%s/%zu", place, i);
        if (mkdir(path, 0755) < 0 || mount("/usr", path, NULL, MS_BIND, NULL) < 0)
            fail("cannot bind mount");
    }
}

struct turn {
    int go[2], done[2];
};

static void pass(int fd)
{
    if (fd_write_full(fd, "t", 1) < 0)
        fail("cannot pass the turn");
}

static bool await(int fd)
{
    char byte;

    return fd_read_full(fd, &byte, 1) == 1;
}

/* One of two processes that differ in nothing but the mounts they see. */
static _Noreturn void contend(const struct turn *turn, const char *prefix, const char *root,
                              const char *place, uint64_t *samples)
{
    struct maker maker;
    struct series create;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (place != NULL)
        add_mounts(place);
    maker_open(&maker, prefix, root, BLOCK_ROUNDS);
    maker_fill(&maker, BLOCK_ROUNDS);
    series_init(&create, prefix, "ns", (BLOCKS + 1) * BLOCK_ROUNDS);
    for (size_t block = 0; await(turn->go[0]); block++) {
        create_destroy(&maker, BLOCK_ROUNDS, &create, NULL);
        if (block == 0)
            create.count = 0; /* warming up */
        pass(turn->done[1]);
    }
    memcpy(samples, create.samples, BLOCKS * BLOCK_ROUNDS * sizeof(*samples));
    maker_close(&maker);
    _exit(0);
}

static pid_t start_contender(struct turn *turn, const char *prefix, const char *root,
                             const char *place, uint64_t *samples)
{
    pid_t pid;

    if (pipe2(turn->go, O_CLOEXEC) < 0 || pipe2(turn->done, O_CLOEXEC) < 0)
        fail("cannot make pipes");
    pid = fork();
    if (pid < 0)
        fail("cannot fork");
    if (pid == 0) {
        (void)close(turn->go[1]);
        contend(turn, prefix, root, place, samples);
    }
    (void)close(turn->go[0]);
    (void)close(turn->done[1]);
    return pid;
}

static void bench_mounts(char prefixes[3][CGROUP_NAME_MAX], const char *root, const char *place)
{
    static const char *const names[] = {"create_few_mounts", "create_many_mounts"};
    const size_t count = BLOCKS * BLOCK_ROUNDS;
    struct turn turns[2];
    uint64_t *shared = mmap(NULL, 2 * count * sizeof(*shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct series series;
    pid_t pids[2];
    int status;

    if (shared == MAP_FAILED)
        fail("cannot map memory");
    for (size_t i = 0; i < 2; i++)
        pids[i] = start_contender(&turns[i], prefixes[i], root, i == 0 ? NULL : place,
                                  shared + i * count);
    for (size_t block = 0; block < BLOCKS + 1; block++)
        for (size_t i = 0; i < 2; i++) {
            pass(turns[i].go[1]);
            if (!await(turns[i].done[0])) {
                errno = EPIPE;
                fail("a contender has ended");
            }
        }
    /* Both first: the second has a copy of the first one's pipe. */
    for (size_t i = 0; i < 2; i++) {
        (void)close(turns[i].go[1]);
        (void)close(turns[i].done[0]);
    }
    for (size_t i = 0; i < 2; i++) {
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0)
            fail("a contender failed");
        series_init(&series, names[i], "ns", count);
        for (size_t j = 0; j < count; j++)
            series_add(&series, shared[i * count + j]);
        finish(&series);
    }
    (void)munmap(shared, 2 * count * sizeof(*shared));
}

/* ---- idle boxes ---- */

/* Bytes that the machine could still give away. */
static uint64_t available(void)
{
    char text[4096];
    const char *at;

    if (fd_read_file(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
        fail("cannot read /proc/meminfo");
    at = strstr(text, "MemAvailable:");
    return at != NULL ? strtoull(at + sizeof("MemAvailable:") - 1, NULL, 10) * 1024 : 0;
}

static void add_name(char *name, size_t size, const char *what, size_t alive)
{
    (void)snprintf(name, size, "%s_%zu", what, alive);
}

/* In boxes drawn at random: first a command that is the first of its box, for most of them, and then
 * one more in each of the same, in turn with one box that is always the same. */
static void bench_exec_among(struct maker *maker, const struct made *made, size_t alive)
{
    char first_name[64], exec_name[64], one_name[64];
    struct series first, exec, one;
    size_t drawn[ALIVE_EXECS];

    add_name(first_name, sizeof(first_name), "exec_first", alive);
    add_name(exec_name, sizeof(exec_name), "exec", alive);
    add_name(one_name, sizeof(one_name), "exec_beside", alive);
    series_init(&first, first_name, "ns", ALIVE_EXECS);
    series_init(&exec, exec_name, "ns", ALIVE_EXECS);
    series_init(&one, one_name, "ns", ALIVE_EXECS);
    for (size_t i = 0; i < ALIVE_EXECS; i++) {
        drawn[i] = (size_t)random() % alive;
        series_add(&first, time_exec(maker, made[drawn[i]].box));
    }
    for (size_t i = 0; i < ALIVE_EXECS; i++) {
        series_add(&exec, time_exec(maker, made[drawn[i]].box));
        series_add(&one, time_exec(maker, made[0].box));
    }
    finish(&first);
    finish(&exec);
    finish(&one);
}

/* Creates boxes up to `alive` and measures among them. `before` is what was available with none. */
static void bench_alive(struct maker *maker, struct made *made, size_t from, size_t alive,
                        uint64_t before)
{
    char memory_name[64], create_name[64];
    struct series memory, create;

    for (size_t i = from; i < alive; i++) {
        maker_fill(maker, BLOCK_ROUNDS);
        made[i] = maker_create(maker);
        maker_settle(maker, made[i]);
    }
    add_name(memory_name, sizeof(memory_name), "memory", alive);
    series_init(&memory, memory_name, "bytes", 1);
    series_add(&memory, (before - available()) / alive);
    finish(&memory);

    bench_exec_among(maker, made, alive);
    add_name(create_name, sizeof(create_name), "create", alive);
    series_init(&create, create_name, "ns", ALIVE_ROUNDS);
    create_destroy(maker, ALIVE_ROUNDS, &create, NULL);
    finish(&create);
}

static void bench_idle(struct maker *maker)
{
    struct made *made = calloc(ALIVE_MANY, sizeof(*made));
    uint64_t before = available(), start;
    struct series destroy;

    if (made == NULL)
        fail("no memory");
    bench_alive(maker, made, 0, ALIVE_FEW, before);
    bench_alive(maker, made, ALIVE_FEW, ALIVE_MANY, before);
    series_init(&destroy, "destroy_all", "ns", ALIVE_MANY);
    for (size_t i = 0; i < ALIVE_MANY; i++) {
        start = series_now_ns();
        maker_destroy(maker, made[i]);
        series_add(&destroy, series_now_ns() - start);
    }
    finish(&destroy);
    free(made);
}

static void raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        fail("cannot read the number of open files");
    if (limit.rlim_max < FDS_NEEDED)
        limit.rlim_max = FDS_NEEDED;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        fail("cannot raise the number of open files; raise its hard limit (ulimit -Hn)");
}

static void measure(char prefixes[3][CGROUP_NAME_MAX], char **argv)
{
    struct maker maker;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    out = fopen(argv[1], "w");
    if (out == NULL)
        fail("cannot write the results");
    raise_fd_limit();
    bench_mounts(prefixes, argv[2], argv[4]);
    maker_open(&maker, prefixes[2], argv[2], ALIVE_MANY + BLOCK_ROUNDS);
    maker_fill(&maker, BLOCK_ROUNDS);
    bench_exec(&maker, argv[3]);
    bench_create(&maker);
    bench_first(&maker);
    bench_throughput(&maker);
    bench_idle(&maker);
    maker_close(&maker);
    if (fclose(out) != 0)
        fail("cannot write the results");
}

/* The measuring is done by a child, so that somebody is there to clean up when it fails. */
int main(int argc, char **argv)
{
    static const size_t rooms[] = {BLOCK_ROUNDS, BLOCK_ROUNDS, ALIVE_MANY + BLOCK_ROUNDS};
    char prefixes[3][CGROUP_NAME_MAX];
    int status = 0;
    pid_t pid;

    if (argc != 5) {
        (void)fprintf(stderr, "usage: box OUT ROOT TRUE EMPTY_DIRECTORY\n");
        return 2;
    }
    for (size_t i = 0; i < 3; i++)
        (void)snprintf(prefixes[i], sizeof(prefixes[i]), "bench-%d-%zu", (int)getpid(), i);
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    pid = fork();
    if (pid < 0)
        fail("cannot fork");
    if (pid == 0) {
        (void)signal(SIGINT, SIG_DFL);
        (void)signal(SIGTERM, SIG_DFL);
        measure(prefixes, argv);
        return 0;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (status == 0)
        return 0;
    for (size_t i = 0; i < 3; i++)
        maker_sweep(prefixes[i], rooms[i]);
    return 1;
}
