/* Contexts: made from an image, put back to it, copied, and let go. What runs in them is run.c's. */
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/meta.h"
#include "kernel/runtime.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

/* Beyond what the image has: less is no use. */
#define MEMORY_LEAST (2U << 20)
/* Of the memory, what the engine's own limit leaves to the guest's stack and data. */
#define MEMORY_STATIC (GUEST_STACK_BYTES + (512U << 10))

struct guest_shared *context_shared(const struct kernel_context *context)
{
    return (struct guest_shared *)(void *)(context->slot->base + context->shared_at);
}

uint8_t *context_memory(const struct kernel_context *context, uint32_t at, uint32_t size)
{
    if ((uint64_t)at + size > context->machine.memory->size)
        return NULL;
    return context->slot->base + at;
}

uint32_t context_put(struct kernel_context *context, const void *data, uint32_t size)
{
    uint32_t at = context->guest->reserve(&context->machine, size + 1);
    uint8_t *into = at != 0 ? context_memory(context, at, size + 1) : NULL;

    if (into == NULL)
        return 0;
    if (size > 0)
        memcpy(into, data, size);
    into[size] = 0;
    return at;
}

/* Taken from the system ahead, for one call of it costs as much as a tenth of a run. What was given away is
 * wiped; a child of a fork() begins anew. */
static _Thread_local struct {
    uint8_t bytes[256]; /* so many come whole */
    size_t left;
} ahead;
static pthread_once_t ahead_once = PTHREAD_ONCE_INIT;

static void ahead_forget(void)
{
    ahead.left = 0;
}

static void ahead_begin(void)
{
    (void)pthread_atfork(NULL, NULL, ahead_forget);
}

int kernel_entropy(uint8_t entropy[KERNEL_ENTROPY_BYTES], struct error *err)
{
    uint8_t *from;

    if (ahead.left == 0) {
        (void)pthread_once(&ahead_once, ahead_begin);
        if (getrandom(ahead.bytes, sizeof(ahead.bytes), 0) != sizeof(ahead.bytes))
            return error_set(err, "kernel_failed", errno, "the system gives no random bytes");
        ahead.left = sizeof(ahead.bytes);
    }
    ahead.left -= KERNEL_ENTROPY_BYTES;
    from = ahead.bytes + ahead.left;
    memcpy(entropy, from, KERNEL_ENTROPY_BYTES);
    explicit_bzero(from, KERNEL_ENTROPY_BYTES);
    return 0;
}

int context_seed(struct kernel_context *context, const uint8_t *entropy, struct error *err)
{
    struct guest_shared *shared = context_shared(context);
    uint8_t own[KERNEL_ENTROPY_BYTES];

    if (entropy == NULL) {
        if (kernel_entropy(own, err) < 0)
            return -1;
        entropy = own;
    }
    memcpy(shared->seed, entropy, sizeof(shared->seed));
    shared->seeded = 1;
    return 0;
}

/* What holds for every run of it: of its memory, as it is now. */
static void settings_put(struct kernel_context *context, uint64_t size)
{
    uint64_t limit = context->manifest->memory_bytes;
    struct guest_shared *shared;

    context->pages_max = (uint32_t)(limit / KERNEL_WASM_PAGE);
    if (context->pages_max > UINT16_MAX) /* the size of all must fit in 32 bits */
        context->pages_max = UINT16_MAX;
    context->guest->create(&context->machine, context, context->slot->base, size,
                           context->pages_max);
    shared = context_shared(context);
    shared->interrupt = 0;
    limit = context->pages_max;
    limit = limit * KERNEL_WASM_PAGE - MEMORY_STATIC - GUEST_MEMORY_RESERVE;
    shared->memory_limit = (uint32_t)limit;
}

struct kernel_context *context_bare(struct kernel_image *image,
                                    const struct kernel_manifest *manifest,
                                    struct kernel_slot *slot, uint64_t size, struct error *err)
{
    /* One that has grown may be at its limit. */
    uint64_t least = size > image->size + MEMORY_LEAST ? size : image->size + MEMORY_LEAST;
    struct kernel_context *context;

    if (manifest->memory_bytes < least) {
        error_set(err, "bad_manifest", 0,
                  "memory of %llu bytes is too little for this kernel: it needs %llu",
                  (unsigned long long)manifest->memory_bytes, (unsigned long long)least);
        return NULL;
    }
    context = calloc(1, sizeof(*context));
    if (context == NULL) {
        error_set(err, "no_memory", ENOMEM, "a kernel's context");
        return NULL;
    }
    context->image = image;
    context->guest = image->guest;
    context->manifest = manifest;
    context->slot = slot;
    context->shared_at = image->shared_at;
    context->calls_last = &context->calls;
    (void)pthread_mutex_init(&context->poke.lock, NULL);
    context->clock_base = clock_monotonic_ns();
    settings_put(context, size);
    return context;
}

int kernel_context_new(struct kernel_image *image, const struct kernel_manifest *manifest,
                       const uint8_t *entropy, struct kernel_context **out, struct error *err)
{
    struct kernel_slot *slot = image_slot_take(image, err);
    struct kernel_context *context;

    if (slot == NULL)
        return -1;
    context = context_bare(image, manifest, slot, image->size, err);
    if (context == NULL) {
        image_slot_give(image, slot, true);
        return -1;
    }
    if (context_seed(context, entropy, err) < 0) {
        kernel_context_free(context);
        return -1;
    }
    *out = context;
    return 0;
}

/* What the host keeps for it. */
static void host_side_drop(struct kernel_context *context)
{
    calls_drop(context);
    files_freep(&context->files);
    logs_rest(context);
    context->result = (struct kernel_result){0};
}

int kernel_context_reset(struct kernel_context *context, const uint8_t *entropy, struct error *err)
{
    if (context->in_call)
        return error_set(err, "kernel_busy", 0,
                         "a host function cannot reset the context that called it");
    host_side_drop(context);
    if (slot_reset(context->slot, context->image) < 0 &&
        slot_map(context->slot, context->image, err) < 0) {
        context->phase = PHASE_LOST;
        return -1;
    }
    context->phase = PHASE_NEW;
    context->refused = false;
    context->clock_base = clock_monotonic_ns();
    settings_put(context, context->image->size);
    return context_seed(context, entropy, err);
}

void kernel_context_free(struct kernel_context *context)
{
    if (context == NULL)
        return;
    host_side_drop(context);
    free(context->logs);
    image_slot_give(context->image, context->slot, false);
    free(context);
}

void kernel_context_freep(struct kernel_context **context)
{
    kernel_context_free(*context);
}

/* Pages that equal the image's are dropped, in as few calls as there are gaps. */
static int rest_range(void *data, uint64_t at, uint64_t size)
{
    const struct kernel_context *context = data;
    const uint8_t *base = context->slot->base, *gold = context->image->gold;
    uint64_t end = at + size, begin;

    while (at < end) {
        if (memcmp(base + at, gold + at, IMAGE_PAGE) != 0) {
            at += IMAGE_PAGE;
            continue;
        }
        begin = at;
        while (at < end && memcmp(base + at, gold + at, IMAGE_PAGE) == 0)
            at += IMAGE_PAGE;
        (void)madvise(context->slot->base + begin, at - begin, MADV_DONTNEED);
    }
    return 0;
}

void kernel_context_rest(struct kernel_context *context)
{
    /* Without a list of pages each would have to be read in, which is no saving. */
    if (slot_can_scan() && !context->in_call)
        (void)slot_changed(context->slot, context->image, rest_range, context);
}

static int held_range(void *data, uint64_t at, uint64_t size)
{
    uint64_t *held = data;

    (void)at;
    *held += size;
    return 0;
}

uint64_t kernel_context_held(const struct kernel_context *context)
{
    uint64_t held = 0;

    (void)slot_changed(context->slot, context->image, held_range, &held);
    return held;
}

/* ---- copies ---- */

int context_is_whole(const struct kernel_context *context, struct error *err)
{
    if (context->phase == PHASE_WAITS || context->in_call)
        return error_set(err, "kernel_busy", 0,
                         "a run is under way in this context; wait until it is done");
    if (context->phase == PHASE_LOST || !context->guest->is_at_rest(&context->machine))
        return error_set(err, "kernel_lost", 0,
                         "this context lost its state when its last run was ended; run something, "
                         "or reset it");
    return 0;
}

struct copy {
    uint8_t *to;
    const uint8_t *from;
};

static int copy_range(void *data, uint64_t at, uint64_t size)
{
    const struct copy *copy = data;

    /* Page by page, so that what is equal stays shared. */
    for (uint64_t end = at + size; at < end; at += IMAGE_PAGE)
        if (memcmp(copy->to + at, copy->from + at, IMAGE_PAGE) != 0)
            memcpy(copy->to + at, copy->from + at, IMAGE_PAGE);
    return 0;
}

int kernel_context_fork(struct kernel_context *context, const uint8_t *entropy,
                        struct kernel_context **out, struct error *err)
{
    uint64_t size = context->machine.memory->size;
    struct kernel_context *child;
    struct kernel_slot *slot;
    struct copy copy;

    if (context_is_whole(context, err) < 0)
        return -1;
    slot = image_slot_take(context->image, err);
    if (slot == NULL)
        return -1;
    copy = (struct copy){slot->base, context->slot->base};
    if (slot_open(slot, size) < 0 ||
        slot_changed(context->slot, context->image, copy_range, &copy) < 0) {
        error_set(err, "no_memory", errno, "a context cannot be copied");
        image_slot_give(context->image, slot, false);
        return -1;
    }
    (void)copy_range(&copy, context->image->size, size - context->image->size);
    child = context_bare(context->image, context->manifest, slot, size, err);
    if (child == NULL) {
        image_slot_give(context->image, slot, false);
        return -1;
    }
    child->phase = context->phase;
    child->clock_base = context->clock_base;
    child->answerer = context->answerer;
    child->answerer_data = context->answerer_data;
    if (context_seed(child, entropy, err) < 0) {
        kernel_context_free(child);
        return -1;
    }
    *out = child;
    return 0;
}

int kernel_image_of(struct kernel_context *context, struct kernel_image **out, struct error *err)
{
    if (context_is_whole(context, err) < 0 ||
        image_new(context->guest, context->slot->base, context->machine.memory->size,
                  context->shared_at, out, err) < 0)
        return -1;
    /* So that a context of it is configured no second time. */
    (*out)->configured = context->phase != PHASE_NEW || context->image->configured;
    return 0;
}

/* ---- booting ---- */

struct boot {
    struct kernel_context *context;
    const char *const *scripts;
    char *said; /* what a script threw */
};

static char *error_said(const struct kernel_context *context, const char *name)
{
    const struct guest_shared *shared = context_shared(context);
    const struct guest_text texts[] = {shared->name, shared->message, shared->stack};
    struct meta_text said = {0};

    meta_put(&said, name);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const uint8_t *text = context_memory(context, texts[i].at, texts[i].size);

        meta_put(&said, i == 0 ? ": " : i == 1 ? ": " : "\n");
        if (text != NULL)
            meta_put_bytes(&said, (const char *)text, texts[i].size);
    }
    return said.data;
}

static void boot_work(void *data)
{
    struct boot *boot = data;
    struct kernel_context *context = boot->context;

    context->guest->boot(&context->machine, context);
    context->shared_at = context->guest->shared_at(&context->machine);
    for (const char *const *script = boot->scripts; *script != NULL; script += 2) {
        uint32_t name = context_put(context, script[0], (uint32_t)strlen(script[0]));
        uint32_t source = context_put(context, script[1], (uint32_t)strlen(script[1]));

        if (context->guest->prelude(&context->machine, source, (uint32_t)strlen(script[1]), name) <
            0) {
            boot->said = error_said(context, script[0]);
            return;
        }
    }
    context->guest->settle_down(&context->machine);
}

int image_boot(const struct kernel_guest *guest, const char *const *scripts,
               struct kernel_image **out, struct error *err)
{
    static const struct kernel_manifest nothing = {.memory_bytes = 256U << 20};
    struct kernel_context context = {
        .guest = guest, .manifest = &nothing, .pages_max = (256U << 20) / KERNEL_WASM_PAGE};
    struct boot boot = {&context, scripts, NULL};
    struct kernel_entry entry = {.work = boot_work, .data = &boot};
    enum kernel_trap trap;
    int status = -1;

    context.calls_last = &context.calls;
    context.slot = slot_new(err);
    if (context.slot == NULL)
        return -1;
    entry.slot = context.slot->base;
    runtime_context = &context;
    if (thread_enter(&entry, &trap, err) == 0) {
        if (trap != TRAP_NONE)
            error_set(err, "bad_image", 0, "the engine does not boot: trap %d", (int)trap);
        else if (boot.said != NULL)
            error_set(err, "bad_prelude", 0, "%s", boot.said);
        else
            status = image_new(guest, context.slot->base, context.machine.memory->size,
                               context.shared_at, out, err);
    }
    runtime_context = NULL;
    free(boot.said);
    calls_drop(&context);
    slot_free(context.slot);
    return status;
}
