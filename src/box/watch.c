/* The watchdog of a box: see watch.h.
 *
 * Counting exactly is slow, so it is done in steps, each only if the one before says that there may be
 * too much: resident sizes, which count shared pages for each of their users; without pages of files;
 * and what each process has by its share of every page. How long the last one takes is in the hands of
 * the box, so it has a budget, and where that is spent the step before is the truth. Nothing that is
 * read here was written by the box but the numbers themselves. */
#include "box/watch.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "box/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* How fast a CPU can fill memory, for when to look again: faster than any that was met. */
#define FILL_BYTES_PER_MS (4U << 20)
#define FORKS_PER_MS 10U
#define PERIOD_LEAST_MS 4

/* For each exact step of a look: of our own work, and in all, for a busy host is not the box's doing
 * but a lock that it holds is. */
#define BUDGET_CPU_NS 25000000U
#define BUDGET_NS 80000000U

/* What one process less would mend is looked at some times more: a child between vfork and exec has its
 * parent's memory and is counted for it, for as long as it waits for a CPU, but neither of them takes more.
 * So what does not grow is looked at for longer, and for longest where the two largest are parent and child and
 * of one size; of that no box has more than a twentieth of its time. Then the largest process goes, and all of the
 * box where that has not helped after two looks. */
#define PATIENCE 3
#define PATIENCE_NS 64000000U /* where looks are slow: from then on once more, whatever it is */
#define PATIENCE_STILL_NS 200000000U
#define PATIENCE_PAIR_NS 5000000000U
#define PATIENCE_PAIR_SHARE 20 /* once that is used up: one part of so many of the time */
#define STILL_BYTES (1U << 20) /* as much more is not to grow */
#define PATIENCE_KILLS 2

/* Memory of the kernel for an open file, and for a mapping with the file that may be open in it alone. */
#define FILE_BYTES 256
#define MAPPING_BYTES 512

/* Only a list of them tells how many mappings a process has. So they are counted once in a second, a part at each
 * look. */
#define MAPPINGS_PAUSE_NS 1000000000U
#define MAPPINGS_CPU_NS 5000000U

/* So many looks without a process, with init alive, and the watchdog is blind. */
#define BLIND_MAX 25

struct process {
    int pid, parent; /* in that /proc; 0: none */
    uint64_t bytes;
};

struct count {
    uint64_t bytes;
    uint64_t tasks;
    struct process largest, second;
};

struct budget {
    uint64_t until_ns, until_cpu_ns; /* 0: without end */
};

/* What one process holds; false if it is gone. */
typedef bool (*counter)(int process, uint64_t *bytes, uint64_t *tasks);

/* ---- time ---- */

static uint64_t cpu_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static bool is_spent(const struct budget *budget)
{
    return budget->until_ns != 0 &&
           (clock_monotonic_ns() > budget->until_ns || cpu_ns() > budget->until_cpu_ns);
}

/* ---- one process ---- */

/* A process with as many groups as there can be has a /proc/PID/status of half a mebibyte. */
static char status_text[1 << 20];

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

/* The status of a thread that has the memory: one that ended while others live has none, and may be
 * the first. */
static bool status_of_thread(int process, char *text, size_t size)
{
    DIR *list = list_open(process, "task");
    const struct dirent *entry;
    bool found = false;
    char path[64];

    if (list == NULL)
        return false;
    while (!found && (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own
        (void)snprintf(path, sizeof(path), "%.20s/status", entry->d_name);
        found = entry->d_name[0] != '.' && fd_read_file(dirfd(list), path, text, size) > 0 &&
                strstr(text, "\nVmRSS:") != NULL;
    }
    (void)closedir(list);
    return found;
}

static bool status_read(int process, uint64_t *tasks)
{
    uint64_t threads;

    if (fd_read_file(process, "status", status_text, sizeof(status_text)) <= 0)
        return false;
    threads = line_bytes(status_text, "Threads") / 1024;
    *tasks += threads;
    if (threads > 1 && strstr(status_text, "\nVmRSS:") == NULL &&
        !status_of_thread(process, status_text, sizeof(status_text)))
        status_text[0] = '\0';
    return true;
}

/* How many files the process has open: from Linux 6.2 it is the size of the directory, before that there is room for
 * no more. Files that are shared with others count for each. */
static uint64_t open_files(int process)
{
    struct stat st;

    return fstatat(process, "fd", &st, 0) == 0 && st.st_size > 0
               ? (uint64_t)st.st_size
               : line_bytes(status_text, "FDSize") / 1024;
}

static uint64_t kernel_bytes(int process)
{
    return line_bytes(status_text, "VmPTE") + line_bytes(status_text, "VmSwap") +
           open_files(process) * FILE_BYTES;
}

static bool count_resident(int process, uint64_t *bytes, uint64_t *tasks)
{
    if (!status_read(process, tasks))
        return false;
    *bytes += line_bytes(status_text, "VmRSS") + kernel_bytes(process);
    return true;
}

static bool count_own(int process, uint64_t *bytes, uint64_t *tasks)
{
    if (!status_read(process, tasks))
        return false;
    *bytes += line_bytes(status_text, "RssAnon") + line_bytes(status_text, "RssShmem") +
              kernel_bytes(process);
    return true;
}

static bool count_share(int process, uint64_t *bytes, uint64_t *tasks)
{
    char text[4096];

    if (!status_read(process, tasks))
        return false;
    *bytes += kernel_bytes(process);
    /* Empty for a first thread that ended: then what its others have is counted whole. */
    if (fd_read_file(process, "smaps_rollup", text, sizeof(text)) > 0)
        *bytes += line_bytes(text, "Pss_Anon") + line_bytes(text, "Pss_Shmem");
    else
        *bytes += line_bytes(status_text, "RssAnon") + line_bytes(status_text, "RssShmem");
    return true;
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

static DIR *processes_list(const struct watch *watch)
{
    return list_open(watch->fds[WATCH_PROC], ".");
}

/* The process whose status was read last. */
static void note_large(struct count *count, int pid, uint64_t bytes)
{
    struct process process = {pid, (int)(line_bytes(status_text, "PPid") / 1024), bytes};

    if (bytes > count->largest.bytes) {
        count->second = count->largest;
        count->largest = process;
    } else if (bytes > count->second.bytes) {
        count->second = process;
    }
}

/* False where there was not the time to count them all. */
static bool count_all(const struct watch *watch, counter add, const struct budget *budget,
                      struct count *count)
{
    DIR *list = processes_list(watch);
    const struct dirent *entry;
    bool in_time = true;

    *count = (struct count){0};
    if (list == NULL)
        return true;
    while (in_time && (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own
        _cleanup_close_ int process = process_open(watch, entry->d_name);
        uint64_t bytes = 0;

        in_time = !is_spent(budget);
        if (process < 0 || !add(process, &bytes, &count->tasks))
            continue;
        count->bytes += bytes;
        note_large(count, (int)strtol(entry->d_name, NULL, 10), bytes);
    }
    (void)closedir(list);
    return in_time;
}

/* What no process holds: files. */
static uint64_t files_bytes(const struct watch *watch)
{
    struct statfs fs;

    if (fstatfs(watch->fds[WATCH_SCRATCH], &fs) < 0)
        return 0;
    return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
}

/* ---- mappings ---- */

static int maps_of(int process, const char *thread)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "task/%.20s/maps", thread);
    return openat(process, path, O_RDONLY | O_CLOEXEC);
}

/* Of any thread that has the memory: the first may have ended. */
static int maps_open(int process)
{
    DIR *list = list_open(process, "task");
    const struct dirent *entry;
    int maps = -1;
    char byte;

    while (list != NULL && maps < 0 &&
           (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own
        maps = entry->d_name[0] == '.' ? -1 : maps_of(process, entry->d_name);
        if (maps >= 0 && pread(maps, &byte, 1, 0) <= 0)
            fd_close(&maps);
    }
    if (list != NULL)
        (void)closedir(list);
    return maps;
}

static void maps_next(struct watch *watch)
{
    const struct dirent *entry = readdir(watch->unmapped); // NOLINT(concurrency-mt-unsafe): our own
    _cleanup_close_ int process = entry == NULL ? -1 : process_open(watch, entry->d_name);

    if (process >= 0)
        watch->maps = maps_open(process);
    if (entry != NULL)
        return;
    (void)closedir(watch->unmapped);
    watch->unmapped = NULL;
    watch->mappings_bytes = watch->mapped_bytes;
}

static void maps_read(struct watch *watch)
{
    static char text[1 << 16];
    ssize_t length = read(watch->maps, text, sizeof(text));

    for (ssize_t i = 0; i < length; i++)
        watch->mapped_bytes += text[i] == '\n' ? MAPPING_BYTES : 0;
    if (watch->mapped_bytes > watch->mappings_bytes)
        watch->mappings_bytes = watch->mapped_bytes;
    if (length <= 0)
        fd_close(&watch->maps);
}

/* A part of them, and the rest at later looks. */
static void count_mappings(struct watch *watch)
{
    uint64_t until_ns = cpu_ns() + MAPPINGS_CPU_NS;

    if (watch->unmapped == NULL && watch->looked_ns - watch->mapped_ns >= MAPPINGS_PAUSE_NS) {
        watch->unmapped = processes_list(watch);
        watch->mapped_ns = watch->looked_ns;
        watch->mapped_bytes = 0;
    }
    while (watch->unmapped != NULL && cpu_ns() < until_ns)
        if (watch->maps < 0)
            maps_next(watch);
        else
            maps_read(watch);
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

/* Of one process: its shares of shared mappings of files on `device`. False where the time is over. */
static bool mapped_share(int process, dev_t device, const struct budget *budget, uint64_t *bytes)
{
    int fd = openat(process, "smaps", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    bool counts = false, in_time = true;
    char line[512];

    if (file == NULL) {
        fd_close(&fd);
        return true;
    }
    while (in_time && fgets(line, sizeof(line), file) != NULL) {
        uint64_t share = line_bytes(line, "Pss");

        if (is_mapping(line, device, &counts))
            in_time = !is_spent(budget);
        else if (counts)
            *bytes += share;
    }
    (void)fclose(file);
    return in_time;
}

static bool mapped_bytes(const struct watch *watch, const struct budget *budget, uint64_t *bytes)
{
    DIR *list = processes_list(watch);
    const struct dirent *entry;
    bool in_time = true;
    struct stat st;

    *bytes = 0;
    if (list == NULL || fstat(watch->fds[WATCH_SCRATCH], &st) < 0)
        in_time = false;
    while (in_time && (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): our own
        _cleanup_close_ int process = process_open(watch, entry->d_name);

        if (process >= 0)
            in_time = mapped_share(process, st.st_dev, budget, bytes);
    }
    if (list != NULL)
        (void)closedir(list);
    return in_time;
}

/* ---- the look ---- */

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static struct budget budget_begin(void)
{
    return (struct budget){clock_monotonic_ns() + BUDGET_NS, cpu_ns() + BUDGET_CPU_NS};
}

/* What the box has, as exactly as the limit asks for and the time allows. */
static void count_box(struct watch *watch, struct count *count)
{
    uint64_t limit = watch->memory_bytes, mapped;
    uint64_t files = (watch->files_bytes = files_bytes(watch)) + watch->mappings_bytes;
    uint64_t before = watch->rough_bytes;
    struct budget budget = {0};
    struct count exact;

    watch->is_doubtful = false;
    (void)count_all(watch, count_resident, &budget, count);
    watch->rough_bytes = count->bytes += files;
    if (limit == 0 || count->bytes <= limit)
        return;
    (void)count_all(watch, count_own, &budget, count);
    watch->rough_bytes = count->bytes += files;
    if (count->bytes <= limit)
        return;
    watch->is_doubtful = count->bytes <= before + STILL_BYTES;
    budget = budget_begin();
    if (!count_all(watch, count_share, &budget, &exact))
        return;
    exact.bytes += files;
    *count = exact;
    if (count->bytes <= limit)
        return;
    /* Files that are mapped were counted twice. */
    budget = budget_begin();
    if (!mapped_bytes(watch, &budget, &mapped))
        return;
    count->bytes = less(count->bytes, mapped);
    watch->is_doubtful = false;
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

/* Whether the two largest are what a process and its child are while they share their memory. */
static bool is_pair(const struct count *count)
{
    const struct process *one = &count->largest, *two = &count->second;

    return two->bytes > less(one->bytes, STILL_BYTES) &&
           (one->parent == two->pid || two->parent == one->pid);
}

/* At how many looks in a row too much is not believed yet. What two processes less would not mend is no child
 * that has its parent's memory, nor is what one process has all by itself: to look at that again can take
 * longer than there is, for the box decides how long. But one look that was held up by the host says little of
 * what has not grown. */
static unsigned patience_for(struct watch *watch, const struct count *count, uint64_t elapsed_ns)
{
    uint64_t limit = watch->memory_bytes, rest = less(count->bytes, count->largest.bytes);
    uint64_t since_ns = clock_monotonic_ns() - watch->over_since_ns;

    if (watch->pids != 0 && count->tasks > watch->pids)
        return 0;
    if (count->largest.bytes > limit || less(rest, count->largest.bytes) > limit)
        return watch->is_doubtful;
    if (rest > limit)
        return 1;
    if (count->bytes <= watch->over_bytes + STILL_BYTES) {
        if (since_ns < PATIENCE_STILL_NS)
            return UINT_MAX;
        if (is_pair(count) && watch->pair_ns < PATIENCE_PAIR_NS) {
            watch->pair_ns += elapsed_ns;
            return UINT_MAX;
        }
    }
    return since_ns < PATIENCE_NS ? PATIENCE : 1;
}

/* Whether what is too much belongs to a process that was killed, and nothing grows from the first look after that. On
 * a busy host such a process waits for a processor before it gives its memory back, and the rest of the box must not
 * go for that. */
static bool is_dying(struct watch *watch, const struct count *count)
{
    if (watch->kills == 0 || count->largest.pid != watch->told)
        return false;
    if (watch->dying_bytes == 0)
        watch->dying_bytes = count->bytes;
    return count->bytes <= watch->dying_bytes + STILL_BYTES &&
           watch->looked_ns - watch->killed_ns < PATIENCE_STILL_NS;
}

/* The largest goes, as the kernel would have it, where that is enough; else all of the box. */
static void act(struct watch *watch, const struct count *count, uint64_t elapsed_ns)
{
    uint64_t limit = watch->memory_bytes, rest = less(count->bytes, count->largest.bytes);
    bool memory = limit != 0 && count->bytes > limit;
    bool tasks = watch->pids != 0 && count->tasks > watch->pids;

    watch->blind = count->tasks > 0 ? 0 : watch->blind + 1;
    if (watch->blind > BLIND_MAX)
        (void)sys_pidfd_send_signal(watch->init, SIGKILL);
    if (!memory && !tasks) {
        watch->over = watch->kills = 0;
        return;
    }
    if (watch->over++ == 0) {
        watch->over_since_ns = watch->looked_ns;
        watch->over_bytes = count->bytes;
    }
    if (watch->over <= patience_for(watch, count, elapsed_ns) || (!tasks && is_dying(watch, count)))
        return;
    if (watch->kills++ == 0) {
        watch->killed_ns = watch->looked_ns;
        watch->dying_bytes = 0;
    }
    watch->killed_for_pids |= tasks;
    /* Once for each: what is killed has its memory for a few looks more. */
    if (memory && (watch->kills == 1 || count->largest.pid != watch->told)) {
        watch->told = count->largest.pid;
        watch->memory_kills++;
        if (watch->on_memory != NULL)
            watch->on_memory(watch->arg);
    }
    if (memory && rest <= limit && watch->kills <= PATIENCE_KILLS && count->largest.pid > 1)
        kill_process(watch, count->largest.pid);
    else
        (void)sys_pidfd_send_signal(watch->init, SIGKILL); /* and all of the box */
}

/* In how many milliseconds a limit can be reached from here. */
static uint64_t soonest_ms(const struct watch *watch, const struct count *count)
{
    uint64_t ms = WATCH_PERIOD_MS, cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), left;

    if (watch->memory_bytes != 0 &&
        (left = less(watch->memory_bytes, count->bytes) / (FILL_BYTES_PER_MS * cpus)) < ms)
        ms = left;
    if (watch->pids != 0 && (left = less(watch->pids, count->tasks) / (FORKS_PER_MS * cpus)) < ms)
        ms = left;
    return ms;
}

int watch_look(struct watch *watch)
{
    uint64_t began = clock_monotonic_ns(), elapsed = began - watch->looked_ns, took_ms, period;
    struct count count = {0};

    watch->looked_ns = began;
    watch->pair_ns = less(watch->pair_ns, elapsed / PATIENCE_PAIR_SHARE);
    count_mappings(watch);
    count_box(watch, &count);
    watch->sees = count.tasks > 0;
    if (count.bytes > watch->peak_bytes)
        watch->peak_bytes = count.bytes;
    act(watch, &count, elapsed);
    if (watch->over > 0 && began - watch->over_since_ns < PATIENCE_STILL_NS)
        return PERIOD_LEAST_MS;
    period = watch->over > 0 ? PERIOD_LEAST_MS : soonest_ms(watch, &count);
    took_ms = (clock_monotonic_ns() - began) / 1000000U;
    if (period < PERIOD_LEAST_MS)
        period = PERIOD_LEAST_MS;
    if (period < took_ms)
        period = took_ms; /* half of a CPU is as much as a large box may cost */
    return period < WATCH_PERIOD_MS ? (int)period : WATCH_PERIOD_MS;
}
