/* Counting open files: see open_files.h.
 *
 * The kernel says how many fds a process has, from Linux 6.2 in the size of a directory. Processes share files with
 * those that they forked, so only where that sum is too large is each fd compared (kcmp) with those of the same number,
 * under which files are inherited. To compare all with all would take seconds. */
#include "box/open_files.h"

#include "base/fd.h"
#include "base/list.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef __clang__
/* The analyser does not see that what tsearch() was given lies in the tree. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

#define GROWTH (FILES_BOX_MAX / 2)
#define PAUSE_NS 1000000000U

#define SAY_EACH 1000 /* fds or threads, so that it is seen to go on */
/* Of as many fds nobody asks which are the same files: it would take too long. */
#define FDS_MAX (16UL * FILES_BOX_MAX)

struct file {
    int thread, fd;
};

struct counter {
    int proc, out;
    struct counted_found found;
    unsigned unsaid;
    struct processes_seen tables; /* threads of the box, one for each table of open files */
    void *files;                  /* a tree of them */
};

/* ---- when ---- */

uint64_t files_read(void)
{
    char text[64];

    return fd_read_file(AT_FDCWD, "/proc/sys/fs/file-nr", text, sizeof(text)) <= 0
               ? 0
               : strtoull(text, NULL, 10);
}

bool files_have_grown(struct growth *files, uint64_t now, uint64_t now_ns)
{
    return growth_is_due(files, now, GROWTH, PAUSE_NS, now_ns);
}

/* ---- how many ---- */

static void say(struct counter *counter, uint64_t count)
{
    struct counted_found found = counter->found;

    counter->unsaid = 0;
    found.count = count;
    if (fd_write_full(counter->out, &found, sizeof(found)) < 0)
        _exit(1); /* nobody listens any more */
}

static bool is_spent(const struct counter *counter)
{
    return counter->found.count > FILES_BOX_MAX;
}

/* By number, and then by file. One that was closed meanwhile is another than any. */
static int file_compare(const void *one, const void *other)
{
    const struct file *a = one, *b = other;
    long order;

    if (a->fd != b->fd)
        return a->fd < b->fd ? -1 : 1;
    order = processes_compare(a->thread, b->thread, KCMP_FILE, a->fd, b->fd);
    return order == 0 ? 0 : order == 1 ? -1 : 1;
}

static void file_add(struct counter *counter, int thread, int fd)
{
    struct file *file, **there;

    if (++counter->unsaid >= SAY_EACH)
        say(counter, counter->found.count);
    file = malloc(sizeof(*file));
    if (file == NULL)
        return;
    *file = (struct file){thread, fd};
    there = tsearch(file, &counter->files, file_compare);
    if (there != NULL && *there == file)
        counter->found.count++;
    else
        free(file);
}

static DIR *files_list(int proc, int thread)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "%d/fd", thread);
    return list_open(proc, path);
}

static uint64_t fds_of(int proc, int thread)
{
    uint64_t count = 0;
    char path[32];
    struct stat st;
    DIR *files;

    (void)snprintf(path, sizeof(path), "%d/fd", thread);
    if (fstatat(proc, path, &st, 0) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size;
    files = files_list(proc, thread);
    while (files != NULL && readdir(files) != NULL) // NOLINT(concurrency-mt-unsafe)
        count++;
    if (files != NULL)
        (void)closedir(files);
    return count;
}

static void thread_count(struct counter *counter, int thread)
{
    DIR *files = files_list(counter->proc, thread);
    const struct dirent *entry;

    while (files != NULL && !is_spent(counter) &&
           (entry = readdir(files)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (entry->d_name[0] != '.')
            file_add(counter, thread, (int)strtol(entry->d_name, NULL, 10));
    if (files != NULL)
        (void)closedir(files);
}

/* Threads share their files as a rule, and need not. */
static void tables_find(struct counter *counter, int process)
{
    const struct dirent *entry;
    char path[32];
    DIR *tasks;

    (void)snprintf(path, sizeof(path), "%d/task", process);
    tasks = list_open(counter->proc, path);
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        int thread = (int)strtol(entry->d_name, NULL, 10);

        if (++counter->unsaid >= SAY_EACH)
            say(counter, 0);
        if (thread > 0 && processes_seen_add(&counter->tables, 0, thread))
            counter->found.count += fds_of(counter->proc, thread);
    }
    if (tasks != NULL)
        (void)closedir(tasks);
}

/* Counts each file once, as far as it is inherited; none where the kernel lets nobody compare them. */
static void files_compare(struct counter *counter)
{
    const struct processes_seen *tables = &counter->tables;

    counter->found.count = 0;
    for (size_t i = 0; i < tables->count && !is_spent(counter); i++) {
        int thread = tables->table[i];

        if (processes_compare(thread, thread, KCMP_FILES, 0, 0) == 0)
            thread_count(counter, thread);
    }
    tdestroy(counter->files, free);
    counter->files = NULL;
}

static void box_count(void *arg, const struct counted_box *box, const int *pids, size_t count)
{
    struct counter *counter = arg;

    counter->found = (struct counted_found){.handle = box->handle, .what = COUNTED_FILES};
    counter->tables.count = 0;
    say(counter, 0);
    for (size_t i = 0; i < count; i++)
        tables_find(counter, pids[i]);
    if (is_spent(counter) && counter->found.count <= FDS_MAX)
        files_compare(counter);
    say(counter, counter->found.count);
}

void files_count(const struct counted_box *boxes, size_t count, size_t first, int out)
{
    struct counter counter = {.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                              .out = out};

    if (counter.proc < 0)
        return;
    processes_each(counter.proc, boxes, count, first, box_count, &counter);
    counter.found = (struct counted_found){.what = COUNTED_FILES};
    say(&counter, 0);
    free(counter.tables.table);
    fd_close(&counter.proc);
}
