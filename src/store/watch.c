/* Watches: who wants to hear of changes. The past is told from the database while the watch is made,
 * what comes by the answers of the writer. Both may have the same change: the revision says what was
 * told already. */
#include "store/store_parts.h"

#include <stdlib.h>
#include <string.h>

struct store_watch {
    struct store *store;
    struct store_watch *next;
    uint64_t revision; /* the next one that it wants */
    bool is_gone;
    void (*each)(void *arg, const struct store_value *value);
    void *arg;
    size_t prefix_length;
    char prefix[STORE_KEY_MAX + 1];
};

/* Frees those that were given back, when nobody stands on the list. */
static void sweep(struct store *store)
{
    struct store_watch **at = &store->watches;

    while (store->telling == 0 && *at != NULL) {
        struct store_watch *watch = *at;

        if (!watch->is_gone) {
            at = &watch->next;
            continue;
        }
        *at = watch->next;
        free(watch);
    }
}

void watch_end(struct store *store)
{
    for (struct store_watch *watch = store->watches; watch != NULL; watch = watch->next)
        watch->is_gone = true;
    sweep(store);
}

static bool wants(const struct store_watch *watch, const char *key, uint64_t revision)
{
    return !watch->is_gone && revision >= watch->revision &&
           strncmp(key, watch->prefix, watch->prefix_length) == 0;
}

void watch_tell(struct store *store, const struct write *write)
{
    struct store_value value = {
        .key = (char *)write->key,
        .data = (void *)write->data,
        .size = write->data == NULL ? 0 : write->size,
        .revision = write->revision,
    };

    store->telling++;
    for (struct store_watch *watch = store->watches; watch != NULL; watch = watch->next) {
        if (!wants(watch, write->key, write->revision))
            continue;
        watch->revision = write->revision + 1;
        watch->each(watch->arg, &value);
    }
    store->telling--;
    sweep(store);
}

/* A row of SQL_CHANGES. A value that a later change of the same key has replaced is not there any more:
 * that one's row comes, too. */
static void row_tell(struct store_watch *watch, sqlite3_stmt *row)
{
    const char *key = (const char *)sqlite3_column_text(row, 0);
    const void *data = sqlite3_column_blob(row, 1);
    struct store_value value = {
        .key = (char *)key,
        .size = (size_t)sqlite3_column_bytes(row, 1),
        .revision = (uint64_t)sqlite3_column_int64(row, 2),
    };
    bool is_deleted = sqlite3_column_int(row, 3) != 0;
    bool is_latest = sqlite3_column_type(row, 4) != SQLITE_NULL &&
                     (uint64_t)sqlite3_column_int64(row, 4) == value.revision;
    bool is_wanted = key != NULL && wants(watch, key, value.revision);

    if (value.revision >= watch->revision)
        watch->revision = value.revision + 1;
    if (!is_wanted || !(is_deleted || is_latest))
        return;
    if (is_deleted)
        value.size = 0;
    else
        value.data = (void *)(data == NULL ? "" : data);
    watch->each(watch->arg, &value);
}

static int past_tell(struct store_watch *watch, struct error *err)
{
    struct db *db = &watch->store->reader;
    sqlite3_stmt *rows = db_take(db, SQL_CHANGES, DB_VALUES(db_number(watch->revision)), err);
    int status = rows == NULL ? -1 : 0;

    while (rows != NULL && !watch->is_gone && (status = db_step(db, rows, err)) == 1)
        row_tell(watch, rows);
    if (rows != NULL)
        db_give(db, SQL_CHANGES, rows);
    return status < 0 ? -1 : 0;
}

int store_watch(struct store *store, const char *prefix, uint64_t revision,
                void (*each)(void *arg, const struct store_value *value), void *arg,
                struct store_watch **out, struct error *err)
{
    struct store_watch *watch, **end = &store->watches;
    uint64_t compacted = 0;
    int status;

    if (strlen(prefix) > STORE_KEY_MAX)
        return error_set(err, "store_failed", 0, "a prefix has at most %d bytes", STORE_KEY_MAX);
    if (db_ask(&store->reader, SQL_META_GET, DB_VALUES(db_text("compacted")), &compacted, err) < 0)
        return -1;
    if (revision <= compacted && compacted > 0)
        return error_set(err, "compacted", 0,
                         "changes up to revision %llu are not known any more; list, then watch "
                         "from store_revision() + 1",
                         (unsigned long long)compacted);
    watch = calloc(1, sizeof(*watch));
    if (watch == NULL)
        return error_set(err, "no_memory", 0, "there is no memory for a watch");
    watch->store = store;
    watch->revision = revision;
    watch->each = each;
    watch->arg = arg;
    watch->prefix_length = strlen(prefix);
    memcpy(watch->prefix, prefix, watch->prefix_length);
    while (*end != NULL)
        end = &(*end)->next;
    *end = *out = watch;
    store->telling++;
    status = past_tell(watch, err);
    store->telling--;
    if (status < 0) {
        watch->is_gone = true;
        *out = NULL;
    }
    sweep(store);
    return status;
}

void store_unwatch(struct store_watch *watch)
{
    if (watch == NULL)
        return;
    watch->is_gone = true;
    sweep(watch->store);
}
