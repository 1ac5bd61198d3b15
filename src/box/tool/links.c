/* Files with several names: see copy.h. A table by inode; what comes when it is full is not known again,
 * and is then a file of its own. */
#include "box/tool/copy.h"

#include <stdlib.h>
#include <string.h>

#define LINKS_MAX (1U << 16)
#define SLOTS (2UL * LINKS_MAX)
#define PATHS_MAX (8U << 20)

struct link {
    dev_t device;
    ino_t inode;
    char *path; /* NULL: free */
};

struct links {
    size_t count, bytes;
    struct link slots[SLOTS];
};

struct links *links_new(void)
{
    return calloc(1, sizeof(struct links)); /* its pages are there when they are touched */
}

void links_free(struct links *links)
{
    for (size_t i = 0; links != NULL && i < SLOTS; i++)
        free(links->slots[i].path);
    free(links);
}

const char *links_meet(struct links *links, const struct stat *st, const char *path)
{
    size_t at = (size_t)((st->st_ino ^ (st->st_dev << 7)) * 0x9e3779b97f4a7c15U >> 40) % SLOTS;
    size_t size = strlen(path) + 1;
    struct link *link;

    for (; (link = &links->slots[at])->path != NULL; at = (at + 1) % SLOTS)
        if (link->inode == st->st_ino && link->device == st->st_dev)
            return link->path;
    if (links->count == LINKS_MAX || links->bytes + size > PATHS_MAX)
        return NULL;
    link->path = malloc(size);
    if (link->path == NULL)
        return NULL;
    memcpy(link->path, path, size);
    link->device = st->st_dev;
    link->inode = st->st_ino;
    links->count++;
    links->bytes += size;
    return NULL;
}
