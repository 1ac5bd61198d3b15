/* See mounts.h. */
#include "keeper/mounts.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/attach.h"
#include "box/proto.h"
#include "box/sys.h"
#include "keeper/helper.h"
#include "keeper/keeper.h"
#include "keeper/mounts_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The process says this: the mount that it is about to make or undo, and then how that ended. */
struct said {
    uint64_t mount_id;
    uint32_t is_end;
    struct error err;
};

/* ---- in the process of its own ---- */

enum { SOCKET = HELPER_FD, INIT, SOURCE };

static void begins(uint64_t mount_id)
{
    struct said said = {.mount_id = mount_id};

    (void)proto_send(SOCKET, &said, sizeof(said), NULL, 0, NULL, 0);
}

static _Noreturn void run(const struct mount_change *change, const struct boxed *boxed, int source)
{
    const struct attach_box box = {.init = INIT, .own_root = boxed->root == 0, .begins = begins};
    const struct keeper_mount *mount = &change->mount;
    struct said said = {.is_end = 1};
    char path[40];

    helper_begin("cove-mount");
    helper_keep((const int[]){change->socket, box_init(boxed->box), source}, 3);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", SOURCE);
    if (change->is_attach) {
        const struct box_bind bind = {
            .source = path, .target = mount->target, .read_only = change->read_only};

        (void)attach_mount(&box, &bind, &boxed->ids, &said.err);
    } else {
        /* Nobody waits for one that is undone. */
        const struct attach_what what = {change->device, change->inode, change->mount_id,
                                         .is_forced = change->asked == 0};

        (void)attach_unmount(&box, mount->target, &what, &said.err);
    }
    (void)proto_send(SOCKET, &said, sizeof(said), NULL, 0, NULL, 0);
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

/* True if it has said how it ended. */
static bool hear(struct mount_change *change, struct error *err)
{
    struct said said = {0};
    int fds[PROTO_FDS_MAX];

    while (proto_receive(change->socket, &said, sizeof(said), fds, MSG_DONTWAIT) ==
           (ssize_t)sizeof(said)) {
        if (said.is_end != 0) {
            said.err.code[sizeof(said.err.code) - 1] = said.err.text[sizeof(said.err.text) - 1] =
                '\0';
            *err = said.err;
            proto_fds_close(fds);
            return true;
        }
        change->mount_id = said.mount_id;
        proto_fds_close(fds);
    }
    return false;
}

static void say_hangs(const struct mount_change *change, struct error *err)
{
    (void)error_set(err, "capacity", 0,
                    "cannot %s %s of the box within %d s: a file system of the host does not "
                    "answer; mend it there, or unmount it, and ask again",
                    change->is_attach ? "mount" : "unmount", change->mount.target, MOUNTS_CHANGE_S);
}

/* Finds out how it ended, of a process that was killed before it could say so. True where it has mounted something that has
 * not come to its target, and `mount` says where it is. */
static bool find_end(struct mount_change *change, const struct boxed *boxed, struct error *err)
{
    char place[PLAN_TARGET_MAX] = "";
    int is_there = boxed != NULL && change->mount_id != 0
                       ? attach_find(box_init(boxed->box), change->mount_id, place)
                       : -1;
    bool is_astray = change->is_attach && is_there > 0 && strcmp(place, change->mount.target) != 0;

    if (is_there == change->is_attach && !is_astray)
        return false;
    if (change->is_killed)
        say_hangs(change, err);
    else
        (void)error_set(err, "capacity", 0,
                        "the process that mounts has ended before it was done; ask again later");
    if (is_astray && place[0] != '\0')
        (void)snprintf(change->mount.target, sizeof(change->mount.target), "%s", place);
    return is_astray;
}

static bool hangs(const struct mount_change *change)
{
    return change->due_ns == 0 &&
           (change->pid > 0 ||
            (change->is_start && boxes_is_there(&change->keeper->boxes, change->box)));
}

static bool is_over(const struct mount_change *change)
{
    return change->pid == 0 && change->start == NULL && !hangs(change);
}

/* Its process has ended, and `err` is what it said. True where it is mounted and is to be taken away: nobody is told that
 * it is there. */
static bool end(struct mount_change *change, struct error *err)
{
    struct keeper *keeper = change->keeper;
    struct boxed *boxed = boxes_find(&keeper->boxes, change->box);
    bool is_late = hangs(change), is_astray = false;

    while (waitpid(change->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (!hear(change, err))
        is_astray = find_end(change, boxed, err);
    loop_remove(&keeper->loop, &change->ended);
    fd_close(&change->pidfd);
    fd_close(&change->socket);
    change->pid = 0;
    if (err->code[0] != '\0')
        return is_astray;
    if (boxed == NULL) {
        (void)error_set(err, "no_box", 0, "there is no such box any more");
        return false;
    }
    if (!change->is_attach) {
        forget(boxed, change->mount.target);
        return false;
    }
    if (boxes_note_mount(boxed, &(struct boxed_mount){change->mount, change->device, change->inode,
                                                      change->mount_id}))
        return is_late;
    (void)error_set(err, "capacity", ENOMEM, "there is no memory to note a mount");
    return true;
}

static void answer(struct mount_change *change, const struct error *err)
{
    uint32_t asked = change->asked;

    change->asked = 0;
    if (asked == 0)
        return;
    request_answer(change->keeper, asked, err);
    engine_wake(change->keeper);
}

static void undo(struct mount_change *change);

static void ended(struct source *source, uint32_t events)
{
    struct mount_change *change = source->owner;
    bool is_unheard = change->asked == 0 && !change->is_attach;
    struct error err = {0};
    bool must_go;

    (void)events;
    must_go = end(change, &err);
    answer(change, &err);
    if (must_go)
        undo(change);
    else if (is_unheard && err.code[0] != '\0')
        keeper_say(err.code, "%s", err.text);
}

struct mount_change *mounts_place(struct keeper *keeper, uint64_t box, const char *tenant,
                                  struct error *err)
{
    struct mount_change *place = NULL;
    size_t count = 0, hanging = 0, under_way = 0;

    for (size_t i = 0; i < MOUNTS_ALL_MAX; i++) {
        struct mount_change *change = &keeper->mounts.table[i];

        if (is_over(change)) {
            place = change;
            continue;
        }
        count += !hangs(change);
        if (strcmp(change->tenant, tenant) == 0) {
            hanging += hangs(change);
            under_way++;
        }
        if (box == 0 || change->box != box)
            continue;
        if (hangs(change))
            say_hangs(change, err);
        else
            (void)error_set(
                err, "capacity", 0,
                "another mount of this box is being changed; ask again when that has ended");
        return NULL;
    }
    /* Those that are under way may come to hang, too. */
    if (hanging > 0 && under_way >= MOUNTS_HANGING_MAX) {
        (void)error_set(err, "capacity", 0,
                        "%zu mounts of this tenant wait for file systems of the host that do not "
                        "answer, and it may have %d at once; mend these there, and ask again",
                        hanging, MOUNTS_HANGING_MAX);
        return NULL;
    }
    if (place != NULL && count < MOUNTS_CHANGING_MAX) {
        *place = (struct mount_change){.keeper = keeper, .box = box, .pidfd = -1, .socket = -1};
        place->ended.fd = -1;
        (void)snprintf(place->tenant, sizeof(place->tenant), "%s", tenant);
        return place;
    }
    (void)error_set(err, "capacity", 0, "%zu mounts are being changed at once; ask again later",
                    place == NULL ? (size_t)MOUNTS_ALL_MAX : count);
    return NULL;
}

/* Where the process cannot be waited for, it is ended before it has begun anything. */
int mounts_fork(struct mount_change *change, source_ready ready, struct error *err)
{
    struct keeper *keeper = change->keeper;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "capacity", errno, "cannot start a process for a mount");
    change->socket = pair[0];
    change->is_killed = false;
    change->due_ns = clock_monotonic_ns() + MOUNTS_CHANGE_NS;
    change->pid = fork();
    if (change->pid == 0) {
        change->socket = pair[1];
        return 0;
    }
    (void)close(pair[1]);
    change->pidfd = change->pid > 0 ? sys_pidfd_open(change->pid, 0) : -1;
    if (change->pidfd >= 0 &&
        loop_add(&keeper->loop, &change->ended, change->pidfd, EPOLLIN, ready, change, err) == 0)
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

static int begin(const struct boxed *boxed, struct mount_change *change, int source,
                 struct error *err)
{
    int begun = mounts_fork(change, ended, err);

    if (begun == 0)
        run(change, boxed, source);
    return begun;
}

/* The client was told that it is not mounted. */
static void undo(struct mount_change *change)
{
    struct boxed *boxed = boxes_find(&change->keeper->boxes, change->box);
    struct error err;

    change->is_attach = false;
    if (boxed != NULL && begin(boxed, change, -1, &err) < 0)
        keeper_say(err.code, "%s stays mounted in a box: %s", change->mount.target, err.text);
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
        return error_set(
            err, "mount_refused", 0,
            "cannot mount %s to be written: the programs of this sandbox may make set-id files, "
            "which would count on the host; mount it read-only or while the sandbox is stopped, "
            "or create the sandbox mountable",
            asked->name);
    change = mounts_place(keeper, boxed->handle, attach->tenant, err);
    if (change == NULL)
        return -1;
    change->is_attach = true;
    change->asked = attach->head.id;
    change->mount = *asked;
    change->read_only = asked->read_only != 0 || name->read_only;
    change->device = name->device;
    change->inode = name->inode;
    return begin(boxed, change, name->fd, err);
}

int mounts_detach(struct keeper *keeper, struct boxed *boxed, const struct keeper_detach *detach,
                  struct error *err)
{
    const struct boxed_mount *there = find(boxed, detach->target);
    struct mount_change *change;

    if (check(keeper, boxed, err) < 0)
        return -1;
    /* First, for one that is under way may be of an engine that was here before. */
    change = mounts_place(keeper, boxed->handle, boxed->tenant, err);
    if (change == NULL)
        return -1;
    if (there == NULL)
        return error_set(err, "mount_not_found", 0, "nothing is mounted at %s", detach->target);
    change->asked = detach->head.id;
    change->mount = there->is;
    change->device = there->device;
    change->inode = there->inode;
    change->mount_id = there->mount_id;
    return begin(boxed, change, -1, err);
}

void mounts_forget(struct keeper *keeper)
{
    for (size_t i = 0; i < MOUNTS_ALL_MAX; i++) {
        keeper->mounts.table[i].asked = 0;
        if (keeper->mounts.table[i].start != NULL)
            mount_start_cut(&keeper->mounts.table[i]);
    }
}

bool mounts_are_under_way(const struct keeper *keeper)
{
    for (size_t i = 0; i < MOUNTS_ALL_MAX; i++)
        if (keeper->mounts.table[i].pid > 0 && !hangs(&keeper->mounts.table[i]))
            return true;
    return false;
}

/* One that cannot be watched keeps its place as long as we live. */
void mounts_resume(struct keeper *keeper)
{
    for (size_t i = 0; i < MOUNTS_ALL_MAX; i++) {
        struct mount_change *change = &keeper->mounts.table[i];
        struct error err;

        change->keeper = keeper;
        change->ended.fd = -1;
        if (change->pid == 0)
            continue;
        change->is_killed = true;
        change->pidfd = sys_pidfd_open(change->pid, 0);
        if (change->pidfd < 0 || loop_add(&keeper->loop, &change->ended, change->pidfd, EPOLLIN,
                                          ended, change, &err) < 0)
            fd_close(&change->pidfd);
    }
}

static void hurry(struct mount_change *change, uint64_t now_ns)
{
    struct error err = {0};

    if (change->pid > 0 && !change->is_killed) {
        (void)kill(change->pid, SIGKILL);
        change->is_killed = true;
        change->due_ns = now_ns + KILL_NS;
        return;
    }
    change->due_ns = 0;
    if (change->is_start)
        mount_start_give_up(change, &err);
    else
        say_hangs(change, &err);
    if (err.code[0] == '\0') /* nobody waits for it */
        return;
    keeper_say("mount_hangs", "%s", err.text);
    answer(change, &err);
}

uint64_t mounts_tick(struct keeper *keeper, uint64_t now_ns)
{
    uint64_t next = 0;

    for (size_t i = 0; i < MOUNTS_ALL_MAX; i++) {
        struct mount_change *change = &keeper->mounts.table[i];

        if (is_over(change) || change->due_ns == 0)
            continue;
        if (now_ns >= change->due_ns)
            hurry(change, now_ns);
        next = keeper_sooner(next, change->due_ns);
    }
    return next;
}
