/* How file locks are counted: each once, however many threads, processes and duplicates show it, and all of those that
 * a box has. The box is a pid namespace. */
#include "base/fd.h"
#include "box/locks.h"
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define HANDLE 4711

static int said[2]; /* by the subject: it has its locks */

static int lock_bytes(int count)
{
    int fd = memfd_create("locks", 0);

    for (int i = count; i-- > 0;) {
        struct flock lock = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2L * i, .l_len = 1};

        if (fcntl(fd, F_SETLK, &lock) < 0)
            _exit(1);
    }
    return fd;
}

static _Noreturn void stay(void)
{
    (void)fd_write_full(said[1], "1", 1);
    for (;;)
        (void)pause();
}

static void *sleep_long(void *arg)
{
    for (;;)
        (void)pause();
    return arg;
}

static void of_threads_and_duplicates(void)
{
    pthread_t thread;

    for (int file = 0; file < 3; file++) {
        int fd = lock_bytes(1000);

        for (int i = 0; i < 20; i++)
            CHECK(dup(fd) >= 0, "a duplicate");
    }
    for (int i = 0; i < 5; i++)
        (void)pthread_create(&thread, NULL, sleep_long, NULL);
    stay();
}

static void *lock_apart(void *arg)
{
    if (unshare(CLONE_FILES) < 0)
        _exit(1);
    (void)lock_bytes(1500);
    stay();
    return arg;
}

static void of_a_thread_apart(void)
{
    pthread_t thread;

    (void)lock_bytes(100);
    (void)pthread_create(&thread, NULL, lock_apart, NULL);
    (void)sleep_long(NULL);
}

static void of_a_thread_alone(void)
{
    pthread_t thread;

    (void)pthread_create(&thread, NULL, lock_apart, NULL);
    pthread_exit(NULL);
}

static void of_a_child(void)
{
    (void)lock_bytes(800);
    if (fork() == 0)
        (void)lock_bytes(700);
    else
        stay();
    stay();
}

/* The pid of the namespace's first process. */
static pid_t subject_start(void (*subject)(void), pid_t *nest)
{
    int ends[2];
    pid_t pid = 0;

    if (pipe2(said, O_CLOEXEC) < 0 || pipe2(ends, O_CLOEXEC) < 0)
        exit(1);
    *nest = fork();
    if (*nest == 0) {
        if (unshare(getuid() == 0 ? CLONE_NEWPID : CLONE_NEWUSER | CLONE_NEWPID) < 0)
            _exit(1);
        pid = fork();
        if (pid == 0)
            subject();
        (void)fd_write_full(ends[1], &pid, sizeof(pid));
        (void)waitpid(pid, NULL, 0);
        _exit(0);
    }
    (void)close(ends[1]);
    (void)close(said[1]);
    (void)fd_read_full(ends[0], &pid, sizeof(pid));
    (void)close(ends[0]);
    return pid;
}

/* The last that is said. */
static struct counted_found count_all(uint64_t space, int holder, struct counted_found *first)
{
    struct counted_found found = {0}, last = {0};
    struct counted_box boxes[3] = {{1, 0, 0}, {HANDLE, space, 0}, {2, 1, 0}};
    size_t count = 0;
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0)
        exit(1);
    pid = fork();
    if (pid == 0) {
        locks_count(holder, boxes, 3, 2, ends[1]);
        _exit(0);
    }
    (void)close(ends[1]);
    while (fd_read_full(ends[0], &found, sizeof(found)) == (ssize_t)sizeof(found)) {
        if (count++ == 0 && first != NULL)
            *first = found;
        if (found.handle == HANDLE)
            last = found;
    }
    (void)close(ends[0]);
    (void)waitpid(pid, NULL, 0);
    return last;
}

static void check_count(const char *what, void (*subject)(void), int speakers, uint64_t expected)
{
    pid_t nest, pid = subject_start(subject, &nest);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct counted_found found = {0}, first = {0};
    uint64_t space = processes_space(processes_pid(pidfd));
    char byte;

    for (int i = 0; i < speakers; i++)
        CHECK(fd_read_full(said[0], &byte, 1) == 1, "%s: has no locks", what);
    CHECK(space != 0 && processes_space(processes_pid(-1)) == 0, "%s: no namespace", what);
    found = count_all(space, 0, NULL);
    CHECK(found.count == expected, "%s: %lu locks, not %lu", what, (unsigned long)found.count,
          (unsigned long)expected);
    (void)count_all(space, (int)pid, &first);
    CHECK(first.handle == HANDLE && first.count == LOCKS_ANONYMOUS, "%s: no holder", what);
    (void)count_all(space, (int)getpid(), &first);
    CHECK(first.count != LOCKS_ANONYMOUS, "%s: a holder from elsewhere", what);
    (void)kill(pid, SIGKILL);
    (void)waitpid(nest, NULL, 0);
    (void)close(said[0]);
    (void)close(pidfd);
}

int main(void)
{
    check_count("threads and duplicates", of_threads_and_duplicates, 1, 3000);
    check_count("a thread with files of its own", of_a_thread_apart, 1, 1600);
    check_count("a thread whose process has no other", of_a_thread_alone, 1, 1500);
    check_count("a child", of_a_child, 2, 1500);
    return check_finish();
}
