/* Walking a tree: see parts.h.
 *
 * A level per directory on the way down, on the heap. Only the deepest hold fds and lists of names: a level
 * that lost its list reads on behind the name that its path says it was at, and one that lost its fd is
 * found by "..", or by its names from the top, and must be the directory that it was. */
#include "box/tool/parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FDS_MAX 32
#define LISTS_BYTES_MAX (16U << 20)
#define WALK_PATH_MAX (4U << 20)

struct level {
    int fd; /* -1: let go */
    dev_t device;
    ino_t inode;
    bool was_read, is_last_read;
    size_t name_at; /* in the path: where the names of what is in it begin */
    struct names names;
};

struct walk {
    struct level *levels;
    size_t count, slots;
    size_t oldest_fd;   /* below this (but the top) all fds are let go */
    size_t oldest_list; /* below this all lists are */
    size_t lists_bytes;
    char *path;
    size_t length, capacity, below_at;
    unsigned depth_max;
    bool opens_up;
    bool enters; /* the last entry is a directory to enter */
    bool is_failed;
    struct error error; /* if so: of the path, told by the next step */
};

/* ---- the path ---- */

static int path_cut_add(struct walk *walk, size_t at, const char *name)
{
    size_t size = strlen(name) + 1;

    if (at + size > walk->capacity) {
        size_t capacity = (at + size) * 2;
        char *path = capacity > WALK_PATH_MAX ? NULL : realloc(walk->path, capacity);

        if (path == NULL)
            return -1;
        walk->path = path;
        walk->capacity = capacity;
    }
    memcpy(walk->path + at, name, size);
    walk->length = at + size - 1;
    return 0;
}

/* ---- levels ---- */

static size_t list_bytes(const struct names *names)
{
    return names->capacity + names->slots * sizeof(names->at[0]);
}

static void level_drop_names(struct walk *walk, struct level *level)
{
    walk->lists_bytes -= list_bytes(&level->names);
    names_free(&level->names);
}

static void level_pop(struct walk *walk)
{
    struct level *level = &walk->levels[--walk->count];

    fd_close(&level->fd);
    level_drop_names(walk, level);
    if (walk->oldest_fd > walk->count)
        walk->oldest_fd = walk->count;
    if (walk->oldest_list > walk->count)
        walk->oldest_list = walk->count;
}

static int level_push(struct walk *walk, int fd, size_t name_at)
{
    struct stat st;

    if (walk->count == walk->slots) {
        size_t slots = walk->slots == 0 ? 16 : walk->slots * 2;
        struct level *levels = reallocarray(walk->levels, slots, sizeof(*levels));

        if (levels == NULL)
            return -1;
        walk->levels = levels;
        walk->slots = slots;
    }
    if (fstat(fd, &st) < 0)
        return -1;
    walk->levels[walk->count++] = (struct level){
        .fd = fd, .device = st.st_dev, .inode = st.st_ino, .name_at = name_at};
    /* The top stays open: from there all is found again. */
    if (walk->count - walk->oldest_fd > FDS_MAX) {
        if (walk->oldest_fd > 0)
            fd_close(&walk->levels[walk->oldest_fd].fd);
        walk->oldest_fd++;
    }
    return 0;
}

static bool is_level(const struct level *level, int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_dev == level->device && st.st_ino == level->inode;
}

/* By names from the top, never through a link. */
static int reopen_by_names(struct walk *walk, size_t index)
{
    int at = fcntl(walk->levels[0].fd, F_DUPFD_CLOEXEC, 3);

    for (size_t i = 0; i < index && at >= 0; i++) {
        char *name = walk->path + walk->levels[i].name_at;
        char *end = walk->path + walk->levels[i + 1].name_at - 1;
        char was = *end;
        int next;

        *end = '\0';
        next = openat(at, name,
                      (i + 1 == index ? O_RDONLY : O_PATH) | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        *end = was;
        fd_close(&at);
        at = next;
    }
    return at;
}

/* `child` is what was entered from it; -1 where it is not what it was. */
static int level_reopen(struct walk *walk, size_t index, int child)
{
    struct level *level = &walk->levels[index];

    if (level->fd >= 0)
        return 0;
    if (child >= 0)
        level->fd = openat(child, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (level->fd < 0 || !is_level(level, level->fd)) {
        fd_close(&level->fd);
        level->fd = reopen_by_names(walk, index);
    }
    if (level->fd >= 0 && !is_level(level, level->fd))
        fd_close(&level->fd);
    if (level->fd >= 0 && walk->oldest_fd > index)
        walk->oldest_fd = index;
    return level->fd < 0 ? -1 : 0;
}

/* Lets go of the lists of the levels that are longest out of use. */
static void lists_bound(struct walk *walk)
{
    if (walk->oldest_list > walk->count - 1)
        walk->oldest_list = walk->count - 1;
    while (walk->lists_bytes > LISTS_BYTES_MAX && walk->oldest_list < walk->count - 1) {
        struct level *oldest = &walk->levels[walk->oldest_list++];

        oldest->is_last_read &= oldest->names.next == oldest->names.count;
        level_drop_names(walk, oldest);
    }
}

/* What comes next of the deepest level; NULL at its end, or where it cannot be read (`error`). */
static const char *level_next(struct walk *walk, uint8_t *type)
{
    struct level *level = &walk->levels[walk->count - 1];
    const char *name = names_next(&level->names, type);

    while (name == NULL && !level->is_last_read) {
        const char *after = level->was_read ? walk->path + level->name_at : NULL;
        size_t before = list_bytes(&level->names);

        walk->is_failed = names_read(&level->names, level->fd, after, &walk->error) < 0;
        level->is_last_read = walk->is_failed || !level->names.is_more;
        level->was_read = true;
        walk->lists_bytes += list_bytes(&level->names) - before;
        name = names_next(&level->names, type);
        lists_bound(walk);
    }
    return name;
}

/* A list that has nothing more is of no use while what is below is walked. */
static void level_tidy(struct walk *walk, struct level *level)
{
    if (level->names.next == level->names.count)
        level_drop_names(walk, level);
}

/* ---- steps ---- */

/* Enters the directory `name` of the deepest level, whose path is the path. */
static int enter(struct walk *walk, const char *name)
{
    size_t index = walk->count - 1;
    _cleanup_close_ int fd = -1;

    if (walk->opens_up)
        place_open_up(walk->levels[index].fd, name);
    fd = openat(walk->levels[index].fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail(&walk->error, errno, "", "open the directory");
    level_tidy(walk, &walk->levels[index]);
    if (path_cut_add(walk, walk->length, "/") < 0)
        return fail(&walk->error, ENAMETOOLONG, "", "go deeper than this");
    if (level_push(walk, fd, walk->length) < 0)
        return fail(&walk->error, errno, "", "open the directory");
    (void)fd_take(&fd);
    return 0;
}

static void fill(const struct walk *walk, enum walk_kind kind, struct walk_step *step)
{
    size_t index = walk->count - 1;

    step->kind = kind;
    step->dir = walk->levels[index].fd;
    step->path = walk->path;
    step->path_length = walk->length;
    step->below = walk->length > walk->below_at ? walk->path + walk->below_at : "";
    step->depth = (unsigned)walk->count;
    step->name = walk->path + walk->levels[index].name_at;
}

static enum walk_kind failed(struct walk *walk, struct walk_step *step)
{
    fill(walk, WALK_FAILED, step);
    step->error = walk->error;
    walk->is_failed = false;
    return WALK_FAILED;
}

/* Up to the directory above, which the path then names what was left of. */
static enum walk_kind leave(struct walk *walk, struct walk_step *step)
{
    size_t index = walk->count - 1;
    struct level *above = &walk->levels[index - 1];

    if (index == 0)
        return step->kind = WALK_END;
    walk->length = walk->levels[index].name_at - 1;
    walk->path[walk->length] = '\0';
    if (level_reopen(walk, index - 1, walk->levels[index].fd) < 0) {
        level_pop(walk);
        level_drop_names(walk, above);
        above->is_last_read = true;
        (void)fail(&walk->error, 0, "moved",
                   "somebody moved the directory above it meanwhile; ask again");
        return failed(walk, step);
    }
    level_pop(walk);
    fill(walk, WALK_LEAVE, step);
    step->type = DT_DIR;
    return WALK_LEAVE;
}

static uint8_t type_at(int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return DT_REG; /* gone: whoever uses it hears why */
    return (uint8_t)IFTODT(st.st_mode);
}

enum walk_kind walk_next(struct walk *walk, struct walk_step *step)
{
    const char *name;

    if (walk->enters) {
        walk->enters = false;
        if (enter(walk, walk->path + walk->levels[walk->count - 1].name_at) < 0)
            return failed(walk, step);
    }
    for (;;) {
        const struct level *level = &walk->levels[walk->count - 1];

        name = level_next(walk, &step->type);
        if (walk->is_failed)
            return failed(walk, step);
        if (name == NULL)
            return leave(walk, step);
        if (path_cut_add(walk, level->name_at, name) == 0)
            break;
    }
    fill(walk, WALK_ENTRY, step);
    if (step->type == DT_UNKNOWN)
        step->type = type_at(step->dir, step->name);
    walk->enters = step->type == DT_DIR && step->depth < walk->depth_max;
    return WALK_ENTRY;
}

void walk_skip(struct walk *walk)
{
    walk->enters = false;
}

/* ---- begin and end ---- */

/* Goes down to where the last entry was, or as far as that is still there: all that is behind it in order
 * then comes, and nothing twice. */
static int resume(struct walk *walk, const char *after)
{
    char name[TOOL_NAME_MAX];

    while (*(after += strspn(after, "/")) != '\0') {
        struct level *level = &walk->levels[walk->count - 1];
        size_t length = strcspn(after, "/");

        if (length >= sizeof(name))
            return -1;
        memcpy(name, after, length);
        name[length] = '\0';
        after += length;
        if (path_cut_add(walk, level->name_at, name) < 0)
            return -1;
        level->was_read = true;
        if (walk->count >= walk->depth_max || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            enter(walk, name) < 0)
            break;
    }
    return 0;
}

struct walk *walk_new(int top, const struct walk_options *options, struct error *err)
{
    struct walk *walk = calloc(1, sizeof(*walk));
    size_t length = strlen(options->path);

    if (walk == NULL) {
        (void)fail(err, ENOMEM, "", "walk the directory");
        fd_close(&top);
        return NULL;
    }
    walk->depth_max = options->depth_max;
    walk->opens_up = options->opens_up;
    if (path_cut_add(walk, 0, options->path) < 0 ||
        ((length == 0 || options->path[length - 1] != '/') &&
         path_cut_add(walk, length, "/") < 0) ||
        level_push(walk, top, walk->length) < 0) {
        (void)fail(err, errno, "", "walk the directory");
        fd_close(&top);
        walk_free(walk);
        return NULL;
    }
    walk->below_at = walk->length;
    if (options->after != NULL && resume(walk, options->after) < 0) {
        (void)fail(err, ENAMETOOLONG, "", "begin behind such a path");
        walk_free(walk);
        return NULL;
    }
    return walk;
}

void walk_free(struct walk *walk)
{
    if (walk == NULL)
        return;
    while (walk->count > 0)
        level_pop(walk);
    free(walk->levels);
    free(walk->path);
    free(walk);
}
