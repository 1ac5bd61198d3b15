/* Which fake address stands for which name in a box: numbers in the order in which the names came.
 *
 * The file is the names, a line each, only ever appended to: the number of a name is the place of its
 * line. So a number can never come to stand for a second name, whatever the moment of a crash: a line
 * that was not finished was never answered to anybody, and is cut off. Any other fault of the file is an
 * error; to guess would be to lend one host's address to another. */
#include "net/parts.h"

#include "base/fd.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef __clang__
/* The analyser does not see that what tsearch() was given lies in the tree. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

#define FIRST 2U /* 0 is nobody's, 1 is the resolver's own address */
#define FILE_MAX ((size_t)NET_NAMES_MAX * POLICY_NAME_MAX)

struct name {
    uint32_t number;
    char text[];
};

struct names {
    int fd;
    off_t size; /* of the file's whole lines */
    void *tree; /* of struct name, by text: balanced, for a box chooses the names */
    struct name **by_number;
    uint32_t count, room;
    bool is_broken; /* the file has a piece of a line that could not be taken back */
};

_Static_assert(FIRST + NET_NAMES_MAX <= 1U << (32 - POLICY_FAKE4_BITS), "numbers are addresses");

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static struct name *name_new(const char *text, size_t size, uint32_t number)
{
    struct name *name = malloc(sizeof(*name) + size + 1);

    if (name == NULL)
        return NULL;
    name->number = number;
    memcpy(name->text, text, size);
    name->text[size] = '\0';
    return name;
}

/* NULL: no memory. `is_new` false: it is there already. */
static struct name *insert(struct names *names, const char *text, size_t size, bool *is_new)
{
    struct name *name = name_new(text, size, FIRST + names->count), **found;

    *is_new = false;
    if (name == NULL)
        return NULL;
    if (names->count == names->room) {
        uint32_t room = names->room == 0 ? 16 : names->room * 2;
        struct name **more = realloc(names->by_number, room * sizeof(struct name *));

        if (more == NULL) {
            free(name);
            return NULL;
        }
        names->by_number = more;
        names->room = room;
    }
    found = tsearch(name, &names->tree, compare);
    if (found == NULL || *found != name) {
        free(name);
        return found == NULL ? NULL : *found;
    }
    *is_new = true;
    names->by_number[names->count++] = name;
    return name;
}

static void remove_last(struct names *names)
{
    struct name *name = names->by_number[--names->count];

    (void)tdelete(name, &names->tree, compare);
    free(name);
}

static int damaged(const struct names *names, struct error *err)
{
    return error_set(
        err, "names_damaged", 0,
        "line %u of the list of names of this sandbox is none that was written there, so its "
        "addresses cannot be trusted: make the sandbox anew",
        (unsigned)names->count + 1);
}

static int take_line(struct names *names, const char *line, size_t size, struct error *err)
{
    char text[POLICY_NAME_MAX], normal[POLICY_NAME_MAX];
    struct error why;
    bool is_new;

    if (size == 0 || size >= sizeof(text) || names->count == NET_NAMES_MAX)
        return damaged(names, err);
    memcpy(text, line, size);
    text[size] = '\0';
    if (strlen(text) != size || policy_name(text, normal, &why) < 0 || strcmp(text, normal) != 0)
        return damaged(names, err);
    if (insert(names, text, size, &is_new) == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot read the list of names of this sandbox");
    return is_new ? 0 : damaged(names, err);
}

static int take_file(struct names *names, const char *data, size_t size, struct error *err)
{
    size_t at = 0;

    while (at < size) {
        const char *end = memchr(data + at, '\n', size - at);
        size_t length;

        if (end == NULL)
            break;
        length = (size_t)(end - (data + at));
        if (take_line(names, data + at, length, err) < 0)
            return -1;
        at += length + 1;
    }
    names->size = (off_t)at;
    if (at < size && ftruncate(names->fd, names->size) < 0)
        return error_set(err, "names_failed", errno,
                         "cannot cut an unfinished line off the list of names of this sandbox");
    return 0;
}

static int read_file(struct names *names, struct error *err)
{
    _cleanup_free_ char *data = NULL;
    struct stat status;
    ssize_t size;

    if (fstat(names->fd, &status) < 0)
        return error_set(err, "names_failed", errno,
                         "cannot read the list of names of this sandbox");
    if (!S_ISREG(status.st_mode) || status.st_size < 0 || (size_t)status.st_size > FILE_MAX)
        return error_set(
            err, "names_damaged", 0,
            "the list of names of this sandbox is longer than any that was written there: "
            "make the sandbox anew");
    data = malloc((size_t)status.st_size + 1);
    if (data == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot read the list of names of this sandbox");
    if (lseek(names->fd, 0, SEEK_SET) < 0 ||
        (size = fd_read_full(names->fd, data, (size_t)status.st_size)) < 0)
        return error_set(err, "names_failed", errno,
                         "cannot read the list of names of this sandbox");
    return take_file(names, data, (size_t)size, err);
}

int names_open(int fd, struct names **out, struct error *err)
{
    struct names *names = calloc(1, sizeof(*names));

    if (names == NULL) {
        fd_close(&fd);
        return error_set(err, "no_memory", ENOMEM, "cannot read the list of names of this sandbox");
    }
    names->fd = fd;
    if (read_file(names, err) < 0) {
        names_close(names);
        return -1;
    }
    *out = names;
    return 0;
}

static void nothing(void *name)
{
    (void)name;
}

void names_close(struct names *names)
{
    if (names == NULL)
        return;
    tdestroy(names->tree, nothing);
    for (uint32_t i = 0; i < names->count; i++)
        free(names->by_number[i]);
    free(names->by_number);
    fd_close(&names->fd);
    free(names);
}

/* All of the line or nothing of it: what is left of one would be the beginning of the next. */
static int append(struct names *names, const char *text, struct error *err)
{
    char line[POLICY_NAME_MAX + 1];
    size_t size = strlen(text);
    int errnum;

    memcpy(line, text, size);
    line[size++] = '\n';
    /* Where the last whole line ends, whether or not the file was opened for appending. */
    if (lseek(names->fd, names->size, SEEK_SET) == names->size &&
        fd_write_full(names->fd, line, size) == 0) {
        names->size += (off_t)size;
        return 0;
    }
    errnum = errno;
    if (ftruncate(names->fd, names->size) < 0)
        names->is_broken = true;
    return error_set(err, "names_failed", errnum, "cannot write the list of names of this sandbox");
}

int names_take(struct names *names, const char *name, bool *is_new, struct error *err)
{
    struct name *known;
    size_t size = strnlen(name, POLICY_NAME_MAX);
    uint32_t number = names_look(names, name);

    *is_new = false;
    if (number != 0)
        return (int)number;
    if (size == 0 || size >= POLICY_NAME_MAX || strchr(name, '\n') != NULL)
        return error_set(err, "bad_name", 0, "this is the name of no host");
    if (names->count == NET_NAMES_MAX || (size_t)names->size + size + 1 > NET_NAMES_BYTES)
        return error_set(err, "names_full", 0,
                         "this sandbox has looked up %u names, and gets no more: make a new one",
                         (unsigned)names->count);
    if (names->is_broken)
        return error_set(err, "names_failed", 0,
                         "the list of names of this sandbox could not be written: make room on its "
                         "disk and restart the engine");
    known = insert(names, name, size, is_new);
    if (known == NULL)
        return error_set(err, "no_memory", ENOMEM, "cannot note a name of this sandbox");
    if (append(names, name, err) < 0) {
        remove_last(names);
        *is_new = false;
        return -1;
    }
    return (int)known->number;
}

uint32_t names_look(const struct names *names, const char *name)
{
    char space[sizeof(struct name) + POLICY_NAME_MAX] __attribute__((aligned(8)));
    struct name *wanted = (struct name *)space, **found;
    size_t size = strnlen(name, POLICY_NAME_MAX);

    if (size >= POLICY_NAME_MAX)
        return 0;
    memcpy(wanted->text, name, size + 1);
    found = tfind(wanted, &names->tree, compare);
    return found != NULL ? (*found)->number : 0;
}

int names_fd(const struct names *names)
{
    return names->fd;
}

size_t names_size(const struct names *names)
{
    return (size_t)names->size;
}

const char *names_find(const struct names *names, uint32_t number)
{
    return number >= FIRST && number - FIRST < names->count ? names->by_number[number - FIRST]->text
                                                            : NULL;
}

/* ---- addresses ---- */

static void put32(uint32_t value, uint8_t out[4])
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get32(const uint8_t in[4])
{
    return (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | in[3];
}

void names_address4(uint32_t number, uint8_t out[4])
{
    put32(POLICY_FAKE4 + number, out);
}

void names_address6(uint32_t number, uint8_t out[16])
{
    memset(out, 0, 16);
    memcpy(out, POLICY_FAKE6, POLICY_FAKE6_BITS / 8);
    put32(number, out + 12);
}

bool names_number(const struct policy_address *address, uint32_t *number)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *bytes = address->bytes;
    uint8_t again[16];

    if (memcmp(bytes, mapped, sizeof(mapped)) == 0) {
        *number = get32(bytes + 12) - POLICY_FAKE4;
        return *number < 1U << (32 - POLICY_FAKE4_BITS);
    }
    *number = get32(bytes + 12);
    names_address6(*number, again);
    /* One address for one number, or there were more names for a host than we know. */
    return *number < 1U << (32 - POLICY_FAKE4_BITS) && memcmp(bytes, again, sizeof(again)) == 0;
}
