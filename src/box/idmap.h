/* Idmapped mounts: files keep their owners on disk, and the box sees them as its own.
 *
 * That is how a workspace is written without a chown and without giving the box an id of the host.
 * Linux 5.12 has it for most filesystems, 5.19 below overlays. */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct idmap {
    uint32_t on_disk_uid, on_disk_gid; /* the first of `count` ids on disk */
    uint32_t host_uid, host_gid;       /* the host ids they appear as: in the box's range */
    uint32_t count;
};

/* A user namespace with this map, to hand to mounts; an fd, or -1. */
int idmap_open(const struct idmap *map, struct error *err);

/* Maps a detached mount (and what is mounted below it); -1 with errno as the kernel left it, EINVAL
 * where the filesystem cannot do it. */
int idmap_apply(int mount, int userns);

/* Who gives a process its ids. */
enum idmap_way {
    IDMAP_WRITE,   /* we: whoever may give any id */
    IDMAP_HELPERS, /* newuidmap and newgidmap, which ask /etc/subuid and /etc/subgid */
    IDMAP_OWN,     /* we, and it is our own id; the process then keeps our groups */
};

/* Sets the uid and gid maps of a process; each is a line or several of "INSIDE OUTSIDE COUNT". */
int idmap_set(int pid, enum idmap_way way, const char *uid_map, const char *gid_map,
              struct error *err);
