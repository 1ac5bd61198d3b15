/* See mounts.h. */
#include "keeper/mounts.h"

#include "base/fd.h"
#include "box/attach.h"
#include "box/proto.h"
#include "box/sys.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in the process of its own ---- */

enum { SOCKET = 3, INIT, SOURCE };

/* Keeps what it needs and nothing else: a socket of a box that stayed open here would keep that box alive. */
static void keep_fds(int socket, int init, int source)
{
    int kept[] = {socket, init, source};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (kept[i] >= 0 && (kept[i] = fcntl(kept[i], F_DUPFD_CLOEXEC, 16)) < 0)
            _exit(1);
    for (int i = 0; i < SOCKET; i++)
        (void)dup2(null, i);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (kept[i] >= 0 && dup3(kept[i], SOCKET + (int)i, O_CLOEXEC) < 0)
            _exit(1);
    if (sys_close_range(kept[2] >= 0 ? SOURCE + 1 : SOURCE, ~0U, 0) < 0)
        _exit(1);
}

static void be_ordinary(void)
{
    sigset_t none;

    (void)prctl(PR_SET_NAME, "cove-mount");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)fd_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "200");
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void run(const struct mount_change *change, const struct boxed *boxed, int socket,
                          int source)
{
    const struct attach_box box = {.init = INIT, .own_root = boxed->root == 0};
    const struct keeper_mount *mount = &change->mount;
    struct error err = {0};
    char path[40];

    be_ordinary();
    keep_fds(socket, box_init(boxed->box), source);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", SOURCE);
    if (change->is_attach) {
        const struct box_bind bind = {
            .source = path, .target = mount->target, .read_only = change->read_only};

        (void)attach_mount(&box, &bind, &boxed->ids, &err);
    } else {
        (void)attach_unmount(&box, mount->target, change->device, change->inode, &err);
    }
    (void)proto_send(SOCKET, &err, sizeof(err), NULL, 0, NULL, 0);
    _exit(0);
}

/* ---- the keeper's side ---- */

static struct boxed_mount *find(const struct boxed *boxed, const char *target)
{
    for (size_t i = 0; i < boxed->mounts_count; i++)
        if (strcmp(boxed->mounts[i].is.target, target) == 0)
            return &boxed->mounts[i];
    return NULL;
}

static void forget(struct boxed *boxed, const char *target)
{
    struct boxed_mount *mount = find(boxed, target);

    if (mount != NULL)
        *mount = boxed->mounts[--boxed->mounts_count];
}

static void hear(const struct mount_change *change, struct error *err)
{
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(change->socket, err, sizeof(*err), fds, MSG_DONTWAIT);

    if (n == (ssize_t)sizeof(*err)) {
        err->code[sizeof(err->code) - 1] = err->text[sizeof(err->text) - 1] = '\0';
        return;
    }
    (void)error_set(err, "capacity", 0,
                    "the process that mounts has ended before it was done; ask again later");
}

/* Its process has ended, and `err` is what it said. */
static void end(struct mount_change *change, struct error *err)
{
    struct keeper *keeper = change->keeper;
    struct boxed *boxed = boxes_find(&keeper->boxes, change->box);

    while (waitpid(change->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    hear(change, err);
    loop_remove(&keeper->loop, &change->ended);
    fd_close(&change->pidfd);
    fd_close(&change->socket);
    change->pid = 0;
    if (err->code[0] != '\0')
        return;
    if (boxed == NULL) {
        (void)error_set(err, "no_box", 0, "there is no such box any more");
        return;
    }
    if (!change->is_attach)
        forget(boxed, change->mount.target);
    else if (!boxes_note_mount(boxed, &change->mount, change->device, change->inode))
        (void)error_set(err, "capacity", ENOMEM, "there is no memory to note a mount");
}

static void ended(struct source *source, uint32_t events)
{
    struct mount_change *change = source->owner;
    struct error err = {0};

    (void)events;
    end(change, &err);
    if (change->asked == 0)
        return;
    request_answer(change->keeper, change->asked, &err);
    engine_wake(change->keeper);
}

static struct mount_change *place_find(struct keeper *keeper, uint64_t box, struct error *err)
{
    struct mount_change *place = NULL;

    for (size_t i = 0; i < MOUNTS_CHANGING_MAX; i++) {
        struct mount_change *change = &keeper->mounts.table[i];

        if (change->pid > 0 && change->box == box) {
            (void)error_set(err, "capacity", 0, "another mount of this box is being changed");
            return NULL;
        }
        if (change->pid == 0)
            place = change;
    }
    if (place == NULL)
        (void)error_set(err, "capacity", 0, "%d mounts are being changed at once; ask again later",
                        MOUNTS_CHANGING_MAX);
    return place;
}

/* Starts the process; where it cannot be waited for, it is ended before it has begun anything. */
static int begin(struct keeper *keeper, const struct boxed *boxed, struct mount_change *change,
                 int source, struct error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "capacity", errno, "cannot start a process for a mount");
    change->keeper = keeper;
    change->box = boxed->handle;
    change->socket = pair[0];
    change->pid = fork();
    if (change->pid == 0)
        run(change, boxed, pair[1], source);
    (void)close(pair[1]);
    change->pidfd = change->pid > 0 ? sys_pidfd_open(change->pid, 0) : -1;
    if (change->pidfd >= 0 &&
        loop_add(&keeper->loop, &change->ended, change->pidfd, EPOLLIN, ended, change, err) == 0)
        return 1;
    (void)error_set(err, "capacity", errno, "cannot start a process for a mount");
    if (change->pid > 0) {
        (void)kill(change->pid, SIGKILL);
        (void)waitpid(change->pid, NULL, 0);
    }
    change->pid = 0;
    fd_close(&change->pidfd);
    fd_close(&change->socket);
    return -1;
}

static int check(const struct keeper *keeper, const struct boxed *boxed, struct error *err)
{
    if (!keeper->caller.mounts)
        return error_set(err, "mount_refused", 0,
                         "this server is no root of the host, and cannot change the mounts of a "
                         "sandbox that runs: name them when it is created");
    if (boxed->owner[0] == '\0' || boxed->root == ZYGOTES_ROOT_EMPTY)
        return error_set(err, "mount_refused", 0, "this box is no sandbox's");
    return 0;
}

int mounts_attach(struct keeper *keeper, struct boxed *boxed, const struct keeper_attach *attach,
                  struct error *err)
{
    const struct keeper_mount *asked = &attach->mount;
    const struct boxed_mount *there = find(boxed, asked->target);
    const struct name *name = names_find(&keeper->names, KEEPER_MOUNT, asked->name, attach->tenant);
    struct mount_change *change;

    if (check(keeper, boxed, err) < 0)
        return -1;
    if (name == NULL)
        return error_set(err, "unknown_mount", 0,
                         "there is no mount \"%s\": the operator registers one with cove mount add",
                         asked->name);
    if (there != NULL && strcmp(there->is.name, asked->name) == 0 &&
        there->is.read_only == asked->read_only && there->device == name->device &&
        there->inode == name->inode)
        return 0;
    if (there != NULL || boxed->mounts_count == KEEPER_MOUNTS_MAX)
        return error_set(err, "mount_conflict", 0,
                         there != NULL
                             ? "another mount is at %s already: unmount it first"
                             : "the sandbox has as many mounts as it may: cannot mount %s",
                         asked->target);
    if (asked->read_only == 0 && !name->read_only && !boxed->forbids_set_id)
        return error_set(err, "mount_refused", 0,
                         "cannot mount %s to be written: this sandbox was started so that its "
                         "programs may make set-id files, and in there they would count on the "
                         "host. Mount it read-only, or stop the sandbox first and start it "
                         "afterwards",
                         asked->name);
    change = place_find(keeper, boxed->handle, err);
    if (change == NULL)
        return -1;
    change->is_attach = true;
    change->asked = attach->head.id;
    change->mount = *asked;
    change->read_only = asked->read_only != 0 || name->read_only;
    change->device = name->device;
    change->inode = name->inode;
    return begin(keeper, boxed, change, name->fd, err);
}

int mounts_detach(struct keeper *keeper, struct boxed *boxed, const struct keeper_detach *detach,
                  struct error *err)
{
    const struct boxed_mount *there = find(boxed, detach->target);
    struct mount_change *change;

    if (check(keeper, boxed, err) < 0)
        return -1;
    /* First, for one that is under way may be of an engine that was here before. */
    change = place_find(keeper, boxed->handle, err);
    if (change == NULL)
        return -1;
    if (there == NULL)
        return error_set(err, "mount_not_found", 0, "nothing is mounted at %s", detach->target);
    change->is_attach = false;
    change->asked = detach->head.id;
    change->mount = there->is;
    change->device = there->device;
    change->inode = there->inode;
    return begin(keeper, boxed, change, -1, err);
}

void mounts_forget(struct keeper *keeper)
{
    for (size_t i = 0; i < MOUNTS_CHANGING_MAX; i++)
        keeper->mounts.table[i].asked = 0;
}

void mounts_wait(struct keeper *keeper)
{
    for (size_t i = 0; i < MOUNTS_CHANGING_MAX; i++) {
        struct error ignored = {0};

        if (keeper->mounts.table[i].pid > 0)
            end(&keeper->mounts.table[i], &ignored);
    }
}
