/* Memory of sockets that no cgroup counts: read from tables as the kernel writes them, from such as it does not, and
 * from sockets of this process. */
#include "base/fd.h"
#include "box/socket_memory.h"

#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define NETLINK_HEAD \
    "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
#define NETLINK(rmem, wmem)                                          \
    "00000000799cccbc 0   4711       00000000 " rmem "        " wmem \
    "        0     2        0        4       \n"
#define UDP_HEAD                                                                           \
    "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  " \
    "timeout inode ref pointer drops            \n"
#define UDP(queues)                                                                             \
    "  512: 0100007F:270F 00000000:0000 07 " queues " 00:00000000 00000000  1000        0 4 2 " \
    "00000000799cccbc 0           \n"
#define TCP_HEAD                                                                          \
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  " \
    "timeout inode                                                     \n"
#define TCP(state, queues, inode)                         \
    "   0: 0100007F:1E79 00000000:0000 " state " " queues \
    " 00:00000000 00000000     0        0 " inode         \
    " 1 0000000000000000 100 0 0 10 0                      \n"

static char top[] = "/tmp/cove-test-socket-memory-XXXXXX";

static void table_write(const char *name, const char *text)
{
    int dir = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd_write_full(fd, text, strlen(text)) == 0, "cannot write %s", name);
    fd_close(&fd);
    fd_close(&dir);
}

static void table_remove(const char *name)
{
    int dir = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);

    (void)unlinkat(dir, name, 0);
    fd_close(&dir);
}

/* UINT64_MAX: it failed. */
static uint64_t read_in(const char *path, uint64_t enough)
{
    _cleanup_close_ int tables = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct error err = {0};
    uint64_t bytes;

    if (socket_memory_read(tables, enough, &bytes, &err) == 0)
        return bytes;
    CHECK(strcmp(err.code, "socket_memory_failed") == 0, "%s: %s", err.code, err.text);
    return UINT64_MAX;
}

/* Of one table alone. */
static uint64_t table_bytes(const char *name, const char *text)
{
    uint64_t bytes;

    table_write("netlink", NETLINK_HEAD);
    table_write(name, text);
    bytes = read_in(top, UINT64_MAX - 1);
    table_remove(name);
    table_remove("netlink");
    return bytes;
}

static void check_rows(void)
{
    static const char *const datagrams[] = {"udp", "udp6", "raw", "raw6", "icmp", "icmp6"};

    CHECK(read_in(top, 0) == UINT64_MAX, "a process that has ended");
    CHECK(table_bytes("netlink", NETLINK_HEAD) == 0, "a header alone");
    CHECK(table_bytes("netlink", NETLINK_HEAD NETLINK("4000", "0") NETLINK("30", "7")) == 4037,
          "both columns of netlink");
    for (size_t i = 0; i < sizeof(datagrams) / sizeof(datagrams[0]); i++)
        CHECK(table_bytes(datagrams[i],
                          UDP_HEAD UDP("00000100:0000FFFF") UDP("00000000:00000001")) == 65792,
              "both columns of %s", datagrams[i]);
    CHECK(table_bytes("tcp",
                      TCP_HEAD TCP("0A", "00000000:00000201", "815")
                          TCP("0A", "00000000:00000000", "816")) == 513ULL * SOCKET_MEMORY_WAITING,
          "connections that wait");
    CHECK(table_bytes("tcp6", TCP_HEAD TCP("01", "00000000:00010000", "815")) == 0,
          "a cgroup counts what waits at a connection");
    CHECK(table_bytes("tcp6", TCP_HEAD TCP("08", "00000000:00010000", "0")) == 65536,
          "and not before it is accepted");
    CHECK(table_bytes("tcp", TCP_HEAD TCP("06", "00000000:00010000", "0")
                                 TCP("03", "00000000:00010000", "0")) == 0,
          "what is no socket");
}

/* The kernel's own number says whether a table is worth its time. */
static void check_few_sockets(void)
{
    static const char *const rows = TCP_HEAD TCP("0A", "00000000:00000001", "815");

    table_write("sockstat", "sockets: used 7\nTCP: inuse 2 orphan 0 tw 0 alloc 3 mem 0\n");
    CHECK(table_bytes("tcp", rows) == 0, "two");
    CHECK(table_bytes("tcp6", rows) == SOCKET_MEMORY_WAITING, "of IPv6 it says nothing");
    table_write("sockstat", "sockets: used 7\nTCP: inuse 3 orphan 0 tw 0 alloc 3 mem 0\n");
    CHECK(table_bytes("tcp", rows) == SOCKET_MEMORY_WAITING, "three");
    table_write("sockstat", "nothing\n");
    CHECK(table_bytes("tcp", rows) == SOCKET_MEMORY_WAITING, "it does not say");
    table_remove("sockstat");
}

static void check_unknown_rows(void)
{
    static const struct {
        const char *name, *text;
    } tables[] = {
        {"netlink", NETLINK_HEAD "00000000799cccbc 0   0          00000000 0\n"},
        {"netlink", NETLINK_HEAD NETLINK("x", "0")},
        {"netlink", NETLINK_HEAD NETLINK("-1", "0")},
        {"netlink", NETLINK_HEAD NETLINK("0", "99999999999999999999999")},
        {"netlink", NETLINK_HEAD "\n00000000799cccbc"},
        {"udp", UDP_HEAD UDP("00000000")},
        {"udp", UDP_HEAD UDP("00000000:")},
        {"udp", UDP_HEAD UDP("00000000:1G")},
        {"tcp", TCP_HEAD TCP("XX", "00000000:00000000", "1")},
        {"tcp", TCP_HEAD TCP("01", "00000000-00000000", "1")},
        {"tcp", TCP_HEAD TCP("01", "00000000:00000000", "a")},
        {"tcp6", TCP_HEAD "   0: 0100007F:1E79 00000000:0000 0A 00000000:00000000\n"},
        {"tcp6", "  sl  local_address"},
    };
    static char row[16384];

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        CHECK(table_bytes(tables[i].name, tables[i].text) == UINT64_MAX, "row %zu", i);
    memset(row, 'a', sizeof(row) - 1);
    CHECK(table_bytes("udp", row) == UINT64_MAX, "a row without an end");
}

/* More than the reader holds at once. */
static void check_many_rows(void)
{
    static const char row[] = UDP("00000000:00000400"), damaged[] = "damaged\n";
    const uint64_t rows = 3000;
    char *text = malloc(sizeof(UDP_HEAD) + rows * sizeof(row));
    char *at = mempcpy(text, UDP_HEAD, sizeof(UDP_HEAD) - 1);

    for (uint64_t i = 0; i < rows; i++)
        at = mempcpy(at, row, sizeof(row) - 1);
    *at = '\0';
    CHECK(table_bytes("udp", text) == rows * 1024, "all rows");
    (void)memcpy(at, damaged, sizeof(damaged));
    table_write("netlink", NETLINK_HEAD);
    table_write("udp", text);
    CHECK(read_in(top, UINT64_MAX - 1) == UINT64_MAX, "the last one counts");
    CHECK(read_in(top, 65536) > 65536 && read_in(top, 65536) < rows * 1024, "it ends at enough");
    table_remove("udp");
    table_remove("netlink");
    free(text);
}

/* ---- sockets of this process ---- */

static void loopback_up(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    _cleanup_close_ int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0, "a network of our own");
    fd_close(&any);
    any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(ioctl(any, SIOCSIFFLAGS, &lo) == 0, "lo is up");
}

static uint64_t our_bytes(void)
{
    return read_in("/proc/self/net", UINT64_MAX - 1);
}

static void ask_often(int netlink)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg body;
    } link = {.head = {.nlmsg_len = sizeof(link),
                       .nlmsg_type = RTM_GETLINK,
                       .nlmsg_flags = NLM_F_REQUEST},
              .body = {.ifi_index = 1}};

    for (int i = 0; i < 50; i++)
        (void)send(netlink, &link, sizeof(link), MSG_DONTWAIT);
}

/* An address of loopback that `fd` has. */
static struct sockaddr_in bound(int fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);

    CHECK(bind(fd, (const struct sockaddr *)&address, size) == 0 &&
              getsockname(fd, (struct sockaddr *)&address, &size) == 0,
          "a port");
    return address;
}

static void check_own_sockets(void)
{
    enum { CONNECTIONS = 20 };
    int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), clients[CONNECTIONS];
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address;
    static char data[20000];
    uint64_t before = our_bytes(), now;

    ask_often(netlink);
    now = our_bytes();
    CHECK(now >= before + 50ULL * 1024 && now < before + 50ULL * 16384, "answers: %llu",
          (unsigned long long)(now - before));
    fd_close(&netlink);
    CHECK(our_bytes() == before, "no answers any more");

    address = bound(udp);
    CHECK(sendto(udp, data, sizeof(data), 0, (struct sockaddr *)&address, sizeof(address)) > 0,
          "a datagram");
    CHECK(our_bytes() >= before + sizeof(data), "a datagram that waits");
    fd_close(&udp);

    address = bound(listening);
    CHECK(listen(listening, CONNECTIONS) == 0, "listening");
    for (int i = 0; i < CONNECTIONS; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(connect(clients[i], (struct sockaddr *)&address, sizeof(address)) == 0, "%d", i);
    }
    now = our_bytes();
    CHECK(now == before + (uint64_t)CONNECTIONS * SOCKET_MEMORY_WAITING, "connections: %llu",
          (unsigned long long)(now - before));
    CHECK(send(clients[0], data, sizeof(data), 0) == sizeof(data), "data");
    CHECK(our_bytes() == now + sizeof(data), "with what was sent to one");
    for (int i = 0; i < CONNECTIONS; i++)
        fd_close(&clients[i]);
    fd_close(&listening);
    CHECK(our_bytes() == before, "nothing is left");
}

/* ---- error queues ---- */

/* Sends with a control message that asks for copies of what is sent. */
static void send_copied(int socket, size_t size)
{
    static char data[30000];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {data, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    const int flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED;

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SO_TIMESTAMPING;
    head->cmsg_len = CMSG_LEN(sizeof(flags));
    memcpy(CMSG_DATA(head), &flags, sizeof(flags));
    CHECK(sendmsg(socket, &message, 0) == (ssize_t)size, "sending");
}

static uint64_t our_errors(uint64_t enough)
{
    _cleanup_close_ int task = open("/proc/self/task", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct socket_memory_errors errors = {0};
    struct error err = {0};
    uint64_t bytes;

    CHECK(socket_memory_errors_add(&errors, task, getpid(), enough, &err) == 0, "%s", err.text);
    CHECK(socket_memory_errors_add(&errors, task, getpid(), enough, &err) == 0, "%s", err.text);
    bytes = errors.bytes;
    socket_memory_errors_free(&errors);
    return bytes;
}

static void check_error_queues(void)
{
    int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), to, more, listening;
    int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = bound(udp);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    uint64_t before = our_bytes(), found;

    CHECK(our_errors(UINT64_MAX - 1) == 0, "none has an error queue");
    CHECK(connect(from, (struct sockaddr *)&address, sizeof(address)) == 0, "connecting");
    send_copied(from, 20000);
    found = our_errors(UINT64_MAX - 1);
    CHECK(found >= 2ULL * 20000 && found < 2ULL * 65536, "two copies: %llu",
          (unsigned long long)found);
    CHECK(our_bytes() >= before + found, "the table has them, and what arrived");
    fd_close(&udp);
    CHECK(our_bytes() == before + found, "the table has them");
    CHECK(connect(from, &none, sizeof(none)) == 0, "connected no more");
    CHECK(our_bytes() == before, "the table does not have it");
    CHECK(our_errors(UINT64_MAX - 1) == found, "and the process does");
    more = fcntl(from, F_DUPFD_CLOEXEC, 0);
    CHECK(our_errors(UINT64_MAX - 1) == found, "it counts once");
    fd_close(&more);

    listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address = bound(listening);
    more = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listen(listening, 1) == 0 &&
              connect(more, (struct sockaddr *)&address, sizeof(address)) == 0,
          "a connection");
    to = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    before = our_bytes();
    send_copied(more, 20000);
    CHECK(our_bytes() == before, "a table has nothing of TCP's");
    CHECK(our_errors(UINT64_MAX - 1) >= found + 20000, "and the process has");
    CHECK(our_errors(0) < our_errors(UINT64_MAX - 1), "it ends at enough");
    fd_close(&from);
    fd_close(&more);
    fd_close(&to);
    fd_close(&listening);
    CHECK(our_errors(UINT64_MAX - 1) == 0, "nothing is left");
}

static void check_ended_thread(void)
{
    _cleanup_close_ int task = open("/proc/self/task", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct socket_memory_errors errors = {0};
    struct error err = {0};

    CHECK(socket_memory_errors_add(&errors, task, (1 << 22) - 1, 0, &err) == 0, "%s", err.text);
}

int main(void)
{
    if (mkdtemp(top) == NULL) {
        perror(top);
        return 1;
    }
    check_rows();
    check_few_sockets();
    check_unknown_rows();
    check_many_rows();
    CHECK(rmdir(top) == 0, "%s is left", top);
    loopback_up();
    check_own_sockets();
    check_error_queues();
    check_ended_thread();
    return check_finish();
}
