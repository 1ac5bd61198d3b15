/* Boxes that are made with mounts: see mounts.h.
 *
 * Two things may wait for a file system of the host that does not answer, each for MOUNTS_CHANGE_S: opening what is to be
 * mounted, in a process of its own, and mounting it, in the set-up of the box, which is a process anyway. */
#include "base/clock.h"
#include "base/fd.h"
#include "box/proto.h"
#include "box/root.h"
#include "keeper/helper.h"
#include "keeper/keeper.h"
#include "keeper/mounts_parts.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct mount_start {
    struct keeper_make make;
    /* Those that are open, in order. */
    struct root_taken taken[KEEPER_MOUNTS_MAX];
    size_t count;
    /* Generations of the names that led to them. */
    uint64_t generations[KEEPER_MOUNTS_MAX];
};

/* The process says this of one mount after the other, with its fd; or what is wrong. */
struct opened {
    mode_t mode;
    uid_t uid;
    gid_t gid;
    struct error err;
};

static void start_free(struct mount_change *change)
{
    struct mount_start *start = change->start;

    for (size_t i = 0; start != NULL && i < start->count; i++)
        fd_close(&start->taken[i].mount);
    free(start);
    change->start = NULL;
}

/* ---- in the process of its own ---- */

static _Noreturn void run(const struct keeper *keeper, const struct mount_change *change)
{
    const struct keeper_make *make = &change->start->make;
    int fds[1 + KEEPER_MOUNTS_MAX] = {change->socket};
    char path[40];

    for (size_t i = 0; i < make->mounts_count; i++) {
        const struct name *name = names_find(&keeper->names, KEEPER_MOUNT, make->mounts[i].name,
                                             make->tenant);

        fds[1 + i] = name != NULL ? name->fd : -1;
    }
    helper_begin("cove-mount");
    helper_keep(fds, 1 + make->mounts_count);
    for (size_t i = 0; i < make->mounts_count; i++) {
        const struct box_bind bind = {.source = path, .target = make->mounts[i].target};
        struct root_taken taken = {.mount = -1};
        struct opened said = {0};

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", HELPER_FD + 1 + (int)i);
        if (root_bind_take(&bind, &taken, &said.err) == 0)
            said = (struct opened){.mode = taken.mode, .uid = taken.uid, .gid = taken.gid};
        (void)proto_send(HELPER_FD, &said, sizeof(said), NULL, 0, &taken.mount, taken.mount >= 0);
    }
    _exit(0);
}

/* ---- opening ---- */

/* Takes what it has opened. */
static void hear(struct mount_change *change, struct error *err)
{
    struct mount_start *start = change->start;
    int fds[PROTO_FDS_MAX];
    struct opened said;

    while (proto_receive(change->socket, &said, sizeof(said), fds, MSG_DONTWAIT) ==
           (ssize_t)sizeof(said)) {
        if (start != NULL && err->code[0] == '\0' && fds[0] >= 0 &&
            start->count < start->make.mounts_count)
            start->taken[start->count++] = (struct root_taken){
                .mount = fd_take(&fds[0]), .mode = said.mode, .uid = said.uid, .gid = said.gid};
        else if (err->code[0] == '\0')
            *err = said.err;
        proto_fds_close(fds);
    }
    err->code[sizeof(err->code) - 1] = err->text[sizeof(err->text) - 1] = '\0';
}

static void say_hangs(const struct mount_start *start, struct error *err)
{
    const struct keeper_mount *mount;

    if (start->count >= start->make.mounts_count) {
        (void)error_set(err, "capacity", 0,
                        "the process that mounts does not end within %d s; ask again later",
                        MOUNTS_CHANGE_S);
        return;
    }
    mount = &start->make.mounts[start->count];
    (void)error_set(err, "capacity", 0,
                    "cannot mount %s at %s within %d s: its file system on the host does not "
                    "answer; mend it there, or unmount it, and ask again",
                    mount->name, mount->target, MOUNTS_CHANGE_S);
}

static void refuse(struct mount_change *change, const struct error *err)
{
    uint32_t asked = change->asked;

    change->asked = 0;
    start_free(change);
    request_answer(change->keeper, asked, err);
    engine_wake(change->keeper);
}

static void opening_ended(struct source *source, uint32_t events)
{
    struct mount_change *change = source->owner;
    const struct mount_start *start = change->start;
    struct error err = {0};

    (void)events;
    while (waitpid(change->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    loop_remove(&change->keeper->loop, &change->ended);
    hear(change, &err);
    fd_close(&change->pidfd);
    fd_close(&change->socket);
    change->pid = 0;
    if (start == NULL) /* nobody waits any more */
        return;
    if (err.code[0] == '\0' && start->count == start->make.mounts_count) {
        change->due_ns = 0;
        request_open(change->keeper, &start->make);
        return;
    }
    if (err.code[0] == '\0' && change->is_killed)
        say_hangs(start, &err);
    if (err.code[0] == '\0')
        (void)error_set(&err, "capacity", 0,
                        "the process that mounts has ended before it was done; ask again later");
    refuse(change, &err);
}

static struct mount_change *find(struct keeper *keeper, uint32_t asked)
{
    for (size_t i = 0; i < MOUNTS_ALL_MAX; i++)
        if (keeper->mounts.table[i].start != NULL && keeper->mounts.table[i].asked == asked)
            return &keeper->mounts.table[i];
    return NULL;
}

static void note_generations(const struct keeper *keeper, struct mount_start *start)
{
    for (size_t i = 0; i < start->make.mounts_count; i++) {
        const struct name *name = names_find(&keeper->names, KEEPER_MOUNT,
                                             start->make.mounts[i].name, start->make.tenant);

        start->generations[i] = name != NULL ? name->generation : 0;
    }
}

int mounts_start(struct keeper *keeper, const struct keeper_make *make, struct error *err)
{
    struct mount_change *change;
    int begun;

    /* An engine that was taken over could else have the mounts of one request with the rights of another. */
    if (make->head.id == 0 || find(keeper, make->head.id) != NULL)
        return error_set(err, "bad_request", 0, "another request has this number");
    change = mounts_place(keeper, 0, make->tenant, err);
    if (change == NULL)
        return -1;
    change->start = calloc(1, sizeof(*change->start));
    if (change->start == NULL)
        return error_set(err, "capacity", ENOMEM, "there is no memory for mounts");
    change->start->make = *make;
    note_generations(keeper, change->start);
    change->is_start = true;
    change->asked = make->head.id;
    /* Where the host's mounts are not ours to rule, the set-up takes them. */
    if (!keeper->caller.mounts) {
        request_open(keeper, &change->start->make);
        return 0;
    }
    begun = mounts_fork(change, opening_ended, err);
    if (begun == 0)
        run(keeper, change);
    if (begun < 0)
        start_free(change);
    return begun < 0 ? -1 : 0;
}

/* ---- what was opened ---- */

int mounts_taken(struct keeper *keeper, const struct keeper_make *make, size_t at,
                 uint64_t generation, const struct root_taken **taken, struct error *err)
{
    const struct mount_change *change = find(keeper, make->head.id);

    *taken = NULL;
    if (change == NULL || change->start->count == 0)
        return 0;
    if (change->start->generations[at] != generation)
        return error_set(err, "unknown_mount", 0,
                         "the mount \"%s\" was registered anew meanwhile; ask again",
                         make->mounts[at].name);
    *taken = &change->start->taken[at];
    return 0;
}

/* ---- the set-up ---- */

/* It stands, or has failed, which is heard from the box itself. */
static void is_up(struct mount_change *change, struct boxed *boxed)
{
    uint32_t asked = change->asked;

    mounts_box_ends(boxed);
    box_settled(boxed->box);
    request_made(change->keeper, asked, boxed);
}

static void settling(struct source *source, uint32_t events)
{
    struct mount_change *change = source->owner;
    struct boxed *boxed = boxes_find(&change->keeper->boxes, change->box);

    (void)events;
    if (boxed != NULL && box_settling(boxed->box) < 0)
        is_up(change, boxed);
}

void mounts_set_up(struct keeper *keeper, uint32_t asked, struct boxed *boxed)
{
    struct mount_change *change = find(keeper, asked);
    struct error err = {0};
    int fd;

    if (change == NULL)
        return;
    if (boxed == NULL) {
        start_free(change);
        return;
    }
    fd = box_settling(boxed->box);
    change->box = boxed->handle;
    boxed->setting_up = change;
    change->due_ns = clock_monotonic_ns() + MOUNTS_CHANGE_NS;
    if (fd < 0) {
        is_up(change, boxed);
    } else if (loop_add(&keeper->loop, &change->ended, fd, EPOLLIN, settling, change, &err) < 0) {
        boxes_end(keeper, boxed, 0);
        request_answer(keeper, asked, &err);
    }
}

void mounts_box_ends(struct boxed *boxed)
{
    struct mount_change *change = boxed->setting_up;

    if (change == NULL)
        return;
    boxed->setting_up = NULL;
    loop_remove(&change->keeper->loop, &change->ended);
    start_free(change);
    change->box = change->due_ns = 0;
}

/* ---- the end ---- */

/* Nobody knows which of them is waited for. */
static void say_set_up_hangs(const struct mount_start *start, struct error *err)
{
    char names[160] = "";

    for (size_t i = 0; i < start->make.mounts_count; i++)
        (void)snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                       i > 0 ? ", " : "", start->make.mounts[i].name);
    (void)error_set(err, "capacity", 0,
                    "cannot mount %s within %d s: a file system of the host in there does not "
                    "answer; mend it there, or unmount it, and ask again",
                    names, MOUNTS_CHANGE_S);
}

void mount_start_give_up(struct mount_change *change, struct error *err)
{
    struct keeper *keeper = change->keeper;
    struct boxed *boxed = boxes_find(&keeper->boxes, change->box);
    char disk[KEEPER_ID_LENGTH + 1];
    uint64_t box = change->box;
    struct error ignored = {0};
    bool disk_is_new;

    if (change->start == NULL)
        return;
    if (boxed == NULL) {
        hear(change, &ignored);
        say_hangs(change->start, err);
        start_free(change);
        return;
    }
    say_set_up_hangs(change->start, err);
    (void)snprintf(disk, sizeof(disk), "%.20s", change->start->make.disk);
    disk_is_new = change->start->make.disk_new != 0;
    boxes_end(keeper, boxed, 0);
    change->box = box;
    /* The client was told that there is none. */
    if (disk_is_new && disks_drop(keeper, disk, &ignored) < 0)
        keeper_say(ignored.code, "the disk of a box that did not stand stays: %s", ignored.text);
}

void mount_start_cut(struct mount_change *change)
{
    struct boxed *boxed = boxes_find(&change->keeper->boxes, change->box);

    if (boxed != NULL)
        boxes_end(change->keeper, boxed, 0);
    start_free(change);
    if (change->pid == 0 || change->is_killed)
        return;
    (void)kill(change->pid, SIGKILL);
    change->is_killed = true;
    change->due_ns = clock_monotonic_ns() + KILL_NS;
}
