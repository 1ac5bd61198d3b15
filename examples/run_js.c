/* Runs JavaScript in a kernel of this process, gives it one function, and says how it ended.
 *
 *     cc run_js.c $(pkg-config --cflags --libs cove) -o run_js
 *     ./run_js 'const all = await Promise.all([1, 2, 3].map((n) => tools.square(n))); all.join()' */
#include <cove.h>

#include <stdio.h>
#include <stdlib.h>

static void square(void *data, const char *name, struct cove_text args, struct cove_answer *answer)
{
    char text[64];
    double number;

    (void)data;
    (void)name;
    (void)snprintf(text, sizeof(text), "%.*s", (int)(args.size < 63 ? args.size : 63), args.data);
    number = strtod(text, NULL);
    (void)snprintf(text, sizeof(text), "%.17g", number * number);
    for (size_t size = 0;; size++)
        if (text[size] == '\0') {
            cove_answer_json(answer, text, size);
            return;
        }
}

int main(int argc, char **argv)
{
    const char *const tools[] = {"square", NULL};
    const struct cove_grants grants = {.tools = tools, .tool = square, .cpu_ms = 1000};
    const struct cove_run_result *result;
    struct cove_kernel *kernel;
    struct cove_error error;

    if (argc != 2) {
        fprintf(stderr, "usage: run_js CODE\n");
        return 2;
    }
    if (cove_js_run(&grants, &(struct cove_source){.text = argv[1]}, &kernel, &result, &error) <
        0) {
        fprintf(stderr, "run_js: %s\n", error.text);
        return 125;
    }
    for (size_t i = 0; i < result->logs_count; i++)
        printf("%.*s\n", (int)result->logs[i].text.size, result->logs[i].text.data);
    printf("%.*s\n", (int)result->output.size, result->output.data);
    fprintf(stderr, "%s%s%.*s; %.3f ms of CPU time\n", result->end,
            result->message.size > 0 ? ": " : "", (int)result->message.size, result->message.data,
            (double)result->cpu_ns / 1e6);
    argc = result->exit_code;
    cove_kernel_free(kernel);
    return argc;
}
