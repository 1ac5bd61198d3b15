/* Any bytes as TypeScript: it ends, soon; the output has the lines of the source, and an error a place in
 * it and a sentence. */
#include "fuzz.h"
#include "kernel/js/typescript.h"

#include <stdlib.h>
#include <string.h>

static size_t count_lines(const char *text, size_t length)
{
    size_t lines = 1;

    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n')
            lines++;
    return lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct typescript_output out;
    size_t lines = count_lines((const char *)data, size);

    if (typescript_erase((const char *)data, size, &out) < 0) {
        /* A carriage return ends a line, too. */
        if (out.text != NULL || out.message[0] == '\0' || out.line == 0 || out.line > size + 1 ||
            out.column == 0 || out.column > size + 1)
            abort();
    } else if (out.text == NULL || out.length < size || strlen(out.text) > out.length ||
               out.text[out.length] != '\0' || count_lines(out.text, out.length) != lines) {
        abort();
    }
    typescript_output_clear(&out);
    return 0;
}
