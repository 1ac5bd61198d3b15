/* Watching boxes' file locks: see lock_watch.h. Nothing here waits for a counter. */
#include "keeper/lock_watch.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/sys.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS (LOCKS_PERIOD_MS * 1000000ULL)
#define COUNT_NS 2000000000ULL
#define END_NS 2000000000ULL
#define FOUND_MAX 64
#define STOP_LOOKS 20
#define STOP_LOOK_NS 1000000L

void lock_watch_open(struct lock_watch *watch)
{
    locks_open(&watch->watch);
}

static bool is_counted(const struct boxed *boxed)
{
    return boxed != NULL && boxed->box != NULL && !boxed->is_ending && !boxed->locks_exceeded &&
           !boxed->sockets_exceeded;
}

/* ---- the counter ---- */

static _Noreturn void run(const struct keeper *keeper, int out)
{
    const struct boxes *boxes = &keeper->boxes;
    size_t first = ((keeper->locks.last & UINT32_MAX) + 1) % boxes->used;
    struct counted_box *counted = calloc(boxes->used, sizeof(*counted));
    sigset_t none;

    (void)prctl(PR_SET_NAME, "cove-locks");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)fd_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "200");
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (counted == NULL)
        _exit(1);
    for (size_t i = 0; i < boxes->used; i++)
        if (is_counted(boxes->table[i])) {
            int init = processes_pid(box_init(boxes->table[i]->box));

            counted[i] = (struct counted_box){boxes->table[i]->handle, processes_space(init), init};
        }
    /* Only what it needs: whatever stayed open here would live as long as this, which may be stuck. */
    if (dup2(out, 3) < 0 || sys_close_range(4, ~0U, 0) < 0)
        _exit(1);
    if (keeper->locks.what == COUNTED_SOCKETS)
        sockets_count(counted, boxes->used, first, 3);
    else
        locks_count(keeper->locks.watch.holder, counted, boxes->used, first, 3);
    _exit(0);
}

/* ---- verdicts ---- */

static void end_box(struct keeper *keeper, uint64_t handle, enum counted_what what, const char *why)
{
    struct boxed *boxed = boxes_find(&keeper->boxes, handle);

    if (!is_counted(boxed))
        return;
    boxed->locks_exceeded = what == COUNTED_LOCKS;
    boxed->sockets_exceeded = what == COUNTED_SOCKETS;
    keeper->locks.ended = handle;
    keeper->locks.ended_ns = clock_monotonic_ns();
    keeper_say(what == COUNTED_LOCKS ? "locks_exceeded" : "sockets_exceeded",
               "a box of %s is ended: %s", boxed->owner[0] != '\0' ? boxed->owner : "no sandbox",
               why);
    (void)sys_pidfd_send_signal(box_init(boxed->box), SIGKILL);
}

/* As long as processes of the box that was ended last have locks, no other is to blame for their number. But they may
 * take as long as they like, so nobody waits for them longer than END_NS. */
static bool is_ending(const struct keeper *keeper)
{
    uint64_t ended = keeper->locks.ended;
    size_t index = ended & UINT32_MAX;
    const struct boxed *boxed = index < keeper->boxes.used ? keeper->boxes.table[index] : NULL;
    struct pollfd gone = {.events = POLLIN};

    if (boxed == NULL || boxed->handle != ended || boxed->box == NULL ||
        clock_monotonic_ns() - keeper->locks.ended_ns >= END_NS)
        return false;
    gone.fd = box_init(boxed->box);
    return gone.fd >= 0 && poll(&gone, 1, 0) == 0;
}

/* A program that means well has kilobytes there. */
static bool holds_too_much(const struct keeper *keeper, const struct counted_found *found)
{
    const struct boxed *boxed = boxes_find(&keeper->boxes, found->handle);

    return boxed != NULL && found->count > SOCKETS_LEAST && found->count > boxed->memory_bytes / 4;
}

static void judge(struct keeper *keeper, const struct counted_found *found)
{
    struct lock_watch *locks = &keeper->locks;

    if (found->handle == 0) {
        locks->has_all = true;
        return;
    }
    locks->last = locks->counting->box = found->handle;
    if (found->what == COUNTED_SOCKETS) {
        if (found->count > locks->most_bytes.count && holds_too_much(keeper, found))
            locks->most_bytes = *found;
    } else if (found->count == LOCKS_ANONYMOUS)
        end_box(keeper, found->handle, COUNTED_LOCKS,
                "it has locked an anonymous file, which slows the host down");
    else if (found->count > LOCKS_BOX_MAX)
        end_box(keeper, found->handle, COUNTED_LOCKS, "it held more file locks than any box may");
    else if (found->count > locks->most.count)
        locks->most = *found;
}

/* `all`: the counter has come to its end. */
static void count_end(struct keeper *keeper, bool all)
{
    struct lock_watch *locks = &keeper->locks;
    uint64_t now_ns = clock_monotonic_ns();
    int out = locks->found.fd;

    loop_remove(&keeper->loop, &locks->found);
    fd_close(&out);
    locks->counting = NULL;
    if (locks->most.count >= LOCKS_LEAST && !is_ending(keeper))
        end_box(keeper, locks->most.handle, COUNTED_LOCKS,
                "of all boxes it held most file locks, and the host has too many");
    if (locks->most_bytes.count > 0 && !is_ending(keeper))
        end_box(
            keeper, locks->most_bytes.handle, COUNTED_SOCKETS,
            "its sockets held more of the kernel's memory than a box may, which no limit counts");
    if (locks->what == COUNTED_LOCKS)
        locks_counted(&locks->watch, now_ns, is_ending(keeper));
    else
        kernel_memory_counted(&locks->memory, all, is_ending(keeper), now_ns);
}

/* ---- counting ---- */

static void found_ready(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;
    struct counted_found found[FOUND_MAX];
    ssize_t length = read(source->fd, found, sizeof(found));

    (void)events;
    for (ssize_t i = 0; i < length / (ssize_t)sizeof(found[0]); i++)
        judge(keeper, &found[i]);
    if (length == 0 || (length < 0 && errno != EINTR))
        count_end(keeper, length == 0 && keeper->locks.has_all);
}

/* Where it cannot be started, the next look tries again. */
static void count_begin(struct keeper *keeper, struct lock_counter *counter, uint64_t now_ns)
{
    struct lock_watch *locks = &keeper->locks;
    struct error err;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    if (loop_add(&keeper->loop, &locks->found, ends[0], EPOLLIN, found_ready, keeper, &err) == 0)
        counter->pid = fork();
    if (locks->found.fd >= 0 && counter->pid == 0)
        run(keeper, ends[1]);
    (void)close(ends[1]);
    if (locks->found.fd >= 0 && counter->pid > 0) {
        counter->box = 0;
        locks->has_all = false;
        locks->counting = counter;
        locks->began_ns = now_ns;
        locks->most = locks->most_bytes = (struct counted_found){0};
        return;
    }
    counter->pid = 0;
    loop_remove(&keeper->loop, &locks->found);
    (void)close(ends[0]);
}

/* Those that have ended; a place for another one, or NULL. */
static struct lock_counter *counters_reap(struct lock_watch *locks)
{
    struct lock_counter *unused = NULL;

    for (size_t i = 0; i < LOCK_COUNTERS; i++) {
        struct lock_counter *counter = &locks->counters[i];

        if (counter == locks->counting)
            continue;
        if (counter->pid > 0 && waitpid(counter->pid, NULL, WNOHANG) != 0)
            counter->pid = 0;
        if (counter->pid == 0)
            unused = counter;
    }
    return unused;
}

/* Each was killed and does not end: a box makes the kernel hold it, in the moment between a look at what kind of file
 * is open and the look into it. That happens to nobody by chance, four times. */
static void end_holders(struct keeper *keeper)
{
    for (size_t i = 0; i < LOCK_COUNTERS; i++)
        end_box(keeper, keeper->locks.counters[i].box, COUNTED_LOCKS,
                "it keeps its file locks from being counted");
}

/* In turns, so that neither count keeps boxes from the other. */
static bool is_due(struct keeper *keeper, uint64_t now_ns)
{
    struct lock_watch *locks = &keeper->locks;
    bool due = false;

    for (int i = 0; i < 2 && !due; i++) {
        locks->what = locks->what == COUNTED_LOCKS ? COUNTED_SOCKETS : COUNTED_LOCKS;
        due = locks->what == COUNTED_LOCKS
                  ? locks_is_due(&locks->watch, now_ns)
                  : kernel_memory_has_grown(&locks->memory, kernel_memory_read(),
                                            keeper->boxes.count, now_ns);
    }
    return due;
}

uint64_t lock_watch_tick(struct keeper *keeper, uint64_t now_ns)
{
    struct lock_watch *locks = &keeper->locks;
    struct lock_counter *unused;

    if (keeper->boxes.count == 0 && locks->counting == NULL)
        return 0;
    if (now_ns < locks->next_ns)
        return locks->next_ns;
    locks->next_ns = now_ns + PERIOD_NS;
    unused = counters_reap(locks);
    if (locks->counting != NULL && now_ns - locks->began_ns >= COUNT_NS) {
        (void)kill(locks->counting->pid, SIGKILL);
        count_end(keeper, false);
    }
    if (locks->counting != NULL || keeper->boxes.used == 0 || is_ending(keeper))
        return locks->next_ns;
    if (!is_due(keeper, now_ns))
        return locks->next_ns;
    if (unused != NULL)
        count_begin(keeper, unused, now_ns);
    else
        end_holders(keeper);
    return locks->next_ns;
}

void lock_watch_stop(struct keeper *keeper)
{
    const struct timespec pause = {.tv_nsec = STOP_LOOK_NS};
    struct lock_counter *counter = keeper->locks.counting;

    if (counter == NULL)
        return;
    (void)kill(counter->pid, SIGKILL);
    count_end(keeper, false);
    for (int i = 0; i < STOP_LOOKS && counter->pid != 0; i++) {
        (void)nanosleep(&pause, NULL);
        (void)counters_reap(&keeper->locks);
    }
}
