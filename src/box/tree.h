/* The root tree of a box, built with the new mount API: nothing is mounted by a path that the
 * sandbox controls, and nothing follows a symlink of an image.
 *
 * The tree has two parts. The base (system directories, /etc, /dev nodes) is the same for all boxes
 * of a root: a cold box builds it for itself, a zygote once. The rest belongs to one box: its
 * scratch (a tmpfs that holds all it writes, under one cap), /proc, devpts, binds, and the files
 * that say what the box has (view.h).
 *
 * The host profile has two shapes. The base is the root, read-only; or, with `own_root`, the root is a
 * directory on the box's disk, where what the base shows is mounted read-only. */
#pragma once

#include "base/err.h"
#include "box/plan.h"

struct tree {
    int scratch;  /* root of the tmpfs that holds what the box writes */
    int base;     /* host profile: the directory that shows the host */
    int root;     /* root of the tree */
    int etc, dev; /* with a root of the box's own: the mounts that show the base's; -1: none */
};

/* Mounts a tmpfs with these caps, detached. */
int tree_tmpfs(uint64_t bytes, uint64_t inodes, int *mount, struct error *err);

/* Attaches the mount on `dir`/`path` ("" for `dir` itself). */
int tree_attach(int mount, int dir, const char *path);

/* Host profile: fills the directory `root` with the read-only view of the host. */
int tree_host_base(int root, const struct plan *plan, struct error *err);

/* Fills the directory `dev` with device nodes and links. */
int tree_devices(int dev, struct error *err);

/* Mounts the overlay of an image root: lower layer below, scratch above; -1 in `root` before. */
int tree_overlay(const struct plan *plan, struct tree *tree, struct error *err);

/* Opens a root directory of the box's own, on its disk, as a detached mount, with the directories that programs look
 * for; -1 in `root` before. */
int tree_own_root(const struct plan *plan, struct tree *tree, struct error *err);

/* Mounts there what the base shows. */
int tree_fill_root(const struct plan *plan, struct tree *tree, struct error *err);

/* Makes read-only what of the base was still to take binds: /etc and /dev. */
int tree_seal_root(const struct tree *tree, struct error *err);

/* Binds `source` below `source_dir` onto `target` below `dir`, with the attributes given. */
int tree_bind(int source_dir, const char *source, int dir, const char *target, uint64_t attributes,
              struct error *err);

/* Opens a mount target below the root, making what is missing; with `replace`, what stands in the
 * way (a symlink of an image) is removed first. An O_PATH fd, or -1. */
int tree_target(int root, const char *path, bool is_directory, bool replace, struct error *err);

/* Mounts what belongs to one box on its root: /proc, /dev/pts, /dev/shm, /tmp, home, /sys. */
int tree_own(struct plan *plan, const struct tree *tree, struct error *err);

/* Puts /dev/full on /dev/zero, for a box whose memory is counted by process: it reads as zeros, too,
 * but cannot be mapped, and a shared mapping of /dev/zero is memory that no process need have. */
int tree_hold_zero(const struct tree *tree, struct error *err);

/* Attaches the binds of the plan. */
int tree_binds(const struct plan *plan, const struct tree *tree, struct error *err);

/* Mounts cgroup v2 as this process's namespace shows it, detached. */
int tree_cgroup2(uint64_t attributes, int *mount, struct error *err);

/* Shows the box's own cgroups in /sys/fs/cgroup, of which there is nothing else in its /sys. */
int tree_cgroups(const struct plan *plan, const struct tree *tree, struct error *err);
