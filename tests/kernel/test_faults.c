/* Faults and threads: a fault of the host's own is never survived, also while a guest is entered; who handled
 * faults before still does; threads and children of a fork() run kernels on their own. */
#include "kit.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct kernel_manifest *manifest;

#define ENDLESS_MS 50U

/* How a child that does this ends: a status of waitpid(). */
static int child_status(void (*work)(void))
{
    struct rlimit none = {0, 0};
    int status = 0;
    pid_t child;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &none);
        work();
        _exit(42);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child, "a child");
    return status;
}

/* Killed, or ended by a sanitizer's report; what it must not do is go on. */
static bool is_killed(int status)
{
    return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 42);
}

static void silence(void)
{
    if (freopen("/dev/null", "w", stderr) == NULL)
        abort();
}

static void fault(void)
{
    /* Not known to the compiler, and mapped by nobody. */
    volatile int *volatile nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                                          0);

    *nowhere = 1;
}

/* A host function that faults, called by a guest. */
static int faulty(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                  struct error *err)
{
    (void)data;
    (void)call;
    (void)answer;
    (void)err;
    fault();
    return 0;
}

static void fault_in_host_function(void)
{
    struct kernel_context *context = kit_context(manifest);

    silence();
    kernel_set_answerer(context, faulty, NULL);
    (void)kit_run(context, "host.call('anything')");
}

/* One that faults within the guest's own memory is no guest either. */
static struct kernel_context *faulty_context;

static int faulty_in_slot(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                          struct error *err)
{
    (void)data;
    (void)call;
    (void)answer;
    (void)err;
    *(volatile uint8_t *)(faulty_context->slot->base + (3ULL << 30)) = 1;
    return 0;
}

static void fault_in_slot_by_host(void)
{
    silence();
    faulty_context = kit_context(manifest);
    kernel_set_answerer(faulty_context, faulty_in_slot, NULL);
    (void)kit_run(faulty_context, "host.call('anything')");
}

static void fault_beside(void)
{
    struct kernel_context *context = kit_context(manifest);

    silence();
    (void)kit_run(context, "1");
    fault();
}

static struct kernel_entry foreign_entry;

static void foreign_work(void *data)
{
    (void)data;
    fault();
}

/* Within an entry, and not within its slot: what a broken guest would do. */
static void fault_in_guest(void)
{
    struct kernel_context *context = kit_context(manifest);
    enum kernel_trap trap;
    struct error err;

    silence();
    foreign_entry = (struct kernel_entry){.work = foreign_work, .slot = context->slot->base};
    (void)thread_enter(&foreign_entry, &trap, &err);
}

static uint8_t *own_slot;

static void own_work(void *data)
{
    const uint64_t *at = data;

    *(volatile uint8_t *)(own_slot + *at) = 1;
}

/* Within its slot it traps, up to the guard's end and no further. */
static void fault_within(void)
{
    static uint64_t places[] = {64U << 20, 1ULL << 31, (4ULL << 30) - 1, 4ULL << 30,
                                KERNEL_SLOT_BYTES - 1};
    struct kernel_context *context = kit_context(manifest);
    enum kernel_trap trap = TRAP_NONE;
    struct error err;

    own_slot = context->slot->base;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct kernel_entry entry = {.work = own_work, .data = &places[i], .slot = own_slot};

        CHECK(thread_enter(&entry, &trap, &err) == 0 && trap == TRAP_MEMORY, "%llx: trap %d",
              (unsigned long long)places[i], (int)trap);
    }
    kernel_context_free(context);
}

static void deep(void *data)
{
    volatile char room[4096];

    room[0] = 1;
    if (data != room) /* always: no call that the compiler can turn around */
        deep(data);
    room[1] = room[0];
}

static void stack_ends(void)
{
    struct kernel_context *context = kit_context(manifest);
    struct kernel_entry entry = {.work = deep, .slot = context->slot->base};
    enum kernel_trap trap = TRAP_NONE;
    struct error err;

    CHECK(thread_enter(&entry, &trap, &err) == 0 && trap == TRAP_STACK, "trap %d", (int)trap);
    RUN_IS(context, "1", "1");
    kernel_context_free(context);
}

/* ---- who was there before ---- */

static sigjmp_buf back;

static void before(int number)
{
    siglongjmp(back, number);
}

static void earlier_handler(void)
{
    struct kernel_context *context;
    struct sigaction action = {.sa_handler = before};

    (void)sigaction(SIGSEGV, &action, NULL);
    context = kit_context(manifest);
    RUN_THROWS(context, "(function f() { return 1 + f() })()", "stack");
    if (sigsetjmp(back, 1) == 0) {
        fault();
        _exit(1);
    }
    RUN_IS(context, "1", "1");
    _exit(check_failed == 0 ? 7 : 1);
}

/* Someone who sends the signal is no fault. */
static void sent_signal(void)
{
    struct kernel_context *context = kit_context(manifest);

    silence();
    (void)kit_run(context, "1");
    (void)raise(SIGSEGV);
}

/* Somebody's handler that was at work when the guest's time was up. */
static volatile sig_atomic_t handlers_begun, handlers_done;

static void slow_handler(int number)
{
    uint64_t until = thread_cpu_ns() + 100000000;

    (void)number;
    handlers_begun++;
    while (thread_cpu_ns() < until)
        continue;
    handlers_done++;
}

static void *signal_sender(void *data)
{
    struct timespec wait = {0, 20000000};

    (void)nanosleep(&wait, NULL);
    (void)pthread_kill(*(pthread_t *)data, SIGUSR1);
    return NULL;
}

/* It ends, and the guest then. */
static void handler_on_top(void)
{
    struct kernel_context *context = kit_context(manifest);
    struct sigaction action = {.sa_handler = slow_handler, .sa_flags = SA_ONSTACK}, was;
    pthread_t here = pthread_self(), sender;
    sigset_t blocked;

    CHECK(sigaction(SIGUSR1, &action, &was) == 0, "a handler");
    for (int i = 0; i < 5; i++) {
        const struct kernel_result *result;

        CHECK(pthread_create(&sender, NULL, signal_sender, &here) == 0, "a thread");
        /* Native, so that it is left by force. */
        result = kit_run_within(context, "/(x+x+)+y/.exec('x'.repeat(60))", ENDLESS_MS);
        CHECK(result->end == KERNEL_END_CPU, "ends by %s", kernel_end_name(result->end));
        (void)pthread_join(sender, NULL);
        CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 &&
                  sigismember(&blocked, SIGUSR1) == 0,
              "nothing stays blocked");
        CHECK(handlers_begun == i + 1 && handlers_done == i + 1, "%d handlers began, %d ended",
              (int)handlers_begun, (int)handlers_done);
    }
    (void)sigaction(SIGUSR1, &was, NULL);
    kernel_context_free(context);
}

/* ---- nesting, forks, threads ---- */

static int nested(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                  struct error *err)
{
    struct kernel_source source = {.text = "1", .size = 1};
    enum kernel_status status;

    (void)call;
    (void)answer;
    return kernel_run(data, &source, &status, err);
}

static void nesting(void)
{
    struct kernel_context *outer = kit_context(manifest), *inner = kit_context(manifest);

    kernel_set_answerer(outer, nested, inner);
    RUN_THROWS(outer, "host.call('nest')", "runs a kernel already");
    kernel_set_answerer(outer, nested, outer);
    RUN_THROWS(outer, "host.call('nest')", "under way");
    RUN_IS(inner, "2", "2");
    kernel_context_free(outer);
    kernel_context_free(inner);
}

static void in_a_child(void)
{
    struct kernel_context *context = kit_context(manifest);
    const struct kernel_result *result = kit_run_within(context, "while (true) {}", ENDLESS_MS);

    CHECK(result->end == KERNEL_END_CPU, "ends by %s", kernel_end_name(result->end));
    (void)fflush(stdout);
    _exit(check_failed == 0 ? 7 : 1);
}

static void *on_a_thread(void *data)
{
    unsigned *wrong = data;

    for (int i = 0; i < 30; i++) {
        struct kernel_context *context = kit_context(manifest);
        const struct kernel_result *result;

        result = i % 10 == 0 ? kit_run_within(context, "while (true) {}", ENDLESS_MS)
                             : kit_run(context, "6 * 7");
        if (i % 10 == 0 ? result->end != KERNEL_END_CPU : !kit_is(result->output, "42"))
            (*wrong)++;
        result = kit_run(context, "(function f() { return 1 + f() })()");
        if (result->end != KERNEL_END_ERROR)
            (*wrong)++;
        kernel_context_free(context);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t threads[4];
    unsigned wrong[4] = {0};

    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, on_a_thread, &wrong[i]) == 0, "a thread");
    for (int i = 0; i < 4; i++) {
        (void)pthread_join(threads[i], NULL);
        CHECK(wrong[i] == 0, "thread %d: %u runs were wrong", i, wrong[i]);
    }
}

int main(void)
{
    struct kernel_grants grants = {.cpu_ms = 20000, .wall_ms = 60000};
    struct kernel_manifest *made = kit_manifest(&grants);
    int status;

    manifest = made;
    CHECK(is_killed(child_status(fault_in_host_function)), "a host function that faults kills");
    CHECK(is_killed(child_status(fault_in_slot_by_host)), "also within the guest's memory");
    CHECK(is_killed(child_status(fault_beside)), "a fault beside a guest kills");
    CHECK(is_killed(child_status(fault_in_guest)), "a guest that reaches elsewhere kills");
    CHECK(is_killed(child_status(sent_signal)), "a signal that is sent kills");
    status = child_status(earlier_handler);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "an earlier handler: status %d", status);
    status = child_status(in_a_child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "before any run: status %d", status);
    fault_within();
    stack_ends();
    handler_on_top();
    nesting();
    status = child_status(in_a_child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "in a child: status %d", status);
    threads();
    kernel_manifest_free(made);
    kernel_image_free(kit_image());
    return check_finish();
}
