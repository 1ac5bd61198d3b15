/* Packets with fds: see proto.h. Built with both libcs; allocates nothing. */
#include "box/proto.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int proto_send(int socket, const void *packet, size_t size, const void *more, size_t more_size,
               const int *fds, size_t fds_count)
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
        n = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

static size_t take_fds(struct msghdr *message, int fds[PROTO_FDS_MAX])
{
    size_t count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        size_t came;

        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        came = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < came; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
            if (count < PROTO_FDS_MAX)
                fds[count++] = fd;
            else
                (void)close(fd);
        }
    }
    return count;
}

ssize_t proto_receive(int socket, void *packet, size_t size, int fds[PROTO_FDS_MAX], int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * PROTO_FDS_MAX)];
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = size};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t n;

    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fds[i] = -1;
    do
        n = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    (void)take_fds(&message, fds);
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        for (size_t i = 0; i < PROTO_FDS_MAX; i++) {
            if (fds[i] >= 0)
                (void)close(fds[i]);
            fds[i] = -1;
        }
        errno = EMSGSIZE;
        return -1;
    }
    return n;
}

/* Texts of the box go to people and into JSON: plain ASCII, whatever was sent. */
static void clean(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            *text = '?';
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
        return size == sizeof(answer->failed) && fds_count == 0;
    case PROTO_READY:
        return size == sizeof(answer->head) && fds_count == 0;
    case PROTO_STARTED:
        return size == sizeof(answer->started) && fds_count <= 1;
    case PROTO_REFUSED:
        return size == sizeof(answer->refused) && fds_count == 0 && answer->refused.step >= 1 &&
               answer->refused.step <= PROTO_STEP_LAST;
    case PROTO_EXITED:
        return size == sizeof(answer->exited) && fds_count == 0;
    default:
        return false;
    }
}
