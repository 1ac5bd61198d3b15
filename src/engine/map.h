/* A table from texts to pointers: ids and names of sandboxes, tenants.
 *
 * Keys are the caller's and must outlive their entry. The hash is seeded per process, since clients
 * choose names. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct map_entry;

struct map {
    struct map_entry **slots;
    size_t size, count;
};

void *map_get(const struct map *map, const char *key);
/* Replaces what was there. */
void map_put(struct map *map, const char *key, void *value);
void *map_remove(struct map *map, const char *key);
void map_free(struct map *map);
