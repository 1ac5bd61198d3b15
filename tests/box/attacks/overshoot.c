/* Entry 65: memory of every kind, taken as fast as it goes and told at each step, so that a test can
 * see how far beyond its limit a box came, and for how long. Where no cgroup keeps the limit, a
 * watchdog does, which is late by its nature: this is how late. Every bomb ends by itself at a bound. */
#include "attack.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024UL * 1024UL)

static size_t taken;

/* The box's own clocks begin with it, so this one, which is the host's. */
static void tell(size_t more)
{
    struct timespec now;

    taken += more;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)printf("{\"bytes\": %zu, \"ns\": %lld, \"walled\": true}\n", taken,
                 (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    (void)fflush(stdout);
}

static char *map(size_t size, int flags, int fd)
{
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

/* ---- one step of each kind: a MiB more, or false where there is none ---- */

static bool take_private(void)
{
    char *at = map(MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    return at != NULL && memset(at, 'x', MIB) != NULL;
}

static bool take_shared(void)
{
    char *at = map(MIB, MAP_SHARED | MAP_ANONYMOUS, -1);

    return at != NULL && memset(at, 'x', MIB) != NULL;
}

static bool take_segment(void)
{
    int id = shmget(IPC_PRIVATE, MIB, IPC_CREAT | 0600);
    char *at = id < 0 ? (char *)-1 : shmat(id, NULL, 0);

    if (at == (char *)-1)
        return false;
    memset(at, 'x', MIB);
    return shmdt(at) == 0; /* so that it belongs to no process */
}

static bool take_of(int fd)
{
    static char block[MIB];

    return fd >= 0 && write(fd, block, sizeof(block)) == (ssize_t)sizeof(block);
}

static bool take_memfd(void)
{
    static int fd = -2;

    if (fd == -2)
        fd = memfd_create("bomb", MFD_CLOEXEC);
    return take_of(fd);
}

static bool take_file(void)
{
    static int fd = -2;

    if (fd == -2)
        fd = open("/tmp/bomb", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return take_of(fd);
}

/* In a file that nothing names and no process has open. */
static bool take_unlinked(void)
{
    int fd = open("/dev/shm/bomb", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char *at;

    if (fd < 0 || unlink("/dev/shm/bomb") < 0 || ftruncate(fd, (off_t)MIB) < 0)
        return false;
    at = map(MIB, MAP_SHARED, fd);
    (void)close(fd);
    return at != NULL && memset(at, 'x', MIB) != NULL;
}

/* A process for every 20 MiB. */
static bool take_process(void)
{
    int ready[2];
    char byte;
    pid_t child;

    if (taken % (20 * MIB) != 0)
        return true;
    if (pipe(ready) < 0 || (child = fork()) < 0)
        return false;
    if (child == 0) {
        char *at = map(20 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);

        if (at != NULL)
            memset(at, 'x', 20 * MIB);
        (void)!write(ready[1], "r", 1);
        (void)pause();
        _exit(0);
    }
    (void)close(ready[1]);
    (void)!read(ready[0], &byte, 1);
    (void)close(ready[0]);
    return true;
}

/* Of every two by a child, so that neither is beyond the limit before both together are far. */
static bool take_in_pair(void)
{
    static int ends[2] = {-1, -1};
    char byte = 'm';

    if (ends[0] < 0) {
        pid_t child;

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 || (child = fork()) < 0)
            return false;
        if (child == 0) {
            (void)close(ends[0]);
            while (read(ends[1], &byte, 1) == 1 && take_private())
                (void)send(ends[1], &byte, 1, MSG_NOSIGNAL);
            _exit(0);
        }
        (void)close(ends[1]);
    }
    /* Alone, once the child is gone. */
    return (taken / MIB % 2 == 0 && send(ends[0], &byte, 1, MSG_NOSIGNAL) == 1 &&
            read(ends[0], &byte, 1) == 1) ||
           take_private();
}

static const struct {
    const char *name;
    bool (*take)(void);
} kinds[] = {
    {"private", take_private},   {"shared", take_shared}, {"segments", take_segment},
    {"memfd", take_memfd},       {"file", take_file},     {"unlinked", take_unlinked},
    {"processes", take_process}, {"pair", take_in_pair},
};

static void overshoot(void)
{
    const char *kind = attack_word(0, "private");
    size_t most = (size_t)attack_number(1, 1024) * MIB;
    long busy = attack_number(2, 0);

    for (long i = 0; i < busy; i++)
        if (fork() == 0)
            for (;;)
                continue;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, kind) != 0)
            continue;
        while (taken < most && kinds[i].take())
            tell(MIB);
        attack_check(kind, taken < most, "%zu MiB, errno %d", taken / MIB, errno);
    }
}

/* ---- 66: a fork bomb of which each process is another user: only root of a box can ---- */

static void fork_users(void)
{
    long most = attack_number(0, 4000), users = attack_number(1, 1000), made = 0;

    for (; made < most; made++) {
        pid_t child = fork();

        if (child < 0)
            break;
        if (child == 0) {
            (void)!setuid((uid_t)(1 + made % users));
            (void)pause();
            _exit(0);
        }
    }
    attack_check("processes of many users", made < most, "%ld: %d", made, errno);
    (void)pause();
}

/* ---- 67: memory that is shared counts once ---- */

static void share(void)
{
    size_t size = (size_t)attack_number(0, 40) * MIB;
    long children = attack_number(1, 8);
    bool shared = strcmp(attack_word(2, "private"), "shared") == 0;
    struct timespec time = {.tv_sec = attack_number(3, 1)};
    char *at = map(size, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1);
    volatile char sum = 0;
    int status, ended = 0;

    if (at == NULL)
        return;
    memset(at, 'x', size);
    for (long i = 0; i < children; i++) {
        if (fork() != 0)
            continue;
        for (size_t byte = 0; byte < size; byte += 4096)
            sum = (char)(sum + at[byte]);
        (void)nanosleep(&time, NULL);
        _exit(0);
    }
    while (wait(&status) > 0)
        ended += status == 0;
    attack_check("shared memory", ended == children, "%d of %ld lived", ended, children);
}

const struct attack overshoot_attacks[] = {
    {65, overshoot},
    {66, fork_users},
    {67, share},
    {0, NULL},
};
