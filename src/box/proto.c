/* Packets with fds: see proto.h. Built with both libcs; allocates nothing. */
#include "box/proto.h"

#include "base/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIGNALS_LAST 64

static int send_packet(int socket, const void *packet, size_t size, const void *more,
                       size_t more_size, const int *fds, size_t fds_count, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PROTO_FDS_MAX)];
    } control;
    struct iovec parts[2] = {
        {.iov_base = (void *)(uintptr_t)packet, .iov_len = size},
        {.iov_base = (void *)(uintptr_t)more, .iov_len = more_size},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = more_size > 0 ? 2 : 1};
    ssize_t n;

    if (fds_count > 0) {
        struct cmsghdr *header;

        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fds_count);
        header = &control.align; /* what CMSG_FIRSTHDR() would say */
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * fds_count);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * fds_count);
    }
    do
        n = sendmsg(socket, &message, MSG_NOSIGNAL | flags);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

int proto_send(int socket, const void *packet, size_t size, const void *more, size_t more_size,
               const int *fds, size_t fds_count)
{
    return send_packet(socket, packet, size, more, more_size, fds, fds_count, 0);
}

int proto_send_now(int socket, const void *packet, size_t size, const void *more, size_t more_size,
                   const int *fds, size_t fds_count)
{
    return send_packet(socket, packet, size, more, more_size, fds, fds_count, MSG_DONTWAIT);
}

/* Takes what came beside a packet: how many fds, of which those without room are closed. */
static size_t take_control(struct msghdr *message, int fds[PROTO_FDS_MAX], pid_t *sender)
{
    size_t count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        const unsigned char *data = CMSG_DATA(header);
        const unsigned char *end = (const unsigned char *)header + header->cmsg_len;

        if (header->cmsg_level != SOL_SOCKET)
            continue;
        if (header->cmsg_type == SCM_CREDENTIALS && sender != NULL) {
            struct ucred from;

            memcpy(&from, data, sizeof(from));
            *sender = from.pid;
        }
        for (; header->cmsg_type == SCM_RIGHTS && data < end; data += sizeof(int)) {
            int fd;

            memcpy(&fd, data, sizeof(fd));
            if (count < PROTO_FDS_MAX)
                fds[count] = fd;
            else
                (void)close(fd);
            count++;
        }
    }
    return count;
}

size_t proto_fds_count(const int fds[PROTO_FDS_MAX])
{
    size_t count = 0;

    while (count < PROTO_FDS_MAX && fds[count] >= 0)
        count++;
    return count;
}

void proto_fds_close(int fds[PROTO_FDS_MAX])
{
    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]);
}

ssize_t proto_receive_from(int socket, void *packet, size_t size, int fds[PROTO_FDS_MAX],
                           pid_t *sender, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int) * PROTO_FDS_MAX)];
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    size_t count;
    ssize_t n;

    if (sender != NULL)
        *sender = 0;
    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fds[i] = -1;
    do
        n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    count = take_control(&message, fds, sender);
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || count > PROTO_FDS_MAX) {
        proto_fds_close(fds);
        errno = EMSGSIZE;
        return -1;
    }
    return n;
}

ssize_t proto_receive(int socket, void *packet, size_t size, int fds[PROTO_FDS_MAX], int flags)
{
    return proto_receive_from(socket, packet, size, fds, NULL, flags);
}

/* Texts of the box go to people and into JSON: plain ASCII, whatever was sent. */
static void clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
}

static bool is_errno(int32_t errnum)
{
    return errnum >= 0 && errnum <= PROTO_ERRNO_MAX;
}

/* As waitpid(2) says it of a process that ended, and of no other. */
static bool is_end(int32_t status)
{
    return (status & ~0xffff) == 0 &&
           (WIFEXITED(status) || (WIFSIGNALED(status) && WTERMSIG(status) <= SIGNALS_LAST));
}

static bool check_held(const struct proto_held *held, size_t fds_count)
{
    bool ended = (held->flags & PROTO_HELD_ENDED) != 0;
    bool tty = (held->flags & PROTO_HELD_TTY) != 0;

    if ((held->flags & ~(uint32_t)(PROTO_HELD_ENDED | PROTO_HELD_TTY)) != 0 || held->pid <= 0)
        return false;
    if (tty ? held->fds != 1 : held->fds > 7)
        return false;
    if (ended ? !is_end(held->status) : held->status != 0 || held->cpu_ns != 0)
        return false;
    return fds_count == (size_t)__builtin_popcount(held->fds);
}

bool proto_answer_check(union proto_answer *answer, size_t size, size_t fds_count)
{
    if (size < sizeof(answer->head))
        return false;
    switch (answer->head.type) {
    case PROTO_FAILED:
        if (size != sizeof(answer->failed))
            return false;
        clean(answer->failed.error.code, sizeof(answer->failed.error.code));
        clean(answer->failed.error.text, sizeof(answer->failed.error.text));
        return fds_count == 0;
    case PROTO_READY:
    case PROTO_TABLE_END:
        return size == sizeof(answer->head) && fds_count == 0;
    case PROTO_STARTED:
        return size == sizeof(answer->started) && fds_count <= 1 && answer->started.pid > 0;
    case PROTO_REFUSED:
        return size == sizeof(answer->refused) && fds_count == 0 && answer->refused.step >= 1 &&
               answer->refused.step <= PROTO_STEP_LAST && is_errno(answer->refused.errnum);
    case PROTO_EXITED:
        return size == sizeof(answer->exited) && fds_count == 0 && is_end(answer->exited.status);
    case PROTO_WELCOME:
        return size == sizeof(answer->welcome) && fds_count == 0;
    case PROTO_BEGUN:
    case PROTO_ENTRY:
        return size == sizeof(answer->held) && check_held(&answer->held, fds_count);
    case PROTO_OPENED:
        return size == sizeof(answer->opened) && is_errno(answer->opened.errnum) &&
               fds_count == (answer->opened.errnum == 0 ? 1 : 0);
    default:
        return false;
    }
}
