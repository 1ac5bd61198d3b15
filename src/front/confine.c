/* See confine.h. Landlock keeps files, processes and TCP ports away; connecting to a unix socket by its path is none
 * of the things it knows, so that the making of such a socket is refused, as of all that is not the internet's. */
#include "front/confine.h"

#include "base/fd.h"
#include "base/landlock_abi.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ruleset_make(long abi)
{
    struct ruleset rules = {.fs = FS_FIRST, .net = NET_BIND_TCP};
    size_t size = abi >= 6   ? sizeof(rules)
                  : abi >= 4 ? offsetof(struct ruleset, scoped)
                             : offsetof(struct ruleset, net);

    rules.fs |= (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) |
                (abi >= 5 ? FS_IOCTL_DEV : 0);
    rules.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
    return (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0);
}

static int allow_reading(int ruleset, const char *path, struct error *err)
{
    _cleanup_close_ int at = open(path, O_PATH | O_CLOEXEC);
    struct rule rule = {.access = FS_READ_FILE, .parent = at};
    struct stat st;

    if (at < 0 && (errno == ENOENT || errno == EACCES))
        return 0;
    if (at < 0 || fstat(at, &st) < 0)
        return error_set(err, "landlock_failed", errno, "cannot open %s for Landlock", path);
    if (S_ISDIR(st.st_mode))
        rule.access |= FS_READ_DIR;
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_PATH_BENEATH, &rule, 0) < 0)
        return error_set(err, "landlock_failed", errno, "cannot allow %s by Landlock", path);
    return 0;
}

/* The resolver's file is often a link to where it is written anew. */
static int allow_resolver(int ruleset, struct error *err)
{
    char path[PATH_MAX];

    if (realpath("/etc/resolv.conf", path) == NULL)
        return 0;
    *strrchr(path, '/') = '\0';
    return path[0] == '\0' ? 0 : allow_reading(ruleset, path, err);
}

static int confine_files(struct error *err)
{
    static const char *const readable[] = {"/etc", "/dev/null", "/dev/urandom"};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_VERSION);
    _cleanup_close_ int ruleset = -1;

    if (abi < 1)
        return 0;
    ruleset = ruleset_make(abi);
    if (ruleset < 0)
        return error_set(err, "landlock_failed", errno, "cannot make a Landlock ruleset");
    for (size_t i = 0; i < sizeof(readable) / sizeof(readable[0]); i++)
        if (allow_reading(ruleset, readable[i], err) < 0)
            return -1;
    if (allow_resolver(ruleset, err) < 0)
        return -1;
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return error_set(err, "landlock_failed", errno, "cannot confine itself by Landlock");
    return 0;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS_EQUAL(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skip))
#define IF_EQUAL(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (skip), 0)
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
/* The low half of an argument: both machines have it first. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arguments are read by their low half");

/* Loaded behind the engine's own filter (keeper/engine_filter.c), which ends calls of another machine's numbers. */
static int confine_sockets(struct error *err)
{
    static struct sock_filter code[] = {
        LOAD(nr),
        UNLESS_EQUAL(SYS_socket, 5),
        LOAD(args[0]),
        IF_EQUAL(AF_INET, 3),
        IF_EQUAL(AF_INET6, 2),
        IF_EQUAL(AF_NETLINK, 1), /* which addresses are the host's */
        RETURN(SECCOMP_RET_ERRNO | EAFNOSUPPORT),
        RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog loaded = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0UL, &loaded) < 0)
        return error_set(err, "filter_failed", errno, "cannot load its filter of system calls");
    return 0;
}

int confine(struct error *err)
{
    return confine_files(err) < 0 ? -1 : confine_sockets(err);
}
