/* What JavaScript is told, on its own thread: results, calls of the host, and that an answer is not wanted any more. What
 * lies there is told in batches, for a wake-up costs more than a result. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

#define BATCHES_MAX 4 /* in one turn of Node's loop: what awaits them has its turn, too */

static napi_value of_text(napi_env env, struct kernel_text text)
{
    napi_value value = NULL, thrown;

    /* There is no string of this size: half a gigabyte. */
    if (napi_create_string_utf8(env, text.data, text.size, &value) != napi_ok) {
        (void)napi_get_and_clear_last_exception(env, &thrown);
        (void)napi_get_undefined(env, &value);
    }
    return value;
}

static napi_value of_number(napi_env env, double number)
{
    napi_value value = NULL;

    (void)napi_create_double(env, number, &value);
    return value;
}

static void put(napi_env env, napi_value object, const char *name, napi_value value)
{
    if (value != NULL)
        (void)napi_set_named_property(env, object, name, value);
}

static napi_value of_logs(napi_env env, const struct kernel_result *result)
{
    static const char *const levels[] = {"log", "info", "warn", "error", "debug"};
    napi_value list = NULL;

    (void)napi_create_array_with_length(env, result->logs_count, &list);
    for (size_t i = 0; list != NULL && i < result->logs_count; i++) {
        const char *level = levels[result->logs[i].level];
        napi_value log = NULL;

        if (napi_create_object(env, &log) != napi_ok)
            break;
        put(env, log, "level", of_text(env, (struct kernel_text){level, strlen(level)}));
        put(env, log, "text", of_text(env, result->logs[i].text));
        (void)napi_set_element(env, list, (uint32_t)i, log);
    }
    return list;
}

static napi_value of_error(napi_env env, const struct kernel_result *result)
{
    const char *kind = kernel_end_name(result->end);
    napi_value error = NULL;

    if (napi_create_object(env, &error) != napi_ok)
        return NULL;
    put(env, error, "kind", of_text(env, (struct kernel_text){kind, strlen(kind)}));
    put(env, error, "name", of_text(env, result->name));
    put(env, error, "message", of_text(env, result->message));
    put(env, error, "stack", of_text(env, result->stack));
    if (result->line != 0)
        put(env, error, "line", of_number(env, result->line));
    if (result->column != 0)
        put(env, error, "column", of_number(env, result->column));
    if (result->code.size > 0)
        put(env, error, "code", of_text(env, result->code));
    return error;
}

/* What most results do not have. */
static napi_value of_more(napi_env env, const struct kernel_result *result)
{
    napi_value more = NULL;

    if (result->logs_count == 0 && result->logs_dropped == 0 && result->errors.size == 0 &&
        result->end == KERNEL_END_VALUE && !result->has_value_error && result->exit_code == 0)
        (void)napi_get_undefined(env, &more);
    else if (napi_create_object(env, &more) == napi_ok) {
        put(env, more, "logs", of_logs(env, result));
        put(env, more, "logsDropped", of_number(env, result->logs_dropped));
        put(env, more, "stderr", of_text(env, result->errors));
        put(env, more, "exitCode", of_number(env, result->exit_code));
        if (result->has_value_error)
            put(env, more, "valueError", of_text(env, result->value_error));
        if (result->end != KERNEL_END_VALUE)
            put(env, more, "error", of_error(env, result));
    }
    return more;
}

static void call_back(struct instance *instance, napi_ref function, size_t count,
                      const napi_value *arguments)
{
    napi_value callback, nothing, thrown;
    bool is_pending = false;

    if (napi_get_reference_value(instance->env, function, &callback) != napi_ok ||
        napi_get_undefined(instance->env, &nothing) != napi_ok)
        return;
    (void)napi_call_function(instance->env, nothing, callback, count, arguments, NULL);
    /* lib's functions throw nothing; if one does, it is not hidden. */
    if (napi_is_exception_pending(instance->env, &is_pending) == napi_ok && is_pending &&
        napi_get_and_clear_last_exception(instance->env, &thrown) == napi_ok)
        (void)napi_fatal_exception(instance->env, thrown);
}

/* onDone(ticket, undefined, bytes) or (ticket, code, message), of what is no run. */
static void tell_other(struct instance *instance, struct job *job)
{
    napi_env env = instance->env;
    napi_value arguments[3];
    napi_value buffer;
    void *copy;

    arguments[0] = of_number(env, job->event.ticket);
    (void)napi_get_undefined(env, &arguments[1]);
    (void)napi_get_undefined(env, &arguments[2]);
    if (job->failed) {
        arguments[1] = of_text(env, (struct kernel_text){job->err.code, strlen(job->err.code)});
        arguments[2] = of_text(env, (struct kernel_text){job->err.text, strlen(job->err.text)});
    } else if (job->kind == JOB_SNAPSHOT) {
        /* Memory that is not Node's cannot be lent in every build of it. */
        if (napi_create_arraybuffer(env, job->size, &copy, &buffer) == napi_ok) {
            memcpy(copy, job->bytes, job->size);
            (void)napi_create_typedarray(env, napi_uint8_array, job->size, buffer, 0,
                                         &arguments[2]);
        }
    }
    call_back(instance, instance->on_done, 3, arguments);
}

/* onDone(ticket, end, flags, output, type, value, cpuMs, wallMs, memoryBytes, more) */
static void tell_run(struct instance *instance, struct job *job)
{
    const struct kernel_result *result = &job->outcome->result;
    napi_env env = instance->env;
    napi_value arguments[10];

    arguments[0] = of_number(env, job->event.ticket);
    arguments[1] = of_number(env, result->end);
    arguments[2] = of_number(env, (result->is_final ? 1 : 0) + (result->state_lost ? 2 : 0));
    arguments[3] = of_text(env, result->output);
    arguments[4] = of_text(env, result->type);
    if (result->has_value)
        arguments[5] = of_text(env, result->value);
    else
        (void)napi_get_undefined(env, &arguments[5]);
    arguments[6] = of_number(env, (double)result->cpu_ns / 1e6);
    arguments[7] = of_number(env, (double)result->wall_ns / 1e6);
    arguments[8] = of_number(env, (double)result->memory_bytes);
    arguments[9] = of_more(env, result);
    call_back(instance, instance->on_done, 10, arguments);
}

/* onCancel(ticket, stream) */
static void tell_cancel(struct instance *instance, const struct cancel *cancel)
{
    napi_value arguments[2] = {of_number(instance->env, cancel->event.ticket),
                               of_number(instance->env, cancel->stream)};

    call_back(instance, instance->on_cancel, 2, arguments);
}

/* onCall(ticket, call, op, json, bytes) */
static void tell_call(struct instance *instance, const struct call *call)
{
    napi_env env = instance->env;
    napi_value arguments[5];

    arguments[0] = of_number(env, call->event.ticket);
    arguments[1] = of_number(env, call->id);
    arguments[2] = of_text(env, call->op);
    arguments[3] = of_text(env, call->meta);
    if (call->bytes == NULL || call->bytes_size == 0 ||
        napi_create_buffer_copy(env, call->bytes_size, call->bytes, NULL, &arguments[4]) != napi_ok)
        (void)napi_get_undefined(env, &arguments[4]);
    call_back(instance, instance->on_call, 5, arguments);
}

static void event_tell(struct instance *instance, struct event *event)
{
    struct job *job = (struct job *)event;
    napi_handle_scope scope;

    if (napi_open_handle_scope(instance->env, &scope) != napi_ok)
        return;
    if (event->kind == EVENT_CANCEL)
        tell_cancel(instance, (struct cancel *)event);
    else if (event->kind == EVENT_CALL)
        tell_call(instance, (struct call *)event);
    else if (job->kind == JOB_RUN && !job->failed)
        tell_run(instance, job);
    else
        tell_other(instance, job);
    (void)napi_close_handle_scope(instance->env, scope);
}

static void pending_remove(struct instance *instance)
{
    if (--instance->pending == 0)
        (void)napi_unref_threadsafe_function(instance->env, instance->wake);
}

/* On JavaScript's thread, once for all that lies there. */
void tell_all(napi_env env, napi_value callback, void *context, void *data)
{
    struct instance *instance = context;
    struct event *event;

    (void)callback;
    (void)data;
    for (int i = 0; env != NULL && !instance->gone; i++) {
        if (i == BATCHES_MAX) {
            (void)napi_call_threadsafe_function(instance->wake, NULL, napi_tsfn_nonblocking);
            return;
        }
        event = instance_take(instance);
        if (event == NULL)
            return;
        while (event != NULL) {
            struct event *next = event->next;

            if (!instance->gone)
                event_tell(instance, event);
            if (event->kind == EVENT_DONE && !instance->gone)
                pending_remove(instance);
            event_free(event);
            event = next;
        }
    }
}
