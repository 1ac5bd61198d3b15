/* Processes and threads of all boxes: see crowd.h. */
#include "keeper/crowd.h"

#include "base/fd.h"
#include "box/switches.h"
#include "keeper/keeper.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD_NS 250000000ULL
/* No box is held below: a shell and its tools. */
#define LEAST 64

static uint64_t number_in(const char *path)
{
    char text[64];

    return fd_read_file(AT_FDCWD, path, text, sizeof(text)) < 0 ? UINT64_MAX
                                                                : strtoull(text, NULL, 10);
}

/* "0.10 0.20 0.30 RUNNING/ALL LAST" */
static uint64_t all_tasks(void)
{
    char text[128];
    const char *all = NULL;

    if (fd_read_file(AT_FDCWD, "/proc/loadavg", text, sizeof(text)) >= 0)
        all = strchr(text, '/');
    return all != NULL ? strtoull(all + 1, NULL, 10) : 0;
}

void crowd_open(struct crowd *crowd)
{
    uint64_t ids = number_in("/proc/sys/kernel/pid_max");
    uint64_t threads = number_in("/proc/sys/kernel/threads-max");

    /* Held at that, boxes have as much again at most: a share each, or what they had. */
    crowd->most = (ids < threads ? ids : threads) / 8 * 3;
    if (switched_off("pids"))
        crowd->most = all_tasks() + 2000;
}

/* ---- holding ---- */

static void hold(struct keeper *keeper, struct boxed *boxed, uint64_t share)
{
    const struct cgroup_host *host = &keeper->slots.host;
    uint64_t now, most, held;

    if (boxed->pids_most > 0 || (boxed->slot != NULL && boxed->slot->limits.pids <= share) ||
        box_pids(boxed->box, host, &now, &most) < 0)
        return;
    held = now > share ? now : share;
    if (held >= most || box_limit_pids(boxed->box, host, held) < 0)
        return;
    boxed->pids_most = most;
    if (boxed->slot != NULL)
        boxed->slot->is_worn =
            true; /* whoever lets go of it knows its box, which may be gone by then */
}

static void hold_all(struct keeper *keeper)
{
    const struct boxes *boxes = &keeper->boxes;
    uint64_t share = keeper->crowd.most / boxes->count;

    if (!keeper->crowd.is_held)
        keeper_say("many_processes",
                   "this host has nearly all processes and threads that it can have "
                   "(kernel.pid_max, kernel.threads-max): no box gets more than %llu now, or than "
                   "it has",
                   (unsigned long long)(share > LEAST ? share : LEAST));
    keeper->crowd.is_held = true;
    for (size_t i = 0; i < boxes->used; i++)
        if (boxes->table[i] != NULL && boxes->table[i]->box != NULL)
            hold(keeper, boxes->table[i], share > LEAST ? share : LEAST);
}

void crowd_free(struct keeper *keeper)
{
    const struct boxes *boxes = &keeper->boxes;

    for (size_t i = 0; keeper->crowd.is_held && i < boxes->used; i++) {
        struct boxed *boxed = boxes->table[i];

        if (boxed == NULL || boxed->box == NULL || boxed->pids_most == 0)
            continue;
        (void)box_limit_pids(boxed->box, &keeper->slots.host, boxed->pids_most);
        boxed->pids_most = 0;
    }
    keeper->crowd.is_held = false;
}

uint64_t crowd_tick(struct keeper *keeper, uint64_t now_ns)
{
    struct crowd *crowd = &keeper->crowd;
    uint64_t tasks;

    if (keeper->boxes.count == 0 || !keeper->slots.host.limits_pids)
        return 0;
    if (now_ns < crowd->next_ns)
        return crowd->next_ns;
    crowd->next_ns = now_ns + PERIOD_NS;
    tasks = all_tasks();
    if (tasks >= crowd->most)
        hold_all(keeper);
    else if (tasks < crowd->most / 4 * 3)
        crowd_free(keeper);
    return crowd->next_ns;
}
