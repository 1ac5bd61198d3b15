/* The guest's entry: what the host calls, and what the prelude calls of the host.
 *
 * The prelude is scripts that are each a function of (host, native, share), called once when the image is made:
 *   host.call(op, meta, bytes) -> {meta, bytes}, or throws share.hostError({code, message})
 *   host.begin(op, meta, bytes) -> the number that share.settle(id, ok, meta, bytes) will say
 *   native: natives.h, and print(level, text), which outlasts a run that is cut off
 *   share.run(source, {language, filename, module}), or, where plain.c began the run, share.took(filename, value)
 *   or share.threw(filename, error, source); then share.step() whenever no job is left: STEP_*, or the
 *   milliseconds until a timer; then share.result().
 *
 * All of it runs as WebAssembly, on the side of the user's code: a fault here harms that user's run and
 * nothing else, and nothing here is a wall. What it must do is keep the run's own state sound: after an
 * interrupt the context goes on. */
#include "kernel/guest_shared.h"
#include "kernel/js/engine.h"
#include "kernel/js/heap.h"
#include "kernel/js/natives.h"
#include "kernel/js/plain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name))) name
#define IMPORT(name) __attribute__((import_module("host"), import_name(#name))) host_##name

/* ---- the host's ---- */

/* Both answer 0, or 1 where the answer is an error; `sizes` gets those of the answer's two parts, which
 * take() copies. begin() gives an id in place of an answer, or 0 with the answer of an error. */
int IMPORT(call)(const char *op, size_t op_size, const char *meta, size_t meta_size,
                 const uint8_t *bytes, size_t bytes_size, uint32_t sizes[2]);
uint32_t IMPORT(begin)(const char *op, size_t op_size, const char *meta, size_t meta_size,
                       const uint8_t *bytes, size_t bytes_size, uint32_t sizes[2]);
void IMPORT(take)(char *meta, uint8_t *bytes);

/* What share.step() answers, and else the milliseconds until a timer is due. */
enum { STEP_DONE = -1, STEP_HOST = -2, STEP_AGAIN = -3 };

static struct guest_shared shared;
static JSRuntime *runtime;
static JSContext *context;
static JSValue share, native, host;
static const char *held[9]; /* the texts of the result */
static size_t held_count;
static uint8_t *log_bytes;
static size_t log_room;

/* ---- calls of the host ---- */

/* {meta, bytes} of an answer; the bytes become an array, both blocks are freed. */
static JSValue answer_new(char *meta, uint32_t meta_size, uint8_t *bytes, uint32_t bytes_size)
{
    JSValue answer = JS_NewObjectProto(context, JS_NULL), parsed, array;

    meta[meta_size] = 0;
    parsed = JS_ParseJSON(context, meta, meta_size, "<host>");
    js_free(context, meta);
    array = bytes_size == GUEST_NO_BYTES ? JS_UNDEFINED
                                         : JS_NewUint8ArrayCopy(context, bytes, bytes_size);
    js_free(context, bytes);
    if (JS_IsException(answer) || JS_IsException(parsed) || JS_IsException(array)) {
        JS_FreeValue(context, parsed);
        JS_FreeValue(context, array);
        JS_FreeValue(context, answer);
        return JS_EXCEPTION;
    }
    (void)JS_DefinePropertyValueStr(context, answer, "meta", parsed, JS_PROP_C_W_E);
    (void)JS_DefinePropertyValueStr(context, answer, "bytes", array, JS_PROP_C_W_E);
    return answer;
}

static JSValue share_call(const char *name, int argc, JSValueConst *argv)
{
    JSValue function = JS_GetPropertyStr(context, share, name), value = JS_UNDEFINED;

    if (JS_IsFunction(context, function))
        value = JS_Call(context, function, JS_UNDEFINED, argc, argv);
    JS_FreeValue(context, function);
    return value;
}

/* The answer that the host keeps for take(). */
static JSValue answer_take(const uint32_t sizes[2])
{
    bool has_bytes = sizes[1] != GUEST_NO_BYTES;
    char *meta = js_malloc(context, sizes[0] + 1);
    uint8_t *bytes = has_bytes ? js_malloc(context, sizes[1] + 1) : NULL;

    if (meta == NULL || (has_bytes && bytes == NULL)) {
        js_free(context, meta);
        js_free(context, bytes);
        return JS_EXCEPTION;
    }
    host_take(meta, bytes);
    return answer_new(meta, sizes[0], bytes, sizes[1]);
}

/* Throws what the answer's meta says. */
static JSValue answer_throw(const uint32_t sizes[2])
{
    JSValue answer = answer_take(sizes), meta, error;
    JSValueConst arguments[1];

    if (JS_IsException(answer))
        return JS_EXCEPTION;
    meta = JS_GetPropertyStr(context, answer, "meta");
    arguments[0] = meta;
    error = share_call("hostError", 1, arguments);
    JS_FreeValue(context, meta);
    JS_FreeValue(context, answer);
    return JS_IsException(error) ? JS_EXCEPTION : JS_Throw(context, error);
}

/* The words of a call, from the arguments of JavaScript. */
struct words {
    const char *op, *meta;
    const uint8_t *bytes;
    size_t op_size, meta_size, bytes_size;
};

static void words_free(struct words *words)
{
    JS_FreeCString(context, words->op);
    JS_FreeCString(context, words->meta);
}

static int words_take(struct words *words, int argc, JSValueConst *argv)
{
    JSValue text;

    memset(words, 0, sizeof(*words));
    if (argc < 1)
        return JS_ThrowTypeError(context, "a call of the host needs a name"), -1;
    words->op = JS_ToCStringLen(context, &words->op_size, argv[0]);
    if (words->op == NULL)
        return -1;
    text = argc < 2 || JS_IsUndefined(argv[1])
               ? JS_NewString(context, "null")
               : JS_JSONStringify(context, argv[1], JS_UNDEFINED, JS_UNDEFINED);
    if (JS_IsException(text))
        return -1;
    words->meta = JS_IsUndefined(text) ? NULL : JS_ToCStringLen(context, &words->meta_size, text);
    JS_FreeValue(context, text);
    if (words->meta == NULL)
        return JS_HasException(context)
                   ? -1
                   : (JS_ThrowTypeError(context,
                                        "this cannot be given to the host: it has no JSON"),
                      -1);
    /* Last, for nothing may run between this and its use: a getter could detach it. */
    if (argc > 2 && !JS_IsUndefined(argv[2]) && !JS_IsNull(argv[2])) {
        words->bytes = JS_GetUint8Array(context, &words->bytes_size, argv[2]);
        if (words->bytes == NULL)
            return JS_HasException(context) ? -1 : 0; /* NULL of an empty one is no error */
    }
    return 0;
}

static JSValue host_call_js(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    uint32_t sizes[2] = {0, GUEST_NO_BYTES};
    struct words words;
    int failed;

    if (words_take(&words, argc, argv) < 0) {
        words_free(&words);
        return JS_EXCEPTION;
    }
    failed = host_call(words.op, words.op_size, words.meta, words.meta_size, words.bytes,
                       words.bytes_size, sizes);
    words_free(&words);
    return failed ? answer_throw(sizes) : answer_take(sizes);
}

static JSValue host_begin_js(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    uint32_t sizes[2] = {0, GUEST_NO_BYTES}, id;
    struct words words;

    if (words_take(&words, argc, argv) < 0) {
        words_free(&words);
        return JS_EXCEPTION;
    }
    id = host_begin(words.op, words.op_size, words.meta, words.meta_size, words.bytes,
                    words.bytes_size, sizes);
    words_free(&words);
    return id != 0 ? JS_NewUint32(ctx, id) : answer_throw(sizes);
}

/* Random bytes for natives.c: of the host's entropy, as long as that lasts. */
void natives_entropy(uint8_t *out, size_t size)
{
    static const char op[] = "random";
    char meta[32];
    uint32_t sizes[2] = {0, GUEST_NO_BYTES};

    if (size <= sizeof(shared.seed) / 2 && shared.seed[0] != 0) {
        memcpy(out, shared.seed, size);
        memset(shared.seed, 0, sizeof(shared.seed) / 2);
        return;
    }
    (void)snprintf(meta, sizeof(meta), "{\"length\":%u}", (unsigned)size);
    memset(out, 0, size);
    if (host_call(op, sizeof(op) - 1, meta, strlen(meta), NULL, 0, sizes) == 0 &&
        sizes[1] == size) {
        char rest[8];

        if (sizes[0] <= sizeof(rest))
            host_take(rest, out);
    }
}

/* ---- natives that every prelude has ---- */

static const char *const level_names[] = {"log", "info", "warn", "error", "debug"};

static void log_add(uint32_t level, const char *text, uint32_t size)
{
    uint32_t head[2] = {level, size};
    size_t used = shared.logs.size, need = used + sizeof(head) + size;

    if (need > GUEST_LOGS_MAX) {
        shared.logs_dropped++;
        return;
    }
    if (need > log_room) {
        size_t room = need < 512 ? 512 : 2 * need;
        uint8_t *more = js_realloc_rt(runtime, log_bytes, room);

        if (more == NULL) {
            shared.logs_dropped++;
            return;
        }
        log_bytes = more;
        log_room = room;
        shared.logs.at = (uint32_t)(uintptr_t)more;
    }
    memcpy(log_bytes + used, head, sizeof(head));
    memcpy(log_bytes + used + sizeof(head), text, size);
    shared.logs.size = (uint32_t)need;
    shared.logs_count++;
}

/* print(level, text) */
static JSValue native_print(JSContext *ctx, JSValueConst self, int argc, JSValueConst *argv)
{
    const char *name, *text;
    size_t size;
    uint32_t level = GUEST_LOG;

    if (argc < 2)
        return JS_UNDEFINED;
    name = JS_ToCString(ctx, argv[0]);
    text = JS_ToCStringLen(ctx, &size, argv[1]);
    if (name != NULL && text != NULL) {
        for (uint32_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++)
            if (strcmp(name, level_names[i]) == 0)
                level = i;
        log_add(level, text, (uint32_t)size);
    }
    JS_FreeCString(ctx, name);
    JS_FreeCString(ctx, text);
    return name != NULL && text != NULL ? JS_UNDEFINED : JS_EXCEPTION;
}

/* ---- a run ---- */

static int interrupted(JSRuntime *rt, void *opaque)
{
    return *(volatile uint32_t *)&shared.interrupt != 0;
}

static void result_clear(void)
{
    static const struct guest_text none;

    for (size_t i = 0; i < held_count; i++)
        JS_FreeCString(context, held[i]);
    held_count = 0;
    shared.flags = 0;
    shared.line = shared.column = 0;
    shared.exit_code = 0;
    shared.output = shared.type = shared.value = shared.value_error = shared.errors = none;
    shared.name = shared.message = shared.stack = shared.code = none;
}

static void exception_free(void)
{
    JS_FreeValue(context, JS_GetException(context));
}

/* Puts a text into the result, or what a number or the like is as one. */
static bool text_put(JSValueConst value, struct guest_text *into)
{
    size_t size;
    const char *text;

    if (held_count == sizeof(held) / sizeof(held[0]))
        return false;
    text = JS_ToCStringLen(context, &size, value);
    if (text == NULL) {
        exception_free();
        return false;
    }
    held[held_count++] = text;
    *into = (struct guest_text){(uint32_t)(uintptr_t)text, (uint32_t)size};
    return true;
}

/* A property's; nothing where there is none. */
static bool text_of(JSValueConst object, const char *name, struct guest_text *into)
{
    JSValue value = JS_GetPropertyStr(context, object, name);
    bool is = JS_IsString(value);

    if (JS_IsException(value))
        exception_free();
    if (is)
        (void)text_put(value, into);
    JS_FreeValue(context, value);
    return is;
}

static struct guest_text text_static(const char *text)
{
    return (struct guest_text){(uint32_t)(uintptr_t)text, (uint32_t)strlen(text)};
}

static int32_t number_of(JSValueConst object, const char *name)
{
    JSValue value = JS_GetPropertyStr(context, object, name);
    int32_t number = 0;

    if (JS_IsException(value))
        exception_free();
    else if (JS_IsNumber(value))
        (void)JS_ToInt32(context, &number, value);
    JS_FreeValue(context, value);
    return number;
}

static void error_texts(JSValueConst error)
{
    shared.flags |= GUEST_HAS_ERROR;
    (void)text_of(error, "name", &shared.name);
    (void)text_of(error, "message", &shared.message);
    (void)text_of(error, "stack", &shared.stack);
    (void)text_of(error, "code", &shared.code);
    shared.line = (uint32_t)number_of(error, "line");
    shared.column = (uint32_t)number_of(error, "column");
}

/* What is pending becomes the result. */
static int error_collect(void)
{
    JSValue error = JS_GetException(context);
    bool is = JS_IsObject(error);

    if (is)
        error_texts(error);
    JS_FreeValue(context, error);
    return is ? GUEST_DONE : GUEST_NO_MEMORY;
}

/* The log that a prelude keeps itself. */
static void logs_collect(JSValueConst result)
{
    JSValue list = JS_GetPropertyStr(context, result, "logs");
    int64_t count = 0;

    if (shared.logs_count == 0 && JS_IsArray(list) && JS_GetLength(context, list, &count) == 0)
        for (int64_t i = 0; i < count; i++) {
            JSValue entry = JS_GetPropertyInt64(context, list, i);
            JSValue words[2] = {JS_GetPropertyStr(context, entry, "level"),
                                JS_GetPropertyStr(context, entry, "text")};

            JS_FreeValue(context, native_print(context, JS_UNDEFINED, 2, words));
            JS_FreeValue(context, words[0]);
            JS_FreeValue(context, words[1]);
            JS_FreeValue(context, entry);
        }
    JS_FreeValue(context, list);
}

/* What share.result() says; or the exception that it threw. */
static int result_collect(void)
{
    JSValue result = share_call("result", 0, NULL), part;

    if (JS_IsException(result))
        return error_collect();
    (void)text_of(result, "output", &shared.output);
    (void)text_of(result, "type", &shared.type);
    if (text_of(result, "value_json", &shared.value))
        shared.flags |= GUEST_HAS_VALUE;
    if (text_of(result, "value_error", &shared.value_error))
        shared.flags |= GUEST_HAS_VALUE_ERROR;
    (void)text_of(result, "stderr", &shared.errors);
    part = JS_GetPropertyStr(context, result, "error");
    if (JS_IsObject(part))
        error_texts(part);
    JS_FreeValue(context, part);
    part = JS_GetPropertyStr(context, result, "is_final_answer");
    if (JS_ToBool(context, part) > 0)
        shared.flags |= GUEST_FINAL;
    JS_FreeValue(context, part);
    shared.exit_code = number_of(result, "exit_code");
    logs_collect(result);
    JS_FreeValue(context, result);
    return GUEST_DONE;
}

/* Forgets all that was under way, and tells the prelude. */
static void all_drop(void)
{
    static const char *const told[] = {"dropTimers", "forgetCalls"};

    exception_free();
    engine_drop_jobs(runtime);
    shared.wait_ms = -1;
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        JSValue said = share_call(told[i], 0, NULL);

        if (JS_IsException(said))
            exception_free();
        JS_FreeValue(context, said);
    }
}

/* The memory that is kept back, so that the result can be told. */
static void reserve_open(bool open)
{
    heap_limit = shared.memory_limit;
    if (heap_limit != 0 && open)
        heap_limit += GUEST_MEMORY_RESERVE;
}

static int run_end(bool threw)
{
    int state;

    reserve_open(true);
    state = threw ? error_collect() : result_collect();
    reserve_open(false);
    shared.memory_refused = (uint32_t)heap_refused;
    return state;
}

/* Jobs and steps, until there is nothing to do at once. */
static int run_turns(void)
{
    JSContext *of;
    int state;

    for (;;) {
        JSValue said;
        double next = STEP_DONE;

        while ((state = JS_ExecutePendingJob(runtime, &of)) != 0) {
            if (state < 0)
                exception_free();
            if (interrupted(NULL, NULL))
                return GUEST_INTERRUPTED;
        }
        said = share_call("step", 0, NULL);
        if (JS_IsException(said)) {
            JSValue error = JS_GetException(context);
            bool stopped = JS_IsUncatchableError(error);

            if (interrupted(NULL, NULL) || stopped) {
                JS_FreeValue(context, error);
                if (stopped && !interrupted(NULL, NULL))
                    continue; /* process.exit() within a timer */
                return GUEST_INTERRUPTED;
            }
            (void)JS_Throw(context, error);
            return run_end(true);
        }
        (void)JS_ToFloat64(context, &next, said);
        JS_FreeValue(context, said);
        if (next == STEP_AGAIN || next == 0)
            continue;
        if (next == STEP_DONE)
            return run_end(false);
        shared.wait_ms = next == STEP_HOST ? -1 : next;
        return GUEST_WAITS;
    }
}

static int run_goes_on(void)
{
    int state = run_turns();

    /* Also where it was told while the result was made. */
    if (interrupted(NULL, NULL))
        state = GUEST_INTERRUPTED;
    if (state == GUEST_INTERRUPTED)
        all_drop();
    return state;
}

/* ---- what the host calls ---- */

uint32_t EXPORT(shared_at)(void)
{
    return (uint32_t)(uintptr_t)&shared;
}

void *EXPORT(reserve)(uint32_t size)
{
    return js_malloc_rt(runtime, size);
}

void EXPORT(give_back)(void *block)
{
    js_free_rt(runtime, block);
}

static void function_add(JSValueConst object, const char *name, JSCFunction *function, int length)
{
    (void)JS_DefinePropertyValueStr(
        context, object, name, JS_NewCFunction(context, function, name, length), JS_PROP_C_W_E);
}

/* Once, while the image is made. */
int EXPORT(boot)(void)
{
    shared.layout = GUEST_LAYOUT;
    shared.wait_ms = -1;
    runtime = JS_NewRuntime2(&heap_functions, NULL);
    if (runtime == NULL)
        return -1;
    JS_SetMaxStackSize(runtime, GUEST_STACK_LIMIT);
    context = JS_NewContext(runtime);
    if (context == NULL)
        return -1;
    JS_SetInterruptHandler(runtime, interrupted, NULL);
    share = JS_NewObjectProto(context, JS_NULL);
    native = natives_new(context);
    if (JS_IsException(native))
        return -1;
    host = JS_NewObjectProto(context, JS_NULL);
    function_add(host, "call", host_call_js, 3);
    function_add(host, "begin", host_begin_js, 3);
    function_add(native, "print", native_print, 2);
    return 0;
}

/* One script of the prelude: a function of (host, native, share), which is called. What went wrong is
 * in the result, as of a run. The source ends with a NUL that is not counted. */
int EXPORT(prelude)(char *source, uint32_t size, const char *name)
{
    JSValueConst arguments[3] = {host, native, share};
    JSValue function, value;
    JSContext *of;

    JS_UpdateStackTop(runtime);
    function = JS_Eval(context, source, size, name, JS_EVAL_TYPE_GLOBAL);
    value = JS_IsException(function) ? JS_EXCEPTION
                                     : JS_Call(context, function, JS_UNDEFINED, 3, arguments);
    JS_FreeValue(context, function);
    js_free(context, source);
    if (JS_IsException(value)) {
        value = JS_GetException(context);
        error_texts(value);
        JS_FreeValue(context, value);
        return -1;
    }
    JS_FreeValue(context, value);
    while (JS_ExecutePendingJob(runtime, &of) > 0)
        continue;
    return 0;
}

static void seed_take(void)
{
    if (shared.seeded == 0)
        return;
    shared.seeded = 0;
    engine_seed(context, shared.seed[2] ^ shared.seed[3]);
    shared.seed[2] = shared.seed[3] = 0;
    natives_reseed();
}

/* share.configure() with what this JSON says. */
int EXPORT(configure)(char *json, uint32_t size)
{
    JSValue options, meta, said;
    JSValueConst arguments[1];

    JS_UpdateStackTop(runtime);
    seed_take();
    options = answer_new(json, size, NULL, GUEST_NO_BYTES);
    if (JS_IsException(options)) {
        exception_free();
        return -1;
    }
    meta = JS_GetPropertyStr(context, options, "meta");
    arguments[0] = meta;
    said = share_call("configure", 1, arguments);
    JS_FreeValue(context, meta);
    JS_FreeValue(context, options);
    if (JS_IsException(said)) {
        exception_free();
        return -1;
    }
    JS_FreeValue(context, said);
    return 0;
}

/* What share.result() would say of a value that plain_type() names the type of; false: there is no memory for it. */
static bool plain_result(JSValueConst value, const char *type)
{
    double number = 0;

    shared.type = text_static(type);
    if (JS_IsUndefined(value)) {
        shared.output = shared.type;
        return true;
    }
    if (JS_IsString(value)) {
        JSValue json = JS_JSONStringify(context, value, JS_UNDEFINED, JS_UNDEFINED);
        bool is = !JS_IsException(json) && text_put(value, &shared.output) &&
                  text_put(json, &shared.value);

        if (JS_IsException(json))
            exception_free();
        JS_FreeValue(context, json);
        shared.flags |= GUEST_HAS_VALUE;
        return is;
    }
    if (!text_put(value, &shared.output))
        return false;
    shared.value = shared.output;
    shared.flags |= GUEST_HAS_VALUE;
    if (JS_IsNumber(value)) {
        (void)JS_ToFloat64(context, &number, value);
        if (number == 0 && signbit(number))
            shared.output = text_static("-0");
        if (!isfinite(number))
            shared.value = text_static("null");
    }
    return true;
}

static JSValue options_new(uint32_t flags, const char *filename)
{
    JSValue options = JS_NewObjectProto(context, JS_NULL);

    if (JS_IsException(options))
        return options;
    (void)JS_DefinePropertyValueStr(
        context, options, "language",
        JS_NewString(context, (flags & GUEST_RUN_TYPES) != 0 ? "ts" : "js"), JS_PROP_C_W_E);
    (void)JS_DefinePropertyValueStr(context, options, "filename", JS_NewString(context, filename),
                                    JS_PROP_C_W_E);
    (void)JS_DefinePropertyValueStr(context, options, "module",
                                    JS_NewBool(context, (flags & GUEST_RUN_MODULE) != 0),
                                    JS_PROP_C_W_E);
    return options;
}

/* A script that is no plain one is begun by the prelude. */
static JSValue run_begin(const char *source, uint32_t size, uint32_t flags, const char *filename)
{
    JSValue options = options_new(flags, filename), text = JS_NewStringLen(context, source, size);
    JSValueConst arguments[2] = {text, options};
    JSValue said = JS_IsException(text) || JS_IsException(options)
                       ? JS_EXCEPTION
                       : share_call("run", 2, arguments);

    JS_FreeValue(context, text);
    JS_FreeValue(context, options);
    return said;
}

/* Begins a run; the source lies in shared.input or in a block of reserve(), which is given back. */
int EXPORT(run)(char *source, uint32_t size, uint32_t flags, const char *filename)
{
    const char *type = NULL;
    JSValue said;

    JS_UpdateStackTop(runtime);
    seed_take();
    result_clear();
    shared.logs.size = shared.logs_count = shared.logs_dropped = shared.memory_refused = 0;
    heap_refused = 0;
    reserve_open(false);

    if (flags == 0 && plain_begin(context)) {
        said = plain_evaluate(context, source, size, filename);
        if (!JS_IsException(said))
            type = plain_type(context, said);
        if (type != NULL && !plain_result(said, type)) {
            result_clear();
            type = NULL;
        }
        if (type != NULL)
            plain_end(context);
        else
            said = plain_hand_on(context, said, source, size, filename);
    } else {
        said = run_begin(source, size, flags, filename);
    }
    if (source != (char *)shared.input)
        js_free(context, source);
    JS_FreeValue(context, said);
    if (JS_IsException(said)) {
        JSValue error = JS_GetException(context);
        bool stopped = JS_IsUncatchableError(error);

        if (interrupted(NULL, NULL)) {
            JS_FreeValue(context, error);
            all_drop();
            return GUEST_INTERRUPTED;
        }
        if (!stopped) {
            (void)JS_Throw(context, error);
            return run_end(true);
        }
        JS_FreeValue(context, error); /* process.exit(): the prelude knows */
    } else if (type != NULL) {
        if (!interrupted(NULL, NULL))
            return GUEST_DONE;
        all_drop();
        return GUEST_INTERRUPTED;
    }
    return run_goes_on();
}

/* The last step of making the image. What every run makes ready is made ready here, by some that touch it;
 * then the heap becomes small, and its holes are forgotten. */
void EXPORT(settle_down)(void)
{
    static const char *const sources[] = {"1 + 1", "await 0", "console.log('')", "({a: [1, 'b']})",
                                          "throw new Error('')"};

    plain_open(context, share);
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        strcpy((char *)shared.input, sources[i]);
        (void)run((char *)shared.input, (uint32_t)strlen(sources[i]), 0, "<run>");
    }
    JS_UpdateStackTop(runtime);
    JS_FreeValue(context, share_call("reset", 0, NULL));
    result_clear();
    js_free_rt(runtime, log_bytes);
    log_bytes = NULL;
    log_room = 0;
    shared.logs = (struct guest_text){0, 0};
    shared.logs_count = 0;
    memset(shared.input, 0, sizeof(shared.input));
    JS_RunGC(runtime);
    heap_settle();
    engine_settle(runtime);
}

/* Goes on with a run that waits. */
int EXPORT(step)(void)
{
    JS_UpdateStackTop(runtime);
    return run_goes_on();
}

/* Settles a call; the blocks are of reserve() and given back. It does not run what waits for it. */
void EXPORT(settle)(uint32_t id, uint32_t ok, char *meta, uint32_t meta_size, uint8_t *bytes,
                    uint32_t bytes_size)
{
    JSValue answer, parts[4], said;

    JS_UpdateStackTop(runtime);
    answer = answer_new(meta, meta_size, bytes, bytes_size);
    parts[0] = JS_NewUint32(context, id);
    if (JS_IsException(answer)) {
        /* What it cannot hold is an error of the call. */
        parts[1] = JS_FALSE;
        parts[2] = JS_GetException(context);
        parts[3] = JS_UNDEFINED;
    } else {
        parts[1] = JS_NewBool(context, ok != 0);
        parts[2] = JS_GetPropertyStr(context, answer, "meta");
        parts[3] = JS_GetPropertyStr(context, answer, "bytes");
        JS_FreeValue(context, answer);
    }
    said = share_call("settle", 4, parts);
    if (JS_IsException(said))
        exception_free();
    JS_FreeValue(context, said);
    JS_FreeValue(context, parts[2]);
    JS_FreeValue(context, parts[3]);
}

/* Gives up a run that waits. */
void EXPORT(abandon)(void)
{
    JS_UpdateStackTop(runtime);
    result_clear();
    all_drop();
}
