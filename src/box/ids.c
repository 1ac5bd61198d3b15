/* Id ranges: see ids.h.
 *
 * Open-file-description locks never conflict with themselves, so what this pool took is also noted
 * in its bitmap. The entries of /etc/subuid and /etc/subgid are marked there once; a file of them
 * that cannot be read to its end is an error, for an id given twice is a hole between two users. */
#include "box/ids.h"

#include "base/fd.h"
#include "box/ids_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDS_DIRECTORY "/run/cove"
#define IDS_LOCK "ids.lock"

/* Some sites give each of their thousands of people an entry; this is room for 100,000. */
#define SUBIDS_SIZE_MAX (4U << 20)

bool ids_slot_is_taken(const struct ids_pool *pool, uint32_t slot)
{
    return (pool->taken[slot / 8] & 1U << slot % 8) != 0;
}

void ids_slot_mark(struct ids_pool *pool, uint32_t slot, bool taken)
{
    unsigned bit = 1U << slot % 8;

    pool->taken[slot / 8] = (uint8_t)(taken ? pool->taken[slot / 8] | bit
                                            : pool->taken[slot / 8] & ~bit);
}

/* ---- /etc/subuid and /etc/subgid ---- */

/* Digits up to the end mark, which is passed; what is too large for anything is UINT64_MAX. */
bool ids_number_read(const char **at, const char *end, char mark, uint64_t *value)
{
    const char *start = *at;

    *value = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++)
        if (__builtin_mul_overflow(*value, 10U, value) ||
            __builtin_add_overflow(*value, (unsigned)(**at - '0'), value))
            *value = UINT64_MAX;
    if (*at == start)
        return false;
    if (*at == end)
        return mark == '\0';
    return *(*at)++ == mark;
}

/* NAME:FIRST:COUNT. A line of another form grants nothing to anybody, so it takes nothing. */
static void line_take(struct ids_pool *pool, const char *line, const char *end)
{
    const char *at = memchr(line, ':', (size_t)(end - line));
    uint64_t first, count, last;

    if (at == NULL)
        return;
    at++;
    if (!ids_number_read(&at, end, ':', &first) || !ids_number_read(&at, end, '\0', &count) ||
        count == 0)
        return;
    if (__builtin_add_overflow(first, count - 1, &last))
        last = UINT64_MAX;
    if (last < IDS_FIRST || first >= IDS_END)
        return;
    first = first < IDS_FIRST ? IDS_FIRST : first;
    last = last >= IDS_END ? IDS_END - 1 : last;
    for (uint64_t slot = (first - IDS_FIRST) / IDS_COUNT; slot <= (last - IDS_FIRST) / IDS_COUNT;
         slot++)
        ids_slot_mark(pool, (uint32_t)slot, true);
}

static int subids_take(struct ids_pool *pool, const char *path, struct error *err)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char text[8192];
    size_t used = 0, total = 0;
    bool in_long_line = false;

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return error_set(err, "ids_failed", errno, "cannot open %s, which says whose ids are whose",
                         path);
    for (;;) {
        ssize_t n = fd_read_full(fd, text + used, sizeof(text) - used);
        const char *line = text, *end;

        if (n < 0)
            return error_set(err, "ids_failed", errno, "cannot read %s", path);
        used += (size_t)n;
        total += (size_t)n;
        if (total > SUBIDS_SIZE_MAX)
            return error_set(err, "ids_failed", 0, "%s is larger than %u MiB: it cannot be right",
                             path, SUBIDS_SIZE_MAX >> 20);
        while ((end = memchr(line, '\n', (size_t)(text + used - line))) != NULL) {
            if (!in_long_line)
                line_take(pool, line, end);
            in_long_line = false;
            line = end + 1;
        }
        used -= (size_t)(line - text);
        if (n == 0) {
            if (!in_long_line)
                line_take(pool, line, line + used); /* the last line may lack its end */
            return 0;
        }
        memmove(text, line, used);
        /* No name is that long. */
        if (used == sizeof(text)) {
            in_long_line = true;
            used = 0;
        }
    }
}

/* ---- the lock file ---- */

/* Ours, and nobody else may change it. */
static bool is_private(int fd, mode_t type)
{
    struct stat st;

    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static int directory_open(const char *path, mode_t mode, int *directory, struct error *err)
{
    bool made = mkdir(path, mode) == 0;

    *directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*directory < 0)
        return error_set(err, "ids_failed", errno,
                         "cannot open %s, where cove notes which ids are in use", path);
    /* The umask of who came first must not shut the others out. */
    if (made && fchmod(*directory, mode) < 0)
        return error_set(err, "ids_failed", errno, "cannot set the mode of %s", path);
    if (!is_private(*directory, S_IFDIR))
        return error_set(err, "ids_failed", 0,
                         "%s belongs to somebody else, or others may write to it: remove it", path);
    return 0;
}

int ids_lock_open(struct ids_pool *pool, const char *path, mode_t mode, struct error *err)
{
    _cleanup_close_ int directory = -1, lock = -1;

    if (directory_open(path, mode, &directory, err) < 0)
        return -1;
    /* A FIFO in its place must not hold us up. */
    lock = openat(directory, IDS_LOCK,
                  O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (lock < 0)
        return error_set(err, "ids_failed", errno, "cannot open %s/" IDS_LOCK, path);
    if (!is_private(lock, S_IFREG))
        return error_set(err, "ids_failed", 0,
                         "%s/" IDS_LOCK " is no file of ours, or others may write to it: remove it",
                         path);
    pool->lock = fd_take(&lock);
    return 0;
}

int ids_open_files(struct ids_pool *pool, const char *directory, const char *subuid,
                   const char *subgid, struct error *err)
{
    memset(pool, 0, sizeof(*pool));
    pool->lock = -1;
    if (subids_take(pool, subuid, err) < 0 || subids_take(pool, subgid, err) < 0 ||
        ids_lock_open(pool, directory, 0755, err) < 0)
        return -1;
    pool->next = ids_random() % IDS_SLOTS;
    return 0;
}

uint32_t ids_random(void)
{
    uint32_t number;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
        number = (uint32_t)getpid() * 257U; /* no need to be secret, only to differ */
    return number;
}

int ids_open(struct ids_pool *pool, struct error *err)
{
    return ids_open_files(pool, IDS_DIRECTORY, "/etc/subuid", "/etc/subgid", err);
}

/* ---- taking ---- */

int ids_bytes_lock(const struct ids_pool *pool, uint64_t first, uint64_t count, short type)
{
    struct flock lock = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)first, .l_len = (off_t)count};

    return fcntl(pool->lock, F_OFD_SETLK, &lock);
}

/* The slot behind those that the holder of `slot` has in one piece. */
static uint32_t slot_after_holder(const struct ids_pool *pool, uint32_t slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

    if (fcntl(pool->lock, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_len > 0 &&
        lock.l_start + lock.l_len > slot && lock.l_start + lock.l_len <= IDS_SLOTS)
        return (uint32_t)(lock.l_start + lock.l_len);
    return slot + 1;
}

static struct ids range_of(uint32_t slot)
{
    return (struct ids){.kind = IDS_RANGE,
                        .first = IDS_FIRST + slot * IDS_COUNT,
                        .first_group = IDS_FIRST + slot * IDS_COUNT,
                        .count = IDS_COUNT,
                        .slot = slot,
                        .slots = 1};
}

int ids_take_at(struct ids_pool *pool, uid_t first, struct ids *ids, struct error *err)
{
    uint32_t slot = (first - IDS_FIRST) / IDS_COUNT;

    if (first < IDS_FIRST || slot >= IDS_SLOTS || first != IDS_FIRST + slot * IDS_COUNT)
        return error_set(err, "ids_failed", 0, "no range of ids begins with %u", first);
    if (ids_slot_is_taken(pool, slot) || ids_bytes_lock(pool, slot, 1, F_WRLCK) < 0)
        return error_set(err, "ids_failed", 0, "the ids from %u on are somebody else's now", first);
    ids_slot_mark(pool, slot, true);
    *ids = range_of(slot);
    return 0;
}

int ids_take(struct ids_pool *pool, struct ids *ids, struct error *err)
{
    uint32_t slot = pool->next;

    for (uint32_t seen = 0; seen < IDS_SLOTS;) {
        uint32_t after = slot + 1;

        if (!ids_slot_is_taken(pool, slot)) {
            if (ids_bytes_lock(pool, slot, 1, F_WRLCK) == 0) {
                ids_slot_mark(pool, slot, true);
                pool->next = after % IDS_SLOTS;
                *ids = range_of(slot);
                return 0;
            }
            if (errno != EAGAIN && errno != EACCES)
                return error_set(err, "ids_failed", errno, "cannot lock a range of ids");
            after = slot_after_holder(pool, slot);
        }
        seen += after - slot;
        slot = after % IDS_SLOTS;
    }
    return error_set(err, "ids_used_up", 0,
                     "every range of ids is taken by a box or by /etc/subuid and /etc/subgid: end "
                     "boxes, or shorten the entries there");
}

void ids_release(struct ids_pool *pool, struct ids *ids)
{
    for (uint32_t i = 0; i < ids->slots; i++)
        ids_slot_mark(pool, ids->slot + i, false);
    if (ids->slots > 0 && pool->slices > 0)
        (void)ids_user_lock(pool, ids, F_UNLCK);
    else if (ids->slots > 0)
        (void)ids_bytes_lock(pool, ids->slot, 1, F_UNLCK);
    *ids = (struct ids){0};
}

void ids_close(struct ids_pool *pool)
{
    fd_close(&pool->lock);
}
