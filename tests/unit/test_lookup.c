/* The DNS of a box from end to end: real datagrams on loopback to a socket as a box's is, a real name
 * server behind it, a policy, and a file of names. What net.c gives to lookup.c is given here. */
#include "check.h"
#include "name_server.h"

#include "base/clock.h"
#include "base/fd.h"
#include "net/parts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_NS (60 * 1000000000ULL)

/* ---- a box ---- */

struct net {
    struct resolver *resolver;
    struct syncs *syncs;
};

struct net_box {
    struct policy *policy;
    struct names *names;
    struct net_limits limits;
    unsigned allowed, refused, limited; /* records */
    char name[POLICY_NAME_MAX], reason[32];
};

static uv_loop_t loop;
static struct net net;
static struct net_box box;
static struct tenants tenants;
static struct net_tenant *tenant;

uv_loop_t *net_loop(const struct net *of)
{
    (void)of;
    return &loop;
}

struct resolver *net_resolver(const struct net *of)
{
    return of->resolver;
}

struct syncs *net_syncs(const struct net *of)
{
    return of->syncs;
}

struct net *net_box_net(const struct net_box *of)
{
    (void)of;
    return &net;
}

bool net_proxy_has_names(const struct net *of)
{
    (void)of;
    return false;
}

struct net_tenant *net_box_tenant(const struct net_box *of)
{
    (void)of;
    return tenant;
}

const void *net_box_lane(const struct net_box *of)
{
    return of;
}

struct names *net_box_names(const struct net_box *of)
{
    return of->names;
}

void net_box_count_names(struct net_box *of)
{
    (void)of;
}

const struct net_limits *net_box_limits(const struct net_box *of)
{
    return &of->limits;
}

const struct policy *net_box_policy(const struct net_box *of)
{
    return of->policy;
}

void net_box_record(struct net_box *of, const struct net_record *record)
{
    bool is_limit = strcmp(record->reason, "limit") == 0;

    of->limited += is_limit;
    of->allowed += record->allowed;
    of->refused += !record->allowed && !is_limit;
    (void)snprintf(of->name, sizeof(of->name), "%s", record->name);
    (void)snprintf(of->reason, sizeof(of->reason), "%s", record->reason);
}

/* ---- a program in it ---- */

struct answer {
    size_t size;
    unsigned id, code, count, ttl_s;
    char address[INET6_ADDRSTRLEN];
    uint8_t packet[DNS_UDP_MAX];
};

static struct name_server server;
static struct lookups *lookups;
static int names_file, box_udp;

/* As network_open() makes it, but for the port, which is told. */
static int box_socket(uint16_t *port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), off = 0, on = 1;

    CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
              setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on)) == 0 &&
              bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 &&
              getsockname(fd, (struct sockaddr *)&at, &size) == 0,
          "no socket");
    *port = ntohs(at.sin6_port);
    box_udp = fd;
    return fd;
}

/* Connected, so that an answer from another address than the one that was asked is not seen. */
static int client_of(const char *address, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    CHECK(is_v4 || inet_pton(AF_INET6, address, &v6.sin6_addr) == 1, "%s", address);
    CHECK(connect(fd, is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6,
                  is_v4 ? sizeof(v4) : sizeof(v6)) == 0,
          "%s", address);
    return fd;
}

static size_t question_of(uint8_t *packet, unsigned id, const char *name, enum dns_type type)
{
    const uint8_t header[12] = {(uint8_t)(id >> 8), (uint8_t)id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1};
    const uint8_t end[] = {0, 0, (uint8_t)type, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0};
    size_t at = sizeof(header);

    memcpy(packet, header, sizeof(header));
    while (*name != '\0') {
        size_t length = strcspn(name, ".");

        packet[at++] = (uint8_t)length;
        memcpy(packet + at, name, length);
        at += length;
        name += length + (name[length] == '.');
    }
    memcpy(packet + at, end, sizeof(end));
    return at + sizeof(end);
}

static void send_question(int client, unsigned id, const char *name, enum dns_type type)
{
    uint8_t packet[512];
    size_t size = question_of(packet, id, name, type);

    (void)!write(client, packet, size);
}

/* Reads what dns_answer() made, by hand. */
static void read_answer(struct answer *answer, const uint8_t *packet, size_t size)
{
    size_t at = 12;

    memset(answer, 0, sizeof(*answer));
    answer->size = size;
    if (size < 12)
        return;
    memcpy(answer->packet, packet, size);
    answer->id = (unsigned)(packet[0] << 8 | packet[1]);
    answer->code = packet[3] & 0xfU;
    answer->count = packet[7];
    while (at < size && packet[at] != 0)
        at += packet[at] + 1U;
    at += 5;
    if (answer->count == 0 || at + 12 > size)
        return;
    answer->ttl_s = packet[at + 9];
    (void)inet_ntop(packet[at + 11] == 4 ? AF_INET : AF_INET6, packet + at + 12, answer->address,
                    sizeof(answer->address));
}

static bool take_answer(int client, struct answer *answer)
{
    uint8_t packet[DNS_UDP_MAX];
    ssize_t size = recv(client, packet, sizeof(packet), MSG_DONTWAIT);

    if (size < 0)
        return false;
    read_answer(answer, packet, (size_t)size);
    return true;
}

static void run_until_answer(int client, struct answer *answer)
{
    uint64_t end = clock_monotonic_ns() + PATIENCE_NS;

    memset(answer, 0, sizeof(*answer));
    while (!take_answer(client, answer) && clock_monotonic_ns() < end) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        (void)usleep(500);
    }
}

static struct answer asked(int client, const char *name, enum dns_type type)
{
    static unsigned id;
    struct answer answer;

    send_question(client, ++id, name, type);
    run_until_answer(client, &answer);
    CHECK(answer.id == id, "%s: no answer to this question", name);
    return answer;
}

static bool says(const struct answer *answer, const char *text)
{
    return memmem(answer->packet, answer->size, text, strlen(text)) != NULL;
}

/* ---- what must hold ---- */

static void begin(uint16_t *port)
{
    struct error err = {0};
    int again = fcntl(names_file, F_DUPFD_CLOEXEC, 3);

    memset(&box, 0, sizeof(box));
    box.limits.lookups_per_second = 50;
    CHECK(policy_new_text("allow=*.example,deny=no.example", &box.policy, &err) == 0, "%s",
          err.text);
    CHECK(names_open(again, &box.names, &err) == 0, "%s", err.text);
    lookups = lookups_new(&box);
    lookups_attach(lookups, box_socket(port));
}

static void end(void)
{
    lookups_free(lookups);
    names_close(box.names);
    policy_free(box.policy);
}

static void test_addresses(int v4, int v6)
{
    struct answer answer = asked(v4, "V4.Example", DNS_A);
    unsigned upstream;

    CHECK(answer.code == DNS_OK && strcmp(answer.address, "198.18.0.2") == 0, "%s", answer.address);
    CHECK(answer.ttl_s == 60, "%u", answer.ttl_s);
    CHECK(says(&answer, "\2V4\7Example"), "not in the letters of the client");
    answer = asked(v6, "v4.example", DNS_AAAA);
    CHECK(strcmp(answer.address, "fd63:6f76:6500::2") == 0,
          "both families, whichever the host has: %s", answer.address);
    answer = asked(v4, "b.example", DNS_A);
    CHECK(strcmp(answer.address, "198.18.0.3") == 0, "%s", answer.address);
    CHECK(box.allowed == 2 && box.refused == 0, "%u, %u records", box.allowed, box.refused);
    answer = asked(v6, "nx.example", DNS_A);
    CHECK(answer.code == DNS_NO_NAME && answer.count == 0, "%u", answer.code);
    CHECK(strcmp(box.reason, "no_such_name") == 0 && strcmp(box.name, "nx.example") == 0,
          "%s of %s", box.reason, box.name);
    answer = asked(v6, "empty.example", DNS_A);
    CHECK(answer.code == DNS_OK && answer.count == 0, "%u", answer.code);
    answer = asked(v6, "fail.example", DNS_A);
    CHECK(answer.code == DNS_FAILED && says(&answer, "did not answer"), "%u", answer.code);
    upstream = server.asked;
    answer = asked(v4, "b.example", DNS_TXT);
    CHECK(answer.code == DNS_OK && answer.count == 0, "%u", answer.code);
    answer = asked(v4, "b.example", DNS_HTTPS);
    CHECK(answer.code == DNS_OK && answer.count == 0, "%u", answer.code);
    answer = asked(v4, "8.8.8.8.in-addr.arpa", DNS_PTR);
    CHECK(answer.code == DNS_NO_NAME, "%u", answer.code);
    answer = asked(v4, "localhost", DNS_A);
    CHECK(strcmp(answer.address, "127.0.0.1") == 0, "%s", answer.address);
    answer = asked(v6, "x.localhost", DNS_AAAA);
    CHECK(strcmp(answer.address, "::1") == 0, "%s", answer.address);
    CHECK(server.asked == upstream, "%u questions left", server.asked - upstream);
}

static void test_refused(int client)
{
    /* What is no host name has none in its record; two such ones in a row are one. */
    static const char *const names[] = {"no.example", "elsewhere.test",      "example", "xexample",
                                        "8.8.8.8",    "localhost.evil.test", ""};
    unsigned upstream = server.asked, before = box.refused;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct answer answer = asked(client, names[i], DNS_A);

        CHECK(answer.code == DNS_NO_NAME && answer.count == 0, "\"%s\": %u", names[i], answer.code);
        CHECK(says(&answer, "the network policy of this sandbox refuses it ("), "\"%s\"", names[i]);
        answer = asked(client, names[i], DNS_AAAA);
        CHECK(answer.code == DNS_NO_NAME, "\"%s\": %u", names[i], answer.code);
    }
    CHECK(box.refused - before == sizeof(names) / sizeof(names[0]), "%u records",
          box.refused - before);
    CHECK(server.asked == upstream, "%u questions left", server.asked - upstream);
}

static void test_garbage(int client)
{
    uint8_t bytes[6000];
    struct answer answer;
    int left = 0;

    for (size_t size = 0; size < sizeof(bytes); size += 331) {
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)((i * 2654435761U) >> 13 | (i == 2 ? 0x80U : 0));
        (void)!write(client, bytes, size);
    }
    for (int i = 0; i < 50; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK(!take_answer(client, &answer), "garbage was answered");
    answer = asked(client, "b.example", DNS_A);
    CHECK(strcmp(answer.address, "198.18.0.3") == 0, "%s", answer.address);
    /* Who goes on is not read for a while: of so many the kernel still has some. */
    for (int i = 0; i < 200; i++)
        (void)!write(client, bytes, 40);
    for (int i = 0; i < 40; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK(ioctl(box_udp, FIONREAD, &left) == 0 && left > 0, "all of it was read");
    answer = asked(client, "b.example", DNS_A);
    CHECK(answer.count == 1, "not again afterwards: %u", answer.code);
}

/* What was allowed when it was asked, and is not when it comes. */
static void test_policy_that_changes(int client)
{
    struct policy *was = box.policy;
    struct error err = {0};
    struct answer answer;

    send_question(client, 88, "zero-changed.example", DNS_A);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK(policy_new_text("none", &box.policy, &err) == 0, "%s", err.text);
    run_until_answer(client, &answer);
    CHECK(answer.id == 88 && answer.code == DNS_NO_NAME, "%u", answer.code);
    CHECK(strcmp(box.reason, "none") == 0, "%s", box.reason);
    policy_free(box.policy);
    box.policy = was;
    answer = asked(client, "zero-changed.example", DNS_A);
    CHECK(answer.count == 1, "%u", answer.code);
}

static void on_known(void *arg, const struct policy_address *addresses, size_t count,
                     uint32_t ttl_s, enum dns_code code)
{
    (void)addresses;
    (void)count;
    (void)ttl_s;
    (void)code;
    *(bool *)arg = true;
    uv_stop(&loop); /* a timer called: uv_run() would go on to wait for what may never come */
}

/* Not answered before it is written. */
static void test_on_disk(int client)
{
    char text[4096] = "";
    struct answer answer = asked(client, "disk.example", DNS_A);
    ssize_t size = pread(names_file, text, sizeof(text) - 1, 0);
    struct rlimit was, limit;
    bool is_known = false;

    CHECK(size > 0 && strstr(text, "disk.example\n") != NULL, "not in the file");
    /* The resolver has it already, so that nothing but the file of names needs an fd. */
    (void)resolver_look(net.resolver, "tenant", &box, "nofile.example", on_known, &is_known);
    while (!is_known)
        (void)uv_run(&loop, UV_RUN_ONCE);
    (void)getrlimit(RLIMIT_NOFILE, &was);
    limit = was;
    limit.rlim_cur = 3;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    answer = asked(client, "nofile.example", DNS_A);
    CHECK(answer.code == DNS_FAILED && says(&answer, "could not be written"), "%u", answer.code);
    answer = asked(client, "disk.example", DNS_A);
    CHECK(answer.count == 1, "what was on disk before");
    (void)setrlimit(RLIMIT_NOFILE, &was);
    answer = asked(client, "nofile.example", DNS_A);
    CHECK(answer.count == 1, "%u", answer.code);
}

struct tcp_answer {
    unsigned calls;
    struct answer answer;
};

static void on_tcp_answer(void *arg, const uint8_t *packet, size_t size)
{
    struct tcp_answer *into = arg;

    into->calls++;
    read_answer(&into->answer, packet, size);
}

static void ask_tcp(struct tcp_answer *into, const char *name)
{
    uint8_t packet[512];
    size_t size = question_of(packet, 7, name, DNS_A);

    memset(into, 0, sizeof(*into));
    lookups_ask(lookups, packet, size, on_tcp_answer, into);
}

static void test_over_tcp(int client)
{
    struct tcp_answer known, fresh, refused, slow, forgotten, broken = {0};

    ask_tcp(&known, "b.example");
    ask_tcp(&fresh, "tcp.example");
    ask_tcp(&refused, "no.example");
    ask_tcp(&slow, "slow.example");
    ask_tcp(&forgotten, "tcp-forgotten.example");
    lookups_ask(lookups, (const uint8_t *)"x", 1, on_tcp_answer, &broken);
    lookups_forget(lookups, &forgotten);
    CHECK(refused.calls == 1 && refused.answer.code == DNS_NO_NAME, "%u", refused.calls);
    CHECK(broken.calls == 1 && broken.answer.size == 0, "not cut");
    while (known.calls == 0 || fresh.calls == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    CHECK(strcmp(known.answer.address, "198.18.0.3") == 0, "%s", known.answer.address);
    CHECK(fresh.answer.count == 1 && fresh.calls == 1, "%u", fresh.answer.code);
    (void)asked(client, "after.example", DNS_A);
    CHECK(forgotten.calls == 0 && slow.calls == 0, "%u, %u", forgotten.calls, slow.calls);
    lookups_forget(lookups, &slow);
}

/* The box was stopped and started: its old questions are nobody's. */
static void test_attached_anew(int *client)
{
    struct answer answer;
    uint16_t port;

    send_question(*client, 77, "again.example", DNS_A);
    for (int i = 0; i < 3; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    lookups_attach(lookups, box_socket(&port));
    (void)close(*client);
    *client = client_of("127.0.0.1", port);
    answer = asked(*client, "again.example", DNS_A);
    CHECK(answer.count == 1, "%u", answer.code);
    CHECK(!take_answer(*client, &answer), "one answer too many");
}

/* Too many: what the rate allows is answered, some of the rest are told so, and nothing goes wrong. */
static void test_rate(int client)
{
    unsigned id = 1000, answered = 0, told = 0, upstream = server.asked;
    uint64_t end = clock_monotonic_ns() + PATIENCE_NS;
    struct answer answer;

    do {
        /* 200 at once and 50 a second: in four times as many rounds as a slow machine needs for it. */
        for (int i = 0; i < 100; i++)
            send_question(client, ++id & 0xffffU, "no.example", DNS_A);
        for (int i = 0; i < 20; i++) {
            (void)uv_run(&loop, UV_RUN_NOWAIT);
            while (take_answer(client, &answer)) {
                bool is_told = says(&answer, "too many lookups");

                told += is_told;
                answered += !is_told;
            }
        }
    } while (told == 0 && clock_monotonic_ns() < end);
    CHECK(told > 0 && answered > 0, "%u told, %u answered", told, answered);
    CHECK(box.limited > 0 && box.limited < 20, "%u records", box.limited);
    CHECK(server.asked == upstream, "%u questions left", server.asked - upstream);
    do {
        (void)usleep(20000);
        send_question(client, 999, "b.example", DNS_A);
        run_until_answer(client, &answer);
    } while ((answer.id != 999 || answer.count == 0) && clock_monotonic_ns() < end);
    CHECK(strcmp(answer.address, "198.18.0.3") == 0, "not again afterwards: %u", answer.code);
}

/* A new engine: numbers are as they were. */
static void test_engine_anew(void)
{
    struct answer answer;
    uint16_t port;
    int client;

    begin(&port);
    client = client_of("127.0.0.1", port);
    answer = asked(client, "other-new.example", DNS_A);
    CHECK(answer.count == 1 && strcmp(answer.address, "198.18.0.3") != 0, "%s", answer.address);
    answer = asked(client, "b.example", DNS_A);
    CHECK(strcmp(answer.address, "198.18.0.3") == 0, "%s", answer.address);
    CHECK(box.allowed == 1, "%u records", box.allowed);
    /* Ended while it looks up, while it writes, and with nothing to do. */
    send_question(client, 1, "slow-end.example", DNS_A);
    send_question(client, 2, "new-end.example", DNS_A);
    for (int i = 0; i < 4; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    end();
    begin(&port);
    end();
    (void)close(client);
}

static void on_closed(void *arg)
{
    *(bool *)arg = true;
}

/* ---- what boxes of one tenant have together ---- */

static void test_tenants(void)
{
    const struct policy_address here = {.bytes = {[15] = 1}}, there = {.bytes = {[15] = 2}};
    struct net_tenant *one = tenants_join(&tenants, "one"),
                      *other = tenants_join(&tenants, "other");
    unsigned dials = 0;

    CHECK(one != NULL && other != NULL && tenants.count == 3, "%u", tenants.count);
    if (one == NULL || other == NULL)
        return;
    CHECK(tenants_join(&tenants, "one") == one && one->boxes == 2, "the same");
    while (dials < 20000 && tenants_may_dial(&tenants, one, &here, 443, 1000))
        dials++;
    CHECK(dials > 1000 && dials < 20000, "%u to one address at once", dials);
    CHECK(tenants_may_dial(&tenants, one, &there, 443, 1000) &&
              tenants_may_dial(&tenants, one, &here, 80, 1000),
          "others are others");
    CHECK(tenants_may_dial(&tenants, other, &here, 443, 1000), "so is another tenant");
    CHECK(tenants_may_dial(&tenants, one, &here, 443, 2000), "a second later");
    tenants_leave(&tenants, one);
    tenants_leave(&tenants, one);
    tenants_leave(&tenants, other);
    CHECK(tenants.count == 1, "%u", tenants.count);
    while (tenants_may_dial(&tenants, one, &here, 443, 3000))
        dials++;
    CHECK(tenants_join(&tenants, "one") == one && tenants.count == 2, "who comes back");
    CHECK(!tenants_may_dial(&tenants, one, &here, 443, 3000), "has the bounds that he had");
    tenants_leave(&tenants, one);
}

/* ---- turns at the disk ---- */

#define TURNS 20

static struct turn {
    const char *tenant;
    unsigned place; /* in the order in which they came to an end; 0: not yet */
} turns[TURNS + 1];
static unsigned turns_over;

static void on_turn(void *arg, int status)
{
    struct turn *turn = arg;

    CHECK(status == 0 && turn->place == 0, "status %d, place %u", status, turn->place);
    turn->place = ++turns_over;
}

/* Many of one tenant do not hold up the one of another, whatever came first; each comes to its end, in order. */
static void test_turns(void)
{
    for (unsigned i = 0; i <= TURNS; i++) {
        turns[i].tenant = i < TURNS ? "many" : "one";
        CHECK(syncs_ask(net.syncs, turns[i].tenant, dup(names_file), on_turn, &turns[i]) == 0,
              "not taken");
    }
    while (turns_over <= TURNS)
        (void)uv_run(&loop, UV_RUN_ONCE);
    for (unsigned i = 1; i < TURNS; i++)
        CHECK(turns[i].place > turns[i - 1].place, "%u came before %u", i, i - 1);
    CHECK(turns[TURNS].place <= 4, "it was held up by %u", turns[TURNS].place);
}

int main(void)
{
    bool is_closed = false, is_synced = false;
    struct error err = {0};
    uint16_t port;
    int v4, v6;

    /* With one thread the turns end in the order in which they are given. */
    (void)setenv("UV_THREADPOOL_SIZE", "1", 1); /* NOLINT(concurrency-mt-unsafe) */
    (void)uv_loop_init(&loop);
    names_file = memfd_create("names", MFD_CLOEXEC);
    CHECK(name_server_open(&loop, "127.0.0.1", 0, &server) == 0, "no server");
    CHECK(resolver_open(&loop, server.address, &net.resolver, &err) == 0, "%s", err.text);
    tenants_init(&tenants);
    tenant = tenants_join(&tenants, "tenant");
    CHECK(tenant != NULL, "no memory");
    CHECK(syncs_open(&loop, &net.syncs, &err) == 0, "%s", err.text);
    begin(&port);
    v4 = client_of("127.0.0.2", port);
    v6 = client_of("::1", port);
    test_addresses(v4, v6);
    test_refused(v4);
    test_garbage(v6);
    test_policy_that_changes(v4);
    test_on_disk(v4);
    test_over_tcp(v4);
    (void)close(v4);
    v4 = client_of("127.0.0.1", port);
    test_attached_anew(&v4);
    test_rate(v4);
    end();
    test_tenants();
    test_turns();
    test_engine_anew();
    syncs_close(net.syncs, on_closed, &is_synced);
    resolver_close(net.resolver, on_closed, &is_closed);
    name_server_close(&server);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    tenants_leave(&tenants, tenant);
    tenants_free(&tenants);
    CHECK(is_closed && is_synced && uv_loop_close(&loop) == 0, "something is left in the loop");
    (void)close(v4);
    (void)close(v6);
    (void)close(names_file);
    return check_finish();
}
