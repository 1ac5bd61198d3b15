/* How much of the file system that disks lie on is left, and how far each disk may grow into it.
 *
 * A disk is a sparse image: its file system lets a box write what the host may not have. So the disk itself is told:
 * blocks that its file system sets apart for itself (reserved_clusters of ext4) are refused to the box by the write that
 * would take them, with ENOSPC, and before anything is in a cache. What was written already is never touched. */
#pragma once

#include "base/err.h"
#include "keeper/request.h"

#include <stdbool.h>

struct keeper;
struct boxed;

/* Tells what is free, and what will be left once all is written that boxes have in their caches, or have allocated: the
 * latter is too little where the file system compresses what it is given, or holds it once. UINT64_MAX: nobody knows. */
void disk_hold_left(const struct keeper *keeper, struct keeper_disks *answer);

/* Lets the disk of a box grow by so much and no more, or UINT64_MAX: as its limit says; then tells of it. One that is
 * no image is only told of. */
void disk_hold(const struct keeper *keeper, const struct boxed *boxed, uint64_t most,
               struct keeper_disks *answer);

/* A disk of before there was a root on it gets the directories that a start needs, also where it is full: of what its file
 * system sets apart. For a process of its own, whose umask it changes. */
void disk_hold_spare(int disk);

/* What is in caches of it is lost, as where the host loses power: for a box that has allocated what is not there. */
void disk_cut(const struct boxed *boxed);
