/* Files through the API: how fast they move, beside what moves them in the same place without it.
 *
 * usage: files OUT SOCKET KEEPER BYTES FILES ROUNDS
 * Talks to a `cove serve` that bench/files.py has started and will end, and whose process is KEEPER. Each
 * request has a connection of its own that the answer closes, so that reading it is reading to the end. What
 * was done is counted, when the clock does not run: an answer that says less than all, or a command that
 * fails, ends the bench. A number and its peer are measured in turn. */
#include "series.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BLOCK (1U << 20)
#define LISTED 100000
#define SMALL 200         /* bytes of each of many files */
#define TEXTS 500         /* that are searched */
#define KEPT (128U << 20) /* of the longest answer that is looked at */

static const char *socket_path;
static char block[BLOCK];
static char sandbox[64];
static long keeper, engine;

/* The body of the last answer, but of a file's. */
static char *kept;
static size_t kept_size;

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

static _Noreturn void lacks(const char *what, const char *which)
{
    (void)fprintf(stderr, "bench: %s: %s: %.2000s\n", what, which, kept);
    exit(1);
}

static void keep(const char *data, size_t size)
{
    if (kept_size + size >= KEPT)
        fail("the answer is too long");
    memcpy(kept + kept_size, data, size);
    kept_size += size;
}

/* Takes the sizes of chunks out of what was kept. */
static void unchunk(const char *what)
{
    char *from = kept, *to = kept, *end = kept + kept_size, *at;

    kept[kept_size] = '\0';
    while (from < end) {
        size_t size = strtoul(from, &at, 16);

        if (at == from || at + 2 > end || size > (size_t)(end - at - 2))
            lacks(what, "it is cut off");
        memmove(to, at + 2, size);
        to += size;
        from = at + 2 + size + 2;
        if (size == 0)
            break;
    }
    kept_size = (size_t)(to - kept);
    *to = '\0';
}

static size_t count_of(const char *word)
{
    size_t count = 0;

    for (const char *at = kept; (at = strstr(at, word)) != NULL; at += strlen(word))
        count++;
    return count;
}

/* The answer has this word so many times. */
static void demand(const char *what, const char *word, size_t count)
{
    char which[200];
    size_t found = count_of(word);

    (void)snprintf(which, sizeof(which), "the answer has %s %zu times, not %zu", word, found,
                   count);
    if (found != count)
        lacks(what, which);
}

static bool is_chunked;

/* Reads the answer to its end: how many bytes followed its head. They are kept, if that is wished. */
static uint64_t receive_to(int fd, const char *what, bool keeps)
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
    *end = '\0';
    for (char *at = block; at < end; at++)
        *at = (char)tolower((unsigned char)*at);
    is_chunked = strstr(block, "transfer-encoding: chunked") != NULL;
    total = used - (size_t)(end + 4 - block);
    kept_size = 0;
    if (keeps)
        keep(end + 4, (size_t)total);
    while ((n = recv(fd, block, BLOCK - 1, 0)) > 0) {
        total += (uint64_t)n;
        if (keeps)
            keep(block, (size_t)n);
    }
    if (n < 0)
        fail(what);
    (void)close(fd);
    kept[kept_size] = '\0';
    return total;
}

static uint64_t receive(int fd, const char *what)
{
    return receive_to(fd, what, true);
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

static void get(const char *path, const char *more, const char *what)
{
    int fd = open_socket();

    send_head(fd, "GET", path, more, 0);
    (void)receive(fd, what);
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
    uint64_t start = series_now_ns(), took;

    (void)snprintf(body, sizeof(body),
                   "{\"command\":\"set -e; set -o pipefail; %s\",\"timeout_ms\":600000}", command);
    post(path_of("/exec"), body, command);
    took = series_now_ns() - start;
    demand(command, "\"exit_code\":0", 1);
    return took;
}

/* ---- what is measured ---- */

static uint64_t download(uint64_t size)
{
    uint64_t start = series_now_ns();
    int fd = open_socket();

    send_head(fd, "GET", path_of("/files?path=/tmp/large"), "", 0);
    if (receive_to(fd, "download", false) != size) {
        errno = EPROTO;
        fail("the download is not whole");
    }
    return series_now_ns() - start;
}

static uint64_t upload(uint64_t size)
{
    uint64_t start = series_now_ns(), took;
    int fd = open_socket();
    char command[128];

    send_head(fd, "PUT", path_of("/files?path=/tmp/up"), "", size);
    for (uint64_t left = size; left > 0;) {
        size_t some = left < BLOCK ? (size_t)left : BLOCK;

        send_all(fd, block, some);
        left -= some;
    }
    (void)receive(fd, "upload");
    took = series_now_ns() - start;
    (void)snprintf(command, sizeof(command), "test $(stat -c %%s /tmp/up) = %llu",
                   (unsigned long long)size);
    (void)run(command);
    return took;
}

/* ---- what the engine holds of a file that goes through it ---- */

static uint64_t status_bytes(const char *name)
{
    char path[64], line[128];
    unsigned long long kilobytes = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%ld/status", engine);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kilobytes = strtoull(line + strlen(name), NULL, 10);
    if (kilobytes == 0)
        fail("cannot read the engine's status");
    (void)fclose(file);
    return kilobytes * 1024;
}

/* The most that its pipes can hold, each counted once. */
static uint64_t pipes_bytes(void)
{
    const struct dirent *entry;
    ino_t seen[1024];
    size_t count = 0;
    uint64_t bytes = 0;
    char path[300];
    struct stat st;
    DIR *list;

    (void)snprintf(path, sizeof(path), "/proc/%ld/fd", engine);
    list = opendir(path);
    while (list != NULL && (entry = readdir(list)) != NULL) {
        bool is_seen = false;
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%ld/fd/%s", engine, entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &st) < 0 || !S_ISFIFO(st.st_mode))
            continue;
        for (size_t i = 0; i < count; i++)
            is_seen = is_seen || seen[i] == st.st_ino;
        if (is_seen || count == sizeof(seen) / sizeof(seen[0]))
            continue;
        seen[count++] = st.st_ino;
        fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0)
            bytes += (uint64_t)fcntl(fd, F_GETPIPE_SZ);
        (void)close(fd);
    }
    if (list == NULL)
        fail("cannot read the engine's fds");
    (void)closedir(list);
    return bytes;
}

static void engine_find(void)
{
    char path[64], name[32] = "", pid[32];
    FILE *children, *comm;

    (void)snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", keeper, keeper);
    children = fopen(path, "re");
    while (children != NULL && engine == 0 && fscanf(children, "%31s", pid) == 1) {
        engine = strtol(pid, NULL, 10);
        (void)snprintf(path, sizeof(path), "/proc/%ld/comm", engine);
        comm = fopen(path, "re");
        if (comm == NULL || fgets(name, sizeof(name), comm) == NULL ||
            strcmp(name, "cove-engine\n") != 0)
            engine = 0;
        if (comm != NULL)
            (void)fclose(comm);
    }
    if (engine == 0)
        fail("there is no engine below that process");
    (void)fclose(children);
}

static void peak_begin(void)
{
    char path[64];
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%ld/clear_refs", engine);
    file = fopen(path, "we");
    if (file == NULL || fputs("5", file) < 0 || fclose(file) != 0)
        fail("cannot begin the engine's peak anew");
}

/* A file goes up, and comes down again: the engine's peak and its pipes meanwhile, less what it has idle. */
static uint64_t memory(uint64_t size)
{
    uint64_t idle = status_bytes("VmRSS:"), pipes = pipes_bytes(), most = pipes, left = size, now;
    ssize_t n;
    int fd = open_socket();

    peak_begin();
    send_head(fd, "PUT", path_of("/files?path=/tmp/up"), "", size);
    for (uint64_t step = 0; left > 0; step++) {
        size_t some = left < BLOCK ? (size_t)left : BLOCK;

        send_all(fd, block, some);
        left -= some;
        if (step % 64 == 1 && (now = pipes_bytes()) > most)
            most = now;
    }
    (void)receive(fd, "upload");
    fd = open_socket();
    send_head(fd, "GET", path_of("/files?path=/tmp/up"), "", 0);
    for (uint64_t step = 0; (n = recv(fd, block, BLOCK - 1, 0)) > 0; step++) {
        left += (uint64_t)n;
        if (step % 64 == 1 && (now = pipes_bytes()) > most)
            most = now;
    }
    if (n < 0 || left < size)
        fail("the download is not whole");
    (void)close(fd);
    now = status_bytes("VmHWM:");
    return (now > idle ? now - idle : 0) + most - pipes;
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

static uint64_t many(const char *form, size_t size, size_t count)
{
    uint64_t start = series_now_ns(), took;
    char command[128];
    int fd = open_socket();

    send_head(fd, "POST", path_of("/files"), "Content-Type: multipart/form-data; boundary=b\r\n",
              size);
    send_all(fd, form, size);
    (void)receive(fd, "many files");
    took = series_now_ns() - start;
    demand("many files", "\"error\"", 0);
    (void)snprintf(command, sizeof(command),
                   "find /tmp/many -type f -size %dc | wc -l | grep -qx %zu", SMALL, count);
    (void)run(command);
    return took;
}

static uint64_t list(void)
{
    uint64_t start = series_now_ns(), took;

    get(path_of("/files/list?path=/tmp/list"), "Accept: application/x-ndjson\r\n", "list");
    took = series_now_ns() - start;
    if (is_chunked)
        unchunk("list");
    demand("list", "\"type\":\"file\"", LISTED);
    demand("list", "\"type\":\"done\"", 1);
    return took;
}

static uint64_t grep(void)
{
    uint64_t start = series_now_ns(), took;

    post(path_of("/files/grep"), "{\"path\":\"/tmp/text\",\"pattern\":\"needle[0-9]+\"}", "grep");
    took = series_now_ns() - start;
    if (is_chunked)
        unchunk("grep");
    demand("grep", "\"type\":\"match\"", TEXTS);
    demand("grep", "\"truncated\":true", 0);
    demand("grep", "\"type\":\"done\"", 1);
    return took;
}

static uint64_t stat_one(void)
{
    uint64_t start = series_now_ns(), took;

    get(path_of("/files/stat?path=/tmp/large"), "", "stat");
    took = series_now_ns() - start;
    demand("stat", "\"type\":\"file\"", 1);
    return took;
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
    (void)receive(fd, "create");
    id = strstr(kept, "\"id\":\"");
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
    enum { DOWN, UP, CP, MANY, MANY_TAR, LIST, GREP, GREP_PEER, STAT, EXEC, MEMORY, KINDS };
    static const char *const names[KINDS] = {"download", "upload", "cp",    "many",
                                             "many_sh",  "list",   "grep",  "grep_peer",
                                             "stat",     "exec",   "memory"};
    struct series series[KINDS];
    uint64_t bytes;
    size_t files, rounds, form_size;
    char command[512], *form;
    FILE *out;

    if (argc != 7)
        return 2;
    out = fopen(argv[1], "we");
    socket_path = argv[2];
    keeper = strtol(argv[3], NULL, 10);
    bytes = strtoull(argv[4], NULL, 10);
    files = strtoul(argv[5], NULL, 10);
    rounds = strtoul(argv[6], NULL, 10);
    kept = malloc(KEPT);
    if (out == NULL || kept == NULL)
        fail(argv[1]);
    engine_find();
    for (int i = 0; i < KINDS; i++)
        series_init(&series[i], names[i], i == MEMORY ? "bytes" : "ns", rounds);
    make_sandbox();
    (void)snprintf(command, sizeof(command), "head -c %llu /dev/urandom >/tmp/large",
                   (unsigned long long)bytes);
    (void)run(command);
    (void)snprintf(command, sizeof(command), "mkdir /tmp/list; cd /tmp/list; seq %d | xargs touch",
                   LISTED);
    (void)run(command);
    /* 50 MB of text in 500 files, a line to be found in each. */
    (void)run("mkdir /tmp/text; cd /tmp/text; "
              "seq 1 12000 | sed 's/$/ some text that is long enough/' >all; "
              "head -c 100000 all >one; rm all; "
              "for i in $(seq 500); do { cat one; echo needle$i; } >f$i; done; rm one");
    form = make_form(files, &form_size);
    for (size_t i = 0; i < rounds; i++) {
        series_add(&series[DOWN], download(bytes));
        series_add(&series[UP], upload(bytes));
        series_add(&series[CP], run("cp /tmp/large /tmp/copy"));
        series_add(&series[MANY], many(form, form_size, files));
        (void)snprintf(command, sizeof(command),
                       "cp -r /tmp/many /tmp/many2; rm -rf /tmp/many /tmp/many2 /tmp/up /tmp/copy");
        series_add(&series[MANY_TAR], run(command));
        series_add(&series[LIST], list());
        series_add(&series[GREP], grep());
        series_add(&series[GREP_PEER],
                   run("grep -rE 'needle[0-9]+' /tmp/text | wc -l | grep -qx 500"));
        series_add(&series[STAT], stat_one());
        series_add(&series[EXEC], run("true"));
        series_add(&series[MEMORY], memory(bytes));
    }
    free(form);
    free(kept);
    write_all(series, KINDS, out);
    return fclose(out) == 0 ? 0 : 1;
}
