/* The root tree: see tree.h. Built with both libcs; runs in the set-up child, allocates nothing.
 *
 * Kernel rules that shaped it: before 5.19 or so a detached tree can take no mounts, so the root is
 * attached first; a clone of a locked mount must be recursive. */
#include "box/tree_parts.h"

#include "base/fd.h"
#include "box/accounts.h"
#include "box/network.h"
#include "box/switches.h"
#include "box/sys.h"
#include "box/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define READ_ONLY (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* What the base of a root takes from the scratch tmpfs, so that the cap is the box's alone. */
#define SCRATCH_SLACK_BYTES (1U << 20)
#define SCRATCH_SLACK_INODES 256

static int fs_set(int fs, const char *key, const char *value)
{
    if (value == NULL)
        return sys_fsconfig(fs, FSCONFIG_SET_FLAG, key, NULL, 0);
    return sys_fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0);
}

static int fs_mount(int fs, unsigned attributes)
{
    if (sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return sys_fsmount(fs, attributes);
}

int tree_tmpfs(uint64_t bytes, uint64_t inodes, int *mount, struct error *err)
{
    _cleanup_close_ int fs = sys_fsopen("tmpfs");
    char size[32], count[32];

    (void)snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes + SCRATCH_SLACK_BYTES);
    (void)snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes + SCRATCH_SLACK_INODES);
    if (fs < 0 || fs_set(fs, "size", size) < 0 || fs_set(fs, "nr_inodes", count) < 0 ||
        fs_set(fs, "mode", "0755") < 0)
        return error_set(err, "mount_failed", errno, "cannot set up the box's tmpfs");
    *mount = fs_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (*mount < 0)
        return error_set(err, "mount_failed", errno, "cannot mount the box's tmpfs");
    return 0;
}

int tree_attach(int mount, int dir, const char *path)
{
    return sys_move_mount(mount, "", dir, path,
                          MOVE_MOUNT_F_EMPTY_PATH | (*path == '\0' ? MOVE_MOUNT_T_EMPTY_PATH : 0));
}

static int clone_tree(int dir, const char *path, uint64_t attributes)
{
    struct mount_attr attr = {.attr_set = attributes, .propagation = MS_PRIVATE};
    _cleanup_close_ int mount = sys_open_tree(dir, path,
                                              OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE |
                                                  (*path == '\0' ? AT_EMPTY_PATH : 0));

    if (mount < 0 || sys_mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return -1;
    return fd_take(&mount);
}

int tree_bind(int source_dir, const char *source, int dir, const char *target, uint64_t attributes,
              struct error *err)
{
    _cleanup_close_ int mount = clone_tree(source_dir, source, attributes);

    if (mount < 0)
        return error_set(err, "mount_failed", errno, "cannot take %s into the box", source);
    if (tree_attach(mount, dir, target) < 0)
        return error_set(err, "mount_failed", errno, "cannot mount %s in the box", target);
    return 0;
}

int tree_make_dir(int dir, const char *path, mode_t mode, struct error *err)
{
    if (mkdirat(dir, path, mode) < 0 && errno != EEXIST)
        return error_set(err, "mount_failed", errno, "cannot make the directory %s", path);
    return 0;
}

static int make_file(int dir, const char *path, const char *text, struct error *err)
{
    _cleanup_close_ int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

    if (fd < 0 || fd_write_full(fd, text, strlen(text)) < 0)
        return error_set(err, "mount_failed", errno, "cannot write %s", path);
    return 0;
}

/* ---- the host profile ---- */

/* Directories of the host a program needs; where the host has a link (usr-merge), so has the box. */
static const char *const host_directories[] = {"usr",   "bin",   "sbin",  "lib",
                                               "lib32", "lib64", "libx32"};

/* What of /etc a program needs that holds no secret. Everything else there stays out. */
static const char *const host_etc[] = {
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "crypto-policies",
    "ld.so.cache",
    "localtime",
    "services",
    "protocols",
    "fonts",
    /* A JVM does not start without its configuration. By name: to list a host's /etc takes longer
     * than all the rest. */
    "java",
    "java-8-openjdk",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
};

static int bind_or_link(int from, const char *name, int dir, struct error *err)
{
    _cleanup_close_ int mount = -1;
    char link[256];
    struct stat st;
    ssize_t n;

    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* this host has none */
    if (S_ISLNK(st.st_mode)) {
        n = readlinkat(from, name, link, sizeof(link) - 1);
        if (n < 0)
            return error_set(err, "mount_failed", errno, "cannot read the link /%s", name);
        link[n] = '\0';
        if (symlinkat(link, dir, name) < 0)
            return error_set(err, "mount_failed", errno, "cannot make the link /%s", name);
        return 0;
    }
    if (S_ISDIR(st.st_mode)) {
        if (tree_make_dir(dir, name, 0755, err) < 0)
            return -1;
    } else if (S_ISREG(st.st_mode) && (st.st_mode & 0004) != 0) {
        if (make_file(dir, name, "", err) < 0)
            return -1;
    } else {
        return 0;
    }
    mount = sys_open_tree(from, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (mount < 0 || tree_attach(mount, dir, name) < 0)
        return error_set(err, "mount_failed", errno, "cannot take %s of the host into the box",
                         name);
    return 0;
}

/* All that was taken from the host is confined in one go; the root itself is still to be filled. */
static int confine(int root, struct error *err)
{
    struct mount_attr all = {.attr_set = READ_ONLY, .propagation = MS_PRIVATE};
    struct mount_attr own = {.attr_clr = MOUNT_ATTR_RDONLY};

    if (sys_mount_setattr(root, "", AT_EMPTY_PATH | AT_RECURSIVE, &all) < 0 ||
        sys_mount_setattr(root, "", AT_EMPTY_PATH, &own) < 0)
        return error_set(err, "mount_failed", errno, "cannot make the host's part read-only");
    return 0;
}

static int make_parents(int dir, const char *path, struct error *err)
{
    char part[PLAN_TARGET_MAX];

    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (tree_make_dir(dir, part, 0755, err) < 0)
            return -1;
    }
    return 0;
}

/* Where the box has no network, nobody is there, and that is known at once. */
#define RESOLV_CONF "nameserver " NETWORK_RESOLVER "\n"

static int make_accounts(int etc, const struct plan *plan, struct error *err)
{
    char text[1024];

    accounts_passwd(text, sizeof(text), plan->shell);
    if (make_file(etc, "passwd", text, err) < 0 || make_file(etc, "group", ACCOUNTS_GROUP, err) < 0)
        return -1;
    (void)snprintf(text, sizeof(text), "127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t%s\n",
                   plan->hostname);
    if (make_file(etc, "hosts", text, err) < 0)
        return -1;
    (void)snprintf(text, sizeof(text), "%s\n", plan->hostname);
    if (make_file(etc, "hostname", text, err) < 0 ||
        make_file(etc, "resolv.conf", RESOLV_CONF, err) < 0)
        return -1;
    return make_file(etc, "nsswitch.conf",
                     "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
                     "services: files\nprotocols: files\n",
                     err);
}

static int make_etc(int root, const struct plan *plan, struct error *err)
{
    _cleanup_close_ int host = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int etc = -1;

    if (tree_make_dir(root, "etc", 0755, err) < 0)
        return -1;
    etc = openat(root, "etc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (etc < 0)
        return error_set(err, "mount_failed", errno, "cannot open the box's /etc");
    if (make_accounts(etc, plan, err) < 0)
        return -1;
    if (symlinkat("/proc/self/mounts", etc, "mtab") < 0 ||
        symlinkat("../usr/lib/os-release", etc, "os-release") < 0)
        return error_set(err, "mount_failed", errno, "cannot fill the box's /etc");
    if (host < 0)
        return 0; /* a host without /etc has nothing to show */
    for (size_t i = 0; i < sizeof(host_etc) / sizeof(host_etc[0]); i++) {
        bool is_nested = strchr(host_etc[i], '/') != NULL;

        if (is_nested && faccessat(host, host_etc[i], F_OK, 0) < 0)
            continue;
        if (is_nested && make_parents(etc, host_etc[i], err) < 0)
            return -1;
        if (bind_or_link(host, host_etc[i], etc, err) < 0)
            return -1;
    }
    return 0;
}

static int fill_with_host(int host, int root, const struct plan *plan, struct error *err)
{
    for (size_t i = 0; i < sizeof(host_directories) / sizeof(host_directories[0]); i++)
        if (bind_or_link(host, host_directories[i], root, err) < 0)
            return -1;
    return make_etc(root, plan, err);
}

int tree_host_base(int root, const struct plan *plan, struct error *err)
{
    static const char *const empty[] = {"proc", "tmp",  "home", "home/user", "var",
                                        "run",  "root", "sys",  "dev"};
    _cleanup_close_ int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int dev = -1;

    if (host < 0)
        return error_set(err, "mount_failed", errno, "cannot open the host's root");
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++)
        if (tree_make_dir(root, empty[i], 0755, err) < 0)
            return -1;
    if (symlinkat("../tmp", root, "var/tmp") < 0)
        return error_set(err, "mount_failed", errno, "cannot make /var/tmp");
    if (!plan->is_empty && fill_with_host(host, root, plan, err) < 0)
        return -1;
    if (confine(root, err) < 0)
        return -1;
    dev = openat(root, "dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dev < 0)
        return error_set(err, "mount_failed", errno, "cannot open the box's /dev");
    return tree_devices(dev, err);
}

/* ---- devices ---- */

int tree_devices(int dev, struct error *err)
{
    static const char *const nodes[] = {"null", "zero", "full", "random", "urandom", "tty"};
    static const char *const links[][2] = {{"/proc/self/fd", "fd"},
                                           {"/proc/self/fd/0", "stdin"},
                                           {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"},
                                           {"pts/ptmx", "ptmx"}};
    _cleanup_close_ int host = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (host < 0)
        return error_set(err, "mount_failed", errno, "cannot open the host's /dev");
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        if (make_file(dev, nodes[i], "", err) < 0)
            return -1;
        if (tree_bind(host, nodes[i], dev, nodes[i], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err) <
            0)
            return error_wrap(err, "/dev/%s", nodes[i]);
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        if (symlinkat(links[i][0], dev, links[i][1]) < 0)
            return error_set(err, "mount_failed", errno, "cannot make /dev/%s", links[i][1]);
    if (tree_make_dir(dev, "pts", 0755, err) < 0 || tree_make_dir(dev, "shm", 0755, err) < 0)
        return -1;
    return 0;
}

/* ---- the disk ---- */

/* Where what is written to the root lies: its own disk, or the scratch. */
int tree_open_disk(const struct plan *plan, const struct tree *tree, int *disk, struct error *err)
{
    *disk = tree->scratch;
    if (plan->upper < 0)
        return 0;
    if (tree_make_dir(tree->scratch, "disk", 0755, err) < 0)
        return -1;
    if (tree_attach(plan->upper, tree->scratch, "disk") < 0)
        return error_set(err, "mount_failed", errno, "cannot attach the box's disk");
    *disk = plan->upper;
    return 0;
}

/* ---- image roots ---- */

/* The layers are named by paths relative to a place of ours: naming them by fds is younger (6.13) and
 * asks for the same, that the lower one is attached in this namespace. userxattr is what an
 * unprivileged mount may use, and makes uppers portable between root and rootless. volatile: nobody
 * syncs a disk that ends with the box. */
static int mount_overlay(const struct plan *plan, int holder)
{
    _cleanup_close_ int fs = sys_fsopen("overlay");

    if (fs < 0 || tree_attach(plan->lower, holder, "lower") < 0 || fchdir(holder) < 0 ||
        fs_set(fs, "userxattr", NULL) < 0 ||
        (!plan->disk_kept && fs_set(fs, "volatile", NULL) < 0) ||
        fs_set(fs, "lowerdir", "lower") < 0 || fs_set(fs, "upperdir", "upper") < 0 ||
        fs_set(fs, "workdir", "work") < 0)
        return -1;
    return fs_mount(fs, MOUNT_ATTR_NODEV |
                            (plan->privileges == BOX_PLAIN ? (unsigned)MOUNT_ATTR_NOSUID : 0U));
}

int tree_overlay(const struct plan *plan, struct tree *tree, struct error *err)
{
    static const char *const places[] = {"lower", "upper", "work"};
    int holder;

    if (tree_open_disk(plan, tree, &holder, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (tree_make_dir(holder, places[i], 0755, err) < 0)
            return -1;
    tree->root = mount_overlay(plan, holder);
    if (tree->root < 0)
        return error_set(err, "mount_failed", errno, "cannot mount the box's overlay");
    return 0;
}

static int target_step(int dir, const char *name, bool is_directory)
{
    return fd_open_below(dir, name, O_PATH | O_NOFOLLOW | (is_directory ? O_DIRECTORY : 0), 0,
                         FD_NO_LINKS);
}

/* What is made belongs to whom its parent belongs to, so that a bind below a home does not leave a
 * directory there that the user cannot write. */
static int target_make(int dir, const char *name, bool is_directory)
{
    struct stat parent;

    if (is_directory ? mkdirat(dir, name, 0755) < 0 : mknodat(dir, name, S_IFREG | 0644, 0) < 0)
        return -1;
    if (fstat(dir, &parent) < 0 || parent.st_uid == 0)
        return 0;
    /* EINVAL: to nobody, for the parent's owner has no id in here. */
    return fchownat(dir, name, parent.st_uid, parent.st_gid, AT_SYMLINK_NOFOLLOW) < 0 &&
                   errno != EINVAL
               ? -1
               : 0;
}

int tree_target(int root, const char *path, bool is_directory, bool replace, struct error *err)
{
    _cleanup_close_ int at = fcntl(root, F_DUPFD_CLOEXEC, 3);
    char part[PLAN_TARGET_MAX];
    const char *rest = path;

    if (at < 0)
        return error_set(err, "mount_failed", errno, "cannot open the box's root");
    while (*(rest += strspn(rest, "/")) != '\0') {
        size_t length = strcspn(rest, "/");
        bool last = rest[length + strspn(rest + length, "/")] == '\0';
        int next;

        (void)snprintf(part, sizeof(part), "%.*s", (int)length, rest);
        next = target_step(at, part, !last || is_directory);
        if (next < 0 && (errno == ENOTDIR || errno == ELOOP) && replace) {
            if (unlinkat(at, part, 0) < 0)
                return error_set(err, "mount_failed", errno, "cannot replace %s in the root", path);
            errno = ENOENT;
        }
        if (next < 0 && errno == ENOENT) {
            if (target_make(at, part, !last || is_directory) < 0)
                return error_set(err, "mount_failed", errno,
                                 "cannot make the mount target %s in the box; mount on a path "
                                 "that exists there, or below /home/user or /tmp",
                                 path);
            next = target_step(at, part, !last || is_directory);
        }
        if (next < 0)
            return error_set(err, "mount_failed", errno,
                             "cannot use %s as a mount target in the box (a symlink or a file is "
                             "in the way; name the real path)",
                             path);
        fd_close(&at);
        at = next;
        rest += length;
    }
    return fd_take(&at);
}

/* ---- what belongs to one box ---- */

/* Tells whether all above this path of the root is ours, so that no link can lie there. A directory of the
 * box's own root is, when it is made now: it may have been written to before. */
static bool is_ours(const struct plan *plan, const struct tree *tree, const char *path)
{
    if (plan->root_kind != BOX_ROOT_HOST)
        return false;
    return !plan->own_root || strchr(path + 1, '/') != NULL ||
           mkdirat(tree->root, path + 1, 0755) == 0;
}

/* Attaches a mount on a directory. Where it is mounted nothing else may be. */
int tree_attach_at(const struct plan *plan, int mount, const struct tree *tree, const char *path,
                   struct error *err)
{
    _cleanup_close_ int target = -1;

    if (is_ours(plan, tree, path)) {
        if (tree_attach(mount, tree->root, path + 1) == 0)
            return 0;
        return error_set(err, "mount_failed", errno, "cannot mount %s in the box", path);
    }
    target = tree_target(tree->root, path, true, true, err);
    if (target < 0)
        return -1;
    if (tree_attach(mount, target, "") < 0)
        return error_set(err, "mount_failed", errno, "cannot mount %s in the box", path);
    return 0;
}

/* The host has a few thousand for everybody (kernel.pty.max). */
#define TERMINALS_MAX "32"

static int mount_devpts(const struct plan *plan, const struct tree *tree, struct error *err)
{
    _cleanup_close_ int fs = sys_fsopen("devpts");
    _cleanup_close_ int mount = -1;
    char group[16];

    (void)snprintf(group, sizeof(group), "%u", plan->one_id ? plan->gid : ACCOUNTS_TTY);
    if (fs < 0 || fs_set(fs, "newinstance", NULL) < 0 || fs_set(fs, "ptmxmode", "0666") < 0 ||
        fs_set(fs, "max", TERMINALS_MAX) < 0 || fs_set(fs, "mode", "0620") < 0 ||
        fs_set(fs, "gid", group) < 0)
        return error_set(err, "mount_failed", errno, "cannot set up the box's devpts");
    mount = fs_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    if (mount < 0)
        return error_set(err, "mount_failed", errno, "cannot mount the box's devpts");
    return tree_attach_at(plan, mount, tree, "/dev/pts", err);
}

#define PROC_ATTRIBUTES (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* The /proc that is there, for who asked for it: it shows processes of the outside, so it is read-only
 * throughout. */
static int take_stale_proc(struct plan *plan, int *proc, struct error *err)
{
    int denied = errno;

    if (!plan->stale_proc || (denied != EPERM && denied != EACCES))
        return error_set(
            err, "no_fresh_proc", denied,
            "cannot mount a fresh /proc for the box, which a container forbids that masks "
            "parts of its own: unmask it (cove doctor says how), or settle for less with "
            "--allow-level no-fresh-proc");
    *proc = clone_tree(AT_FDCWD, "/proc", MOUNT_ATTR_RDONLY | PROC_ATTRIBUTES);
    if (*proc < 0)
        return error_set(err, "mount_failed", errno, "cannot take the host's /proc into the box");
    plan->is_stale = true;
    return 0;
}

static int mount_proc(struct plan *plan, const struct tree *tree, struct error *err)
{
    _cleanup_close_ int fs = sys_fsopen("proc");
    _cleanup_close_ int proc = -1;

    if (fs < 0)
        return error_set(err, "mount_failed", errno, "cannot set up the box's /proc");
    proc = switched_off("freshproc") ? (errno = EPERM, -1) : fs_mount(fs, PROC_ATTRIBUTES);
    if (proc < 0 && take_stale_proc(plan, &proc, err) < 0)
        return -1;
    /* A second wall behind the filter: nobody in here makes a user namespace. What is stale may be
     * read-only already; then the filter has to do. */
    if (fd_write_file(plan->is_stale ? AT_FDCWD : proc,
                      plan->is_stale ? "/proc/sys/user/max_user_namespaces"
                                     : "sys/user/max_user_namespaces",
                      "0") < 0 &&
        !plan->is_stale)
        return error_set(err, "mount_failed", errno, "cannot forbid nested user namespaces");
    if (tree_attach_at(plan, proc, tree, "/proc", err) < 0)
        return -1;
    if (!plan->is_stale &&
        tree_bind(proc, "sys", proc, "sys", READ_ONLY | MOUNT_ATTR_NOEXEC, err) < 0)
        return error_wrap(err, "/proc");
    return view_proc(plan, tree->scratch, proc, err);
}

/* Clones a directory that the box writes to, below the scratch, which has the attributes, or the disk. */
int tree_clone_written(const struct tree *tree, int from, const char *name)
{
    if (from == tree->scratch)
        return sys_open_tree(from, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return clone_tree(from, name, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/* A directory of the scratch or the disk, made with this mode and owner and bound on `target`. */
static int bind_from(const struct plan *plan, int from, const struct tree *tree, const char *name,
                     const char *target, mode_t mode, uid_t uid, gid_t gid, struct error *err)
{
    _cleanup_close_ int mount = -1;

    if (tree_make_dir(from, name, mode, err) < 0)
        return -1;
    if (uid != 0 && fchownat(from, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set(err, "mount_failed", errno, "cannot give %s to its user", target);
    mount = tree_clone_written(tree, from, name);
    if (mount < 0)
        return error_set(err, "mount_failed", errno, "cannot take %s into the box", target);
    return tree_attach_at(plan, mount, tree, target, err);
}

static int bind_scratch(const struct plan *plan, const struct tree *tree, const char *name,
                        const char *target, mode_t mode, struct error *err)
{
    return bind_from(plan, tree->scratch, tree, name, target, mode, 0, 0, err);
}

/* Where the root is the host's view, these can be written: the home and /tmp. */
static int own_host(const struct plan *plan, const struct tree *tree, struct error *err)
{
    int disk;

    if (tree_open_disk(plan, tree, &disk, err) < 0 ||
        bind_from(plan, disk, tree, "tmp", "/tmp", 01777, 0, 0, err) < 0)
        return -1;
    return bind_from(plan, disk, tree, "home", plan->uid == 0 ? "/root" : "/home/user", 0755,
                     plan->uid, plan->gid, err);
}

/* In an image, and where the root lies on the disk, the user's home may be missing. */
static int make_home(const struct plan *plan, const struct tree *tree, struct error *err)
{
    _cleanup_close_ int home = -1;
    struct error ignored;

    home = fd_open_below(tree->root, plan->home, O_PATH, 0, FD_IN_ROOT);
    if (home >= 0)
        return 0;
    /* Where links are in the way it stays as it is; a command can start without its home. */
    home = tree_target(tree->root, plan->home, true, false, &ignored);
    if (home < 0)
        return 0;
    if (fchownat(home, "", plan->uid, plan->gid, AT_EMPTY_PATH) < 0)
        return error_set(err, "mount_failed", errno, "cannot give %s to its user", plan->home);
    return 0;
}

/* An image's own names resolvers of wherever it was made, or is a link to a file of a service that does not
 * run here: it is covered, a link itself, too. */
static int cover_resolv_conf(const struct tree *tree, struct error *err)
{
    _cleanup_close_ int target = -1;
    struct error ignored;

    /* Where a link is in the way to it, it stays as it is. */
    target = tree_target(tree->root, "/etc/resolv.conf", false, false, &ignored);
    if (target < 0)
        return 0;
    if (make_file(tree->scratch, "resolv.conf", RESOLV_CONF, err) < 0)
        return -1;
    return tree_bind(tree->scratch, "resolv.conf", target, "",
                     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);
}

static int own_image(const struct plan *plan, const struct tree *tree, struct error *err)
{
    _cleanup_close_ int dev = -1, target = -1;
    struct stat st;

    if (tree_make_dir(tree->scratch, "dev", 0755, err) < 0)
        return -1;
    dev = openat(tree->scratch, "dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
    target = tree_target(tree->root, "/dev", true, true, err);
    if (dev < 0 || target < 0)
        return -1;
    /* Filled first and then bound: the clone takes the device nodes along. A zygote has them. */
    if (plan->from_zygote
            ? tree_bind(AT_FDCWD, "/dev", target, "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err) <
                  0
            : tree_devices(dev, err) < 0 ||
                  tree_bind(dev, "", target, "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err) < 0)
        return -1;
    if (fstatat(tree->root, "tmp", &st, AT_SYMLINK_NOFOLLOW) < 0 &&
        mkdirat(tree->root, "tmp", 01777) < 0 && errno != EEXIST)
        return error_set(err, "mount_failed", errno, "cannot make /tmp in the root");
    return cover_resolv_conf(tree, err) < 0 ? -1 : make_home(plan, tree, err);
}

int tree_own(struct plan *plan, const struct tree *tree, struct error *err)
{
    if (plan->own_root) {
        if (make_home(plan, tree, err) < 0)
            return -1;
    } else if (plan->root_kind == BOX_ROOT_HOST) {
        if (own_host(plan, tree, err) < 0)
            return -1;
    } else if (own_image(plan, tree, err) < 0) {
        return -1;
    }
    if (mount_devpts(plan, tree, err) < 0 ||
        bind_scratch(plan, tree, "shm", "/dev/shm", 01777, err) < 0)
        return -1;
    return mount_proc(plan, tree, err);
}

int tree_hold_zero(const struct tree *tree, struct error *err)
{
    _cleanup_close_ int full = tree_target(tree->root, "/dev/full", false, false, err);
    _cleanup_close_ int zero = -1;

    if (full < 0)
        return -1;
    zero = tree_target(tree->root, "/dev/zero", false, false, err);
    if (zero < 0)
        return -1;
    return tree_bind(full, "", zero, "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
}

int tree_binds(const struct plan *plan, const struct tree *tree, struct error *err)
{
    if (plan->own_root && tree_hold_parents(plan, tree, err) < 0)
        return -1;
    for (size_t i = 0; i < plan->binds_count; i++) {
        const struct plan_bind *bind = &plan->binds[i];
        _cleanup_close_ int target = tree_target(tree->root, bind->target, bind->is_directory,
                                                 false, err);

        if (target < 0)
            return -1;
        if (tree_attach(bind->mount, target, "") < 0)
            return error_set(err, "mount_failed", errno, "cannot mount %s in the box",
                             bind->target);
    }
    return 0;
}

/* ---- cgroups ---- */

int tree_cgroup2(uint64_t attributes, int *mount, struct error *err)
{
    _cleanup_close_ int fs = sys_fsopen("cgroup2");

    *mount = fs < 0 ? -1 : fs_mount(fs, (unsigned)attributes);
    if (*mount < 0)
        return error_set(err, "mount_failed", errno, "cannot mount the box's cgroup");
    return 0;
}

int tree_cgroups(const struct plan *plan, const struct tree *tree, struct error *err)
{
    const struct cgroup_gate *gate = &plan->gate;
    _cleanup_close_ int made = -1, target = -1, shown = -1;

    if (tree_make_dir(tree->scratch, "sys", 0755, err) < 0 ||
        tree_make_dir(tree->scratch, "sys/fs", 0755, err) < 0 ||
        tree_make_dir(tree->scratch, "sys/fs/cgroup", 0755, err) < 0)
        return -1;
    made = openat(tree->scratch, "sys/fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < gate->views_count; i++)
        if (gate->names[i][0] != '\0' && tree_make_dir(made, gate->names[i], 0755, err) < 0)
            return -1;
    shown = clone_tree(tree->scratch, "sys", READ_ONLY);
    if (shown < 0)
        return error_set(err, "mount_failed", errno, "cannot take /sys into the box");
    if (tree_attach_at(plan, shown, tree, "/sys", err) < 0)
        return -1;
    target = openat(shown, "fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (target < 0)
        return error_set(err, "mount_failed", errno, "cannot open /sys/fs/cgroup in the box");
    if (gate->own_view) {
        _cleanup_close_ int own = -1;

        if (tree_cgroup2(READ_ONLY | MOUNT_ATTR_NOEXEC, &own, err) < 0)
            return -1;
        if (tree_attach(own, target, "") < 0)
            return error_set(err, "mount_failed", errno, "cannot show the box's cgroup");
    }
    for (size_t i = 0; i < gate->views_count; i++)
        if (tree_attach(gate->views[i], target, gate->names[i]) < 0)
            return error_set(err, "mount_failed", errno, "cannot show the box's cgroup %s",
                             gate->names[i]);
    return 0;
}
