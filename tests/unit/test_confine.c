/* What the carrier of a run's network may still do, tried for real by a forked child that is confined. */
#include "front/confine.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[] = "/tmp/confine-XXXXXX", secret[64], made[64];
static bool has_landlock;

static int errno_of(int result)
{
    return result < 0 ? errno : 0;
}

static int opened(const char *path, int flags)
{
    return errno_of(open(path, flags | O_CLOEXEC, 0600));
}

static void try_files(void)
{
    const int wanted = has_landlock ? EACCES : 0;

    CHECK(opened("/etc/passwd", O_RDONLY) == 0, "errno %d", errno);
    CHECK(opened("/etc/resolv.conf", O_RDONLY) == 0 || errno == ENOENT, "errno %d", errno);
    CHECK(opened("/dev/null", O_RDONLY) == 0, "errno %d", errno);
    CHECK(opened(secret, O_RDONLY) == wanted, "errno %d", errno);
    CHECK(opened(secret, O_WRONLY) == wanted, "errno %d", errno);
    CHECK(opened(made, O_WRONLY | O_CREAT) == wanted, "errno %d", errno);
    CHECK(opened("/proc/self/environ", O_RDONLY) == wanted, "errno %d", errno);
    CHECK(!has_landlock || unlink(secret) < 0, "a file is gone");
}

/* To our own other end, so that whatever the host lets in answers. */
static int connected(const struct sockaddr_in *to)
{
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return client < 0 ? errno : errno_of(connect(client, (const struct sockaddr *)to, sizeof(*to)));
}

static void try_sockets(const struct sockaddr_in *to)
{
    int pair[2];

    CHECK(connected(to) == 0, "errno %d", errno);
    CHECK(socket(AF_INET6, SOCK_DGRAM, 0) >= 0 || errno == EAFNOSUPPORT, "errno %d", errno);
    CHECK(socket(AF_NETLINK, SOCK_RAW, 0) >= 0, "errno %d", errno);
    CHECK(errno_of(socket(AF_UNIX, SOCK_STREAM, 0)) == EAFNOSUPPORT, "errno %d", errno);
    CHECK(errno_of(socket(AF_VSOCK, SOCK_STREAM, 0)) == EAFNOSUPPORT, "errno %d", errno);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "errno %d", errno);
}

int main(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(here);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), file, status = 1;
    struct error err;
    pid_t child;

    has_landlock = syscall(SYS_landlock_create_ruleset, NULL, 0, 1U) >= 1;
    if (mkdtemp(directory) == NULL || bind(listener, (struct sockaddr *)&here, size) < 0 ||
        listen(listener, 4) < 0 || getsockname(listener, (struct sockaddr *)&here, &size) < 0)
        return 1;
    (void)snprintf(secret, sizeof(secret), "%s/secret", directory);
    (void)snprintf(made, sizeof(made), "%s/made", directory);
    file = open(secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(file >= 0, "errno %d", errno);
    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "errno %d", errno);
        CHECK(confine(&err) == 0, "%s", err.text);
        try_files();
        try_sockets(&here);
        status = check_finish();
        (void)fflush(stdout);
        _exit(status);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %d", status);
    (void)unlink(secret);
    (void)unlink(made);
    (void)rmdir(directory);
    return check_finish();
}
