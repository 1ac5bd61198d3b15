/* The layout of the database: see schema.h.
 *
 * A step that was released is never edited; a change is a new step at the end. What is read is checked
 * as a whole at every start: a damaged page is found then, and not by the one who needs it. */
#include "store/schema.h"

#include "base/fd.h"
#include "base/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* change has no values: who catches up is told the latest of a key, and a store stays as small as
 * what is in it. meta: "revision" (the last one given), "compacted" (the last change that is gone). */
static const char *const steps[] = {
    "CREATE TABLE meta (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID, STRICT;"
    "INSERT INTO meta VALUES ('revision', 0), ('compacted', 0);"
    "CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL)"
    " WITHOUT ROWID, STRICT;"
    "CREATE TABLE change (revision INTEGER PRIMARY KEY, key TEXT NOT NULL,"
    " deleted INTEGER NOT NULL) STRICT;"
    "CREATE TABLE lease (name TEXT PRIMARY KEY, owner TEXT NOT NULL, until_ms INTEGER NOT NULL)"
    " WITHOUT ROWID, STRICT;"
    "CREATE TABLE stream (name TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID, STRICT;"
    "CREATE TABLE entry (stream TEXT, sequence INTEGER, data BLOB NOT NULL,"
    " PRIMARY KEY (stream, sequence)) WITHOUT ROWID, STRICT;",
};

const struct schema schema_now = {steps, sizeof(steps) / sizeof(steps[0])};

static int first_cell(void *into, int columns, char **cells, char **names)
{
    (void)columns;
    (void)names;
    (void)snprintf(into, 128, "%s", cells[0] == NULL ? "" : cells[0]);
    return 0;
}

static int pragma_text(struct db *db, const char *pragma, char text[128], struct error *err)
{
    text[0] = '\0';
    if (sqlite3_exec(db->handle, pragma, first_cell, text, NULL) != SQLITE_OK)
        return db_fail(db, "cannot read the store", err);
    return 0;
}

static int check_whole(struct db *db, struct error *err)
{
    char text[128];

    if (pragma_text(db, "PRAGMA quick_check(1)", text, err) < 0)
        return -1;
    if (strcmp(text, "ok") == 0)
        return 0;
    return error_set(err, "store_corrupt", 0,
                     "the store is damaged (%.100s); put back a copy of its directory, or move it "
                     "away to begin with an empty one",
                     text);
}

/* What is there now, whole and on the disk before its name says so. */
static int copy_keep(struct db *db, const char *directory, unsigned version, struct error *err)
{
    char copy[4096], part[4096];
    char *sql;
    int status;
    _cleanup_close_ int fd = -1;
    _cleanup_close_ int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)snprintf(copy, sizeof(copy), "%s/store.db.schema-%u", directory, version);
    (void)snprintf(part, sizeof(part), "%s/store.db.schema-%u.part", directory, version);
    (void)unlink(part);
    sql = sqlite3_mprintf("VACUUM INTO %Q", part);
    status = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
    sqlite3_free(sql);
    if (status != SQLITE_OK)
        return db_fail(db, "cannot keep a copy of the store before its schema changes", err);
    fd = open(part, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || dir < 0 || fsync(fd) < 0 || rename(part, copy) < 0 || fsync(dir) < 0)
        return error_set(err, "store_failed", errno,
                         "cannot keep a copy of the store before its schema changes, %s", copy);
    return 0;
}

static int steps_take(struct db *db, unsigned version, const struct schema *schema,
                      struct error *err)
{
    char pragma[64];

    if (sqlite3_exec(db->handle, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return db_fail(db, "cannot change the schema of the store", err);
    (void)snprintf(pragma, sizeof(pragma), "PRAGMA user_version = %u", schema->count);
    for (; version < schema->count; version++)
        if (sqlite3_exec(db->handle, schema->steps[version], NULL, NULL, NULL) != SQLITE_OK)
            break;
    if (version == schema->count &&
        sqlite3_exec(db->handle, pragma, NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(db->handle, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    (void)db_fail(db, "cannot change the schema of the store", err);
    (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}

int schema_bring(struct db *db, const char *directory, const struct schema *schema,
                 struct error *err)
{
    char text[128];
    uint64_t version = 0;
    struct error ignored;

    if (check_whole(db, err) < 0 || pragma_text(db, "PRAGMA user_version", text, err) < 0)
        return -1;
    if (parse_count("schema", text, 0, schema->count, &version, &ignored) < 0)
        return error_set(err, "store_too_new", 0,
                         "the store has schema %.20s and this program knows none beyond %u; use a "
                         "newer cove, or put back the copy that was kept",
                         text, schema->count);
    if (version == schema->count)
        return 0;
    if (version > 0 && copy_keep(db, directory, (unsigned)version, err) < 0)
        return -1;
    return steps_take(db, (unsigned)version, schema, err);
}
