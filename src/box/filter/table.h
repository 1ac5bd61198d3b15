/* What gen.py writes and filter.c reads: a program for each set of flags, and where the key of the
 * box goes. Private to this room. */
#pragma once

#include "box/filter/filter.h"

#include <stdint.h>

#define FILTER_VARIANTS 4 /* indexed by the flags */

struct filter_variant {
    const struct sock_filter *program;
    uint16_t count;
    uint16_t key_at[FILTER_KEY_WORDS]; /* the instructions that compare with a word of the key */
};

extern const struct filter_variant filter_variants[FILTER_VARIANTS];
