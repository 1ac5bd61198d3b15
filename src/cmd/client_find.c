/* Finds the server for a command: COVE_URL, else the system's socket, else the private engine of this
 * user, which is started if it does not run.
 *
 * One start at a time: a lock file beside the socket. Its directory must be the user's own and closed
 * to others, for whoever could put a socket there would get what is said to the engine. A private
 * engine that does not come up is told with its own words; it must never be waited for without end. */
#include "base/clock.h"
#include "base/fd.h"
#include "cmd/client.h"
#include "cmd/cmd.h"
#include "cmd/show.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SYSTEM_SOCKET "/run/cove/cove.sock"
#define SOCKET_NAME "cove.sock"
#define LOCK_NAME "start.lock"
#define LOG_NAME "serve.log"
#define START_MS 30000
#define PAUSE_MS 20

/* Where the private engine's socket, lock and log are. */
struct private_place {
    int dir;
    char path[WIRE_PATH_MAX - sizeof(SOCKET_NAME)];
};

static uint64_t now_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

static void pause_shortly(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};

    (void)nanosleep(&pause, NULL);
}

/* ---- the directory ---- */

/* XDG_RUNTIME_DIR may be left over from another user's environment (su, sudo). */
static bool runtime_is_ours(const char *runtime)
{
    struct stat st;

    return runtime != NULL && runtime[0] == '/' && lstat(runtime, &st) == 0 &&
           S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* Where it is, or would be. */
static int place_find(struct private_place *place, struct error *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int used;

    if (runtime_is_ours(runtime))
        used = snprintf(place->path, sizeof(place->path), "%s/cove", runtime);
    else
        used = snprintf(place->path, sizeof(place->path), "/tmp/cove-%u", (unsigned)geteuid());
    if (used < 0 || (size_t)used >= sizeof(place->path))
        return error_set(
            err, "bad_runtime", 0,
            "XDG_RUNTIME_DIR: it is too long for a socket below it; set a shorter one");
    return 0;
}

static void private_address(const struct private_place *place, struct wire_address *address)
{
    *address = (struct wire_address){.is_unix = true, .header = "localhost"};
    (void)snprintf(address->path, sizeof(address->path), "%s/" SOCKET_NAME, place->path);
}

/* Opens it, if it is there and closed to others. */
static int place_open(struct private_place *place, struct error *err)
{
    struct stat st;

    place->dir = open(place->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (place->dir < 0 || fstat(place->dir, &st) < 0)
        return error_set(err, "bad_runtime", errno,
                         "%s: it has to be a directory, for your engine's socket", place->path);
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return error_set(
            err, "bad_runtime", 0,
            "%s: others can write or look into it, so your engine's socket is not safe "
            "there; remove it, or set XDG_RUNTIME_DIR",
            place->path);
    return 0;
}

int client_place(void)
{
    struct private_place place = {.dir = -1};
    struct error ignored;

    if (place_find(&place, &ignored) < 0 || (mkdir(place.path, 0700) < 0 && errno != EEXIST))
        return -1;
    if (place_open(&place, &ignored) < 0)
        fd_close(&place.dir);
    return place.dir;
}

/* ---- starting it ---- */

static int lock_take(const struct private_place *place, int *lock, struct error *err)
{
    uint64_t deadline = now_ms() + START_MS;

    *lock = openat(place->dir, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*lock < 0)
        return error_set(err, "lock", errno, "%s/" LOCK_NAME ": it cannot be opened", place->path);
    while (flock(*lock, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set(err, "lock", errno, "%s/" LOCK_NAME ": no lock", place->path);
        if (now_ms() >= deadline)
            return error_set(err, "lock", 0,
                             "%s/" LOCK_NAME ": another cove has been starting your engine for too "
                             "long; end that one and try again",
                             place->path);
        pause_shortly();
    }
    return 0;
}

/* In the child; it owns nothing of ours but the log. */
static void __attribute__((noreturn)) serve(const char *socket, int log)
{
    static char self[] = "/proc/self/exe";
    char path[WIRE_PATH_MAX];
    char *const argv[] = {(char[]){"cove"},
                          (char[]){"serve"},
                          (char[]){"--private"},
                          (char[]){"--listen"},
                          (char[]){"none"},
                          (char[]){"--socket"},
                          path,
                          NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigset_t none;

    (void)snprintf(path, sizeof(path), "%s", socket);
    (void)setsid();
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    /* Keys are for clients. */
    (void)unsetenv("COVE_API_KEY");
    (void)unsetenv("COVE_URL");
    if (null >= 0 && chdir("/") == 0 && dup2(null, 0) == 0 && dup2(log, 1) == 1 &&
        dup2(log, 2) == 2)
        (void)execv(self, argv);
    _exit(127);
}

static int serve_start(const struct private_place *place, const struct wire_address *address,
                       pid_t *pid, struct error *err)
{
    _cleanup_close_ int log = openat(place->dir, LOG_NAME,
                                     O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (log < 0)
        return error_set(err, "log", errno, "%s/" LOG_NAME ": it cannot be written", place->path);
    *pid = fork();
    if (*pid < 0)
        return error_set(err, "fork", errno, "fork: no process for your engine; end something");
    if (*pid == 0)
        serve(address->path, log);
    return 0;
}

/* The last line that the engine wrote before it failed. */
static void log_last_line(const struct private_place *place, char *line, size_t size)
{
    _cleanup_close_ int log = openat(place->dir, LOG_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char text[4096];
    off_t end = log < 0 ? -1 : lseek(log, 0, SEEK_END);
    ssize_t got = -1;
    int prefix = 0; /* the name of the program, or time, level and part of a line of the log */
    char *last;

    if (end >= 0)
        got = pread(log, text, sizeof(text) - 1,
                    end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0);
    while (got > 0 && text[got - 1] == '\n')
        got--;
    if (got <= 0) {
        (void)snprintf(line, size, "it said nothing");
        return;
    }
    text[got] = '\0';
    last = strrchr(text, '\n');
    last = last == NULL ? text : last + 1;
    (void)sscanf(last, "cove: %n", &prefix);
    (void)sscanf(last, "%*4d-%*2d-%*2dT%*s %*s %*s %n", &prefix);
    show_escape(line, size, last + prefix);
}

static int not_ready(struct client *client, struct error *err)
{
    const struct client_request request = {.path = "/readyz", .answer_ms = 5000};

    return client_connect(client, err) < 0 ? -1 : client_call(client, &request, NULL, err);
}

/* Waits until the engine is ready; `pid` is 0 where another cove started it. That one may just be ending:
 * "no_server" then, at once, for nobody else will start the next. */
static int ready_wait(const struct private_place *place, struct client *client, pid_t pid,
                      struct error *err)
{
    uint64_t deadline = now_ms() + START_MS;
    char why[ERROR_TEXT_MAX];
    int status;

    while (not_ready(client, err) < 0) {
        if (pid > 0 && waitpid(pid, &status, WNOHANG) == pid) {
            log_last_line(place, why, sizeof(why));
            return error_set(err, "no_engine", 0,
                             "your engine did not start: %s (%s/" LOG_NAME " has all it said)", why,
                             place->path);
        }
        if (pid == 0 && strcmp(err->code, "no_server") == 0)
            return -1;
        if (now_ms() >= deadline) {
            memcpy(why, err->text, sizeof(why));
            return error_set(err, "no_engine", 0,
                             "your engine is not ready after %d s: %s (see %s/" LOG_NAME ")",
                             START_MS / 1000, why, place->path);
        }
        pause_shortly();
    }
    return 0;
}

static int private_start(const struct private_place *place, const struct wire_address *address,
                         struct client *client, struct error *err)
{
    _cleanup_close_ int lock = -1;
    pid_t pid = 0;

    if (lock_take(place, &lock, err) < 0)
        return -1;
    /* Another cove may have started it while this one waited. */
    if (client_connect(client, err) < 0 && serve_start(place, address, &pid, err) < 0)
        return -1;
    return ready_wait(place, client, pid, err);
}

int client_open_private(struct client **out, struct error *err)
{
    struct private_place place = {.dir = -1};
    struct wire_address address;
    unsigned tries = 0;
    int result;

    *out = NULL;
    if (place_find(&place, err) < 0)
        return -1;
    if (mkdir(place.path, 0700) < 0 && errno != EEXIST)
        return error_set(err, "bad_runtime", errno,
                         "%s: this directory for your engine's socket cannot be made", place.path);
    if (place_open(&place, err) < 0) {
        fd_close(&place.dir);
        return -1;
    }
    private_address(&place, &address);
    result = client_new(&address, out, err);
    if (result == 0 && client_connect(*out, err) < 0)
        result = private_start(&place, &address, *out, err);
    else if (result == 0)
        result = ready_wait(&place, *out, 0, err);
    while (result < 0 && *out != NULL && strcmp(err->code, "no_server") == 0 && tries++ < 2)
        result = private_start(&place, &address, *out, err);
    if (result < 0)
        client_closep(out);
    fd_close(&place.dir);
    return result;
}

/* ---- the order ---- */

static int named_open(const char *url, struct client **out, struct error *err)
{
    const char *key = getenv("COVE_API_KEY");
    struct wire_address address;

    if (wire_address_parse(url, &address, err) < 0)
        return -1;
    if (key != NULL && key[0] != '\0' && !address.is_unix && !address.is_tls &&
        !address.is_loopback)
        cmd_warn("COVE_API_KEY goes to %.200s unencrypted; use https, or a tunnel", address.header);
    return client_new(&address, out, err);
}

bool client_is_others_socket(const struct wire_address *address)
{
    struct stat st;

    return address->is_unix && strcmp(address->path, SYSTEM_SOCKET) == 0 && geteuid() != 0 &&
           stat(SYSTEM_SOCKET, &st) == 0 && st.st_uid != geteuid();
}

/* Nobody is heard there without a key, so a private engine is meant. */
static bool is_for_others(const struct wire_address *address)
{
    const char *key = getenv("COVE_API_KEY");

    return (key == NULL || key[0] == '\0') && client_is_others_socket(address);
}

int client_open(struct client **out, struct error *err)
{
    const char *url = getenv("COVE_URL");
    struct wire_address address = {.is_unix = true, .path = SYSTEM_SOCKET, .header = "localhost"};

    *out = NULL;
    if (url != NULL && url[0] != '\0')
        return named_open(url, out, err);
    if (is_for_others(&address))
        return client_open_private(out, err);
    if (client_new(&address, out, err) < 0)
        return -1;
    if (client_connect(*out, err) == 0)
        return 0;
    /* It is not there, or not for this user. */
    client_closep(out);
    return client_open_private(out, err);
}

/* Without a word on keys that go in the open: whoever completes a word asks for nothing yet. */
static int address_open(const struct wire_address *address, struct client **out)
{
    struct error ignored;

    if (client_new(address, out, &ignored) < 0)
        return -1;
    if (client_connect(*out, &ignored) == 0)
        return 0;
    client_closep(out);
    return -1;
}

int client_open_running(struct client **out)
{
    const char *url = getenv("COVE_URL");
    struct wire_address address = {.is_unix = true, .path = SYSTEM_SOCKET, .header = "localhost"};
    struct private_place place = {.dir = -1};
    struct error ignored;
    int result = -1;

    *out = NULL;
    if (url != NULL && url[0] != '\0')
        return wire_address_parse(url, &address, &ignored) < 0 ? -1 : address_open(&address, out);
    if (!is_for_others(&address) && address_open(&address, out) == 0)
        return 0;
    if (place_find(&place, &ignored) == 0 && place_open(&place, &ignored) == 0) {
        private_address(&place, &address);
        result = address_open(&address, out);
    }
    fd_close(&place.dir);
    return result;
}
