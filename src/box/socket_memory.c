/* Reading the kernel's tables of sockets: see socket_memory.h.
 *
 * The programs of a box decide how many rows there are, and nothing else of the text. A row that is not as expected
 * is an error, because a table that is misread would hide a box that holds much. */
#include "box/socket_memory.h"

#include "base/list.h"
#include "box/processes.h"
#include "box/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIELDS 10
#define LISTENING 10 /* TCP_LISTEN, as the kernel numbers it */
#define RECENT 3     /* TCP_SYN_RECV and TCP_TIME_WAIT are no sockets, but stand in the table */
#define PAST 6

/* The network of a box may have one that is not the box's: where the engine listens. */
#define FEW 2

struct row {
    char *fields[FIELDS];
};

/* A whole field that is a number, or two with a colon between them. */
static bool number_read(const char *text, int base, char end, const char **rest, uint64_t *value)
{
    char *after;

    errno = 0;
    *value = strtoull(text, &after, base);
    if (after == text || *after != end || errno != 0 || *text == '-' || *text == '+')
        return false;
    *rest = after + (end != '\0');
    return true;
}

static bool queues_read(const char *text, uint64_t *sent, uint64_t *waiting)
{
    return number_read(text, 16, ':', &text, sent) && number_read(text, 16, '\0', &text, waiting);
}

/* "sk Eth Pid Groups Rmem Wmem": the two are what the socket may not have more of than its buffers. */
static bool netlink_row(const struct row *row, uint64_t *bytes)
{
    const char *rest;
    uint64_t sent;

    if (!number_read(row->fields[4], 10, '\0', &rest, bytes) ||
        !number_read(row->fields[5], 10, '\0', &rest, &sent))
        return false;
    *bytes += sent;
    return true;
}

/* "sl local rem st tx:rx": the kernel counts the error queue in the latter, and in the former a datagram that is not
 * complete (MSG_MORE). */
static bool datagram_row(const struct row *row, uint64_t *bytes)
{
    uint64_t sent;

    if (!queues_read(row->fields[4], &sent, bytes))
        return false;
    *bytes += sent;
    return true;
}

/* The same, then "tr:when retrnsmt uid timeout inode". Connections wait at a listening socket. One that
 * nobody has accepted has no inode, and all that it received counts. */
static bool tcp_row(const struct row *row, uint64_t *bytes)
{
    uint64_t state, sent, waiting, inode;
    const char *rest;

    if (!number_read(row->fields[3], 16, '\0', &rest, &state) ||
        !queues_read(row->fields[4], &sent, &waiting) ||
        !number_read(row->fields[9], 10, '\0', &rest, &inode))
        return false;
    *bytes = 0;
    if (state == LISTENING)
        *bytes = waiting * SOCKET_MEMORY_WAITING;
    else if (inode == 0 && state != RECENT && state != PAST)
        *bytes = waiting;
    return true;
}

static const struct table {
    const char *name;
    bool (*read)(const struct row *row, uint64_t *bytes);
    const char *census, *line; /* where the kernel says how many there are */
} tables_read[] = {
    {"netlink", netlink_row, NULL, NULL},
    {"udp", datagram_row, NULL, NULL},
    {"udp6", datagram_row, NULL, NULL},
    {"raw", datagram_row, NULL, NULL},
    {"raw6", datagram_row, NULL, NULL},
    {"icmp", datagram_row, NULL, NULL},
    {"icmp6", datagram_row, NULL, NULL},
    {"tcp", tcp_row, "sockstat", "TCP: inuse "},
    {"tcp6", tcp_row, "sockstat6", "TCP6: inuse "},
};

/* To read a table of TCP takes 5 ms, for the kernel looks through all connections of the host. It is not worth
 * that for a socket or two. */
static bool is_worth_reading(int tables, const struct table *table)
{
    char text[1024];
    const char *line;

    if (table->census == NULL || fd_read_file(tables, table->census, text, sizeof(text)) < 0)
        return true;
    line = strstr(text, table->line);
    return line == NULL || strtoul(line + strlen(table->line), NULL, 10) > FEW;
}

static bool row_split(char *line, struct row *row)
{
    char *rest;

    for (size_t i = 0; i < FIELDS; i++, line = NULL) {
        row->fields[i] = strtok_r(line, " ", &rest);
        if (row->fields[i] == NULL)
            return false;
    }
    return true;
}

static int lines_read(const struct table *table, char *text, bool *past_header, uint64_t *bytes,
                      struct error *err)
{
    struct row row;
    char *line, *rest;

    for (line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        uint64_t more;

        if (!*past_header) {
            *past_header = true;
            continue;
        }
        if (!row_split(line, &row) || !table->read(&row, &more))
            return error_set(err, "socket_memory_failed", 0,
                             "/proc/PID/net/%s has a row that cove does not know", table->name);
        *bytes += more;
    }
    return 0;
}

static int table_read(int tables, const struct table *table, uint64_t enough, uint64_t *bytes,
                      struct error *err)
{
    _cleanup_close_ int fd = openat(tables, table->name, O_RDONLY | O_CLOEXEC);
    bool past_header = false;
    size_t kept = 0;
    char text[8192];
    ssize_t length;

    if (fd < 0 && errno == ENOENT)
        return 0; /* a kernel without that protocol */
    if (fd < 0)
        return error_set(err, "socket_memory_failed", errno, "cannot open /proc/PID/net/%s",
                         table->name);
    while (*bytes <= enough && (length = read(fd, text + kept, sizeof(text) - 1 - kept)) != 0) {
        char *last;

        if (length < 0)
            return error_set(err, "socket_memory_failed", errno, "cannot read /proc/PID/net/%s",
                             table->name);
        kept += (size_t)length;
        text[kept] = '\0';
        last = memrchr(text, '\n', kept);
        if (last == NULL) {
            if (kept < sizeof(text) - 1)
                continue;
            break;
        }
        *last++ = '\0';
        if (lines_read(table, text, &past_header, bytes, err) < 0)
            return -1;
        kept -= (size_t)(last - text);
        memmove(text, last, kept);
    }
    if (*bytes <= enough && kept > 0)
        return error_set(err, "socket_memory_failed", 0,
                         "/proc/PID/net/%s ends within a row, or has one of %zu bytes", table->name,
                         kept);
    return 0;
}

/* Of a process that has ended there is no table any more, and nothing would be counted. */
static int is_there(int tables, struct error *err)
{
    return faccessat(tables, tables_read[0].name, R_OK, 0) == 0
               ? 0
               : error_set(err, "socket_memory_failed", errno, "cannot find /proc/PID/net/%s",
                           tables_read[0].name);
}

int socket_memory_read(int tables, uint64_t enough, uint64_t *bytes, struct error *err)
{
    *bytes = 0;
    for (size_t i = 0; i < sizeof(tables_read) / sizeof(tables_read[0]) && *bytes <= enough; i++)
        if (is_worth_reading(tables, &tables_read[i]) &&
            table_read(tables, &tables_read[i], enough, bytes, err) < 0)
            return -1;
    return is_there(tables, err);
}

/* ---- error queues ---- */

/* Its place, or where it would be: `inodes` has room for more than there are, and 0 is none. */
static size_t place_of(const uint64_t *inodes, size_t room, uint64_t inode)
{
    size_t place = (size_t)(inode * 0x9e3779b97f4a7c15U >> 32) & (room - 1);

    while (inodes[place] != 0 && inodes[place] != inode)
        place = (place + 1) & (room - 1);
    return place;
}

static bool make_room(struct socket_memory_errors *errors)
{
    size_t room = errors->room > 0 ? 2 * errors->room : 1024;
    uint64_t *inodes;

    if (errors->room > 2 * errors->count)
        return true;
    inodes = calloc(room, sizeof(*inodes));
    if (inodes == NULL)
        return false;
    for (size_t i = 0; i < errors->room; i++)
        if (errors->inodes[i] != 0)
            inodes[place_of(inodes, room, errors->inodes[i])] = errors->inodes[i];
    free(errors->inodes);
    errors->inodes = inodes;
    errors->room = room;
    return true;
}

/* Adds it where it is none of those before. */
static bool is_new(struct socket_memory_errors *errors, uint64_t inode)
{
    size_t place;

    if (!make_room(errors))
        return false;
    place = place_of(errors->inodes, errors->room, inode);
    if (errors->inodes[place] == inode)
        return false;
    errors->inodes[place] = inode;
    errors->count++;
    return true;
}

static int option_of(int socket, int option)
{
    int value = 0;
    socklen_t size = sizeof(value);

    return getsockopt(socket, SOL_SOCKET, option, &value, &size) < 0 ? 0 : value;
}

/* Its error queue, and a datagram that is not complete. None of the calls takes the lock of the socket, which a program
 * of the box can hold for long. */
static uint64_t hidden_in(int socket)
{
    struct pollfd queue = {.fd = socket};
    uint32_t information[SK_MEMINFO_VARS] = {0};
    int domain = option_of(socket, SO_DOMAIN);
    socklen_t size = sizeof(information);
    uint64_t bytes = 0;

    if ((domain != AF_INET && domain != AF_INET6) ||
        getsockopt(socket, SOL_SOCKET, SO_MEMINFO, information, &size) < 0)
        return 0;
    if (poll(&queue, 1, 0) == 1 && (queue.revents & POLLERR) != 0)
        bytes += information[SK_MEMINFO_RMEM_ALLOC];
    if (option_of(socket, SO_TYPE) == SOCK_DGRAM)
        bytes += information[SK_MEMINFO_WMEM_ALLOC];
    return bytes;
}

/* 0 where it is no socket. */
static uint64_t inode_of(int files, const char *name)
{
    static const char prefix[] = "socket:[";
    char link[40];
    ssize_t length = readlinkat(files, name, link, sizeof(link) - 1);

    if (length < (ssize_t)sizeof(prefix) || strncmp(link, prefix, sizeof(prefix) - 1) != 0)
        return 0;
    link[length] = '\0';
    return strtoull(link + sizeof(prefix) - 1, NULL, 10);
}

static int files_add(struct socket_memory_errors *errors, int thread, DIR *files, uint64_t enough,
                     struct error *err)
{
    const struct dirent *entry;

    while (errors->bytes <= enough &&
           (entry = readdir(files)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        uint64_t inode = inode_of(dirfd(files), entry->d_name);
        _cleanup_close_ int socket = -1;

        if (inode == 0 || !is_new(errors, inode))
            continue;
        socket = sys_pidfd_getfd(thread, (int)strtol(entry->d_name, NULL, 10));
        if (socket < 0 && (errno == EBADF || errno == ESRCH))
            continue; /* closed meanwhile */
        if (socket < 0)
            return error_set(err, "socket_memory_failed", errno,
                             "cannot look at the sockets of a process");
        errors->bytes += hidden_in(socket);
    }
    return 0;
}

int socket_memory_errors_add(struct socket_memory_errors *errors, int task, int tid,
                             uint64_t enough, struct error *err)
{
    _cleanup_close_ int thread = sys_pidfd_open(tid, PIDFD_THREAD);
    char path[32];
    DIR *files;
    int added;

    if (thread < 0 && errno == EINVAL)
        thread = sys_pidfd_open(tid, 0);
    if (thread < 0 && errno == ESRCH)
        return 0;
    if (thread < 0)
        return error_set(err, "socket_memory_failed", errno, "cannot look at a thread");
    (void)snprintf(path, sizeof(path), "%d/fd", tid);
    files = list_open(task, path);
    if (files == NULL && (errno == ENOENT || errno == ESRCH))
        return 0;
    if (files == NULL)
        return error_set(err, "socket_memory_failed", errno, "cannot list what a thread has open");
    added = files_add(errors, thread, files, enough, err);
    (void)closedir(files);
    return added;
}

void socket_memory_errors_free(struct socket_memory_errors *errors)
{
    free(errors->inodes);
    *errors = (struct socket_memory_errors){0};
}
