// Runs snippets in the prelude without WebAssembly: the engine compiled natively, the prelude's
// files as they are, and a host that serves a temporary directory, two tools and a scripted web
// server. One image is booted; every line of stdin is a JSON document {configure, root, runs:
// [{source, options}]} that is answered by a fork of it with one line, so that no case sees another.
// It keeps no secrets and no limits: it is a test's tool.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/kernel/js/natives.h"
#include "prelude_host.h"

#define STEP_DONE -1
#define STEP_HOST -2
#define STEP_AGAIN -3

void natives_entropy(uint8_t *out, size_t length)
{
    if (getrandom(out, length, 0) != (ssize_t)length) {
        abort();
    }
}

static char *read_all(FILE *file, size_t *length)
{
    char *text = NULL;
    size_t held = 0;

    *length = 0;
    for (;;) {
        size_t got;
        if (*length + 65536 > held) {
            char *more;

            held = held * 2 + 131072;
            more = realloc(text, held);
            if (more == NULL) {
                abort();
            }
            text = more;
        }
        got = fread(text + *length, 1, 65535, file);
        *length += got;
        if (got == 0) {
            text[*length] = 0;
            return text;
        }
    }
}

static void complain(JSContext *ctx, const char *where)
{
    JSValue error = JS_GetException(ctx);
    JSValue stack = JS_GetPropertyStr(ctx, error, "stack");
    const char *message = JS_ToCString(ctx, error), *lines = JS_ToCString(ctx, stack);

    fprintf(stderr, "%s: %s\n%s\n", where, message ? message : "?", lines ? lines : "");
    exit(2);
}

static void load_part(JSContext *ctx, const char *directory, const char *name, JSValue *arguments)
{
    char path[4096], label[300];
    size_t length = 0;
    FILE *file;
    char *text;
    JSValue function;

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    snprintf(label, sizeof(label), "cove:%s", name);
    file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
    text = read_all(file, &length);
    fclose(file);
    function = JS_Eval(ctx, text, length, label, JS_EVAL_TYPE_GLOBAL);
    free(text);
    if (JS_IsException(function)) {
        complain(ctx, path);
    }
    if (JS_IsException(JS_Call(ctx, function, JS_UNDEFINED, 3, arguments))) {
        complain(ctx, path);
    }
    JS_FreeValue(ctx, function);
}

static JSValue load_prelude(JSContext *ctx, const char *directory)
{
    JSValue arguments[3] = {host_new(ctx), natives_new(ctx), JS_NewObjectProto(ctx, JS_NULL)};
    char path[4096], line[256];
    FILE *order;

    snprintf(path, sizeof(path), "%s/order", directory);
    order = fopen(path, "r");
    if (!order) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
    while (fgets(line, sizeof(line), order)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] && line[0] != '#') {
            load_part(ctx, directory, line, arguments);
        }
    }
    fclose(order);
    return arguments[2];
}

static JSValue call_share(JSContext *ctx, JSValue share, const char *name, int argc, JSValue *argv)
{
    JSValue function = JS_GetPropertyStr(ctx, share, name);
    JSValue result = JS_Call(ctx, function, JS_UNDEFINED, argc, argv);

    JS_FreeValue(ctx, function);
    return result;
}

static void run_jobs(JSContext *ctx)
{
    JSContext *where;

    while (JS_ExecutePendingJob(JS_GetRuntime(ctx), &where) != 0) {
        JS_FreeValue(ctx, JS_GetException(ctx)); // what ended a run by force
    }
}

static void follow(JSContext *ctx, JSValue share)
{
    for (;;) {
        JSValue answer;
        double next = 0;
        run_jobs(ctx);
        answer = call_share(ctx, share, "step", 0, NULL);
        if (JS_IsException(answer)) {
            JS_FreeValue(ctx, JS_GetException(ctx));
            continue;
        }
        JS_ToFloat64(ctx, &next, answer);
        if (next == STEP_DONE) {
            return;
        }
        if (next == STEP_AGAIN || host_settle_one(ctx, share)) {
            continue;
        }
        if (next > 0) {
            usleep((useconds_t)(next * 1000));
        }
    }
}

static JSValue one_run(JSContext *ctx, JSValue share, JSValue run)
{
    JSValue arguments[2] = {JS_GetPropertyStr(ctx, run, "source"),
                            JS_GetPropertyStr(ctx, run, "options")};
    JSValue state = call_share(ctx, share, "run", 2, arguments);

    if (JS_IsException(state)) {
        JS_FreeValue(ctx, JS_GetException(ctx)); // process.exit on the way
    }
    follow(ctx, share);
    return call_share(ctx, share, "result", 0, NULL);
}

static void serve(JSContext *ctx, JSValue share, const char *line, size_t length)
{
    JSValue wanted = JS_ParseJSON(ctx, line, length, "<request>");
    JSValue configure = JS_GetPropertyStr(ctx, wanted, "configure");
    JSValue root = JS_GetPropertyStr(ctx, wanted, "root");
    JSValue runs = JS_GetPropertyStr(ctx, wanted, "runs");
    const char *directory = JS_IsString(root) ? JS_ToCString(ctx, root) : NULL;
    int64_t count = 0;

    if (JS_IsException(wanted)) {
        complain(ctx, "request");
    }
    host_set_root(directory);
    if (JS_IsException(call_share(ctx, share, "configure", 1, &configure))) {
        complain(ctx, "configure");
    }
    JS_GetLength(ctx, runs, &count);
    putchar('[');
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        JSValue result = one_run(ctx, share, JS_GetPropertyUint32(ctx, runs, i));
        JSValue json = JS_JSONStringify(ctx, result, JS_UNDEFINED, JS_UNDEFINED);
        const char *text = JS_ToCString(ctx, json);
        if (!text) {
            complain(ctx, "result");
        }
        printf("%s%s", i ? "," : "", text);
    }
    puts("]");
}

int main(int argc, char **argv)
{
    JSRuntime *runtime = JS_NewRuntime();
    JSContext *ctx = JS_NewContext(runtime);
    char *line = NULL;
    size_t held = 0;
    ssize_t length;
    JSValue share;

    if (argc != 2) {
        fprintf(stderr, "usage: prelude_driver PRELUDE-DIRECTORY <REQUESTS\n");
        return 2;
    }
    JS_SetMaxStackSize(runtime, 512 * 1024);
    share = load_prelude(ctx, argv[1]);
    run_jobs(ctx);
    JS_SetGCThreshold(runtime, 64 * 1024 * 1024);
    while ((length = getline(&line, &held, stdin)) > 0) {
        pid_t child;
        int status = 0;
        fflush(stdout);
        child = fork();
        if (child == 0) {
            serve(ctx, share, line, (size_t)length);
            fflush(stdout);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
            printf("\"the child ended with status %d\"\n", status);
        }
    }
    return 0;
}
