/* A directory in order: see parts.h.
 *
 * One pass over the directory keeps the smallest names behind `after` that fit, so that memory is bounded,
 * the order is that of the bytes, and a page begins where the last one ended whatever was made or removed
 * between them. A million names of usual length take a handful of passes. */
#include "box/tool/parts.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LISTED_MAX 65536

/* As the kernel writes it; its names differ between the libcs. */
struct listed {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

static int compare(const void *left, const void *right, void *data)
{
    const char *text = data;
    const uint32_t *a = left, *b = right;

    return strcmp(text + *a + 1, text + *b + 1);
}

static void sort(struct names *names)
{
    if (names->count > 0)
        qsort_r(names->at, names->count, sizeof(names->at[0]), compare, names->data);
}

/* Lets go of the larger half. */
static int halve(struct names *names, struct error *err)
{
    char *data = malloc(names->capacity);
    size_t used = 0, count = 0;

    if (data == NULL)
        return fail(err, ENOMEM, "", "list the directory");
    sort(names);
    for (; count < names->count; count++) {
        const char *from = names->data + names->at[count];
        size_t size = strlen(from + 1) + 2;

        if (used + size > names->capacity / 2)
            break;
        memcpy(data + used, from, size);
        names->at[count] = (uint32_t)used;
        used += size;
    }
    free(names->data);
    names->data = data;
    names->used = used;
    names->count = count;
    names->is_more = true;
    return 0;
}

static int grow(struct names *names, size_t size, struct error *err)
{
    if (names->count == names->slots) {
        size_t slots = names->slots == 0 ? 32 : names->slots * 2;
        uint32_t *at = reallocarray(names->at, slots, sizeof(*at));

        if (at == NULL)
            return fail(err, ENOMEM, "", "list the directory");
        names->at = at;
        names->slots = slots;
    }
    while (names->used + size > names->capacity) {
        size_t capacity = names->capacity == 0 ? 1024 : names->capacity * 2;
        char *data;

        if (names->capacity == NAMES_BYTES_MAX)
            return halve(names, err);
        data = realloc(names->data, capacity);
        if (data == NULL)
            return fail(err, ENOMEM, "", "list the directory");
        names->data = data;
        names->capacity = capacity;
    }
    return 0;
}

static bool is_behind_last(const struct names *names, const char *name)
{
    return names->is_more && strcmp(name, names->data + names->at[names->count - 1] + 1) > 0;
}

static int add(struct names *names, const struct listed *listed, struct error *err)
{
    size_t size = strlen(listed->name) + 2;

    if (is_behind_last(names, listed->name))
        return 0;
    if (grow(names, size, err) < 0)
        return -1;
    if (is_behind_last(names, listed->name)) /* that was the half which went */
        return 0;
    names->at[names->count] = (uint32_t)names->used;
    names->data[names->used] = (char)listed->type;
    memcpy(names->data + names->used + 1, listed->name, size - 1);
    names->used += size;
    /* The largest stays the last, for the comparison. */
    if (names->is_more) {
        uint32_t last = names->at[names->count];

        names->at[names->count] = names->at[names->count - 1];
        names->at[names->count - 1] = last;
    }
    names->count++;
    return 0;
}

static bool is_wanted(const char *name, const char *after)
{
    if (name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0')))
        return false;
    return after == NULL || strcmp(name, after) > 0;
}

int names_read(struct names *names, int dir, const char *after, struct error *err)
{
    static char block[LISTED_MAX] __attribute__((aligned(8)));
    long n;

    names->used = names->count = names->next = 0;
    names->is_more = false;
    if (lseek(dir, 0, SEEK_SET) < 0)
        return fail(err, errno, "", "list the directory");
    while ((n = syscall(SYS_getdents64, dir, block, sizeof(block))) > 0)
        for (long at = 0; at < n;) {
            const struct listed *listed = (const struct listed *)(block + at);

            if (is_wanted(listed->name, after) && add(names, listed, err) < 0)
                return -1;
            at += listed->size;
        }
    /* A directory that is removed while it is open has nothing in it. */
    if (n < 0 && errno != ENOENT)
        return fail(err, errno, "", "list the directory");
    sort(names);
    return 0;
}

const char *names_next(struct names *names, uint8_t *type)
{
    const char *at;

    if (names->next == names->count)
        return NULL;
    at = names->data + names->at[names->next++];
    *type = (uint8_t)*at;
    return at + 1;
}

void names_free(struct names *names)
{
    free(names->data);
    free(names->at);
    *names = (struct names){0};
}
