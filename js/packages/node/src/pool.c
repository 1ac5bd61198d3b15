/* The threads that kernels run on: a few for the whole process, made as they are needed, which take guests in the order
 * in which they became ready, or as their time comes. A guest that waits holds none.
 *
 * They live as long as the process, and so does this library, which cannot be unloaded. */
#include "parts.h"

#include "base/clock.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_LEAST 4
#define THREADS_MOST 64
#define NO_DUE UINT64_MAX

static struct {
    pthread_mutex_t lock;
    /* One idle thread, the keeper, waits for the first of the times, so that none is missed while the others are
     * busy; the rest wait for work. */
    pthread_cond_t work, time;
    struct guest *ready, **ready_last;
    unsigned threads, threads_max;
    unsigned asleep, called; /* for work; and who has been woken and is not up yet */
    const void *keeper;      /* NULL: none */
    uint64_t keeper_until;
    struct guest **times; /* a heap by `due`, from 1 */
    size_t times_count, times_room;
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .ready_last = &pool.ready};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool over;

/* When the process ends its threads go on until the very last moment. */
__attribute__((destructor)) static void end(void)
{
    atomic_store(&over, true);
}

bool pool_is_over(void)
{
    return atomic_load(&over);
}

/* In the child of a fork() there are no threads, and nobody to wait for. */
static void forked(void)
{
    atomic_store(&over, true);
}

static void begin(void)
{
    const char *wanted = getenv("COVE_KERNEL_THREADS");
    long count = wanted != NULL ? strtol(wanted, NULL, 10) : 0;
    pthread_condattr_t attr;
    cpu_set_t cpus;

    if (count <= 0) {
        count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) + 2 : 0;
        if (count < THREADS_LEAST)
            count = THREADS_LEAST;
    }
    pool.threads_max = count > THREADS_MOST ? THREADS_MOST : (unsigned)count;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&pool.time, &attr);
    (void)pthread_condattr_destroy(&attr);
    (void)pthread_atfork(NULL, NULL, forked);
}

void pool_lock(void)
{
    (void)pthread_once(&once, begin);
    (void)pthread_mutex_lock(&pool.lock);
}

void pool_unlock(void)
{
    (void)pthread_mutex_unlock(&pool.lock);
}

/* ---- threads ---- */

static void *work(void *arg);

static bool thread_new(void)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int failure;

    if (pool.threads >= pool.threads_max)
        return false;
    /* No signal of Node's is its business. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    failure = pthread_create(&thread, &attr, work, NULL);
    (void)pthread_attr_destroy(&attr);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure == 0)
        pool.threads++;
    return failure == 0;
}

/* Wakes one that waits for work, or makes one; false: there is neither, and the keeper is left alone. */
static bool thread_call(void)
{
    if (pool.asleep == 0)
        return thread_new();
    pool.asleep--;
    pool.called++;
    (void)pthread_cond_signal(&pool.work);
    return true;
}

bool pool_has_threads(void)
{
    return pool.threads > 0 || thread_new();
}

static void ready_add(struct guest *guest)
{
    if (guest->place == GUEST_IDLE)
        guest->refs++;
    guest->place = GUEST_READY;
    guest->next = NULL;
    *pool.ready_last = guest;
    pool.ready_last = &guest->next;
}

/* ---- times ---- */

static void times_put(size_t at, struct guest *guest)
{
    pool.times[at] = guest;
    guest->times_at = at;
}

static void times_up(size_t at)
{
    struct guest *guest = pool.times[at];

    for (; at > 1 && pool.times[at / 2]->due > guest->due; at /= 2)
        times_put(at, pool.times[at / 2]);
    times_put(at, guest);
}

static void times_down(size_t at)
{
    struct guest *guest = pool.times[at];

    for (size_t next; (next = 2 * at) <= pool.times_count; at = next) {
        if (next < pool.times_count && pool.times[next + 1]->due < pool.times[next]->due)
            next++;
        if (pool.times[next]->due >= guest->due)
            break;
        times_put(at, pool.times[next]);
    }
    times_put(at, guest);
}

void pool_not_later(struct guest *guest)
{
    size_t at = guest->times_at;
    struct guest *last;

    if (at == 0)
        return;
    guest->times_at = 0;
    last = pool.times[pool.times_count--];
    if (last == guest)
        return;
    times_put(at, last);
    times_up(at);
    times_down(last->times_at);
}

void pool_later(struct guest *guest, uint64_t due)
{
    pool_not_later(guest);
    if (pool.times_count + 1 >= pool.times_room) {
        size_t room = pool.times_room != 0 ? 2 * pool.times_room : 64;
        struct guest **more = realloc(pool.times, room * sizeof(struct guest *));

        if (more == NULL) {
            /* It looks again and again, until there is memory. */
            ready_add(guest);
            return;
        }
        pool.times = more;
        pool.times_room = room;
    }
    guest->due = due;
    pool.times[++pool.times_count] = guest;
    times_up(pool.times_count);
    if (pool.keeper == NULL)
        (void)thread_call();
    else if (due < pool.keeper_until)
        (void)pthread_cond_signal(&pool.time);
}

static uint64_t first_due(void)
{
    return pool.times_count > 0 ? pool.times[1]->due : NO_DUE;
}

/* ---- turns ---- */

/* Somebody is to look: one that waits for work, a new one, or the keeper. */
static void ready_call(void)
{
    if (thread_call() || pool.keeper == NULL)
        return;
    pool.keeper = NULL;
    (void)pthread_cond_signal(&pool.time);
}

bool pool_has_ready(void)
{
    return pool.ready != NULL ||
           (pool.times_count > 0 && pool.times[1]->due <= clock_monotonic_ns());
}

/* Whose time has come stands in the line with everybody else: it does not wait until there is nothing else to do,
 * and keeps nobody waiting who came before. */
static void times_expire(void)
{
    uint64_t now = pool.times_count > 0 ? clock_monotonic_ns() : 0;

    while (first_due() <= now) {
        struct guest *guest = pool.times[1];

        pool_not_later(guest);
        /* Who looks takes the first itself. */
        if (pool.ready != NULL)
            ready_call();
        ready_add(guest);
    }
}

static struct guest *ready_take(void)
{
    struct guest *guest;

    times_expire();
    guest = pool.ready;
    if (guest == NULL)
        return NULL;
    pool.ready = guest->next;
    if (pool.ready == NULL)
        pool.ready_last = &pool.ready;
    return guest;
}

static void sleep_for_work(void)
{
    pool.asleep++;
    (void)pthread_cond_wait(&pool.work, &pool.lock);
    if (pool.called > 0)
        pool.called--;
    else
        pool.asleep--; /* nobody called */
}

static void sleep_as_keeper(uint64_t until)
{
    struct timespec at = {(time_t)(until / 1000000000U), (long)(until % 1000000000U)};

    pool.keeper = &at;
    pool.keeper_until = until;
    if (until == NO_DUE)
        (void)pthread_cond_wait(&pool.time, &pool.lock);
    else
        (void)pthread_cond_timedwait(&pool.time, &pool.lock, &at);
    if (pool.keeper == &at)
        pool.keeper = NULL;
}

static void *work(void *arg)
{
    (void)arg;
    pool_lock();
    for (;;) {
        struct guest *guest = ready_take();

        if (guest != NULL) {
            if (pool.keeper == NULL && pool.times_count > 0)
                (void)thread_call();
            guest_turn(guest);
        } else if (pool.keeper == NULL) {
            sleep_as_keeper(first_due());
        } else {
            sleep_for_work();
        }
    }
    return NULL;
}

void pool_ready(struct guest *guest)
{
    pool_not_later(guest);
    ready_add(guest);
    ready_call();
}
