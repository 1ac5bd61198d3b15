/* Any bytes as a snapshot that its owner signed, and real ones of which bytes were changed before they were signed:
 * what is none is refused; what is one gives a context that may run or end in any way, also after it was copied and
 * saved again, and harms no other.
 *
 * An input that begins as a snapshot does is one; else it is changes of a real one: which (one byte), and then
 * {where: 3 bytes, how many: 1 byte, bytes}. */
#include "base/sha256.h"
#include "fuzz.h"
#include "kernel/parts.h"

#include <stdlib.h>
#include <string.h>

/* Of a snapshot: the image's hash, and the size of the memory. */
#define HEAD_IMAGE_AT 16
#define HEAD_SIZE_AT 48

static const uint8_t key[KERNEL_KEY_BYTES] = {1};
static struct kernel_image *image;
static struct kernel_manifest *manifest;

#define REAL 2U
static struct {
    uint8_t *bytes;
    size_t size; /* with the signature */
} real[REAL];

static enum kernel_end run(struct kernel_context *context, const char *text)
{
    const struct kernel_source source = {.text = text, .size = strlen(text)};
    const struct kernel_result *result;
    volatile uint8_t seen = 0;
    enum kernel_status status;
    struct kernel_call call;
    struct error err;

    must(kernel_run(context, &source, &status, &err) == 0);
    for (int i = 0; i < 3 && status == KERNEL_WAITS; i++) {
        while (kernel_call_next(context, &call))
            must(kernel_settle(context, call.id, "[1]", 3, NULL, 0, &err) == 0);
        (void)kernel_wait_ms(context);
        must(kernel_step(context, &status, &err) == 0);
    }
    kernel_stop(context, KERNEL_END_STOPPED);
    result = kernel_result(context);
    for (size_t i = 0; i < result->output.size; i++)
        seen ^= (uint8_t)result->output.data[i];
    for (size_t i = 0; i < result->message.size; i++)
        seen ^= (uint8_t)result->message.data[i];
    for (size_t i = 0; i < result->logs_count; i++)
        for (size_t j = 0; j < result->logs[i].text.size; j++)
            seen ^= (uint8_t)result->logs[i].text.data[j];
    (void)seen;
    return result->end;
}

static void real_make(size_t which, const char *text)
{
    struct kernel_context *context;
    struct error err;

    must(kernel_context_new(image, manifest, NULL, &context, &err) == 0);
    (void)run(context, text);
    must(kernel_snapshot(context, key, &real[which].bytes, &real[which].size, &err) == 0);
    kernel_context_free(context);
}

static void begin(void)
{
    static const char *const tools[] = {"a", NULL};
    const struct kernel_grants grants = {
        .tools = tools, .cpu_ms = 5, .wall_ms = 50, .memory_bytes = 16U << 20};
    struct error err;

    if (image != NULL)
        return;
    must(kernel_image_js(&image, &err) == 0 && kernel_manifest_new(&grants, &manifest, &err) == 0);
    real_make(0, "1");
    real_make(
        1, "globalThis.list = [{a: 'text'}, new Map([[1, 2n]]), /x+/g, () => 7, new Uint8Array(9),"
           " (function* () { yield 1 })()]; setTimeout(() => 0, 60000); tools.a(1)");
}

/* The hash of this image, and a size that is its own or more, so that what lies behind them is reached. */
static void head_fit(uint8_t *bytes, size_t size)
{
    uint64_t memory;

    if (size < HEAD_SIZE_AT + sizeof(memory))
        return;
    must(image_hash(image, bytes + HEAD_IMAGE_AT) == 0);
    memcpy(&memory, bytes + HEAD_SIZE_AT, sizeof(memory));
    if (memory < 16)
        memory = kernel_image_bytes(image) + memory * KERNEL_WASM_PAGE;
    memcpy(bytes + HEAD_SIZE_AT, &memory, sizeof(memory));
}

static size_t bytes_change(uint8_t *bytes, const uint8_t *data, size_t size)
{
    size_t which = data[0] % REAL, whole = real[which].size - SHA256_BYTES, at = 1;

    memcpy(bytes, real[which].bytes, whole);
    while (size - at > 4) {
        size_t where = data[at] | (size_t)data[at + 1] << 8 | (size_t)data[at + 2] << 16;
        size_t count = data[at + 3];

        at += 4;
        count = count < size - at ? count : size - at;
        where %= whole;
        count = count < whole - where ? count : whole - where;
        memcpy(bytes + where, data + at, count);
        at += count;
    }
    return whole;
}

/* Any end is right. */
static void use(struct kernel_context *context, bool again)
{
    struct kernel_context *copy;
    uint8_t *bytes;
    struct error err;
    size_t size;

    (void)run(context, "6 * 7");
    if (kernel_context_fork(context, NULL, &copy, &err) == 0) {
        (void)run(copy, "typeof list === 'undefined' ? 0 : list.map(String).join() + list[3]()");
        kernel_context_free(copy);
    }
    /* Its signatures take longer than all else. */
    if (again && kernel_snapshot(context, key, &bytes, &size, &err) == 0) {
        if (kernel_restore(image, manifest, NULL, key, bytes, size, &copy, &err) == 0) {
            (void)run(copy, "await tools.a(1); JSON.stringify([...Array(100).keys()])");
            kernel_context_free(copy);
        }
        free(bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool changed = size > 0 && data[0] != 'C', again = size > 0 && (data[size - 1] & 7) == 1;
    struct kernel_context *context;
    struct error err;
    uint8_t *bytes;

    begin();
    /* Of just its size, so that a byte too far is seen. */
    bytes = malloc(changed ? real[data[0] % REAL].size : size + SHA256_BYTES);
    must(bytes != NULL);
    if (changed) {
        size = bytes_change(bytes, data, size);
    } else {
        if (size > 0)
            memcpy(bytes, data, size);
        head_fit(bytes, size);
    }
    must(changed || kernel_restore(image, manifest, NULL, key, bytes, size, &context, &err) < 0);
    sha256_hmac(key, bytes, size, bytes + size);
    if (kernel_restore(image, manifest, NULL, key, bytes, size + SHA256_BYTES, &context, &err) ==
        0) {
        use(context, again);
        kernel_context_free(context);
    }
    free(bytes);
    must(kernel_context_new(image, manifest, NULL, &context, &err) == 0);
    must(run(context, "6 * 7") != KERNEL_END_VALUE ||
         kernel_text_is(kernel_result(context)->output, "42"));
    kernel_context_free(context);
    return 0;
}
