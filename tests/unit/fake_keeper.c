/* See fake_keeper.h. */
#include "fake_keeper.h"

#include "base/fd.h"
#include "box/proto.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef __clang__
/* The analyser of gcc 12 loses sight of a request once it is in the list of those that are held. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

static void poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void poll_drop(uv_poll_t **poll)
{
    if (*poll == NULL)
        return;
    (void)uv_poll_stop(*poll);
    uv_close((uv_handle_t *)*poll, poll_closed);
    *poll = NULL;
}

static uv_poll_t *poll_new(uv_loop_t *loop, int fd, void *data, uv_poll_cb call)
{
    uv_poll_t *poll = calloc(1, sizeof(*poll));

    if (poll == NULL || uv_poll_init(loop, poll, fd) != 0)
        abort();
    poll->data = data;
    (void)uv_poll_start(poll, UV_READABLE, call);
    return poll;
}

/* ---- an init ---- */

static void say(const struct fake_box *box, const void *packet, size_t size, const int *fds,
                size_t count)
{
    (void)proto_send_now(box->init, packet, size, NULL, 0, fds, count);
}

static void say_head(const struct fake_box *box, uint32_t type, uint32_t id)
{
    struct proto_head head = {.type = type, .id = id};

    say(box, &head, sizeof(head), NULL, 0);
}

/* A command that says "done" and ends. */
static void run(struct fake_box *box, const struct proto_exec *exec)
{
    struct proto_held begun = {.head = {.type = PROTO_BEGUN, .id = exec->head.id}, .pid = 7};
    struct proto_exited exited = {.head = {.type = PROTO_EXITED, .id = exec->head.id},
                                  .status = box->fake->exit_status,
                                  .cpu_ns = 1000};
    int out[2], err[2], fds[2];

    if (box->fake->exec == FAKE_NEVER_RUNS)
        return;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        abort();
    fds[0] = out[0];
    fds[1] = err[0];
    begun.fds = 1U << 1 | 1U << 2;
    (void)fd_write_full(out[1], "done\n", 5);
    say(box, &begun, sizeof(begun), fds, 2);
    if (box->fake->exec == FAKE_ENDS)
        say(box, &exited, sizeof(exited), NULL, 0);
    for (int i = 0; i < 2; i++) {
        fd_close(&out[i]);
        fd_close(&err[i]);
    }
}

static void init_polled(uv_poll_t *poll, int status, int events)
{
    struct fake_box *box = poll->data;
    static union {
        struct proto_head head;
        struct proto_exec exec;
        char bytes[65536];
    } packet;
    int fds[PROTO_FDS_MAX];
    ssize_t size = proto_receive(box->init, &packet, sizeof(packet), fds, MSG_DONTWAIT);
    struct proto_welcome welcome = {.head.type = PROTO_WELCOME, .version = PROTO_VERSION};
    struct proto_opened opened = {.errnum = ENOENT};

    (void)status;
    (void)events;
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0) {
        poll_drop(&box->poll);
        return;
    }
    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]);
    switch (packet.head.type) {
    case PROTO_HELLO:
        say(box, &welcome, sizeof(welcome), NULL, 0);
        say_head(box, PROTO_TABLE_END, 0);
        break;
    case PROTO_EXEC:
        box->execs++;
        run(box, &packet.exec);
        break;
    case PROTO_OPEN:
        opened.head = (struct proto_head){.type = PROTO_OPENED, .id = packet.head.id};
        say(box, &opened, sizeof(opened), NULL, 0);
        break;
    default:
        break;
    }
}

void fake_stands(struct fake_box *box)
{
    say_head(box, PROTO_READY, 0);
}

void fake_box_dies(struct fake_box *box)
{
    poll_drop(&box->poll);
    fd_close(&box->init);
}

void fake_box_raves(struct fake_box *box, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        say_head(box, PROTO_EXITED, i);
}

/* ---- boxes ---- */

struct fake_box *fake_box_of(struct fake *fake, const char *owner)
{
    struct fake_box *box = fake->boxes;

    while (box != NULL && strcmp(box->owner, owner) != 0)
        box = box->next;
    return box;
}

static struct fake_box *box_by_id(struct fake *fake, uint64_t id)
{
    struct fake_box *box = fake->boxes;

    while (box != NULL && box->id != id)
        box = box->next;
    return box;
}

size_t fake_boxes(const struct fake *fake)
{
    size_t count = 0;

    for (const struct fake_box *box = fake->boxes; box != NULL; box = box->next)
        count++;
    return count;
}

static void box_free(struct fake_box *box)
{
    struct fake_box **at = &box->fake->boxes;

    while (*at != box)
        at = &(*at)->next;
    *at = box->next;
    poll_drop(&box->poll);
    fd_close(&box->init);
    fd_close(&box->control);
    free(box);
}

static struct fake_box *box_new(struct fake *fake, const struct keeper_make *make)
{
    struct fake_box *box = calloc(1, sizeof(*box));
    struct proto_failed failed = {.head.type = PROTO_FAILED};
    int pair[2];

    if (box == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        abort();
    *box = (struct fake_box){
        .fake = fake, .id = ++fake->handles, .init = pair[0], .control = pair[1]};
    memcpy(box->owner, make->owner, sizeof(box->owner));
    memcpy(box->disk, make->disk, sizeof(box->disk));
    memcpy(box->root, make->root, sizeof(box->root));
    box->next = fake->boxes;
    fake->boxes = box;
    box->poll = poll_new(fake->loop, box->init, box, init_polled);
    if (fake->mood == FAKE_FAILS) {
        (void)error_set(&failed.error, "bad_root", 0, "the set-up failed");
        say(box, &failed, sizeof(failed), NULL, 0);
    }
    if (fake->mood == FAKE_STANDS || fake->mood == FAKE_DIES_STANDING)
        fake_stands(box);
    if (fake->mood == FAKE_FAILS || fake->mood == FAKE_DIES_STANDING)
        fake_box_dies(box);
    return box;
}

/* ---- the keeper ---- */

static void answer_fds(struct fake *fake, const void *packet, size_t size, const int *fds,
                       size_t count)
{
    if (proto_send(fake->socket, packet, size, NULL, 0, fds, count) != 0)
        abort();
}

static void answer(struct fake *fake, const void *packet, size_t size, int fd)
{
    answer_fds(fake, packet, size, &fd, fd >= 0 ? 1 : 0);
}

/* As answer(), and what a lie makes of it. */
static void answer_with_lies(struct fake *fake, const void *packet, size_t size, int fd)
{
    union {
        union keeper_answer answer;
        char bytes[sizeof(union keeper_answer) + 16];
    } lie;
    int fds[2] = {fd >= 0 ? fd : fake->socket, fake->socket};
    size_t count = fd >= 0 ? 1 : 0;

    memset(&lie, 0, sizeof(lie));
    memcpy(&lie, packet, size);
    switch (fake->lie) {
    case FAKE_SHORT:
        size--;
        break;
    case FAKE_LONG:
        size++;
        break;
    case FAKE_TYPE:
        lie.answer.head.type = 999;
        break;
    case FAKE_OTHER_TYPE:
        lie.answer.head.type = lie.answer.head.type == KEEPER_USED ? KEEPER_ENDED : KEEPER_USED;
        size = sizeof(lie.answer.report);
        count = 0;
        break;
    case FAKE_ID:
        lie.answer.head.id += 1000;
        break;
    case FAKE_NO_FD:
        count = count > 0 ? 0 : 1;
        break;
    case FAKE_FDS:
        count++;
        break;
    case FAKE_TEXT:
        lie.answer.head.type = KEEPER_REFUSED;
        size = sizeof(lie.answer.refused);
        memset(&lie.answer.refused.error, 'x', sizeof(lie.answer.refused.error));
        count = 0;
        break;
    default:
        break;
    }
    answer_fds(fake, &lie, size, fds, count);
}

static void done(struct fake *fake, uint32_t type, uint32_t id)
{
    struct keeper_head head = {.type = KEEPER_DONE, .id = id};

    if (type == fake->lie_at && fake->lie != FAKE_TRUTH)
        answer_with_lies(fake, &head, sizeof(head), -1);
    else
        answer(fake, &head, sizeof(head), -1);
}

static void refuse(struct fake *fake, uint32_t id, const char *code)
{
    struct keeper_refused refused = {.head = {.type = KEEPER_REFUSED, .id = id}};

    (void)error_set(&refused.error, code, 0, "the keeper would not");
    answer(fake, &refused, sizeof(refused), -1);
}

static void name_there(struct fake *fake, uint32_t id, enum keeper_kind kind, const char *name,
                       const char *tenants)
{
    struct keeper_named named = {
        .head = {.type = KEEPER_NAMED, .id = id}, .kind = kind, .is_there = 1};

    (void)snprintf(named.name, sizeof(named.name), "%s", name);
    (void)snprintf(named.tenants, sizeof(named.tenants), "%s", tenants);
    answer(fake, &named, sizeof(named), -1);
}

void fake_names(struct fake *fake, enum keeper_kind kind, const char *name, const char *tenants)
{
    name_there(fake, 0, kind, name, tenants);
}

static void greet(struct fake *fake, uint32_t id)
{
    struct keeper_host host = {.head = {.type = KEEPER_HOST, .id = id},
                               .cpus = 2,
                               .is_root = !fake->is_user,
                               .level = "full",
                               .tenants = "*",
                               .protocol = PROTO_VERSION + fake->ahead};

    answer(fake, &host, sizeof(host), -1);
    name_there(fake, id, KEEPER_ROOT, "debian", "default");
    for (const struct fake_box *box = fake->boxes; box != NULL; box = box->next) {
        struct keeper_box there = {
            .head = {.type = KEEPER_BOX, .id = id}, .box = box->id, .protocol = PROTO_VERSION};

        memcpy(there.owner, box->owner, sizeof(there.owner));
        memcpy(there.disk, box->disk, sizeof(there.disk));
        answer(fake, &there, sizeof(there), box->control);
    }
    for (size_t i = 0; i < 8 && fake->disks[i][0] != '\0'; i++) {
        struct keeper_disk_there disk = {.head = {.type = KEEPER_DISK, .id = id}};

        memcpy(disk.disk, fake->disks[i], sizeof(disk.disk));
        answer(fake, &disk, sizeof(disk), -1);
    }
    done(fake, KEEPER_HELLO, id);
}

static void make(struct fake *fake, const struct keeper_make *request)
{
    struct keeper_made made = {.head = {.type = KEEPER_MADE, .id = request->head.id}};
    const struct fake_box *box;

    if (fake->refuse > 0) {
        fake->refuse--;
        refuse(fake, request->head.id, "sandbox_failed");
        return;
    }
    box = box_new(fake, request);
    made.box = box->id;
    if (fake->lie_at == KEEPER_MAKE && fake->lie != FAKE_TRUTH)
        answer_with_lies(fake, &made, sizeof(made), box->control);
    else
        answer(fake, &made, sizeof(made), box->control);
}

static void hold(struct fake *fake, const struct keeper_make *request)
{
    struct keeper_make *held = malloc(sizeof(*held));

    if (held == NULL || fake->held_count == FAKE_HELD)
        abort();
    *held = *request;
    fake->held[fake->held_count++] = held;
}

static struct keeper_make *held_take(struct fake *fake)
{
    struct keeper_make *held = fake->held[0];

    fake->held_count--;
    for (unsigned i = 0; i < fake->held_count; i++)
        fake->held[i] = fake->held[i + 1];
    return held;
}

void fake_release(struct fake *fake)
{
    struct keeper_make *held = held_take(fake);

    make(fake, held);
    free(held);
}

static void report(struct fake *fake, uint32_t type, const struct keeper_of_box *request)
{
    struct keeper_report said = {
        .head = {.type = type == KEEPER_END ? KEEPER_ENDED : KEEPER_USED, .id = request->head.id},
        .box = request->box,
        .usage_known = 1,
        .oom_kills = fake->oom_kills};
    struct fake_box *box = box_by_id(fake, request->box);

    if (box == NULL) {
        refuse(fake, request->head.id, "no_box");
        return;
    }
    if (type == KEEPER_END) {
        box_free(box);
        fake->ended++;
    }
    if (fake->lie_at == type && fake->lie != FAKE_TRUTH)
        answer_with_lies(fake, &said, sizeof(said), -1);
    else
        answer(fake, &said, sizeof(said), -1);
}

static void disks(struct fake *fake, const union keeper_request *request)
{
    struct keeper_disks said = {.head = {.type = KEEPER_DISKS, .id = request->head.id},
                                .free_bytes = fake->free_bytes,
                                .left_bytes = fake->left_bytes,
                                .is_held = !fake->holds_no_disk};
    struct fake_box *box = NULL;

    if (request->head.type == KEEPER_HOLD_DISK) {
        box = box_by_id(fake, request->hold.box);
        if (box == NULL) {
            refuse(fake, request->head.id, "no_box");
            return;
        }
        box->most = request->hold.most;
        said.used_bytes = said.written_bytes = box->used;
    }
    answer(fake, &said, sizeof(said), -1);
}

/* Sockets as good as those of a box: nobody dials them. */
static int network_socket(bool is_tcp)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, (is_tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof(name)) != 0 ||
        (is_tcp && listen(fd, 16) != 0))
        abort();
    return fd;
}

static void network(struct fake *fake, const struct keeper_network_of *request)
{
    struct keeper_head head = {.type = KEEPER_SOCKET, .id = request->head.id};
    struct fake_box *box = box_by_id(fake, request->box);
    int fd = -1;

    if (box == NULL || fake->refuse_networks) {
        refuse(fake, request->head.id, box == NULL ? "no_box" : "network_failed");
        return;
    }
    box->networks++;
    box->is_open = request->what != KEEPER_NETWORK_SHUT;
    if (!box->is_open) {
        done(fake, KEEPER_NETWORK, request->head.id);
        return;
    }
    fd = network_socket(request->what == KEEPER_NETWORK_TCP);
    if (fake->lie_at == KEEPER_NETWORK && fake->lie != FAKE_TRUTH)
        answer_with_lies(fake, &head, sizeof(head), fd);
    else
        answer(fake, &head, sizeof(head), fd);
    fd_close(&fd);
}

static void serve(struct fake *fake, const union keeper_request *request)
{
    struct fake_box *box;

    switch (request->head.type) {
    case KEEPER_HELLO:
        greet(fake, request->head.id);
        break;
    case KEEPER_MAKE:
        if (fake->holds)
            hold(fake, &request->make);
        else
            make(fake, &request->make);
        break;
    case KEEPER_CLAIM:
        box = box_by_id(fake, request->claim.box);
        if (box == NULL) {
            refuse(fake, request->head.id, "no_box");
            break;
        }
        memcpy(box->owner, request->claim.owner, sizeof(box->owner));
        done(fake, KEEPER_CLAIM, request->head.id);
        break;
    case KEEPER_USAGE:
    case KEEPER_END:
        report(fake, request->head.type, &request->of_box);
        break;
    case KEEPER_DROP_DISK:
        if (fake->dropped_count < 64)
            memcpy(fake->dropped[fake->dropped_count++], request->of_disk.disk,
                   sizeof(request->of_disk.disk));
        done(fake, KEEPER_DROP_DISK, request->head.id);
        break;
    case KEEPER_WEIGH_DISK:
        report(fake, request->head.type, &(struct keeper_of_box){.head = request->head});
        break;
    case KEEPER_CUT_DISK:
        done(fake, KEEPER_CUT_DISK, request->head.id);
        break;
    case KEEPER_DISK_ROOM:
    case KEEPER_HOLD_DISK:
        disks(fake, request);
        break;
    case KEEPER_ATTACH:
    case KEEPER_DETACH:
        if (fake->refuse_mounts != NULL)
            refuse(fake, request->head.id, fake->refuse_mounts);
        else
            done(fake, request->head.type, request->head.id);
        break;
    case KEEPER_NETWORK:
        network(fake, &request->network);
        break;
    default:
        abort();
    }
}

static void keeper_polled(uv_poll_t *poll, int status, int events)
{
    struct fake *fake = poll->data;
    union keeper_request request;
    ssize_t size = recv(fake->socket, &request, sizeof(request), MSG_DONTWAIT);

    (void)status;
    (void)events;
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0) {
        fake_vanish(fake);
        return;
    }
    fake->counts[request.head.type]++;
    if (request.head.type == fake->vanish_at)
        fake_vanish(fake);
    else if (request.head.type != fake->silent_at)
        serve(fake, &request);
}

int fake_connect(struct fake *fake, uv_loop_t *loop)
{
    int pair[2], room = 4 << 20;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        abort();
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    fake->loop = loop;
    fake->socket = pair[0];
    fake->poll = poll_new(loop, pair[0], fake, keeper_polled);
    return pair[1];
}

void fake_vanish(struct fake *fake)
{
    poll_drop(&fake->poll);
    fd_close(&fake->socket);
}

void fake_end(struct fake *fake)
{
    fake_vanish(fake);
    while (fake->held_count > 0)
        free(held_take(fake));
    while (fake->boxes != NULL)
        box_free(fake->boxes);
}
