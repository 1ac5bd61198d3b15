/* Steps that tree.c, own_root.c and attach.c share. */
#pragma once

#include "box/tree.h"

/* Makes a directory, which may be there already. */
int tree_make_dir(int dir, const char *path, mode_t mode, struct error *err);

/* Borrows the directory that holds what the box writes: its disk, or else its scratch. */
int tree_open_disk(const struct plan *plan, const struct tree *tree, int *disk, struct error *err);

/* Clones a directory of it as a detached mount; -1 and errno. */
int tree_clone_written(const struct tree *tree, int from, const char *name);

/* Attaches a mount on a directory of the tree, which is made if need be. Where it is mounted nothing else may be. */
int tree_attach_at(const struct plan *plan, int mount, const struct tree *tree, const char *path,
                   struct error *err);

/* Holds the directories above all binds, in a root of the box's own: see own_root.c. */
int tree_hold_parents(const struct plan *plan, const struct tree *tree, struct error *err);

/* Clones a directory as a detached mount, without what is mounted below it; mounted on itself it cannot be renamed.
 * -1 and errno. */
int tree_clone_held(int at);

/* Tells whether a root of the box's own has the host's mounts there. */
bool tree_is_of_base(const char *path);
