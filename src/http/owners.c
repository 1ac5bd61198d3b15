/* Owners of connections: the front names one for each request, and a share keeps each from locking the others out.
 *
 * A connection is its last request's owner's; before the first it is a stranger's and counts to its house, for
 * behind a proxy all owners live in one. An owner may have as many requests under way as there are places
 * without any: alone half of all places, the next one a quarter. So no owner takes the last place, and one that
 * comes late always finds some. It is the same with bytes of headers and bodies, of which no owner has more than a quarter. */
#include "http/parts.h"

#include <stdlib.h>
#include <string.h>

#ifndef __clang__
/* The analyser of gcc 12 loses sight of an owner once it is in its lane. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif

static struct http_owner *find(struct http_server *server, const char *name, unsigned *lane)
{
    struct http_owner *owner;
    uint64_t hash = server->seed;

    for (const char *at = name; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 0x9e3779b97f4a7c15U;
    }
    *lane = (unsigned)(hash >> 32) % HTTP_LANES;
    owner = LIST_FIRST(&server->owners[*lane]);
    while (owner && strcmp(owner->name, name) != 0) {
        owner = LIST_NEXT(owner, next);
    }
    return owner;
}

static struct http_owner *make(struct http_server *server, const char *name, unsigned lane)
{
    size_t size = strlen(name) + 1;
    struct http_owner *owner = calloc(1, sizeof(*owner) + size);

    if (owner) {
        memcpy(owner->name, name, size);
        LIST_INSERT_HEAD(&server->owners[lane], owner, next);
    }
    return owner;
}

static size_t *places_of(const struct http_conn *conn)
{
    bool is_unix = conn->peer.is_unix;

    return conn->owner ? &conn->owner->places[is_unix]
                       : &conn->server->houses[is_unix][conn->house];
}

size_t http_owner_places(const struct http_conn *conn)
{
    return *places_of(conn);
}

void http_server_take_place(struct http_conn *conn)
{
    conn->server->open_count[conn->peer.is_unix]++;
    (*places_of(conn))++;
}

static void disown(struct http_conn *conn)
{
    struct http_owner *owner = conn->owner;

    conn->owner = NULL;
    if (owner && owner->places[0] == 0 && owner->places[1] == 0) {
        LIST_REMOVE(owner, next);
        free(owner);
    }
}

void http_server_leave_place(struct http_conn *conn)
{
    http_owner_done(conn);
    conn->server->open_count[conn->peer.is_unix]--;
    (*places_of(conn))--;
    disown(conn);
}

void http_owner_done(struct http_conn *conn)
{
    if (conn->is_at_work) {
        conn->is_at_work = false;
        conn->owner->at_work[conn->peer.is_unix]--;
        conn->server->at_work[conn->peer.is_unix]--;
    }
}

bool http_request_hold(struct http_request *request, size_t bytes)
{
    struct http_conn *conn = request->conn;
    struct http_server *server = conn ? conn->server : NULL;
    size_t *held, left, most;

    if (!conn) {
        return true;
    }
    bytes += request->is_charged ? request->size : 0;
    held = conn->owner ? &conn->owner->held : &server->held_houses[conn->peer.is_unix][conn->house];
    left = server->limits.held_bytes - server->held_bytes;
    most = server->limits.held_bytes / 4;
    most = most < left ? most : left;
    most = most > server->limits.body_bytes ? most : server->limits.body_bytes;
    if (bytes > request->held) {
        size_t more = bytes - request->held;
        if (more > left || *held + more > most) {
            return false;
        }
    }
    server->held_bytes = server->held_bytes - request->held + bytes;
    *held = *held - request->held + bytes;
    request->held = bytes;
    return true;
}

void http_request_let_go(struct http_request *request)
{
    request->is_charged = false;
    (void)http_request_hold(request, 0);
}

bool http_conn_own(struct http_conn *conn, const char *name)
{
    struct http_owner *owner = find(conn->server, name, &conn->lane);

    owner = owner ? owner : make(conn->server, name, conn->lane);
    if (!owner) {
        return false;
    }
    if (conn->owner != owner) {
        (*places_of(conn))--;
        disown(conn);
        conn->owner = owner;
        owner->places[conn->peer.is_unix]++;
    }
    return true;
}

bool http_lane(struct http_request *request, const char *name, bool is_public)
{
    struct http_conn *conn = request->conn;
    struct http_server *server = conn ? conn->server : NULL;
    struct http_owner *owner;
    size_t free_places;
    bool is_unix;

    if (!conn) {
        return true;
    }
    if (!http_conn_own(conn, name)) {
        return false;
    }
    owner = conn->owner;
    is_unix = conn->peer.is_unix;
    free_places = server->limits.connections - server->at_work[is_unix];
    if (owner->at_work[is_unix] >= (is_public ? free_places / 2 : free_places)) {
        return false;
    }
    request->is_charged = true;
    if (!http_request_hold(request, request->body.size)) {
        request->is_charged = false;
        return false;
    }
    conn->is_at_work = true;
    owner->at_work[is_unix]++;
    server->at_work[is_unix]++;
    return true;
}
