/* Most runs compute something, and say a number or a text. They need nothing of the prelude but that its state
 * (share.pulse) is that of a run; what the prelude would run to find that out changes more pages of the
 * memory than they do, which is most of what a pristine context costs. Whatever is not as plain as that goes
 * to the prelude, in the state in which it would be there. */
#include "kernel/js/plain.h"

#include <string.h>

/* Of share.pulse: what a run begins with. */
enum field {
    NUMBER,
    DONE,
    IS_TOUCHED,
    IS_FINAL,
    HAS_LISTENERS,
    IS_SETTLED,
    IS_FAILED,
    IS_EXITED,
    VALUE,
    ERROR,
    PROMISE,
    EXIT_CODE,
    FIELDS
};
static const char *const field_names[] = {
    [NUMBER] = "number",
    [DONE] = "done",
    [IS_TOUCHED] = "isTouched",
    [IS_FINAL] = "isFinal",
    [HAS_LISTENERS] = "hasListeners",
    [IS_SETTLED] = "isSettled",
    [IS_FAILED] = "isFailed",
    [IS_EXITED] = "isExited",
    [VALUE] = "value",
    [ERROR] = "error",
    [PROMISE] = "promise",
    [EXIT_CODE] = "exitCode",
};

static JSAtom atoms[FIELDS];
static JSValue share = JS_UNDEFINED, pulse = JS_UNDEFINED;
static bool is_plain; /* the last run was: its fields are as a run begins with them */

void plain_open(JSContext *context, JSValueConst of)
{
    share = JS_DupValue(context, of);
    pulse = JS_GetPropertyStr(context, share, "pulse");
    for (int i = 0; i < FIELDS; i++)
        atoms[i] = JS_NewAtom(context, field_names[i]);
}

static bool is_set(JSContext *context, enum field field)
{
    JSValue value = JS_GetProperty(context, pulse, atoms[field]);
    int is = JS_ToBool(context, value);

    JS_FreeValue(context, value);
    return is != 0;
}

static void set(JSContext *context, enum field field, JSValue value)
{
    (void)JS_SetProperty(context, pulse, atoms[field], value);
}

bool plain_begin(JSContext *context)
{
    JSValue number;
    int32_t last = 0;

    if (!JS_IsObject(pulse) || is_set(context, IS_TOUCHED) || is_set(context, IS_FINAL) ||
        is_set(context, HAS_LISTENERS))
        return is_plain = false;
    if (!is_plain) {
        for (enum field field = IS_SETTLED; field <= IS_EXITED; field++)
            set(context, field, JS_FALSE);
        for (enum field field = VALUE; field <= PROMISE; field++)
            set(context, field, JS_UNDEFINED);
        set(context, EXIT_CODE, JS_NewInt32(context, 0));
    }
    number = JS_GetProperty(context, pulse, atoms[NUMBER]);
    (void)JS_ToInt32(context, &last, number);
    JS_FreeValue(context, number);
    set(context, NUMBER, JS_NewInt32(context, last + 1));
    set(context, DONE, JS_FALSE);
    is_plain = false;
    return true;
}

JSValue plain_evaluate(JSContext *context, const char *source, size_t size, const char *filename)
{
    int flags = JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_BACKTRACE_BARRIER;

    /* With it, in a text or a comment too, the value is a promise, which does no harm. */
    if (strstr(source, "await") != NULL)
        flags |= JS_EVAL_FLAG_ASYNC;
    return JS_Eval(context, source, size, filename, flags);
}

const char *plain_type(JSContext *context, JSValueConst value)
{
    const char *type = JS_IsNumber(value)      ? "number"
                       : JS_IsString(value)    ? "string"
                       : JS_IsBool(value)      ? "boolean"
                       : JS_IsUndefined(value) ? "undefined"
                       : JS_IsNull(value)      ? "null"
                                               : NULL;

    if (type == NULL || JS_IsJobPending(JS_GetRuntime(context)) || is_set(context, IS_TOUCHED) ||
        is_set(context, IS_FINAL) || is_set(context, HAS_LISTENERS))
        return NULL;
    return type;
}

void plain_end(JSContext *context)
{
    set(context, DONE, JS_TRUE);
    is_plain = true;
}

JSValue plain_hand_on(JSContext *context, JSValue value, const char *source, size_t size,
                      const char *filename)
{
    bool threw = JS_IsException(value);
    JSValue parts[3] = {JS_NewString(context, filename), threw ? JS_GetException(context) : value,
                        threw ? JS_NewStringLen(context, source, size) : JS_UNDEFINED};
    JSValue function = JS_UNDEFINED, said = JS_EXCEPTION;

    if (threw && JS_IsUncatchableError(parts[1])) {
        (void)JS_Throw(context, JS_DupValue(context, parts[1]));
    } else if (!JS_IsException(parts[0]) && !JS_IsException(parts[2])) {
        function = JS_GetPropertyStr(context, share, threw ? "threw" : "took");
        said = JS_Call(context, function, JS_UNDEFINED, 3, parts);
    }
    JS_FreeValue(context, function);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        JS_FreeValue(context, parts[i]);
    return said;
}
