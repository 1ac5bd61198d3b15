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
    bool spent; /* killed once: the kernel kills whatever is born into it from then on */
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
    (void)snprintf(text, sizeof(text), "%llu 100000",
                   leaves.config.cpu_milli >= 10 ? leaves.config.cpu_milli * 100ULL : 1000ULL);
    return fd_write_file(fd, "cpu.max", text);
}

static int make(int slot)
{
    struct leaf *leaf = &leaves.leaf[slot];
    char name[16];

    (void)snprintf(name, sizeof(name), "c%d", slot);
    /* What was killed is removed first: see `spent`. */
    if (leaf->spent) {
        fd_close(&leaf->fd);
        if (unlinkat(PROTO_LEAVES_FD, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            return -1;
        leaf->spent = false;
    }
    if (mkdirat(PROTO_LEAVES_FD, name, 0755) < 0)
        return -1;
    leaf->fd = openat(PROTO_LEAVES_FD, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (leaf->fd < 0 || (leaves.limited && limit(leaf->fd) < 0)) {
        leaf->spent = true;
        return -1;
    }
    return slot;
}

static bool is_free(const struct leaf *leaf)
{
    return !leaf->taken && (leaf->fd < 0 || is_empty(leaf));
}

int leaves_take(void)
{
    int slot = 0;

    if (!leaves.usable) {
        errno = ENOTSUP;
        return -1;
    }
    while (slot < leaves.count && !is_free(&leaves.leaf[slot]))
        slot++;
    if (slot == LEAVES_MAX) {
        errno = EAGAIN;
        return -1;
    }
    if (slot == leaves.count)
        leaves.leaf[leaves.count++] = (struct leaf){.fd = -1};
    if ((leaves.leaf[slot].fd < 0 || leaves.leaf[slot].spent) && make(slot) < 0)
        return -1;
    leaves.leaf[slot].taken = true;
    return slot;
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
    leaves.leaf[leaf].spent = true;
    return fd_write_file(leaves.leaf[leaf].fd, "cgroup.kill", "1");
}
