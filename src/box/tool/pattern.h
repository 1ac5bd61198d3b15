/* Patterns: regular expressions as of PCRE2, or fixed texts. The one file that knows PCRE2 is pattern.c.
 *
 * Subjects are any bytes; a pattern that is UTF-8 matches characters where they are such. What one match may
 * cost is bounded, in steps and in memory. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct pattern_how {
    const char *text;
    bool is_fixed, ignores_case, is_word;
}; /* ^ and $ hold at each line */

struct pattern;
/* "bad_pattern", with what is wrong and where. */
struct pattern *pattern_new(const struct pattern_how *how, struct error *err);

/* A text that is in whatever matches, or NULL: to look for it first is much faster. */
const char *pattern_literal(const struct pattern *pattern, size_t *size);

/* Whether no match can go over the end of a line or look beyond it: then the first one in many lines is the
 * first one in its own. */
bool pattern_stays_in_line(const struct pattern *pattern);

/* The first match from `start` on. 1: found; 0: there is none; -1: it takes too much ("limit"). */
int pattern_match(struct pattern *pattern, const char *subject, size_t size, size_t start,
                  size_t *from, size_t *to, struct error *err);
