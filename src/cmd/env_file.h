/* Variables out of a file, for --env-file: lines as docker takes them.
 *
 * NAME=VALUE, with all of VALUE as it stands; NAME alone is the caller's own, and nothing where that is not set; lines
 * that are empty or begin with '#' say nothing. A value may be a secret: no message repeats it. */
#pragma once

#include "base/err.h"

#define ENV_FILE_ROW                                                                             \
    {                                                                                            \
        "env-file", "FILE", NULL,                                                                \
            "set variables that --env does not: lines of NAME=VALUE, NAME or # ...; repeatable", \
            take_env_file, 0, 0                                                                  \
    }

typedef int env_file_set(void *into, const char *name, const char *value, struct error *err);

/* Calls `set` for each variable, until one call fails. */
int env_file_read(const char *path, env_file_set *set, void *into, struct error *err);
