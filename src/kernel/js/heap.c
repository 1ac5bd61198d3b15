/* The engine's memory: small blocks from one growing run of pages, large ones from libc.
 *
 * A context is put back by copying the pages that it wrote, so that a run should write few. Libc and the engine's
 * own pools put new blocks into holes that are strewn over the whole heap; here, once the image is settled, all
 * holes are forgotten, and what a run makes lies side by side. A freed block is used again for its size alone,
 * which is quick, and for a smaller one where there is no more memory; what a context wastes ends with it. */
#include "kernel/js/heap.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP 16U
#define SMALL_MAX 512U
#define CLASSES (SMALL_MAX / STEP)
#define RUN_BYTES 65536U
#define PAGE 4096U
#define SPARE_BYTES (512U << 10) /* that an image has ready, so that a small run need not grow */

/* In front of each block. */
struct head {
    uint32_t class; /* 0: of libc */
    uint32_t unused;
};

struct hole {
    struct head head;
    struct hole *next;
};

size_t heap_limit, heap_used, heap_refused;
static struct hole *holes[CLASSES + 1];
static uint8_t *run, *run_end;

static struct head *head_of(void *block)
{
    return (struct head *)block - 1;
}

/* ---- libc's, counted ---- */

static bool allowed(size_t more)
{
    if (heap_limit == 0 || (more <= heap_limit && heap_used <= heap_limit - more))
        return true;
    heap_refused++;
    return false;
}

static void *taken(void *block)
{
    if (block == NULL)
        heap_refused++;
    else
        heap_used += malloc_usable_size(block);
    return block;
}

/* ---- small ones ---- */

static void *small_new(uint32_t class)
{
    size_t size = sizeof(struct head) + class * STEP;
    struct head *head;

    if ((size_t)(run_end - run) < size) {
        uint8_t *more = allowed(RUN_BYTES) ? taken(malloc(RUN_BYTES)) : NULL;

        if (more == NULL)
            return NULL;
        run = more;
        run_end = more + RUN_BYTES;
    }
    head = (struct head *)(void *)run;
    run += size;
    head->class = class;
    return head + 1;
}

static void *hole_take(uint32_t class)
{
    struct hole *hole = holes[class];

    if (hole == NULL)
        return NULL;
    holes[class] = hole->next;
    return &hole->head + 1;
}

static void *heap_malloc(void *opaque, size_t size)
{
    struct head *head;

    (void)opaque;
    if (size <= SMALL_MAX) {
        uint32_t class = size == 0 ? 1 : (uint32_t)((size + STEP - 1) / STEP);
        size_t refused = heap_refused;
        void *block = hole_take(class);

        if (block == NULL)
            block = small_new(class);
        while (block == NULL && class < CLASSES)
            block = hole_take(++class);
        if (block != NULL)
            heap_refused = refused;
        return block;
    }
    if (size > SIZE_MAX - sizeof(*head) || !allowed(size + sizeof(*head)))
        return NULL;
    head = taken(malloc(size + sizeof(*head)));
    if (head == NULL)
        return NULL;
    head->class = 0;
    return head + 1;
}

static void heap_free(void *opaque, void *block)
{
    struct head *head;

    (void)opaque;
    if (block == NULL)
        return;
    head = head_of(block);
    if (head->class != 0) {
        struct hole *hole = (struct hole *)(void *)head;

        hole->next = holes[head->class];
        holes[head->class] = hole;
        return;
    }
    heap_used -= malloc_usable_size(head);
    free(head);
}

static void *heap_calloc(void *opaque, size_t count, size_t size)
{
    size_t all;
    void *block;

    if (__builtin_mul_overflow(count, size, &all))
        return NULL;
    block = heap_malloc(opaque, all);
    return block != NULL ? memset(block, 0, all) : NULL;
}

static size_t heap_size(const void *block)
{
    const struct head *head;

    if (block == NULL)
        return 0;
    head = head_of((void *)(uintptr_t)block);
    return head->class != 0 ? head->class * STEP
                            : malloc_usable_size((void *)(uintptr_t)head) - sizeof(*head);
}

static void *heap_realloc(void *opaque, void *block, size_t size)
{
    size_t had = heap_size(block), has;
    struct head *head, *moved;
    void *other;

    if (block == NULL)
        return heap_malloc(opaque, size);
    head = head_of(block);
    if (head->class != 0 && size <= had)
        return block;
    if (head->class != 0 || size <= SMALL_MAX) {
        other = heap_malloc(opaque, size);
        if (other != NULL) {
            memcpy(other, block, had < size ? had : size);
            heap_free(opaque, block);
        }
        return other;
    }
    if (size > SIZE_MAX - sizeof(*head) || (size > had && !allowed(size - had)))
        return NULL;
    has = malloc_usable_size(head);
    moved = taken(realloc(head, size + sizeof(*head)));
    if (moved == NULL)
        return NULL;
    heap_used -= has;
    return moved + 1;
}

const JSMallocFunctions heap_functions = {heap_calloc, heap_malloc, heap_free, heap_realloc,
                                          heap_size};

/* ---- an image ---- */

void heap_settle(void)
{
    uintptr_t top = (uintptr_t)sbrk(0);
    void *block;

    memset(holes, 0, sizeof(holes));
    /* What libc has free is filled, from the largest down, until it has to grow. */
    for (size_t size = RUN_BYTES; size >= STEP; size -= size > 1024 ? 1024 : STEP) {
        while ((block = malloc(size)) != NULL && (uintptr_t)block < top)
            continue;
        free(block);
    }
    run = aligned_alloc(PAGE, RUN_BYTES);
    run_end = run != NULL ? run + RUN_BYTES : NULL;
    free(malloc(SPARE_BYTES));
}
