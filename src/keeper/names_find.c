/* See names_find.h. */
#include "keeper/names_find.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/proto.h"
#include "keeper/helper.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

int name_what(int dir, const char *path, struct stat *st)
{
    struct statx is = {0};
    int found = statx(dir, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &is);

    *st = (struct stat){.st_dev = makedev(is.stx_dev_major, is.stx_dev_minor),
                        .st_ino = is.stx_ino,
                        .st_mode = is.stx_mode};
    return found;
}

/* ---- in the process of its own ---- */

/* Rights that the client's fd has are not for us to keep. */
static void look(int fd, struct name_found *found)
{
    char link[40];
    struct stat is, named;
    ssize_t length;

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, found->path, sizeof(found->path));
    if (length <= 0 || length >= (ssize_t)sizeof(found->path))
        length = 0;
    found->path[length] = '\0';
    if (name_what(AT_FDCWD, found->path, &named) < 0 || name_what(fd, "", &is) < 0 ||
        named.st_dev != is.st_dev || named.st_ino != is.st_ino)
        found->path[0] = '\0';
}

static _Noreturn void run(const char *path, int socket, int given)
{
    struct name_found found = {0};
    char link[40];
    int fd;

    helper_begin("cove-name");
    helper_keep((const int[]){socket, given}, 2);
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", HELPER_FD + 1);
    fd = open(given >= 0 ? link : path, O_PATH | O_CLOEXEC);
    found.errnum = fd < 0 ? errno : 0;
    if (fd >= 0)
        look(fd, &found);
    (void)proto_send(HELPER_FD, &found, sizeof(found), NULL, 0, &fd, fd >= 0);
    _exit(0);
}

/* ---- the keeper's side ---- */

static bool is_looked_for(const struct names *names, uint64_t generation)
{
    for (size_t i = 0; i < NAMES_FINDS_MAX; i++)
        if (names->finds[i].pid > 0 && names->finds[i].generation == generation)
            return true;
    return false;
}

static struct name_find *begin(struct keeper *keeper, uint64_t generation, const char *path,
                               int given)
{
    struct name_find *find = keeper->names.finds;
    int pair[2];

    while (find < keeper->names.finds + NAMES_FINDS_MAX && find->pid > 0)
        find++;
    if (find == keeper->names.finds + NAMES_FINDS_MAX)
        errno = EAGAIN;
    if (find == keeper->names.finds + NAMES_FINDS_MAX ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return NULL;
    *find = (struct name_find){
        .answered.fd = -1, .keeper = keeper, .socket = pair[0], .generation = generation};
    find->pid = fork();
    if (find->pid == 0)
        run(path, pair[1], given);
    (void)close(pair[1]);
    if (find->pid > 0)
        return find;
    find->pid = 0;
    fd_close(&find->socket);
    return NULL;
}

/* 1: it has answered or ended, and `*fd` is what it has found, or -1; 0: not yet. */
static int hear(struct name_find *find, struct name_found *found, int *fd)
{
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(find->socket, found, sizeof(*found), fds, MSG_DONTWAIT);

    *fd = -1;
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n == (ssize_t)sizeof(*found))
        *fd = fd_take(&fds[0]);
    else
        *found = (struct name_found){.errnum = EIO};
    found->path[sizeof(found->path) - 1] = '\0';
    proto_fds_close(fds);
    loop_remove(&find->keeper->loop, &find->answered);
    fd_close(&find->socket);
    while (waitpid(find->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    find->pid = 0;
    return 1;
}

static bool take(struct name_find *find)
{
    struct name_found found;
    int fd;

    if (hear(find, &found, &fd) == 0)
        return false;
    names_found(find->keeper, find->generation, &found, &fd);
    fd_close(&fd);
    return true;
}

/* So late that the engine was told that it is not there. */
static void answered(struct source *source, uint32_t events)
{
    struct name_find *find = source->owner;

    (void)events;
    if (take(find))
        engine_wake(find->keeper);
}

static void watch(struct name_find *find)
{
    struct error err;

    if (loop_add(&find->keeper->loop, &find->answered, find->socket, EPOLLIN, answered, find,
                 &err) < 0)
        keeper_say(err.code, "%s", err.text);
}

void name_find_begin(struct keeper *keeper, const struct name *name)
{
    if (!is_looked_for(&keeper->names, name->generation) &&
        begin(keeper, name->generation, name->path, -1) == NULL)
        keeper_say("name_lost", "%s: cannot start a process that looks for it: %s", name->path,
                   strerror(errno)); // NOLINT
}

/* Waits for one of those that are not watched yet; false where there is none. */
static bool wait_for_one(struct keeper *keeper, uint64_t until_ns)
{
    struct pollfd waits[NAMES_FINDS_MAX];
    struct name_find *finds[NAMES_FINDS_MAX];
    uint64_t now_ns = clock_monotonic_ns();
    nfds_t count = 0;
    int left_ms = now_ns >= until_ns ? 0 : (int)((until_ns - now_ns + 999999) / 1000000);

    for (size_t i = 0; i < NAMES_FINDS_MAX; i++) {
        struct name_find *find = &keeper->names.finds[i];

        if (find->pid == 0 || find->answered.fd >= 0)
            continue;
        finds[count] = find;
        waits[count++] = (struct pollfd){.fd = find->socket, .events = POLLIN};
    }
    if (count == 0 || poll(waits, count, left_ms) == 0)
        return false;
    for (nfds_t i = 0; i < count; i++)
        if (waits[i].revents != 0)
            (void)take(finds[i]);
    return true;
}

void name_finds_wait(struct keeper *keeper)
{
    uint64_t until_ns = clock_monotonic_ns() + NAMES_FIND_MS * 1000000ULL;

    while (wait_for_one(keeper, until_ns))
        continue;
    for (size_t i = 0; i < NAMES_FINDS_MAX; i++) {
        struct name_find *find = &keeper->names.finds[i];

        if (find->pid == 0 || find->answered.fd >= 0)
            continue;
        names_say_hangs(keeper, find->generation);
        if (keeper->loop.epoll >= 0)
            watch(find);
    }
}

int name_find_given(struct keeper *keeper, int given, struct name_found *found, struct error *err)
{
    struct name_find *find = begin(keeper, 0, "", given);
    struct pollfd wait = {.events = POLLIN};
    int fd;

    if (find == NULL)
        return error_set(err, "capacity", errno, "cannot look at what is to be registered");
    wait.fd = find->socket;
    (void)poll(&wait, 1, NAMES_FIND_MS);
    if (hear(find, found, &fd) == 0) {
        (void)kill(find->pid, SIGKILL);
        watch(find);
        return error_set(err, "bad_directory", 0,
                         "the file system of what is to be registered does not answer within %d s; "
                         "mend it, and register again",
                         NAMES_FIND_MS / 1000);
    }
    if (fd < 0)
        return error_set(err, "capacity", found->errnum, "cannot look at what is to be registered");
    return fd;
}

/* A file system that does not answer would else have one more of them at each reload. */
void name_finds_forget(struct keeper *keeper)
{
    const struct names *names = &keeper->names;

    for (size_t i = 0; i < NAMES_FINDS_MAX; i++) {
        const struct name_find *find = &names->finds[i];
        bool is_wanted = find->generation == 0;

        for (size_t j = 0; j < names->table_used; j++)
            is_wanted |= names->table[j].kind != 0 &&
                         names->table[j].generation == find->generation;
        if (find->pid > 0 && !is_wanted)
            (void)kill(find->pid, SIGKILL);
    }
}

void name_finds_resume(struct keeper *keeper)
{
    for (size_t i = 0; i < NAMES_FINDS_MAX; i++) {
        struct name_find *find = &keeper->names.finds[i];

        if (find->pid == 0)
            continue;
        find->keeper = keeper;
        find->answered.fd = -1;
        if (find->socket >= 0)
            watch(find);
    }
}
