/* The ids of callers who do not rule the host's: see ids.h.
 *
 * An ordinary user has what /etc/subuid and /etc/subgid give to it, through newuidmap; root of a user
 * namespace has what is mapped there. Both are divided into slices, for most users have 65,536 ids in
 * all and many boxes. A slice number means a uid slice and a gid slice. */
#include "box/ids.h"

#include "base/fd.h"
#include "base/program.h"
#include "box/idmap.h"
#include "box/ids_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FILE_MAX (4L << 20) /* some sites give each of their thousands of people an entry */

/* Slices that make a range, and how many a user must have before a box is given that many. */
#define RANGE_SLICES (IDS_COUNT / IDS_SLICE)
#define RANGES_LEAST 16
#define SLICES_FOR_RANGES (RANGES_LEAST * IDS_COUNT / IDS_SLICE_SPAN)

/* Below are the accounts of a container whose root makes boxes. */
#define ACCOUNTS_END 2000U

/* ---- what is given ---- */

static size_t part_add(struct ids_part parts[IDS_PARTS_MAX], size_t used, uint64_t first,
                       uint64_t count)
{
    /* -1 is no id, and where the host's own end so does what can be given. */
    if (used == IDS_PARTS_MAX || first == 0 || first >= UINT32_MAX || count < IDS_SLICE_SPAN)
        return used;
    if (count > UINT32_MAX - first)
        count = UINT32_MAX - first;
    /* Two entries with the same ids are one: the kernel does not tell two holders in one process apart. */
    for (size_t i = 0; i < used; i++)
        if (first < (uint64_t)parts[i].first + parts[i].count && parts[i].first < first + count)
            return used;
    parts[used] = (struct ids_part){.first = (uint32_t)first, .count = (uint32_t)count};
    return used + 1;
}

static bool names_user(const char *line, size_t length, const char *name, uid_t uid)
{
    char number[16];

    (void)snprintf(number, sizeof(number), "%u", uid);
    return (strlen(number) == length && memcmp(line, number, length) == 0) ||
           (name[0] != '\0' && strlen(name) == length && memcmp(line, name, length) == 0);
}

size_t ids_parts_of_user(const char *text, const char *name, uid_t uid,
                         struct ids_part parts[IDS_PARTS_MAX])
{
    size_t used = 0;

    while (*text != '\0') {
        const char *end = text + strcspn(text, "\n"), *at = text + strcspn(text, ":\n");
        uint64_t first, count;

        if (*at == ':' && names_user(text, (size_t)(at - text), name, uid)) {
            at++;
            if (ids_number_read(&at, end, ':', &first) && ids_number_read(&at, end, '\0', &count))
                used = part_add(parts, used, first, count);
        }
        text = *end == '\n' ? end + 1 : end;
    }
    return used;
}

size_t ids_parts_of_map(const char *text, struct ids_part parts[IDS_PARTS_MAX])
{
    uint64_t number[3] = {0}; /* first inside, first outside, count */
    size_t used = 0;
    char *end;

    for (;;) {
        for (size_t i = 0; i < 3; i++) {
            number[i] = strtoull(text, &end, 10);
            if (end == text)
                return used;
            text = end;
        }
        if (number[0] < ACCOUNTS_END) {
            uint64_t skipped = ACCOUNTS_END - number[0];

            number[2] = number[2] > skipped ? number[2] - skipped : 0;
            number[0] = ACCOUNTS_END;
        }
        used = part_add(parts, used, number[0], number[2]);
    }
}

static uint32_t slices_of(const struct ids_part parts[IDS_PARTS_MAX])
{
    uint32_t slices = 0;

    for (size_t i = 0; i < IDS_PARTS_MAX; i++)
        slices += parts[i].count / IDS_SLICE_SPAN;
    return slices;
}

static uint32_t slice_first(const struct ids_part parts[IDS_PARTS_MAX], uint32_t slice)
{
    for (size_t i = 0; i < IDS_PARTS_MAX; i++) {
        uint32_t here = parts[i].count / IDS_SLICE_SPAN;

        if (slice < here)
            return parts[i].first + slice * IDS_SLICE_SPAN;
        slice -= here;
    }
    return 0;
}

/* ---- reading it ---- */

static char *file_text(const char *path)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    char *text;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return NULL;
    text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return NULL;
    n = fd_read_full(fd, text, (size_t)st.st_size);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* Of /etc/passwd where it stands there: to ask the name service may mean to ask the network. */
static void name_of(uid_t uid, char *name, size_t size, char *home, size_t home_size)
{
    _cleanup_free_ char *text = file_text("/etc/passwd");
    char *line, *rest = text, *field[6];
    struct passwd entry, *found;
    char strings[16384];
    uint64_t number;
    const char *at;

    name[0] = home[0] = '\0';
    while (rest != NULL && (line = strsep(&rest, "\n")) != NULL) {
        for (size_t i = 0; i < 6; i++)
            field[i] = strsep(&line, ":");
        at = field[2];
        if (field[5] == NULL || !ids_number_read(&at, at + strlen(at), '\0', &number) ||
            number != uid)
            continue;
        (void)snprintf(name, size, "%s", field[0]);
        (void)snprintf(home, home_size, "%s", field[5]);
        return;
    }
    if (getpwuid_r(uid, &entry, strings, sizeof(strings), &found) != 0 || found == NULL)
        return;
    (void)snprintf(name, size, "%s", entry.pw_name);
    (void)snprintf(home, home_size, "%s", entry.pw_dir);
}

static size_t read_parts(const char *path, const char *name, uid_t uid,
                         struct ids_part parts[IDS_PARTS_MAX])
{
    _cleanup_free_ char *text = file_text(path);

    return text != NULL ? ids_parts_of_user(text, name, uid, parts) : 0;
}

/* It must have rights of its own: by its mode, or by a capability of its file. */
static bool helper_works(const char *name)
{
    char path[64];
    struct stat st;

    return program_find(name, path, sizeof(path)) && stat(path, &st) == 0 &&
           (((st.st_mode & S_ISUID) != 0 && st.st_uid == 0) ||
            getxattr(path, "security.capability", NULL, 0) > 0);
}

static enum ids_gap helpers_gap(void)
{
    if (!helper_works("newuidmap") || !helper_works("newgidmap"))
        return IDS_NO_PROGRAM;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) > 0 ? IDS_NO_RIGHTS : IDS_ENOUGH;
}

static void read_user(struct ids_pool *pool, const struct caller *caller, const char *name,
                      char *why, size_t why_size)
{
    (void)read_parts("/etc/subuid", name, caller->uid, pool->uids);
    (void)read_parts("/etc/subgid", name, caller->uid, pool->gids);
    if (slices_of(pool->uids) == 0 || slices_of(pool->gids) == 0)
        pool->gap = IDS_NO_ENTRY;
    else
        pool->gap = helpers_gap();
    if (pool->gap == IDS_NO_ENTRY)
        (void)snprintf(why, why_size, "/etc/subuid and /etc/subgid give no ids to %s",
                       name[0] != '\0' ? name : "this user");
    else if (pool->gap == IDS_NO_PROGRAM)
        (void)snprintf(why, why_size, "newuidmap and newgidmap are missing or not set-uid");
    else
        (void)snprintf(why, why_size, "no_new_privs is set here, so newuidmap has no rights");
}

static void read_namespace(struct ids_pool *pool, char *why, size_t why_size)
{
    char text[4096];

    if (fd_read_file(AT_FDCWD, "/proc/self/uid_map", text, sizeof(text)) > 0)
        (void)ids_parts_of_map(text, pool->uids);
    if (fd_read_file(AT_FDCWD, "/proc/self/gid_map", text, sizeof(text)) > 0)
        (void)ids_parts_of_map(text, pool->gids);
    if (slices_of(pool->uids) == 0 || slices_of(pool->gids) == 0)
        pool->gap = IDS_OUTSIDE;
    (void)snprintf(why, why_size, "this user namespace has no ids to spare");
}

/* The same whatever the environment says, so that all boxes of a user agree: in the home that
 * /etc/passwd names, which nobody else can make before us and which stays; where there is none of ours,
 * in the run-time directory, or below /tmp. */
static int user_lock_open(struct ids_pool *pool, const struct caller *caller, const char *home,
                          struct error *err)
{
    char path[PATH_MAX], parent[PATH_MAX];
    struct stat st;

    (void)snprintf(parent, sizeof(parent), "%.4000s/.cache", home);
    if (stat(home, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == caller->uid &&
        (mkdir(parent, 0700) == 0 || errno == EEXIST) && stat(parent, &st) == 0 &&
        st.st_uid == caller->uid && access(parent, W_OK) == 0) {
        (void)snprintf(path, sizeof(path), "%.4000s/cove", parent);
        return ids_lock_open(pool, path, 0700, err);
    }
    (void)snprintf(path, sizeof(path), "/run/user/%u", caller->uid);
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == caller->uid)
        (void)snprintf(path, sizeof(path), "/run/user/%u/cove", caller->uid);
    else
        (void)snprintf(path, sizeof(path), "/tmp/cove-%u", caller->uid);
    return ids_lock_open(pool, path, 0700, err);
}

int ids_open_user(struct ids_pool *pool, const struct caller *caller, char *why, size_t why_size,
                  struct error *err)
{
    char name[256], home[PATH_MAX];
    uint32_t gid_slices;

    memset(pool, 0, sizeof(*pool));
    pool->lock = -1;
    why[0] = '\0';
    if (caller->maps && !caller->on_host)
        read_namespace(pool, why, why_size);
    name_of(caller->uid, name, sizeof(name), home, sizeof(home));
    if (!caller->maps || caller->on_host)
        read_user(pool, caller, name, why, why_size);
    if (pool->gap != IDS_ENOUGH)
        return 0;
    pool->slices = slices_of(pool->uids);
    gid_slices = slices_of(pool->gids);
    if (gid_slices < pool->slices)
        pool->slices = gid_slices;
    if (pool->slices > IDS_SLOTS)
        pool->slices = IDS_SLOTS;
    pool->next = ids_random() % pool->slices;
    return user_lock_open(pool, caller, home, err);
}

/* ---- taking ---- */

static void fill(const struct ids_pool *pool, enum ids_kind kind, uint32_t slot, uint32_t slots,
                 struct ids *ids)
{
    *ids = (struct ids){.kind = kind,
                        .first = slice_first(pool->uids, slot),
                        .first_group = slice_first(pool->gids, slot),
                        .count = kind == IDS_RANGE ? IDS_COUNT : IDS_SLICE,
                        .slot = slot,
                        .slots = slots};
}

/* Groups lie behind all users in the lock file. */
#define GROUPS_AT (1ULL << 32)

int ids_user_lock(const struct ids_pool *pool, const struct ids *ids, short type)
{
    uint64_t count = (uint64_t)ids->slots * IDS_SLICE_SPAN;

    if (ids_bytes_lock(pool, ids->first, count, type) < 0)
        return -1;
    if (ids_bytes_lock(pool, GROUPS_AT + ids->first_group, count, type) == 0)
        return 0;
    if (type != F_UNLCK) {
        int failed = errno;

        (void)ids_bytes_lock(pool, ids->first, count, F_UNLCK);
        errno = failed;
    }
    return -1;
}

/* 1 if these slices are now ours, 0 if somebody has one of them. */
static int slices_take(struct ids_pool *pool, enum ids_kind kind, uint32_t slot, uint32_t slots,
                       struct ids *ids, struct error *err)
{
    struct ids wanted;

    for (uint32_t i = 0; i < slots; i++)
        if (ids_slot_is_taken(pool, slot + i))
            return 0;
    fill(pool, kind, slot, slots, &wanted);
    if (ids_user_lock(pool, &wanted, F_WRLCK) < 0)
        return errno == EAGAIN || errno == EACCES
                   ? 0
                   : error_set(err, "ids_failed", errno, "cannot lock ids for the box");
    for (uint32_t i = 0; i < slots; i++)
        ids_slot_mark(pool, slot + i, true);
    *ids = wanted;
    return 1;
}

/* Whether the slices are one piece. */
static bool is_one_piece(const struct ids_part parts[IDS_PARTS_MAX], uint32_t slot, uint32_t slots)
{
    return slice_first(parts, slot + slots - 1) - slice_first(parts, slot) ==
           (slots - 1) * IDS_SLICE_SPAN;
}

/* From the first half only: slices remain for the boxes that find no range. */
static int range_take(struct ids_pool *pool, struct ids *ids, struct error *err)
{
    uint32_t ranges = pool->slices / RANGE_SLICES / 2;
    uint32_t range = ranges > 0 ? pool->next % ranges : 0;
    int taken;

    for (uint32_t i = 0; i < ranges; i++) {
        uint32_t slot = (range + i) % ranges * RANGE_SLICES;

        if (!is_one_piece(pool->uids, slot, RANGE_SLICES) ||
            !is_one_piece(pool->gids, slot, RANGE_SLICES))
            continue;
        taken = slices_take(pool, IDS_RANGE, slot, RANGE_SLICES, ids, err);
        if (taken != 0)
            return taken;
    }
    return 0;
}

int ids_take_user(struct ids_pool *pool, const struct caller *caller, struct ids *ids,
                  struct error *err)
{
    int taken = 0;

    *ids = (struct ids){.kind = IDS_SINGLE, .first = caller->uid, .first_group = caller->gid};
    if (pool->slices == 0)
        return 0;
    if (pool->slices >= SLICES_FOR_RANGES && (taken = range_take(pool, ids, err)) != 0)
        return taken < 0 ? -1 : 0;
    for (uint32_t i = 0; i < pool->slices; i++) {
        uint32_t slot = (pool->next + i) % pool->slices;

        taken = slices_take(pool, IDS_SLICED, slot, 1, ids, err);
        if (taken != 0)
            return taken < 0 ? -1 : 0;
    }
    return error_set(err, "ids_used_up", 0,
                     "all ids that /etc/subuid and /etc/subgid give to this user are in use by "
                     "boxes, or belong to disks: end or remove some, or have more ids given to it");
}

/* ---- taking them again ---- */

static bool are_given(const struct ids_part parts[IDS_PARTS_MAX], uint32_t first, uint64_t count)
{
    for (size_t i = 0; i < IDS_PARTS_MAX; i++)
        if (first >= parts[i].first && first + count <= (uint64_t)parts[i].first + parts[i].count)
            return true;
    return false;
}

static int not_given(const struct ids *ids, struct error *err)
{
    return error_set(err, "disk_ids", 0,
                     "the files of this disk belong to the ids %u to %u (groups %u to %u), which "
                     "/etc/subuid and /etc/subgid do not give to this user any more: have them "
                     "given back, or remove the sandbox",
                     ids->first, ids->first + ids->slots * IDS_SLICE_SPAN - 1, ids->first_group,
                     ids->first_group + ids->slots * IDS_SLICE_SPAN - 1);
}

static int in_use(const struct ids *ids, struct error *err)
{
    return error_set(err, "ids_in_use", 0,
                     "another box or engine has the ids from %u on now, which the files of this "
                     "disk belong to: end it, and ask again",
                     ids->first);
}

static int take_again_of_user(struct ids_pool *pool, bool locked, const struct ids *before,
                              struct error *err)
{
    uint64_t count = (uint64_t)before->slots * IDS_SLICE_SPAN;
    bool is_range = before->kind == IDS_RANGE;

    if (before->slots != (is_range ? RANGE_SLICES : 1) ||
        !are_given(pool->uids, before->first, count) ||
        !are_given(pool->gids, before->first_group, count))
        return not_given(before, err);
    if (locked || ids_user_lock(pool, before, F_WRLCK) == 0)
        return 0;
    if (errno == EAGAIN || errno == EACCES)
        return in_use(before, err);
    return error_set(err, "ids_failed", errno, "cannot lock the ids of a disk");
}

int ids_take_again(struct ids_pool *pool, const struct caller *caller, bool locked,
                   const struct ids *before, struct error *err)
{
    struct ids taken;

    if (before->kind == IDS_SINGLE && before->first == caller->uid &&
        before->first_group == caller->gid)
        return 0;
    if (before->kind == IDS_SINGLE)
        return error_set(err, "disk_ids", 0,
                         "the files of this disk belong to user %u and group %u, and this engine "
                         "runs as %u and %u: run it as it was",
                         before->first, before->first_group, caller->uid, caller->gid);
    if (!caller->maps || !caller->on_host)
        return take_again_of_user(pool, locked, before, err);
    if (before->kind != IDS_RANGE || before->slots != 1 || before->first_group != before->first)
        return not_given(before, err);
    if (locked || ids_take_at(pool, before->first, &taken, err) == 0)
        return 0;
    return in_use(before, err);
}

/* ---- maps ---- */

static bool line_add(char *text, size_t size, size_t *used, uint32_t inside, uint32_t outside,
                     uint32_t count)
{
    int length;

    if (count == 0)
        return true;
    length = snprintf(text + *used, size - *used, "%s%u %u %u", *used > 0 ? "\n" : "", inside,
                      outside, count);
    if (length < 0 || (size_t)length >= size - *used)
        return false;
    *used += (size_t)length;
    return true;
}

/* Ids `inside`.. of the box, less the one that is lent. */
static bool part_map(char *text, size_t size, size_t *used, uint32_t inside, uint32_t outside,
                     uint32_t count, int64_t without)
{
    uint32_t before;

    if (without < inside || without >= (int64_t)inside + count)
        return line_add(text, size, used, inside, outside, count);
    before = (uint32_t)without - inside;
    return line_add(text, size, used, inside, outside, before) &&
           line_add(text, size, used, inside + before + 1, outside + before + 1,
                    count - before - 1);
}

bool ids_map_text(const struct ids *ids, uint32_t first, const struct ids_lent *lent, char *text,
                  size_t size)
{
    int64_t without = lent->inside;
    size_t used = 0;

    text[0] = '\0';
    return part_map(text, size, &used, 0, first, ids->count, without) &&
           (ids->kind != IDS_SLICED ||
            part_map(text, size, &used, IDS_NOBODY, first + IDS_SLICE, 1, without)) &&
           (without < 0 || line_add(text, size, &used, (uint32_t)without, lent->outside, 1));
}

bool ids_has(const struct ids *ids, const struct ids_lent *lent, uint32_t inside)
{
    return inside < ids->count || (ids->kind == IDS_SLICED && inside == IDS_NOBODY) ||
           lent->inside == (int64_t)inside;
}

/* ---- all of them at once ---- */

static bool map_all(const struct ids_part parts[IDS_PARTS_MAX], uint32_t own, char *text,
                    size_t size)
{
    size_t used = 0;
    uint32_t inside = 1;

    text[0] = '\0';
    if (!line_add(text, size, &used, 0, own, 1))
        return false;
    for (size_t i = 0; i < IDS_PARTS_MAX; i++) {
        if (!line_add(text, size, &used, inside, parts[i].first, parts[i].count))
            return false;
        inside += parts[i].count;
    }
    return true;
}

/* Gives its parent these ids, once that is in its namespace; newuidmap does it for nobody in there. */
static _Noreturn void map_parent(pid_t parent, int go, const struct ids_pool *pool,
                                 const struct caller *caller)
{
    char uid_map[640], gid_map[640], byte;
    struct error ignored;

    _exit(read(go, &byte, 1) == 1 && getppid() == parent &&
                  map_all(pool->uids, caller->uid, uid_map, sizeof(uid_map)) &&
                  map_all(pool->gids, caller->gid, gid_map, sizeof(gid_map)) &&
                  idmap_set(parent, IDMAP_HELPERS, uid_map, gid_map, &ignored) == 0
              ? 0
              : 1);
}

static int become_root(const struct ids_pool *pool, const struct caller *caller, struct error *err)
{
    int ends[2], status = -1;
    pid_t self = getpid(), mapper;
    bool is_entered;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set(err, "ids_failed", errno, "cannot make a pipe");
    mapper = fork();
    if (mapper == 0) {
        (void)close(ends[1]);
        map_parent(self, ends[0], pool, caller);
    }
    (void)close(ends[0]);
    is_entered = mapper > 0 && unshare(CLONE_NEWUSER) == 0;
    if (is_entered)
        (void)fd_write_full(ends[1], "g", 1);
    (void)close(ends[1]);
    while (mapper > 0 && waitpid(mapper, &status, 0) < 0 && errno == EINTR)
        continue;
    if (is_entered && status == 0 && setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0)
        return 0;
    return error_set(err, "ids_failed", 0,
                     "cannot become root of the ids that /etc/subuid and /etc/subgid give to this "
                     "user; cove doctor says what is missing");
}

int ids_become_root(const struct caller *caller, struct error *err)
{
    static struct ids_pool pool;
    char why[100];
    int made;

    if (caller->maps)
        return 0;
    if (ids_open_user(&pool, caller, why, sizeof(why), err) < 0)
        return -1;
    made = pool.slices > 0 ? become_root(&pool, caller, err) : 0;
    ids_close(&pool);
    return made;
}
