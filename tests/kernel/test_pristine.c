/* Contexts that are put back: equal to their image, byte for byte, whatever ran in them; by the quick way and
 * by the fallback. */
#include "kit.h"

#include <sys/wait.h>
#include <unistd.h>

#define RUNS 300U

static const struct {
    const char *source;
    bool is_endless;
} pollutions[] = {
    {.source = "globalThis.leak = 42; Object.prototype.z = 1; Array.prototype.map = null"},
    {.source = "globalThis.big = Array.from({length: 5000}, (_, i) => 'x' + i)"},
    {.source = "delete globalThis.Promise; delete globalThis.console; JSON.parse = () => 'no'"},
    {.source = "(function f(n) { return 1 + f(n + 1) })(0)"},
    {.source = "const a = []; while (true) a.push(new ArrayBuffer(1 << 18))"},
    {.source =
         "setTimeout(() => {}, 1e6); Promise.reject(1); console.log('noise'.repeat(1000)); 1"},
    {.source = "'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')", .is_endless = true},
    {.source =
         "host.begin('tool', {name: 'x'}).catch(() => {}); host.call('random', {length: 60000}).bytes.length"},
    {.source =
         "class A { static #s = new Map(); static f() { A.#s.set(A, new WeakRef(A)) } } A.f(); 'ok'"},
    {.source = "native.evaluate('var declared = 1', 'x'); Symbol.for('mine'); Math.random()"},
};
#define POLLUTIONS (sizeof(pollutions) / sizeof(pollutions[0]))
#define POLLUTION_MS 30U /* of one that has no end */

/* Those that end by themselves must get there, or nothing would be polluted. */
static void pollute(struct kernel_context *context, unsigned which)
{
    const char *source = pollutions[which % POLLUTIONS].source;
    bool is_endless = pollutions[which % POLLUTIONS].is_endless;
    const struct kernel_result *result = kit_run_within(context, source,
                                                        is_endless ? POLLUTION_MS : 0);

    CHECK((result->end == KERNEL_END_CPU) == is_endless, "%s: %d", source, result->end);
}

/* Whether the slot equals the image, and nothing behind it can be touched. */
static bool is_pristine(const struct kernel_context *context)
{
    return context->slot->opened == context->image->size &&
           memcmp(context->slot->base, context->image->gold, context->image->size) == 0;
}

static void runs(const struct kernel_manifest *manifest)
{
    struct kernel_slot *slots[4] = {NULL};
    unsigned other = 0, seen = 0;

    for (unsigned i = 0; i < RUNS; i++) {
        struct kernel_context *context = kit_context(manifest);

        RUN_IS(context, "typeof leak + typeof big + typeof declared + ({}).z + [1].map((x) => x)",
               "undefinedundefinedundefinedundefined1");
        pollute(context, i);
        slots[seen++ % 4] = context->slot;
        kernel_context_free(context);
        /* The one that is handed out next is the one that was given back. */
        struct kernel_slot *slot = kit_image()->ready;
        if (slot == NULL || slot != slots[(seen - 1) % 4] || slot->opened != kit_image()->size ||
            memcmp(slot->base, kit_image()->gold, kit_image()->size) != 0)
            other++;
    }
    CHECK(other == 0, "%u of %u differ from the image", other, RUNS);
}

static void resets(const struct kernel_manifest *manifest)
{
    struct kernel_context *context = kit_context(manifest);
    unsigned other = 0;
    struct error err;

    for (unsigned i = 0; i < RUNS / 3; i++) {
        pollute(context, i);
        if (kernel_context_reset(context, NULL, &err) < 0)
            other++;
        /* But for the seed and the settings, which are in one place. */
        memcpy(context_shared(context), context->image->gold + context->shared_at,
               sizeof(struct guest_shared));
        if (!is_pristine(context))
            other++;
        CHECK(kernel_context_reset(context, NULL, &err) == 0, "reset");
    }
    CHECK(other == 0, "%u resets left something", other);
    kernel_context_free(context);
}

/* What a guest grew to is given back, and is zero when it is had again. */
static void grown(void)
{
    struct kernel_grants grants = {.cpu_ms = 20000, .wall_ms = 60000};
    struct kernel_manifest *manifest = kit_manifest(&grants);
    struct kernel_context *context = kit_context(manifest);
    const struct kernel_result *result;
    struct error err;

    result = kit_run(context, "globalThis.a = new Uint8Array(20e6).fill(7); 1");
    CHECK(result->memory_bytes > 20000000, "%llu", (unsigned long long)result->memory_bytes);
    CHECK(kernel_context_reset(context, NULL, &err) == 0, "reset");
    CHECK(context->machine.memory->size == context->image->size, "it shrank");
    RUN_IS(context, "let n = 0; for (const x of new Uint8Array(2e6)) n |= x; n", "0");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

/* At rest a context holds what differs, and is the same as before. */
static int pages_count(void *data, uint64_t at, uint64_t size)
{
    (void)at;
    *(uint64_t *)data += size / 4096;
    return 0;
}

static void resting(const struct kernel_manifest *manifest)
{
    struct kernel_context *context = kit_context(manifest);
    uint64_t before = 0, after = 0;

    RUN_IS(context, "globalThis.kept = {a: [1, 2]}; 1", "1");
    CHECK(slot_changed(context->slot, context->image, pages_count, &before) == 0, "before");
    kernel_context_rest(context);
    CHECK(slot_changed(context->slot, context->image, pages_count, &after) == 0, "after");
    CHECK(after < before || !slot_can_scan(), "%llu pages, then %llu", (unsigned long long)before,
          (unsigned long long)after);
    RUN_IS(context, "kept", "{ a: [ 1, 2 ] }");
    kernel_context_free(context);
}

static void all(void)
{
    struct kernel_grants grants = {.cpu_ms = 20000, .wall_ms = 60000, .memory_bytes = 24U << 20};
    struct kernel_manifest *manifest = kit_manifest(&grants);

    runs(manifest);
    resets(manifest);
    resting(manifest);
    grown();
    kernel_manifest_free(manifest);
    kernel_image_free(kit_image());
}

/* Once more where the kernel cannot list pages. The switch is looked at once for a process. */
static void fallback(void)
{
    int status = -1;
    pid_t child;

    (void)fflush(stdout);
    child = fork();
    if (child == 0) {
        (void)setenv("COVE_TEST_OFF", "pagemap", 1);
        CHECK(!slot_can_scan(), "the switch works");
        all();
        (void)fflush(stdout);
        _exit(check_finish());
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

int main(void)
{
    fallback();
    if (slot_can_scan())
        all();
    else
        printf("this kernel cannot list private pages, which Linux 6.7 and later can: only the "
               "fallback was tested\n");
    return check_finish();
}
