/* Listening, accepting, the limit of connections, and the end of it all.
 *
 * One loop for all connections. Who comes when all places are taken gets that of one who only connected,
 * or is told so (503) as long as there are places to say it; after that nobody is accepted until somebody
 * has left. Whoever reaches the host by TCP must never keep those of the unix socket out. */
#include "http/parts.h"

#include "base/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ACCEPT_AT_ONCE 64
/* Where each has to be found a place. */
#define ACCEPT_WHEN_FULL 8
/* When there are no fds or no memory: how long until the next try. */
#define ACCEPT_AGAIN_MS 100
#define DRAIN_LOOK_MS 2000U
#define DRAIN_MOVES ((uint64_t)16 << 10) /* bytes that a client sends or takes from look to look */

/* ---- the server ---- */

const char *http_server_date(struct http_server *server)
{
    time_t now = time(NULL);

    if (now != server->date_of) {
        struct tm parts;
        /* No locale is ever set, so the names are the English ones that HTTP asks for. */
        gmtime_r(&now, &parts);
        strftime(server->date, sizeof(server->date), "%a, %d %b %Y %H:%M:%S GMT", &parts);
        server->date_of = now;
    }
    return server->date;
}

void http_server_free_when_closed(struct http_server *server)
{
    if (server->is_stopped && server->handles == 0 && server->conns_count == 0 &&
        server->handshakes_working == 0) {
        http_certificate_free(server->certificate);
        free(server);
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_server *server = handle->data;

    server->handles--;
    http_server_free_when_closed(server);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct http_listener *listener = handle->data;
    struct http_server *server = listener->server;

    free(listener);
    server->handles--;
    http_server_free_when_closed(server);
}

static void close_listeners(struct http_server *server)
{
    while (!SLIST_EMPTY(&server->listeners)) {
        struct http_listener *listener = SLIST_FIRST(&server->listeners);
        SLIST_REMOVE_HEAD(&server->listeners, next);
        uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
        fd_close(&listener->fd);
    }
}

void http_server_line_up(struct http_conn *conn)
{
    struct http_server *server = conn->server;

    conn->is_in_line = true;
    TAILQ_INSERT_TAIL(&server->lines[conn->lane], conn, line_next);
    server->in_line++;
    http_server_wake(server);
}

void http_server_leave_line(struct http_conn *conn)
{
    if (conn->is_in_line) {
        conn->is_in_line = false;
        TAILQ_REMOVE(&conn->server->lines[conn->lane], conn, line_next);
        conn->server->in_line--;
    }
}

/* Lets the first of each line begin. Nobody else in a line costs anything. */
static void serve_lines(struct http_server *server)
{
    struct http_conn *conn;

    for (size_t lane = 0; lane < HTTP_LANES && server->in_line > 0; lane++) {
        while (server->begun[lane] < HTTP_LANE_MAX && !TAILQ_EMPTY(&server->lines[lane])) {
            conn = TAILQ_FIRST(&server->lines[lane]);
            http_server_leave_line(conn);
            conn->has_turn = true;
            http_turn_begin(server);
            http_conn_turn(conn, false);
            http_turn_end(conn);
            conn->has_turn = false;
        }
    }
}

static void begin_round(struct http_server *server)
{
    memset(server->begun, 0, sizeof(server->begun));
    memset(server->spent_ns, 0, sizeof(server->spent_ns));
}

static void on_idle(uv_idle_t *idle)
{
    struct http_server *server = idle->data;
    struct http_conn *conn;
    size_t left = 0;

    begin_round(server); /* else newcomers took all turns */
    serve_lines(server);
    http_turns_serve(server);
    /* Those that are kicked meanwhile have the next turn, so that none can hold the loop. */
    TAILQ_FOREACH(conn, &server->kicked, kicked_next)
    {
        left++;
    }
    for (; left > 0 && !TAILQ_EMPTY(&server->kicked); left--) {
        conn = TAILQ_FIRST(&server->kicked);
        TAILQ_REMOVE(&server->kicked, conn, kicked_next);
        conn->is_kicked = false;
        if (http_turn_waits(conn)) {
            http_conn_watch(conn);
            continue;
        }
        http_turn_begin(server);
        http_conn_turn(conn, false);
        http_turn_end(conn);
    }
    if (!server->is_stopped && TAILQ_EMPTY(&server->kicked) && server->in_line == 0 &&
        server->put_off_count == 0) {
        uv_idle_stop(idle);
    }
}

static void on_round(uv_prepare_t *round)
{
    begin_round(round->data);
}

void http_server_wake(struct http_server *server)
{
    uv_idle_start(&server->idle, on_idle);
}

static void watch_listeners(struct http_server *server);
static void on_timer(uv_timer_t *timer);

/* The peer of a unix socket by the kernel's word, of a TCP socket by its address. */
static int find_peer(int fd, const struct sockaddr_storage *address, struct http_peer *peer)
{
    *peer = (struct http_peer){.uid = (uid_t)-1, .gid = (gid_t)-1};
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        inet_ntop(AF_INET, &in->sin_addr, peer->address, sizeof(peer->address));
        peer->is_loopback = ntohl(in->sin_addr.s_addr) >> 24 == 127;
        return 0;
    }
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        inet_ntop(AF_INET6, &in6->sin6_addr, peer->address, sizeof(peer->address));
        peer->is_loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
                            (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) &&
                             in6->sin6_addr.s6_addr[12] == 127);
        return 0;
    }
    struct ucred cred;
    socklen_t size = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size)) {
        return -1;
    }
    peer->is_unix = true;
    peer->uid = cred.uid;
    peer->gid = cred.gid;
    peer->pid = cred.pid;
    snprintf(peer->address, sizeof(peer->address), "unix");
    return 0;
}

/* A peer that vanished without a word is found out within a minute, also where nothing is said. One that
 * is there and does not read is not cut: streams are held back for as long as it likes. */
static void prepare_tcp(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 30}, {IPPROTO_TCP, TCP_KEEPINTVL, 10},
        {IPPROTO_TCP, TCP_KEEPCNT, 3},
    };

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                   sizeof(options[i].value));
    }
}

static bool is_full(const struct http_server *server, bool is_unix)
{
    return server->open_count[is_unix] >= server->limits.connections + HTTP_REFUSED_MAX;
}

/* Which of the houses a peer lives in, so that those who crowd a server are told from those who do not.
 * Strangers may share one; who has many addresses of one network has one. */
static unsigned find_house(const struct http_server *server, const struct sockaddr_storage *address,
                           const struct http_peer *peer)
{
    uint64_t key = (uint64_t)peer->uid + 1;

    if (address->ss_family == AF_INET) {
        key = ((const struct sockaddr_in *)address)->sin_addr.s_addr;
    } else if (address->ss_family == AF_INET6) {
        memcpy(&key, &((const struct sockaddr_in6 *)address)->sin6_addr, sizeof(key));
    }
    key = (key ^ server->seed) * 0x9e3779b97f4a7c15U;
    return (unsigned)(key >> 32) % HTTP_HOUSES;
}

/* Tells whether its place may be given to a newcomer of a house that has `count`. An owner's connection that has
 * an answer to read, or more to ask, keeps it as long as its owner does not have more. */
static bool is_replaceable(const struct http_conn *conn, bool is_unix, size_t count)
{
    bool is_idle = conn->in.size == 0 && conn->out.size == 0;

    return conn->peer.is_unix == is_unix &&
           (conn->state == CONN_HEADER || conn->state == CONN_HANDSHAKE) &&
           (!conn->owner || is_idle || http_owner_places(conn) > count + 1);
}

/* Tells whether there is a place, if need be that of a connection without a request: of the owner, or house of
 * strangers, that has most, and there the oldest that never asked anything, or else the oldest. */
static bool make_place(struct http_server *server, bool is_unix, unsigned house)
{
    struct http_conn *conn, *victim = NULL;
    size_t most = 0, count = server->houses[is_unix][house];

    if (server->open_count[is_unix] < server->limits.connections) {
        return true;
    }
    TAILQ_FOREACH(conn, &server->conns, next)
    {
        // cppcheck-suppress uninitvar ; it does not see that the list sets it
        size_t places = http_owner_places(conn);
        if (is_replaceable(conn, is_unix, count) &&
            (!victim || places > most ||
             (places == most && victim->has_asked && !conn->has_asked))) {
            victim = conn;
            most = places;
        }
    }
    if (victim) {
        http_conn_cut(victim);
    }
    return victim != NULL;
}

void http_server_lingers(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    bool is_unix = conn->peer.is_unix;
    const size_t *houses = server->linger_houses[is_unix];
    struct http_conn *other = NULL, *victim;

    http_server_leave_place(conn);
    TAILQ_INSERT_TAIL(&server->lingering[is_unix], conn, linger_next);
    server->linger_count[is_unix]++;
    server->linger_houses[is_unix][conn->house]++;
    if (server->linger_count[is_unix] > HTTP_LINGER_MAX) {
        /* The oldest of the fullest house. */
        victim = TAILQ_FIRST(&server->lingering[is_unix]);
        TAILQ_FOREACH(other, &server->lingering[is_unix], linger_next)
        {
            if (houses[other->house] > houses[victim->house]) {
                victim = other;
            }
        }
        http_conn_cut(victim);
    }
    watch_listeners(server);
}

void http_server_lingered(struct http_conn *conn)
{
    struct http_server *server = conn->server;

    TAILQ_REMOVE(&server->lingering[conn->peer.is_unix], conn, linger_next);
    server->linger_count[conn->peer.is_unix]--;
    server->linger_houses[conn->peer.is_unix][conn->house]--;
}

static size_t *waiting_of(const struct http_conn *conn)
{
    return conn->owner ? &conn->owner->waiting
                       : &conn->server->waiting_houses[conn->peer.is_unix][conn->house];
}

/* Adds up what waits for each owner and house. It is needed seldom, and sums that were kept could go wrong. */
static void add_up_waiting(struct http_server *server)
{
    struct http_conn *conn;

    TAILQ_FOREACH(conn, &server->conns, next)
    {
        // cppcheck-suppress uninitvar ; it does not see that the list sets it
        *waiting_of(conn) = 0;
    }
    TAILQ_FOREACH(conn, &server->conns, next)
    {
        *waiting_of(conn) += conn->waiting;
    }
}

void http_server_shed(struct http_server *server)
{
    while (server->waiting_bytes > server->limits.waiting_bytes) {
        struct http_conn *conn, *victim = NULL;
        size_t most = 0;

        add_up_waiting(server);
        TAILQ_FOREACH(conn, &server->conns, next)
        {
            // cppcheck-suppress uninitvar ; it does not see that the list sets it
            size_t sum = *waiting_of(conn);

            if (conn->waiting > 0 &&
                (!victim || sum > most || (sum == most && conn->waiting > victim->waiting))) {
                victim = conn;
                most = sum;
            }
        }
        if (!victim) {
            return;
        }
        http_conn_cut(victim);
        /* Now, and not when the loop has closed its handles: that is what it is about. */
        http_bytes_free(&victim->out);
        http_bytes_free(&victim->behind);
    }
}

/* False where nothing more is to be accepted now. */
static bool accept_one(struct http_listener *listener)
{
    struct http_server *server = listener->server;
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(address);
    struct http_peer peer;

    _cleanup_close_ int fd = accept4(listener->fd, (struct sockaddr *)&address, &size,
                                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            server->is_paused = true;
            watch_listeners(server);
            if (!server->is_draining) {
                uv_timer_start(&server->timer, on_timer, ACCEPT_AGAIN_MS, 0);
            }
        }
        /* A connection that ended in the queue says nothing about the next one. */
        return errno == ECONNABORTED || errno == EINTR;
    }
    if (find_peer(fd, &address, &peer)) {
        return true;
    }
    if (!peer.is_unix) {
        prepare_tcp(fd);
    }
    peer.is_tls = server->is_tls && !peer.is_unix;
    unsigned house = find_house(server, &address, &peer);
    bool is_refused = !make_place(server, peer.is_unix, house);
    /* To be told anything he had to be greeted first, which costs more than all the rest. */
    if (peer.is_tls && (is_refused || !server->certificate)) {
        return true;
    }
    server->accepted++;
    http_conn_new(server, fd_take(&fd), &peer, house, is_refused);
    if (is_full(server, peer.is_unix)) {
        watch_listeners(server);
        return false;
    }
    return true;
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
    struct http_listener *listener = poll->data;
    struct http_server *server = listener->server;
    (void)status, (void)events;

    bool is_crowded = server->open_count[listener->is_unix] >= server->limits.connections;
    unsigned most = is_crowded ? ACCEPT_WHEN_FULL : ACCEPT_AT_ONCE;

    for (unsigned i = 0; i < most; i++) {
        if (server->is_stopped || server->is_draining || !accept_one(listener)) {
            return;
        }
    }
}

static void watch_listeners(struct http_server *server)
{
    struct http_listener *listener;
    bool accepts = !server->is_paused && !server->is_draining;

    SLIST_FOREACH(listener, &server->listeners, next)
    {
        // cppcheck-suppress uninitvar ; it does not see that the list sets it
        if (!accepts || is_full(server, listener->is_unix)) {
            uv_poll_stop(&listener->poll);
        } else if (!uv_is_active((uv_handle_t *)&listener->poll)) {
            uv_poll_start(&listener->poll, UV_READABLE, on_listener);
        }
    }
}

static void tell_drained(struct http_server *server)
{
    void (*drained)(void *arg) = server->drained;

    server->drained = NULL;
    uv_timer_stop(&server->timer);
    if (drained) {
        drained(server->drained_arg);
    }
}

/* Whether it waits for its client alone, who sends or takes next to nothing, or has so much left to send that it will not
 * end in time. */
static bool is_hopeless(const struct http_server *server, const struct http_conn *conn)
{
    uint64_t looks = (server->drain_until - uv_now(server->loop)) / DRAIN_LOOK_MS + 1;
    bool is_sized = conn->state == CONN_BODY && conn->request && !conn->request->head.is_chunked;

    if (conn->state != CONN_BODY && conn->out.size == 0 && !conn->is_stuck) {
        return false;
    }
    return conn->moved < DRAIN_MOVES || (is_sized && conn->body_left / 2 / looks > conn->moved);
}

/* Nobody else is to wait for those. At the first look nothing is known of any. */
static void cut_hopeless(struct http_server *server, bool is_first)
{
    struct http_conn *conn, *next;

    for (conn = TAILQ_FIRST(&server->conns); conn; conn = next) {
        next = TAILQ_NEXT(conn, next);
        if (!is_first && is_hopeless(server, conn)) {
            http_conn_cut(conn);
        } else {
            conn->moved = 0;
        }
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    bool is_over = uv_now(server->loop) >= server->drain_until;

    if (!server->is_draining) {
        server->is_paused = false;
        watch_listeners(server);
        return;
    }
    if (!is_over) {
        cut_hopeless(server, false);
    }
    while (is_over && !TAILQ_EMPTY(&server->conns)) {
        http_conn_cut(TAILQ_FIRST(&server->conns));
    }
    if (TAILQ_EMPTY(&server->conns)) {
        tell_drained(server);
    } else {
        uv_timer_start(timer, on_timer, DRAIN_LOOK_MS, 0);
    }
}

void http_server_left(struct http_server *server)
{
    server->conns_count--;
    if (server->is_stopped) {
        http_server_free_when_closed(server);
        return;
    }
    /* From the loop, and not from within whatever let the last connection go. */
    if (server->is_draining && TAILQ_EMPTY(&server->conns)) {
        uv_timer_start(&server->timer, on_timer, 0, 0);
    } else {
        watch_listeners(server);
    }
}

static void set_limits(struct http_limits *limits, const struct http_limits *asked)
{
    *limits = *asked;
    limits->connections = asked->connections ? asked->connections : 4096;
    limits->body_bytes = asked->body_bytes ? asked->body_bytes : (size_t)4 << 20;
    limits->held_bytes = asked->held_bytes ? asked->held_bytes : (size_t)256 << 20;
    limits->waiting_bytes = asked->waiting_bytes ? asked->waiting_bytes : (size_t)256 << 20;
    limits->header_bytes = asked->header_bytes ? asked->header_bytes : (size_t)32 << 10;
    limits->header_ms = asked->header_ms ? asked->header_ms : 10000;
    limits->turn_us = asked->turn_us ? asked->turn_us : 250;
    limits->body_ms = asked->body_ms ? asked->body_ms : 60000;
    limits->idle_ms = asked->idle_ms ? asked->idle_ms : 75000;
    limits->answer_ms = asked->answer_ms ? asked->answer_ms : 300000;
    limits->backlog_bytes = asked->backlog_bytes ? asked->backlog_bytes : (size_t)1 << 20;
    limits->silent_ms = asked->silent_ms ? asked->silent_ms : 60000;
    limits->ping_ms = asked->ping_ms ? asked->ping_ms : 25000;
    limits->pong_ms = asked->pong_ms ? asked->pong_ms : 60000;
    limits->handshakes = asked->handshakes ? asked->handshakes : 512;
}

int http_start(uv_loop_t *loop, const struct http_options *options, struct http_server **out,
               struct error *err)
{
    struct http_server *server = calloc(1, sizeof(*server));

    if (!server) {
        return error_set(err, "no_memory", ENOMEM, "the HTTP server could not be set up");
    }
    server->loop = loop;
    server->seed = uv_hrtime() * 0xbf58476d1ce4e5b9U;
    server->routes = options->routes;
    server->routes_count = options->routes_count;
    server->data = options->data;
    server->find_owner = options->find_owner;
    server->admit = options->admit;
    server->refuse = options->refuse;
    server->handle = options->handle;
    server->over = options->over;
    server->is_tls = options->is_tls;
    set_limits(&server->limits, &options->limits);
    SLIST_INIT(&server->listeners);
    TAILQ_INIT(&server->conns);
    TAILQ_INIT(&server->kicked);
    for (size_t lane = 0; lane < HTTP_LANES; lane++) {
        TAILQ_INIT(&server->lines[lane]);
        TAILQ_INIT(&server->put_off[lane]);
    }
    TAILQ_INIT(&server->handshakes);
    TAILQ_INIT(&server->lingering[0]);
    TAILQ_INIT(&server->lingering[1]);
    uv_idle_init(loop, &server->idle);
    uv_timer_init(loop, &server->timer);
    uv_prepare_init(loop, &server->round);
    server->idle.data = server->timer.data = server->round.data = server;
    server->handles = 3;
    uv_prepare_start(&server->round, on_round);
    uv_unref((uv_handle_t *)&server->round); /* it keeps no loop alive */
    *out = server;
    return 0;
}

void http_certify(struct http_server *server, struct http_certificate *certificate)
{
    http_certificate_free(server->certificate);
    server->certificate = certificate;
}

int http_listen(struct http_server *server, int socket, struct error *err)
{
    _cleanup_close_ int fd = socket;
    _cleanup_free_ struct http_listener *listener = calloc(1, sizeof(*listener));
    struct sockaddr address = {.sa_family = AF_UNSPEC};
    socklen_t size = sizeof(address);
    int code;

    if (!listener) {
        return error_set(err, "no_memory", ENOMEM, "a listening socket could not be set up");
    }
    code = uv_poll_init(server->loop, &listener->poll, fd);
    if (code) {
        return error_set(err, "http_listen", -code, "a listening socket cannot be watched");
    }
    listener->poll.data = listener;
    listener->server = server;
    listener->fd = fd_take(&fd);
    listener->is_unix = getsockname(listener->fd, &address, &size) == 0 &&
                        address.sa_family == AF_UNIX;
    server->handles++;
    SLIST_INSERT_HEAD(&server->listeners, listener, next);
    listener = NULL;
    watch_listeners(server);
    return 0;
}

void http_count(const struct http_server *server, struct http_counts *out)
{
    *out = (struct http_counts){
        .open = server->open_count[0] + server->open_count[1],
        .held_bytes = server->held_bytes,
        .accepted = server->accepted,
        .received_bytes = server->received_bytes,
        .sent_bytes = server->sent_bytes,
    };
}

void http_drain(struct http_server *server, unsigned most_ms, void (*done)(void *arg), void *arg)
{
    struct http_conn *conn, *next;

    server->is_draining = true;
    server->drained = done;
    server->drained_arg = arg;
    close_listeners(server);
    for (conn = TAILQ_FIRST(&server->conns); conn; conn = next) {
        next = TAILQ_NEXT(conn, next);
        http_conn_drain(conn);
    }
    server->drain_until = uv_now(server->loop) + most_ms;
    cut_hopeless(server, true);
    uv_timer_start(&server->timer, on_timer,
                   TAILQ_EMPTY(&server->conns) ? 0
                   : most_ms < DRAIN_LOOK_MS   ? most_ms
                                               : DRAIN_LOOK_MS,
                   0);
}

void http_stop(struct http_server *server)
{
    server->is_stopped = true;
    server->drained = NULL;
    close_listeners(server);
    while (!TAILQ_EMPTY(&server->conns)) {
        http_conn_cut(TAILQ_FIRST(&server->conns));
    }
    uv_close((uv_handle_t *)&server->idle, on_handle_closed);
    uv_close((uv_handle_t *)&server->timer, on_handle_closed);
    uv_close((uv_handle_t *)&server->round, on_handle_closed);
}
