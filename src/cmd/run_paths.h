/* The host paths that `cove run` was given: does each exist, is it what it must be, and where in
 * the box does it go. Nothing is opened for good here; the box opens them with its own checks. */
#pragma once

#include "base/err.h"
#include "box/box.h"

#include <stdbool.h>
#include <stddef.h>

/* Tells a directory from an erofs image. */
int run_root_check(const char *path, enum box_root_kind *kind, struct error *err);

/* "DIR[:ro]" and "SRC:DST[:ro]"; the paths of the result are to be freed by run_bind_free(). */
int run_workspace_parse(const char *value, const char *target, struct box_bind *bind,
                        struct error *err);
int run_mount_parse(const char *value, struct box_bind *bind, struct error *err);
void run_bind_free(struct box_bind *bind);

/* Whether a command that is not there is the name of an image: with a tag, of a registry, or of a known system. */
bool run_is_image(const char *word);

/* Puts a directory before what lies in it, and refuses two mounts at one place. */
int run_binds_sort(struct box_bind *binds, size_t count, struct error *err);
