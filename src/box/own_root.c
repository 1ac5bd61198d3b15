/* A root directory of the box's own, on its disk, in which the host's directories are mounted read-only.
 *
 * The box may have written to it before, and left links, files or nothing where something is to be mounted: so no link
 * in it is followed, and what is missing for want of room is done without. It must never lead a mount or a change of
 * owner out of that directory. */
#include "box/tree_parts.h"

#include "base/fd.h"
#include "box/accounts.h"
#include "box/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int adopt(int disk, const char *name, const char *place, struct error *err)
{
    if (renameat(disk, name, disk, place) < 0 && errno != ENOENT)
        return error_set(err, "mount_failed", errno,
                         "cannot move %s into the root of the box's disk", name);
    return 0;
}

/* A disk of before there was such a directory has these beside it. */
static int adopt_all(const struct plan *plan, int disk, struct error *err)
{
    struct stat st;

    if (!plan->disk_kept || fstatat(disk, "home", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (adopt(disk, "tmp", "root/tmp", err) < 0)
        return -1;
    if (plan->uid == 0)
        return adopt(disk, "home", "root/root", err);
    return tree_make_dir(disk, "root/home", 0755, err) < 0
               ? -1
               : adopt(disk, "home", "root/home/user", err);
}

/* To the user of a plain box, who can always enter it: there is no root in there who could mend its mode. */
static int give_root(const struct plan *plan, int disk)
{
    struct stat st;

    if (fchownat(disk, "root", plan->uid, plan->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fstatat(disk, "root", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    return (st.st_mode & S_IRWXU) == S_IRWXU
               ? 0
               : fchmodat(disk, "root", (st.st_mode & 07777) | S_IRWXU, 0);
}

/* A box may fill its disk, and has to start all the same, so that room can be made: it goes without. */
static bool is_full_disk(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT;
}

/* A directory is made here, where no box sees it, and takes its place when it is whole: a start that is killed leaves
 * no half of one, which would be taken for the box's. */
#define FRESH "fresh"

struct own {
    const char *path;
    mode_t mode;
    uid_t uid;
    gid_t gid;
};

static int make_fresh(int disk, const char *at, const struct own *own, struct error *err)
{
    if (mkdirat(disk, at, own->mode) < 0)
        return is_full_disk(errno) ? 0
                                   : error_set(err, "mount_failed", errno,
                                               "cannot make the directory /%s", own->path);
    /* EINVAL: the box has no such id. */
    if (own->uid != 0 && fchownat(disk, at, own->uid, own->gid, AT_SYMLINK_NOFOLLOW) < 0 &&
        errno != EINVAL)
        return error_set(err, "mount_failed", errno, "cannot give /%s to its user", own->path);
    return 1;
}

static void clear_fresh(int disk)
{
    (void)unlinkat(disk, FRESH "/user", AT_REMOVEDIR);
    (void)unlinkat(disk, FRESH "/tmp", 0);
    (void)unlinkat(disk, FRESH, AT_REMOVEDIR);
}

/* Makes a directory with what is in it: `user`, or the link to /tmp, or nothing. What was there is left to the box. */
static int make_own(int disk, const struct own *own, const struct own *user, bool has_tmp,
                    struct error *err)
{
    char place[32];
    struct stat st;
    int made;

    (void)snprintf(place, sizeof(place), "root/%s", own->path);
    if (fstatat(disk, place, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    made = make_fresh(disk, FRESH, own, err);
    if (made > 0 && user != NULL)
        made = make_fresh(disk, FRESH "/user", user, err) < 0 ? -1 : 1;
    if (made > 0 && has_tmp && symlinkat("../tmp", disk, FRESH "/tmp") < 0 && !is_full_disk(errno))
        return error_set(err, "mount_failed", errno, "cannot make /var/tmp");
    if (made > 0 && renameat(disk, FRESH, disk, place) < 0) {
        if (!is_full_disk(errno))
            return error_set(err, "mount_failed", errno, "cannot name the directory /%s",
                             own->path);
        clear_fresh(disk);
    }
    return made < 0 ? -1 : 0;
}

/* The directories that programs look for. One below another is made with that: later it may be a link. */
static int make_all_own(const struct plan *plan, int disk, struct error *err)
{
    uid_t uid = plan->privileges == BOX_PLAIN ? plan->uid : 0;
    gid_t gid = plan->privileges == BOX_PLAIN ? plan->gid : 0;
    const struct own user = {"home/user", 0755, plan->uid != 0 ? plan->uid : ACCOUNTS_USER,
                             plan->uid != 0 ? plan->gid : ACCOUNTS_USER};
    const struct own all[] = {
        {"opt", 0755, uid, gid}, {"root", 0755, uid, gid}, {"run", 0755, uid, gid},
        {"srv", 0755, uid, gid}, {"tmp", 01777, 0, 0},     {"var", 0755, uid, gid},
        {"home", 0755, 0, 0},
    };

    clear_fresh(disk);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        bool is_home = strcmp(all[i].path, "home") == 0, is_var = strcmp(all[i].path, "var") == 0;

        if (make_own(disk, &all[i], is_home ? &user : NULL, is_var, err) < 0)
            return -1;
    }
    clear_fresh(disk); /* where the disk was full */
    return 0;
}

int tree_own_root(const struct plan *plan, struct tree *tree, struct error *err)
{
    int disk;

    if (tree_open_disk(plan, tree, &disk, err) < 0 || tree_make_dir(disk, "root", 0755, err) < 0 ||
        adopt_all(plan, disk, err) < 0)
        return -1;
    if (plan->privileges == BOX_PLAIN && give_root(plan, disk) < 0)
        return error_set(err, "mount_failed", errno, "cannot give the box's root to its user");
    if (make_all_own(plan, disk, err) < 0)
        return -1;
    tree->root = tree_clone_written(tree, disk, "root");
    return tree->root >= 0
               ? 0
               : error_set(err, "mount_failed", errno, "cannot take the box's root from its disk");
}

/* Takes a directory or a link of the base into the root; the mount, or -1 and `*failed`. A link that the box has put
 * elsewhere stays. */
static int take_of_base(const struct plan *plan, const struct tree *tree, const char *path,
                        bool *failed, struct error *err)
{
    const char *name = path + 1;
    _cleanup_close_ int mount = -1;
    char link[256];
    ssize_t n = readlinkat(tree->base, name, link, sizeof(link) - 1);

    if (n < 0 && errno == ENOENT)
        return -1; /* this host has none */
    if (n >= 0) {
        link[n] = '\0';
        /* Where the host had a directory before, that was a mount point, and is empty. */
        (void)unlinkat(tree->root, name, AT_REMOVEDIR);
        *failed = symlinkat(link, tree->root, name) < 0 && errno != EEXIST && !is_full_disk(errno);
        return *failed ? error_set(err, "mount_failed", errno, "cannot make the link %s", path)
                       : -1;
    }
    /* Its attributes are those that the base has. */
    mount = sys_open_tree(tree->base, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    *failed = mount < 0 || tree_attach_at(plan, mount, tree, path, err) < 0;
    if (mount < 0)
        return error_set(err, "mount_failed", errno, "cannot take %s into the box", path);
    return *failed ? -1 : fd_take(&mount);
}

/* The names of the base, first those that stay open until they are sealed. */
static const char *const base_names[] = {"/etc", "/dev",   "/usr",   "/bin",   "/sbin",
                                         "/lib", "/lib32", "/lib64", "/libx32"};

int tree_fill_root(const struct plan *plan, struct tree *tree, struct error *err)
{
    int *const kept[] = {&tree->etc, &tree->dev};

    for (size_t i = 0; i < sizeof(base_names) / sizeof(base_names[0]); i++) {
        bool failed = false;
        _cleanup_close_ int mount = take_of_base(plan, tree, base_names[i], &failed, err);

        if (failed)
            return -1;
        if (i < sizeof(kept) / sizeof(kept[0]))
            *kept[i] = fd_take(&mount);
    }
    return 0;
}

/* By the mounts themselves: at their places may be mounts of the caller's by now, which stay as they are. */
int tree_seal_root(const struct tree *tree, struct error *err)
{
    const int mounts[] = {tree->etc, tree->dev};
    struct mount_attr read_only = {.attr_set = MOUNT_ATTR_RDONLY};

    for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++)
        if (mounts[i] >= 0 && sys_mount_setattr(mounts[i], "", AT_EMPTY_PATH, &read_only) < 0)
            return error_set(err, "mount_failed", errno, "cannot make %s read-only", base_names[i]);
    return 0;
}

/* Tells whether a path is this directory, or below it. */
static bool is_within(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

bool tree_is_of_base(const char *path)
{
    for (size_t i = 0; i < sizeof(base_names) / sizeof(base_names[0]); i++)
        if (is_within(path, base_names[i]))
            return true;
    return false;
}

/* Tells whether a directory is none of the root's: it is what the host shows, or of a mount that is handed in. */
static bool is_mounted(const struct plan *plan, const char *path)
{
    if (tree_is_of_base(path))
        return true;
    for (size_t i = 0; i < plan->binds_count; i++)
        if (is_within(path, plan->binds[i].target))
            return true;
    return false;
}

int tree_clone_held(int at)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    _cleanup_close_ int mount = sys_open_tree(at, "",
                                              OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    return mount < 0 || sys_mount_setattr(mount, "", AT_EMPTY_PATH, &attr) < 0 ? -1
                                                                               : fd_take(&mount);
}

/* Mounts a directory on itself. */
static int hold(const struct tree *tree, const char *path, struct error *err)
{
    _cleanup_close_ int at = tree_target(tree->root, path, true, false, err);
    _cleanup_close_ int mount = -1;

    if (at < 0)
        return -1;
    mount = tree_clone_held(at);
    if (mount < 0 || tree_attach(mount, at, "") < 0)
        return error_set(err, "mount_failed", errno, "cannot hold %s in the box", path);
    return 0;
}

/* Holds the directories above a target, as far as they lie on the root: a directory that is mounted cannot be renamed,
 * and so nothing else can be put in the place of what is below. Each is held once, for the first bind below it. */
static int hold_parents(const struct plan *plan, size_t bind, const struct tree *tree,
                        struct error *err)
{
    const char *path = plan->binds[bind].target;
    char above[PLAN_TARGET_MAX];

    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        bool is_held = false;

        (void)snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
        if (is_mounted(plan, above))
            return 0;
        for (size_t i = 0; i < bind; i++)
            is_held = is_held || is_within(plan->binds[i].target, above);
        if (!is_held && hold(tree, above, err) < 0)
            return -1;
    }
    return 0;
}

int tree_hold_parents(const struct plan *plan, const struct tree *tree, struct error *err)
{
    for (size_t i = 0; i < plan->binds_count; i++)
        if (hold_parents(plan, i, tree, err) < 0)
            return -1;
    return 0;
}
