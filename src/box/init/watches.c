/* Adding watches for the box's programs: see watches.h.
 *
 * An inode of the host, of a mount or of a zygote is one for all boxes, and a watch on it tells of every process that
 * opens it. The filter cannot see which inode a call means, and a path that was only looked at may lead elsewhere by the
 * time the kernel walks it. So the caller waits, and init opens the path itself, looks at what it has open, and adds the
 * watch to just that. What lies on a read-only mount, or is a device, is watched without reads: the caller is told that
 * it worked, and of changes it hears.
 *
 * It must never do for a caller what that could not do: where the caller's ids are others than init's, a child takes
 * them on first. A caller whose memory nobody may read (PR_SET_DUMPABLE) is refused. */
#include "box/init/watches.h"

#include "base/fd.h"
#include "box/filter/filter.h"
#include "box/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#define READS (IN_ACCESS | IN_CLOSE_NOWRITE | IN_OPEN)
#define GROUPS_MAX 64
#define STATUS_SIZE 4096
#define PROC_PATH_SIZE 64

struct caller {
    pid_t thread, process;
    uid_t uid;
    gid_t gid;
    gid_t groups[GROUPS_MAX];
    size_t groups_count;
    uint64_t effective; /* capabilities */
};

/* Points behind the name of a line of /proc/PID/status; NULL: it is not there whole. */
static const char *field(const char *status, const char *name)
{
    const char *at = strstr(status, name);

    at = at != NULL ? at + strlen(name) : NULL;
    return at != NULL && strchr(at, '\n') != NULL ? at : NULL;
}

static int parse(const char *status, struct caller *caller)
{
    const char *process = field(status, "\nTgid:\t"), *uids = field(status, "\nUid:\t"),
               *gids = field(status, "\nGid:\t"), *groups = field(status, "\nGroups:\t"),
               *effective = field(status, "\nCapEff:\t");
    char *end;

    if (process == NULL || uids == NULL || gids == NULL || groups == NULL || effective == NULL)
        return -1;
    caller->process = (pid_t)strtol(process, NULL, 10);
    (void)strtoul(uids, &end, 10); /* the real one */
    caller->uid = (uid_t)strtoul(end, NULL, 10);
    (void)strtoul(gids, &end, 10);
    caller->gid = (gid_t)strtoul(end, NULL, 10);
    caller->effective = strtoull(effective, NULL, 16);
    for (caller->groups_count = 0; *groups >= '0' && *groups <= '9'; groups = end + 1) {
        if (caller->groups_count == GROUPS_MAX)
            return -1;
        caller->groups[caller->groups_count++] = (gid_t)strtoul(groups, &end, 10);
    }
    return 0;
}

static int find_caller(pid_t thread, struct caller *caller)
{
    char path[PROC_PATH_SIZE], status[STATUS_SIZE];
    _cleanup_close_ int fd = -1;
    ssize_t n;

    caller->thread = thread;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", thread);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, status, sizeof(status) - 1);
    if (n < 0)
        return -1;
    status[n] = '\0';
    return parse(status, caller);
}

static int read_caps(struct __user_cap_header_struct *header, struct __user_cap_data_struct data[2])
{
    *header = (struct __user_cap_header_struct){.version = _LINUX_CAPABILITY_VERSION_3};
    return (int)syscall(SYS_capget, header, data);
}

/* Tells whether init may what the caller may, and no more. Groups say nothing: one id has the same everywhere in a
 * plain box, and root of a `system` box passes them by. */
static bool is_like_us(const struct caller *caller)
{
    struct __user_cap_header_struct header;
    struct __user_cap_data_struct data[2];

    return caller->uid == geteuid() && caller->gid == getegid() && read_caps(&header, data) == 0 &&
           caller->effective == ((uint64_t)data[1].effective << 32 | data[0].effective);
}

static int become(const struct caller *caller)
{
    struct __user_cap_header_struct header;
    struct __user_cap_data_struct data[2];

    if (setgroups(caller->groups_count, caller->groups) < 0 ||
        setresgid(caller->gid, caller->gid, caller->gid) < 0 ||
        setresuid(caller->uid, caller->uid, caller->uid) < 0 || read_caps(&header, data) < 0)
        return -1;
    data[0].effective &= (uint32_t)caller->effective;
    data[1].effective &= (uint32_t)(caller->effective >> 32);
    return (int)syscall(SYS_capset, &header, data);
}

/* The caller's string, with its own number in the place of "self". */
static int read_path(const struct caller *caller, uint64_t address,
                     char path[PATH_MAX + PROC_PATH_SIZE])
{
    static const char *const selves[][2] = {
        {"/proc/self/", ""}, {"/proc/thread-self/", ""}, {"/dev/fd/", "fd/"}};
    static char given[PATH_MAX];
    struct iovec to = {given, sizeof(given)}, from = {(void *)(uintptr_t)address, sizeof(given)};
    ssize_t n = process_vm_readv(caller->thread, &to, 1, &from, 1, 0);
    size_t length;

    if (n < 0)
        return -1;
    if (memchr(given, '\0', (size_t)n) == NULL) {
        errno = n == PATH_MAX ? ENAMETOOLONG : EFAULT;
        return -1;
    }
    for (size_t i = 0; i < sizeof(selves) / sizeof(selves[0]); i++) {
        length = strlen(selves[i][0]);
        if (strncmp(given, selves[i][0], length) == 0) {
            (void)snprintf(path, PATH_MAX + PROC_PATH_SIZE, "/proc/%d/%s%s", caller->thread,
                           selves[i][1], given + length);
            return 0;
        }
    }
    memcpy(path, given, strlen(given) + 1);
    return 0;
}

/* Opens what the path means to the caller. */
static int open_watched(const struct caller *caller, const char *path, uint32_t mask,
                        const uint32_t key[4])
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    bool is_absolute = path[0] == '/';
    char from[PROC_PATH_SIZE];
    _cleanup_close_ int base = -1;
    struct stat ours, its;

    how.flags |= (mask & IN_DONT_FOLLOW) != 0 ? (unsigned)O_NOFOLLOW : 0;
    how.flags |= (mask & IN_ONLYDIR) != 0 ? (unsigned)O_DIRECTORY : 0;
    (void)snprintf(from, sizeof(from), "/proc/%d/%s", caller->thread, is_absolute ? "root" : "cwd");
    base = open(from, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (base < 0 || fstat(base, &its) < 0 || stat("/", &ours) < 0)
        return -1;
    if (!is_absolute || (its.st_dev == ours.st_dev && its.st_ino == ours.st_ino))
        return openat(base, path, (int)how.flags);
    return filter_openat2(base, path, &how, key);
}

/* Tells whether the inode may be another box's, too. What a box alone has it can also write to. */
static int is_shared(int fd)
{
    struct statfs fs;
    struct stat st;

    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return -1;
    return S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) ||
           ((unsigned long)fs.f_flags & ST_RDONLY) != 0;
}

/* The number of the watch, or -1. */
static int add(int listener, const struct seccomp_notif *call, const struct caller *caller,
               const uint32_t key[4])
{
    static char path[PATH_MAX + PROC_PATH_SIZE];
    uint32_t mask = (uint32_t)call->data.args[2];
    _cleanup_close_ int process = (int)syscall(SYS_pidfd_open, caller->process, 0);
    _cleanup_close_ int inotify = -1, fd = -1;
    int shared;

    if (process < 0)
        return -1;
    inotify = (int)syscall(SYS_pidfd_getfd, process, (int)call->data.args[0], 0);
    if (inotify < 0 || read_path(caller, call->data.args[1], path) < 0)
        return -1;
    fd = open_watched(caller, path, mask, key);
    shared = fd < 0 ? -1 : is_shared(fd);
    /* While the call waits, its number is nobody else's. */
    if (shared < 0 || ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &call->id) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    /* A bit that means nothing in a mask, for one without any is refused. */
    mask = shared > 0 ? (mask & ~(uint32_t)READS) | IN_IGNORED : mask;
    return filter_add_watch(inotify, path, mask & ~(uint32_t)IN_DONT_FOLLOW, key);
}

static void answer(int listener, const struct seccomp_notif *call, int watch, int errnum)
{
    struct seccomp_notif_resp said = {.id = call->id, .val = watch, .error = -errnum};

    if (errnum != 0)
        said.val = 0;
    /* It may have been killed meanwhile. */
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &said);
}

static void add_and_answer(int listener, const struct seccomp_notif *call,
                           const struct caller *caller, const uint32_t key[4])
{
    int watch = add(listener, call, caller, key);

    answer(listener, call, watch, watch >= 0 ? 0 : errno == EPERM ? EACCES : errno);
}

/* Tells whether /proc is the box's own, where numbers of processes are those that we know. */
static bool is_own_proc(void)
{
    char self[8];

    return readlink("/proc/self", self, sizeof(self)) == 1 && self[0] == '1';
}

void watches_serve(int listener, const uint32_t key[4])
{
    struct seccomp_notif call = {0};
    struct caller caller;
    pid_t child;

    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0)
        return; /* it was killed, or interrupted */
    if (!is_own_proc()) {
        answer(listener, &call, -1, ENOSYS);
        return;
    }
    if (find_caller((pid_t)call.pid, &caller) < 0) {
        answer(listener, &call, -1, EACCES);
        return;
    }
    if (is_like_us(&caller)) {
        add_and_answer(listener, &call, &caller, key);
        return;
    }
    child = fork();
    if (child == 0) {
        if (become(&caller) == 0)
            add_and_answer(listener, &call, &caller, key);
        else
            answer(listener, &call, -1, EACCES);
        _exit(0);
    }
    if (child < 0)
        answer(listener, &call, -1, ENOMEM);
}
