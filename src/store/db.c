/* SQLite: see db.h.
 *
 * WAL with synchronous=FULL: a commit is one append to the log and one fdatasync, and readers see
 * what was committed without waiting. The log is moved into the database by db_checkpoint(), after
 * what was committed has been acknowledged, never within a commit. */
#include "store/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Who else has the database open, sqlite3(1) say, is waited for that long. */
#define BUSY_MS 5000

static const char *const texts[SQL_COUNT] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_BEGIN_READ] = "BEGIN",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_META_GET] = "SELECT number FROM meta WHERE name = ?",
    [SQL_META_SET] = "UPDATE meta SET number = ?2 WHERE name = ?1",
    [SQL_REVISION_OF] = "SELECT revision FROM kv WHERE key = ?",
    [SQL_PUT] = "INSERT INTO kv VALUES (?, ?, ?) ON CONFLICT (key)"
                " DO UPDATE SET value = excluded.value, revision = excluded.revision",
    [SQL_DELETE] = "DELETE FROM kv WHERE key = ?",
    [SQL_CHANGE_ADD] = "INSERT INTO change VALUES (?, ?, ?)",
    [SQL_CHANGE_TRIM] = "DELETE FROM change WHERE revision <= ?",
    [SQL_LEASE_OTHER] = "SELECT until_ms FROM lease WHERE name = ? AND owner <> ? AND until_ms > ?",
    [SQL_LEASE_SET] = "INSERT INTO lease VALUES (?, ?, ?) ON CONFLICT (name)"
                      " DO UPDATE SET owner = excluded.owner, until_ms = excluded.until_ms",
    [SQL_LEASE_DROP] = "DELETE FROM lease WHERE name = ?",
    [SQL_STREAM_NEXT] = "SELECT next FROM stream WHERE name = ?",
    [SQL_STREAM_SET] = "INSERT INTO stream VALUES (?, ?) ON CONFLICT (name)"
                       " DO UPDATE SET next = excluded.next",
    [SQL_STREAM_ADD] = "INSERT INTO entry VALUES (?, ?, ?)",
    [SQL_STREAM_TRIM] = "DELETE FROM entry WHERE stream = ? AND sequence <= ?",
    [SQL_GET] = "SELECT key, value, revision FROM kv WHERE key = ?",
    [SQL_LIST_FROM] = "SELECT key, value, revision FROM kv WHERE key >= ? ORDER BY key",
    [SQL_LIST_AFTER] = "SELECT key, value, revision FROM kv WHERE key > ? ORDER BY key",
    [SQL_CHANGES] = "SELECT c.key, k.value, c.revision, c.deleted, k.revision FROM change c"
                    " LEFT JOIN kv k ON k.key = c.key WHERE c.revision >= ?"
                    " ORDER BY c.revision",
    [SQL_STREAM_FIRST] = "SELECT min(sequence) FROM entry WHERE stream = ?",
    [SQL_STREAM_READ] = "SELECT stream, data, sequence FROM entry WHERE stream = ?"
                        " AND sequence >= ? ORDER BY sequence",
};

int db_fail(struct db *db, const char *doing, struct error *err)
{
    int code = db->handle == NULL ? SQLITE_NOMEM : sqlite3_errcode(db->handle) & 0xff;
    const char *said = db->handle == NULL ? "no memory" : sqlite3_errmsg(db->handle);
    int errnum = 0;

    /* Else it is that of an earlier failure. */
    if (code == SQLITE_IOERR || code == SQLITE_CANTOPEN || code == SQLITE_FULL)
        errnum = sqlite3_system_errno(db->handle);
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return error_set(err, "store_corrupt", 0,
                         "%s, for it is damaged (%.100s); put back a copy of its directory, or "
                         "move it away to begin with an empty one",
                         doing, said);
    if (code == SQLITE_FULL || errnum == ENOSPC || errnum == EDQUOT)
        return error_set(err, "store_failed", ENOSPC, "%s; make room where it lies", doing);
    return error_set(err, "store_failed", errnum, "%s (%.200s)", doing, said);
}

static int wal_grew(void *arg, sqlite3 *handle, const char *name, int pages)
{
    struct db *db = arg;

    (void)handle;
    (void)name;
    db->wal_pages = pages;
    return SQLITE_OK;
}

static int mode_is(void *is_wal, int columns, char **cells, char **names)
{
    (void)columns;
    (void)names;
    *(bool *)is_wal = cells[0] != NULL && strcmp(cells[0], "wal") == 0;
    return 0;
}

static int pragmas_set(struct db *db, bool may_write, struct error *err)
{
    static const char always[] =
        "PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF;"
        /* In KiB: what is looked for is small, and the kernel has the file's pages, too. */
        "PRAGMA cache_size = -384;"
        "PRAGMA cell_size_check = ON; PRAGMA wal_autocheckpoint = 0;";
    bool is_wal = false;

    (void)sqlite3_busy_timeout(db->handle, BUSY_MS);
    (void)sqlite3_extended_result_codes(db->handle, 1);
    (void)sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (sqlite3_exec(db->handle, always, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db->handle, "PRAGMA journal_mode = WAL", mode_is, &is_wal, NULL) !=
            SQLITE_OK ||
        (!may_write &&
         sqlite3_exec(db->handle, "PRAGMA query_only = ON", NULL, NULL, NULL) != SQLITE_OK))
        return db_fail(db, "cannot open the store", err);
    if (!is_wal)
        return error_set(err, "store_failed", 0,
                         "cannot open the store: its file system has no shared memory for a log; "
                         "put it on a local disk");
    (void)sqlite3_wal_hook(db->handle, wal_grew, db);
    return 0;
}

int db_open(struct db *db, const char *directory, bool may_write, struct error *err)
{
    char path[4096];
    int fd;

    *db = (struct db){0};
    if ((size_t)snprintf(path, sizeof(path), "%s/store.db", directory) >= sizeof(path) - 64)
        return error_set(err, "store_failed", ENAMETOOLONG, "the store in %.100s...", directory);
    /* By ourselves for its mode, which SQLite gives to the files beside it, too. */
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(err, "store_failed", errno, "cannot open %s", path);
    (void)close(fd);
    if (sqlite3_open_v2(path, &db->handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK)
        (void)db_fail(db, "cannot open the store", err);
    else if (pragmas_set(db, may_write, err) == 0)
        return 0;
    db_close(db);
    return error_wrap(err, "%s", path);
}

void db_close(struct db *db)
{
    for (size_t i = 0; i < SQL_COUNT; i++)
        (void)sqlite3_finalize(db->idle[i]);
    (void)sqlite3_close(db->handle);
    *db = (struct db){0};
}

struct db_value db_text(const char *text)
{
    return (struct db_value){.type = DB_TEXT, .data = text};
}

struct db_value db_number(uint64_t number)
{
    return (struct db_value){.type = DB_NUMBER, .number = number};
}

struct db_value db_bytes(const void *data, size_t size)
{
    return (struct db_value){.type = DB_BYTES, .data = data, .number = size};
}

static int value_bind(sqlite3_stmt *statement, int at, const struct db_value *value)
{
    switch (value->type) {
    case DB_TEXT:
        return sqlite3_bind_text(statement, at, value->data, -1, SQLITE_STATIC);
    case DB_NUMBER:
        return sqlite3_bind_int64(
            statement, at, value->number > INT64_MAX ? INT64_MAX : (sqlite3_int64)value->number);
    case DB_BYTES:
        return sqlite3_bind_blob64(statement, at, value->data, value->number, SQLITE_STATIC);
    }
    return SQLITE_MISUSE;
}

sqlite3_stmt *db_take(struct db *db, enum db_sql sql, const struct db_value *values, size_t count,
                      struct error *err)
{
    sqlite3_stmt *statement = db->idle[sql];

    db->idle[sql] = NULL;
    if (statement == NULL &&
        sqlite3_prepare_v3(db->handle, texts[sql], -1, SQLITE_PREPARE_PERSISTENT, &statement,
                           NULL) != SQLITE_OK) {
        (void)db_fail(db, "cannot ask the store", err);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (value_bind(statement, (int)i + 1, &values[i]) == SQLITE_OK)
            continue;
        (void)db_fail(db, "cannot ask the store", err);
        db_give(db, sql, statement);
        return NULL;
    }
    return statement;
}

void db_give(struct db *db, enum db_sql sql, sqlite3_stmt *statement)
{
    /* What either says was said by the step before. */
    (void)sqlite3_reset(statement);
    (void)sqlite3_clear_bindings(statement);
    if (db->idle[sql] == NULL)
        db->idle[sql] = statement;
    else
        (void)sqlite3_finalize(statement);
}

int db_step(struct db *db, sqlite3_stmt *statement, struct error *err)
{
    switch (sqlite3_step(statement)) {
    case SQLITE_ROW:
        return 1;
    case SQLITE_DONE:
        return 0;
    default:
        return db_fail(db, "the store did not take or give what was asked", err);
    }
}

int db_ask(struct db *db, enum db_sql sql, const struct db_value *values, size_t count,
           uint64_t *number, struct error *err)
{
    sqlite3_stmt *statement = db_take(db, sql, values, count, err);
    int status;

    if (statement == NULL)
        return -1;
    status = db_step(db, statement, err);
    if (status == 1 && sqlite3_column_type(statement, 0) == SQLITE_NULL)
        status = 0;
    if (status == 1 && number != NULL)
        *number = (uint64_t)sqlite3_column_int64(statement, 0);
    db_give(db, sql, statement);
    return status;
}

int db_do(struct db *db, enum db_sql sql, struct error *err)
{
    return db_ask(db, sql, NULL, 0, NULL, err);
}

void db_checkpoint(struct db *db)
{
    int pages = 0, moved = 0;

    /* Passive: it waits for nobody. What could not be moved now is moved by a later one. */
    if (sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &moved) ==
            SQLITE_OK &&
        moved == pages)
        db->wal_pages = 0; /* the next commit begins the log anew */
}
