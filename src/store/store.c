/* The store's two threads: the loop's, which asks and is answered, and the writer's, which commits.
 *
 * Between them are two lists under one mutex, held for a few instructions at a time. The writer takes
 * all that has been asked meanwhile (up to a batch) and commits it at once, so that a hundred writes
 * cost one fdatasync. Only the loop's thread calls callbacks, never with the mutex held. */
#include "store/store_parts.h"

#include "base/clock.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Beyond these a batch ends, so that those in front are not answered late. */
#define BATCH_WRITES 1024
#define BATCH_BYTES (8U << 20)

#define FORMAT_NAME "cove-store "
static const char format[] = FORMAT_NAME "1\n";

/* ---- the writer's thread ---- */

/* What has been asked for, as one batch; NULL at the end. */
static struct write *batch_take(struct store *store)
{
    struct write *first, *last;
    size_t count = 1, bytes;

    (void)pthread_mutex_lock(&store->mutex);
    while (store->asked == NULL && !store->is_ending)
        (void)pthread_cond_wait(&store->work, &store->mutex);
    first = last = store->asked;
    bytes = first == NULL ? 0 : first->size;
    while (first != NULL && last->next != NULL && count < BATCH_WRITES && bytes < BATCH_BYTES) {
        last = last->next;
        count++;
        bytes += last->size;
    }
    if (first != NULL) {
        store->asked = last->next;
        if (store->asked == NULL)
            store->asked_end = &store->asked;
        last->next = NULL;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return first;
}

static void batch_answer(struct store *store, struct write *writes)
{
    (void)pthread_mutex_lock(&store->mutex);
    *store->answered_end = writes;
    while (*store->answered_end != NULL)
        store->answered_end = &(*store->answered_end)->next;
    (void)pthread_cond_signal(&store->answers);
    (void)pthread_mutex_unlock(&store->mutex);
    (void)uv_async_send(store->woken);
}

static void *writer_main(void *arg)
{
    struct store *store = arg;
    struct write *writes;
    struct sched_param none = {0};

    /* Else the kernel may run it at once in the place of the loop that woke it, which would then wait
     * for what it asked for only to be queued: store_put() took 100 us instead of some. */
    (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    while ((writes = batch_take(store)) != NULL) {
        writer_commit(&store->writer, writes);
        batch_answer(store, writes);
        if (store->writer.db.wal_pages >= WRITE_LOG_PAGES)
            db_checkpoint(&store->writer.db);
    }
    return NULL;
}

/* ---- answers ---- */

const struct histogram *store_commits(const struct store *store)
{
    return &store->commits;
}

static void write_finish(struct store *store, struct write *write)
{
    histogram_add(&store->commits, clock_monotonic_ns() - write->asked_ns);
    store->pending--;
    store->waiting_bytes -= write->size;
    if (write->is_change)
        watch_tell(store, write);
    if (write->done != NULL)
        write->done(write->arg, write->revision, write->failed ? &write->err : NULL);
    free(write);
}

/* Calls back for what has been answered so far. */
static void deliver(struct store *store)
{
    struct write *write;

    (void)pthread_mutex_lock(&store->mutex);
    write = store->answered;
    store->answered = NULL;
    store->answered_end = &store->answered;
    (void)pthread_mutex_unlock(&store->mutex);
    while (write != NULL) {
        struct write *next = write->next;

        write_finish(store, write);
        write = next;
    }
}

static void on_woken(uv_async_t *woken)
{
    struct store *store = woken->data;

    deliver(store);
    if (store->pending == 0)
        uv_unref((uv_handle_t *)woken);
}

/* ---- asking ---- */

static char *text_put(char **at, const char *text)
{
    char *copy = *at;
    size_t size = strlen(text) + 1;

    memcpy(copy, text, size);
    *at += size;
    return copy;
}

static struct write *write_new(enum write_kind kind, const char *key, const char *owner,
                               const void *data, size_t size)
{
    size_t texts = strlen(key) + 1 + strlen(owner) + 1;
    struct write *write = malloc(sizeof(*write) + texts + size + 1);
    char *at;

    if (write == NULL)
        return NULL;
    memset(write, 0, offsetof(struct write, err));
    at = (char *)(write + 1);
    write->kind = kind;
    write->key = text_put(&at, key);
    write->owner = text_put(&at, owner);
    if (data == NULL)
        return write;
    if (size > 0)
        memcpy(at, data, size);
    at[size] = '\0';
    write->data = at;
    write->size = size;
    return write;
}

/* What the bounds do not let in goes the same way as the rest, so that answers keep their order. */
static struct write *write_check(struct store *store, enum write_kind kind, const char *key,
                                 const char *owner, const void *data, size_t size)
{
    struct error err;
    struct write *write;

    if (*key == '\0' || strlen(key) > STORE_KEY_MAX || strlen(owner) > STORE_KEY_MAX)
        (void)error_set(&err, "store_failed", 0, "a key has 1 to %d bytes: \"%.32s...\"",
                        STORE_KEY_MAX, key);
    else if (data != NULL && size > STORE_VALUE_MAX)
        (void)error_set(&err, "store_failed", 0, "%.128s: %zu bytes are too many; the most is %u",
                        key, size, STORE_VALUE_MAX);
    else if (data != NULL && store->waiting_bytes + size > STORE_WAITING_BYTES)
        (void)error_set(&err, "store_failed", 0,
                        "%.128s: %zu bytes wait for the disk already, it is too slow; try again",
                        key, store->waiting_bytes);
    else
        return write_new(kind, key, owner, data, size);
    write = write_new(WRITE_REFUSED, "", "", NULL, 0);
    if (write == NULL)
        return NULL;
    write->err = err;
    write->failed = true;
    return write;
}

static void ask(struct store *store, enum write_kind kind, const char *key, const char *owner,
                const void *data, size_t size, uint64_t number, size_t leave, store_done done,
                void *arg)
{
    struct write *write = write_check(store, kind, key, owner, data, size);
    struct error err;

    if (write == NULL) {
        /* There is nothing left to remember it with. */
        (void)error_set(&err, "store_failed", ENOMEM, "%.128s was not written", key);
        if (done != NULL)
            done(arg, 0, &err);
        return;
    }
    write->number = number;
    write->leave = leave;
    write->asked_ns = clock_monotonic_ns();
    write->done = done;
    write->arg = arg;
    store->waiting_bytes += write->size;
    if (store->pending++ == 0)
        uv_ref((uv_handle_t *)store->woken);
    (void)pthread_mutex_lock(&store->mutex);
    *store->asked_end = write;
    store->asked_end = &write->next;
    (void)pthread_mutex_unlock(&store->mutex);
    (void)pthread_cond_signal(&store->work);
}

void store_put(struct store *store, const char *key, const void *data, size_t size,
               uint64_t if_revision, store_done done, void *arg)
{
    store_put_leaving(store, STORE_ROOM, key, data, size, if_revision, done, arg);
}

void store_put_leaving(struct store *store, size_t leave, const char *key, const void *data,
                       size_t size, uint64_t if_revision, store_done done, void *arg)
{
    ask(store, WRITE_PUT, key, "", data, size, if_revision, leave, done, arg);
}

int store_keep_room(struct store *store, struct error *err)
{
    return writer_keep_room(&store->writer, err);
}

void store_lease(struct store *store, const char *name, const char *owner, uint64_t ttl_ms,
                 store_done done, void *arg)
{
    ask(store, WRITE_LEASE, name, owner, NULL, 0, ttl_ms, STORE_ROOM, done, arg);
}

void store_publish(struct store *store, const char *stream, const void *data, size_t size,
                   uint64_t keep, store_done done, void *arg)
{
    ask(store, WRITE_PUBLISH, stream, "", data == NULL ? "" : data, data == NULL ? 0 : size, keep,
        STORE_ROOM, done, arg);
}

/* ---- opening ---- */

/* The directory, made if it is missing, with its name on the disk. */
static int directory_open(const char *path, struct error *err)
{
    _cleanup_close_ int dir = -1;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set(err, "store_failed", errno, "cannot make the directory %.300s", path);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        _cleanup_close_ int above = openat(dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (above >= 0)
            (void)fsync(above);
    }
    if (dir < 0)
        return error_set(err, "store_failed", errno, "cannot open the directory %.300s", path);
    return fd_take(&dir);
}

/* An flock, for it goes with the process however that ends. */
static int lock_take(int dir, const char *directory, struct error *err)
{
    _cleanup_close_ int fd = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return error_set(err, "store_failed", errno, "cannot open %.300s/lock", directory);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd_take(&fd);
    if (errno == EWOULDBLOCK)
        return error_set(err, "store_busy", 0,
                         "%.300s is in use by another process; stop that one first", directory);
    return error_set(err, "store_failed", errno, "cannot lock %.300s/lock", directory);
}

static int format_write(int dir)
{
    _cleanup_close_ int fd = openat(dir, "FORMAT.part",
                                    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0 || fd_write_full(fd, format, sizeof(format) - 1) < 0 || fsync(fd) < 0 ||
        renameat(dir, "FORMAT.part", dir, "FORMAT") < 0)
        return -1;
    return fsync(dir);
}

/* FORMAT says what files there are and how they are to be read; the schema within has a number of its
 * own. */
static int format_check(int dir, const char *directory, struct error *err)
{
    char text[64];

    if (fd_read_file(dir, "FORMAT", text, sizeof(text)) < 0) {
        if (errno != ENOENT)
            return error_set(err, "store_failed", errno, "cannot read %.300s/FORMAT", directory);
        if (faccessat(dir, "store.db", F_OK, 0) == 0)
            return error_set(err, "store_failed", 0,
                             "%.300s has a store.db but no FORMAT; it is no store of ours, or part "
                             "of a copy",
                             directory);
        if (format_write(dir) < 0)
            return error_set(err, "store_failed", errno, "cannot write %.300s/FORMAT", directory);
        return 0;
    }
    if (strcmp(text, format) == 0)
        return 0;
    if (strncmp(text, FORMAT_NAME, sizeof(FORMAT_NAME) - 1) == 0)
        return error_set(err, "store_too_new", 0,
                         "%.300s has format %.*s and this program knows 1; use a newer cove",
                         directory, (int)strcspn(text + sizeof(FORMAT_NAME) - 1, "\n"),
                         text + sizeof(FORMAT_NAME) - 1);
    return error_set(err, "store_corrupt", 0,
                     "%.300s/FORMAT is not that of a store; put back a copy of the directory",
                     directory);
}

/* All that can fail of opening; what it leaves is closed by store_free(). */
static int parts_open(struct store *store, const char *directory, const struct schema *schema,
                      struct error *err)
{
    _cleanup_close_ int dir = directory_open(directory, err);

    if (dir < 0)
        return -1;
    store->lock = lock_take(dir, directory, err);
    if (store->lock < 0 || format_check(dir, directory, err) < 0)
        return -1;
    if (writer_open(&store->writer, directory, schema, err) < 0 ||
        db_open(&store->reader, directory, false, err) < 0)
        return -1;
    /* The names of the database's files. */
    if (fsync(dir) < 0)
        return error_set(err, "store_failed", errno, "cannot write %.300s", directory);
    return 0;
}

static void woken_free(uv_handle_t *handle)
{
    free(handle);
}

static void store_free(struct store *store)
{
    db_close(&store->reader);
    /* The last connection moves the log into the database and removes it. */
    writer_close(&store->writer);
    fd_close(&store->lock);
    watch_end(store);
    if (store->woken != NULL)
        uv_close((uv_handle_t *)store->woken, woken_free);
    (void)pthread_cond_destroy(&store->work);
    (void)pthread_cond_destroy(&store->answers);
    (void)pthread_mutex_destroy(&store->mutex);
    free(store);
}

/* With all signals blocked: they are for the loop. */
static int thread_start(struct store *store, struct error *err)
{
    sigset_t all, old;
    int status;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    status = pthread_create(&store->thread, NULL, writer_main, store);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status == 0 ? 0 : error_set(err, "store_failed", status, "cannot start the writer");
}

static int woken_start(struct store *store, struct error *err)
{
    uv_async_t *woken = malloc(sizeof(*woken));
    int status = woken == NULL ? UV_ENOMEM : uv_async_init(store->loop, woken, on_woken);

    if (status < 0) {
        free(woken);
        return error_set(err, "store_failed", -status, "cannot wait for the writer");
    }
    woken->data = store;
    uv_unref((uv_handle_t *)woken);
    store->woken = woken;
    return 0;
}

int store_open_as(const char *directory, uv_loop_t *loop, const struct schema *schema,
                  struct store **out, struct error *err)
{
    struct store *store = calloc(1, sizeof(*store));

    if (store == NULL)
        return error_set(err, "store_failed", ENOMEM, "cannot open the store");
    store->loop = loop;
    store->lock = store->writer.log = -1;
    store->asked_end = &store->asked;
    store->answered_end = &store->answered;
    (void)pthread_mutex_init(&store->mutex, NULL);
    (void)pthread_cond_init(&store->work, NULL);
    (void)pthread_cond_init(&store->answers, NULL);
    if (parts_open(store, directory, schema, err) < 0 || woken_start(store, err) < 0 ||
        thread_start(store, err) < 0) {
        store_free(store);
        return -1;
    }
    *out = store;
    return 0;
}

int store_open(const char *directory, uv_loop_t *loop, struct store **out, struct error *err)
{
    return store_open_as(directory, loop, &schema_now, out, err);
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    while (store->pending > 0) {
        (void)pthread_mutex_lock(&store->mutex);
        while (store->answered == NULL)
            (void)pthread_cond_wait(&store->answers, &store->mutex);
        (void)pthread_mutex_unlock(&store->mutex);
        deliver(store);
    }
    (void)pthread_mutex_lock(&store->mutex);
    store->is_ending = true;
    (void)pthread_cond_signal(&store->work);
    (void)pthread_mutex_unlock(&store->mutex);
    (void)pthread_join(store->thread, NULL);
    store_free(store);
}
