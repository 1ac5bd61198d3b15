/* The one table that says what an error's code is in HTTP: status, title, remedy. */
#pragma once

#include "front/native/out.h"

#include <stdbool.h>
#include <stddef.h>

struct problem {
    const char *code;
    unsigned status;
    const char *title;
    const char *remedy;     /* or NULL: the detail says it */
    unsigned retry_after_s; /* 0: no such header */
};

/* A code that is not in the table is a fault of ours: 500. */
const struct problem *problem_of(const char *code);

/* The rows, for what checks that openapi.yaml has each; NULL after the last. */
const struct problem *problem_row(size_t index);

/* RFC 9457. `code` is printed even if it is not in the table. */
void problem_print(struct out *out, const char *code, unsigned status, const char *detail);
