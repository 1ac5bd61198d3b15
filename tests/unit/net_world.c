/* The world of net's tests: see net_world.h. */
#include "net_world.h"

#include "base/fd.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_S 60

static uv_loop_t loop;
uv_loop_t *world_loop = &loop;
static uv_async_t wake;
static sem_t called;
static void (*call_what)(void *arg);
static void *call_arg;
static bool is_over;
static int host_ns = -1, out_ns = -1, box_ns = -1;

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- the loop ---- */

static void on_wake(uv_async_t *async)
{
    if (call_what != NULL) {
        call_what(call_arg);
        call_what = NULL;
        sem_post(&called);
    }
    if (__atomic_load_n(&is_over, __ATOMIC_ACQUIRE))
        uv_close((uv_handle_t *)async, NULL);
}

void world_call(void (*call)(void *arg), void *arg)
{
    call_arg = arg;
    __atomic_store_n(&call_what, call, __ATOMIC_RELEASE);
    uv_async_send(&wake);
    while (sem_wait(&called) < 0)
        ;
}

static void *run_test(void *arg)
{
    ((void (*)(void))arg)();
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    uv_async_send(&wake);
    return NULL;
}

void world_run(void (*test)(void))
{
    pthread_t thread;

    is_over = false;
    sem_init(&called, 0, 0);
    uv_async_init(&loop, &wake, on_wake);
    if (pthread_create(&thread, NULL, run_test, (void *)test) != 0)
        fail("a thread");
    uv_run(&loop, UV_RUN_DEFAULT);
    pthread_join(thread, NULL);
}

/* ---- namespaces ---- */

struct message {
    struct nlmsghdr head;
    char rest[512];
};

static void begin_message(struct message *message, unsigned short type, const void *body,
                          size_t size)
{
    *message = (struct message){
        .head = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE}};
    message->head.nlmsg_len = (unsigned)NLMSG_LENGTH(size);
    memcpy(NLMSG_DATA(&message->head), body, size);
}

/* Returns it, for who nests others in it: close_attribute(). */
static struct rtattr *add(struct message *message, unsigned short type, const void *value,
                          size_t size)
{
    struct rtattr *attribute = (struct rtattr *)(void *)((char *)message +
                                                         NLMSG_ALIGN(message->head.nlmsg_len));

    attribute->rta_type = type;
    attribute->rta_len = (unsigned short)RTA_LENGTH(size);
    if (size > 0)
        memcpy(RTA_DATA(attribute), value, size);
    message->head.nlmsg_len = NLMSG_ALIGN(message->head.nlmsg_len) +
                              (unsigned)RTA_ALIGN(attribute->rta_len);
    return attribute;
}

static void close_attribute(struct message *message, struct rtattr *attribute)
{
    attribute->rta_len = (unsigned short)((char *)message + message->head.nlmsg_len -
                                          (char *)attribute);
}

static int tell_kernel(const struct message *message)
{
    _cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char more[1024];
    } answer;

    if (fd < 0 || send(fd, message, message->head.nlmsg_len, 0) < 0 ||
        recv(fd, &answer, sizeof(answer), 0) < 0)
        return -1;
    errno = -answer.error.error;
    return answer.error.error == 0 ? 0 : -1;
}

static unsigned put(int family, const char *address, char out[16])
{
    inet_pton(family, address, out);
    return family == AF_INET ? 4 : 16;
}

/* `local ADDRESS/BITS dev lo`, or to a gateway. */
static int add_route(int family, const char *address, unsigned char bits, const char *gateway)
{
    struct rtmsg route = {.rtm_family = (unsigned char)family,
                          .rtm_dst_len = bits,
                          .rtm_table = gateway == NULL ? RT_TABLE_LOCAL : RT_TABLE_MAIN,
                          .rtm_protocol = RTPROT_STATIC,
                          .rtm_scope = gateway == NULL ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE,
                          .rtm_type = gateway == NULL ? RTN_LOCAL : RTN_UNICAST};
    struct message message;
    char bytes[16];
    int lo = 1;

    begin_message(&message, RTM_NEWROUTE, &route, sizeof(route));
    add(&message, RTA_DST, bytes, put(family, address, bytes));
    if (gateway == NULL)
        add(&message, RTA_OIF, &lo, sizeof(lo));
    else
        add(&message, RTA_GATEWAY, bytes, put(family, gateway, bytes));
    return tell_kernel(&message);
}

static int add_address(int family, const char *address, unsigned char bits, const char *device)
{
    struct ifaddrmsg body = {.ifa_family = (unsigned char)family,
                             .ifa_prefixlen = bits,
                             .ifa_flags = IFA_F_NODAD,
                             .ifa_index = if_nametoindex(device)};
    struct message message;
    char bytes[16];

    begin_message(&message, RTM_NEWADDR, &body, sizeof(body));
    add(&message, IFA_LOCAL, bytes, put(family, address, bytes));
    return tell_kernel(&message);
}

/* A pair of devices, one of them in `there`. */
static int add_pair(const char *here, const char *name, int there)
{
    struct ifinfomsg body = {.ifi_family = AF_UNSPEC};
    struct rtattr *info, *data, *peer;
    struct message message;

    begin_message(&message, RTM_NEWLINK, &body, sizeof(body));
    add(&message, IFLA_IFNAME, here, strlen(here) + 1);
    info = add(&message, IFLA_LINKINFO, NULL, 0);
    add(&message, IFLA_INFO_KIND, "veth", 4);
    data = add(&message, IFLA_INFO_DATA, NULL, 0);
    peer = add(&message, VETH_INFO_PEER, &body, sizeof(body));
    add(&message, IFLA_IFNAME, name, strlen(name) + 1);
    add(&message, IFLA_NET_NS_FD, &there, sizeof(there));
    close_attribute(&message, peer);
    close_attribute(&message, data);
    close_attribute(&message, info);
    return tell_kernel(&message);
}

static int up(const char *device)
{
    _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq flags = {.ifr_flags = IFF_UP | IFF_RUNNING};

    snprintf(flags.ifr_name, sizeof(flags.ifr_name), "%s", device);
    return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &flags);
}

static int new_ns(int *out)
{
    if (unshare(CLONE_NEWNET) < 0)
        return -1;
    *out = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    return *out < 0 ? -1 : up("lo");
}

/* Where the servers are that boxes dial. */
static int make_outside(void)
{
    if (new_ns(&out_ns) < 0 || add_route(AF_INET, "203.0.113.0", 24, NULL) < 0 ||
        add_route(AF_INET6, "2001:db8::", 32, NULL) < 0)
        return -1;
    if (setns(host_ns, CLONE_NEWNET) < 0 || add_pair("outer", "inner", out_ns) < 0 ||
        add_address(AF_INET, "198.51.100.77", 24, "outer") < 0 ||
        add_address(AF_INET6, "fd00::77", 64, "outer") < 0 || up("outer") < 0)
        return -1;
    if (setns(out_ns, CLONE_NEWNET) < 0 || add_address(AF_INET, "198.51.100.1", 24, "inner") < 0 ||
        add_address(AF_INET6, "fd00::1", 64, "inner") < 0 || up("inner") < 0)
        return -1;
    return setns(host_ns, CLONE_NEWNET) < 0 ||
                   add_route(AF_INET, "203.0.113.0", 24, "198.51.100.1") < 0 ||
                   add_route(AF_INET6, "2001:db8::", 32, "fd00::1") < 0
               ? -1
               : 0;
}

int world_make(void)
{
    struct rlimit files;

    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    uv_loop_init(&loop);
    if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return -1;
    host_ns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    /* A route alone makes an address the host's own, too. */
    if (up("lo") < 0 || add_route(AF_INET, "198.51.100.128", 25, NULL) < 0 || make_outside() < 0)
        return -1;
    if (new_ns(&box_ns) < 0 || add_route(AF_INET, "0.0.0.0", 0, NULL) < 0 ||
        add_route(AF_INET6, "::", 0, NULL) < 0)
        return -1;
    return setns(host_ns, CLONE_NEWNET);
}

/* ---- sockets ---- */

static int new_socket(int ns, int family, int type)
{
    static const struct timeval patience = {.tv_sec = PATIENCE_S};
    static const int on = 1, off = 0;
    int fd;

    if (setns(ns, CLONE_NEWNET) < 0)
        fail("setns");
    fd = socket(family, type | SOCK_CLOEXEC, 0);
    if (setns(host_ns, CLONE_NEWNET) < 0 || fd < 0)
        fail("a socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &on, sizeof(on)); /* IPv4 needs but the route */
    }
    return fd;
}

static socklen_t name_of(const char *address, uint16_t port, struct sockaddr_storage *name)
{
    struct sockaddr_in *in = (struct sockaddr_in *)name;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)name;

    memset(name, 0, sizeof(*name));
    if (inet_pton(AF_INET, address, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        return sizeof(*in);
    }
    inet_pton(AF_INET6, address, &in6->sin6_addr);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    return sizeof(*in6);
}

static int bound(int ns, const char *address, uint16_t port, int type)
{
    struct sockaddr_storage name;
    socklen_t size = name_of(address, port, &name);
    int fd = new_socket(ns, name.ss_family, type);

    if (bind(fd, (struct sockaddr *)&name, size) < 0)
        fail(address);
    if (type == SOCK_STREAM && listen(fd, 1024) < 0)
        fail("listen");
    return fd;
}

int world_listen(const char *address, uint16_t port)
{
    bool is_outside = strncmp(address, "203.", 4) == 0 || strncmp(address, "2001:", 5) == 0;

    return bound(is_outside ? out_ns : host_ns, address, port, SOCK_STREAM);
}

int world_listen_box(uint16_t port)
{
    int fd = bound(box_ns, "::", port, SOCK_STREAM);

    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

int world_udp_box(void)
{
    static const int on = 1;
    int fd = bound(box_ns, "::", 53, SOCK_DGRAM);

    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static int dialled(int ns, const char *address, uint16_t port, int type)
{
    struct sockaddr_storage name;
    socklen_t size = name_of(address, port, &name);
    int fd = new_socket(ns, name.ss_family, type);

    if (connect(fd, (struct sockaddr *)&name, size) < 0)
        fd_close(&fd);
    return fd;
}

int world_dial(const char *address, uint16_t port)
{
    return dialled(box_ns, address, port, SOCK_STREAM);
}

int world_dial_host(const char *address, uint16_t port)
{
    return dialled(host_ns, address, port, SOCK_STREAM);
}

int world_udp_dial(const char *address, uint16_t port)
{
    return dialled(box_ns, address, port, SOCK_DGRAM);
}

int world_accept(int listener)
{
    static const struct timeval patience = {.tv_sec = PATIENCE_S};
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    }
    return fd;
}

bool world_is_asked(int listener)
{
    return poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 0) > 0;
}

void world_pair(int ends[2])
{
    int listener = world_listen("127.0.0.1", 0);
    struct sockaddr_in name = {0};
    socklen_t size = sizeof(name);

    getsockname(listener, (struct sockaddr *)&name, &size);
    ends[0] = world_dial_host("127.0.0.1", ntohs(name.sin_port));
    ends[1] = world_accept(listener);
    close(listener);
}

/* ---- names ---- */

static const struct {
    const char *name;
    const char *addresses[4];
} names[] = {
    {"good.example", {"203.0.113.1"}},
    {"six.example", {"2001:db8::1"}},
    {"both.example", {"203.0.113.1", "2001:db8::dead"}}, /* nobody listens there */
    {"second.example", {"203.0.113.99", "203.0.113.1"}}, /* nor there */
    {"inside.example", {"127.0.0.1"}},
    {"half.example", {"127.0.0.1", "203.0.113.1"}},
    {"metadata.example", {"169.254.169.254"}},
    {"own.example", {"198.51.100.77"}},
    {"zeros.example", {"::"}},
};

/* "\4good\7example\0" to "good.example"; the size on the wire. */
static size_t name_in(const uint8_t *wire, char *text)
{
    size_t at = 0;

    while (wire[at] != 0) {
        memcpy(text, wire + at + 1, wire[at]);
        text += wire[at];
        *text++ = '.';
        at += wire[at] + 1U;
    }
    text[-1] = '\0';
    return at + 1;
}

static void on_question(uv_udp_t *udp, ssize_t size, const uv_buf_t *buffer,
                        const struct sockaddr *from, unsigned flags)
{
    uint8_t packet[1024] = {0};
    char name[256];
    size_t at = 12, is_known = 0, wire;
    unsigned type;

    (void)flags;
    if (size < 17 || size > 512)
        return;
    memcpy(packet, buffer->base, (size_t)size);
    wire = name_in(packet + 12, name);
    type = packet[12 + wire + 1];
    at += wire + 4;
    packet[2] = 0x81;
    packet[3] = 0x80;
    memset(packet + 6, 0, 6); /* whatever else was asked for */
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcasecmp(names[i].name, name) != 0)
            continue;
        is_known = 1;
        for (size_t k = 0; names[i].addresses[k] != NULL; k++) {
            int family = strchr(names[i].addresses[k], ':') != NULL ? AF_INET6 : AF_INET;
            uint8_t address_size = family == AF_INET ? 4 : 16;

            if (type != (family == AF_INET ? DNS_A : DNS_AAAA))
                continue;
            packet[7]++;
            memset(packet + at, 0, 12);
            packet[at] = 0xc0; /* the question's name */
            packet[at + 1] = 12;
            packet[at + 5] = 1;
            packet[at + 3] = (uint8_t)type;
            packet[at + 11] = address_size;
            inet_pton(family, names[i].addresses[k], packet + at + 12);
            at += 12U + address_size;
        }
    }
    if (!is_known)
        packet[3] = 0x83;
    uv_buf_t answer = uv_buf_init((char *)packet, (unsigned)at);
    uv_udp_try_send(udp, &answer, 1, from);
}

static void on_room(uv_handle_t *handle, size_t wanted, uv_buf_t *buffer)
{
    static char room[65536];

    (void)handle;
    (void)wanted;
    *buffer = uv_buf_init(room, sizeof(room));
}

uint16_t world_names(void)
{
    static uv_udp_t udp;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int size = sizeof(name);

    uv_udp_init(&loop, &udp);
    if (uv_udp_bind(&udp, (struct sockaddr *)&name, 0) != 0)
        fail("the names' server");
    uv_udp_recv_start(&udp, on_room, on_question);
    uv_unref((uv_handle_t *)&udp);
    uv_udp_getsockname(&udp, (struct sockaddr *)&name, &size);
    return ntohs(name.sin_port);
}

/* ---- bytes ---- */

struct direction {
    int from, to;
    size_t sent, received, bytes;
    uint64_t out, in; /* the states of two equal generators */
    bool is_equal;
};

static void generate(uint64_t *state, unsigned char *into, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        *state = *state * 6364136223846793005U + 1442695040888963407U;
        into[i] = (unsigned char)(*state >> 56);
    }
}

static bool send_some(struct direction *way, unsigned char *room, size_t size)
{
    uint64_t state = way->out, after = way->out;
    size_t left = way->bytes - way->sent;
    ssize_t n;

    if (size > left)
        size = left;
    generate(&after, room, size);
    n = send(way->from, room, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return errno == EAGAIN;
    generate(&state, room, (size_t)n);
    way->out = state;
    way->sent += (size_t)n;
    return true;
}

static bool receive_some(struct direction *way, unsigned char *room, unsigned char *wanted,
                         size_t size)
{
    ssize_t n = recv(way->to, room, size, MSG_DONTWAIT);

    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    generate(&way->in, wanted, (size_t)n);
    way->is_equal &= memcmp(room, wanted, (size_t)n) == 0;
    way->received += (size_t)n;
    return way->is_equal && way->received <= way->bytes;
}

bool world_exchange(int a, int b, size_t bytes, unsigned seed)
{
    static __thread unsigned char room[1 << 18], wanted[1 << 18];
    struct direction ways[2] = {
        {.from = a, .to = b, .bytes = bytes, .out = seed, .in = seed, .is_equal = true},
        {.from = b, .to = a, .bytes = bytes, .out = ~seed, .in = ~seed, .is_equal = true},
    };
    struct direction *there = &ways[0], *back = &ways[1];

    while (there->received < bytes || back->received < bytes) {
        struct pollfd polls[2] = {
            {.fd = a, .events = (short)(POLLIN | (there->sent < bytes ? POLLOUT : 0))},
            {.fd = b, .events = (short)(POLLIN | (back->sent < bytes ? POLLOUT : 0))},
        };

        if (poll(polls, 2, PATIENCE_S * 1000) <= 0)
            return false;
        for (unsigned i = 0; i < 2; i++) {
            if ((polls[i].revents & POLLOUT) && !send_some(&ways[i], room, sizeof(room)))
                return false;
            if ((polls[i].revents & (POLLIN | POLLERR | POLLHUP)) &&
                !receive_some(&ways[1 - i], room, wanted, sizeof(room)))
                return false;
        }
    }
    return there->is_equal && back->is_equal;
}

int world_end_of(int fd)
{
    static __thread char room[1 << 16];
    ssize_t n;

    do {
        n = recv(fd, room, sizeof(room), 0);
    } while (n > 0);
    return n == 0 ? 0 : errno;
}

int world_end_of_dial(int fd)
{
    int how = fd < 0 ? errno : world_end_of(fd);

    fd_close(&fd);
    return how;
}

static void nothing(void *arg)
{
    (void)arg;
}

unsigned world_fds(void)
{
    unsigned count = 0;
    DIR *dir;

    for (unsigned i = 0; i < 4; i++)
        world_call(nothing, NULL); /* what was closed last is, then */
    dir = opendir("/proc/self/fd");
    if (dir == NULL)
        fail("/proc/self/fd");
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}
