/* What the generated code asks of a runtime: memory that grows within its slot, one table of functions for
 * all instances, traps; and the few calls of WASI that libc makes.
 *
 * Each function here is called by a guest. What comes from it is checked, and nothing is done for it but
 * between thread_host_begin() and thread_host_end(). */
#include "kernel/runtime.h"

#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* ---- traps ---- */

/* Names of the generated code's, as all in this file. */
void wasm_rt_trap(wasm_rt_trap_t code)
{
    if (runtime_context == NULL) {
        /* Only while the table is made, before any guest runs: the build is broken. */
        (void)fputs("cove: a kernel's machine code cannot be instantiated\n", stderr);
        abort();
    }
    (void)thread_host_begin();
    thread_trap(code == WASM_RT_TRAP_EXHAUSTION ? TRAP_STACK
                : code == WASM_RT_TRAP_OOB      ? TRAP_MEMORY
                                                : TRAP_CODE);
}

bool wasm_rt_is_initialized(void)
{
    return true;
}

/* To the nearest whole number, of two the even one: what libm calls nearbyint(). */
double kernel_nearest(double x)
{
    const double whole = 0x1p52; /* from here on there is nothing behind the point */
    double size = __builtin_fabs(x);

    return size < whole ? __builtin_copysign((size + whole) - whole, x) : x;
}

/* ---- memory ---- */

_Thread_local struct kernel_context *runtime_context;

void wasm_rt_allocate_memory(wasm_rt_memory_t *memory, uint32_t initial, uint32_t maximum)
{
    uint64_t size = (uint64_t)initial * KERNEL_WASM_PAGE;
    struct kernel_context *context = runtime_context;

    (void)maximum;
    memory->pages = initial;
    memory->max_pages = context != NULL ? context->pages_max : initial;
    memory->size = (uint32_t)size;
    if (context != NULL) {
        memory->data = context->slot->base;
        if (slot_open(context->slot, size) < 0)
            wasm_rt_trap(WASM_RT_TRAP_OOB);
        return;
    }
    memory->data = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory->data == MAP_FAILED)
        wasm_rt_trap(WASM_RT_TRAP_OOB);
}

void wasm_rt_free_memory(wasm_rt_memory_t *memory)
{
    (void)munmap(memory->data, memory->size);
}

/* Within the context's limit. The guest sees 0xffffffff where it cannot have more. */
uint32_t wasm_rt_grow_memory(wasm_rt_memory_t *memory, uint32_t delta)
{
    struct kernel_context *context = runtime_context;
    uint32_t old = memory->pages;
    uint64_t pages = (uint64_t)old + delta;

    if (delta == 0)
        return old;
    if (!thread_host_begin())
        thread_trap(TRAP_STACK);
    if (pages > memory->max_pages || slot_open(context->slot, pages * KERNEL_WASM_PAGE) < 0) {
        context->refused = true;
        old = UINT32_MAX;
    } else {
        memory->pages = (uint32_t)pages;
        memory->size = (uint32_t)(pages * KERNEL_WASM_PAGE);
    }
    thread_host_end();
    return old;
}

/* ---- functions ---- */

#define TYPES_MAX 512
#define TYPE_WORDS 24 /* parameters and results of one */

/* Under the one call that prepares a module. */
static uint8_t types[TYPES_MAX][TYPE_WORDS];
static uint32_t types_count;

uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...)
{
    uint8_t type[TYPE_WORDS] = {0};
    va_list list;

    if (params + results + 2 > TYPE_WORDS || types_count == TYPES_MAX)
        wasm_rt_trap(WASM_RT_TRAP_CALL_INDIRECT);
    type[0] = (uint8_t)params;
    type[1] = (uint8_t)results;
    va_start(list, results);
    for (uint32_t i = 0; i < params + results; i++)
        type[2 + i] = (uint8_t)(1 + va_arg(list, int));
    va_end(list);
    for (uint32_t i = 0; i < types_count; i++)
        if (memcmp(types[i], type, sizeof(type)) == 0)
            return i + 1;
    memcpy(types[types_count++], type, sizeof(type));
    return types_count;
}

static size_t table_bytes(uint32_t elements)
{
    return (elements * sizeof(wasm_rt_funcref_t) + 4095) / 4096 * 4096;
}

void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t *table, uint32_t elements,
                                    uint32_t maximum)
{
    void *data = mmap(NULL, table_bytes(elements), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)maximum;
    if (data == MAP_FAILED)
        wasm_rt_trap(WASM_RT_TRAP_OOB);
    *table = (wasm_rt_funcref_table_t){.data = data, .max_size = elements, .size = elements};
}

void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t *table)
{
    (void)munmap(table->data, table_bytes(table->size));
}

void runtime_table_seal(const wasm_rt_funcref_table_t *table)
{
    (void)mprotect(table->data, table_bytes(table->size), PROT_READ);
}

/* ---- WASI, as far as libc asks ---- */

enum { WASI_OK = 0, WASI_BADF = 8, WASI_FAULT = 21 };

#define CONTEXT(wasi) ((struct kernel_context *)(void *)(wasi))

/* The wall clock, or time since the context was new. While an image is made both stand still, so that the
 * same source makes the same image. */
u32 Z_wasi_snapshot_preview1Z_clock_time_get(struct Z_wasi_snapshot_preview1_instance_t *wasi,
                                             u32 clock, u64 precision, u32 at)
{
    struct kernel_context *context = CONTEXT(wasi);
    uint8_t *into = context_memory(context, at, sizeof(uint64_t));
    struct timespec now = {0};
    uint64_t ns = 0;

    (void)precision;
    if (into == NULL)
        return WASI_FAULT;
    if (context->image != NULL && clock == 0) {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        ns = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
    } else if (context->image != NULL) {
        ns = clock_monotonic_ns() - context->clock_base;
    }
    memcpy(into, &ns, sizeof(ns));
    return WASI_OK;
}

u32 Z_wasi_snapshot_preview1Z_fd_close(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd)
{
    (void)wasi;
    (void)fd;
    return WASI_BADF;
}

u32 Z_wasi_snapshot_preview1Z_fd_fdstat_get(struct Z_wasi_snapshot_preview1_instance_t *wasi,
                                            u32 fd, u32 at)
{
    (void)wasi;
    (void)fd;
    (void)at;
    return WASI_BADF;
}

u32 Z_wasi_snapshot_preview1Z_fd_seek(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd,
                                      u64 offset, u32 whence, u32 at)
{
    (void)wasi;
    (void)fd;
    (void)offset;
    (void)whence;
    (void)at;
    return WASI_BADF;
}

/* Nothing of the guest's own is for anybody's eyes: its log goes another way. */
u32 Z_wasi_snapshot_preview1Z_fd_write(struct Z_wasi_snapshot_preview1_instance_t *wasi, u32 fd,
                                       u32 vectors, u32 count, u32 at)
{
    (void)wasi;
    (void)fd;
    (void)vectors;
    (void)count;
    (void)at;
    return WASI_BADF;
}
