/* What was there before this engine: records in the store, boxes and disks with the keeper, files. All
 * of it is brought together, and what a crash left half done is done or undone:
 *
 *   a name without its record, or a record without its name      the name is removed, or written
 *   a record that runs, and its box                              the box is taken over, and its network
 *   a record that runs, and no box                               it is stopped, and says why
 *   a box of a record that does not run, or of none              it is ended; so is one of the pool
 *   a disk or files that no record names                         removed, if all records can be read
 *
 * A store that does not know its host is new, or an old one's place was left empty: what lies beside it
 * then is somebody's, and stays until the operator has decided, over any number of starts. */
#include "base/fd.h"
#include "base/list.h"
#include "engine/parts.h"
#include "keeper/build.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef __clang__
/* The analyser of gcc 12 loses sight of a table that a function has made larger. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

struct box_there {
    struct box_there *next;
    uint64_t box;
    uint32_t protocol;
    char owner[KEEPER_ID_LENGTH + 4], disk[KEEPER_ID_LENGTH + 4];
    int fd;
};

struct disk_there {
    struct disk_there *next;
    char disk[KEEPER_ID_LENGTH + 4];
};

struct takeover {
    struct record **records; /* while the store is read */
    struct gone *gone;
    size_t count, room, gone_count, gone_room;
    size_t unreadable;
    bool is_new;      /* this store is younger than what may lie beside it */
    bool had_strays;  /* and an earlier start found that something does */
    bool had_stop;    /* an earlier keeper was told to end */
    struct map named; /* name keys of the store that are as they should be */
    struct box_there *boxes;
    struct disk_there *disks;
    char missing_reason[16]; /* why a box that should live does not */
};

/* ---- records ---- */

static void *grown(void *all, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return all;
    *room = *room > 0 ? 2 * *room : 64;
    all = reallocarray(all, *room, size);
    if (all == NULL)
        abort();
    return all;
}

static bool record_load(void *arg, const struct store_value *value)
{
    struct engine *engine = arg;
    struct takeover *takeover = engine->takeover;
    struct record *record;
    struct error err;

    if (record_parse(value->data, value->size, &record, &err) != 0)
        record = NULL;
    else if (strcmp(record->id, value->key + strlen("sandbox/")) != 0) {
        (void)error_set(&err, "bad_record", 0, "it is the record of sandbox %s", record->id);
        record_free(record);
        record = NULL;
    }
    if (record == NULL) {
        log_say(LOG_LEVEL_ERROR, "bad_record", "%s: %s", log_quote(value->key).text, err.text);
        takeover->unreadable++;
        return true;
    }
    record->revision = value->revision;
    if (record->serial > engine->serial)
        engine->serial = record->serial;
    if (record->state == SANDBOX_DELETED) {
        takeover->gone = grown(takeover->gone, takeover->gone_count, &takeover->gone_room,
                               sizeof(struct gone));
        takeover->gone[takeover->gone_count++] = gone_of(record->id, record->updated_ms);
        record_free(record);
        return true;
    }
    takeover->records = grown(takeover->records, takeover->count, &takeover->room,
                              sizeof(struct record *));
    takeover->records[takeover->count++] = record;
    return true;
}

static int by_serial(const void *a, const void *b)
{
    const struct record *const *x = a, *const *y = b;

    return (*x)->serial < (*y)->serial ? -1 : (*x)->serial > (*y)->serial;
}

static int by_end(const void *a, const void *b)
{
    const struct gone *x = a, *y = b;

    return x->at_s < y->at_s ? -1 : x->at_s > y->at_s;
}

static void records_take(struct engine *engine)
{
    struct takeover *takeover = engine->takeover;

    if (takeover->count > 0)
        qsort(takeover->records, takeover->count, sizeof(struct record *), by_serial);
    for (size_t i = 0; i < takeover->count; i++)
        (void)sandbox_new(engine, takeover->records[i]);
    if (takeover->gone_count > 0)
        qsort(takeover->gone, takeover->gone_count, sizeof(struct gone), by_end);
    for (size_t i = 0; i < takeover->gone_count; i++)
        gone_add(engine, takeover->gone[i]);
    free(takeover->records);
    free(takeover->gone);
    takeover->records = NULL;
    takeover->gone = NULL;
    takeover->count = takeover->gone_count = 0;
    gone_expire(engine);
}

/* ---- names ---- */

static void mended(void *arg, uint64_t revision, const struct error *err)
{
    (void)arg;
    (void)revision;
    if (err != NULL)
        log_say(LOG_LEVEL_WARN, "store_failed", "a name could not be mended: %s", err->text);
}

static bool name_load(void *arg, const struct store_value *value)
{
    struct engine *engine = arg;
    const char *name_key = value->key + strlen("name/");
    struct sandbox *sandbox = map_get(&engine->ids, value->data);

    if (sandbox != NULL && sandbox->name_key != NULL && strcmp(sandbox->name_key, name_key) == 0)
        map_put(&engine->takeover->named, sandbox->name_key, sandbox);
    else if (engine->takeover->unreadable == 0)
        store_put(engine->store, value->key, NULL, 0, STORE_ANY, mended, NULL);
    return true;
}

static void names_mend(struct engine *engine)
{
    char key[STORE_KEY_MAX];

    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer) {
        if (sandbox->name_key == NULL ||
            map_get(&engine->takeover->named, sandbox->name_key) != NULL)
            continue;
        (void)snprintf(key, sizeof(key), "name/%s", sandbox->name_key);
        store_put(engine->store, key, sandbox->id, strlen(sandbox->id), STORE_ANY, mended, NULL);
    }
}

/* ---- why a box is missing ---- */

#define STRAYS_KEY "host/strays"
#define STOPPED_KEY "host/stopped" /* the keeper that was told to end, and told the engine */
#define STAT_START 20 /* of /proc/PID/stat: fields from the end of the name to the start time */

/* When our parent was started, in ticks since boot; 0 where nobody says so. */
static unsigned long long parent_started(void)
{
    char stat[1024], path[64];
    const char *at;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)getppid());
    if (fd_read_file(AT_FDCWD, path, stat, sizeof(stat)) < 0)
        return 0;
    at = strrchr(stat, ')'); /* the name before it may be anything */
    for (unsigned i = 0; at != NULL && i < STAT_START; i++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

/* Which host and which keeper: "BOOT PID START". The keeper is our parent. */
static void keeper_identity(char text[128], size_t *boot_length)
{
    char boot[64] = "";

    (void)fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    boot[strcspn(boot, "\n")] = '\0';
    *boot_length = strlen(boot);
    (void)snprintf(text, 128, "%s %d %llu", boot, (int)getppid(), parent_started());
}

static void identity_kept(void *arg, uint64_t revision, const struct error *err)
{
    (void)arg;
    (void)revision;
    if (err != NULL)
        log_say(LOG_LEVEL_WARN, "store_failed", "which host this is could not be kept: %s",
                err->text);
}

/* 1: this store was made beside disks and files that it does not know. */
static int strays_were(struct engine *engine, struct error *err)
{
    struct store_value value;
    int got = store_get(engine->store, STRAYS_KEY, &value, err);

    if (got > 0)
        store_value_free(&value);
    return got;
}

void takeover_mark_stop(struct engine *engine)
{
    size_t boot_length;
    char now[128];

    if (engine->is_marked)
        return;
    engine->is_marked = true;
    keeper_identity(now, &boot_length);
    store_put(engine->store, STOPPED_KEY, now, strlen(now), STORE_ANY, identity_kept, NULL);
}

/* 1: the keeper of this identity ended because it was told to. */
static int was_stopped(struct engine *engine, const char *identity, struct error *err)
{
    struct store_value value;
    int got = store_get(engine->store, STOPPED_KEY, &value, err);

    if (got <= 0)
        return got;
    got = strcmp(value.data, identity) == 0;
    engine->takeover->had_stop = true;
    store_value_free(&value);
    return got;
}

static int identity_check(struct engine *engine, struct error *err)
{
    struct takeover *takeover = engine->takeover;
    const char *reason = "keeper_lost";
    struct store_value value;
    size_t boot_length;
    char now[128];
    int got = strays_were(engine, err);

    if (got < 0)
        return -1;
    takeover->is_new = takeover->had_strays = got > 0;
    keeper_identity(now, &boot_length);
    got = store_get(engine->store, "host/identity", &value, err);
    if (got < 0)
        return -1;
    if (got > 0) {
        const char *before = value.data;
        int stopped = was_stopped(engine, before, err);

        if (strcmp(before, now) == 0)
            reason = "box_ended";
        else if (stopped > 0)
            reason = "server_stopped";
        else if (strncmp(before, now, boot_length + 1) != 0)
            reason = "host_reboot";
        store_value_free(&value);
        if (stopped < 0)
            return -1;
    } else {
        takeover->is_new = true;
    }
    (void)snprintf(takeover->missing_reason, sizeof(takeover->missing_reason), "%s", reason);
    return 0;
}

int takeover_load(struct engine *engine, struct error *err)
{
    struct takeover *takeover = engine_alloc(sizeof(*takeover));

    engine->takeover = takeover;
    if (store_list(engine->store, "sandbox/", NULL, SIZE_MAX, record_load, engine, err) != 0)
        return -1;
    records_take(engine);
    if (store_list(engine->store, "name/", NULL, SIZE_MAX, name_load, engine, err) != 0)
        return -1;
    names_mend(engine);
    return identity_check(engine, err);
}

/* ---- what the keeper has ---- */

void takeover_box(void *arg, const struct keeper_box *box, int fd)
{
    struct engine *engine = arg;
    struct box_there *there;

    if (engine->takeover == NULL) {
        fd_close(&fd);
        return;
    }
    there = engine_alloc(sizeof(*there));
    there->box = box->box;
    there->protocol = box->protocol;
    memcpy(there->owner, box->owner, sizeof(there->owner));
    memcpy(there->disk, box->disk, sizeof(there->disk));
    there->fd = fd;
    there->next = engine->takeover->boxes;
    engine->takeover->boxes = there;
}

void takeover_disk(void *arg, const char *disk)
{
    struct engine *engine = arg;
    struct disk_there *there;

    if (engine->takeover == NULL)
        return;
    there = engine_alloc(sizeof(*there));
    (void)snprintf(there->disk, sizeof(there->disk), "%s", disk);
    there->next = engine->takeover->disks;
    engine->takeover->disks = there;
}

static bool disk_is_used(const struct engine *engine, const char *disk)
{
    for (const struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer)
        if (strcmp(sandbox->record->disk, disk) == 0)
            return true;
    return false;
}

static bool may_clear(const struct takeover *takeover)
{
    return takeover->unreadable == 0 && !takeover->is_new;
}

static void box_take(struct engine *engine, struct box_there *there)
{
    struct sandbox *sandbox = map_get(&engine->ids, there->owner);
    /* One whose disk is another was made in the place of a box that had ended, and never told of. */
    bool runs = sandbox != NULL && sandbox->record->state == SANDBOX_RUNNING && sandbox->box == 0 &&
                strcmp(there->disk, sandbox->record->disk) == 0;
    struct link *link;
    struct error err;

    if (!runs) {
        bool drops = !disk_is_used(engine, there->disk) && may_clear(engine->takeover);

        pool_discard(engine, there->box, drops ? there->disk : "");
        return;
    }
    sandbox->box = there->box;
    sandbox->spent_unknown = true;
    if (outdated_is(engine, there->protocol)) {
        outdated_take(sandbox, there->protocol, &there->fd);
        sandbox_push(sandbox, verb_new(VERB_NETWORK, NULL));
        return;
    }
    if (link_open(fd_take(&there->fd), &link, &err) == 0 &&
        sandbox_attach(sandbox, link, false, &err) == 0) {
        ports_begin(sandbox, false);
        sandbox_push(sandbox, verb_new(VERB_NETWORK, NULL));
        return;
    }
    log_say(LOG_LEVEL_WARN, "sandbox_failed", "sandbox %s: its box could not be taken over: %s",
            sandbox->id, err.text);
    sandbox_fall(sandbox, "box_ended");
}

static void boxes_take(struct engine *engine)
{
    struct takeover *takeover = engine->takeover;

    for (struct box_there *there = takeover->boxes; there != NULL; there = there->next)
        box_take(engine, there);
    for (struct sandbox *sandbox = engine->oldest; sandbox != NULL; sandbox = sandbox->newer) {
        if (sandbox->record->state == SANDBOX_RUNNING && sandbox->box == 0)
            sandbox_fall(sandbox, takeover->missing_reason);
        sandbox_arm(sandbox);
    }
}

static bool disk_is_stray(const struct engine *engine, const char *disk)
{
    if (disk_is_used(engine, disk))
        return false;
    for (const struct box_there *box = engine->takeover->boxes; box != NULL; box = box->next)
        if (strcmp(box->disk, disk) == 0) /* goes when the box has ended */
            return false;
    return true;
}

/* How many there are; with `drop` they are removed. */
static size_t disks_stray(struct engine *engine, bool drop)
{
    size_t count = 0;

    for (const struct disk_there *disk = engine->takeover->disks; disk != NULL; disk = disk->next) {
        if (!disk_is_stray(engine, disk->disk))
            continue;
        count++;
        if (drop)
            sandbox_drop_disk(engine, disk->disk);
    }
    return count;
}

static size_t files_stray(struct engine *engine, bool drop)
{
    DIR *dir = list_open(engine->sandboxes_dir, ".");
    const struct dirent *entry;
    size_t count = 0;

    if (dir == NULL)
        return 0;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || map_get(&engine->ids, entry->d_name) != NULL)
            continue;
        count++;
        if (drop)
            engine_remove_files(engine, entry->d_name);
    }
    (void)closedir(dir);
    return count;
}

/* Until the operator has put the right store back or removed them, or there are none. */
static void strays_keep(struct engine *engine)
{
    size_t disks = disks_stray(engine, false), files = files_stray(engine, false);

    if (disks + files == 0) {
        if (engine->takeover->had_strays)
            store_put(engine->store, STRAYS_KEY, NULL, 0, STORE_ANY, identity_kept, NULL);
        return;
    }
    log_say(LOG_LEVEL_ERROR, "strays",
            "this store does not know what lies beside it, and leaves it there: disks %zu, output "
            "of sandboxes %zu; put the store back that does, or remove them by hand",
            disks, files);
    store_put(engine->store, STRAYS_KEY, "1", 1, STORE_ANY, identity_kept, NULL);
}

void takeover_free(struct engine *engine)
{
    struct takeover *takeover = engine->takeover;

    if (takeover == NULL)
        return;
    engine->takeover = NULL;
    for (size_t i = 0; i < takeover->count; i++)
        record_free(takeover->records[i]);
    free(takeover->records);
    free(takeover->gone);
    for (struct box_there *box = takeover->boxes, *next; box != NULL; box = next) {
        next = box->next;
        fd_close(&box->fd);
        free(box);
    }
    for (struct disk_there *disk = takeover->disks, *next; disk != NULL; disk = next) {
        next = disk->next;
        free(disk);
    }
    map_free(&takeover->named);
    free(takeover);
}

static void greeted(void *arg, const union keeper_answer *answer, int fd, const struct error *err)
{
    struct engine *engine = arg;
    size_t boot_length;
    char now[128];

    (void)answer;
    fd_close(&fd);
    if (engine->is_closing)
        return;
    if (err != NULL) {
        takeover_free(engine);
        engine->opened(engine->opened_arg, err);
        return;
    }
    keeper_identity(now, &boot_length);
    store_put(engine->store, "host/identity", now, strlen(now), STORE_ANY, identity_kept, NULL);
    engine->is_ready = true;
    boxes_take(engine);
    if (engine->takeover->had_stop) /* behind what it was the reason of */
        store_put(engine->store, STOPPED_KEY, NULL, 0, STORE_ANY, identity_kept, NULL);
    if (engine->takeover->is_new)
        strays_keep(engine);
    if (may_clear(engine->takeover)) {
        (void)disks_stray(engine, true);
        (void)files_stray(engine, true);
    }
    takeover_free(engine);
    spent_look(engine); /* from what on it counts */
    /* Who asks from now on is not told that a sandbox runs whose box is gone. */
    engine->is_opening = true;
    engine_settled(engine);
}

void takeover_begin(struct engine *engine)
{
    /* Whole among the bytes of this program, where an upgrade looks for it. */
    static const char build[KEEPER_BUILD_MAX] __attribute__((used)) = KEEPER_BUILD;
    union keeper_request request;

    memset(&request, 0, sizeof(request));
    memcpy(request.hello.build, build, sizeof(build));
    keeper_client_ask(engine->keeper, KEEPER_HELLO, &request, greeted, engine);
}
