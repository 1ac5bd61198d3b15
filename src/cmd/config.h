/* The names of cove.conf, as `cove config` and the manual page show them. */
#pragma once

#include "base/err.h"
#include "keeper/config_words.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct config_word {
    const char *section;
    const char *name;     /* NULL: the names of the section are the operator's own */
    const char *fallback; /* as one would write it; NULL: none, or `help` says it */
    const char *help;
};

extern const struct config_word config_words[];
extern const size_t config_words_count;

/* Tells whether a word is the first of its section. */
bool config_begins_section(size_t i);

/* Finds the file: the one that is given, else the usual one; "" where that is not there. */
int config_find(const char *given, char path[PATH_MAX], struct error *err);
