/* Images that cannot be mounted: see unpack.h.
 *
 * ~/.cache/cove/roots holds a directory per content, a link per image file to the one of its content
 * (so that an image is read once and not at each run), and nothing that is half-made: a directory gets
 * its name when it is complete. */
#include "box/unpack.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/remove.h"
#include "base/sha256.h"
#include "box/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNPACK_MEMORY (512ULL << 20)
#define UNPACK_PIDS 16

/* Nobody waits longer for an image, and none may fill the disk. */
#define UNPACK_SECONDS 1800
#define UNPACK_LOOK_MS 100
#define FREE_LEAST_BYTES (256U << 20)

/* ---- what is there ---- */

/* What says that an image file is the one that was read before. */
static void stamp_name(const struct stat *st, char *name, size_t size)
{
    (void)snprintf(name, size, "file-%llx-%llx-%llx-%llx.%lx-%llx.%lx",
                   (unsigned long long)st->st_dev, (unsigned long long)st->st_ino,
                   (unsigned long long)st->st_size, (unsigned long long)st->st_mtim.tv_sec,
                   (unsigned long)st->st_mtim.tv_nsec, (unsigned long long)st->st_ctim.tv_sec,
                   (unsigned long)st->st_ctim.tv_nsec);
}

static int content_name(int image, char name[SHA256_TEXT], struct error *err)
{
    struct sha256 hash;
    static char block[1 << 18];
    ssize_t n;
    off_t at = 0;

    sha256_begin(&hash);
    while ((n = pread(image, block, sizeof(block), at)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(err, "bad_root", errno, "cannot read the image");
        sha256_add(&hash, block, (size_t)n);
        at += n;
    }
    sha256_end(&hash, name);
    return 0;
}

/* ---- unpacking, in a box ---- */

static bool is_nearly_full(int directory)
{
    struct statfs fs;

    return fstatfs(directory, &fs) == 0 &&
           (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < FREE_LEAST_BYTES;
}

static int await_end(struct box *box, int directory, int *status, struct error *err)
{
    uint64_t until_ns = clock_monotonic_ns() + UNPACK_SECONDS * 1000000000ULL;
    struct pollfd wait = {.fd = box_fd(box), .events = POLLIN};
    struct box_event event;

    for (;;) {
        int got = box_next(box, &event, err);

        if (is_nearly_full(directory))
            return error_set(
                err, "cache_failed", ENOSPC,
                "it needs more room than the cache's disk has (XDG_CACHE_HOME, or .cache "
                "in HOME)");
        if (clock_monotonic_ns() > until_ns)
            return error_set(err, "bad_root", 0, "it takes longer than half an hour");

        if (got < 0)
            return -1;
        if (got == 0) {
            (void)poll(&wait, 1, UNPACK_LOOK_MS);
        } else if (event.kind == BOX_GONE) {
            *err = event.error;
            return -1;
        } else if (event.kind == BOX_REFUSED) {
            *status = event.errnum == ENOENT ? 127 << 8 : 126 << 8;
            return 0;
        } else if (event.kind == BOX_EXITED) {
            *status = event.status;
            return 0;
        }
    }
}

static int run_boxed(const struct box_spec *spec, int directory, int *status, struct error *err)
{
    static const char *const argv[] = {"fsck.erofs",          "--extract=/tmp/out/root",
                                       "--no-preserve-owner", "--preserve-perms",
                                       "/tmp/image",          NULL};
    static const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    _cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct box_command command = {
        .argv = argv, .env = env, .cwd = "/tmp", .stdio = {null, null, null}};
    struct error ignored;
    struct box *box;
    int done;

    if (box_create(spec, &box, err) < 0)
        return -1;
    done = box_exec(box, 1, &command, err);
    if (done == 0)
        done = await_end(box, directory, status, err);
    (void)box_destroy(box, NULL, &ignored);
    return done;
}

static int extract(int image, int directory, const char *path, const struct box_spec *spec,
                   struct error *err)
{
    char source[64], target[64];
    const struct box_bind binds[] = {
        {.source = source, .target = "/tmp/image", .read_only = true},
        {.source = target, .target = "/tmp/out"},
    };
    /* Set-id programs of the image keep their mode: nobody else gets into the directory. */
    const struct box_spec own = {
        .binds = binds,
        .binds_count = 2,
        .limits = {.memory_bytes = UNPACK_MEMORY,
                   .pids = UNPACK_PIDS,
                   .disk_bytes = 16U << 20,
                   .disk_inodes = 1024},
        .allow_no_fresh_proc = spec->allow_no_fresh_proc,
        .allow_set_id = true,
    };
    int status = 0;

    (void)snprintf(source, sizeof(source), "/proc/self/fd/%d", image);
    (void)snprintf(target, sizeof(target), "/proc/self/fd/%d", directory);
    if (run_boxed(&own, directory, &status, err) < 0)
        return error_wrap(err, "cannot unpack the image %s", path);
    if (status == 127 << 8)
        return error_set(
            err, "bad_root", 0,
            "only root can mount the erofs image %s, and fsck.erofs, which unpacks it, is "
            "not here: install erofs-utils",
            path);
    if (status != 0)
        return error_set(
            err, "bad_root", 0,
            "fsck.erofs cannot unpack the image %s: it may be damaged, or the disk full", path);
    return 0;
}

/* Under a name of its own first. Two at once do the work twice, and one of them wins. What the image was
 * while it was unpacked is asked again at the end: whoever may write to it must not give another image its
 * name. */
static int unpack(int cache, const char *name, int image, const char *path,
                  const struct box_spec *spec, struct error *err)
{
    char temporary[64], after[SHA256_TEXT];
    _cleanup_close_ int directory = -1;
    int done;

    cache_sweep(cache, "new-");
    directory = cache_make_own(cache, "new-", temporary, sizeof(temporary), err);
    if (directory < 0)
        return -1;
    if (spec->tell != NULL)
        spec->tell("unpacking the image, once: only root could mount it");
    done = extract(image, directory, path, spec, err);
    if (done == 0)
        done = content_name(image, after, err);
    if (done == 0 && strcmp(after, name) != 0)
        done = error_set(err, "bad_root", 0,
                         "the image %s changed while it was unpacked; try again", path);
    if (done == 0 && renameat(cache, temporary, cache, name) < 0 && errno != ENOTEMPTY &&
        errno != EEXIST)
        done = error_set(err, "cache_failed", errno, "cannot keep the unpacked image %s", path);
    (void)remove_tree(cache, temporary); /* what failed, or came second */
    return done;
}

static int root_of(int cache, const char *name)
{
    char path[SHA256_TEXT + 16];

    (void)snprintf(path, sizeof(path), "%s/root", name);
    return openat(cache, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int unpack_open(int image, const char *path, const struct box_spec *spec, struct error *err)
{
    char stamp[160], name[SHA256_TEXT];
    _cleanup_close_ int cache = cache_open("roots", err);
    struct stat st;
    ssize_t known;
    int root;

    if (cache < 0)
        return -1;
    if (fstat(image, &st) < 0)
        return error_set(err, "bad_root", errno, "cannot read the image %s", path);
    stamp_name(&st, stamp, sizeof(stamp));
    known = readlinkat(cache, stamp, name, sizeof(name));
    if (known == SHA256_TEXT - 1) {
        name[known] = '\0';
        root = root_of(cache, name);
        if (root >= 0)
            return root;
    }
    if (content_name(image, name, err) < 0)
        return -1;
    root = root_of(cache, name);
    if (root < 0 && unpack(cache, name, image, path, spec, err) < 0)
        return -1;
    (void)unlinkat(cache, stamp, 0);
    (void)!symlinkat(name, cache, stamp); /* without it the next run reads the image once more */
    if (root < 0)
        root = root_of(cache, name);
    return root >= 0
               ? root
               : error_set(err, "cache_failed", errno, "cannot open the unpacked image %s", path);
}
