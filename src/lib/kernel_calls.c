/* What the code of libcove's kernels asks for: tools, and fetch(). The caller's functions answer.
 *
 * An answer of fetch() is kept here and read piece by piece, for code may never read it. What comes from the code is
 * hostile: a callback sees names that are granted and headers that are headers. */
#include "lib/kernel_parts.h"

#include "base/fd.h"
#include "kernel/meta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (1U << 20)     /* of a body, for one read */
#define BODY_MAX (64U << 20) /* of an answer */
#define STRING_SLACK 8U      /* that meta_string() wants behind a string */
#define HEADERS_MAX 256UL    /* of a request, and of an answer */

struct stream {
    uint32_t number;
    size_t size, at;
    uint8_t body[];
};

struct cove_answer {
    bool given, failed;
    char code[32];
    struct meta_text text; /* of an error: its message */
    const void *body;      /* of a response, copied by the time the callback is over */
    struct stream *stream;
};

/* ---- answers ---- */

static bool answer_begin(struct cove_answer *answer)
{
    if (answer->given)
        return false;
    answer->given = true;
    return true;
}

void cove_answer_json(struct cove_answer *answer, const char *json, size_t size)
{
    if (!answer_begin(answer))
        return;
    meta_put(&answer->text, "{\"value\":");
    meta_put_bytes(&answer->text, json, size);
    meta_put(&answer->text, "}");
}

void cove_answer_error(struct cove_answer *answer, const char *code, const char *message)
{
    if (!answer_begin(answer))
        return;
    answer->failed = true;
    (void)snprintf(answer->code, sizeof(answer->code), "%s", code);
    meta_put_bytes(&answer->text, message, strlen(message));
    meta_put_bytes(&answer->text, "", 1);
}

static void headers_put(struct meta_text *text, const char *const *headers)
{
    meta_put(text, ",\"headers\":[");
    for (size_t i = 0; headers != NULL && headers[i] != NULL && headers[i + 1] != NULL; i += 2) {
        meta_put(text, i > 0 ? ",[" : "[");
        meta_put_string(text, headers[i], strlen(headers[i]));
        meta_put(text, ",");
        meta_put_string(text, headers[i + 1], strlen(headers[i + 1]));
        meta_put(text, "]");
    }
    meta_put(text, "]");
}

void cove_answer_response(struct cove_answer *answer, int status, const char *const *headers,
                          const void *body, size_t size)
{
    struct stream *stream;

    if (status < 100 || status > 599 || size > BODY_MAX) {
        cove_answer_error(answer, "EBADMSG",
                          "the host's answer to a request is none, or too large");
        return;
    }
    if (!answer_begin(answer))
        return;
    stream = malloc(sizeof(*stream) + size);
    if (stream == NULL) {
        answer->given = false;
        cove_answer_error(answer, "ENOMEM", "the host has no memory for an answer");
        return;
    }
    *stream = (struct stream){.size = size};
    if (size > 0)
        memcpy(stream->body, body, size);
    answer->stream = stream;
    meta_put(&answer->text, "\"status\":");
    meta_put_number(&answer->text, (uint64_t)status);
    headers_put(&answer->text, headers);
}

static void answer_clear(struct cove_answer *answer)
{
    free(answer->text.data);
    free(answer->stream);
    *answer = (struct cove_answer){0};
}

static int settle_error(struct cove_kernel *kernel, const struct kernel_call *call,
                        const struct error *why, struct error *err)
{
    return kernel_settle_error(kernel->context, call->id, why->code, why->text, err);
}

/* Tells the code; what is not needed for that is let go. */
static int answer_settle(struct cove_kernel *kernel, const struct kernel_call *call,
                         struct cove_answer *answer, struct error *err)
{
    struct kernel_context *context = kernel->context;
    uint32_t id = call->id;

    if (!answer->given)
        return kernel_settle_error(context, id, "ENOSYS", "the host gave no answer", err);
    if (answer->text.failed)
        return kernel_settle_error(context, id, "ENOMEM", "the host has no memory", err);
    if (answer->failed)
        return kernel_settle_error(context, id, answer->code, answer->text.data, err);
    if (answer->text.size > KERNEL_META_MAX)
        return kernel_settle_error(context, id, "E2BIG", "the host's answer is too large", err);
    return kernel_settle(context, id, answer->text.data, answer->text.size, NULL, 0, err);
}

/* ---- tools ---- */

static int tool_call(struct cove_kernel *kernel, const struct kernel_call *call, struct error *err)
{
    static const char nothing[] = "{}";
    struct cove_answer answer = {0};
    struct meta_value name, args;
    struct cove_text given = {nothing, strlen(nothing)};
    char text[128];
    int status;

    /* The manifest has this name, or the call had not come so far. */
    if (kernel->shared->tool == NULL || meta_member(call->meta, "name", &name) < 0 ||
        meta_string(&name, text, sizeof(text)) < 0)
        return kernel_settle_error(kernel->context, call->id, "ENOSYS",
                                   "this kernel's host answers no tool", err);
    if (meta_member(call->meta, "args", &args) == 0)
        given = (struct cove_text){args.text.data, args.text.size};
    kernel->shared->tool(kernel->shared->data, text, given, &answer);
    if (answer.stream != NULL) {
        answer_clear(&answer);
        cove_answer_error(&answer, "EBADMSG", "the host answered a tool with a response");
    }
    status = answer_settle(kernel, call, &answer, err);
    answer_clear(&answer);
    return status;
}

/* ---- fetch ---- */

/* The strings of a JSON text in their order, as C strings; NULL: no memory, or they are no headers. */
struct strings {
    const char *list[2 * HEADERS_MAX + 1];
    size_t count;
    char *room;
};

static int strings_take(struct strings *strings, struct kernel_text json)
{
    size_t at = 0;
    char *to;

    strings->room = to = malloc(json.size + STRING_SLACK);
    if (to == NULL)
        return -1;
    while (at < json.size) {
        struct meta_value value = {.text = {json.data + at, 1}};

        if (json.data[at++] != '"')
            continue;
        while (at < json.size && json.data[at] != '"')
            at += json.data[at] == '\\' ? 2 : 1;
        if (at++ >= json.size || strings->count == 2 * HEADERS_MAX)
            return -1;
        value.text.size = (size_t)(json.data + at - value.text.data);
        if (meta_string(&value, to, value.text.size + STRING_SLACK) < 0 ||
            to[strcspn(to, "\r\n")] != 0 ||
            (strings->count % 2 == 0 &&
             (*to == 0 || strpbrk(to, " :\t\"(),/;<=>?@[\\]{}") != NULL)))
            return -1;
        strings->list[strings->count++] = to;
        to += strlen(to) + 1;
    }
    strings->list[strings->count] = NULL;
    return strings->count % 2 == 0 ? 0 : -1;
}

static char *member_copy(const struct kernel_call *call, const char *name)
{
    struct meta_value value;
    char *text;

    if (meta_member(call->meta, name, &value) < 0)
        return NULL;
    text = malloc(value.text.size + STRING_SLACK);
    if (text != NULL && meta_string(&value, text, value.text.size + STRING_SLACK) < 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* A place for one more answer, or NULL. */
static struct stream **stream_place(struct cove_kernel *kernel)
{
    for (size_t i = 0; i < STREAMS_MAX; i++)
        if (kernel->streams[i] == NULL)
            return &kernel->streams[i];
    return NULL;
}

/* The stream is the kernel's from here on; its number goes to the code with the head. */
static void stream_keep(struct cove_kernel *kernel, struct cove_answer *answer,
                        struct stream **place)
{
    struct meta_text text = {0};

    answer->stream->number = ++kernel->last_stream;
    meta_put(&text, "{\"stream\":");
    meta_put_number(&text, answer->stream->number);
    meta_put(&text, ",");
    meta_put_bytes(&text, answer->text.data, answer->text.size);
    meta_put(&text, "}");
    free(answer->text.data);
    answer->text = text;
    *place = answer->stream;
    answer->stream = NULL;
}

/* What is not that of a request is no business of a callback's. */
static bool request_is_one(const struct cove_request *request, const struct kernel_call *call,
                           struct strings *headers)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    const char *method = request->method, *url = request->url;
    struct meta_value value;

    return method != NULL && url != NULL && *method != 0 && method[strspn(method, letters)] == 0 &&
           url[strcspn(url, "\r\n ")] == 0 &&
           (meta_member(call->meta, "headers", &value) < 0 ||
            strings_take(headers, value.text) == 0);
}

static int fetch_answer(struct cove_kernel *kernel, const struct kernel_call *call,
                        const struct cove_request *request, struct stream **place,
                        struct error *err)
{
    struct cove_answer answer = {0};
    int status;

    kernel->shared->fetch(kernel->shared->data, request, &answer);
    if (answer.stream != NULL)
        stream_keep(kernel, &answer, place);
    else if (answer.given && !answer.failed) {
        answer_clear(&answer);
        cove_answer_error(&answer, "EBADMSG", "the host answered a request without a response");
    }
    status = answer_settle(kernel, call, &answer, err);
    answer_clear(&answer);
    return status;
}

static int fetch_start(struct cove_kernel *kernel, const struct kernel_call *call,
                       struct error *err)
{
    _cleanup_free_ char *method = member_copy(call, "method"), *url = member_copy(call, "url");
    struct stream **place = stream_place(kernel);
    struct strings headers = {0};
    struct cove_request request = {.kernel = kernel,
                                   .method = method,
                                   .url = url,
                                   .headers = headers.list,
                                   .body = call->bytes,
                                   .body_size = call->bytes_size};
    int status;

    if (kernel->shared->fetch == NULL)
        return kernel_settle_error(kernel->context, call->id, "EACCES",
                                   "no host can be reached: the program that runs this kernel gave "
                                   "it no fetch function (struct cove_grants)",
                                   err);
    if (place == NULL)
        return kernel_settle_error(kernel->context, call->id, "EMFILE",
                                   "too many answers are open: read them or cancel them first",
                                   err);
    if (request_is_one(&request, call, &headers))
        status = fetch_answer(kernel, call, &request, place, err);
    else
        status = kernel_settle_error(kernel->context, call->id, "EINVAL", "this is no request",
                                     err);
    free(headers.room);
    return status;
}

static struct stream **stream_of(struct cove_kernel *kernel, const struct kernel_call *call)
{
    struct meta_value value;
    uint64_t number;

    if (meta_member(call->meta, "stream", &value) < 0 ||
        meta_count(&value, UINT32_MAX, &number) < 0)
        return NULL;
    for (size_t i = 0; i < STREAMS_MAX; i++)
        if (kernel->streams[i] != NULL && kernel->streams[i]->number == number)
            return &kernel->streams[i];
    return NULL;
}

static void stream_drop(struct stream **at)
{
    free(*at);
    *at = NULL;
}

static int fetch_read(struct cove_kernel *kernel, const struct kernel_call *call, struct error *err)
{
    struct stream **at = stream_of(kernel, call);
    const char *meta = "{\"end\":false}";
    struct stream *stream;
    size_t size;
    int status;

    if (at == NULL)
        return kernel_settle_error(kernel->context, call->id, "EBADF",
                                   "there is no answer of this number to be read", err);
    stream = *at;
    size = stream->size - stream->at < PIECE ? stream->size - stream->at : PIECE;
    if (stream->at + size == stream->size)
        meta = "{\"end\":true}";
    status = kernel_settle(kernel->context, call->id, meta, strlen(meta), stream->body + stream->at,
                           size, err);
    stream->at += size;
    if (stream->at == stream->size)
        stream_drop(at);
    return status;
}

int host_answer_now(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                    struct error *err)
{
    struct cove_kernel *kernel = data;
    struct stream **at;

    (void)answer;
    if (!kernel_text_is(call->op, "fetch.cancel"))
        return error_set(err, "ENOSYS", 0, "this kernel's host knows no call '%.*s'",
                         (int)call->op.size, call->op.data);
    at = stream_of(kernel, call);
    if (at != NULL)
        stream_drop(at);
    return 0;
}

void host_drop_streams(struct cove_kernel *kernel)
{
    for (size_t i = 0; i < STREAMS_MAX; i++)
        stream_drop(&kernel->streams[i]);
}

/* ---- calls ---- */

int host_answer(struct cove_kernel *kernel, const struct kernel_call *call, struct error *err)
{
    struct error why;

    if (kernel_text_is(call->op, "tool"))
        return tool_call(kernel, call, err);
    if (kernel_text_is(call->op, "fetch.start"))
        return fetch_start(kernel, call, err);
    if (kernel_text_is(call->op, "fetch.read"))
        return fetch_read(kernel, call, err);
    (void)error_set(&why, "ENOSYS", 0, "this kernel's host knows no call '%.*s'",
                    (int)call->op.size, call->op.data);
    return settle_error(kernel, call, &why, err);
}
