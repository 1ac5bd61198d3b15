/* `cove port`: a port of a sandbox, carried to this machine as long as the command runs; and `--open`, `--close`,
 * which change what the server's own host listens on.
 *
 * Each connection is a process with a connection to the server of its own: none can hold up another, and what is
 * said and ends on one means nothing to the rest. They end with this command. One that ends in the middle is
 * reset here, too, so that nobody takes what he got for all. */
#include "base/fd.h"
#include "base/parse.h"
#include "cmd/api.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LISTEN_USUAL "127.0.0.1"
#define CONNECTIONS_MAX 512 /* at once: the server has fewer to give */
#define BACKLOG 128
#define ADDRESS_MAX 128

struct port {
    struct options_common common;
    const char *listen;
    bool open, close, is_public;
};

static const struct option_row rows[] = {
    {"listen", "[ADDRESS:]PORT", LISTEN_USUAL ":PORT",
     "where to listen on this machine; port 0 is any that is free", NULL, 'l',
     offsetof(struct port, listen)},
    {"open", NULL, NULL, "let the server's host listen for it, and print the URL", NULL, 0,
     offsetof(struct port, open)},
    {"public", NULL, NULL, "with --open: its path and its name need no key", NULL, 0,
     offsetof(struct port, is_public)},
    {"close", NULL, NULL, "let the server's host listen no more", NULL, 0,
     offsetof(struct port, close)},
    OPTION_JSON("print where it is as one JSON object"),
    OPTION_HELP,
};

static const struct option_table table = {
    .command = "port",
    .usage = "SANDBOX PORT",
    .about =
        "Listens on this machine and carries each connection to a port of a sandbox, wherever\n"
        "the server is, until it is interrupted; any protocol over TCP. With --open it is the\n"
        "server's host that listens, on its loopback, as long as the sandbox lives.",
    .notes =
        "Whoever reaches the address can use the port; on 127.0.0.1 that is this machine alone.",
    .examples = "cove port work 8080\n"
                "cove port work 5432 --listen 15432\n"
                "cove port work 3000 --open",
    OPTION_ROWS(rows),
    .words = 2,
    .words_least = 2,
};

/* ---- the server's host ---- */

static int path_make(char path[API_PATH_MAX], const char *sandbox, const char *what, uint64_t port,
                     struct error *err)
{
    char rest[64];

    (void)snprintf(rest, sizeof(rest), "/%s/%u", what, (unsigned)port);
    return api_path(path, sandbox, rest, err);
}

static int text_print(const char *text, struct error *err)
{
    char line[512];
    int size = snprintf(line, sizeof(line), "%.500s\n", text);

    return cmd_out(line, (size_t)size, err);
}

static int open_print(const struct port *options, const struct doc *answer, struct error *err)
{
    const char *url = doc_text(answer, "url"), *host = doc_text(answer, "host");

    if (options->common.json)
        return doc_print(answer, err);
    if (url == NULL)
        cmd_say("it is open, and can be reached as soon as the sandbox runs");
    else if (text_print(url, err) < 0)
        return -1;
    return host == NULL ? 0 : text_print(host, err);
}

static int open_call(struct client *client, const struct port *options, const char *sandbox,
                     uint64_t port, struct error *err)
{
    _cleanup_doc_ struct doc *body = doc_new();
    _cleanup_doc_ struct doc *answer = NULL;
    char path[API_PATH_MAX], key[CLIENT_KEY_SIZE];
    const struct client_request request = {
        .method = "POST", .path = path, .json = body, .repeat_key = key};
    int failed = doc_set_number(body, "port", port);

    if (options->is_public)
        failed |= doc_set_true(body, "public");
    if (failed != 0)
        return option_no_memory(err);
    if (api_path(path, sandbox, "/ports", err) < 0 || client_repeat_key(key, err) < 0 ||
        client_call(client, &request, &answer, err) < 0)
        return -1;
    return open_print(options, answer, err);
}

static int close_call(struct client *client, const char *sandbox, uint64_t port, struct error *err)
{
    char path[API_PATH_MAX];
    const struct client_request request = {.method = "DELETE", .path = path};

    if (path_make(path, sandbox, "ports", port, err) < 0)
        return -1;
    return client_call(client, &request, NULL, err);
}

/* ---- where to listen ---- */

static int bad_listen(const char *value, struct error *err)
{
    return option_bad_value(err, "listen", value, "that is no address and port",
                            "write PORT, ADDRESS:PORT or [ADDRESS]:PORT, such as 127.0.0.1:8080");
}

/* "8080", "127.0.0.1:8080", "[::1]:8080". */
static int listen_split(const char *value, char host[ADDRESS_MAX], const char **port,
                        struct error *err)
{
    const char *colon = strrchr(value, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - value);
    bool is_bracketed = length > 1 && value[0] == '[' && value[length - 1] == ']';
    struct error ignored;
    uint64_t number;

    *port = colon == NULL ? value : colon + 1;
    if (parse_count("port", *port, 0, 65535, &number, &ignored) < 0 || length >= ADDRESS_MAX ||
        (colon != NULL && length == 0) || (!is_bracketed && memchr(value, ':', length) != NULL))
        return bad_listen(value, err);
    if (is_bracketed)
        (void)snprintf(host, ADDRESS_MAX, "%.*s", (int)length - 2, value + 1);
    else
        (void)snprintf(host, ADDRESS_MAX, "%.*s", (int)length, value);
    if (colon == NULL)
        (void)snprintf(host, ADDRESS_MAX, "%s", LISTEN_USUAL);
    return 0;
}

static int listen_failed(const char *value, int errnum, struct error *err)
{
    const char *remedy = errnum == EADDRINUSE ? "something listens there already; choose another "
                                                "port by --listen, 0 takes one that is free"
                         : errnum == EACCES   ? "ports below 1024 are root's; choose another by "
                                                "--listen"
                                              : "give an address of this machine by --listen";

    return error_set(err, "listen", errnum, "%s: cannot be listened on: %s", value, remedy);
}

static int listen_on(const char *value, struct error *err)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    _cleanup_close_ int fd = -1;
    struct addrinfo *found = NULL;
    char host[ADDRESS_MAX];
    const char *port;
    int yes = 1, errnum = 0;

    if (listen_split(value, host, &port, err) < 0)
        return -1;
    if (getaddrinfo(host, port, &wanted, &found) != 0)
        return bad_listen(value, err);
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        errnum = errno;
    freeaddrinfo(found);
    return errnum != 0 ? listen_failed(value, errnum, err) : fd_take(&fd);
}

static int listen_print(const struct port *options, int listener, uint64_t port, struct error *err)
{
    _cleanup_doc_ struct doc *said = doc_new();
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(address);
    char host[ADDRESS_MAX], service[16], where[ADDRESS_MAX + 24];

    if (getsockname(listener, (struct sockaddr *)&address, &size) < 0 ||
        getnameinfo((struct sockaddr *)&address, size, host, sizeof(host), service, sizeof(service),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return error_set(err, "listen", errno, "the kernel does not say where it listens");
    (void)snprintf(where, sizeof(where), address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
                   service);
    if (!options->common.json)
        return text_print(where, err);
    if (doc_set_text(said, "listen", where) < 0 || doc_set_number(said, "port", port) < 0)
        return option_no_memory(err);
    return doc_print_line(said, err);
}

/* ---- connections ---- */

static void linger(int fd, bool resets)
{
    const struct linger how = {.l_onoff = resets, .l_linger = 0};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &how, sizeof(how));
}

/* A server that is being replaced is waited for. */
static int tunnel_open(struct client *client, const char *path, struct error *err)
{
    uint64_t heard_ms = api_now_ms();

    while (client_tunnel(client, path, err) < 0)
        if (!api_goes_on(client, heard_ms, err))
            return -1;
    return 0;
}

static int connection_carry(const struct client *parent, const char *path, int fd,
                            struct error *err)
{
    _cleanup_client_ struct client *client = NULL;
    int yes = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    linger(fd, true);
    if (client_copy(parent, &client, err) < 0 || tunnel_open(client, path, err) < 0 ||
        client_carry(client, fd, err) < 0)
        return -1;
    linger(fd, false);
    return 0;
}

/* The child's whole life. */
static void connection_run(const struct client *parent, const char *path, int fd, pid_t owner)
{
    struct error err;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != owner)
        _exit(CMD_FAILED);
    if (connection_carry(parent, path, fd, &err) == 0)
        _exit(0);
    (void)api_fail(&err);
    _exit(CMD_FAILED);
}

/* As many as may be: then one has to end first. */
static void reap(unsigned *running)
{
    while (*running > 0 && waitpid(-1, NULL, *running < CONNECTIONS_MAX ? WNOHANG : 0) > 0)
        --*running;
}

static int connections_take(const struct client *client, const char *path, int listener,
                            struct error *err)
{
    const pid_t self = getpid();
    unsigned running = 0;

    for (;;) {
        _cleanup_close_ int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        pid_t child;

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0)
            return error_set(err, "accept", errno, "no further connection can be taken");
        reap(&running);
        child = fork();
        if (child == 0) {
            (void)close(listener);
            connection_run(client, path, fd, self);
        }
        running += child > 0;
        if (child > 0)
            continue;
        linger(fd, true);
        cmd_say("a connection was dropped: there can be no further process; end some");
    }
}

/* That nothing listens yet is worth a word, and that there is no such sandbox is said now and not with the first
 * connection. Who holds a token for ports alone may not look. */
static int look_first(struct client *client, const char *sandbox, uint64_t port, struct error *err)
{
    _cleanup_doc_ struct doc *answer = NULL;
    char path[API_PATH_MAX];
    const struct client_request request = {.path = path};
    const struct doc *ports;

    if (api_path(path, sandbox, "/ports", err) < 0)
        return -1;
    if (client_call(client, &request, &answer, err) < 0)
        return strcmp(err->code, "forbidden") == 0 ? 0 : -1;
    ports = doc_get(answer, "ports");
    for (size_t i = 0; i < doc_count(ports); i++) {
        uint64_t number;

        if (doc_number(doc_at(ports, i), "port", &number) && number == port &&
            doc_true(doc_at(ports, i), "listening"))
            return 0;
    }
    cmd_say("nothing listens on port %u of this sandbox yet; connections are refused until "
            "something does",
            (unsigned)port);
    return 0;
}

static int forward_call(struct client *client, const struct port *options, const char *sandbox,
                        uint64_t port, struct error *err)
{
    _cleanup_close_ int listener = -1;
    char path[API_PATH_MAX], usual[32];

    (void)snprintf(usual, sizeof(usual), LISTEN_USUAL ":%u", (unsigned)port);
    if (path_make(path, sandbox, "tunnels", port, err) < 0 ||
        look_first(client, sandbox, port, err) < 0)
        return -1;
    listener = listen_on(options->listen != NULL ? options->listen : usual, err);
    if (listener < 0 || listen_print(options, listener, port, err) < 0)
        return -1;
    client_abandon(client);
    return connections_take(client, path, listener, err);
}

static int port_call(struct client *client, void *into, const struct option_words *words,
                     struct error *err)
{
    const struct port *options = into;
    uint64_t port;

    if (parse_count("port", words->word[1], 1, 65535, &port, err) < 0)
        return -1;
    if (options->open + options->close + (options->listen != NULL) > 1)
        return error_set(err, "bad_value", 0,
                         "port: --listen, --open and --close are three things to do; give one");
    if (options->is_public && !options->open)
        return error_set(err, "bad_value", 0, "port: --public goes with --open");
    if (options->open)
        return open_call(client, options, words->sandbox, port, err);
    if (options->close)
        return close_call(client, words->sandbox, port, err);
    return forward_call(client, options, words->sandbox, port, err);
}

static int port_run(const struct cmd *cmd, int argc, char **argv)
{
    struct port options = {.common = {.json = false}};

    return api_command(cmd, argc, argv, &options, port_call);
}

const struct cmd cmd_port = {.name = "port",
                             .summary = "carry a port of a sandbox to this machine, or open it",
                             .run = port_run,
                             .table = &table,
                             .target = CMD_TARGET_SANDBOX};
