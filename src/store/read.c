/* Reading: what is committed, by a connection of the loop's thread, at once. A callback may use the store:
 * it sees what the caller sees. */
#include "store/store_parts.h"

#include <stdlib.h>
#include <string.h>

void store_value_free(struct store_value *value)
{
    free(value->key);
    free(value->data);
    *value = (struct store_value){0};
}

uint64_t store_revision(struct store *store)
{
    uint64_t revision = 0;
    struct error ignored;

    (void)db_ask(&store->reader, SQL_META_GET, DB_VALUES(db_text("revision")), &revision, &ignored);
    return revision;
}

/* Columns: key, value, revision. Borrowed until the next step. */
static struct store_value row_value(sqlite3_stmt *row)
{
    struct store_value value;

    value.key = (char *)sqlite3_column_text(row, 0);
    value.data = (void *)sqlite3_column_blob(row, 1);
    value.size = (size_t)sqlite3_column_bytes(row, 1);
    value.revision = (uint64_t)sqlite3_column_int64(row, 2);
    if (value.data == NULL)
        value.data = (void *)""; /* an empty one, which is not none */
    return value;
}

static int value_copy(const struct store_value *from, struct store_value *out, struct error *err)
{
    char *key = from->key == NULL ? NULL : strdup(from->key);
    char *data = malloc(from->size + 1);

    if (key == NULL || data == NULL) {
        free(key);
        free(data);
        return error_set(err, "no_memory", 0, "there is no memory for a value of %zu bytes",
                         from->size);
    }
    memcpy(data, from->data, from->size);
    data[from->size] = '\0';
    out->key = key;
    out->data = data;
    out->size = from->size;
    out->revision = from->revision;
    return 1;
}

int store_get(struct store *store, const char *key, struct store_value *out, struct error *err)
{
    struct db *db = &store->reader;
    sqlite3_stmt *row = db_take(db, SQL_GET, DB_VALUES(db_text(key)), err);
    int status = row == NULL ? -1 : db_step(db, row, err);

    *out = (struct store_value){0};
    if (status == 1) {
        struct store_value value = row_value(row);

        status = value_copy(&value, out, err);
    }
    if (row != NULL)
        db_give(db, SQL_GET, row);
    return status;
}

/* Each row as a value with a NUL behind it; `prefix` NULL: no matter. */
static int rows_tell(struct db *db, sqlite3_stmt *rows, const char *prefix, size_t limit,
                     bool (*each)(void *arg, const struct store_value *value), void *arg,
                     struct error *err)
{
    int status = 0;

    while (limit-- > 0 && (status = db_step(db, rows, err)) == 1) {
        struct store_value value = row_value(rows), copy;
        bool goes_on;

        if (prefix != NULL &&
            (value.key == NULL || strncmp(value.key, prefix, strlen(prefix)) != 0))
            break;
        if (value_copy(&value, &copy, err) < 0)
            return -1;
        goes_on = each(arg, &copy);
        store_value_free(&copy);
        if (!goes_on)
            break;
    }
    return status < 0 ? -1 : 0;
}

int store_list(struct store *store, const char *prefix, const char *after, size_t limit,
               bool (*each)(void *arg, const struct store_value *value), void *arg,
               struct error *err)
{
    /* Keys of a prefix stand together, so the first one that has it not is the end. */
    bool is_after = after != NULL && strcmp(after, prefix) >= 0;
    enum db_sql sql = is_after ? SQL_LIST_AFTER : SQL_LIST_FROM;
    struct db *db = &store->reader;
    sqlite3_stmt *rows = db_take(db, sql, DB_VALUES(db_text(is_after ? after : prefix)), err);
    int status;

    if (rows == NULL)
        return -1;
    status = rows_tell(db, rows, prefix, limit, each, arg, err);
    db_give(db, sql, rows);
    return status;
}

static int stream_read(struct db *db, const char *stream, uint64_t sequence, size_t limit,
                       bool (*each)(void *arg, const struct store_value *value), void *arg,
                       uint64_t *first, uint64_t *next, struct error *err)
{
    sqlite3_stmt *rows;
    int status;

    *next = 1;
    if (db_ask(db, SQL_STREAM_NEXT, DB_VALUES(db_text(stream)), next, err) < 0)
        return -1;
    *first = *next;
    if (db_ask(db, SQL_STREAM_FIRST, DB_VALUES(db_text(stream)), first, err) < 0)
        return -1;
    rows = db_take(db, SQL_STREAM_READ, DB_VALUES(db_text(stream), db_number(sequence)), err);
    if (rows == NULL)
        return -1;
    status = rows_tell(db, rows, NULL, limit, each, arg, err);
    db_give(db, SQL_STREAM_READ, rows);
    return status;
}

int store_read(struct store *store, const char *stream, uint64_t sequence, size_t limit,
               bool (*each)(void *arg, const struct store_value *value), void *arg, uint64_t *first,
               uint64_t *next, struct error *err)
{
    struct db *db = &store->reader;
    /* So that the ends and the entries are of one moment; within a callback of another, of its. */
    bool begins = sqlite3_get_autocommit(db->handle) != 0;
    struct error ignored;
    int status;

    if (begins && db_do(db, SQL_BEGIN_READ, err) < 0)
        return -1;
    status = stream_read(db, stream, sequence, limit, each, arg, first, next, err);
    if (begins)
        (void)db_do(db, SQL_COMMIT, &ignored);
    return status;
}
