/* A reverse proxy: one request of a client, carried to a server of somebody's box, and its answer back.
 *
 * Both headers are read and written anew, for each has what is not meant for the other side; all else is bytes
 * to us, so that bodies, streams and upgrades are what the two make of them. Both sides are told that no further
 * request follows on this connection: nothing of another one can get between. The server is hostile: its header
 * is bounded and strict, and of what a page of our own origin may set it sets nothing. */
#include "http/parts.h"

#include "base/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MAX ((size_t)64 * 1024)
/* Each way: more waits in the kernel. */
#define WAITING_MAX ((size_t)256 * 1024)
#define TURN_BYTES ((size_t)64 * 1024)
/* A client that has said all, and may be gone, is waited for so many times as long as for one that says nothing. */
#define IDLE_LOOKS 10
/* Answers before the answer, which tell that it takes a while, or what it will need. */
#define INTERIM_MAX 32

struct http_proxy {
    uv_poll_t poll; /* first; of the server's socket */
    int fd;
    struct http_request *request; /* NULL: it is over, and the poll closes */
    struct http_proxy_options options;
    char *prefix, *extra;
    bool is_joined; /* the server's header is through: the rest is bytes */
    bool is_bare;   /* and there is none, by the status or the method, whatever its fields say */
    bool is_shut;   /* the client has said all */
    bool has_told;  /* and the server knows */
    bool is_upgrade;
    bool is_tunnel, has_ended; /* the server of a tunnel has said all */
    bool is_put_off;           /* what it sends waits for the turn of the connection */
    bool has_moved;            /* since http_proxy_is_idle() was asked */
    unsigned idle;             /* so many times it had not */
    size_t scanned;
    unsigned interim; /* answers that were passed on */
    struct http_bytes up, head;
};

/* ---- fields ---- */

static bool is_one_of(const char *name, const char *const *names)
{
    for (; names != NULL && *names != NULL; names++) {
        if (strcasecmp(name, *names) == 0) {
            return true;
        }
    }
    return false;
}

/* Of this connection only, or said by us. */
static bool is_hop(const char *name)
{
    static const char *const names[] = {"Connection",
                                        "Keep-Alive",
                                        "Proxy-Connection",
                                        "Proxy-Authenticate",
                                        "Proxy-Authorization",
                                        "TE",
                                        "Upgrade",
                                        "HTTP2-Settings",
                                        "X-Forwarded-For",
                                        "X-Forwarded-Host",
                                        "X-Forwarded-Proto",
                                        "Forwarded",
                                        "X-Real-IP",
                                        NULL};

    return is_one_of(name, names);
}

/* What reaches beyond the page that it came with, on an origin that is others', too. */
static bool is_of_origin(const char *name)
{
    static const char *const names[] = {"Set-Cookie",
                                        "Set-Login",
                                        "Sec-Session-Registration",
                                        "Accept-CH",
                                        "Critical-CH",
                                        "Origin-Trial",
                                        "Service-Worker-Allowed",
                                        "Strict-Transport-Security",
                                        "Public-Key-Pins",
                                        "Alt-Svc",
                                        "NEL",
                                        "Report-To",
                                        "Reporting-Endpoints",
                                        "WWW-Authenticate",
                                        NULL};

    return is_one_of(name, names);
}

/* What reaches its neighbours below the same domain. */
static bool is_of_domain(const char *name)
{
    static const char *const names[] = {"Clear-Site-Data", "Set-Cookie2", NULL};

    return is_one_of(name, names);
}

/* What a front takes for its own server's word: it would send a file of its host, ask another server, or change its
 * cache. */
static bool is_for_front(const char *name)
{
    static const char *const beginnings[] = {
        "X-Accel-",     "X-Sendfile",  "X-Lighttpd-", "X-Reproxy-",
        "X-LiteSpeed-", "X-Hiawatha-", "Surrogate-",  NULL};

    for (const char *const *at = beginnings; *at != NULL; at++) {
        if (strncasecmp(name, *at, strlen(*at)) == 0) {
            return true;
        }
    }
    return false;
}

/* What says where a body ends, and for whom it is: whatever `Connection` names, the body goes on by these. */
static bool is_framing(const char *name)
{
    static const char *const names[] = {"Content-Length", "Transfer-Encoding", "Trailer", "Host",
                                        NULL};

    return is_one_of(name, names);
}

/* Whether a `Connection` has this word: each side may have several such lines. */
static bool has_option(const struct http_field *fields, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(fields[i].name, "Connection") == 0 && http_list_has(fields[i].value, word)) {
            return true;
        }
    }
    return false;
}

/* Whether a field is its sender's and ours alone, and not passed on. */
static bool is_between(const struct http_field *fields, size_t count, const char *name)
{
    return is_hop(name) || (!is_framing(name) && has_option(fields, count, name));
}

static int add(struct http_bytes *to, const char *text)
{
    return http_bytes_add(to, text, strlen(text));
}

static int add_field(struct http_bytes *to, const char *name, const char *value)
{
    return add(to, name) < 0 || add(to, ": ") < 0 || add(to, value) < 0 || add(to, "\r\n") < 0 ? -1
                                                                                               : 0;
}

/* ---- the request ---- */

static int add_origin(struct http_bytes *to, const struct http_request *request, bool is_tls)
{
    const char *host = http_header(request, "Host");

    if (!request->peer.is_unix && add_field(to, "X-Forwarded-For", request->peer.address) < 0) {
        return -1;
    }
    if (host != NULL && add_field(to, "X-Forwarded-Host", host) < 0) {
        return -1;
    }
    return add_field(to, "X-Forwarded-Proto", is_tls ? "https" : "http");
}

static int write_request(struct http_proxy *proxy, struct http_request *request)
{
    const struct http_head *head = &request->head;
    const char *upgrade = http_header(request, "Upgrade");
    const struct http_proxy_options *options = &proxy->options;
    struct http_bytes *to = &proxy->up;
    int failed;

    if (request->is_old || !has_option(head->fields, head->fields_count, "upgrade")) {
        upgrade = NULL;
    }
    proxy->is_upgrade = upgrade != NULL;
    failed = add(to, head->method) < 0 || add(to, " ") < 0 || add(to, options->target) < 0 ||
             add(to, request->is_old ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n") < 0 ||
             add_field(to, "Host", options->host) < 0;
    for (size_t i = 0; i < head->fields_count && !failed; i++) {
        const char *name = head->fields[i].name;

        if (strcasecmp(name, "Host") != 0 && !is_one_of(name, options->kept) &&
            !is_between(head->fields, head->fields_count, name) &&
            !(options->keeps && options->keeps(name, head->fields[i].value))) {
            failed = add_field(to, name, head->fields[i].value);
        }
    }
    if (!failed && options->cookie != NULL) {
        failed = add_field(to, "Cookie", options->cookie);
    }
    if (!failed) {
        failed = add_origin(to, request, options->is_tls);
    }
    if (!failed && upgrade != NULL) {
        failed = add_field(to, "Upgrade", upgrade);
    }
    return failed || add(to, proxy->is_upgrade ? "Connection: Upgrade\r\n\r\n"
                                               : "Connection: close\r\n\r\n") < 0
               ? -1
               : 0;
}

/* ---- the answer ---- */

/* A place on the same server lies below where that is shown. */
static int add_location(struct http_bytes *to, const struct http_proxy *proxy, const char *value)
{
    bool is_path = value[0] == '/' && value[1] != '/' && value[1] != '\\';

    if (!is_path || proxy->prefix == NULL) {
        return add_field(to, "Location", value);
    }
    return add(to, "Location: ") < 0 || add(to, proxy->prefix) < 0 || add(to, value) < 0 ||
                   add(to, "\r\n") < 0
               ? -1
               : 0;
}

/* A cookie is for the server's own name: not for its neighbours below the same domain. */
static int add_cookie(struct http_bytes *to, const char *value)
{
    size_t length = strcspn(value, ";");
    int failed = add(to, "Set-Cookie: ") < 0 || http_bytes_add(to, value, length) < 0;

    for (value += length; *value && !failed; value += length) {
        const char *name = value + 1 + strspn(value + 1, " \t");

        length = 1 + strcspn(value + 1, ";");
        if (strncasecmp(name, "domain", 6) != 0 || !strchr("=; \t", name[6])) {
            failed = http_bytes_add(to, value, length) < 0;
        }
    }
    return failed || add(to, "\r\n") < 0 ? -1 : 0;
}

static int add_answer_field(struct http_bytes *to, const struct http_proxy *proxy,
                            const struct http_answer *answer, const struct http_field *field)
{
    if (is_between(answer->fields, answer->count, field->name) ||
        (proxy->options.is_guest && is_of_origin(field->name)) || is_of_domain(field->name) ||
        is_for_front(field->name)) {
        return 0;
    }
    if (strcasecmp(field->name, "Set-Cookie") == 0) {
        return add_cookie(to, field->value);
    }
    if (strcasecmp(field->name, "Location") == 0) {
        return add_location(to, proxy, field->value);
    }
    return add_field(to, field->name, field->value);
}

static int write_answer(struct http_proxy *proxy, const struct http_answer *answer,
                        struct http_bytes *to)
{
    bool is_interim = answer->status < 200 && answer->status != 101;
    char line[64];

    (void)snprintf(line, sizeof(line), "HTTP/1.1 %u ", answer->status);
    if (add(to, line) < 0 || add(to, answer->reason) < 0 || add(to, "\r\n") < 0) {
        return -1;
    }
    for (size_t i = 0; i < answer->count; i++) {
        const struct http_field *field = &answer->fields[i];
        bool upgrades = answer->status == 101 && strcasecmp(field->name, "Upgrade") == 0;

        if (is_interim && strcasecmp(field->name, "Link") != 0) {
            continue;
        }
        if ((upgrades ? add_field(to, "Upgrade", field->value)
                      : add_answer_field(to, proxy, answer, field)) < 0) {
            return -1;
        }
    }
    if (is_interim) {
        return add(to, "\r\n");
    }
    if (proxy->options.is_guest && add(to, "Content-Security-Policy: sandbox\r\n"
                                           "X-Content-Type-Options: nosniff\r\n") < 0) {
        return -1;
    }
    if (proxy->extra != NULL && add(to, proxy->extra) < 0) {
        return -1;
    }
    return add(to,
               answer->status == 101 ? "Connection: Upgrade\r\n\r\n" : "Connection: close\r\n\r\n");
}

/* ---- its end ---- */

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void let_go(struct http_proxy *proxy)
{
    proxy->request = NULL;
    http_bytes_free(&proxy->up);
    http_bytes_free(&proxy->head);
    free(proxy->prefix);
    free(proxy->extra);
    uv_close((uv_handle_t *)&proxy->poll, on_closed);
    fd_close(&proxy->fd);
    if (proxy->options.over != NULL) {
        proxy->options.over(proxy->options.arg);
    }
}

void http_proxy_lost(struct http_request *request)
{
    struct http_proxy *proxy = request->proxy;

    request->proxy = NULL;
    let_go(proxy);
    http_request_free(request);
}

/* The server has said all that it had to say: the connection ends when that is written. */
static void end(struct http_proxy *proxy)
{
    struct http_request *request = proxy->request;
    struct http_conn *conn = request->conn;

    request->proxy = NULL;
    let_go(proxy);
    http_request_let_go(request);
    http_request_part(request);
    conn->request = NULL;
    request->conn = NULL;
    http_request_free(request);
    http_conn_answered(conn, false);
}

/* Before anything of the answer has gone out. */
static void end_badly(struct http_proxy *proxy)
{
    static const struct http_refusal bad = {
        502, "bad_gateway",
        "what listens on this port of the sandbox does not speak HTTP/1.1, or says in two ways where its "
        "answer ends (Content-Length, Transfer-Encoding)"};
    struct http_request *request = proxy->request;

    request->proxy = NULL;
    let_go(proxy);
    request->is_begun = false;
    request->conn->state = CONN_HANDLING;
    request->conn->is_closing = request->conn->has_unread = true;
    http_request_refuse(request, &bad);
}

/* ---- bytes ---- */

static void watch(struct http_proxy *proxy);
static bool is_over(const struct http_proxy *proxy);

/* Sends what the client said; false where the server takes no more at all, which is no end: it may have
 * answered already. */
static void push(struct http_proxy *proxy)
{
    while (proxy->up.size > 0) {
        ssize_t sent = send(proxy->fd, proxy->up.data + proxy->up.start, proxy->up.size,
                            MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINPROGRESS)) {
            return;
        }
        if (sent < 0) {
            http_bytes_free(&proxy->up);
            proxy->is_shut = proxy->has_told = true;
            return;
        }
        http_bytes_take(&proxy->up, (size_t)sent);
    }
    if (proxy->is_shut && !proxy->has_told) {
        proxy->has_told = true;
        (void)shutdown(proxy->fd, SHUT_WR);
    }
}

static void deliver(struct http_proxy *proxy, const char *data, size_t size)
{
    struct iovec part = {(void *)(uintptr_t)data, size};

    if (size > 0) {
        http_conn_send(proxy->request->conn, &part, 1);
    }
}

/* Such an answer ends with its header, also where a HEAD's or a 304's fields tell of a body. */
static bool is_bare(const struct http_proxy *proxy, unsigned status)
{
    return status == 204 || status == 205 || status == 304 ||
           (status >= 200 && proxy->request->is_head);
}

/* Takes a whole header off what has come, and sends it on anew; false where it is none. */
static bool take_head(struct http_proxy *proxy, size_t size)
{
    struct http_bytes text = {0};
    struct http_answer *answer = malloc(sizeof(*answer));
    bool is_good = answer != NULL &&
                   http_parse_answer(proxy->head.data + proxy->head.start, size, answer) == 0 &&
                   (answer->status != 101 || proxy->is_upgrade) &&
                   (answer->status >= 200 || proxy->interim < INTERIM_MAX) &&
                   write_answer(proxy, answer, &text) == 0;

    if (is_good) {
        proxy->is_joined = answer->status >= 200 || answer->status == 101;
        proxy->is_bare = is_bare(proxy, answer->status);
        proxy->interim += !proxy->is_joined;
        proxy->request->status = answer->status;
        deliver(proxy, text.data, text.size);
        http_bytes_take(&proxy->head, size);
        proxy->scanned = 0;
    }
    free(answer);
    http_bytes_free(&text);
    return is_good;
}

/* What came of the server before its header was through. */
static bool take_heads(struct http_proxy *proxy)
{
    while (!proxy->is_joined && proxy->head.size > 0) {
        size_t size = 0;
        enum http_scan scan = http_scan_head(proxy->head.data + proxy->head.start, proxy->head.size,
                                             &proxy->scanned, &size);

        if (scan == HTTP_SCAN_MORE) {
            return proxy->head.size < HEAD_MAX;
        }
        if (scan == HTTP_SCAN_BAD || size > HEAD_MAX || !take_head(proxy, size)) {
            return false;
        }
    }
    return true;
}

/* False: it is over, for a client could take what comes behind an answer's end for one of its own. */
static bool take_body(struct http_proxy *proxy, const char *data, size_t size)
{
    if (size > 0 && proxy->is_bare) {
        end(proxy);
        return false;
    }
    deliver(proxy, data, size);
    return true;
}

/* The same, of what came with the header. */
static bool take_rest(struct http_proxy *proxy)
{
    if (!proxy->is_joined || proxy->head.size == 0) {
        return true;
    }
    if (!take_body(proxy, proxy->head.data + proxy->head.start, proxy->head.size)) {
        return false;
    }
    http_bytes_free(&proxy->head);
    return true;
}

/* It may still be told something. */
static bool end_half(struct http_proxy *proxy)
{
    struct http_conn *conn = proxy->request->conn;

    proxy->has_ended = true;
    if (is_over(proxy)) {
        end(proxy);
        return false;
    }
    if (conn->out.size == 0) {
        http_wire_shut(conn);
    } else {
        proxy->request->waits_for_drain = true;
    }
    return true;
}

/* False: it is over. */
static bool pull(struct http_proxy *proxy)
{
    struct http_conn *conn = proxy->request->conn;
    char *scratch = conn->server->scratch;
    ssize_t got = recv(proxy->fd, scratch, TURN_BYTES, 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (got <= 0) {
        /* Of an answer that is cut off nobody is to think that it is whole. */
        if (!proxy->is_joined) {
            end_badly(proxy);
        } else if (got < 0) {
            http_conn_break(conn);
            return true;
        } else if (proxy->is_tunnel) {
            return end_half(proxy);
        } else {
            end(proxy);
        }
        return false;
    }
    /* Who drips a header holds nobody who has left. */
    proxy->has_moved = proxy->is_joined;
    if (proxy->is_joined) {
        return take_body(proxy, scratch, (size_t)got);
    }
    if (http_bytes_add(&proxy->head, scratch, (size_t)got) == 0 && take_heads(proxy)) {
        return take_rest(proxy);
    }
    if (proxy->request->conn->is_broken) {
        return true;
    }
    if (proxy->request->status != 0) { /* after an interim answer nothing else can be said */
        http_conn_break(conn);
        return true;
    }
    end_badly(proxy);
    return false;
}

static void take_events(struct http_proxy *proxy, int status, int events)
{
    struct http_conn *conn = proxy->request->conn;

    if (events & UV_WRITABLE) {
        push(proxy);
        http_conn_kick(conn); /* there may be room for more of the client's */
    }
    if (proxy->has_ended) {
        if (is_over(proxy) || status < 0) {
            end(proxy);
        } else {
            watch(proxy);
        }
        return;
    }
    if (status < 0 || (events & (UV_READABLE | UV_DISCONNECT))) {
        proxy->is_put_off = http_turn_waits(conn);
        if (proxy->is_put_off) {
            http_conn_watch(conn);
        } else if (!pull(proxy)) {
            return;
        }
    }
    watch(proxy);
}

static void on_server(uv_poll_t *poll, int status, int events)
{
    struct http_proxy *proxy = (struct http_proxy *)poll;
    struct http_conn *conn = proxy->request->conn;

    http_turn_begin(conn->server);
    take_events(proxy, status, events);
    http_turn_end(conn);
}

void http_proxy_turn(struct http_request *request)
{
    struct http_proxy *proxy = request->proxy;

    if (proxy->is_put_off) {
        proxy->is_put_off = false;
        if (pull(proxy)) {
            watch(proxy);
        }
    }
}

static void watch(struct http_proxy *proxy)
{
    struct http_conn *conn = proxy->request->conn;
    int events = proxy->up.size > 0 ? UV_WRITABLE : 0;

    if (!proxy->has_ended && conn->out.size >= WAITING_MAX) {
        proxy->request->waits_for_drain = true;
    } else if (!proxy->has_ended && !proxy->is_put_off) {
        events |= UV_READABLE;
    }
    if (events == 0) {
        (void)uv_poll_stop(&proxy->poll);
    } else {
        (void)uv_poll_start(&proxy->poll, events, on_server);
    }
}

static void on_drained(void *arg)
{
    struct http_proxy *proxy = arg;

    if (proxy->has_ended && proxy->request->conn->out.size > 0) {
        proxy->request->waits_for_drain = true;
    } else if (proxy->has_ended) {
        http_wire_shut(proxy->request->conn);
    } else {
        watch(proxy);
    }
}

/* Both have said all. */
static bool is_over(const struct http_proxy *proxy)
{
    return proxy->has_ended && proxy->is_shut && proxy->up.size == 0;
}

/* ---- the client ---- */

bool http_proxy_reads(const struct http_request *request)
{
    const struct http_proxy *proxy = request->proxy;

    return !proxy->is_shut && proxy->up.size < WAITING_MAX;
}

bool http_proxy_step(struct http_conn *conn, const char *data, size_t size, size_t *used)
{
    struct http_proxy *proxy = conn->request->proxy;
    size_t room = proxy->up.size < WAITING_MAX ? WAITING_MAX - proxy->up.size : 0;
    size_t most = size - *used < room ? size - *used : room;

    if (proxy->is_shut) { /* the server hears no more of it */
        *used = size;
        return false;
    }
    if (most == 0 || http_bytes_add(&proxy->up, data + *used, most) != 0) {
        return false;
    }
    *used += most;
    push(proxy);
    watch(proxy);
    return true;
}

void http_proxy_shut(struct http_request *request)
{
    struct http_proxy *proxy = request->proxy;

    proxy->is_shut = true;
    push(proxy);
    if (is_over(proxy)) {
        end(proxy);
    } else {
        watch(proxy);
    }
}

static void send_switch(struct http_request *request)
{
    const char *upgrade = http_header(request, "Upgrade");
    struct iovec parts[3] = {
        {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ", 64},
        {(void *)(uintptr_t)upgrade, strlen(upgrade)},
        {"\r\n\r\n", 4}};

    http_conn_send(request->conn, parts, 3);
}

bool http_proxy_is_idle(struct http_request *request)
{
    struct http_proxy *proxy = request->proxy;

    proxy->idle = proxy->is_shut && !proxy->has_moved ? proxy->idle + 1 : 0;
    proxy->has_moved = false;
    return proxy->idle > IDLE_LOOKS;
}

int http_proxy(struct http_request *request, const struct http_proxy_options *options,
               struct error *err)
{
    struct http_conn *conn = request->conn;
    struct http_proxy *proxy;

    if (!conn || request->is_begun) {
        return error_set(err, "client_gone", 0, "the client of this request is gone");
    }
    proxy = calloc(1, sizeof(*proxy));
    if (!proxy || uv_poll_init(conn->server->loop, &proxy->poll, options->server)) {
        free(proxy);
        return error_set(err, "capacity", 0, "there is no memory for one more request to a port");
    }
    proxy->fd = options->server;
    proxy->options = *options;
    proxy->request = request;
    proxy->prefix = options->prefix ? strdup(options->prefix) : NULL;
    proxy->extra = options->extra ? strdup(options->extra) : NULL;
    request->proxy = proxy;
    request->gone = NULL;
    request->part = NULL;
    request->drained = on_drained;
    request->drained_arg = proxy;
    request->is_begun = true;
    proxy->is_tunnel = options->target == NULL;
    proxy->is_joined = proxy->is_tunnel;
    if (proxy->is_tunnel) {
        request->status = 101;
        send_switch(request);
    }
    if ((!proxy->is_tunnel && write_request(proxy, request) < 0) ||
        (options->prefix && !proxy->prefix) || (options->extra && !proxy->extra)) {
        http_conn_break(conn);
    }
    /* They were the caller's, for the header only. */
    proxy->options.target = proxy->options.host = proxy->options.cookie = NULL;
    proxy->options.kept = NULL;
    http_conn_proxied(conn);
    push(proxy);
    watch(proxy);
    return 0;
}
