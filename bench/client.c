/* A client of the engine: see client.h. */
#include "client.h"
#include "series.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS_MAX 1024

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

struct request request_new(const char *method, const char *path, const char *body)
{
    struct request request;
    int length;

    if (body != NULL)
        length = asprintf(&request.text,
                          "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          "Content-Length: %zu\r\n\r\n%s",
                          method, path, strlen(body), body);
    else
        length = asprintf(&request.text, "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path);
    if (length < 0)
        fail("cannot write a request");
    request.length = (size_t)length;
    return request;
}

void request_free(struct request *request)
{
    free(request->text);
    request->text = NULL;
}

int client_connect(const char *where)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in loopback = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr *address = (struct sockaddr *)&local;
    socklen_t size = sizeof(local);
    int fd;

    if (where[0] != '/') {
        loopback.sin_port = htons((uint16_t)strtoul(where, NULL, 10));
        address = (struct sockaddr *)&loopback;
        size = sizeof(loopback);
    } else if (strlen(where) >= sizeof(local.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (where[0] == '/')
        memcpy(local.sun_path, where, strlen(where));
    fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, address, size) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

bool client_try_open(struct client *client, const char *where)
{
    memset(client, 0, sizeof(*client)); /* touched now, not while it is measured */
    client->fd = client_connect(where);
    return client->fd >= 0;
}

void client_open(struct client *client, const char *where)
{
    if (!client_try_open(client, where))
        fail("cannot connect to the engine");
}

void client_close(struct client *client)
{
    (void)close(client->fd);
    client->fd = -1;
}

void client_ask(struct client *client, const struct request *request)
{
    size_t sent = 0;

    client->length = 0;
    client->asked_ns = series_now_ns();
    while (sent < request->length) {
        ssize_t n = send(client->fd, request->text + sent, request->length - sent, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            fail("cannot send to the engine");
        sent += n > 0 ? (size_t)n : 0;
    }
}

/* Whether all of an answer is there; what is no answer ends the bench. */
static bool is_complete(struct client *client)
{
    static const char length_name[] = "\r\nContent-Length:";
    char *end, *at;
    size_t body = 0;

    client->answer[client->length] = '\0';
    end = strstr(client->answer, "\r\n\r\n");
    if (end == NULL)
        return false;
    client->status = (int)strtol(client->answer + strlen("HTTP/1.1 "), NULL, 10);
    at = strcasestr(client->answer, length_name);
    if (at != NULL && at < end)
        body = (size_t)strtoul(at + strlen(length_name), NULL, 10);
    client->body = end + 4;
    return client->length >= (size_t)(client->body - client->answer) + body;
}

static bool hear(struct client *client, int flags)
{
    ssize_t n = recv(client->fd, client->answer + client->length,
                     CLIENT_ANSWER_MAX - 1 - client->length, flags);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        if (n == 0)
            errno = client->length == CLIENT_ANSWER_MAX - 1 ? EMSGSIZE : ECONNRESET;
        fail("no answer from the engine");
    }
    client->length += (size_t)n;
    return is_complete(client);
}

bool client_hear(struct client *client)
{
    return hear(client, MSG_DONTWAIT);
}

int client_await(struct client *client)
{
    while (!hear(client, 0))
        continue;
    return client->status;
}

int client_call(struct client *client, const struct request *request, uint64_t *took_ns)
{
    int status;

    client_ask(client, request);
    status = client_await(client);
    if (took_ns != NULL)
        *took_ns = series_now_ns() - client->asked_ns;
    return status;
}

bool client_try_call(struct client *client, const struct request *request)
{
    ssize_t n = send(client->fd, request->text, request->length, MSG_NOSIGNAL);

    client->length = 0;
    if (n != (ssize_t)request->length)
        return false;
    do {
        n = recv(client->fd, client->answer + client->length,
                 CLIENT_ANSWER_MAX - 1 - client->length, 0);
        client->length += n > 0 ? (size_t)n : 0;
    } while (n > 0 && !is_complete(client));
    return n > 0;
}

void client_drive(struct client *clients, size_t count,
                  bool (*answered)(struct client *client, void *arg), void *arg)
{
    static struct pollfd polled[CLIENTS_MAX];
    size_t busy = count;

    if (count > CLIENTS_MAX) {
        errno = E2BIG;
        fail("too many connections");
    }
    for (size_t i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
    while (busy > 0) {
        if (poll(polled, (nfds_t)count, -1) < 0 && errno != EINTR)
            fail("cannot wait for the engine");
        for (size_t i = 0; i < count; i++) {
            if (polled[i].fd < 0 || polled[i].revents == 0 || !client_hear(&clients[i]) ||
                answered(&clients[i], arg))
                continue;
            polled[i].fd = -1;
            busy--;
        }
    }
}

bool client_text(const struct client *client, const char *name, char *into, size_t size)
{
    char pattern[64];
    const char *at, *end;

    (void)snprintf(pattern, sizeof(pattern), "\"%s\":\"", name);
    at = strstr(client->body, pattern);
    if (at == NULL)
        return false;
    at += strlen(pattern);
    end = strchr(at, '"');
    if (end == NULL || (size_t)(end - at) >= size)
        return false;
    memcpy(into, at, (size_t)(end - at));
    into[end - at] = '\0';
    return true;
}
