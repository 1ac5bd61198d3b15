/* A route that has another server on this host answer, as a front has one in a box. */
#include "server.h"

#include "base/fd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void on_over(void *arg)
{
    (void)arg;
    live_count--;
}

void any_proxy(struct http_request *request, void *data)
{
    static const char *const kept[] = {"X-Secret", NULL};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const char *port = http_param(request, "port"), *guest = http_param(request, "kind");
    const char *target = http_target(request);
    char prefix[64];
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct error err;

    (void)data;
    address.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
        answer_text(request, 502, "nobody listens");
        return;
    }
    (void)snprintf(prefix, sizeof(prefix), "/proxy/%.10s/%.10s", guest, port);
    struct http_proxy_options options = {
        .server = fd,
        .target = strcmp(guest, "tunnel") == 0      ? NULL
                  : strlen(target) > strlen(prefix) ? target + strlen(prefix)
                                                    : "/",
        .host = "localhost",
        .kept = kept,
        .cookie = http_header(request, "X-Give-Cookie"),
        .prefix = strcmp(guest, "guest") == 0 ? prefix : NULL,
        .extra = strcmp(guest, "guest") == 0 ? "X-Extra: 1\r\n" : NULL,
        .is_guest = strcmp(guest, "guest") == 0,
        .over = on_over,
    };
    live_count++;
    if (http_proxy(request, &options, &err) == 0) {
        fd = -1;
        return;
    }
    live_count--;
    answer_text(request, 503, err.text);
}
