/* Stands in for the engine: hands all it was given to the test that waits at DIR/engine/test.sock, and
 * lives until that closes its end, or the keeper kills it. So the test is the engine, and as hostile
 * as it likes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST 3
#define FDS_MAX 16

extern char **environ;

/* What it is and was given, for the test to look at. */
static size_t describe(char *text, size_t size)
{
    gid_t groups[64];
    size_t used = (size_t)snprintf(text, size, "pid=%d uid=%u gid=%u groups=%d dumpable=%d",
                                   getpid(), getuid(), getgid(), getgroups(64, groups),
                                   prctl(PR_GET_DUMPABLE));
    int signal_number = 0;

    (void)prctl(PR_GET_PDEATHSIG, &signal_number);
    used += (size_t)snprintf(text + used, size - used, " no_new_privs=%d deathsig=%d fds=",
                             prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), signal_number);
    for (int fd = 0; fd < 64; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            used += (size_t)snprintf(text + used, size - used, "%d,", fd);
    for (char **entry = environ; *entry != NULL; entry++)
        used += (size_t)snprintf(text + used, size - used, " %s", *entry);
    return used;
}

int main(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/proc/self/fd/4/test.sock"};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control = {0};
    char text[4096];
    struct iovec part = {.iov_base = text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
    int fds[FDS_MAX], count = 0, test;

    part.iov_len = describe(text, sizeof(text));
    while (count < FDS_MAX && fcntl(FIRST + count, F_GETFD) >= 0) {
        fds[count] = FIRST + count;
        count++;
    }
    test = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (test < 0 || connect(test, (struct sockaddr *)&address, sizeof(address)) < 0) {
        fprintf(stderr, "stand_in: no test: %s\n", strerror(errno));
        return 3;
    }
    message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count),
                                     .cmsg_level = SOL_SOCKET,
                                     .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * (size_t)count);
    if (sendmsg(test, &message, 0) < 0)
        return 4;
    for (int i = 0; i < count; i++)
        (void)close(fds[i]);
    /* The test says with which status to exit, or closes. */
    return read(test, text, 1) == 1 ? text[0] : 0;
}
