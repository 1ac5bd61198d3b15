/* Watching what no cgroup counts: see uncounted.h. Nothing here waits for a counter. */
#include "keeper/uncounted.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/kernel_memory.h"
#include "box/sys.h"
#include "keeper/helper.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS (LOCKS_PERIOD_MS * 1000000ULL)
#define COUNT_NS 6000000000ULL
#define SILENCE_NS 2000000000ULL
#define END_NS 2000000000ULL
#define FOUND_MAX 64
#define STOP_LOOKS 20
#define STOP_LOOK_NS 1000000L

void uncounted_open(struct uncounted *watch)
{
    locks_open(&watch->watch);
}

static bool is_counted(const struct boxed *boxed)
{
    return boxed != NULL && boxed->box != NULL && !boxed->is_ending && !boxed->locks_exceeded &&
           !boxed->sockets_exceeded && !boxed->files_exceeded;
}

/* ---- the counter ---- */

static _Noreturn void run(const struct keeper *keeper, int out)
{
    const struct boxes *boxes = &keeper->boxes;
    size_t first = ((keeper->uncounted.last & UINT32_MAX) + 1) % boxes->used;
    struct counted_box *counted = calloc(boxes->used, sizeof(*counted));

    helper_begin("cove-locks");
    if (counted == NULL)
        _exit(1);
    for (size_t i = 0; i < boxes->used; i++)
        if (is_counted(boxes->table[i])) {
            int init = processes_pid(box_init(boxes->table[i]->box));

            counted[i] = (struct counted_box){boxes->table[i]->handle, processes_space(init), init};
        }
    helper_keep(&out, 1);
    if (keeper->uncounted.what == COUNTED_SOCKETS)
        sockets_count(counted, boxes->used, first, HELPER_FD);
    else if (keeper->uncounted.what == COUNTED_FILES)
        files_count(counted, boxes->used, first, HELPER_FD);
    else
        locks_count(keeper->uncounted.watch.holder, counted, boxes->used, first, HELPER_FD);
    _exit(0);
}

/* ---- verdicts ---- */

static void end_box(struct keeper *keeper, uint64_t handle, enum counted_what what, const char *why)
{
    static const char *const codes[] = {[COUNTED_LOCKS] = "locks_exceeded",
                                        [COUNTED_SOCKETS] = "sockets_exceeded",
                                        [COUNTED_FILES] = "files_exceeded"};
    struct boxed *boxed = boxes_find(&keeper->boxes, handle);

    if (!is_counted(boxed))
        return;
    boxed->locks_exceeded = what == COUNTED_LOCKS;
    boxed->sockets_exceeded = what == COUNTED_SOCKETS;
    boxed->files_exceeded = what == COUNTED_FILES;
    keeper->uncounted.ended = handle;
    keeper->uncounted.ended_ns = clock_monotonic_ns();
    keeper_say(codes[what], "a box of %s is ended: %s",
               boxed->owner[0] != '\0' ? boxed->owner : "no sandbox", why);
    (void)sys_pidfd_send_signal(box_init(boxed->box), SIGKILL);
}

/* As long as processes of the box that was ended last have locks, no other is to blame for their number. But they may
 * take as long as they like, so nobody waits for them longer than END_NS. */
static bool is_ending(const struct keeper *keeper)
{
    uint64_t ended = keeper->uncounted.ended;
    size_t index = ended & UINT32_MAX;
    const struct boxed *boxed = index < keeper->boxes.used ? keeper->boxes.table[index] : NULL;
    struct pollfd gone = {.events = POLLIN};

    if (boxed == NULL || boxed->handle != ended || boxed->box == NULL ||
        clock_monotonic_ns() - keeper->uncounted.ended_ns >= END_NS)
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
    struct uncounted *uncounted = &keeper->uncounted;

    if (found->handle == 0) {
        uncounted->has_all = true;
        return;
    }
    uncounted->last = uncounted->counting->box = found->handle;
    if (found->what == COUNTED_LOCKS && found->count != LOCKS_ANONYMOUS) {
        uncounted->locks += found->count - (found->count == 0 ? 0 : uncounted->box_locks);
        uncounted->box_locks = found->count;
    }
    if (found->what == COUNTED_FILES) {
        if (found->count > FILES_BOX_MAX)
            end_box(keeper, found->handle, COUNTED_FILES,
                    "it had more open files than any box may");
    } else if (found->what == COUNTED_SOCKETS) {
        if (found->count > uncounted->most_bytes.count && holds_too_much(keeper, found))
            uncounted->most_bytes = *found;
    } else if (found->count == LOCKS_ANONYMOUS)
        end_box(keeper, found->handle, COUNTED_LOCKS,
                "it has locked an anonymous file, which slows the host down");
    else if (found->count > LOCKS_BOX_MAX)
        end_box(keeper, found->handle, COUNTED_LOCKS, "it held more file locks than any box may");
    else if (found->count > uncounted->most.count)
        uncounted->most = *found;
}

/* The lock of a file that is only mapped, or lies in a socket, is in the kernel's number and in no process, so that no
 * box answers for it: what boxes answer for is what was seen. Such a lock costs its owner the open file, which is
 * charged. `all`: the counter has come to its end. */
static void count_end(struct keeper *keeper, bool all)
{
    struct uncounted *uncounted = &keeper->uncounted;
    uint64_t now_ns = clock_monotonic_ns();
    int out = uncounted->found.fd;

    loop_remove(&keeper->loop, &uncounted->found);
    fd_close(&out);
    uncounted->counting = NULL;
    if (uncounted->locks > LOCKS_BOXES_MAX && uncounted->most.count >= LOCKS_LEAST &&
        !is_ending(keeper))
        end_box(keeper, uncounted->most.handle, COUNTED_LOCKS,
                "of all boxes it held most file locks, and together they hold too many");
    if (uncounted->most_bytes.count > 0 && !is_ending(keeper))
        end_box(
            keeper, uncounted->most_bytes.handle, COUNTED_SOCKETS,
            "its sockets held more of the kernel's memory than a box may, which no limit counts");
    if (uncounted->what == COUNTED_LOCKS)
        locks_counted(&uncounted->watch, now_ns, is_ending(keeper));
    else
        growth_counted(uncounted->what == COUNTED_FILES ? &uncounted->files : &uncounted->memory,
                       all, is_ending(keeper), now_ns);
}

/* ---- counting ---- */

static void found_ready(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;
    struct counted_found found[FOUND_MAX];
    ssize_t length = read(source->fd, found, sizeof(found));

    (void)events;
    keeper->uncounted.heard_ns = clock_monotonic_ns();
    for (ssize_t i = 0; i < length / (ssize_t)sizeof(found[0]); i++)
        judge(keeper, &found[i]);
    if (length == 0 || (length < 0 && errno != EINTR))
        count_end(keeper, length == 0 && keeper->uncounted.has_all);
}

/* Where it cannot be started, the next look tries again. */
static void count_begin(struct keeper *keeper, struct uncounted_counter *counter, uint64_t now_ns)
{
    struct uncounted *uncounted = &keeper->uncounted;
    struct error err;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    if (loop_add(&keeper->loop, &uncounted->found, ends[0], EPOLLIN, found_ready, keeper, &err) ==
        0)
        counter->pid = fork();
    if (uncounted->found.fd >= 0 && counter->pid == 0)
        run(keeper, ends[1]);
    (void)close(ends[1]);
    if (uncounted->found.fd >= 0 && counter->pid > 0) {
        counter->box = 0;
        uncounted->has_all = false;
        uncounted->counting = counter;
        uncounted->began_ns = uncounted->heard_ns = now_ns;
        uncounted->most = uncounted->most_bytes = (struct counted_found){0};
        uncounted->locks = uncounted->box_locks = 0;
        return;
    }
    counter->pid = 0;
    loop_remove(&keeper->loop, &uncounted->found);
    (void)close(ends[0]);
}

/* Those that have ended; a place for another one, or NULL. */
static struct uncounted_counter *counters_reap(struct uncounted *uncounted)
{
    struct uncounted_counter *unused = NULL;

    for (size_t i = 0; i < UNCOUNTED_COUNTERS; i++) {
        struct uncounted_counter *counter = &uncounted->counters[i];

        if (counter == uncounted->counting)
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
    for (size_t i = 0; i < UNCOUNTED_COUNTERS; i++)
        end_box(keeper, keeper->uncounted.counters[i].box, COUNTED_LOCKS,
                "it keeps its file locks from being counted");
}

/* In turns, so that no count keeps boxes from the others. */
static bool is_due(struct keeper *keeper, uint64_t now_ns)
{
    struct uncounted *uncounted = &keeper->uncounted;
    bool due = false;

    for (int i = 0; i < COUNTED_KINDS && !due; i++) {
        uncounted->what = (uncounted->what + 1) % COUNTED_KINDS;
        if (uncounted->what == COUNTED_LOCKS)
            due = locks_is_due(&uncounted->watch, now_ns);
        else if (uncounted->what == COUNTED_FILES)
            due = files_have_grown(&uncounted->files, files_read(), now_ns);
        else
            due = kernel_memory_has_grown(&uncounted->memory, kernel_memory_read(),
                                          keeper->boxes.count, now_ns);
    }
    return due;
}

uint64_t uncounted_tick(struct keeper *keeper, uint64_t now_ns)
{
    struct uncounted *uncounted = &keeper->uncounted;
    struct uncounted_counter *unused;

    if (keeper->boxes.count == 0 && uncounted->counting == NULL)
        return 0;
    if (now_ns < uncounted->next_ns)
        return uncounted->next_ns;
    uncounted->next_ns = now_ns + PERIOD_NS;
    unused = counters_reap(uncounted);
    if (uncounted->counting != NULL &&
        (now_ns - uncounted->began_ns >= COUNT_NS || now_ns >= uncounted->heard_ns + SILENCE_NS)) {
        (void)kill(uncounted->counting->pid, SIGKILL);
        count_end(keeper, false);
    }
    if (uncounted->counting != NULL || keeper->boxes.used == 0 || is_ending(keeper))
        return uncounted->next_ns;
    if (!is_due(keeper, now_ns))
        return uncounted->next_ns;
    if (unused != NULL)
        count_begin(keeper, unused, now_ns);
    else
        end_holders(keeper);
    return uncounted->next_ns;
}

void uncounted_stop(struct keeper *keeper)
{
    const struct timespec pause = {.tv_nsec = STOP_LOOK_NS};
    struct uncounted_counter *counter = keeper->uncounted.counting;

    if (counter == NULL)
        return;
    (void)kill(counter->pid, SIGKILL);
    count_end(keeper, false);
    for (int i = 0; i < STOP_LOOKS && counter->pid != 0; i++) {
        (void)nanosleep(&pause, NULL);
        (void)counters_reap(&keeper->uncounted);
    }
}
