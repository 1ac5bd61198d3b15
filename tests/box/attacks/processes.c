/* Entries 20, 22, 46, 47, 64 and 71: init, and the processes beside. */
#include "attack.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Where an id of the box owns the files of init, the kernel refuses what is read from them. */
static long read_of_init(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), error;
    char bytes[256];
    long n;

    if (fd < 0)
        return -1;
    n = read(fd, bytes, 1);
    if (n < 0 && errno == EISDIR)
        while ((n = syscall(SYS_getdents64, fd, bytes, sizeof(bytes))) > 0)
            continue;
    error = errno;
    (void)close(fd);
    errno = error;
    return n;
}

static long favour(const char *path, const char *score)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), error;
    long n;

    if (fd < 0)
        return -1;
    n = write(fd, score, strlen(score));
    error = errno;
    (void)close(fd);
    errno = error;
    return n;
}

static void open_of_init(void)
{
    static const char *const names[] = {"mem",   "environ", "exe",    "maps",      "root",
                                        "cwd",   "fd",      "fdinfo", "auxv",      "syscall",
                                        "stack", "pagemap", "io",     "map_files", "personality"};
    char path[64], link[64];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "/proc/1/%s", names[i]);
        /* Root of the box may list the numbers of init's fds, but reach none of them. */
        if (attack_is_root() && (strcmp(names[i], "fd") == 0 || strcmp(names[i], "fdinfo") == 0))
            continue;
        REFUSED(path, read_of_init(path), EACCES, EPERM, ENOENT);
    }
    for (int fd = 0; fd < 8; fd++) {
        (void)snprintf(path, sizeof(path), "/proc/1/fd/%d", fd);
        REFUSED(path, attack_open(path, O_RDWR), EACCES, EPERM, ENOENT);
        REFUSED(path, readlink(path, link, sizeof(link)), EACCES, EPERM, ENOENT);
    }
    REFUSED("writing /proc/1/mem", attack_open("/proc/1/mem", O_RDWR), EACCES, EPERM);
    REFUSED("writing /proc/1/exe", attack_open("/proc/1/exe", O_WRONLY), EACCES, EPERM);
    /* Lower than what any process has that its maker did not favour. */
    REFUSED("lowering /proc/1/oom_score_adj", favour("/proc/1/oom_score_adj", "-1"), EACCES, EPERM);
    REFUSED("reading /proc/1/exe", readlink("/proc/1/exe", link, sizeof(link)), EACCES, EPERM);
    REFUSED("writing /proc/self/exe", attack_open("/proc/self/exe", O_WRONLY), EROFS, ETXTBSY,
            EACCES);
}

static void touch_init(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
    long pidfd;

    REFUSED("ptrace attach", ptrace(PTRACE_ATTACH, 1, NULL, NULL), EPERM);
    REFUSED("ptrace seize", ptrace(PTRACE_SEIZE, 1, NULL, NULL), EPERM);
    REFUSED("process_vm_readv", syscall(SYS_process_vm_readv, 1, &here, 1UL, &there, 1UL, 0UL),
            EPERM);
    REFUSED("process_vm_writev", syscall(SYS_process_vm_writev, 1, &here, 1UL, &there, 1UL, 0UL),
            EPERM);
    REFUSED("kcmp", syscall(SYS_kcmp, getpid(), 1, 0, 0UL, 0UL), EPERM, EACCES);
    pidfd = syscall(SYS_pidfd_open, 1, 0);
    for (int fd = 0; fd < 8; fd++)
        REFUSED("pidfd_getfd", syscall(SYS_pidfd_getfd, (int)pidfd, fd, 0), EPERM);
    REFUSED("process_madvise", syscall(440, (int)pidfd, &there, 1UL, 21, 0), EPERM, EINVAL, EACCES);
    REFUSED("the robust list of init", syscall(SYS_get_robust_list, 1, &there, &here), EPERM);
}

/* Debuggers have to work on what is one's own. */
static int be_traced(void *argument)
{
    (void)argument;
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 ? 0 : 1;
}

static void trace(void)
{
    int status;

    open_of_init();
    touch_init();
    status = attack_child(be_traced, NULL);
    attack_check("a child may be traced", WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x",
                 (unsigned)status);
}

static int do_nothing(void *argument)
{
    (void)argument;
    return 7;
}

/* All 64 at once and queued too; the box has to work as before. */
static void signal_init(void)
{
    int status, odd = 0;

    for (int number = 1; number <= 64; number++) {
        siginfo_t info = {.si_signo = number, .si_code = SI_QUEUE};

        if (kill(1, number) < 0 && errno != EPERM)
            odd++;
        (void)syscall(SYS_tkill, 1, number);
        (void)syscall(SYS_rt_sigqueueinfo, 1, number, &info);
    }
    attack_check("64 signals to init", odd == 0, "%d odd answers", odd);
    status = attack_child(do_nothing, NULL);
    attack_check("a child afterwards", WIFEXITED(status) && WEXITSTATUS(status) == 7, "%#x",
                 (unsigned)status);
    attack_check("init is there", kill(1, 0) == 0 || errno == EPERM, "%d", errno);
}

static int kill_all(void *argument)
{
    (void)argument;
    (void)setsid();
    (void)kill(-1, SIGTERM);
    (void)kill(-1, SIGKILL);
    return 0; /* kill() does not reach the caller */
}

/* Kills everything but init: also this program's parent, so it is said first. */
static void signal_everybody(void)
{
    if (strcmp(attack_word(0, ""), "everybody") == 0) {
        attack_check("about to kill everybody", true, "pid %d", getpid());
        (void)attack_child(kill_all, NULL);
        return;
    }
    REFUSED("init's process group", setpgid(1, 0), EPERM, ESRCH);
    REFUSED("joining init's group", setpgid(0, 1), EPERM);
    REFUSED("a session of its own, again", setsid() < 0 ? -1 : setpgid(0, 0), EPERM);
    signal_init();
}

/* ---- 20: what is left behind ---- */

static void leave_zombies(void)
{
    long wanted = attack_number(1, 1000), made = 0;

    for (; made < wanted; made++) {
        pid_t child = fork();

        if (child == 0)
            _exit(0);
        if (child < 0)
            break;
    }
    attack_value("zombies", made);
}

static void be_stubborn(const char *kind)
{
    if (strcmp(kind, "ignoring") == 0)
        for (int number = 1; number < 32; number++)
            (void)signal(number, SIG_IGN);
    if (strcmp(kind, "stopped") == 0)
        (void)raise(SIGSTOP);
    for (;;)
        (void)pause();
}

static void leave_daemon(const char *kind)
{
    pid_t child = fork();

    if (child == 0) {
        (void)setsid();
        if (fork() != 0)
            _exit(0);
        be_stubborn(kind);
    }
    (void)waitpid(child, NULL, 0);
    attack_check(kind, true, "left behind");
}

static void leave_behind(void)
{
    const char *kind = attack_word(0, "zombies");

    if (strcmp(kind, "zombies") == 0) {
        leave_zombies();
        return;
    }
    for (int i = 0; i < 20; i++)
        leave_daemon(kind);
}

/* ---- 22: an exec storm ---- */

static void storm(void)
{
    long wanted = attack_number(0, 5000), done = 0;
    char *const argv[] = {(char *)"/attack/attack", NULL};

    for (long i = 0; i < wanted; i++) {
        int status;
        pid_t child = vfork();

        if (child == 0) {
            (void)close(2);
            (void)execv(argv[0], argv);
            _exit(127);
        }
        if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
            WEXITSTATUS(status) == 2)
            done++;
    }
    attack_value("programs run", done);
}

/* ---- 71: the kernel that wants memory ---- */

static void favour_itself(void)
{
    const char *less = attack_word(0, "199");

    REFUSED("lowering /proc/self/oom_score_adj", favour("/proc/self/oom_score_adj", less), EACCES);
    REFUSED("the same of a thread", favour("/proc/thread-self/oom_score_adj", less), EACCES);
    REFUSED("by its old name", favour("/proc/self/oom_adj", "-1"), EACCES);
    attack_check("raising it", favour("/proc/self/oom_score_adj", "201") == 3, "errno %d", errno);
    REFUSED("lowering it again", favour("/proc/self/oom_score_adj", less), EACCES);
}

const struct attack processes_attacks[] = {
    {20, leave_behind},     {22, storm},         {46, trace},
    {47, signal_everybody}, {71, favour_itself}, {0, NULL},
};
