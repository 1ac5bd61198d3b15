/* The options of cove-keeper, which are those of `cove serve`. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

#define OPTIONS_LISTEN_DEFAULT "127.0.0.1:7070"

struct options {
    const char *listen; /* HOST:PORT, or "none" */
    const char *socket; /* NULL: where design puts it */
    const char *data;
    const char *config;
    const char *engine;     /* the program; NULL: beside this one */
    const char *log_format; /* "text" or "json"; NULL: as configured */
    bool log_json;
    bool insecure_http;
    bool is_private;   /* ends when its engine does by itself */
    bool is_delegated; /* the cgroup it runs in is its own */
    bool wants_help;
};

int options_parse(int argc, char **argv, struct options *options, struct error *err);
void options_help(void);
