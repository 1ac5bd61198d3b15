/* What the files of `cove js` share. */
#pragma once

#include "cmd/options.h"
#include "kernel/kernel.h"
#include "kernel/meta.h"

#define JS_LIST_MAX KERNEL_GRANTS_MAX

struct js_list {
    const char *text[JS_LIST_MAX + 1];
    size_t count;
};

struct js_options {
    struct options_common common;
    const char *code; /* of -e; NULL: none */
    bool typescript, module;
    struct js_list hosts, reads, writes, env, argv;
    uint64_t cpu_ms, wall_ms, memory_bytes;
};

int js_list_add(struct js_list *list, const char *name, const char *value, struct error *err);

struct cmd;
int js_run(const struct cmd *cmd, int argc, char **argv);

/* One line with the whole result (js_json.c); the exit status of cove. */
int js_json_print(const struct kernel_result *result, int status);
