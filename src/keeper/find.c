/* The server that runs: see find.h. The kernel says whose socket it is, so that there is no file with a number in it which
 * a later process could have. */
#include "keeper/find.h"

#include "base/fd.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int ask(const char *path, struct ucred *peer, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof(*peer);

    if (fd < 0)
        return error_set(err, "capacity", errno, "cannot make a socket");
    if (snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
        (int)sizeof(address.sun_path))
        return error_set(err, "bad_path", 0, "%s is too long for a socket; name a shorter one",
                         path);
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        return error_set(err, "not_running", errno,
                         "no server can be reached at %s; start cove serve, or name its --socket",
                         path);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &size) < 0)
        return error_set(err, "not_running", errno, "cannot ask whose socket %s is", path);
    return 0;
}

/* Any of root's processes may listen where a link leads that somebody has put there. */
static bool is_keeper(pid_t pid)
{
    char path[32], name[sizeof("cove-keeper\n")] = "";

    (void)snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    return fd_read_file(AT_FDCWD, path, name, sizeof(name)) >= 0 &&
           strcmp(name, "cove-keeper\n") == 0;
}

int find_server(struct keeper *keeper, pid_t *pid, struct error *err)
{
    struct places *places = &keeper->places;
    struct ucred peer = {0};
    struct error ignored;

    if (places_find(places, &keeper->options, err) < 0)
        return -1;
    if (engine_config(keeper, &ignored) == 0)
        (void)config_read(keeper->engine.config, places->config_path, &keeper->config,
                          &keeper->options, &ignored);
    if (places_find_socket(places, &keeper->options, err) < 0 ||
        ask(places->keeper_path, &peer, err) < 0)
        return -1;
    /* In a directory that others may write to, it could be anybody's. */
    if (peer.pid <= 0 || (peer.uid != 0 && peer.uid != geteuid()))
        return error_set(err, "not_running", 0,
                         "%s is neither root's nor yours, or its process is in another pid "
                         "namespace; look for cove-keeper there",
                         places->keeper_path);
    if (!is_keeper(peer.pid))
        return error_set(err, "not_running", 0,
                         "process %d at %s is no server of cove; name the --socket of the server",
                         (int)peer.pid, places->keeper_path);
    *pid = peer.pid;
    return 0;
}
