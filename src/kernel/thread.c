/* A thread's way into guests and out of them: the stack that guests run on, traps by signal, and the
 * timers of their limits.
 *
 * A guest may be left at any instruction of its own by a jump, for nothing but its own memory is in a half
 * state then. While the host works for it nothing jumps: a limit that is met then waits until the host is
 * done. The stack is not the thread's: it has a known end with a wide guard below it, so that recursion ends
 * the same way on each thread. A fault that is not within the slot of this thread's guest, or its
 * stack's guard, is a fault of the host, and must never be survived here. */
/* A jump from one stack to another is what the fortified siglongjmp takes for an attack. */
#undef _FORTIFY_SOURCE

#include "base/clock.h"
#include "kernel/parts.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1 /* as gcc says it */
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#define FIBER_START(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define FIBER_FINISH(save, bottom, size) __sanitizer_finish_switch_fiber(save, bottom, size)
#else
#define FIBER_START(save, bottom, size) ((void)0)
#define FIBER_FINISH(save, bottom, size) ((void)0)
#endif

#define STACK_BYTES (64UL << 20) /* ten times GUEST_STACK_LIMIT is the most that was seen */
#define STACK_GUARD (16UL << 20)
#define STACK_KEPT (512UL << 10)     /* of what was touched */
#define STACK_FOR_HOST (256UL << 10) /* what a host function may need */
#define ALTERNATE_BYTES (64UL << 10)
/* From the moment that the guest is asked to stop until it is left by force, of its time on the processor. A tick of
 * that clock is up to 4 ms, and it is only looked at there. */
#define GRACE_NS 1000000ULL
#define AGAIN_NS 100000ULL /* where a guest cannot be left at once */

struct thread {
    struct kernel_entry *entry; /* NULL: not in a guest */
    volatile sig_atomic_t in_host;
    volatile sig_atomic_t late; /* an enum kernel_trap that waits for the host's end */
    sigjmp_buf trap;            /* where a guest is left to */
    sigjmp_buf
        host; /* where the host waits for the guest's end, and the guest for its next entry */
    sigjmp_buf guest;
    ucontext_t first; /* into guest_main() */
    bool started;
    uint8_t *stack; /* its guard is its first part */
    uint8_t *alternate;
    timer_t cpu, wall;
    /* When a timer goes off, by its own clock; 0: it is not set. One that goes off before the limit
     * is set anew, so that a limit that only moves away costs no call of the system. */
    uint64_t cpu_set, wall_set;
    uint64_t cpu_end, wall_end; /* 0: no limit */
    bool on_alternate;          /* which is ours */
#ifdef __SANITIZE_ADDRESS__
    ucontext_t outside;
    void *fake_host, *fake_guest;
    const void *host_bottom;
    size_t host_size;
#endif
};

static __thread struct thread *self __attribute__((tls_model("initial-exec")));
static pthread_key_t thread_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_error;
static struct sigaction before_segv, before_bus;
static int timer_signal;

/* ---- leaving ---- */

/* From here on no signal leaves any more. Before each jump, for what is called on the way to it (a sanitizer's part
 * takes locks) is the host's; and not in a function that never returns, for a call of that is such a way itself. */
static void leave_begin(struct thread *thread)
{
    thread->in_host = 1;
    atomic_signal_fence(memory_order_seq_cst);
}

_Noreturn void thread_trap(enum kernel_trap trap)
{
    leave_begin(self);
    siglongjmp(self->trap, (int)trap);
}

bool thread_host_begin(void)
{
    const uint8_t *here = __builtin_frame_address(0);

    leave_begin(self);
    return (size_t)(here - (self->stack + STACK_GUARD)) >= STACK_FOR_HOST;
}

void thread_host_end(void)
{
    struct thread *thread = self;

    thread->in_host = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (thread->late != TRAP_NONE) {
        leave_begin(thread);
        thread_trap((enum kernel_trap)thread->late);
    }
}

bool thread_is_due(void)
{
    const struct thread *thread = self;

    atomic_signal_fence(memory_order_seq_cst);
    return thread != NULL && thread->entry != NULL &&
           (thread->late != TRAP_NONE || thread->entry->interrupted != TRAP_NONE);
}

/* ---- faults ---- */

static bool is_within(const void *address, const uint8_t *begin, uint64_t size)
{
    return begin != NULL && (uintptr_t)address - (uintptr_t)begin < size;
}

/* Gives a fault that is not ours to whoever was there before; or lets it kill the process. */
static void fault_pass(int number, siginfo_t *info, void *machine)
{
    const struct sigaction *before = number == SIGSEGV ? &before_segv : &before_bus;

    if ((before->sa_flags & SA_SIGINFO) != 0 && before->sa_sigaction != NULL) {
        before->sa_sigaction(number, info, machine);
        return;
    }
    if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
        return;
    }
    /* The instruction faults again, or the signal is sent again, and now it kills. */
    (void)signal(number, SIG_DFL);
    if (info->si_code <= 0)
        (void)raise(number);
}

static void on_fault(int number, siginfo_t *info, void *machine)
{
    struct thread *thread = self;

    /* si_code <= 0: somebody sent it, and its address means nothing. */
    if (thread != NULL && thread->entry != NULL && !thread->in_host && info->si_code > 0) {
        bool of_memory = is_within(info->si_addr, thread->entry->slot, KERNEL_SLOT_BYTES);

        if (of_memory || is_within(info->si_addr, thread->stack, STACK_GUARD)) {
            leave_begin(thread);
            siglongjmp(thread->trap, of_memory ? TRAP_MEMORY : TRAP_STACK);
        }
    }
    fault_pass(number, info, machine);
}

/* ---- limits ---- */

uint64_t thread_cpu_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* At a point of the timer's clock. */
static void timer_set(timer_t timer, uint64_t at)
{
    struct itimerspec when = {.it_value = {(time_t)(at / 1000000000U), (long)(at % 1000000000U)}};

    (void)timer_settime(timer, TIMER_ABSTIME, &when, NULL);
}

/* A timer went off: whether the limit `*end` is there. If not, the timer is set to it. */
static bool limit_is_met(struct thread *thread, bool cpu)
{
    uint64_t now = cpu ? thread_cpu_ns() : clock_monotonic_ns();
    uint64_t end = cpu ? thread->cpu_end : thread->wall_end;
    uint64_t *set = cpu ? &thread->cpu_set : &thread->wall_set;

    *set = 0;
    if (end == 0)
        return false;
    if (now < end) {
        *set = end;
        timer_set(cpu ? thread->cpu : thread->wall, end);
        return false;
    }
    return true;
}

static bool is_poked(const struct thread *thread, enum kernel_trap *trap);

/* Where the thread was when the signal came. */
static uintptr_t stack_at(const ucontext_t *machine)
{
#if defined(__x86_64__)
    return (uintptr_t)machine->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    return (uintptr_t)machine->uc_mcontext.sp;
#else
#error "where does this machine keep its stack's address?"
#endif
}

/* Whether another signal's handler is at work, or about to begin, on top of the guest. A jump would leave it half
 * done, and what it blocked blocked. That is seen by its stack: what the thread is prepared with is one for signals.
 * A handler that is set up without SA_ONSTACK runs on the guest's, and is not seen. */
static bool is_in_handler(const struct thread *thread, const ucontext_t *machine)
{
    return !is_within((const void *)stack_at(machine), thread->stack, STACK_GUARD + STACK_BYTES);
}

static void on_timer(int number, siginfo_t *info, void *machine)
{
    struct thread *thread = self;
    bool cpu, met;
    enum kernel_trap trap;
    int kept = errno;

    (void)number;
    if (thread == NULL || info->si_code != SI_TIMER ||
        (info->si_value.sival_ptr != &thread->cpu && info->si_value.sival_ptr != &thread->wall))
        return;
    cpu = info->si_value.sival_ptr == &thread->cpu;
    trap = cpu ? TRAP_CPU : TRAP_WALL;
    if (thread->entry == NULL) {
        *(cpu ? &thread->cpu_set : &thread->wall_set) = 0;
        errno = kept;
        return;
    }
    met = limit_is_met(thread, cpu);
    if (is_poked(thread, &trap) || met) {
        uint32_t *interrupt = thread->entry->interrupt;

        if (interrupt != NULL && thread->entry->interrupted == TRAP_NONE) {
            /* First it is asked: then its state is kept. What it gets for that is time on the processor, for on a
             * busy machine the wall's would be over before it ran again; from now, for the timer is late by up to a
             * tick. */
            thread->entry->interrupted = trap;
            *interrupt = 1;
            thread->cpu_end = thread_cpu_ns() + GRACE_NS;
            thread->cpu_set = thread->cpu_end;
            timer_set(thread->cpu, thread->cpu_end);
        } else if (interrupt == NULL || thread_cpu_ns() >= thread->cpu_end) {
            if (thread->entry->interrupted != TRAP_NONE)
                trap = thread->entry->interrupted;
            if (thread->in_host) {
                thread->late = (sig_atomic_t)trap;
            } else if (is_in_handler(thread, machine)) {
                uint64_t *set = cpu ? &thread->cpu_set : &thread->wall_set;

                *set = (cpu ? thread_cpu_ns() : clock_monotonic_ns()) + AGAIN_NS;
                timer_set(cpu ? thread->cpu : thread->wall, *set);
            } else {
                errno = kept;
                leave_begin(thread);
                siglongjmp(thread->trap, (int)trap);
            }
        } else {
            /* However often it is asked meanwhile, it has its time. */
            thread->cpu_set = thread->cpu_end;
            timer_set(thread->cpu, thread->cpu_end);
        }
    }
    errno = kept;
}

/* Whether another thread asked for the end. To be looked at after the wall's timer was set, for whoever asks sets
 * that one, too: either he is heard here, or his timer goes off. */
static bool is_poked(const struct thread *thread, enum kernel_trap *trap)
{
    const struct kernel_poke *poke = thread->entry->poke;
    int asked = poke != NULL ? atomic_load(&poke->trap) : TRAP_NONE;

    if (asked != TRAP_NONE)
        *trap = (enum kernel_trap)asked;
    return asked != TRAP_NONE;
}

void thread_poke(struct kernel_poke *poke, enum kernel_trap trap)
{
    (void)pthread_mutex_lock(&poke->lock);
    atomic_store(&poke->trap, (int)trap);
    if (poke->thread != NULL && trap != TRAP_NONE)
        timer_set(poke->thread->wall, 1); /* at once */
    (void)pthread_mutex_unlock(&poke->lock);
}

static void poke_set(struct kernel_poke *poke, struct thread *thread)
{
    if (poke == NULL)
        return;
    (void)pthread_mutex_lock(&poke->lock);
    poke->thread = thread;
    (void)pthread_mutex_unlock(&poke->lock);
}

static void limits_begin(struct thread *thread, struct kernel_entry *entry)
{
    uint64_t cpu = thread_cpu_ns(), wall = clock_monotonic_ns();

    entry->cpu_used = cpu;
    entry->wall_used = wall;
    thread->late = TRAP_NONE;
    thread->cpu_end = entry->cpu_ns != 0 ? cpu + entry->cpu_ns : 0;
    thread->wall_end = entry->wall_ns != 0 ? wall + entry->wall_ns : 0;
    atomic_signal_fence(memory_order_seq_cst);
    thread->entry = entry;
    atomic_signal_fence(memory_order_seq_cst);
    if (thread->cpu_end != 0 && (thread->cpu_set == 0 || thread->cpu_set > thread->cpu_end)) {
        thread->cpu_set = thread->cpu_end;
        timer_set(thread->cpu, thread->cpu_end);
    }
    if (thread->wall_end != 0 && (thread->wall_set == 0 || thread->wall_set > thread->wall_end)) {
        thread->wall_set = thread->wall_end;
        timer_set(thread->wall, thread->wall_end);
    }
    if (entry->poke != NULL && atomic_load(&entry->poke->trap) != TRAP_NONE) {
        thread->wall_set = 1;
        timer_set(thread->wall, 1);
    }
}

/* ---- a thread ---- */

/* ---- two stacks ---- */

#ifdef __SANITIZE_ADDRESS__
/* The runtime of the sanitizer follows no jump to another stack. */
static void to_guest(struct thread *thread)
{
    (void)swapcontext(&thread->outside, &thread->first);
}

static void to_host(struct thread *thread)
{
    (void)swapcontext(&thread->first, &thread->outside);
}
#else
/* They jump to each other: swapcontext() would ask the system for the mask of signals, each time. */
static void to_guest(struct thread *thread)
{
    if (sigsetjmp(thread->host, 0) != 0)
        return;
    if (thread->started)
        siglongjmp(thread->guest, 1);
    thread->started = true;
    (void)setcontext(&thread->first);
}

static void to_host(struct thread *thread)
{
    if (sigsetjmp(thread->guest, 0) == 0)
        siglongjmp(thread->host, 1);
}
#endif

static void guest_main(void)
{
    struct thread *thread = self;

    FIBER_FINISH(NULL, &thread->host_bottom, &thread->host_size);
    for (;;) {
        /* A guest that was left comes back here, on this stack. */
        int trapped = sigsetjmp(thread->trap, 0);

        if (trapped == 0) {
            thread->in_host = 0;
            atomic_signal_fence(memory_order_seq_cst);
            trapped = thread->late;
            if (trapped == TRAP_NONE)
                thread->entry->work(thread->entry->data);
        }
        /* From here on no limit is met any more. */
        thread->in_host = 1;
        atomic_signal_fence(memory_order_seq_cst);
        thread->late = trapped;
        FIBER_START(&thread->fake_guest, thread->host_bottom, thread->host_size);
        to_host(thread);
        FIBER_FINISH(thread->fake_guest, &thread->host_bottom, &thread->host_size);
    }
}

static void thread_free(void *data)
{
    struct thread *thread = data;
    stack_t off = {.ss_flags = SS_DISABLE};

    self = NULL;
    (void)timer_delete(thread->cpu);
    (void)timer_delete(thread->wall);
    if (thread->on_alternate)
        (void)sigaltstack(&off, NULL);
    (void)munmap(thread->stack, STACK_GUARD + STACK_BYTES);
    (void)munmap(thread->alternate, ALTERNATE_BYTES);
    free(thread);
}

static void action_set(int number, void (*handler)(int, siginfo_t *, void *),
                       struct sigaction *before)
{
    /* The mask stays as it is: a handler may be left by a jump. */
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART,
                               .sa_sigaction = handler};

    (void)sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, before) < 0)
        once_error = errno;
}

/* Where programs are emulated (qemu-aarch64), the highest signals are there but for timers. */
static bool timer_takes(int number)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = number};
    timer_t timer;

    if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
        return false;
    (void)timer_delete(timer);
    return true;
}

/* The timers' signal: the highest that nobody has a handler for. */
static int signal_find(void)
{
    for (int number = SIGRTMAX; number >= SIGRTMIN; number--) {
        struct sigaction there;

        if (sigaction(number, NULL, &there) == 0 && there.sa_handler == SIG_DFL &&
            timer_takes(number))
            return number;
    }
    return 0;
}

/* In the child of a fork() the timers are gone: its thread is prepared anew, and what is left of this one
 * stays unused. */
static void forked(void)
{
    self = NULL;
}

static void once_begin(void)
{
    timer_signal = signal_find();
    if (timer_signal == 0) {
        once_error = EBUSY;
        return;
    }
    once_error = pthread_key_create(&thread_key, thread_free);
    if (once_error == 0)
        once_error = pthread_atfork(NULL, NULL, forked);
    if (once_error != 0)
        return;
    action_set(timer_signal, on_timer, NULL);
    action_set(SIGSEGV, on_fault, &before_segv);
    action_set(SIGBUS, on_fault, &before_bus);
}

static int timer_new(clockid_t clock, timer_t *timer)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = timer_signal};

    event.sigev_value.sival_ptr = timer;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    return timer_create(clock, &event, timer);
}

/* A stack for signals, unless the thread has one already: ours comes back when the guest's is at its
 * end. */
static int alternate_set(struct thread *thread)
{
    stack_t now, ours = {.ss_sp = thread->alternate, .ss_size = ALTERNATE_BYTES};

    if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE) == 0)
        return 0;
    if (sigaltstack(&ours, NULL) < 0)
        return -1;
    thread->on_alternate = true;
    return 0;
}

/* A thread that blocks the timers' signal would have no limits. */
static void signals_open(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, timer_signal);
    (void)sigaddset(&set, SIGSEGV);
    (void)sigaddset(&set, SIGBUS);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static int thread_fill(struct thread *thread)
{
    thread->stack = mmap(NULL, STACK_GUARD + STACK_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    thread->alternate = mmap(NULL, ALTERNATE_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (thread->stack == MAP_FAILED || thread->alternate == MAP_FAILED ||
        mprotect(thread->stack + STACK_GUARD, STACK_BYTES, PROT_READ | PROT_WRITE) < 0 ||
        alternate_set(thread) < 0)
        return -1;
    if (timer_new(CLOCK_THREAD_CPUTIME_ID, &thread->cpu) < 0)
        return -1;
    if (timer_new(CLOCK_MONOTONIC, &thread->wall) < 0) {
        (void)timer_delete(thread->cpu);
        return -1;
    }
    signals_open();
    (void)getcontext(&thread->first);
    thread->first.uc_stack.ss_sp = thread->stack + STACK_GUARD;
    thread->first.uc_stack.ss_size = STACK_BYTES;
    makecontext(&thread->first, guest_main, 0);
    return 0;
}

static struct thread *thread_prepare(struct error *err)
{
    struct thread *thread;
    int errnum;

    (void)pthread_once(&once, once_begin);
    if (once_error != 0) {
        error_set(err, "kernel_failed", once_error, "the signals of kernels cannot be set");
        return NULL;
    }
    thread = calloc(1, sizeof(*thread));
    if (thread == NULL) {
        error_set(err, "no_memory", ENOMEM, "a thread for kernels");
        return NULL;
    }
    thread->stack = MAP_FAILED;
    thread->alternate = MAP_FAILED;
    if (thread_fill(thread) < 0 || (errno = pthread_setspecific(thread_key, thread)) != 0) {
        errnum = errno;
        if (thread->stack != MAP_FAILED)
            (void)munmap(thread->stack, STACK_GUARD + STACK_BYTES);
        if (thread->alternate != MAP_FAILED)
            (void)munmap(thread->alternate, ALTERNATE_BYTES);
        free(thread);
        error_set(err, "kernel_failed", errnum, "this thread cannot be made to run kernels");
        return NULL;
    }
    self = thread;
    return thread;
}

void thread_rest(void)
{
    struct thread *thread = self;

    if (thread != NULL && thread->entry == NULL)
        (void)madvise(thread->stack + STACK_GUARD, STACK_BYTES - STACK_KEPT, MADV_DONTNEED);
}

int kernel_thread_prepare(struct error *err)
{
    return self != NULL || thread_prepare(err) != NULL ? 0 : -1;
}

int thread_enter(struct kernel_entry *entry, enum kernel_trap *trap, struct error *err)
{
    struct thread *thread = self != NULL ? self : thread_prepare(err);

    if (thread == NULL)
        return -1;
    if (thread->entry != NULL)
        return error_set(err, "kernel_busy", 0,
                         "this thread runs a kernel already; a host function cannot run another");
    entry->interrupted = TRAP_NONE;
    thread->in_host = 1; /* until it is on the other stack */
    poke_set(entry->poke, thread);
    limits_begin(thread, entry);
    FIBER_START(&thread->fake_host, thread->stack + STACK_GUARD, STACK_BYTES);
    to_guest(thread);
    FIBER_FINISH(thread->fake_host, NULL, NULL);
    thread->entry = NULL;
    poke_set(entry->poke, NULL);
    *trap = (enum kernel_trap)thread->late;
    thread->late = TRAP_NONE;
    entry->cpu_used = thread_cpu_ns() - entry->cpu_used;
    entry->wall_used = clock_monotonic_ns() - entry->wall_used;
    return 0;
}
