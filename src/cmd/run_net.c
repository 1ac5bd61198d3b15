/* `cove run --net`: see run_net.h. cove itself links no resolver and reads nothing that comes from a network: that
 * does cove-engine, in a mode of its own (front/alone.c), which is started for this box, may do no more than that takes
 * (front/confine.c), and ends with us. Until it says that the policy is in force no command runs, and what goes wrong
 * before ends the run; what goes wrong later leaves a command without a network, never with another one. */
#include "cmd/run_net.h"

#include "base/clock.h"
#include "base/fd.h"
#include "box/network.h"
#include "cmd/cmd.h"
#include "cmd/config.h"
#include "keeper/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_NS 20000000000U
#define NOBODY 65534
#define FD_TCP 3 /* of the engine; see front/alone.c */
#define FD_UDP 4
#define FD_LINK 5
#define FD_CONFIG 6 /* may be missing */
#define FDS 4
#define FDS_ASIDE 64

static int engine_open(struct error *err)
{
    char path[PATH_MAX];
    int fd;

    if (cmd_beside("cove-engine", path, err) < 0)
        return -1;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? fd
                   : error_set(err, "no_engine", errno,
                               "--net: cannot open %s, which carries the network of a box", path);
}

/* Nobody's, where we are root. Of what an ordinary user has it keeps nothing either: it confines itself when it has
 * opened what it needs, before it has read a byte of others. */
static int rights_drop(void)
{
    if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
                           setresuid(NOBODY, NOBODY, NOBODY) < 0))
        return -1;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

/* Between fork and exec; fds are moved out of the way first, for they may have each other's numbers. */
static void engine_become(int program, const struct network_sockets *sockets, int link, int config,
                          const char *policy)
{
    const int from[FDS] = {sockets->tcp, sockets->udp, link, config};
    char *const argv[] = {(char[]){"cove-engine"}, (char[]){"--alone"}, (char *)policy, NULL};
    char *const environment[] = {NULL};
    int aside[FDS], nothing, count = config < 0 ? FDS - 1 : FDS;
    sigset_t none;

    program = fcntl(program, F_DUPFD_CLOEXEC, FDS_ASIDE);
    for (int i = 0; i < count; i++) {
        aside[i] = fcntl(from[i], F_DUPFD_CLOEXEC, FDS_ASIDE);
        if (aside[i] < 0)
            _exit(127);
    }
    for (int i = 0; i < count; i++)
        if (dup2(aside[i], FD_TCP + i) < 0)
            _exit(127);
    nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO;
         fd++) /* what the caller has is none of its business */
        if (nothing < 0 || dup2(nothing, fd) < 0)
            _exit(127);
    if (close_range((unsigned)(FD_TCP + count), ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        _exit(127);
    (void)setsid(); /* what a terminal says is for the command */
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (rights_drop() < 0 || engine_filter_load() < 0)
        _exit(127);
    (void)fexecve(program, argv, environment);
    _exit(127);
}

/* That of an engine which the caller would start. One that he may not read is not meant for him. */
static int config_open(void)
{
    char path[PATH_MAX];
    struct error ignored;

    if (config_find(NULL, path, &ignored) < 0 || path[0] == '\0')
        return -1;
    return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

int run_net_begin(struct run_net *net, struct box *box, const char *policy, struct error *err)
{
    _cleanup_close_ int program = engine_open(err), theirs = -1, config = -1;
    struct network_sockets sockets = {-1, -1};
    int pair[2], result;

    if (program < 0 || network_open(box_network(box), &sockets, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        result = error_set(err, "network_failed", errno, "--net: no socket for cove-engine");
    } else {
        config = config_open();
        net->until_ns = clock_monotonic_ns() + READY_NS;
        net->link = pair[0];
        theirs = pair[1];
        net->engine = fork();
        if (net->engine == 0)
            engine_become(program, &sockets, theirs, config, policy);
        fd_close(&theirs);
        if (net->engine < 0)
            net->engine = 0;
        result = net->engine > 0
                     ? 0
                     : error_set(err, "network_failed", errno, "--net: no process for cove-engine");
    }
    fd_close(&sockets.tcp);
    fd_close(&sockets.udp);
    return result;
}

/* It says one byte 1 when it is ready, or what is wrong in words. */
static int ready_hear(struct run_net *net, struct error *err)
{
    char said[400];
    ssize_t length = recv(net->link, said, sizeof(said) - 1, MSG_DONTWAIT);

    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (clock_monotonic_ns() < net->until_ns)
            return 0;
        return error_set(
            err, "network_failed", 0,
            "--net: cove-engine is not ready after %u s; see what keeps this host busy",
            (unsigned)(READY_NS / 1000000000U));
    }
    if (length == 1 && said[0] == 1) {
        net->is_ready = true;
        net->until_ns = UINT64_MAX;
        return 1;
    }
    said[length > 0 ? length : 0] = '\0';
    return error_set(err, "network_failed", 0, "--net: cove-engine %s",
                     length > 0 ? said
                                : "ended before it carried the network, or did not begin; "
                                  "cove doctor says what it lacks");
}

int run_net_hear(struct run_net *net, struct error *err)
{
    char nothing;
    ssize_t length;

    if (!net->is_ready)
        return ready_hear(net, err);
    length = recv(net->link, &nothing, 1, MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    fd_close(&net->link);
    cmd_warn("--net: cove-engine, which carried the network of this run, has ended; the "
             "command goes on without");
    return 0;
}

void run_net_end(struct run_net *net)
{
    fd_close(&net->link);
    if (net->engine <= 0)
        return;
    (void)kill(net->engine, SIGKILL);
    while (waitpid(net->engine, NULL, 0) < 0 && errno == EINTR)
        continue;
    net->engine = 0;
}
