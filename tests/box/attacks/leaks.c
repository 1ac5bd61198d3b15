/* Entries 57 to 63: what of the host or of a neighbour can be seen or reached. */
#include "attack.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void list_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    struct dirent *entry;
    int others = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        int fd = atoi(entry->d_name);

        if (entry->d_name[0] != '.' && fd > 2 && fd != dirfd(directory))
            others++;
    }
    attack_check("fds beside 0, 1 and 2", directory != NULL && others == 0, "%d", others);
    if (directory != NULL)
        (void)closedir(directory);
}

/* Words: what must be found nowhere. */
static void find_environment(void)
{
    const char *secret = attack_word(0, "cove-secret");
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    static char text[1 << 20];
    int found = 0, read_any = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        char path[300];
        ssize_t n;
        int fd;

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || atoi(entry->d_name) == getpid())
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%s/environ", entry->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, text, sizeof(text));
        read_any += n >= 0;
        found += n > 0 && memmem(text, (size_t)n, secret, strlen(secret)) != NULL;
        if (fd >= 0)
            (void)close(fd);
    }
    if (directory != NULL)
        (void)closedir(directory);
    attack_check("the secret in an environment", found == 0, "%d of %d", found, read_any);
    attack_check("the secret in ours", getenv("COVE_SECRET") == NULL, "%s", "environment");
}

/* ---- 59: sockets of others ---- */

static int connect_abstract(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t length = strlen(name);
    int result;

    memcpy(address.sun_path + 1, name, length);
    result = connect(fd, (struct sockaddr *)&address,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length));
    (void)close(fd);
    return result;
}

static int connect_path(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int result;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    result = connect(fd, (struct sockaddr *)&address, sizeof(address));
    (void)close(fd);
    return result;
}

static void reach_sockets(void)
{
    static const char *const paths[] = {"/run/docker.sock",
                                        "/var/run/docker.sock",
                                        "/run/dbus/system_bus_socket",
                                        "/run/systemd/private",
                                        "/run/containerd/containerd.sock",
                                        "/run/udev/control"};
    FILE *file = fopen("/proc/net/unix", "re");
    char line[512];
    int sockets = 0;

    REFUSED("an abstract socket of the host", connect_abstract(attack_word(0, "cove-attack")),
            ECONNREFUSED, EPERM);
    REFUSED("a socket of the host", connect_path(attack_word(1, "/tmp/cove-attack")), ENOENT,
            EACCES);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        REFUSED(paths[i], connect_path(paths[i]), ENOENT, EACCES);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        sockets++;
    attack_check("sockets in /proc/net/unix", sockets <= 1, "%d", sockets - 1);
    if (file != NULL)
        (void)fclose(file);
}

/* ---- 60: memory of others ---- */

static void reach_ipc(void)
{
    int key = (int)attack_number(0, 0x636f7665);
    static const char *const tables[] = {"/proc/sysvipc/shm", "/proc/sysvipc/sem",
                                         "/proc/sysvipc/msg"};
    DIR *directory = opendir("/dev/shm");
    struct dirent *entry;
    int files = 0;

    REFUSED("shared memory", shmget(key, 0, 0), ENOENT, ENOSYS);
    REFUSED("semaphores", semget(key, 0, 0), ENOENT, ENOSYS);
    REFUSED("messages", msgget(key, 0), ENOENT, ENOSYS);
    REFUSED("a POSIX queue", syscall(SYS_mq_open, "cove-attack", O_RDONLY, 0, NULL), ENOENT,
            ENOSYS);
    REFUSED("/dev/mqueue", attack_open("/dev/mqueue", O_RDONLY | O_DIRECTORY), ENOENT);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        FILE *file = fopen(tables[i], "re");
        char line[512];
        int lines = 0;

        while (file != NULL && fgets(line, sizeof(line), file) != NULL)
            lines++;
        attack_check(tables[i], lines <= 1, "%d entries", lines - 1);
        if (file != NULL)
            (void)fclose(file);
    }
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        files += entry->d_name[0] != '.';
    attack_check("/dev/shm", files == 0, "%d files", files);
    if (directory != NULL)
        (void)closedir(directory);
}

/* ---- 61: families of sockets ---- */

static void open_families(void)
{
    static const struct {
        const char *name;
        int family;
    } families[] = {{"AX25", 3},    {"IPX", 4},   {"APPLETALK", 5},  {"X25", 9},
                    {"DECnet", 12}, {"KEY", 15},  {"PACKET", 17},    {"RDS", 21},
                    {"PPPOX", 24},  {"LLC", 26},  {"IB", 27},        {"MPLS", 28},
                    {"CAN", 29},    {"TIPC", 30}, {"BLUETOOTH", 31}, {"RXRPC", 33},
                    {"PHONET", 35}, {"CAIF", 37}, {"ALG", 38},       {"NFC", 39},
                    {"VSOCK", 40},  {"KCM", 41},  {"QIPCRTR", 42},   {"SMC", 43},
                    {"XDP", 44},    {"MCTP", 45}};
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
    char what[64];

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        for (size_t j = 0; j < sizeof(types) / sizeof(types[0]); j++) {
            (void)snprintf(what, sizeof(what), "AF_%s, type %d", families[i].name, types[j]);
            REFUSED(what, socket(families[i].family, types[j], 0), EAFNOSUPPORT);
        }
    }
    for (int protocol = 1; protocol < 32; protocol++) {
        (void)snprintf(what, sizeof(what), "netlink %d", protocol);
        REFUSED(what, socket(AF_NETLINK, SOCK_RAW, protocol), EAFNOSUPPORT);
    }
}

static void open_raw(void)
{
    static const int families[] = {AF_INET, AF_INET6};

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        REFUSED("raw ICMP", socket(families[i], SOCK_RAW, IPPROTO_ICMP), EPERM);
        REFUSED("raw TCP", socket(families[i], SOCK_RAW, IPPROTO_TCP), EPERM);
        REFUSED("raw IP", socket(families[i], SOCK_RAW, IPPROTO_RAW), EPERM);
        REFUSED("SCTP", socket(families[i], SOCK_STREAM, 132), EPROTONOSUPPORT);
        REFUSED("DCCP", socket(families[i], 6, 33), EPROTONOSUPPORT, ESOCKTNOSUPPORT);
        REFUSED("MPTCP", socket(families[i], SOCK_STREAM, 262), EPROTONOSUPPORT);
    }
    REFUSED("old packet socket", socket(AF_INET, SOCK_PACKET, 0x0300), EAFNOSUPPORT, EPERM);
}

static void connect_out(const char *text, unsigned short port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)inet_pton(AF_INET, text, &to.sin_addr);
    REFUSED(text, connect(fd, (struct sockaddr *)&to, sizeof(to)), ENETUNREACH, ECONNREFUSED);
    (void)close(fd);
}

static void open_sockets(void)
{
    open_families();
    open_raw();
    connect_out("192.0.2.1", 443);
    connect_out("169.254.169.254", 80);
    connect_out("127.0.0.1", (unsigned short)attack_number(0, 9));
}

/* ---- 62: the host ---- */

/* Words: pid and host name of the host, a path of its mounts. */
static void see_host(void)
{
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    FILE *file;
    char line[1024], host[256] = "";
    int processes = 0, mounts = 0, foreign = 0;

    while (directory != NULL && (entry = readdir(directory)) != NULL)
        processes += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
    attack_check("processes", processes == 2, "%d", processes);
    if (directory != NULL)
        (void)closedir(directory);
    (void)gethostname(host, sizeof(host));
    attack_check("host name", strcmp(host, attack_word(0, "host")) != 0, "%s", host);
    file = fopen("/proc/self/mountinfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        mounts++;
        /* Of its own mount the caller has said where it comes from. */
        for (int i = 1; i < 8 && strstr(line, " /attack ") == NULL; i++)
            foreign += attack_word(i, NULL) != NULL && strstr(line, attack_word(i, "")) != NULL;
    }
    attack_check("paths of the host in mountinfo", mounts > 5 && foreign == 0, "%d in %d mounts",
                 foreign, mounts);
    if (file != NULL)
        (void)fclose(file);
    REFUSED("the kernel's log", syscall(SYS_syslog, 3, line, (int)sizeof(line)), EPERM);
    REFUSED("/dev/kmsg", attack_open("/dev/kmsg", O_RDONLY), ENOENT);
    attack_check("parent", getppid() == 1, "%d", getppid());
}

/* ---- 37, 59, 60: leaving something for the next box, and looking for it ---- */

static void leave_traces(void)
{
    static const char *const places[] = {"/tmp", "/dev/shm", "/home/user", "/var/tmp", "/root"};
    bool leave = strcmp(attack_word(0, "leave"), "leave") == 0;
    char path[64];

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/trace", places[i]);
        if (leave)
            (void)attack_open(path, O_WRONLY | O_CREAT);
        else
            REFUSED(path, attack_open(path, O_RDONLY), ENOENT, EACCES);
    }
    if (leave) {
        (void)shmget(0x74726163, 4096, IPC_CREAT | 0666);
        (void)semget(0x74726163, 1, IPC_CREAT | 0666);
        (void)msgget(0x74726163, IPC_CREAT | 0666);
        (void)syscall(SYS_mq_open, "trace", O_CREAT | O_RDWR, 0666, NULL);
        attack_check("traces", true, "left");
        return;
    }
    REFUSED("shared memory", shmget(0x74726163, 0, 0), ENOENT, ENOSYS);
    REFUSED("semaphores", semget(0x74726163, 0, 0), ENOENT, ENOSYS);
    REFUSED("messages", msgget(0x74726163, 0), ENOENT, ENOSYS);
    REFUSED("a queue", syscall(SYS_mq_open, "trace", O_RDONLY, 0, NULL), ENOENT, ENOSYS);
}

const struct attack leaks_attacks[] = {
    {37, leave_traces}, {57, list_fds},     {58, find_environment}, {59, reach_sockets},
    {60, reach_ipc},    {61, open_sockets}, {62, see_host},         {0, NULL},
};
