/* The options of `cove run`, parsed once into what the box wants to know.
 *
 * One table (run_options.c) is both the parser and the help text. What is in the result has been
 * checked as far as it can be from outside: paths exist, numbers are numbers. */
#pragma once

#include "base/err.h"
#include "box/box.h"
#include "cmd/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_MEMORY_BYTES (2ULL << 30) /* or half of the machine's, if that is less */
#define RUN_PIDS 1024
#define RUN_DISK_BYTES (1ULL << 30)
#define RUN_DISK_INODES 262144
#define RUN_OUTPUT_LIMIT (8ULL << 20)
#define RUN_OUTPUT_LIMIT_MAX (1ULL << 30)
#define RUN_WORKSPACE "/workspace"

/* Variables as "K=V", each K once; ours. */
struct run_pairs {
    char **list;
    size_t count;
};

struct run_options {
    bool help;
    bool json;
    bool tty;
    bool no_warnings;
    bool output_limit_given;
    bool workspace_given;
    uint64_t timeout_ms; /* 0: none */
    uint64_t output_limit;
    const char *cwd; /* NULL: the user's home */
    const char *net; /* the text of a policy; NULL: none at all */
    struct box_spec spec;
    char *const *command; /* NULL-terminated, part of argv */

    struct box_bind *binds; /* what spec.binds points to; their paths are ours */
    size_t binds_count;
    struct run_pairs env,
        env_file; /* by --env, and by --env-file, which holds where the first does not */
    size_t words; /* no option can be given more often than there are words */
};

/* Parses the words after `cove`: argv[0] is "run". The result borrows from argv; it must be freed,
 * after an error too. */
int run_options_parse(struct run_options *options, int argc, char **argv, struct error *err);

/* Whether --json was asked for, even if the words do not parse. */
bool run_options_wants_json(int argc, char **argv);

void run_options_free(struct run_options *options);

extern const struct option_table run_options_table;
