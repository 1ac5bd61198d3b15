/* TypeScript in, JavaScript out, with every line and column where it was.
 *
 * Types are overwritten by spaces; what has a meaning at run time (enums, namespaces, parameter
 * properties, `import x = require()`, `export =`) is rewritten on the line where it stands. Plain
 * JavaScript passes byte for byte. Nothing is checked: a wrong type is no error, and what is no
 * JavaScript either is left for the engine to refuse. Runs inside the guest, so it needs nothing of
 * libc but memory; time is linear and recursion bounded, whatever the source. */
#pragma once

#include <stddef.h>

#define TYPESCRIPT_SOURCE_MAX (64U << 20)
#define TYPESCRIPT_DEPTH_MAX 512 /* blocks, brackets, functions and types in one another */
#define TYPESCRIPT_MESSAGE_MAX 192

struct typescript_output {
    char *text; /* UTF-8, ends with a NUL that `length` does not count; NULL after an error */
    size_t length;
    /* Of an error; both count from 1, columns in characters. */
    unsigned line, column;
    char message[TYPESCRIPT_MESSAGE_MAX]; /* a plain sentence, without the place */
};

/* Imports: a name that the source uses in types and nowhere as a value is removed, as is `import type`,
 * and a declaration of which nothing is left. A name that the source does not use at all stays, for a
 * later run of the same context may use it: in this alone the result differs from what TypeScript does
 * by default with isolated modules. A use is a use of the name: that another variable of an inner scope
 * may be meant is not looked at.
 *
 * 0, or -1 with the error's place and message; typescript_output_clear() after both. */
int typescript_erase(const char *source, size_t length, struct typescript_output *out);

void typescript_output_clear(struct typescript_output *out);
