/* The machine code of the JavaScript engine: the one file that knows its names and the layout of its
 * instances. */
#include "kernel/js/js.h"
#include "kernel/runtime.h"

#include <kernel_js.h> /* generated */

#include <string.h>

_Static_assert(sizeof(Z_js_instance_t) <= sizeof(((struct kernel_machine *)0)->instance),
               "an instance has its room");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static Z_js_instance_t template; /* written once; its memory is gone */

static Z_js_instance_t *instance_of(struct kernel_machine *machine)
{
    return (Z_js_instance_t *)(void *)machine->instance;
}

/* Makes the table that all instances share. */
static void prepare(void)
{
    struct kernel_context *context = runtime_context;

    runtime_context = NULL;
    Z_js_init_module();
    Z_js_instantiate(&template, NULL, NULL);
    wasm_rt_free_memory(&template.w2c_memory);
    memset(&template.w2c_memory, 0, sizeof(template.w2c_memory));
    runtime_table_seal(&template.w2c_T0);
    runtime_context = context;
}

static void imports_set(Z_js_instance_t *instance, struct kernel_context *context)
{
    instance->Z_host_instance = (struct Z_host_instance_t *)(void *)context;
    instance->Z_wasi_snapshot_preview1_instance =
        (struct Z_wasi_snapshot_preview1_instance_t *)(void *)context;
}

static void create(struct kernel_machine *machine, struct kernel_context *context, uint8_t *base,
                   uint64_t size, uint32_t pages_max)
{
    Z_js_instance_t *instance = instance_of(machine);

    (void)pthread_once(&once, prepare);
    *instance = template;
    imports_set(instance, context);
    instance->w2c_memory = (wasm_rt_memory_t){.data = base,
                                              .pages = (uint32_t)(size / KERNEL_WASM_PAGE),
                                              .max_pages = pages_max,
                                              .size = (uint32_t)size};
    machine->memory = &instance->w2c_memory;
}

static bool is_at_rest(const struct kernel_machine *machine)
{
    const Z_js_instance_t *instance = (const Z_js_instance_t *)(const void *)machine->instance;

    return instance->w2c_g0 == template.w2c_g0;
}

static void boot(struct kernel_machine *machine, struct kernel_context *context)
{
    Z_js_instance_t *instance = instance_of(machine);

    (void)pthread_once(&once, prepare);
    machine->memory = &instance->w2c_memory;
    Z_js_instantiate(instance, (struct Z_host_instance_t *)(void *)context,
                     (struct Z_wasi_snapshot_preview1_instance_t *)(void *)context);
    wasm_rt_free_funcref_table(&instance->w2c_T0);
    instance->w2c_T0 = template.w2c_T0;
    Z_jsZ__initialize(instance);
    if ((int32_t)Z_jsZ_boot(instance) < 0)
        thread_trap(TRAP_CODE);
}

static uint32_t shared_at(struct kernel_machine *machine)
{
    return Z_jsZ_shared_at(instance_of(machine));
}

static uint32_t reserve(struct kernel_machine *machine, uint32_t size)
{
    return Z_jsZ_reserve(instance_of(machine), size);
}

static int prelude(struct kernel_machine *machine, uint32_t source, uint32_t size, uint32_t name)
{
    return (int32_t)Z_jsZ_prelude(instance_of(machine), source, size, name);
}

static void settle_down(struct kernel_machine *machine)
{
    Z_jsZ_settle_down(instance_of(machine));
}

static int configure(struct kernel_machine *machine, uint32_t json, uint32_t size)
{
    return (int32_t)Z_jsZ_configure(instance_of(machine), json, size);
}

static int run(struct kernel_machine *machine, uint32_t source, uint32_t size, uint32_t flags,
               uint32_t filename)
{
    return (int32_t)Z_jsZ_run(instance_of(machine), source, size, flags, filename);
}

static int step(struct kernel_machine *machine)
{
    return (int32_t)Z_jsZ_step(instance_of(machine));
}

static void settle(struct kernel_machine *machine, uint32_t id, bool ok, const uint32_t meta[2],
                   const uint32_t bytes[2])
{
    Z_jsZ_settle(instance_of(machine), id, ok ? 1 : 0, meta[0], meta[1], bytes[0], bytes[1]);
}

static void abandon(struct kernel_machine *machine)
{
    Z_jsZ_abandon(instance_of(machine));
}

const struct kernel_guest kernel_guest_js = {
    .create = create,
    .is_at_rest = is_at_rest,
    .boot = boot,
    .prelude = prelude,
    .settle_down = settle_down,
    .shared_at = shared_at,
    .reserve = reserve,
    .configure = configure,
    .run = run,
    .step = step,
    .settle = settle,
    .abandon = abandon,
};

int kernel_image_boot(const char *const *scripts, struct kernel_image **out, struct error *err)
{
    return image_boot(&kernel_guest_js, scripts, out, err);
}
