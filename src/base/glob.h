/* Globs over paths, as bytes.
 *
 * `*` any bytes but '/', `?` one byte but '/' (of UTF-8: one character), `[...]` one of a class (`!` or `^`
 * first: none of it), `{a,b}` either, `**` as a whole part any number of parts, `\` takes the next byte as
 * it is. A glob without '/' is tried on the last part of a path alone, one that begins with '/' or has one
 * elsewhere on the whole path. Time is at most the product of both lengths, whatever is asked. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define GLOB_MAX 1024 /* of its text; longer ones match nothing */

bool glob_match(const char *glob, const char *path);

/* Why `glob` is none ("a class that does not end"), or NULL. */
const char *glob_flaw(const char *glob);

enum globs_answer {
    GLOBS_EXCLUDED, /* one that begins with '!' matches: neither it nor what is in it */
    GLOBS_PASSED,   /* there are others, and none matches: but what is in it may */
    GLOBS_TAKEN,
};
enum globs_answer globs_match(const char *const *globs, unsigned count, const char *path);
