/* Zygotes: see zygotes.h. */
#include "keeper/zygotes.h"

#include <stddef.h>

static void end(struct zygote_entry *entry)
{
    zygote_stop(entry->zygote);
    *entry = (struct zygote_entry){0};
}

/* An unused place, or that of the one that has not been needed for longest. */
static struct zygote_entry *place_for(struct zygotes *zygotes)
{
    struct zygote_entry *oldest = NULL;

    for (size_t i = 0; i < ZYGOTES_MAX; i++) {
        struct zygote_entry *entry = &zygotes->table[i];

        if (entry->zygote == NULL)
            return entry;
        if (entry->boxes == 0 && (oldest == NULL || entry->last_used < oldest->last_used))
            oldest = entry;
    }
    if (oldest != NULL)
        end(oldest);
    return oldest;
}

struct zygote_entry *zygotes_find(struct zygotes *zygotes, uint64_t root,
                                  const struct box_spec *spec, struct error *err)
{
    struct zygote_entry *entry;

    for (size_t i = 0; i < ZYGOTES_MAX; i++) {
        entry = &zygotes->table[i];
        if (entry->zygote != NULL && !entry->is_retired && entry->root == root &&
            entry->privileges == spec->privileges) {
            entry->last_used = ++zygotes->uses;
            return entry;
        }
    }
    entry = place_for(zygotes);
    if (entry == NULL) {
        (void)error_set(err, "capacity", 0, "boxes of %d roots live: end some", ZYGOTES_MAX);
        return NULL;
    }
    if (zygote_start(spec, &entry->zygote, err) < 0) {
        entry->zygote = NULL;
        return NULL;
    }
    entry->root = root;
    entry->privileges = spec->privileges;
    entry->last_used = ++zygotes->uses;
    return entry;
}

void zygotes_retire(struct zygote_entry *entry)
{
    entry->is_retired = true;
    if (entry->boxes == 0)
        end(entry);
}

void zygotes_mark_unable(struct zygotes *zygotes, uint64_t root)
{
    size_t place = zygotes->unable_next++ % ZYGOTES_UNABLE;

    zygotes->unable[place].root = root;
    zygotes->unable[place].is_set = true;
}

bool zygotes_is_unable(const struct zygotes *zygotes, uint64_t root)
{
    for (size_t i = 0; i < ZYGOTES_UNABLE; i++)
        if (zygotes->unable[i].is_set && zygotes->unable[i].root == root)
            return true;
    return false;
}

void zygotes_give(struct zygote_entry *entry)
{
    if (--entry->boxes == 0 && entry->is_retired)
        end(entry);
}

static bool is_registered(const struct names *names, uint64_t root)
{
    for (size_t i = 0; i < names->table_used; i++)
        if (names->table[i].generation == root && names->table[i].is_there)
            return true;
    return root == 0 || root == ZYGOTES_ROOT_EMPTY;
}

void zygotes_tend(struct zygotes *zygotes, const struct names *names)
{
    for (size_t i = 0; i < ZYGOTES_MAX; i++) {
        struct zygote_entry *entry = &zygotes->table[i];

        if (entry->zygote != NULL && (entry->is_retired || !is_registered(names, entry->root)))
            zygotes_retire(entry); /* one handed over may be retired, and have no boxes */
    }
}

void zygotes_close(struct zygotes *zygotes)
{
    for (size_t i = 0; i < ZYGOTES_MAX; i++)
        if (zygotes->table[i].zygote != NULL)
            end(&zygotes->table[i]);
}
