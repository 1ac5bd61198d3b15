/* Who runs the commands of a box: names resolved against the box's own accounts.
 *
 * The files come from an image and are hostile: they are read by fd below its root, bounded, and
 * parsed here outside the box. */
#pragma once

#include "box/box.h"

/* Finds `spec` (NAME, UID, NAME:GROUP, UID:GID) in the texts of a passwd and a group file. A number
 * needs no entry. */
int user_find(const char *passwd, const char *group, const char *spec, struct box_user *user,
              struct error *err);

/* The same with the files of the root at `root`; with root -1, those of the host profile. */
int user_resolve(int root, const char *shell, const char *spec, struct box_user *user,
                 struct error *err);
