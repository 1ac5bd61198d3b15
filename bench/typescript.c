/* Erases each file that is named over and over, and prints what a kilobyte takes of a processor: the best
 * of the rounds, for a machine that is busy otherwise only ever adds.
 * usage: typescript FILE... */
#include "kernel/js/typescript.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define FILE_MAX (16U << 20)
#define SECONDS_EACH 0.3

static double now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The best round in microseconds, or -1 where the source is refused. */
static double measure(const char *source, size_t length)
{
    double best = -1, start = now_us();

    do {
        struct typescript_output out;
        double before = now_us(), taken;
        int status = typescript_erase(source, length, &out);

        taken = now_us() - before;
        if (status < 0)
            printf("%u:%u: %s\n", out.line, out.column, out.message);
        typescript_output_clear(&out);
        if (status < 0)
            return -1;
        if (best < 0 || taken < best)
            best = taken;
    } while (now_us() - start < SECONDS_EACH * 1e6);
    return best;
}

int main(int argc, char **argv)
{
    char *source = malloc(FILE_MAX);
    int status = argc < 2 || source == NULL;

    for (int i = 1; i < argc && status == 0; i++) {
        FILE *file = fopen(argv[i], "re");
        size_t length = file != NULL ? fread(source, 1, FILE_MAX, file) : 0;
        double best = length > 0 ? measure(source, length) : -1;

        if (file != NULL)
            (void)fclose(file);
        status = best < 0;
        printf("%s: %zu bytes, %.1f us, %.2f us/KB\n", argv[i], length, best,
               best * 1024 / (double)(length > 0 ? length : 1));
    }
    free(source);
    return status;
}
