/* Counting file locks: see locks.h.
 *
 * fdinfo shows the locks that were taken through one open file, to whoever may look into the process. /proc/locks would
 * list all at once. But each page of it begins at the first lock again and holds up all locking of the host meanwhile,
 * and it names a process that may have ended long ago. The filter lets a box take only such locks as fdinfo shows
 * (policy.txt). */
#include "box/locks.h"

#include "base/fd.h"
#include "base/list.h"
#include "box/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Other caches of this size may share it. So it only says when to count. */
#define CACHE "/sys/kernel/slab/file_lock_cache/"

#define AGAIN_LOCKS (LOCKS_HOST_MAX / 2)
#define AGAIN_NS 10000000000U
#define PAUSE_NS 1000000000U

#define SAY_EACH 1000

struct counter {
    int proc, out;
    bool compares; /* the kernel lets us use kcmp */
    struct counted_found found;
    uint64_t said;
    struct processes_seen tables; /* threads of the box, one for each table of open files */
};

/* ---- when ---- */

/* A lock of an open file, not of a process: closing another eventfd does not end it. And one of the whole file, which is
 * of another list of the same inode. */
static void anonymous_hold(struct locks_watch *watch)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    watch->holder = 0;
    if (!watch->holds_whole && watch->anonymous >= 0)
        watch->holds_whole = flock(watch->anonymous, LOCK_EX | LOCK_NB) == 0;
    if (watch->holds || watch->anonymous < 0)
        return;
    watch->holds = fcntl(watch->anonymous, F_OFD_SETLK, &lock) == 0;
    if (!watch->holds && fcntl(watch->anonymous, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
        lock.l_pid > 0) /* -1: one as ours, of another cove */
        watch->holder = lock.l_pid;
}

void locks_open(struct locks_watch *watch)
{
    *watch = (struct locks_watch){.places = open(CACHE "total_objects", O_RDONLY | O_CLOEXEC),
                                  .in_use = open(CACHE "objects", O_RDONLY | O_CLOEXEC),
                                  .anonymous = eventfd(0, EFD_CLOEXEC)};
    anonymous_hold(watch);
}

/* "123 N0=123": of all nodes, and of each. */
static uint64_t number_read(int fd)
{
    char text[32];
    ssize_t length = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

    if (length <= 0)
        return 0;
    text[length] = '\0';
    return strtoull(text, NULL, 10);
}

/* The places of freed locks stay as long as one lock lies beside them, so the second number decides. */
static uint64_t total_read(const struct locks_watch *watch)
{
    uint64_t places = number_read(watch->places);

    return places <= LOCKS_HOST_MAX || watch->in_use < 0 ? places : number_read(watch->in_use);
}

bool locks_is_due(struct locks_watch *watch, uint64_t now_ns)
{
    uint64_t total = total_read(watch), pause;

    anonymous_hold(watch);
    if (total <= LOCKS_HOST_MAX && watch->holder == 0) {
        watch->counted_holder = 0;
        return false;
    }
    pause = total >= watch->counted + AGAIN_LOCKS || watch->holder != watch->counted_holder
                ? PAUSE_NS
                : AGAIN_NS;
    if (watch->counted_ns != 0 && now_ns - watch->counted_ns < pause)
        return false;
    watch->counted = total;
    watch->counted_holder = watch->holder;
    return true;
}

void locks_counted(struct locks_watch *watch, uint64_t now_ns, bool again)
{
    watch->counted_ns = again ? 0 : now_ns;
}

/* ---- how many ---- */

static bool is_spent(const struct counter *counter)
{
    return counter->found.count > LOCKS_BOX_MAX;
}

static void say(struct counter *counter)
{
    counter->said = counter->found.count;
    if (fd_write_full(counter->out, &counter->found, sizeof(counter->found)) < 0)
        _exit(1); /* nobody listens any more */
}

/* Its lines "lock:\t...". The kernel writes all of them at the first read. */
static uint64_t file_count(int fdinfo, const char *name)
{
    static const char word[] = "\nlock:";
    _cleanup_close_ int fd = openat(fdinfo, name, O_RDONLY | O_CLOEXEC);
    static char text[1 << 16];
    size_t matched = 1; /* a line begins */
    uint64_t count = 0;
    ssize_t length;

    while (fd >= 0 && (length = read(fd, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < length; i++) {
            matched = text[i] == word[matched] ? matched + 1 : text[i] == '\n';
            if (matched == sizeof(word) - 1) {
                count++;
                matched = 0;
            }
        }
    return count;
}

/* To read its fdinfo is to wait for a lock that a box can hold for minutes. Nobody gets locks on one (locks.h). */
static bool is_epoll(int thread, const char *name)
{
    char path[32], link[32] = "";

    (void)snprintf(path, sizeof(path), "fd/%.20s", name);
    return readlinkat(thread, path, link, sizeof(link) - 1) > 0 &&
           strcmp(link, "anon_inode:[eventpoll]") == 0;
}

/* From somewhere on and then from the first: nobody knows where in a large table to hide what is counted. Tells whether
 * it has any. */
static bool files_count(int task, const char *name, struct counter *counter)
{
    _cleanup_close_ int thread = openat(task, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    DIR *files = thread < 0 ? NULL : list_open(thread, "fdinfo");
    long size = files == NULL ? 0 : processes_number(thread, "status", "\nFDSize:");
    int start = size <= 0 ? 0 : (int)(random() % size), tid = (int)strtol(name, NULL, 10);
    const struct dirent *entry;
    bool is_second = false, has_any = false;
    struct processes_seen seen = {0};

    if (files == NULL)
        return false;
    seekdir(files, start + 2); /* behind "." and ".." */
    while (!is_spent(counter)) {
        uint64_t count;
        int fd;

        entry = readdir(files); // NOLINT(concurrency-mt-unsafe)
        fd = entry == NULL ? -1 : (int)strtol(entry->d_name, NULL, 10);
        if (entry == NULL || (is_second && fd >= start)) {
            if (is_second)
                break;
            is_second = true;
            rewinddir(files);
            continue;
        }
        if (entry->d_name[0] == '.')
            continue;
        has_any = true;
        if (is_epoll(thread, entry->d_name))
            continue;
        count = file_count(dirfd(files), entry->d_name);
        if (count == 0 || (counter->compares && !processes_seen_add(&seen, tid, fd)))
            continue;
        counter->found.count += count;
        if (counter->found.count >= counter->said + SAY_EACH)
            say(counter);
    }
    free(seen.table);
    (void)closedir(files);
    return has_any;
}

/* Threads share their files as a rule, and need not: a process whose first thread has ended may go on with another
 * one's. Where we cannot compare, the first that has files counts for all. */
static void process_count(int process, struct counter *counter)
{
    const struct dirent *entry;
    char path[32];
    DIR *tasks;

    (void)snprintf(path, sizeof(path), "%d/task", process);
    tasks = list_open(counter->proc, path);
    while (tasks != NULL && !is_spent(counter) &&
           (entry = readdir(tasks)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        int thread = (int)strtol(entry->d_name, NULL, 10);

        if (thread > 0 && (!counter->compares || processes_seen_add(&counter->tables, 0, thread)) &&
            files_count(dirfd(tasks), entry->d_name, counter) && !counter->compares)
            break;
    }
    if (tasks != NULL)
        (void)closedir(tasks);
}

/* From any of its processes on, as above. */
static void box_count(void *arg, const struct counted_box *box, const int *pids, size_t count)
{
    struct counter *counter = arg;
    size_t start = count == 0 ? 0 : (size_t)random() % count;

    counter->found = (struct counted_found){.handle = box->handle, .what = COUNTED_LOCKS};
    counter->tables.count = 0;
    say(counter);
    for (size_t i = 0; i < count && !is_spent(counter); i++) {
        process_count(pids[(start + i) % count], counter);
        say(counter);
    }
}

static void holder_say(int holder, const struct counted_box *boxes, size_t count,
                       struct counter *counter)
{
    size_t box = holder == 0 ? count : processes_box(counter->proc, holder, boxes, count);

    if (box == count)
        return;
    counter->found = (struct counted_found){boxes[box].handle, COUNTED_LOCKS, LOCKS_ANONYMOUS};
    say(counter);
}

void locks_count(int holder, const struct counted_box *boxes, size_t count, size_t first, int out)
{
    struct counter counter = {.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                              .out = out};
    int self = (int)getpid();
    unsigned seed;

    if (counter.proc < 0)
        return;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
        seed = (unsigned)self;
    srandom(seed);
    counter.compares = processes_compare(self, self, KCMP_FILES, 0, 0) == 0;
    holder_say(holder, boxes, count, &counter);
    processes_each(counter.proc, boxes, count, first, box_count, &counter);
    free(counter.tables.table);
    fd_close(&counter.proc);
}
