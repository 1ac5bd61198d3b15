/* One connection to the database, and the only header that shows SQLite's types; no header outside
 * this room includes it.
 *
 * Statements are a closed list, prepared when they are first used. A connection belongs to one
 * thread. */
#pragma once

#include "base/err.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum db_sql {
    SQL_BEGIN,
    SQL_BEGIN_READ,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_META_GET,
    SQL_META_SET,
    SQL_REVISION_OF,
    SQL_PUT,
    SQL_DELETE,
    SQL_CHANGE_ADD,
    SQL_CHANGE_TRIM,
    SQL_LEASE_OTHER,
    SQL_LEASE_SET,
    SQL_LEASE_DROP,
    SQL_STREAM_NEXT,
    SQL_STREAM_SET,
    SQL_STREAM_ADD,
    SQL_STREAM_TRIM,
    SQL_GET,
    SQL_LIST_FROM,
    SQL_LIST_AFTER,
    SQL_CHANGES,
    SQL_STREAM_FIRST,
    SQL_STREAM_READ,
    SQL_COUNT,
};

struct db {
    sqlite3 *handle;
    sqlite3_stmt *idle[SQL_COUNT]; /* NULL: not prepared yet, or in use */
    int wal_pages;                 /* after the last commit of this connection */
};

/* The database below `directory`, which is there; made where it is missing. */
int db_open(struct db *db, const char *directory, bool may_write, struct error *err);
void db_close(struct db *db);

/* What SQLite said, as an error that begins with `doing`: "store_corrupt", or "store_failed", with ENOSPC
 * where there is no room. */
int db_fail(struct db *db, const char *doing, struct error *err);

/* A value to bind; bytes are not copied. */
struct db_value {
    enum { DB_TEXT, DB_NUMBER, DB_BYTES } type;
    const void *data;
    uint64_t number; /* or the size */
};
struct db_value db_text(const char *text);
struct db_value db_number(uint64_t number);
struct db_value db_bytes(const void *data, size_t size);

/* For a statement that gives rows: taken, bound and given back. A second one of the same kind may be
 * taken meanwhile, by a callback say. */
sqlite3_stmt *db_take(struct db *db, enum db_sql sql, const struct db_value *values, size_t count,
                      struct error *err);
void db_give(struct db *db, enum db_sql sql, sqlite3_stmt *statement);
/* 1: a row; 0: no more; -1. */
int db_step(struct db *db, sqlite3_stmt *statement, struct error *err);

/* Runs a statement: 1 and the first number of its first row, 0 where it has none, -1. */
int db_ask(struct db *db, enum db_sql sql, const struct db_value *values, size_t count,
           uint64_t *number, struct error *err);

#define DB_VALUES(...)                      \
    (const struct db_value[]){__VA_ARGS__}, \
        sizeof((const struct db_value[]){__VA_ARGS__}) / sizeof(struct db_value)

int db_do(struct db *db, enum db_sql sql, struct error *err); /* one without values */

/* Moves what has been committed from the log into the database, if nobody reads. */
void db_checkpoint(struct db *db);
