/* Both ends of what the net bench sends: the server, and the clients that run in a box, in a bare network
 * namespace and behind the peers. One static program (musl), so that all of them run the very same code.
 *
 * usage: net_peer serve ADDRESS PORT
 *        net_peer send|receive ADDRESS PORT SERIES BYTES COUNT     ns for BYTES, COUNT times; BYTES 0: without end
 *        net_peer connect ADDRESS PORT SERIES COUNT                ns until connected, and until a byte is back
 *        net_peer ask ADDRESS NAME SERIES COUNT                    ns of a DNS question, of a name that is known
 *        net_peer hold ADDRESS PORT COUNT                          keeps that many connections, repeats what it hears
 * Clients write series to standard output. The first byte of a connection says what it is for: 'r' receive all of
 * it, 's' send (eight bytes follow: how much), 'p' repeat one byte, 'h' is held. The server takes commands by lines:
 * "count" says how many connections are held; "go" has every client that holds one open the others; "ping" sends a
 * byte on each and says how many there are, how many came back within a minute, and the ns until the last. It
 * answers for every name with its own address, on port 53. */
#include "series.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK ((size_t)256 << 10)
#define FDS_MAX 20000
#define HELD_MAX 16 /* of one client */
#define PATIENCE_NS (60 * 1000000000ULL)

static char block[BLOCK];

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "net_peer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct sockaddr_in name_of(const char *address, const char *port)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};

    if (inet_pton(AF_INET, address, &name.sin_addr) != 1) {
        errno = EINVAL;
        fail(address);
    }
    return name;
}

/* ---- the clients ---- */

static int dial(const struct sockaddr_in *name)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0 || connect(fd, (const struct sockaddr *)name, sizeof(*name)) < 0)
        fail("connect");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static void put(int fd, const void *bytes, size_t size)
{
    if (send(fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("send");
}

static void say(struct series *series)
{
    if (series_write(series, stdout) < 0 || fflush(stdout) != 0)
        fail("cannot write the results");
    series_free(series);
}

/* Until the other end says that it has all of it. */
static void send_bytes(int fd, uint64_t bytes)
{
    char c = 'r';

    put(fd, &c, 1);
    for (uint64_t left = bytes; bytes == 0 || left > 0;) {
        ssize_t n = send(fd, block, bytes == 0 || left > BLOCK ? BLOCK : (size_t)left,
                         MSG_NOSIGNAL);

        if (n <= 0)
            fail("send");
        left -= (uint64_t)n;
    }
    (void)shutdown(fd, SHUT_WR);
    if (read(fd, &c, 1) != 1)
        fail("the end");
}

static void receive_bytes(int fd, uint64_t bytes)
{
    char request[1 + sizeof(bytes)] = {'s'};
    ssize_t n;
    uint64_t got = 0;

    memcpy(request + 1, &bytes, sizeof(bytes));
    put(fd, request, sizeof(request));
    while ((n = read(fd, block, BLOCK)) > 0)
        got += (uint64_t)n;
    if (n < 0 || got != bytes)
        fail("the end");
}

static void run_bulk(const struct sockaddr_in *name, bool is_out, const char *title, uint64_t bytes,
                     size_t count)
{
    struct series series;

    series_init(&series, title, "ns", count);
    for (size_t i = 0; i < count; i++) {
        int fd = dial(name);
        uint64_t begun = series_now_ns();

        if (is_out)
            send_bytes(fd, bytes);
        else
            receive_bytes(fd, bytes);
        series_add(&series, series_now_ns() - begun);
        (void)close(fd);
    }
    say(&series);
}

static void run_connect(const struct sockaddr_in *name, const char *title, size_t count)
{
    char first_title[128];
    struct series series, first;

    (void)snprintf(first_title, sizeof(first_title), "%s_first", title);
    series_init(&series, title, "ns", count);
    series_init(&first, first_title, "ns", count);
    for (size_t i = 0; i < count; i++) {
        uint64_t begun = series_now_ns();
        int fd = dial(name);
        char c = 'p';

        series_add(&series, series_now_ns() - begun);
        put(fd, &c, 1);
        if (read(fd, &c, 1) != 1)
            fail("a byte");
        series_add(&first, series_now_ns() - begun);
        (void)close(fd);
    }
    say(&series);
    say(&first);
}

static void run_ask(const char *address, const char *name, const char *title, size_t count)
{
    struct sockaddr_in to = name_of(address, "53");
    unsigned char question[300] = {0, 1, 1, 0, 0, 1}, answer[600];
    size_t size = 12;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct series series;

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        fail(address);
    for (const char *label = name; *label != '\0' && size < 250;) {
        size_t length = strcspn(label, ".");

        question[size++] = (unsigned char)length;
        memcpy(question + size, label, length);
        size += length;
        label += length + (label[length] == '.');
    }
    question[size + 2] = question[size + 4] = 1; /* the root, A, IN */
    size += 5;
    series_init(&series, title, "ns", count);
    for (size_t i = 0; i <= count; i++) {
        uint64_t begun = series_now_ns();
        ssize_t n = 0;

        if (send(fd, question, size, 0) != (ssize_t)size)
            fail("a question");
        n = recv(fd, answer, sizeof(answer), 0);
        if (n < 12 || (answer[3] & 15) != 0 || answer[7] == 0) {
            errno = ENOENT;
            fail(name);
        }
        if (i > 0) /* the first makes it known */
            series_add(&series, series_now_ns() - begun);
        (void)usleep(25000); /* fewer than a box may ask */
    }
    say(&series);
}

static void run_hold(const struct sockaddr_in *name, size_t count)
{
    struct pollfd held[HELD_MAX];
    size_t have = 0, want = 1;

    while (count <= HELD_MAX) {
        for (; have < want; have++) {
            char c = 'h';

            held[have] = (struct pollfd){.fd = dial(name), .events = POLLIN};
            put(held[have].fd, &c, 1);
        }
        if (poll(held, (nfds_t)have, -1) < 0)
            fail("poll");
        for (size_t i = 0; i < have; i++) {
            char c;

            if (held[i].revents == 0)
                continue;
            if (read(held[i].fd, &c, 1) != 1)
                fail("held");
            if (c == 'g')
                want = count;
            else
                put(held[i].fd, &c, 1);
        }
    }
}

/* ---- the server ---- */

static int names; /* answers for every name with the address that is listened on */

static void answer_name(const struct sockaddr_in *own)
{
    unsigned char packet[600];
    struct sockaddr_in peer;
    socklen_t peer_size = sizeof(peer);
    ssize_t n = recvfrom(names, packet, 512, MSG_DONTWAIT, (struct sockaddr *)&peer, &peer_size);
    size_t end = 12;

    if (n < 17)
        return;
    while (end < (size_t)n && packet[end] != 0)
        end += packet[end] + 1U;
    if (end + 5 > (size_t)n)
        return;
    packet[2] = 0x81;
    packet[3] = 0x80;
    packet[7] = packet[end + 2] == 1; /* an A record, or nothing */
    packet[11] = 0;
    end += 5;
    if (packet[7] != 0) {
        static const unsigned char record[12] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4};

        memcpy(packet + end, record, sizeof(record));
        memcpy(packet + end + sizeof(record), &own->sin_addr, 4);
        end += sizeof(record) + 4;
    }
    (void)sendto(names, packet, end, 0, (struct sockaddr *)&peer, peer_size);
}

struct other {
    char kind; /* 0: not known yet */
    uint64_t left;
};

static struct other others[FDS_MAX];
static int events;
static size_t held, returned;

static void watch(int fd, uint32_t what)
{
    struct epoll_event event = {.events = what, .data.fd = fd};

    if (epoll_ctl(events, EPOLL_CTL_MOD, fd, &event) < 0 &&
        epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) < 0)
        fail("epoll_ctl");
}

static void end(int fd)
{
    held -= others[fd].kind == 'h';
    others[fd].kind = 0;
    (void)close(fd);
}

static void on_new(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1;

    if (fd < 0)
        return;
    if (fd >= FDS_MAX) {
        (void)close(fd);
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    others[fd] = (struct other){.kind = 0};
    watch(fd, EPOLLIN);
}

static bool begin(int fd)
{
    struct other *other = &others[fd];

    if (read(fd, &other->kind, 1) != 1) {
        other->kind = 0;
        end(fd);
        return false;
    }
    held += other->kind == 'h';
    if (other->kind == 'p')
        (void)send(fd, &other->kind, 1, MSG_NOSIGNAL); /* this one is the byte, too */
    if (other->kind == 's') {
        if (read(fd, &other->left, sizeof(other->left)) != sizeof(other->left)) {
            end(fd); /* they were sent at once */
            return false;
        }
        watch(fd, EPOLLOUT);
    }
    return other->kind == 'r';
}

static void on_socket(int fd)
{
    struct other *other = &others[fd];
    ssize_t n;

    if (other->kind == 0 && !begin(fd))
        return;
    if (other->kind == 's') {
        n = send(fd, block, other->left < BLOCK ? (size_t)other->left : BLOCK, MSG_NOSIGNAL);
        other->left -= n > 0 ? (uint64_t)n : 0;
        if (other->left == 0 || (n < 0 && errno != EAGAIN))
            end(fd);
        return;
    }
    n = read(fd, block, other->kind == 'r' ? BLOCK : 1);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        if (n == 0 && other->kind == 'r')
            (void)send(fd, &other->kind, 1, MSG_NOSIGNAL);
        end(fd);
    } else if (other->kind == 'p') {
        (void)send(fd, &other->kind, 1, MSG_NOSIGNAL);
    } else if (other->kind == 'h') {
        returned++;
    }
}

static void serve_once(int listener, int timeout)
{
    struct epoll_event all[64];
    int count = epoll_wait(events, all, 64, timeout);

    for (int i = 0; i < count; i++) {
        if (all[i].data.fd == listener)
            on_new(listener);
        else
            on_socket(all[i].data.fd);
    }
}

static void to_held(char c)
{
    for (int fd = 0; fd < FDS_MAX; fd++)
        if (others[fd].kind == 'h')
            (void)send(fd, &c, 1, MSG_NOSIGNAL);
}

/* What is held, asks each, and says it. */
static void ping(int listener)
{
    uint64_t begun = series_now_ns();
    size_t asked = held;

    returned = 0;
    to_held('e');
    while (returned < asked && series_now_ns() - begun < PATIENCE_NS)
        serve_once(listener, 100);
    (void)printf("%zu %zu %llu\n", asked, returned, (unsigned long long)(series_now_ns() - begun));
}

static void on_command(int listener)
{
    char line[64];
    ssize_t n = read(STDIN_FILENO, line, sizeof(line));

    if (n <= 0)
        exit(0);
    if (line[0] == 'g') {
        to_held('g');
        (void)printf("gone\n");
    } else if (line[0] == 'c') {
        (void)printf("%zu\n", held);
    } else {
        ping(listener);
    }
    (void)fflush(stdout);
}

static _Noreturn void serve(const struct sockaddr_in *name)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

    struct sockaddr_in at53 = *name;

    at53.sin_port = htons(53);
    names = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (names < 0 || bind(names, (const struct sockaddr *)&at53, sizeof(at53)) < 0)
        fail("port 53");
    events = epoll_create1(EPOLL_CLOEXEC);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (events < 0 || bind(listener, (const struct sockaddr *)name, sizeof(*name)) < 0 ||
        listen(listener, 4096) < 0)
        fail("a listener");
    watch(listener, EPOLLIN);
    (void)printf("ready\n");
    (void)fflush(stdout);
    for (;;) {
        struct pollfd both[3] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                 {.fd = events, .events = POLLIN},
                                 {.fd = names, .events = POLLIN}};

        (void)poll(both, 3, -1);
        if (both[2].revents != 0)
            answer_name(name);
        if (both[1].revents != 0)
            serve_once(listener, 0);
        if (both[0].revents != 0)
            on_command(listener);
    }
}

int main(int argc, char **argv)
{
    struct rlimit files;
    struct sockaddr_in name;
    const char *what = argc > 3 ? argv[1] : "";

    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (strcmp(what, "ask") == 0 && argc == 6) {
        run_ask(argv[2], argv[3], argv[4], strtoul(argv[5], NULL, 10));
        return 0;
    }
    if (argc < 4)
        return 2;
    name = name_of(argv[2], argv[3]);
    if (strcmp(what, "serve") == 0)
        serve(&name);
    if (strcmp(what, "hold") == 0 && argc == 5)
        run_hold(&name, strtoul(argv[4], NULL, 10));
    else if (strcmp(what, "connect") == 0 && argc == 6)
        run_connect(&name, argv[4], strtoul(argv[5], NULL, 10));
    else if ((strcmp(what, "send") == 0 || strcmp(what, "receive") == 0) && argc == 7)
        run_bulk(&name, what[0] == 's', argv[4], strtoull(argv[5], NULL, 10),
                 strtoul(argv[6], NULL, 10));
    else
        return 2;
    return 0;
}
