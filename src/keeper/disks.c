/* Disks that are kept: see disks.h. */
#include "keeper/disks.h"

#include "base/fd.h"
#include "base/list.h"
#include "base/program.h"
#include "base/remove.h"
#include "box/loop.h"
#include "box/proto.h"
#include "box/sys.h"
#include "keeper/disk_hold.h"
#include "keeper/helper.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUFFIX ".ext4"
#define SUFFIX_GONE ".gone"
#define FILE_SIZE (KEEPER_ID_LENGTH + 24)
#define ID_FORMAT "%.20s" /* KEEPER_ID_LENGTH: what was checked is not longer */
/* A journal keeps the files whole where the host crashes; a small disk has no room for one. */
#define JOURNAL_LEAST (128ULL << 20)
#define JOURNAL "size=8"
#define SWEEPER_NICE 10

/* ---- in the process of its own ---- */

static int run_program(const char *program, char *const argv[])
{
    char *env[] = {NULL};
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)execve(program, argv, env);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int check_size(int disks, const struct keeper_make *make, struct error *err)
{
    struct statvfs place;

    if (fstatvfs(disks, &place) == 0 && make->limits.disk_bytes / place.f_frsize > place.f_blocks)
        return error_set(
            err, "capacity", 0,
            "a disk of %llu MiB would be larger than what it lies on; ask for a smaller "
            "one (resources.disk_bytes, --disk), or set 'disk' below [boxes] in the "
            "configuration, which holds where none is asked for",
            (unsigned long long)make->limits.disk_bytes >> 20);
    return 0;
}

/* Under a name that means nothing until it is whole. */
static int make_image(int disks, const struct keeper_make *make, const char *name,
                      struct error *err)
{
    _cleanup_close_ int image = -1;
    const struct box_limits *limits = &make->limits;
    uint64_t inodes = limits->disk_inodes;
    char path[32], count[32], fresh[FILE_SIZE], program[64];
    char *argv[] = {"mkfs.ext4",
                    "-q",
                    "-F",
                    "-m",
                    "0",
                    "-N",
                    count,
                    "-E",
                    "root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1,nodiscard",
                    limits->disk_bytes >= JOURNAL_LEAST ? "-J" : "-O",
                    limits->disk_bytes >= JOURNAL_LEAST ? JOURNAL : "^has_journal",
                    path,
                    NULL};

    if (!program_find(argv[0], program, sizeof(program)))
        return error_set(
            err, "disk_failed", 0,
            "mkfs.ext4, which makes a sandbox's disk, is not on this host; install e2fsprogs, or make "
            "the sandbox ephemeral");
    (void)snprintf(fresh, sizeof(fresh), ID_FORMAT DISK_NEW, make->disk);
    /* A table of inodes larger than the disk is none: one for every 2 KiB at most. */
    if (inodes > limits->disk_bytes / 2048)
        inodes = limits->disk_bytes / 2048;
    (void)snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes);
    /* What a killed one left may still be written to: this is to be another file. */
    (void)unlinkat(disks, fresh, 0);
    image = openat(disks, fresh, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (image < 0 || ftruncate(image, (off_t)limits->disk_bytes) < 0)
        return error_set(err, "disk_failed", errno, "cannot make a disk");
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", image);
    (void)fcntl(image, F_SETFD, 0); /* for mkfs.ext4, which opens it by this path */
    if (run_program(program, argv) != 0) {
        (void)unlinkat(disks, fresh, 0);
        return error_set(
            err, "disk_failed", 0,
            "mkfs.ext4 made no disk of %llu bytes; ask for another size, or give the data directory more room",
            (unsigned long long)limits->disk_bytes);
    }
    if (fsync(image) < 0 || renameat2(disks, fresh, disks, name, RENAME_NOREPLACE) < 0 ||
        fsync(disks) < 0)
        return error_set(err, "disk_failed", errno, "cannot keep a disk");
    return 0;
}

static int open_locked(int disks, const char *name, struct error *err)
{
    _cleanup_close_ int image = openat(disks, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (image < 0 || fstat(image, &st) < 0 || !S_ISREG(st.st_mode))
        return error_set(err, "disk_failed", errno, "cannot open a disk");
    return disk_lock_wait(image, err) < 0 ? -1 : fd_take(&image);
}

static int mount_device(const char *device, struct error *err)
{
    _cleanup_close_ int fs = sys_fsopen("ext4");
    int mount;

    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", device, 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_SET_STRING, "errors", "remount-ro", 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_SET_FLAG, "discard", NULL, 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ||
        (mount = sys_fsmount(fs, MOUNT_ATTR_NODEV)) < 0)
        return error_set(err, "disk_failed", errno, "cannot mount a disk");
    return mount;
}

/* Only one that is surely not there is made, and only for who has none yet: an empty disk in place of a
 * lost one would look as if all was well. */
static int find_disk(int disks, const struct keeper_make *make, const char *name, bool *is_there,
                     struct error *err)
{
    const char *other = strlen(name) == KEEPER_ID_LENGTH ? SUFFIX : "";
    char path[FILE_SIZE];
    struct stat st;

    *is_there = fstatat(disks, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (*is_there)
        return 0;
    if (errno != ENOENT)
        return error_set(err, "disk_failed", errno, "cannot look for a disk");
    (void)snprintf(path, sizeof(path), ID_FORMAT "%s", make->disk, other);
    if (fstatat(disks, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, "disk_lost", 0,
                         "the disk " ID_FORMAT " was made by an engine %s the right to mount "
                         "images; run this one like that",
                         make->disk, *other != '\0' ? "with" : "without");
    if (make->disk_new == 0)
        return error_set(err, "disk_lost", 0,
                         "the disk " ID_FORMAT " is not there any more; put it back from a copy, "
                         "or remove the sandbox",
                         make->disk);
    return check_size(disks, make, err);
}

/* What it says of its work; then fds come with it. */
struct opened {
    struct error err;
    uint32_t is_fresh; /* it has made the disk */
    struct disk_kept kept;
};

static int open_image(int disks, const struct keeper_make *make, struct opened *said)
{
    _cleanup_close_ int image = -1, device = -1;
    char name[FILE_SIZE], path[64];
    bool is_there;

    (void)snprintf(name, sizeof(name), ID_FORMAT SUFFIX, make->disk);
    if (find_disk(disks, make, name, &is_there, &said->err) < 0 ||
        (!is_there && make_image(disks, make, name, &said->err) < 0))
        return -1;
    said->is_fresh = !is_there;
    image = open_locked(disks, name, &said->err);
    device = image < 0 ? -1 : loop_attach(image, false, path, sizeof(path), &said->err);
    said->kept.fd = device < 0 ? -1 : mount_device(path, &said->err);
    if (said->kept.fd < 0)
        return -1;
    disk_hold_spare(said->kept.fd);
    return 0;
}

static int open_directory(const struct keeper *keeper, int disks, const struct keeper_make *make,
                          struct opened *said)
{
    const struct box_spec spec = {
        .root_kind = strcmp(make->root, "host") == 0 ? BOX_ROOT_HOST : BOX_ROOT_DIR,
        .binds_count = make->mounts_count,
        .privileges = (enum box_privileges)make->privileges,
    };
    bool is_claimed = disk_claims_find(&keeper->disks.claims, make->disk) >= 0, is_there;

    if (find_disk(disks, make, make->disk, &is_there, &said->err) < 0)
        return -1;
    if (is_there)
        return disk_dir_open(disks, &keeper->caller, make->disk, is_claimed, &said->kept,
                             &said->err);
    if (disk_dir_make(disks, &keeper->caller, make->disk, &spec, &said->kept, &said->err) < 0)
        return -1;
    said->is_fresh = 1;
    return 0;
}

#define NAME "cove-disk"

static _Noreturn void run(const struct keeper *keeper, const struct keeper_make *make, int socket)
{
    struct opened said = {.kept = {.fd = -1, .ids_lock = -1}};
    const int kept[] = {socket, keeper->places.disks};
    const int disks = HELPER_FD + 1;
    int fds[2], opened;

    helper_begin(NAME);
    helper_keep(kept, 2);
    opened = keeper->caller.mounts ? open_image(disks, make, &said)
                                   : open_directory(keeper, disks, make, &said);
    fds[0] = said.kept.fd;
    fds[1] = said.kept.ids_lock;
    (void)proto_send(HELPER_FD, &said, sizeof(said), NULL, 0, fds,
                     opened < 0 ? 0 : 1U + (said.kept.ids_lock >= 0));
    _exit(0);
}

/* ---- the keeper's side ---- */

static void child_reap(struct keeper *keeper, struct disk_child *child)
{
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    loop_remove(&keeper->loop, &child->ended);
    fd_close(&child->pidfd);
    child->pid = 0;
}

/* Where it cannot be, it is ended at once, before it has begun anything. */
static int child_watch(struct keeper *keeper, struct disk_child *child, source_ready ended,
                       struct error *err)
{
    if (child->pid < 0) {
        child->pid = 0;
        return error_set(err, "capacity", errno, "cannot start a process for a disk");
    }
    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->pidfd >= 0 &&
        loop_add(&keeper->loop, &child->ended, child->pidfd, EPOLLIN, ended, keeper, err) == 0)
        return 0;
    (void)error_set(err, "capacity", errno, "cannot wait for a disk");
    (void)kill(child->pid, SIGKILL);
    child_reap(keeper, child);
    return -1;
}

static void opener_ended(struct source *source, uint32_t events)
{
    (void)events;
    child_reap(source->owner, (struct disk_child *)source);
}

/* Its process ends by itself, or is killed, and the loop hears of that. */
static void opening_close(struct opening *opening)
{
    loop_remove(&opening->keeper->loop, &opening->source);
    fd_close(&opening->socket);
}

/* ---- what is dropped ---- */

static bool has_suffix(const char *name, const char *suffix)
{
    size_t length = strlen(name), end = strlen(suffix);

    return length > end && strcmp(name + length - end, suffix) == 0;
}

/* True where directories are left. */
static bool remove_all(int disks, const char *suffix, int (*remove)(int dir, const char *name))
{
    DIR *list = list_open(disks, ".");
    const struct dirent *entry;
    bool is_left = false;

    while (list != NULL && (entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (has_suffix(entry->d_name, suffix) && remove(disks, entry->d_name) < 0)
            is_left |= errno != ENOENT;
    if (list != NULL)
        (void)closedir(list);
    return is_left;
}

static int remove_file(int dir, const char *name)
{
    return unlinkat(dir, name, 0);
}

/* In a process of its own. What boxes wrote in a directory is not ours to remove but as root of their
 * ids. It is as deep and as much as they liked, and nobody waits for it. */
static void remove_dropped(const struct caller *caller, int disks)
{
    pid_t keeper = getppid();
    struct error err;

    (void)setpriority(PRIO_PROCESS, 0, SWEEPER_NICE);
    if (!remove_all(disks, SUFFIX_GONE, remove_file))
        return;
    if (ids_become_root(caller, &err) < 0)
        keeper_say(err.code, "disks that were removed stay on disk: %s", err.text);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* other ids forget it */
    if (getppid() == keeper && remove_all(disks, SUFFIX_GONE, remove_tree))
        keeper_say("disk_failed", "not all of a disk that was removed could be deleted");
}

static void sweep(struct keeper *keeper);

static void sweeper_ended(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;

    (void)events;
    child_reap(keeper, (struct disk_child *)source);
    if (keeper->disks.sweeps_again)
        sweep(keeper);
}

/* What it does not come to is removed at the next drop, or by the next keeper. */
static void sweep(struct keeper *keeper)
{
    struct disks *disks = &keeper->disks;
    struct error err;

    disks->sweeps_again = disks->sweeper.pid > 0;
    if (disks->sweeps_again)
        return;
    disks->sweeper.pid = fork();
    if (disks->sweeper.pid == 0) {
        int directory = keeper->places.disks;

        helper_begin(NAME);
        /* And its log, unlike the others. */
        if (dup2(directory, 3) < 0 || sys_close_range(4, ~0U, 0) < 0)
            _exit(1);
        remove_dropped(&keeper->caller, 3);
        _exit(0);
    }
    if (child_watch(keeper, &disks->sweeper, sweeper_ended, &err) < 0)
        keeper_say(err.code, "%s", err.text);
}

/* It is another's name at once, and its blocks are freed by and by. */
static int drop(struct keeper *keeper, const char *id)
{
    char name[FILE_SIZE], gone[FILE_SIZE];
    int disks = keeper->places.disks, dropped;
    struct stat st;

    (void)snprintf(name, sizeof(name), ID_FORMAT SUFFIX, id);
    if (fstatat(disks, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        (void)snprintf(name, sizeof(name), ID_FORMAT, id);
    do {
        (void)snprintf(gone, sizeof(gone), ID_FORMAT ".%08x" SUFFIX_GONE, id,
                       keeper->disks.dropped++);
        dropped = renameat2(disks, name, disks, gone, RENAME_NOREPLACE);
    } while (dropped < 0 && errno == EEXIST);
    if (dropped < 0)
        return -1;
    disk_claims_drop(&keeper->disks.claims, id);
    sweep(keeper);
    return 0;
}

/* ---- opening ---- */

static void opened(struct source *source, uint32_t events)
{
    struct opening *opening = source->owner;
    struct keeper *keeper = opening->keeper;
    struct opened said = {0};
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(opening->socket, &said, sizeof(said), fds, MSG_DONTWAIT);

    (void)events;
    if (n < 0 && errno == EAGAIN)
        return;
    /* Either process had no fd, or the other was killed before it could say anything. */
    if (n <= 0)
        (void)error_set(&said.err, "capacity", 0,
                        "there is no room to open a disk now; ask again later");
    else if (n != (ssize_t)sizeof(said) || (said.err.code[0] == '\0' && fds[0] < 0))
        (void)error_set(&said.err, "disk_failed", 0, "the disk could not be opened; try again");
    if (said.err.code[0] != '\0' && boxes_is_want_of_room(&said.err))
        (void)snprintf(said.err.code, sizeof(said.err.code), "capacity");
    opening_close(opening);
    if (fds[1] >= 0)
        disk_claims_add(&keeper->disks.claims, opening->make.disk, fds[1]);
    said.kept.fd = fds[0];
    said.kept.ids_lock = disk_claims_find(&keeper->disks.claims, opening->make.disk);
    request_make(keeper, &opening->make, &said.kept, &said.err);
    fd_close(&fds[0]);
    /* Nobody was told of it. */
    if (said.err.code[0] != '\0' && said.is_fresh != 0)
        (void)drop(keeper, opening->make.disk);
    engine_wake(keeper);
}

/* One box has a disk, or waits for it. What is on its end is waited for by the lock. */
static bool is_used(const struct keeper *keeper, const char *id)
{
    for (size_t i = 0; i < DISKS_OPENING_MAX; i++)
        if (keeper->disks.table[i].socket >= 0 && strcmp(keeper->disks.table[i].make.disk, id) == 0)
            return true;
    for (size_t i = 0; i < keeper->boxes.used; i++) {
        const struct boxed *boxed = keeper->boxes.table[i];

        if (boxed != NULL && !boxed->is_ending && strcmp(boxed->disk, id) == 0)
            return true;
    }
    return false;
}

static int used(struct error *err)
{
    return error_set(err, "disk_in_use", 0, "a box has this disk");
}

static struct opening *place_find(struct keeper *keeper)
{
    for (size_t i = 0; i < DISKS_OPENING_MAX; i++)
        if (keeper->disks.table[i].socket < 0 && keeper->disks.table[i].child.pid == 0)
            return &keeper->disks.table[i];
    return NULL;
}

int disks_open(struct keeper *keeper, const struct keeper_make *make, struct error *err)
{
    struct opening *opening = place_find(keeper);
    int pair[2];

    if (is_used(keeper, make->disk))
        return used(err);
    if (opening == NULL)
        return error_set(err, "capacity", 0, "too many disks are being opened at once");
    disk_claims_retry(&keeper->disks.claims, keeper->places.disks, &keeper->caller);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "capacity", errno, "cannot open a disk");
    opening->make = *make;
    opening->keeper = keeper;
    opening->socket = pair[0];
    opening->child.pid = fork();
    if (opening->child.pid == 0)
        run(keeper, &opening->make, pair[1]);
    (void)close(pair[1]);
    if (child_watch(keeper, &opening->child, opener_ended, err) == 0) {
        if (loop_add(&keeper->loop, &opening->source, pair[0], EPOLLIN, opened, opening, err) == 0)
            return 0;
        (void)kill(opening->child.pid, SIGKILL);
    }
    fd_close(&opening->socket);
    return -1;
}

int disks_drop(struct keeper *keeper, const char *id, struct error *err)
{
    if (is_used(keeper, id))
        return used(err);
    if (drop(keeper, id) < 0 && errno != ENOENT)
        return error_set(err, "disk_failed", errno, "cannot remove a disk");
    return 0;
}

uint64_t disks_weigh(const struct keeper *keeper, const char *id)
{
    char name[FILE_SIZE];
    uint64_t bytes;
    struct stat st;

    (void)snprintf(name, sizeof(name), ID_FORMAT SUFFIX, id);
    if (fstatat(keeper->places.disks, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
        return (uint64_t)st.st_blocks * 512;
    return disk_dir_weigh(keeper->places.disks, id, &bytes) == 0 ? bytes : UINT64_MAX;
}

bool disks_each(struct keeper *keeper, size_t *next, bool (*each)(struct keeper *, const char *id))
{
    DIR *list = list_open(keeper->places.disks, ".");
    const struct dirent *entry;
    char id[KEEPER_ID_LENGTH + 1];
    bool going = list != NULL; /* else it is tried again: "none" would be a lie */
    size_t at = 0;

    while (going && (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        bool is_image = strlen(entry->d_name) == KEEPER_ID_LENGTH + sizeof(SUFFIX) - 1 &&
                        has_suffix(entry->d_name, SUFFIX);

        if ((!is_image && !disk_is_dir_name(entry->d_name)) || at++ < *next)
            continue;
        (void)snprintf(id, sizeof(id), ID_FORMAT, entry->d_name);
        going = each(keeper, id);
        *next += going;
    }
    if (list != NULL)
        (void)closedir(list);
    return going;
}

static void places_clear(struct disks *disks)
{
    const struct disk_child none = {.pidfd = -1, .ended.fd = -1};

    for (size_t i = 0; i < DISKS_OPENING_MAX; i++)
        disks->table[i] = (struct opening){.socket = -1, .source.fd = -1, .child = none};
    disks->sweeper = none;
}

void disks_begin(struct keeper *keeper)
{
    places_clear(&keeper->disks);
    (void)remove_all(keeper->places.disks, DISK_NEW, remove_tree);
    if (!keeper->caller.mounts)
        disk_claims_take(&keeper->disks.claims, keeper->places.disks, &keeper->caller);
    sweep(keeper);
}

/* One that cannot be watched stays a zombie as long as we live. */
static pid_t child_resume(struct keeper *keeper, struct disk_child *child, source_ready ended)
{
    struct error err;

    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->pidfd >= 0 &&
        loop_add(&keeper->loop, &child->ended, child->pidfd, EPOLLIN, ended, keeper, &err) == 0)
        return child->pid;
    fd_close(&child->pidfd);
    return 0;
}

void disks_resume(struct keeper *keeper)
{
    struct disks *disks = &keeper->disks;
    pid_t pids[DISKS_OPENING_MAX], sweeper = disks->sweeper.pid;

    for (size_t i = 0; i < DISKS_OPENING_MAX; i++)
        pids[i] = disks->table[i].child.pid;
    places_clear(disks);
    for (size_t i = 0; i < DISKS_OPENING_MAX; i++)
        if ((disks->table[i].child.pid = pids[i]) > 0)
            disks->table[i].child.pid = child_resume(keeper, &disks->table[i].child, opener_ended);
    if ((disks->sweeper.pid = sweeper) > 0)
        disks->sweeper.pid = child_resume(keeper, &disks->sweeper, sweeper_ended);
    (void)remove_all(keeper->places.disks, DISK_NEW, remove_tree);
    /* Those that were handed on are there already. */
    if (!keeper->caller.mounts)
        disk_claims_take(&disks->claims, keeper->places.disks, &keeper->caller);
    sweep(keeper);
}

/* An image needs none of it: the end of its mount, which is that of its box, writes it. Only a process of
 * its own can be left behind where the host takes too long. */
void disks_write(const struct keeper *keeper, int most_ms)
{
    struct pollfd ended = {.fd = -1, .events = POLLIN};
    int status = 0;
    pid_t pid;

    if (keeper->caller.mounts)
        return;
    pid = fork();
    if (pid == 0) {
        helper_begin(NAME);
        helper_keep(&keeper->places.disks, 1);
        _exit(syncfs(HELPER_FD) < 0);
    }
    ended.fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (ended.fd < 0 || poll(&ended, 1, most_ms) <= 0)
        keeper_say("disk_slow", "the disks are not written yet: the host goes on with that");
    if (pid > 0)
        (void)kill(pid, SIGKILL);
    fd_close(&ended.fd);
    /* One that hangs in the kernel is nobody's to wait for. */
    if (pid > 0 && waitpid(pid, &status, WNOHANG) == pid && WIFEXITED(status) && status != 0)
        keeper_say("disk_failed",
                   "the disks could not be written: what was written last may be lost");
}

void disks_forget(struct keeper *keeper)
{
    char fresh[FILE_SIZE];

    for (size_t i = 0; i < DISKS_OPENING_MAX; i++) {
        struct opening *opening = &keeper->disks.table[i];

        if (opening->keeper == NULL || opening->socket < 0)
            continue;
        if (opening->child.pid > 0)
            (void)kill(opening->child.pid, SIGKILL);
        opening_close(opening);
        /* Half a disk, that nobody would ask for any more. */
        (void)snprintf(fresh, sizeof(fresh), ID_FORMAT DISK_NEW, opening->make.disk);
        (void)remove_tree(keeper->places.disks, fresh);
    }
}
