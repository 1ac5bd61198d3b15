/* The eraser as a program, for test_typescript.py: sources come on stdin as "LENGTH\n" and so many bytes,
 * answers go out as "STATUS LENGTH\n" and the output or the error. Each source is a block of exactly its
 * length, so that a sanitizer sees one byte too far. */
#include "kernel/js/typescript.h"

#include <stdio.h>
#include <stdlib.h>

static void answer(const char *source, size_t length)
{
    struct typescript_output out;
    char error[TYPESCRIPT_MESSAGE_MAX + 64];

    if (typescript_erase(source, length, &out) < 0) {
        int n = snprintf(error, sizeof(error), "%u:%u: %s", out.line, out.column, out.message);
        printf("1 %d\n%s", n, error);
    } else {
        printf("0 %zu\n", out.length);
        fwrite(out.text, 1, out.length, stdout);
    }
    typescript_output_clear(&out);
}

int main(void)
{
    size_t length;

    while (scanf("%zu", &length) == 1 && getchar() == '\n') {
        char *source = malloc(length == 0 ? 1 : length);
        if (source == NULL || fread(source, 1, length, stdin) != length)
            return 1;
        answer(source, length);
        free(source);
    }
    return ferror(stdin) || fflush(stdout) != 0;
}
