/* Snapshots: what a context differs in from its image, as bytes that leave this process and come back.
 *
 * They come back from storage that others may write to, so that nothing of them is believed before their
 * signature is right; and even then every number is checked, and pages go into the slot and nowhere else.
 * The pages themselves need no trust: a guest's memory is hostile in any case. */
#include "base/clock.h"
#include "base/sha256.h"
#include "kernel/parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "COVESNAP"
#define VERSION 1U

struct head {
    char magic[8];
    uint32_t version, layout;
    uint8_t image[32];
    uint64_t size;       /* of the memory */
    uint64_t elapsed_ns; /* of the context's own clock */
    uint32_t configured; /* whether it ran at all */
    uint32_t pages_count;
    /* The pages' numbers, ascending; the pages; the signature of all before it. */
};

struct writing {
    const struct kernel_context *context;
    uint8_t *bytes; /* NULL: only counted */
    uint32_t count, put;
};

static bool page_differs(const struct kernel_context *context, uint64_t at)
{
    static const uint8_t zeros[IMAGE_PAGE];
    const uint8_t *was = at < context->image->size ? context->image->gold + at : zeros;

    return memcmp(context->slot->base + at, was, IMAGE_PAGE) != 0;
}

static int range_put(void *data, uint64_t at, uint64_t size)
{
    struct writing *writing = data;

    for (uint64_t end = at + size; at < end; at += IMAGE_PAGE) {
        uint32_t number = (uint32_t)(at / IMAGE_PAGE);

        if (!page_differs(writing->context, at))
            continue;
        if (writing->bytes != NULL) {
            uint8_t *numbers = writing->bytes + sizeof(struct head);

            memcpy(numbers + writing->put * sizeof(number), &number, sizeof(number));
            memcpy(numbers + writing->count * sizeof(number) + (uint64_t)writing->put * IMAGE_PAGE,
                   writing->context->slot->base + at, IMAGE_PAGE);
        }
        writing->put++;
    }
    return 0;
}

static int pages_put(struct writing *writing)
{
    const struct kernel_context *context = writing->context;
    uint64_t image = context->image->size;

    writing->put = 0;
    if (slot_changed(context->slot, context->image, range_put, writing) < 0)
        return -1;
    return range_put(writing, image, context->machine.memory->size - image);
}

static uint64_t snapshot_bytes(uint32_t pages)
{
    return sizeof(struct head) + (uint64_t)pages * (sizeof(uint32_t) + IMAGE_PAGE) + SHA256_BYTES;
}

int kernel_snapshot(struct kernel_context *context, const uint8_t key[KERNEL_KEY_BYTES],
                    uint8_t **bytes, size_t *size, struct error *err)
{
    return snapshot_make(context, key, SIZE_MAX, bytes, size, err);
}

int snapshot_make(struct kernel_context *context, const uint8_t key[KERNEL_KEY_BYTES], size_t most,
                  uint8_t **bytes, size_t *size, struct error *err)
{
    struct head head = {.magic = MAGIC, .version = VERSION, .layout = GUEST_LAYOUT};
    struct writing writing = {.context = context};

    if (context_is_whole(context, err) < 0)
        return -1;
    if (pages_put(&writing) < 0)
        return error_set(err, "kernel_failed", errno, "the pages of a context cannot be listed");
    writing.count = writing.put;
    *size = snapshot_bytes(writing.count);
    if (*size > most)
        return error_set(err, "too_large", 0, "a snapshot of %zu bytes is too large: at most %zu",
                         *size, most);
    writing.bytes = malloc(*size);
    if (writing.bytes == NULL)
        return error_set(err, "no_memory", ENOMEM, "a snapshot of %zu bytes", *size);
    if (pages_put(&writing) < 0 || writing.put != writing.count) {
        free(writing.bytes);
        return error_set(err, "kernel_failed", errno, "the pages of a context cannot be listed");
    }
    head.size = context->machine.memory->size;
    head.elapsed_ns = clock_monotonic_ns() - context->clock_base;
    head.configured = context->phase != PHASE_NEW;
    head.pages_count = writing.count;
    image_hash(context->image, head.image);
    memcpy(writing.bytes, &head, sizeof(head));
    sha256_hmac(key, writing.bytes, *size - SHA256_BYTES, writing.bytes + *size - SHA256_BYTES);
    *bytes = writing.bytes;
    return 0;
}

/* ---- back ---- */

static int bad(struct error *err, const char *why)
{
    return error_set(err, "bad_snapshot", 0, "this snapshot cannot be restored: %s", why);
}

static bool is_signed(const uint8_t key[KERNEL_KEY_BYTES], const uint8_t *bytes, size_t size)
{
    uint8_t wanted[SHA256_BYTES], differs = 0;

    sha256_hmac(key, bytes, size - SHA256_BYTES, wanted);
    /* All of it, so that the time says nothing. */
    for (size_t i = 0; i < SHA256_BYTES; i++)
        differs |= (uint8_t)(wanted[i] ^ bytes[size - SHA256_BYTES + i]);
    return differs == 0;
}

static int head_check(struct kernel_image *image, const uint8_t key[KERNEL_KEY_BYTES],
                      const uint8_t *bytes, size_t size, struct head *head, struct error *err)
{
    uint8_t hash[32];

    if (size < sizeof(*head) + SHA256_BYTES)
        return bad(err, "it is too short");
    if (!is_signed(key, bytes, size))
        return bad(err, "its signature is wrong: it was changed, or made with another key");
    memcpy(head, bytes, sizeof(*head));
    if (memcmp(head->magic, MAGIC, sizeof(head->magic)) != 0 || head->version != VERSION ||
        head->layout != GUEST_LAYOUT)
        return bad(err, "it is of another version of cove");
    image_hash(image, hash);
    if (memcmp(head->image, hash, sizeof(hash)) != 0)
        return bad(err, "it was made of another image");
    if (head->size < image->size || head->size % KERNEL_WASM_PAGE != 0 ||
        head->size >= KERNEL_MEMORY_MAX || head->pages_count > head->size / IMAGE_PAGE ||
        size != snapshot_bytes(head->pages_count))
        return bad(err, "its sizes have no sense");
    return 0;
}

static int pages_take(struct kernel_slot *slot, const struct head *head, const uint8_t *bytes,
                      struct error *err)
{
    const uint8_t *numbers = bytes + sizeof(*head);
    const uint8_t *pages = numbers + (uint64_t)head->pages_count * sizeof(uint32_t);
    int64_t last = -1;

    for (uint32_t i = 0; i < head->pages_count; i++) {
        uint32_t number;

        memcpy(&number, numbers + i * sizeof(number), sizeof(number));
        if ((int64_t)number <= last || number >= head->size / IMAGE_PAGE)
            return bad(err, "its pages have no sense");
        memcpy(slot->base + (uint64_t)number * IMAGE_PAGE, pages + (uint64_t)i * IMAGE_PAGE,
               IMAGE_PAGE);
        last = number;
    }
    return 0;
}

int kernel_restore(struct kernel_image *image, const struct kernel_manifest *manifest,
                   const uint8_t *entropy, const uint8_t key[KERNEL_KEY_BYTES],
                   const uint8_t *bytes, size_t size, struct kernel_context **out,
                   struct error *err)
{
    struct kernel_context *context = NULL;
    struct kernel_slot *slot;
    struct head head = {0};

    if (head_check(image, key, bytes, size, &head, err) < 0)
        return -1;
    if (head.size > manifest->memory_bytes)
        return error_set(err, "bad_manifest", 0,
                         "memory of %llu bytes is too little for this snapshot, which has %llu",
                         (unsigned long long)manifest->memory_bytes, (unsigned long long)head.size);
    slot = image_slot_take(image, err);
    if (slot == NULL)
        return -1;
    if (slot_open(slot, head.size) < 0)
        error_set(err, "no_memory", errno, "a context cannot be restored");
    else if (pages_take(slot, &head, bytes, err) == 0)
        context = context_bare(image, manifest, slot, head.size, err);
    if (context == NULL) {
        image_slot_give(image, slot, false);
        return -1;
    }
    context->phase = head.configured != 0 ? PHASE_IDLE : PHASE_NEW;
    context->clock_base = clock_monotonic_ns() - head.elapsed_ns;
    if (context_seed(context, entropy, err) < 0) {
        kernel_context_free(context);
        return -1;
    }
    *out = context;
    return 0;
}
