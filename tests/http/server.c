/* A server for test_http.py: one route for each thing that the HTTP room promises, nothing else.
 *
 * usage: server unix:PATH|tcp [LIMIT=VALUE ...]; prints "ready" and the TCP port, serves until
 * POST /drain or SIGTERM, and must then leave nothing behind (the sanitizers look). Its timers follow the
 * clock that COVE_TEST_CLOCK names. */
#include "server.h"

#include "base/fd.h"
#include "base/set_clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct task {
    LIST_ENTRY(task) next; /* of the followers */
    struct http_request *request;
    uv_timer_t timer;
    size_t left;    /* bytes or lines to write */
    size_t counted; /* bytes of a body */
    size_t parts;
    bool tells_parts;
    bool has_timer;
    bool is_follower;
    bool holds;
    bool is_careless; /* writes whatever waits; resumes before it holds */
    unsigned ms;
};

struct http_server *server;
uv_loop_t *loop;
static LIST_HEAD(tasks, task) followers = LIST_HEAD_INITIALIZER(followers);
static size_t taken_bytes; /* of bodies that come in parts */
size_t gone_count, live_count, most_waiting, backlog_bytes = 1 << 20, closed_count;
unsigned closed_code;

/* ---- tasks: what a request that is not answered at once needs ---- */

static void on_task_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Called with the request. */
static void task_free(void *data)
{
    struct task *task = data;

    live_count--;
    if (task->is_follower) {
        LIST_REMOVE(task, next);
    }
    uv_close((uv_handle_t *)&task->timer, on_task_closed);
}

static void on_gone(void *arg)
{
    struct task *task = arg;

    gone_count++;
    http_abort(task->request);
}

static struct task *task_new(struct http_request *request)
{
    struct task *task = calloc(1, sizeof(*task));

    if (!task) {
        abort();
    }
    task->request = request;
    uv_timer_init(loop, &task->timer);
    task->timer.data = task;
    live_count++;
    http_set_data(request, task, task_free);
    http_on_gone(request, on_gone, task);
    return task;
}

size_t number(struct http_request *request, const char *name, size_t otherwise)
{
    const char *value = http_query(request, name);

    return value ? strtoul(value, NULL, 10) : otherwise;
}

void answer_text(struct http_request *request, unsigned status, const char *text)
{
    http_answer(request, status, "text/plain", text, strlen(text));
}

/* ---- answered at once ---- */

static void get_hello(struct http_request *request, void *data)
{
    (void)data;
    answer_text(request, 200, "hello\n");
}

static void get_nothing(struct http_request *request, void *data)
{
    (void)data;
    http_answer(request, 204, NULL, NULL, 0);
}

static void post_echo(struct http_request *request, void *data)
{
    size_t size = 0;
    const char *body = http_body(request, &size);

    (void)data;
    if (body[size] != '\0') {
        abort();
    }
    http_answer(request, 200, "application/octet-stream", body, size);
}

static void get_param(struct http_request *request, void *data)
{
    char text[4096];

    (void)data;
    snprintf(text, sizeof(text), "%s|%s|%s", http_path(request), http_param(request, "first"),
             http_param(request, "second"));
    answer_text(request, 200, text);
}

static void get_query(struct http_request *request, void *data)
{
    char text[4096] = "";
    size_t used = 0;
    const char *name, *value;

    (void)data;
    for (size_t i = 0; http_query_at(request, i, &name, &value) && used < sizeof(text); i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "[%s]=[%s]\n", name, value);
    }
    answer_text(request, 200, text);
}

static void get_field(struct http_request *request, void *data)
{
    const char *value = http_header(request, http_param(request, "name"));

    (void)data;
    answer_text(request, value ? 200 : 404, value ? value : "none");
}

static void get_peer(struct http_request *request, void *data)
{
    const struct http_peer *peer = http_peer(request);
    char text[256];

    (void)data;
    snprintf(text, sizeof(text), "%d %d %d %d %d %s", peer->is_unix, (int)peer->uid, (int)peer->gid,
             (int)peer->pid, peer->is_loopback, peer->address);
    answer_text(request, 200, text);
}

/* What must not come through, and one field that must. */
static void get_evil(struct http_request *request, void *data)
{
    (void)data;
    http_add_header(request, "X-One", "a\r\nX-Injected: 1");
    http_add_header(request, "X-Two\r\nX-Injected", "2");
    http_add_header(request, "X-Three", "a\nX-Injected: 3");
    http_add_header(request, "X Four", "4");
    http_add_header(request, "", "5");
    http_add_header(request, "Content-Length", "3");
    http_add_header(request, "transfer-encoding", "chunked");
    http_add_header(request, "X-Good", "g\xc3\xa4");
    http_answer(request, 200, "text/plain\r\nX-Injected: 6", "good", 4);
}

static void get_big(struct http_request *request, void *data)
{
    size_t size = number(request, "bytes", 0);
    char *bytes = malloc(size + 1);

    (void)data;
    if (!bytes) {
        abort();
    }
    memset(bytes, 'b', size);
    http_answer(request, 200, "application/octet-stream", bytes, size);
    free(bytes);
}

static void get_stats(struct http_request *request, void *data)
{
    struct http_counts counts;
    char text[512];
    size_t count = 0;
    struct task *task;

    (void)data;
    LIST_FOREACH(task, &followers, next)
    {
        count++;
    }
    http_count(server, &counts);
    snprintf(text, sizeof(text),
             "{\"gone\":%zu,\"live\":%zu,\"followers\":%zu,\"waiting\":%zu,\"closed\":%zu,"
             "\"code\":%u,\"held\":%zu,\"taken\":%zu,\"accepted\":%" PRIu64 ",\"received\":%" PRIu64
             ",\"sent\":%" PRIu64 "}",
             gone_count, live_count, count, most_waiting, closed_count, closed_code,
             counts.held_bytes, taken_bytes, counts.accepted, counts.received_bytes,
             counts.sent_bytes);
    answer_text(request, 200, text);
}

/* ---- answered later ---- */

static void on_later(uv_timer_t *timer)
{
    struct task *task = timer->data;

    answer_text(task->request, 200, "later\n");
}

static void get_later(struct http_request *request, void *data)
{
    struct task *task = task_new(request);

    (void)data;
    uv_timer_start(&task->timer, on_later, number(request, "ms", 10), 0);
}

static struct task *stubborn;

/* Is answered at SIGUSR1, though its client left: the task hears nothing of that. */
static void get_stubborn(struct http_request *request, void *data)
{
    (void)data;
    stubborn = task_new(request);
    http_on_gone(request, NULL, NULL);
}

static void on_answer(uv_signal_t *handle, int number_)
{
    (void)handle;
    (void)number_;
    on_later(&stubborn->timer);
}

static void write_on(void *arg);

static void on_tick(uv_timer_t *timer)
{
    write_on(timer->data);
}

/* Lines one by one with pauses, or as much as there is room for. */
static void write_on(void *arg)
{
    struct task *task = arg;
    static char block[65536];

    memset(block, 'x', sizeof(block));
    while (task->left > 0) {
        size_t size = task->ms > 0 ? 2 : task->left < sizeof(block) ? task->left : sizeof(block);
        size_t waiting = http_write(task->request, task->ms > 0 ? "x\n" : block, size);
        task->left -= task->ms > 0 ? 1 : size;
        most_waiting = waiting > most_waiting ? waiting : most_waiting;
        if (task->ms > 0) {
            uv_timer_start(&task->timer, on_tick, task->ms, 0);
            return;
        }
        if (waiting > backlog_bytes && !task->is_careless) {
            return;
        }
    }
    http_finish(task->request);
}

static void get_stream(struct http_request *request, void *data)
{
    struct task *task = task_new(request);

    (void)data;
    task->left = number(request, "count", 3);
    task->ms = (unsigned)number(request, "ms", 0);
    task->is_careless = number(request, "careless", 0) != 0;
    http_on_drained(request, write_on, task);
    http_stream(request, 200, "text/plain");
    write_on(task);
}

static void get_abort(struct http_request *request, void *data)
{
    (void)data;
    if (number(request, "begin", 1)) {
        http_stream(request, 200, "text/plain");
        http_write(request, "first\n", 6);
        http_write(request, "second\n", 7);
    }
    http_abort(request);
}

static void get_follow(struct http_request *request, void *data)
{
    struct task *task = task_new(request);

    (void)data;
    task->is_follower = true;
    LIST_INSERT_HEAD(&followers, task, next);
    http_stream(request, 200, "text/plain");
}

static void post_publish(struct http_request *request, void *data)
{
    size_t size = 0;
    const void *body = http_body(request, &size);
    struct task *task, *next;

    (void)data;
    for (task = LIST_FIRST(&followers); task; task = next) {
        next = LIST_NEXT(task, next);
        http_write(task->request, body, size);
        if (number(request, "finish", 0)) {
            http_finish(task->request);
        }
    }
    answer_text(request, 200, "published\n");
}

/* ---- bodies in parts ---- */

static void on_resume(uv_timer_t *timer)
{
    struct task *task = timer->data;

    http_body_resume(task->request);
}

static bool on_part(void *arg, const void *bytes, size_t size)
{
    struct task *task = arg;
    const char *text = bytes;
    char line[64];

    task->parts++;
    taken_bytes += size;
    for (size_t i = 0; i < size; i++) {
        task->counted += text[i] == 'u';
    }
    if (size == 0) {
        if (task->tells_parts) {
            snprintf(line, sizeof(line), "%zu parts", task->parts);
        } else {
            snprintf(line, sizeof(line), "%zu", task->counted);
        }
        answer_text(task->request, 200, line);
        return true;
    }
    if (task->left > 0 && task->counted > task->left) {
        answer_text(task->request, 200, "enough");
        return true;
    }
    if (task->holds && task->is_careless) {
        http_body_resume(task->request);
    } else if (task->holds) {
        uv_timer_start(&task->timer, on_resume, task->ms, 0);
    }
    return !task->holds;
}

static void post_upload(struct http_request *request, void *data)
{
    struct task *task = task_new(request);

    (void)data;
    task->ms = (unsigned)number(request, "hold", 0);
    task->holds = task->ms > 0;
    task->is_careless = number(request, "now", 0) != 0;
    task->left = number(request, "enough", 0);
    task->tells_parts = number(request, "parts", 0) != 0;
    http_on_body(request, on_part, task);
}

/* ---- the end ---- */

static void on_drained(void *arg)
{
    (void)arg;
    puts("drained");
    http_stop(server);
}

static void post_drain(struct http_request *request, void *data)
{
    (void)data;
    http_drain(server, (unsigned)number(request, "ms", 1000), on_drained, NULL);
    answer_text(request, 200, "draining\n");
}

static void on_signal(uv_signal_t *handle, int number_)
{
    (void)number_;
    http_stop(server);
    uv_close((uv_handle_t *)handle, NULL);
}

static bool admit(struct http_request *request, void *data)
{
    const char *deny = http_header(request, "X-Deny");
    const char *owner = http_header(request, "X-Owner");

    (void)data;
    if (owner && !http_lane(request, owner, http_header(request, "X-Public") != NULL)) {
        answer_text(request, 429, "too many\n");
        return false;
    }
    if (!deny) {
        return true;
    }
    if (strcmp(deny, "later") == 0) {
        get_later(request, data);
    } else {
        answer_text(request, 401, "denied\n");
    }
    return false;
}

static bool find_owner(const struct http_request *request, char *name, size_t size, void *data)
{
    const char *owner = http_header(request, "X-Owner");

    (void)data;
    snprintf(name, size, "%s", owner ? owner : "");
    return owner != NULL;
}

static void refuse(struct http_request *request, unsigned status, const char *code,
                   const char *detail, void *data)
{
    char text[256];

    (void)data;
    snprintf(text, sizeof(text), "%s: %s", code, detail);
    http_answer(request, status, "application/problem+json", text, strlen(text));
}

static const struct http_route routes[] = {
    {"GET", "/hello", get_hello, 0},
    {"GET", "/nothing", get_nothing, 0},
    {"POST", "/echo", post_echo, 0},
    {"PUT", "/echo", post_echo, 0},
    {"GET", "/param/{first}/and/{second}", get_param, 0},
    {"GET", "/query", get_query, 0},
    {"GET", "/field/{name}", get_field, 0},
    {"GET", "/peer", get_peer, 0},
    {"GET", "/evil", get_evil, 0},
    {"GET", "/big", get_big, 0},
    {"GET", "/stats", get_stats, 0},
    {"GET", "/later", get_later, 0},
    {"GET", "/stubborn", get_stubborn, 0},
    {"GET", "/stream", get_stream, 0},
    {"GET", "/abort", get_abort, 0},
    {"GET", "/follow", get_follow, 0},
    {"POST", "/publish", post_publish, 0},
    {"POST", "/upload", post_upload, HTTP_STREAM_BODY},
    {"POST", "/drain", post_drain, 0},
    {"GET", "/sized", get_sized, 0},
    {"GET", "/pipe", get_pipe, 0},
    {"GET", "/talk", get_talk, 0},
    {"GET", "/source", get_source, 0},
    {"*", "/proxy/{kind}/{port}/**", any_proxy, HTTP_STREAM_BODY},
};

static int listen_on(const char *where, int *port)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    bool is_unix = strncmp(where, "unix:", 5) == 0;
    int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *port = 0;
    if (is_unix) {
        snprintf(path.sun_path, sizeof(path.sun_path), "%s", where + 5);
        unlink(path.sun_path);
    }
    if (fd < 0 ||
        bind(fd, is_unix ? (struct sockaddr *)&path : (struct sockaddr *)&address,
             is_unix ? sizeof(path) : sizeof(address)) ||
        listen(fd, 1024)) {
        perror(where);
        exit(1);
    }
    if (!is_unix && getsockname(fd, (struct sockaddr *)&address, &size) == 0) {
        *port = ntohs(address.sin_port);
    }
    return fd;
}

static bool listens_too; /* on TCP, beside a unix socket */

static void set_limit(struct http_limits *limits, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t value = equals ? strtoul(equals + 1, NULL, 10) : 0;

    if (strncmp(word, "connections=", 12) == 0) {
        limits->connections = value;
    } else if (strncmp(word, "body_bytes=", 11) == 0) {
        limits->body_bytes = value;
    } else if (strncmp(word, "held_bytes=", 11) == 0) {
        limits->held_bytes = value;
    } else if (strncmp(word, "waiting_bytes=", 14) == 0) {
        limits->waiting_bytes = value;
    } else if (strncmp(word, "header_bytes=", 13) == 0) {
        limits->header_bytes = value;
    } else if (strncmp(word, "header_ms=", 10) == 0) {
        limits->header_ms = (unsigned)value;
    } else if (strncmp(word, "body_ms=", 8) == 0) {
        limits->body_ms = (unsigned)value;
    } else if (strncmp(word, "turn_us=", 8) == 0) {
        limits->turn_us = (unsigned)value;
    } else if (strncmp(word, "idle_ms=", 8) == 0) {
        limits->idle_ms = (unsigned)value;
    } else if (strncmp(word, "answer_ms=", 10) == 0) {
        limits->answer_ms = (unsigned)value;
    } else if (strncmp(word, "backlog_bytes=", 14) == 0) {
        limits->backlog_bytes = backlog_bytes = value;
    } else if (strncmp(word, "silent_ms=", 10) == 0) {
        limits->silent_ms = (unsigned)value;
    } else if (strncmp(word, "ping_ms=", 8) == 0) {
        limits->ping_ms = (unsigned)value;
    } else if (strncmp(word, "pong_ms=", 8) == 0) {
        limits->pong_ms = (unsigned)value;
    } else if (strncmp(word, "tcp=", 4) == 0) {
        listens_too = value != 0;
    } else {
        fprintf(stderr, "server: '%s' is no limit\n", word);
        exit(1);
    }
}

/* Of the directory that HTTP_TLS names. */
static int certify(const char *directory, struct error *err)
{
    static char chain[65536], key[65536];
    char paths[2][PATH_MAX];
    struct http_certificate *certificate;
    ssize_t chain_size, key_size;

    (void)snprintf(paths[0], sizeof(paths[0]), "%s/chain.pem", directory);
    (void)snprintf(paths[1], sizeof(paths[1]), "%s/key.pem", directory);
    chain_size = fd_read_file(AT_FDCWD, paths[0], chain, sizeof(chain));
    key_size = fd_read_file(AT_FDCWD, paths[1], key, sizeof(key));
    if (chain_size < 0 || key_size < 0) {
        return error_set(err, "no_file", errno, "cannot read %s", directory);
    }
    struct http_certificate_files files = {.certificate = chain,
                                           .certificate_size = (size_t)chain_size,
                                           .certificate_path = paths[0],
                                           .key = key,
                                           .key_size = (size_t)key_size,
                                           .key_path = paths[1]};
    if (http_certificate_new(&files, &certificate, err)) {
        return -1;
    }
    http_certify(server, certificate);
    return 0;
}

/* ---- the clock ---- */

static uint64_t clock_asked;

static void on_clock(uv_poll_t *news, int status, int events)
{
    (void)news;
    (void)status;
    (void)events;
    clock_asked = set_clock_heard();
}

/* The loop comes here between its timers and its next wait: what was due has run. */
static void on_turned(uv_prepare_t *turned)
{
    (void)turned;
    set_clock_ran(SET_CLOCK_ENGINE, clock_asked);
}

static void follow_clock(uv_poll_t *news, uv_prepare_t *turned)
{
    uv_prepare_init(loop, turned);
    if (set_clock_news() < 0) {
        return;
    }
    uv_poll_init(loop, news, set_clock_news());
    uv_poll_start(news, UV_READABLE, on_clock);
    uv_unref((uv_handle_t *)news);
    uv_prepare_start(turned, on_turned);
    uv_unref((uv_handle_t *)turned);
}

int main(int argc, char **argv)
{
    const char *tls = getenv("HTTP_TLS"); /* NOLINT(concurrency-mt-unsafe) */
    static uv_loop_t the_loop;
    uv_signal_t terminated, answering;
    uv_poll_t news;
    uv_prepare_t turned;
    struct http_options options = {.routes = routes,
                                   .routes_count = sizeof(routes) / sizeof(routes[0]),
                                   .find_owner = find_owner,
                                   .admit = admit,
                                   .refuse = refuse,
                                   .is_tls = tls != NULL};
    struct error err;
    int port = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: server unix:PATH|tcp [LIMIT=VALUE ...]\n");
        return 1;
    }
    for (int i = 2; i < argc; i++) {
        set_limit(&options.limits, argv[i]);
    }
    (void)signal(SIGPIPE, SIG_IGN); /* NOLINT(cert-err33-c) */
    loop = &the_loop;
    if (set_clock_open(&err)) {
        fprintf(stderr, "server: %s\n", err.text);
        return 1;
    }
    uv_loop_init(loop);
    follow_clock(&news, &turned);
    if (http_start(loop, &options, &server, &err) || (tls && certify(tls, &err)) ||
        http_listen(server, listen_on(argv[1], &port), &err) ||
        (listens_too && http_listen(server, listen_on("tcp", &port), &err))) {
        fprintf(stderr, "server: %s\n", err.text);
        return 1;
    }
    uv_signal_init(loop, &terminated);
    uv_signal_start(&terminated, on_signal, SIGTERM);
    uv_unref((uv_handle_t *)&terminated);
    uv_signal_init(loop, &answering);
    uv_signal_start(&answering, on_answer, SIGUSR1);
    uv_unref((uv_handle_t *)&answering);
    printf("ready %d\n", port);
    fflush(stdout);
    uv_run(loop, UV_RUN_DEFAULT);
    if (!uv_is_closing((uv_handle_t *)&terminated)) {
        uv_close((uv_handle_t *)&terminated, NULL);
    }
    uv_close((uv_handle_t *)&answering, NULL);
    uv_close((uv_handle_t *)&turned, NULL);
    if (set_clock_news() >= 0) {
        uv_close((uv_handle_t *)&news, NULL);
    }
    uv_run(loop, UV_RUN_DEFAULT);
    if (uv_loop_close(loop)) {
        fprintf(stderr, "server: the loop still has handles\n");
        return 1;
    }
    return 0;
}
