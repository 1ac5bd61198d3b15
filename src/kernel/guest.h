/* A guest: an engine of a language, which was compiled to WebAssembly and from there to machine code. The room knows of
 * one what stands here and in guest_shared.h, which the guest is built with, too; a language is a folder that fills in
 * a struct kernel_guest.
 *
 * All but create() and is_at_rest() run the guest's code: only within an entry (thread_enter()). */
#pragma once

#include "kernel/guest_shared.h"

#include <stdbool.h>
#include <stdint.h>
#include <wasm-rt.h>

struct kernel_context;

/* The part of an instance that is not in its memory. Between two entries the global variables are those of the image: the stack
 * is empty. */
struct kernel_machine {
    wasm_rt_memory_t *memory;
    _Alignas(16) uint8_t instance[128];
};

struct kernel_guest {
    /* An instance over memory that equals an image, or what became of one. */
    void (*create)(struct kernel_machine *machine, struct kernel_context *context, uint8_t *base,
                   uint64_t size, uint32_t pages_max);
    bool (*is_at_rest)(const struct kernel_machine *machine);

    /* For an image to be made: instantiates from nothing, runs the scripts of the prelude, and settles down. */
    void (*boot)(struct kernel_machine *machine, struct kernel_context *context);
    int (*prelude)(struct kernel_machine *machine, uint32_t source, uint32_t size, uint32_t name);
    void (*settle_down)(struct kernel_machine *machine);

    /* Where its struct guest_shared lies. */
    uint32_t (*shared_at)(struct kernel_machine *machine);
    /* A block of its memory; 0: it has none. */
    uint32_t (*reserve)(struct kernel_machine *machine, uint32_t size);
    int (*configure)(struct kernel_machine *machine, uint32_t json, uint32_t size);
    /* An enum guest_state, both; `flags` are GUEST_RUN_*. */
    int (*run)(struct kernel_machine *machine, uint32_t source, uint32_t size, uint32_t flags,
               uint32_t filename);
    int (*step)(struct kernel_machine *machine);
    /* The answer to a call; places and sizes. */
    void (*settle)(struct kernel_machine *machine, uint32_t id, bool ok, const uint32_t meta[2],
                   const uint32_t bytes[2]);
    void (*abandon)(struct kernel_machine *machine);
};
