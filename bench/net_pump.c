/* What it costs to go through the engine's pump: bytes a second of one connection, and how long a connection takes
 * to its first byte, directly and through a forward, in turn and in the same run.
 *
 * usage: net_pump [ROUNDS]
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

#define BYTES (4ULL << 30)
#define BLOCK (256U << 10)
#define CONNECTS 2000

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

static void send_all(uint16_t port, const char *name)
{
    int fd = dial(port, 0);
    uint64_t begun, taken;
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
    taken = series_now_ns() - begun;
    printf("  %-8s %6.1f Gbit/s\n", name, (double)BYTES * 8 / (double)taken);
    close(fd);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static double us(uint64_t ns)
{
    return (double)ns / 1000;
}

static void connect_often(uint16_t port, const char *name)
{
    static uint64_t connected[CONNECTS], answered[CONNECTS];

    for (unsigned i = 0; i < CONNECTS; i++) {
        uint64_t begun = series_now_ns();
        int fd = dial(port, 0);
        char c = 'p';

        connected[i] = series_now_ns() - begun;
        if (write(fd, &c, 1) != 1 || read(fd, &c, 1) != 1)
            fail("a byte");
        answered[i] = series_now_ns() - begun;
        close(fd);
    }
    qsort(connected, CONNECTS, sizeof(connected[0]), compare);
    qsort(answered, CONNECTS, sizeof(answered[0]), compare);
    printf("  %-8s connected %5.1f us, first byte %6.1f us (p99 %6.1f us)\n", name,
           us(connected[CONNECTS / 2]), us(answered[CONNECTS / 2]),
           us(answered[CONNECTS / 100 * 99UL]));
}

static _Noreturn void measure(uint16_t direct, uint16_t pumped, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        send_all(direct, "direct");
        send_all(pumped, "pumped");
    }
    for (unsigned i = 0; i < rounds; i++) {
        connect_often(direct, "direct");
        connect_often(pumped, "pumped");
    }
    (void)fflush(stdout);
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
    unsigned rounds = count > 1 ? (unsigned)strtoul(args[1], NULL, 10) : 3;
    struct net *net;
    struct error err;
    uv_signal_t child;
    pid_t server, client;

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
