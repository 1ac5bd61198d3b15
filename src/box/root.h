/* Roots and binds of a box, opened on the host: detached mounts, idmapped into the box's range.
 *
 * Everything that names a path of the host happens here, before the box exists, with the rights of
 * the caller; the box gets the mounts and no path. */
#pragma once

#include "box/box.h"
#include "box/caller.h"
#include "box/plan.h"

struct root_ids {
    uint32_t first; /* host id of the box's 0 */
    uint32_t count;
    uid_t user; /* inside: who a bind's owner appears as */
    gid_t group;
};

/* The lower layer of an image root as a detached mount, as it is on disk. */
int root_layer_open(const struct box_spec *spec, int *lower, struct error *err);

/* For who does not rule the host's mounts: a directory or file as it lies there, for the child to take.
 * An erofs image is unpacked once, into a directory that is kept. */
int root_place_open(const struct box_spec *spec, int *lower, struct error *err);
int root_bind_place_open(const struct box_bind *bind, const struct caller *caller,
                         struct plan_bind *out, struct error *err);

/* The lower layer of an image root as a detached mount; its ids on disk are the box's. `warning`
 * (may stay empty) says what is weaker. */
int root_open(const struct box_spec *spec, const struct root_ids *ids, int *lower, char *warning,
              size_t warning_size, struct error *err);

/* The source of a bind: a detached mount, and what it is on disk. */
struct root_taken {
    int mount;
    mode_t mode;
    uid_t uid;
    gid_t gid;
};

/* Opens the source of a bind. This may wait for its file system as long as that does not answer. */
int root_bind_take(const struct box_bind *bind, struct root_taken *taken, struct error *err);

/* A bind: its source as a detached mount whose owner appears as the box's user. Of one that is taken no file system is
 * asked anything. */
int root_bind_open(const struct box_bind *bind, const struct root_ids *ids, struct plan_bind *out,
                   struct error *err);

/* A journal-less ext4 on memory, for an overlay's upper layer where tmpfs has no user xattrs (before
 * Linux 6.6): a detached mount. Gone when it is unmounted. */
int root_upper_open(const struct box_limits *limits, const struct root_ids *ids, int *upper,
                    struct error *err);

/* Whether tmpfs can hold an overlay's upper layer here. */
bool root_tmpfs_has_xattrs(const struct caller *caller);
