/* A guest that says what it likes, and an embedder who calls in any order. An input is a row of actions: calls of
 * the host whose words are near to what is right or far from it, at any addresses; runs, steps, answers to calls
 * that are there or not; stops, copies and snapshots at any time; any bytes where the host reads what came of
 * a run; and host functions that call back into the kernel.
 *
 * Nothing but the guest's own run may suffer: each action ends, no answer holds what is not granted, nothing that is
 * not granted changes, and the next context works. */
#include "fuzz.h"
#include "kernel/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

/* The input is written down by whoever began. */
#define MUST(condition)            \
    do {                           \
        if (!(condition)) {        \
            if (geteuid() == 0)    \
                (void)setfsuid(0); \
            abort();               \
        }                          \
    } while (0)

#define ACTIONS_MAX 24U
#define NOBODY 65534U
#define WORDS_AT \
    (GUEST_STACK_BYTES / 2) /* deep in the stack, which a call as small as these does not reach */
#define OP_AT WORDS_AT
#define META_AT (WORDS_AT + 4096)
#define BYTES_AT (WORDS_AT + 16384)
#define SIZES_AT (WORDS_AT + 20480)
#define SECRET_HIDDEN "vi`u,oncnex,fs`oude" /* each character with its lowest bit turned */

struct Z_host_instance_t;
uint32_t Z_hostZ_call(struct Z_host_instance_t *host, uint32_t op, uint32_t op_size, uint32_t meta,
                      uint32_t meta_size, uint32_t bytes, uint32_t bytes_size, uint32_t sizes);
uint32_t Z_hostZ_begin(struct Z_host_instance_t *host, uint32_t op, uint32_t op_size, uint32_t meta,
                       uint32_t meta_size, uint32_t bytes, uint32_t bytes_size, uint32_t sizes);
void Z_hostZ_take(struct Z_host_instance_t *host, uint32_t meta, uint32_t bytes);

static struct kernel_image *image;
static struct kernel_manifest *manifest;
static const uint8_t key[KERNEL_KEY_BYTES] = {7};
static char root[] = "/dev/shm/fuzz-kernel-XXXXXX";
static bool root_changed;

/* ---- the input: zeros behind its end ---- */

static struct {
    const uint8_t *data;
    size_t size;
} input;

static uint8_t byte(void)
{
    if (input.size == 0)
        return 0;
    input.size--;
    return *input.data++;
}

static uint32_t number(void)
{
    uint32_t value = byte();

    value |= (uint32_t)byte() << 8;
    value |= (uint32_t)byte() << 16;
    return value | (uint32_t)byte() << 24;
}

/* Up to 255 of its bytes, as they are. */
static struct kernel_text rest(void)
{
    size_t size = byte();
    struct kernel_text text = {(const char *)input.data, size < input.size ? size : input.size};

    input.data += text.size;
    input.size -= text.size;
    return text;
}

/* ---- what is granted: root/r to read, root/w to read and write, root/one; and what is not: root/secret ---- */

static int removed(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about;
    /* The directories that are granted were opened, and stay; the file may have become one. */
    bool is_granted = kind == FTW_DP && strcmp(path + where->base, "one") != 0;

    return where->level == 0 || (where->level == 1 && is_granted) ? 0 : remove(path);
}

static const char *below(const char *name)
{
    static char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    return path;
}

static void file_make(const char *name, const char *text)
{
    int fd = open(below(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
}

static void root_clear(void)
{
    /* Directories may be closed to their owner by now. */
    if (geteuid() == 0)
        (void)setfsuid(0);
    MUST(nftw(root, removed, 8, FTW_DEPTH | FTW_PHYS) == 0);
    if (geteuid() == 0)
        (void)setfsuid(NOBODY);
}

static void root_fill(void)
{
    char secret[] = SECRET_HIDDEN;

    root_clear();
    for (size_t i = 0; i < sizeof(secret) - 1; i++)
        secret[i] ^= 1;
    file_make("secret", secret);
    file_make("one", "one");
    MUST(mkdir(below("r/d"), 0700) == 0 && mkdir(below("w/d"), 0700) == 0);
    file_make("r/a", "text");
    file_make("w/a", "text");
    MUST(symlink("../secret", below("r/out")) == 0 && symlink("../secret", below("w/out")) == 0 &&
         symlink("..", below("w/up")) == 0 && symlink("/", below("w/top")) == 0 &&
         symlink("loop", below("r/loop")) == 0 && mkfifo(below("w/pipe"), 0600) == 0);
    root_changed = false;
}

/* In the open it would soon stand in the inputs, and in the errors that repeat them. */
static bool holds_secret(const void *data, size_t size)
{
    static const char hidden[] = SECRET_HIDDEN;
    const uint8_t *bytes = data;
    size_t same;

    for (size_t i = 0; data != NULL && i < size; i++) {
        for (same = 0; same < sizeof(hidden) - 1 && i + same < size; same++)
            if ((bytes[i + same] ^ 1) != hidden[same])
                break;
        if (same == sizeof(hidden) - 1)
            return true;
    }
    return false;
}

static void root_check(void)
{
    char text[64] = "";
    int fd = open(below("secret"), O_RDONLY | O_CLOEXEC);

    MUST(fd >= 0 && read(fd, text, sizeof(text)) == sizeof(SECRET_HIDDEN) - 1 && close(fd) == 0 &&
         holds_secret(text, sizeof(text)));
    if (root_changed)
        root_fill();
}

static void end(void)
{
    root_clear();
    (void)rmdir(below("r"));
    (void)rmdir(below("w"));
    (void)rmdir(root);
}

static void begin(void)
{
    const char *tools[] = {"a", NULL}, *hosts[] = {"x.test", NULL};
    const char *reads[4] = {0}, *writes[3] = {0};
    const struct kernel_grants grants = {.hosts = hosts,
                                         .read_paths = reads,
                                         .write_paths = writes,
                                         .tools = tools,
                                         .cpu_ms = 50,
                                         .wall_ms = 500,
                                         .memory_bytes = 32U << 20};
    struct error err;

    if (image != NULL)
        return;
    MUST(mkdtemp(root) != NULL && (geteuid() != 0 || chown(root, NOBODY, NOBODY) == 0));
    (void)atexit(end);
    (void)slot_can_scan();
    if (geteuid() == 0)
        (void)setfsuid(NOBODY);
    MUST(mkdir(below("r"), 0700) == 0 && mkdir(below("w"), 0700) == 0);
    root_fill();
    MUST((reads[0] = strdup(below("r"))) != NULL && (writes[0] = strdup(below("w"))) != NULL &&
         (writes[1] = strdup(below("one"))) != NULL);
    reads[1] = writes[0];
    reads[2] = writes[1];
    MUST(kernel_image_js(&image, &err) == 0 && kernel_manifest_new(&grants, &manifest, &err) == 0);
    free((char *)(uintptr_t)reads[0]);
    free((char *)(uintptr_t)writes[0]);
    free((char *)(uintptr_t)writes[1]);
}

/* ---- calls of the guest ---- */

#define OPS_THAT_CHANGE 8U /* the first */
static const char *const ops[] = {
    "fs.write_file", "fs.open",   "fs.write",    "fs.mkdir",     "fs.remove",   "fs.chmod",
    "fs.utimes",     "fs.rename", "random",      "fs.read_file", "fs.read",     "fs.close",
    "fs.stat",       "fs.list",   "fs.readlink", "fs.",          "fetch.start", "fetch.read",
    "fetch.cancel",  "tool",      "x",
};

static const char *const paths[] = {
    "r",           "r/a",           "r/d",
    "r/d/../a",    "r/out",         "r/loop",
    "r/../secret", "secret",        "w",
    "w/a",         "w/new",         "w/d/x",
    "w/d/d/d",     "w/out",         "w/up",
    "w/up/secret", "w/top",         "w/pipe",
    "one",         "one/x",         "w/top/etc/passwd",
    "w/../one",    "r/a/../../w/a", "w/d",
};

/* A path that is granted, or not, or the input's own. */
static void path_put(char *text, size_t size)
{
    uint8_t choice = byte();

    if (choice < 0xe0)
        (void)snprintf(text, size, "%s/%s", root, paths[choice % (sizeof(paths) / sizeof(*paths))]);
    else if (choice < 0xf0)
        (void)snprintf(text, size, "/proc/self/root%s/secret", root);
    else
        (void)snprintf(text, size, "%.*s", (int)(input.size < 64 ? input.size : 64),
                       (const char *)input.data);
}

/* JSON that has all that any call looks for; or the input's own. */
static size_t meta_make(char *text, size_t size)
{
    static const char *const flags[] = {"r", "r+", "w", "w+", "wx", "a", "a+", "ax", "?"};
    char from[256], to[256];
    uint8_t bits = byte();
    int length;

    if (bits == 0xff) {
        struct kernel_text own = rest();

        memcpy(text, own.data, own.size);
        return own.size;
    }
    path_put(from, sizeof(from));
    path_put(to, sizeof(to));
    length = snprintf(
        text, size,
        "{\"path\":\"%s\",\"to\":\"%s\",\"flags\":\"%s\",\"recursive\":%s,\"force\":%s,"
        "\"directory\":%s,\"append\":%s,\"follow\":%s,\"fd\":%u,\"length\":%u,\"position\":%u,\"mode\":%u,"
        "\"mtime_ms\":%u,\"name\":\"%s\",\"url\":\"http://%s/\"}",
        from, to, flags[byte() % (sizeof(flags) / sizeof(*flags))], (bits & 1) != 0 ? "true" : "0",
        (bits & 2) != 0 ? "true" : "false", (bits & 4) != 0 ? "true" : "null",
        (bits & 8) != 0 ? "true" : "{}", (bits & 16) != 0 ? "false" : "true", byte() % 8U,
        (unsigned)byte() << (byte() % 20), (unsigned)byte() << (byte() % 24),
        0700U | number() % 010000U, number(), (bits & 32) != 0 ? "a" : "b",
        (bits & 64) != 0 ? "x.test" : "y.test");
    length = length < (int)size ? length : (int)size - 1;
    /* Cut off, now and then. */
    return (bits & 0x81) == 0x81 ? byte() % (size_t)length : (size_t)length;
}

/* In the place of a number that is right. */
static uint32_t odd(const struct kernel_context *context)
{
    uint32_t size = context->machine.memory->size, some = byte();

    switch (byte() % 8) {
    case 0:
        return some;
    case 1:
        return size - some;
    case 2:
        return size + some;
    case 3:
        return UINT32_MAX - some;
    case 4:
        return (uint32_t)INT32_MAX + some;
    case 5:
        return context->shared_at + some * 8;
    case 6:
        return WORDS_AT + some * 64;
    default:
        return number();
    }
}

static void call_make(struct kernel_context *context)
{
    struct Z_host_instance_t *host = (struct Z_host_instance_t *)(void *)context;
    uint8_t kind = byte(), op = byte(), distort = byte();
    uint32_t n[7] = {OP_AT, 0, META_AT, 0, BYTES_AT, byte(), SIZES_AT};
    char meta[2048];

    if (op < 0xf0) {
        const char *name = ops[op % (sizeof(ops) / sizeof(*ops))];

        root_changed |= op % (sizeof(ops) / sizeof(*ops)) < OPS_THAT_CHANGE;
        n[1] = (uint32_t)strlen(name);
        memcpy(context_memory(context, OP_AT, n[1]), name, n[1]);
    } else {
        struct kernel_text own = rest();

        root_changed = true;
        n[1] = (uint32_t)own.size;
        memcpy(context_memory(context, OP_AT, n[1]), own.data, own.size);
    }
    n[3] = (uint32_t)meta_make(meta, sizeof(meta));
    memcpy(context_memory(context, META_AT, n[3]), meta, n[3]);
    memset(context_memory(context, BYTES_AT, n[5]), distort, n[5]);
    for (int i = 0; i < 7; i++)
        if ((distort & 0x80) != 0 && (distort >> i & 1) != 0)
            n[i] = odd(context);
    if (kind % 4 == 0)
        Z_hostZ_take(host, n[0], n[2]);
    else if (kind % 4 == 1)
        (void)Z_hostZ_begin(host, n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
    else
        (void)Z_hostZ_call(host, n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
    MUST(!holds_secret(context->answer.meta, context->answer.meta_size) &&
         !holds_secret(context->answer.bytes, context->answer.bytes_size));
}

static void calls_make(void *data)
{
    for (uint8_t count = byte() % 4; count < 4; count++)
        call_make(data);
}

/* ---- host functions ---- */

static int source_run(struct kernel_context *context, enum kernel_status *status)
{
    static const char *const sources[] = {
        "1 + 1",
        "tools.a(1); await new Promise(() => {})",
        "await Promise.allSettled([tools.a({x: 1}), tools.b(2), fetch('http://x.test/')])",
        "await fetch('http://x.test/', {method: 'POST', body: 'b'}).then((r) => r.text())",
        "await new Promise((done) => setTimeout(done, 1)); globalThis.n = (globalThis.n ?? 0) + 1",
        "require('fs').readdirSync('/').length",
        "globalThis.a = []; for (let i = 0; i < 100; i++) a.push(tools.a(i).catch(() => 0)); await a[0]",
        "crypto.randomUUID().length",
        "throw new Error('x')",
        "while (true) {}",
    };
    const size_t count = sizeof(sources) / sizeof(*sources);
    uint8_t choice = byte();
    /* The last takes all the time there is: not often. */
    const char *text = choice >= 0xfc ? sources[count - 1] : sources[choice % (count - 1)];
    const struct kernel_source source = {.text = text, .size = strlen(text), .cpu_ms = 5};
    struct error err;

    return kernel_run(context, &source, status, &err);
}

/* Calls back: each must say that it is busy, and do nothing. */
static void reenter(struct kernel_context *context)
{
    struct kernel_context *other;
    enum kernel_status status;
    uint8_t *bytes;
    struct error err;
    size_t size;

    MUST(source_run(context, &status) < 0 && kernel_step(context, &status, &err) < 0);
    MUST(kernel_context_fork(context, NULL, &other, &err) < 0);
    MUST(kernel_snapshot(context, key, &bytes, &size, &err) < 0);
    MUST(kernel_context_reset(context, NULL, &err) < 0);
    kernel_stop(context, KERNEL_END_STOPPED);
    kernel_context_rest(context);
    (void)kernel_settle(context, number(), NULL, 0, NULL, 0, &err);
    MUST(kernel_context_new(image, manifest, NULL, &other, &err) == 0);
    MUST(source_run(other, &status) < 0);
    kernel_context_free(other);
}

static int answers(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                   struct error *err)
{
    uint8_t choice = byte();

    MUST(call->op.size > 0);
    if ((choice & 1) != 0)
        reenter(data);
    if ((choice & 2) != 0)
        return error_set(err, "ESOME", 0, "no \"%d\"\n", choice);
    if ((choice & 4) != 0) {
        answer->meta_size = byte();
        MUST((answer->meta = malloc(answer->meta_size + 1)) != NULL);
        memset(answer->meta, choice, answer->meta_size);
    }
    if ((choice & 8) != 0) {
        answer->bytes_size = (size_t)byte() << (byte() % 16);
        MUST((answer->bytes = calloc(1, answer->bytes_size + 1)) != NULL);
    }
    return 0;
}

/* ---- actions of the embedder ---- */

static uint32_t last_id;

static void result_check(struct kernel_context *context)
{
    const struct kernel_result *result = kernel_result(context);
    const struct kernel_text texts[] = {result->output, result->type, result->value,
                                        result->errors, result->name, result->message,
                                        result->stack,  result->code, result->value_error};
    volatile uint8_t seen = 0; /* each byte is there to be read */

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        MUST(!holds_secret(texts[i].data, texts[i].size));
        for (size_t j = 0; j < texts[i].size; j++)
            seen ^= (uint8_t)texts[i].data[j];
    }
    for (size_t i = 0; i < result->logs_count; i++)
        for (size_t j = 0; j < result->logs[i].text.size; j++)
            seen ^= (uint8_t)result->logs[i].text.data[j];
    (void)seen;
    MUST(kernel_end_name(result->end) != NULL);
}

static void calls_take(struct kernel_context *context)
{
    struct kernel_call call;

    while (kernel_call_next(context, &call)) {
        MUST(call.id != 0 && call.op.size > 0);
        last_id = call.id;
    }
}

static void settle(struct kernel_context *context)
{
    uint8_t choice = byte();
    uint32_t id = (choice & 1) != 0 ? last_id : number() % 8;
    struct kernel_text meta = rest();
    struct error err;

    if ((choice & 2) != 0)
        (void)kernel_settle_error(context, id, "ESOME", "some \"words\"\n", &err);
    else
        (void)kernel_settle(context, id, (choice & 4) != 0 ? "{\"status\":200}" : meta.data,
                            (choice & 4) != 0 ? 14 : meta.size,
                            (choice & 8) != 0 ? (const uint8_t *)"bytes" : NULL,
                            (choice & 8) != 0 ? 5 : 0, &err);
}

static void copies(struct kernel_context *context)
{
    struct kernel_context *copy = NULL;
    enum kernel_status status;
    uint8_t *bytes = NULL;
    struct error err;
    size_t size = 0;

    if (byte() % 8 != 0)
        (void)kernel_context_fork(context, NULL, &copy, &err);
    else if (kernel_snapshot(context, key, &bytes, &size, &err) == 0)
        MUST(kernel_restore(image, manifest, NULL, key, bytes, size, &copy, &err) == 0);
    free(bytes);
    if (copy == NULL)
        return;
    (void)source_run(copy, &status);
    result_check(copy);
    kernel_context_free(copy);
}

/* The guest's part of what both share becomes anything. */
static void results_spoil(struct kernel_context *context)
{
    const size_t at = offsetof(struct guest_shared, wait_ms);
    const size_t most = offsetof(struct guest_shared, input) - at;
    uint8_t *shared = (uint8_t *)context_shared(context) + at;
    enum phase was = context->phase;
    struct kernel_text bytes = rest();

    memcpy(shared, bytes.data, bytes.size < most ? bytes.size : most);
    context->phase = PHASE_WAITS;
    MUST(kernel_wait_ms(context) <= KERNEL_MS_MAX);
    context->phase = was;
}

static void guest_calls(struct kernel_context *context)
{
    struct kernel_entry entry = {.work = calls_make, .data = context, .slot = context->slot->base};
    enum kernel_trap trap;
    struct error err;

    MUST(thread_enter(&entry, &trap, &err) == 0 && trap == TRAP_NONE);
}

static void act(struct kernel_context *context)
{
    enum kernel_status status;
    struct error err;

    switch (byte() % 12) {
    case 0:
    case 1:
    case 2:
        guest_calls(context);
        break;
    case 3:
        (void)source_run(context, &status);
        break;
    case 4:
        (void)kernel_step(context, &status, &err);
        break;
    case 5:
    case 6:
        settle(context);
        break;
    case 7:
        kernel_stop(context, (enum kernel_end)(byte() % (KERNEL_END_STOPPED + 1)));
        break;
    case 8:
        copies(context);
        break;
    case 9:
        results_spoil(context);
        break;
    case 10:
        calls_take(context);
        break;
    default:
        kernel_context_rest(context);
        break;
    }
    result_check(context);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kernel_source source = {.text = "6 * 7", .size = 5};
    struct kernel_context *context;
    enum kernel_status status;
    struct error err;
    uint8_t count;

    input.data = data;
    input.size = size;
    last_id = 0;
    begin();
    /* What a hole in here would reach is not what belongs to root. */
    if (geteuid() == 0)
        (void)setfsuid(NOBODY);
    MUST(kernel_context_new(image, manifest, NULL, &context, &err) == 0);
    count = byte() % ACTIONS_MAX;
    if (byte() % 2 == 0)
        kernel_set_answerer(context, answers, context);
    for (uint8_t i = 0; i < count && input.size > 0; i++)
        act(context);
    MUST(kernel_context_reset(context, NULL, &err) == 0);
    MUST(kernel_run(context, &source, &status, &err) == 0 &&
         kernel_text_is(kernel_result(context)->output, "42"));
    kernel_context_free(context);
    root_check();
    if (geteuid() == 0)
        (void)setfsuid(0);
    return 0;
}
