/* Functions of engine.c for the rest of the guest, which the engine's own header lacks. */
#pragma once

#include "quickjs.h"

#include <stdint.h>

void engine_seed(JSContext *context, uint64_t seed); /* of Math.random */
void engine_drop_jobs(JSRuntime *runtime);
void engine_settle(JSRuntime *runtime); /* collects no garbage for a while */
