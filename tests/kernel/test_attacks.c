/* Code that does its worst with time, memory and recursion: each ends within 10 ms of its limit of time or at that
 * of memory with a clear error, and the next run, in the same context and in a new one, works. */
#include "kit.h"

#include "base/clock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CPU_MS 50U
#define AMPLE_MS 20000U
#define CPU_LATE_MS 10U
/* What a run takes is the thread's own time, but a machine that is taken away from its system in the middle
 * of a tick lets a timer come late: what holds shows at one of these tries. */
#define TRIES 8
#define MEMORY (64U << 20)

enum {
    CPU = 1 << KERNEL_END_CPU,
    MEMORY_END = 1 << KERNEL_END_MEMORY,
    THROWS = 1 << KERNEL_END_ERROR,
    STACK = 1 << KERNEL_END_STACK,
    VALUE = 1 << KERNEL_END_VALUE,
    DEADLOCK = 1 << KERNEL_END_DEADLOCK,
    WALL = 1 << KERNEL_END_WALL,
};

struct attack {
    const char *source;
    int ends; /* those that are right */
};
static const struct attack attacks[] = {
    /* loops that the engine looks at */
    {"while (true) {}", CPU},
    {"for (;;) await 0", CPU},
    {"do { try { while (true) {} } catch {} finally { continue } } while (true)", CPU},
    {"(function* () { while (true) yield 1 })().reduce((a, b) => a)", CPU},
    {"const p = new Proxy({}, {get(t, k, r) { while (true) {} }}); p.x", CPU},
    /* and those that it does not */
    {"/^(a+)+$/.test('a'.repeat(40) + 'b')", CPU},
    {"/(x+x+)+y/.exec('x'.repeat(60))", CPU},
    {"'a'.repeat(2e7).indexOf('a'.repeat(1e7) + 'b')", CPU | MEMORY_END},
    {"'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')", CPU},
    {"Array.prototype.indexOf.call({length: 4294967295}, 99)", CPU},
    {"Array.prototype.includes.call({length: 2 ** 53 - 1}, 99)", CPU},
    {"const a = []; for (let i = 0; i < 3e6; i++) a.push((i * 7919) % 1000003); a.sort((x, y) => x - y)",
     CPU | MEMORY_END},
    {"new Float64Array(5e6).map((x, i) => Math.sin(i)).sort()", CPU | MEMORY_END},
    {"const a = []; for (let i = 0; i < 1e6; i++) a.push(i); while (true) JSON.stringify(a)",
     CPU | MEMORY_END},
    {"let n = 3n; while (true) n = n * n", CPU | MEMORY_END | THROWS},
    {"(3n ** 3000000n).toString().length", CPU | MEMORY_END | THROWS},
    {"'abc'.repeat(5e8).length", MEMORY_END | THROWS},
    {"'x'.padEnd(5e8).split('').length", MEMORY_END | THROWS | CPU},
    {"new Array(1e8).fill(0).length", CPU | MEMORY_END},
    {"JSON.parse('[' + '1,'.repeat(4e6) + '1]').length; while (true) structure()",
     CPU | MEMORY_END | THROWS},
    {"Array.prototype.lastIndexOf.call({length: 2 ** 53 - 1}, 99)", CPU},
    {"Array.prototype.reverse.call({length: 2 ** 53 - 1})", CPU},
    {"Array.prototype.copyWithin.call({length: 2 ** 53 - 1}, 0, 1)", CPU},
    {"Array.prototype.concat.call([], {length: 2 ** 53 - 1, [Symbol.isConcatSpreadable]: true})",
     CPU | THROWS | MEMORY_END},
    {"Array.from({length: 1e9}).length", CPU | MEMORY_END},
    {"new Uint8Array(3e7).fill(1).reduce((a, b) => a + b) + new Uint8Array(3e7).lastIndexOf(5)",
     CPU | MEMORY_END},
    {"const t = new Uint8Array(2e7); while (true) t.indexOf(7)", CPU},
    {"const s = 'a'.repeat(1e6); while (true) s.replace(/a/g, 'b')", CPU | MEMORY_END},
    {"const s = 'ab'.repeat(1e6); while (true) s.split('a').join('c')", CPU | MEMORY_END},
    {"while (true) 'a'.repeat(1e6).normalize('NFKD').toUpperCase().localeCompare('b')",
     CPU | MEMORY_END},
    {"/(?<=(a+)+c)b/.exec('a'.repeat(50) + 'b')", CPU | VALUE},
    {"/(.*)*\\1$/u.exec('ab'.repeat(40))", CPU | VALUE},
    {"'x'.repeat(5e4).match(/x*x*x*x*y/)", CPU},
    {"(7n ** 2000000n) % 13n", CPU | MEMORY_END | THROWS},
    {"BigInt('9'.repeat(1000000))", CPU | MEMORY_END | THROWS | VALUE},
    {"JSON.parse('[' + '1,'.repeat(1e5) + '1]', function () { while (true) {} })", CPU},
    {"while (true) structuredClone(Array(1000).fill({a: [1]}))", CPU},
    {"while (true) new URL('http://' + 'a.'.repeat(1000) + 'b/' + '../'.repeat(10000))",
     CPU | THROWS},
    {"while (true) await crypto.subtle.digest('SHA-256', new Uint8Array(1 << 22))", CPU},
    {"while (true) new TextDecoder().decode(new Uint8Array(1 << 20).fill(0xc3))", CPU},
    {"while (true) new Intl.DateTimeFormat('en', {dateStyle: 'full'}).format(0)", CPU | MEMORY_END},
    {"while (true) eval('1+' + '1+'.repeat(1000) + '1')", CPU | MEMORY_END},
    {"while (true) new Function('x'.repeat(10), 'return ' + Math.random())", CPU | MEMORY_END},
    {"while (true) Reflect.ownKeys(new Proxy({}, {ownKeys: () => Array.from({length: 1000}, (_, i) => 'k' + i)}))",
     CPU},
    {"new Proxy({}, {getPrototypeOf() { while (true) {} }}) instanceof Object", CPU},
    {"Error.prepareStackTrace = () => { while (true) {} }; new Error('x').stack", CPU | VALUE},
    {"Math.max(...Array(1e7).keys())", CPU | THROWS | MEMORY_END},
    {"String.fromCharCode.apply(null, {length: 2 ** 31})", CPU | THROWS | MEMORY_END},
    {"typeof Atomics === 'undefined' ? 1 :"
     " Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
     CPU | WALL | THROWS | VALUE},
    /* recursion, which may also take its time */
    {"(function f(n) { return 1 + f(n + 1) })(0)", THROWS | CPU},
    {"const a = {get x() { return this.x }}; a.x", THROWS | CPU},
    {"JSON.parse('['.repeat(200000))", THROWS | CPU},
    {"let a = []; for (let i = 0; i < 100000; i++) a = [a]; JSON.stringify(a)", THROWS | CPU},
    {"let a = []; for (let i = 0; i < 100000; i++) a = [a]; String(a)", THROWS | CPU | VALUE},
    {"native.evaluate('('.repeat(100000) + '1' + ')'.repeat(100000), 'x')", THROWS | CPU},
    {"native.evaluate('['.repeat(100000), 'x')", THROWS | CPU},
    {"native.evaluate('-'.repeat(1) + ' -'.repeat(300000) + '1', 'x')", THROWS | CPU},
    {"new RegExp('('.repeat(50000) + 'a' + ')'.repeat(50000)).test('a')", THROWS | CPU | VALUE},
    {"class A { constructor() { new A() } } new A()", THROWS | CPU},
    {"const p = new Proxy(function () {}, {apply() { return p() }}); p()", THROWS | CPU},
    {"let f = () => {}; for (let i = 0; i < 100000; i++) f = f.bind(null); f()",
     THROWS | CPU | VALUE | MEMORY_END},
    {"let o = {}; for (let i = 0; i < 200000; i++) o = Object.create(o); o.nothing", VALUE | CPU},
    {"let o = {}; for (let i = 0; i < 200000; i++) o = new Proxy(o, {}); o.nothing", THROWS | CPU},
    {"const e = new Error('x'); e.toString = () => { throw e }; throw e", THROWS | CPU},
    {"const o = {[Symbol.toPrimitive]() { return +o }}; +o", THROWS | CPU},
    {"function* f() { yield* f() } [...f()]", THROWS | CPU},
    {"async function f() { await f() } await f()", THROWS | CPU | MEMORY_END},
    {"[1].map(function f() { return [1].map(f) })", THROWS | CPU},
    {"'a'.replace('a', function f() { return 'a'.replace('a', f) })", THROWS | CPU},
    {"JSON.stringify({toJSON() { return JSON.stringify(this) }})", THROWS | CPU},
    {"eval('eval(' + '\"1\"' + ')'); (function f() { eval('f()') })()", THROWS | CPU},
    {"new RegExp('(?:a|'.repeat(20000) + 'b' + ')'.repeat(20000)).test('b')",
     THROWS | CPU | VALUE | MEMORY_END},
    {"let s = '1'; for (let i = 0; i < 50000; i++) s = `[${s}]`; structuredClone(eval(s))",
     THROWS | CPU | MEMORY_END},
    {"let e = new Error('0'); for (let i = 0; i < 1e5; i++) e = new Error('x', {cause: e}); throw e",
     THROWS | CPU | MEMORY_END},
    /* memory */
    {"const s = new Set(); for (let i = 0;; i++) s.add({i})", MEMORY_END | CPU},
    {"const a = []; while (true) a.push(Symbol('x'.repeat(1000)), () => a)", MEMORY_END | CPU},
    {"const a = []; while (true) a.push('x'.repeat(1 << 20) + a.length)", MEMORY_END | CPU},
    {"for (let i = 0;; i++) globalThis['name' + i] = i", MEMORY_END | CPU},
    {"new WebAssembly.Memory({initial: 65536})", THROWS},
    {"const b = []; while (true) b.push(Buffer.alloc(1 << 20), new Blob(['x'.repeat(1 << 20)]))",
     MEMORY_END | CPU},
    {"throw new Error('x'.repeat(5e7))", THROWS | MEMORY_END | CPU},
    {"'x'.repeat(3e7)", VALUE | MEMORY_END | CPU},
    {"const a = []; while (true) a.push(new Array(1000).fill(1))", MEMORY_END | CPU},
    {"let s = 'x'; while (true) s += s", MEMORY_END | THROWS},
    {"const a = []; while (true) a.push(new ArrayBuffer(1 << 20))", MEMORY_END},
    {"const m = new Map(); for (let i = 0;; i++) m.set(i, 'v' + i)", MEMORY_END | CPU},
    {"let o = null; while (true) o = {o, a: 1, b: 2, c: 3}", MEMORY_END | CPU},
    {"const a = []; try { while (true) a.push(new ArrayBuffer(1 << 16)) } catch (e) { a.x = e }"
     " a.length > 100 && a.x instanceof Error",
     VALUE | MEMORY_END},
    {"const a = []; while (true) { try { a.push(new ArrayBuffer(1 << 20)) } catch {} }", CPU},
    {"const b = new ArrayBuffer(8, {maxByteLength: 2 ** 31}); b.resize(2 ** 30)",
     THROWS | MEMORY_END},
    /* promises */
    {"const f = () => Promise.resolve().then(f); await f()", CPU | MEMORY_END},
    {"(async function f() { await 0; f(); f() })(); await new Promise(() => {})", CPU | MEMORY_END},
    {"const t = {then(done) { done(t) }}; await t", CPU},
    {"await new Promise(() => {})", DEADLOCK},
    {"await {then() {}}", DEADLOCK},
    {"const f = () => setTimeout(f, 0); f(); await new Promise(() => {})", CPU | WALL},
    {"for (;;) setTimeout(() => {}, 1e6)", CPU | MEMORY_END},
    {"setInterval(() => {}, 0); await new Promise(() => {})", CPU | WALL},
    {"for (;;) Promise.reject(new Error('x'))", CPU | MEMORY_END},
    {"process.on?.('exit', () => { while (true) {} }); process.exit(3)", CPU | VALUE},
    {"const f = () => queueMicrotask(f); f()", CPU | MEMORY_END},
    {"const e = new EventTarget(), f = () => e.dispatchEvent(new Event('x'));"
     " e.addEventListener('x', f); f()",
     CPU | THROWS},
    {"new ReadableStream({pull(c) { c.enqueue(1) }}).pipeTo(new WritableStream()); await new Promise(() => {})",
     CPU | MEMORY_END | WALL},
    /* the host's calls */
    {"while (true) host.call('random', {length: 1})", CPU},
    {"while (true) try { host.call('fs.read_file', {path: '/etc/passwd'}) } catch {}", CPU},
    {"const big = new Uint8Array(1 << 20); while (true) try { host.call('x', {}, big) } catch {}",
     CPU},
    {"while (true) try { host.begin('tool', {name: 'one'}).catch(() => {}) } catch {}",
     CPU | MEMORY_END},
    {"const b = new Uint8Array(1e4); while (true) host.begin('tool', {name: 'one'}, b).catch(() => {})",
     CPU | MEMORY_END},
    {"while (true) console.log('x'.repeat(1000))", CPU},
    /* the result itself */
    {"({toJSON() { while (true) {} }})", CPU},
    {"const a = []; a.push(a); a", VALUE},
    {"throw {get name() { while (true) {} }}", CPU | THROWS},
    {"new Proxy({}, {get() { while (true) {} }, ownKeys() { while (true) {} }})", CPU | VALUE},
    {"({[Symbol.for('nodejs.util.inspect.custom')]() { while (true) {} }})", CPU},
    {"const a = []; for (let i = 0; i < 1e5; i++) a[i] = {a, i}; a", CPU | VALUE},
    {"console.log({get a() { while (true) {} }, [Symbol.toStringTag]: 'x'.repeat(1e6)}); 1", VALUE},
    {"const o = {}; Object.defineProperty(o, Symbol.toStringTag, {get() { while (true) {} }}); o",
     CPU},
    {"Object.defineProperty(Array.prototype, 0, {set() { while (true) {} }}); [].push(1)", CPU},
    {"Object.prototype.then = (f) => f(Object.prototype); await {}", CPU | VALUE | DEADLOCK},
    {"Object.prototype.done = true; Array.prototype.push = null; Promise.prototype.then = null; 1",
     VALUE | THROWS},
    {"Object.defineProperty(Object.prototype, 'meta', {set() { while (true) {} }});"
     " host.call('random', {length: 1}).bytes.length",
     VALUE},
};

/* The same in TypeScript, which the eraser reads first. */
static const struct attack typescript[] = {
    {"let f = (x: number) => { while (true) {} }; f(1)", CPU},
    {"let a: ^;", THROWS},
};

/* Forms that a parser may take exponential time, or all its stack, for: (before, this often, behind). */
static const struct {
    const char *before, *repeated, *after;
} nestings[] = {
    {"let a = ", "(", "1"},          {"let a: ", "Array<", "b"},    {"let a = b", "<c", ";"},
    {"type A = ", "{a: ", "1"},      {"let a = ", "(x: (y: ", "1"}, {"f", "<(a, b", ";"},
    {"let a = ", "x ? (y) : ", "z"}, {"let a = `", "${`", "x"},     {"", "async <T>(", "x"},
    {"", "class A { a = ", "1"},     {"let a = ", "<T>(", "x"},     {"", "namespace A { ", "let b"},
};

/* What it says of its end, in words that help. */
static bool is_clear(const struct kernel_result *result)
{
    switch (result->end) {
    case KERNEL_END_CPU:
        return kit_has(result->message, "50 ms of CPU time; allow more with cpuMs") &&
               kit_is(result->name, "TimeoutError");
    case KERNEL_END_WALL:
        return kit_has(result->message, "allow more with wallMs");
    case KERNEL_END_MEMORY:
        return kit_has(result->message,
                       "out of memory: the run may use 67108864 bytes; allow more");
    case KERNEL_END_DEADLOCK:
        return kit_has(result->message, "a promise that can never settle");
    case KERNEL_END_ERROR:
        return result->message.size > 0 && result->name.size > 0;
    default:
        return result->end == KERNEL_END_VALUE || result->message.size > 0;
    }
}

static bool is_one_of(const struct kernel_result *result, int ends)
{
    return (ends >> result->end & 1) != 0;
}

/* Once more, until it is in time; what it took, which is the thread's time, all in all. */
static uint64_t attack_run(struct kernel_context *context, const struct kernel_source *source,
                           int ends)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < TRIES && least > (CPU_MS + CPU_LATE_MS) * 1000000ULL; i++) {
        uint64_t begun, took;
        const struct kernel_result *result;
        struct error err;

        CHECK(i == 0 || kernel_context_reset(context, NULL, &err) == 0, "a reset");
        begun = thread_cpu_ns();
        result = kit_run_source(context, source);
        took = thread_cpu_ns() - begun;
        /* A machine that does nothing for a while may call that the thread's time. */
        if (result->end == KERNEL_END_CPU && !is_one_of(result, ends))
            continue;
        least = took < least ? took : least;
        /* What waited was not at the limit of its time, and waiting costs the host some, too. */
        if (!is_one_of(result, ends) || result->end == KERNEL_END_WALL)
            return result->cpu_ns;
    }
    return least;
}

static void attack(const struct attack *what, enum kernel_language language,
                   struct kernel_context *context, const struct kernel_manifest *manifest)
{
    const struct kernel_source source = {.text = what->source,
                                         .size = strlen(what->source),
                                         .language = language,
                                         .cpu_ms = CPU_MS,
                                         .wall_ms = (what->ends & WALL) != 0 ? 300 : 0};
    uint64_t took = attack_run(context, &source, what->ends);
    const struct kernel_result *result = kernel_result(context);
    const char *shown = what->source;
    struct kernel_context *other;
    struct error err;

    CHECK(is_one_of(result, what->ends), "%.100s: ends by %s: '%.*s' '%.*s'", shown,
          kernel_end_name(result->end),
          (int)(result->message.size < 200 ? result->message.size : 200), result->message.data,
          (int)(result->output.size < 80 ? result->output.size : 80), result->output.data);
    CHECK(is_clear(result), "%.100s: by %s it says '%.*s'", shown, kernel_end_name(result->end),
          (int)(result->message.size < 200 ? result->message.size : 200), result->message.data);
    CHECK(took <= (CPU_MS + CPU_LATE_MS) * 1000000ULL, "%.100s: %llu us", shown,
          (unsigned long long)took / 1000);
    CHECK(result->memory_bytes <= MEMORY, "%.100s: %llu bytes", shown,
          (unsigned long long)result->memory_bytes);

    other = kit_context(manifest);
    RUN_IS(other, "6 * 7", "42");
    kernel_context_free(other);
    /* What it held, it may hold on to, and what it broke is broken; but it runs. */
    result = kit_run_within(context, "6 * 7", CPU_MS);
    CHECK(result->end != KERNEL_END_TRAP && result->end != KERNEL_END_STACK, "%.100s, then by %s",
          shown, kernel_end_name(result->end));
    /* A context that is put back is as new. */
    CHECK(kernel_context_reset(context, NULL, &err) == 0, "%s", err.text);
    RUN_IS(context, "6 * 7 + Object.keys(Object.prototype).length", "42");
}

static void nesting(size_t number, enum kernel_language language, struct kernel_context *context,
                    const struct kernel_manifest *manifest)
{
    static char text[400000];
    size_t size = 0, count = (sizeof(text) - 200) / strlen(nestings[number].repeated);

    size += (size_t)snprintf(text, sizeof(text), "%s", nestings[number].before);
    for (size_t i = 0; i < count && i < 50000; i++, size += strlen(nestings[number].repeated))
        memcpy(text + size, nestings[number].repeated, strlen(nestings[number].repeated));
    (void)snprintf(text + size, sizeof(text) - size, "%s", nestings[number].after);
    attack(&(struct attack){text, THROWS | CPU | MEMORY_END}, language, context, manifest);
}

/* A loop that the engine looks at, once more if the machine took even what the engine had to stop it in. */
static const struct kernel_result *run_on(struct kernel_context *context, const char *source)
{
    const struct kernel_result *result = kit_run_within(context, source, CPU_MS);

    for (int i = 1; i < TRIES && result->state_lost; i++)
        result = kit_run_within(context, source, CPU_MS);
    return result;
}

/* What was there before a loop was stopped is there afterwards. */
static void state_is_kept(struct kernel_context *context)
{
    const struct kernel_result *result = run_on(context, "globalThis.kept = 7; while (true) {}");

    CHECK(result->end == KERNEL_END_CPU && !result->state_lost, "ends by %s",
          kernel_end_name(result->end));
    RUN_IS(context, "kept", "7");
    /* One that the engine does not look at is cut off, and says so. */
    result = kit_run_within(context, "'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')", CPU_MS);
    CHECK(result->end == KERNEL_END_CPU && result->state_lost, "ends by %s",
          kernel_end_name(result->end));
    RUN_IS(context, "typeof kept", "undefined");
    /* Its log is told all the same. */
    result = kit_run_within(
        context, "console.log('before'); 'a'.repeat(2e5).indexOf('a'.repeat(1e5) + 'b')", CPU_MS);
    CHECK(result->logs_count == 1 && kit_is(result->logs[0].text, "before"), "the log is kept");
    /* What an endless chain of promises left behind does not run in the next one. */
    result = run_on(context, "globalThis.turns = 0; for (;;) { turns++; await 0 }");
    CHECK(result->end == KERNEL_END_CPU && !result->state_lost, "ends by %s",
          kernel_end_name(result->end));
    RUN_IS(context, "const was = turns; await 0; await 0; turns === was && was > 0", "true");
}

/* The limit is the run's, over all its steps; and a run may tighten it. */
static void limits_add_up(struct kernel_context *context)
{
    struct kernel_source what = {.cpu_ms = 20};
    enum kernel_status status;
    struct error err;
    uint64_t begun;

    begun = thread_cpu_ns();
    const struct kernel_result *result = kit_run_within(
        context,
        "const f = () => { const t = Date.now(); while (Date.now() < t + 5) {}"
        " setTimeout(f, 0) }; f(); await new Promise(() => {})",
        CPU_MS);
    CHECK(result->end == KERNEL_END_CPU || result->end == KERNEL_END_WALL, "ends by %s",
          kernel_end_name(result->end));
    CHECK(thread_cpu_ns() - begun < (uint64_t)PATIENCE * CPU_MS * 1000000, "in time");
    what.text = "while (true) {}";
    what.size = strlen(what.text);
    CHECK(kernel_run(context, &what, &status, &err) == 0 &&
              kernel_result(context)->end == KERNEL_END_CPU &&
              kit_has(kernel_result(context)->message, "20 ms"),
          "%.*s", (int)kernel_result(context)->message.size, kernel_result(context)->message.data);
    /* The next one has its whole time again. */
    RUN_IS(context, "let n = 0; for (let i = 0; i < 1e5; i++) n += i; n", "4999950000");
}

/* What waits at the host is not beyond the limit of memory. */
static void calls_are_bounded(void)
{
    const char *const tools[] = {"one", NULL};
    const struct kernel_grants grants = {.memory_bytes = MEMORY, .tools = tools};
    struct kernel_manifest *manifest = kit_manifest(&grants);
    struct kernel_context *context = kit_context(manifest);

    RUN_THROWS(context,
               "const b = new Uint8Array(1e7), all = []; for (let i = 0; i < 9; i++)"
               " all.push(host.begin('tool', {name: 'one'}, b)); await Promise.all(all)",
               "hold more than the run's memory");
    RUN_IS(context, "6 * 7", "42");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
}

#define READS "const fs = require('fs'); while (true) fs.readFileSync('%s/large')"
#define WRITES \
    "const fs = require('fs'), b = Buffer.alloc(6e7); while (true) fs.writeFileSync('%s/new', b)"
#define TREE_FILES 50000U
#define LISTS "while (true) try { host.call('fs.list', {path: '%s/tree'}) } catch {}"
#define REMOVES "host.call('fs.remove', {path: '%s/tree', recursive: true})"

/* What the host does for code is part of its time: a large file is read and written piece by piece. */
static void files_stop_in_time(void)
{
    char directory[] = "/dev/shm/kernel-attacks-XXXXXX", text[256];
    const char *const paths[] = {directory, NULL};
    const struct kernel_grants grants = {.read_paths = paths,
                                         .write_paths = paths,
                                         .cpu_ms = AMPLE_MS,
                                         .wall_ms = 20000,
                                         .memory_bytes = 256U << 20};
    struct kernel_manifest *manifest;
    struct kernel_context *context;
    struct error err;

    CHECK(mkdtemp(directory) != NULL, "a directory");
    (void)snprintf(text, sizeof(text), "%s/large", directory);
    CHECK(close(creat(text, 0600)) == 0 && truncate(text, 60 << 20) == 0, "a file");
    manifest = kit_manifest(&grants);
    context = kit_context(manifest);
    for (size_t i = 0; i < 2; i++) {
        uint64_t took;

        (void)snprintf(text, sizeof(text), i == 0 ? READS : WRITES, directory);
        took = attack_run(
            context, &(struct kernel_source){.text = text, .size = strlen(text), .cpu_ms = CPU_MS},
            CPU);
        CHECK(kernel_result(context)->end == KERNEL_END_CPU, "%s: ends by %s", text,
              kernel_end_name(kernel_result(context)->end));
        CHECK(took <= (CPU_MS + CPU_LATE_MS) * 1000000ULL, "%s: %llu us", text,
              (unsigned long long)took / 1000);
        CHECK(kernel_context_reset(context, NULL, &err) == 0, "a reset");
        RUN_IS(context, "6 * 7", "42");
    }
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    (void)snprintf(text, sizeof(text), "%s/large", directory);
    (void)unlink(text);
    (void)snprintf(text, sizeof(text), "%s/new", directory);
    (void)unlink(text);
    CHECK(rmdir(directory) == 0, "nothing is left");
}

/* So are a large directory that is read and one that is removed. */
static void trees_stop_in_time(void)
{
    char directory[] = "/dev/shm/kernel-trees-XXXXXX", text[256];
    const char *const paths[] = {directory, NULL};
    const struct kernel_grants grants = {
        .read_paths = paths, .write_paths = paths, .cpu_ms = AMPLE_MS, .wall_ms = 20000};
    struct kernel_manifest *manifest;
    struct kernel_context *context;

    CHECK(mkdtemp(directory) != NULL, "a directory");
    (void)snprintf(text, sizeof(text), "%s/tree", directory);
    CHECK(mkdir(text, 0700) == 0, "another one");
    for (unsigned i = 0; i < TREE_FILES; i++) {
        (void)snprintf(text, sizeof(text), "%s/tree/%06u", directory, i);
        if (close(creat(text, 0600)) < 0)
            exit(1);
    }
    manifest = kit_manifest(&grants);
    context = kit_context(manifest);
    (void)snprintf(text, sizeof(text), LISTS, directory);
    CHECK(attack_run(context,
                     &(struct kernel_source){.text = text, .size = strlen(text), .cpu_ms = CPU_MS},
                     CPU) <= (CPU_MS + CPU_LATE_MS) * 1000000ULL,
          "a list is in time");
    CHECK(kernel_result(context)->end == KERNEL_END_CPU, "ends by %s",
          kernel_end_name(kernel_result(context)->end));
    (void)snprintf(text, sizeof(text), REMOVES, directory);
    (void)kit_run_within(context, text, 10);
    CHECK(kernel_result(context)->end == KERNEL_END_CPU, "ends by %s",
          kernel_end_name(kernel_result(context)->end));
    (void)snprintf(text, sizeof(text), "%s/tree", directory);
    CHECK(access(text, F_OK) == 0, "what was not removed in time is there");
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    (void)snprintf(text, sizeof(text), "rm -rf %s", directory);
    CHECK(system(text) == 0, "removed"); // NOLINT(cert-env33-c): a name of our own
}

int main(void)
{
    struct kernel_grants grants = {.cpu_ms = AMPLE_MS, .wall_ms = 60000, .memory_bytes = MEMORY};
    const char *const tools[] = {"one", NULL};
    struct kernel_manifest *manifest;
    struct kernel_context *context;

    grants.tools = tools;
    manifest = kit_manifest(&grants);
    context = kit_context(manifest);
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++)
        attack(&attacks[i], KERNEL_JS, context, manifest);
    for (size_t i = 0; i < sizeof(typescript) / sizeof(typescript[0]); i++)
        attack(&typescript[i], KERNEL_TS, context, manifest);
    for (size_t i = 0; i < sizeof(nestings) / sizeof(nestings[0]); i++) {
        nesting(i, KERNEL_JS, context, manifest);
        nesting(i, KERNEL_TS, context, manifest);
    }
    state_is_kept(context);
    limits_add_up(context);
    files_stop_in_time();
    trees_stop_in_time();
    calls_are_bounded();
    kernel_context_free(context);
    kernel_manifest_free(manifest);
    kernel_image_free(kit_image());
    return check_finish();
}
