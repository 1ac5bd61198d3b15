/* Shared by the two files of mounts. */
#pragma once

#include "keeper/mounts.h"

/* A change takes milliseconds; one that takes longer waits for a file system of the host that does not answer. */
#define MOUNTS_CHANGE_S 10
#define MOUNTS_CHANGE_NS (MOUNTS_CHANGE_S * 1000000000ULL)
/* Its process is killed then, which the kernel puts off as long as it waits for that itself. */
#define KILL_NS 1000000000ULL

/* Finds a place for a change of this box (0: of one that is not made yet) and clears it; NULL. */
struct mount_change *mounts_place(struct keeper *keeper, uint64_t box, const char *tenant,
                                  struct error *err);

/* Starts its process: 0 in that, with the other end of the socket; 1, and `ready` hears of its end; -1. */
int mounts_fork(struct mount_change *change, source_ready ready, struct error *err);

/* Of a start that has taken too long: says of what. */
void mount_start_give_up(struct mount_change *change, struct error *err);

/* Of a start that nobody waits for. */
void mount_start_cut(struct mount_change *change);
