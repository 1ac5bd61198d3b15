/* Watching file locks: see locks.h.
 *
 * /proc/locks would list all at once. But each page of it begins at the first lock again and holds up every lock of the
 * host meanwhile, so a million takes minutes; and it names no process for a lock whose taker has ended. fdinfo shows the
 * locks that were taken through one open file, to whoever may look into the process. The filter lets a box take
 * only such locks as are shown there (policy.txt). */
#include "box/locks.h"

#include "base/fd.h"
#include "base/list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Also counts the free places of its slabs, and what other caches of this size share them. So it only says when to
 * count. It is read in microseconds; /proc/slabinfo takes milliseconds. */
#define TOTAL_PATH "/sys/kernel/slab/file_lock_cache/total_objects"

/* Boxes are counted again when there are so many more, or so much later. */
#define AGAIN_LOCKS (LOCKS_MAX / 4)
#define AGAIN_NS 10000000000U

#define CPU_MOST_NS 2000000000U

/* The thread whose open files were counted last: others may share them. */
struct tally {
    struct locks_holder *holder;
    int last, process;
};

/* ---- when ---- */

void locks_open(struct locks_watch *watch)
{
    *watch = (struct locks_watch){.fd = open(TOTAL_PATH, O_RDONLY | O_CLOEXEC)};
}

/* "123 N0=123": of all nodes, and of each. */
static uint64_t total_read(int fd)
{
    char text[32];
    ssize_t length = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

    if (length <= 0)
        return 0;
    text[length] = '\0';
    return strtoull(text, NULL, 10);
}

bool locks_is_due(struct locks_watch *watch, uint64_t now_ns)
{
    uint64_t total = total_read(watch->fd);

    if (total <= LOCKS_MAX) {
        watch->least = 0;
        return false;
    }
    if (watch->least != 0 && total < watch->least)
        watch->least = total;
    if (watch->least != 0 && total < watch->least + AGAIN_LOCKS &&
        now_ns - watch->count_ns < AGAIN_NS)
        return false;
    watch->least = total;
    watch->count_ns = now_ns;
    return true;
}

/* ---- of which box a process is ---- */

static uint64_t space_of(int proc, int pid)
{
    char path[64];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%d/ns/pid", pid);
    return fstatat(proc, path, &st, 0) == 0 ? st.st_ino : 0;
}

uint64_t locks_space(int init)
{
    _cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    char path[40], text[512];
    const char *line;

    (void)snprintf(path, sizeof(path), "self/fdinfo/%d", init);
    if (init < 0 || proc < 0 || fd_read_file(proc, path, text, sizeof(text)) <= 0)
        return 0;
    line = strstr(text, "\nPid:");
    if (line == NULL)
        return 0;
    return space_of(proc, (int)strtol(line + strlen("\nPid:"), NULL, 10));
}

/* ---- how many ---- */

static uint64_t cpu_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static bool is_spent(const struct locks_holder *holder, uint64_t began_ns)
{
    return holder->count > LOCKS_MAX || holder->cpu_ns + cpu_ns() - began_ns > CPU_MOST_NS;
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

static void files_count(int task, const char *name, struct locks_holder *holder, uint64_t began_ns)
{
    _cleanup_close_ int thread = openat(task, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    DIR *files = thread < 0 ? NULL : list_open(thread, "fdinfo");
    const struct dirent *entry;

    if (files == NULL)
        return;
    while (!is_spent(holder, began_ns) &&
           (entry = readdir(files)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (entry->d_name[0] != '.')
            holder->count += file_count(dirfd(files), entry->d_name);
    (void)closedir(files);
}

/* Threads share their files as a rule, and need not. Where we may not ask, they do, and processes do not. */
static bool shares_files(int thread, const struct tally *tally, int process)
{
    long order = syscall(SYS_kcmp, thread, tally->last, KCMP_FILES, 0, 0);

    return order == 0 ||
           (order < 0 && (errno == ENOSYS || errno == EPERM) && tally->process == process);
}

static void threads_count(int proc, int process, struct tally *tally, uint64_t began_ns)
{
    const struct dirent *entry;
    char path[32];
    DIR *tasks;

    (void)snprintf(path, sizeof(path), "%d/task", process);
    tasks = list_open(proc, path);
    if (tasks == NULL)
        return;
    while (!is_spent(tally->holder, began_ns) &&
           (entry = readdir(tasks)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        int thread = (int)strtol(entry->d_name, NULL, 10);

        if (thread <= 0 || (tally->last != 0 && shares_files(thread, tally, process)))
            continue;
        tally->last = thread;
        tally->process = process;
        files_count(dirfd(tasks), entry->d_name, tally->holder, began_ns);
    }
    (void)closedir(tasks);
}

static struct locks_holder *holder_find(struct locks_holder *holders, size_t count, uint64_t space)
{
    for (size_t i = 0; space != 0 && i < count; i++)
        if (holders[i].space == space)
            return &holders[i];
    return NULL;
}

void locks_count(struct locks_holder *holders, size_t count,
                 void (*on_over)(void *arg, size_t holder), void *arg)
{
    _cleanup_close_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = proc < 0 ? NULL : list_open(proc, ".");
    const struct dirent *entry;
    struct tally tally = {0};

    if (list == NULL)
        return;
    while ((entry = readdir(list)) != NULL) {               // NOLINT(concurrency-mt-unsafe)
        int process = (int)strtol(entry->d_name, NULL, 10); /* 0: of a file that is no process */
        uint64_t began_ns = cpu_ns();

        tally.holder = process <= 0 ? NULL : holder_find(holders, count, space_of(proc, process));
        if (tally.holder == NULL || tally.holder->is_over)
            continue;
        threads_count(proc, process, &tally, began_ns);
        tally.holder->is_over = is_spent(tally.holder, began_ns);
        tally.holder->cpu_ns += cpu_ns() - began_ns;
        if (tally.holder->is_over)
            on_over(arg, (size_t)(tally.holder - holders));
    }
    (void)closedir(list);
}
