/* A worker and the engine's end of it: what is asked for is done, in its order and at once, whatever else runs; and
 * what ends a run ends nothing else. */
#include "check.h"
#include "worker_kit.h"

#include "base/clock.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

static uint64_t last; /* number that was taken */

static void single_runs(void)
{
    const struct kernel_grants grants = {.env = (const char *const[]){"A=b", NULL},
                                         .argv = (const char *const[]){"x", NULL}};
    struct worker_end end = worker_start(0);
    uint64_t run = ++last;

    WORKER_IS(&end, run, 0, NULL, "1 + 1", "2");
    WORKER_IS(&end, ++last, 0, NULL, "globalThis.x = 1; x", "1");
    WORKER_IS(&end, ++last, 0, NULL, "typeof x", "undefined");
    WORKER_IS(&end, ++last, 0, &grants, "process.env.A + process.argv[2]", "bx");
    WORKER_IS(&end, ++last, 0, NULL, "await new Promise(r => setTimeout(() => r(7), 20))", "7");
    WORKER_IS(&end, ++last, 0, NULL,
              "try { require('fs').readFileSync('/etc/passwd') } catch (e) { e.code }", "EACCES");
    CHECK(worker_runs(&end, ++last, 0, NULL, "console.log('a'); console.error('b'); throw 1 / x"),
          "it is asked for");
    CHECK(worker_hears(&end, REMOTE_DONE, last), "it ends");
    CHECK(end.event.result->end == KERNEL_END_ERROR && end.event.result->logs_count == 2 &&
              kernel_text_is(end.event.result->name, "ReferenceError") &&
              kernel_text_is(end.event.result->logs[1].text, "b"),
          "it is told what was thrown");
    CHECK(worker_end(&end) == 0, "the worker ends with its socket");
}

static uint64_t make(struct worker_end *end, const struct kernel_grants *grants)
{
    struct error err;
    uint64_t context = ++last;

    CHECK(remote_new(end->remote, context, grants, &err) == 0, "%s", err.text);
    CHECK(worker_hears(end, REMOTE_MADE, context), "a context is made");
    return context;
}

static bool fails(struct worker_end *end, enum remote_kind of, uint64_t number, const char *code)
{
    if (worker_hears(end, REMOTE_FAILED, number) && end->event.of == of &&
        strcmp(end->event.error.code, code) == 0)
        return true;
    (void)printf("%d, %d, '%s'\n", (int)end->event.kind, (int)end->event.of, end->event.error.code);
    return false;
}

/* Of a copy, for they are taken. */
static int restore(struct worker_end *end, uint64_t context, const uint8_t *bytes, size_t size,
                   struct error *err)
{
    const struct kernel_grants nothing = {0};
    uint8_t *copy = malloc(size);

    if (copy == NULL)
        exit(1);
    memcpy(copy, bytes, size);
    return remote_restore(end->remote, context, &nothing, copy, size, err);
}

static void contexts(void)
{
    const struct kernel_grants nothing = {0}, wrong = {.env = (const char *const[]){"A", NULL}},
                               paths = {.read_paths = (const char *const[]){"/etc", NULL}};
    struct worker_end end = worker_start(0);
    uint64_t context = make(&end, &nothing), copy = ++last, restored = ++last, failed = ++last;
    uint8_t *bytes;
    struct error err;
    size_t size;

    WORKER_IS(&end, ++last, context, NULL, "let x = 40; x", "40");
    WORKER_IS(&end, ++last, context, NULL, "x += 2", "42");
    CHECK(remote_fork(end.remote, context, copy, &err) == 0, "a fork is asked for");
    /* It may be used at once. */
    CHECK(worker_runs(&end, ++last, copy, NULL, "++x"), "a run in what is being made");
    CHECK(worker_hears(&end, REMOTE_MADE, copy), "the copy is made");
    CHECK(worker_hears(&end, REMOTE_DONE, last) && kernel_text_is(end.event.result->output, "43"),
          "it has the state");
    WORKER_IS(&end, ++last, context, NULL, "x", "42");
    CHECK(remote_snapshot(end.remote, copy, &err) == 0, "a snapshot is asked for");
    CHECK(worker_hears(&end, REMOTE_SNAPSHOT, copy) && end.event.size > 4096, "and comes");
    size = end.event.size;
    bytes = malloc(size);
    if (bytes == NULL)
        return;
    memcpy(bytes, end.event.bytes, size);
    CHECK(restore(&end, restored, bytes, size, &err) == 0, "it goes back");
    CHECK(worker_hears(&end, REMOTE_MADE, restored), "it is restored");
    WORKER_IS(&end, ++last, restored, NULL, "x", "43");
    bytes[size / 2] ^= 1;
    CHECK(restore(&end, failed, bytes, size, &err) == 0, "asked for");
    CHECK(fails(&end, REMOTE_MADE, failed, "bad_snapshot"), "what was changed is refused");
    CHECK(remote_drop(end.remote, failed, &err) < 0 && strcmp(err.code, "not_found") == 0,
          "and is no context");
    CHECK(remote_reset(end.remote, context, &err) == 0, "a reset");
    CHECK(worker_hears(&end, REMOTE_MADE, context), "is done");
    WORKER_IS(&end, ++last, context, NULL, "typeof x", "undefined");
    CHECK(remote_drop(end.remote, copy, &err) == 0, "a drop");
    CHECK(remote_drop(end.remote, copy, &err) < 0 && strcmp(err.code, "not_found") == 0,
          "is not done twice");
    CHECK(remote_new(end.remote, context, &nothing, &err) < 0 &&
              strcmp(err.code, "bad_number") == 0,
          "a number is taken");
    CHECK(remote_new(end.remote, ++last, &paths, &err) < 0 && strcmp(err.code, "bad_manifest") == 0,
          "there are no files");
    CHECK(remote_new(end.remote, ++last, &wrong, &err) == 0, "this is seen in the worker");
    CHECK(fails(&end, REMOTE_MADE, last, "bad_manifest"), "a manifest that is none is refused");
    CHECK(worker_runs(&end, ++last, 0, &wrong, "1"), "also of a single run");
    CHECK(fails(&end, REMOTE_DONE, last, "bad_manifest"), "it is refused");
    WORKER_IS(&end, ++last, context, NULL, "1", "1");
    free(bytes);
    CHECK(worker_end(&end) == 0, "the worker ends");
}

/* What cannot be made is told of, also where it was dropped before anybody looked at it. */
static void dropped_at_once(void)
{
    const struct kernel_grants nothing = {0}, wrong = {.env = (const char *const[]){"A", NULL}};
    struct worker_end end = worker_start(0);
    const uint8_t bytes[200] = {1};
    uint64_t context = make(&end, &nothing);
    struct error err;

    for (unsigned i = 0; i < 60; i++) {
        uint64_t number = ++last;
        int asked = i % 3 == 0   ? remote_new(end.remote, number, &wrong, &err)
                    : i % 3 == 1 ? restore(&end, number, bytes, sizeof(bytes), &err)
                                 : remote_fork(end.remote, context, number, &err);

        CHECK(asked == 0 && remote_drop(end.remote, number, &err) == 0, "%s", err.text);
        CHECK(worker_next(&end) && end.event.number == number &&
                  (end.event.kind == REMOTE_FAILED) == (i % 3 != 2),
              "it is answered: %d of %llu", (int)end.event.kind,
              (unsigned long long)end.event.number);
    }
    WORKER_IS(&end, ++last, context, NULL, "1", "1");
    CHECK(worker_end(&end) == 0, "the worker ends");
}

/* Two that are large do not wait for it together. */
static void large_restores(void)
{
    const size_t size = 60U << 20;
    struct worker_end end = worker_start(0);
    uint8_t *bytes = calloc(1, size);
    uint64_t number = ++last;
    struct error err;

    if (bytes == NULL)
        exit(1);
    /* It reads nothing meanwhile. */
    CHECK(kill(end.pid, SIGSTOP) == 0, "a stop");
    CHECK(restore(&end, number, bytes, size, &err) == 0, "%s", err.text);
    CHECK(restore(&end, ++last, bytes, size, &err) < 0 && strcmp(err.code, "kernel_busy") == 0,
          "%s", err.text);
    CHECK(kill(end.pid, SIGCONT) == 0, "it goes on");
    CHECK(fails(&end, REMOTE_MADE, number, "bad_snapshot"), "the first is looked at");
    CHECK(restore(&end, ++last, bytes, size, &err) == 0, "%s", err.text);
    CHECK(fails(&end, REMOTE_MADE, last, "bad_snapshot"), "now the second is, too");
    free(bytes);
    CHECK(worker_end(&end) == 0, "the worker ends");
}

/* A call that comes next, of this op. */
static bool calls(struct worker_end *end, uint64_t run, const char *op)
{
    return worker_hears(end, REMOTE_CALL, run) && kernel_text_is(end->event.call.op, op);
}

static void tools(void)
{
    const struct kernel_grants grants = {.tools = (const char *const[]){"add", "no", NULL},
                                         .hosts = (const char *const[]){"example.com", NULL}};
    static const char *const answers[] = {"{\"value\":1}", "{\"value\":20}", "{\"value\":300}"};
    struct worker_end end = worker_start(0);
    uint64_t context = make(&end, &grants), run = ++last;
    uint32_t ids[3] = {0};
    struct error err;

    CHECK(worker_runs(&end, run, context, NULL,
                      "(await Promise.all([1, 2, 3].map(i => tools.add({i}))))"
                      ".reduce((a, b) => a + b)"),
          "three calls at once");
    for (int i = 0; i < 3; i++) {
        CHECK(calls(&end, run, "tool"), "call %d", i);
        ids[i] = end.event.call.id;
    }
    for (int i = 2; i >= 0; i--)
        CHECK(remote_settle(end.remote, run, ids[i], answers[i], strlen(answers[i]), NULL, 0,
                            &err) == 0,
              "an answer");
    CHECK(worker_hears(&end, REMOTE_DONE, run) && kernel_text_is(end.event.result->output, "321"),
          "they are put together");
    run = ++last;
    CHECK(worker_runs(&end, run, 0, &grants, "try { await tools.no() } catch (e) { e.message }"),
          "one that fails");
    CHECK(calls(&end, run, "tool"), "is called");
    CHECK(remote_settle_error(end.remote, run, end.event.call.id, "E", "it is so", &err) == 0,
          "and told");
    CHECK(worker_hears(&end, REMOTE_DONE, run) &&
              kernel_text_is(end.event.result->output, "it is so"),
          "which it sees: %.*s", (int)end.event.result->output.size, end.event.result->output.data);
    /* Its own denials never leave it. */
    WORKER_IS(&end, ++last, context, NULL,
              "try { await fetch('http://other.org/') } catch (e) { String(e.cause ?? e)"
              ".includes('allowedHosts') }",
              "true");
    /* A fetch, its body, and that it is not wanted any more. */
    run = ++last;
    CHECK(worker_runs(&end, run, context, NULL,
                      "const r = await fetch('http://example.com/'); const b = r.body.getReader();"
                      "const one = await b.read(); await b.cancel(); one.value.length"),
          "a fetch");
    CHECK(calls(&end, run, "fetch.start"), "is begun");
    {
        static const char answer[] =
            "{\"status\":200,\"statusText\":\"OK\",\"url\":\"http://example.com/\",\"headers\":[],"
            "\"redirected\":false,\"stream\":1}";

        CHECK(remote_settle(end.remote, run, end.event.call.id, answer, strlen(answer), NULL, 0,
                            &err) == 0,
              "is answered");
    }
    CHECK(calls(&end, run, "fetch.read"), "is read");
    CHECK(remote_settle(end.remote, run, end.event.call.id, "{\"end\":false}", 13,
                        (const uint8_t *)"abcd", 4, &err) == 0,
          "bytes");
    CHECK(worker_hears(&end, REMOTE_CANCEL, run) &&
              kernel_text_is(end.event.call.op, "fetch.cancel"),
          "is cancelled");
    CHECK(worker_hears(&end, REMOTE_DONE, run) && kernel_text_is(end.event.result->output, "4"),
          "and ends: %.*s", (int)end.event.result->message.size, end.event.result->message.data);
    CHECK(worker_end(&end) == 0, "the worker ends");
}

static bool ends_by(struct worker_end *end, uint64_t run, enum kernel_end how)
{
    if (worker_hears(end, REMOTE_DONE, run) && end->event.result->end == how)
        return true;
    (void)printf("it ended by %s\n",
                 end->event.result != NULL ? kernel_end_name(end->event.result->end) : "nothing");
    return false;
}

/* Loops that look at nothing, more of them than threads: each ends at its limit, and what is short is done
 * meanwhile. */
static void limits(void)
{
    const struct kernel_grants grants = {.cpu_ms = 50};
    struct worker_end end = worker_start(0);
    uint64_t first = last + 1;
    bool seen[12] = {0};

    for (size_t i = 0; i < 12; i++)
        CHECK(worker_runs(&end, ++last, 0, &grants,
                          i % 2 == 0 ? "for (;;);"
                                     : "Array.prototype.indexOf.call({length: 4294967295}, 99)"),
              "a loop");
    for (size_t i = 0; i < 12; i++) {
        CHECK(worker_next(&end) && end.event.kind == REMOTE_DONE &&
                  end.event.result->end == KERNEL_END_CPU && end.event.result->cpu_ns < 1000000000U,
              "it ends at its limit");
        CHECK(end.event.number - first < 12 && !seen[end.event.number - first], "each once");
        seen[(end.event.number - first) % 12] = true;
    }
    WORKER_IS(&end, ++last, 0, NULL, "1 + 1", "2");
    CHECK(worker_end(&end) == 0, "the worker ends");
}

static void stops(void)
{
    static const char *const endless[] = {
        "for (;;);",
        "Array.prototype.indexOf.call({length: 4294967295}, 99)",
        "await new Promise(r => setTimeout(r, 1e6))",
        "await tools.never()",
        "for (;;) await null",
    };
    const struct kernel_grants grants = {
        .cpu_ms = 600000, .wall_ms = 600000, .tools = (const char *const[]){"never", NULL}};
    struct worker_end end = worker_start(0);
    uint64_t context = make(&end, &grants), other = make(&end, &grants), run, begun;
    struct error err;

    for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++) {
        run = ++last;
        CHECK(worker_runs(&end, run, context, NULL, endless[i]), "endless");
        if (i == 3)
            CHECK(calls(&end, run, "tool"), "it calls");
        CHECK(worker_runs(&end, ++last, context, NULL, "1"), "a second one");
        CHECK(fails(&end, REMOTE_DONE, last, "kernel_busy"), "is refused");
        CHECK(remote_snapshot(end.remote, context, &err) == 0, "a snapshot");
        CHECK(fails(&end, REMOTE_SNAPSHOT, context, "kernel_busy"), "is refused");
        CHECK(remote_fork(end.remote, context, ++last, &err) == 0, "a fork");
        CHECK(fails(&end, REMOTE_MADE, last, "kernel_busy"), "is refused");
        WORKER_IS(&end, ++last, other, NULL, "2", "2");
        begun = clock_monotonic_ns();
        CHECK(remote_stop(end.remote, run, i == 0 ? KERNEL_END_WALL : KERNEL_END_STOPPED, &err) ==
                  0,
              "stopped");
        CHECK(ends_by(&end, run, i == 0 ? KERNEL_END_WALL : KERNEL_END_STOPPED), "'%s' ends",
              endless[i]);
        CHECK(clock_monotonic_ns() - begun < 5000000000U, "soon");
        CHECK(remote_stop(end.remote, run, KERNEL_END_STOPPED, &err) == 0, "no harm");
        WORKER_IS(&end, ++last, context, NULL, "3", "3");
    }
    /* A reset ends what runs, a drop too; the run is told of, the drop is not. */
    for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++) {
        run = ++last;
        CHECK(worker_runs(&end, run, context, NULL, endless[i]), "endless");
        if (i == 3)
            CHECK(calls(&end, run, "tool"), "it calls");
        CHECK(remote_reset(end.remote, context, &err) == 0, "reset");
        CHECK(ends_by(&end, run, KERNEL_END_STOPPED), "it ends");
        CHECK(worker_hears(&end, REMOTE_MADE, context), "it is reset");
        run = ++last;
        CHECK(worker_runs(&end, run, context, NULL, endless[i]), "endless");
        if (i == 3)
            CHECK(calls(&end, run, "tool"), "it calls");
        CHECK(remote_drop(end.remote, context, &err) == 0, "dropped");
        CHECK(ends_by(&end, run, KERNEL_END_STOPPED), "it ends");
        context = make(&end, &grants);
    }
    /* As many as there are threads, and more: those that did not begin end as well. */
    for (size_t i = 0; i < 40; i++)
        CHECK(worker_runs(&end, ++last, 0, &grants, endless[0]), "endless");
    for (size_t i = 0; i < 40; i++)
        CHECK(remote_stop(end.remote, last - i, KERNEL_END_STOPPED, &err) == 0, "stopped");
    for (size_t i = 0; i < 40; i++)
        CHECK(worker_next(&end) && end.event.kind == REMOTE_DONE &&
                  end.event.result->end == KERNEL_END_STOPPED,
              "it ends");
    WORKER_IS(&end, ++last, other, NULL, "4", "4");
    CHECK(worker_end(&end) == 0, "the worker ends");
}

/* What one context takes leaves room for what others have. */
static void memory(void)
{
    const struct kernel_grants large = {.memory_bytes = 1ULL << 30,
                                        .cpu_ms = 60000,
                                        .wall_ms = 60000},
                               nothing = {0};
    struct worker_end end = worker_start(64U << 20);
    uint64_t contexts[400], made = 0;
    struct error err;

    CHECK(worker_runs(&end, ++last, 0, &large,
                      "const a = []; for (;;) a.push('x'.repeat(1e6) + a.length)"),
          "more than there is");
    CHECK(ends_by(&end, last, KERNEL_END_MEMORY), "it has no more");
    WORKER_IS(&end, ++last, 0, NULL, "1", "1");
    for (size_t i = 0; i < 400; i++) {
        contexts[i] = ++last;
        CHECK(remote_new(end.remote, contexts[i], &nothing, &err) == 0, "a context");
        CHECK(worker_runs(&end, ++last, contexts[i], NULL,
                          "globalThis.x = new Uint8Array(100000).fill(7); 1"),
              "runs");
    }
    for (size_t i = 0; i < 800; i++) {
        CHECK(worker_next(&end), "an answer");
        made += end.event.kind == REMOTE_MADE ? 1 : 0;
        if (end.event.kind == REMOTE_FAILED && end.event.of == REMOTE_MADE)
            CHECK(strcmp(end.event.error.code, "no_memory") == 0, "%s", end.event.error.text);
    }
    CHECK(made > 50 && made < 400, "%llu contexts fit", (unsigned long long)made);
    WORKER_IS(&end, ++last, contexts[0], NULL, "x[99999]", "7");
    /* Those that were refused are not there. */
    for (size_t i = 0; i < 400; i++)
        made -= remote_drop(end.remote, contexts[i], &err) == 0 ? 1U : 0U;
    CHECK(made == 0, "all are dropped");
    (void)make(&end, &nothing);
    CHECK(worker_end(&end) == 0, "the worker ends");
}

/* A result of more than a frame may have is told as such, and what is large goes through. */
static void sizes(void)
{
    const struct kernel_grants grants = {
        .memory_bytes = 1ULL << 30, .cpu_ms = 60000, .wall_ms = 60000};
    struct worker_end end = worker_start(0);

    CHECK(worker_runs(&end, ++last, 0, &grants, "'x'.repeat(20e6)"), "large");
    CHECK(ends_by(&end, last, KERNEL_END_VALUE) && end.event.result->value.size == 20000002, "%zu",
          end.event.result->value.size);
    CHECK(worker_runs(&end, ++last, 0, &grants, "'x'.repeat(50e6)"), "too large");
    CHECK(ends_by(&end, last, KERNEL_END_ERROR) &&
              kernel_text_is(end.event.result->name, "RangeError"),
          "it is said");
    WORKER_IS(&end, ++last, 0, NULL, "1", "1");
    CHECK(worker_end(&end) == 0, "the worker ends");
}

/* All that code can ask for goes on behind the filter, on every thread at once, and is refused where it is not there. */
static void everything(void)
{
    static const char *const sources[] = {
        ("const fs = require('fs'); ['readFileSync', 'writeFileSync', 'statSync', 'readdirSync', 'mkdirSync',"
         " 'unlinkSync', 'rmSync', 'existsSync'].map(f => { try { return fs[f]('/etc/x', 'y') } catch (e) { return "
         "e.code } }).length"),
        "crypto.getRandomValues(new Uint8Array(65536)).length + crypto.randomUUID().length",
        "new Date(0).toLocaleString('en-US', {timeZone: 'UTC'}) + new Intl.NumberFormat('en').format(12345.6)",
        "(function f(n) { return f(n + 1) + 1 })(0)",
        "const a = []; for (let i = 0; i < 200; i++) a.push(new Uint8Array(1e6)); a.length",
        "const b = []; for (;;) b.push('x'.repeat(1e5) + b.length)",
        "(await Promise.all([1, 2, 3].map(i => new Promise(r => setTimeout(() => r(i), i))))).length",
        "try { await fetch('http://127.0.0.1/') } catch (e) { String(e) }",
        "await import('node:path').then(p => p.join('a', 'b'))",
        "console.log('x'.repeat(1e5)); for (let i = 0; i < 2e4; i++) console.log(i); new Map([[1, {a: [1n, /x/g]}]])",
        "[...'x'.repeat(1e5)].map((c, i) => c + i).sort().reverse().join('').length",
        ("structuredClone({a: new Date(), b: new Set([1])});"
         " (await crypto.subtle.digest('SHA-256', new Uint8Array(1e6))).byteLength"),
        "process.exit(3)",
        "await new Promise(() => {})",
        "Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 10)",
    };
    static char hosts[KERNEL_GRANTS_MAX][64], env[KERNEL_GRANTS_MAX][32];
    const char *host_list[KERNEL_GRANTS_MAX + 1] = {NULL},
                                              *env_list[KERNEL_GRANTS_MAX + 1] = {NULL};
    const struct kernel_grants many = {.hosts = host_list, .env = env_list};
    const size_t count = sizeof(sources) / sizeof(sources[0]);
    const struct kernel_grants grants = {
        .cpu_ms = 20000, .wall_ms = 60000, .memory_bytes = 64U << 20};
    struct worker_end end = worker_start(0);

    for (size_t i = 0; i < 2 * count; i++)
        CHECK(worker_runs(&end, ++last, 0, &grants, sources[i % count]), "asked for");
    for (size_t i = 0; i < 2 * count; i++)
        CHECK(worker_next(&end) && end.event.kind == REMOTE_DONE &&
                  end.event.result->end != KERNEL_END_TRAP,
              "a run of everything ends");
    WORKER_IS(&end, ++last, 0, NULL, "1", "1");
    /* The largest manifest. */
    for (size_t i = 0; i < KERNEL_GRANTS_MAX; i++) {
        (void)snprintf(hosts[i], sizeof(hosts[i]), "host%zu.example.com:%zu", i, 1000 + i);
        (void)snprintf(env[i], sizeof(env[i]), "V%zu=%zu", i, i);
        host_list[i] = hosts[i];
        env_list[i] = env[i];
    }
    WORKER_IS(&end, ++last, 0, &many, "process.env.V255", "255");
    CHECK(worker_end(&end) == 0, "the worker ends");
}

/* A line of /proc/PID/task/TID/status. */
static long status_of(pid_t pid, const char *task, const char *name)
{
    char path[300], line[256];
    long value = -1;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)pid, task);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, 10);
    if (file != NULL)
        (void)fclose(file);
    return value;
}

/* All its threads are shut in by the time it says that it is ready, and it makes no more. */
static void posture(void)
{
    struct worker_end end = worker_start(0);
    struct dirent *entry;
    char path[64];
    long tasks = 0;
    DIR *dir;

    WORKER_IS(&end, ++last, 0, NULL, "1", "1");
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)end.pid);
    dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        tasks++;
        CHECK(status_of(end.pid, entry->d_name, "Seccomp:") == 2 &&
                  status_of(end.pid, entry->d_name, "NoNewPrivs:") == 1,
              "thread %s is shut in", entry->d_name);
    }
    if (dir != NULL)
        (void)closedir(dir);
    CHECK(tasks > 8 && tasks <= KERNEL_WORKER_TASKS, "%ld threads", tasks);
    CHECK(worker_end(&end) == 0, "the worker ends");
}

/* A fault that is nobody's, while guests run: the worker ends by it, and who waits hears so. */
static void killed(void)
{
    const struct kernel_grants grants = {.cpu_ms = 600000, .wall_ms = 600000};
    struct worker_end end = worker_start(0);
    struct error err;
    int status;

    CHECK(worker_runs(&end, ++last, 0, &grants, "for (;;);"), "endless");
    WORKER_IS(&end, ++last, 0, NULL, "1", "1");
    CHECK(kill(end.pid, SIGSEGV) == 0, "a fault");
    CHECK(worker_hears(&end, REMOTE_GONE, 0) && strcmp(end.event.error.code, "kernel_gone") == 0,
          "it is gone");
    CHECK(remote_stop(end.remote, last, KERNEL_END_STOPPED, &err) < 0, "nothing can be asked");
    status = worker_end(&end);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) > 1, "it ended by it: %#x", (unsigned)status);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    single_runs();
    contexts();
    dropped_at_once();
    large_restores();
    tools();
    limits();
    stops();
    memory();
    sizes();
    everything();
    posture();
    killed();
    return check_finish();
}
