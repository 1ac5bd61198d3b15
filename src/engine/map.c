/* See map.h: chained, and doubled when it is full. */
#include "engine/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct map_entry {
    struct map_entry *next;
    const char *key;
    void *value;
};

static uint64_t seed;

/* FNV-1a, begun with the seed and stirred at the end: enough for tables of some thousands, whose worst
 * case is a list that long. */
static size_t hash_of(const char *key)
{
    uint64_t hash;

    if (seed == 0) {
        if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
            abort();
        seed |= 1;
    }
    hash = 0xcbf29ce484222325ULL ^ seed;
    for (; *key != '\0'; key++)
        hash = (hash ^ (unsigned char)*key) * 0x100000001b3ULL;
    hash = (hash ^ hash >> 32) * (seed | 1);
    return (size_t)(hash ^ hash >> 29);
}

static struct map_entry **find(const struct map *map, const char *key)
{
    struct map_entry **at = &map->slots[hash_of(key) & (map->size - 1)];

    while (*at != NULL && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

void *map_get(const struct map *map, const char *key)
{
    struct map_entry **at = map->size > 0 ? find(map, key) : NULL;

    return at != NULL && *at != NULL ? (*at)->value : NULL;
}

static void grow(struct map *map)
{
    struct map larger = {.size = map->size > 0 ? 2 * map->size : 64};

    larger.slots = calloc(larger.size, sizeof(struct map_entry *));
    if (larger.slots == NULL)
        abort();
    for (size_t i = 0; i < map->size; i++) {
        for (struct map_entry *entry = map->slots[i], *next; entry != NULL; entry = next) {
            struct map_entry **slot = &larger.slots[hash_of(entry->key) & (larger.size - 1)];

            next = entry->next;
            entry->next = *slot;
            *slot = entry;
        }
    }
    larger.count = map->count;
    free(map->slots);
    *map = larger;
}

void map_put(struct map *map, const char *key, void *value)
{
    struct map_entry **at, *entry;

    if (map->count >= map->size)
        grow(map);
    at = find(map, key);
    entry = *at;
    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        if (entry == NULL)
            abort();
        *at = entry;
        map->count++;
    }
    entry->key = key;
    entry->value = value;
}

void *map_remove(struct map *map, const char *key)
{
    struct map_entry **at = map->size > 0 ? find(map, key) : NULL;
    struct map_entry *entry = at != NULL ? *at : NULL;
    void *value;

    if (entry == NULL)
        return NULL;
    value = entry->value;
    *at = entry->next;
    free(entry);
    map->count--;
    return value;
}

void map_free(struct map *map)
{
    for (size_t i = 0; i < map->size; i++) {
        for (struct map_entry *entry = map->slots[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    free(map->slots);
    *map = (struct map){0};
}
