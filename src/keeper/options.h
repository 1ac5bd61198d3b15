/* The options of cove-keeper, which are those of `cove serve`. */
#pragma once

#include "base/err.h"
#include "keeper/words.h"

#include <stdbool.h>

struct options {
    const char *listen; /* HOST:PORT, or "none" */
    const char *socket; /* NULL: where design puts it */
    const char *data;
    const char *config;
    const char *engine; /* the program; NULL: beside this one */
    bool insecure_http;
    bool is_private;   /* ends when its engine does by itself */
    bool is_delegated; /* the cgroup it runs in is its own */
    unsigned can_take; /* 0; else asked by another keeper: the format of a hand-over */
    bool wants_help;
};

int options_parse(int argc, char **argv, struct options *options, struct error *err);
void options_help(void);
