/* See attach.h. */
#include "box/attach.h"

#include "base/fd.h"
#include "box/processes.h"
#include "box/sys.h"
#include "box/tree_parts.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#ifndef UMOUNT_NOFOLLOW /* <sys/mount.h> has it, which does not go with <linux/mount.h> */
#define UMOUNT_NOFOLLOW 8
#endif

/* As many as 16 targets of 255 bytes can have above them: only what programs keep in use comes to more. */
#define HELD_MAX 2048

#define INIT_PROGRAM "/memfd:cove-init"

/* ---- into the box ---- */

/* Opens the root of a box's init. Until that is executed its process sets the box up, among mounts that may still be
 * the host's. */
static int open_root(int init, struct error *err)
{
    char path[64], program[sizeof(INIT_PROGRAM)] = "";
    int pid = processes_pid(init), root = -1;

    (void)snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    if (pid > 0 && readlink(path, program, sizeof(program) - 1) > 0) {
        if (strcmp(program, INIT_PROGRAM) != 0)
            return error_set(err, "box_not_ready", 0, "the box does not stand yet; try again");
        (void)snprintf(path, sizeof(path), "/proc/%d/root", pid);
        root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    if (root >= 0)
        return root;
    if (pid <= 0 || errno == ENOENT || errno == ESRCH)
        return error_set(err, "box_gone", 0, "the box has ended");
    return error_set(err, "mount_failed", errno,
                     "cannot look at the box's init; give the server CAP_SYS_PTRACE");
}

/* Becomes root of the box in its namespaces. The pidfd names init also where its pid is another's by now. */
static int enter(int init, struct error *err)
{
    if (setns(init, CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return errno == ESRCH
                   ? error_set(err, "box_gone", 0, "the box has ended")
                   : error_set(err, "mount_failed", errno, "cannot enter the box's namespaces");
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return error_set(err, "mount_failed", errno, "cannot become root of the box");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* other ids forget it */
    (void)umask(0);
    return 0;
}

/* Asks the kernel and no server, which may not answer: nothing of this ever changes. */
static int look(int at, struct statx *st)
{
    return statx(at, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC,
                 STATX_TYPE | STATX_INO | STATX_MNT_ID, st);
}

static bool is_mount_root(const struct statx *st)
{
    return (st->stx_attributes_mask & st->stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

static dev_t device_of(const struct statx *st)
{
    return makedev(st->stx_dev_major, st->stx_dev_minor);
}

/* Opens what is at this path now. */
static int find(int root, const char *path)
{
    return fd_open_below(root, path + 1, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, FD_NO_LINKS);
}

/* Opens the directory above, which is not of the mount: whatever is open in that keeps it busy. */
static int find_parent(int root, const char *target)
{
    char above[PLAN_TARGET_MAX];

    (void)snprintf(above, sizeof(above), "%.*s", (int)(strrchr(target, '/') - target), target);
    return above[0] == '\0' ? fcntl(root, F_DUPFD_CLOEXEC, 3) : find(root, above);
}

/* ---- what is mounted ---- */

/* Copies a path of mountinfo, which has spaces and the like as \ooo. */
static void unescape(const char *from, char place[PLAN_TARGET_MAX])
{
    size_t used = 0;

    while (*from != '\0' && *from != ' ' && used < PLAN_TARGET_MAX) {
        bool is_escaped = from[0] == '\\' && from[1] != '\0' && from[2] != '\0' && from[3] != '\0';

        int code = is_escaped ? (from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0')
                              : (unsigned char)*from;

        place[used++] = (char)code;
        from += is_escaped ? 4 : 1;
    }
    place[used < PLAN_TARGET_MAX ? used : 0] = '\0';
}

/* Counts the mounts of the box of this id, and says where the last is, or where `place` is NULL those of this device, as
 * long as the /proc here is the host's; -1 where nobody can tell. */
static int count_mounts(int init, uint64_t mount_id, char *place, dev_t device)
{
    _cleanup_free_ char *line = NULL;
    unsigned id, major_number, minor_number;
    size_t room = 0;
    int count = 0, at;
    char path[64];
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", processes_pid(init));
    file = fopen(path, "re");
    if (file == NULL)
        return -1;
    while (getline(&line, &room, file) > 0) {
        at = 0;
        // NOLINTNEXTLINE(cert-err34-c): they are the kernel's
        if (sscanf(line, "%u %*u %u:%u %*s %n", &id, &major_number, &minor_number, &at) != 3 ||
            (place != NULL ? id != mount_id : makedev(major_number, minor_number) != device))
            continue;
        if (place != NULL)
            unescape(line + at, place);
        count++;
    }
    if (ferror(file) != 0)
        count = -1;
    (void)fclose(file);
    return count;
}

int attach_find(int init, uint64_t mount_id, char place[PLAN_TARGET_MAX])
{
    return count_mounts(init, mount_id, place, 0);
}

/* ---- mounting ---- */

/* Attaches a mount on a directory, and takes it away again where that is not at the path any more. */
static int put(int root, int mount, int at, const char *path, struct error *err)
{
    _cleanup_close_ int found = -1;
    struct statx is, wanted;

    if (tree_attach(mount, at, "") < 0)
        return error_set(err, "mount_failed", errno, "cannot mount %s in the box", path);
    found = find(root, path);
    if (found >= 0 && look(found, &is) == 0 && look(mount, &wanted) == 0 &&
        is.stx_mnt_id == wanted.stx_mnt_id)
        return 0;
    if (fchdir(mount) < 0 || sys_umount(".", MNT_DETACH) < 0)
        return error_set(err, "mount_failed", errno, "cannot take %s away again", path);
    return error_set(err, "mount_failed", 0,
                     "cannot mount %s in the box: its programs move what is there; stop them, and "
                     "try again",
                     path);
}

/* Lets go of the directories above a target, from below: one that is used, or is above another mount, stays. */
static void release_above(int root, const char *target)
{
    char above[PLAN_TARGET_MAX];
    struct statx top, st;

    (void)snprintf(above, sizeof(above), "%s", target);
    if (look(root, &top) < 0)
        return;
    for (char *slash; (slash = strrchr(above, '/')) != above;) {
        _cleanup_close_ int parent = -1, at = -1;

        *slash = '\0';
        at = find(root, above);
        if (tree_is_of_base(above))
            return;
        if (at < 0 || look(at, &st) < 0 || !is_mount_root(&st))
            continue;
        fd_close(&at); /* it would be used */
        parent = find_parent(root, above);
        if (device_of(&st) != device_of(&top) || parent < 0 || fchdir(parent) < 0 ||
            sys_umount(strrchr(above, '/') + 1, UMOUNT_NOFOLLOW) < 0)
            return;
    }
}

/* Holds the directories above a target, as far as they lie on the box's own root, and are not held yet: `room` of them at
 * most. */
static int hold_above(int root, const char *target, int room, struct error *err)
{
    char above[PLAN_TARGET_MAX];
    struct statx top, st;

    if (look(root, &top) < 0)
        return error_set(err, "mount_failed", errno, "cannot look at the box's root");
    for (const char *slash = strchr(target + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        _cleanup_close_ int at = -1, mount = -1;

        (void)snprintf(above, sizeof(above), "%.*s", (int)(slash - target), target);
        if (tree_is_of_base(above))
            return 0;
        at = tree_target(root, above, true, false, err);
        if (at < 0)
            return -1;
        if (look(at, &st) < 0)
            return error_set(err, "mount_failed", errno, "cannot look at %s in the box", above);
        if (device_of(&st) != device_of(&top))
            return 0; /* of a mount that was handed in */
        if (is_mount_root(&st))
            continue;
        if (room-- <= 0)
            return error_set(err, "mount_refused", 0,
                             "cannot mount %s: as many directories as may be, %d, are held above "
                             "what is or was mounted in the box and used since; stop the box to "
                             "have them let go",
                             target, HELD_MAX);
        mount = tree_clone_held(at);
        if (mount < 0)
            return error_set(err, "mount_failed", errno, "cannot hold %s in the box", above);
        if (put(root, mount, at, above, err) < 0)
            return -1;
    }
    return 0;
}

static int mount_at(const struct attach_box *box, int root, int mount, const char *target, int room,
                    struct error *err)
{
    _cleanup_close_ int at = -1;
    struct statx st;

    if (box->own_root && hold_above(root, target, room, err) < 0)
        return -1;
    at = tree_target(root, target, true, false, err);
    if (at < 0)
        return -1;
    if (look(mount, &st) < 0)
        return error_set(err, "mount_failed", errno, "cannot look at what comes to %s", target);
    box->begins(st.stx_mnt_id);
    return put(root, mount, at, target, err);
}

int attach_mount(const struct attach_box *box, const struct box_bind *bind,
                 const struct root_ids *ids, struct error *err)
{
    struct plan_bind taken = {.mount = -1};
    _cleanup_close_ int mount = -1, root = -1;
    struct statx top;
    int held;

    if (root_bind_open(bind, ids, &taken, err) < 0)
        return -1;
    mount = taken.mount;
    root = open_root(box->init, err);
    if (root < 0)
        return -1;
    if (look(root, &top) < 0)
        return error_set(err, "mount_failed", errno, "cannot look at the box's root");
    held = box->own_root ? count_mounts(box->init, 0, NULL, device_of(&top)) : 0;
    if (enter(box->init, err) < 0)
        return -1;
    if (mount_at(box, root, mount, bind->target, held < 0 ? 0 : HELD_MAX - held, err) == 0)
        return 0;
    if (box->own_root)
        release_above(root, bind->target);
    return -1;
}

/* ---- unmounting ---- */

/* A mount point cannot be renamed: what is looked at is what is unmounted. */
int attach_unmount(const struct attach_box *box, const char *target, const struct attach_what *what,
                   struct error *err)
{
    const char *name = strrchr(target, '/') + 1;
    _cleanup_close_ int root = open_root(box->init, err), parent = -1, at = -1;
    struct statx st;

    if (root < 0 || enter(box->init, err) < 0)
        return -1;
    parent = find_parent(root, target);
    at = parent < 0
             ? -1
             : fd_open_below(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, FD_NO_LINKS);
    if (at < 0 || look(at, &st) < 0 || !is_mount_root(&st) || device_of(&st) != what->device ||
        st.stx_ino != what->inode || (what->mount_id != 0 && st.stx_mnt_id != what->mount_id))
        return error_set(err, "mount_moved", 0,
                         "cannot unmount %s in the box: its programs have moved it; stop the box "
                         "to have it gone",
                         target);
    fd_close(&at);
    if (fchdir(parent) < 0)
        return error_set(err, "mount_failed", errno, "cannot go to the directory of %s", target);
    fd_close(&parent);
    box->begins(st.stx_mnt_id);
    if (sys_umount(name, UMOUNT_NOFOLLOW | (what->is_forced ? MNT_DETACH : 0)) == 0) {
        if (box->own_root)
            release_above(root, target);
        return 0;
    }
    if (errno == EBUSY)
        return error_set(err, "mount_busy", 0,
                         "cannot unmount %s in the box: a program uses it, or something is mounted "
                         "below it; end that, or stop the box",
                         target);
    return error_set(err, "mount_failed", errno, "cannot unmount %s in the box", target);
}
