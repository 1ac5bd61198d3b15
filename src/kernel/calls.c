/* What a guest asks of the host: host.call (answered at once), host.begin (answered by kernel_settle()) and
 * host.take, which copies an answer. The guest's words are copied before they are looked at. */
#include "base/fd.h"
#include "kernel/meta.h"
#include "kernel/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define OP_MAX 64
#define RANDOM_MAX 65536U
#define BYTES_MAX (256U << 20) /* of one call, or of one answer */

#define CONTEXT(host) ((struct kernel_context *)(void *)(host))

static void answer_free(struct kernel_answer *answer)
{
    free(answer->meta);
    free(answer->bytes);
    *answer = (struct kernel_answer){0};
}

/* {"code", "message"}, of an error. */
static void answer_fail(struct kernel_answer *answer, const struct error *err)
{
    struct meta_text text = {0};

    answer_free(answer);
    meta_put(&text, "{\"code\":");
    meta_put_string(&text, err->code, strlen(err->code));
    meta_put(&text, ",\"message\":");
    meta_put_string(&text, err->text, strlen(err->text));
    meta_put(&text, "}");
    answer->meta = text.data;
    answer->meta_size = text.data != NULL ? text.size : 0;
}

void calls_drop(struct kernel_context *context)
{
    struct pending *next;

    for (struct pending *call = context->calls; call != NULL; call = next) {
        next = call->next;
        free(call);
    }
    context->calls = NULL;
    context->calls_last = &context->calls;
    context->calls_count = 0;
    context->calls_bytes = 0;
    answer_free(&context->answer);
}

/* ---- words ---- */

/* Looks at the guest's words, where they lie: until it runs again nothing changes them. */
static int words_look(struct kernel_context *context, const uint32_t at[6],
                      struct kernel_call *call, struct error *err)
{
    const uint8_t *op = context_memory(context, at[0], at[1]);
    const uint8_t *meta = context_memory(context, at[2], at[3]);

    call->bytes = context_memory(context, at[4], at[5]);
    if (op == NULL || meta == NULL || call->bytes == NULL || at[1] == 0 || at[1] > OP_MAX)
        return error_set(err, "EFAULT", 0, "a call of the host has no sense");
    if (at[3] > KERNEL_META_MAX || at[5] > BYTES_MAX)
        return error_set(err, "E2BIG", 0,
                         "a call of the host is too large: at most %u bytes of JSON and %u of data",
                         KERNEL_META_MAX, BYTES_MAX);
    call->op = (struct kernel_text){(const char *)op, at[1]};
    call->meta = (struct kernel_text){(const char *)meta, at[3]};
    call->bytes_size = at[5];
    return 0;
}

/* {length} -> bytes */
static int random_call(const struct kernel_call *call, struct kernel_answer *answer,
                       struct error *err)
{
    struct meta_value value;
    uint64_t length;

    if (meta_member(call->meta, "length", &value) < 0 ||
        meta_count(&value, RANDOM_MAX, &length) < 0)
        return error_set(err, "EINVAL", 0, "random: a length up to %u is needed", RANDOM_MAX);
    answer->bytes = malloc(length + 1);
    if (answer->bytes == NULL)
        return error_set(err, "ENOMEM", 0, "random: the host has no memory");
    /* Up to 256 bytes come whole; more may be cut by a signal. */
    for (uint64_t had = 0; had < length;) {
        ssize_t got = getrandom(answer->bytes + had, length - had, 0);

        if (got < 0 && errno != EINTR)
            return error_set(err, "EIO", 0, "random: the system gives none");
        had += got > 0 ? (uint64_t)got : 0;
    }
    answer->bytes_size = length;
    return 0;
}

static int call_answer(struct kernel_context *context, const struct kernel_call *call,
                       struct kernel_answer *answer, struct error *err)
{
    if (kernel_text_is(call->op, "random"))
        return random_call(call, answer, err);
    if (call->op.size > 3 && memcmp(call->op.data, "fs.", 3) == 0)
        return files_call(&context->files, context->manifest, call, answer, err);
    if (context->answerer != NULL)
        return context->answerer(context->answerer_data, call, answer, err);
    return error_set(err, "ENOSYS", 0, "the host knows no call '%.*s'", (int)call->op.size,
                     call->op.data);
}

/* Tells the guest how large the answer's parts are. */
static void sizes_tell(struct kernel_context *context, uint32_t at)
{
    static char null[] = "null";
    struct kernel_answer *answer = &context->answer;
    uint8_t *into = context_memory(context, at, 2 * sizeof(uint32_t));
    uint32_t sizes[2];

    if (answer->meta == NULL) {
        answer->meta = strdup(null);
        answer->meta_size = answer->meta != NULL ? strlen(null) : 0;
    }
    sizes[0] = (uint32_t)answer->meta_size;
    sizes[1] = answer->bytes != NULL ? (uint32_t)answer->bytes_size : GUEST_NO_BYTES;
    if (into != NULL)
        memcpy(into, sizes, sizeof(sizes));
}

static void host_begin(struct kernel_context *context)
{
    if (!thread_host_begin())
        thread_trap(TRAP_STACK);
    context->in_call = true;
    answer_free(&context->answer);
}

static void host_end(struct kernel_context *context)
{
    context->in_call = false;
    thread_host_end();
}

u32 Z_hostZ_call(struct Z_host_instance_t *host, u32 op, u32 op_size, u32 meta, u32 meta_size,
                 u32 bytes, u32 bytes_size, u32 sizes)
{
    struct kernel_context *context = CONTEXT(host);
    const uint32_t at[6] = {op, op_size, meta, meta_size, bytes, bytes_size};
    struct kernel_call call = {.op = {"", 0}, .meta = {"", 0}};
    struct error err;
    int status;

    host_begin(context);
    status = words_look(context, at, &call, &err);
    if (status == 0)
        status = call_answer(context, &call, &context->answer, &err);
    if (status == 0 &&
        (context->answer.meta_size > KERNEL_META_MAX || context->answer.bytes_size > BYTES_MAX))
        status = error_set(&err, "E2BIG", 0, "the host's answer is too large");
    if (status < 0)
        answer_fail(&context->answer, &err);
    sizes_tell(context, sizes);
    host_end(context);
    return status < 0 ? 1U : 0U;
}

/* False: the guest's time was up before all was copied. */
static bool bytes_copy(void *to, const void *from, size_t size)
{
    for (size_t done = 0, piece; done < size; done += piece) {
        if (thread_is_due())
            return false;
        piece = size - done < THREAD_PIECE ? size - done : THREAD_PIECE;
        memcpy((uint8_t *)to + done, (const uint8_t *)from + done, piece);
    }
    return true;
}

/* Keeps a call until it is settled. */
static int call_keep(struct kernel_context *context, const struct kernel_call *call, uint32_t *id,
                     struct error *err)
{
    size_t size = call->op.size + call->meta.size + call->bytes_size;
    struct pending *pending;
    char *at;

    if (context->calls_count >= GUEST_CALLS_MAX)
        return error_set(err, "EAGAIN", 0, "more than %u calls of the host at a time",
                         GUEST_CALLS_MAX);
    if (context->calls_bytes + size > context->manifest->memory_bytes)
        return error_set(err, "EAGAIN", 0,
                         "calls of the host that wait hold more than the run's memory; allow more "
                         "with memoryLimitBytes (--memory)");
    pending = malloc(sizeof(*pending) + size);
    if (pending == NULL)
        return error_set(err, "ENOMEM", 0, "the host has no memory");
    at = pending->text;
    *pending = (struct pending){.call = *call};
    memcpy(at, call->op.data, call->op.size);
    pending->call.op.data = at;
    at += call->op.size;
    memcpy(at, call->meta.data, call->meta.size);
    pending->call.meta.data = at;
    at += call->meta.size;
    if (!bytes_copy(at, call->bytes, call->bytes_size)) {
        free(pending);
        return error_set(err, "EINTR", 0, "the run's time is up");
    }
    pending->call.bytes = (const uint8_t *)at;
    if (++context->next_id == 0)
        context->next_id = 1;
    *id = pending->call.id = context->next_id;
    *context->calls_last = pending;
    context->calls_last = &pending->next;
    context->calls_count++;
    context->calls_bytes += size;
    return 0;
}

/* The host of a URL as far as a denial names it. */
static void host_of(struct kernel_text meta, char *host, size_t size)
{
    struct meta_value value;
    char url[2048];
    const char *at;

    (void)snprintf(host, size, "?");
    if (meta_member(meta, "url", &value) < 0 || meta_string(&value, url, sizeof(url)) < 0)
        return;
    at = strstr(url, "://");
    if (at == NULL)
        return;
    at += 3;
    at += strcspn(at, "@/?#") < strcspn(at, "/?#") ? strcspn(at, "@") + 1 : 0;
    (void)snprintf(host, size, "%.*s",
                   (int)(at[0] == '[' ? strcspn(at, "]") + 1 : strcspn(at, ":/?#")), at);
}

static int fetch_allowed(const struct kernel_context *context, const struct kernel_call *call,
                         struct error *err)
{
    const struct policy *policy = kernel_manifest_policy(context->manifest);
    char host[POLICY_NAME_MAX], name[POLICY_NAME_MAX];
    struct policy_address address;
    struct error ignored;

    host_of(call->meta, host, sizeof(host));
    /* An address is judged where it is dialled. */
    if (policy_mode(policy) != POLICY_NONE &&
        (host[0] == '[' || policy_address_parse(host, &address) == 0 ||
         policy_name(host, name, &ignored) < 0 || policy_lookup(policy, name).allowed))
        return 0;
    return error_set(err, "EACCES", 0,
                     "the host '%s' is denied: allow it with allowedHosts (--allow-host %s)", host,
                     host);
}

/* What is denied by the manifest alone is denied here, for every embedder alike. */
static int begin_allowed(const struct kernel_context *context, const struct kernel_call *call,
                         struct error *err)
{
    struct meta_value name;
    char text[128];

    if (kernel_text_is(call->op, "fetch.start"))
        return fetch_allowed(context, call, err);
    if (!kernel_text_is(call->op, "tool"))
        return 0;
    if (meta_member(call->meta, "name", &name) < 0 || meta_string(&name, text, sizeof(text)) < 0)
        return error_set(err, "EINVAL", 0, "a tool is called by its name");
    if (!kernel_manifest_has_tool(context->manifest, text, strlen(text)))
        return error_set(err, "EACCES", 0,
                         "the tool '%s' is denied: name it among the `tools` of this kernel", text);
    return 0;
}

u32 Z_hostZ_begin(struct Z_host_instance_t *host, u32 op, u32 op_size, u32 meta, u32 meta_size,
                  u32 bytes, u32 bytes_size, u32 sizes)
{
    struct kernel_context *context = CONTEXT(host);
    const uint32_t at[6] = {op, op_size, meta, meta_size, bytes, bytes_size};
    struct kernel_call call = {.op = {"", 0}, .meta = {"", 0}};
    uint32_t id = 0;
    struct error err;

    host_begin(context);
    if (words_look(context, at, &call, &err) < 0 || begin_allowed(context, &call, &err) < 0 ||
        call_keep(context, &call, &id, &err) < 0) {
        id = 0;
        answer_fail(&context->answer, &err);
        sizes_tell(context, sizes);
    }
    host_end(context);
    return id;
}

void Z_hostZ_take(struct Z_host_instance_t *host, u32 meta, u32 bytes)
{
    struct kernel_context *context = CONTEXT(host);
    struct kernel_answer *answer;
    uint8_t *into;

    if (!thread_host_begin())
        thread_trap(TRAP_STACK);
    answer = &context->answer;
    into = context_memory(context, meta, (uint32_t)answer->meta_size);
    if (into != NULL && answer->meta_size > 0)
        memcpy(into, answer->meta, answer->meta_size);
    into = context_memory(context, bytes, (uint32_t)answer->bytes_size);
    if (into != NULL)
        (void)bytes_copy(into, answer->bytes, answer->bytes_size);
    answer_free(answer);
    thread_host_end();
}

/* ---- for the embedder ---- */

bool kernel_call_next(struct kernel_context *context, struct kernel_call *call)
{
    for (struct pending *pending = context->calls; pending != NULL; pending = pending->next)
        if (!pending->taken) {
            pending->taken = true;
            *call = pending->call;
            return true;
        }
    return false;
}

void kernel_set_answerer(struct kernel_context *context, kernel_answerer *answerer, void *data)
{
    context->answerer = answerer;
    context->answerer_data = data;
}
