/* The watchdog of a box: see watch.h.
 *
 * Counting exactly is slow, so it is done in three steps, each only if the one before says that there
 * may be too much: resident sizes, which count shared pages for each of their users; without pages of
 * files; and what each process has by its share of every page. Nothing that it reads was written by
 * the box but the numbers themselves. */
#include "box/watch.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* How fast a CPU can fill memory, for when to look again: faster than any that was met. */
#define FILL_BYTES_PER_MS (4U << 20)
#define PERIOD_LEAST_MS 4

/* The largest process is given that many looks to be gone before all of the box has to go. */
#define PATIENCE 3

struct count {
    uint64_t bytes;
    uint64_t tasks;
    int largest; /* pid in that /proc; 0: none but init */
    uint64_t largest_bytes;
};

/* Adds what one process holds; -1 if it is gone or none of the box's. */
typedef int (*counter)(int process, uint64_t *bytes, uint64_t *tasks);

/* ---- one process ---- */

/* A field of /proc/PID/stat by its number in proc(5); the name may hold anything, so from the last
 * parenthesis on. */
static uint64_t stat_field(const char *text, unsigned number)
{
    const char *at = strrchr(text, ')');

    for (unsigned field = 2; at != NULL && field < number; field++) {
        at = strchr(at, ' ');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

#define STAT_THREADS 20
#define STAT_RESIDENT 24

static int count_resident(int process, uint64_t *bytes, uint64_t *tasks)
{
    char text[1024];

    if (fd_read_file(process, "stat", text, sizeof(text)) < 0)
        return -1;
    *tasks += stat_field(text, STAT_THREADS);
    *bytes += stat_field(text, STAT_RESIDENT) * (uint64_t)sysconf(_SC_PAGESIZE);
    return 0;
}

/* "NAME:   123 kB" at the start of a line, in bytes. */
static uint64_t line_bytes(const char *text, const char *name)
{
    size_t length = strlen(name);

    while (text != NULL) {
        if (strncmp(text, name, length) == 0 && text[length] == ':')
            return strtoull(text + length + 1, NULL, 10) * 1024;
        text = strchr(text, '\n');
        text = text != NULL ? text + 1 : NULL;
    }
    return 0;
}

static int count_own(int process, uint64_t *bytes, uint64_t *tasks)
{
    char text[4096];

    if (fd_read_file(process, "status", text, sizeof(text)) < 0)
        return -1;
    *tasks += line_bytes(text, "Threads") / 1024;
    *bytes += line_bytes(text, "RssAnon") + line_bytes(text, "RssShmem") +
              line_bytes(text, "VmPTE");
    return 0;
}

static int count_share(int process, uint64_t *bytes, uint64_t *tasks)
{
    char text[4096];

    if (fd_read_file(process, "smaps_rollup", text, sizeof(text)) < 0)
        return count_own(process, bytes, tasks);
    *bytes += line_bytes(text, "Pss_Anon") + line_bytes(text, "Pss_Shmem");
    if (fd_read_file(process, "status", text, sizeof(text)) > 0) {
        *bytes += line_bytes(text, "VmPTE");
        *tasks += line_bytes(text, "Threads") / 1024;
    }
    return 0;
}

/* ---- all processes ---- */

static bool is_ours(const struct watch *watch, int process)
{
    struct stat st;

    if (watch->space == 0)
        return true;
    return fstatat(process, "ns/pid", &st, 0) == 0 && st.st_ino == watch->space;
}

static int process_open(const struct watch *watch, const char *name)
{
    _cleanup_close_ int process = -1;

    if (name[0] < '0' || name[0] > '9')
        return -1;
    process = openat(watch->fds[WATCH_PROC], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return process >= 0 && is_ours(watch, process) ? fd_take(&process) : -1;
}

static void count_all(const struct watch *watch, counter add, struct count *count)
{
    int fd = openat(watch->fds[WATCH_PROC], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    *count = (struct count){0};
    if (list == NULL) {
        fd_close(&fd);
        return;
    }
    while ((entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): a list of our own
        _cleanup_close_ int process = process_open(watch, entry->d_name);
        uint64_t bytes = 0;

        if (process < 0 || add(process, &bytes, &count->tasks) < 0)
            continue;
        count->bytes += bytes;
        if (bytes > count->largest_bytes) {
            count->largest_bytes = bytes;
            count->largest = (int)strtol(entry->d_name, NULL, 10);
        }
    }
    (void)closedir(list);
}

/* ---- what no process holds ---- */

/* The sum of one column of a file of /proc/sysvipc, whose first line names them. */
static uint64_t column_sum(int fd, const char *column)
{
    char text[16384], *rest = text, *line;
    unsigned wanted = 0, at;
    uint64_t sum = 0;
    ssize_t n;

    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return 0;
    n = fd_read_full(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    for (bool names = true; (line = strsep(&rest, "\n")) != NULL; names = false) {
        char *word, *save = NULL;

        at = 1;
        for (word = strtok_r(line, " ", &save); word != NULL;
             word = strtok_r(NULL, " ", &save), at++)
            if (names && strcmp(word, column) == 0)
                wanted = at;
            else if (!names && at == wanted)
                sum += strtoull(word, NULL, 10);
    }
    return sum;
}

/* Files, and segments that may have no process any more. */
static uint64_t unowned_bytes(const struct watch *watch)
{
    uint64_t bytes = column_sum(watch->fds[WATCH_SHM], "rss") +
                     column_sum(watch->fds[WATCH_MSG], "cbytes");
    struct statfs fs;

    if (watch->fds[WATCH_SCRATCH] >= 0 && fstatfs(watch->fds[WATCH_SCRATCH], &fs) == 0)
        bytes += (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    return bytes;
}

/* ---- files that are mapped: they are in both sums ---- */

/* Whether a line of smaps begins a mapping, "ADDRESSES rwxs OFFSET MAJOR:MINOR INODE ...", and then
 * whether that is a shared one of a file on `device`. */
static bool is_mapping(char *line, dev_t device, bool *counts)
{
    char *save = NULL, *end;
    const char *addresses = strtok_r(line, " ", &save), *rights = strtok_r(NULL, " ", &save);
    const char *offset = strtok_r(NULL, " ", &save), *place = strtok_r(NULL, " ", &save);
    unsigned long major, minor;

    if (addresses == NULL || strchr(addresses, '-') == NULL || offset == NULL || place == NULL ||
        strlen(rights) != 4)
        return false;
    major = strtoul(place, &end, 16);
    if (*end != ':')
        return false;
    minor = strtoul(end + 1, NULL, 16);
    *counts = rights[3] == 's' && makedev((unsigned)major, (unsigned)minor) == device;
    return true;
}

/* Of one process: its shares of shared mappings of files on `device`. */
static uint64_t mapped_share(int process, dev_t device)
{
    int fd = openat(process, "smaps", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    bool counts = false;
    uint64_t bytes = 0;
    char line[512];

    if (file == NULL) {
        fd_close(&fd);
        return 0;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        uint64_t share = line_bytes(line, "Pss");

        if (!is_mapping(line, device, &counts) && counts)
            bytes += share;
    }
    (void)fclose(file);
    return bytes;
}

static uint64_t mapped_bytes(const struct watch *watch)
{
    int fd = openat(watch->fds[WATCH_PROC], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    uint64_t bytes = 0;
    struct stat st;

    if (list == NULL) {
        fd_close(&fd);
        return 0;
    }
    if (fstat(watch->fds[WATCH_SCRATCH], &st) < 0)
        st.st_dev = 0;                        /* no file has it */
    while ((entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): a list of our own
        _cleanup_close_ int process = process_open(watch, entry->d_name);

        if (process >= 0)
            bytes += mapped_share(process, st.st_dev);
    }
    (void)closedir(list);
    return bytes;
}

/* ---- the look ---- */

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* What the box has, as exactly as the limit asks for. */
static void count_box(const struct watch *watch, struct count *count)
{
    static const counter steps[] = {count_resident, count_own, count_share};
    uint64_t unowned = unowned_bytes(watch);

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        count_all(watch, steps[i], count);
        count->bytes += unowned;
        if (watch->memory_bytes == 0 || count->bytes <= watch->memory_bytes)
            return;
    }
    count->bytes = less(count->bytes, mapped_bytes(watch));
}

/* A directory of /proc is as good as a pidfd, and needs no number that could be another's by now. */
static void kill_process(const struct watch *watch, int pid)
{
    _cleanup_close_ int process = -1;
    char name[16];

    (void)snprintf(name, sizeof(name), "%d", pid);
    process = process_open(watch, name);
    if (process >= 0)
        (void)sys_pidfd_send_signal(process, SIGKILL);
}

/* With its PID 1 all of a box dies. In a /proc of more than the box its number is not 1: then all
 * processes are killed one by one, PID 1 among them. */
static void kill_box(const struct watch *watch)
{
    int fd;
    DIR *list;
    const struct dirent *entry;

    if (watch->space == 0) {
        kill_process(watch, 1);
        return;
    }
    fd = openat(watch->fds[WATCH_PROC], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL) {
        fd_close(&fd);
        return;
    }
    while ((entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe): a list of our own
        kill_process(watch, (int)strtol(entry->d_name, NULL, 10));
    (void)closedir(list);
}

/* The largest first, as the kernel would; a box that goes on as before ends as a whole. */
static void act(struct watch *watch, const struct count *count)
{
    bool memory = watch->memory_bytes != 0 && count->bytes > watch->memory_bytes;
    bool tasks = watch->pids != 0 && count->tasks > watch->pids;

    if (!memory && !tasks) {
        watch->over = 0;
        return;
    }
    watch->over++;
    watch->killed_for_memory |= memory;
    if (memory && watch->over <= PATIENCE && count->largest > 1)
        kill_process(watch, count->largest);
    else
        kill_box(watch);
}

int watch_look(struct watch *watch)
{
    uint64_t began = clock_monotonic_ns(), took_ms, period;
    struct count count = {0};

    count_box(watch, &count);
    watch->sees = count.tasks > 0;
    if (count.bytes > watch->peak_bytes)
        watch->peak_bytes = count.bytes;
    act(watch, &count);
    if (watch->over > 0)
        return PERIOD_LEAST_MS;
    period = watch->memory_bytes != 0
                 ? less(watch->memory_bytes, count.bytes) /
                       (FILL_BYTES_PER_MS * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN))
                 : WATCH_PERIOD_MS;
    took_ms = (clock_monotonic_ns() - began) / 1000000U;
    if (period < PERIOD_LEAST_MS)
        period = PERIOD_LEAST_MS;
    if (period < took_ms)
        period = took_ms; /* half of a CPU is as much as a large box may cost */
    return period < WATCH_PERIOD_MS ? (int)period : WATCH_PERIOD_MS;
}
