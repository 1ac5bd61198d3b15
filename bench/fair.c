/* Whether one tenant is heard while another makes all the noise it can.
 *
 * usage: fair OUT SOCKET WHERE SAMPLES [SERIES]
 * Talks to a `cove serve` that bench/fair.py has started and will end. The quiet tenant creates a sandbox, runs
 * /bin/true in another one, again and again, each by a connection of its own to WHERE (a port, or the socket), and beside that a vfork+exec of
 * the same program outside says what the machine itself has left for anybody. First while nobody else does anything,
 * then beside each noise of the other tenant, whose clients are children of this program and end with it. With a
 * SERIES only the quiet one is measured, beside whatever noise the caller makes. */
#include "client.h"
#include "series.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LARGE (64U << 20)
#define BLOCK (1U << 18)
#define FLOODERS 32 /* connections of one flood */
#define CREATORS 150
#define BURST 100
#define HOLDERS 4096 /* connections that are only held */
#define TALKERS 200  /* WebSockets with a message that lacks its last byte */
#define MESSAGE ((4U << 20) - 1)
#define REFUSED_NS 10000000L /* until one that was cut off tries again */
#define NOISE_MOST 4
#define BEGIN_S 1                /* until a noise is at its full rate */
#define PAUSE_NS (2 * 1000000UL) /* the quiet one thinks between two commands */

#define PROGRAM "/bin/true"
#define COMMAND "{\"argv\":[\"" PROGRAM "\"]}"

static const char *socket_path, *where;
static char noisy_key[128], quiet_key[128], noisy[64], quiet[64];
static char block[BLOCK];

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- requests ---- */

/* `size` bytes of body are sent by the caller. */
static struct request head_of(const char *key, const char *method, const char *path, size_t size)
{
    struct request request;
    int length = asprintf(&request.text,
                          "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                          "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                          method, path, key, size);

    if (length < 0)
        fail("cannot write a request");
    request.length = (size_t)length;
    return request;
}

static struct request request_of(const char *key, const char *method, const char *path,
                                 const char *body)
{
    struct request head = head_of(key, method, path, strlen(body)), request;
    int length = asprintf(&request.text, "%s%s", head.text, body);

    if (length < 0)
        fail("cannot write a request");
    request.length = (size_t)length;
    request_free(&head);
    return request;
}

static void call(struct client *client, const struct request *request, const char *what)
{
    int status = client_call(client, request, NULL);

    if (status / 100 != 2) {
        (void)fprintf(stderr, "bench: %s: the engine answers %d %s\n", what, status, client->body);
        exit(1);
    }
}

static void ask(const char *key, const char *method, const char *path, const char *body,
                const char *name, char *into, size_t size)
{
    static struct client client;
    struct request request = request_of(key, method, path, body);

    client_open(&client, socket_path);
    call(&client, &request, path);
    if (name != NULL && !client_text(&client, name, into, size))
        fail("an answer without what was asked for");
    client_close(&client);
    request_free(&request);
}

static const char *path_of(const char *sandbox, const char *rest)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "/v1/sandboxes/%s%s", sandbox, rest);
    return path;
}

/* ---- the noises: each is a process that never ends by itself ---- */

static void swallow(const struct request *request)
{
    struct client client;

    client_open(&client, socket_path);
    client_ask(&client, request);
    /* The length is known, but the end of a stream is not: whoever is cut off begins anew. */
    for (uint64_t left = LARGE; left > 0;) {
        ssize_t n = recv(client.fd, block, left < BLOCK ? left : BLOCK, 0);

        if (n <= 0)
            break;
        left -= (uint64_t)n;
    }
    client_close(&client);
}

static void download(void)
{
    struct request request = head_of(noisy_key, "GET", path_of(noisy, "/files?path=/tmp/large"), 0);

    for (;;)
        swallow(&request);
}

static void upload(void)
{
    char path[64];
    struct request request;

    (void)snprintf(path, sizeof(path), "/files?path=/tmp/up%d", (int)getpid());
    request = head_of(noisy_key, "PUT", path_of(noisy, path), LARGE);
    for (;;) {
        struct client client;

        client_open(&client, socket_path);
        client_ask(&client, &request);
        for (size_t left = LARGE; left > 0;) {
            ssize_t n = send(client.fd, block, left < BLOCK ? left : BLOCK, MSG_NOSIGNAL);

            if (n <= 0)
                fail("cannot send");
            left -= (size_t)n;
        }
        if (client_await(&client) / 100 != 2)
            fail("an upload failed");
        client_close(&client);
    }
}

/* What a command prints without end, followed. */
static void output(void)
{
    char id[64], path[128];
    struct request request;

    ask(noisy_key, "POST", path_of(noisy, "/processes"), "{\"command\":\"yes\"}", "id", id,
        sizeof(id));
    (void)snprintf(path, sizeof(path), "/processes/%s/follow", id);
    request = head_of(noisy_key, "GET", path_of(noisy, path), 0);
    for (;;)
        swallow(&request);
}

static bool again(struct client *client, void *arg)
{
    client_ask(client, arg);
    return true;
}

static void flood_with(struct request *request)
{
    static struct client clients[FLOODERS];

    for (size_t i = 0; i < FLOODERS; i++) {
        client_open(&clients[i], socket_path);
        client_ask(&clients[i], request);
    }
    client_drive(clients, FLOODERS, again, request);
}

static void flood(void)
{
    struct request request = head_of(noisy_key, "GET", "/v1/sandboxes", 0);

    flood_with(&request);
}

static void flood_exec(void)
{
    struct request request = request_of(noisy_key, "POST", path_of(noisy, "/exec"), COMMAND);

    flood_with(&request);
}

/* ---- creates ---- */

#define CREATE(kind) "{\"disk_kind\":\"" kind "\",\"resources\":{\"disk_bytes\":33554432}}"

/* Makes a sandbox and deletes it, however that is answered. */
static bool create_again(struct client *client, void *arg)
{
    struct request *request = arg;

    if (client->status == 201 && client_text(client, "id", client->id, sizeof(client->id))) {
        struct request delete = head_of(noisy_key, "DELETE", path_of(client->id, ""), 0);

        client_ask(client, &delete);
        request_free(&delete);
        return true;
    }
    client_ask(client, request);
    return true;
}

static void creates(void)
{
    static struct client clients[CREATORS];
    struct request request = request_of(noisy_key, "POST", "/v1/sandboxes", CREATE("persistent"));

    for (size_t i = 0; i < CREATORS; i++) {
        client_open(&clients[i], socket_path);
        client_ask(&clients[i], &request);
    }
    client_drive(clients, CREATORS, create_again, &request);
}

static bool created(struct client *client, void *arg)
{
    struct series *burst = arg;

    if (client->status == 201 && client_text(client, "id", client->id, sizeof(client->id)))
        series_add(burst, series_now_ns() - client->asked_ns);
    else
        burst->failures++;
    return false;
}

/* As many creates at once on an engine that has nothing else to do. */
static void measure_burst(const char *name, const char *body, FILE *out)
{
    static struct client clients[BURST];
    struct request request = request_of(quiet_key, "POST", "/v1/sandboxes", body);
    struct series burst;

    series_init(&burst, name, "ns", BURST);
    for (size_t i = 0; i < BURST; i++)
        client_open(&clients[i], socket_path);
    for (size_t i = 0; i < BURST; i++)
        client_ask(&clients[i], &request);
    client_drive(clients, BURST, created, &burst);
    for (size_t i = 0; i < BURST; i++) {
        struct request delete = head_of(quiet_key, "DELETE", path_of(clients[i].id, ""), 0);

        if (clients[i].id[0] != '\0')
            (void)client_call(&clients[i], &delete, NULL);
        request_free(&delete);
        client_close(&clients[i]);
    }
    if (series_write(&burst, out) < 0)
        fail("cannot write the results");
    series_free(&burst);
    request_free(&request);
}

/* ---- connections that hold what they can ---- */

/* Sends as much as is taken: one that is cut off is opened again later. */
static int try_hold(const struct request *request, size_t more)
{
    const struct timeval patience = {.tv_sec = 1};
    int fd = client_connect(where);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (send(fd, request->text, request->length, MSG_NOSIGNAL) < 0) {
        (void)close(fd);
        return -1;
    }
    while (more > 0) {
        ssize_t n = send(fd, block, more < BLOCK ? more : BLOCK, MSG_NOSIGNAL);

        if (n <= 0)
            break;
        more -= (size_t)n;
    }
    return fd;
}

/* Ended by an answer that closes, too: what is said is thrown away. */
static bool is_cut(int fd)
{
    ssize_t n;

    do
        n = recv(fd, block, BLOCK, MSG_DONTWAIT);
    while (n > 0);
    return n == 0 || errno != EAGAIN;
}

static void hold(const struct request *request, size_t count, size_t more)
{
    static struct pollfd held[HOLDERS];

    for (size_t i = 0; i < count; i++)
        held[i] = (struct pollfd){.fd = try_hold(request, more), .events = POLLIN};
    for (;;) {
        const struct timespec nap = {.tv_nsec = REFUSED_NS};

        (void)nanosleep(&nap, NULL);
        (void)poll(held, (nfds_t)count, 0);
        for (size_t i = 0; i < count; i++) {
            if (held[i].fd >= 0 && (held[i].revents == 0 || !is_cut(held[i].fd)))
                continue;
            if (held[i].fd >= 0)
                (void)close(held[i].fd);
            held[i].fd = try_hold(request, more);
        }
    }
}

static void events(void)
{
    struct request request = head_of(noisy_key, "GET", "/v1/events", 0);

    hold(&request, HOLDERS, 0);
}

/* Bodies that are said to come. */
static void bodies(void)
{
    struct request request = head_of(noisy_key, "POST", "/v1/sandboxes", 1000);

    hold(&request, HOLDERS, 0);
}

/* Nobody knows yet whose these are. */
static void strangers(void)
{
    static char head[] = "GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n";
    const struct request request = {.text = head, .length = sizeof(head) - 1};

    hold(&request, HOLDERS, 0);
}

static void messages(void)
{
    static const unsigned char frame[] = {0x82, 0xff, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0};
    struct request request;
    int length = asprintf(
        &request.text,
        "GET /v1/kernels/connect HTTP/1.1\r\nHost: localhost\r\n"
        "Authorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        noisy_key);

    if (length < 0 ||
        (request.text = realloc(request.text, (size_t)length + sizeof(frame))) == NULL)
        fail("cannot write a request");
    memcpy(request.text + length, frame, sizeof(frame));
    request.length = (size_t)length + sizeof(frame);
    hold(&request, TALKERS, MESSAGE);
}

/* ---- programs in a box ---- */

/* In a sandbox of its own each time, for it may not outlive this. */
static void misbehave(const char *script)
{
    static struct client client;
    struct request create = request_of(
        noisy_key, "POST", "/v1/sandboxes",
        "{\"disk_kind\":\"ephemeral\",\"resources\":{\"memory_bytes\":134217728}}");
    char *body;

    if (asprintf(&body, "{\"command\":\"exec python3 -c '%s'\",\"timeout_ms\":5000}", script) < 0)
        fail("cannot write a request");
    for (;;) {
        char id[CLIENT_ID_MAX];
        struct request run, delete;

        client_open(&client, socket_path);
        if (client_call(&client, &create, NULL) != 201 ||
            !client_text(&client, "id", id, sizeof(id)))
            fail("a sandbox for a program that misbehaves");
        run = request_of(noisy_key, "POST", path_of(id, "/exec"), body);
        (void)client_call(&client, &run, NULL);
        delete = head_of(noisy_key, "DELETE", path_of(id, ""), 0);
        (void)client_call(&client, &delete, NULL);
        request_free(&run);
        request_free(&delete);
        client_close(&client);
    }
}

static void memory(void)
{
    misbehave("x=[]\\nwhile 1: x.append(bytearray(1<<20))");
}

static void forks(void)
{
    misbehave("import os\\nwhile 1:\\n try: os.fork()\\n except OSError: pass");
}

static void shared(void)
{
    misbehave(
        "import mmap\\nx=[]\\nwhile 1:\\n x.append(mmap.mmap(-1,1<<20)); x[-1].write(bytes(1<<20))");
}

static void locks(void)
{
    misbehave(
        "import fcntl\\nx=[]\\nwhile 1:\\n f=open(\\\"/tmp/%d\\\"%len(x),\\\"w\\\"); x.append(f)\\n"
        " for i in range(600): fcntl.lockf(f,fcntl.LOCK_EX,1,2*i)");
}

static void unread(void)
{
    misbehave(
        "import socket\\nl=socket.create_server((\\\"127.0.0.1\\\",0)); x=[]\\nwhile 1:\\n"
        " c=socket.create_connection(l.getsockname()); x+=[c,l.accept()[0]]; c.setblocking(False)\\n"
        " try:\\n  while 1: c.send(bytes(1<<16))\\n except OSError: pass");
}

static void terminals(void)
{
    misbehave("import os\\nx=[]\\nwhile 1:\\n try: x.append(os.openpty())\\n except OSError: pass");
}

static void inotify(void)
{
    misbehave("import ctypes\\nc=ctypes.CDLL(None)\\nwhile 1: c.inotify_init()");
}

struct noise {
    const char *name;
    void (*make)(void);
    int processes;
    pid_t pids[NOISE_MOST];
};

static void begin(struct noise *noise)
{
    for (int i = 0; i < noise->processes; i++) {
        noise->pids[i] = fork();
        if (noise->pids[i] < 0)
            fail("cannot fork");
        if (noise->pids[i] > 0)
            continue;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        noise->make();
        _exit(1);
    }
}

/* One that has ended made no noise: what was measured is nothing then. */
static void end(const struct noise *noise)
{
    for (int i = 0; i < noise->processes; i++) {
        if (waitpid(noise->pids[i], NULL, WNOHANG) != 0) {
            errno = ECHILD;
            fail(noise->name);
        }
        (void)kill(noise->pids[i], SIGKILL);
        (void)waitpid(noise->pids[i], NULL, 0);
    }
}

/* ---- the quiet one ---- */

static uint64_t spawn_bare(void)
{
    char *const argv[] = {PROGRAM, NULL};
    uint64_t start = series_now_ns();
    pid_t pid;

    if (posix_spawn(&pid, PROGRAM, NULL, NULL, argv, argv + 1) != 0 || waitpid(pid, NULL, 0) != pid)
        fail(PROGRAM);
    return series_now_ns() - start;
}

/* By a connection of its own. True with the time that it took, and in `id` what was made. */
static bool try_call(const struct request *request, int wanted, uint64_t *took, char *id)
{
    static struct client client;
    uint64_t start = series_now_ns();
    bool is_done = client_try_open(&client, where) && client_try_call(&client, request) &&
                   client.status == wanted &&
                   (id == NULL || client_text(&client, "id", id, CLIENT_ID_MAX));

    *took = series_now_ns() - start;
    if (client.fd >= 0)
        client_close(&client);
    return is_done;
}

static void note(struct series *series, bool is_done, uint64_t took)
{
    if (is_done)
        series_add(series, took);
    else
        series->failures++;
}

static void measure(struct series *create, struct series *exec, struct series *bare)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct request make = request_of(quiet_key, "POST", "/v1/sandboxes", CREATE("ephemeral"));
    struct request run = request_of(quiet_key, "POST", path_of(quiet, "/exec"), COMMAND);

    for (size_t i = 0; i < exec->capacity; i++) {
        char id[CLIENT_ID_MAX];
        uint64_t took;
        bool is_made;

        (void)nanosleep(&pause, NULL);
        is_made = try_call(&make, 201, &took, id);
        note(create, is_made, took);
        if (is_made) {
            struct request delete = head_of(quiet_key, "DELETE", path_of(id, ""), 0);

            if (!try_call(&delete, 204, &took, NULL))
                create->failures++;
            request_free(&delete);
        }
        (void)nanosleep(&pause, NULL);
        note(exec, try_call(&run, 200, &took, NULL), took);
        (void)nanosleep(&pause, NULL);
        series_add(bare, spawn_bare());
    }
    request_free(&make);
    request_free(&run);
}

static void settle(void)
{
    const struct timespec begin_s = {.tv_sec = BEGIN_S};

    (void)nanosleep(&begin_s, NULL);
}

static void make_tenant(const char *tenant, char *key, size_t key_size, char *sandbox, size_t size)
{
    static struct client client;
    char body[256];
    struct request request;

    (void)snprintf(body, sizeof(body),
                   "{\"tenant\":\"%s\",\"label\":\"bench\",\"scopes\":[\"read\",\"write\"]}",
                   tenant);
    request = request_new("POST", "/v1/keys", body);
    client_open(&client, socket_path);
    call(&client, &request, "a key");
    if (!client_text(&client, "secret", key, key_size))
        fail("no key");
    client_close(&client);
    request_free(&request);
    ask(key, "POST", "/v1/sandboxes",
        "{\"disk_kind\":\"ephemeral\",\"resources\":{\"memory_bytes\":1073741824,"
        "\"disk_bytes\":805306368}}",
        "id", sandbox, size);
}

static void measure_beside(struct noise *noise, size_t samples, FILE *out)
{
    char bare_name[64], create_name[64];
    struct series create, exec, bare;

    (void)snprintf(bare_name, sizeof(bare_name), "%s_bare", noise->name);
    (void)snprintf(create_name, sizeof(create_name), "%s_create", noise->name);
    series_init(&create, create_name, "ns", samples);
    series_init(&exec, noise->name, "ns", samples);
    series_init(&bare, bare_name, "ns", samples);
    begin(noise);
    settle();
    measure(&create, &exec, &bare);
    end(noise);
    settle();
    if (series_write(&create, out) < 0 || series_write(&exec, out) < 0 ||
        series_write(&bare, out) < 0)
        fail("cannot write the results");
    series_free(&create);
    series_free(&exec);
    series_free(&bare);
}

/* Tells whether COVE_BENCH_NOISES, which has a space before and after each name, asks for a noise. Unset, it asks for
 * all. */
static bool is_asked_for(const char *name)
{
    const char *names = getenv("COVE_BENCH_NOISES");
    char word[64];

    (void)snprintf(word, sizeof(word), " %s ", name);
    return names == NULL || strstr(names, word) != NULL;
}

int main(int argc, char **argv)
{
    static struct noise noises[] = {
        {.name = "idle", .processes = 0},
        {.name = "download", .make = download, .processes = 2},
        {.name = "upload", .make = upload, .processes = 2},
        {.name = "output", .make = output, .processes = 2},
        {.name = "flood", .make = flood, .processes = 1},
        {.name = "flood_exec", .make = flood_exec, .processes = 1},
        {.name = "creates", .make = creates, .processes = 1},
        {.name = "events", .make = events, .processes = 1},
        {.name = "bodies", .make = bodies, .processes = 1},
        {.name = "strangers", .make = strangers, .processes = 1},
        {.name = "messages", .make = messages, .processes = 1},
        {.name = "memory", .make = memory, .processes = 1},
        {.name = "forks", .make = forks, .processes = 1},
        {.name = "shared", .make = shared, .processes = 1},
        {.name = "locks", .make = locks, .processes = 1},
        {.name = "unread", .make = unread, .processes = 1},
        {.name = "terminals", .make = terminals, .processes = 1},
        {.name = "inotify", .make = inotify, .processes = 1},
    };
    FILE *out;
    size_t samples;

    if (argc != 5 && argc != 6)
        return 2;
    out = fopen(argv[1], "we");
    socket_path = argv[2];
    where = argv[3];
    samples = strtoul(argv[4], NULL, 10);
    if (out == NULL)
        fail(argv[1]);
    if (argc == 6) {
        struct noise callers = {.name = argv[5]};

        make_tenant("quiet", quiet_key, sizeof(quiet_key), quiet, sizeof(quiet));
        measure_beside(&callers, samples, out);
        return fclose(out) == 0 ? 0 : 1;
    }
    make_tenant("noisy", noisy_key, sizeof(noisy_key), noisy, sizeof(noisy));
    make_tenant("quiet", quiet_key, sizeof(quiet_key), quiet, sizeof(quiet));
    ask(noisy_key, "POST", path_of(noisy, "/exec"),
        "{\"command\":\"head -c 67108864 /dev/urandom >/tmp/large\",\"timeout_ms\":60000}", NULL,
        NULL, 0);
    if (is_asked_for("burst")) {
        measure_burst("burst_ephemeral", CREATE("ephemeral"), out);
        measure_burst("burst_persistent", CREATE("persistent"), out);
    }
    for (size_t i = 0; i < sizeof(noises) / sizeof(noises[0]); i++)
        if (i == 0 || is_asked_for(noises[i].name))
            measure_beside(&noises[i], samples, out);
    return fclose(out) == 0 ? 0 : 1;
}
