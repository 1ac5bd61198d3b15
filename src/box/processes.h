/* The processes of many boxes, told apart by their pid namespaces: for whoever counts what boxes hold and no cgroup
 * counts, in a process of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A box to count: its handle, the inode of its pid namespace (0: nobody tells us), and its init's pid. Without either
 * it is passed over. */
struct counted_box {
    uint64_t handle, space;
    int init;
};

enum counted_what { COUNTED_LOCKS, COUNTED_SOCKETS, COUNTED_FILES, COUNTED_KINDS };

/* How much of it was found in this box until now. The first message for each box says 0; one of no box (0) says that
 * all were counted, and nothing failed. */
struct counted_found {
    uint64_t handle;
    uint64_t what;
    uint64_t count;
};

/* Returns the pid that this pidfd names, or 0. */
int processes_pid(int pidfd);

/* Returns the inode of the pid namespace of this PID 1, or 0. An ordinary user may not look into the init of a box, so
 * its children tell, if it has any. */
uint64_t processes_space(int init);

/* Returns which box this process is of; `count`: of none. */
size_t processes_box(int proc, int pid, const struct counted_box *boxes, size_t count);

/* Calls `visit` with the processes of each box, beginning with the box `first`. */
void processes_each(int proc, const struct counted_box *boxes, size_t count, size_t first,
                    void (*visit)(void *arg, const struct counted_box *box, const int *pids,
                                  size_t count),
                    void *arg);

/* The number behind `name` in a file of /proc, or 0. */
long processes_number(int dir, const char *path, const char *name);

/* kcmp(2). */
long processes_compare(int pid, int other, int type, int one, int two);

/* All that was counted already, in the order that kcmp gives; zeroes at the start, `table` is to be freed. */
struct processes_seen {
    int *table;
    size_t count, room;
};

/* Adds it, unless it is the same as another one: the open file `item` of `pid`, or, with `pid` 0, all of the open files
 * of the thread `item`. */
bool processes_seen_add(struct processes_seen *seen, int pid, int item);

/* Makes room for one more in a table. */
bool processes_room(void **table, size_t *room, size_t count, size_t size);
