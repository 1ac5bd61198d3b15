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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

/* Deeper directories are not counted but count as many files as the limit has: nobody needs them. */
#define DEPTH_MAX 200
#define PERIOD_LEAST_NS 50000000U

/* Of the time, one part in so many is spent on counting. */
#define COUNTING_SHARE 4

/* A file system that is nearly full is full: there the host's own programs fail. */
#define FREE_LEAST_BYTES (64U << 20)

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

    if (disk->parent < 0)
        return;
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

struct tally {
    uint64_t bytes, inodes;
    const struct disk *limits;
};

static bool is_over(const struct tally *tally)
{
    return tally->bytes > tally->limits->bytes || tally->inodes > tally->limits->inodes;
}

static void tally_add(struct tally *tally, int dir, const char *name, int depth)
{
    const struct dirent *entry;
    struct stat st;
    DIR *list;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    tally->inodes++;
    tally->bytes += (uint64_t)st.st_blocks * 512 /
                    (st.st_nlink > 1 && !S_ISDIR(st.st_mode) ? (uint64_t)st.st_nlink : 1);
    if (!S_ISDIR(st.st_mode))
        return;
    if (depth == DEPTH_MAX) {
        tally->inodes += tally->limits->inodes;
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

/* Files that are open and have no name any more: one process's. One that several have open is counted for
 * each of them. */
static void tally_unnamed(struct tally *tally, int process)
{
    DIR *list = list_open(process, "fd");
    const struct dirent *entry;
    struct stat st;

    if (list == NULL)
        return;
    while (!is_over(tally) && (entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe)
        if (entry->d_name[0] != '.' && fstatat(dirfd(list), entry->d_name, &st, 0) == 0 &&
            S_ISREG(st.st_mode) && st.st_nlink == 0)
            tally->bytes += (uint64_t)st.st_blocks * 512;
    (void)closedir(list);
}

/* And those that are only mapped: as long as the mapping, for no more can be found out. */
static void tally_mapped(struct tally *tally, int process)
{
    int fd = openat(process, "maps", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    char line[512], *end;

    if (file == NULL) {
        fd_close(&fd);
        return;
    }
    while (!is_over(tally) && fgets(line, sizeof(line), file) != NULL) {
        uint64_t first = strtoull(line, &end, 16);
        uint64_t last = *end == '-' ? strtoull(end + 1, &end, 16) : first;

        /* " rw-s" and a file that has lost its name. */
        if (strncmp(end, " rw-s", 5) == 0 && strstr(line, " (deleted)") != NULL)
            tally->bytes += last - first;
    }
    (void)fclose(file);
}

static void tally_processes(struct tally *tally, int proc)
{
    DIR *list = list_open(proc, ".");
    const struct dirent *entry;

    if (list == NULL)
        return;
    while ((entry = readdir(list)) != NULL) { // NOLINT(concurrency-mt-unsafe): a list of our own
        _cleanup_close_ int process = -1;

        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        process = openat(dirfd(list), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (process >= 0) {
            tally_unnamed(tally, process);
            tally_mapped(tally, process);
        }
    }
    (void)closedir(list);
}

static bool is_full(const struct disk *disk, int proc)
{
    struct tally tally = {.limits = disk};
    struct statfs fs;

    if (fstatfs(disk->parent, &fs) == 0 &&
        (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < FREE_LEAST_BYTES)
        return true;
    tally_add(&tally, disk->parent, disk->name, 0);
    tally_processes(&tally, proc);
    return is_over(&tally);
}

static _Noreturn void watch(const struct disk *disk, int proc, int init)
{
    for (;;) {
        uint64_t began = clock_monotonic_ns(), rest;

        if (is_full(disk, proc)) {
            (void)sys_pidfd_send_signal(init, SIGKILL);
            _exit(1);
        }
        rest = (clock_monotonic_ns() - began) * COUNTING_SHARE;
        if (rest < PERIOD_LEAST_NS)
            rest = PERIOD_LEAST_NS;
        (void)nanosleep(&(struct timespec){.tv_sec = (time_t)(rest / 1000000000U),
                                           .tv_nsec = (long)(rest % 1000000000U)},
                        NULL);
    }
}

pid_t disk_watch(const struct disk *disk, int userns, int proc, int init)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    (void)prctl(PR_SET_NAME, "cove-disk");
    (void)prctl(PR_SET_DUMPABLE, 0);
    if (become_root_of(userns) < 0)
        _exit(2);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* changing ids forgets it, so it comes after */
    watch(disk, proc, init);
}

bool disk_was_full(pid_t watcher)
{
    int status = 0;

    if (watcher <= 0)
        return false;
    (void)kill(watcher, SIGKILL);
    while (waitpid(watcher, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}
