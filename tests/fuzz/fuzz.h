/* What a fuzz entry is: one function over one input, which aborts, or lets a sanitizer abort, where
 * something does not hold. With -fsanitize=fuzzer the engine of the compiler calls it; elsewhere
 * replay.c calls it with each file of a corpus. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void must(bool holds)
{
    if (!holds)
        abort();
}
