/* Times whole commands beside each other: from the call that starts one until it has been reaped.
 *
 * usage: spawn OUT ROUNDS BLOCK PAUSE_MS CONTESTANT... where a CONTESTANT is
 *            NAME [+FD=FILE]... [@namespaces] [@without=MOUNT] PROGRAM [ARG]... ,,
 * Every round runs each contestant BLOCK times, in an order that is drawn anew, so that noise hits
 * all of them alike. A block of several runs starts with one that is not measured: it pays for what
 * the predecessor left behind (the kernel takes network namespaces down later).
 * +FD=FILE opens a file for the command. @namespaces starts it by one bare clone3 with the seven
 * namespaces of a box: the floor. @without=MOUNT runs it in a mount namespace that lacks a mount of
 * the host, for a peer that refuses to run where it is. Static and small, for what starts a process
 * is part of what the process costs; it must not print or allocate while it measures. */
#include "series.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONTESTANTS_MAX 16
#define WARM_UP_ROUNDS 3
#define NAMESPACES                                                                             \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
     CLONE_NEWCGROUP)

struct contestant {
    struct series series;
    char **argv;
    posix_spawn_file_actions_t actions;
    bool namespaces;
    int mounts; /* mount namespace to start it from; -1: the host's */
};

static int host_mounts;

static char **no_environment = (char *[]){"PATH=/usr/bin:/bin", "LANG=C.UTF-8", NULL};

static _Noreturn void fail(const char *what, const char *name)
{
    (void)fprintf(stderr, "bench: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static pid_t start_in_namespaces(const struct contestant *contestant)
{
    struct clone_args args = {.flags = NAMESPACES, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

    if (pid != 0)
        return pid;
    (void)execve(contestant->argv[0], contestant->argv, no_environment);
    _exit(127);
}

static pid_t start(const struct contestant *contestant)
{
    pid_t pid;

    if (contestant->namespaces)
        return start_in_namespaces(contestant);
    errno = posix_spawn(&pid, contestant->argv[0], &contestant->actions, NULL, contestant->argv,
                        no_environment);
    return errno == 0 ? pid : -1;
}

/* The exit status of one run as of waitpid(2), -1 if it did not start. */
static int run(const struct contestant *contestant)
{
    int status;
    pid_t pid = start(contestant);

    if (pid < 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status;
}

/* Where the next process starts is never part of what is measured. */
static void enter(int mounts)
{
    if (mounts >= 0 && setns(mounts, CLONE_NEWNS) < 0)
        fail("cannot enter", "a mount namespace");
}

static void measure(struct contestant *contestant, bool counts)
{
    uint64_t before, after;
    int status;

    enter(contestant->mounts);
    before = series_now_ns();
    status = run(contestant);
    after = series_now_ns();
    enter(contestant->mounts >= 0 ? host_mounts : -1);
    if (status != 0)
        contestant->series.failures++;
    else if (counts)
        series_add(&contestant->series, after - before);
}

/* "+FD=FILE": each run opens the file afresh, for a command reads it to its end. */
static void add_file(struct contestant *contestant, const char *text)
{
    char *path;
    long fd = strtol(text, &path, 10);

    if (*path++ != '=' ||
        posix_spawn_file_actions_addopen(&contestant->actions, (int)fd, path, O_RDONLY, 0) != 0) {
        errno = EINVAL;
        fail("cannot understand", text);
    }
}

static void lose_mount(struct contestant *contestant, const char *path)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        umount2(path, MNT_DETACH) < 0)
        fail("cannot do without", path);
    contestant->mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (contestant->mounts < 0)
        fail("cannot open", "a mount namespace");
    enter(host_mounts);
}

static void read_attribute(struct contestant *contestant, const char *text)
{
    static const char without[] = "@without=";

    if (*text == '+') {
        add_file(contestant, text + 1);
    } else if (strcmp(text, "@namespaces") == 0) {
        contestant->namespaces = true;
    } else if (strncmp(text, without, sizeof(without) - 1) == 0) {
        lose_mount(contestant, text + sizeof(without) - 1);
    } else {
        errno = EINVAL;
        fail("cannot understand", text);
    }
}

/* Reads one contestant from `argv` and returns where the next one starts. */
static char **read_contestant(struct contestant *contestant, char **argv, size_t rounds)
{
    series_init(&contestant->series, *argv++, "ns", rounds);
    if (posix_spawn_file_actions_init(&contestant->actions) != 0)
        fail("cannot prepare", contestant->series.name);
    contestant->mounts = -1;
    for (; *argv != NULL && (**argv == '+' || **argv == '@'); argv++)
        read_attribute(contestant, *argv);
    contestant->argv = argv;
    while (*argv != NULL && strcmp(*argv, ",,") != 0)
        argv++;
    if (*argv != NULL)
        *argv++ = NULL;
    if (contestant->argv[0] == NULL) {
        errno = EINVAL;
        fail("no program for", contestant->series.name);
    }
    return argv;
}

/* A contestant that cannot run at all is a mistake to mend, not a measurement. */
static void warm_up(const struct contestant *contestants, size_t count)
{
    for (size_t round = 0; round < WARM_UP_ROUNDS; round++)
        for (size_t i = 0; i < count; i++) {
            int status;

            enter(contestants[i].mounts);
            status = run(&contestants[i]);
            enter(contestants[i].mounts >= 0 ? host_mounts : -1);
            if (status == 0)
                continue;
            (void)fprintf(stderr, "bench: %s fails (wait status 0x%x), so nothing is measured\n",
                          contestants[i].series.name, (unsigned)status);
            exit(1);
        }
}

/* Fixed seed: two runs of the bench draw the same orders. */
static size_t draw(size_t below)
{
    static uint64_t state = 0x9e3779b97f4a7c15U;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state % below);
}

static void shuffle(size_t *order, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = draw(i), kept = order[i - 1];

        order[i - 1] = order[other];
        order[other] = kept;
    }
}

static void run_block(struct contestant *contestant, size_t block, long pause_ms)
{
    const struct timespec pause = {.tv_sec = pause_ms / 1000, .tv_nsec = pause_ms % 1000 * 1000000};

    if (block > 1)
        measure(contestant, false);
    for (size_t i = 0; i < block; i++) {
        if (pause_ms > 0)
            (void)nanosleep(&pause, NULL);
        measure(contestant, true);
    }
}

static void race(struct contestant *contestants, size_t count, size_t rounds, size_t block,
                 long pause_ms)
{
    size_t order[CONTESTANTS_MAX];

    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t round = 0; round < rounds; round++) {
        shuffle(order, count);
        for (size_t i = 0; i < count; i++)
            run_block(&contestants[order[i]], block, pause_ms);
    }
}

int main(int argc, char **argv)
{
    struct contestant contestants[CONTESTANTS_MAX] = {0};
    size_t count = 0, rounds, block;
    long pause_ms;
    FILE *out;
    int null;

    if (argc < 6) {
        (void)fprintf(stderr, "usage: spawn OUT ROUNDS BLOCK PAUSE_MS CONTESTANT...\n");
        return 2;
    }
    host_mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (host_mounts < 0)
        fail("cannot open", "/proc/self/ns/mnt");
    rounds = (size_t)strtoul(argv[2], NULL, 10);
    block = (size_t)strtoul(argv[3], NULL, 10);
    pause_ms = strtol(argv[4], NULL, 10);
    for (char **at = argv + 5; *at != NULL; count++) {
        if (count == CONTESTANTS_MAX) {
            errno = E2BIG;
            fail("too many contestants at", *at);
        }
        at = read_contestant(&contestants[count], at, rounds * block);
    }
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
        fail("cannot open", "/dev/null");
    warm_up(contestants, count);
    race(contestants, count, rounds, block, pause_ms);
    out = fopen(argv[1], "w");
    if (out == NULL)
        fail("cannot write", argv[1]);
    for (size_t i = 0; i < count; i++)
        if (series_write(&contestants[i].series, out) < 0)
            fail("cannot write", argv[1]);
    return fclose(out) == 0 ? 0 : 1;
}
