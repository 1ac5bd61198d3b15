/* The network of a box, opened and shut from outside: see network.h. What is said to the kernel is bytes that
 * were made at build time (network_rules.c), all but for one port.
 *
 * Routes come last and go first, so that there is no moment in which a packet finds a way without the rules; and
 * whoever does this returns to its own namespace, or ends. */
#include "box/network.h"

#include "base/fd.h"
#include "box/network_rules.h"
#include "box/proto.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* <netinet/in.h> and <linux/in6.h> do not go together. */
#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif

/* That wait to be accepted: each can hold as much as its receive buffer. */
#define BACKLOG 128

/* Of each connection, both ways: by itself the kernel lets it grow to megabytes, which are not charged to the box. */
#define BUFFER (256 << 10)

#define BYTES_MAX 8192
_Static_assert(sizeof(network_rules_open) <= BYTES_MAX, "the longest has room");

/* ---- what is said to the kernel ---- */

static size_t acks_wanted(const unsigned char *bytes, size_t size)
{
    size_t wanted = 0;
    struct nlmsghdr head;

    for (size_t at = 0; at + sizeof(head) <= size; at += NLMSG_ALIGN(head.nlmsg_len)) {
        memcpy(&head, bytes + at, sizeof(head));
        wanted += (head.nlmsg_flags & NLM_F_ACK) != 0;
    }
    return wanted;
}

static bool is_gone(int errnum)
{
    return errnum == ESRCH || errnum == ENOENT || errnum == EADDRNOTAVAIL;
}

/* The kernel has answered when sendmsg() returns. 0, or the errno of the first message that failed; with
 * `may_be_gone` it is none that there was nothing to remove. */
static int answers_read(int socket, size_t wanted, bool may_be_gone)
{
    union {
        struct nlmsghdr head;
        char bytes[BYTES_MAX];
    } answer;
    int failed = 0;
    ssize_t size;

    while ((size = recv(socket, &answer, sizeof(answer), MSG_DONTWAIT)) > 0) {
        const struct nlmsghdr *head = &answer.head;

        for (size_t left = (size_t)size; NLMSG_OK(head, left); head = NLMSG_NEXT(head, left)) {
            int errnum;

            if (head->nlmsg_type != NLMSG_ERROR || head->nlmsg_len < NLMSG_LENGTH(sizeof(int)))
                continue;
            errnum = -((const struct nlmsgerr *)NLMSG_DATA(head))->error;
            wanted -= wanted > 0;
            if (failed == 0 && !(may_be_gone && is_gone(errnum)))
                failed = errnum;
        }
    }
    return failed == 0 && wanted > 0 ? EIO : failed;
}

static int say(int protocol, const unsigned char *bytes, size_t size, bool may_be_gone)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    _cleanup_close_ int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    ssize_t sent;

    if (netlink < 0)
        return errno;
    sent = sendto(netlink, bytes, size, 0, (struct sockaddr *)&kernel, sizeof(kernel));
    if (sent != (ssize_t)size)
        return sent < 0 ? errno : EIO;
    return answers_read(netlink, acks_wanted(bytes, size), may_be_gone);
}

#define SAY(protocol, bytes, may_be_gone) say(protocol, bytes, sizeof(bytes), may_be_gone)

static int say_rules(uint16_t port)
{
    const uint16_t value = htons(port);
    unsigned char bytes[sizeof(network_rules_open)];

    memcpy(bytes, network_rules_open, sizeof(bytes));
    for (size_t i = 0; i < sizeof(network_rules_ports) / sizeof(network_rules_ports[0]); i++)
        memcpy(bytes + network_rules_ports[i], &value, sizeof(value));
    return SAY(NETLINK_NETFILTER, bytes, false);
}

/* ---- the sockets ---- */

static int set(int socket, int level, int option, int value)
{
    return setsockopt(socket, level, option, &value, sizeof(value));
}

/* Both families, any address, and what comes of it is known to the rules. */
static int socket_make(int type, uint16_t port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    _cleanup_close_ int made = socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (made < 0 || set(made, IPPROTO_IPV6, IPV6_V6ONLY, 0) < 0 ||
        set(made, IPPROTO_IPV6, IPV6_TRANSPARENT, 1) < 0 ||
        set(made, SOL_SOCKET, SO_MARK, NETWORK_MARK) < 0 ||
        bind(made, (struct sockaddr *)&any, sizeof(any)) < 0)
        return -1;
    return fd_take(&made);
}

static int sockets_on(uint16_t port, struct network_sockets *out)
{
    _cleanup_close_ int tcp = socket_make(SOCK_STREAM, port);
    _cleanup_close_ int udp = tcp < 0 ? -1 : socket_make(SOCK_DGRAM, port);

    if (udp < 0 || set(udp, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1) < 0 ||
        set(tcp, SOL_SOCKET, SO_RCVBUF, BUFFER) < 0 ||
        set(tcp, SOL_SOCKET, SO_SNDBUF, BUFFER) < 0 || listen(tcp, BACKLOG) < 0)
        return -1;
    out->tcp = fd_take(&tcp);
    out->udp = fd_take(&udp);
    return 0;
}

static int sockets_make(struct network_sockets *out, uint16_t *port, struct error *err)
{
    for (*port = NETWORK_TCP_PORT; *port < NETWORK_TCP_PORT + NETWORK_PORTS; ++*port) {
        if (sockets_on(*port, out) == 0)
            return 0;
        if (errno != EADDRINUSE)
            break;
    }
    if (errno == EADDRINUSE)
        return error_set(err, "network_failed", errno,
                         "the box has bound all ports from %d to %d: end what does, or leave them "
                         "to the network",
                         NETWORK_TCP_PORT, NETWORK_TCP_PORT + NETWORK_PORTS - 1);
    if (errno == EAFNOSUPPORT)
        return error_set(err, "network_failed", errno,
                         "the kernel has no IPv6, which the network of a box is made with: boot "
                         "without ipv6.disable=1 (ipv6.disable_ipv6=1 does no harm)");
    return error_set(err, "network_failed", errno, "cannot make the sockets of a box's network");
}

/* ---- in the box's namespace ---- */

static int shut_within(struct error *err)
{
    int failed6 = SAY(NETLINK_ROUTE, network_routes6_shut, true);
    int failed4 = SAY(NETLINK_ROUTE, network_routes4_shut, true);

    if (failed4 == 0 && failed6 == 0)
        return 0;
    return error_set(err, "network_failed", failed4 != 0 ? failed4 : failed6,
                     "cannot take the routes of a box's network away");
}

static int rules_fail(int errnum, struct error *err)
{
    if (errnum == EEXIST)
        return error_set(err, "network_failed", errnum, "the box's network is open already");
    return error_set(err, "network_failed", errnum,
                     "cannot make the rules of a box's network, which needs nftables with TPROXY "
                     "(CONFIG_NFT_TPROXY, the module nft_tproxy)");
}

static int routes_make(struct error *err)
{
    int failed = SAY(NETLINK_ROUTE, network_routes4_open, false);

    if (failed != 0)
        return error_set(err, "network_failed", failed,
                         "cannot make the routes of a box's network");
    /* A host that has switched IPv6 off has it so here: what is dialled by it fails at once, as there. */
    (void)SAY(NETLINK_ROUTE, network_routes6_open, false);
    return 0;
}

static int open_within(struct network_sockets *out, struct error *err)
{
    struct error ignored;
    uint16_t port;
    int failed;

    if (sockets_make(out, &port, err) < 0)
        return -1;
    failed = say_rules(port);
    if (failed == 0 && routes_make(err) == 0)
        return 0;
    if (failed != 0)
        (void)rules_fail(failed, err);
    if (failed == 0) {
        (void)shut_within(&ignored);
        (void)SAY(NETLINK_NETFILTER, network_rules_shut, true);
    }
    fd_close(&out->tcp);
    fd_close(&out->udp);
    return -1;
}

/* `out` gets it as its `tcp`. */
static int make_within(enum network_call call, struct network_sockets *out, struct error *err)
{
    bool dials = call == NETWORK_DIAL;
    _cleanup_close_ int made = socket(dials ? AF_INET6 : AF_NETLINK,
                                      (dials ? SOCK_STREAM : SOCK_RAW) | SOCK_CLOEXEC |
                                          SOCK_NONBLOCK,
                                      dials ? 0 : NETLINK_SOCK_DIAG);

    if (made < 0 || (dials && set(made, IPPROTO_IPV6, IPV6_V6ONLY, 0) < 0))
        return error_set(err, "network_failed", errno, "cannot make a socket in the box's network");
    out->tcp = fd_take(&made);
    return 0;
}

enum what { OPEN, SHUT, REOPEN, DIAL, DIAG };

static int work(enum what what, struct network_sockets *out, struct error *err)
{
    struct error ignored;

    if (what == OPEN)
        return open_within(out, err);
    if (what == DIAL || what == DIAG)
        return make_within(what == DIAL ? NETWORK_DIAL : NETWORK_DIAG, out, err);
    if (what == SHUT)
        return shut_within(err);
    if (routes_make(err) == 0)
        return 0;
    (void)shut_within(&ignored); /* or what was made of them is in the way for ever */
    return -1;
}

/* ---- there and back ---- */

struct said {
    struct error error;
    bool done;
};

static _Noreturn void child(int network, int users, int socket, enum what what)
{
    struct network_sockets sockets = {.tcp = -1, .udp = -1};
    struct said said = {.done = false};
    size_t made;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setns(users, CLONE_NEWUSER) < 0 || setns(network, CLONE_NEWNET) < 0)
        (void)error_set(&said.error, "network_failed", errno, "cannot enter the box's network");
    else
        said.done = work(what, &sockets, &said.error) == 0;
    made = sockets.udp >= 0 ? 2 : sockets.tcp >= 0 ? 1 : 0;
    (void)proto_send(socket, &said, sizeof(said), NULL, 0, (int[]){sockets.tcp, sockets.udp}, made);
    _exit(0);
}

static bool fds_wanted(enum what what, const int *fds)
{
    if (what == OPEN)
        return fds[1] >= 0;
    return what == SHUT || what == REOPEN || fds[0] >= 0;
}

static int child_heard(int socket, enum what what, struct network_sockets *out, struct error *err)
{
    struct said said;
    int fds[PROTO_FDS_MAX];
    ssize_t size = proto_receive(socket, &said, sizeof(said), fds, 0);

    if (size == (ssize_t)sizeof(said) && said.done && fds_wanted(what, fds)) {
        if (out != NULL)
            *out = (struct network_sockets){.tcp = fds[0], .udp = fds[1]};
        return 0;
    }
    for (size_t i = 0; size > 0 && i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]);
    if (size == (ssize_t)sizeof(said) && !said.done)
        *err = said.error;
    else
        (void)error_set(err, "network_failed", size < 0 ? errno : 0,
                        "who was to enter the box's network has ended");
    return -1;
}

/* No root enters a box's user namespace and comes back. */
static int work_in_child(int network, enum what what, struct network_sockets *out,
                         struct error *err)
{
    _cleanup_close_ int users = ioctl(network, NS_GET_USERNS);
    _cleanup_close_ int ours = -1, theirs = -1;
    int pair[2], done;
    pid_t pid;

    if (users < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set(err, "network_failed", errno, "cannot enter the box's network");
    ours = pair[0];
    theirs = pair[1];
    pid = fork();
    if (pid < 0)
        return error_set(err, "network_failed", errno, "cannot enter the box's network");
    if (pid == 0)
        child(network, users, theirs, what);
    fd_close(&theirs);
    done = child_heard(ours, what, out, err);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return done;
}

static int work_there(int network, enum what what, struct network_sockets *out, struct error *err)
{
    _cleanup_close_ int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    struct stat here, there;
    int done;

    if (home < 0 || fstat(home, &here) < 0 || fstat(network, &there) < 0)
        return error_set(err, "network_failed", errno, "cannot look at the box's network");
    if (here.st_ino == there.st_ino && here.st_dev == there.st_dev)
        return error_set(err, "network_failed", 0, "this network is no box's");
    /* Root of a user namespace in the host's network may not come back, and sends a child. */
    if (setns(home, CLONE_NEWNET) < 0 || setns(network, CLONE_NEWNET) < 0)
        return errno == EPERM
                   ? work_in_child(network, what, out, err)
                   : error_set(err, "network_failed", errno, "cannot enter the box's network");
    done = work(what, out, err);
    /* In a box's network we would listen and connect for it: rather not at all. */
    if (setns(home, CLONE_NEWNET) < 0)
        abort();
    return done;
}

int network_open(int network, struct network_sockets *out, struct error *err)
{
    *out = (struct network_sockets){.tcp = -1, .udp = -1};
    return work_there(network, OPEN, out, err);
}

int network_shut(int network, struct error *err)
{
    return work_there(network, SHUT, NULL, err);
}

int network_reopen(int network, struct error *err)
{
    return work_there(network, REOPEN, NULL, err);
}

int network_socket(int network, enum network_call call, int *out, struct error *err)
{
    struct network_sockets made = {.tcp = -1, .udp = -1};

    if (work_there(network, call == NETWORK_DIAL ? DIAL : DIAG, &made, err) < 0)
        return -1;
    *out = made.tcp;
    return 0;
}
