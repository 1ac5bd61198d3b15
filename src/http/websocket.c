/* A connection that has become a WebSocket: its handshake, what it says, and how it ends.
 *
 * Every end comes through one of two doors, and each calls `closed` once: end() where the frames ended it,
 * http_websocket_lost() where the connection did. What a client sends costs no more than its limits: one
 * message, and one pong that waits. A message counts as a body does, from its first part until its handler takes
 * the next: it is charged to the owner, and must be whole within limits.body_ms. */
#include "http/parts.h"

#include "base/utf8.h"
#include "http/frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES ((size_t)1 << 20)
#define REASON_MAX 123
/* For the client's closing frame, after ours; pong_ms, where that is less. */
#define CLOSE_MS 5000U
/* A pong waits while more than this does: who sends pings and reads nothing fills no memory. */
#define PONG_BEHIND ((size_t)64 * 1024)
/* So many of a turn are answered one by one. */
#define PINGS_AT_ONCE 16

struct http_websocket {
    struct http_websocket_options options;
    struct http_frames frames;
    bool is_held;
    bool has_closed; /* our closing frame is sent, with this code */
    unsigned code;
    uint64_t pinged_at; /* 0: nothing is to be answered */
    uint64_t whole_by;  /* when the message that has begun must be; 0: none has */
    unsigned pings;     /* in this turn */
    bool owes_pong;
    size_t pong_size;
    unsigned char pong[HTTP_CONTROL_MAX];
};

void http_websocket_free(struct http_websocket *websocket)
{
    if (websocket) {
        http_frames_free(&websocket->frames);
        free(websocket);
    }
}

/* ---- the handshake ---- */

static bool has_word(const struct http_request *request, const char *name, const char *word)
{
    const struct http_head *head = &request->head;

    for (size_t i = 0; i < head->fields_count; i++) {
        if (strcasecmp(head->fields[i].name, name) == 0 &&
            http_list_has(head->fields[i].value, word)) {
            return true;
        }
    }
    return false;
}

/* What is wrong with it, or NULL. */
static const char *flaw(const struct http_request *request)
{
    const char *version = http_header(request, "Sec-WebSocket-Version");
    const char *key = http_header(request, "Sec-WebSocket-Key");

    if (request->is_old || strcmp(request->head.method, "GET") != 0 || !request->is_whole) {
        return "a WebSocket begins with a GET of HTTP/1.1 that has no body";
    }
    if (!has_word(request, "Upgrade", "websocket") || !has_word(request, "Connection", "upgrade")) {
        return "this is a WebSocket: send 'Upgrade: websocket' and 'Connection: Upgrade'";
    }
    if (!version || strcmp(version, "13") != 0) {
        return "the version of WebSocket spoken here is 13: send 'Sec-WebSocket-Version: 13'";
    }
    if (!key || !http_key_is_sane(key)) {
        return "Sec-WebSocket-Key is not 16 bytes in base64";
    }
    return NULL;
}

bool http_is_websocket(const struct http_request *request)
{
    return flaw(request) == NULL;
}

static void send_handshake(struct http_request *request, const char *protocol)
{
    char text[512], answer[29];
    int length;

    http_key_answer(http_header(request, "Sec-WebSocket-Key"), answer);
    length = snprintf(text, sizeof(text),
                      "HTTP/1.1 101 Switching Protocols\r\nDate: %s\r\nUpgrade: websocket\r\n"
                      "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s%s%s",
                      http_server_date(request->server), answer,
                      protocol ? "Sec-WebSocket-Protocol: " : "", protocol ? protocol : "",
                      protocol ? "\r\n" : "");
    struct iovec parts[3] = {
        {text, (size_t)length}, {request->extra.data, request->extra.size}, {"\r\n", 2}};
    http_conn_send(request->conn, parts, 3);
    http_bytes_free(&request->extra);
}

int http_websocket(struct http_request *request, const struct http_websocket_options *options,
                   struct error *err)
{
    const char *wrong = flaw(request);
    const char *protocol = options->protocol;
    struct http_conn *conn = request->conn;
    struct http_websocket *websocket;

    if (wrong) {
        http_add_header(request, "Sec-WebSocket-Version", "13");
        return error_set(err, "bad_request", 0, "%s", wrong);
    }
    if (protocol && (!http_is_name(protocol) || strlen(protocol) > 64 ||
                     !has_word(request, "Sec-WebSocket-Protocol", protocol))) {
        return error_set(err, "bad_request", 0,
                         "the client does not offer what is spoken here in Sec-WebSocket-Protocol");
    }
    if (!conn || request->is_begun) {
        return error_set(err, "client_gone", 0, "the client that asked for a WebSocket is gone");
    }
    websocket = calloc(1, sizeof(*websocket));
    if (!websocket) {
        return error_set(err, "no_memory", 0, "there is no memory for one more WebSocket");
    }
    websocket->options = *options;
    websocket->frames.message_max = options->message_bytes ? options->message_bytes : MESSAGE_BYTES;
    request->websocket = websocket;
    request->drained = options->drained;
    request->drained_arg = options->arg;
    request->gone = NULL;
    request->is_begun = true;
    request->status = 101;
    send_handshake(request, protocol);
    http_conn_upgraded(conn);
    return 0;
}

/* ---- out ---- */

static void send_frame(struct http_request *request, unsigned opcode, const void *data, size_t size)
{
    unsigned char head[HTTP_FRAME_HEAD_MAX];
    struct iovec parts[2] = {{head, http_frame_head(head, opcode, size)},
                             {(void *)(uintptr_t)data, size}};

    http_conn_send(request->conn, parts, 2);
}

/* Whether a message may be sent; what is behind by too much is given up. */
static bool may_send(struct http_request *request)
{
    struct http_conn *conn = request->conn;

    if (!conn || conn->is_broken || !request->websocket || request->websocket->has_closed) {
        return false;
    }
    if (http_conn_waits(conn) / 2 > conn->server->limits.backlog_bytes) {
        http_conn_break(conn);
        return false;
    }
    return true;
}

/* As http_write() does. */
static size_t waiting(struct http_request *request)
{
    struct http_conn *conn = request->conn;

    if (conn->out.size > 0) {
        request->waits_for_drain = true;
    }
    return conn->is_broken ? 0 : http_conn_waits(conn);
}

size_t http_websocket_send(struct http_request *request, bool is_text, const void *data,
                           size_t size)
{
    if (!may_send(request)) {
        return 0;
    }
    send_frame(request, is_text ? HTTP_OP_TEXT : HTTP_OP_BINARY, data, size);
    return waiting(request);
}

size_t http_websocket_send_taken(struct http_request *request, bool is_text, void *data,
                                 size_t size)
{
    unsigned char head[HTTP_FRAME_HEAD_MAX];
    struct iovec part = {head,
                         http_frame_head(head, is_text ? HTTP_OP_TEXT : HTTP_OP_BINARY, size)};

    if (!may_send(request)) {
        free(data);
        return 0;
    }
    http_conn_send(request->conn, &part, 1);
    http_conn_send_taken(request->conn, data, 0, size);
    return waiting(request);
}

/* Our closing frame, once, and none of a code that must not be sent. */
static void say_close(struct http_request *request, unsigned code, const char *reason, size_t size)
{
    struct http_websocket *websocket = request->websocket;
    unsigned char text[2 + REASON_MAX] = {(unsigned char)(code >> 8), (unsigned char)code};

    if (websocket->has_closed) {
        return;
    }
    websocket->has_closed = true;
    websocket->owes_pong = false;
    websocket->code = code;
    if (size > 0) {
        memcpy(text + 2, reason, size);
    }
    send_frame(request, HTTP_OP_CLOSE, text, code == HTTP_CLOSE_NO_CODE ? 0 : 2 + size);
}

void http_websocket_close(struct http_request *request, unsigned code, const char *reason)
{
    struct http_conn *conn = request->conn;
    size_t size = reason ? strlen(reason) : 0;
    const struct http_limits *limits;

    if (!conn || !request->websocket || request->websocket->has_closed) {
        return;
    }
    limits = &conn->server->limits;
    if (size > REASON_MAX) {
        /* Not within a character. */
        for (size = REASON_MAX; size > 0 && ((unsigned char)reason[size] & 0xc0) == 0x80; size--) {
        }
    }
    if (!http_close_is_sane(code)) {
        code = HTTP_CLOSE_FAILED;
    }
    say_close(request, code, reason, utf8_is_valid(reason ? reason : "", size) ? size : 0);
    http_conn_deadline(conn, limits->pong_ms < CLOSE_MS ? limits->pong_ms : CLOSE_MS);
    /* What comes is read to find the client's closing frame, also where it was held back. */
    http_conn_kick(conn);
}

void http_websocket_turned(struct http_request *request)
{
    request->websocket->pings = 0;
    http_websocket_flushed(request);
}

void http_websocket_flushed(struct http_request *request)
{
    struct http_websocket *websocket = request->websocket;

    if (websocket->owes_pong && http_conn_waits(request->conn) <= PONG_BEHIND) {
        websocket->owes_pong = false;
        send_frame(request, HTTP_OP_PONG, websocket->pong, websocket->pong_size);
    }
}

/* ---- in ---- */

size_t http_websocket_most(const struct http_request *request)
{
    uint64_t left = request->websocket->frames.left;

    return left < HTTP_SCRATCH - HTTP_AHEAD ? (size_t)left + HTTP_AHEAD : HTTP_SCRATCH;
}

bool http_websocket_reads(const struct http_request *request)
{
    return !request->websocket->is_held || request->websocket->has_closed;
}

void http_websocket_resume(struct http_request *request)
{
    if (request->websocket) {
        request->websocket->is_held = false;
        /* Of a message that is still coming nothing is free. */
        (void)http_request_hold(request, request->websocket->frames.message.size);
        if (request->conn && !request->conn->is_processing) {
            http_conn_kick(request->conn);
        }
    }
}

void *http_websocket_take(struct http_request *request)
{
    struct http_frames *frames = &request->websocket->frames;
    void *data = frames->message.data;

    frames->message = (struct http_bytes){0};
    frames->is_given = false;
    return data;
}

static void end(struct http_request *request, unsigned code)
{
    struct http_websocket *websocket = request->websocket;
    struct http_conn *conn = request->conn;

    http_request_let_go(request);
    http_request_part(request);
    conn->request = NULL;
    request->conn = NULL;
    websocket->options.closed(websocket->options.arg, code);
    http_request_free(request);
    http_conn_answered(conn, false);
}

void http_websocket_lost(struct http_request *request)
{
    request->websocket->options.closed(request->websocket->options.arg, HTTP_CLOSE_LOST);
    http_request_free(request);
}

/* The request may be gone after it. */
static void take_message(struct http_conn *conn, struct http_request *request, bool is_text,
                         const struct http_framed *framed)
{
    struct http_websocket *websocket = request->websocket;

    websocket->whole_by = 0;
    if (!websocket->has_closed) {
        /* Held before it is asked, so that it may already resume in there. */
        websocket->is_held = true;
        if (websocket->options.message(websocket->options.arg, is_text, framed->data,
                                       framed->size) &&
            conn->request == request) {
            websocket->is_held = false;
        }
    }
    if (conn->request == request) {
        http_frames_forget(&websocket->frames);
        if (!websocket->is_held) {
            (void)http_request_hold(request, 0);
        }
    }
}

static void end_with(struct http_request *request, unsigned code, const char *reason)
{
    say_close(request, code, reason, strlen(reason));
    end(request, request->websocket->code);
}

/* Charges what has come of a message, and gives it its time. False: that was too much, and the request is gone. */
static bool charge(struct http_request *request)
{
    struct http_websocket *websocket = request->websocket;
    struct http_conn *conn = request->conn;
    unsigned ms = conn->server->limits.body_ms;
    uint64_t now = uv_now(conn->server->loop);

    if (!http_request_hold(request, websocket->frames.message.size)) {
        end_with(request, HTTP_CLOSE_LATER,
                 "the messages of other connections take all the room for them; send it again");
        return false;
    }
    if (websocket->frames.kind != 0 && websocket->whole_by == 0) {
        websocket->whole_by = now + ms;
        if (websocket->whole_by < conn->deadline) {
            http_conn_deadline(conn, ms);
        }
    }
    return true;
}

/* Of pings that wait, or of more than a few in one turn, only the newest is answered, as the RFC allows. */
static void take_ping(struct http_request *request, const struct http_framed *framed)
{
    struct http_websocket *websocket = request->websocket;

    if (websocket->has_closed) {
        return;
    }
    memcpy(websocket->pong, framed->data, framed->size);
    websocket->pong_size = framed->size;
    websocket->owes_pong = true;
    if (++websocket->pings <= PINGS_AT_ONCE) {
        http_websocket_flushed(request);
    }
}

bool http_websocket_step(struct http_conn *conn, const char *data, size_t size, size_t *used)
{
    struct http_request *request = conn->request;
    struct http_websocket *websocket = request->websocket;
    const char *at = data + *used;
    size_t left = size - *used;
    struct http_framed framed;
    enum http_frame found;

    if (!http_websocket_reads(request)) {
        return false;
    }
    found = http_frame_next(&websocket->frames, &at, &left, &framed);
    *used = size - left;
    if (websocket->frames.message.size > 0 && found != HTTP_FRAME_BAD && !charge(request)) {
        return false;
    }
    switch (found) {
    case HTTP_FRAME_MORE:
    case HTTP_FRAME_PONG:
        break;
    case HTTP_FRAME_TEXT:
    case HTTP_FRAME_BINARY:
        take_message(conn, request, found == HTTP_FRAME_TEXT, &framed);
        break;
    case HTTP_FRAME_PING:
        take_ping(request, &framed);
        break;
    case HTTP_FRAME_CLOSE:
        say_close(request, framed.code, NULL, 0);
        end(request, websocket->code);
        return false;
    case HTTP_FRAME_BAD:
        say_close(request, framed.code, NULL, 0);
        end(request, framed.code);
        return false;
    }
    return true;
}

/* ---- time ---- */

bool http_websocket_is_late(struct http_request *request)
{
    uint64_t whole_by = request->websocket->whole_by;

    if (whole_by == 0 || uv_now(request->server->loop) < whole_by) {
        return false;
    }
    end_with(request, HTTP_CLOSE_POLICY, "the message took too long to arrive");
    return true;
}

void http_websocket_heard(struct http_request *request)
{
    request->websocket->pinged_at = 0;
}

unsigned http_websocket_tick(struct http_request *request)
{
    const struct http_limits *limits = &request->server->limits;
    struct http_websocket *websocket = request->websocket;
    uint64_t now = uv_now(request->server->loop);
    unsigned wait = limits->ping_ms < limits->pong_ms ? limits->ping_ms : limits->pong_ms;

    if (websocket->has_closed) {
        return 0;
    }
    if (websocket->whole_by > 0 && websocket->whole_by - now < wait) {
        wait = (unsigned)(websocket->whole_by - now);
    }
    if (websocket->is_held) {
        /* What it answers would not be read. */
        websocket->pinged_at = 0;
        return wait;
    }
    if (websocket->pinged_at > 0) {
        uint64_t since = now - websocket->pinged_at;
        uint64_t left = since < limits->pong_ms ? limits->pong_ms - since : 0;
        return left < wait ? (unsigned)left : wait;
    }
    /* Behind what waits, a ping would measure only how slowly that is read. */
    if (request->conn->out.size == 0) {
        send_frame(request, HTTP_OP_PING, "", 0);
        websocket->pinged_at = now;
    }
    return wait;
}
