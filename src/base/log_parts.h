/* What the files of the log share. */
#pragma once

#include <stddef.h>

struct log_entry {
    const char *time, *level, *part, *code, *text;
    unsigned left_out;
};

#define LOG_JSON_MAX 4096 /* what a pipe takes in one piece */

/* One line with its end, which always fits; its size. */
size_t log_json(char *into, size_t room, const struct log_entry *entry);
