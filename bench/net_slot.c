/* What the network of a box costs whoever creates it: a fresh network namespace with lo up, and the same with
 * its way out opened, and the same with a veth pair, made by netlink, beside each other; opening alone, shutting,
 * opening again; and a connection through the interception beside one within. Needs root.
 *
 * usage: net_slot OUT ROUNDS */
#include "base/fd.h"
#include "box/network.h"
#include "series.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTS 50 /* of each round */

static int home;
static FILE *out;

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

/* ---- the peer: a veth pair by netlink ---- */

struct asked {
    struct nlmsghdr head;
    union {
        struct ifinfomsg link;
        struct ifaddrmsg address;
        struct rtmsg route;
    };
    char room[256];
};

static size_t begin(struct asked *asked, unsigned type, unsigned flags, size_t body)
{
    asked->head.nlmsg_type = (uint16_t)type;
    asked->head.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    return asked->head.nlmsg_len = (uint32_t)NLMSG_LENGTH(body);
}

static struct rtattr *add(struct asked *asked, unsigned type, const void *value, size_t size)
{
    struct rtattr *added = (struct rtattr *)((char *)asked + NLMSG_ALIGN(asked->head.nlmsg_len));

    added->rta_type = (uint16_t)type;
    added->rta_len = (uint16_t)RTA_LENGTH(size);
    if (size > 0)
        memcpy(RTA_DATA(added), value, size);
    asked->head.nlmsg_len = (uint32_t)(NLMSG_ALIGN(asked->head.nlmsg_len) +
                                       RTA_ALIGN(added->rta_len));
    return added;
}

static void close_nest(struct asked *asked, struct rtattr *nest)
{
    nest->rta_len = (uint16_t)((char *)asked + asked->head.nlmsg_len - (char *)nest);
}

static void ask(int netlink, const struct asked *asked, const char *what)
{
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char room[512];
    } answer;

    need(send(netlink, asked, asked->head.nlmsg_len, 0) == (ssize_t)asked->head.nlmsg_len, what);
    need(recv(netlink, &answer, sizeof(answer), 0) > 0, what);
    errno = answer.head.nlmsg_type == NLMSG_ERROR ? -answer.error.error : EPROTO;
    need(errno == 0, what);
}

static void make_pair(int netlink, int network)
{
    static const struct ifinfomsg none;
    struct asked asked = {.link.ifi_family = AF_UNSPEC};
    struct rtattr *info, *data, *peer;

    (void)begin(&asked, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(asked.link));
    (void)add(&asked, IFLA_IFNAME, "bench-o", sizeof("bench-o"));
    info = add(&asked, IFLA_LINKINFO, NULL, 0);
    (void)add(&asked, IFLA_INFO_KIND, "veth", sizeof("veth"));
    data = add(&asked, IFLA_INFO_DATA, NULL, 0);
    peer = add(&asked, VETH_INFO_PEER, &none, sizeof(none));
    (void)add(&asked, IFLA_IFNAME, "bench-i", sizeof("bench-i"));
    (void)add(&asked, IFLA_NET_NS_FD, &network, sizeof(network));
    close_nest(&asked, peer);
    close_nest(&asked, data);
    close_nest(&asked, info);
    ask(netlink, &asked, "a veth pair");
}

/* Its address, the link up, and with a gateway the way out. */
static void set_up(int netlink, const char *name, const char *text, const char *gateway)
{
    struct in_addr address, by;
    struct asked asked = {.address = {.ifa_family = AF_INET, .ifa_prefixlen = 30}};

    (void)inet_pton(AF_INET, text, &address);
    asked.address.ifa_index = if_nametoindex(name);
    (void)begin(&asked, RTM_NEWADDR, NLM_F_CREATE, sizeof(asked.address));
    (void)add(&asked, IFA_LOCAL, &address, sizeof(address));
    ask(netlink, &asked, "an address");
    asked = (struct asked){.link = {.ifi_index = (int)if_nametoindex(name),
                                    .ifi_flags = IFF_UP,
                                    .ifi_change = IFF_UP}};
    (void)begin(&asked, RTM_NEWLINK, 0, sizeof(asked.link));
    ask(netlink, &asked, "a link");
    if (gateway == NULL)
        return;
    (void)inet_pton(AF_INET, gateway, &by);
    asked = (struct asked){.route = {.rtm_family = AF_INET,
                                     .rtm_table = RT_TABLE_MAIN,
                                     .rtm_protocol = RTPROT_STATIC,
                                     .rtm_type = RTN_UNICAST}};
    (void)begin(&asked, RTM_NEWROUTE, NLM_F_CREATE, sizeof(asked.route));
    (void)add(&asked, RTA_GATEWAY, &by, sizeof(by));
    ask(netlink, &asked, "a route");
}

static int netlink_new(void)
{
    int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    need(netlink >= 0, "netlink");
    return netlink;
}

/* As others give a box a network. It ends with its namespace. */
static void add_veth(int netlink, int network)
{
    _cleanup_close_ int within = -1;

    make_pair(netlink, network);
    set_up(netlink, "bench-o", "192.0.2.1", NULL);
    need(setns(network, CLONE_NEWNET) == 0, "the network");
    within = netlink_new();
    set_up(within, "bench-i", "192.0.2.2", "192.0.2.1");
    need(setns(home, CLONE_NEWNET) == 0, "the way home");
}

static void drop_veth(int netlink)
{
    struct asked asked = {.link.ifi_index = (int)if_nametoindex("bench-o")};

    (void)begin(&asked, RTM_DELLINK, 0, sizeof(asked.link));
    ask(netlink, &asked, "the end of a veth pair");
}

enum { PLAIN, OPENED, OPEN, VETH, VETH_ALL, SHUT, REOPEN, WITHIN, THROUGH, SERIES };

static struct series all[SERIES];

static void round_of_peer(int netlink)
{
    _cleanup_close_ int network = -1;
    uint64_t begun = series_now_ns(), made;

    network = make();
    made = series_now_ns();
    add_veth(netlink, network);
    series_add(&all[VETH_ALL], series_now_ns() - begun);
    series_add(&all[VETH], series_now_ns() - made);
    drop_veth(netlink);
}

static void round_of(void)
{
    struct network_sockets sockets;
    _cleanup_close_ int bare = -1, network = -1, listener = -1;
    struct error err;
    uint64_t begun = series_now_ns(), made;

    bare = make();
    need(bare >= 0, "a network namespace");
    series_add(&all[PLAIN], series_now_ns() - begun);
    begun = series_now_ns();
    network = make();
    made = series_now_ns();
    if (network_open(network, &sockets, &err) < 0)
        fail("a network", err.text);
    series_add(&all[OPENED], series_now_ns() - begun);
    series_add(&all[OPEN], series_now_ns() - made);
    listener = listen_within(network);
    connect_some(network, listener, "127.0.0.1", 4711, &all[WITHIN]);
    connect_some(network, sockets.tcp, "192.0.2.1", 443, &all[THROUGH]);
    begun = series_now_ns();
    if (network_shut(network, &err) < 0)
        fail("a network", err.text);
    series_add(&all[SHUT], series_now_ns() - begun);
    begun = series_now_ns();
    if (network_reopen(network, &err) < 0)
        fail("a network", err.text);
    series_add(&all[REOPEN], series_now_ns() - begun);
    fd_close(&sockets.tcp);
    fd_close(&sockets.udp);
}

int main(int argc, char **argv)
{
    static const char *const names[SERIES] = {
        [PLAIN] = "slot_plain",   [OPENED] = "slot_opened",      [OPEN] = "slot_open",
        [VETH] = "slot_veth",     [VETH_ALL] = "slot_with_veth", [SHUT] = "slot_shut",
        [REOPEN] = "slot_reopen", [WITHIN] = "slot_within",      [THROUGH] = "slot_through"};
    size_t rounds = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    int netlink;

    out = rounds > 0 ? fopen(argv[1], "we") : NULL;
    need(out != NULL && unshare(CLONE_NEWNET) == 0, "to begin"); /* nothing of the host's */
    home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    need(home >= 0, "to begin");
    netlink = netlink_new();
    for (size_t i = 0; i < SERIES; i++)
        series_init(&all[i], names[i], "ns", rounds * (i >= WITHIN ? CONNECTS : 1));
    for (size_t i = 0; i < rounds; i++) {
        round_of();
        round_of_peer(netlink);
    }
    for (size_t i = 0; i < SERIES; i++)
        need(series_write(&all[i], out) == 0, "to write");
    return fclose(out) == 0 ? 0 : 1;
}
