/* The filter of a worker. It is short enough to be read as a whole, which is why it is no table for a compiler:
 * what is not named kills the process, for it is our own code, and would never ask.
 *
 * It must never let through what opens a file, a socket or a process, passes a descriptor, or makes memory that
 * can be executed. What reads and writes does so on descriptors that are there: the socket to the engine, and
 * those that only tell of time and wake threads. */
#include "kernel/worker/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

#define PAGEMAP_SCAN_REQUEST 0xc0606610U /* slot.c */

#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(what))
/* The low word: both machines have it first. */
#define LOAD_ARGUMENT(i) LOAD(offsetof(struct seccomp_data, args[i]))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
#define CALL(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), ALLOW

static const struct sock_filter program[] = {
    LOAD(offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
    KILL,
    LOAD(offsetof(struct seccomp_data, nr)),
    /* Which pages of a slot were written. */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_ioctl, 0, 4),
    LOAD_ARGUMENT(1),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PAGEMAP_SCAN_REQUEST, 0, 1),
    ALLOW,
    KILL,
    /* The socket. Neither takes or gives descriptors. */
    CALL(recvfrom),
    CALL(sendto),
    /* Threads, and what wakes them. */
    CALL(futex),
    CALL(epoll_ctl),
    CALL(epoll_pwait),
#ifdef __NR_epoll_wait
    CALL(epoll_wait),
#endif
    CALL(read),
    CALL(write),
    CALL(close),
    CALL(sched_yield),
    /* Time. */
    CALL(clock_gettime),
    CALL(getrusage), /* faults, which slot.c counts */
    CALL(timer_settime),
    CALL(timerfd_settime),
    CALL(restart_syscall),
    CALL(rt_sigreturn),
    CALL(rt_sigprocmask),
    CALL(rt_sigaction), /* a fault that is nobody's is let kill */
    /* Memory. */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 0, 4),
    LOAD_ARGUMENT(2),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
    KILL,
    ALLOW,
    CALL(munmap),
    CALL(mremap),
    CALL(madvise),
    CALL(brk),
    CALL(getrandom),
    CALL(exit_group),
#ifdef __SANITIZE_ADDRESS__
    CALL(getpid), /* its runtime's */
    CALL(sched_getaffinity),
    CALL(sigaltstack),
#endif
    KILL,
};

int filter_shut_in(struct error *err)
{
    /* The kernel only reads it; struct sock_fprog is older than const. */
    struct sock_fprog loaded = {
        .len = (unsigned short)(sizeof(program) / sizeof(program[0])),
        .filter = (struct sock_filter *)(uintptr_t)program,
    };
    long status;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return error_set(err, "worker_failed", errno, "a kernel's worker cannot give up rights");
    status = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &loaded);
    if (status != 0)
        return error_set(err, "worker_failed", status < 0 ? errno : EAGAIN,
                         "a kernel's worker cannot load its filter of system calls");
    return 0;
}
