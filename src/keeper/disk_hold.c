/* Holding disks: see disk_hold.h. */
#include "keeper/disk_hold.h"

#include "base/fd.h"
#include "keeper/keeper.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* What ext4 sets apart by itself (ext4_calculate_resv_clusters): a fiftieth, 4,096 blocks at most. */
#define OWN_SHARE 50
#define OWN_MOST 4096

/* EXT4_IOC_SHUTDOWN, and EXT4_GOING_FLAGS_NOLOGFLUSH: no header has them. */
#define SHUTDOWN _IOR('X', 125, uint32_t)
#define WITHOUT_FLUSH 2

/* In its file system, and of that on the host's. */
struct weight {
    uint64_t used, written;
};

static struct weight weigh(const struct keeper *keeper, const struct boxed *boxed)
{
    uint64_t written = disks_weigh(keeper, boxed->disk);
    struct weight weight = {written, written};
    struct statfs fs;

    if (boxed->disk_fd >= 0 && fstatfs(boxed->disk_fd, &fs) == 0)
        weight.used = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    return weight;
}

void disk_hold_left(const struct keeper *keeper, struct keeper_disks *answer)
{
    struct statvfs fs;
    uint64_t owed = 0;

    answer->free_bytes = answer->left_bytes = UINT64_MAX;
    if (fstatvfs(keeper->places.disks, &fs) < 0)
        return;
    answer->free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    for (size_t i = 0; i < keeper->boxes.used; i++) {
        const struct boxed *boxed = keeper->boxes.table[i];
        struct weight weight;

        if (boxed == NULL || boxed->disk_fd < 0)
            continue;
        weight = weigh(keeper, boxed);
        owed += weight.used > weight.written ? weight.used - weight.written : 0;
    }
    answer->left_bytes = answer->free_bytes > owed ? answer->free_bytes - owed : 0;
}

/* By the name of its device: "7:3" is loop3. */
static int reserve_path(int disk, char *path, size_t size)
{
    char device[64], target[PATH_MAX];
    const char *name;
    struct stat st;
    ssize_t length;

    if (fstat(disk, &st) < 0)
        return -1;
    (void)snprintf(device, sizeof(device), "/sys/dev/block/%u:%u", major(st.st_dev),
                   minor(st.st_dev));
    length = readlink(device, target, sizeof(target) - 1);
    if (length < 0)
        return -1;
    target[length] = '\0';
    name = strrchr(target, '/');
    (void)snprintf(path, size, "/sys/fs/ext4/%s/reserved_clusters",
                   name != NULL ? name + 1 : target);
    return 0;
}

static int reserve_set(int disk, uint64_t blocks)
{
    char path[PATH_MAX + 64], text[24];

    if (reserve_path(disk, path, sizeof(path)) < 0)
        return -1;
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)blocks);
    return fd_write_file(AT_FDCWD, path, text);
}

static uint64_t reserve_usual(const struct statfs *fs)
{
    uint64_t own = (uint64_t)fs->f_blocks / OWN_SHARE;

    return own < OWN_MOST ? own : OWN_MOST;
}

/* Absolute: what is written meanwhile makes it no more than `most`. */
static uint64_t reserve_of(const struct statfs *fs, uint64_t most)
{
    uint64_t own = reserve_usual(fs), free_blocks = (uint64_t)fs->f_bfree;
    uint64_t blocks = most / (uint64_t)fs->f_bsize;

    return free_blocks > blocks && free_blocks - blocks > own ? free_blocks - blocks : own;
}

void disk_hold(const struct keeper *keeper, const struct boxed *boxed, uint64_t most,
               struct keeper_disks *answer)
{
    struct weight weight = weigh(keeper, boxed);
    struct statfs fs;

    answer->used_bytes = weight.used;
    answer->written_bytes = weight.written;
    if (boxed->disk_fd >= 0 && fstatfs(boxed->disk_fd, &fs) == 0)
        answer->is_held = reserve_set(boxed->disk_fd, reserve_of(&fs, most)) == 0;
}

void disk_hold_spare(int disk)
{
    struct statfs fs;
    struct stat st;

    if (fstatat(disk, "home", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        fstatat(disk, "root", &st, AT_SYMLINK_NOFOLLOW) == 0 || fstatfs(disk, &fs) < 0 ||
        reserve_set(disk, 0) < 0)
        return;
    (void)umask(0);
    if (mkdirat(disk, "root", 0755) == 0)
        (void)mkdirat(disk, "root/home", 0755);
    (void)reserve_set(disk, reserve_usual(&fs));
}

void disk_cut(const struct boxed *boxed)
{
    _cleanup_close_ int top = boxed->disk_fd < 0
                                  ? -1
                                  : openat(boxed->disk_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint32_t how = WITHOUT_FLUSH;

    if (top >= 0 && ioctl(top, SHUTDOWN, &how) == 0)
        keeper_say("disk_cut", "nothing more is written to disk %s: the host has no room for it",
                   boxed->disk);
}
