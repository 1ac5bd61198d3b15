/* Removing a tree: see remove.h.
 *
 * Goes down a few levels only: what lies deeper is first moved up, so that neither the stack nor the
 * number of open fds depends on what somebody made. What goes meanwhile is removed by another, who was killed and
 * has not noticed. */
#include "base/remove.h"

#include "base/fd.h"
#include "base/list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 16

struct removal {
    int top;        /* where too deep directories go */
    unsigned moved; /* their names */
};

static int level_remove(struct removal *removal, int dir, const char *name, int depth);

/* A mode may keep even its owner out. */
static void open_up(int dir, const char *name)
{
    _cleanup_close_ int at = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char path[32];

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
    if (at >= 0)
        (void)chmod(path, 0700);
}

static int entry_remove(struct removal *removal, int dir, const char *name, int depth)
{
    char up[32];

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    if (depth < DEPTH_MAX)
        return level_remove(removal, dir, name, depth + 1);
    open_up(dir, name); /* to move a directory takes the right to write to it */
    (void)snprintf(up, sizeof(up), ".remove-%u", removal->moved++);
    return renameat(dir, name, removal->top, up) == 0 || errno == ENOENT ? 0 : -1;
}

static int level_remove(struct removal *removal, int dir, const char *name, int depth)
{
    const struct dirent *entry;
    int failed = 0;
    DIR *list;

    open_up(dir, name);
    list = list_open(dir, name);
    if (list == NULL)
        return errno == ENOENT ? 0 : -1;
    if (removal->top < 0)
        removal->top = dirfd(list);
    while ((entry = readdir(list)) != NULL) // NOLINT(concurrency-mt-unsafe): a list of our own
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            entry_remove(removal, dirfd(list), entry->d_name, depth) < 0)
            failed = -1;
    (void)closedir(list);
    if (failed < 0)
        return -1;
    return unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -1;
}

int remove_tree(int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(dir, name, 0);
    /* What was moved up meanwhile makes the directory not empty: once more, as long as that helps. */
    for (unsigned round = 0;; round++) {
        struct removal removal = {.top = -1, .moved = round << 20};

        if (level_remove(&removal, dir, name, 0) == 0)
            return 0;
        if (errno != ENOTEMPTY || removal.moved == round << 20)
            return -1;
    }
}
