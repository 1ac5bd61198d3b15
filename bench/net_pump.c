/* What it costs to go through the engine's pump: bytes a second of one connection, and how long a connection takes
 * to its first byte, directly and through a forward, in turn and in the same run.
 *
 * usage: net_pump OUT ROUNDS
 * Whoever sends, receives and connects is a process of its own; the pump is this one, alone in its loop. All is on
 * the loopback, so that nothing but the pump and the kernel is measured. */
#include "net/net.h"
#include "series.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (1ULL << 30)
#define BLOCK (256U << 10)
#define CONNECTS 500 /* of each round */

static char block[BLOCK];
static uint16_t target_port;
static struct net_forward *forward;

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int listener_new(uint16_t *port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&name, size) < 0 || listen(fd, 128) < 0 ||
        getsockname(fd, (struct sockaddr *)&name, &size) < 0)
        fail("a listener");
    *port = ntohs(name.sin_port);
    return fd;
}

static int dial(uint16_t port, int flags)
{
    struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0 && flags == 0)
        fail("connect");
    return fd;
}

/* ---- the server: 'r' receives all, 'p' answers a byte ---- */

static _Noreturn void serve(int listener)
{
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        char what;

        if (fd < 0 || read(fd, &what, 1) != 1) {
            close(fd);
            continue;
        }
        if (what == 'r')
            while (read(fd, block, sizeof(block)) > 0)
                ;
        (void)!write(fd, &what, 1);
        close(fd);
    }
}

/* ---- the client, which measures ---- */

static void send_all(uint16_t port, struct series *series)
{
    int fd = dial(port, 0);
    uint64_t begun;
    char c = 'r';

    if (write(fd, &c, 1) != 1)
        fail("write");
    begun = series_now_ns();
    for (uint64_t left = BYTES; left > 0;) {
        ssize_t n = write(fd, block, sizeof(block));

        if (n <= 0)
            fail("write");
        left -= (uint64_t)n < left ? (uint64_t)n : left;
    }
    shutdown(fd, SHUT_WR);
    if (read(fd, &c, 1) != 1)
        fail("the end");
    series_add(series, series_now_ns() - begun);
    close(fd);
}

static void connect_often(uint16_t port, struct series *series)
{
    for (unsigned i = 0; i < CONNECTS; i++) {
        uint64_t begun = series_now_ns();
        int fd = dial(port, 0);
        char c = 'p';

        if (write(fd, &c, 1) != 1 || read(fd, &c, 1) != 1)
            fail("a byte");
        series_add(series, series_now_ns() - begun);
        close(fd);
    }
}

static FILE *out;

static _Noreturn void measure(uint16_t direct, uint16_t pumped, unsigned rounds)
{
    struct series sent[2], first[2];

    series_init(&sent[0], "pump_direct", "ns", rounds);
    series_init(&sent[1], "pump_pumped", "ns", rounds);
    series_init(&first[0], "pump_direct_first", "ns", (size_t)rounds * CONNECTS);
    series_init(&first[1], "pump_pumped_first", "ns", (size_t)rounds * CONNECTS);
    for (unsigned i = 0; i < rounds; i++) {
        send_all(direct, &sent[0]);
        send_all(pumped, &sent[1]);
        connect_often(direct, &first[0]);
        connect_often(pumped, &first[1]);
    }
    for (unsigned i = 0; i < 2; i++)
        if (series_write(&sent[i], out) < 0 || series_write(&first[i], out) < 0)
            fail("cannot write the results");
    (void)fflush(out);
    _exit(0);
}

/* ---- the pump ---- */

static void on_connect(void *arg, uint64_t number)
{
    (void)arg;
    net_forward_connected(forward, number, dial(target_port, SOCK_NONBLOCK));
}

static void on_child(uv_signal_t *handle, int number)
{
    (void)number;
    uv_stop(handle->loop);
}

int main(int count, char **args)
{
    uv_loop_t *loop = uv_default_loop();
    struct net_options options = {.loop = loop, .resolvers = "127.0.0.1"};
    uint16_t pumped_port;
    int target = listener_new(&target_port), listener = listener_new(&pumped_port), status = 0;
    unsigned rounds = count == 3 ? (unsigned)strtoul(args[2], NULL, 10) : 0;
    struct net *net;
    struct error err;
    uv_signal_t child;
    pid_t server, client;

    out = rounds > 0 ? fopen(args[1], "we") : NULL;
    if (out == NULL)
        fail("usage");
    (void)signal(SIGPIPE, SIG_IGN);
    server = fork();
    if (server == 0)
        serve(target);
    client = fork();
    if (client == 0)
        measure(target_port, pumped_port, rounds);
    uv_signal_init(loop, &child);
    uv_signal_start(&child, on_child, SIGCHLD);
    if (net_open(&options, &net, &err) < 0 ||
        net_forward_new(net, listener, 64, on_connect, NULL, &forward, &err) < 0) {
        (void)fprintf(stderr, "bench: %s\n", err.text);
        exit(1);
    }
    uv_run(loop, UV_RUN_DEFAULT);
    (void)kill(server, SIGKILL);
    return waitpid(client, &status, 0) == client && status == 0 ? 0 : 1;
}
