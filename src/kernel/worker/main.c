/* cove-worker: runs the kernels of one tenant, in a box without anything in it.
 *
 * Its fd 0 is a socket to the engine, and all that it has. It makes its threads, shuts itself in, runs a first
 * snippet to see that this goes, and says that it is ready. It ends with the socket; and it never tries to go on after
 * what must not be. */
#include "kernel/worker/worker.h"

#include "base/fd.h"
#include "kernel/worker/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREAD_STACK (256UL << 10)
/* Where a guest is left by a signal, the sanitizer looks for the stack of the thread, and of a process's first
 * thread that is a file of /proc. Then that one does nothing, and another stands in for it. */
#ifdef __SANITIZE_ADDRESS__
#define STAND_INS 1U
#else
#define STAND_INS 0U
#endif

struct worker worker = {.lock = PTHREAD_MUTEX_INITIALIZER,
                        .sending = PTHREAD_MUTEX_INITIALIZER,
                        .freed = PTHREAD_COND_INITIALIZER};
static pthread_barrier_t prepared, shut_in;

void worker_die(void)
{
    _exit(1);
}

static void *thread_main(void *unused)
{
    struct error err;

    (void)unused;
    if (kernel_thread_prepare(&err) < 0) {
        (void)dprintf(STDERR_FILENO, "cove-worker: %s\n", err.text);
        worker_die();
    }
    (void)pthread_barrier_wait(&prepared);
    (void)pthread_barrier_wait(&shut_in);
    io_loop();
    return NULL;
}

static unsigned runners_count(void)
{
    cpu_set_t set;
    unsigned count;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return RUNNERS_MIN;
    count = (unsigned)CPU_COUNT(&set) + 4;
    return count < RUNNERS_MIN ? RUNNERS_MIN : count > RUNNERS_MAX ? RUNNERS_MAX : count;
}

/* All but this one, which listens, too. */
static int threads_start(struct error *err)
{
    pthread_attr_t attributes;

    worker.runners = runners_count();
    (void)pthread_barrier_init(&prepared, NULL, worker.runners + STAND_INS + 1);
    (void)pthread_barrier_init(&shut_in, NULL, worker.runners + STAND_INS + 1);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, THREAD_STACK);
    for (unsigned i = 0; i < worker.runners + STAND_INS; i++) {
        pthread_t thread;
        int status = pthread_create(&thread, &attributes, thread_main, NULL);

        if (status != 0)
            return error_set(err, "worker_failed", status,
                             "a kernel's worker cannot make its %u threads", worker.runners);
    }
    (void)pthread_attr_destroy(&attributes);
    (void)pthread_barrier_wait(&prepared);
    return 0;
}

/* What is inherited is not ours to have; the log goes once nothing can be said there any more. */
static int descriptors_close(struct error *err)
{
    int flags = fcntl(STDIN_FILENO, F_GETFL);

    if (flags < 0 || fcntl(STDIN_FILENO, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return error_set(err, "worker_failed", errno, "a kernel's worker has no socket");
    (void)syscall(SYS_close_range, 3U, ~0U, 0U);
    return 0;
}

/* While it can still be opened, also where the program's file cannot be read. */
static void pagemap_open(void)
{
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    (void)slot_can_scan();
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

/* Something of everything, so that a filter that is too narrow shows before anybody relies on this. */
static int try_out(struct error *err)
{
    static const struct kernel_grants nothing;
    static const struct kernel_source source = {.text = "1 + 1", .size = 5};
    struct kernel_manifest *manifest;
    struct kernel_context *context;
    enum kernel_status status;
    bool is_right;

    if (kernel_manifest_new(&nothing, &manifest, err) < 0 ||
        kernel_context_new(worker.image, manifest, NULL, &context, err) < 0 ||
        kernel_run(context, &source, &status, err) < 0)
        return -1;
    is_right = status == KERNEL_DONE && kernel_text_is(kernel_result(context)->value, "2");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    return is_right ? 0 : error_set(err, "worker_failed", 0, "a kernel cannot add");
}

static int no_order(const void *one, const void *other)
{
    (void)one;
    (void)other;
    return 0;
}

/* What libc asks of the system once, it asks here: how much memory there is, before it sorts what is large (rules of
 * hosts). And one arena for all threads: for more it asks how many processors there are, and opens a file of /proc where
 * it gives memory back. */
static void libc_settle(void)
{
    static uint64_t numbers[1024];

    (void)mallopt(M_ARENA_MAX, 1);
    qsort(numbers, sizeof(numbers) / sizeof(numbers[0]), sizeof(numbers[0]), no_order);
}

static int start(struct error *err)
{
    struct kernel_image *image = NULL;

    places_init(&worker.ready);
    places_init(&worker.waiting);
    places_init(&worker.idle);
    if (descriptors_close(err) < 0 || kernel_image_js(&image, err) < 0 || io_open(err) < 0)
        return -1;
    image->ready_max = RUNNERS_MAX;
    worker.image = image;
    pagemap_open();
    if (kernel_thread_prepare(err) < 0 || threads_start(err) < 0)
        return -1;
    return filter_shut_in(err);
}

int main(void)
{
    struct wire wire = {0};
    struct error err;

    (void)signal(SIGPIPE, SIG_IGN);
    libc_settle();
    if (start(&err) < 0 || try_out(&err) < 0) {
        (void)dprintf(STDERR_FILENO, "cove-worker: %s\n", err.text);
        worker_die();
    }
    (void)close(STDOUT_FILENO);
    (void)close(STDERR_FILENO);
    wire_begin(&wire, PROTO_READY, 0);
    wire_end(&wire);
    io_send(&wire);
    wire_free(&wire);
    (void)pthread_barrier_wait(&shut_in);
#ifdef __SANITIZE_ADDRESS__
    sem_t never;

    (void)sem_init(&never, 0, 0);
    for (;;)
        (void)sem_wait(&never);
#else
    io_loop();
#endif
}
