/* `cove js`: runs JavaScript or TypeScript in a kernel of this process. Nothing of the machine can be reached
 * that the options do not grant. */
#include "cmd/js.h"

#include "base/fd.h"
#include "base/parse.h"
#include "cmd/cmd.h"
#include "cmd/js_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JS_TIMED_OUT 124

/* ---- source ---- */

/* All of a file, or of standard input, with a NUL behind it. */
static char *source_read(const char *path, size_t *size, struct error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    _cleanup_close_ int fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    size_t room = 65536;
    char *text = malloc(room);

    *size = 0;
    while (fd >= 0 && text != NULL) {
        ssize_t got = fd_read_full(fd, text + *size, room - 1 - *size);
        char *more;

        if (got < 0)
            break;
        *size += (size_t)got;
        if (*size < room - 1) {
            text[*size] = 0;
            return text;
        }
        if (room > KERNEL_SOURCE_MAX) {
            errno = EFBIG;
            break;
        }
        room *= 2;
        more = realloc(text, room);
        if (more == NULL)
            break;
        text = more;
    }
    free(text);
    error_set(err, "bad_value", errno, "%s: the script cannot be read",
              is_stdin ? "standard input" : path);
    return NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), of_end = strlen(end);

    return size >= of_end && strcmp(text + size - of_end, end) == 0;
}

/* ---- results ---- */

static int text_print(struct kernel_text text, int fd)
{
    return fd_write_full(fd, text.data, text.size) < 0 || fd_write_full(fd, "\n", 1) < 0 ? -1 : 0;
}

static bool text_is_empty(struct kernel_text text)
{
    return text.size == 0;
}

static int exit_status(const struct kernel_result *result)
{
    switch (result->end) {
    case KERNEL_END_VALUE:
        return result->exit_code & 0xff;
    case KERNEL_END_CPU:
    case KERNEL_END_WALL:
        return JS_TIMED_OUT;
    default:
        return 1;
    }
}

static void error_print(const struct kernel_result *result)
{
    struct kernel_text stack = result->stack;
    char head[64];

    (void)snprintf(head, sizeof(head), "%s%.*s", result->name.size > 40 ? "" : "Uncaught ",
                   (int)(result->name.size > 40 ? 0 : result->name.size), result->name.data);
    (void)fd_write_full(STDERR_FILENO, head, strlen(head));
    (void)fd_write_full(STDERR_FILENO, ": ", 2);
    (void)text_print(result->message, STDERR_FILENO);
    /* The engine's stack has no head line; another one may have. */
    if (stack.size > 4 && memcmp(stack.data, "    ", 4) != 0) {
        const char *line = memchr(stack.data, '\n', stack.size);

        if (line == NULL)
            return;
        stack = (struct kernel_text){line + 1, stack.size - (size_t)(line + 1 - stack.data)};
    }
    while (stack.size > 0 && stack.data[stack.size - 1] == '\n')
        stack.size--;
    if (!text_is_empty(stack))
        (void)text_print(stack, STDERR_FILENO);
}

/* Nothing is printed of undefined, and of a run that left by process.exit(). */
static bool has_output(const struct kernel_result *result)
{
    return result->is_final || result->output.size > 0
               ? result->is_final || !kernel_text_is(result->type, "undefined")
               : kernel_text_is(result->type, "string");
}

static int result_print(const struct kernel_result *result)
{
    int status = exit_status(result);

    for (size_t i = 0; i < result->logs_count; i++) {
        const struct kernel_log *log = &result->logs[i];
        bool error = log->level == KERNEL_WARN || log->level == KERNEL_ERROR;

        if (text_print(log->text, error ? STDERR_FILENO : STDOUT_FILENO) < 0)
            return CMD_FAILED;
    }
    if (result->logs_dropped > 0)
        cmd_say("%u lines of the log were too many and are left out", result->logs_dropped);
    if (result->end != KERNEL_END_VALUE)
        error_print(result);
    else if (has_output(result) && text_print(result->output, STDOUT_FILENO) < 0)
        return CMD_FAILED;
    return status;
}

/* ---- running ---- */

static int run_to_end(struct kernel_context *context, const struct kernel_manifest *manifest,
                      const struct kernel_source *source, struct error *err)
{
    _cleanup_(js_fetches_freep) struct js_fetches *fetches = NULL;
    enum kernel_status status;

    if (js_fetches_new(context, manifest, &fetches, err) < 0 ||
        kernel_run(context, source, &status, err) < 0)
        return -1;
    while (status == KERNEL_WAITS)
        if (js_fetches_turn(fetches, kernel_wait_ms(context), err) < 0 ||
            kernel_step(context, &status, err) < 0)
            return -1;
    return 0;
}

/* ---- line by line ---- */

/* Whether it only lacks its end: what the engine complains of is where the text ends. */
static bool is_unfinished(const struct kernel_result *result, const char *text)
{
    const char *last = text;
    uint32_t lines = 1;

    if (result->end != KERNEL_END_ERROR || !kernel_text_is(result->name, "SyntaxError"))
        return false;
    for (const char *at = text; *at != 0; at++)
        if (*at == '\n' && at[1] != 0) {
            lines++;
            last = at + 1;
        }
    if (kernel_text_is(result->message, "unexpected end of string"))
        return true;
    return result->line > lines || (result->line == lines && result->column > strcspn(last, "\n"));
}

/* Reads up to what can be run, with the lines before it that could not be. False: there is no more. */
static bool line_add(char **text, size_t *size)
{
    _cleanup_free_ char *line = NULL;
    size_t room = 0;
    ssize_t got;
    char *joined;

    (void)fd_write_full(STDOUT_FILENO, *size > 0 ? "... " : "> ", *size > 0 ? 4 : 2);
    got = getline(&line, &room, stdin);
    if (got < 0)
        return false;
    joined = realloc(*text, *size + (size_t)got + 1);
    if (joined == NULL)
        return false;
    memcpy(joined + *size, line, (size_t)got + 1);
    *text = joined;
    *size += (size_t)got;
    return true;
}

/* Each line is a run of one context. An empty line ends a text that is not whole. */
static int lines_run(struct kernel_context *context, const struct kernel_manifest *manifest,
                     enum kernel_language language, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t size = 0;

    while (line_add(&text, &size)) {
        const struct kernel_source source = {.text = text, .size = size, .language = language};
        bool is_blank_end = size > 1 && text[size - 2] == '\n';

        if (run_to_end(context, manifest, &source, err) < 0)
            return -1;
        if (!is_blank_end && is_unfinished(kernel_result(context), text))
            continue;
        (void)result_print(kernel_result(context));
        if (kernel_result(context)->state_lost)
            cmd_say("what was declared before is gone: the engine had to be left by force");
        size = 0;
    }
    (void)fd_write_full(STDOUT_FILENO, "\n", 1);
    return 0;
}

static int js_start(const struct js_options *options, const struct kernel_source *source,
                    struct error *err)
{
    const struct kernel_grants grants = {
        .hosts = options->hosts.text,
        .read_paths = options->reads.text,
        .write_paths = options->writes.text,
        .env = options->env.text,
        .argv = options->argv.text,
        .cpu_ms = (uint32_t)options->cpu_ms,
        .wall_ms = (uint32_t)options->wall_ms,
        .memory_bytes = options->memory_bytes,
    };
    _cleanup_(kernel_manifest_freep) struct kernel_manifest *manifest = NULL;
    _cleanup_(kernel_image_freep) struct kernel_image *image = NULL;
    _cleanup_(kernel_context_freep) struct kernel_context *context = NULL;
    const struct kernel_result *result;

    if (kernel_manifest_new(&grants, &manifest, err) < 0 || kernel_image_js(&image, err) < 0 ||
        kernel_context_new(image, manifest, NULL, &context, err) < 0)
        return -1;
    if (source->text == NULL)
        return lines_run(context, manifest, source->language, err);
    if (run_to_end(context, manifest, source, err) < 0)
        return -1;
    result = kernel_result(context);
    return options->common.json ? js_json_print(result, exit_status(result)) : result_print(result);
}

int js_run(const struct cmd *cmd, int argc, char **argv)
{
    struct js_options options = {0};
    struct kernel_source source = {0};
    struct options_common *common = &options.common;
    struct option_words words;
    _cleanup_free_ char *text = NULL;
    char *const *rest;
    struct error err;
    int status;

    if (!options_begin(cmd->table, &options, argc, argv, &words, &status))
        return status;
    rest = words.rest;
    if (options.code != NULL) {
        source = (struct kernel_source){.text = options.code, .size = strlen(options.code)};
    } else if (rest[0] != NULL) {
        source.filename = strcmp(rest[0], "-") == 0 ? NULL : rest[0];
        text = source_read(rest[0], &source.size, &err);
        source.text = text;
        rest++;
        if (text == NULL)
            return cmd_fail(&err);
    } else if (!isatty(STDIN_FILENO) || common->json) {
        cmd_say("say what to run: cove js FILE, cove js - for standard input, or cove js -e CODE");
        return CMD_FAILED;
    }
    for (; *rest != NULL; rest++)
        if (js_list_add(&options.argv, "argument", *rest, &err) < 0)
            return cmd_fail(&err);
    source.language = options.typescript ||
                              (source.filename != NULL && (ends_with(source.filename, ".ts") ||
                                                           ends_with(source.filename, ".mts")))
                          ? KERNEL_TS
                          : KERNEL_JS;
    source.module = options.module ||
                    (source.filename != NULL &&
                     (ends_with(source.filename, ".mjs") || ends_with(source.filename, ".mts")));
    status = js_start(&options, &source, &err);
    return status < 0 ? cmd_fail(&err) : status;
}
