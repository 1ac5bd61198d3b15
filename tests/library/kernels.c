/* A program of somebody's that runs kernels by libcove: each thing it tries is one line of what it saw. It
 * checks nothing: test_library.py does. */
#include <cove.h>

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void say(const struct cove_run_result *result)
{
    printf(
        "%s [%.*s] type [%.*s] value [%.*s] thrown [%.*s: %.*s] line %u exit %d lost %d logs %zu\n",
        result->end, (int)result->output.size, result->output.data, (int)result->type.size,
        result->type.data, (int)result->value.size, result->value.data, (int)result->name.size,
        result->name.data, (int)result->message.size, result->message.data, result->line,
        result->exit_code, result->state_lost, result->logs_count);
}

static void fail(const struct cove_error *error)
{
    printf("failed %s: %s\n", error->code, error->text);
}

static void run(struct cove_kernel *kernel, const struct cove_source *source)
{
    const struct cove_run_result *result;
    struct cove_error error;

    if (cove_kernel_run(kernel, source, &result, &error) < 0)
        fail(&error);
    else
        say(result);
}

static void js(struct cove_kernel *kernel, const char *text)
{
    run(kernel, &(struct cove_source){.text = text});
}

static struct cove_kernel *make(const struct cove_grants *grants)
{
    struct cove_kernel *kernel;
    struct cove_error error;

    if (cove_kernel_new(grants, &kernel, &error) == 0)
        return kernel;
    fail(&error);
    return NULL;
}

static void runs(void)
{
    struct cove_kernel *kernel = make(NULL);
    const struct cove_run_result *result;
    struct cove_error error;

    js(kernel, "({a: [1, 'b']})");
    js(kernel, "\nthrow new TypeError('no')");
    js(kernel, "globalThis.kept = 7; console.log('one'); console.error('two')");
    js(kernel, "await new Promise((done) => setTimeout(done, 5)); kept");
    run(kernel, &(struct cove_source){.text = "let n: number = 1; n", .typescript = 1});
    run(kernel, &(struct cove_source){.text = "while (true) {}", .cpu_ms = 20});
    js(kernel, "await new Promise(() => {})");
    js(kernel, "process.exit(3)");
    js(kernel, "require('fs').readFileSync('/etc/passwd')");
    js(kernel, "await fetch('http://example.com/')");
    if (cove_kernel_reset(kernel, &error) < 0)
        fail(&error);
    js(kernel, "typeof kept");
    if (cove_kernel_run(kernel, &(struct cove_source){.text = "console.warn('w'); 1"}, &result,
                        &error) == 0)
        printf("log %d [%.*s] errors [%.*s]\n", (int)result->logs[0].level,
               (int)result->logs[0].text.size, result->logs[0].text.data, (int)result->errors.size,
               result->errors.data);
    if (cove_kernel_run(kernel, &(struct cove_source){.text = "[1n]"}, &result, &error) == 0)
        printf("has_value %d because [%.*s]\n", result->has_value, (int)result->value_error.size,
               result->value_error.data);
    if (cove_kernel_run(
            kernel, &(struct cove_source){.text = "throw Object.assign(new Error(), {code: 'E1'})"},
            &result, &error) == 0)
        printf("code [%.*s]\n", (int)result->code.size, result->code.data);
    cove_kernel_free(kernel);
}

static void tool(void *data, const char *name, struct cove_text args, struct cove_answer *answer)
{
    struct cove_kernel **kernel = data;
    const struct cove_run_result *result;
    struct cove_error error;

    if (strcmp(name, "echo") == 0)
        cove_answer_json(answer, args.data, args.size);
    else if (strcmp(name, "broken") == 0)
        cove_answer_json(answer, "{]", 2);
    else if (strcmp(name, "failing") == 0)
        cove_answer_error(answer, "ENOPE", "not today");
    else if (strcmp(name, "again") == 0) {
        if (cove_kernel_run(*kernel, &(struct cove_source){.text = "1"}, &result, &error) < 0)
            cove_answer_error(answer, error.code, error.text);
    } else if (strcmp(name, "wrong") == 0)
        cove_answer_response(answer, 200, NULL, "x", 1);
}

static void tools(void)
{
    const char *const names[] = {"echo", "broken", "failing", "again", "wrong", "silent", NULL};
    struct cove_kernel *kernel = NULL;
    const struct cove_grants grants = {.tools = names, .tool = tool, .data = &kernel};
    const struct cove_grants nobody = {.tools = names};

    kernel = make(&grants);
    js(kernel, "JSON.stringify(await Promise.all([tools.echo({x: 'é'}), tools.echo(2)]))");
    js(kernel, "await tools.broken().catch((e) => e.name)");
    js(kernel, "await tools.failing()");
    js(kernel, "await tools.again()");
    js(kernel, "await tools.wrong()");
    js(kernel, "await tools.silent()");
    js(kernel, "await tools.other()");
    cove_kernel_free(kernel);
    kernel = make(&nobody);
    js(kernel, "await tools.echo(1)");
    cove_kernel_free(kernel);
}

static void fetcher(void *data, const struct cove_request *request, struct cove_answer *answer)
{
    static char big[3000000];
    const char *const to[] = {"location", "http://other.test/", NULL};
    const char *const two[] = {"X-One", "1", "x-two", "2", NULL};
    struct cove_error error;
    char said[512];
    size_t size;

    (void)data;
    size = (size_t)snprintf(said, sizeof(said), "%s %s [%.*s]", request->method, request->url,
                            (int)request->body_size, (const char *)request->body);
    for (size_t i = 0; request->headers[i] != NULL; i += 2)
        size += (size_t)snprintf(said + size, sizeof(said) - size, " %s=%s", request->headers[i],
                                 request->headers[i + 1]);
    if (strstr(request->url, "/moved") != NULL)
        cove_answer_response(answer, 302, to, NULL, 0);
    else if (strstr(request->url, "/big") != NULL) {
        memset(big, 'x', sizeof(big));
        cove_answer_response(answer, 200, NULL, big, sizeof(big));
    } else if (strstr(request->url, "/inside") != NULL) {
        if (cove_kernel_may_dial(request->kernel, "some.test", "10.0.0.1", 80, &error) < 0)
            cove_answer_error(answer, error.code, error.text);
    } else if (strstr(request->url, "/json") != NULL)
        cove_answer_json(answer, "1", 1);
    else
        cove_answer_response(answer, 201, two, said, size);
}

static void fetches(void)
{
    const char *const hosts[] = {"some.test", NULL};
    const struct cove_grants grants = {.hosts = hosts, .fetch = fetcher};
    const struct cove_grants without = {.hosts = hosts};
    struct cove_kernel *kernel = make(&grants);
    struct cove_error error;

    js(kernel,
       "const r = await fetch('http://some.test/a?b', {method: 'POST', body: 'text', headers: {'X-A': 'é b'}});"
       " [r.status, r.headers.get('x-one'), r.headers.get('x-two'), await r.text()].join()");
    js(kernel, "(await (await fetch('http://some.test/big')).text()).length");
    js(kernel,
       "for (let i = 0; i < 200; i++) await (await fetch('http://some.test/big')).body.cancel(); 7");
    js(kernel,
       "let n = 0; try { for (;;) { await fetch('http://some.test/x'); n++ } } catch (e) { `${n} ${e.cause?.message ?? e.message}` }");
    js(kernel, "await fetch('http://some.test/moved')");
    js(kernel, "await fetch('http://other.test/')");
    js(kernel, "await fetch('http://some.test/inside')");
    js(kernel, "await fetch('http://some.test/json')");
    printf("public %d\n", cove_kernel_may_dial(kernel, "some.test", "93.184.216.34", 80, &error));
    printf("other %d\n", cove_kernel_may_dial(kernel, "other.test", "93.184.216.34", 80, &error));
    if (cove_kernel_may_dial(kernel, "some.test", "169.254.169.254", 80, &error) < 0)
        fail(&error);
    cove_kernel_free(kernel);
    kernel = make(&without);
    js(kernel, "await fetch('http://some.test/')");
    cove_kernel_free(kernel);
}

static void files(const char *directory)
{
    const char *const paths[] = {directory, NULL}, *const missing[] = {"/no/such/place", NULL};
    const struct cove_grants grants = {.read_paths = paths, .write_paths = paths};
    struct cove_kernel *kernel = make(&grants);
    char text[512];

    (void)snprintf(
        text, sizeof(text),
        "const fs = require('fs'); fs.writeFileSync('%s/new', 'n'); fs.readFileSync('%s/file', 'utf8')",
        directory, directory);
    js(kernel, text);
    cove_kernel_free(kernel);
    (void)make(&(struct cove_grants){.read_paths = missing});
}

static void copies(void)
{
    unsigned char key[COVE_KEY_BYTES] = {1, 2, 3};
    struct cove_kernel *kernel = make(NULL), *fork = NULL, *back = NULL;
    struct cove_error error;
    void *bytes = NULL;
    size_t size = 0;

    js(kernel, "globalThis.n = 1; globalThis.f = () => ++n; n");
    if (cove_kernel_fork(kernel, &fork, &error) < 0 ||
        cove_kernel_snapshot(kernel, key, &bytes, &size, &error) < 0)
        fail(&error);
    js(kernel, "f()");
    cove_kernel_free(kernel);
    js(fork, "f() + 10");
    cove_kernel_free(fork);
    if (cove_kernel_restore(NULL, key, bytes, size, &back, &error) < 0)
        fail(&error);
    js(back, "f() + 20");
    cove_kernel_free(back);
    ((char *)bytes)[size / 2] ^= 1;
    if (cove_kernel_restore(NULL, key, bytes, size, &back, &error) < 0)
        fail(&error);
    free(bytes);
}

static void *in_thread(void *failures)
{
    const struct cove_run_result *result;
    struct cove_kernel *kernel;
    struct cove_error error;

    for (int i = 0; i < 50; i++) {
        if (cove_js_run(NULL, &(struct cove_source){.text = "[1, 2, 3].map((x) => x * 2).join()"},
                        &kernel, &result, &error) < 0) {
            (*(int *)failures)++;
            continue;
        }
        *(int *)failures += strncmp(result->output.data, "2,4,6", 5) != 0;
        cove_kernel_free(kernel);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t ids[4];
    int failures[4] = {0};

    for (int i = 0; i < 4; i++)
        (void)pthread_create(&ids[i], NULL, in_thread, &failures[i]);
    for (int i = 0; i < 4; i++)
        (void)pthread_join(ids[i], NULL);
    printf("threads %d failures\n", failures[0] + failures[1] + failures[2] + failures[3]);
}

struct stopper {
    struct cove_kernel *kernel;
    atomic_bool is_over;
};

static void *stopping(void *data)
{
    struct stopper *stopper = data;

    while (!atomic_load(&stopper->is_over)) {
        cove_kernel_stop(stopper->kernel);
        (void)usleep(300); /* again and again, while the first is heard */
    }
    return NULL;
}

static void stop_tool(void *data, const char *name, struct cove_text args,
                      struct cove_answer *answer)
{
    struct cove_kernel **kernel = data;

    (void)name;
    cove_kernel_stop(*kernel);
    cove_answer_json(answer, args.data, args.size);
}

/* Wherever a run is: in its own code, waiting for a timer, in a callback. */
static void stops(void)
{
    static const char *const codes[] = {"while (true) {}",
                                        "await new Promise((done) => setTimeout(done, 600000))"};
    const char *const names[] = {"stop", NULL};
    struct stopper stopper = {0};
    const struct cove_grants grants = {.cpu_ms = 600000,
                                       .wall_ms = 1200000,
                                       .tools = names,
                                       .tool = stop_tool,
                                       .data = &stopper.kernel};
    pthread_t thread;

    stopper.kernel = make(&grants);
    for (int i = 0; i < 2; i++) {
        atomic_store(&stopper.is_over, false);
        (void)pthread_create(&thread, NULL, stopping, &stopper);
        js(stopper.kernel, codes[i]);
        atomic_store(&stopper.is_over, true);
        (void)pthread_join(thread, NULL);
    }
    js(stopper.kernel, "await tools.stop(1); 1");
    /* Of a run that is over, or none, it means nothing. */
    cove_kernel_stop(stopper.kernel);
    js(stopper.kernel, "5");
    cove_kernel_free(stopper.kernel);
}

/* What this host has as its own is not dialled, whatever is granted. */
static int own(const char *address, const char *other)
{
    const char *const hosts[] = {address, other, "some.test", "*", NULL};
    struct cove_kernel *kernel = make(&(struct cove_grants){.hosts = hosts});
    struct cove_error error;

    printf("other %d\n", cove_kernel_may_dial(kernel, other, other, 80, &error));
    if (cove_kernel_may_dial(kernel, address, address, 80, &error) < 0)
        fail(&error);
    if (cove_kernel_may_dial(kernel, "some.test", address, 80, &error) < 0)
        fail(&error);
    cove_kernel_free(kernel);
    return 0;
}

static sigjmp_buf caught;

static void on_segv(int number)
{
    (void)number;
    siglongjmp(caught, 1);
}

/* A fault of the program's own goes to the handler that it had. */
static void own_fault(void)
{
    volatile char *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (sigsetjmp(caught, 1) == 0)
        *nowhere = 1;
    else
        printf("own fault caught\n");
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = on_segv};

    if (argc < 2)
        return 2;
    if (argc == 3)
        return own(argv[1], argv[2]);
    (void)sigaction(SIGSEGV, &action, NULL);
    runs();
    tools();
    fetches();
    files(argv[1]);
    copies();
    stops();
    threads();
    own_fault();
    return 0;
}
