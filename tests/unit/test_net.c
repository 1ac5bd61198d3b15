/* The connections of a box: who reaches what, what is refused and how, what is recorded of it, and what changes when
 * the policy does. The box, the servers and the names are real: see net_world.h. */
#include "check.h"
#include "net/carry.h"
#include "net_world.h"

#include "base/clock.h"
#include "base/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define GOOD "203.0.113.1"
#define ALSO "203.0.113.4"
#define OTHER "203.0.113.2" /* listens, and is not allowed */
#define NOBODY "203.0.113.3"
#define LARGE ((size_t)100 << 20)
#define RECORDS 4096

static struct net *net;
static uint16_t names_port;

/* ---- a box ---- */

struct record {
    struct net_record all;
    char name[POLICY_NAME_MAX], rule[64], reason[32], address[POLICY_ADDRESS_TEXT];
};

struct box {
    struct net *net;
    const char *policy;
    struct net_limits limits;
    uint64_t bytes_used;
    uint16_t port;
    struct net_box *box;
    struct net_counts counts;
    struct record records[RECORDS];
    size_t count;
    const char *wanted;
    char fake4[16], fake6[48];
};

static struct box box;

static void on_record(void *arg, const struct net_record *record)
{
    struct box *one = arg;
    struct record *copy = &one->records[one->count < RECORDS ? one->count++ : RECORDS - 1];

    copy->all = *record;
    snprintf(copy->name, sizeof(copy->name), "%s", record->name != NULL ? record->name : "");
    snprintf(copy->rule, sizeof(copy->rule), "%s", record->rule != NULL ? record->rule : "");
    snprintf(copy->reason, sizeof(copy->reason), "%s", record->reason);
    policy_address_text(&record->address, copy->address);
}

static struct policy *policy_of(const char *text)
{
    struct policy *policy = NULL;
    struct error err = {0};

    CHECK(policy_new_text(text, &policy, &err) == 0, "%s: %s", text, err.text);
    return policy;
}

static void begin(void *arg)
{
    struct box *one = arg;
    struct error err = {0};
    struct net_box_options options = {
        .tenant = "t",
        .names = memfd_create("names", MFD_CLOEXEC),
        .policy = policy_of(one->policy),
        .limits = one->limits,
        .bytes_used = one->bytes_used,
        .record = on_record,
        .arg = one,
    };

    CHECK(net_box_new(one->net, &options, &one->box, &err) == 0, "%s", err.text);
    net_box_attach(one->box, world_listen_box(one->port), world_udp_box());
}

static void end(void *arg)
{
    net_box_free(((struct box *)arg)->box);
}

static void detach(void *arg)
{
    net_box_detach(((struct box *)arg)->box);
}

static void set(void *arg)
{
    struct box *one = arg;

    net_box_set(one->box, policy_of(one->policy), &one->limits);
}

static void count(void *arg)
{
    struct box *one = arg;

    net_box_count(one->box, &one->counts);
}

static void lend(void *arg)
{
    struct box *one = arg;
    uint8_t four[4], six[16];
    bool is_new;
    struct error err = {0};
    int number = names_take(net_box_names(one->box), one->wanted, &is_new, &err);

    CHECK(number > 1, "%s", err.text);
    names_address4((uint32_t)number, four);
    names_address6((uint32_t)number, six);
    inet_ntop(AF_INET, four, one->fake4, sizeof(one->fake4));
    inet_ntop(AF_INET6, six, one->fake6, sizeof(one->fake6));
}

static void box_begin(const char *policy)
{
    box = (struct box){.net = net, .policy = policy, .port = WORLD_PORT};
    world_call(begin, &box);
}

static void box_end(void)
{
    world_call(end, &box);
}

/* The address that stands for a name, as its DNS would have answered it. */
static const char *fake_of(const char *name)
{
    box.wanted = name;
    world_call(lend, &box);
    return box.fake4;
}

/* The newest record, when there are so many. */
static const struct record *record_at(size_t many)
{
    static const struct record none = {.reason = "no record"};

    for (unsigned i = 0; i < 6000; i++) {
        world_call(count, &box);
        if (box.count >= many)
            return &box.records[many - 1];
        usleep(10000);
    }
    return &none;
}

/* A dial of the box that ends with a RST, and the record that it left. */
static const struct record *refused(const char *address)
{
    size_t before;
    int how;

    /* What is recorded of the dial before comes right after its RST. */
    world_call(count, &box);
    before = box.count;
    how = world_end_of_dial(world_dial(address, WORLD_PORT));

    CHECK(how == ECONNRESET, "%s ends so: %s", address, strerror(how));
    return record_at(before + 1);
}

#define CHECK_REFUSED(address, why)                                                                \
    do {                                                                                           \
        const struct record *record_ = refused(address);                                           \
        CHECK(strcmp(record_->reason, why) == 0, "%s: %s", address, record_->reason);              \
        CHECK(record_->all.port == WORLD_PORT && record_->all.kind == NET_CONNECTION, "the rest"); \
    } while (0)

static void close_both(int ends[2])
{
    fd_close(&ends[0]);
    fd_close(&ends[1]);
}

static bool reach(const char *address, int listener, int ends[2])
{
    ends[0] = world_dial(address, WORLD_PORT);
    ends[1] = ends[0] >= 0 ? world_accept(listener) : -1;
    return ends[1] >= 0;
}

/* ---- what must hold ---- */

static void what_a_rule_allows_is_reached(int good)
{
    int ends[2];
    const struct record *record;
    char text[8] = "";

    box_begin("allow=" GOOD);
    CHECK(reach(GOOD, good, ends), "it is reached");
    CHECK(send(ends[0], "hello", 5, 0) == 5 && recv(ends[1], text, 5, MSG_WAITALL) == 5, "a word");
    CHECK(send(ends[1], "abc", 3, 0) == 3 && recv(ends[0], text, 3, MSG_WAITALL) == 3,
          "and one back");
    world_call(count, &box);
    CHECK(box.counts.connections == 1 && box.counts.bytes_out == 5 && box.counts.bytes_in == 3,
          "%u, %llu, %llu", box.counts.connections, (unsigned long long)box.counts.bytes_out,
          (unsigned long long)box.counts.bytes_in);
    shutdown(ends[0], SHUT_WR);
    CHECK(world_end_of(ends[1]) == 0, "its end");
    CHECK(send(ends[1], "last", 4, 0) == 4 && recv(ends[0], text, 4, MSG_WAITALL) == 4,
          "half open");
    fd_close(&ends[1]);
    CHECK(world_end_of(ends[0]) == 0, "the whole end");
    fd_close(&ends[0]);
    record = record_at(1);
    CHECK(record->all.allowed && strcmp(record->reason, "allowed") == 0, "%s", record->reason);
    CHECK(record->all.bytes_out == 5 && record->all.bytes_in == 7, "to the byte");
    CHECK(strcmp(record->address, GOOD) == 0 && record->name[0] == '\0', "%s", record->address);
    CHECK(strstr(record->rule, GOOD) != NULL, "rule %s", record->rule);
    world_call(count, &box);
    CHECK(box.counts.connections == 0 && box.counts.connections_all == 1 && box.counts.denied == 0,
          "counts");
    box_end();
}

static void all_else_is_refused(int other)
{
    box_begin("allow=" GOOD ",good.example");
    CHECK_REFUSED(OTHER, "no_rule");
    CHECK_REFUSED("10.1.2.3", "private");
    CHECK_REFUSED("169.254.169.254", "metadata");
    CHECK_REFUSED("198.51.100.77", "host");
    CHECK_REFUSED("198.51.100.200", "host"); /* by a route */
    CHECK_REFUSED("2001:db8::2", "no_rule");
    CHECK_REFUSED("::ffff:10.0.0.1", "private");
    CHECK_REFUSED("198.18.77.77", "fake");
    CHECK(!world_is_asked(other), "nobody was asked");
    world_call(count, &box);
    CHECK(box.counts.denied == 8 && box.counts.connections == 0, "%llu",
          (unsigned long long)box.counts.denied);
    box_end();
    box_begin("none");
    CHECK_REFUSED(GOOD, "none");
    box_end();
}

static void names_are_dialled_by_what_they_resolve_to(int good, int six)
{
    int ends[2];
    const struct record *record;

    box_begin("allow=*.example,10.0.0.0/8,203.0.113.0/24");
    CHECK(reach(fake_of("good.example"), good, ends), "a name");
    CHECK(world_exchange(ends[0], ends[1], 100000, 1), "works");
    close_both(ends);
    record = record_at(1);
    CHECK(strcmp(record->name, "good.example") == 0 && strcmp(record->address, GOOD) == 0, "%s %s",
          record->name, record->address);
    CHECK(reach(box.fake6, good, ends), "by its other address");
    close_both(ends);
    CHECK(strcmp(record_at(2)->address, GOOD) == 0, "the same");
    CHECK(reach(fake_of("six.example"), six, ends), "IPv6");
    close_both(ends);
    CHECK(strcmp(record_at(3)->address, "2001:db8::1") == 0, "%s", record_at(3)->address);
    CHECK(reach(fake_of("both.example"), good, ends), "the family that answers");
    close_both(ends);
    CHECK(reach(fake_of("second.example"), good, ends), "the address that answers");
    close_both(ends);
    CHECK(reach(fake_of("half.example"), good, ends), "the address that is allowed");
    close_both(ends);
    CHECK(strcmp(record_at(6)->address, GOOD) == 0, "%s", record_at(6)->address);
    CHECK_REFUSED(fake_of("inside.example"), "loopback");
    CHECK_REFUSED(fake_of("metadata.example"), "metadata");
    CHECK_REFUSED(fake_of("own.example"), "host");
    CHECK_REFUSED(fake_of("gone.example"), "no_such_name");
    CHECK_REFUSED(fake_of("good.other"), "no_rule");
    CHECK(!world_is_asked(good), "nobody was asked");
    CHECK_REFUSED(NOBODY, "unreachable");
    CHECK(record_at(box.count)->all.allowed, "that was no refusal");
    box_end();
}

static void a_stream_is_a_stream(int good)
{
    int ends[2];
    const struct record *record;

    box_begin("allow=" GOOD);
    CHECK(reach(GOOD, good, ends), "it is reached");
    CHECK(world_exchange(ends[0], ends[1], LARGE, 5), "100 MB each way");
    close_both(ends);
    record = record_at(1);
    CHECK(record->all.bytes_out == LARGE && record->all.bytes_in == LARGE, "to the byte");
    for (unsigned i = 0; i < 2; i++) {
        const struct linger at_once = {.l_onoff = 1};
        int how;

        CHECK(reach(GOOD, good, ends) && world_exchange(ends[0], ends[1], 10, 1), "it is reached");
        setsockopt(ends[i], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        fd_close(&ends[i]);
        how = world_end_of(ends[1 - i]);
        CHECK(how == ECONNRESET, "a RST of side %u comes as %d", i, how);
        close_both(ends);
    }
    box_end();
}

static void a_new_policy_cuts_what_it_no_longer_allows(int good, int also)
{
    int stays[2] = {-1, -1}, goes[2] = {-1, -1}, named[2] = {-1, -1};
    const struct record *record;

    box_begin("allow=" GOOD "," ALSO ",good.example");
    CHECK(reach(GOOD, good, stays) && reach(ALSO, also, goes) &&
              reach(fake_of("good.example"), good, named),
          "they are reached");
    CHECK(world_exchange(goes[0], goes[1], 1000, 1), "it works");
    box.policy = "allow=203.0.113.0/31";
    world_call(set, &box);
    CHECK(world_end_of(goes[0]) == ECONNRESET && world_end_of(goes[1]) == ECONNRESET, "cut");
    record = record_at(1);
    CHECK(strcmp(record->reason, "cut") == 0 && record->all.bytes_out == 1000, "%s",
          record->reason);
    CHECK(world_exchange(stays[0], stays[1], 100000, 1), "what is allowed goes on");
    CHECK(world_exchange(named[0], named[1], 100000, 1), "by any rule");
    CHECK_REFUSED(ALSO, "no_rule");
    box.policy = "none";
    world_call(set, &box);
    CHECK(world_end_of(stays[0]) == ECONNRESET && world_end_of(named[1]) == ECONNRESET,
          "all of it");
    box.policy = "allow=" GOOD;
    world_call(set, &box);
    close_both(stays);
    CHECK(reach(GOOD, good, stays), "opened again");
    world_call(detach, &box);
    CHECK(world_end_of(stays[0]) == ECONNRESET && world_end_of(stays[1]) == ECONNRESET, "detached");
    close_both(stays);
    close_both(goes);
    close_both(named);
    box_end();
}

static void limits_hold(int good)
{
    static char block[1 << 20];
    int ends[3][2];
    uint64_t begun;
    size_t got = 0;
    ssize_t n;

    box = (struct box){
        .net = net, .policy = "public", .port = WORLD_PORT, .limits = {.connections = 2}};
    world_call(begin, &box);
    CHECK(reach(GOOD, good, ends[0]) && reach(GOOD, good, ends[1]), "two");
    CHECK_REFUSED(GOOD, "limit");
    CHECK(!record_at(1)->all.allowed, "a refusal");
    close_both(ends[0]);
    (void)record_at(2);
    CHECK(reach(GOOD, good, ends[0]), "there is a place again");
    close_both(ends[0]);
    close_both(ends[1]);
    box_end();

    box = (struct box){.net = net,
                       .policy = "public",
                       .port = WORLD_PORT,
                       .bytes_used = 1000,
                       .limits = {.bytes = 101000}};
    world_call(begin, &box);
    CHECK(reach(GOOD, good, ends[0]), "it is reached");
    CHECK(send(ends[0][0], block, 150000, 0) > 0, "more than it may");
    while ((n = recv(ends[0][1], block, sizeof(block), 0)) > 0)
        got += (size_t)n;
    CHECK(n < 0 && errno == ECONNRESET, "cut, not ended");
    CHECK(got <= 100000, "%zu bytes", got);
    CHECK(strcmp(record_at(1)->reason, "limit") == 0, "%s", record_at(1)->reason);
    CHECK(record_at(1)->all.bytes_out == 100000, "%llu",
          (unsigned long long)record_at(1)->all.bytes_out);
    CHECK_REFUSED(GOOD, "limit");
    close_both(ends[0]);
    box.limits.bytes = 1 << 20;
    world_call(set, &box);
    CHECK(reach(GOOD, good, ends[0]), "more is granted");
    close_both(ends[0]);
    box_end();

    box = (struct box){.net = net,
                       .policy = "public",
                       .port = WORLD_PORT,
                       .limits = {.bytes_per_second = 4 << 20}};
    world_call(begin, &box);
    for (unsigned i = 0; i < 2; i++)
        CHECK(reach(GOOD, good, ends[i]), "it is reached");
    begun = clock_monotonic_ns();
    CHECK(world_exchange(ends[0][0], ends[0][1], 2 << 20, 1), "slowly");
    CHECK(world_exchange(ends[1][0], ends[1][1], 1 << 20, 1), "slowly");
    begun = (clock_monotonic_ns() - begun) / 1000000;
    CHECK(begun >= 1200, "6 MiB at 4 MiB/s took %llu ms", (unsigned long long)begun);
    close_both(ends[0]);
    close_both(ends[1]);
    box_end();
}

/* ---- DNS over TCP ---- */

/* One question for an A record; the answer's code, or -1, and its address. */
static int ask(int fd, const char *name, char address[16])
{
    uint8_t packet[512] = {0, 0, 0x12, 0x34, 1, 0, 0, 1};
    size_t at = 14, label = 14;
    uint8_t size[2];

    for (at++; *name != '\0'; name++, at++) {
        packet[at] = (uint8_t)*name;
        if (*name == '.')
            label = at;
        else
            packet[label]++;
        if (*name == '.')
            packet[at] = 0;
    }
    at++;
    packet[at + 1] = packet[at + 3] = 1;
    at += 4;
    packet[1] = (uint8_t)(at - 2);
    if (send(fd, packet, at, 0) != (ssize_t)at || recv(fd, size, 2, MSG_WAITALL) != 2)
        return -1;
    at = (size_t)size[0] << 8 | size[1];
    if (at > sizeof(packet) || recv(fd, packet, at, MSG_WAITALL) != (ssize_t)at)
        return -1;
    if (packet[7] == 1)
        inet_ntop(AF_INET, packet + at - 4, address, 16);
    return packet[3] & 15;
}

/* The same by a datagram; `name` as it is on the wire, of 12 bytes and its end. */
static int ask_datagram(const char *name, char address[16])
{
    uint8_t packet[512] = {0x12, 0x34, 1, 0, 0, 1};
    int fd = world_udp_dial("9.9.9.9", 53);
    ssize_t n;

    memcpy(packet + 12, name, 14);
    packet[27] = packet[29] = 1;
    CHECK(send(fd, packet, 30, 0) == 30, "a question");
    n = recv(fd, packet, sizeof(packet), 0);
    close(fd);
    if (n > 16 && packet[7] == 1)
        inet_ntop(AF_INET, packet + n - 4, address, 16);
    return n > 16 ? packet[3] & 15 : -1;
}

static void port_53_is_the_dns_of_the_box(int good)
{
    char address[16] = "", again[16] = "";
    int fd, ends[2];

    box = (struct box){.net = net, .policy = "allow=*.example", .port = 53};
    world_call(begin, &box);
    fd = world_dial("8.8.8.8", 53);
    CHECK(ask(fd, "good.example", address) == DNS_OK && strncmp(address, "198.18.", 7) == 0, "%s",
          address);
    CHECK(ask(fd, "gone.example", again) == DNS_NO_NAME, "no such name");
    CHECK(ask(fd, "good.other", again) == DNS_NO_NAME, "refused");
    CHECK(ask(fd, "good.example", again) == DNS_OK && strcmp(address, again) == 0, "%s", again);
    shutdown(fd, SHUT_WR);
    CHECK(world_end_of(fd) == 0, "in order");
    close(fd);
    fd = world_dial("2001:db8::53", 53);
    CHECK(ask(fd, "good.example", again) == DNS_OK && strcmp(address, again) == 0, "IPv6");
    CHECK(send(fd, "\xff\xff junk", 7, 0) == 7 && world_end_of(fd) == ECONNRESET,
          "no question is so long");
    close(fd);
    fd = world_dial("8.8.4.4", 53);
    CHECK(send(fd, "\0\3abc", 5, 0) == 5 && world_end_of(fd) == ECONNRESET, "nor is this one");
    close(fd);
    world_call(count, &box);
    CHECK(box.counts.connections_all == 0, "none of them is a connection");
    fd = world_dial("8.8.4.4", 53); /* is open when the box ends */
    CHECK(send(fd, "\0\x40", 2, 0) == 2, "half a question");
    box_end();
    CHECK(world_end_of(fd) == ECONNRESET, "cut");
    close(fd);

    box_begin("allow=*.example");
    CHECK(ask_datagram("\4good\7example", again) == DNS_OK, "a datagram");
    CHECK(ask_datagram("\4gone\7example", address) == DNS_NO_NAME, "no such name");
    CHECK(reach(again, good, ends) && world_exchange(ends[0], ends[1], 1000, 1), "%s leads there",
          again);
    close_both(ends);
    box_end();
}

/* ---- a proxy ---- */

static struct net *proxied;
static uint16_t proxy_port_number;
static bool proxy_has_names;

static void open_proxied(void *arg)
{
    char url[64], names[32];
    struct net_options options = {
        .loop = world_loop, .resolvers = names, .proxy = url, .proxy_names = proxy_has_names};
    struct error err = {0};

    (void)arg;
    snprintf(url, sizeof(url), "http://user:p%%40ss@127.0.0.1:%u", proxy_port_number);
    snprintf(names, sizeof(names), "127.0.0.1:%u", names_port);
    CHECK(net_open(&options, &proxied, &err) == 0, "%s", err.text);
}

static void close_net(void *arg)
{
    net_close(arg, NULL, NULL);
}

/* What the box dials at the proxy, the request that comes there, and what the proxy says then. */
static void through(int proxy, const char *address, const char *request, const char *says,
                    const char *gets)
{
    char text[2048] = "", head[256];
    int fd = world_dial(address, WORLD_PORT), ours = world_accept(proxy);
    size_t used = 0;
    ssize_t n;

    while (strstr(text, "\r\n\r\n") == NULL &&
           (n = recv(ours, text + used, sizeof(text) - 1 - used, 0)) > 0)
        used += (size_t)n;
    snprintf(head, sizeof(head), "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n", request, WORLD_PORT,
             request, WORLD_PORT);
    CHECK(strncmp(text, head, strlen(head)) == 0, "%s", text);
    CHECK(strstr(text, "\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n") != NULL, "%s", text);
    for (const char *c = says; *c != '\0'; c++) { /* however it comes */
        CHECK(send(ours, c, 1, MSG_NOSIGNAL) == 1 || gets == NULL, "a byte");
        usleep(100);
    }
    if (gets == NULL) {
        CHECK(world_end_of(fd) == ECONNRESET, "refused");
    } else {
        memset(text, 0, sizeof(text));
        CHECK(recv(fd, text, strlen(gets), MSG_WAITALL) == (ssize_t)strlen(gets), "something");
        CHECK(strcmp(text, gets) == 0, "%s", text);
        CHECK(world_exchange(fd, ours, 100000, 1), "and so on");
    }
    close(fd);
    close(ours);
}

static int begin_proxied(bool has_names)
{
    int proxy = world_listen("127.0.0.1", 0);
    struct sockaddr_in name = {0};
    socklen_t size = sizeof(name);

    proxy_has_names = has_names;
    getsockname(proxy, (struct sockaddr *)&name, &size);
    proxy_port_number = ntohs(name.sin_port);
    world_call(open_proxied, NULL);
    box = (struct box){.net = proxied,
                       .policy = "allow=*.example,203.0.113.0/24,2001:db8::/32",
                       .port = WORLD_PORT};
    world_call(begin, &box);
    return proxy;
}

/* It is told what was judged: whoever owns a name cannot answer it another address. */
static void a_proxy_is_asked(void)
{
    int proxy = begin_proxied(false);
    char address[16] = "";

    through(proxy, GOOD, GOOD, "HTTP/1.1 200 Fine\r\nX: y\r\n\r\nhello", "hello");
    through(proxy, "2001:db8::1", "[2001:db8::1]", "HTTP/1.1 200 Fine\r\n\r\nhello", "hello");
    through(proxy, fake_of("good.example"), GOOD, "HTTP/1.0 200\r\n\r\nhello", "hello");
    through(proxy, fake_of("six.example"), "[2001:db8::1]", "HTTP/1.0 200\r\n\r\nhello", "hello");
    through(proxy, fake_of("both.example"), GOOD, "HTTP/1.0 200\r\n\r\nhello", "hello");
    through(proxy, fake_of("half.example"), GOOD, "HTTP/1.0 200\r\n\r\nhello", "hello");
    CHECK(ask_datagram("\4gone\7example", address) == DNS_NO_NAME, "it is not there");
    CHECK_REFUSED(fake_of("unknown.example"), "no_such_name");
    CHECK_REFUSED(fake_of("inside.example"), "loopback");
    CHECK_REFUSED("198.51.100.200", "host");
    CHECK(!world_is_asked(proxy), "it was not asked");
    /* The name's address is denied while the proxy thinks; the name is not. */
    int fd = world_dial(fake_of("good.example"), WORLD_PORT), ours = world_accept(proxy);
    char text[2048] = "";
    while (strstr(text, "\r\n\r\n") == NULL &&
           recv(ours, text + strlen(text), sizeof(text) - 1 - strlen(text), 0) > 0)
        continue;
    box.policy = "allow=*.example,deny=203.0.113.0/24";
    world_call(set, &box);
    CHECK(send(ours, "HTTP/1.1 200\r\n\r\nhello", 21, MSG_NOSIGNAL) == 21, "an answer");
    CHECK(world_end_of(fd) == ECONNRESET, "refused after all");
    close(fd);
    close(ours);
    box_end();
    world_call(close_net, proxied);
    close(proxy);
}

static void a_proxy_is_told_names(void)
{
    int proxy = begin_proxied(true);
    char address[16] = "";

    through(proxy, GOOD, GOOD, "HTTP/1.1 200 Fine\r\nX: y\r\n\r\nhello", "hello");
    through(proxy, "2001:db8::1", "[2001:db8::1]", "HTTP/1.1 200 Fine\r\n\r\nhello", "hello");
    through(proxy, fake_of("good.example"), "good.example", "HTTP/1.0 200\r\n\r\nhello", "hello");
    through(proxy, fake_of("unknown.example"), "unknown.example", "HTTP/1.1 200 Fine\r\n\r\nhello",
            "hello");
    CHECK(ask_datagram("\4gone\7example", address) == DNS_OK, "who knows");
    through(proxy, address, "gone.example", "HTTP/1.1 200 Fine\r\n\r\nhello", "hello");
    through(proxy, GOOD, GOOD, "HTTP/1.1 403 No\r\n\r\n", NULL);
    through(proxy, GOOD, GOOD, "SSH-2.0-x\r\n\r\n", NULL);
    CHECK_REFUSED("198.51.100.77", "host");
    CHECK_REFUSED("192.0.2.1", "no_rule");
    CHECK_REFUSED(fake_of("inside.example"), "loopback");
    CHECK_REFUSED(fake_of("half.example"), "loopback");
    CHECK_REFUSED(fake_of("zeros.example"), "loopback");
    CHECK_REFUSED(fake_of("unknown.other"), "no_rule");
    CHECK(!world_is_asked(proxy), "it was not asked");
    /* One whose policy changes while the proxy thinks. */
    int fd = world_dial(GOOD, WORLD_PORT), ours = world_accept(proxy);
    box.policy = "none";
    world_call(set, &box);
    CHECK(world_end_of(fd) == ECONNRESET && world_end_of(ours) == ECONNRESET, "cut at once");
    close(fd);
    close(ours);
    box_end();
    world_call(close_net, proxied);
    close(proxy);
}

/* ---- all of it ---- */

static void open_net(void *arg)
{
    char names[32];
    struct net_options options = {.loop = world_loop, .resolvers = names};
    struct error err = {0};

    (void)arg;
    names_port = world_names();
    snprintf(names, sizeof(names), "127.0.0.1:%u", names_port);
    CHECK(net_open(&options, &net, &err) == 0, "%s", err.text);
}

static void proxy_urls(void)
{
    static const char *const bad[] = {"",
                                      "https://a:1",
                                      "http://a",
                                      "http://:80",
                                      "http://a:0",
                                      "http://a:65536",
                                      "http://user@a:1",
                                      "http://u:%4@a:1",
                                      "http://u:%0a@a:1",
                                      "http://a b:80"};
    struct proxy *proxy;
    struct error err;
    bool ok;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(proxy_new(bad[i], &proxy, &err) < 0 && strstr(err.text, "http://[USER") != NULL, "%s",
              bad[i]);
    CHECK(proxy_new("http://u:secret%@h:1", &proxy, &err) < 0 && strstr(err.text, "secret") == NULL,
          "%s", err.text);
    CHECK(proxy_new("http://[2001:db8::1]:3128/", &proxy, &err) == 0, "%s", err.text);
    CHECK(strcmp(proxy_host(proxy), "2001:db8::1") == 0 && proxy_port(proxy) == 3128, "%s",
          proxy_host(proxy));
    proxy_free(proxy);
    CHECK(proxy_new("http://proxy.example:3128", &proxy, &err) == 0, "%s", err.text);
    proxy_free(proxy);
    CHECK(proxy_answer("HTTP", 4, &ok) == 0 && proxy_answer("HTTX", 4, &ok) == SIZE_MAX, "early");
    CHECK(proxy_answer("HTTP/1.1 200 x\r\n\r\nmore", 22, &ok) == 18 && ok, "yes");
    CHECK(proxy_answer("HTTP/1.1 502 x\r\n\r\n", 18, &ok) == 18 && !ok, "no");
    CHECK(proxy_answer("HTTP/1.1\r\n\r\n", 12, &ok) == 12 && !ok, "nothing");
}

static void test(void)
{
    unsigned before = world_fds();
    int good = world_listen(GOOD, WORLD_PORT), other = world_listen(OTHER, WORLD_PORT);
    int also = world_listen(ALSO, WORLD_PORT), six = world_listen("2001:db8::1", WORLD_PORT);

    proxy_urls();
    world_call(open_net, NULL);
    what_a_rule_allows_is_reached(good);
    all_else_is_refused(other);
    names_are_dialled_by_what_they_resolve_to(good, six);
    a_stream_is_a_stream(good);
    a_new_policy_cuts_what_it_no_longer_allows(good, also);
    limits_hold(good);
    port_53_is_the_dns_of_the_box(good);
    a_proxy_is_asked();
    a_proxy_is_told_names();
    world_call(close_net, net);
    close(good);
    close(other);
    close(also);
    close(six);
    CHECK(world_fds() <= before + 3, "%u fds, %u before", world_fds(), before);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (world_make() < 0) {
        perror("test_net: namespaces");
        return 1;
    }
    world_run(test);
    uv_loop_close(world_loop);
    return check_finish();
}
