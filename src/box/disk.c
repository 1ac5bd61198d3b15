/* A watched directory as a disk: see disk.h. */
#include "box/disk.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/remove.h"
#include "box/cache.h"
#include "box/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

/* What has deeper directories counts as full, for they are not counted: nobody needs them. */
#define DEPTH_MAX 200
#define PERIOD_LEAST_NS 50000000U

/* Of the time, one part in so many is spent on counting; and one in so many where nothing was written to
 * the file system meanwhile. */
#define COUNTING_SHARE 4
#define IDLE_SHARE 50
#define IDLE_LEAST_NS 1000000000U

/* Of what a box may write still, the part by which free space may shrink before it is counted again. */
#define SHRUNK_SHARE 8

/* What is over its limit may have so much more, for what a shell writes while files are deleted. */
#define SLACK_BYTES (1U << 20)
#define SLACK_INODES 64

/* What is over so many times its limit is given to no box any more: else each start could add what is
 * written between two looks. */
#define OVER_TIMES 4
#define OVER_BYTES (64U << 20)
#define OVER_INODES 4096

/* A file system that is nearly full is full: there the host's own programs fail. */
#define FREE_LEAST_BYTES (64U << 20)

#define EXT4_MAGIC 0xEF53

/* What was counted stays with a directory that is kept, where no box sees it: boxes get what lies below. */
#define COUNTED "user.cove.counted"
#define COUNTED_EVERY_NS 1000000000U

enum disk_lends disk_lends_of(const struct caller *caller, const struct box_spec *spec,
                              enum ids_kind kind)
{
    bool is_of_host = spec->root_kind == BOX_ROOT_HOST;

    if (caller->mounts || (caller->uid == 0 && caller->on_host))
        return DISK_LENDS_NONE;
    if (spec->binds_count == 0 && kind != IDS_SINGLE)
        return is_of_host ? DISK_LENDS_NONE : DISK_LENDS_ROOT;
    return spec->user == NULL && spec->privileges == BOX_SYSTEM ? DISK_LENDS_ROOT : DISK_LENDS_USER;
}

int disk_keep(struct disk *disk, int directory, bool for_overlay, struct error *err)
{
    if (for_overlay && fsetxattr(directory, "user.cove", "y", 1, 0) < 0)
        return error_set(err, "disk_failed", errno,
                         "the filesystem of the data directory has no user xattrs, so a disk on it "
                         "cannot hold what a box changes in its root: move the data directory to "
                         "ext4, xfs or btrfs, or ask for an ephemeral disk");
    disk->parent = fcntl(directory, F_DUPFD_CLOEXEC, 3);
    disk->lock = fcntl(directory, F_DUPFD_CLOEXEC, 3);
    if (disk->parent < 0 || disk->lock < 0)
        return error_set(err, "disk_failed", errno, "cannot take the box's disk");
    (void)snprintf(disk->name, sizeof(disk->name), ".");
    disk->is_kept = true;
    return 0;
}

int disk_make(struct disk *disk, int *place, struct error *err)
{
    _cleanup_close_ int parent = cache_open("disks", err);

    if (parent < 0)
        return -1;
    cache_sweep(parent, "");
    *place = cache_make_own(parent, "", disk->name, sizeof(disk->name), err);
    if (*place < 0)
        return -1;
    if (fsetxattr(*place, "user.cove", "y", 1, 0) < 0) {
        (void)error_set(
            err, "disk_failed", errno,
            "the filesystem of the cache (XDG_CACHE_HOME, or .cache in HOME) has no user "
            "xattrs, so it cannot hold what a box changes in its root: set XDG_CACHE_HOME "
            "to a directory on ext4, xfs or btrfs, or use Linux 6.6 or later");
        fd_close(place);
        (void)unlinkat(parent, disk->name, AT_REMOVEDIR);
        return -1;
    }
    disk->lock = fcntl(*place, F_DUPFD_CLOEXEC, 3);
    disk->parent = fd_take(&parent);
    return 0;
}

/* What the box made belongs to its ids, and may be closed to everybody else: only its root gets in. */
static int become_root_of(int userns)
{
    if (userns < 0)
        return 0;
    return setns(userns, CLONE_NEWUSER) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 ? -1
                                                                                                : 0;
}

void disk_remove(struct disk *disk, int userns)
{
    pid_t pid;

    if (disk->parent < 0 || disk->is_kept) {
        disk_forget(disk);
        return;
    }
    pid = userns >= 0 ? fork() : -1;
    if (pid == 0) {
        if (become_root_of(userns) == 0)
            (void)remove_tree(disk->parent, disk->name);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    (void)remove_tree(disk->parent, disk->name);
    disk_forget(disk);
}

void disk_forget(struct disk *disk)
{
    fd_close(&disk->parent);
    fd_close(&disk->lock);
}

/* ---- counting ---- */

/* What is there, or may be. */
struct amount {
    uint64_t bytes, inodes;
};

struct watched {
    const struct disk *disk;
    int proc;
    dev_t memory[2];     /* devices of files that are no disk's: they count as memory */
    struct amount most;  /* that it may have now */
    struct amount found; /* at the last look */
    struct statfs fs;    /* as it was before that */
    _Atomic uint64_t *counted;
    uint64_t told, told_ns; /* what the directory says, and since when */
};

/* A file without a name that somebody has still, and how much it was counted for. */
struct unnamed {
    dev_t device;
    ino_t inode; /* 0: a free place */
    uint64_t bytes;
};

struct tally {
    struct amount sum;
    const struct watched *watched;
    struct unnamed *unnamed; /* by hash; as many as it may have inodes at most */
    size_t unnamed_count, unnamed_room;
    bool is_deep;
};

static bool is_over(const struct tally *tally)
{
    return tally->is_deep || tally->sum.bytes > tally->watched->most.bytes ||
           tally->sum.inodes > tally->watched->most.inodes;
}

static bool is_memory(const struct tally *tally, dev_t device)
{
    return device == tally->watched->memory[0] || device == tally->watched->memory[1];
}

static void tally_add(struct tally *tally, int dir, const char *name, int depth)
{
    const struct dirent *entry;
    struct stat st;
    DIR *list;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    tally->sum.inodes++;
    tally->sum.bytes += (uint64_t)st.st_blocks * 512 /
                        (st.st_nlink > 1 && !S_ISDIR(st.st_mode) ? (uint64_t)st.st_nlink : 1);
    if (!S_ISDIR(st.st_mode))
        return;
    if (depth == DEPTH_MAX) {
        tally->is_deep = true;
        return;
    }
    list = list_open(dir, name);
    if (list == NULL)
        return;
    while (!is_over(tally) && (entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            tally_add(tally, dirfd(list), entry->d_name, depth + 1);
    (void)closedir(list);
}

/* Its place among those of a table, or the free one where it belongs. */
static struct unnamed *unnamed_place(struct unnamed *table, size_t room, dev_t device, ino_t inode)
{
    size_t at = (size_t)(((uint64_t)inode ^ (uint64_t)device << 40) * 0x9e3779b97f4a7c15U >> 32);

    while (table[at & (room - 1)].inode != 0 &&
           (table[at & (room - 1)].inode != inode || table[at & (room - 1)].device != device))
        at++;
    return &table[at & (room - 1)];
}

static bool unnamed_grow(struct tally *tally)
{
    size_t room = tally->unnamed_room == 0 ? 64 : tally->unnamed_room * 2;
    struct unnamed *table = calloc(room, sizeof(*table));

    if (table == NULL)
        return false;
    for (size_t i = 0; i < tally->unnamed_room; i++)
        if (tally->unnamed[i].inode != 0)
            *unnamed_place(table, room, tally->unnamed[i].device,
                           tally->unnamed[i].inode) = tally->unnamed[i];
    free(tally->unnamed);
    tally->unnamed = table;
    tally->unnamed_room = room;
    return true;
}

/* Once, however many have it; for the most that anybody shows of it. */
static void tally_unnamed(struct tally *tally, dev_t device, ino_t inode, uint64_t bytes)
{
    struct unnamed *found;

    if (inode == 0 || is_memory(tally, device))
        return;
    if (tally->unnamed_count >= tally->unnamed_room / 2 && !unnamed_grow(tally)) {
        tally->sum.bytes += bytes; /* rather twice than never */
        return;
    }
    found = unnamed_place(tally->unnamed, tally->unnamed_room, device, inode);
    if (found->inode == 0) {
        *found = (struct unnamed){.device = device, .inode = inode};
        tally->unnamed_count++;
        tally->sum.inodes++;
    }
    if (bytes > found->bytes) {
        tally->sum.bytes += bytes - found->bytes;
        found->bytes = bytes;
    }
}

/* Files that are open and have no name any more: one thread's, for each may have fds of its own. */
static void tally_open(struct tally *tally, int thread)
{
    DIR *list = list_open(thread, "fd");
    const struct dirent *entry;
    struct stat st;

    if (list == NULL)
        return;
    while (!is_over(tally) && (entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (entry->d_name[0] != '.' && fstatat(dirfd(list), entry->d_name, &st, 0) == 0 &&
            S_ISREG(st.st_mode) && st.st_nlink == 0)
            tally_unnamed(tally, st.st_dev, st.st_ino, (uint64_t)st.st_blocks * 512);
    (void)closedir(list);
}

/* "FIRST-LAST MODE OFFSET MAJOR:MINOR INODE PATH": whatever its mode, it keeps the file's blocks. */
static void tally_mapping(struct tally *tally, const char *line)
{
    unsigned long first, last, offset, inode;
    unsigned major, minor;

    // NOLINTNEXTLINE(cert-err34-c): written by the kernel
    if (sscanf(line, "%lx-%lx %*4s %lx %x:%x %lu", &first, &last, &offset, &major, &minor,
               &inode) == 6)
        tally_unnamed(tally, makedev(major, minor), inode, offset + (last - first));
}

/* And those that are only mapped: as far as the mapping goes, for no more can be found out. Of a process
 * whose first thread has ended another one shows them: false where this one shows none. A path may be
 * longer than any buffer. */
static bool tally_mapped(struct tally *tally, int thread)
{
    static const char gone[] = " (deleted)\n";
    int fd = openat(thread, "maps", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    char *line = NULL;
    bool shows = false;
    size_t room = 0;
    ssize_t length;

    if (file == NULL) {
        fd_close(&fd);
        return false;
    }
    while (!is_over(tally) && (length = getline(&line, &room, file)) > 0) {
        shows = true;
        if ((size_t)length >= sizeof(gone) &&
            strcmp(line + length - (ssize_t)(sizeof(gone) - 1), gone) == 0)
            tally_mapping(tally, line);
    }
    free(line);
    (void)fclose(file);
    return shows;
}

static void tally_process(struct tally *tally, int process)
{
    DIR *list = list_open(process, "task");
    const struct dirent *entry;
    bool is_mapped = false;

    if (list == NULL)
        return;
    while (!is_over(tally) && (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        _cleanup_close_ int thread = -1;

        if (entry->d_name[0] == '.')
            continue;
        thread = openat(dirfd(list), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (thread < 0)
            continue;
        tally_open(tally, thread);
        is_mapped = is_mapped || tally_mapped(tally, thread);
    }
    (void)closedir(list);
}

static void tally_processes(struct tally *tally, int proc)
{
    DIR *list = list_open(proc, ".");
    const struct dirent *entry;

    if (list == NULL)
        return;
    while (!is_over(tally) && (entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        _cleanup_close_ int process = -1;

        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        process = openat(dirfd(list), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (process >= 0)
            tally_process(tally, process);
    }
    (void)closedir(list);
}

/* From where on it is too much: the limit, or what there was already. */
static uint64_t most_of(uint64_t limit, uint64_t most, uint64_t found, uint64_t slack)
{
    if (found <= limit)
        return limit;
    return found + slack < most ? found + slack : most;
}

/* What a look finds, and what the first says to whoever waits for it. */
#define LOOK_WELL 'g'
#define LOOK_OVER 'o'
#define LOOK_HOST_FULL 'h'

static char look(struct watched *watched)
{
    const struct disk *disk = watched->disk;
    struct tally tally = {.watched = watched};

    if (fstatfs(disk->parent, &watched->fs) == 0 &&
        (uint64_t)watched->fs.f_bavail * (uint64_t)watched->fs.f_bsize < FREE_LEAST_BYTES)
        return LOOK_HOST_FULL;
    tally_add(&tally, disk->parent, disk->name, 0);
    tally_processes(&tally, watched->proc);
    free(tally.unnamed);
    if (is_over(&tally))
        return LOOK_OVER;
    watched->found = tally.sum;
    watched->most = (struct amount){
        most_of(disk->bytes, watched->most.bytes, tally.sum.bytes, SLACK_BYTES),
        most_of(disk->inodes, watched->most.inodes, tally.sum.inodes, SLACK_INODES)};
    return LOOK_WELL;
}

/* Whether the box may have written much: all that it writes is missing from what was free. Only where
 * that is told to the block at once. */
static bool has_shrunk(const struct watched *watched)
{
    uint64_t bytes = (watched->most.bytes - watched->found.bytes) / SHRUNK_SHARE;
    uint64_t inodes = (watched->most.inodes - watched->found.inodes) / SHRUNK_SHARE;
    struct statfs now;

    if (fstatfs(watched->disk->parent, &now) < 0 || now.f_type != EXT4_MAGIC)
        return true;
    return now.f_bfree + bytes / (uint64_t)now.f_bsize < watched->fs.f_bfree ||
           now.f_ffree + inodes < watched->fs.f_ffree;
}

/* Whoever asks does not need it to the block, and each time it is written to the disk. */
static void tell(struct watched *watched)
{
    uint64_t now = clock_monotonic_ns();
    char text[24];
    int length;

    if (watched->counted != NULL)
        atomic_store(watched->counted, watched->found.bytes);
    if (!watched->disk->is_kept || watched->found.bytes == watched->told ||
        (watched->told_ns != 0 && now - watched->told_ns < COUNTED_EVERY_NS))
        return;
    length = snprintf(text, sizeof(text), "%llu", (unsigned long long)watched->found.bytes);
    (void)fsetxattr(watched->disk->parent, COUNTED, text, (size_t)length, 0);
    watched->told = watched->found.bytes;
    watched->told_ns = now;
}

int disk_counted(int directory, uint64_t *bytes)
{
    char text[24];
    ssize_t n = fgetxattr(directory, COUNTED, text, sizeof(text) - 1);

    if (n <= 0)
        return -1;
    text[n] = '\0';
    if (strspn(text, "0123456789") != (size_t)n || n > 18)
        return -1;
    *bytes = strtoull(text, NULL, 10);
    return 0;
}

static void wait_ns(uint64_t ns)
{
    (void)nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000U),
                                       .tv_nsec = (long)(ns % 1000000000U)},
                    NULL);
}

/* A large disk that nobody writes to costs little, and one that is written to is seen to in time. */
static void watch_wait(const struct watched *watched, uint64_t took_ns)
{
    uint64_t least = took_ns * COUNTING_SHARE, most = took_ns * IDLE_SHARE;

    if (least < PERIOD_LEAST_NS)
        least = PERIOD_LEAST_NS;
    if (most < IDLE_LEAST_NS)
        most = IDLE_LEAST_NS;
    wait_ns(least);
    for (uint64_t waited = least; waited < most && !has_shrunk(watched); waited += PERIOD_LEAST_NS)
        wait_ns(PERIOD_LEAST_NS);
}

/* What lies in memory is counted there. The kernel's own file system for such files shows itself by any
 * of them. */
static void memory_find(struct watched *watched, int scratch)
{
    _cleanup_close_ int file = memfd_create("cove-disk", MFD_CLOEXEC);
    struct stat st;

    if (file >= 0 && fstat(file, &st) == 0)
        watched->memory[0] = st.st_dev;
    if (fstat(scratch, &st) == 0)
        watched->memory[1] = st.st_dev;
}

static uint64_t times(uint64_t limit, uint64_t more)
{
    return limit > (UINT64_MAX - more) / OVER_TIMES ? UINT64_MAX : limit * OVER_TIMES + more;
}

/* Nothing of the box runs before the first look: what it finds was there. What is over its limit later is
 * of this box. */
static _Noreturn void watch(const struct disk *disk, int proc, int scratch, int init,
                            _Atomic uint64_t *counted, int first)
{
    struct watched watched = {
        .disk = disk,
        .proc = proc,
        .counted = counted,
        .told = UINT64_MAX,
        .most = disk->is_kept ? (struct amount){times(disk->bytes, OVER_BYTES),
                                                times(disk->inodes, OVER_INODES)}
                              : (struct amount){disk->bytes, disk->inodes},
    };
    uint64_t began = clock_monotonic_ns();
    sigset_t stop;
    char found;

    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGTERM);
    if (signal(SIGTERM, SIG_DFL) == SIG_ERR || sigprocmask(SIG_UNBLOCK, &stop, NULL) < 0)
        _exit(2);
    memory_find(&watched, scratch);
    found = look(&watched);
    if (found == LOOK_WELL)
        tell(&watched);
    if (write(first, &found, 1) != 1 || found != LOOK_WELL)
        _exit(1);
    (void)close(first);
    for (;;) {
        watch_wait(&watched, clock_monotonic_ns() - began);
        began = clock_monotonic_ns();
        if (look(&watched) != LOOK_WELL) {
            /* Once the box ends this process is told to end, too: not before it has said why. */
            if (sigprocmask(SIG_BLOCK, &stop, NULL) < 0)
                _exit(2);
            (void)sys_pidfd_send_signal(init, SIGKILL);
            _exit(1);
        }
        tell(&watched);
    }
}

static int refuse(char found, struct error *err)
{
    if (found == LOOK_OVER)
        return error_set(err, "disk_exceeded", 0,
                         "the box's disk has more than %d times what its limit allows, or "
                         "directories too deep to count: remove the sandbox",
                         OVER_TIMES);
    if (found == LOOK_HOST_FULL)
        return error_set(err, "capacity", 0,
                         "the filesystem that the box's disk lies on is full: free at least %u MiB "
                         "there",
                         FREE_LEAST_BYTES >> 20);
    return error_set(err, "limits_failed", 0, "cannot start the disk's watchdog");
}

pid_t disk_watch(const struct disk *disk, int userns, int proc, int scratch, int init,
                 _Atomic uint64_t *counted, struct error *err)
{
    int first[2];
    char found = 0;
    pid_t pid;

    if (pipe2(first, O_CLOEXEC) < 0)
        return error_set(err, "limits_failed", errno, "cannot start the disk's watchdog");
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_NAME, "cove-disk");
        (void)prctl(PR_SET_DUMPABLE, 0);
        (void)close(first[0]);
        if (become_root_of(userns) < 0)
            _exit(2);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* changing ids forgets it, so it comes after */
        watch(disk, proc, scratch, init, counted, first[1]);
    }
    (void)close(first[1]);
    while (pid > 0 && read(first[0], &found, 1) < 0 && errno == EINTR)
        continue;
    (void)close(first[0]);
    if (found == LOOK_WELL)
        return pid;
    (void)disk_was_full(pid);
    return refuse(found, err);
}

bool disk_was_full(pid_t watcher)
{
    int status = 0;

    if (watcher <= 0)
        return false;
    (void)kill(watcher, SIGTERM);
    while (waitpid(watcher, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}
