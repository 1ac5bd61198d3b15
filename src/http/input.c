/* What a client's bytes are: headers, bodies, frames, what goes to a server; and whose turn it is.
 *
 * One request at a time: what is sent ahead of its turn is left where it is. Nothing here reads a socket. */
#include "http/parts.h"

#include <string.h>

#define FRAMES_MAX 256
#define FRAMES_LOOK 16 /* after so many it is asked how long they took */

void http_conn_refuse(struct http_conn *conn, const struct http_refusal *no)
{
    struct http_request *request = http_request_new(conn, 0);

    if (!request) {
        http_conn_break(conn);
        return;
    }
    conn->request = request;
    conn->state = CONN_HANDLING;
    request->is_handed = true;
    if (no->status == 503) {
        http_add_header(request, "Retry-After", "1");
    }
    http_request_refuse(request, no);
}

/* The header is read: whose it is, and whether he wants it. */
static void begin(struct http_conn *conn, struct http_request *request, char *decoded)
{
    /* It means nothing, and a route that asks for no key would keep it for anybody. */
    static const struct http_refusal bodiless = {413, "body_too_large",
                                                 "a GET takes no body: send it without"};
    struct http_server *server = conn->server;
    struct http_refusal no;
    char allow[64];

    request->is_head = strcmp(request->head.method, "HEAD") == 0;
    request->is_old = request->head.is_old;
    request->is_whole = !request->head.is_chunked && request->head.length == 0;
    request->is_handed = true;
    conn->is_closing = conn->is_closing || !request->head.keeps_alive || server->is_draining;
    conn->chunks = (struct http_chunks){0};
    conn->body_left = request->head.length;
    conn->state = request->is_whole ? CONN_HANDLING : CONN_BODY;
    request->route = http_route_find(request, decoded, server, &no, allow);

    if (server->admit && !server->admit(request, server->data)) {
        return;
    }
    if (conn->request != request) {
        return;
    }
    if (!request->route) {
        if (allow[0]) {
            http_add_header(request, "Allow", allow);
        }
        http_request_refuse(request, &no);
        return;
    }
    if (!request->is_whole && (request->is_head || strcmp(request->head.method, "GET") == 0)) {
        http_request_refuse(request, &bodiless);
    } else if (request->route->flags & HTTP_STREAM_BODY) {
        conn->state = CONN_BODY;
        request->route->handler(request, server->data);
    } else if (request->is_whole) {
        request->route->handler(request, server->data);
    } else if (request->head.length > server->limits.body_bytes) {
        no = (struct http_refusal){413, "body_too_large", "the body is larger than the limit"};
        http_request_refuse(request, &no);
    } else {
        request->is_handed = false;
        request->collects = true;
        http_conn_deadline(conn, server->limits.body_ms);
    }
}

/* Takes the head apart into a new request; NULL without memory. Returns 0, or -1 and `no` says why it is none. */
static int parse(struct http_conn *conn, const char *data, size_t head_size,
                 struct http_request **out, struct http_refusal *no)
{
    struct http_request *request = http_request_new(conn, 3 * head_size + 3);

    *out = request;
    if (!request) {
        return 0;
    }
    memcpy(request->text, data, head_size);
    return http_parse_head(request->text, head_size, request->text + 2 * head_size + 2,
                           &request->head, no);
}

/* Frees a request that nobody is told of. */
static void drop(struct http_request *request)
{
    if (request) {
        request->over = NULL;
        http_request_free(request);
    }
}

/* Finds the owner of a connection whose first request has to wait: in a line of strangers it would wait for all that
 * come from the same address, as all do behind a proxy. */
static void find_owner(struct http_conn *conn, const char *data, size_t head_size)
{
    struct http_server *server = conn->server;
    struct http_request *request;
    struct http_refusal no;
    char name[HTTP_OWNER_SIZE];

    if (conn->owner || conn->is_known || !server->find_owner) {
        return;
    }
    conn->is_known = true;
    if (parse(conn, data, head_size, &request, &no) == 0 && request &&
        server->find_owner(request, name, sizeof(name), server->data)) {
        (void)http_conn_own(conn, name);
    }
    drop(request);
}

/* Tells whether the lane has had its turns of this round. A latecomer stands behind those that wait already. */
static bool has_to_wait(const struct http_conn *conn)
{
    const struct http_server *server = conn->server;

    return server->begun[conn->lane] >= HTTP_LANE_MAX ||
           (!conn->has_turn && !TAILQ_EMPTY(&server->lines[conn->lane]));
}

/* Puts a connection with a whole head in its line, if it has to wait. */
static bool lines_up(struct http_conn *conn, const char *data, size_t head_size)
{
    if (!has_to_wait(conn)) {
        return false;
    }
    find_owner(conn, data, head_size);
    if (!has_to_wait(conn)) {
        return false;
    }
    conn->has_asked = true;
    http_server_line_up(conn);
    return true;
}

/* Takes a whole header and begins its request; how many bytes, 0 where there is none. */
static size_t take_head(struct http_conn *conn, const char *data, size_t size)
{
    static const struct http_refusal large = {431, "header_too_large",
                                              "the header is larger than the limit"};
    static const struct http_refusal broken = {400, "bad_request", "this is not HTTP/1.1"};
    size_t limit = conn->server->limits.header_bytes;
    size_t head_size = 0;
    enum http_scan scan = http_scan_head(data, size, &conn->scanned, &head_size);
    struct http_request *request;
    struct http_refusal no;

    if (scan == HTTP_SCAN_BAD) {
        http_conn_refuse(conn, &broken);
        return 0;
    }
    if ((scan == HTTP_SCAN_MORE && size >= limit) || head_size > limit) {
        http_conn_refuse(conn, &large);
        return 0;
    }
    if (scan == HTTP_SCAN_MORE) {
        return 0;
    }
    conn->scanned = 0;
    if (lines_up(conn, data, head_size)) {
        return 0;
    }
    conn->server->begun[conn->lane]++;
    if (parse(conn, data, head_size, &request, &no)) {
        drop(request); /* it is told once, of the one that is answered */
        http_conn_refuse(conn, &no);
        return 0;
    }
    if (!request) {
        http_conn_break(conn);
        return 0;
    }
    conn->request = request;
    conn->has_asked = true;
    begin(conn, request, request->text + head_size + 1);
    return head_size;
}

bool http_wants_body(const struct http_request *request)
{
    return request && !request->is_held && (request->collects || request->part);
}

/* Gives bytes of the body to whoever takes them. The request may be answered after it. */
static void give(struct http_conn *conn, struct http_request *request, const char *data,
                 size_t size)
{
    static const struct http_refusal large = {413, "body_too_large",
                                              "the body is larger than the limit"};
    static const struct http_refusal held = {
        503, "capacity", "the bodies of other requests take all the room for them; send it again"};

    if (!request->collects) {
        /* Held before it is asked, so that it may already resume in there. */
        request->is_held = true;
        if (request->part(request->part_arg, data, size) && conn->request == request) {
            request->is_held = false;
        }
        return;
    }
    if (size > conn->server->limits.body_bytes - request->body.size) {
        request->is_handed = true;
        http_request_refuse(request, &large);
    } else if (!http_request_hold(request, request->body.size + size)) {
        request->is_handed = true;
        http_request_refuse(request, &held);
    } else if (http_bytes_add(&request->body, data, size)) {
        http_conn_break(conn);
    }
}

/* Takes chunks apart, up to the end of what has come, and joins in place what they hold: who sends a byte in each has
 * his reader called once. How many bytes are used. */
static size_t take_chunks(struct http_conn *conn, struct http_request *request, char *data,
                          size_t size)
{
    static const struct http_refusal broken = {400, "bad_request",
                                               "the chunks of the body are broken"};
    const char *at = data, *part = NULL;
    char *joined = NULL;
    size_t left = size, part_size = 0, joined_size = 0;
    enum http_chunk found;

    while ((found = http_chunk_next(&conn->chunks, &at, &left, &part, &part_size)) ==
           HTTP_CHUNK_PART) {
        joined = joined ? joined : data + (part - data);
        memmove(joined + joined_size, part, part_size);
        joined_size += part_size;
    }
    if (found == HTTP_CHUNK_BAD && request->collects) {
        request->is_handed = true;
        http_request_refuse(request, &broken);
    } else if (found == HTTP_CHUNK_BAD) {
        http_conn_break(conn);
    } else {
        request->is_whole = found == HTTP_CHUNK_END;
        if (joined_size > 0) {
            give(conn, request, joined, joined_size);
        }
    }
    return size - left;
}

/* Takes bytes of the body; how many. */
static size_t take_body(struct http_conn *conn, struct http_request *request, char *data,
                        size_t size)
{
    size_t part_size;

    if (request->head.is_chunked) {
        return take_chunks(conn, request, data, size);
    }
    part_size = size < conn->body_left ? size : (size_t)conn->body_left;
    conn->body_left -= part_size;
    request->is_whole = conn->body_left == 0;
    give(conn, request, data, part_size);
    return part_size;
}

/* The body is over: the handler's turn. */
static void end_body(struct http_conn *conn, struct http_request *request)
{
    conn->state = CONN_HANDLING;
    http_conn_deadline(conn, 0);
    if (request->collects) {
        request->collects = false;
        request->is_handed = true;
        (conn->server->handle ? conn->server->handle : request->route->handler)(request,
                                                                                conn->server->data);
    } else {
        request->part(request->part_arg, "", 0);
    }
}

/* One step with a body; false where it cannot go on. */
static bool step_body(struct http_conn *conn, char *data, size_t size, size_t *used)
{
    struct http_request *request = conn->request;

    if (!request || !http_wants_body(request)) {
        return false;
    }
    if (request->is_whole) {
        end_body(conn, request);
        return true;
    }
    if (*used == size) {
        if (request->head.expects_continue && !request->is_begun) {
            static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
            struct iovec piece = {(void *)(uintptr_t)line, sizeof(line) - 1};
            http_conn_send(conn, &piece, 1);
        }
        request->head.expects_continue = false;
        return false;
    }
    request->head.expects_continue = false;
    *used += take_body(conn, request, data + *used, size - *used);
    return true;
}

size_t http_conn_process(struct http_conn *conn, char *data, size_t size)
{
    size_t used = 0;
    unsigned frames = 0;
    bool goes_on = true;

    conn->is_processing = true;
    while (goes_on && !conn->is_broken) {
        if (conn->state == CONN_BODY) {
            goes_on = step_body(conn, data, size, &used);
        } else if (conn->state == CONN_HEADER && !conn->is_closing && !conn->is_in_line &&
                   conn->out.size == 0 && used < size) {
            size_t taken = take_head(conn, data + used, size - used);
            used += taken;
            goes_on = taken > 0;
        } else if (conn->state == CONN_WEBSOCKET && used < size) {
            if (++frames > FRAMES_MAX ||
                (frames % FRAMES_LOOK == 0 && http_turn_is_long(conn->server))) {
                http_conn_kick(conn);
                break;
            }
            goes_on = http_websocket_step(conn, data, size, &used);
        } else if (conn->state == CONN_PROXY && used < size) {
            goes_on = http_proxy_step(conn, data, size, &used);
        } else {
            goes_on = false;
        }
    }
    conn->is_processing = false;
    if (conn->state == CONN_WEBSOCKET && conn->request && !conn->is_broken) {
        http_websocket_turned(conn->request);
    }
    return used;
}
