/* What an init that was taken over may say to a link, as a fuzzer makes it up: no input may crash us,
 * hang us, or leave an fd behind.
 *
 * An input is a list of records: a byte that says what happens, one that says with which fds, one with
 * the size, and so many bytes of a packet. */
#include "base/fd.h"
#include "box/link.h"
#include "box/link_parts.h"
#include "box/proto.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum what { SAY, EXEC, HELLO, OPEN, WELCOME, FAILED, KINDS };

static const char *const argv_true[] = {"true", NULL};
static const char *const no_env[] = {NULL};
static const struct link_command pipes = {
    .argv = argv_true, .env = no_env, .cwd = "/", .stdio = LINK_PIPES};

/* Three ends of pipes, a file, a terminal: bits of `which` choose. */
static size_t make_fds(unsigned which, int fds[5], int extra[3])
{
    int all[5], ends[2];
    size_t count = 0;

    for (int i = 0; i < 3; i++) {
        if (pipe2(ends, O_CLOEXEC) < 0)
            abort();
        all[i] = ends[i == 0 ? 1 : 0];
        extra[i] = ends[i == 0 ? 0 : 1];
    }
    all[3] = open("/dev/null", O_RDWR | O_CLOEXEC);
    all[4] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    for (unsigned i = 0; i < 5; i++) {
        if ((which & 1U << i) != 0 && all[i] >= 0)
            fds[count++] = all[i];
        else
            fd_close(&all[i]);
    }
    return count;
}

static void say(int init, unsigned which, const uint8_t *packet, size_t size)
{
    int fds[5], extra[3];
    size_t count = make_fds(which, fds, extra);

    (void)proto_send_now(init, packet, size, NULL, 0, fds, count);
    for (size_t i = 0; i < count; i++)
        fd_close(&fds[i]);
    for (size_t i = 0; i < 3; i++)
        fd_close(&extra[i]);
}

static void hear_all(struct link *link)
{
    struct link_event event;
    struct error err;

    while (link_next(link, &event, &err) > 0) {
        /* What the caller may rely on. */
        if (event.kind == LINK_GONE && (event.fds[0] & event.fds[1] & event.fds[2]) != -1)
            abort();
        for (int i = 0; i < 3; i++)
            fd_close(&event.fds[i]);
        if (event.kind == LINK_GONE)
            break;
    }
}

static void act(struct link *link, int init, const uint8_t *record, const uint8_t *packet)
{
    struct proto_welcome welcome = {.head = {.type = PROTO_WELCOME, .id = link->hello},
                                    .version = 2};
    struct proto_failed failed = {.head.type = PROTO_FAILED}; /* longer than a record */
    struct error err;

    switch (record[0] % KINDS) {
    case EXEC:
        (void)link_exec(link, record[1], &pipes, &err);
        break;
    case HELLO:
        (void)link_hello(link, &err);
        break;
    case OPEN:
        (void)link_open_file(link, record[1], "/", 0, 0, &err);
        break;
    case WELCOME:
        (void)proto_send_now(init, &welcome, sizeof(welcome), NULL, 0, NULL, 0);
        break;
    case FAILED:
        memcpy(failed.error.code, packet, record[2] < 32 ? record[2] : 32);
        memcpy(failed.error.text, packet, record[2]);
        (void)proto_send_now(init, &failed, sizeof(failed), NULL, 0, NULL, 0);
        break;
    default:
        say(init, record[1] % 32, packet, record[2]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = data + size;
    struct error err;
    struct link *link;
    int pair[2], probe;
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)close(lowest);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
        link_open(pair[0], &link, &err) < 0)
        abort();
    while (end - data >= 3) {
        const uint8_t *packet = data + 3;

        if (end - packet < data[2])
            break;
        act(link, pair[1], data, packet);
        hear_all(link);
        data = packet + data[2];
    }
    link_close(link);
    (void)close(pair[1]);
    probe = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (probe != lowest)
        abort(); /* somebody holds the fd that was free before */
    (void)close(probe);
    return 0;
}
