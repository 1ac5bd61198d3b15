/* What engine.c gives to the rest of the guest: what the engine's own header does not give. */
#pragma once

#include "quickjs.h"

#include <stdint.h>

void engine_seed(JSContext *context, uint64_t seed); /* of Math.random */
void engine_drop_jobs(JSRuntime *runtime);
void engine_settle(JSRuntime *runtime); /* collects no garbage for a while */
