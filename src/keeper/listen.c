/* Listening sockets: see listen.h. */
#include "keeper/listen.h"

#include "base/fd.h"
#include "base/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024
#define ACTIVATED_FIRST 3

/* The engine asks the kernel who is at the other end, and lets in the owner and root without a key. So nobody else
 * may fill the backlog, unless the configuration names a group, or another mode. */
#define API_MODE 0660
/* Whoever may connect is asked the same by the keeper. */
#define KEEPER_MODE 0600

/* ---- TCP ---- */

static bool loopback4(struct in_addr address)
{
    return ntohl(address.s_addr) >> 24 == 127;
}

static int bad_address(const char *text, struct error *err)
{
    return error_set(err, "bad_option", 0,
                     "--listen %.80s: that is no address; give a numeric one and a port, such as "
                     "127.0.0.1:7070 or [::1]:7070, or none",
                     text);
}

int listen_address_parse(const char *text, struct sockaddr_storage *address, unsigned *length,
                         bool *is_loopback, struct error *err)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    const char *colon = strrchr(text, ':');
    char host[64];
    uint64_t port;

    if (colon == NULL || (size_t)(colon - text) >= sizeof(host))
        return bad_address(text, err);
    if (parse_count("--listen (port)", colon + 1, 0, 65535, &port, err) < 0)
        return -1;
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    memset(address, 0, sizeof(*address));
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = '\0';
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        *length = sizeof(*six);
        if (inet_pton(AF_INET6, host + 1, &six->sin6_addr) != 1)
            return bad_address(text, err);
        *is_loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
        return 0;
    }
    four->sin_family = AF_INET;
    four->sin_port = htons((uint16_t)port);
    *length = sizeof(*four);
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &four->sin_addr) !=
        1)
        return bad_address(text, err);
    *is_loopback = loopback4(four->sin_addr);
    return 0;
}

static int refuse_open(const char *what, struct error *err)
{
    return error_set(
        err, "insecure", 0,
        "%s is reached by other machines, and keys would pass in clear text: give "
        "tls_certificate and tls_key in cove.conf, listen on a loopback address behind "
        "a proxy with TLS, or say --insecure-http",
        what);
}

static int no_listener(const struct options *options, struct error *err)
{
    return error_set(err, "no_listener", errno,
                     "cannot listen on %s (--listen takes another address, or none)",
                     options->listen);
}

/* A socket that is bound, and does not listen yet. */
static int tcp_bind(const struct options *options, struct error *err)
{
    _cleanup_close_ int fd = -1;
    struct sockaddr_storage address = {0};
    unsigned length = 0;
    bool is_loopback = false;

    if (listen_address_parse(options->listen, &address, &length, &is_loopback, err) < 0)
        return -1;
    if (!is_loopback && !options->insecure_http && !options->has_tls)
        return refuse_open(options->listen, err);
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0 ||
        bind(fd, (const struct sockaddr *)&address, length) < 0)
        return no_listener(options, err);
    return fd_take(&fd);
}

static int tcp_open(const struct options *options, struct error *err)
{
    _cleanup_close_ int fd = tcp_bind(options, err);

    if (fd >= 0 && listen(fd, BACKLOG) < 0)
        return no_listener(options, err);
    return fd_take(&fd);
}

/* ---- unix ---- */

/* A socket that a killed keeper left; one that is listened on is somebody's. */
static int clear_stale(const char *path, const struct sockaddr_un *address, int type,
                       struct error *err)
{
    _cleanup_close_ int probe = -1;
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0
                               : error_set(err, "no_listener", errno, "cannot look at %s", path);
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, "no_listener", 0, "%s is there and no socket: remove it", path);
    probe = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return error_set(err, "no_listener", errno, "cannot make a socket");
    if (connect(probe, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
        errno != ECONNREFUSED)
        return error_set(
            err, "in_use", 0,
            "an engine listens on %s already: end it, or give a --socket in another directory",
            path);
    return unlink(path) == 0 || errno == ENOENT
               ? 0
               : error_set(err, "no_listener", errno, "cannot remove the old socket %s", path);
}

static int unix_open(const char *path, int type, mode_t mode, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = -1;
    mode_t before;
    int bound;

    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, "no_listener", 0,
                         "the path %.120s is too long for a socket (%zu bytes at most): give "
                         "another with --socket",
                         path, sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, strlen(path));
    if (clear_stale(path, &address, type, err) < 0)
        return -1;
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    before = umask(0777 & ~mode);
    bound = fd < 0 ? -1 : bind(fd, (const struct sockaddr *)&address, sizeof(address));
    (void)umask(before);
    if (bound < 0 || listen(fd, BACKLOG) < 0)
        return error_set(err, "no_listener", errno, "cannot listen on %s", path);
    return fd_take(&fd);
}

/* ---- the group of a unix socket ---- */

/* In /etc/group alone: to ask the name service would load its modules into this process. */
static int group_find(const char *group, gid_t *gid, struct error *err)
{
    uint64_t number = 0;
    struct error ignored;
    FILE *file;

    if (parse_count("group", group, 0, UINT32_MAX - 1, &number, &ignored) == 0) {
        *gid = (gid_t)number;
        return 0;
    }
    file = fopen("/etc/group", "re");
    for (const struct group *entry; file != NULL && (entry = fgetgrent(file)) != NULL;)
        if (strcmp(entry->gr_name, group) == 0) {
            *gid = entry->gr_gid;
            (void)fclose(file);
            return 0;
        }
    if (file != NULL)
        (void)fclose(file);
    return error_set(err, "bad_config", 0,
                     "this host has no group %.80s; name one of /etc/group, or make it (groupadd)",
                     group);
}

int listen_group_check(const char *group, struct error *err)
{
    gid_t ignored;

    return group_find(group, &ignored, err);
}

/* Of the socket that was just bound there, and of nothing that took its place. */
static int group_give(const char *path, const char *group, struct error *err)
{
    _cleanup_close_ int file = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    gid_t gid = (gid_t)-1;

    if (group_find(group, &gid, err) < 0)
        return -1;
    if (file < 0 || fstat(file, &st) < 0 || !S_ISSOCK(st.st_mode) || st.st_uid != geteuid() ||
        fchownat(file, "", (uid_t)-1, gid, AT_EMPTY_PATH) < 0)
        return error_set(err, "no_listener", errno,
                         "cannot give %s to the group %.80s; name one that this user is in", path,
                         group);
    return 0;
}

/* ---- activation ---- */

static uint64_t number_of(const char *name)
{
    const char *text = getenv(name); // NOLINT(concurrency-mt-unsafe): there is one thread

    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

static bool address_is_open(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_UNIX)
        return false;
    if (address->ss_family == AF_INET)
        return !loopback4(((const struct sockaddr_in *)address)->sin_addr);
    return address->ss_family != AF_INET6 ||
           !IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static int activated_take(struct listeners *listeners, int fd, const struct options *options,
                          struct error *err)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address), size = sizeof(int);
    int listens = 0, type = 0;
    int flags = fcntl(fd, F_GETFL);

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || !listens ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM ||
        getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        return error_set(err, "no_listener", 0,
                         "fd %d of LISTEN_FDS is no stream socket that listens", fd);
    if (address_is_open(&address) && !options->insecure_http && !options->has_tls)
        return refuse_open("a socket of LISTEN_FDS", err);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    listeners->api[listeners->api_count++] = fd;
    return 0;
}

static uint64_t activated_count(void)
{
    return number_of("LISTEN_PID") == (uint64_t)getpid() ? number_of("LISTEN_FDS") : 0;
}

void listen_close_strays(void)
{
    uint64_t count = activated_count();

    (void)close_range(ACTIVATED_FIRST + (unsigned)(count > LISTENERS_MAX ? 0 : count), ~0U, 0);
}

static int activated_open(struct listeners *listeners, const struct options *options,
                          struct error *err)
{
    uint64_t count = activated_count();

    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    if (count > LISTENERS_MAX)
        return error_set(err, "no_listener", 0, "LISTEN_FDS has more than %d sockets",
                         LISTENERS_MAX);
    for (int i = 0; i < (int)count; i++)
        if (activated_take(listeners, ACTIVATED_FIRST + i, options, err) < 0)
            return -1;
    return 0;
}

bool listeners_are_open(const struct listeners *listeners)
{
    for (size_t i = 0; i < listeners->api_count; i++) {
        struct sockaddr_storage address = {0};
        socklen_t length = sizeof(address);

        if (getsockname(listeners->api[i], (struct sockaddr *)&address, &length) < 0 ||
            address_is_open(&address))
            return true;
    }
    return false;
}

static void address_text(const struct sockaddr_storage *address, socklen_t length,
                         char text[LISTEN_TEXT_MAX])
{
    char host[48], port[8]; /* of numbers alone */

    text[0] = '\0';
    if (getnameinfo((const struct sockaddr *)address, length, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        (void)snprintf(text, LISTEN_TEXT_MAX, address->ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
                       host, port);
}

void listen_address_text(int fd, char text[LISTEN_TEXT_MAX])
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);

    text[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
        address_text(&address, length, text);
}

int listeners_check(bool are_open, const struct options *options, struct error *err)
{
    return are_open && !options->insecure_http && !options->has_tls
               ? refuse_open("a socket that is listened on", err)
               : 0;
}

int listeners_open(struct listeners *listeners, const struct options *options,
                   const struct places *places, struct error *err)
{
    *listeners = (struct listeners){.keeper = -1};
    if (activated_open(listeners, options, err) < 0)
        return -1;
    if (listeners->api_count == 0) {
        int fd = unix_open(places->socket_path, SOCK_STREAM,
                           options->socket_mode != 0 ? options->socket_mode : API_MODE, err);

        if (fd < 0)
            return -1;
        listeners->made_socket = true;
        listeners->api[listeners->api_count++] = fd;
        if (options->socket_group != NULL &&
            group_give(places->socket_path, options->socket_group, err) < 0)
            return -1;
        if (strcmp(options->listen, "none") != 0) {
            fd = tcp_open(options, err);
            if (fd < 0)
                return -1;
            listeners->api[listeners->api_count++] = fd;
        }
    }
    listeners->keeper = unix_open(places->keeper_path, SOCK_SEQPACKET, KEEPER_MODE, err);
    return listeners->keeper >= 0 ? 0 : -1;
}

/* Nobody connects: that would start what systemd has a socket for. Where it cannot be told it may be. */
static bool may_be_listened_on(const char *path)
{
    FILE *file = fopen("/proc/net/unix", "re");
    char line[PATH_MAX + 128];
    size_t length = strlen(path);
    bool may = file == NULL;

    while (!may && fgets(line, sizeof(line), file) != NULL) {
        size_t end = strcspn(line, "\n");

        may = end > length && line[end - length - 1] == ' ' &&
              strncmp(line + end - length, path, length) == 0;
    }
    if (file != NULL)
        (void)fclose(file);
    return may;
}

int listeners_try(const struct options *options, const struct places *places, struct error *err)
{
    _cleanup_close_ int fd = -1;

    if (strcmp(options->listen, "none") == 0 || may_be_listened_on(places->socket_path))
        return 0;
    fd = tcp_bind(options, err);
    return fd < 0 ? -1 : 0;
}

/* With port 0 any port is as it was said. */
static bool is_listened_on(const struct listeners *listeners, const char *listen)
{
    char wanted[LISTEN_TEXT_MAX], held[LISTEN_TEXT_MAX];
    struct sockaddr_storage address = {0};
    unsigned length = 0;
    struct error ignored;
    bool is_loopback;
    size_t compared;

    if (strcmp(listen, "none") == 0)
        return listeners->api_count == 1;
    if (listeners->api_count == 1 ||
        listen_address_parse(listen, &address, &length, &is_loopback, &ignored) < 0)
        return false;
    address_text(&address, length, wanted);
    listen_address_text(listeners->api[1], held);
    compared = strlen(wanted);
    if (compared >= 2 && strcmp(wanted + compared - 2, ":0") == 0)
        return strncmp(wanted, held, compared - 1) == 0;
    return strcmp(wanted, held) == 0;
}

size_t listeners_unlike(const struct listeners *listeners, const struct options *options,
                        const struct places *places, const struct places *found,
                        const char *names[LISTENERS_UNLIKE_MAX])
{
    mode_t mode = options->socket_mode != 0 ? options->socket_mode : API_MODE;
    gid_t gid = getegid();
    struct error ignored;
    struct stat st;
    size_t count = 0;

    if (!listeners->made_socket)
        return 0;
    if (!is_listened_on(listeners, options->listen))
        names[count++] = "listen";
    if (strcmp(places->socket_path, found->socket_path) != 0)
        names[count++] = "socket";
    if (lstat(places->socket_path, &st) < 0)
        return count;
    if (options->socket_group != NULL && group_find(options->socket_group, &gid, &ignored) < 0)
        gid = st.st_gid;
    if (st.st_gid != gid)
        names[count++] = "socket_group";
    if ((st.st_mode & 0777) != mode)
        names[count++] = "socket_mode";
    return count;
}

void listeners_close(struct listeners *listeners, const struct places *places)
{
    for (size_t i = 0; i < listeners->api_count; i++)
        fd_close(&listeners->api[i]);
    listeners->api_count = 0;
    if (listeners->made_socket)
        (void)unlink(places->socket_path);
    if (listeners->keeper >= 0)
        (void)unlink(places->keeper_path);
    listeners->made_socket = false;
    fd_close(&listeners->keeper);
}
