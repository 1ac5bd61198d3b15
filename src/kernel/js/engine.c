/* The engine, with the few functions that need its insides: its header gives no way to them, and a
 * changed copy of it would have to be kept up. */
/* Every block comes from heap.c: this is the only thing that the name decides in the engine. */
#define __SANITIZE_ADDRESS__ 1
#include "quickjs.c"
#undef __SANITIZE_ADDRESS__

#include "kernel/js/engine.h"

void engine_seed(JSContext *context, uint64_t seed)
{
    context->random_state = seed != 0 ? seed : 1;
}

void engine_drop_jobs(JSRuntime *runtime)
{
    struct list_head *at, *next;

    list_for_each_safe(at, next, &runtime->job_list)
    {
        JSJobEntry *job = list_entry(at, JSJobEntry, link);

        list_del(&job->link);
        for (int i = 0; i < job->argc; i++)
            JS_FreeValueRT(runtime, job->argv[i]);
        js_free_rt(runtime, job);
    }
}

/* Before a run has made this much, it is not worth looking for cycles: that writes to every object. */
#define GARBAGE_BYTES (4U << 20)

void engine_settle(JSRuntime *runtime)
{
    runtime->malloc_gc_threshold = runtime->malloc_state.malloc_size + GARBAGE_BYTES;
}
