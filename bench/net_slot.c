/* What the network of a box costs whoever creates it: a fresh network namespace with lo up, and the same with
 * its way out opened, beside each other; opening alone, shutting, opening again; and a connection through the interception
 * beside one within. Needs root.
 *
 * usage: net_slot [ROUNDS] */
#include "base/fd.h"
#include "box/network.h"
#include "series.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define GOAL_NS 800000
#define CONNECTS 50 /* of each round */

static int home;

static _Noreturn void fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "net_slot: %s: %s\n", what, why);
    exit(1);
}

static void need(bool holds, const char *what)
{
    if (!holds)
        fail(what, strerror(errno));
}

/* As keeper/slots.c makes one. */
static int make(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    _cleanup_close_ int any = -1;
    int network;

    need(unshare(CLONE_NEWNET) == 0, "a network namespace");
    network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    need(network >= 0 && any >= 0 && ioctl(any, SIOCSIFFLAGS, &request) == 0, "lo");
    need(setns(home, CLONE_NEWNET) == 0, "the way home");
    return network;
}

/* From connect() until the other end is accepted and both are closed; `listener` is in here or not. */
static void connect_some(int network, int listener, const char *address, uint16_t port,
                         struct series *series)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};

    (void)inet_pton(AF_INET, address, &to.sin_addr);
    need(setns(network, CLONE_NEWNET) == 0, "the network");
    for (int i = 0; i < CONNECTS; i++) {
        uint64_t begun = series_now_ns();
        _cleanup_close_ int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        _cleanup_close_ int server = -1;

        need(connect(client, (struct sockaddr *)&to, sizeof(to)) == 0, "a connection");
        server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        need(server >= 0, "what was dialled");
        series_add(series, series_now_ns() - begun);
    }
    need(setns(home, CLONE_NEWNET) == 0, "the way home");
}

static int listen_within(int network)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(4711), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener;

    need(setns(network, CLONE_NEWNET) == 0, "the network");
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    need(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 &&
             listen(listener, CONNECTS) == 0,
         "a listener");
    need(setns(home, CLONE_NEWNET) == 0, "the way home");
    return listener;
}

static int compare(const void *one, const void *other)
{
    uint64_t first = *(const uint64_t *)one, second = *(const uint64_t *)other;

    return (first > second) - (first < second);
}

static uint64_t print(struct series *series)
{
    qsort(series->samples, series->count, sizeof(series->samples[0]), compare);
    (void)printf("%-38s p50 %6.1f us   p95 %6.1f us   p99 %6.1f us   n %zu\n", series->name,
                 (double)series->samples[series->count / 2] / 1000,
                 (double)series->samples[series->count * 95 / 100] / 1000,
                 (double)series->samples[series->count * 99 / 100] / 1000, series->count);
    return series->samples[series->count / 2];
}

static void round_of(struct series *plain, struct series *opened, struct series *open_only,
                     struct series *shut, struct series *reopen, struct series *within,
                     struct series *through)
{
    struct network_sockets sockets;
    _cleanup_close_ int bare = -1, network = -1, listener = -1;
    struct error err;
    uint64_t begun = series_now_ns(), made;

    bare = make();
    series_add(plain, series_now_ns() - begun);
    begun = series_now_ns();
    network = make();
    made = series_now_ns();
    if (network_open(network, &sockets, &err) < 0)
        fail("a network", err.text);
    series_add(opened, series_now_ns() - begun);
    series_add(open_only, series_now_ns() - made);
    listener = listen_within(network);
    connect_some(network, listener, "127.0.0.1", 4711, within);
    connect_some(network, sockets.tcp, "192.0.2.1", 443, through);
    begun = series_now_ns();
    if (network_shut(network, &err) < 0)
        fail("a network", err.text);
    series_add(shut, series_now_ns() - begun);
    begun = series_now_ns();
    if (network_reopen(network, &err) < 0)
        fail("a network", err.text);
    series_add(reopen, series_now_ns() - begun);
    fd_close(&sockets.tcp);
    fd_close(&sockets.udp);
}

int main(int argc, char **argv)
{
    size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 300;
    struct series plain, opened, open_only, shut, reopen, within, through;
    uint64_t without, with;

    home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    need(home >= 0 && rounds > 0, "to begin");
    series_init(&plain, "a fresh network namespace, lo up", "ns", rounds);
    series_init(&opened, "the same, with its way out opened", "ns", rounds);
    series_init(&open_only, "  opening it", "ns", rounds);
    series_init(&shut, "  shutting it", "ns", rounds);
    series_init(&reopen, "  opening it again", "ns", rounds);
    series_init(&within, "connect and accept within", "ns", rounds * CONNECTS);
    series_init(&through, "connect and accept, intercepted", "ns", rounds * CONNECTS);
    for (size_t i = 0; i < rounds; i++)
        round_of(&plain, &opened, &open_only, &shut, &reopen, &within, &through);
    without = print(&plain);
    with = print(&opened);
    (void)print(&open_only);
    (void)print(&shut);
    (void)print(&reopen);
    (void)print(&within);
    (void)print(&through);
    (void)printf("what is added to a create: %.1f us (goal: 800 us): %s\n",
                 ((double)with - (double)without) / 1000,
                 with < without + GOAL_NS ? "met" : "not met");
    return with < without + GOAL_NS ? 0 : 1;
}
