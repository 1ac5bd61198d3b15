/* What the engine costs those who ask it: create, exec, both at once, and thousands of sandboxes idle.
 *
 * usage: engine OUT SOCKET KEEPER_PID TRUE DIRECTORY PACE_MS PERSISTENT_PACE_MS IDLE PERSISTENT_IDLE
 * Talks to a `cove serve` that bench/engine.py has started and will end, so whatever is left here when
 * it fails ends with that. TRUE is the static program that is copied into sandboxes; DIRECTORY lies on
 * the disk of the data directory. Writes series.h's lines; bench/engine.py judges them. A number and
 * its floor are measured in turn, never one after the other. */
#include "client.h"
#include "series.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FIRST_ROUNDS 200
#define PERSISTENT_ROUNDS 60
#define EXEC_ROUNDS 2000
#define WINDOWS 20 /* of a rate */
#define WINDOW_EXECS 300
#define WINDOW_CYCLES 100
#define TOGETHER 4 /* connections that exec */
#define CYCLERS 8  /* connections that create and destroy */
#define FILLERS 16 /* connections that make the idle ones */
#define BURST 100
#define BURST_ROUNDS 5
#define ALIVE_EXECS 1000
#define DRAWN 200
#define SETTLE_MS 1000
#define GROUPS 200

#define IN_BOX "/tmp/true" /* where sandboxes have the static program */
#define EPHEMERAL "{\"disk_kind\":\"ephemeral\"}"
#define PERSISTENT "{\"disk_kind\":\"persistent\"}"
#define RUN(path) "{\"argv\":[\"" path "\"]}"

static FILE *out;
static const char *socket_path;

static _Noreturn void fail(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static _Noreturn void fail_answer(const char *what, const struct client *client)
{
    (void)fprintf(stderr, "bench: %s: the engine answers %d %.600s\n", what, client->status,
                  client->body);
    exit(1);
}

static void finish(struct series *series)
{
    if (series_write(series, out) < 0)
        fail("cannot write the results");
    series_free(series);
}

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&time, NULL);
}

/* ---- requests ---- */

static struct request request_on(const char *method, const char *id, const char *verb,
                                 const char *body)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "/v1/sandboxes/%s%s", id, verb);
    return request_new(method, path, body);
}

static struct request request_create(const char *spec)
{
    return request_new("POST", "/v1/sandboxes", spec);
}

static bool has_created(struct client *client)
{
    return client->status == 201 && client_text(client, "id", client->id, sizeof(client->id));
}

static bool has_run(const struct client *client)
{
    return client->status == 200 && strstr(client->body, "\"exit_code\":0,") != NULL;
}

static void create(struct client *client, const char *spec)
{
    struct request request = request_create(spec);

    (void)client_call(client, &request, NULL);
    if (!has_created(client))
        fail_answer("no sandbox", client);
    request_free(&request);
}

static void destroy(struct client *client)
{
    struct request request = request_on("DELETE", client->id, "", NULL);

    if (client_call(client, &request, NULL) != 204)
        fail_answer("a sandbox stays", client);
    request_free(&request);
}

static char *base64_of(const char *path)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static unsigned char bytes[1 << 18];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, bytes, sizeof(bytes) - 3) : -1;
    char *text, *at;

    if (size <= 0 || (size_t)size == sizeof(bytes) - 3)
        fail("cannot read the static true");
    (void)close(fd);
    text = at = calloc(1, (size_t)size / 3 * 4 + 8);
    if (text == NULL)
        fail("no memory");
    /* The program is followed by zero bytes, which do it no harm: so no padding is needed. */
    for (ssize_t i = 0; i < size; i += 3) {
        unsigned word = (unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];

        for (unsigned shift = 24; shift > 0; shift -= 6)
            *at++ = digits[word >> (shift - 6) & 63];
    }
    *at = '\0';
    return text;
}

/* Makes the client's sandbox one that has the static program. */
static void bring(struct client *client, const char *program)
{
    char *text = base64_of(program), *body;
    struct request request;

    if (asprintf(&body,
                 "{\"command\":\"cat >" IN_BOX " && chmod 755 " IN_BOX
                 "\",\"stdin_base64\":\"%s\"}",
                 text) < 0)
        fail("no memory");
    request = request_on("POST", client->id, "/exec", body);
    (void)client_call(client, &request, NULL);
    if (!has_run(client))
        fail_answer("the static true cannot be copied", client);
    request_free(&request);
    free(body);
    free(text);
}

/* ---- the floors ---- */

static uint64_t time_spawn(const char *program)
{
    char *argv[] = {"true", NULL}, *env[] = {NULL};
    uint64_t start = series_now_ns();
    int status;
    pid_t pid;

    errno = posix_spawn(&pid, program, NULL, NULL, argv, env); /* a vfork and an exec */
    if (errno != 0 || waitpid(pid, &status, 0) != pid || status != 0)
        fail("cannot spawn a program");
    return series_now_ns() - start;
}

/* An append as a log makes it, on the engine's disk: nobody acknowledges what is kept for less. */
static uint64_t time_write(int fd)
{
    static char page[4096];
    uint64_t start = series_now_ns();

    if (write(fd, page, sizeof(page)) != sizeof(page) || fdatasync(fd) < 0)
        fail("cannot write to the disk");
    return series_now_ns() - start;
}

static int floor_file(const char *directory)
{
    char path[4096];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/floor", directory);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        fail("cannot write to the disk");
    return fd;
}

/* ---- create and first command ---- */

static bool create_first(struct client *client, const struct request *creation, uint64_t *created,
                         uint64_t *ran)
{
    uint64_t start = series_now_ns();
    struct request run;
    bool ok;

    (void)client_call(client, creation, created);
    if (!has_created(client))
        return false;
    run = request_on("POST", client->id, "/exec", RUN("/bin/true"));
    (void)client_call(client, &run, NULL);
    *ran = series_now_ns() - start;
    ok = has_run(client);
    request_free(&run);
    destroy(client);
    return ok;
}

/* Paced, so that the pool has filled up again: engine.py prints the pace. `names` are of four series. */
static void bench_first(const char *const names[4], const char *spec, size_t rounds, long pace_ms,
                        const char *directory)
{
    struct request creation = request_create(spec);
    struct series series[4];
    struct client client;
    int file = floor_file(directory);

    for (size_t i = 0; i < 4; i++)
        series_init(&series[i], names[i], "ns", rounds);
    client_open(&client, socket_path);
    create(&client, spec); /* from here on the pool knows the kind */
    destroy(&client);
    pause_ms(SETTLE_MS);
    for (size_t i = 0; i < rounds; i++) {
        uint64_t created, ran;

        pause_ms(pace_ms);
        if (create_first(&client, &creation, &created, &ran)) {
            series_add(&series[0], created);
            series_add(&series[1], ran);
        } else {
            series[0].failures++;
        }
        pause_ms(pace_ms);
        series_add(&series[2], time_spawn("/bin/true"));
        series_add(&series[3], time_write(file));
    }
    for (size_t i = 0; i < 4; i++)
        finish(&series[i]);
    (void)close(file);
    client_close(&client);
    request_free(&creation);
}

/* ---- exec ---- */

static void exec_add(struct client *client, const struct request *run, struct series *series)
{
    uint64_t took;

    (void)client_call(client, run, &took);
    if (has_run(client))
        series_add(series, took);
    else
        series->failures++;
}

/* One here, one in the sandbox, in turn. */
static void exec_beside(struct client *client, const char *body, const char *program,
                        const char *name, const char *floor_name, size_t rounds)
{
    struct request run = request_on("POST", client->id, "/exec", body);
    struct series exec, floor;

    series_init(&exec, name, "ns", rounds);
    series_init(&floor, floor_name, "ns", rounds);
    for (size_t i = 0; i < rounds / 10; i++)
        (void)client_call(client, &run, NULL); /* warm */
    for (size_t i = 0; i < rounds; i++) {
        exec_add(client, &run, &exec);
        series_add(&floor, time_spawn(program));
    }
    finish(&exec);
    finish(&floor);
    request_free(&run);
}

struct herd {
    struct series *series; /* of each request, or NULL */
    const struct request *requests;
    struct client *clients;
    size_t left, failures;
};

static bool herd_ask(struct herd *herd, struct client *client)
{
    if (herd->left == 0)
        return false;
    herd->left--;
    client_ask(client, &herd->requests[client - herd->clients]);
    return true;
}

static bool herd_ran(struct client *client, void *arg)
{
    struct herd *herd = arg;

    herd->failures += has_run(client) ? 0 : 1;
    return herd_ask(herd, client);
}

/* Each sample is a window's mean: execs one after the other on each connection. */
static void bench_rate(struct client *clients, size_t count, const char *name)
{
    struct request requests[TOGETHER];
    struct series windows;

    series_init(&windows, name, "ns", WINDOWS);
    for (size_t i = 0; i < count; i++)
        requests[i] = request_on("POST", clients[i].id, "/exec", RUN(IN_BOX));
    for (size_t i = 0; i < WINDOWS; i++) {
        struct herd herd = {.requests = requests, .clients = clients, .left = WINDOW_EXECS};
        uint64_t start = series_now_ns();

        for (size_t j = 0; j < count; j++)
            (void)herd_ask(&herd, &clients[j]);
        client_drive(clients, count, herd_ran, &herd);
        windows.failures += herd.failures;
        if (herd.failures == 0)
            series_add(&windows, (series_now_ns() - start) / WINDOW_EXECS);
    }
    finish(&windows);
    for (size_t i = 0; i < count; i++)
        request_free(&requests[i]);
}

static void bench_exec(const char *program)
{
    static struct client clients[TOGETHER];

    for (size_t i = 0; i < TOGETHER; i++) {
        client_open(&clients[i], socket_path);
        create(&clients[i], EPHEMERAL);
        bring(&clients[i], program);
    }
    exec_beside(clients, RUN(IN_BOX), program, "exec", "exec_floor", EXEC_ROUNDS);
    exec_beside(clients, RUN("/bin/true"), "/bin/true", "exec_dynamic", "exec_dynamic_floor",
                EXEC_ROUNDS / 2);
    bench_rate(clients, 1, "exec_windows");
    bench_rate(clients, TOGETHER, "exec_windows_together");
    for (size_t i = 0; i < TOGETHER; i++) {
        destroy(&clients[i]);
        client_close(&clients[i]);
    }
}

/* ---- create and destroy ---- */

static bool cycled(struct client *client, void *arg)
{
    struct herd *herd = arg;
    struct request delete;

    if (client->step == 1) { /* its delete */
        client->step = 0;
        herd->failures += client->status == 204 ? 0 : 1;
        return herd_ask(herd, client);
    }
    if (!has_created(client)) {
        herd->failures++;
        return herd_ask(herd, client);
    }
    client->step = 1;
    delete = request_on("DELETE", client->id, "", NULL);
    client_ask(client, &delete);
    request_free(&delete);
    return true;
}

static void bench_cycles(void)
{
    static struct client clients[CYCLERS];
    struct request requests[CYCLERS];
    struct series windows;

    series_init(&windows, "cycles", "ns", WINDOWS);
    for (size_t i = 0; i < CYCLERS; i++) {
        client_open(&clients[i], socket_path);
        requests[i] = request_create(EPHEMERAL);
    }
    for (size_t i = 0; i <= WINDOWS; i++) {
        struct herd herd = {.requests = requests, .clients = clients, .left = WINDOW_CYCLES};
        uint64_t start = series_now_ns();

        for (size_t j = 0; j < CYCLERS; j++)
            (void)herd_ask(&herd, &clients[j]);
        client_drive(clients, CYCLERS, cycled, &herd);
        windows.failures += herd.failures;
        if (herd.failures == 0 && i > 0) /* the first begins with a full pool */
            series_add(&windows, (series_now_ns() - start) / WINDOW_CYCLES);
    }
    finish(&windows);
    for (size_t i = 0; i < CYCLERS; i++) {
        client_close(&clients[i]);
        request_free(&requests[i]);
    }
}

/* ---- many ---- */

/* Sandboxes made or ended over some connections at once. */
struct crowd {
    char (*ids)[CLIENT_ID_MAX];
    size_t asked, done, wanted, failures;
    const struct request *creation;
    struct series *series; /* of each, or NULL */
};

static bool crowd_create(struct crowd *crowd, struct client *client)
{
    if (crowd->asked == crowd->wanted)
        return false;
    crowd->asked++;
    client_ask(client, crowd->creation);
    return true;
}

static bool crowd_created(struct client *client, void *arg)
{
    struct crowd *crowd = arg;

    if (has_created(client)) {
        if (crowd->series != NULL)
            series_add(crowd->series, series_now_ns() - client->asked_ns);
        memcpy(crowd->ids[crowd->done++], client->id, sizeof(client->id));
    } else {
        if (crowd->failures++ == 0)
            (void)fprintf(stderr, "bench: a sandbox is not made: %d %.300s\n", client->status,
                          client->body);
    }
    return crowd_create(crowd, client);
}

static bool crowd_delete(struct crowd *crowd, struct client *client)
{
    struct request request;

    if (crowd->asked == crowd->wanted)
        return false;
    request = request_on("DELETE", crowd->ids[crowd->asked++], "", NULL);
    client_ask(client, &request);
    request_free(&request);
    return true;
}

static bool crowd_deleted(struct client *client, void *arg)
{
    struct crowd *crowd = arg;

    crowd->failures += client->status == 204 ? 0 : 1;
    return crowd_delete(crowd, client);
}

static uint64_t crowd_drive(struct crowd *crowd, struct client *clients, size_t count,
                            bool (*ask)(struct crowd *crowd, struct client *client),
                            bool (*answered)(struct client *client, void *arg))
{
    uint64_t start = series_now_ns();
    size_t busy = 0;

    crowd->asked = crowd->done = crowd->failures = 0;
    while (busy < count && ask(crowd, &clients[busy]))
        busy++;
    client_drive(clients, busy, answered, crowd);
    return series_now_ns() - start;
}

static void crowd_end(struct crowd *crowd, struct client *clients, size_t count)
{
    crowd->wanted = crowd->done;
    (void)crowd_drive(crowd, clients, count, crowd_delete, crowd_deleted);
    if (crowd->failures > 0) {
        errno = EBUSY;
        fail("sandboxes stay");
    }
}

static void bench_burst(void)
{
    static struct client clients[BURST];
    static char ids[BURST][CLIENT_ID_MAX];
    struct request creation = request_create(EPHEMERAL);
    struct series all, each;
    struct crowd crowd = {.ids = ids, .wanted = BURST, .creation = &creation, .series = &each};

    series_init(&all, "burst", "ns", BURST_ROUNDS);
    series_init(&each, "burst_each", "ns", (size_t)BURST_ROUNDS * BURST);
    for (size_t i = 0; i < BURST; i++)
        client_open(&clients[i], socket_path);
    for (size_t i = 0; i < BURST_ROUNDS; i++) {
        uint64_t took;

        pause_ms(SETTLE_MS);
        crowd.wanted = BURST;
        took = crowd_drive(&crowd, clients, BURST, crowd_create, crowd_created);
        each.failures += crowd.failures;
        if (crowd.failures == 0)
            series_add(&all, took);
        else
            all.failures++;
        crowd_end(&crowd, clients, BURST);
    }
    for (size_t i = 0; i < BURST; i++)
        client_close(&clients[i]);
    finish(&all);
    finish(&each);
    request_free(&creation);
}

/* ---- idle ---- */

/* The number behind `name` in a file of "Name:  NUMBER kB" lines, in bytes. */
static uint64_t read_kilobytes(const char *path, const char *name)
{
    FILE *file = fopen(path, "re");
    char line[256];
    uint64_t bytes = 0;

    if (file == NULL)
        fail(path);
    while (bytes == 0 && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            bytes = strtoull(line + strlen(name), NULL, 10) * 1024;
    (void)fclose(file);
    return bytes;
}

/* Bytes that the machine could still give away. */
static uint64_t available(void)
{
    return read_kilobytes("/proc/meminfo", "MemAvailable:");
}

/* What the kernel has in use for itself and cannot give away. */
static uint64_t slabs(void)
{
    return read_kilobytes("/proc/meminfo", "SUnreclaim:");
}

static bool is_engine(long pid)
{
    char path[64], name[32] = "";
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    (void)!fgets(name, sizeof(name), file);
    (void)fclose(file);
    return strcmp(name, "cove-engine\n") == 0;
}

/* The keeper and its engine, as far as the memory is theirs. */
static uint64_t server_memory(long keeper)
{
    char path[64];
    uint64_t bytes;
    char word[32];
    FILE *children;
    long pid;

    (void)snprintf(path, sizeof(path), "/proc/%ld/smaps_rollup", keeper);
    bytes = read_kilobytes(path, "Pss:");
    (void)snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", keeper, keeper);
    children = fopen(path, "re");
    if (children == NULL)
        fail("cannot read the keeper's children");
    while (fscanf(children, "%31s", word) == 1) {
        pid = strtol(word, NULL, 10);
        if (!is_engine(pid))
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%ld/smaps_rollup", pid);
        bytes += read_kilobytes(path, "Pss:");
    }
    (void)fclose(children);
    return bytes;
}

static void memory_add(const char *name, uint64_t before, uint64_t after, size_t count)
{
    struct series memory;

    series_init(&memory, name, "bytes", 1);
    if (count > 0 && after >= before)
        series_add(&memory, (after - before) / count);
    else
        memory.failures++; /* somebody else gave back more: that says nothing */
    finish(&memory);
}

/* What the kernel takes for one empty memory cgroup: no box is without, so this is their floor. */
static void bench_group(void)
{
    bool is_v1 = access("/sys/fs/cgroup/memory", F_OK) == 0;
    const char *place = is_v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
    char path[GROUPS][64];
    uint64_t before;
    size_t made = 0;

    pause_ms(SETTLE_MS);
    before = slabs();
    while (made < GROUPS) {
        (void)snprintf(path[made], sizeof(path[made]), "%s/cove-bench-%d-%zu", place, getpid(),
                       made);
        if (mkdir(path[made], 0755) < 0)
            break;
        made++;
    }
    memory_add("slab_memory_group", before, slabs(), made == GROUPS ? made : 0);
    while (made > 0)
        (void)rmdir(path[--made]);
}

/* The first command of sandboxes drawn at random, for nothing of them is in a cache. */
static void bench_drawn(struct client *client, const struct crowd *crowd)
{
    struct series first;

    series_init(&first, "exec_first_alive", "ns", DRAWN);
    for (size_t i = 0; i < DRAWN && crowd->done > 0; i++) {
        struct request run = request_on("POST", crowd->ids[(size_t)random() % crowd->done], "/exec",
                                        RUN("/bin/true"));

        exec_add(client, &run, &first);
        request_free(&run);
    }
    finish(&first);
}

/* Makes `count` of them and leaves them alone; `one` has a sandbox that is looked at meanwhile. */
static void bench_idle(const char *kind, const char *spec, size_t count, long keeper,
                       struct client *one, const char *program)
{
    static struct client clients[FILLERS];
    struct request creation = request_create(spec);
    struct crowd crowd = {.wanted = count, .creation = &creation};
    char name[5][64];
    struct series made;
    uint64_t before, server_before, slabs_before, took;

    crowd.ids = calloc(count, sizeof(*crowd.ids));
    if (crowd.ids == NULL)
        fail("no memory");
    (void)snprintf(name[0], sizeof(name[0]), "fill_%s", kind);
    (void)snprintf(name[1], sizeof(name[1]), "memory_%s", kind);
    (void)snprintf(name[2], sizeof(name[2]), "server_memory_%s", kind);
    (void)snprintf(name[3], sizeof(name[3]), "empty_%s", kind);
    (void)snprintf(name[4], sizeof(name[4]), "slab_memory_%s", kind);
    for (size_t i = 0; i < FILLERS; i++)
        client_open(&clients[i], socket_path);
    pause_ms(SETTLE_MS);
    before = available();
    slabs_before = slabs();
    server_before = server_memory(keeper);
    series_init(&made, name[0], "ns", 1);
    took = crowd_drive(&crowd, clients, FILLERS, crowd_create, crowd_created);
    made.failures = crowd.failures;
    if (crowd.done > 0)
        series_add(&made, took / crowd.done);
    finish(&made);
    pause_ms(SETTLE_MS);
    memory_add(name[1], available(), before, crowd.done);
    memory_add(name[2], server_before, server_memory(keeper), crowd.done);
    memory_add(name[4], slabs_before, slabs(), crowd.done);
    if (one != NULL) {
        exec_beside(one, RUN(IN_BOX), program, "exec_alive", "exec_alive_floor", ALIVE_EXECS);
        bench_drawn(one, &crowd);
    }
    series_init(&made, name[3], "ns", 1);
    took = series_now_ns();
    crowd_end(&crowd, clients, FILLERS);
    if (crowd.wanted > 0)
        series_add(&made, (series_now_ns() - took) / crowd.wanted);
    finish(&made);
    for (size_t i = 0; i < FILLERS; i++)
        client_close(&clients[i]);
    request_free(&creation);
    free(crowd.ids);
}

static void bench_alive(size_t count, long keeper, const char *program)
{
    static struct client one;

    client_open(&one, socket_path);
    create(&one, EPHEMERAL);
    bring(&one, program);
    exec_beside(&one, RUN(IN_BOX), program, "exec_alone", "exec_alone_floor", ALIVE_EXECS);
    bench_idle("ephemeral", EPHEMERAL, count, keeper, &one, program);
    bench_group();
    destroy(&one);
    client_close(&one);
}

int main(int argc, char **argv)
{
    static const char *const ephemeral[] = {"create", "create_first", "create_first_spawn",
                                            "create_first_write"};
    static const char *const persistent[] = {"persistent_create", "persistent_create_first",
                                             "persistent_spawn", "persistent_write"};
    long keeper, pace_ms, persistent_pace_ms;

    if (argc != 10) {
        (void)fprintf(stderr, "usage: engine OUT SOCKET KEEPER_PID TRUE DIRECTORY PACE_MS "
                              "PERSISTENT_PACE_MS IDLE PERSISTENT_IDLE\n");
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    out = fopen(argv[1], "we");
    if (out == NULL)
        fail("cannot write the results");
    socket_path = argv[2];
    keeper = strtol(argv[3], NULL, 10);
    pace_ms = strtol(argv[6], NULL, 10);
    persistent_pace_ms = strtol(argv[7], NULL, 10);
    bench_first(ephemeral, EPHEMERAL, FIRST_ROUNDS, pace_ms, argv[5]);
    bench_exec(argv[4]);
    bench_cycles();
    bench_burst();
    bench_alive(strtoul(argv[8], NULL, 10), keeper, argv[4]);
    bench_first(persistent, PERSISTENT, PERSISTENT_ROUNDS, persistent_pace_ms, argv[5]);
    bench_idle("persistent", PERSISTENT, strtoul(argv[9], NULL, 10), keeper, NULL, NULL);
    return fclose(out) == 0 ? 0 : 1;
}
