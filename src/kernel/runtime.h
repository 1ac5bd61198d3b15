/* The generated code's side of the room: its declarations, and what is called by it. */
#pragma once

#include "kernel/parts.h"

#include <kernel_js.h> /* generated */

/* The context that this thread is in, or boots; NULL: none. */
extern _Thread_local struct kernel_context *runtime_context;

double kernel_nearest(double x);

/* Nothing writes to it any more. */
void runtime_table_seal(const wasm_rt_funcref_table_t *table);
