/* Our side of conformance.mjs: runs each source that comes on stdin in a pristine context and tells all that the
 * guest said of it, byte for byte as it lies in its memory.
 *
 * First it prints a line of JSON: where the shared part is in its memory, the offset of its last member, and the
 * engine's limit of memory. A request is "MODULE LENGTH\n" and the source. An answer is
 * its length as 32 bits, and then what answer_put() writes. */
#include "kernel/meta.h"
#include "kernel/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const uint8_t entropy[KERNEL_ENTROPY_BYTES] = {1, 2, 3};

static _Noreturn void give_up(const struct error *err)
{
    (void)fprintf(stderr, "conformance: %s: %s\n", err->code, err->text);
    exit(1);
}

static void text_put(struct meta_text *all, const struct kernel_context *context,
                     struct guest_text text)
{
    const uint8_t *at = context_memory(context, text.at, text.size);
    uint32_t size = at != NULL ? text.size : 0;

    meta_put_bytes(all, (const char *)&size, sizeof(size));
    if (size > 0)
        meta_put_bytes(all, (const char *)at, size);
}

/* {end, flags, line, column, exit code, lines of log that were dropped}, and the texts. Where the host ended it, only how. */
static void answer_put(const struct kernel_context *context, struct meta_text *all)
{
    const struct guest_shared *shared = context_shared(context);
    const struct kernel_result *result = kernel_result(context);
    bool told = result->end <= KERNEL_END_ERROR ||
                (result->end == KERNEL_END_DEADLOCK && result->name.data != NULL &&
                 (const uint8_t *)result->message.data >= context->slot->base &&
                 (const uint8_t *)result->message.data < context->slot->base + KERNEL_SLOT_BYTES);
    uint32_t numbers[] = {
        told ? 0 : (uint32_t)result->end, shared->flags,       shared->line, shared->column,
        (uint32_t)shared->exit_code,      shared->logs_dropped};

    if (!told) {
        meta_put_bytes(all, (const char *)numbers, sizeof(numbers[0]));
        return;
    }
    meta_put_bytes(all, (const char *)numbers, sizeof(numbers));
    text_put(all, context, shared->logs);
    text_put(all, context, shared->output);
    text_put(all, context, shared->type);
    text_put(all, context, shared->value);
    text_put(all, context, shared->value_error);
    text_put(all, context, shared->errors);
    text_put(all, context, shared->name);
    text_put(all, context, shared->message);
    text_put(all, context, shared->stack);
    text_put(all, context, shared->code);
}

static void run(struct kernel_context *context, const struct kernel_source *source)
{
    enum kernel_status status;
    struct error err;

    if (kernel_context_reset(context, entropy, &err) < 0 ||
        kernel_run(context, source, &status, &err) < 0)
        give_up(&err);
    while (status == KERNEL_WAITS) {
        uint64_t ms = kernel_wait_ms(context);
        struct timespec wait = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

        (void)nanosleep(&wait, NULL);
        if (kernel_step(context, &status, &err) < 0)
            give_up(&err);
    }
}

int main(void)
{
    const struct kernel_grants grants = {
        .memory_bytes = 512U << 20, .cpu_ms = 20000, .wall_ms = 60000};
    struct kernel_manifest *manifest;
    struct kernel_context *context;
    struct kernel_image *image;
    struct error err;
    size_t size;
    int module;

    if (kernel_image_js(&image, &err) < 0 || kernel_manifest_new(&grants, &manifest, &err) < 0 ||
        kernel_context_new(image, manifest, entropy, &context, &err) < 0)
        give_up(&err);
    printf("{\"shared\":%u,\"input\":%zu,\"limit\":%u}\n", image->shared_at,
           offsetof(struct guest_shared, input), context_shared(context)->memory_limit);
    (void)fflush(stdout);
    while (scanf("%d %zu", &module, &size) == 2 && getchar() == '\n') {
        struct meta_text all = {0};
        struct kernel_source source = {.size = size, .module = module != 0};
        char *text = malloc(size + 1);
        uint32_t length;

        if (text == NULL || fread(text, 1, size, stdin) != size)
            return 1;
        source.text = text;
        run(context, &source);
        answer_put(context, &all);
        if (all.failed)
            return 1;
        length = (uint32_t)all.size;
        (void)fwrite(&length, sizeof(length), 1, stdout);
        (void)fwrite(all.data, 1, all.size, stdout);
        (void)fflush(stdout);
        free(all.data);
        free(text);
    }
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    kernel_image_free(image);
    return 0;
}
