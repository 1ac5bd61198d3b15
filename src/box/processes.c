/* Finding the processes of boxes: see processes.h. */
#include "box/processes.h"

#include "base/fd.h"
#include "base/list.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct found {
    size_t box;
    int pid;
};

static uint64_t space_of(int proc, int pid)
{
    char path[64];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%d/ns/pid", pid);
    return fstatat(proc, path, &st, 0) == 0 ? st.st_ino : 0;
}

long processes_number(int dir, const char *path, const char *name)
{
    char text[2048];
    const char *line;

    if (fd_read_file(dir, path, text, sizeof(text)) <= 0 || (line = strstr(text, name)) == NULL)
        return 0;
    return strtol(line + strlen(name), NULL, 10);
}

int processes_pid(int pidfd)
{
    char path[40];
    long pid;

    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    pid = pidfd < 0 ? 0 : processes_number(AT_FDCWD, path, "\nPid:");
    return pid > 0 ? (int)pid : 0;
}

uint64_t processes_space(int init)
{
    _cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    uint64_t space = init > 0 ? space_of(proc, init) : 0;
    char path[64], text[4096], *child = text, *after;

    (void)snprintf(path, sizeof(path), "%d/task/%d/children", init, init);
    if (space != 0 || init <= 0 || fd_read_file(proc, path, text, sizeof(text)) <= 0)
        return space;
    for (long pid; space == 0 && (pid = strtol(child, &after, 10)) > 0; child = after)
        space = space_of(proc, (int)pid);
    return space;
}

size_t processes_box(int proc, int pid, const struct counted_box *boxes, size_t count)
{
    uint64_t space = space_of(proc, pid);
    size_t i = 0;

    while (i < count && (space == 0 || boxes[i].space != space))
        i++;
    return i;
}

bool processes_room(void **table, size_t *room, size_t count, size_t size)
{
    size_t more = *room == 0 ? 64 : *room * 2;
    void *moved = count < *room ? *table : reallocarray(*table, more, size);

    if (moved == NULL)
        return false;
    *room = count < *room ? *room : more;
    *table = moved;
    return true;
}

static size_t find(int proc, const struct counted_box *boxes, size_t boxes_count,
                   struct found **table)
{
    DIR *list = list_open(proc, ".");
    const struct dirent *entry;
    size_t count = 0, room = 0;

    while (list != NULL && (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        int pid = (int)strtol(entry->d_name, NULL, 10);       /* 0: of a file that is no process */
        size_t box = pid > 0 ? processes_box(proc, pid, boxes, boxes_count) : boxes_count;

        if (box < boxes_count && processes_room((void **)table, &room, count, sizeof(**table)))
            (*table)[count++] = (struct found){box, pid};
    }
    if (list != NULL)
        (void)closedir(list);
    return count;
}

void processes_each(int proc, const struct counted_box *boxes, size_t count, size_t first,
                    void (*visit)(void *arg, const struct counted_box *box, const int *pids,
                                  size_t count),
                    void *arg)
{
    _cleanup_free_ struct found *found = NULL;
    size_t found_count = find(proc, boxes, count, &found);
    _cleanup_free_ int *pids = calloc(found_count + 1, sizeof(*pids));

    for (size_t i = 0; pids != NULL && i < count; i++) {
        size_t box = (first + i) % count, own = 0;

        for (size_t j = 0; j < found_count; j++)
            if (found[j].box == box)
                pids[own++] = found[j].pid;
        if (boxes[box].space != 0 || boxes[box].init != 0)
            visit(arg, &boxes[box], pids, own);
    }
}

long processes_compare(int pid, int other, int type, int one, int two)
{
    return syscall(SYS_kcmp, pid, other, type, one, two);
}

bool processes_seen_add(struct processes_seen *seen, int pid, int item)
{
    size_t low = 0, high = seen->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        int other = seen->table[middle];
        long order = pid != 0 ? processes_compare(pid, pid, KCMP_FILE, item, other)
                              : processes_compare(item, other, KCMP_FILES, 0, 0);

        if (order == 0)
            return false;
        if (order == 1)
            high = middle;
        else
            low = middle + 1;
    }
    if (!processes_room((void **)&seen->table, &seen->room, seen->count, sizeof(*seen->table)))
        return true;
    memmove(&seen->table[low + 1], &seen->table[low], (seen->count - low) * sizeof(*seen->table));
    seen->table[low] = item;
    seen->count++;
    return true;
}
