/* How long the store takes, beside what the disk takes for a write of the same size that is waited for.
 *
 * Puts of 1 KiB one after the other (what a caller waits for one answer), a thousand at once (what many
 * callers get together), what store_put() itself takes of the loop's thread, and a get.
 * usage: store DIRECTORY */
#include "store/store.h"
#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE 1024
#define ONE_BY_ONE 1000
#define AT_ONCE 1000
#define TOGETHER 50000

struct bench {
    uv_loop_t loop;
    struct store *store;
    char data[SIZE];
    unsigned asked, answered, wanted;
    uint64_t asking_ns;
};

static void fail(const char *what)
{
    (void)fprintf(stderr, "store: %s\n", what);
    exit(1);
}

static void put(struct bench *bench, store_done done)
{
    char key[32];
    uint64_t began;

    (void)snprintf(key, sizeof(key), "key/%u", bench->asked++ % 5000);
    began = clock_monotonic_ns();
    store_put(bench->store, key, bench->data, SIZE, STORE_ANY, done, bench);
    bench->asking_ns += clock_monotonic_ns() - began;
}

static void on_done(void *arg, uint64_t revision, const struct error *err)
{
    struct bench *bench = arg;

    (void)revision;
    if (err != NULL)
        fail(err->text);
    bench->answered++;
    if (bench->asked < bench->wanted)
        put(bench, on_done);
}

static int by_time(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return a < b ? -1 : a > b;
}

static void times_print(const char *what, uint64_t *ns, size_t count)
{
    size_t late = count * 99 / 100, middle = count / 2;

    qsort(ns, count, sizeof(*ns), by_time);
    printf("%-28s p50 %7.3f ms   p99 %7.3f ms\n", what, (double)ns[middle] / 1e6,
           (double)ns[late] / 1e6);
}

/* What a log costs at least: an append of a page or two and one fdatasync. */
static void bench_disk(const char *directory)
{
    static uint64_t ns[ONE_BY_ONE];
    static char page[2 * 4096];
    char path[4096];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/raw", directory);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        fail("cannot write there");
    for (size_t i = 0; i < ONE_BY_ONE; i++) {
        uint64_t began = clock_monotonic_ns();

        if (fd_write_full(fd, page, sizeof(page)) < 0 || fdatasync(fd) < 0)
            fail("cannot write there");
        ns[i] = clock_monotonic_ns() - began;
    }
    (void)close(fd);
    (void)unlink(path);
    times_print("write 8 KiB and fdatasync", ns, ONE_BY_ONE);
}

static void bench_one_by_one(struct bench *bench)
{
    static uint64_t ns[ONE_BY_ONE];

    bench->wanted = 0;
    for (size_t i = 0; i < ONE_BY_ONE; i++) {
        uint64_t began = clock_monotonic_ns();

        put(bench, on_done);
        (void)uv_run(&bench->loop, UV_RUN_DEFAULT);
        ns[i] = clock_monotonic_ns() - began;
    }
    times_print("put, one by one", ns, ONE_BY_ONE);
    printf("%-28s mean %6.3f us\n", "  of the loop's thread",
           (double)bench->asking_ns / 1e3 / ONE_BY_ONE);
}

static void bench_together(struct bench *bench)
{
    uint64_t began = clock_monotonic_ns();

    bench->asked = bench->answered = 0;
    bench->asking_ns = 0;
    bench->wanted = TOGETHER;
    for (unsigned i = 0; i < AT_ONCE; i++)
        put(bench, on_done);
    (void)uv_run(&bench->loop, UV_RUN_DEFAULT);
    if (bench->answered != TOGETHER)
        fail("not all were answered");
    printf("%-28s %.0f a second\n", "put, a thousand at once",
           TOGETHER * 1e9 / (double)(clock_monotonic_ns() - began));
    printf("%-28s mean %6.3f us\n", "  of the loop's thread",
           (double)bench->asking_ns / 1e3 / TOGETHER);
}

static void bench_get(struct bench *bench)
{
    uint64_t began = clock_monotonic_ns();
    struct store_value value;
    struct error err;
    char key[32];

    for (unsigned i = 0; i < TOGETHER; i++) {
        (void)snprintf(key, sizeof(key), "key/%u", i % 1000);
        if (store_get(bench->store, key, &value, &err) != 1)
            fail("a key is not there");
        store_value_free(&value);
    }
    printf("%-28s mean %6.3f us\n", "get", (double)(clock_monotonic_ns() - began) / 1e3 / TOGETHER);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct error err;
    uint64_t began;

    if (argc != 2)
        fail("usage: store DIRECTORY");
    if (uv_loop_init(&bench.loop) != 0 || store_open(argv[1], &bench.loop, &bench.store, &err) < 0)
        fail(err.text);
    memset(bench.data, 'x', SIZE);
    bench_disk(argv[1]);
    bench_one_by_one(&bench);
    bench_together(&bench);
    bench_get(&bench);
    store_close(bench.store);
    began = clock_monotonic_ns();
    if (store_open(argv[1], &bench.loop, &bench.store, &err) < 0)
        fail(err.text);
    printf("%-28s      %6.3f ms\n", "open, 5,000 keys",
           (double)(clock_monotonic_ns() - began) / 1e6);
    store_close(bench.store);
    (void)uv_run(&bench.loop, UV_RUN_DEFAULT);
    return 0;
}
