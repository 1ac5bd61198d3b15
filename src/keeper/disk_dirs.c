/* Disks that are directories: see disk_dirs.h. */
#include "keeper/disk_dirs.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/remove.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel unmounts what a box had after the box is gone, and a guard may outlive its keeper. */
#define LOCK_WAIT_MS 15000
#define LOCK_LOOK_MS 5
#define CLAIMS_RETRY_S (2 * LOCK_WAIT_MS / 1000)
#define IDS_WAIT_MS 2000 /* the guard that had the disk's lock has them, too */

#define IDS_FILE "ids"
#define FILES "files"
#define TEXT_SIZE 160

bool disk_is_dir_name(const char *name)
{
    return strlen(name) == KEEPER_ID_LENGTH &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789") == KEEPER_ID_LENGTH;
}

int disk_lock_wait(int fd, struct error *err)
{
    for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited += LOCK_LOOK_MS) {
        if (errno != EWOULDBLOCK || waited >= LOCK_WAIT_MS)
            return error_set(err, "disk_in_use", errno, "another box has this disk still");
        (void)poll(NULL, 0, LOCK_LOOK_MS);
    }
    return 0;
}

/* ---- which ids ---- */

static const char *const kinds[] = {"range", "slice", "single"};
static const char *const lends[] = {"none", "root", "user"};

static int print(const struct disk_kept *kept, char text[TEXT_SIZE])
{
    return snprintf(text, TEXT_SIZE, "cove disk 1\nids %s %u %u %u\nlends %s\n",
                    kinds[kept->ids.kind], kept->ids.first, kept->ids.first_group, kept->ids.slots,
                    lends[kept->lends]);
}

static bool word_take(const char **at, const char *word)
{
    size_t length = strlen(word);

    if (strncmp(*at, word, length) != 0)
        return false;
    *at += length;
    return true;
}

static size_t choice_take(const char **at, const char *const words[3])
{
    for (size_t i = 0; i < 3; i++)
        if (word_take(at, words[i]))
            return i;
    return 3;
}

static uint32_t number_take(const char **at)
{
    char *end;
    unsigned long number = strtoul(*at, &end, 10);

    *at = end;
    return number > UINT32_MAX ? 0 : (uint32_t)number;
}

/* Whatever is not, byte for byte, what would be written is wrong. */
static bool parse(const char *text, struct disk_kept *kept)
{
    const char *at = text;
    char again[TEXT_SIZE];
    struct ids *ids = &kept->ids;
    size_t kind, lent;

    if (!word_take(&at, "cove disk 1\nids ") || (kind = choice_take(&at, kinds)) == 3)
        return false;
    ids->kind = (enum ids_kind)kind;
    ids->first = number_take(&at);
    ids->first_group = number_take(&at);
    ids->slots = number_take(&at);
    if (!word_take(&at, "\nlends ") || (lent = choice_take(&at, lends)) == 3)
        return false;
    kept->lends = (enum disk_lends)lent;
    ids->count = ids->kind == IDS_RANGE ? IDS_COUNT : ids->kind == IDS_SLICED ? IDS_SLICE : 0;
    (void)print(kept, again);
    return strcmp(text, again) == 0;
}

static int ids_read(int directory, struct disk_kept *kept, struct error *err)
{
    char text[TEXT_SIZE];
    struct stat st;

    if (fstatat(directory, IDS_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        st.st_uid == geteuid() && fd_read_file(directory, IDS_FILE, text, sizeof(text)) > 0 &&
        parse(text, kept))
        return 0;
    return error_set(err, "disk_ids", 0,
                     "the file that says which ids the disk's files belong to is missing or "
                     "damaged: put it back from a copy, or remove the sandbox");
}

static int ids_write(int directory, const struct disk_kept *kept)
{
    _cleanup_close_ int fd = openat(directory, IDS_FILE,
                                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    char text[TEXT_SIZE];
    int length = print(kept, text);

    return fd < 0 || fd_write_full(fd, text, (size_t)length) < 0 || fsync(fd) < 0 ? -1 : 0;
}

/* ---- taking ids, through a pool of which the lock alone is kept ---- */

static int pool_open(struct ids_pool *pool, const struct caller *caller, struct error *err)
{
    char why[100];

    if (caller->maps && caller->on_host)
        return ids_open(pool, err);
    return ids_open_user(pool, caller, why, sizeof(why), err);
}

static int ids_take_new(const struct caller *caller, struct disk_kept *out, struct error *err)
{
    static struct ids_pool pool;
    int taken;

    if (caller->uid == 0 && caller->on_host && !caller->maps)
        return error_set(err, "no_ids", 0,
                         "this root may not give a box other ids than its own (it lacks CAP_SETUID "
                         "or CAP_SETGID): give it these capabilities, or run cove as an ordinary "
                         "user");
    if (pool_open(&pool, caller, err) < 0)
        return -1;
    taken = caller->maps && caller->on_host ? ids_take(&pool, &out->ids, err)
                                            : ids_take_user(&pool, caller, &out->ids, err);
    if (taken == 0 && out->ids.kind != IDS_SINGLE)
        out->ids_lock = fd_take(&pool.lock);
    ids_close(&pool);
    return taken;
}

/* What a killed keeper's guard still holds is free in a moment. */
static int ids_take_old(const struct caller *caller, bool is_claimed, struct disk_kept *out,
                        int wait_ms, struct error *err)
{
    static struct ids_pool pool;
    int taken;

    if (pool_open(&pool, caller, err) < 0)
        return -1;
    for (int waited = 0;; waited += LOCK_LOOK_MS) {
        taken = ids_take_again(&pool, caller, is_claimed, &out->ids, err);
        if (taken == 0 || strcmp(err->code, "ids_in_use") != 0 || waited >= wait_ms)
            break;
        (void)poll(NULL, 0, LOCK_LOOK_MS);
    }
    if (taken < 0 && strcmp(err->code, "ids_in_use") == 0)
        (void)snprintf(err->code, sizeof(err->code), "disk_in_use");
    if (taken == 0 && !is_claimed && out->ids.kind != IDS_SINGLE)
        out->ids_lock = fd_take(&pool.lock);
    ids_close(&pool);
    return taken;
}

/* ---- opening and making ---- */

static int directory_open(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int disk_dir_open(int disks, const struct caller *caller, const char *disk, bool is_claimed,
                  struct disk_kept *out, struct error *err)
{
    _cleanup_close_ int directory = directory_open(disks, disk);
    _cleanup_close_ int files = directory_open(directory, FILES);

    if (files < 0)
        return error_set(err, "disk_failed", errno, "cannot open a disk");
    if (ids_read(directory, out, err) < 0 || disk_lock_wait(files, err) < 0 ||
        ids_take_old(caller, is_claimed, out, IDS_WAIT_MS, err) < 0)
        return -1;
    out->fd = fd_take(&files);
    return 0;
}

/* Everybody may write to the files, whichever ids those will be: nobody else comes that far. */
static int fill(int directory, const struct disk_kept *kept)
{
    _cleanup_close_ int files = -1;

    if (mkdirat(directory, FILES, 0777) < 0 || (files = directory_open(directory, FILES)) < 0 ||
        fchmod(files, 0777) < 0 || ids_write(directory, kept) < 0 || fsync(directory) < 0)
        return -1;
    return flock(files, LOCK_EX | LOCK_NB) < 0 ? -1 : fd_take(&files);
}

int disk_dir_make(int disks, const struct caller *caller, const char *disk,
                  const struct box_spec *spec, struct disk_kept *out, struct error *err)
{
    _cleanup_close_ int directory = -1, files = -1;
    char fresh[DISK_ID_SIZE + 8];

    if (ids_take_new(caller, out, err) < 0)
        return -1;
    out->lends = disk_lends_of(caller, spec, out->ids.kind);
    (void)snprintf(fresh, sizeof(fresh), "%.20s" DISK_NEW, disk);
    (void)remove_tree(disks, fresh); /* what a killed one left, which no box has seen */
    if (mkdirat(disks, fresh, 0700) == 0 && (directory = directory_open(disks, fresh)) >= 0)
        files = fill(directory, out);
    if (files < 0 || renameat2(disks, fresh, disks, disk, RENAME_NOREPLACE) < 0 ||
        fsync(disks) < 0) {
        (void)error_set(err, "disk_failed", errno, "cannot make a disk");
        (void)remove_tree(disks, fresh);
        return -1;
    }
    out->fd = fd_take(&files);
    return 0;
}

int disk_dir_weigh(int disks, const char *disk, uint64_t *bytes)
{
    _cleanup_close_ int directory = directory_open(disks, disk);
    _cleanup_close_ int files = directory_open(directory, FILES);

    return files < 0 ? -1 : disk_counted(files, bytes);
}

/* ---- what is locked ---- */

static struct disk_claim *claim_of(const struct disk_claims *claims, const char *disk)
{
    for (size_t i = 0; i < claims->count; i++)
        if (strcmp(claims->table[i].disk, disk) == 0)
            return &claims->table[i];
    return NULL;
}

int disk_claims_find(const struct disk_claims *claims, const char *disk)
{
    const struct disk_claim *claim = claim_of(claims, disk);

    return claim != NULL ? claim->lock : -1;
}

void disk_claims_add(struct disk_claims *claims, const char *disk, int lock)
{
    if (claims->count == claims->room) {
        size_t room = claims->room + claims->room / 2 + 16;
        struct disk_claim *table = reallocarray(claims->table, room, sizeof(*table));

        if (table == NULL) { /* it is taken again when the disk is opened */
            (void)close(lock);
            return;
        }
        claims->table = table;
        claims->room = room;
    }
    claims->table[claims->count].lock = lock;
    (void)snprintf(claims->table[claims->count++].disk, DISK_ID_SIZE, "%.20s", disk);
}

void disk_claims_drop(struct disk_claims *claims, const char *disk)
{
    struct disk_claim *claim = claim_of(claims, disk);

    if (claim == NULL)
        return;
    fd_close(&claim->lock);
    *claim = claims->table[--claims->count];
}

static void take_one(struct disk_claims *claims, int disks, const struct caller *caller,
                     const char *disk, bool is_told)
{
    _cleanup_close_ int directory = directory_open(disks, disk);
    struct disk_kept kept = {.fd = -1, .ids_lock = -1};
    struct error err;

    if (directory < 0 || ids_read(directory, &kept, &err) < 0 ||
        ids_take_old(caller, false, &kept, 0, &err) < 0) {
        if (!is_told)
            keeper_say("disk_ids", "disk %s: %s", disk,
                       directory < 0 ? "it cannot be opened" : err.text);
        claims->lacks = true;
        return;
    }
    if (kept.ids_lock >= 0)
        disk_claims_add(claims, disk, kept.ids_lock);
}

void disk_claims_take(struct disk_claims *claims, int disks, const struct caller *caller)
{
    DIR *list = list_open(disks, ".");
    const struct dirent *entry;
    bool is_told = claims->lacks;

    claims->lacks = list == NULL;
    if (claims->until_s == 0)
        claims->until_s = (uint32_t)(clock_monotonic_ns() / 1000000000U) + CLAIMS_RETRY_S;
    while (list != NULL && (entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (disk_is_dir_name(entry->d_name) && claim_of(claims, entry->d_name) == NULL)
            take_one(claims, disks, caller, entry->d_name, is_told);
    if (list != NULL)
        (void)closedir(list);
}

void disk_claims_retry(struct disk_claims *claims, int disks, const struct caller *caller)
{
    if (claims->lacks && clock_monotonic_ns() / 1000000000U < claims->until_s)
        disk_claims_take(claims, disks, caller);
}
