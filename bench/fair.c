/* Whether one tenant is heard while another makes all the noise it can.
 *
 * usage: fair OUT SOCKET SAMPLES [SERIES]
 * Talks to a `cove serve` that bench/fair.py has started and will end. The quiet tenant runs /bin/true in its
 * sandbox, again and again, and beside that a vfork+exec of the same program outside says what the
 * machine itself has left for anybody. First while nobody else does anything, then beside each noise of
 * the other tenant, whose clients are children of this program and end with it. With a SERIES only the quiet one
 * is measured, beside whatever noise the caller makes. */
#include "client.h"
#include "series.h"

#include <errno.h>
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
#define NOISE_MOST 4
#define BEGIN_S 1                /* until a noise is at its full rate */
#define PAUSE_NS (2 * 1000000UL) /* the quiet one thinks between two commands */

#define PROGRAM "/bin/true"
#define COMMAND "{\"argv\":[\"" PROGRAM "\"]}"

static const char *socket_path;
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

static void measure(struct series *exec, struct series *bare)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    static struct client client;
    struct request request = request_of(quiet_key, "POST", path_of(quiet, "/exec"), COMMAND);

    client_open(&client, socket_path);
    for (size_t i = 0; i < exec->capacity; i++) {
        uint64_t took;

        (void)nanosleep(&pause, NULL);
        if (client_call(&client, &request, &took) == 200)
            series_add(exec, took);
        else
            exec->failures++;
        (void)nanosleep(&pause, NULL);
        series_add(bare, spawn_bare());
    }
    client_close(&client);
    request_free(&request);
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
    char bare_name[64];
    struct series exec, bare;

    (void)snprintf(bare_name, sizeof(bare_name), "%s_bare", noise->name);
    series_init(&exec, noise->name, "ns", samples);
    series_init(&bare, bare_name, "ns", samples);
    begin(noise);
    settle();
    measure(&exec, &bare);
    end(noise);
    settle();
    if (series_write(&exec, out) < 0 || series_write(&bare, out) < 0)
        fail("cannot write the results");
    series_free(&exec);
    series_free(&bare);
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
    };
    FILE *out;
    size_t samples;

    if (argc != 4 && argc != 5)
        return 2;
    out = fopen(argv[1], "we");
    socket_path = argv[2];
    samples = strtoul(argv[3], NULL, 10);
    if (out == NULL)
        fail(argv[1]);
    if (argc == 5) {
        struct noise callers = {.name = argv[4]};

        make_tenant("quiet", quiet_key, sizeof(quiet_key), quiet, sizeof(quiet));
        measure_beside(&callers, samples, out);
        return fclose(out) == 0 ? 0 : 1;
    }
    make_tenant("noisy", noisy_key, sizeof(noisy_key), noisy, sizeof(noisy));
    make_tenant("quiet", quiet_key, sizeof(quiet_key), quiet, sizeof(quiet));
    ask(noisy_key, "POST", path_of(noisy, "/exec"),
        "{\"command\":\"head -c 67108864 /dev/urandom >/tmp/large\",\"timeout_ms\":60000}", NULL,
        NULL, 0);
    for (size_t i = 0; i < sizeof(noises) / sizeof(noises[0]); i++)
        measure_beside(&noises[i], samples, out);
    return fclose(out) == 0 ? 0 : 1;
}
