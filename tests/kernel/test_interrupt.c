/* A run is ended by another thread, wherever it is: in code that looks at the engine's interrupt and in code
 * that does not, once or before it began; and the next run works. */
#include "base/clock.h"
#include "kit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

struct running {
    struct kernel_context *context;
    const char *source;
    atomic_bool began;
};

static void *run(void *data)
{
    struct running *running = data;
    const struct kernel_source source = {.text = running->source, .size = strlen(running->source)};
    enum kernel_status status;
    struct error err;

    atomic_store(&running->began, true);
    CHECK(kernel_run(running->context, &source, &status, &err) == 0, "%s", err.text);
    CHECK(status == KERNEL_DONE, "%s: it is done", running->source);
    return NULL;
}

static void sleep_ms(long ms)
{
    const struct timespec time = {0, ms * 1000000};

    (void)nanosleep(&time, NULL);
}

static void interrupt(struct kernel_context *context, const char *source, long after_ms)
{
    struct running running = {.context = context, .source = source};
    const struct kernel_result *result = kernel_result(context);
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, run, &running) == 0, "a thread");
    while (!atomic_load(&running.began))
        sleep_ms(1);
    sleep_ms(after_ms);
    kernel_interrupt(context, KERNEL_END_STOPPED);
    (void)pthread_join(thread, NULL);
    kernel_interrupt(context, KERNEL_END_VALUE);
    CHECK(result->end == KERNEL_END_STOPPED, "%s ends by %s", source, kernel_end_name(result->end));
    CHECK(kit_has(result->message, "stopped"), "%s: it says so", source);
    RUN_IS(context, "1 + 1", "2");
}

int main(void)
{
    static const char *const sources[] = {
        "while (true) {}",
        "'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')",
        "Array.prototype.indexOf.call({length: 4294967295}, 99)",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "for (;;) await 0",
    };
    struct kernel_manifest *manifest = kit_manifest(
        &(const struct kernel_grants){.cpu_ms = 60000, .wall_ms = 60000});
    struct kernel_context *context = kit_context(manifest);

    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        interrupt(context, sources[i], 20);
        interrupt(context, sources[i], 0);
    }
    /* It was asked for before the run began. */
    kernel_interrupt(context, KERNEL_END_STOPPED);
    CHECK(kit_run(context, "while (true) {}")->end == KERNEL_END_STOPPED, "one that is to begin");
    kernel_interrupt(context, KERNEL_END_VALUE);
    RUN_IS(context, "2 + 2", "4");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    kernel_image_free(kit_image());
    return check_finish();
}
