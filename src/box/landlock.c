/* Landlock: see landlock.h. Built with both libcs; allocates nothing. */
#include "box/landlock.h"

#include "base/fd.h"
#include "base/landlock_abi.h"
#include "box/proto.h"
#include "box/sys.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#define FS_CHANGE                                                                                \
    (FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG | FS_MAKE_SOCK | \
     FS_MAKE_FIFO | FS_MAKE_SYM | FS_REFER)
#define FS_DEVICES (FS_MAKE_CHAR | FS_MAKE_BLOCK)

static int allow(int ruleset, const char *path, uint64_t access, struct error *err)
{
    _cleanup_close_ int at = open(path, O_PATH | O_CLOEXEC);
    struct rule rule = {.access = access, .parent = at};
    struct stat st;

    if (at < 0 && errno == ENOENT)
        return 0;
    if (at < 0 || fstat(at, &st) < 0)
        return error_set(err, "landlock_failed", errno, "cannot open %s for Landlock", path);
    if (!S_ISDIR(st.st_mode))
        rule.access &= FS_WRITE_FILE | FS_TRUNCATE;
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_PATH_BENEATH, &rule, 0) < 0)
        return error_set(err, "landlock_failed", errno, "cannot allow %s by Landlock", path);
    return 0;
}

/* Init makes a cgroup for each command there; nobody else has a way to it. */
static int allow_leaves(int ruleset, uint64_t change, struct error *err)
{
    struct rule rule = {.access = change & (FS_WRITE_FILE | FS_MAKE_DIR | FS_REMOVE_DIR),
                        .parent = PROTO_LEAVES_FD};

    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_PATH_BENEATH, &rule, 0) < 0)
        return error_set(err, "landlock_failed", errno, "cannot allow the leaves by Landlock");
    return 0;
}

static int allow_host_profile(int ruleset, const struct plan *plan, uint64_t change,
                              struct error *err)
{
    static const char *const writable[] = {"/tmp", "/home/user", "/root", "/dev/shm"};
    static const char *const openable[] = {"/dev", "/proc"};

    for (size_t i = 0; i < sizeof(writable) / sizeof(writable[0]); i++)
        if (allow(ruleset, writable[i], change, err) < 0)
            return -1;
    for (size_t i = 0; i < sizeof(openable) / sizeof(openable[0]); i++)
        if (allow(ruleset, openable[i], change & (FS_WRITE_FILE | FS_TRUNCATE), err) < 0)
            return -1;
    /* A bind that is read-only is so by its mount; one that is writable has to be named. */
    for (size_t i = 0; i < plan->binds_count; i++)
        if (allow(ruleset, plan->binds[i].target, change, err) < 0)
            return -1;
    return 0;
}

int landlock_confine(const struct plan *plan, struct error *err)
{
    bool is_view = plan->root_kind == BOX_ROOT_HOST && !plan->own_root;
    struct ruleset rules = {0};
    uint64_t change = FS_CHANGE;
    _cleanup_close_ int ruleset = -1;
    long abi;
    int done;

    if (!plan->landlock)
        return 0;
    abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_VERSION);
    if (abi < 2)
        return 0;
    if (abi >= 3)
        change |= FS_TRUNCATE;
    /* Where the root can be written, in an image or in a root of the box's own, a rule for it would hold for
     * all that is mounted below, too: only device nodes are handled, and moving files about must then be
     * allowed by name. */
    rules.fs = FS_DEVICES | (is_view ? change : FS_REFER);
    rules.scoped = abi >= 6 ? SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL : 0;
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules,
                           abi >= 6   ? sizeof(rules)
                           : abi >= 4 ? offsetof(struct ruleset, scoped)
                                      : offsetof(struct ruleset, net),
                           0);
    if (ruleset < 0)
        return error_set(err, "landlock_failed", errno, "cannot make a Landlock ruleset");
    done = is_view ? allow_host_profile(ruleset, plan, change, err)
                   : allow(ruleset, "/", FS_REFER, err);
    if (done == 0 && plan->leaves >= 0 && is_view)
        done = allow_leaves(ruleset, change, err);
    if (done < 0)
        return -1;
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return error_set(err, "landlock_failed", errno, "cannot confine the box by Landlock");
    return 0;
}
