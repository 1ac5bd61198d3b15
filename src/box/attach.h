/* Directories that come to a box which runs, and leave it again.
 *
 * The caller rules the host's mounts, and calls these in a process of its own, which ends afterwards: it becomes root of
 * the box, in the box's namespaces, and no way leads back. It stays in the caller's pid namespace, so nothing in the box
 * sees it or gets at its fds. The box's programs run meanwhile and move what is on the way: no link is followed, and a
 * mount that has not come to its target is taken away. */
#pragma once

#include "base/err.h"
#include "box/box.h"
#include "box/plan.h"
#include "box/root.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A box that runs. */
struct attach_box {
    /* Pidfd. */
    int init;
    /* Its root lies on its disk: what is above a mount is held there (own_root.c). */
    bool own_root;
    /* Hears the id of the mount that comes or goes next: of whoever is killed then attach_find() tells the end. */
    void (*begins)(uint64_t mount_id);
};

/* A directory that is mounted: what it is on the host and, unless it is 0, the id of its mount. */
struct attach_what {
    dev_t device;
    ino_t inode;
    uint64_t mount_id;
    /* It goes also while programs use it. */
    bool is_forced;
};

/* Mounts a directory as one at the start is mounted. Codes: "box_not_ready", "box_gone", "mount_failed", "mount_refused"
 * where as much is held as may be, and those of root_bind_open(). */
int attach_mount(const struct attach_box *box, const struct box_bind *bind,
                 const struct root_ids *ids, struct error *err);

/* Unmounts this directory of the host from there. Codes: "box_not_ready", "box_gone", "mount_busy" while anything in
 * the box uses it, "mount_moved" where something else is there. The directories held above it are let go as far as nothing else
 * is mounted there, and no program uses it. */
int attach_unmount(const struct attach_box *box, const char *target, const struct attach_what *what,
                   struct error *err);

/* Finds where in the box a mount is now: 1, 0, or -1 where nobody can tell. A place that is too long is "". No file system
 * is asked for that. */
int attach_find(int init, uint64_t mount_id, char place[PLAN_TARGET_MAX]);
