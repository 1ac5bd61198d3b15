/* A worker that was taken over: a process that shut itself in by the worker's own function tries what there is. Each
 * attempt is one of a child's, which must not live to hear how it went; and of all system calls, only those that are
 * named here again come back. */
#include "kit.h"

#include "kernel/worker/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBERS_MAX 600 /* more than any kernel has */
#define CAME_BACK 42

/* What a child has from before; a worker has less. */
static int pair[2];
static char page[8192] __attribute__((aligned(4096)));
static pid_t parent;

/* How a child that shut itself in and does this ends. */
static int attempt(void (*work)(long), long argument)
{
    struct rlimit none = {0, 0};
    struct error err;
    int status = 0;
    pid_t child;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &none);
        /* The filter that is loaded says so, before anything of the test's. */
        if (filter_shut_in(&err) < 0)
            _exit(1);
        work(argument);
        _exit(CAME_BACK);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "a child");
    return status;
}

static bool is_stopped(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

static bool came_back(int status)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == CAME_BACK;
}

/* ---- attempts that mean it ---- */

static void do_open(long unused)
{
    (void)unused;
    (void)syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
}

static void do_openat2(long unused)
{
    struct open_how how = {.flags = O_RDONLY};

    (void)unused;
    (void)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));
}

static void do_socket(long unused)
{
    (void)unused;
    (void)socket(AF_INET, SOCK_STREAM, 0);
}

static void do_socketpair(long unused)
{
    int two[2];

    (void)unused;
    (void)socketpair(AF_UNIX, SOCK_STREAM, 0, two);
}

static void do_connect(long unused)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/x"};

    (void)unused;
    (void)connect(pair[0], (struct sockaddr *)&address, sizeof(address));
}

static void do_exec(long unused)
{
    char *argv[] = {(char *)"/bin/sh", NULL};

    (void)unused;
    (void)execve(argv[0], argv, argv);
}

static void do_execveat(long unused)
{
    char *argv[] = {(char *)"x", NULL};

    (void)unused;
    (void)syscall(SYS_execveat, pair[0], "", argv, argv, AT_EMPTY_PATH);
}

static void do_ptrace(long unused)
{
    (void)unused;
    (void)ptrace(PTRACE_SEIZE, parent, NULL, NULL);
}

static void do_kill(long unused)
{
    (void)unused;
    (void)kill(parent, 0);
}

static void do_tgkill(long unused)
{
    (void)unused;
    (void)syscall(SYS_tgkill, parent, parent, 0);
}

static void do_fork(long unused)
{
    (void)unused;
    (void)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void do_clone3(long unused)
{
    uint64_t how[11] = {0};

    (void)unused;
    (void)syscall(SYS_clone3, how, sizeof(how));
}

static void do_unshare(long unused)
{
    (void)unused;
    (void)unshare(CLONE_NEWUSER);
}

static void do_map_code(long unused)
{
    (void)unused;
    (void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void do_map_writable_code(long unused)
{
    (void)unused;
    (void)mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void do_protect_code(long unused)
{
    (void)unused;
    (void)mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

static void do_pkey_protect(long unused)
{
    (void)unused;
    (void)syscall(SYS_pkey_mprotect, page, 4096, PROT_READ | PROT_EXEC, -1);
}

static void do_io_uring(long unused)
{
    struct io_uring_params parameters = {0};

    (void)unused;
    (void)syscall(SYS_io_uring_setup, 4, &parameters);
}

static void do_bpf(long unused)
{
    union bpf_attr how = {0};

    (void)unused;
    (void)syscall(SYS_bpf, BPF_MAP_CREATE, &how, sizeof(how));
}

static void do_userfaultfd(long unused)
{
    (void)unused;
    (void)syscall(SYS_userfaultfd, O_CLOEXEC);
}

static void do_read_memory(long unused)
{
    struct iovec here = {page, 1}, there = {page, 1};

    (void)unused;
    (void)process_vm_readv(parent, &here, 1, &there, 1, 0);
}

static void do_pass_descriptor(long unused)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct iovec one = {page, 1};
    struct msghdr message = {.msg_iov = &one,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};

    (void)unused;
    (void)sendmsg(pair[0], &message, 0);
}

static void do_take_descriptor(long unused)
{
    struct iovec one = {page, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};

    (void)unused;
    (void)recvmsg(pair[0], &message, MSG_DONTWAIT);
}

static void do_terminal(long unused)
{
    (void)unused;
    (void)ioctl(pair[0], TIOCSTI, page);
}

static void do_dumpable(long unused)
{
    (void)unused;
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static void do_second_filter(long unused)
{
    (void)unused;
    (void)syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, page);
}

static void do_memfd(long unused)
{
    (void)unused;
    (void)memfd_create("x", MFD_CLOEXEC);
}

static void do_duplicate(long unused)
{
    (void)unused;
    (void)!dup(pair[0]);
}

static void do_timer(long unused)
{
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    timer_t timer;

    (void)unused;
    (void)timer_create(CLOCK_MONOTONIC, &event, &timer);
}

static void do_limit(long unused)
{
    struct rlimit limit;

    (void)unused;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
}

static void *open_in_thread(void *unused)
{
    for (;;)
        do_open(0);
    return unused;
}

static const struct {
    const char *what;
    void (*work)(long);
} attempts[] = {
    {"open", do_open},
    {"openat2", do_openat2},
    {"socket", do_socket},
    {"socketpair", do_socketpair},
    {"connect", do_connect},
    {"execve", do_exec},
    {"execveat", do_execveat},
    {"ptrace", do_ptrace},
    {"kill", do_kill},
    {"tgkill", do_tgkill},
    {"fork", do_fork},
    {"clone3", do_clone3},
    {"unshare", do_unshare},
    {"executable memory", do_map_code},
    {"writable executable memory", do_map_writable_code},
    {"memory made executable", do_protect_code},
    {"memory made executable by its key", do_pkey_protect},
    {"io_uring", do_io_uring},
    {"bpf", do_bpf},
    {"userfaultfd", do_userfaultfd},
    {"another's memory", do_read_memory},
    {"a descriptor passed on", do_pass_descriptor},
    {"a descriptor taken", do_take_descriptor},
    {"input of a terminal", do_terminal},
    {"dumpable", do_dumpable},
    {"seccomp", do_second_filter},
    {"memfd", do_memfd},
    {"dup", do_duplicate},
    {"timer_create", do_timer},
    {"prlimit", do_limit},
};

static void tried(void)
{
    for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
        int status = attempt(attempts[i].work, 0);

        CHECK(is_stopped(status), "%s ends with status %#x", attempts[i].what, (unsigned)status);
    }
}

/* ---- all there are ---- */

/* The same list as the filter's, written a second time: what is added there has to be meant. */
static const long open_calls[] = {
    SYS_recvfrom,
    SYS_sendto,
    SYS_futex,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
    SYS_read,
    SYS_write,
    SYS_close,
    SYS_sched_yield,
    SYS_clock_gettime,
    SYS_getrusage,
    SYS_timer_settime,
    SYS_timerfd_settime,
    SYS_restart_syscall,
    SYS_rt_sigreturn,
    SYS_rt_sigprocmask,
    SYS_rt_sigaction,
    SYS_mmap,
    SYS_mprotect,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_getrandom,
    SYS_exit_group,
#ifdef __SANITIZE_ADDRESS__
    SYS_getpid,
    SYS_sched_getaffinity,
    SYS_sigaltstack,
#endif
};

static bool is_open(long number)
{
    for (size_t i = 0; i < sizeof(open_calls) / sizeof(open_calls[0]); i++)
        if (open_calls[i] == number)
            return true;
    return false;
}

/* What an uprobe's own code calls goes by every filter of x86_64's; called from elsewhere it does nothing, or ends the
 * process. Other machines have nothing of these numbers. */
static bool is_exempt(long number)
{
    return number == 335 || number == 336;
}

/* With what cannot do harm where it is let through. */
static void do_number(long number)
{
    (void)syscall(number, -1L, 0L, 0L, 0L, 0L, 0L);
}

static void all_numbers(void)
{
    for (long number = 0; number < NUMBERS_MAX; number++)
        if (!is_open(number) && !is_exempt(number)) {
            int status = attempt(do_number, number);

            CHECK(is_stopped(status), "call %ld ends with status %#x", number, (unsigned)status);
        }
    CHECK(is_stopped(attempt(do_number, 0x40000000)), "a number of x32");
    CHECK(is_stopped(attempt(do_number, 0x40000000 + SYS_read)), "and another");
}

/* ---- what a worker needs ---- */

static void do_allowed(long unused)
{
    struct timespec now;
    char byte = 1;
    void *memory = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)unused;
    if (memory == MAP_FAILED || mprotect(memory, 8192, PROT_READ | PROT_WRITE) < 0 ||
        madvise(memory, 8192, MADV_DONTNEED) < 0 || munmap(memory, 8192) < 0 ||
        send(pair[0], &byte, 1, MSG_NOSIGNAL) != 1 || recv(pair[1], &byte, 1, 0) != 1 ||
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) < 0)
        _exit(1);
}

/* ---- a fault of the host's, while a guest is entered ---- */

static struct kernel_context *context;

static int faulty(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                  struct error *err)
{
    volatile int *volatile nowhere = (volatile int *)(uintptr_t)4096;

    (void)data;
    (void)call;
    (void)answer;
    (void)err;
    *nowhere = 1;
    return 0;
}

static void do_fault(long unused)
{
    static const struct kernel_source source = {.text = "host.call('x', null); 1", .size = 23};
    enum kernel_status status;
    struct error err;

    (void)unused;
    (void)kernel_run(context, &source, &status, &err);
}

/* As do_fault(), but what a run needs of the system is there before, as in a worker. */
static void fault_work(void)
{
    struct rlimit none = {0, 0};
    struct error err;

    (void)setrlimit(RLIMIT_CORE, &none);
    (void)!freopen("/dev/null", "w", stderr);
    if (kernel_thread_prepare(&err) < 0 || filter_shut_in(&err) < 0)
        _exit(1);
    do_fault(0);
    _exit(CAME_BACK);
}

static void faults(void)
{
    const struct kernel_grants nothing = {0};
    struct kernel_manifest *manifest = kit_manifest(&nothing);
    int status = 0;
    pid_t child;

    context = kit_context(manifest);
    kernel_set_answerer(context, faulty, NULL);
    (void)fflush(stdout);
    child = fork();
    if (child == 0)
        fault_work();
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "a child");
#ifdef __SANITIZE_ADDRESS__
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) > 1, "it went on: %#x", (unsigned)status);
#else
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "a fault of the host's ends it: %#x",
          (unsigned)status);
#endif
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

/* Threads that were there before are shut in as well. */
static void threads(void)
{
    int status = 0;
    pid_t child;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        pthread_t thread;
        struct error err;

        if (pthread_create(&thread, NULL, open_in_thread, NULL) != 0 || filter_shut_in(&err) < 0)
            _exit(1);
        for (;;)
            (void)sched_yield();
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "a child");
    CHECK(is_stopped(status), "another thread is not shut in: %#x", (unsigned)status);
}

int main(void)
{
    parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 1;
    CHECK(came_back(attempt(do_allowed, 0)), "what a worker needs goes on");
    tried();
    all_numbers();
    threads();
    faults();
    return check_finish();
}
