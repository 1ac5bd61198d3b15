/* Stands in for the engine: hands all it was given to the test that waits at DIR/engine/test.sock, and
 * lives until that closes its end, or the keeper kills it. So the test is the engine, and as hostile
 * as it likes. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <termios.h>
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

static int error_of(long result)
{
    return result < 0 ? errno : 0;
}

/* What a taken-over engine might try: the errno of each, 0 where it succeeded. */
static void attack(char *text, size_t size)
{
    char *argv[] = {"true", NULL}, byte = 'x';
    int terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), unlock = 0, fork_error,
        flow = 0;
    pid_t pid = fork();
    struct termios modes;

    if (pid == 0)
        pause();
    fork_error = error_of(pid);
    (void)snprintf(
        text, size,
        " fork=%d clone=%d clone3=%d execve=%d unshare=%d setns=%d ptrace=%d bpf=%d"
        " io_uring=%d keyctl=%d mount=%d sti=%d flow=%d unlock=%d get=%d session=%d",
        fork_error, error_of(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)),
        error_of(syscall(SYS_clone3, NULL, 0)), error_of(execve("/bin/true", argv, argv)),
        error_of(unshare(CLONE_NEWUSER)), error_of(setns(0, 0)),
        error_of(syscall(SYS_ptrace, 0, 0, 0, 0)), error_of(syscall(SYS_bpf, 0, NULL, 0)),
        error_of(syscall(SYS_io_uring_setup, 1, NULL)),
        error_of(syscall(SYS_keyctl, 0, 0, 0, 0, 0)), error_of(mount("", "/", "", 0, "")),
        error_of(ioctl(terminal, TIOCSTI, &byte)), error_of(ioctl(terminal, TCXONC, flow)),
        error_of(ioctl(terminal, TIOCSPTLCK, &unlock)), error_of(ioctl(terminal, TCGETS, &modes)),
        getsid(0) == getpid());
    (void)close(terminal);
}

int main(int argc, char **argv)
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

    if (argc == 2 && strcmp(argv[1], "--check") == 0)
        return 0;
    part.iov_len = describe(text, sizeof(text));
    attack(text + part.iov_len, sizeof(text) - part.iov_len);
    part.iov_len = strlen(text);
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
