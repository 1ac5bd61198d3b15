/* What the two kinds of id pools share: see ids.h. */
#pragma once

#include "box/ids.h"

/* Opens `path`/ids.lock; both are made where missing, and must be the caller's alone. */
int ids_lock_open(struct ids_pool *pool, const char *path, mode_t mode, struct error *err);

/* Bytes of the lock file: F_WRLCK takes, F_UNLCK gives back; -1 (EAGAIN) where somebody else has one of
 * them. */
int ids_bytes_lock(const struct ids_pool *pool, uint64_t first, uint64_t count, short type);

/* The same for what ids_take_user() took, which is locked by host ids: so boxes agree whatever else
 * /etc/subuid says meanwhile, and where two of its entries overlap. */
int ids_user_lock(const struct ids_pool *pool, const struct ids *ids, short type);

/* What this pool has: the kernel does not tell two holders of one fd apart. */
bool ids_slot_is_taken(const struct ids_pool *pool, uint32_t slot);
void ids_slot_mark(struct ids_pool *pool, uint32_t slot, bool taken);

/* Digits up to the mark, which is passed; '\0' means up to the end. What is too large for anything is
 * UINT64_MAX. */
bool ids_number_read(const char **at, const char *end, char mark, uint64_t *value);

uint32_t ids_random(void);

/* The parts that a text such as /etc/subuid gives to a user; how many. */
size_t ids_parts_of_user(const char *text, const char *name, uid_t uid,
                         struct ids_part parts[IDS_PARTS_MAX]);

/* The parts that /proc/self/uid_map leaves to boxes: what accounts of this namespace do not use. */
size_t ids_parts_of_map(const char *text, struct ids_part parts[IDS_PARTS_MAX]);
