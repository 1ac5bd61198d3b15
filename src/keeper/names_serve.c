/* keeper.sock: clients that register roots and mounts, or want a reload. See names.h.
 *
 * A client says one thing and hears one answer. It is root or the keeper's own user, and still may not
 * hold us up: what it registers is waited for, NAMES_FIND_MS at most, and nothing else is. */
#include "base/clock.h"
#include "base/fd.h"
#include "box/proto.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void client_close(struct keeper *keeper, struct names_client *client)
{
    loop_remove(&keeper->loop, &client->source);
    fd_close(&client->socket);
}

static int request_check(const struct names_request *request, int fd, struct error *err)
{
    bool is_add = request->verb == NAMES_ADD;

    if (request->verb >= NAMES_LIST && request->verb <= NAMES_RELOADED && fd < 0)
        return 0;
    if ((!is_add && request->verb != NAMES_REMOVE) || is_add != (fd >= 0) ||
        (request->kind != KEEPER_ROOT && request->kind != KEEPER_MOUNT) || request->read_only > 1)
        return error_set(err, "bad_request", 0,
                         "that is no request; is this cove of another "
                         "version than the engine?");
    if (!names_is_name(request->name, sizeof(request->name)))
        return error_set(err, "bad_name", 0,
                         "a name has a-z, 0-9, \".\", \"_\" and \"-\", does not start with \".\" "
                         "or \"-\", and is 63 characters long at most");
    if (is_add && request->tenants[0] != '\0' &&
        !names_are_tenants(request->tenants, sizeof(request->tenants)))
        return error_set(
            err, "bad_tenant", 0,
            "a tenant has a name like a root's; a list has them between commas, and is "
            "shorter than %d characters; \"*\" alone is all of them",
            KEEPER_TENANTS_SIZE);
    return 0;
}

/* In a memfd, for a socket of an ordinary user takes less than the longest list. */
static int list(const struct names *names, int *out, struct error *err)
{
    _cleanup_close_ int fd = memfd_create("cove-names", MFD_CLOEXEC);

    for (size_t i = 0; i < names->table_used; i++) {
        const struct name *name = &names->table[i];
        struct names_entry entry = {
            .kind = name->kind, .read_only = name->read_only, .is_there = name->is_there};

        if (name->kind == 0 || name->is_removed)
            continue;
        memcpy(entry.name, name->name, sizeof(entry.name));
        memcpy(entry.tenants, name->tenants, sizeof(entry.tenants));
        (void)snprintf(entry.path, sizeof(entry.path), "%s", name->path);
        if (fd_write_full(fd, &entry, sizeof(entry)) < 0)
            return error_set(err, "capacity", errno, "the keeper cannot write down the list");
    }
    if (lseek(fd, 0, SEEK_SET) < 0)
        return error_set(err, "capacity", errno, "the keeper cannot write down the list");
    *out = fd_take(&fd);
    return 0;
}

static void obey(struct keeper *keeper, const struct names_request *request, int fd,
                 struct error *err)
{
    struct names *names = &keeper->names;
    int done;

    if (request->verb == NAMES_LIST)
        return;
    if (request->verb == NAMES_RELOAD || request->verb == NAMES_RELOADED) {
        if (request->verb == NAMES_RELOAD)
            upgrade_begin(keeper);
        else
            upgrade_outcome(keeper, err);
        return;
    }
    done = request->verb == NAMES_ADD ? names_add(keeper, request, fd, err)
                                      : names_remove(names, request->kind, request->name, err);
    if (done < 0)
        return;
    keeper_note(request->verb == NAMES_ADD ? "name_added" : "name_removed", "%s %s",
                request->kind == KEEPER_ROOT ? "root" : "mount", request->name);
    engine_wake(keeper);
}

static void client_ready(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;
    struct names_client *client = (struct names_client *)source; /* its first member */
    struct names_request request;
    struct names_answer answer = {0};
    _cleanup_close_ int listed = -1;
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(client->socket, &request, sizeof(request), fds, MSG_DONTWAIT);

    (void)events;
    if (n < 0 && errno == EAGAIN)
        return;
    if (n != 0) {
        if (n != (ssize_t)sizeof(request) || fds[1] >= 0)
            request = (struct names_request){0};
        if (request_check(&request, fds[0], &answer.error) == 0)
            obey(keeper, &request, fds[0], &answer.error);
        if (request.verb == NAMES_LIST && answer.error.code[0] == '\0')
            (void)list(&keeper->names, &listed, &answer.error);
        (void)proto_send(client->socket, &answer, sizeof(answer), NULL, 0, &listed, listed >= 0);
    }
    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]);
    client_close(keeper, client);
}

static bool may_speak(const struct keeper *keeper, int socket)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == 0 || peer.uid == keeper->caller.uid);
}

/* A free place, or that of who has said nothing for longest. */
static struct names_client *place_for(struct keeper *keeper)
{
    struct names_client *oldest = keeper->names.clients;

    for (size_t i = 0; i < NAMES_CLIENTS_MAX; i++) {
        struct names_client *client = &keeper->names.clients[i];

        if (client->socket < 0)
            return client;
        if (client->since_ns < oldest->since_ns)
            oldest = client;
    }
    client_close(keeper, oldest);
    return oldest;
}

static void listener_ready(struct source *source, uint32_t events)
{
    struct keeper *keeper = source->owner;
    _cleanup_close_ int socket = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct names_client *client;
    struct error err;

    (void)events;
    if (socket < 0 || !may_speak(keeper, socket))
        return;
    client = place_for(keeper);
    if (loop_add(&keeper->loop, &client->source, socket, EPOLLIN, client_ready, keeper, &err) < 0)
        return;
    client->since_ns = clock_monotonic_ns();
    client->socket = fd_take(&socket);
}

int names_serve(struct keeper *keeper, int listener, struct error *err)
{
    return loop_add(&keeper->loop, &keeper->names.source, listener, EPOLLIN, listener_ready, keeper,
                    err);
}

int names_resume(struct keeper *keeper, struct error *err)
{
    for (size_t i = 0; i < NAMES_CLIENTS_MAX; i++) {
        struct names_client *client = &keeper->names.clients[i];

        if (client->socket >= 0 && loop_add(&keeper->loop, &client->source, client->socket, EPOLLIN,
                                            client_ready, keeper, err) < 0)
            return -1;
    }
    return 0;
}
