/* The result of `cove run --json`: one object on one line. With doctor_print.c the
 * only file of the command line that knows jansson.
 *
 * What a command printed is not always text. `stdout` and `stderr` always are: bytes that are no
 * UTF-8 become U+FFFD there, and the bytes themselves are then beside it in base64. */
#include "base/base64.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/run.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

const char *run_signal_name(int number, char *buffer, size_t size)
{
    const char *name = sigabbrev_np(number);

    if (name != NULL)
        (void)snprintf(buffer, size, "SIG%s", name);
    else
        (void)snprintf(buffer, size, "SIG%d", number);
    return buffer;
}

static size_t utf8_bad_count(const unsigned char *text, size_t size)
{
    size_t count = 0;

    for (size_t at = 0; at < size;) {
        size_t bad;
        size_t length = utf8_length(text + at, size - at, &bad);

        count += length == 0;
        at += length == 0 ? bad : length;
    }
    return count;
}

/* A JSON string of bytes that are mostly text; `*replaced` says whether some were none. */
static json_t *text_json(const char *bytes, size_t size, bool *replaced)
{
    static const char replacement[3] = {'\xEF', '\xBF', '\xBD'};
    const unsigned char *text = (const unsigned char *)bytes;
    size_t bad_count = utf8_bad_count(text, size);
    json_t *string;
    size_t used = 0;
    char *clean;

    *replaced = bad_count > 0;
    if (size == 0)
        return json_string("");
    if (bad_count == 0)
        return json_stringn_nocheck(bytes, size);
    clean = malloc(size + bad_count * sizeof(replacement));
    if (clean == NULL)
        return NULL;
    for (size_t at = 0; at < size;) {
        size_t bad;
        size_t length = utf8_length(text + at, size - at, &bad);

        if (length == 0) {
            memcpy(clean + used, replacement, sizeof(replacement));
            used += sizeof(replacement);
            at += bad;
            continue;
        }
        memcpy(clean + used, bytes + at, length);
        used += length;
        at += length;
    }
    string = json_stringn_nocheck(clean, used);
    free(clean);
    return string;
}

static json_t *base64_json(const char *bytes, size_t size)
{
    size_t length = BASE64_SIZE(size);
    char *out = malloc(length + 1);
    json_t *string;

    if (out == NULL)
        return NULL;
    base64_encode(bytes, size, out);
    string = json_stringn_nocheck(out, length);
    free(out);
    return string;
}

/* Adds what one stream kept: NAME, NAME_dropped_bytes and, where needed, NAME_base64. */
static int stream_add(json_t *object, const char *name, const struct buf_tail *capture)
{
    char key[32];
    bool replaced;

    if (json_object_set_new(object, name, text_json(capture->data, capture->used, &replaced)) < 0)
        return -1;
    (void)snprintf(key, sizeof(key), "%s_dropped_bytes", name);
    if (json_object_set_new(object, key, json_integer((json_int_t)capture->dropped)) < 0)
        return -1;
    if (!replaced)
        return 0;
    (void)snprintf(key, sizeof(key), "%s_base64", name);
    return json_object_set_new(object, key, base64_json(capture->data, capture->used));
}

static json_t *ms_json(uint64_t ns)
{
    uint64_t us = ns / 1000; /* finer than that is noise */

    return json_real((double)us / 1000.0);
}

static json_t *error_json(const struct error *err)
{
    bool replaced;

    return json_pack("{s:o, s:o}", "code", json_string(err->code), "message",
                     text_json(err->text, strlen(err->text), &replaced));
}

/* Writes the object and lets it go. */
static int object_print(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15));

    json_decref(object);
    return cmd_print_line(text);
}

static json_t *warnings_json(const struct run_result *result)
{
    json_t *list = json_array();
    bool replaced;

    for (size_t i = 0; i < RUN_WARNINGS_MAX && result->warnings[i][0] != '\0'; i++)
        (void)json_array_append_new(
            list, text_json(result->warnings[i], strlen(result->warnings[i]), &replaced));
    return list;
}

static int result_fill(json_t *object, const struct run_result *result,
                       const struct buf_tail capture[2])
{
    const struct box_report *report = &result->report;
    bool signalled = result->ended && WIFSIGNALED(result->status);
    char name[16];
    int failed = 0;

    failed |= json_object_set_new(object, "exit_code",
                                  signalled ? json_null() : json_integer(result->exit_status));
    failed |= json_object_set_new(
        object, "signal",
        signalled ? json_string(run_signal_name(WTERMSIG(result->status), name, sizeof(name)))
                  : json_null());
    failed |= json_object_set_new(object, "timed_out", json_boolean(result->timed_out));
    failed |= json_object_set_new(object, "oom_killed", json_boolean(report->oom_killed));
    failed |= json_object_set_new(object, "pids_exceeded", json_boolean(report->pids_exceeded));
    failed |= json_object_set_new(object, "disk_exceeded", json_boolean(report->disk_exceeded));
    failed |= stream_add(object, "stdout", &capture[0]);
    failed |= stream_add(object, "stderr", &capture[1]);
    failed |= json_object_set_new(object, "wall_ms", ms_json(result->wall_ns));
    failed |= json_object_set_new(object, "cpu_ms",
                                  report->usage_known ? ms_json(report->cpu_ns) : json_null());
    failed |= json_object_set_new(
        object, "peak_memory_bytes",
        report->usage_known ? json_integer((json_int_t)report->peak_memory_bytes) : json_null());
    failed |= json_object_set_new(object, "level", json_string(result->level));
    failed |= json_object_set_new(object, "limits", json_string(result->limits));
    failed |= json_object_set_new(object, "ids", json_string(result->ids));
    failed |= json_object_set_new(object, "disk", json_string(result->disk));
    failed |= json_object_set_new(object, "warnings", warnings_json(result));
    if (result->refused.text[0] != '\0')
        failed |= json_object_set_new(object, "error", error_json(&result->refused));
    return failed;
}

int run_json_result(const struct run_result *result, const struct buf_tail capture[2])
{
    json_t *object = json_object();

    if (object == NULL || result_fill(object, result, capture) != 0) {
        json_decref(object);
        errno = ENOMEM;
        return -1;
    }
    return object_print(object);
}

int cmd_json_error(const struct error *err)
{
    json_t *object = json_pack("{s:o}", "error", error_json(err));

    if (object == NULL) {
        errno = ENOMEM;
        return -1;
    }
    return object_print(object);
}
