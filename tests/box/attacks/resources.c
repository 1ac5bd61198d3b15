/* Entries 1, 2, 8 to 14, 69, 70, 72 and 73: what can be used up by asking for more and more of it. Each stops
 * by itself well before a host without walls would suffer. */
#include "attack.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024UL * 1024UL)

/* A test that wants to look at the host meanwhile says for how long, in ms. */
static void hold(int word)
{
    long ms = attack_number(word, 0);
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)fflush(stdout);
    (void)nanosleep(&time, NULL);
}

/* ---- 1 and 2 ---- */

static void fork_many(void)
{
    long wanted = attack_number(0, 4000), made = 0;
    int error = 0;

    for (; made < wanted; made++) {
        pid_t child = fork();

        if (child == 0) {
            (void)pause();
            _exit(0);
        }
        if (child < 0) {
            error = errno;
            break;
        }
    }
    attack_value("processes", made);
    attack_check("the last fork", error == EAGAIN, "errno %d", error);
    hold(1);
}

static void *sleep_long(void *argument)
{
    (void)pause();
    return argument;
}

static void thread_many(void)
{
    long wanted = attack_number(0, 4000), made = 0;
    pthread_attr_t attributes;
    int error = 0;

    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setstacksize(&attributes, 16384);
    for (; made < wanted && error == 0; made += error == 0) {
        pthread_t thread;

        error = pthread_create(&thread, &attributes, sleep_long, NULL);
    }
    attack_value("threads", made);
    attack_check("the last thread", error == EAGAIN, "errno %d", error);
    hold(1);
}

/* ---- 8: a huge sparse file ---- */

static void sparse(void)
{
    const char *directory = attack_word(0, "/tmp");
    static char block[1 << 16];
    unsigned long long written = 0;
    char path[256];
    int fd, error = 0;

    (void)snprintf(path, sizeof(path), "%s/sparse", directory);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    attack_check("a sparse file of 1 TiB", ftruncate(fd, 1LL << 40) == 0 || errno == EFBIG, "%d",
                 errno);
    memset(block, 1, sizeof(block));
    while (written < 4096 * MIB) {
        ssize_t n = write(fd, block, sizeof(block));

        if (n < 0) {
            error = errno;
            break;
        }
        written += (unsigned long long)n;
    }
    attack_value("bytes of it written", (long long)written);
    attack_check("the last write", error == ENOSPC, "errno %d", error);
    REFUSED("fallocate", fallocate(fd, 0, 0, 4096 * (long)MIB), ENOSPC);
    (void)close(fd);
    (void)unlink(path);
}

/* ---- 9: fds ---- */

static void open_many(void)
{
    long made = 0;
    int error = 0;

    for (;; made++) {
        if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
            error = errno;
            break;
        }
    }
    attack_value("fds", made);
    attack_check("the last open", error == EMFILE, "errno %d", error);
    for (int fd = 3; fd < made + 3; fd++)
        (void)close(fd);
}

static int send_fds(int socket, int count)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(250 * sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    for (int i = 0; i < count; i++)
        ((int *)(void *)CMSG_DATA(header))[i] = 1;
    return sendmsg(socket, &message, MSG_DONTWAIT) < 0 ? -1 : 0;
}

/* In flight, fds are counted by nobody's table but the user's limit. */
static void queue_fds(void)
{
    long sent = 0;
    int error = 0;

    for (int pair = 0; pair < 4000 && error != ETOOMANYREFS && error != EMFILE; pair++) {
        int ends[2];

        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) < 0) {
            error = errno;
            break;
        }
        for (;;) {
            if (send_fds(ends[0], 250) < 0) {
                error = errno;
                break;
            }
            sent += 250;
        }
    }
    attack_value("fds in flight", sent);
    attack_check("the last one sent", error == ETOOMANYREFS || error == EMFILE, "errno %d", error);
    hold(0);
}

static void use_up_fds(void)
{
    open_many();
    queue_fds();
}

/* ---- 10: buffers of pipes and sockets ---- */

static unsigned long long fill(int fd, int flags)
{
    static char block[65536];
    unsigned long long filled = 0;
    ssize_t n;

    while ((n = flags == 0 ? write(fd, block, sizeof(block))
                           : send(fd, block, sizeof(block) / 2, flags)) > 0)
        filled += (unsigned long long)n;
    return filled;
}

static unsigned long long fill_pipe(void)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return 0;
    (void)fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    return fill(ends[1], 0);
}

static unsigned long long fill_socket(void)
{
    int ends[2], size = 4 << 20;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return 0;
    (void)setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    return fill(ends[0], MSG_DONTWAIT);
}

/* A socket that takes what arrives on the box's loopback, and where it listens. */
static int receiver(int type, struct sockaddr_in *address)
{
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), size = 4 << 20;
    socklen_t length = sizeof(*address);

    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    if (bind(fd, (const struct sockaddr *)address, length) < 0 ||
        getsockname(fd, (struct sockaddr *)address, &length) < 0)
        return -1;
    return fd;
}

static int sender(int type, const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    return connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -1 : fd;
}

/* Counts what was sent: nobody reads it. The kernel lets one packet of each connection through whatever the
 * limit, so many connections are no measure of it. */
static unsigned long long fill_tcp(void)
{
    static int connections;
    struct sockaddr_in address;
    int listening = receiver(SOCK_STREAM, &address), from;
    unsigned long long filled = 0;

    if (connections++ < 512 && listening >= 0 && listen(listening, 1) == 0 &&
        (from = sender(SOCK_STREAM, &address)) >= 0 &&
        accept4(listening, NULL, NULL, SOCK_CLOEXEC) >= 0)
        filled = fill(from, MSG_DONTWAIT);
    (void)close(listening);
    return filled;
}

/* Counts what arrived: the kernel drops datagrams that it has no room for. */
static unsigned long long fill_udp(void)
{
    static char block[32768];
    struct sockaddr_in address;
    unsigned int information[9] = {0};
    socklen_t length = sizeof(information);
    int to = receiver(SOCK_DGRAM, &address), from = sender(SOCK_DGRAM, &address);

    for (int i = 0; i < 256 && from >= 0; i++)
        (void)send(from, block, sizeof(block), MSG_DONTWAIT);
    (void)close(from);
    return getsockopt(to, SOL_SOCKET, SO_MEMINFO, information, &length) == 0 ? information[0] : 0;
}

static void fill_buffers(void)
{
    static const struct {
        const char *name;
        unsigned long long (*fill)(void);
    } kinds[] = {
        {"pipe", fill_pipe}, {"socket", fill_socket}, {"tcp", fill_tcp}, {"udp", fill_udp}};
    const char *kind = attack_word(0, "pipe");
    unsigned long long most = (unsigned long long)attack_number(1, 512) * MIB, filled = 0, next = 1;
    size_t chosen = 0;
    int ends[2];

    while (strcmp(kinds[chosen].name, kind) != 0)
        chosen++;
    while (filled < most && next > 0) {
        next = kinds[chosen].fill();
        filled += next;
        attack_value("bytes in buffers", (long long)filled);
    }
    if (pipe(ends) == 0)
        REFUSED("a pipe of 64 MiB", fcntl(ends[1], F_SETPIPE_SZ, 64 << 20), EPERM);
    hold(2);
}

/* ---- 11: watches ---- */

static void count_until(const char *what, int (*make)(void), long most)
{
    long made = 0;
    int error = 0;

    for (; made < most; made++) {
        if (make() < 0) {
            error = errno;
            break;
        }
    }
    attack_value(what, made);
    attack_check(what,
                 error == EMFILE || error == ENOSPC || error == ENOMEM || error == EAGAIN ||
                     error == ENFILE,
                 "errno %d", error);
    for (int fd = 3; fd < made + 16; fd++)
        (void)close(fd);
}

static int make_inotify(void)
{
    return inotify_init1(IN_CLOEXEC);
}

static int make_timerfd(void)
{
    return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
}

static int make_epoll(void)
{
    return epoll_create1(EPOLL_CLOEXEC);
}

static int make_timer(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};

    return timer_create(CLOCK_MONOTONIC, &event, &timer);
}

static void use_up_watches(void)
{
    count_until("inotify instances", make_inotify, 100000);
    count_until("timerfds", make_timerfd, 100000);
    count_until("epoll instances", make_epoll, 100000);
    count_until("posix timers", make_timer, 1000000);
    REFUSED("a message queue", syscall(SYS_mq_open, "cove-attack", O_CREAT | O_RDWR, 0600, NULL),
            EMFILE, EACCES, ENOSYS);
    REFUSED("fanotify", syscall(SYS_fanotify_init, 0x200, 0), EPERM);
    for (int i = 0; i < 64; i++)
        (void)inotify_init1(IN_CLOEXEC);
    hold(0);
}

/* ---- 12: terminals ---- */

static void use_up_terminals(void)
{
    long made = 0;

    for (; made < 100000; made++)
        if (open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) < 0)
            break;
    attack_value("terminals", made);
    attack_check("the last terminal", errno == ENOSPC || errno == EMFILE || errno == EIO,
                 "errno %d", errno);
    hold(0);
}

/* ---- 13: the CPU ---- */

static int spin(void *argument)
{
    struct timespec now, end;
    volatile unsigned long work = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += *(long *)argument;
    do {
        for (int i = 0; i < 100000; i++)
            work++;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    return 0;
}

static void be_important(void)
{
    struct sched_param first = {.sched_priority = 1};
    unsigned char all[128];
    long n;
    int cpus = 0;

    /* Not libc's, which on musl does not exist. */
    REFUSED("SCHED_FIFO", syscall(SYS_sched_setscheduler, 0, 1, &first), EPERM, EINVAL);
    REFUSED("SCHED_RR", syscall(SYS_sched_setscheduler, 0, 2, &first), EPERM, EINVAL);
    REFUSED("nice -5", setpriority(PRIO_PROCESS, 0, -5), EACCES, EPERM);
    REFUSED("real-time I/O", syscall(SYS_ioprio_set, 1, 0, 1 << 13), EPERM);
    REFUSED("init's priority", setpriority(PRIO_PROCESS, 1, -5), EACCES, EPERM);
    memset(all, 0xff, sizeof(all));
    (void)syscall(SYS_sched_setaffinity, 0, sizeof(all), all);
    n = syscall(SYS_sched_getaffinity, 0, sizeof(all), all);
    for (long i = 0; i < n * 8; i++)
        cpus += all[i / 8] >> (i % 8) & 1;
    attack_value("CPUs after asking for all", cpus);
}

static void use_up_cpu(void)
{
    long seconds = attack_number(0, 1);

    be_important();
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            _exit(spin(&seconds));
    while (wait(NULL) > 0)
        continue;
}

/* ---- 14: memory that stays ---- */

static long locked_kib(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    long kib = -1;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "VmLck:", 6) == 0)
            kib = strtol(line + 6, NULL, 10);
    if (file != NULL)
        (void)fclose(file);
    return kib;
}

static void lock_memory(void)
{
    size_t size = 64 * MIB;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    memset(at, 1, size);
    (void)mlock(at, size);
    (void)mlock2(at, size, 0);
    (void)mlockall(MCL_CURRENT | MCL_FUTURE);
    attack_check("locking 64 MiB", locked_kib() == 0, "%ld KiB", locked_kib());
    REFUSED("a locked mapping",
            mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) ==
                    MAP_FAILED
                ? -1
                : 0,
            EAGAIN, ENOMEM, EPERM);
    REFUSED("huge pages",
            mmap(NULL, 1024 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) ==
                    MAP_FAILED
                ? -1
                : 0,
            ENOMEM);
    REFUSED("huge shared memory", shmget(IPC_PRIVATE, 1024 * MIB, IPC_CREAT | 04000), EPERM, ENOMEM,
            ENOSYS);
    REFUSED("lifting the limit",
            setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), EPERM);
}

/* ---- 69: what no cgroup counts, and what the host has one bound of ---- */

/* Owner, users, group, mask and others, in this order. */
static long list_set(const char *path, unsigned char *list, size_t size)
{
    static const uint16_t last[] = {4, 16, 32};
    size_t count = size / 8;

    for (size_t i = 0; i < count; i++) {
        uint16_t kind = i == 0 ? 1 : i + 3 < count ? 2 : last[i + 3 - count];
        uint32_t id = kind == 2 ? getuid() : UINT32_MAX;

        memcpy(list + 4 + 8 * i, (uint16_t[]){kind, 7}, 4);
        memcpy(list + 8 + 8 * i, &id, 4);
    }
    return setxattr(path, "system.posix_acl_default", list, size, 0);
}

static void keep_uncounted(void)
{
    enum { LONG = 4 + 8000 * 8, SHORT = 4 + 5 * 8 };
    const char *directory = attack_word(0, "/dev/shm");
    uint32_t label[8] = {0, 0, 0, htonl(1), htonl(1), 0x00010100, 60};
    static unsigned char list[LONG] = {2};
    struct {
        const void *value;
        uint32_t size, flags;
    } hidden = {list, LONG, 0};
    int udp = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/listed", directory);
    (void)mkdir(path, 0700);
    attack_check("a short access list", list_set(path, list, SHORT) == 0, "errno %d", errno);
    REFUSED("a long access list", list_set(path, list, LONG), E2BIG);
    REFUSED("its size behind a pointer",
            syscall(463, AT_FDCWD, path, 0, "system.posix_acl_default", &hidden, sizeof(hidden)),
            ENOSYS);
    REFUSED("a flow label", setsockopt(udp, IPPROTO_IPV6, 32, label, sizeof(label)), EPERM);
}

/* ---- 70: small objects, as many as one likes of them ---- */

static long join4(int fd, uint32_t number)
{
    struct ip_mreqn group = {.imr_multiaddr = {htonl(0xe1000000U + number)}, .imr_ifindex = 1};

    return setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group));
}

static void join_groups(void)
{
    struct ipv6_mreq group6 = {.ipv6mr_multiaddr = {{{0xff, 2, [15] = 9}}}, .ipv6mr_interface = 1};
    struct group_req any = {.gr_interface = 1};
    struct group_source_req from = {.gsr_interface = 1};
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = group6.ipv6mr_multiaddr};
    int four = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int six = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    for (uint32_t i = 0; i < 4; i++)
        attack_check("a group", join4(four, i) == 0, "errno %d", errno);
    REFUSED("a fifth group", join4(four, 4), ENOBUFS);
    memcpy(&any.gr_group, &address, sizeof(address));
    memcpy(&from.gsr_group, &address, sizeof(address));
    memcpy(&from.gsr_source, &address, sizeof(address));
    ((struct sockaddr_in6 *)(void *)&from.gsr_source)->sin6_addr = in6addr_loopback;
    REFUSED("IPV6_JOIN_GROUP", setsockopt(six, IPPROTO_IPV6, 20, &group6, sizeof(group6)), ENODEV);
    REFUSED("MCAST_JOIN_GROUP", setsockopt(six, IPPROTO_IPV6, 42, &any, sizeof(any)), ENODEV);
    REFUSED("MCAST_JOIN_SOURCE_GROUP", setsockopt(six, IPPROTO_IPV6, 46, &from, sizeof(from)),
            ENODEV);
    (void)close(four);
    (void)close(six);
}

/* The head of struct tcp_md5sig, whose key is of any length. */
static void keep_keys(void)
{
    struct {
        struct sockaddr_storage address;
        uint8_t flags, prefix;
        uint16_t length;
        uint32_t interface;
        uint8_t key[80];
    } key = {.address = {.ss_family = AF_INET}, .length = 8};
    int tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    REFUSED("TCP_MD5SIG", setsockopt(tcp, IPPROTO_TCP, 14, &key, sizeof(key)), ENOPROTOOPT);
    REFUSED("TCP_MD5SIG_EXT", setsockopt(tcp, IPPROTO_TCP, 32, &key, sizeof(key)), ENOPROTOOPT);
    REFUSED("TCP_AO_ADD_KEY", setsockopt(tcp, IPPROTO_TCP, 38, &key, sizeof(key)), ENOPROTOOPT);
    (void)close(tcp);
}

static void collect_small(void)
{
    unsigned long node = 1;
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    REFUSED("a memory policy", syscall(SYS_mbind, page, size, 2UL, &node, 2UL, 0UL), EPERM);
    join_groups();
    keep_keys();
}

/* ---- 72: an access list of the image's ---- */

static void inherit_list(void)
{
    const char *directory = attack_word(0, "/listed");
    static char list[1 << 16];
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/made", directory);
    attack_check("a directory", mkdir(path, 0700) == 0, "errno %d", errno);
    REFUSED("its access list", getxattr(path, "system.posix_acl_access", list, sizeof(list)),
            ENODATA, EOPNOTSUPP);
    REFUSED("its default list", getxattr(path, "system.posix_acl_default", list, sizeof(list)),
            ENODATA, EOPNOTSUPP);
}

/* ---- 73: what a socket keeps, and no cgroup counts ---- */

/* A datagram that nobody takes is told of by the next call, and leaves nothing in the error queue. */
static void fill_error_queue(int family, int level, int option)
{
    int on = 1, udp = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 address = {
        .sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    char byte = 0;

    if (family == AF_INET)
        *(struct sockaddr_in *)&address = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    attack_check("asking for errors works", setsockopt(udp, level, option, &on, sizeof(on)) == 0,
                 "errno %d", errno);
    if (connect(udp, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
        send(udp, &byte, 1, 0) != 1)
        attack_check("sending", false, "errno %d", errno);
    REFUSED("a queue of errors", recv(udp, &byte, 1, MSG_ERRQUEUE | MSG_DONTWAIT), EAGAIN);
    REFUSED("the next datagram", send(udp, &byte, 1, 0), ECONNREFUSED);
    for (int i = 0; i < 2; i++)
        REFUSED(
            "a copy of what is sent",
            setsockopt(udp, SOL_SOCKET, i == 0 ? 37 : 65, (int[]){0x11, 0}, 4 + 4 * (socklen_t)i),
            ENOPROTOOPT);
    (void)close(udp);
}

static void keep_in_sockets(void)
{
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    fill_error_queue(AF_INET, IPPROTO_IP, IP_RECVERR);
    fill_error_queue(AF_INET6, IPPROTO_IPV6, IPV6_RECVERR);
    if (listen(listening, 65535) < 0 ||
        getsockopt(listening, IPPROTO_TCP, TCP_INFO, &info, &size) < 0)
        attack_check("listening", false, "errno %d", errno);
    attack_value("connections that may wait", info.tcpi_sacked);
}

const struct attack resources_attacks[] = {
    {1, fork_many},         {2, thread_many},    {8, sparse},
    {9, use_up_fds},        {10, fill_buffers},  {11, use_up_watches},
    {12, use_up_terminals}, {13, use_up_cpu},    {14, lock_memory},
    {69, keep_uncounted},   {70, collect_small}, {72, inherit_list},
    {73, keep_in_sockets},  {0, NULL},
};
