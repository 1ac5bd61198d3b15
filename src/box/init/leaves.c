/* Cgroup leaves: see leaves.h. One init, one box, one table: static on purpose. */
#include "box/init/leaves.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEAVES_MAX 1024

struct leaf {
    int fd;
    bool taken;
};

static struct {
    bool usable;
    bool limited; /* leaves have controllers of their own */
    struct proto_config config;
    struct leaf leaf[LEAVES_MAX];
    int count;
} leaves;

void leaves_open(const struct proto_config *config)
{
    leaves.usable = config->has_leaves != 0;
    leaves.limited = config->leaf_limits != 0;
    leaves.config = *config;
}

static bool is_empty(const struct leaf *leaf)
{
    char text[256];

    return fd_read_file(leaf->fd, "cgroup.events", text, sizeof(text)) > 0 &&
           strstr(text, "populated 0") != NULL;
}

/* A runtime inside reads the limits of its own leaf, so the leaf repeats the box's. */
static int limit(int fd)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)leaves.config.memory_bytes);
    if (fd_write_file(fd, "memory.max", text) < 0)
        return -1;
    (void)snprintf(text, sizeof(text), "%u", leaves.config.pids);
    if (fd_write_file(fd, "pids.max", text) < 0)
        return -1;
    if (leaves.config.cpu_milli == 0)
        return 0;
    (void)snprintf(text, sizeof(text), "%u 100000", leaves.config.cpu_milli * 100);
    return fd_write_file(fd, "cpu.max", text);
}

static int make(void)
{
    struct leaf *leaf = &leaves.leaf[leaves.count];
    char name[16];

    if (leaves.count == LEAVES_MAX) {
        errno = EAGAIN;
        return -1;
    }
    (void)snprintf(name, sizeof(name), "c%d", leaves.count);
    if (mkdirat(PROTO_LEAVES_FD, name, 0755) < 0)
        return -1;
    leaf->fd = openat(PROTO_LEAVES_FD, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (leaf->fd < 0 || (leaves.limited && limit(leaf->fd) < 0)) {
        fd_close(&leaf->fd);
        (void)unlinkat(PROTO_LEAVES_FD, name, AT_REMOVEDIR);
        return -1;
    }
    return leaves.count++;
}

int leaves_take(void)
{
    int found = -1;

    if (!leaves.usable) {
        errno = ENOTSUP;
        return -1;
    }
    for (int i = 0; i < leaves.count && found < 0; i++)
        if (!leaves.leaf[i].taken && is_empty(&leaves.leaf[i]))
            found = i;
    if (found < 0)
        found = make();
    if (found >= 0)
        leaves.leaf[found].taken = true;
    return found;
}

int leaves_fd(int leaf)
{
    return leaves.leaf[leaf].fd;
}

void leaves_give(int leaf)
{
    leaves.leaf[leaf].taken = false;
}

int leaves_kill(int leaf)
{
    return fd_write_file(leaves.leaf[leaf].fd, "cgroup.kill", "1");
}
