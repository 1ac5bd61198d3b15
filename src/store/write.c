/* Writes: see write.h.
 *
 * All of a batch is one transaction. A conflict changes nothing, so the rest of its batch is not
 * concerned. Where the database itself refuses something, the whole batch is rolled back and each
 * write is tried again alone: one that is too big for a full disk must not take others with it. No
 * answer says "done" before the commit that holds it is on the disk.
 *
 * The log has blocks ahead of what is in use. So what makes room can be written when the disk is full, even
 * where free blocks are root's alone (ext4 keeps some): a file that was given up for it would not help. */
#include "store/write.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define LOG_PAGE (4096 + 24) /* with its header */
#define LOG_STEP (256 << 10) /* blocks are taken in such steps */
#define BATCH_PAGES 8        /* that a commit changes besides a page or two of each write */

/* What a batch counts up; true for the writer when it is committed. */
struct batch {
    struct db *db;
    uint64_t revision, compacted;
};

int writer_open(struct writer *writer, const char *directory, const struct schema *schema,
                struct error *err)
{
    struct db *db = &writer->db;
    char path[4096];
    int status;

    if (db_open(db, directory, true, err) < 0)
        return -1;
    if (schema_bring(db, directory, schema, err) < 0)
        return error_wrap(err, "%.200s/store.db", directory);
    status = db_ask(db, SQL_META_GET, DB_VALUES(db_text("revision")), &writer->revision, err);
    if (status == 1)
        status = db_ask(db, SQL_META_GET, DB_VALUES(db_text("compacted")), &writer->compacted, err);
    if (status == 0)
        return error_set(err, "store_corrupt", 0,
                         "%.200s/store.db has lost its counters; put back a copy of the directory",
                         directory);
    if (status < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/store.db-wal", directory);
    writer->log = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return writer->log < 0 ? error_set(err, "store_failed", errno, "cannot open %.300s", path) : 0;
}

void writer_close(struct writer *writer)
{
    db_close(&writer->db);
    fd_close(&writer->log);
}

static off_t in_steps(off_t bytes)
{
    return (bytes + LOG_STEP - 1) / LOG_STEP * LOG_STEP;
}

int writer_keep_room(struct writer *writer, struct error *err)
{
    struct stat st;

    if (fstat(writer->log, &st) < 0)
        return error_set(err, "store_failed", errno, "the store's log");
    if (fallocate(writer->log, FALLOC_FL_KEEP_SIZE, 0, in_steps(st.st_size + STORE_ROOM)) == 0) {
        writer->keeps_room = true;
        return 0;
    }
    if (errno == EOPNOTSUPP)
        return 0;
    /* A log that a crash has left has room of before. */
    if (st.st_blocks * 512 >= STORE_ROOM)
        writer->keeps_room = true;
    return error_set(err, "store_failed", errno, "the store's log");
}

/* Whether the log can take these writes and still has the room that they are to leave. */
static int batch_has_room(struct writer *writer, const struct write *first, const struct write *end,
                          struct error *err)
{
    off_t need = (off_t)(writer->db.wal_pages + BATCH_PAGES) * LOG_PAGE;
    size_t leave = 0;

    if (!writer->keeps_room)
        return 0;
    for (const struct write *write = first; write != end; write = write->next) {
        need += (off_t)write->size + LOG_PAGE;
        if (write->leave > leave)
            leave = write->leave;
    }
    need = in_steps(need + (off_t)leave);
    if (need <= writer->log_blocks)
        return 0;
    if (fallocate(writer->log, FALLOC_FL_KEEP_SIZE, 0, need) < 0)
        return error_set(err, "store_failed", errno,
                         "the store did not take what was asked; make room where it lies");
    writer->log_blocks = need;
    return 0;
}

static int conflict(struct write *write, uint64_t has)
{
    write->revision = has;
    if (has == 0)
        (void)error_set(&write->err, "conflict", 0,
                        "%.128s is not there any more; read it again, then decide", write->key);
    else if (write->number == 0)
        (void)error_set(&write->err, "conflict", 0, "%.128s is there already", write->key);
    else
        (void)error_set(&write->err, "conflict", 0,
                        "%.128s was changed meanwhile: it has revision %" PRIu64 ", not %" PRIu64
                        "; read it again, then decide",
                        write->key, has, write->number);
    write->failed = true;
    return 0;
}

static int put_change(struct batch *batch, struct write *write, struct error *err)
{
    struct db *db = batch->db;
    uint64_t revision = batch->revision + 1;
    int status;

    if (write->data == NULL)
        status = db_ask(db, SQL_DELETE, DB_VALUES(db_text(write->key)), NULL, err);
    else
        status = db_ask(
            db, SQL_PUT,
            DB_VALUES(db_text(write->key), db_bytes(write->data, write->size), db_number(revision)),
            NULL, err);
    if (status < 0 ||
        db_ask(db, SQL_CHANGE_ADD,
               DB_VALUES(db_number(revision), db_text(write->key), db_number(write->data == NULL)),
               NULL, err) < 0)
        return -1;
    batch->revision = write->revision = revision;
    write->is_change = true;
    return 0;
}

static int put(struct batch *batch, struct write *write, struct error *err)
{
    uint64_t has = 0;

    if (db_ask(batch->db, SQL_REVISION_OF, DB_VALUES(db_text(write->key)), &has, err) < 0)
        return -1;
    if (write->number != STORE_ANY && write->number != has)
        return conflict(write, has);
    if (write->data == NULL && has == 0)
        return 0; /* it is not there, as was asked for */
    return put_change(batch, write, err);
}

static int lease(struct batch *batch, struct write *write, struct error *err)
{
    uint64_t now = clock_wall_ms(), until = 0;
    int other = db_ask(batch->db, SQL_LEASE_OTHER,
                       DB_VALUES(db_text(write->key), db_text(write->owner), db_number(now)),
                       &until, err);

    if (other < 0)
        return -1;
    if (other == 1) {
        write->failed = true;
        (void)error_set(&write->err, "conflict", 0,
                        "%.128s is another's for %" PRIu64 " ms more; try again then", write->key,
                        until - now);
        return 0;
    }
    if (write->number == 0)
        return db_ask(batch->db, SQL_LEASE_DROP, DB_VALUES(db_text(write->key)), NULL, err);
    if (__builtin_add_overflow(now, write->number, &until))
        until = INT64_MAX;
    if (db_ask(batch->db, SQL_LEASE_SET,
               DB_VALUES(db_text(write->key), db_text(write->owner), db_number(until)), NULL,
               err) < 0)
        return -1;
    write->revision = ++batch->revision;
    return 0;
}

static int publish(struct batch *batch, struct write *write, struct error *err)
{
    struct db *db = batch->db;
    uint64_t sequence = 1;

    if (db_ask(db, SQL_STREAM_NEXT, DB_VALUES(db_text(write->key)), &sequence, err) < 0 ||
        db_ask(
            db, SQL_STREAM_ADD,
            DB_VALUES(db_text(write->key), db_number(sequence), db_bytes(write->data, write->size)),
            NULL, err) < 0 ||
        db_ask(db, SQL_STREAM_SET, DB_VALUES(db_text(write->key), db_number(sequence + 1)), NULL,
               err) < 0)
        return -1;
    if (sequence > write->number &&
        db_ask(db, SQL_STREAM_TRIM,
               DB_VALUES(db_text(write->key), db_number(sequence - write->number)), NULL, err) < 0)
        return -1;
    write->revision = sequence;
    return 0;
}

static int write_do(struct batch *batch, struct write *write, struct error *err)
{
    write->is_change = false;
    write->revision = 0;
    if (write->kind == WRITE_REFUSED)
        return 0;
    write->failed = false;
    switch (write->kind) {
    case WRITE_PUT:
        return put(batch, write, err);
    case WRITE_LEASE:
        return lease(batch, write, err);
    case WRITE_PUBLISH:
        return publish(batch, write, err);
    case WRITE_REFUSED:
        break;
    }
    return 0;
}

static int batch_end(struct batch *batch, const struct writer *writer, struct error *err)
{
    if (batch->revision == writer->revision)
        return 0;
    if (batch->revision > batch->compacted + WRITE_CHANGES) {
        batch->compacted = batch->revision - WRITE_CHANGES;
        if (db_ask(batch->db, SQL_CHANGE_TRIM, DB_VALUES(db_number(batch->compacted)), NULL, err) <
                0 ||
            db_ask(batch->db, SQL_META_SET,
                   DB_VALUES(db_text("compacted"), db_number(batch->compacted)), NULL, err) < 0)
            return -1;
    }
    return db_ask(batch->db, SQL_META_SET,
                  DB_VALUES(db_text("revision"), db_number(batch->revision)), NULL, err);
}

/* The writes from `first` up to, not including, `end`, as one transaction. */
static int batch_commit(struct writer *writer, struct write *first, const struct write *end,
                        struct error *err)
{
    struct batch batch = {&writer->db, writer->revision, writer->compacted};
    struct error ignored;
    int status;

    if (batch_has_room(writer, first, end, err) < 0 || db_do(batch.db, SQL_BEGIN, err) < 0)
        return -1;
    status = 0;
    for (struct write *write = first; status == 0 && write != end; write = write->next)
        status = write_do(&batch, write, err);
    if (status == 0)
        status = batch_end(&batch, writer, err);
    if (status == 0)
        status = db_do(batch.db, SQL_COMMIT, err);
    if (status < 0) {
        /* Some failures have ended it already. */
        if (!sqlite3_get_autocommit(batch.db->handle))
            (void)db_do(batch.db, SQL_ROLLBACK, &ignored);
        return -1;
    }
    writer->revision = batch.revision;
    writer->compacted = batch.compacted;
    return 0;
}

void writer_commit(struct writer *writer, struct write *writes)
{
    struct error err;

    if (batch_commit(writer, writes, NULL, &err) == 0)
        return;
    for (struct write *write = writes; write != NULL; write = write->next) {
        if (batch_commit(writer, write, write->next, &err) == 0)
            continue;
        write->failed = true;
        write->is_change = false;
        write->revision = 0;
        if (write->kind != WRITE_REFUSED)
            write->err = err;
    }
}
