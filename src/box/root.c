/* Roots and binds: see root.h. */
#include "box/root.h"

#include "base/fd.h"
#include "base/kernel.h"
#include "base/program.h"
#include "box/idmap.h"
#include "box/loop.h"
#include "box/switches.h"
#include "box/sys.h"
#include "box/unpack.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define EROFS_MAGIC_OFFSET 1024
#define EROFS_MAGIC 0xe0f5e1e2U

/* ---- image roots ---- */

static int open_directory(const char *path, struct error *err)
{
    struct mount_attr no_devices = {.attr_set = MOUNT_ATTR_NODEV};
    struct stat st;
    int mount;

    if (stat(path, &st) < 0)
        return error_set(err, "bad_root", errno,
                         "cannot use the root %s (--root takes a directory or an erofs image)",
                         path);
    mount = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    /* Its device nodes open nothing, for us either. */
    if (mount < 0 || sys_mount_setattr(mount, "", AT_EMPTY_PATH, &no_devices) < 0) {
        fd_close(&mount);
        return error_set(err, "bad_root", errno, "cannot take the root %s", path);
    }
    return mount;
}

/* Without access lists: each directory that a box makes below one with a default list would have it too, up to
 * 128 KiB that no cgroup counts. Modes hold. */
static int mount_erofs(const char *source)
{
    _cleanup_close_ int fs = sys_fsopen("erofs");

    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", source, 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_SET_FLAG, "noacl", NULL, 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return sys_fsmount(fs, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
}

/* The kernel parses what is in there: at least nothing that is no erofs gets that far. */
static int check_erofs(int file, const char *path, struct error *err)
{
    uint32_t magic = 0;
    struct stat st;

    if (fstat(file, &st) == 0 && S_ISREG(st.st_mode) &&
        pread(file, &magic, sizeof(magic), EROFS_MAGIC_OFFSET) == sizeof(magic) &&
        magic == EROFS_MAGIC)
        return 0;
    return error_set(err, "bad_root", 0,
                     "the root %s is no erofs image (--root takes a directory, or an image made "
                     "with mkfs.erofs)",
                     path);
}

static int open_erofs(const char *path, struct error *err)
{
    _cleanup_close_ int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    _cleanup_close_ int device = -1;
    char name[PATH_MAX];
    int mount;

    if (file < 0)
        return error_set(err, "bad_root", errno, "cannot read the root %s", path);
    if (check_erofs(file, path, err) < 0)
        return -1;
    /* Linux 6.12 mounts the file itself. */
    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
    mount = mount_erofs(name);
    if (mount >= 0)
        return mount;
    device = loop_attach(file, true, name, sizeof(name), err);
    if (device < 0)
        return -1;
    mount = mount_erofs(name);
    if (mount < 0)
        return error_set(err, "bad_root", errno, "cannot mount the erofs image %s", path);
    return mount;
}

/* Overlays take idmapped layers from Linux 5.19 on; before, the mount of one would fail. */
static int map_root(int lower, const struct root_ids *ids)
{
    struct idmap map = {.host_uid = ids->first, .host_gid = ids->first, .count = ids->count};
    struct error err;
    _cleanup_close_ int userns = -1;

    if (switched_off("idmap") || !kernel_is_at_least(5, 19))
        return -1;
    userns = idmap_open(&map, &err);
    return userns < 0 ? -1 : idmap_apply(lower, userns);
}

int root_place_open(const struct box_spec *spec, int *lower, struct error *err)
{
    _cleanup_close_ int file = -1;

    if (spec->root_kind == BOX_ROOT_DIR) {
        *lower = open(spec->root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return *lower >= 0 ? 0
                           : error_set(err, "bad_root", errno,
                                       "cannot use the root %s (--root takes a directory or an "
                                       "erofs image)",
                                       spec->root_path);
    }
    file = open(spec->root_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return error_set(err, "bad_root", errno, "cannot read the root %s", spec->root_path);
    if (check_erofs(file, spec->root_path, err) < 0)
        return -1;
    *lower = unpack_open(file, spec->root_path, spec, err);
    return *lower >= 0 ? 0 : -1;
}

int root_layer_open(const struct box_spec *spec, int *lower, struct error *err)
{
    *lower = spec->root_kind == BOX_ROOT_DIR ? open_directory(spec->root_path, err)
                                             : open_erofs(spec->root_path, err);
    return *lower >= 0 ? 0 : -1;
}

int root_open(const struct box_spec *spec, const struct root_ids *ids, int *lower, char *warning,
              size_t warning_size, struct error *err)
{
    if (root_layer_open(spec, lower, err) < 0)
        return -1;
    if (map_root(*lower, ids) == 0)
        return 0;
    if (spec->privileges == BOX_SYSTEM) {
        fd_close(lower);
        return error_set(err, "no_idmap", 0,
                         "the filesystem of the root %s cannot be idmapped by this kernel, so its "
                         "files would belong to nobody; use --privileges plain, Linux 5.19 or "
                         "later, or a root on ext4, xfs or btrfs",
                         spec->root_path);
    }
    (void)snprintf(warning, warning_size,
                   "the filesystem of the root %s cannot be idmapped by this kernel: its files "
                   "appear as nobody's and cannot be changed",
                   spec->root_path);
    return 0;
}

/* ---- binds ---- */

/* Whose files the box's user makes: the caller's; where root runs cove on somebody's directory,
 * that somebody's, so that sudo leaves no files of root behind. */
static void bind_owner(const struct root_taken *taken, uid_t *uid, gid_t *gid)
{
    *uid = getuid();
    *gid = getgid();
    if (*uid == 0) {
        *uid = taken->uid;
        *gid = taken->gid;
    }
}

static int bind_map(const struct root_taken *taken, const struct root_ids *ids, struct error *err)
{
    struct idmap map = {
        .host_uid = ids->first + ids->user, .host_gid = ids->first + ids->group, .count = 1};
    _cleanup_close_ int userns = -1;

    bind_owner(taken, &map.on_disk_uid, &map.on_disk_gid);
    userns = idmap_open(&map, err);
    if (userns < 0)
        return -1;
    if (switched_off("idmap")) {
        errno = EINVAL;
        return -2;
    }
    return idmap_apply(taken->mount, userns) == 0 ? 0 : -2;
}

static int bind_check(const struct box_bind *bind, mode_t mode, struct plan_bind *out,
                      struct error *err)
{
    if (strlen(bind->target) >= sizeof(out->target))
        return error_set(err, "bad_mount", 0, "the mount target %s is too long (255 bytes at most)",
                         bind->target);
    if (!S_ISDIR(mode) && !S_ISREG(mode))
        return error_set(err, "bad_mount", 0,
                         "cannot mount %s into the box: only directories and regular files can be",
                         bind->source);
    out->is_directory = S_ISDIR(mode);
    out->read_only = bind->read_only;
    (void)snprintf(out->target, sizeof(out->target), "%s", bind->target);
    return 0;
}

int root_bind_place_open(const struct box_bind *bind, const struct caller *caller,
                         struct plan_bind *out, struct error *err)
{
    _cleanup_close_ int place = open(bind->source, O_PATH | O_CLOEXEC);
    struct statx is;

    /* The kind of a file never changes: the kernel is asked and no server, which may not answer. */
    if (place < 0 || statx(place, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &is) < 0)
        return error_set(err, "bad_mount", errno, "cannot mount %s into the box", bind->source);
    if (bind_check(bind, is.stx_mode, out, err) < 0)
        return -1;
    /* Root of the host is no id that a box may have, and without the right to map owners there is no
     * other way to write as it. */
    if (!bind->read_only && caller->uid == 0 && caller->on_host)
        return error_set(
            err, "no_idmap", 0,
            "cannot mount %s into the box to be written: this root may not map owners "
            "(it lacks CAP_SYS_ADMIN); mount it read-only with :ro, give the container "
            "that capability, or run cove as an ordinary user",
            bind->source);
    out->mount = fd_take(&place);
    return 0;
}

int root_bind_take(const struct box_bind *bind, struct root_taken *taken, struct error *err)
{
    _cleanup_close_ int mount = -1;
    struct stat st;

    /* The same file is taken and looked at: the path may mean another the next moment. */
    mount = sys_open_tree(AT_FDCWD, bind->source,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (mount < 0 || fstatat(mount, "", &st, AT_EMPTY_PATH) < 0)
        return error_set(err, "bad_mount", errno, "cannot mount %s into the box", bind->source);
    *taken = (struct root_taken){
        .mount = fd_take(&mount), .mode = st.st_mode, .uid = st.st_uid, .gid = st.st_gid};
    return 0;
}

int root_bind_open(const struct box_bind *bind, const struct root_ids *ids, struct plan_bind *out,
                   struct error *err)
{
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                    (bind->read_only ? (unsigned)MOUNT_ATTR_RDONLY : 0U),
        .propagation = MS_PRIVATE,
    };
    struct root_taken taken = {.mount = -1};
    _cleanup_close_ int mount = -1;
    int mapped;

    if (bind->taken != NULL) {
        taken = *bind->taken;
        taken.mount = fcntl(bind->taken->mount, F_DUPFD_CLOEXEC, 3);
    } else if (root_bind_take(bind, &taken, err) < 0) {
        return -1;
    }
    mount = taken.mount;
    if (bind_check(bind, taken.mode, out, err) < 0)
        return -1;
    if (sys_mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return error_set(err, "bad_mount", errno, "cannot mount %s into the box", bind->source);
    mapped = bind_map(&taken, ids, err);
    if (mapped == -1)
        return -1;
    /* Read-only, nothing can be left with a wrong owner; what is readable for all is readable. */
    if (mapped < 0 && !bind->read_only)
        return error_set(err, "no_idmap", errno,
                         "the filesystem of %s cannot map owners (no idmapped mounts), so files "
                         "written in the box could not be yours; mount it read-only with :ro, or "
                         "move it to ext4, xfs or btrfs (Linux 5.12 or later), or tmpfs (6.3)",
                         bind->source);
    out->mount = fd_take(&mount);
    return 0;
}

/* ---- the upper layer where tmpfs cannot hold it ---- */

bool root_tmpfs_has_xattrs(const struct caller *caller)
{
    _cleanup_close_ int fs = -1, mount = -1, root = -1;

    if (switched_off("tmpfsxattr"))
        return false;
    if (!caller->mounts) /* and cannot try */
        return kernel_is_at_least(6, 6);
    fs = sys_fsopen("tmpfs");
    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return false;
    mount = sys_fsmount(fs, 0);
    root = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return root >= 0 && fsetxattr(root, "user.cove", "y", 1, 0) == 0;
}

static int make_ext4(const char *device, uint64_t inodes, uint32_t owner, struct error *err)
{
    char count[32], extended[96];
    char *argv[] = {"mkfs.ext4", "-q", "-F",           "-m",
                    "0",         "-O", "^has_journal", "-N",
                    count,       "-E", extended,       (char *)(uintptr_t)device,
                    NULL};
    char *env[] = {"PATH=/usr/sbin:/sbin:/usr/bin:/bin", NULL};
    char program[64];
    int status;
    pid_t pid;

    if (!program_find(argv[0], program, sizeof(program)))
        return error_set(
            err, "disk_failed", 0,
            "mkfs.ext4, which makes the box's disk, is not here; install e2fsprogs, or use "
            "Linux 6.6 or later, which does not need it");
    (void)snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes);
    (void)snprintf(extended, sizeof(extended), "root_owner=%u:%u,lazy_itable_init=1,nodiscard",
                   owner, owner);
    pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        (void)dup2(null, 0);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
        (void)execve(program, argv, env);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return error_set(err, "disk_failed", errno, "cannot run mkfs.ext4");
    if (status != 0)
        return error_set(err, "disk_failed", 0,
                         "mkfs.ext4 cannot make the box's disk; give it another size with --disk");
    return 0;
}

int root_upper_open(const struct box_limits *limits, const struct root_ids *ids, int *upper,
                    struct error *err)
{
    _cleanup_close_ int memory = memfd_create("cove-disk", MFD_CLOEXEC);
    uint64_t inodes = limits->disk_inodes;
    _cleanup_close_ int device = -1, fs = -1;
    char path[64];

    if (memory < 0 || ftruncate(memory, (off_t)limits->disk_bytes) < 0)
        return error_set(err, "disk_failed", errno, "cannot make the box's disk");
    device = loop_attach(memory, false, path, sizeof(path), err);
    /* A table of inodes larger than the disk is none: one for every 2 KiB at most. */
    if (inodes > limits->disk_bytes / 2048)
        inodes = limits->disk_bytes / 2048;
    if (device < 0 || make_ext4(path, inodes, ids->first, err) < 0)
        return -1;
    fs = sys_fsopen("ext4");
    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "source", path, 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_set(err, "disk_failed", errno, "cannot mount the box's disk");
    *upper = sys_fsmount(fs, MOUNT_ATTR_NODEV);
    return *upper >= 0 ? 0 : error_set(err, "disk_failed", errno, "cannot mount the box's disk");
}
