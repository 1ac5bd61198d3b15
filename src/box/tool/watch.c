/* The verb watch: what changes below a directory, until the input ends.
 *
 * A directory is watched before it is listed, so that nothing falls between; what was made in between is
 * told once, by whichever saw it first. Watches are of the box's user and count against his limits: what
 * cannot be watched is told. There is a node for each watch, with its name and the node above, so that a
 * directory that moves takes all below it along. */
#include "box/tool/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#ifndef __clang__
/* The analyser of gcc 12 loses sight of a name once it is in an array of its caller's. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

#define MASK                                                                       \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | \
     IN_DELETE_SELF | IN_MOVE_SELF)
#define NODES_MAX (1U << 20)
#define SEEN_MAX 4096
#define PAIR_MS 20 /* the second half of a rename follows the first at once, or never */
#define EVENTS_SIZE 65536
#define TOP (-1)

struct node {
    int wd, parent; /* TOP: it is the top */
    char *name;     /* NULL: it went */
};

/* What a listing told, which may be told by an event, too. */
struct seen {
    int wd;
    char *name;
};

struct watch {
    struct tool *tool;
    int inotify;
    dev_t device; /* of the top, which is not held open: that would keep it from going */
    ino_t inode;
    bool is_recursive, is_over;
    bool is_full;       /* no more watches: told once */
    struct node *nodes; /* by `wd`, which the kernel counts up */
    size_t count, slots, gone;
    struct seen seen[SEEN_MAX];
    size_t seen_count;
    uint64_t sequence;
    int last_wd; /* of the last change that was told, if it was a modification */
    char last_name[TOOL_NAME_MAX];
    size_t used, at; /* of `events` */
    char events[EVENTS_SIZE] __attribute__((aligned(8)));
};

/* ---- nodes ---- */

static struct node *node_find(const struct watch *watch, int wd)
{
    size_t low = 0, high = watch->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (watch->nodes[middle].wd < wd)
            low = middle + 1;
        else
            high = middle;
    }
    return low < watch->count && watch->nodes[low].wd == wd && watch->nodes[low].name != NULL
               ? &watch->nodes[low]
               : NULL;
}

static struct node *node_named(const struct watch *watch, int parent, const char *name)
{
    for (size_t i = 0; i < watch->count; i++)
        if (watch->nodes[i].parent == parent && watch->nodes[i].name != NULL &&
            strcmp(watch->nodes[i].name, name) == 0)
            return &watch->nodes[i];
    return NULL;
}

/* Closes the gaps when they are more than half. */
static void nodes_tidy(struct watch *watch)
{
    size_t to = 0;

    if (watch->gone < 64 || watch->gone < watch->count / 2)
        return;
    for (size_t i = 0; i < watch->count; i++)
        if (watch->nodes[i].name != NULL)
            watch->nodes[to++] = watch->nodes[i];
    watch->count = to;
    watch->gone = 0;
}

static int node_add(struct watch *watch, int wd, int parent, const char *name)
{
    char *own;

    if (watch->count > 0 && watch->nodes[watch->count - 1].wd >= wd) {
        errno = ENOSPC; /* the kernel's count went round */
        return -1;
    }
    if (watch->count == watch->slots) {
        size_t slots = watch->slots == 0 ? 64 : watch->slots * 2;
        struct node *nodes = slots > NODES_MAX ? NULL
                                               : reallocarray(watch->nodes, slots, sizeof(*nodes));

        if (nodes == NULL) {
            errno = ENOSPC;
            return -1;
        }
        watch->nodes = nodes;
        watch->slots = slots;
    }
    own = strdup(name);
    if (own == NULL)
        return -1;
    watch->nodes[watch->count++] = (struct node){wd, parent, own};
    // cppcheck-suppress memleak ; it is in the table
    return 0;
}

static void node_drop(struct watch *watch, struct node *node)
{
    free(node->name);
    node->name = NULL;
    watch->gone++;
}

static bool is_below(const struct watch *watch, const struct node *node, int wd)
{
    while (node != NULL && node->wd != wd)
        node = node->parent == TOP ? NULL : node_find(watch, node->parent);
    return node != NULL;
}

/* What moved away: its watches, and those of all below it. */
static void forget_tree(struct watch *watch, int wd)
{
    /* From the end, for what is below is found by what is above. */
    for (size_t i = watch->count; i-- > 0;) {
        struct node *node = &watch->nodes[i];

        if (node->name != NULL && node->wd != wd && is_below(watch, node, wd)) {
            (void)inotify_rm_watch(watch->inotify, node->wd);
            node->parent = wd; /* so that what is below it is still found; dropped below */
        }
    }
    for (size_t i = 0; i < watch->count; i++)
        if (watch->nodes[i].name != NULL &&
            (watch->nodes[i].wd == wd || watch->nodes[i].parent == wd))
            node_drop(watch, &watch->nodes[i]);
    (void)inotify_rm_watch(watch->inotify, wd);
}

/* The path of `name` in the directory of that watch; false: it is too long, or nobody knows. */
static bool path_of(const struct watch *watch, int wd, const char *name, char path[TOOL_PATH_MAX])
{
    size_t at = TOOL_PATH_MAX - 1, length = strlen(name);

    path[at] = '\0';
    for (;;) {
        const struct node *node;

        if (length > 0) {
            bool is_joined = path[at] != '\0' && path[at] != '/' && name[length - 1] != '/';

            if (length + is_joined > at)
                return false;
            if (is_joined)
                path[--at] = '/';
            at -= length;
            memcpy(path + at, name, length);
        }
        if (wd == TOP)
            break;
        node = node_find(watch, wd);
        if (node == NULL)
            return false;
        name = node->name;
        length = strlen(name);
        wd = node->parent;
    }
    memmove(path, path + at, TOOL_PATH_MAX - at);
    return true;
}

/* ---- telling ---- */

static void tell_paths(struct watch *watch, uint32_t kind, bool is_directory, const char *path,
                       const char *to)
{
    struct tool_change change = {
        .sequence = ++watch->sequence, .kind = kind, .is_directory = is_directory};
    struct say *say = &watch->tool->say;
    size_t path_size = strlen(path) + 1, to_size = strlen(to) + 1;

    say_begin(say, TOOL_CHANGE, sizeof(change) + path_size + to_size);
    say_bytes(say, &change, sizeof(change));
    say_bytes(say, path, path_size);
    say_bytes(say, to, to_size);
    watch->tool->say.count++;
    watch->last_wd = TOP;
}

static void tell(struct watch *watch, uint32_t kind, bool is_directory, int wd, const char *name)
{
    char path[TOOL_PATH_MAX];

    /* One modification after the other of the same file is one. */
    if (kind == TOOL_MODIFIED && watch->last_wd == wd && strcmp(watch->last_name, name) == 0)
        return;
    if (!path_of(watch, wd, name, path)) {
        if (kind == TOOL_UNWATCHED) /* what is too long to be told */
            tell_paths(watch, kind, is_directory, watch->tool->at, "");
        return;
    }
    tell_paths(watch, kind, is_directory, path, "");
    if (kind == TOOL_MODIFIED) {
        watch->last_wd = wd;
        (void)strncpy(watch->last_name, name, sizeof(watch->last_name) - 1);
    }
}

/* ---- what is listed ---- */

static void see(struct watch *watch, int wd, const char *name)
{
    char *copy = watch->seen_count < SEEN_MAX ? strdup(name) : NULL;

    if (copy != NULL)
        watch->seen[watch->seen_count++] = (struct seen){wd, copy};
}

/* Whether a listing told it; then that is used up. */
static bool was_seen(struct watch *watch, int wd, const char *name)
{
    for (size_t i = 0; i < watch->seen_count; i++)
        if (watch->seen[i].wd == wd && strcmp(watch->seen[i].name, name) == 0) {
            free(watch->seen[i].name);
            watch->seen[i] = watch->seen[--watch->seen_count];
            return true;
        }
    return false;
}

static void unsee_all(struct watch *watch)
{
    while (watch->seen_count > 0)
        free(watch->seen[--watch->seen_count].name);
}

/* The watch of a directory that is open; -1: there is none, which is told unless it is gone. */
static int add_watch(struct watch *watch, int fd, int parent, const char *name, uint32_t mask)
{
    char path[FD_PATH_MAX];
    struct node *node;
    int wd;

    fd_path(fd, path);
    wd = inotify_add_watch(watch->inotify, path, mask);
    node = wd < 0 ? NULL : node_find(watch, wd);
    if (node != NULL) {
        /* It was watched already; it is called what it was found as. */
        if (parent != TOP && (node->parent != parent || strcmp(node->name, name) != 0)) {
            char *copy = strdup(name);

            if (copy != NULL) {
                free(node->name);
                node->name = copy;
                node->parent = parent;
            }
        }
        return wd;
    }
    if (wd >= 0 && node_add(watch, wd, parent, name) == 0)
        return wd;
    if (errno == ENOENT || errno == ENOTDIR)
        return -1;
    if (wd >= 0)
        (void)inotify_rm_watch(watch->inotify, wd);
    if (errno != ENOSPC || !watch->is_full)
        tell(watch, TOOL_UNWATCHED, true, parent, name);
    watch->is_full |= errno == ENOSPC;
    return -1;
}

/* ---- a tree; what is in it is told if `is_news` ---- */

struct chain {
    int *wds; /* of the directories above, by depth; 0: the top of the walk */
    size_t slots;
};

static int chain_set(struct chain *chain, unsigned depth, int wd)
{
    if (depth >= chain->slots) {
        size_t slots = depth + 64;
        int *wds = reallocarray(chain->wds, slots, sizeof(*wds));

        if (wds == NULL)
            return -1;
        chain->wds = wds;
        chain->slots = slots;
    }
    chain->wds[depth] = wd;
    return 0;
}

static void watch_entry(struct watch *watch, struct walk *walk, struct chain *chain,
                        const struct walk_step *step, bool is_news)
{
    int parent = chain->wds[step->depth - 1], wd;

    if (is_news) {
        see(watch, parent, step->name);
        tell(watch, TOOL_CREATED, step->type == DT_DIR, parent, step->name);
    }
    if (step->type == DT_DIR) {
        _cleanup_close_ int fd = openat(step->dir, step->name,
                                        O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        wd = fd < 0 ? -1 : add_watch(watch, fd, parent, step->name, MASK);
        if (wd < 0 || chain_set(chain, step->depth, wd) < 0)
            walk_skip(walk);
    }
}

/* Takes `fd`, the directory of that watch. */
static void watch_below(struct watch *watch, int fd, int wd, bool is_news)
{
    struct walk_options how = {.path = "/", .depth_max = UINT_MAX};
    struct chain chain = {0};
    struct walk_step step;
    struct error ignored;
    struct walk *walk = walk_new(fd, &how, &ignored);
    enum walk_kind kind = WALK_END;

    if (walk != NULL && chain_set(&chain, 0, wd) == 0)
        kind = walk_next(walk, &step);
    for (; kind != WALK_END; kind = walk_next(walk, &step))
        if (kind == WALK_ENTRY)
            watch_entry(watch, walk, &chain, &step, is_news);
        else if (kind == WALK_FAILED && step.error.errnum == EACCES)
            tell(watch, TOOL_UNWATCHED, true, chain.wds[step.depth - 1], step.name);
    free(chain.wds);
    walk_free(walk);
}

/* The top again; -1: it is not what it was. */
static int open_top(const struct watch *watch)
{
    _cleanup_place_ struct place place = PLACE_NONE;
    _cleanup_close_ int fd = -1;
    struct error ignored;
    struct stat st;

    if (place_find(&watch->tool->places, watch->tool->at, PLACE_FOLLOW, &place, &ignored) == 0)
        fd = place_open_directory(&place, &ignored);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != watch->device || st.st_ino != watch->inode)
        return -1;
    return fd_take(&fd);
}

/* A directory that appeared: its path is walked from the top, never through a link. */
static void watch_new(struct watch *watch, int parent, const char *name)
{
    char path[TOOL_PATH_MAX], *at = path, *part;
    _cleanup_close_ int fd = open_top(watch);
    size_t skip = strlen(watch->tool->at);
    int wd;

    if (!path_of(watch, parent, name, path)) {
        tell_paths(watch, TOOL_UNWATCHED, true, watch->tool->at, "");
        return;
    }
    at += skip;
    while (fd >= 0 && (part = strsep(&at, "/")) != NULL) {
        int next;

        if (*part == '\0')
            continue;
        next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0 && errno == EACCES)
            tell(watch, TOOL_UNWATCHED, true, parent, name);
        fd_close(&fd);
        fd = next;
    }
    wd = fd < 0 ? -1 : add_watch(watch, fd, parent, name, MASK);
    if (wd >= 0)
        watch_below(watch, fd_take(&fd), wd, true);
}

/* ---- events ---- */

static const struct inotify_event *event_at(const struct watch *watch, size_t at)
{
    return (const struct inotify_event *)(watch->events + at);
}

static size_t event_size(const struct inotify_event *event)
{
    return sizeof(*event) + event->len;
}

/* Reads what there is behind what was not used yet. */
static void read_more(struct watch *watch)
{
    ssize_t n;

    memmove(watch->events, watch->events + watch->at, watch->used - watch->at);
    watch->used -= watch->at;
    watch->at = 0;
    n = read(watch->inotify, watch->events + watch->used, sizeof(watch->events) - watch->used);
    if (n > 0)
        watch->used += (size_t)n;
}

/* The second half of a rename, behind `at`; NULL: it is not there. */
static struct inotify_event *find_pair(struct watch *watch, uint32_t cookie)
{
    for (size_t at = watch->at; at < watch->used; at += event_size(event_at(watch, at))) {
        struct inotify_event *event = (struct inotify_event *)(watch->events + at);

        if ((event->mask & IN_MOVED_TO) != 0 && event->cookie == cookie)
            return event;
    }
    return NULL;
}

static void moved(struct watch *watch, int from, const char *name, const struct inotify_event *to,
                  bool is_directory)
{
    struct node *node = is_directory && watch->is_recursive ? node_named(watch, from, name) : NULL;
    char path[TOOL_PATH_MAX], to_path[TOOL_PATH_MAX];

    bool is_listed = was_seen(watch, to->wd, to->name);

    (void)was_seen(watch, from, name);
    if (path_of(watch, from, name, path) && path_of(watch, to->wd, to->name, to_path))
        tell_paths(watch, TOOL_MOVED, is_directory, path, to_path);
    if (node != NULL) {
        char *copy = strdup(to->name);

        if (copy != NULL) {
            free(node->name);
            node->name = copy;
            node->parent = to->wd;
        }
    } else if (is_directory && watch->is_recursive && !is_listed) {
        watch_new(watch, to->wd, to->name);
    }
}

/* What a listing saw of that name went, so the next one of that name is news. */
static void removed(struct watch *watch, int wd, const char *name, bool is_directory)
{
    (void)was_seen(watch, wd, name);
    tell(watch, TOOL_REMOVED, is_directory, wd, name);
}

static void moved_from(struct watch *watch, const struct inotify_event *event)
{
    struct pollfd more = {.fd = watch->inotify, .events = POLLIN};
    bool is_directory = (event->mask & IN_ISDIR) != 0;
    uint32_t cookie = event->cookie;
    struct inotify_event *to = find_pair(watch, cookie);
    char name[TOOL_NAME_MAX] = {0};
    int wd = event->wd;
    struct node *node;

    (void)strncpy(name, event->name, sizeof(name) - 1);
    if (to == NULL && watch->used - watch->at < EVENTS_SIZE / 2 && poll(&more, 1, PAIR_MS) > 0) {
        read_more(watch); /* `event` is no more */
        to = find_pair(watch, cookie);
    }
    if (to != NULL) {
        moved(watch, wd, name, to, is_directory);
        to->mask = 0; /* done */
        return;
    }
    removed(watch, wd, name, is_directory);
    node = is_directory && watch->is_recursive ? node_named(watch, wd, name) : NULL;
    if (node != NULL)
        forget_tree(watch, node->wd);
}

static void created(struct watch *watch, const struct inotify_event *event)
{
    bool is_directory = (event->mask & IN_ISDIR) != 0;

    bool seen = was_seen(watch, event->wd, event->name);

    if (!seen)
        tell(watch, TOOL_CREATED, is_directory, event->wd, event->name);
    /* All below one that was listed was listed, too, unless another has come in its place. */
    if (is_directory && watch->is_recursive &&
        (!seen || (event->mask & IN_MOVED_TO) != 0 ||
         node_named(watch, event->wd, event->name) == NULL))
        watch_new(watch, event->wd, event->name);
}

/* Some were lost, directories that are new may be among them. */
static void overflowed(struct watch *watch)
{
    int top = open_top(watch);

    tell_paths(watch, TOOL_OVERFLOW, false, watch->tool->at, "");
    if (watch->is_recursive && top >= 0 && watch->count > 0)
        watch_below(watch, top, watch->nodes[0].wd, false);
    else
        fd_close(&top);
}

static void take_event(struct watch *watch, const struct inotify_event *event)
{
    struct node *node = node_find(watch, event->wd);
    const char *name = event->len > 0 ? event->name : "";
    bool is_directory = (event->mask & IN_ISDIR) != 0;

    if ((event->mask & IN_Q_OVERFLOW) != 0) {
        overflowed(watch);
        return;
    }
    if (node == NULL)
        return;
    if (node->parent == TOP && (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) != 0) {
        tell_paths(watch, TOOL_UNWATCHED, is_directory, watch->tool->at, "");
        watch->is_over = true;
    }
    if ((event->mask & IN_IGNORED) != 0)
        node_drop(watch, node);
    if ((*name == '\0') != (node->parent == TOP && *name == '\0'))
        return; /* of a directory itself: the one above it tells */
    if ((event->mask & IN_MOVED_FROM) != 0)
        moved_from(watch, event);
    else if ((event->mask & (IN_CREATE | IN_MOVED_TO)) != 0)
        created(watch, event);
    else if ((event->mask & IN_DELETE) != 0)
        removed(watch, event->wd, name, is_directory);
    else if ((event->mask & IN_MODIFY) != 0)
        tell(watch, TOOL_MODIFIED, is_directory, event->wd, name);
    else if ((event->mask & IN_ATTRIB) != 0)
        tell(watch, TOOL_ATTRIBUTES, is_directory, event->wd, name);
}

static void take_events(struct watch *watch)
{
    struct pollfd more = {.fd = watch->inotify, .events = POLLIN};

    read_more(watch);
    while (watch->at < watch->used && !watch->is_over) {
        const struct inotify_event *event = event_at(watch, watch->at);

        watch->at += event_size(event);
        take_event(watch, event);
    }
    nodes_tidy(watch);
    if (poll(&more, 1, 0) == 0)
        unsee_all(watch); /* all that a listing could have seen was told */
    watch->last_wd = TOP;
    say_flush(&watch->tool->say);
}

/* ---- the verb ---- */

static int begin(struct watch *watch, struct error *err)
{
    struct tool *tool = watch->tool;
    _cleanup_place_ struct place place = PLACE_NONE;
    _cleanup_close_ int fd = -1;
    struct stat st;
    int wd;

    if (place_find(&tool->places, tool->at, PLACE_FOLLOW, &place, err) < 0)
        return -1;
    fd = place_open_path(&place, &st, err);
    if (fd < 0)
        return -1;
    watch->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch->inotify < 0)
        return errno == EMFILE ? fail(err, errno, "limit",
                                      "this user watches too much already; end other watches")
                               : fail(err, errno, "", "watch it");
    watch->is_recursive = tool->options.recursive && S_ISDIR(st.st_mode);
    wd = add_watch(watch, fd, TOP, tool->at, MASK);
    if (wd < 0)
        return errno == ENOSPC ? fail(err, errno, "limit",
                                      "this user watches too much already; end other watches")
                               : fail(err, errno, "", "watch it");
    watch->device = st.st_dev;
    watch->inode = st.st_ino;
    if (watch->is_recursive) {
        int top = place_open_directory(&place, err);

        if (top < 0)
            return -1;
        watch_below(watch, top, wd, false);
    }
    tell_paths(watch, TOOL_WATCHING, S_ISDIR(st.st_mode), tool->at, "");
    return 0;
}

/* The input says nothing but its end. */
static bool has_ended(struct hear *hear)
{
    struct error ignored;
    uint32_t type, size;

    return hear_head(hear, &type, &size, &ignored) < 0 || type == TOOL_FINISH;
}

int verb_watch(struct tool *tool, struct error *err)
{
    static struct watch watch;
    struct pollfd wait[2] = {{.events = POLLIN}, {.events = POLLIN}};

    watch.tool = tool;
    watch.inotify = -1;
    watch.last_wd = TOP;
    if (begin(&watch, err) < 0)
        return -1;
    say_flush(&tool->say);
    wait[0].fd = watch.inotify;
    wait[1].fd = tool->hear.fd;
    while (!watch.is_over) {
        if (poll(wait, 2, -1) < 0 && errno != EINTR)
            return fail(err, errno, "", "wait for changes");
        if (wait[0].revents != 0)
            take_events(&watch);
        if (wait[1].revents != 0 && has_ended(&tool->hear))
            break;
    }
    return 0;
}
