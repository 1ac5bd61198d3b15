/* Images that cannot be mounted: unpacked once, and kept.
 *
 * Only root mounts an erofs image. For everybody else it is unpacked into a cache of the caller's own,
 * by the hash of its content, with Debian's fsck.erofs inside of a box: what parses a stranger's image
 * must not run outside of one. */
#pragma once

#include "box/box.h"

/* The directory that holds the files of the image, O_PATH; -1 on error. `path` is for messages. */
int unpack_open(int image, const char *path, const struct box_spec *spec, struct error *err);
