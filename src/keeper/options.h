/* The options of cove-keeper, which are those of `cove serve`. */
#pragma once

#include "base/err.h"
#include "keeper/words.h"

#include <stdbool.h>

struct options {
    const char *listen;       /* HOST:PORT, or "none" */
    const char *socket;       /* NULL: where design puts it */
    const char *socket_group; /* a name of /etc/group, or a number; NULL: the keeper's own */
    unsigned socket_mode;     /* 0: 0660 */
    const char *data;
    const char *config;
    const char *engine;      /* the program; NULL: beside this one */
    unsigned hang_ms;        /* a test's; 0: KEEPER_HANG_MS */
    const char *allow_level; /* "full", or what a box may be less */
    const char *log_format;  /* "text" or "json"; NULL: as configured */
    bool log_json;
    bool insecure_http;
    bool has_tls;      /* the configuration names a certificate */
    bool is_private;   /* ends when its engine does by itself */
    bool is_delegated; /* the cgroup it runs in is its own */
    /* Asked by another keeper: can this program take over that format, such as is on that fd? */
    unsigned can_take; /* 0: not asked */
    int can_take_fd;
    bool wants_help;
    bool wants_check;
    bool wants_pid, wants_reload, wants_stop;
};

int options_parse(int argc, char **argv, struct options *options, struct error *err);
void options_help(void);
