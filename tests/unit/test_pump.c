/* Carrying bytes, without a box: forwards and pairs over real sockets. What one end says the other gets, to the byte
 * and to the way it ends; who does not read holds up nobody else; what is idle costs its sockets. */
#include "check.h"
#include "net_world.h"

#include "base/clock.h"
#include "base/fd.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LARGE ((size_t)100 << 20)
#define IDLE 4000

static struct net *net;

static void open_net(void *arg)
{
    struct net_options options = {.loop = world_loop, .resolvers = "127.0.0.1:9"};
    struct error err = {0};

    (void)arg;
    CHECK(net_open(&options, &net, &err) == 0, "%s", err.text);
}

static void close_net(void *arg)
{
    (void)arg;
    net_close(net, NULL, NULL);
}

/* ---- forwards: each connection goes to the test's own listener ---- */

struct forwarded {
    struct net_forward *forward;
    int listener, target;
    uint16_t port, target_port;
    uint32_t connections;
    bool refuses;
};

static uint16_t port_of(int listener)
{
    struct sockaddr_in name = {0};
    socklen_t size = sizeof(name);

    getsockname(listener, (struct sockaddr *)&name, &size);
    return ntohs(name.sin_port);
}

static void on_connect(void *arg, uint64_t number)
{
    struct forwarded *forwarded = arg;

    net_forward_connected(
        forwarded->forward, number,
        forwarded->refuses ? -1 : world_dial_host("127.0.0.1", forwarded->target_port));
}

static void begin_forward(void *arg)
{
    struct forwarded *forwarded = arg;
    struct error err = {0};

    forwarded->listener = world_listen("127.0.0.1", 0);
    forwarded->target = world_listen("127.0.0.1", 0);
    forwarded->port = port_of(forwarded->listener);
    forwarded->target_port = port_of(forwarded->target);
    CHECK(net_forward_new(net, forwarded->listener, forwarded->connections, on_connect, forwarded,
                          &forwarded->forward, &err) == 0,
          "%s", err.text);
}

static void end_forward(void *arg)
{
    struct forwarded *forwarded = arg;

    net_forward_free(forwarded->forward);
    close(forwarded->target);
}

static void both_ends(struct forwarded *forwarded, int ends[2])
{
    ends[0] = world_dial_host("127.0.0.1", forwarded->port);
    ends[1] = world_accept(forwarded->target);
}

static void close_both(int ends[2])
{
    fd_close(&ends[0]);
    fd_close(&ends[1]);
}

static void reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
}

/* ---- what must hold ---- */

static void all_arrives(struct forwarded *forwarded)
{
    int ends[2];

    both_ends(forwarded, ends);
    CHECK(world_exchange(ends[0], ends[1], LARGE, 1), "100 MB each way");
    shutdown(ends[0], SHUT_WR);
    CHECK(world_end_of(ends[1]) == 0, "the end, too");
    CHECK(world_exchange(ends[1], ends[0], 0, 1), "nothing");
    CHECK(send(ends[1], "late", 4, 0) == 4, "the other way is open");
    close(ends[1]);
    char text[8] = "";
    CHECK(recv(ends[0], text, 4, MSG_WAITALL) == 4 && memcmp(text, "late", 4) == 0, "%s", text);
    CHECK(world_end_of(ends[0]) == 0, "a whole stream ends as one");
    close(ends[0]);
}

static void the_server_ends_first(struct forwarded *forwarded)
{
    int ends[2];

    both_ends(forwarded, ends);
    shutdown(ends[1], SHUT_WR);
    CHECK(world_end_of(ends[0]) == 0, "the client hears it");
    CHECK(send(ends[0], "more", 4, 0) == 4, "and goes on");
    shutdown(ends[0], SHUT_WR);
    CHECK(world_end_of(ends[1]) == 0, "to its own end");
    close_both(ends);
}

static void a_reset_is_a_reset(struct forwarded *forwarded)
{
    for (unsigned i = 0; i < 2; i++) {
        int ends[2];
        char text[8];

        both_ends(forwarded, ends);
        CHECK(world_exchange(ends[0], ends[1], 1000, 2), "it works");
        CHECK(send(ends[i], "last", 4, 0) == 4, "a word");
        CHECK(recv(ends[1 - i], text, 4, MSG_WAITALL) == 4, "arrives");
        reset(ends[i]);
        int end = world_end_of(ends[1 - i]);
        CHECK(end == ECONNRESET, "side %u: %d", i, end);
        close(ends[1 - i]);
    }
}

/* Urgent bytes are bytes like others, in their place; splice(2) alone would end before them. */
static void urgent_bytes_are_carried(struct forwarded *forwarded)
{
    int ends[2];
    char text[16] = "";

    both_ends(forwarded, ends);
    CHECK(send(ends[0], "a", 1, 0) == 1 && send(ends[0], "b", 1, MSG_OOB) == 1, "urgent");
    CHECK(send(ends[0], "c", 1, 0) == 1, "and on");
    CHECK(recv(ends[1], text, 3, MSG_WAITALL) == 3 && strcmp(text, "abc") == 0, "%s", text);
    CHECK(world_exchange(ends[0], ends[1], LARGE / 10, 6), "it goes on");
    CHECK(send(ends[1], "xy", 2, MSG_OOB) == 2, "urgent, and over");
    close(ends[1]);
    memset(text, 0, sizeof(text));
    CHECK(recv(ends[0], text, sizeof(text), MSG_WAITALL) == 2 && strcmp(text, "xy") == 0, "%s",
          text);
    close(ends[0]);
}

/* Sends until nothing more is taken for a while; how much that was. */
static size_t stuff(int fd)
{
    static char block[1 << 16];
    size_t sent = 0;

    while (poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 200) > 0 && sent < LARGE) {
        ssize_t n = send(fd, block, sizeof(block), MSG_DONTWAIT);

        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    return sent;
}

static void *read_slowly(void *arg)
{
    static __thread char block[1 << 16];
    size_t got = 0;
    ssize_t n;

    while ((n = recv(*(int *)arg, block, sizeof(block), 0)) > 0)
        got += (size_t)n;
    return (void *)got;
}

static void who_does_not_read_slows_only_the_sender(struct forwarded *forwarded)
{
    int stuck[24][2], ends[2];
    size_t sent[24];

    /* More than there are pipes for one forward: some of them copy. */
    for (unsigned i = 0; i < 24; i++) {
        both_ends(forwarded, stuck[i]);
        sent[i] = stuff(stuck[i][i % 2]);
        CHECK(sent[i] > 0 && sent[i] < LARGE, "%u: %zu bytes were taken", i, sent[i]);
    }
    both_ends(forwarded, ends);
    CHECK(world_exchange(ends[0], ends[1], LARGE / 10, 3), "another one is as fast as ever");
    close_both(ends);
    for (unsigned i = 0; i < 24; i++) {
        pthread_t reader;
        void *got = NULL;

        pthread_create(&reader, NULL, read_slowly, &stuck[i][1 - i % 2]);
        shutdown(stuck[i][i % 2], SHUT_WR);
        pthread_join(reader, &got);
        CHECK((size_t)got == sent[i], "%u: %zu of %zu arrived", i, (size_t)got, sent[i]);
        close_both(stuck[i]);
    }
}

static void many_at_once(struct forwarded *forwarded)
{
    static int ends[64][2];

    for (unsigned i = 0; i < 64; i++)
        both_ends(forwarded, ends[i]);
    for (unsigned round = 0; round < 8; round++) {
        for (unsigned i = 0; i < 64; i++)
            CHECK(world_exchange(ends[i][0], ends[i][1], 10000 + i, i), "%u", i);
    }
    for (unsigned i = 0; i < 64; i++)
        close_both(ends[i]);
}

/* The engine is this process, and so are both ends. */
static void idle_ones_hold_nothing(void)
{
    struct forwarded forwarded = {.connections = IDLE};
    int(*ends)[2] = calloc(IDLE, sizeof(*ends));
    unsigned before, after;

    CHECK(ends != NULL, "no memory");
    if (ends == NULL)
        return;
    world_call(begin_forward, &forwarded);
    before = world_fds();
    for (unsigned i = 0; i < IDLE; i++) {
        both_ends(&forwarded, ends[i]);
        if (ends[i][0] < 0 || ends[i][1] < 0) {
            CHECK(false, "only %u connections: %s", i, strerror(errno));
            break;
        }
        CHECK(send(ends[i][0], "x", 1, 0) == 1, "said");
        char c;
        CHECK(recv(ends[i][1], &c, 1, MSG_WAITALL) == 1, "heard");
    }
    after = world_fds();
    CHECK(after - before <= 4 * IDLE + 2 * 8, "%u fds", after - before);
    CHECK(world_exchange(ends[7][0], ends[7][1], 1 << 20, 9), "and they work");
    CHECK(world_end_of_dial(world_dial_host("127.0.0.1", forwarded.port)) == ECONNRESET,
          "one too many");
    world_call(end_forward, &forwarded);
    CHECK(world_end_of(ends[0][0]) == ECONNRESET && world_end_of(ends[IDLE - 1][1]) == ECONNRESET,
          "cut with the forward");
    for (unsigned i = 0; i < IDLE; i++)
        close_both(ends[i]);
    free(ends);
    CHECK(world_fds() <= before, "%u fds are left, of %u", world_fds(), before);
}

static void refusals(void)
{
    struct forwarded refusing = {.connections = 4, .refuses = true};
    struct forwarded lost = {.connections = 4};

    world_call(begin_forward, &refusing);
    CHECK(world_end_of_dial(world_dial_host("127.0.0.1", refusing.port)) == ECONNRESET, "refused");
    world_call(end_forward, &refusing);

    world_call(begin_forward, &lost);
    close(lost.target);
    lost.target = -1;
    CHECK(world_end_of_dial(world_dial_host("127.0.0.1", lost.port)) == ECONNRESET,
          "nobody is there");
    world_call(end_forward, &lost);
}

/* ---- pairs ---- */

struct paired {
    int client, server;
    const char *first;
    struct net_pair *pair;
    volatile unsigned over;
};

static void on_over(void *arg)
{
    ((struct paired *)arg)->over++;
}

static void begin_pair(void *arg)
{
    struct paired *paired = arg;

    paired->pair = net_pair_new(net, paired->client, paired->server, paired->first,
                                strlen(paired->first), on_over, paired);
}

static void cut_pair(void *arg)
{
    net_pair_cut(((struct paired *)arg)->pair);
}

static void nothing(void *arg)
{
    (void)arg;
}

static void pairs(void)
{
    int client[2], server[2];
    char text[16] = "";

    for (unsigned is_unix = 0; is_unix < 2; is_unix++) {
        struct paired paired = {.first = "read before"};

        if (is_unix)
            CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client) == 0, "a pair");
        else
            world_pair(client);
        world_pair(server);
        paired.client = client[1];
        paired.server = server[0];
        world_call(begin_pair, &paired);
        CHECK(recv(server[1], text, 11, MSG_WAITALL) == 11 && strcmp(text, "read before") == 0,
              "%s", text);
        CHECK(world_exchange(client[0], server[1], LARGE / 10, 4), "unix: %u", is_unix);
        CHECK(paired.over == 0, "it goes on");
        shutdown(client[0], SHUT_WR);
        CHECK(world_end_of(server[1]) == 0, "its end");
        close(server[1]);
        CHECK(world_end_of(client[0]) == 0, "and the other's");
        for (unsigned i = 0; i < 6000 && paired.over == 0; i++) {
            usleep(10000);
            world_call(nothing, NULL);
        }
        CHECK(paired.over == 1, "over %u times", paired.over);
        close(client[0]);
    }
    struct paired cut = {.first = ""};
    world_pair(client);
    world_pair(server);
    cut.client = client[1];
    cut.server = server[0];
    world_call(begin_pair, &cut);
    world_call(cut_pair, &cut);
    CHECK(world_end_of(client[0]) == ECONNRESET && world_end_of(server[1]) == ECONNRESET, "cut");
    CHECK(cut.over == 0, "who cuts knows");
    close(client[0]);
    close(server[1]);
}

static void test(void)
{
    struct forwarded forwarded = {.connections = 256};
    unsigned before = world_fds();

    world_call(open_net, NULL);
    world_call(begin_forward, &forwarded);
    all_arrives(&forwarded);
    the_server_ends_first(&forwarded);
    a_reset_is_a_reset(&forwarded);
    urgent_bytes_are_carried(&forwarded);
    who_does_not_read_slows_only_the_sender(&forwarded);
    many_at_once(&forwarded);
    world_call(end_forward, &forwarded);
    refusals();
    pairs();
    idle_ones_hold_nothing();
    world_call(close_net, NULL);
    CHECK(world_fds() <= before + 2, "%u fds, %u before", world_fds(), before);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (world_make() < 0) {
        perror("test_pump: namespaces");
        return 1;
    }
    world_run(test);
    uv_loop_close(world_loop);
    return check_finish();
}
