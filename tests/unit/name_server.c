/* A name server that answers by the letters of a name: see name_server.h. */
#include "name_server.h"

#include "base/fd.h"
#include "net/parts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct packet {
    uint8_t bytes[4096];
    size_t size;
};

static void put(struct packet *packet, const void *data, size_t size)
{
    memcpy(packet->bytes + packet->size, data, size);
    packet->size += size;
}

static void put16(struct packet *packet, unsigned value)
{
    const uint8_t bytes[] = {(uint8_t)(value >> 8), (uint8_t)value};

    put(packet, bytes, 2);
}

static void put_record(struct packet *packet, const void *name, size_t name_size, unsigned type,
                       unsigned ttl, const void *data, size_t size)
{
    put(packet, name, name_size);
    put16(packet, type);
    put16(packet, 1);
    put16(packet, 0);
    put16(packet, ttl);
    put16(packet, (unsigned)size);
    put(packet, data, size);
}

static void put_address(struct packet *packet, const void *name, size_t name_size, unsigned type,
                        unsigned ttl, unsigned last)
{
    uint8_t v4[4] = {192, 0, 2, (uint8_t)last};
    uint8_t v6[16] = {0x20, 1, 0xd, 0xb8, [15] = (uint8_t)last};

    if (type == DNS_A)
        put_record(packet, name, name_size, type, ttl, v4, sizeof(v4));
    else
        put_record(packet, name, name_size, type, ttl, v6, sizeof(v6));
}

static void begin(struct packet *packet, const struct dns_question *question, unsigned flags,
                  unsigned answers)
{
    packet->size = 0;
    put16(packet, question->id);
    put16(packet, 0x8180U | flags);
    put16(packet, 1);
    put16(packet, answers);
    put16(packet, 0);
    put16(packet, 0);
    put(packet, question->wire, question->wire_size);
    put16(packet, question->type);
    put16(packet, 1);
}

/* "c0.", "c1." and so on; the name that is asked for has the first, the last one the address. */
static void put_aliases(struct packet *packet, unsigned type)
{
    uint8_t from[4] = "\2c0", to[4] = "\2c0";

    for (unsigned i = 0; i < 8; i++) {
        to[2] = (uint8_t)('0' + i);
        if (i == 0)
            put_record(packet, "\xc0\xc", 2, DNS_CNAME, 300, to, 4);
        else
            put_record(packet, from, 4, DNS_CNAME, i == 5 ? 7 : 300, to, 4);
        memcpy(from, to, sizeof(from));
    }
    put_address(packet, from, 4, type, 300, 1);
}

/* What no server of good will sends. */
static void answer_badly(struct packet *packet, const struct dns_question *question)
{
    char kind = question->name[4];

    begin(packet, question, 0, 1);
    switch (kind) {
    case 'i': /* of another question */
        put_address(packet, "\xc0\xc", 2, question->type, 300, 1);
        packet->bytes[0] ^= 0x55;
        break;
    case 'q': /* to another name */
        packet->bytes[13] ^= 1;
        put_address(packet, "\xc0\xc", 2, question->type, 300, 1);
        break;
    case 'l': /* a pointer to itself */
        put_address(packet, "\xc0\x20", 2, question->type, 300, 1);
        packet->bytes[packet->size - 20] = 0xc0;
        break;
    case 'c': /* more records than there are */
        packet->bytes[6] = packet->bytes[7] = 0xff;
        put_address(packet, "\xc0\xc", 2, question->type, 300, 1);
        break;
    case 's': /* an address of three bytes */
        put_record(packet, "\xc0\xc", 2, question->type, 300, "\xc0\0\2", 3);
        break;
    case 'e': /* an end too early */
        put_address(packet, "\xc0\xc", 2, question->type, 300, 1);
        packet->size -= 3;
        break;
    case 'o': /* the other family's record */
        put_address(packet, "\xc0\xc", 2, question->type == DNS_A ? DNS_AAAA : DNS_A, 300, 1);
        break;
    case 'n': /* nothing at all */
        packet->size = 0;
        break;
    case 'h': /* half a header */
        packet->size = 6;
        break;
    default: /* letters, for as long as there is room */
        memset(packet->bytes + 12, 'x', sizeof(packet->bytes) - 12);
        packet->size = 1400;
    }
}

static bool begins(const struct dns_question *question, const char *with)
{
    return strncmp(question->name, with, strlen(with)) == 0;
}

/* False: no answer. */
static bool answer(struct name_server *server, const struct dns_question *question, bool is_tcp,
                   struct packet *packet)
{
    bool is_a = question->type == DNS_A;

    if (begins(question, "slow") || (begins(question, "half") && !is_a))
        return false;
    if (begins(question, "bad-"))
        answer_badly(packet, question);
    else if (begins(question, "nx") || (begins(question, "mixed") && is_a))
        begin(packet, question, 3, 0);
    else if (begins(question, "fail"))
        begin(packet, question, 2, 0);
    else if (begins(question, "empty") || (begins(question, "v4") && !is_a) ||
             (begins(question, "v6") && is_a))
        begin(packet, question, 0, 0);
    else if (begins(question, "long") && !is_tcp)
        begin(packet, question, 0x200, 0);
    else if (begins(question, "long")) {
        begin(packet, question, 0, 20);
        for (unsigned i = 1; i <= 20; i++)
            put_address(packet, "\xc0\xc", 2, question->type, 300, i);
    } else if (begins(question, "alias")) {
        begin(packet, question, 0, 9);
        put_aliases(packet, question->type);
    } else if (begins(question, "ring")) {
        begin(packet, question, 0, 2);
        put_record(packet, "\xc0\xc", 2, DNS_CNAME, 300, "\1r", 3);
        put_record(packet, "\1r", 3, DNS_CNAME, 300, "\xc0\xc", 2);
    } else {
        bool is_zero = begins(question, "zero");

        begin(packet, question, 0, 1);
        put_address(packet, "\xc0\xc", 2, question->type, is_zero ? 0 : 300,
                    is_zero ? server->asked : 1);
    }
    return true;
}

/* Whether it is one that did not come before. */
static bool is_new(struct name_server *server, const struct dns_question *question, bool is_tcp)
{
    const size_t most = sizeof(server->lately) / sizeof(server->lately[0]);
    uint64_t hash = 0xcbf29ce484222325 ^
                    (question->id | (uint64_t)question->type << 16 | (uint64_t)is_tcp << 32);

    for (size_t i = 0; i < question->wire_size; i++)
        hash = (hash ^ question->wire[i]) * 0x100000001b3;
    for (size_t i = 0; i < most && i < server->lately_count; i++)
        if (server->lately[i] == hash)
            return false;
    server->lately[server->lately_count++ % most] = hash;
    return true;
}

static void on_udp(uv_poll_t *poll, int status, int events)
{
    struct name_server *server = poll->data;
    struct sockaddr_in from;
    socklen_t from_size = sizeof(from);
    uint8_t bytes[512];
    ssize_t size;

    (void)status;
    (void)events;
    while ((size = recvfrom(server->udp_fd, bytes, sizeof(bytes), MSG_DONTWAIT,
                            (struct sockaddr *)&from, &from_size)) >= 0) {
        struct dns_question question;
        struct packet packet;

        if (dns_parse(bytes, (size_t)size, &question) != DNS_OK)
            continue;
        server->asked += is_new(server, &question, false);
        if (answer(server, &question, false, &packet))
            (void)sendto(server->udp_fd, packet.bytes, packet.size, MSG_DONTWAIT,
                         (const struct sockaddr *)&from, from_size);
    }
}

struct client {
    uv_poll_t poll;
    struct name_server *server;
    int fd;
};

static void on_client_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* One question of each connection, which is small enough to come at once. */
static void on_client(uv_poll_t *poll, int status, int events)
{
    struct client *client = poll->data;
    struct dns_question question;
    struct packet packet;
    uint8_t bytes[514];
    ssize_t size = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    (void)status;
    (void)events;
    if (size > 2 && dns_parse(bytes + 2, (size_t)size - 2, &question) == DNS_OK) {
        client->server->asked_tcp += is_new(client->server, &question, true);
        if (answer(client->server, &question, true, &packet)) {
            bytes[0] = (uint8_t)(packet.size >> 8);
            bytes[1] = (uint8_t)packet.size;
            (void)send(client->fd, bytes, 2, MSG_NOSIGNAL | MSG_MORE);
            (void)send(client->fd, packet.bytes, packet.size, MSG_NOSIGNAL);
        }
    }
    uv_close((uv_handle_t *)poll, on_client_closed);
    fd_close(&client->fd);
}

static void on_tcp(uv_poll_t *poll, int status, int events)
{
    struct name_server *server = poll->data;
    int fd = accept4(server->tcp_fd, NULL, NULL, SOCK_CLOEXEC);
    struct client *client = fd < 0 ? NULL : calloc(1, sizeof(*client));

    (void)status;
    (void)events;
    if (client == NULL)
        return;
    client->server = server;
    client->fd = fd;
    client->poll.data = client;
    (void)uv_poll_init(poll->loop, &client->poll, fd);
    (void)uv_poll_start(&client->poll, UV_READABLE, on_client);
}

int name_server_open(uv_loop_t *loop, const char *address, uint16_t port,
                     struct name_server *server)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
    socklen_t size = sizeof(at);

    memset(server, 0, sizeof(*server));
    server->udp_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    server->tcp_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* The same port of both, which somebody may have. */
    for (int i = 0;; i++) {
        at.sin_port = htons(port);
        if (i == 100 || bind(server->tcp_fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
            getsockname(server->tcp_fd, (struct sockaddr *)&at, &size) < 0)
            return -1;
        if (bind(server->udp_fd, (struct sockaddr *)&at, sizeof(at)) == 0)
            break;
        (void)close(server->tcp_fd);
        server->tcp_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    if (listen(server->tcp_fd, 64) < 0)
        return -1;
    (void)snprintf(server->address, sizeof(server->address), "%s:%d", address, ntohs(at.sin_port));
    server->udp.data = server->tcp.data = server;
    if (uv_poll_init(loop, &server->udp, server->udp_fd) < 0 ||
        uv_poll_init(loop, &server->tcp, server->tcp_fd) < 0)
        return -1;
    (void)uv_poll_start(&server->udp, UV_READABLE, on_udp);
    (void)uv_poll_start(&server->tcp, UV_READABLE, on_tcp);
    return 0;
}

void name_server_close(struct name_server *server)
{
    uv_close((uv_handle_t *)&server->udp, NULL);
    uv_close((uv_handle_t *)&server->tcp, NULL);
    fd_close(&server->udp_fd);
    fd_close(&server->tcp_fd);
}
