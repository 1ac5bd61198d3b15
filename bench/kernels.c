/* How long a kernel takes, and what it holds: in this process, on one core.
 *
 * A pristine context with one expression, from asking for it to giving it back; the same in a live context; work of
 * other kinds; what it takes to copy one; how late a limit of CPU time stops what does not look at it; and how much
 * memory thousands of live contexts hold.
 * usage: kernels [CONTEXTS] */
#include "base/clock.h"
#include "kernel/kernel.h"
#include "kernels_raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARM_UP 1000
#define CONTEXTS 10000

static struct kernel_image *image;
static struct kernel_manifest *manifest;
static uint64_t samples[100000];

static void fail(const char *what, const struct error *err)
{
    (void)fprintf(stderr, "kernels: %s: %s\n", what, err->text);
    exit(1);
}

static int order(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return a < b ? -1 : a > b;
}

static double us_at(size_t at)
{
    return (double)samples[at] / 1e3;
}

static void report(const char *what, size_t count, uint64_t all_ns)
{
    raw_write(what, "ns", samples, count);
    qsort(samples, count, sizeof(samples[0]), order);
    (void)printf("%-44s p50 %9.2f  p95 %9.2f  p99 %9.2f us", what, us_at(count / 2),
                 us_at(count * 95 / 100), us_at(count * 99 / 100));
    if (all_ns != 0)
        (void)printf("  %8.0f/s", (double)count / ((double)all_ns / 1e9));
    (void)putchar('\n');
}

static struct kernel_context *context_new(void)
{
    struct kernel_context *context;
    struct error err;

    if (kernel_context_new(image, manifest, NULL, &context, &err) < 0)
        fail("context", &err);
    return context;
}

/* The result has to be this; NULL: whatever it is. */
static void run(struct kernel_context *context, const char *source, const char *wanted)
{
    const struct kernel_source what = {.text = source, .size = strlen(source)};
    const struct kernel_result *result;
    enum kernel_status status;
    struct error err;

    if (kernel_run(context, &what, &status, &err) < 0)
        fail(source, &err);
    result = kernel_result(context);
    if (wanted != NULL && (status != KERNEL_DONE || !kernel_text_is(result->output, wanted))) {
        (void)fprintf(stderr, "kernels: %s is '%.*s' (%s: %.*s)\n", source,
                      (int)result->output.size, result->output.data, kernel_end_name(result->end),
                      (int)result->message.size, result->message.data);
        exit(1);
    }
}

static void pristine(const char *name, const char *source, const char *wanted, size_t count)
{
    uint64_t begun = 0, all;

    for (size_t i = 0; i < count + WARM_UP; i++) {
        uint64_t before = clock_monotonic_ns();
        struct kernel_context *context;

        if (i == WARM_UP)
            begun = before;
        context = context_new();
        run(context, source, wanted);
        kernel_context_free(context);
        if (i >= WARM_UP)
            samples[i - WARM_UP] = clock_monotonic_ns() - before;
    }
    all = clock_monotonic_ns() - begun;
    report(name, count, all);
}

/* What a caller waits for where the context was put back beforehand. */
static void caller_waits(void)
{
    const size_t count = 50000;

    for (size_t i = 0; i < count; i++) {
        uint64_t before = clock_monotonic_ns();
        struct kernel_context *context = context_new();

        run(context, "1 + 1", "2");
        samples[i] = clock_monotonic_ns() - before;
        kernel_context_free(context);
    }
    report("  of which until its result is there", count, 0);
}

static void live(const char *name, const char *source, size_t count)
{
    struct kernel_context *context = context_new();

    run(context, source, NULL);
    for (size_t i = 0; i < count; i++) {
        uint64_t before = clock_monotonic_ns();

        run(context, source, NULL);
        samples[i] = clock_monotonic_ns() - before;
    }
    report(name, count, 0);
    kernel_context_free(context);
}

static void work(void)
{
    live("live context, 1 + 1", "1 + 1", 20000);
    live("JSON: 200 objects there and back",
         "JSON.parse(JSON.stringify(Array.from({length: 200}, (_, i) => ({id: i, name: 'user' + i,"
         " tags: ['a', 'b', String(i)], at: {x: i * 1.5}})))).filter((o) => o.id % 2).length",
         500);
    live("regular expressions: 400 matches, replaced",
         "(() => { let s = ''; for (let i = 0; i < 400; i++) s += 'user' + i + '@example.com, ';"
         " return s.match(/([a-z]+\\d+)@([a-z]+)\\.com/g).length +"
         " s.replace(/(\\w+)@(\\w+)/g, '$2 at $1').length })()",
         500);
    live("sort: 10,000 numbers by a function",
         "Array.from({length: 10000}, (_, i) => (i * 7919) % 10007).sort((a, b) => a - b)[5]", 200);
    live(
        "strings: 20,000 joined and split",
        "(() => { let s = ''; for (let i = 0; i < 20000; i++) s += i + ','; return s.split(',').length })()",
        200);
    live("fib(25)", "(function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) })(25)", 20);
}

static void copies(void)
{
    static const uint8_t key[KERNEL_KEY_BYTES] = {1};
    struct kernel_context *parent = context_new();
    const size_t count = 300;
    uint8_t *bytes;
    size_t size;
    struct error err;

    run(parent, "globalThis.big = Array.from({length: 20000}, (_, i) => ({i, s: 'v' + i})); 1",
        "1");
    for (size_t i = 0; i < count; i++) {
        uint64_t before = clock_monotonic_ns();
        struct kernel_context *child;

        if (kernel_context_fork(parent, NULL, &child, &err) < 0)
            fail("fork", &err);
        run(child, "big.length", "20000");
        samples[i] = clock_monotonic_ns() - before;
        kernel_context_free(child);
    }
    report("fork of 20,000 objects + eval", count, 0);
    for (size_t i = 0; i < 20; i++) {
        uint64_t before = clock_monotonic_ns();

        if (kernel_snapshot(parent, key, &bytes, &size, &err) < 0)
            fail("snapshot", &err);
        samples[i] = clock_monotonic_ns() - before;
        free(bytes);
    }
    report("snapshot of it to bytes", 20, 0);
    kernel_context_free(parent);
}

/* Loops that the engine does not look into. */
static void stops(void)
{
    static const char *const sources[] = {
        "'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')",
        "Array.prototype.indexOf.call({length: 4294967295}, 99)",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "while (true) {}",
    };
    size_t count = 0;

    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
        for (int times = 0; times < 5; times++) {
            struct kernel_context *context = context_new();

            run(context, sources[i], NULL);
            if (kernel_result(context)->end != KERNEL_END_CPU)
                exit(1);
            samples[count++] = kernel_result(context)->cpu_ns - 100000000U;
            kernel_context_free(context);
        }
    report("CPU time beyond a limit of 100 ms", count, 0);
}

/* KiB of this process that no other shares, page tables included. */
static long held_kib(void)
{
    static const char *const wanted[] = {"RssAnon:", "VmPTE:"};
    char line[256];
    long all = 0;
    FILE *file = fopen("/proc/self/status", "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
                all += strtol(line + strlen(wanted[i]), NULL, 10);
    if (file != NULL)
        (void)fclose(file);
    return all;
}

static void many(size_t count)
{
    struct kernel_context **contexts = calloc(count, sizeof(struct kernel_context *));
    long before = held_kib();
    uint64_t begun = clock_monotonic_ns(), thousandths;

    for (size_t i = 0; i < count; i++) {
        contexts[i] = context_new();
        run(contexts[i], "globalThis.x = 1", "1");
        kernel_context_rest(contexts[i]);
    }
    (void)printf("%-44s %zu in %.2f s, %.1f KiB each\n", "live contexts", count,
                 (double)(clock_monotonic_ns() - begun) / 1e9,
                 (double)(held_kib() - before) / (double)count);
    thousandths = (uint64_t)(held_kib() - before) * 1000 / count;
    raw_write("live contexts, KiB each", "KiB", &thousandths, 1);
    for (size_t i = 0; i < count && i < sizeof(samples) / sizeof(samples[0]); i++) {
        uint64_t at = clock_monotonic_ns();

        run(contexts[i], "++globalThis.x", "2");
        samples[i] = clock_monotonic_ns() - at;
    }
    report("  a run in each of them", count, 0);
    for (size_t i = 0; i < count; i++)
        kernel_context_free(contexts[i]);
    free(contexts);
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : CONTEXTS;
    const struct kernel_grants grants = {.cpu_ms = 100, .wall_ms = 60000};
    uint64_t begun = clock_monotonic_ns();
    struct error err;

    if (kernel_image_js(&image, &err) < 0)
        fail("image", &err);
    (void)printf("%-44s %.0f us, %zu KiB\n", "the image, once for a process",
                 (double)(clock_monotonic_ns() - begun) / 1e3, kernel_image_bytes(image) / 1024);
    if (kernel_manifest_new(&grants, &manifest, &err) < 0)
        fail("manifest", &err);
    pristine("pristine context + 1 + 1", "1 + 1", "2", 100000);
    caller_waits();
    pristine("pristine context + console.log + JSON",
             "console.log('x'); JSON.stringify({a: [1, 2, 3]})", NULL, 20000);
    pristine("pristine context + await", "await Promise.resolve(1)", "1", 20000);
    work();
    copies();
    stops();
    many(count);
    kernel_manifest_free(manifest);
    kernel_image_free(image);
    return 0;
}
