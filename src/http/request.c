/* A request as its handler sees it, and its answer.
 *
 * An answer leaves in one write where it can: header and body side by side. Nothing that a handler
 * gives for the header may end a line of it. */
#include "http/parts.h"

#include "http/frames.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* More of the header than this is an error of the caller's, who is not served. */
#define EXTRA_MAX ((size_t)64 * 1024)
/* As large as those of usual clients are, whose number is bounded: larger ones count to their owner. */
#define HEADER_FREE 4096

static const char *reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } known[] = {
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].status == status) {
            return known[i].reason;
        }
    }
    return "Status";
}

struct http_request *http_request_new(struct http_conn *conn, size_t text_size)
{
    /* Not zeroed as a whole: the places for fields would be most of it. */
    struct http_request *request = malloc(sizeof(*request) + text_size);

    if (!request) {
        return NULL;
    }
    memset(request, 0, offsetof(struct http_request, params));
    request->pipe = -1;
    request->size = text_size > HEADER_FREE ? sizeof(*request) + text_size : 0;
    request->params_count = 0;
    request->head.fields_count = 0;
    request->head.query_count = 0;
    request->head.method = request->head.target = request->head.path = "";
    request->server = conn->server;
    request->conn = conn;
    request->peer = conn->peer;
    request->over = conn->server->over;
    request->over_data = conn->server->data;
    return request;
}

void http_request_part(struct http_request *request)
{
    if (request->conn) {
        request->received += request->conn->received;
        request->sent += request->conn->sent;
        request->conn->received = request->conn->sent = 0;
    }
}

void http_moved(struct http_request *request, uint64_t *received, uint64_t *sent)
{
    http_request_part(request);
    *received = request->received;
    *sent = request->sent;
    request->received = request->sent = 0;
}

void http_body_done(struct http_request *request)
{
    (void)http_request_hold(request, 0);
    http_bytes_free(&request->body);
}

void http_request_free(struct http_request *request)
{
    if (request->over) {
        request->over(request, request->status, request->over_data);
    }
    if (request->free_user) {
        request->free_user(request->user);
    }
    http_request_let_go(request);
    http_websocket_free(request->websocket);
    http_bytes_free(&request->body);
    http_bytes_free(&request->extra);
    free(request);
}

void http_request_refuse(struct http_request *request, const struct http_refusal *no)
{
    struct http_conn *conn = request->conn;
    struct http_server *server = conn->server;

    if (server->refuse) {
        server->refuse(request, no->status, no->code, no->detail, server->data);
    }
    /* Whoever did not answer in there has not kept to the interface; nobody shall wait for it. */
    if (conn->request == request) {
        http_answer(request, no->status, "text/plain; charset=utf-8", no->detail,
                    strlen(no->detail));
    }
}

/* ---- what was asked ---- */

const char *http_method(const struct http_request *request)
{
    return request->head.method;
}

const char *http_path(const struct http_request *request)
{
    return request->head.path;
}

const char *http_target(const struct http_request *request)
{
    return request->head.target;
}

const struct http_route *http_route(const struct http_request *request)
{
    return request->route;
}

const char *http_pattern(const struct http_request *request)
{
    return request->route ? request->route->pattern : NULL;
}

const char *http_param(const struct http_request *request, const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < request->params_count; i++) {
        const struct http_param *param = &request->params[i];
        if (param->name_length == length && memcmp(param->name, name, length) == 0) {
            return param->value;
        }
    }
    return NULL;
}

const char *http_query(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->head.query_count; i++) {
        if (strcmp(request->head.query[i].name, name) == 0) {
            return request->head.query[i].value;
        }
    }
    return NULL;
}

bool http_query_at(const struct http_request *request, size_t index, const char **name,
                   const char **value)
{
    if (index >= request->head.query_count) {
        return false;
    }
    *name = request->head.query[index].name;
    *value = request->head.query[index].value;
    return true;
}

const char *http_header(const struct http_request *request, const char *name)
{
    return http_field_find(&request->head, name);
}

const void *http_body(const struct http_request *request, size_t *size)
{
    *size = request->body.size;
    return request->body.data ? request->body.data : "";
}

const struct http_peer *http_peer(const struct http_request *request)
{
    return &request->peer;
}

void http_set_data(struct http_request *request, void *data, void (*free_data)(void *data))
{
    request->user = data;
    request->free_user = free_data;
}

void *http_data(const struct http_request *request)
{
    return request->user;
}

void http_on_gone(struct http_request *request, void (*gone)(void *arg), void *arg)
{
    request->gone = gone;
    request->gone_arg = arg;
}

void http_on_body(struct http_request *request,
                  bool (*part)(void *arg, const void *data, size_t size), void *arg)
{
    request->part = part;
    request->part_arg = arg;
    http_body_resume(request);
}

void http_body_resume(struct http_request *request)
{
    request->is_held = false;
    if (request->conn && !request->conn->is_processing) {
        http_conn_kick(request->conn);
    }
}

/* ---- the answer ---- */

static bool is_ours(const char *name)
{
    static const char *const ours[] = {"connection", "content-length", "content-type", "date",
                                       "transfer-encoding"};

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strcasecmp(name, ours[i]) == 0) {
            return true;
        }
    }
    return false;
}

void http_add_header(struct http_request *request, const char *name, const char *value)
{
    size_t name_length = strlen(name), value_length = strlen(value);
    struct http_bytes *extra = &request->extra;
    size_t before = extra->size;

    if (!http_is_name(name) || !http_is_value(value) || is_ours(name) ||
        name_length + value_length + before > EXTRA_MAX) {
        return;
    }
    if (http_bytes_add(extra, name, name_length) || http_bytes_add(extra, ": ", 2) ||
        http_bytes_add(extra, value, value_length) || http_bytes_add(extra, "\r\n", 2)) {
        extra->size = before;
    }
}

/* Status line and the fields that are ours, into `text`; its length. */
static size_t write_head(struct http_request *request, unsigned status, const char *content_type,
                         bool is_stream, uint64_t body_size, char *text, size_t size)
{
    struct http_conn *conn = request->conn;
    bool has_body = status >= 200 && status != 204 && status != 304;
    char framing[64] = "";
    const char *connection = "";
    int length;

    request->status = status;
    if (!request->is_whole || (is_stream && request->is_old && !request->is_head)) {
        conn->is_closing = true;
    }
    if (is_stream && !request->is_old) {
        snprintf(framing, sizeof(framing), "Transfer-Encoding: chunked\r\n");
    } else if (!is_stream && has_body) {
        snprintf(framing, sizeof(framing), "Content-Length: %" PRIu64 "\r\n", body_size);
    }
    if (conn->is_closing) {
        connection = "Connection: close\r\n";
    } else if (request->is_old) {
        connection = "Connection: keep-alive\r\n";
    }
    if (content_type && (!has_body || !http_is_value(content_type) || strlen(content_type) > 200)) {
        content_type = NULL;
    }
    length = snprintf(text, size, "HTTP/1.1 %u %s\r\nDate: %s\r\n%s%s%s%s%s", status,
                      reason(status), http_server_date(conn->server),
                      content_type ? "Content-Type: " : "", content_type ? content_type : "",
                      content_type ? "\r\n" : "", framing, connection);
    return (size_t)length;
}

static struct iovec piece(const void *data, size_t size)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = size};
}

/* Sends the header, and what of a body is given. */
static void send_head(struct http_request *request, const char *head, size_t head_size,
                      const void *body, size_t body_size)
{
    struct iovec parts[4] = {
        piece(head, head_size),
        piece(request->extra.data, request->extra.size),
        piece("\r\n", 2),
        piece(body, body_size),
    };

    http_conn_send(request->conn, parts, 4);
    http_bytes_free(&request->extra);
}

/* The last that is done with a request. */
static void end(struct http_request *request)
{
    struct http_conn *conn = request->conn;
    bool is_whole = request->is_whole;

    if (conn) {
        conn->request = NULL;
    }
    http_request_free(request);
    if (conn) {
        http_conn_answered(conn, is_whole);
    }
}

void http_answer(struct http_request *request, unsigned status, const char *content_type,
                 const void *body, size_t size)
{
    char head[512];

    if (request->conn && !request->is_begun) {
        bool has_body = !request->is_head && status != 204 && status != 304;
        size_t length = write_head(request, status, content_type, false, size, head, sizeof(head));
        send_head(request, head, length, body, has_body ? size : 0);
        end(request);
    } else {
        /* After http_stream() this is an error of the caller's: no second header into the body. */
        http_abort(request);
    }
}

void http_answer_taken(struct http_request *request, unsigned status, const char *content_type,
                       void *block, size_t start, size_t size)
{
    struct http_conn *conn = request->conn;
    char head[512];

    if (!conn || request->is_begun || request->is_head || status == 204 || status == 304) {
        http_answer(request, status, content_type, (char *)block + start, size);
        free(block);
        return;
    }
    send_head(request, head,
              write_head(request, status, content_type, false, size, head, sizeof(head)), NULL, 0);
    http_conn_send_taken(conn, block, start, size);
    end(request);
}

void http_stream(struct http_request *request, unsigned status, const char *content_type)
{
    char head[512];

    if (request->conn && !request->is_begun) {
        size_t length = write_head(request, status, content_type, true, 0, head, sizeof(head));
        send_head(request, head, length, NULL, 0);
    }
    request->is_begun = true;
    request->sends_chunks = !request->is_old;
}

void http_stream_sized(struct http_request *request, unsigned status, const char *content_type,
                       uint64_t length)
{
    char head[512];

    if (request->conn && !request->is_begun) {
        size_t size = write_head(request, status, content_type, false, length, head, sizeof(head));
        send_head(request, head, size, NULL, 0);
    }
    request->is_begun = true;
    request->is_sized = true;
    request->length_left = length;
}

/* Whether an answer in parts may have so many bytes more now. */
static bool may_write(struct http_request *request, size_t size)
{
    if (request->has_pipe || request->websocket ||
        (request->is_sized && size > request->length_left)) {
        http_conn_break(request->conn);
        return false;
    }
    if (request->is_sized) {
        request->length_left -= size;
    }
    return true;
}

size_t http_write(struct http_request *request, const void *data, size_t size)
{
    struct http_conn *conn = request->conn;
    char line[24];

    if (!conn || conn->is_broken || request->is_head || !request->is_begun) {
        return 0;
    }
    if (http_conn_waits(conn) / 2 > conn->server->limits.backlog_bytes) {
        http_conn_break(conn);
        return 0;
    }
    if (!may_write(request, size)) {
        return 0;
    }
    if (size > 0) {
        int length = snprintf(line, sizeof(line), "%zx\r\n", size);
        struct iovec parts[3] = {piece(line, (size_t)length), piece(data, size), piece("\r\n", 2)};

        if (request->sends_chunks) {
            http_conn_send(conn, parts, 3);
        } else {
            http_conn_send(conn, &parts[1], 1);
        }
    }
    if (conn->out.size > 0) {
        request->waits_for_drain = true;
    }
    return conn->is_broken ? 0 : http_conn_waits(conn);
}

void http_write_pipe(struct http_request *request, int pipe, size_t size, void (*sent)(void *arg),
                     void *arg)
{
    struct http_conn *conn = request->conn;
    char line[24];

    if (!conn || conn->is_broken || !request->is_begun || !may_write(request, size)) {
        return;
    }
    if (request->sends_chunks && !request->is_head && size > 0) {
        int length = snprintf(line, sizeof(line), "%zx\r\n", size);
        struct iovec part = piece(line, (size_t)length);
        http_conn_send(conn, &part, 1);
    }
    request->has_pipe = true;
    request->pipe = pipe;
    request->pipe_size = request->pipe_left = size;
    request->pipe_sent = sent;
    request->pipe_arg = arg;
    /* From the loop, so that nobody has more than his turn. */
    http_conn_kick(conn);
}

size_t http_waiting(const struct http_request *request)
{
    return request->conn ? http_conn_waits(request->conn) : 0;
}

void http_on_drained(struct http_request *request, void (*drained)(void *arg), void *arg)
{
    request->drained = drained;
    request->drained_arg = arg;
}

void http_finish(struct http_request *request)
{
    bool is_short = request->is_sized && request->length_left > 0 && !request->is_head;

    if (!request->is_begun || request->websocket || request->has_pipe || is_short) {
        http_abort(request);
        return;
    }
    if (request->conn && !request->is_head && request->sends_chunks) {
        struct iovec last = piece("0\r\n\r\n", 5);
        http_conn_send(request->conn, &last, 1);
    }
    end(request);
}

void http_expel(struct http_request *request, const char *reason)
{
    if (request->websocket) {
        http_websocket_close(request, HTTP_CLOSE_POLICY, reason);
    } else if (request->conn && (request->gone || request->proxy)) {
        http_conn_break(request->conn);
    }
}

void http_abort(struct http_request *request)
{
    struct http_conn *conn = request->conn;

    if (request->websocket || request->proxy) {
        /* `closed`, or `over`, follows, and frees it. */
        if (conn) {
            http_conn_break(conn);
        }
        return;
    }
    if (conn) {
        /* Where the end of the connection is the end of the body, only a reset says otherwise. */
        if (request->is_begun && request->is_old && !request->is_sized && !conn->peer.is_unix) {
            struct linger reset = {.l_onoff = 1, .l_linger = 0};
            setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        }
        conn->is_broken = true;
    }
    end(request);
}
