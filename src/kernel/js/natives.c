// The object `native` of the prelude, first part: clocks, randomness, what a value truly is, and
// evaluation of scripts and modules. It asks the engine and not the script, because user code can
// replace every builtin. It must never run script except where its name says so.
#include "natives.h"

#include "typescript.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ENTRY(name, length, function) JS_CFUNC_DEF(name, length, function)
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

// What the prelude registers with set_hooks.
enum { HOOK_RESOLVE, HOOK_LOAD, HOOK_REJECTION, HOOKS };
static JSValue hooks[HOOKS];
static uint64_t random_state[2];
static int is_seeded;

static double milliseconds(clockid_t clock)
{
    struct timespec now = {0};

    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1000.0 + (double)now.tv_nsec / 1e6;
}

static JSValue native_now(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    (void)self, (void)argc, (void)argv;
    return JS_NewFloat64(ctx, milliseconds(CLOCK_REALTIME));
}

static JSValue native_monotonic(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    (void)self, (void)argc, (void)argv;
    return JS_NewFloat64(ctx, milliseconds(CLOCK_MONOTONIC));
}

void natives_reseed(void)
{
    is_seeded = 0;
}

// xorshift128+ over a seed that the host gives: the engine's own generator would start from the
// same state in every copy of an image.
static JSValue native_random(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    uint64_t a, b;

    (void)self, (void)argc, (void)argv;
    if (!is_seeded) {
        natives_entropy((uint8_t *)random_state, sizeof(random_state));
        random_state[0] |= 1; // all zeroes is the one seed that it cannot leave
        is_seeded = 1;
    }
    a = random_state[0];
    b = random_state[1];
    random_state[0] = b;
    a ^= a << 23;
    random_state[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
    return JS_NewFloat64(ctx, (double)((random_state[1] + b) >> 11) / 9007199254740992.0);
}

// promise_state(value) → [state, value]; state is -1 where it is no promise.
static JSValue native_promise_state(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    JSPromiseStateEnum state = JS_PromiseState(ctx, argv[0]);
    JSValue parts[2];

    (void)self, (void)argc;
    parts[0] = JS_NewInt32(ctx, state);
    parts[1] = state == JS_PROMISE_FULFILLED || state == JS_PROMISE_REJECTED
                   ? JS_PromiseResult(ctx, argv[0])
                   : JS_UNDEFINED;
    return JS_NewArrayFrom(ctx, 2, parts);
}

static JSValue native_is_promise(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    (void)self, (void)argc;
    return JS_NewBool(ctx, JS_IsPromise(argv[0]));
}

// proxy_parts(value) → [target, handler], or undefined where it is no proxy.
static JSValue native_proxy_parts(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    JSValue parts[2];

    (void)self, (void)argc;
    if (!JS_IsProxy(argv[0])) {
        return JS_UNDEFINED;
    }
    parts[0] = JS_GetProxyTarget(ctx, argv[0]);
    parts[1] = JS_GetProxyHandler(ctx, argv[0]);
    if (JS_IsException(parts[0]) || JS_IsException(parts[1])) { // a revoked one
        JS_FreeValue(ctx, JS_GetException(ctx));
        JS_FreeValue(ctx, parts[0]);
        JS_FreeValue(ctx, parts[1]);
        parts[0] = JS_NULL;
        parts[1] = JS_NULL;
    }
    return JS_NewArrayFrom(ctx, 2, parts);
}

// own_kind(value) → the engine's name of its class (Map, Date, Uint8Array, Proxy...), or "" for what
// is no object.
static JSValue native_own_kind(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    JSAtom name;
    JSValue text;

    (void)self, (void)argc;
    if (!JS_IsObject(argv[0])) {
        return JS_NewString(ctx, "");
    }
    if (JS_IsProxy(argv[0])) {
        return JS_NewString(ctx, "Proxy"); // the engine calls it Object
    }
    name = JS_GetClassName(JS_GetRuntime(ctx), JS_GetClassID(argv[0]));
    if (name == JS_ATOM_NULL) {
        return JS_NewString(ctx, "Object");
    }
    text = JS_AtomToString(ctx, name);
    JS_FreeAtom(ctx, name);
    return text;
}

// function_source_kind(f) → "class" or "function": whether it was written as a class.
static JSValue native_function_source_kind(JSContext *ctx, JSValueConst self, int argc,
                                           JSValueConst *argv)
{
    (void)self, (void)argc;
    // The engine has no call that tells; the prelude reads the captured toString. What it cannot
    // read is whether the thing can be constructed at all.
    return JS_NewBool(ctx, JS_IsConstructor(ctx, argv[0]));
}

static JSValue call_uncurried(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv,
                              int magic, JSValueConst *data)
{
    (void)self, (void)magic;
    if (argc < 1) {
        return JS_Call(ctx, data[0], JS_UNDEFINED, 0, NULL);
    }
    return JS_Call(ctx, data[0], argv[0], argc - 1, argv + 1);
}

// uncurry(method) → a function that takes `this` as its first argument.
static JSValue native_uncurry(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    (void)self, (void)argc;
    return JS_NewCFunctionData(ctx, call_uncurried, 1, 0, 1, argv);
}

// stop(): ends the run here and now; no catch and no finally of user code sees it.
static JSValue native_stop(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    JSValue reason = JS_NewError(ctx);

    (void)self, (void)argc, (void)argv;
    if (JS_IsException(reason)) {
        return reason;
    }
    JS_SetUncatchableError(ctx, reason);
    return JS_Throw(ctx, reason);
}

// evaluate(source, filename, flags) → the value of the script's last expression, or a promise for
// it with flag 1, or with flag 8 where the script has the word `await`. Flag 2 hides the frames of
// whoever calls. Flag 4 only compiles, to tell a syntax error.
static JSValue native_evaluate(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    size_t length = 0;
    int32_t wanted = 0;
    const char *source, *filename;
    int flags = JS_EVAL_TYPE_GLOBAL;
    JSValue result = JS_EXCEPTION;

    (void)self, (void)argc;
    if (JS_ToInt32(ctx, &wanted, argv[2]) < 0) {
        return JS_EXCEPTION;
    }
    flags |= (wanted & 2) ? JS_EVAL_FLAG_BACKTRACE_BARRIER : 0;
    flags |= (wanted & 4) ? JS_EVAL_FLAG_COMPILE_ONLY : 0;
    source = JS_ToCStringLen(ctx, &length, argv[0]);
    filename = JS_ToCString(ctx, argv[1]);
    if (source && filename) {
        if ((wanted & 1) || ((wanted & 8) && strstr(source, "await"))) {
            flags |= JS_EVAL_FLAG_ASYNC;
        }
        result = JS_Eval(ctx, source, length, filename, flags);
    }
    if ((wanted & 4) && !JS_IsException(result)) {
        JS_FreeValue(ctx, result);
        result = JS_UNDEFINED;
    }
    JS_FreeCString(ctx, filename);
    JS_FreeCString(ctx, source);
    return result;
}

static JSValue set_meta(JSContext *ctx, JSModuleDef *module, JSValueConst meta)
{
    static const char *const names[] = {"url", "filename", "dirname", "resolve", "main"};
    JSValue target = JS_GetImportMeta(ctx, module);

    if (JS_IsException(target)) {
        return target;
    }
    for (int i = 0; i < COUNT(names) && JS_IsObject(meta); i++) {
        JSValue value = JS_GetPropertyStr(ctx, meta, names[i]);
        if (JS_IsException(value) ||
            (!JS_IsUndefined(value) &&
             JS_DefinePropertyValueStr(ctx, target, names[i], value, JS_PROP_C_W_E) < 0)) {
            JS_FreeValue(ctx, target);
            return JS_EXCEPTION;
        }
    }
    JS_FreeValue(ctx, target);
    return JS_UNDEFINED;
}

static JSValue compile_module(JSContext *ctx, JSValueConst source, const char *name,
                              JSValueConst meta)
{
    size_t length = 0;
    const char *text = JS_ToCStringLen(ctx, &length, source);
    JSValue module;

    if (!text) {
        return JS_EXCEPTION;
    }
    module = JS_Eval(ctx, text, length, name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    JS_FreeCString(ctx, text);
    if (!JS_IsException(module)) {
        JSValue done = set_meta(ctx, JS_VALUE_GET_PTR(module), meta);
        if (JS_IsException(done)) {
            JS_FreeValue(ctx, module);
            return done;
        }
    }
    return module;
}

// evaluate_module(source, filename, meta) → a promise of its end.
static JSValue native_evaluate_module(JSContext *ctx, JSValueConst self, int argc,
                                      JSValueConst *argv)
{
    const char *name = JS_ToCString(ctx, argv[1]);
    JSValue module = JS_EXCEPTION;

    (void)self, (void)argc;
    if (name) {
        module = compile_module(ctx, argv[0], name, argv[2]);
    }
    JS_FreeCString(ctx, name);
    if (JS_IsException(module)) {
        return module;
    }
    return JS_EvalFunction(ctx, module);
}

// erase_types(source, filename) → JavaScript.
static JSValue native_erase_types(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    struct typescript_output out;
    const char *source;
    JSValue value;
    size_t size;

    if (argc < 1 || (source = JS_ToCStringLen(ctx, &size, argv[0])) == NULL)
        return JS_EXCEPTION;
    if (typescript_erase(source, size, &out) == 0) {
        value = JS_NewStringLen(ctx, out.text, out.length);
    } else {
        const char *filename = argc > 1 ? JS_ToCString(ctx, argv[1]) : NULL;
        char place[512];
        JSValue error = JS_NewSyntaxError(ctx, "%s", out.message);

        (void)snprintf(place, sizeof(place), "SyntaxError: %s\n    at %s:%u:%u", out.message,
                       filename != NULL ? filename : "<run>", out.line, out.column);
        (void)JS_DefinePropertyValueStr(ctx, error, "stack", JS_NewString(ctx, place),
                                        JS_PROP_C_W_E & ~JS_PROP_ENUMERABLE);
        JS_FreeCString(ctx, filename);
        value = JS_Throw(ctx, error);
    }
    typescript_output_clear(&out);
    JS_FreeCString(ctx, source);
    return value;
}

// The exports of a module that is no source: names and values that the prelude gave.
static int fill_exports(JSContext *ctx, JSModuleDef *module)
{
    JSValue parts = JS_GetModulePrivateValue(ctx, module);
    JSValue names = JS_GetPropertyUint32(ctx, parts, 0);
    JSValue values = JS_GetPropertyUint32(ctx, parts, 1);
    int64_t count = 0;
    int result = JS_GetLength(ctx, names, &count);

    for (uint32_t i = 0; result == 0 && i < (uint32_t)count; i++) {
        JSValue name = JS_GetPropertyUint32(ctx, names, i);
        const char *text = JS_ToCString(ctx, name);
        result = text ? JS_SetModuleExport(ctx, module, text, JS_GetPropertyUint32(ctx, values, i))
                      : -1;
        JS_FreeCString(ctx, text);
        JS_FreeValue(ctx, name);
    }
    JS_FreeValue(ctx, values);
    JS_FreeValue(ctx, names);
    JS_FreeValue(ctx, parts);
    return result;
}

static JSModuleDef *module_of_values(JSContext *ctx, const char *name, JSValueConst names,
                                     JSValueConst values)
{
    JSModuleDef *module = JS_NewCModule(ctx, name, fill_exports);
    JSValue parts[2] = {JS_DupValue(ctx, names), JS_DupValue(ctx, values)};
    int64_t count = 0;

    if (!module || JS_GetLength(ctx, names, &count) < 0) {
        JS_FreeValue(ctx, parts[0]);
        JS_FreeValue(ctx, parts[1]);
        return NULL;
    }
    if (JS_SetModulePrivateValue(ctx, module, JS_NewArrayFrom(ctx, 2, parts)) < 0) {
        return NULL;
    }
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        JSValue value = JS_GetPropertyUint32(ctx, names, i);
        const char *text = JS_ToCString(ctx, value);
        int result = text ? JS_AddModuleExport(ctx, module, text) : -1;
        JS_FreeCString(ctx, text);
        JS_FreeValue(ctx, value);
        if (result < 0) {
            return NULL;
        }
    }
    return module;
}

static char *module_normalize(JSContext *ctx, const char *base, const char *name, void *unused)
{
    JSValue arguments[2] = {JS_NewString(ctx, name), JS_NewString(ctx, base)};
    JSValue result = JS_Call(ctx, hooks[HOOK_RESOLVE], JS_UNDEFINED, 2, arguments);
    const char *text = JS_IsException(result) ? NULL : JS_ToCString(ctx, result);
    char *copy = text ? js_strdup(ctx, text) : NULL;

    (void)unused;
    JS_FreeCString(ctx, text);
    JS_FreeValue(ctx, result);
    JS_FreeValue(ctx, arguments[0]);
    JS_FreeValue(ctx, arguments[1]);
    return copy;
}

// The hook answers {source, meta} or {names, values}.
static JSModuleDef *module_load(JSContext *ctx, const char *name, void *unused,
                                JSValueConst attributes)
{
    JSValue arguments[2] = {JS_NewString(ctx, name), JS_DupValue(ctx, attributes)};
    JSValue found = JS_Call(ctx, hooks[HOOK_LOAD], JS_UNDEFINED, 2, arguments);
    JSModuleDef *module = NULL;

    (void)unused;
    if (!JS_IsException(found)) {
        JSValue source = JS_GetPropertyStr(ctx, found, "source");
        if (JS_IsString(source)) {
            JSValue meta = JS_GetPropertyStr(ctx, found, "meta");
            JSValue compiled = compile_module(ctx, source, name, meta);
            if (!JS_IsException(compiled)) {
                module = JS_VALUE_GET_PTR(compiled);
                JS_FreeValue(ctx, compiled); // the runtime's list keeps it
            }
            JS_FreeValue(ctx, meta);
        } else {
            JSValue names = JS_GetPropertyStr(ctx, found, "names");
            JSValue values = JS_GetPropertyStr(ctx, found, "values");
            module = module_of_values(ctx, name, names, values);
            JS_FreeValue(ctx, values);
            JS_FreeValue(ctx, names);
        }
        JS_FreeValue(ctx, source);
    }
    JS_FreeValue(ctx, found);
    JS_FreeValue(ctx, arguments[0]);
    JS_FreeValue(ctx, arguments[1]);
    return module;
}

static void rejection_seen(JSContext *ctx, JSValueConst promise, JSValueConst reason,
                           bool is_handled, void *unused)
{
    JSValueConst arguments[3] = {promise, reason, is_handled ? JS_TRUE : JS_FALSE};

    (void)unused;
    if (JS_IsFunction(ctx, hooks[HOOK_REJECTION])) {
        JSValue pending = JS_GetException(ctx); // this is called in the midst of a throw
        JS_FreeValue(ctx, JS_Call(ctx, hooks[HOOK_REJECTION], JS_UNDEFINED, 3, arguments));
        JS_FreeValue(ctx, JS_GetException(ctx));
        if (!JS_IsUninitialized(pending)) {
            JS_Throw(ctx, pending);
        }
    }
}

// set_hooks(resolve, load, rejection), once, when the image is built.
static JSValue native_set_hooks(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    (void)self;
    for (int i = 0; i < HOOKS && i < argc; i++) {
        JS_FreeValue(ctx, hooks[i]);
        hooks[i] = JS_DupValue(ctx, argv[i]);
    }
    return JS_UNDEFINED;
}

// memory() → [bytes in use, bytes that the heap holds].
static JSValue native_memory(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    JSMemoryUsage usage;
    JSValue parts[2];

    (void)self, (void)argc, (void)argv;
    JS_ComputeMemoryUsage(JS_GetRuntime(ctx), &usage);
    parts[0] = JS_NewInt64(ctx, usage.memory_used_size);
    parts[1] = JS_NewInt64(ctx, usage.malloc_size);
    return JS_NewArrayFrom(ctx, 2, parts);
}

static const JSCFunctionListEntry entries[] = {
    ENTRY("now", 0, native_now),
    ENTRY("monotonic", 0, native_monotonic),
    ENTRY("random", 0, native_random),
    ENTRY("promise_state", 1, native_promise_state),
    ENTRY("is_promise", 1, native_is_promise),
    ENTRY("proxy_parts", 1, native_proxy_parts),
    ENTRY("own_kind", 1, native_own_kind),
    ENTRY("function_source_kind", 1, native_function_source_kind),
    ENTRY("uncurry", 1, native_uncurry),
    ENTRY("stop", 0, native_stop),
    ENTRY("erase_types", 2, native_erase_types),
    ENTRY("evaluate", 3, native_evaluate),
    ENTRY("evaluate_module", 3, native_evaluate_module),
    ENTRY("set_hooks", 3, native_set_hooks),
    ENTRY("memory", 0, native_memory),
};

// Names that every run uses. Made first, so that they lie side by side: each use of one writes to its
// count of references, and every page that a run writes to has to be put back after it.
static const char hot_names[] =
    "run step result configure settle language filename module js ts output type "
    "value_json value_error stderr error is_final_answer exit_code logs level text meta "
    "bytes string number boolean object function undefined symbol bigint null value done "
    "isTouched isSettled isFailed isExited exitCode promise hasListeners run.js <run> "
    "hostError name message stack line column code evaluate _eval_ _ret_ ";

static void names_keep(JSContext *ctx)
{
    for (const char *at = hot_names; *at; at += strcspn(at, " ") + 1) {
        (void)JS_NewAtomLen(ctx, at, strcspn(at, " ")); // kept for good
    }
}

JSValue natives_new(JSContext *ctx)
{
    JSRuntime *runtime = JS_GetRuntime(ctx);
    JSValue object;

    names_keep(ctx);
    object = JS_NewObjectProto(ctx, JS_NULL);

    if (JS_IsException(object)) {
        return object;
    }
    for (int i = 0; i < HOOKS; i++) {
        hooks[i] = JS_UNDEFINED;
    }
    if (JS_SetPropertyFunctionList(ctx, object, entries, COUNT(entries)) < 0 ||
        natives_add_bytes(ctx, object) < 0 || natives_add_digests(ctx, object) < 0) {
        JS_FreeValue(ctx, object);
        return JS_EXCEPTION;
    }
    JS_SetModuleLoaderFunc2(runtime, module_normalize, module_load, NULL, NULL);
    JS_SetHostPromiseRejectionTracker(runtime, rejection_seen, NULL);
    return object;
}
