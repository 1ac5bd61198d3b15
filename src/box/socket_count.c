/* Counting what boxes' sockets hold: see socket_count.h. */
#include "box/socket_count.h"

#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "box/socket_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define SAY_EACH (16ULL << 20)

/* A box may hold more than any other has to be: then it does not matter how much more. */
#define ENOUGH (16ULL << 30)

struct counter {
    int proc, out;
    struct counted_found found;
    uint64_t said;
    struct socket_memory_errors errors;
    struct processes_seen tables; /* of open files, by thread */
    struct error err;             /* the first */
};

static void say(struct counter *counter)
{
    counter->said = counter->found.count;
    if (fd_write_full(counter->out, &counter->found, sizeof(counter->found)) < 0)
        _exit(1); /* nobody listens any more */
}

static void note(struct counter *counter, const struct error *err)
{
    if (counter->err.code[0] == '\0')
        counter->err = *err;
}

/* Of the box's init: whoever counts may read its tables, and if it has ended, so has the box. */
static void tables_count(struct counter *counter, int init)
{
    char path[32];
    struct error err;
    _cleanup_close_ int tables = -1;

    (void)snprintf(path, sizeof(path), "%d/net", init);
    tables = openat(counter->proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (tables >= 0 && socket_memory_read(tables, ENOUGH, &counter->found.count, &err) < 0 &&
        err.errnum != ESRCH && err.errnum != ENOENT)
        note(counter, &err);
}

/* Threads share their open files as a rule, and processes may. An ordinary user cannot list them, but for his own. */
static void process_count(struct counter *counter, int pid)
{
    char path[32];
    DIR *tasks;
    const struct dirent *entry;
    struct error err;

    (void)snprintf(path, sizeof(path), "%d/task", pid);
    tasks = list_open(counter->proc, path);
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        int tid = (int)strtol(entry->d_name, NULL, 10);

        if (tid > 0 && processes_seen_add(&counter->tables, 0, tid) &&
            socket_memory_errors_add(&counter->errors, dirfd(tasks), tid, ENOUGH, &err) < 0 &&
            err.errnum != EACCES)
            note(counter, &err);
    }
    if (tasks != NULL)
        (void)closedir(tasks);
}

/* Datagrams with an address are in the tables and in the processes, so the larger number counts. From any process on,
 * so that nobody knows where to hide from a count that takes too long. */
static void box_count(void *arg, const struct counted_box *box, const int *pids, size_t count)
{
    struct counter *counter = arg;
    size_t start = count == 0 ? 0 : (size_t)random() % count;

    counter->found = (struct counted_found){.handle = box->handle, .what = COUNTED_SOCKETS};
    counter->tables.count = 0;
    say(counter);
    tables_count(counter, box->init);
    if (counter->found.count > 0)
        say(counter);
    for (size_t i = 0; i < count; i++) {
        process_count(counter, pids[(start + i) % count]);
        if (counter->errors.bytes > counter->found.count)
            counter->found.count = counter->errors.bytes;
        if (counter->found.count >= counter->said + SAY_EACH)
            say(counter);
    }
    if (counter->found.count > counter->said)
        say(counter);
    socket_memory_errors_free(&counter->errors);
}

void sockets_count(const struct counted_box *boxes, size_t count, size_t first, int out)
{
    struct counter counter = {.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                              .out = out};
    unsigned seed;

    if (counter.proc < 0)
        return;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) < 0)
        seed = (unsigned)getpid();
    srandom(seed);
    processes_each(counter.proc, boxes, count, first, box_count, &counter);
    if (counter.err.code[0] != '\0') {
        log_say(LOG_LEVEL_WARN, counter.err.code, "%s", counter.err.text);
    } else {
        counter.found = (struct counted_found){.what = COUNTED_SOCKETS};
        say(&counter);
    }
    free(counter.tables.table);
    fd_close(&counter.proc);
}
