/* Runs: values, errors, logs, state from run to run, timers, calls of the host, and how each end is told. */
#include "kit.h"

static void values(struct kernel_context *context)
{
    const struct kernel_result *result;

    RUN_IS(context, "1 + 1", "2");
    RUN_IS(context, "'a string'", "a string");
    RUN_IS(context, "({a: [1, null, 'x']})", "{ a: [ 1, null, 'x' ] }");
    RUN_IS(context, "'\\u00e9\\u20ac\\u{1f600}'", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    RUN_IS(context, "await Promise.resolve(5)", "5");
    RUN_IS(context, "", "undefined");
    result = kit_run(context, "[1, 2]");
    CHECK(result->has_value && kit_is(result->value, "[1,2]"), "the value is JSON");
    result = kit_run(context, "(() => 1)");
    CHECK(!result->has_value, "a function is no JSON");
    result = kit_run(context, "__finalAnswer__ = 3; 4");
    CHECK(result->is_final && result->cpu_ns > 0 && result->memory_bytes > 0, "what a run costs");
}

static void errors(struct kernel_context *context)
{
    const struct kernel_result *result = kit_run(context, "\n\nthrow new TypeError('no\\u20ac')");

    CHECK(result->end == KERNEL_END_ERROR && kit_is(result->name, "TypeError") &&
              kit_is(result->message, "no\xe2\x82\xac") && result->line == 3 &&
              kit_has(result->stack, "<run>:3"),
          "an error says what and where: %s line %u", kernel_end_name(result->end), result->line);
    result = kit_run(context, "let = = 2");
    CHECK(result->end == KERNEL_END_ERROR && kit_is(result->name, "SyntaxError"), "%.*s",
          (int)result->name.size, result->name.data);
    RUN_THROWS(context, "throw 'a string'", "a string");
    RUN_THROWS(context, "await Promise.reject(new Error('later'))", "later");
    RUN_IS(context, "1", "1");
}

static void logs(struct kernel_context *context)
{
    const struct kernel_result *result = kit_run(
        context, "console.log('one', 2); console.error('three'); throw new Error('x')");

    CHECK(result->logs_count == 2 && kit_is(result->logs[0].text, "one 2") &&
              result->logs[0].level == KERNEL_LOG && kit_is(result->logs[1].text, "three") &&
              result->logs[1].level == KERNEL_ERROR,
          "%zu lines of log", result->logs_count);
    result = kit_run(context, "for (let i = 0; i < 3000; i++) console.log('x'.repeat(8000)); 1");
    CHECK(result->logs_count > 1000 && result->logs_count < 1100 && result->logs_dropped > 1900 &&
              result->end == KERNEL_END_VALUE,
          "the log has an end: %zu and %u", result->logs_count, result->logs_dropped);
    result = kit_run(context, "1");
    CHECK(result->logs_count == 0 && result->logs_dropped == 0, "each run has its own log");
}

/* More records than a result has. The room of many is not kept. */
static void long_logs(void)
{
    struct kernel_grants grants = {.cpu_ms = 60000, .wall_ms = 60000};
    struct kernel_manifest *manifest = kit_manifest(&grants);
    struct kernel_context *context = kit_context(manifest);
    const struct kernel_result *result = kit_run(
        context, "for (let i = 0; i < 70000; i++) console.log(i); 1");
    struct error err;

    CHECK(result->end == KERNEL_END_VALUE && result->logs_count == KERNEL_LOGS_MAX &&
              result->logs_dropped == 70000 - KERNEL_LOGS_MAX &&
              kit_is(result->logs[KERNEL_LOGS_MAX - 1].text, "65535"),
          "%zu lines of log, and %u dropped", result->logs_count, result->logs_dropped);
    result = kit_run(context, "console.log(1)");
    CHECK(result->logs_count == 1 && context->logs_room <= 1024, "room for %zu is kept",
          context->logs_room);
    (void)kit_run(context, "for (let i = 0; i < 2000; i++) console.log(i); 1");
    CHECK(kernel_context_reset(context, NULL, &err) == 0 && context->logs_room <= 1024,
          "room for %zu is kept", context->logs_room);
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

static void state(const struct kernel_manifest *manifest)
{
    struct kernel_context *context = kit_context(manifest), *other = kit_context(manifest);
    struct error err;

    RUN_IS(context, "globalThis.x = 41; x", "41");
    RUN_IS(context, "x + 1", "42");
    RUN_IS(other, "typeof x", "undefined");
    CHECK(kernel_context_reset(context, NULL, &err) == 0, "reset");
    RUN_IS(context, "typeof x", "undefined");
    kernel_context_free(context);
    kernel_context_free(other);
}

static void waiting(struct kernel_context *context)
{
    static const char late[] = "await new Promise((done) => setTimeout(done, 1e9))";
    const struct kernel_result *result;

    RUN_IS(context, "await new Promise((done) => setTimeout(() => done('late'), 20))", "late");
    result = kit_run(context, "await new Promise(() => {})");
    CHECK(result->end == KERNEL_END_DEADLOCK && kit_has(result->message, "never settle"),
          "a promise that nothing settles: %s", kernel_end_name(result->end));
    result = kit_run_source(
        context, &(struct kernel_source){.text = late, .size = sizeof(late) - 1, .wall_ms = 1500});
    CHECK(result->end == KERNEL_END_WALL && !result->state_lost &&
              kit_is(result->name, "TimeoutError"),
          "a timer that is too late: %s", kernel_end_name(result->end));
    RUN_IS(context, "2", "2");
}

/* One whose time is up before its first instruction: it says so, and is no other run's result. */
static void late_begin(void)
{
    struct kernel_grants grants = {.env = (const char *const[]){"A=b", NULL}};
    struct kernel_manifest *manifest = kit_manifest(&grants);
    struct kernel_context *context = kit_context(manifest);
    struct kernel_source what = {.text = "x = 2", .size = 5};
    uint32_t wall_ms = manifest->wall_ms;
    enum kernel_status status;
    struct error err;

    for (int i = 0; i < 2; i++) {
        const struct kernel_result *result;

        manifest->wall_ms = 0;
        CHECK(kernel_run(context, &what, &status, &err) == 0 && status == KERNEL_DONE, "%s",
              err.text);
        result = kernel_result(context);
        CHECK(result->end == KERNEL_END_WALL && kit_is(result->name, "TimeoutError") &&
                  !result->state_lost && result->logs_count == 0 && result->output.size == 0 &&
                  result->exit_code == 1,
              "ends by %s with '%.*s'", kernel_end_name(result->end), (int)result->output.size,
              result->output.data);
        manifest->wall_ms = wall_ms;
        RUN_IS(context, "console.log(1); globalThis.x || (globalThis.x = 1); x + process.env.A",
               "1b");
    }
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

static void begin(struct kernel_context *context, const char *source, enum kernel_status *status)
{
    struct kernel_source what = {.text = source, .size = strlen(source)};
    struct error err;

    CHECK(kernel_run(context, &what, status, &err) == 0, "%s", err.text);
}

static void calls(struct kernel_context *context)
{
    enum kernel_status status;
    struct kernel_call one = {0}, two = {0};
    struct error err;

    begin(context,
          "const got = await Promise.all([host.begin('tool', {name: 'one', n: 1}),"
          " host.begin('tool', {name: 'two'}, new Uint8Array([1, 2, 3]))]);"
          "got[0].meta.sum + got[1].bytes.length",
          &status);
    CHECK(status == KERNEL_WAITS, "it waits");
    CHECK(kernel_call_next(context, &one) && kernel_call_next(context, &two) &&
              !kernel_call_next(context, &two),
          "two calls");
    CHECK(kit_is(one.op, "tool") && kit_is(one.meta, "{\"name\":\"one\",\"n\":1}") &&
              two.bytes_size == 3 && two.bytes[2] == 3,
          "%.*s", (int)one.meta.size, one.meta.data);
    CHECK(kernel_settle(context, two.id, NULL, 0, (const uint8_t *)"12345", 5, &err) == 0 &&
              kernel_step(context, &status, &err) == 0 && status == KERNEL_WAITS,
          "the second is settled, the first not");
    CHECK(kernel_settle(context, two.id, NULL, 0, NULL, 0, &err) == 0, "again: nothing");
    CHECK(kernel_settle(context, one.id, "{\"sum\":37}", 10, NULL, 0, &err) == 0 &&
              kernel_step(context, &status, &err) == 0 && status == KERNEL_DONE &&
              kit_is(kernel_result(context)->output, "42"),
          "both are settled: '%.*s'", (int)kernel_result(context)->output.size,
          kernel_result(context)->output.data);

    begin(context,
          "try { await host.begin('tool', {name: 'one'}) } catch (e) { e.code + e.message }",
          &status);
    CHECK(kernel_call_next(context, &one) &&
              kernel_settle_error(context, one.id, "EBAD", "it \"broke\"", &err) == 0 &&
              kernel_step(context, &status, &err) == 0 &&
              kit_is(kernel_result(context)->output, "EBADit \"broke\""),
          "an error of a call is thrown: '%.*s'", (int)kernel_result(context)->output.size,
          kernel_result(context)->output.data);

    RUN_THROWS(context, "await host.begin('tool', {name: 'other'})", "name it among the `tools`");
    RUN_THROWS(context, "await host.begin('fetch.start', {url: 'http://x/'})", "allowedHosts");
    RUN_THROWS(context, "host.call('nothing')", "knows no call 'nothing'");
    RUN_IS(context, "host.call('random', {length: 16}).bytes.length", "16");
    RUN_IS(context, "host.call('random', {length: 0}).bytes.length", "0");
    RUN_THROWS(context, "host.call('random', {length: 1e9})", "length");
    RUN_THROWS(context, "host.call('x'.repeat(100))", "no sense");

    begin(context, "globalThis.kept = 5; await host.begin('tool', {name: 'one'})", &status);
    kernel_stop(context, KERNEL_END_STOPPED);
    CHECK(kernel_result(context)->end == KERNEL_END_STOPPED, "a run that waits is stopped");
    CHECK(!kernel_call_next(context, &one), "its calls are gone");
    RUN_IS(context, "kept", "5");
}

/* More than one may have at a time. */
static void many_calls(struct kernel_context *context)
{
    enum kernel_status status;
    struct kernel_call call;
    unsigned count = 0;

    begin(context,
          "let refused = 0; for (let i = 0; i < 2000; i++)"
          " host.begin('tool', {name: 'one'}).catch(() => refused++);"
          " await 0; await 0; console.log(refused); await new Promise(() => {})",
          &status);
    CHECK(status == KERNEL_WAITS, "it waits");
    while (kernel_call_next(context, &call))
        count++;
    CHECK(count == GUEST_CALLS_MAX, "%u calls", count);
    kernel_stop(context, KERNEL_END_STOPPED);
    CHECK(kit_is(kernel_result(context)->logs[0].text, "976"), "the rest is refused");
}

static void sources(struct kernel_context *context)
{
    struct kernel_source what;
    size_t size = 3U << 20;
    char *text = malloc(size);
    enum kernel_status status;
    struct error err;

    /* A large one takes another way in. */
    if (text == NULL)
        exit(1);
    memset(text, ' ', size);
    memcpy(text + size - 3, "6*7", 3); // NOLINT(bugprone-not-null-terminated-result)
    what = (struct kernel_source){.text = text, .size = size};
    CHECK(kernel_run(context, &what, &status, &err) == 0 &&
              kit_is(kernel_result(context)->output, "42"),
          "a source of 3 MB");
    free(text);
    what.size = KERNEL_SOURCE_MAX + 1U;
    CHECK(kernel_run(context, &what, &status, &err) < 0 && strcmp(err.code, "too_large") == 0,
          "a source that is too large");
}

static void configuration(void)
{
    const char *const env[] = {"A=1", "B=x=\"y\"", NULL}, *const tools[] = {"add", NULL},
                      *const bad[] = {"novalue", NULL};
    struct kernel_grants grants = {.env = env, .tools = tools};
    struct kernel_manifest *manifest = kit_manifest(&grants), *none;
    struct kernel_context *context = kit_context(manifest);
    struct error err;

    RUN_IS(context, "process.env.B + Object.keys(tools)[0]", "x=\"y\"add");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    grants.env = bad;
    CHECK(kernel_manifest_new(&grants, &none, &err) < 0 && strstr(err.text, "novalue") != NULL,
          "a variable without a value");
    grants = (struct kernel_grants){.memory_bytes = 1};
    manifest = kit_manifest(&grants);
    CHECK(kernel_context_new(kit_image(), manifest, NULL, &context, &err) < 0 &&
              strstr(err.text, "too little") != NULL,
          "a memory that is too small");
    kernel_manifest_free(manifest);
}

/* A seed is used and not kept; each context has its own sequence. */
static void randomness(const struct kernel_manifest *manifest)
{
    const uint8_t same[KERNEL_ENTROPY_BYTES] = {1, 2, 3};
    struct kernel_context *one = kit_context(manifest), *other = kit_context(manifest);
    char first[64];
    struct error err;

    const struct kernel_result *result = kit_run(one, "Math.random()");
    (void)snprintf(first, sizeof(first), "%.*s", (int)result->output.size, result->output.data);
    result = kit_run(other, "Math.random()");
    CHECK(!kit_is(result->output, first), "two contexts, two sequences");
    CHECK(kernel_context_reset(one, same, &err) == 0, "reset");
    result = kit_run(one, "Math.random()");
    (void)snprintf(first, sizeof(first), "%.*s", (int)result->output.size, result->output.data);
    CHECK(kernel_context_reset(other, same, &err) == 0, "reset");
    RUN_IS(other, "Math.random()", first);
    kernel_context_free(one);
    kernel_context_free(other);
}

/* A run can use memory that the run before it filled and let go of, also in smaller pieces. */
static void memory_again(void)
{
    struct kernel_grants grants = {.memory_bytes = 32U << 20, .cpu_ms = 20000, .wall_ms = 60000};
    struct kernel_manifest *manifest = kit_manifest(&grants);
    struct kernel_context *context = kit_context(manifest);

    RUN_IS(context, "let a = null; try { for (;;) a = { a }; } catch { } a = null; 'full once'",
           "full once");
    RUN_IS(context, "1 + 1", "2");
    CHECK(kit_run(context, "throw new Error()")->end == KERNEL_END_ERROR, "memory is not to blame");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

int main(void)
{
    const char *const tools[] = {"one", "two", NULL};
    struct kernel_grants grants = {.tools = tools, .wall_ms = 60000, .cpu_ms = 20000};
    struct kernel_manifest *manifest = kit_manifest(&grants);
    struct kernel_context *context = kit_context(manifest);

    values(context);
    errors(context);
    logs(context);
    long_logs();
    state(manifest);
    waiting(context);
    late_begin();
    calls(context);
    many_calls(context);
    sources(context);
    configuration();
    randomness(manifest);
    memory_again();
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    kernel_image_free(kit_image());
    return check_finish();
}
