/* Packets that are malformed, between the processes that make a box: of the wrong type, too short, cut, with more
 * fds than there is room for, or with others than they speak of. None is taken for another one, and none of its
 * fds stays. */
#include "base/fd.h"
#include "box/cgroup_enter.h"
#include "box/guard.h"
#include "box/proto.h"
#include "box/zygote/zygote.h"
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_MOST 40

static struct error err;

static int count_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    if (directory == NULL)
        return -1;
    while (readdir(directory) != NULL)
        count++;
    (void)closedir(directory);
    return count;
}

static void open_pair(int pair[2], bool with_sender)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
        setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &(int){with_sender}, sizeof(int)) < 0) {
        perror("a pair");
        exit(1);
    }
}

/* Packets that proto_send() would not send. */
static void send_with(int socket, const void *packet, size_t size, size_t fds_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MOST)];
    } control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int zeros[FDS_MOST] = {0};

    if (fds_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fds_count);
        control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int) * fds_count),
                                         .cmsg_level = SOL_SOCKET,
                                         .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.align), zeros, sizeof(int) * fds_count);
    }
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size, "a packet: %m");
}

/* ---- receiving ---- */

static void check_received(bool with_sender, bool asks, size_t fds_count, bool is_taken)
{
    int pair[2], fds[PROTO_FDS_MAX], before;
    pid_t sender = -1;
    ssize_t n;
    char byte;

    open_pair(pair, with_sender);
    before = count_fds();
    send_with(pair[1], "x", 1, fds_count);
    n = proto_receive_from(pair[0], &byte, 1, fds, asks ? &sender : NULL, 0);
    CHECK(is_taken ? n == 1 : n < 0 && errno == EMSGSIZE, "%zu fds: %zd", fds_count, n);
    CHECK(proto_fds_count(fds) == (is_taken ? fds_count : 0), "%zu of %zu fds",
          proto_fds_count(fds), fds_count);
    if (asks)
        CHECK(sender == (with_sender ? getpid() : 0), "from %d", sender);
    proto_fds_close(fds);
    CHECK(count_fds() == before, "of %zu fds some stay", fds_count);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void check_receiver(void)
{
    int pair[2], fds[PROTO_FDS_MAX];
    char bytes[3];

    for (int kind = 0; kind < 4; kind++) {
        bool with_sender = (kind & 1) != 0, asks = (kind & 2) != 0;

        check_received(with_sender, asks, 0, true);
        check_received(with_sender, asks, 1, true);
        check_received(with_sender, asks, PROTO_FDS_MAX, true);
        check_received(with_sender, asks, PROTO_FDS_MAX + 1, false);
        check_received(with_sender, asks, PROTO_FDS_MAX + 4, false);
        check_received(with_sender, asks, FDS_MOST, false);
    }
    open_pair(pair, true);
    send_with(pair[1], "long", 4, 2);
    CHECK(proto_receive(pair[0], bytes, sizeof(bytes), fds, 0) < 0 && errno == EMSGSIZE,
          "a packet that was cut");
    CHECK(proto_fds_count(fds) == 0, "its fds");
    (void)close(pair[0]);
    (void)close(pair[1]);
}

/* ---- the gate, and the request that it comes with ---- */

static void check_gate(void)
{
    static const int fds[PROTO_FDS_MAX] = {10, 11, 12, 13, 14};
    static const struct {
        uint32_t doors, views;
        size_t came;
    } wrong[] = {
        {2, 3, 4},
        {2, 3, 6},
        {0, 0, 1},
        {1, 0, 0},
        {CGROUP_V1_MAX + 1, 0, CGROUP_V1_MAX + 1},
        {0, CGROUP_V1_MAX + 1, CGROUP_V1_MAX + 1},
        {UINT32_MAX, 1, 0},
        {UINT32_MAX, UINT32_MAX, PROTO_FDS_MAX},
    };
    struct cgroup_gate gate = {.doors_count = 2, .views_count = 3};

    CHECK(cgroup_gate_take(&gate, fds, 5) == 0 && gate.doors[1] == 11 && gate.views[0] == 12 &&
              gate.views[2] == 14,
          "a gate");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        gate = (struct cgroup_gate){.doors_count = wrong[i].doors, .views_count = wrong[i].views};
        CHECK(cgroup_gate_take(&gate, fds, wrong[i].came) < 0, "%u doors, %u views, %zu fds",
              wrong[i].doors, wrong[i].views, wrong[i].came);
    }
}

static void check_request(void)
{
    static struct zygote_request request = {.type = ZYGOTE_REQUEST,
                                            .flags = ZYGOTE_INTO | ZYGOTE_UPPER};

    CHECK(zygote_request_fits(&request, sizeof(request), 3), "a request");
    CHECK(!zygote_request_fits(&request, sizeof(request), 2), "a flag without its fd");
    CHECK(!zygote_request_fits(&request, sizeof(request) - 1, 3), "a short one");
    request.flags |= ZYGOTE_FLAGS + 1;
    CHECK(!zygote_request_fits(&request, sizeof(request), 4), "an unknown flag");
    request = (struct zygote_request){.type = ZYGOTE_ANSWER};
    CHECK(!zygote_request_fits(&request, sizeof(request), 1), "another type");
    request.type = ZYGOTE_REQUEST;
    CHECK(zygote_request_fits(&request, sizeof(request), 1), "no flags");
    CHECK(!zygote_request_fits(&request, sizeof(request), 0), "no control socket");
}

/* ---- a guard ---- */

static void begin(struct guard *guard)
{
    const struct guard_order order = {.name = "packets",
                                      .uid_map = "",
                                      .gid_map = "",
                                      .disk = {.parent = -1, .lock = -1},
                                      .keep = -1};

    if (guard_start(&order, guard, &err) < 0) {
        printf("%s\n", err.text);
        exit(1);
    }
}

/* A guard that took it for what it is not would say something before its report. */
static void check_said_to(struct guard *guard, const char *what, const void *packet, size_t size,
                          size_t fds_count)
{
    struct box_report report;
    uint32_t said = 0;

    send_with(guard->socket, packet, size, fds_count);
    CHECK(guard_tell_finish(guard, true, &err) == 0, "%s: %s", what, err.text);
    CHECK(recv(guard->socket, &said, sizeof(said), MSG_PEEK) == (ssize_t)sizeof(said) &&
              said == GUARD_REPORT,
          "%s: it said %u", what, said);
    CHECK(guard_finish(guard, &report, &err) == 0, "%s: %s", what, err.text);
}

/* By one that waits for its child, and by one that has heard of somebody. */
static void check_passed_over(const char *what, const void *packet, size_t size, size_t fds_count)
{
    struct guard guard;

    begin(&guard);
    check_said_to(&guard, what, packet, size, fds_count);
    begin(&guard);
    guard_hurry(&guard);
    check_said_to(&guard, what, packet, size, fds_count);
}

static void check_guard(void)
{
    static const struct guard_watch watch = {.type = GUARD_WATCH};
    static char large[65536];
    uint32_t types[] = {GUARD_GO, GUARD_GATE, GUARD_MADE, GUARD_FAILED, 99, UINT32_MAX};

    check_passed_over("a byte", "h", 1, 0);
    check_passed_over("half a type", &watch, 2, 1);
    check_passed_over("a short one", &watch, sizeof(watch) - 1, 2);
    check_passed_over("another's size", &watch, sizeof(struct guard_word), 2);
    check_passed_over("a long one", large, sizeof(large), 0);
    check_passed_over("too many fds", &(struct guard_word){GUARD_HELLO}, sizeof(struct guard_word),
                      PROTO_FDS_MAX + 1);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        check_passed_over("a word of another type", &types[i], sizeof(types[i]), 1);
        check_passed_over("another type", &(struct guard_watch){.type = types[i]}, sizeof(watch),
                          2);
    }
}

int main(void)
{
    check_receiver();
    check_gate();
    check_request();
    check_guard();
    return check_finish();
}
