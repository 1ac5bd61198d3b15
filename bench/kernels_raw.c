/* See kernels_raw.h. */
#include "kernels_raw.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

void raw_write(const char *what, const char *unit, const uint64_t *samples, size_t count)
{
    const char *path = getenv("COVE_BENCH_RAW");
    FILE *out = path != NULL ? fopen(path, "a") : NULL;
    bool gap = false, begun = false;

    if (out == NULL)
        return;
    for (; *what != 0; what++) {
        bool is_part = isalnum((unsigned char)*what) != 0;

        if (is_part && gap && begun)
            (void)fputc('_', out);
        if (is_part)
            (void)fputc(*what, out);
        gap = !is_part;
        begun = begun || is_part;
    }
    (void)fprintf(out, " %s 0", unit);
    for (size_t i = 0; i < count; i++)
        (void)fprintf(out, " %llu", (unsigned long long)samples[i]);
    (void)fputc('\n', out);
    (void)fclose(out);
}
