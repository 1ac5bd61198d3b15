/* A series of measurements: see series.h. */
#include "series.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void series_init(struct series *series, const char *name, const char *unit, size_t capacity)
{
    *series = (struct series){.name = name, .unit = unit, .capacity = capacity};
    series->samples = calloc(capacity > 0 ? capacity : 1, sizeof(*series->samples));
    if (series->samples == NULL) {
        (void)fprintf(stderr, "bench: no memory for %zu samples\n", capacity);
        exit(1);
    }
    /* Touched now: a page fault must not be measured as work. */
    memset(series->samples, 0xff, capacity * sizeof(*series->samples));
}

void series_add(struct series *series, uint64_t sample)
{
    if (series->count == series->capacity) {
        (void)fprintf(stderr, "bench: more than %zu samples of %s\n", series->capacity,
                      series->name);
        exit(1);
    }
    series->samples[series->count++] = sample;
}

int series_write(const struct series *series, FILE *out)
{
    if (fprintf(out, "%s %s %zu", series->name, series->unit, series->failures) < 0)
        return -1;
    for (size_t i = 0; i < series->count; i++)
        if (fprintf(out, " %" PRIu64, series->samples[i]) < 0)
            return -1;
    return fputc('\n', out) == EOF ? -1 : 0;
}

void series_free(struct series *series)
{
    free(series->samples);
    series->samples = NULL;
}

uint64_t series_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}
