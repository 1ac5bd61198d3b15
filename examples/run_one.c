/* Runs one command in a box of its own and says how it ended.
 *
 *     cc run_one.c $(pkg-config --cflags --libs cove) -o run_one
 *     ./run_one python3 -c 'print(6 * 7)' */
#include <cove.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    struct cove_run run = {
        .argv = (const char *const *)argv + 1,
        .memory_bytes = 256 << 20,
        .timeout_ms = 10000,
    };
    struct cove_result result;
    struct cove_error error;

    if (argc < 2) {
        fprintf(stderr, "usage: run_one COMMAND [ARG...]\n");
        return 2;
    }
    if (cove_run(&run, &result, &error) < 0) {
        fprintf(stderr, "run_one: %s\n", error.text);
        return 125;
    }
    fwrite(result.out, 1, result.out_size, stdout);
    fwrite(result.err, 1, result.err_size, stderr);
    fprintf(stderr, "exit code %d, signal %d%s%s; %.1f ms, %.1f MB at most; level %s, limits %s\n",
            result.exit_code, result.signal, result.timed_out ? ", timed out" : "",
            result.oom_killed ? ", out of memory" : "", (double)result.wall_ns / 1e6,
            (double)result.peak_memory_bytes / 1e6, result.level, result.limits);
    cove_result_free(&result);
    return 0;
}
