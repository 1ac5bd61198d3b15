/* What gen.py writes and filter.c reads: a program for each set of flags, and where the key of the
 * box goes. Private to this room. */
#pragma once

#include "box/filter/filter.h"

#include <stdint.h>

#define FILTER_VARIANTS 4 /* indexed by the flags */
#define FILTER_KEY_PLACES 3

struct filter_variant {
    const struct sock_filter *program;
    uint16_t count;
    /* The instructions that compare with a word of the key; a place may be named twice. */
    uint16_t key_at[FILTER_KEY_PLACES][FILTER_KEY_WORDS];
};

extern const struct filter_variant filter_variants[FILTER_VARIANTS];
