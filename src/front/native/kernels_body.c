/* What is said of kernels in JSON, and what is answered. A result is what a worker says, and that may have been
 * taken over: its texts are printed as any text, and what it calls JSON is looked at byte by byte. */
#include "front/native/kernels.h"

#include "front/native/parts.h"
#include "front/native/text.h"

#include <stdio.h>
#include <string.h>

#define AT(member) .at = offsetof(struct kernel_body, member)
#define MS_MAX KERNEL_MS_MAX
#define FILENAME_MAX_BYTES 255
#define MESSAGE_ID_MAX 64
#define TOOL_ERROR_MAX 65536

static const char *const languages[] = {"js", "ts", "javascript", "typescript", NULL};
static const char *const messages[] = {"run", "error", "stop", NULL};

#define LIMIT_FIELDS                                                                 \
    {.name = "cpu_ms", .kind = READ_COUNT, AT(cpu_ms), .low = 1, .high = MS_MAX},    \
    {                                                                                \
        .name = "wall_ms", .kind = READ_COUNT, AT(wall_ms), .low = 1, .high = MS_MAX \
    }
#define MANIFEST_FIELDS                                                                      \
    {.name = "allowed_hosts", .kind = READ_TEXTS, AT(hosts), .high = KERNEL_GRANTS_MAX},     \
        {.name = "allowed_read_paths",                                                       \
         .kind = READ_TEXTS,                                                                 \
         AT(read_paths),                                                                     \
         .high = KERNEL_GRANTS_MAX},                                                         \
        {.name = "allowed_write_paths",                                                      \
         .kind = READ_TEXTS,                                                                 \
         AT(write_paths),                                                                    \
         .high = KERNEL_GRANTS_MAX},                                                         \
        {.name = "env", .kind = READ_PAIRS, AT(env), .high = KERNEL_GRANTS_MAX},             \
    {                                                                                        \
        .name = "memory_limit_bytes", .kind = READ_COUNT, AT(memory_bytes), .low = 1U << 20, \
        .high = KERNEL_MEMORY_MAX                                                            \
    }
#define TOOLS_FIELD                                                               \
    {                                                                             \
        .name = "tools", .kind = READ_TEXTS, AT(tools), .high = KERNELS_TOOLS_MAX \
    }
#define RUN_FIELDS(needed)                                                     \
    {.name = "language", .kind = READ_WORD, AT(language), .words = languages}, \
        {.name = "code", .kind = READ_RAW, AT(code), .is_needed = (needed)},   \
        {.name = "filename",                                                   \
         .kind = READ_LINE,                                                    \
         AT(filename),                                                         \
         .low = 1,                                                             \
         .high = FILENAME_MAX_BYTES},                                          \
    {                                                                          \
        .name = "module", .kind = READ_BOOL, AT(module)                        \
    }

const struct read_field kernel_fields_make[] = {
    {.name = "name", .kind = READ_LINE, AT(name), .low = 1, .high = KERNELS_NAME_MAX},
    {.name = "labels", .kind = READ_PAIRS, AT(labels), .high = KERNELS_LABELS_MAX},
    MANIFEST_FIELDS,
    LIMIT_FIELDS,
    TOOLS_FIELD,
    {.name = NULL},
};

const struct read_field kernel_fields_once[] = {
    RUN_FIELDS(true),
    MANIFEST_FIELDS,
    LIMIT_FIELDS,
    {.name = NULL},
};

const struct read_field kernel_fields_run[] = {
    RUN_FIELDS(true),
    LIMIT_FIELDS,
    {.name = NULL},
};

const struct read_field kernel_fields_message[] = {
    {.name = "type", .kind = READ_WORD, AT(type), .words = messages, .is_needed = true},
    {.name = "run", .kind = READ_LINE, AT(id), .low = 1, .high = MESSAGE_ID_MAX, .is_needed = true},
    {.name = "call", .kind = READ_COUNT, AT(call), .high = UINT32_MAX},
    {.name = "message", .kind = READ_TEXT, AT(message), .high = TOOL_ERROR_MAX},
    {.name = "context", .kind = READ_LINE, AT(context), .low = 1, .high = 64},
    RUN_FIELDS(false),
    MANIFEST_FIELDS,
    LIMIT_FIELDS,
    TOOLS_FIELD,
    {.name = NULL},
};

static void grants_of(const struct kernel_body *body, struct kernel_grants *grants)
{
    *grants = (struct kernel_grants){
        .hosts = body->hosts,
        .read_paths = body->read_paths,
        .write_paths = body->write_paths,
        .env = body->env,
        .tools = body->tools,
        .cpu_ms = (uint32_t)body->cpu_ms,
        .wall_ms = (uint32_t)body->wall_ms,
        .memory_bytes = body->memory_bytes,
    };
}

void kernel_body_spec(const struct kernel_body *body, struct kernel_spec *spec)
{
    *spec = (struct kernel_spec){.name = body->name, .labels = body->labels};
    grants_of(body, &spec->grants);
}

int kernel_body_run(const struct kernel_body *body, const char *context,
                    struct kernel_grants *grants, struct kernel_run_spec *spec, struct error *err)
{
    bool has_grants = body->hosts != NULL || body->env != NULL || body->tools != NULL ||
                      body->read_paths != NULL || body->write_paths != NULL ||
                      body->memory_bytes != 0;

    if (context != NULL && has_grants)
        return error_set(err, "bad_request", 0,
                         "what a kernel may is said when it is made: a run in it takes \"code\", "
                         "\"language\", \"filename\", \"module\", \"cpu_ms\" and \"wall_ms\"");
    grants_of(body, grants);
    *spec = (struct kernel_run_spec){
        .context = context,
        .grants = context == NULL ? grants : NULL,
        .source = {.text = body->code.data,
                   .size = body->code.size,
                   .filename = body->filename,
                   .language = body->language % 2 == 1 ? KERNEL_TS : KERNEL_JS,
                   .module = body->module},
    };
    if (context != NULL) {
        spec->source.cpu_ms = grants->cpu_ms;
        spec->source.wall_ms = grants->wall_ms;
    }
    return 0;
}

/* ---- answers ---- */

bool print_json(struct out *out, const char *key, const char *json, size_t size)
{
    out_null(out, key);
    if (out->has_failed)
        return true;
    if (!text_is_json(json, size))
        return false;
    out->used -= strlen("null");
    out_raw(out, json, size);
    return true;
}

static void print_text(struct out *out, const char *key, struct kernel_text text)
{
    out_quote(out, key);
    out_quoted(out, text.data, text.size);
    out_quote_end(out);
}

static void print_text_or_none(struct out *out, const char *key, struct kernel_text text)
{
    if (text.size > 0)
        print_text(out, key, text);
}

static void print_logs(struct out *out, const struct kernel_result *result)
{
    static const char *const levels[] = {"log", "info", "warn", "error", "debug"};

    out_array(out, "logs");
    for (size_t i = 0; i < result->logs_count; i++) {
        unsigned level = result->logs[i].level;

        out_object(out, NULL);
        out_text(out, "level", level < sizeof(levels) / sizeof(levels[0]) ? levels[level] : "log");
        print_text(out, "text", result->logs[i].text);
        out_object_end(out);
    }
    out_array_end(out);
}

static void print_thrown(struct out *out, const struct kernel_result *result)
{
    if (result->end == KERNEL_END_VALUE) {
        out_null(out, "error");
        return;
    }
    out_object(out, "error");
    out_text(out, "kind", kernel_end_name(result->end));
    print_text(out, "name", result->name);
    print_text(out, "message", result->message);
    print_text(out, "stack", result->stack);
    if (result->line != 0)
        out_number(out, "line", result->line);
    if (result->column != 0)
        out_number(out, "column", result->column);
    print_text_or_none(out, "code", result->code);
    out_object_end(out);
}

#define EXIT_TIMED_OUT 124

void print_kernel_result(struct out *out, const char *key, const struct kernel_result *result)
{
    bool timed_out = result->end == KERNEL_END_CPU || result->end == KERNEL_END_WALL;

    out_object(out, key);
    print_text(out, "output", result->output);
    if (result->has_value)
        (void)print_json(out, "value", result->value.data, result->value.size);
    else
        out_null(out, "value");
    if (result->has_value_error)
        print_text(out, "value_error", result->value_error);
    print_text(out, "type", result->type);
    print_logs(out, result);
    if (result->logs_dropped > 0)
        out_number(out, "logs_dropped", result->logs_dropped);
    print_text(out, "stderr", result->errors);
    out_number(out, "exit_code",
               timed_out                         ? EXIT_TIMED_OUT
               : result->end == KERNEL_END_VALUE ? (uint64_t)result->exit_code & 0xff
                                                 : 1);
    print_thrown(out, result);
    out_milli(out, "cpu_ms", result->cpu_ns / 1000);
    out_milli(out, "wall_ms", result->wall_ns / 1000);
    out_number(out, "memory_bytes", result->memory_bytes);
    out_bool(out, "timed_out", timed_out);
    out_bool(out, "oom_killed", result->end == KERNEL_END_MEMORY);
    out_bool(out, "state_lost", result->state_lost);
    out_bool(out, "is_final", result->is_final);
    out_object_end(out);
}

static void print_texts(struct out *out, const char *key, const char *const *texts)
{
    out_array(out, key);
    for (; texts != NULL && *texts != NULL; texts++)
        out_text(out, NULL, *texts);
    out_array_end(out);
}

void print_kernel(struct out *out, const char *key, const struct kernel_view *view)
{
    out_object(out, key);
    out_text(out, "id", view->id);
    out_text(out, "name", view->name);
    out_text(out, "tenant", view->tenant);
    print_pairs(out, "labels", view->labels);
    out_text(out, "state", kernel_state_name(view->state));
    print_texts(out, "allowed_hosts", view->grants->hosts);
    print_pairs(out, "env", view->grants->env);
    print_texts(out, "tools", view->grants->tools);
    out_number(out, "cpu_ms", view->grants->cpu_ms);
    out_number(out, "wall_ms", view->grants->wall_ms);
    out_number(out, "memory_limit_bytes", view->grants->memory_bytes);
    out_time(out, "created_at", view->created_ms);
    out_time(out, "used_at", view->used_ms);
    out_number(out, "runs", view->runs);
    out_number(out, "memory_bytes", view->memory_bytes);
    out_object_end(out);
}
