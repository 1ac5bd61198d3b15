/* Telling the service manager: see notify.h. */
#include "keeper/notify.h"

#include "base/fd.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static uint64_t number_of(const char *name)
{
    const char *text = getenv(name); // NOLINT(concurrency-mt-unsafe): there is one thread

    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

void notify_open(struct notify *notify)
{
    const char *path = getenv("NOTIFY_SOCKET"); // NOLINT(concurrency-mt-unsafe)
    uint64_t watchdog_us = number_of("WATCHDOG_USEC"), pid = number_of("WATCHDOG_PID");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path != NULL ? strlen(path) : 0;

    *notify = (struct notify){.socket = -1};
    if (length < 2 || length >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    notify->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify->socket < 0 ||
        connect(notify->socket, (const struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
        fd_close(&notify->socket);
    else if (pid == 0 || pid == (uint64_t)getpid())
        notify->watchdog_ns = watchdog_us * 1000 / 2;
    (void)unsetenv("NOTIFY_SOCKET");
}

void notify_say(const struct notify *notify, const char *state)
{
    if (notify->socket >= 0)
        (void)send(notify->socket, state, strlen(state), MSG_NOSIGNAL);
}

void notify_tick(struct notify *notify, uint64_t now_ns)
{
    if (notify->socket < 0 || notify->watchdog_ns == 0 || now_ns < notify->next_ns)
        return;
    notify_say(notify, "WATCHDOG=1");
    notify->next_ns = now_ns + notify->watchdog_ns;
}
