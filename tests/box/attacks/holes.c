/* One harmless try of each call through which public holes of the kernel were reached: whether a program
 * here gets as far as the part of the kernel that had the hole. tests/box/holes.toml says which holes.
 *
 * Each try is a process of its own, and first takes what an attacker would: namespaces in which it has every
 * capability. None of them goes on to what the hole was about, so an old kernel is in no danger either. */
#include "attack.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_fsopen
#define SYS_fsopen 430
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif

/* The answers of a try; anything below is the errno of whatever refused. */
enum { MADE = 1000, LACKING = 1001 };

enum { OF_KEYS = -2, SOCK_OF_NO_TYPE = 15, NFT_GENERATION = 0xa << 8 | 16, XFRM_INFO = 0x25 };

static int made_if(bool is_made)
{
    return is_made ? MADE : errno;
}

/* Without the part of the kernel a socket's family is unknown, as behind a filter. But of a type that no socket
 * has, the kernel says so before it looks for the family. */
static int try_socket(int family, int type, int protocol)
{
    int fd = socket(family, type, protocol), error = errno;

    if (fd >= 0)
        return MADE;
    if (error != EAFNOSUPPORT && error != EPROTONOSUPPORT && error != ESOCKTNOSUPPORT)
        return error;
    (void)socket(family, SOCK_OF_NO_TYPE, protocol);
    return errno == EINVAL ? LACKING : error;
}

/* Sends a request and takes the first answer: 0, or the errno in it. -1: nothing could be asked. */
static int ask_netlink(int protocol, int type, const void *body, size_t size)
{
    char buffer[8192] = {0};
    struct nlmsghdr *header = (struct nlmsghdr *)buffer;
    struct timeval patience = {.tv_sec = 10};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

    if (fd < 0)
        return -1;
    *header = (struct nlmsghdr){(uint32_t)NLMSG_LENGTH(size), (uint16_t)type,
                                NLM_F_REQUEST | NLM_F_ACK, 1, 0};
    memcpy(NLMSG_DATA(header), body, size);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (send(fd, buffer, header->nlmsg_len, 0) < 0 || recv(fd, buffer, sizeof(buffer), 0) < 0)
        return -1;
    (void)close(fd);
    return header->nlmsg_type == NLMSG_ERROR ? -((struct nlmsgerr *)NLMSG_DATA(header))->error : 0;
}

static int user_namespace(void)
{
    return made_if(unshare(CLONE_NEWUSER) == 0);
}

/* The kernel refuses before it looks for the part that is asked. */
static int netfilter(void)
{
    int error = ask_netlink(NETLINK_NETFILTER, NFT_GENERATION, &(uint32_t){0}, 4);

    if (error < 0)
        return try_socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
    return error == EINVAL ? LACKING : error == 0 ? MADE : error;
}

/* Of a link that is not there. */
static int change_link(int type, const void *body, size_t size)
{
    int error = ask_netlink(NETLINK_ROUTE, type, body, size);

    if (error < 0)
        return try_socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    return error == EOPNOTSUPP ? LACKING : error == 0 || error == ENODEV ? MADE : error;
}

static int traffic_control(void)
{
    struct tcmsg message = {.tcm_ifindex = INT32_MAX};

    return change_link(RTM_DELQDISC, &message, sizeof(message));
}

static int links(void)
{
    struct ifinfomsg message = {.ifi_index = INT32_MAX};

    return change_link(RTM_SETLINK, &message, sizeof(message));
}

static int transforms(void)
{
    int error = ask_netlink(NETLINK_XFRM, XFRM_INFO, &(uint32_t){0}, 4);

    if (error < 0)
        return try_socket(AF_NETLINK, SOCK_RAW, NETLINK_XFRM);
    return error == 0 ? MADE : error;
}

/* Which parts listen there differs, so the capability that they want is asked for itself. */
static int generic_netlink(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    int answer = try_socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);

    if (answer != MADE)
        return answer;
    if (syscall(SYS_capget, &header, data) != 0)
        return errno;
    return (data[0].effective & 1U << CAP_NET_ADMIN) != 0 ? MADE : EPERM;
}

static int io_uring(void)
{
    char parameters[256] = {0};

    return made_if(syscall(SYS_io_uring_setup, 1, parameters) >= 0);
}

static int mount_context(void)
{
    return made_if(syscall(SYS_fsopen, "tmpfs", 0) >= 0);
}

/* Without a lower layer, or with a controller that there is not: past everything but this, nothing comes of it. */
static int try_mount(const char *type, const char *options)
{
    if (mount("none", "/", type, 0, options) == 0 || errno == EINVAL || errno == ENOENT)
        return MADE;
    return errno == ENODEV ? LACKING : errno;
}

static int mount_overlay(void)
{
    return try_mount("overlay", NULL);
}

static int mount_cgroup(void)
{
    return try_mount("cgroup", "covetest-none");
}

static int watch_queue(void)
{
    int ends[2];

    if (pipe2(ends, O_EXCL) == 0)
        return MADE;
    return errno == ENOPKG ? LACKING : errno;
}

static int vsock(void)
{
    return try_socket(AF_VSOCK, SOCK_STREAM, 0);
}

static int packet(void)
{
    return try_socket(AF_PACKET, SOCK_RAW, 0);
}

static int kernel_crypto(void)
{
    return try_socket(AF_ALG, SOCK_SEQPACKET, 0);
}

static int rxrpc(void)
{
    return try_socket(AF_RXRPC, SOCK_DGRAM, AF_INET);
}

/* The socket is not connected, which both of them want: 524 is what the kernel calls ENOTSUPP. */
static int upper_protocol(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0)
        return errno;
    if (setsockopt(fd, 6, 31, "tls", 3) == 0 || errno == ENOTCONN || errno == 524)
        return MADE;
    return errno == ENOENT ? LACKING : errno;
}

static int unix_files(void)
{
    char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return errno;
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &ends[0], sizeof(int));
    return made_if(sendmsg(ends[0], &message, 0) == 1);
}

/* Each call that takes flags. With no socket, the kernel itself says EBADF. */
static int unix_urgent(void)
{
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr messages = {.msg_hdr = message};
    int ends[2], refusal;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return errno;
    if (send(ends[0], &byte, 1, MSG_OOB) == 1 || sendmsg(ends[0], &message, MSG_OOB) == 1 ||
        syscall(SYS_sendmmsg, ends[0], &messages, 1, MSG_OOB) == 1)
        return MADE;
    refusal = errno;
    (void)send(-1, &byte, 1, MSG_OOB);
    return errno == EBADF ? LACKING : refusal;
}

static int internet(void)
{
    return made_if(setsockopt(socket(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, SO_REUSEADDR, &(int){1},
                              sizeof(int)) == 0);
}

static int cpu_timer(void)
{
    timer_t timer;

    return made_if(timer_create(CLOCK_PROCESS_CPUTIME_ID, NULL, &timer) == 0);
}

static int splice_file(void)
{
    int ends[2], fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    if (pipe(ends) != 0)
        return errno;
    return made_if(splice(fd, NULL, ends[1], NULL, 1, 0) == 1);
}

static int memory(void)
{
    char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);

    if (stack == MAP_FAILED)
        return errno;
    *stack = 1;
    return made_if(mremap(stack, 65536, 131072, MREMAP_MAYMOVE) != MAP_FAILED);
}

static int epoll(void)
{
    struct epoll_event event = {.events = EPOLLIN};

    return made_if(epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, epoll_create1(0), &event) == 0);
}

static int perf_event(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof(attr),
                                   .config = PERF_COUNT_SW_TASK_CLOCK,
                                   .exclude_kernel = 1};

    return made_if(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) >= 0);
}

static int bpf_map(void)
{
    union bpf_attr attr = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};

    return made_if(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)) >= 0);
}

/* Only of what the program itself does, which every user may. */
static int user_faults(void)
{
    return made_if(syscall(SYS_userfaultfd, O_CLOEXEC | 1) >= 0);
}

static int line_discipline(void)
{
    (void)ioctl(-1, TIOCSETD, &(int){21});
    return errno == EBADF ? MADE : errno;
}

static int add_key(void)
{
    return made_if(syscall(SYS_add_key, "user", "covetest", "x", 1, OF_KEYS) > 0);
}

static const struct {
    const char *name;
    int (*run)(void);
} probes[] = {
    {"user-namespace", user_namespace},
    {"netfilter", netfilter},
    {"traffic-control", traffic_control},
    {"links", links},
    {"transforms", transforms},
    {"generic-netlink", generic_netlink},
    {"io-uring", io_uring},
    {"mount-context", mount_context},
    {"mount-overlay", mount_overlay},
    {"mount-cgroup", mount_cgroup},
    {"watch-queue", watch_queue},
    {"vsock", vsock},
    {"packet", packet},
    {"kernel-crypto", kernel_crypto},
    {"rxrpc", rxrpc},
    {"keys", add_key},
    {"upper-protocol", upper_protocol},
    {"unix-files", unix_files},
    {"unix-urgent", unix_urgent},
    {"internet", internet},
    {"cpu-timer", cpu_timer},
    {"splice", splice_file},
    {"memory", memory},
    {"epoll", epoll},
    {"perf-event", perf_event},
    {"bpf", bpf_map},
    {"user-faults", user_faults},
    {"line-discipline", line_discipline},
};

/* Runs one in a child, with all that a program here can get itself before. */
static int answer_of(int (*run)(void))
{
    int ends[2], result = -1;
    pid_t child;

    if (pipe(ends) != 0)
        return -1;
    child = fork();
    if (child == 0) {
        if (run != user_namespace)
            (void)unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWCGROUP);
        errno = 0;
        result = run();
        _exit(write(ends[1], &result, sizeof(result)) == sizeof(result) ? 0 : 1);
    }
    (void)close(ends[1]);
    if (child < 0 || read(ends[0], &result, sizeof(result)) != sizeof(result))
        result = -1;
    (void)close(ends[0]);
    (void)waitpid(child, NULL, 0);
    return result;
}

int holes_print(void)
{
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
        int answer = answer_of(probes[i].run);

        (void)printf("{\"probe\": \"%s\", \"answer\": \"%s\", \"errno\": %d}\n", probes[i].name,
                     answer == MADE      ? "made"
                     : answer == LACKING ? "lacking"
                     : answer > 0        ? "refused"
                                         : "unknown",
                     answer < MADE ? answer : 0);
        (void)fflush(stdout);
    }
    return 0;
}
