/* Errors that name the thing, the cause and the remedy.
 *
 * Every function that can fail takes a `struct error *` and returns 0 or -1. The code is stable
 * (programs match on it), the text is one sentence for a person, errnum is the errno behind it.
 * An error is set once where it happens and wrapped at most once per layer on the way up. */
#pragma once

#include <stddef.h>

#define ERROR_CODE_MAX 32
#define ERROR_TEXT_MAX 480

struct error {
    int errnum; /* 0 where no system call failed */
    char code[ERROR_CODE_MAX];
    char text[ERROR_TEXT_MAX];
};

/* Fills `err` and returns -1, so that a caller can `return error_set(...)`. With errnum != 0 the
 * text is followed by ": " and what the errno means. */
int error_set(struct error *err, const char *code, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Puts "CONTEXT: " before the text of an error that is already set; returns -1. */
int error_wrap(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
