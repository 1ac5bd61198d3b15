/* What the guest does of a run without the prelude; see plain.c. */
#pragma once

#include <quickjs.h>
#include <stdbool.h>
#include <stddef.h>

/* Once, while the image is made. */
void plain_open(JSContext *context, JSValueConst share);

/* Begins a run, as share.run() does. False: what an earlier one left has to be tidied up by that. */
bool plain_begin(JSContext *context);

/* Evaluates a script; the source ends with a NUL that is not counted. */
JSValue plain_evaluate(JSContext *context, const char *source, size_t size, const char *filename);

/* The name of its type, where this value is all that there is to say. */
const char *plain_type(JSContext *context, JSValueConst value);

/* The run has ended with it. */
void plain_end(JSContext *context);

/* The prelude goes on with what the source came to, which is taken; an exception is what was thrown. */
JSValue plain_hand_on(JSContext *context, JSValue value, const char *source, size_t size,
                      const char *filename);
