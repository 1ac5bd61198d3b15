/* Host paths on the command line: see run_paths.h. */
#include "cmd/run_paths.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where an erofs super block lies, and how it starts (linux/magic.h, little endian). */
#define EROFS_OFFSET 1024
static const unsigned char erofs_magic[4] = {0xe2, 0xe1, 0xf5, 0xe0};

bool run_is_image(const char *word)
{
    static const char *const systems[] = {"alpine", "archlinux", "busybox", "centos",
                                          "debian", "fedora",    "ubuntu"};
    const char *slash = strchr(word, '/');
    char first[NAME_MAX + 1];

    if (word[0] == '/' || word[0] == '.')
        return false;
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++)
        if (strcmp(word, systems[i]) == 0)
            return true;
    if (slash != NULL && (size_t)(slash - word) < sizeof(first)) {
        (void)snprintf(first, sizeof(first), "%.*s", (int)(slash - word), word);
        if (access(first, F_OK) == 0) /* a path, whose end is missing */
            return false;
    }
    return strpbrk(word, ":@") != NULL || (word[strcspn(word, "./")] == '.' && slash != NULL);
}

static int image_check(const char *path, struct error *err)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    unsigned char magic[sizeof(erofs_magic)];

    if (fd < 0)
        return error_set(err, "root_unreadable", 0,
                         "--root %.200s: it cannot be read: %s; give one that you may read", path,
                         strerror(errno));
    if (pread(fd, magic, sizeof(magic), EROFS_OFFSET) != (ssize_t)sizeof(magic) ||
        memcmp(magic, erofs_magic, sizeof(magic)) != 0)
        return error_set(err, "root_unreadable", 0,
                         "--root %.200s: it is neither a directory nor an erofs image; make one "
                         "with mkfs.erofs IMAGE DIR",
                         path);
    return 0;
}

int run_root_check(const char *path, enum box_root_kind *kind, struct error *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return error_set(err, "root_missing", 0,
                         "--root %.200s: %s; give a directory or an erofs image that exists", path,
                         strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        *kind = BOX_ROOT_DIR;
        return 0;
    }
    *kind = BOX_ROOT_EROFS;
    if (!S_ISREG(st.st_mode))
        return error_set(err, "root_unreadable", 0,
                         "--root %.200s: it is neither a directory nor a file; give a directory "
                         "or an erofs image",
                         path);
    return image_check(path, err);
}

/* Takes a final ":ro" or ":rw" off the `*length` bytes of `value`. */
static bool suffix_take(const char *value, size_t *length)
{
    if (*length < 3 || value[*length - 3] != ':' || value[*length - 2] != 'r')
        return false;
    if (value[*length - 1] != 'o' && value[*length - 1] != 'w')
        return false;
    *length -= 3;
    return value[*length + 2] == 'o';
}

static int bind_out_of_memory(struct box_bind *bind, struct error *err)
{
    run_bind_free(bind);
    return error_set(err, "no_memory", 0,
                     "memory: the machine has none left for this; end something and try again");
}

int run_workspace_parse(const char *value, const char *target, struct box_bind *bind,
                        struct error *err)
{
    size_t length = strlen(value);
    struct stat st;

    *bind = (struct box_bind){.read_only = suffix_take(value, &length)};
    bind->source = strndup(value, length);
    bind->target = strdup(target);
    if (bind->source == NULL || bind->target == NULL)
        return bind_out_of_memory(bind, err);
    if (stat(bind->source, &st) < 0)
        (void)error_set(err, "workspace_missing", 0,
                        "--workspace %.200s: %s; give a directory that exists", bind->source,
                        strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        (void)error_set(err, "workspace_missing", 0,
                        "--workspace %.200s: it is not a directory; give one, or bring a single "
                        "file in with --mount SRC:DST",
                        bind->source);
    else
        return 0;
    run_bind_free(bind);
    return -1;
}

/* Why no mount may go to `path`, or NULL. Such a path is also in the one form that names it. */
static const char *target_fault(const char *path)
{
    static const char *const kept[] = {"/proc", "/dev", "/sys"};

    if (path[0] != '/')
        return "its place in the box is not an absolute path";
    if (path[1] == '\0')
        return "the root of the box cannot be covered";
    for (const char *part = path; *part != '\0';) {
        size_t length = strcspn(++part, "/");

        if (length == 0 || (length == 1 && part[0] == '.') ||
            (length == 2 && part[0] == '.' && part[1] == '.'))
            return "its place in the box has an empty, '.' or '..' part";
        if (length > NAME_MAX)
            return "its place in the box has a part that is too long";
        part += length;
    }
    if (strlen(path) >= PATH_MAX)
        return "its place in the box is too long";
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        size_t length = strlen(kept[i]);

        if (strncmp(path, kept[i], length) == 0 && (path[length] == '/' || path[length] == '\0'))
            return "/proc, /dev and /sys are the box's own";
    }
    return NULL;
}

static int mount_check(const char *value, const struct box_bind *bind, struct error *err)
{
    const char *fault = target_fault(bind->target);
    struct stat st;

    if (fault != NULL)
        return error_set(err, "bad_mount", 0,
                         "--mount %.200s: %s; write SRC:DST[:ro] with a DST such as /data", value,
                         fault);
    if (stat(bind->source, &st) < 0)
        return error_set(err, "mount_missing", 0,
                         "--mount %.200s: %s: %s; give a directory or a file that exists", value,
                         bind->source, strerror(errno));
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return error_set(err, "bad_mount", 0,
                         "--mount %.200s: it is neither a directory nor a regular file, and would "
                         "be a way out of the box; give one of these",
                         value);
    return 0;
}

int run_mount_parse(const char *value, struct box_bind *bind, struct error *err)
{
    size_t length = strlen(value);
    const char *colon;
    size_t target;

    *bind = (struct box_bind){.read_only = suffix_take(value, &length)};
    colon = memrchr(value, ':', length);
    if (colon == NULL || colon == value)
        return error_set(err, "bad_mount", 0,
                         "--mount %.200s: a source and a place in the box are needed; write "
                         "SRC:DST[:ro]",
                         value);
    target = length - (size_t)(colon + 1 - value);
    /* "/data/" and "/data" are one place. */
    while (target > 1 && colon[target] == '/')
        target--;
    bind->source = strndup(value, (size_t)(colon - value));
    bind->target = strndup(colon + 1, target);
    if (bind->source == NULL || bind->target == NULL)
        return bind_out_of_memory(bind, err);
    if (mount_check(value, bind, err) == 0)
        return 0;
    run_bind_free(bind);
    return -1;
}

/* A bind that the command line made owns its paths; the box sees them as const. */
void run_bind_free(struct box_bind *bind)
{
    free((void *)(uintptr_t)bind->source);
    free((void *)(uintptr_t)bind->target);
    *bind = (struct box_bind){0};
}

static int bind_compare(const void *one, const void *other)
{
    return strcmp(((const struct box_bind *)one)->target, ((const struct box_bind *)other)->target);
}

int run_binds_sort(struct box_bind *binds, size_t count, struct error *err)
{
    if (count < 2)
        return 0;
    qsort(binds, count, sizeof(*binds), bind_compare);
    for (size_t i = 1; i < count; i++)
        if (strcmp(binds[i - 1].target, binds[i].target) == 0)
            return error_set(err, "bad_mount", 0,
                             "--mount %.100s:%.200s: something else is mounted there already; "
                             "choose another place",
                             binds[i].source, binds[i].target);
    return 0;
}
