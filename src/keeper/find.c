/* The server that runs: see find.h. The kernel says whose socket it is, so that there is no file with a number in it which
 * a later process could have. */
#include "keeper/find.h"

#include "base/fd.h"
#include "box/proto.h"
#include "box/sys.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define STOP_MS 60000 /* of all steps of its end; TimeoutStopSec= is as long */
#define RELOAD_MS 60000
#define ANSWER_MS 15000 /* it answers at once, but where it is being replaced */
#define PAUSE_MS 50

static int ask(const char *path, struct ucred *peer, int *into, struct error *err)
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
    *into = fd_take(&fd);
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

/* With a connection to it. The configuration fills in what the command line does not say. */
static int find_configured(struct keeper *keeper, pid_t *pid, int *connection, struct error *err)
{
    struct places *places = &keeper->places;
    struct ucred peer = {0};
    struct error ignored;

    if (places_find(places, &keeper->options, err) < 0)
        return -1;
    if (engine_config(keeper, &ignored) == 0)
        (void)config_read(keeper->engine.config, places->config_path, &keeper->config,
                          &keeper->options, &ignored);
    if (places_find_socket(places, &keeper->options, err) < 0)
        return -1;
    if (ask(places->keeper_path, &peer, connection, err) < 0) {
        /* A new value in the file holds from the next start on only. */
        bool is_configured = keeper->options.socket != NULL &&
                             keeper->options.socket == keeper->config.socket;

        keeper->options.socket = NULL;
        if (!is_configured || places_find_socket(places, &keeper->options, &ignored) < 0 ||
            ask(places->keeper_path, &peer, connection, &ignored) < 0)
            return -1;
    }
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

/* The texts of a configuration end when it is read anew, so nothing of it stays in the options. */
static int find(struct keeper *keeper, pid_t *pid, int *connection, struct error *err)
{
    const struct options given = keeper->options;
    int found = find_configured(keeper, pid, connection, err);

    keeper->options = given;
    return found;
}

int find_server(struct keeper *keeper, pid_t *pid, struct error *err)
{
    _cleanup_close_ int connection = -1;

    return find(keeper, pid, &connection, err);
}

/* ---- telling it ---- */

/* Sends it a signal; what is returned is readable once it has ended. */
static int signal_send(struct keeper *keeper, int number, pid_t *pid, struct error *err)
{
    _cleanup_close_ int held = -1;
    pid_t again = 0;

    if (find_server(keeper, pid, err) < 0)
        return -1;
    /* Asked for anew once it is held: its number may have been another's before. */
    held = (int)syscall(SYS_pidfd_open, *pid, 0);
    if (held < 0 || find_server(keeper, &again, err) < 0 || again != *pid)
        return error_set(err, "not_running", 0, "process %d has ended meanwhile", (int)*pid);
    if (sys_pidfd_send_signal(held, number) < 0)
        return error_set(err, "not_allowed", errno,
                         "process %d is another user's: ask as root, or as that user", (int)*pid);
    return fd_take(&held);
}

int find_stop(struct keeper *keeper, pid_t *pid, struct error *err)
{
    _cleanup_close_ int held = signal_send(keeper, SIGTERM, pid, err);
    struct pollfd ended = {.fd = held, .events = POLLIN};

    if (held < 0)
        return -1;
    if (poll(&ended, 1, STOP_MS) == 1)
        return 0;
    return error_set(err, "stop_slow", 0,
                     "process %d has not ended within %d s; its log says what it waits for",
                     (int)*pid, STOP_MS / 1000);
}

/* One request and its answer; -1 for what could not be said, else the answer's error decides. */
static int say(struct keeper *keeper, uint32_t verb, pid_t *pid, struct error *err)
{
    const struct names_request request = {.verb = verb};
    struct names_answer answer = {0};
    _cleanup_close_ int connection = -1;
    int fds[PROTO_FDS_MAX];

    if (find(keeper, pid, &connection, err) < 0)
        return -1;
    if (proto_send(connection, &request, sizeof(request), NULL, 0, NULL, 0) < 0 ||
        poll(&(struct pollfd){.fd = connection, .events = POLLIN}, 1, ANSWER_MS) != 1 ||
        proto_receive(connection, &answer, sizeof(answer), fds, MSG_DONTWAIT) !=
            (ssize_t)sizeof(answer))
        return error_set(err, "no_answer", 0,
                         "process %d gives no answer: its user is another one, or it has ended; "
                         "ask as root, and see its log",
                         (int)*pid);
    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]);
    *err = answer.error;
    return err->code[0] == '\0' ? 0 : -1;
}

int find_reload(struct keeper *keeper, pid_t *pid, struct error *err)
{
    int waited = 0, status = say(keeper, NAMES_RELOAD, pid, err);

    if (status < 0 && strcmp(err->code, "bad_request") == 0) {
        _cleanup_close_ int held = signal_send(keeper, SIGHUP, pid, err);

        return held < 0 ? -1 : 1;
    }
    for (; status == 0 && waited < RELOAD_MS; waited += PAUSE_MS) {
        if (say(keeper, NAMES_RELOADED, pid, err) == 0)
            return 0;
        if (strcmp(err->code, UPGRADE_UNDER_WAY) != 0)
            return -1;
        (void)poll(NULL, 0, PAUSE_MS);
    }
    return -1;
}
