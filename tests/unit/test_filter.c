/* The filter of a box, loaded for real: every attempt is a system call of a forked child.
 *
 * Refused calls get arguments that would do nothing even if they came through (-1 everywhere), so
 * that a broken filter fails a check and not the machine. Where a call must come through, the
 * kernel's answer with the filter is compared with its answer without. */
#include "box/filter/filter.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HIGH_BIT (1UL << 32)
#define NO_FILTER UINT32_MAX
#define ALL_SAME(nr, what)         \
    {                              \
        (what), (nr),              \
        {                          \
            -1, -1, -1, -1, -1, -1 \
        }                          \
    }

/* Numbers that this machine's headers may lack; they are the same on every architecture. */
enum {
    NR_QUOTACTL_FD = 443,
    NR_MEMFD_SECRET = 447,
    NR_FUTEX_WAITV = 449,
    NR_CACHESTAT = 451,
    NR_FCHMODAT2 = 452,
    NR_MAP_SHADOW_STACK = 453,
    NR_FUTEX_WAKE = 454,
    NR_LSM_LIST_MODULES = 461,
    NR_MSEAL = 462,
    NR_SETXATTRAT = 463,
    NR_REMOVEXATTRAT = 466,
    NR_OPEN_TREE_ATTR = 467,
    NR_FILE_GETATTR = 468,
};

static const uint32_t key[FILTER_KEY_WORDS] = {0x12345678, 0x9abcdef0, 0x0badcafe, 0x87654321};

struct call {
    const char *what;
    long number;
    long args[6];
};

struct answer {
    long result;
    int errnum; /* 0 where the call succeeded */
    int signal; /* that killed the child */
};

static struct answer *shared; /* with the child */

typedef long attempt_fn(const void *arg);

/* What `attempt` answers in a child that carries the filter. */
static struct answer ask(unsigned flags, attempt_fn *attempt, const void *arg)
{
    int status = 0;
    pid_t child;

    *shared = (struct answer){.result = -1, .errnum = ECHILD};
    fflush(stdout);
    child = fork();
    if (child == 0) {
        struct sock_filter program[FILTER_MAX];
        struct rlimit no_core = {0, 0};
        int err = 0;

        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)setsid();
        (void)prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L);
        if (flags != NO_FILTER)
            err = filter_load(program, filter_program(program, flags, key), NULL);
        if (err != 0)
            _exit(1);
        errno = 0;
        shared->result = attempt(arg);
        shared->errnum = shared->result == -1 ? errno : 0;
        _exit(0);
    }
    if (waitpid(child, &status, 0) == child && WIFSIGNALED(status))
        shared->signal = WTERMSIG(status);
    return *shared;
}

static long attempt_call(const void *arg)
{
    const struct call *call = arg;
    const long *a = call->args;
    long result = syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);

    /* A clone that should have been refused must not run the tests twice. */
    if (result == 0 && call->number == SYS_clone)
        _exit(0);
    return result;
}

static void expect(unsigned flags, const struct call *call, int errnum)
{
    struct answer answer = ask(flags, attempt_call, call);

    CHECK(answer.errnum == errnum && answer.signal == 0, "%s (flags %u): %s, signal %d, not %s",
          call->what, flags, strerror(answer.errnum), answer.signal, strerror(errnum));
}

/* The filter leaves the answer to the kernel. */
static void expect_kernel(unsigned flags, const struct call *call)
{
    struct answer bare = ask(NO_FILTER, attempt_call, call);
    struct answer answer = ask(flags, attempt_call, call);

    CHECK(answer.errnum == bare.errnum && answer.signal == bare.signal,
          "%s (flags %u): %s, signal %d; the kernel says %s, signal %d", call->what, flags,
          strerror(answer.errnum), answer.signal, strerror(bare.errnum), bare.signal);
}

/* ---- rules without arguments ----------------------------------------------------------------- */

static const struct call refused[] = {
    ALL_SAME(SYS_mount, "mount"),
    ALL_SAME(SYS_umount2, "umount2"),
    ALL_SAME(SYS_pivot_root, "pivot_root"),
    ALL_SAME(SYS_open_tree, "open_tree"),
    ALL_SAME(NR_OPEN_TREE_ATTR, "open_tree_attr"),
    ALL_SAME(SYS_move_mount, "move_mount"),
    ALL_SAME(SYS_fsopen, "fsopen"),
    ALL_SAME(SYS_fsconfig, "fsconfig"),
    ALL_SAME(SYS_fsmount, "fsmount"),
    ALL_SAME(SYS_fspick, "fspick"),
    ALL_SAME(SYS_mount_setattr, "mount_setattr"),
    ALL_SAME(SYS_setns, "setns"),
    ALL_SAME(SYS_add_key, "add_key"),
    ALL_SAME(SYS_request_key, "request_key"),
    ALL_SAME(SYS_keyctl, "keyctl"),
    ALL_SAME(SYS_bpf, "bpf"),
    ALL_SAME(SYS_perf_event_open, "perf_event_open"),
    ALL_SAME(SYS_userfaultfd, "userfaultfd"),
    ALL_SAME(SYS_fanotify_init, "fanotify_init"),
    ALL_SAME(SYS_fanotify_mark, "fanotify_mark"),
    ALL_SAME(SYS_name_to_handle_at, "name_to_handle_at"),
    ALL_SAME(SYS_open_by_handle_at, "open_by_handle_at"),
    ALL_SAME(SYS_lookup_dcookie, "lookup_dcookie"),
    ALL_SAME(SYS_kexec_load, "kexec_load"),
    ALL_SAME(SYS_kexec_file_load, "kexec_file_load"),
    ALL_SAME(SYS_init_module, "init_module"),
    ALL_SAME(SYS_finit_module, "finit_module"),
    ALL_SAME(SYS_delete_module, "delete_module"),
    ALL_SAME(SYS_reboot, "reboot"),
    ALL_SAME(SYS_swapon, "swapon"),
    ALL_SAME(SYS_swapoff, "swapoff"),
    ALL_SAME(SYS_acct, "acct"),
    ALL_SAME(SYS_quotactl, "quotactl"),
    ALL_SAME(NR_QUOTACTL_FD, "quotactl_fd"),
    ALL_SAME(SYS_clock_settime, "clock_settime"),
    ALL_SAME(SYS_clock_adjtime, "clock_adjtime"),
    ALL_SAME(SYS_settimeofday, "settimeofday"),
    ALL_SAME(SYS_adjtimex, "adjtimex"),
    ALL_SAME(SYS_sethostname, "sethostname"),
    ALL_SAME(SYS_setdomainname, "setdomainname"),
    ALL_SAME(SYS_syslog, "syslog"),
    ALL_SAME(SYS_vhangup, "vhangup"),
    ALL_SAME(SYS_migrate_pages, "migrate_pages"),
    ALL_SAME(SYS_move_pages, "move_pages"),
    ALL_SAME(SYS_mbind, "mbind"),
#ifdef __x86_64__
    ALL_SAME(SYS_iopl, "iopl"),
    ALL_SAME(SYS_ioperm, "ioperm"),
    ALL_SAME(SYS_create_module, "create_module"),
    ALL_SAME(SYS_query_module, "query_module"),
#endif
};

static const struct call absent[] = {
    ALL_SAME(SYS_io_uring_setup, "io_uring_setup"),
    ALL_SAME(SYS_io_uring_enter, "io_uring_enter"),
    ALL_SAME(SYS_io_uring_register, "io_uring_register"),
    ALL_SAME(SYS_io_setup, "io_setup"),
    ALL_SAME(SYS_io_destroy, "io_destroy"),
    ALL_SAME(SYS_io_submit, "io_submit"),
    ALL_SAME(SYS_io_cancel, "io_cancel"),
    ALL_SAME(SYS_io_getevents, "io_getevents"),
    ALL_SAME(SYS_io_pgetevents, "io_pgetevents"),
    ALL_SAME(NR_MEMFD_SECRET, "memfd_secret"),
    ALL_SAME(NR_CACHESTAT, "cachestat"),
    ALL_SAME(NR_SETXATTRAT, "setxattrat"),
    ALL_SAME(SYS_mincore, "mincore"),
    ALL_SAME(-1, "number -1, as a debugger skips a call"),
#ifdef __x86_64__
    ALL_SAME(SYS_modify_ldt, "modify_ldt"),
    ALL_SAME(SYS_uselib, "uselib"),
    ALL_SAME(SYS_ustat, "ustat"),
    ALL_SAME(SYS_sysfs, "sysfs"),
#endif
};

/* Calls of ordinary work, and newer ones that are as harmless. */
static const struct call allowed[] = {
    ALL_SAME(SYS_read, "read"),
    {"openat", SYS_openat, {AT_FDCWD, -1, O_RDONLY, -1, -1, -1}},
    ALL_SAME(SYS_statx, "statx"),
    ALL_SAME(SYS_faccessat2, "faccessat2"),
    ALL_SAME(SYS_renameat2, "renameat2"),
    ALL_SAME(SYS_fchownat, "fchownat"),
    {"setxattr", SYS_setxattr, {-1, -1, -1, 1023, -1, -1}},
    ALL_SAME(SYS_copy_file_range, "copy_file_range"),
    ALL_SAME(SYS_splice, "splice"),
    ALL_SAME(SYS_inotify_init1, "inotify_init1"),
    ALL_SAME(SYS_epoll_create1, "epoll_create1"),
    ALL_SAME(SYS_epoll_pwait2, "epoll_pwait2"),
    ALL_SAME(SYS_timerfd_create, "timerfd_create"),
    ALL_SAME(SYS_signalfd4, "signalfd4"),
    ALL_SAME(SYS_eventfd2, "eventfd2"),
    ALL_SAME(SYS_memfd_create, "memfd_create"),
    ALL_SAME(SYS_set_mempolicy, "set_mempolicy"),
    ALL_SAME(SYS_madvise, "madvise"),
    ALL_SAME(SYS_membarrier, "membarrier"),
    ALL_SAME(SYS_pkey_alloc, "pkey_alloc"),
    ALL_SAME(SYS_execve, "execve"),
    ALL_SAME(SYS_execveat, "execveat"),
    ALL_SAME(SYS_waitid, "waitid"),
    ALL_SAME(SYS_kill, "kill"),
    ALL_SAME(SYS_pidfd_open, "pidfd_open"),
    ALL_SAME(SYS_pidfd_getfd, "pidfd_getfd"),
    ALL_SAME(SYS_futex, "futex"),
    ALL_SAME(NR_FUTEX_WAITV, "futex_waitv"),
    ALL_SAME(SYS_ptrace, "ptrace"),
    ALL_SAME(SYS_process_vm_readv, "process_vm_readv"),
    ALL_SAME(SYS_process_vm_writev, "process_vm_writev"),
    ALL_SAME(SYS_kcmp, "kcmp"),
    ALL_SAME(SYS_seccomp, "seccomp"),
    ALL_SAME(SYS_landlock_create_ruleset, "landlock_create_ruleset"),
    ALL_SAME(SYS_sched_setscheduler, "sched_setscheduler"),
    ALL_SAME(SYS_sched_setattr, "sched_setattr"),
    ALL_SAME(SYS_setgroups, "setgroups"),
    ALL_SAME(SYS_chroot, "chroot"),
    {"shmget", SYS_shmget, {-1, -1, 0600, -1, -1, -1}},
    ALL_SAME(SYS_mq_open, "mq_open"),
    {"sendmmsg", SYS_sendmmsg, {-1, -1, -1, 0, -1, -1}},
    ALL_SAME(SYS_accept4, "accept4"),
    ALL_SAME(NR_MAP_SHADOW_STACK, "map_shadow_stack"),
    ALL_SAME(NR_MSEAL, "mseal"),
    ALL_SAME(NR_REMOVEXATTRAT, "removexattrat"),
    {"ptrace(PTRACE_TRACEME)", SYS_ptrace, {PTRACE_TRACEME, 0, 0, 0, 0, 0}},
    {"prctl(PR_SET_DUMPABLE)", SYS_prctl, {PR_SET_DUMPABLE, 1, 0, 0, 0, 0}},
};

static void test_plain_rules(void)
{
    for (unsigned flags = 0; flags <= FILTER_NO_SETID; flags++) {
        for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
            expect(flags, &refused[i], EPERM);
        for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
            expect(flags, &absent[i], ENOSYS);
        for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
            expect_kernel(flags, &allowed[i]);
        for (long number = NR_FUTEX_WAKE; number <= NR_LSM_LIST_MODULES; number++)
            expect(flags, &(struct call)ALL_SAME(number, "454 to 461"), ENOSYS);
        for (long number = NR_FILE_GETATTR; number < 600; number++)
            expect(flags, &(struct call)ALL_SAME(number, "468 and later"), ENOSYS);
        for (long number = 337; number < 424; number++)
            expect(flags, &(struct call)ALL_SAME(number, "337 to 423"), ENOSYS);
        expect(flags, &(struct call)ALL_SAME(0x3fffffff, "number 0x3fffffff"), ENOSYS);
    }
}

/* ---- namespaces and the key ------------------------------------------------------------------ */

static const struct {
    const char *name;
    long flag;
} namespaces[] = {
    {"NEWNS", 0x00020000},  {"NEWCGROUP", 0x02000000}, {"NEWUTS", 0x04000000},
    {"NEWIPC", 0x08000000}, {"NEWUSER", 0x10000000},   {"NEWPID", 0x20000000},
    {"NEWNET", 0x40000000},
};

static void test_namespaces(void)
{
    struct call call = {"unshare(NEWTIME)", SYS_unshare, {0x80}};

    expect(0, &call, EPERM);
    for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
        call = (struct call){namespaces[i].name, SYS_unshare, {namespaces[i].flag}};
        expect(0, &call, EPERM);
        call.args[0] |= CLONE_FILES | CLONE_FS;
        expect(0, &call, EPERM);
        call = (struct call){namespaces[i].name, SYS_clone, {namespaces[i].flag | SIGCHLD}};
        expect(0, &call, EPERM);
        call.args[0] |= (long)HIGH_BIT | CLONE_VM | CLONE_VFORK;
        expect(0, &call, EPERM);
    }
    call = (struct call){"unshare of what no kernel knows yet", SYS_unshare, {0x00100000}};
    expect(0, &call, EPERM);
    call = (struct call){"unshare with a high bit", SYS_unshare, {(long)(HIGH_BIT << 5)}};
    expect(0, &call, EPERM);
    call = (struct call){"unshare(FS, FILES, SYSVSEM)", SYS_unshare, {0x40600}};
    expect(0, &call, 0);
    call = (struct call){"clone as fork", SYS_clone, {SIGCHLD}};
    expect(0, &call, 0);
}

#define CAME_THROUGH 7

static long attempt_clone3(const void *arg)
{
    struct clone_args args = {.exit_signal = SIGCHLD};
    int status = 0;
    long child = filter_clone3(&args, sizeof(args), arg);

    if (child == 0)
        _exit(CAME_THROUGH);
    if (child < 0)
        return -1;
    return waitpid((pid_t)child, &status, 0) == child ? WEXITSTATUS(status) : -1;
}

/* The call comes through with the key, and with no other. */
static void expect_keyed(unsigned flags, attempt_fn *attempt, const char *what)
{
    static const uint32_t zeros[FILTER_KEY_WORDS];
    struct answer answer = ask(flags, attempt, key);

    CHECK(answer.result == CAME_THROUGH, "%s with the key: %s", what, strerror(answer.errnum));
    answer = ask(flags, attempt, zeros);
    CHECK(answer.errnum == ENOSYS, "%s with zeros: %s", what, strerror(answer.errnum));
    for (unsigned bit = 0; bit < 32 * FILTER_KEY_WORDS; bit++) {
        uint32_t wrong[FILTER_KEY_WORDS];

        memcpy(wrong, key, sizeof(wrong));
        wrong[bit / 32] ^= 1U << (bit % 32);
        answer = ask(flags, attempt, wrong);
        CHECK(answer.errnum == ENOSYS, "%s with bit %u of the key wrong: %s", what, bit,
              strerror(answer.errnum));
    }
}

static void test_clone3_key(void)
{
    static const struct call without = ALL_SAME(SYS_clone3, "clone3 without a key");

    for (unsigned flags = 0; flags <= FILTER_NO_SETID; flags++) {
        expect_keyed(flags, attempt_clone3, "clone3");
        expect(flags, &without, ENOSYS);
    }
}

/* ---- sockets --------------------------------------------------------------------------------- */

static void test_sockets(void)
{
    static const struct call open_ones[] = {
        {"AF_UNIX", SYS_socket, {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0}},
        {"AF_INET stream", SYS_socket, {AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0}},
        {"AF_INET TCP", SYS_socket, {AF_INET, SOCK_STREAM, 6}},
        {"AF_INET UDP", SYS_socket, {AF_INET, SOCK_DGRAM, 17}},
        {"AF_INET ping", SYS_socket, {AF_INET, SOCK_DGRAM, 1}},
        {"AF_INET raw", SYS_socket, {AF_INET, SOCK_RAW, 255}},
        {"AF_INET6 TCP", SYS_socket, {AF_INET6, SOCK_STREAM, 6}},
        {"AF_INET6 ping", SYS_socket, {AF_INET6, SOCK_DGRAM, 58}},
        {"NETLINK_ROUTE", SYS_socket, {AF_NETLINK, SOCK_RAW, 0}},
    };
    static const struct call packets[] = {
        {"SOCK_PACKET", SYS_socket, {AF_INET, 10, 0}},
        {"SOCK_PACKET, close-on-exec", SYS_socket, {AF_INET, 10 | SOCK_CLOEXEC, 0x300}},
        {"AF_ALG with a high bit", SYS_socket, {(long)HIGH_BIT | 38, SOCK_SEQPACKET, 0}},
    };
    static const long protocols[] = {2, 33, 47, 103, 115, 132, 136, 256, 262};

    for (size_t i = 0; i < sizeof(open_ones) / sizeof(open_ones[0]); i++)
        expect_kernel(0, &open_ones[i]);
    for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++)
        expect(0, &packets[i], EAFNOSUPPORT);
    for (long type = 4; type < 16; type++) {
        struct call call = {"a type that asks for a module", SYS_socket, {AF_INET6, type, 0}};

        expect(0, &call, ESOCKTNOSUPPORT);
        call.args[0] = AF_INET;
        call.args[1] |= SOCK_CLOEXEC | SOCK_NONBLOCK;
        expect(0, &call, type == 10 ? EAFNOSUPPORT : ESOCKTNOSUPPORT);
    }
    for (long family = 0; family < 64; family++) {
        struct call call = {"a family that is not allowed", SYS_socket, {family, SOCK_RAW, 0}};

        if (family != AF_UNIX && family != AF_INET && family != AF_INET6 && family != AF_NETLINK)
            expect(0, &call, EAFNOSUPPORT);
        call = (struct call){"socketpair", SYS_socketpair, {family, SOCK_STREAM, 0, -1}};
        expect(0, &call, family == AF_UNIX ? EFAULT : EAFNOSUPPORT);
    }
    for (long protocol = 1; protocol < 32; protocol++)
        expect(0, &(struct call){"netlink", SYS_socket, {AF_NETLINK, SOCK_RAW, protocol}},
               EAFNOSUPPORT);
    for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
        struct call call = {"a protocol", SYS_socket, {AF_INET, SOCK_STREAM, protocols[i]}};

        expect(0, &call, EPROTONOSUPPORT);
        call.args[0] = AF_INET6;
        expect(0, &call, EPROTONOSUPPORT);
    }
}

static void test_locks_of_open_files(void)
{
    for (long command = F_OFD_GETLK; command <= F_OFD_SETLKW; command++) {
        struct call call = {"a lock of an open file", SYS_fcntl, {-1, command, -1}};

        for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
            expect(flags, &call, EINVAL);
        call.args[1] |= (long)HIGH_BIT;
        expect(0, &call, EINVAL);
    }
    expect(0, &(struct call){"a lock", SYS_fcntl, {-1, F_SETLK, -1}}, EBADF);
    expect(0, &(struct call){"a lock, waited for", SYS_fcntl, {-1, F_SETLKW, -1}}, EBADF);
}

static void test_leases(void)
{
    static const long commands[] = {F_SETLEASE, F_NOTIFY, 1040 /* F_SETDELEG */};

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct call call = {"a lease, or a directory's notices", SYS_fcntl, {-1, commands[i], 0}};

        for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
            expect(flags, &call, EINVAL);
        call.args[1] |= (long)HIGH_BIT;
        expect(0, &call, EINVAL);
    }
    expect(0, &(struct call){"F_GETFD", SYS_fcntl, {-1, F_GETFD}}, EBADF);
}

static long attempt_watch(const void *arg)
{
    /* No such fd is what the kernel says. */
    return filter_add_watch(-1, "/", IN_OPEN, arg) < 0 && errno == EBADF ? CAME_THROUGH : -1;
}

/* Where nobody listens, what init would be asked is ENOSYS. */
static void test_watches(void)
{
    static const uint32_t zeros[FILTER_KEY_WORDS];

    for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++) {
        struct call call = {"a watch", SYS_inotify_add_watch, {-1, (long)(uintptr_t) "/"}};

        for (unsigned bit = 0; bit < 32; bit++) {
            bool is_read = (1U << bit & (IN_ACCESS | IN_CLOSE_NOWRITE | IN_OPEN)) != 0;

            call.args[2] = 1L << bit;
            if (is_read)
                expect(flags, &call, ENOSYS);
            else
                expect_kernel(flags, &call);
        }
        call.args[2] = (long)HIGH_BIT | IN_OPEN | IN_CREATE;
        expect(flags, &call, ENOSYS);
    }
    CHECK(ask(0, attempt_watch, key).result == CAME_THROUGH, "a watch with the key");
    CHECK(ask(0, attempt_watch, zeros).errnum == ENOSYS, "a watch with zeros");
    for (unsigned bit = 0; bit < 64; bit++) {
        uint32_t wrong[FILTER_KEY_WORDS];

        memcpy(wrong, key, sizeof(wrong));
        wrong[bit / 32] ^= 1U << (bit % 32);
        CHECK(ask(0, attempt_watch, wrong).errnum == ENOSYS, "a watch with bit %u of the key wrong",
              bit);
    }
}

static void test_long_attributes(void)
{
    static const long calls[] = {SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr};
    static const long sizes[] = {1024, 65536, (long)HIGH_BIT | 1024, -1};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++)
            for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
                expect(flags,
                       &(struct call){"a long attribute", calls[i], {-1, -1, -1, sizes[j], 0}},
                       E2BIG);
}

static void test_socket_options(void)
{
    static const long programs[] = {26, 50, 51, 52}; /* SO_ATTACH_FILTER to _REUSEPORT_EBPF */

    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        struct call call = {
            "a program on a socket", SYS_setsockopt, {-1, SOL_SOCKET, programs[i], -1, 0}};

        for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
            expect(flags, &call, EPERM);
        call.args[1] |= (long)HIGH_BIT;
        call.args[2] |= (long)(HIGH_BIT << 31);
        expect(0, &call, EPERM);
        call.args[1] = 6; /* the same number, of TCP's */
        expect(0, &call, EBADF);
    }
    expect(0, &(struct call){"a flow label", SYS_setsockopt, {-1, 41, 32, -1, 0}}, EPERM);
    expect(0, &(struct call){"SO_LINGER", SYS_setsockopt, {-1, SOL_SOCKET, SO_LINGER, -1, 0}}, 0);
    for (long option = 1; option < 100; option++) {
        bool joins = option == 20 || option == 42 || option == 46;

        if (option != 25 && option != 32)
            expect(0, &(struct call){"an option of IPv6", SYS_setsockopt, {-1, 41, option, -1, 0}},
                   joins ? ENODEV : EBADF);
    }
    for (long option = 1; option < 100; option++) {
        bool is_known = option == SO_LINGER || option == 26 || option == 37 || option == 65 ||
                        option == 60 || (option >= 50 && option <= 52);

        if (!is_known)
            expect(0, &(struct call){"an option", SYS_setsockopt, {-1, SOL_SOCKET, option, -1, 0}},
                   EBADF);
    }
}

/* IP_RECVERR, IPV6_RECVERR, SO_TIMESTAMPING old and new. With no socket, the kernel says EBADF. */
static void test_error_queues(void)
{
    static const struct {
        int level, option, errnum;
    } fillers[] = {{0, 11, 0}, {41, 25, 0}, {1, 37, ENOPROTOOPT}, {1, 65, ENOPROTOOPT}};

    for (size_t i = 0; i < sizeof(fillers) / sizeof(fillers[0]); i++) {
        struct call call = {"what fills an error queue",
                            SYS_setsockopt,
                            {-1, fillers[i].level, fillers[i].option, -1, 0}};

        for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
            expect(flags, &call, fillers[i].errnum);
        call.args[1] |= (long)HIGH_BIT;
        call.args[2] |= (long)(HIGH_BIT << 31);
        expect(0, &call, fillers[i].errnum);
    }
    for (long option = 1; option < 100; option++) {
        if (option != 11)
            expect(0, &(struct call){"an option of IPv4", SYS_setsockopt, {-1, 0, option, -1, 0}},
                   EBADF);
    }
}

static void test_upper_protocols(void)
{
    struct call call = {"TCP_ULP", SYS_setsockopt, {-1, 6, 31, -1, 0}};

    for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
        expect(flags, &call, ENOPROTOOPT);
    call.args[1] |= (long)HIGH_BIT;
    call.args[2] |= (long)(HIGH_BIT << 31);
    expect(0, &call, ENOPROTOOPT);
    for (long option = 1; option < 64; option++) {
        bool is_key = option == 14 || option == 32 || option == 38;

        if (option != 31)
            expect(0, &(struct call){"an option of TCP", SYS_setsockopt, {-1, 6, option, -1, 0}},
                   is_key ? ENOPROTOOPT : EBADF);
    }
}

/* With no socket, the kernel says EBADF. */
static void test_urgent_data(void)
{
    static const long other_flags[] = {0, MSG_DONTWAIT | MSG_NOSIGNAL, MSG_MORE, MSG_EOR};
    struct call calls[] = {
        {"sendto", SYS_sendto, {-1, 0, 0, 0, 0, 0}},
        {"sendmsg", SYS_sendmsg, {-1, 0, 0, 0, 0, 0}},
        {"sendmmsg", SYS_sendmmsg, {-1, 0, 0, 0, 0, 0}},
    };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        long *flags = &calls[i].args[calls[i].number == SYS_sendmsg ? 2 : 3];

        for (size_t j = 0; j < sizeof(other_flags) / sizeof(other_flags[0]); j++) {
            *flags = other_flags[j];
            expect(0, &calls[i], EBADF);
            *flags |= MSG_OOB;
            for (unsigned each = 0; each <= (FILTER_NO_SETID | FILTER_WATCHED); each++)
                expect(each, &calls[i], EOPNOTSUPP);
            *flags |= (long)HIGH_BIT;
            expect(0, &calls[i], EOPNOTSUPP);
        }
    }
}

static void test_pipes(void)
{
    struct call call = {"pipe2", SYS_pipe2, {-1, O_CLOEXEC | O_NONBLOCK | O_DIRECT}};

    expect(0, &call, EFAULT);
    call.args[1] |= O_EXCL;
    for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
        expect(flags, &call, EINVAL);
}

/* ---- memory that belongs to no process --------------------------------------------------------- */

static void test_shared_memory(void)
{
    static const long shared_kinds[] = {
        MAP_SHARED | MAP_ANONYMOUS,
        MAP_SHARED_VALIDATE | MAP_ANONYMOUS,
        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_POPULATE,
    };
    static const long other_kinds[] = {MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED, MAP_PRIVATE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK};
    struct call call = {"mmap", SYS_mmap, {0, 4096, PROT_READ | PROT_WRITE, 0, -1, 0}};

    for (size_t i = 0; i < sizeof(shared_kinds) / sizeof(shared_kinds[0]); i++) {
        call.args[3] = shared_kinds[i];
        expect(FILTER_WATCHED, &call, EPERM);
        expect(FILTER_WATCHED | FILTER_NO_SETID, &call, EPERM);
        expect_kernel(0, &call);
        expect_kernel(FILTER_NO_SETID, &call);
        call.args[2] = PROT_NONE; /* mprotect() makes it writable */
        expect(FILTER_WATCHED, &call, EPERM);
        call.args[2] = PROT_READ | PROT_WRITE;
    }
    for (size_t i = 0; i < sizeof(other_kinds) / sizeof(other_kinds[0]); i++) {
        call.args[3] = other_kinds[i];
        expect_kernel(FILTER_WATCHED, &call);
    }
}

/* With no pages, of a file that is none, or of a key that nobody made: the kernel gives other answers than ours. */
static void test_huge_pages(void)
{
    struct call map = {"mmap", SYS_mmap, {0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}};
    struct call file = {"memfd_create", SYS_memfd_create, {0, 1}};
    struct call segment = {"shmget", SYS_shmget, {4711, 4096, 0}};

    expect(0, &map, EINVAL);
    expect(0, &file, EFAULT);
    expect(0, &segment, ENOENT);
    map.args[3] |= MAP_HUGETLB;
    file.args[1] |= 4;
    segment.args[2] |= 04000;
    for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
        expect(flags, &map, ENOMEM);
    expect(0, &file, EINVAL);
    expect(0, &segment, EPERM);
    map.args[3] |= 21L << MAP_HUGE_SHIFT;
    file.args[1] |= 21L << MAP_HUGE_SHIFT;
    expect(0, &map, ENOMEM);
    expect(0, &file, EINVAL);
}

/* With no file, and no memory there, the kernel gives other answers than 0. */
static void test_pages_of_others(void)
{
    static const long locks[] = {SYS_mlock, SYS_mlock2, SYS_mlockall, SYS_munlock, SYS_munlockall};
    struct call call = {"fadvise64", SYS_fadvise64, {-1, 0, 0, 0}};

    for (size_t i = 0; i < sizeof(locks) / sizeof(locks[0]); i++)
        for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
            expect(flags, &(struct call)ALL_SAME(locks[i], "a lock of memory"), 0);
    for (long advice = POSIX_FADV_NORMAL; advice <= POSIX_FADV_NOREUSE; advice++) {
        call.args[3] = advice;
        expect(0, &call, advice == POSIX_FADV_DONTNEED ? 0 : EBADF);
    }
    expect(0, &(struct call){"MADV_PAGEOUT", SYS_madvise, {1, 1, 21}}, 0);
    expect(0, &(struct call){"MADV_COLD", SYS_madvise, {1, 1, 20}}, EINVAL);
    expect(0, &(struct call){"process_madvise", SYS_process_madvise, {-1, 0, 0, 21, 0}}, EINVAL);
    expect(0, &(struct call){"process_madvise", SYS_process_madvise, {-1, 0, 0, 20, 0}}, EBADF);
    call.args[3] = (long)HIGH_BIT | POSIX_FADV_DONTNEED;
    for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
        expect(flags, &call, 0);
    expect(0, &(struct call){"SO_ZEROCOPY", SYS_setsockopt, {-1, SOL_SOCKET, 60, -1, 0}},
           EOPNOTSUPP);
}

/* What says whether a page is there, without reading it. */
static void test_page_cache(void)
{
    static const long calls[] = {SYS_preadv2, SYS_pwritev2};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct call call = {"preadv2 or pwritev2", calls[i], {-1, 0, 0, 0, 0, 0}};

        for (long kind = 1; kind <= 0x100; kind <<= 1) {
            bool tells = kind == 0x8 || kind == 0x80;

            call.args[5] = kind;
            expect(0, &call, tells ? EOPNOTSUPP : EBADF);
            call.args[5] |= (long)HIGH_BIT | 0x1;
            for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++)
                expect(flags, &call, tells ? EOPNOTSUPP : EBADF);
        }
    }
}

/* ---- terminals and personality --------------------------------------------------------------- */

static void test_ioctl(void)
{
    static const long requests[] = {TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS};
    static const long module_requests[] = {0x8940, 0x8941, 0x8980, 0x8981,
                                           0x8982, 0x8983, 0x89a0, 0x89a3};

    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct call call = {"a terminal request", SYS_ioctl, {-1, requests[i], -1}};

        expect(0, &call, EPERM);
        call.args[1] |= (long)HIGH_BIT;
        expect(0, &call, EPERM);
        call.args[1] |= (long)(HIGH_BIT << 31);
        expect(0, &call, EPERM);
        call.args[1] = (requests[i] << 16) | 0x54;
        expect(0, &call, EBADF);
    }
    for (size_t i = 0; i < sizeof(module_requests) / sizeof(module_requests[0]); i++)
        for (unsigned flags = 0; flags <= (FILTER_NO_SETID | FILTER_WATCHED); flags++) {
            struct call call = {"a request for a module", SYS_ioctl, {-1, module_requests[i], -1}};

            expect(flags, &call, ENOPKG);
            call.args[1] |= (long)HIGH_BIT;
            expect(flags, &call, ENOPKG);
        }
    expect(0, &(struct call){"SIOCGIFCONF", SYS_ioctl, {-1, SIOCGIFCONF, -1}}, EBADF);
    expect(0, &(struct call){"SIOCSIFNAME", SYS_ioctl, {-1, 0x8923, -1}}, EBADF);
    expect(0, &(struct call){"TCGETS", SYS_ioctl, {-1, TCGETS, -1}}, EBADF);
    expect(0, &(struct call){"TIOCSCTTY", SYS_ioctl, {-1, TIOCSCTTY, 0}}, EBADF);
    expect(0, &(struct call){"TIOCGWINSZ", SYS_ioctl, {-1, TIOCGWINSZ, 0}}, EBADF);
}

static void test_personality(void)
{
    static const struct {
        long kind;
        int errnum;
    } kinds[] = {
        {0, 0},
        {0x40000, 0},
        {0xffffffff, 0},
        {-1, 0},
        {(long)HIGH_BIT, 0}, /* the kernel reads 32 bits: 0 */
        {0x400000, EPERM},   /* READ_IMPLIES_EXEC */
        {0x440000, EPERM},
        {0x8, EPERM}, /* PER_LINUX32 */
        {0x20000, EPERM},
        {0x6, EPERM}, /* PER_BSD */
        {(long)HIGH_BIT | 0x400000, EPERM},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        expect(0, &(struct call){"personality", SYS_personality, {kinds[i].kind}}, kinds[i].errnum);
    for (unsigned bit = 0; bit < 32; bit++) {
        struct call call = {"one bit of a personality", SYS_personality, {1L << bit}};
        int errnum = call.args[0] == ADDR_NO_RANDOMIZE ? 0 : EPERM;

        expect(0, &call, errnum);
        call.args[0] |= (long)(HIGH_BIT << bit);
        expect(0, &call, errnum);
    }
}

/* ---- foreign system calls -------------------------------------------------------------------- */

#ifdef __x86_64__
static long attempt_int80(const void *arg)
{
    long result = 20; /* getpid on i386 */

    (void)arg;
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return result;
}
#endif

static void test_foreign(void)
{
#ifdef __x86_64__
    struct answer bare = ask(NO_FILTER, attempt_int80, NULL);
    struct answer answer = ask(0, attempt_int80, NULL);

    /* A kernel without 32-bit calls raises SIGSEGV before any filter runs. */
    CHECK(answer.signal == (bare.signal == SIGSEGV ? SIGSEGV : SIGSYS), "int 0x80: signal %d",
          answer.signal);
    for (long number = 0; number < 600; number += 39) {
        struct call call = ALL_SAME(number | 0x40000000, "an x32 number");

        answer = ask(0, attempt_call, &call);
        CHECK(answer.signal == SIGSYS, "x32 number %ld: signal %d", number, answer.signal);
    }
    answer = ask(0, attempt_call, &(struct call)ALL_SAME(0x7fffffff, "0x7fffffff"));
    CHECK(answer.signal == SIGSYS, "number 0x7fffffff: signal %d", answer.signal);
#else
    expect(0, &(struct call)ALL_SAME(0x40000000, "0x40000000"), ENOSYS);
#endif
}

/* ---- set-id files ---------------------------------------------------------------------------- */

static char directory[] = "/tmp/cove-test-filter-XXXXXX";
static char file_path[64], new_path[64];
static int file_fd = -1;

struct setid_call {
    struct call call;
    long type;     /* what the mode also has to have */
    int mode_at;   /* which argument the mode is */
    bool optional; /* the kernel may be too old for it */
};

static long attempt_in_directory(const void *arg)
{
    long result = attempt_call(arg);
    int saved = errno;

    (void)unlink(new_path);
    (void)rmdir(new_path);
    errno = saved;
    return result;
}

static void expect_mode(unsigned flags, const struct setid_call *base, long mode, bool passes)
{
    struct setid_call with = *base;
    struct answer answer;

    with.call.args[base->mode_at] = base->type | mode;
    answer = ask(flags, attempt_in_directory, &with.call);
    if (passes && base->optional && answer.errnum == ENOSYS)
        return;
    CHECK(answer.errnum == (passes ? 0 : EPERM), "%s with mode %lo (flags %u): %s", with.call.what,
          mode, flags, strerror(answer.errnum));
}

static void test_setid_modes(void)
{
    const long file = (long)file_path, new = (long)new_path, tmpdir = (long)directory;
    const struct setid_call calls[] = {
        {{"fchmod", SYS_fchmod, {file_fd}}, 0, 1, false},
        {{"fchmodat", SYS_fchmodat, {AT_FDCWD, file}}, 0, 2, false},
        {{"fchmodat2", NR_FCHMODAT2, {AT_FDCWD, file}}, 0, 2, true},
        {{"openat O_CREAT", SYS_openat, {AT_FDCWD, new, O_CREAT | O_RDWR}}, 0, 3, false},
        {{"openat O_TMPFILE", SYS_openat, {AT_FDCWD, tmpdir, O_TMPFILE | O_RDWR}}, 0, 3, false},
        {{"mkdirat", SYS_mkdirat, {AT_FDCWD, new}}, 0, 2, false},
        {{"mknodat", SYS_mknodat, {AT_FDCWD, new}}, S_IFREG, 2, false},
#ifdef __x86_64__
        {{"chmod", SYS_chmod, {file}}, 0, 1, false},
        {{"open O_CREAT", SYS_open, {new, O_CREAT | O_WRONLY}}, 0, 2, false},
        {{"open O_TMPFILE", SYS_open, {tmpdir, O_TMPFILE | O_WRONLY}}, 0, 2, false},
        {{"creat", SYS_creat, {new}}, 0, 1, false},
        {{"mkdir", SYS_mkdir, {new}}, 0, 1, false},
        {{"mknod", SYS_mknod, {new}}, S_IFREG, 1, false},
#endif
    };
    static const long set_id[] = {04755, 02755, 06755, 04000, 02000, 07777};
    /* umode_t has 16 bits: what is above them is no excuse. */
    static const long hidden[] = {04755 | 0x7fff0000, 02755 | (long)HIGH_BIT};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (size_t m = 0; m < sizeof(set_id) / sizeof(set_id[0]); m++) {
            expect_mode(FILTER_NO_SETID, &calls[i], set_id[m], false);
            expect_mode(0, &calls[i], set_id[m], true);
        }
        for (size_t m = 0; m < sizeof(hidden) / sizeof(hidden[0]); m++)
            expect_mode(FILTER_NO_SETID, &calls[i], hidden[m], false);
        expect_mode(FILTER_NO_SETID, &calls[i], 0755, true);
        expect_mode(FILTER_NO_SETID, &calls[i], 01777, true);
    }
}

static long attempt_openat2(const void *arg)
{
    struct open_how how = {.flags = O_RDONLY};

    return syscall(SYS_openat2, AT_FDCWD, arg, &how, sizeof(how));
}

static long attempt_keyed_openat2(const void *arg)
{
    struct open_how how = {.flags = O_RDONLY};

    return filter_openat2(AT_FDCWD, file_path, &how, arg) < 0 ? -1 : CAME_THROUGH;
}

static void test_setid_open(void)
{
    struct call call = {"openat, no O_CREAT, garbage for a mode",
                        SYS_openat,
                        {AT_FDCWD, (long)file_path, O_RDWR | O_TRUNC, -1}};
    struct stat st;

    expect(FILTER_NO_SETID, &call, 0);
    call.args[2] = O_DIRECTORY; /* one of the two bits of O_TMPFILE, and not the one that counts */
    expect(FILTER_NO_SETID, &call, ENOTDIR);
#ifdef __x86_64__
    call = (struct call){
        "open, no O_CREAT, garbage for a mode", SYS_open, {(long)file_path, O_RDONLY, 07777}};
    expect(FILTER_NO_SETID, &call, 0);
#endif
    CHECK(ask(FILTER_NO_SETID, attempt_openat2, file_path).errnum == ENOSYS, "openat2");
    CHECK(ask(0, attempt_openat2, file_path).errnum == 0, "openat2 where set-id files may be");

    CHECK(chmod(file_path, 0644) == 0, "%s", strerror(errno));
    call = (struct call){"fchmodat", SYS_fchmodat, {AT_FDCWD, (long)file_path, 06755}};
    expect(FILTER_NO_SETID, &call, EPERM);
    CHECK(stat(file_path, &st) == 0 && (st.st_mode & 07777) == 0644, "mode %o", st.st_mode);
}

static void test_setid(void)
{
    if (!mkdtemp(directory)) {
        CHECK(false, "mkdtemp: %s", strerror(errno));
        return;
    }
    (void)umask(0);
    (void)snprintf(file_path, sizeof(file_path), "%s/file", directory);
    (void)snprintf(new_path, sizeof(new_path), "%s/new", directory);
    file_fd = open(file_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(file_fd >= 0, "%s: %s", file_path, strerror(errno));
    test_setid_modes();
    test_setid_open();
    /* Init's own way; nobody else knows the key. */
    expect_keyed(FILTER_NO_SETID, attempt_keyed_openat2, "openat2");
    (void)close(file_fd);
    CHECK(unlink(file_path) == 0 && rmdir(directory) == 0, "%s is not empty", directory);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void *thread_body(void *arg)
{
    *(int *)arg = 42;
    return NULL;
}

/* libc's own calls: threads fall back from clone3 to clone, and a shell runs. */
static long attempt_work(const void *arg)
{
    static char *const argv[] = {"sh", "-c", "test \"$(echo one | cat)\" = one", NULL};
    static char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    pthread_t thread;
    pid_t shell;
    int seen = 0, status = 0;

    (void)arg;
    if (pthread_create(&thread, NULL, thread_body, &seen) != 0 || pthread_join(thread, NULL) != 0 ||
        seen != 42)
        return 1;
    if (posix_spawn(&shell, "/bin/sh", NULL, NULL, argv, env) != 0)
        return 2;
    return waitpid(shell, &status, 0) == shell ? status : 3;
}

static long attempt_mode(const void *arg)
{
    (void)arg;
    return prctl(PR_GET_SECCOMP, 0L, 0L, 0L, 0L);
}

static void test_whole(void)
{
    struct sock_filter plain[FILTER_MAX], no_setid[FILTER_MAX];
    size_t plain_count = filter_program(plain, 0, key);
    size_t no_setid_count = filter_program(no_setid, FILTER_NO_SETID, key);

    CHECK(plain_count > 0 && plain_count < no_setid_count, "%zu and %zu instructions", plain_count,
          no_setid_count);
    for (unsigned flags = 0; flags <= FILTER_NO_SETID; flags++) {
        struct answer answer = ask(flags, attempt_work, NULL);

        CHECK(answer.result == 0 && answer.signal == 0, "work (flags %u): %ld, signal %d", flags,
              answer.result, answer.signal);
        answer = ask(flags, attempt_mode, NULL);
        CHECK(answer.result == 2, "seccomp mode %ld", answer.result);
    }
    CHECK(filter_load(plain, 0, NULL) == -EINVAL, "an empty program was loaded");
}

int main(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    test_whole();
    test_plain_rules();
    test_namespaces();
    test_clone3_key();
    test_sockets();
    test_locks_of_open_files();
    test_leases();
    test_watches();
    test_long_attributes();
    test_socket_options();
    test_error_queues();
    test_upper_protocols();
    test_urgent_data();
    test_pipes();
    test_shared_memory();
    test_huge_pages();
    test_pages_of_others();
    test_page_cache();
    test_ioctl();
    test_personality();
    test_foreign();
    test_setid();
    return check_finish();
}
