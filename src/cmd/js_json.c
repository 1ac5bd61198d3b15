/* The result of `cove js --json`: one object on one line. What code calls JSON is parsed before it becomes part
 * of it. */
#include "cmd/cmd.h"
#include "cmd/js.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are no UTF-8 become U+FFFD. */
static json_t *text_json(struct kernel_text text)
{
    struct meta_text quoted = {0};
    json_t *string = NULL;

    meta_put_string(&quoted, text.data, text.size);
    if (!quoted.failed)
        string = json_loadb(quoted.data, quoted.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    free(quoted.data);
    return string;
}

static json_t *logs_json(const struct kernel_result *result)
{
    static const char *const levels[] = {"log", "info", "warn", "error", "debug"};
    json_t *list = json_array();

    for (size_t i = 0; i < result->logs_count; i++)
        (void)json_array_append_new(list,
                                    json_pack("{s:s,s:o}", "level", levels[result->logs[i].level],
                                              "text", text_json(result->logs[i].text)));
    return list;
}

static json_t *error_json(const struct kernel_result *result)
{
    json_t *error;

    if (result->end == KERNEL_END_VALUE)
        return json_null();
    error = json_pack("{s:s,s:o,s:o,s:o}", "kind", kernel_end_name(result->end), "name",
                      text_json(result->name), "message", text_json(result->message), "stack",
                      text_json(result->stack));
    if (result->line != 0)
        (void)json_object_set_new(error, "line", json_integer(result->line));
    if (result->column != 0)
        (void)json_object_set_new(error, "column", json_integer(result->column));
    if (result->code.size > 0)
        (void)json_object_set_new(error, "code", text_json(result->code));
    return error;
}

int js_json_print(const struct kernel_result *result, int status)
{
    json_t *all = json_pack(
        "{s:o,s:o,s:o,s:i,s:o,s:f,s:f,s:I,s:b,s:b}", "output", text_json(result->output), "logs",
        logs_json(result), "stderr", text_json(result->errors), "exit_code", status, "error",
        error_json(result), "cpu_ms", (double)result->cpu_ns / 1e6, "wall_ms",
        (double)result->wall_ns / 1e6, "memory_bytes", (json_int_t)result->memory_bytes,
        "timed_out", result->end == KERNEL_END_CPU || result->end == KERNEL_END_WALL, "oom_killed",
        result->end == KERNEL_END_MEMORY);
    json_t *value = result->has_value ? json_loadb(result->value.data, result->value.size,
                                                   JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL)
                                      : NULL;
    char *text;

    if (value != NULL)
        (void)json_object_set_new(all, "value", value);
    if (result->logs_dropped > 0)
        (void)json_object_set_new(all, "logs_dropped", json_integer(result->logs_dropped));
    text = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(all);
    return cmd_print_line(text) == 0 ? status : CMD_FAILED;
}
