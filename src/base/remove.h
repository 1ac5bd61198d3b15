/* Removing a directory with all that is in it, however deep and whatever its modes. */
#pragma once

/* Removes `name` below `dir`; 0, also where it is not there, or -1. Never follows a link, never leaves
 * the file system tree below. Two may remove the same. */
int remove_tree(int dir, const char *name);
