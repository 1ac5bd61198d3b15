/* Copies of contexts: forks, images of live ones, snapshots and what is refused of them. */
#include "kit.h"

static const uint8_t key[KERNEL_KEY_BYTES] = "a key that only the owner has";

static struct kernel_manifest *manifest;

static const char prepare[] =
    "globalThis.big = Array.from({length: 20000}, (_, i) => ({i, s: 'v' + i}));"
    "globalThis.counter = 41; globalThis.next = () => ++counter; big.length";

static void forks(void)
{
    struct kernel_context *parent = kit_context(manifest), *one = NULL, *two = NULL;
    struct error err;

    RUN_IS(parent, prepare, "20000");
    CHECK(kernel_context_fork(parent, NULL, &one, &err) == 0 &&
              kernel_context_fork(parent, NULL, &two, &err) == 0,
          "%s", err.text);
    RUN_IS(one, "next() + big.length + big[19999].s", "20042v19999");
    RUN_IS(one, "next()", "43");
    RUN_IS(two, "next()", "42");
    RUN_IS(parent, "counter", "41");
    RUN_IS(one, "const first = Math.random(); first !== undefined", "true");
    const struct kernel_result *result = kit_run(one, "String(Math.random())");
    char random[64];
    (void)snprintf(random, sizeof(random), "%.*s", (int)result->output.size, result->output.data);
    result = kit_run(two, "Math.random(); String(Math.random())");
    CHECK(!kit_is(result->output, random), "twins have different random numbers");
    CHECK(kernel_context_reset(one, NULL, &err) == 0, "a child is put back to the image");
    RUN_IS(one, "typeof counter", "undefined");
    kernel_context_free(parent);
    RUN_IS(two, "next()", "43");
    kernel_context_free(one);
    kernel_context_free(two);
}

static void images(void)
{
    struct kernel_context *parent = kit_context(manifest), *child;
    struct kernel_image *image;
    struct error err;

    RUN_IS(parent, prepare, "20000");
    CHECK(kernel_image_of(parent, &image, &err) == 0, "%s", err.text);
    kernel_context_free(parent);
    for (int i = 0; i < 20; i++) {
        CHECK(kernel_context_new(image, manifest, NULL, &child, &err) == 0, "%s", err.text);
        RUN_IS(child, "next() + big.length", "20042");
        kernel_context_free(child);
    }
    kernel_image_free(image);
}

static void refused(const uint8_t *bytes, size_t size, const uint8_t *with, const char *why)
{
    struct kernel_context *context = NULL;
    struct error err = {0};

    CHECK(kernel_restore(kit_image(), manifest, NULL, with, bytes, size, &context, &err) < 0 &&
              strcmp(err.code, "bad_snapshot") == 0 && strstr(err.text, why) != NULL,
          "%s: %s", why, err.text);
    if (context != NULL)
        kernel_context_free(context);
}

/* Changed in any place, cut, or made longer, it is refused. */
static void tampered(uint8_t *bytes, size_t size)
{
    static const uint8_t other[KERNEL_KEY_BYTES] = "another key, that nobody knows";
    uint8_t *longer = calloc(1, size + 1);

    if (longer == NULL)
        exit(1);
    for (size_t at = 0; at < size;
         at += at < sizeof(uint64_t) * 12 || at + 40 > size ? 3 : size / 7) {
        bytes[at] ^= 1;
        refused(bytes, size, key, "signature");
        bytes[at] ^= 1;
    }
    refused(bytes, size, other, "signature");
    refused(bytes, size - 1, key, "signature");
    refused(bytes, 40, key, "too short");
    refused(bytes, 0, key, "too short");
    memcpy(longer, bytes, size);
    refused(longer, size + 1, key, "signature");
    free(longer);
}

static void sign(uint8_t *bytes, size_t size);

/* One that its owner signed is still read with care. */
static void senseless(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size);
    static const struct {
        size_t at;
        const char *why;
    } places[] = {
        {0, "version"}, {8, "version"}, {12, "version"}, {16, "image"},
        {48, "sizes"},  {54, "sizes"},  {68, "sizes"},   {75, "pages"},
    };

    if (copy == NULL)
        exit(1);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        memcpy(copy, bytes, size);
        copy[places[i].at] ^= 0x80;
        sign(copy, size);
        refused(copy, size, key, places[i].why);
    }
    free(copy);
}

static void snapshots(void)
{
    struct kernel_context *context = kit_context(manifest), *back = NULL, *other;
    const char *const scripts[] = {"other.js", "(function (host, native, share) {})", NULL};
    struct kernel_image *image;
    uint8_t *bytes;
    size_t size;
    struct error err;

    RUN_IS(context,
           "globalThis.counter = 41; globalThis.next = () => ++counter;"
           " globalThis.big = [{s: 'v'}]; 1",
           "1");
    CHECK(kernel_snapshot(context, key, &bytes, &size, &err) == 0, "%s", err.text);
    RUN_IS(context, "next()", "42");
    kernel_context_free(context);
    for (int i = 0; i < 2; i++) {
        CHECK(kernel_restore(kit_image(), manifest, NULL, key, bytes, size, &back, &err) == 0, "%s",
              err.text);
        RUN_IS(back, "next() + big[0].s", "42v");
        kernel_context_free(back);
    }
    tampered(bytes, size);
    senseless(bytes, size);
    CHECK(kernel_image_boot(scripts, &image, &err) == 0 &&
              kernel_restore(image, manifest, NULL, key, bytes, size, &other, &err) < 0 &&
              strstr(err.text, "another image") != NULL,
          "%s", err.text);
    kernel_image_free(image);
    free(bytes);
}

static void small_ones(void)
{
    struct kernel_context *context = kit_context(manifest), *back = NULL;
    struct kernel_grants little = {.memory_bytes = 4U << 20};
    struct kernel_manifest *small = kit_manifest(&little);
    uint8_t *bytes;
    size_t size;
    struct error err;

    CHECK(kernel_snapshot(context, key, &bytes, &size, &err) == 0 && size < 100000,
          "one that never ran is small: %zu", size);
    CHECK(kernel_restore(kit_image(), manifest, NULL, key, bytes, size, &back, &err) == 0, "back");
    RUN_IS(back, "1", "1");
    kernel_context_free(back);
    free(bytes);
    RUN_IS(context, "globalThis.a = new Uint8Array(9e6).fill(1); 1", "1");
    CHECK(kernel_snapshot(context, key, &bytes, &size, &err) == 0 &&
              kernel_restore(kit_image(), small, NULL, key, bytes, size, &back, &err) < 0 &&
              strstr(err.text, "too little") != NULL,
          "%s", err.text);
    free(bytes);
    kernel_context_free(context);
    kernel_manifest_free(small);
}

/* Grown to its limit, it is copied as any other. */
static void full_ones(void)
{
    struct kernel_grants grants = {.memory_bytes = 16U << 20, .cpu_ms = 20000, .wall_ms = 60000};
    struct kernel_manifest *sixteen = kit_manifest(&grants);
    struct kernel_context *context = kit_context(sixteen), *copy, *back = NULL;
    uint8_t *bytes;
    size_t size;
    struct error err;

    (void)kit_run(context, "globalThis.a = []; for (;;) a.push(new Uint8Array(1000).fill(1))");
    RUN_IS(context, "a.length > 1000 && (a.length = 5)", "5");
    CHECK(context->machine.memory->size + (1U << 20) > grants.memory_bytes, "it has grown to %llu",
          (unsigned long long)context->machine.memory->size);
    CHECK(kernel_context_fork(context, NULL, &copy, &err) == 0, "%s", err.text);
    RUN_IS(copy, "a.length + a[4][999]", "6");
    kernel_context_free(copy);
    CHECK(kernel_snapshot(context, key, &bytes, &size, &err) == 0 &&
              kernel_restore(kit_image(), sixteen, NULL, key, bytes, size, &back, &err) == 0,
          "%s", err.text);
    RUN_IS(back, "a.length + a[4][999]", "6");
    kernel_context_free(back);
    free(bytes);
    CHECK(snapshot_make(context, key, size - 1, &bytes, &size, &err) < 0 &&
              strcmp(err.code, "too_large") == 0,
          "%s", err.text);
    CHECK(snapshot_make(context, key, size, &bytes, &size, &err) == 0, "%s", err.text);
    free(bytes);
    kernel_context_free(context);
    kernel_manifest_free(sixteen);
}

/* A slot that has no image in it, since mapping it failed, is not put back to one. */
static void empty_slot(void)
{
    struct error err;
    struct kernel_slot *slot = slot_new(&err);

    if (slot == NULL)
        exit(1);
    slot->private_known = true;
    CHECK(slot_reset(slot, kit_image()) < 0, "there is nothing to put back");
    CHECK(slot_map(slot, kit_image(), &err) == 0 && !slot->private_known &&
              slot_reset(slot, kit_image()) == 0,
          "then there is");
    slot_free(slot);
}

/* While a run is under way, and after one that was cut off, there is nothing whole to copy. */
static void at_the_wrong_time(void)
{
    struct kernel_context *context = kit_context(manifest), *other;
    struct kernel_source source = {.text = "await host.begin('tool', {name: 'one'})"};
    enum kernel_status status;
    struct kernel_image *image;
    uint8_t *bytes;
    size_t size;
    struct error err;

    source.size = strlen(source.text);
    CHECK(kernel_run(context, &source, &status, &err) == 0 && status == KERNEL_WAITS, "it waits");
    CHECK(kernel_snapshot(context, key, &bytes, &size, &err) < 0 &&
              strcmp(err.code, "kernel_busy") == 0 &&
              kernel_context_fork(context, NULL, &other, &err) < 0 &&
              kernel_image_of(context, &image, &err) < 0 &&
              kernel_run(context, &source, &status, &err) < 0,
          "%s", err.text);
    kernel_stop(context, KERNEL_END_STOPPED);
    (void)kit_run(context, "'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')");
    CHECK(kernel_snapshot(context, key, &bytes, &size, &err) < 0 &&
              strcmp(err.code, "kernel_lost") == 0,
          "%s", err.text);
    kernel_context_free(context);
}

#include "base/sha256.h"

static void sign(uint8_t *bytes, size_t size)
{
    sha256_hmac(key, bytes, size - SHA256_BYTES, bytes + size - SHA256_BYTES);
}

int main(void)
{
    const char *const tools[] = {"one", NULL};
    struct kernel_grants grants = {.cpu_ms = 1000, .wall_ms = 20000, .tools = tools};

    manifest = kit_manifest(&grants);
    forks();
    images();
    snapshots();
    small_ones();
    full_ones();
    empty_slot();
    at_the_wrong_time();
    kernel_manifest_free(manifest);
    kernel_image_free(kit_image());
    return check_finish();
}
