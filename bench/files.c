/* Files through the API: how fast they move, beside what moves them in the same place without it.
 *
 * usage: files OUT SOCKET BYTES FILES ROUNDS
 * Talks to a `cove serve` that bench/files.py has started and will end. Each request has a connection of
 * its own that the answer closes, so that reading it is reading to the end; an answer that is not what it
 * should be ends the bench. A number and its peer are measured in turn. */
#include "series.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BLOCK (1U << 20)
#define LISTED 100000
#define SMALL 200 /* bytes of each of many files */

static const char *socket_path;
static char block[BLOCK];
static char sandbox[64];

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- one request ---- */

static int open_socket(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s", socket_path);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&name, sizeof(name)) < 0)
        fail("cannot reach the engine");
    return fd;
}

static void send_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);

        if (n < 0)
            fail("cannot send");
        data += n;
        size -= (size_t)n;
    }
}

static void send_head(int fd, const char *method, const char *path, const char *more, uint64_t size)
{
    char head[1024];
    int length = snprintf(head, sizeof(head),
                          "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s"
                          "Content-Length: %llu\r\n\r\n",
                          method, path, more, (unsigned long long)size);

    send_all(fd, head, (size_t)length);
}

/* Reads the answer to its end: how many bytes followed its head, of which `block` has the last. */
static uint64_t receive(int fd, const char *what)
{
    uint64_t total = 0;
    size_t used = 0;
    char *end = NULL;
    ssize_t n;

    while (end == NULL && used < BLOCK - 1) {
        n = recv(fd, block + used, BLOCK - 1 - used, 0);
        if (n <= 0)
            fail(what);
        used += (size_t)n;
        block[used] = '\0';
        end = strstr(block, "\r\n\r\n");
    }
    if (end == NULL || strncmp(block, "HTTP/1.1 20", 11) != 0) {
        (void)fprintf(stderr, "bench: %s: the engine answers %.900s\n", what, block);
        exit(1);
    }
    total = used - (size_t)(end + 4 - block);
    while ((n = recv(fd, block, BLOCK - 1, 0)) > 0)
        total += (uint64_t)n;
    if (n < 0)
        fail(what);
    (void)close(fd);
    return total;
}

static char *path_of(const char *fmt, ...)
{
    static char path[1024];
    va_list args;
    int used = snprintf(path, sizeof(path), "/v1/sandboxes/%s", sandbox);

    va_start(args, fmt);
    (void)vsnprintf(path + used, sizeof(path) - (size_t)used, fmt, args);
    va_end(args);
    return path;
}

static uint64_t get(const char *path, const char *more, const char *what)
{
    int fd = open_socket();

    send_head(fd, "GET", path, more, 0);
    return receive(fd, what);
}

static void post(const char *path, const char *body, const char *what)
{
    int fd = open_socket();

    send_head(fd, "POST", path, "Content-Type: application/json\r\n", strlen(body));
    send_all(fd, body, strlen(body));
    (void)receive(fd, what);
}

/* A command in the sandbox, and how long it took with the way there and back. */
static uint64_t run(const char *command)
{
    char body[2048];
    uint64_t start = series_now_ns();

    (void)snprintf(body, sizeof(body), "{\"command\":\"set -e; %s\",\"timeout_ms\":600000}",
                   command);
    post(path_of("/exec"), body, command);
    return series_now_ns() - start;
}

/* ---- what is measured ---- */

static uint64_t download(uint64_t size)
{
    uint64_t start = series_now_ns();

    if (get(path_of("/files?path=/tmp/large"), "", "download") != size) {
        errno = EPROTO;
        fail("the download is not whole");
    }
    return series_now_ns() - start;
}

static uint64_t upload(uint64_t size)
{
    uint64_t start = series_now_ns();
    int fd = open_socket();

    send_head(fd, "PUT", path_of("/files?path=/tmp/up"), "", size);
    for (uint64_t left = size; left > 0;) {
        size_t some = left < BLOCK ? (size_t)left : BLOCK;

        send_all(fd, block, some);
        left -= some;
    }
    (void)receive(fd, "upload");
    return series_now_ns() - start;
}

/* All files in one form. */
static char *make_form(size_t count, size_t *size)
{
    char *form = malloc(count * (SMALL + 300) + 100), *at = form;

    if (form == NULL)
        fail("no memory");
    for (size_t i = 0; i < count; i++) {
        at += sprintf(at,
                      "--b\r\nContent-Disposition: form-data; name=\"file\"; "
                      "filename=\"/tmp/many/%zu/%zu\"\r\n\r\n",
                      i / 100, i);
        memset(at, 'x', SMALL);
        at += SMALL;
        at += sprintf(at, "\r\n");
    }
    at += sprintf(at, "--b--\r\n");
    *size = (size_t)(at - form);
    return form;
}

static uint64_t many(const char *form, size_t size)
{
    uint64_t start = series_now_ns();
    int fd = open_socket();

    send_head(fd, "POST", path_of("/files"), "Content-Type: multipart/form-data; boundary=b\r\n",
              size);
    send_all(fd, form, size);
    (void)receive(fd, "many files");
    return series_now_ns() - start;
}

static uint64_t list(void)
{
    uint64_t start = series_now_ns();

    (void)get(path_of("/files/list?path=/tmp/list"), "Accept: application/x-ndjson\r\n", "list");
    return series_now_ns() - start;
}

static uint64_t grep(void)
{
    uint64_t start = series_now_ns();

    post(path_of("/files/grep"), "{\"path\":\"/tmp/text\",\"pattern\":\"needle[0-9]+\"}", "grep");
    return series_now_ns() - start;
}

static uint64_t stat_one(void)
{
    uint64_t start = series_now_ns();

    (void)get(path_of("/files/stat?path=/tmp/large"), "", "stat");
    return series_now_ns() - start;
}

/* ---- rounds ---- */

static void make_sandbox(void)
{
    static const char body[] = "{\"disk_kind\":\"ephemeral\",\"resources\":{\"memory_bytes\":"
                               "4294967296,\"disk_bytes\":3221225472}}";
    int fd = open_socket();
    char *id;

    send_head(fd, "POST", "/v1/sandboxes", "Content-Type: application/json\r\n", strlen(body));
    send_all(fd, body, strlen(body));
    /* Its answer is small: it came with its head. */
    (void)receive(fd, "create");
    id = strstr(block, "\"id\":\"");
    if (id == NULL || sscanf(id, "\"id\":\"%63[a-z0-9]", sandbox) != 1)
        fail("no sandbox");
}

static void write_all(struct series *list_of, size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++)
        if (series_write(&list_of[i], out) < 0)
            fail("cannot write the results");
}

int main(int argc, char **argv)
{
    enum { DOWN, UP, CP, MANY, MANY_TAR, LIST, GREP, GREP_PEER, STAT, EXEC, KINDS };
    static const char *const names[KINDS] = {"download", "upload", "cp",        "many", "many_sh",
                                             "list",     "grep",   "grep_peer", "stat", "exec"};
    struct series series[KINDS];
    uint64_t bytes;
    size_t files, rounds, form_size;
    char command[512], *form;
    FILE *out;

    if (argc != 6)
        return 2;
    out = fopen(argv[1], "we");
    socket_path = argv[2];
    bytes = strtoull(argv[3], NULL, 10);
    files = strtoul(argv[4], NULL, 10);
    rounds = strtoul(argv[5], NULL, 10);
    if (out == NULL)
        fail(argv[1]);
    for (int i = 0; i < KINDS; i++)
        series_init(&series[i], names[i], "ns", rounds);
    make_sandbox();
    (void)snprintf(command, sizeof(command), "head -c %llu /dev/urandom >/tmp/large",
                   (unsigned long long)bytes);
    (void)run(command);
    (void)snprintf(command, sizeof(command), "mkdir /tmp/list; cd /tmp/list; seq %d | xargs touch",
                   LISTED);
    (void)run(command);
    /* 50 MB of text in 500 files, a line to be found in each. */
    (void)run("mkdir /tmp/text; cd /tmp/text; "
              "seq 1 12000 | sed 's/$/ some text that is long enough/' | head -c 100000 >one; "
              "for i in $(seq 500); do { cat one; echo needle$i; } >f$i; done; rm one");
    form = make_form(files, &form_size);
    for (size_t i = 0; i < rounds; i++) {
        series_add(&series[DOWN], download(bytes));
        series_add(&series[UP], upload(bytes));
        series_add(&series[CP], run("cp /tmp/large /tmp/copy"));
        series_add(&series[MANY], many(form, form_size));
        (void)snprintf(command, sizeof(command),
                       "cp -r /tmp/many /tmp/many2; rm -rf /tmp/many /tmp/many2 /tmp/up /tmp/copy");
        series_add(&series[MANY_TAR], run(command));
        series_add(&series[LIST], list());
        series_add(&series[GREP], grep());
        series_add(&series[GREP_PEER],
                   run("grep -rE 'needle[0-9]+' /tmp/text | wc -l | grep -qx 500"));
        series_add(&series[STAT], stat_one());
        series_add(&series[EXEC], run("true"));
    }
    free(form);
    write_all(series, KINDS, out);
    return fclose(out) == 0 ? 0 : 1;
}
