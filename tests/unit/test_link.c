/* A link against an init that is none of ours: every answer that is malformed, was not asked for, or
 * carries what it should not is the end of that box, and nothing of it stays with us. */
#include "base/fd.h"
#include "box/link.h"
#include "box/link_parts.h"
#include "box/proto.h"
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static struct link *under_test;
static int init = -1; /* our side: the one that lies */
static struct link_event event;
static struct error err;
static uint32_t hello_id;

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

static void begin(void)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ||
        link_open(pair[0], &under_test, &err) < 0) {
        perror("a link");
        exit(1);
    }
    init = pair[1];
}

static void end(void)
{
    link_close(under_test);
    under_test = NULL;
    fd_close(&init);
}

static void close_event(void)
{
    for (int i = 0; i < 3; i++)
        fd_close(&event.fds[i]);
}

static int next(void)
{
    close_event();
    return link_next(under_test, &event, &err);
}

static void say(const void *packet, size_t size, const int *fds, size_t count)
{
    if (proto_send_now(init, packet, size, NULL, 0, fds, count) < 0)
        perror("an answer");
}

/* Takes what the link asks for; the id of a hello is noted. */
static size_t hear(uint32_t *type)
{
    static char packet[sizeof(struct proto_exec) + PROTO_INLINE_MAX + 64];
    int fds[PROTO_FDS_MAX];
    ssize_t n = proto_receive(init, packet, sizeof(packet), fds, MSG_DONTWAIT);
    struct proto_head head = {0};

    for (size_t i = 0; i < PROTO_FDS_MAX; i++)
        fd_close(&fds[i]);
    if (n < (ssize_t)sizeof(head))
        return 0;
    memcpy(&head, packet, sizeof(head));
    if (head.type == PROTO_HELLO)
        hello_id = head.id;
    *type = head.type;
    return (size_t)n;
}

static bool is_bad(void)
{
    int got = next();

    return got == 1 && event.kind == LINK_GONE && strcmp(event.error.code, "bad_init") == 0 &&
           event.fds[0] < 0 && event.fds[1] < 0 && event.fds[2] < 0;
}

static const char *const argv_true[] = {"true", NULL};
static const char *const no_env[] = {NULL};
static const struct link_command pipes = {
    .argv = argv_true, .env = no_env, .cwd = "/", .stdio = LINK_PIPES};

static void ask_command(uint32_t id)
{
    uint32_t type = 0;

    CHECK(link_exec(under_test, id, &pipes, &err) == 0, "%s", err.text);
    CHECK(hear(&type) > 0 && type == PROTO_EXEC, "type %u", type);
}

static void ask_hello(void)
{
    uint32_t type = 0;

    CHECK(link_hello(under_test, &err) == 0, "%s", err.text);
    CHECK(hear(&type) == sizeof(struct proto_hello) && type == PROTO_HELLO, "type %u", type);
}

static void welcome(uint32_t id, uint32_t version)
{
    struct proto_welcome answer = {.head = {.type = PROTO_WELCOME, .id = id}, .version = version};

    say(&answer, sizeof(answer), NULL, 0);
}

/* Says hello and is welcomed by an init of this version. */
static void greet(uint32_t version)
{
    ask_hello();
    welcome(hello_id, version);
    CHECK(next() == 1 && event.kind == LINK_HELLO, "kind %d", event.kind);
}

/* ---- what a good one says ---- */

static struct proto_held held_of(enum proto_type type, uint32_t id, uint32_t fds)
{
    return (struct proto_held){.head = {.type = type, .id = id}, .pid = 7, .fds = fds};
}

/* The outside's ends of three pipes, and the command's to close. */
static void make_pipes(int far[3], int near[3])
{
    for (int i = 0; i < 3; i++) {
        int ends[2];

        if (pipe2(ends, O_CLOEXEC) < 0) {
            perror("pipe");
            exit(1);
        }
        far[i] = ends[i == 0 ? 1 : 0];
        near[i] = ends[i == 0 ? 0 : 1];
    }
}

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        fd_close(&fds[i]);
}

static void test_a_good_one(void)
{
    struct proto_head ready = {.type = PROTO_READY};
    struct proto_held begun = held_of(PROTO_BEGUN, 9, 7);
    struct proto_exited exited = {
        .head = {.type = PROTO_EXITED, .id = 9}, .status = 3 << 8, .cpu_ns = 5};
    int far[3], near[3];

    begin();
    CHECK(next() == 0, "an event of nothing");
    say(&ready, sizeof(ready), NULL, 0);
    CHECK(next() == 1 && event.kind == LINK_READY, "kind %d", event.kind);
    ask_command(9);
    make_pipes(far, near);
    say(&begun, sizeof(begun), far, 3);
    say(&exited, sizeof(exited), NULL, 0);
    CHECK(next() == 1 && event.kind == LINK_STARTED && event.id == 9 && event.pid == 7 &&
              !event.has_ended && !event.is_tty,
          "kind %d", event.kind);
    for (int i = 0; i < 3; i++)
        CHECK(event.fds[i] >= 0 && (fcntl(event.fds[i], F_GETFL) & O_NONBLOCK) != 0 &&
                  fcntl(event.fds[i], F_GETFD) == FD_CLOEXEC,
              "fd %d", i);
    CHECK(next() == 1 && event.kind == LINK_EXITED && event.status == 3 << 8 && event.cpu_ns == 5,
          "kind %d", event.kind);
    CHECK(next() == 0, "one more event");
    fd_close(&init);
    CHECK(next() == 1 && event.kind == LINK_GONE && strcmp(event.error.code, "box_gone") == 0,
          "code %s", event.error.code);
    CHECK(link_kill(under_test, 9, &err) < 0 && strcmp(err.code, "box_gone") == 0, "%s", err.code);
    close_all(far, 3);
    close_all(near, 3);
    end();
}

static void test_a_table(void)
{
    struct proto_head stale = {.type = PROTO_READY}, finish = {.type = PROTO_TABLE_END};
    struct proto_held runs = held_of(PROTO_ENTRY, 3, 6), ended = held_of(PROTO_ENTRY, 4, 0);
    struct proto_held others = held_of(PROTO_BEGUN, 2, 7);
    int far[3], near[3];

    begin();
    make_pipes(far, near);
    ended.flags = PROTO_HELD_ENDED;
    ended.status = 9;
    ended.cpu_ns = 11;
    /* To somebody who was killed. */
    say(&stale, sizeof(stale), NULL, 0);
    say(&stale, sizeof(stale), NULL, 0);
    say(&others, sizeof(others), far, 3);
    ask_hello();
    welcome(hello_id + 1, 1);
    say(&runs, sizeof(runs), far + 1, 2);
    welcome(hello_id, 2);
    say(&runs, sizeof(runs), far + 1, 2);
    say(&ended, sizeof(ended), NULL, 0);
    say(&finish, sizeof(finish), NULL, 0);
    CHECK(next() == 1 && event.kind == LINK_HELLO && event.version == 2 && event.id == 0, "kind %d",
          event.kind);
    CHECK(next() == 1 && event.kind == LINK_ENTRY && event.id == 3 && event.fds[0] < 0 &&
              event.fds[1] >= 0 && event.fds[2] >= 0 && !event.has_ended,
          "kind %d", event.kind);
    CHECK(next() == 1 && event.kind == LINK_ENTRY && event.id == 4 && event.has_ended &&
              event.status == 9 && event.cpu_ns == 11,
          "kind %d", event.kind);
    CHECK(next() == 1 && event.kind == LINK_TABLE_END, "kind %d", event.kind);
    CHECK(next() == 0, "one more event");
    close_all(far, 3);
    close_all(near, 3);
    end();
}

static void test_a_failed_one(void)
{
    struct proto_failed failed = {.head.type = PROTO_FAILED};

    begin();
    memset(&failed.error, 0x1b, sizeof(failed.error));
    memcpy(failed.error.code, "mount_failed", 13);
    say(&failed, sizeof(failed), NULL, 0);
    CHECK(next() == 0, "an event before the end");
    fd_close(&init);
    CHECK(next() == 1 && event.kind == LINK_GONE, "kind %d", event.kind);
    CHECK(strcmp(event.error.code, "mount_failed") == 0, "%s", event.error.code);
    CHECK(strspn(event.error.text, "?") == sizeof(event.error.text) - 1, "%s", event.error.text);
    end();
}

/* ---- form ---- */

static const struct {
    enum proto_type type;
    size_t size;
} forms[] = {
    {PROTO_FAILED, sizeof(struct proto_failed)},   {PROTO_READY, sizeof(struct proto_head)},
    {PROTO_STARTED, sizeof(struct proto_started)}, {PROTO_REFUSED, sizeof(struct proto_refused)},
    {PROTO_EXITED, sizeof(struct proto_exited)},   {PROTO_WELCOME, sizeof(struct proto_welcome)},
    {PROTO_ENTRY, sizeof(struct proto_held)},      {PROTO_TABLE_END, sizeof(struct proto_head)},
    {PROTO_BEGUN, sizeof(struct proto_held)},      {PROTO_OPENED, sizeof(struct proto_opened)},
};
#define FORMS (sizeof(forms) / sizeof(forms[0]))

static void test_sizes(void)
{
    static char packet[2 * sizeof(union proto_answer)];

    for (size_t i = 0; i < FORMS; i++) {
        for (size_t size = 1; size <= sizeof(packet); size++) {
            if (size == forms[i].size)
                continue;
            begin();
            memset(packet, 0, sizeof(packet));
            memcpy(packet, &forms[i].type, sizeof(forms[i].type));
            say(packet, size, NULL, 0);
            CHECK(is_bad(), "type %d of %zu bytes", forms[i].type, size);
            end();
        }
    }
    for (uint32_t type = 0; type < 256; type++) {
        struct proto_head head = {.type = type};

        if (type == PROTO_READY)
            continue;
        begin();
        say(&head, sizeof(head), NULL, 0);
        CHECK(is_bad(), "type %u", type);
        end();
    }
}

/* Right in form, wrong in what it says; `asked`: a command, a file and a table are waited for. */
static void expect_bad(const char *what, const void *packet, size_t size, bool asked)
{
    begin();
    if (asked) {
        greet(2);
        ask_command(1);
        CHECK(link_open_file(under_test, 1, "/", 0, 0, &err) == 0, "%s", err.text);
    }
    say(packet, size, NULL, 0);
    CHECK(is_bad(), "%s", what);
    end();
}

static void test_contents(void)
{
    struct proto_held held = held_of(PROTO_ENTRY, 1, 0);
    struct proto_exited exited = {.head.type = PROTO_EXITED, .status = 0x137f};
    struct proto_opened opened = {.head.type = PROTO_OPENED, .errnum = 4096};
    struct proto_refused refused = {.head.type = PROTO_REFUSED, .step = 6};

    held.pid = 0;
    expect_bad("no pid", &held, sizeof(held), true);
    held = held_of(PROTO_ENTRY, 1, 0);
    held.flags = 4;
    expect_bad("a flag of tomorrow", &held, sizeof(held), true);
    held = held_of(PROTO_ENTRY, 1, 8);
    expect_bad("a fourth stream", &held, sizeof(held), true);
    held = held_of(PROTO_ENTRY, 1, 1);
    expect_bad("a stream without fd", &held, sizeof(held), true);
    held = held_of(PROTO_ENTRY, 1, 0);
    held.flags = PROTO_HELD_TTY;
    expect_bad("a terminal without fd", &held, sizeof(held), true);
    held.flags = 0;
    held.status = 256;
    expect_bad("it runs and has ended", &held, sizeof(held), true);
    held.flags = PROTO_HELD_ENDED;
    held.status = 0x137f;
    expect_bad("it was stopped", &held, sizeof(held), true);
    expect_bad("stopped", &exited, sizeof(exited), true);
    exited.status = 65;
    expect_bad("a signal that there is not", &exited, sizeof(exited), true);
    exited.status = 0x10000;
    expect_bad("a wide status", &exited, sizeof(exited), true);
    expect_bad("an errno that there is not", &opened, sizeof(opened), true);
    opened.errnum = 0;
    expect_bad("opened, and no fd", &opened, sizeof(opened), true);
    opened.errnum = -2;
    expect_bad("a negative errno", &opened, sizeof(opened), true);
    expect_bad("a step that there is not", &refused, sizeof(refused), true);
}

/* ---- order ---- */

static void test_nothing_unasked(void)
{
    struct proto_head ready = {.type = PROTO_READY}, finish = {.type = PROTO_TABLE_END};
    struct proto_held held = held_of(PROTO_BEGUN, 1, 0);
    struct proto_exited exited = {.head.type = PROTO_EXITED};
    struct proto_opened opened = {.head.type = PROTO_OPENED, .errnum = ENOENT};
    struct proto_refused refused = {.head.type = PROTO_REFUSED, .step = 1, .errnum = ENOENT};
    struct proto_started started = {.head.type = PROTO_STARTED, .pid = 4};
    struct proto_welcome hello = {.head.type = PROTO_WELCOME, .version = 2};
    struct proto_failed failed = {.head.type = PROTO_FAILED};

    expect_bad("failed after hello", &failed, sizeof(failed), true);
    expect_bad("begun", &held, sizeof(held), false);
    held.head.type = PROTO_ENTRY;
    expect_bad("an entry", &held, sizeof(held), false);
    expect_bad("the end of no table", &finish, sizeof(finish), false);
    expect_bad("an end", &exited, sizeof(exited), false);
    expect_bad("a file", &opened, sizeof(opened), false);
    expect_bad("refused", &refused, sizeof(refused), false);
    expect_bad("started, not held", &started, sizeof(started), false);
    expect_bad("started, not held", &started, sizeof(started), true);
    expect_bad("a welcome", &hello, sizeof(hello), false);
    expect_bad("ready after hello", &ready, sizeof(ready), true);

    begin();
    say(&ready, sizeof(ready), NULL, 0);
    CHECK(next() == 1 && event.kind == LINK_READY, "kind %d", event.kind);
    say(&ready, sizeof(ready), NULL, 0);
    CHECK(is_bad(), "ready twice");
    CHECK(is_bad(), "gone for good");
    end();

    begin();
    ask_command(1);
    say(&refused, sizeof(refused), NULL, 0);
    say(&refused, sizeof(refused), NULL, 0);
    CHECK(next() == 1 && event.kind == LINK_REFUSED && event.step == BOX_STEP_CWD, "once");
    CHECK(is_bad(), "refused twice");
    end();

    begin();
    ask_hello();
    welcome(hello_id, 1);
    CHECK(is_bad(), "a version that has no hello");
    end();

    begin();
    say(&ready, sizeof(ready), NULL, 0);
    CHECK(next() == 1 && event.kind == LINK_READY, "kind %d", event.kind);
    say(&failed, sizeof(failed), NULL, 0);
    CHECK(is_bad(), "failed when it is ready");
    end();
}

/* A box whose set-up failed says so once, and ends; also to an engine that asks who it is. */
static void test_it_fails_once(void)
{
    struct proto_failed failed = {.head.type = PROTO_FAILED};

    for (int asks = 0; asks < 2; asks++) {
        begin();
        if (asks)
            ask_hello();
        say(&failed, sizeof(failed), NULL, 0);
        CHECK(next() == 0, "an event before the end");
        say(&failed, sizeof(failed), NULL, 0);
        CHECK(is_bad(), "failed twice");
        end();
    }
}

/* ---- programs ---- */

/* A brief command with /dev/null for all, and the program of that fd. */
static struct link_command brief_of(int program)
{
    return (struct link_command){.argv = argv_true,
                                 .env = no_env,
                                 .cwd = "/",
                                 .stdio = LINK_GIVEN,
                                 .fds = {program, program, program},
                                 .program = program,
                                 .is_brief = true};
}

static void test_brief_commands(void)
{
    struct proto_started started = {.head = {.type = PROTO_STARTED, .id = 1U << 31}, .pid = 4};
    struct proto_exited exited = {.head = {.type = PROTO_EXITED, .id = 1U << 31}};
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct link_command command = brief_of(file);
    uint32_t type = 0;

    begin();
    CHECK(link_exec(under_test, 1U << 31, &command, &err) == 0, "%s", err.text);
    CHECK(hear(&type) > 0 && type == PROTO_EXEC, "type %u", type);
    say(&started, sizeof(started), NULL, 0);
    say(&exited, sizeof(exited), NULL, 0);
    CHECK(next() == 1 && event.kind == LINK_STARTED && event.pid == 4 && event.fds[0] < 0, "begun");
    CHECK(next() == 1 && event.kind == LINK_EXITED, "ended");
    ask_command(1); /* which is held, and so not answered like that */
    say(&started, sizeof(started), NULL, 0);
    CHECK(is_bad(), "one that is held cannot be brief");
    end();

    begin();
    CHECK(link_exec(under_test, 1U << 31, &command, &err) == 0, "%s", err.text);
    say(&started, sizeof(started), &file, 1);
    CHECK(is_bad(), "an fd with it");
    end();
    fd_close(&file);
}

static void test_an_outdated_one(void)
{
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct link_command command = brief_of(file);

    begin();
    ask_hello();
    CHECK(link_exec(under_test, 1U << 31, &command, &err) < 0 && strcmp(err.code, "busy") == 0,
          "before it has said who it is: %s", err.code);
    welcome(hello_id, PROTO_VERSION_WITH_PROGRAM - 1);
    CHECK(next() == 1 && event.kind == LINK_HELLO, "kind %d", event.kind);
    CHECK(link_exec(under_test, 1U << 31, &command, &err) < 0 && strcmp(err.code, "outdated") == 0,
          "one that knows no programs: %s", err.code);
    ask_command(1);
    greet(PROTO_VERSION_WITH_PROGRAM);
    CHECK(link_exec(under_test, 1U << 31, &command, &err) == 0, "%s", err.text);
    end();
    fd_close(&file);
}

/* ---- floods ---- */

static void test_a_table_without_end(void)
{
    struct proto_held held = held_of(PROTO_ENTRY, 1, 0);
    unsigned entries = 0;
    int got = 0;

    begin();
    greet(2);
    do {
        say(&held, sizeof(held), NULL, 0);
        got = next();
        entries++;
    } while (got == 1 && event.kind == LINK_ENTRY && entries < 100000);
    CHECK(got == 1 && event.kind == LINK_GONE && entries == PROTO_COMMANDS_MAX + 1, "%u entries",
          entries);
    end();
}

static void test_stale_without_end(void)
{
    struct proto_head ready = {.type = PROTO_READY};
    unsigned calls = 0, sent = 0;
    int got = 0;

    begin();
    ask_hello();
    for (; got == 0 && calls < 10000; calls++) {
        while (proto_send_now(init, &ready, sizeof(ready), NULL, 0, NULL, 0) == 0)
            sent++;
        got = next();
    }
    CHECK(got == 1 && event.kind == LINK_GONE, "%u packets and no end", sent);
    CHECK(calls > 100 && sent < 20000, "%u packets in %u calls", sent, calls);
    end();
}

/* ---- fds ---- */

/* An answer that asks for a pipe or a terminal comes with this fd. */
static void expect_bad_fd(const char *what, int fd, uint32_t place, uint32_t flags)
{
    struct proto_held begun = held_of(PROTO_BEGUN, 1, place);

    begun.flags = flags;
    begin();
    ask_command(1);
    say(&begun, sizeof(begun), &fd, 1);
    CHECK(is_bad(), "%s in place %u", what, place);
    end();
    (void)close(fd);
}

static void test_kinds_of_fds(void)
{
    char fifo[] = "/tmp/cove-test-link-XXXXXX/fifo";
    char *slash = strrchr(fifo, '/');
    int far[3], near[3], pair[2], master;

    *slash = '\0';
    CHECK(mkdtemp(fifo) != NULL, "%s", strerror(errno));
    *slash = '/';
    CHECK(mkfifo(fifo, 0600) == 0, "%s", strerror(errno));
    make_pipes(far, near);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "%s", strerror(errno));
    expect_bad_fd("a FIFO", open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC), 2, 0);
    expect_bad_fd("a FIFO", open(fifo, O_RDWR | O_CLOEXEC), 1, 0);
    expect_bad_fd("a path", open(fifo, O_PATH | O_CLOEXEC), 2, 0);
    expect_bad_fd("a reader", fd_take(&near[0]), 1, 0);
    expect_bad_fd("a writer", fd_take(&near[1]), 2, 0);
    expect_bad_fd("a socket", pair[0], 2, 0);
    expect_bad_fd("a socket", pair[1], 1, PROTO_HELD_TTY);
    expect_bad_fd("a device", open("/dev/null", O_RDWR | O_CLOEXEC), 1, PROTO_HELD_TTY);
    expect_bad_fd("a device", open("/dev/zero", O_RDONLY | O_CLOEXEC), 2, 0);
    expect_bad_fd("a file", open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 2, 0);
    expect_bad_fd("a pipe", fd_take(&far[0]), 1, PROTO_HELD_TTY);
    master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    CHECK(master >= 0 && unlockpt(master) == 0, "%s", strerror(errno));
    expect_bad_fd("a slave", open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC), 1,
                  PROTO_HELD_TTY);
    expect_bad_fd("a terminal", master, 2, 0);
    close_all(far, 3);
    close_all(near, 3);
    (void)unlink(fifo);
    *slash = '\0';
    (void)rmdir(fifo);
}

static void test_a_terminal(void)
{
    struct proto_held begun = held_of(PROTO_BEGUN, 1, 1);
    int master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (master < 0) /* hidden from everybody on most hosts */
        master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    begun.flags = PROTO_HELD_TTY;
    begin();
    ask_command(1);
    say(&begun, sizeof(begun), &master, 1);
    CHECK(next() == 1 && event.kind == LINK_STARTED && event.is_tty && event.fds[0] >= 0, "kind %d",
          event.kind);
    (void)close(master);
    end();
}

static void test_too_many_fds(void)
{
    static const size_t counts[] = {1, 2, 4, PROTO_FDS_MAX};
    int fds[64];

    for (size_t i = 0; i < 64; i++)
        fds[i] = init; /* any */
    for (size_t form = 0; form < FORMS; form++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            struct proto_held held = held_of(forms[form].type, 1, 7);
            char packet[sizeof(union proto_answer)] = {0};

            begin();
            memcpy(packet, &held, sizeof(held));
            for (size_t j = 0; j < 64; j++)
                fds[j] = init;
            say(packet, forms[form].size, fds, counts[i]);
            CHECK(is_bad(), "type %d with %zu fds", forms[form].type, counts[i]);
            end();
        }
    }
    /* More than there is room for. */
    begin();
    {
        struct proto_head ready = {.type = PROTO_READY};
        char control[CMSG_SPACE(sizeof(fds))] = {0};
        struct iovec part = {.iov_base = &ready, .iov_len = sizeof(ready)};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);

        for (size_t i = 0; i < 64; i++)
            fds[i] = init;
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(fds));
        memcpy(CMSG_DATA(header), fds, sizeof(fds));
        CHECK(sendmsg(init, &message, MSG_DONTWAIT) > 0, "%s", strerror(errno));
        CHECK(is_bad(), "64 fds");
        /* A packet of nothing looks like the end; what it carries is closed. */
        end();
        begin();
        for (size_t i = 0; i < 64; i++)
            fds[i] = init;
        memcpy(CMSG_DATA(header), fds, sizeof(fds));
        header->cmsg_len = CMSG_LEN(3 * sizeof(int));
        message.msg_controllen = CMSG_SPACE(3 * sizeof(int));
        part.iov_len = 0;
        CHECK(sendmsg(init, &message, MSG_DONTWAIT) == 0, "%s", strerror(errno));
        CHECK(next() == 1 && event.kind == LINK_GONE, "kind %d", event.kind);
    }
    end();
}

static void test_no_fds_left(void)
{
    struct proto_held begun = held_of(PROTO_BEGUN, 1, 7);
    struct rlimit before, few;
    int far[3], near[3];

    begin();
    make_pipes(far, near);
    ask_command(1);
    say(&begun, sizeof(begun), far, 3);
    (void)getrlimit(RLIMIT_NOFILE, &before);
    few = before;
    few.rlim_cur = (rlim_t)near[2] + 2; /* one more is to be had */
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0, "%s", strerror(errno));
    CHECK(next() == -1 && strcmp(err.code, "no_fds") == 0, "%s", err.code);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0, "%s", strerror(errno));
    begun.head.type = PROTO_ENTRY;
    ask_hello();
    welcome(hello_id, 2);
    say(&begun, sizeof(begun), far, 3);
    CHECK(next() == 1 && event.kind == LINK_HELLO, "kind %d", event.kind);
    CHECK(next() == 1 && event.kind == LINK_ENTRY && event.fds[2] >= 0, "kind %d", event.kind);
    close_all(far, 3);
    close_all(near, 3);
    end();
}

/* ---- an init that does not read ---- */

static bool has_work(void)
{
    struct pollfd wait = {.fd = link_fd(under_test), .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

static void test_requests_wait(void)
{
    static const char *const given[] = {"echo", "given", NULL};
    struct link_command command = {
        .argv = given, .env = no_env, .cwd = "/", .stdio = LINK_GIVEN, .fds = {0, 1, 2}};
    uint32_t type = 0, wanted = 1;
    int rounds = 0;

    begin();
    for (uint32_t id = 1; id <= 2000; id++)
        CHECK(link_exec(under_test, id, &command, &err) == 0, "%u: %s", id, err.text);
    CHECK(!has_work(), "there is no room, and nothing to hear");
    while (wanted <= 2000 && rounds++ < 2000) {
        struct {
            struct proto_exec exec;
            char strings[64];
        } packet;
        int fds[PROTO_FDS_MAX];

        while (proto_receive(init, &packet, sizeof(packet), fds, MSG_DONTWAIT) > 0) {
            CHECK(packet.exec.head.id == wanted, "%u before %u", packet.exec.head.id, wanted);
            CHECK(fds[2] >= 0 && fds[3] < 0 && memcmp(packet.strings, "/\0echo\0given", 13) == 0,
                  "command %u", wanted);
            close_all(fds, PROTO_FDS_MAX);
            wanted++;
        }
        CHECK(wanted > 2000 || has_work(), "there is room");
        CHECK(next() == 0, "kind %d", event.kind);
    }
    CHECK(wanted == 2001, "%u came", wanted - 1);
    CHECK(!has_work(), "nothing waits");
    CHECK(link_ack(under_test, 1, &err) == 0 && hear(&type) > 0 && type == PROTO_ACK, "%u", type);
    end();
}

static void test_requests_are_bounded(void)
{
    static char long_word[PROTO_INLINE_MAX - 64];
    const char *const argv[] = {long_word, NULL};
    struct link_command command = {.argv = argv, .env = no_env, .cwd = "/", .stdio = LINK_PIPES};
    uint32_t id = 1;

    memset(long_word, 'x', sizeof(long_word) - 1);
    begin();
    while (id < 10000 && link_exec(under_test, id, &command, &err) == 0)
        id++;
    CHECK(id > 100 && id < 1000 && strcmp(err.code, "busy") == 0, "%u: %s", id, err.code);
    CHECK(link_kill(under_test, 1, &err) == 0, "%s", err.code);
    end();
}

static void test_long_commands(void)
{
    static char long_word[PROTO_STRINGS_MAX];
    const char *const argv[] = {long_word, NULL};
    struct link_command command = {.argv = argv, .env = no_env, .cwd = "/", .stdio = LINK_PIPES};
    struct proto_exec exec;
    int fds[PROTO_FDS_MAX];
    struct stat st;

    begin();
    memset(long_word, 'x', sizeof(long_word) - 1);
    CHECK(link_exec(under_test, 1, &command, &err) < 0 && strcmp(err.code, "too_long") == 0, "%s",
          err.code);
    long_word[PROTO_INLINE_MAX] = '\0';
    CHECK(link_exec(under_test, 1, &command, &err) == 0, "%s", err.text);
    CHECK(proto_receive(init, &exec, sizeof(exec), fds, MSG_DONTWAIT) == sizeof(exec), "a packet");
    CHECK((exec.flags & PROTO_EXEC_MEMFD) != 0 && fds[0] >= 0 && fds[1] < 0, "a memfd");
    CHECK(fstat(fds[0], &st) == 0 && st.st_size == (off_t)exec.strings_size &&
              exec.strings_size == PROTO_INLINE_MAX + 3,
          "%u bytes", exec.strings_size);
    close_all(fds, PROTO_FDS_MAX);
    end();
}

/* ---- a box's own ---- */

static void test_a_plain_one(void)
{
    struct proto_started started = {.head = {.type = PROTO_STARTED, .id = 1}, .pid = 4};
    struct proto_held begun = held_of(PROTO_BEGUN, 2, 0);
    struct link plain;
    uint32_t type = 0;
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "%s", strerror(errno));
    link_begin_plain(&plain, pair[0]);
    init = pair[1];
    CHECK(link_start(&plain, 1, &pipes, &err) == 0 && hear(&type) > 0, "%s", err.text);
    CHECK(link_start(&plain, 2, &pipes, &err) == 0 && hear(&type) > 0, "%s", err.text);
    say(&started, sizeof(started), NULL, 0);
    say(&begun, sizeof(begun), NULL, 0);
    close_event();
    CHECK(link_next(&plain, &event, &err) == 1 && event.kind == LINK_STARTED && event.pid == 4,
          "kind %d", event.kind);
    CHECK(link_next(&plain, &event, &err) == 1 && event.kind == LINK_GONE &&
              strcmp(event.error.code, "bad_init") == 0,
          "kind %d", event.kind);
    (void)close(pair[0]);
    fd_close(&init);
}

int main(void)
{
    int fds = count_fds();

    event = (struct link_event){.fds = {-1, -1, -1}};
    test_a_good_one();
    test_a_table();
    test_a_failed_one();
    test_sizes();
    test_contents();
    test_nothing_unasked();
    test_it_fails_once();
    test_brief_commands();
    test_an_outdated_one();
    test_a_table_without_end();
    test_stale_without_end();
    test_kinds_of_fds();
    test_a_terminal();
    test_too_many_fds();
    test_no_fds_left();
    test_requests_wait();
    test_requests_are_bounded();
    test_long_commands();
    test_a_plain_one();
    close_event();
    CHECK(count_fds() == fds, "%d fds, once %d", count_fds(), fds);
    return check_finish();
}
