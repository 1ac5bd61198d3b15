/* See js_fetch.h. A request, or one read of an answer, is the work of a thread that lives as long as it takes; all
 * that the kernel is told is told by the thread that runs it. What the code asked for and what the server
 * answers are hostile alike. */
#include "cmd/js_fetch.h"

#include "base/fd.h"
#include "base/routes.h"
#include "cmd/conn.h"
#include "kernel/fetch/fetch.h"
#include "policy/policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What a thread does with a fetch; a fetch has one at a time. */
struct job {
    struct job *next;
    struct js_fetches *fetches;
    struct fetch *fetch;
    uint32_t call;
    bool reads, failed;
    struct meta_text meta;
    uint8_t *bytes; /* NULL: none */
    size_t bytes_size;
    struct error err;
};

/* One request, and then the body of its answer. */
struct fetch {
    struct fetch *next;
    uint32_t stream;
    bool busy, gone; /* of the main thread: a job works with it; the code gave it up */
    struct job job;
    struct conn conn;
    struct fetch_request request;
    char *head; /* of the request */
    size_t head_size;
    uint8_t *body;
    size_t body_size;
    bool ended, has_length;
    bool is_chunked;
    uint64_t left;
    struct wire_chunks chunks;
    size_t used;
    char buffer[WIRE_HEAD_MAX];
};

struct js_fetches {
    struct kernel_context *context;
    struct policy *policy;
    int event;
    struct fetch *list;
    unsigned count, running; /* now */
    unsigned begun;          /* by the run */
    uint64_t bytes_out, bytes_in;
    uint32_t last_stream;
    struct job *waiting;
    pthread_mutex_t lock; /* of `done` */
    struct job *done;
};

/* ---- what is asked for ---- */

static void address_set(struct fetch *fetch)
{
    const struct fetch_request *request = &fetch->request;
    struct wire_address address = {.is_tls = request->is_tls};

    (void)snprintf(address.host, sizeof(address.host), "%s", request->host);
    (void)snprintf(address.port, sizeof(address.port), "%u", request->port);
    (void)snprintf(address.header, sizeof(address.header), "%s", request->authority);
    conn_init(&fetch->conn, &address);
}

/* The head, as it goes over the wire. */
static int head_make(struct fetch *fetch, bool has_body)
{
    const struct fetch_request *request = &fetch->request;
    FILE *out = open_memstream(&fetch->head, &fetch->head_size);

    if (out == NULL)
        return -1;
    (void)fprintf(out, "%s %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n", request->method,
                  request->target, request->authority);
    (void)fprintf(out, "accept-encoding: identity\r\n");
    if (has_body)
        (void)fprintf(out, "content-length: %zu\r\n", fetch->body_size);
    for (size_t i = 0; i < request->headers_count; i++)
        (void)fprintf(out, "%s\r\n", request->headers[i]);
    (void)fprintf(out, "\r\n");
    return fclose(out) == 0 ? 0 : -1;
}

static int request_make(struct fetch *fetch, const struct kernel_call *call, struct error *err)
{
    if (fetch_request_parse(call, &fetch->request, err) < 0)
        return -1;
    address_set(fetch);
    fetch->body = malloc(call->bytes_size + 1);
    if (fetch->body == NULL)
        return error_set(err, "ENOMEM", ENOMEM, "a request");
    if (call->bytes_size > 0)
        memcpy(fetch->body, call->bytes, call->bytes_size);
    fetch->body_size = call->bytes_size;
    return head_make(fetch, fetch_has_body(&fetch->request, call)) == 0
               ? 0
               : error_set(err, "ENOMEM", ENOMEM, "a request");
}

/* ---- by a thread: the connection ---- */

static bool address_of(const struct sockaddr *from, struct policy_address *address)
{
    char text[POLICY_ADDRESS_TEXT];
    const void *bytes;

    if (from->sa_family == AF_INET)
        bytes = &((const struct sockaddr_in *)(const void *)from)->sin_addr;
    else if (from->sa_family == AF_INET6)
        bytes = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
    else
        return false;
    return inet_ntop(from->sa_family, bytes, text, sizeof(text)) != NULL &&
           policy_address_parse(text, address) == 0;
}

static struct policy_verdict judge(const struct policy *policy, struct routes *routes,
                                   const char *name, const struct policy_address *address,
                                   uint16_t port)
{
    struct policy_address own[POLICY_VIEWS_MAX];
    size_t count = policy_views(address, NULL, own), kept = 0;

    for (size_t i = 0; i < count; i++)
        if (routes_is_own(routes, own[i].bytes))
            own[kept++] = own[i];
    return policy_dial(policy, name, address, port, POLICY_TCP, NULL, own, kept);
}

static int connect_to(struct fetch *fetch, const struct addrinfo *info)
{
    struct pollfd ready = {.events = POLLOUT};
    socklen_t size = sizeof(int);
    int failure = 0;

    fetch->conn.fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fetch->conn.fd < 0)
        return errno;
    if (connect(fetch->conn.fd, info->ai_addr, info->ai_addrlen) < 0) {
        failure = errno;
        ready.fd = fetch->conn.fd;
        if (failure == EINPROGRESS && poll(&ready, 1, FETCH_CONNECT_MS) == 1)
            (void)getsockopt(fetch->conn.fd, SOL_SOCKET, SO_ERROR, &failure, &size);
        else if (failure == EINPROGRESS)
            failure = ETIMEDOUT;
    }
    if (failure != 0)
        fd_close(&fetch->conn.fd);
    return failure;
}

/* To the first of the addresses that may be dialled and that answers. */
static int dial_each(struct fetch *fetch, const struct policy *policy, const char *name,
                     const struct addrinfo *found, struct error *err)
{
    uint16_t port = fetch->request.port;
    struct policy_verdict verdict = {.reason = "reserved"};
    struct routes routes;
    int failure = 0;

    routes_open(&routes);
    for (const struct addrinfo *info = found; info != NULL && fetch->conn.fd < 0;
         info = info->ai_next) {
        struct policy_verdict this;
        struct policy_address address;

        if (!address_of(info->ai_addr, &address))
            continue;
        this = judge(policy, &routes, name, &address, port);
        if (this.allowed)
            failure = connect_to(fetch, info);
        else
            verdict = this;
    }
    routes_close(&routes);
    if (fetch->conn.fd >= 0)
        return 0;
    if (failure == 0)
        return fetch_denied(&fetch->request, &verdict, false, err);
    return error_set(err, failure == ETIMEDOUT ? "ETIMEDOUT" : "ECONNREFUSED", failure,
                     "%s cannot be reached", fetch->conn.address.header);
}

static int dial(struct fetch *fetch, const struct policy *policy, struct error *err)
{
    const struct fetch_request *request = &fetch->request;
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM,
                              .ai_flags = request->is_name ? AI_ADDRCONFIG : AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    int failure, status;

    if (request->is_name) {
        struct policy_verdict verdict = policy_lookup(policy, request->host);

        if (!verdict.allowed)
            return fetch_denied(request, &verdict, false, err);
    }
    failure = getaddrinfo(request->host, fetch->conn.address.port, &wanted, &found);
    if (failure != 0)
        return error_set(err, "ENOTFOUND", 0, "%s: %s", request->host, gai_strerror(failure));
    status = dial_each(fetch, policy, request->is_name ? request->host : NULL, found, err);
    freeaddrinfo(found);
    return status;
}

static int secure(struct fetch *fetch, struct error *err)
{
    struct conn *conn = &fetch->conn;
    short events = 0;

    if (!conn->address.is_tls)
        return 0;
    if (tls_new(conn->address.host, &conn->tls, err) < 0 || tls_begin(conn->tls, conn->fd, err) < 0)
        return -1;
    while (tls_handshake(conn->tls, &events) < 0) {
        struct pollfd ready = {.fd = conn->fd, .events = events};

        if (errno == EPROTO)
            return tls_explain(conn->tls, conn->address.header, err);
        if (errno != EAGAIN || poll(&ready, 1, FETCH_CONNECT_MS) != 1)
            return error_set(err, "bad_tls", 0, "%s: no TLS connection comes about",
                             conn->address.header);
    }
    return 0;
}

/* The texts of conn.c and wire.c are for who talks to a server of cove. */
static int failed(const struct fetch *fetch, struct error *err)
{
    const char *host = fetch->conn.address.header;
    const char *code = err->code;

    if (strcmp(code, "cut") == 0)
        return error_set(err, "ECONNRESET", 0,
                         "%s ended the connection before its answer was whole", host);
    if (strcmp(code, "no_answer") == 0)
        return error_set(err, "ETIMEDOUT", 0, "%s does not answer", host);
    if (strcmp(code, "bad_answer") == 0)
        return error_set(err, "EPROTO", 0, "what %s answers is no HTTP", host);
    return -1;
}

/* ---- by a thread: the answer ---- */

static int more(struct fetch *fetch, uint64_t deadline, struct error *err)
{
    ssize_t n;

    if (fetch->used == sizeof(fetch->buffer))
        return error_set(err, "bad_answer", 0, "too large");
    n = conn_receive(&fetch->conn, fetch->buffer + fetch->used, sizeof(fetch->buffer) - fetch->used,
                     deadline, err);
    if (n > 0)
        fetch->used += (size_t)n;
    return n < 0 ? -1 : n > 0;
}

static void drop(struct fetch *fetch, size_t size)
{
    fetch->used -= size;
    memmove(fetch->buffer, fetch->buffer + size, fetch->used);
}

static void head_put(struct job *job, const char *text, const struct wire_head *head)
{
    struct fetch *fetch = job->fetch;

    fetch_head_begin(&job->meta, head->status, text, strlen(text), fetch->request.url);
    for (size_t i = 0; i < head->headers_count; i++) {
        const struct wire_header *header = &head->headers[i];

        fetch_head_header(&job->meta, i == 0, header->name, strlen(header->name), header->value,
                          strlen(header->value));
    }
    fetch_head_end(&job->meta, fetch->ended ? 0 : fetch->stream);
}

static int answer_read(struct job *job, uint64_t deadline)
{
    struct fetch *fetch = job->fetch;
    struct wire_head head;
    const char *text;
    size_t size, sizes = 0;
    int came;

    do {
        while ((size = wire_head_length(fetch->buffer, fetch->used)) == 0)
            if ((came = more(fetch, deadline, &job->err)) <= 0)
                return came < 0 ? -1 : conn_cut(&job->err, 0);
        head = (struct wire_head){0};
        if (wire_head_parse(fetch->buffer, size, &head, &job->err) < 0)
            return -1;
        sizes += size;
        if (sizes > FETCH_HEAD_MAX)
            return error_set(&job->err, "bad_answer", 0, "too large");
        if (head.status < 200) /* more to come */
            drop(fetch, size);
    } while (head.status < 200);
    text = strlen(fetch->buffer) > 13 ? fetch->buffer + 13 : "";
    fetch->is_chunked = head.is_chunked;
    fetch->has_length = head.has_length;
    fetch->left = head.length;
    fetch->ended = fetch->request.is_head || head.status == 204 || head.status == 304 ||
                   (head.has_length && head.length == 0);
    head_put(job, text, &head);
    drop(fetch, size);
    return 0;
}

static int start_work(struct job *job)
{
    struct fetch *fetch = job->fetch;
    uint64_t deadline = conn_deadline(FETCH_SILENCE_MS);

    if (dial(fetch, job->fetches->policy, &job->err) < 0)
        return -1;
    if (secure(fetch, &job->err) < 0 ||
        conn_send(&fetch->conn, fetch->head, fetch->head_size, deadline, &job->err) < 0 ||
        (fetch->body_size > 0 && conn_send(&fetch->conn, (const char *)fetch->body,
                                           fetch->body_size, deadline, &job->err) < 0) ||
        answer_read(job, deadline) < 0)
        return failed(fetch, &job->err);
    return 0;
}

/* What lies in the buffer, as far as it belongs to the body. */
static int body_take(struct fetch *fetch, size_t *content, struct error *err)
{
    ssize_t taken = (ssize_t)fetch->used;

    *content = fetch->used;
    if (fetch->is_chunked) {
        taken = wire_chunks_take(&fetch->chunks, fetch->buffer, fetch->used, content, err);
        fetch->ended = taken >= 0 && fetch->chunks.state == WIRE_CHUNK_END;
    } else if (fetch->has_length) {
        if (*content > fetch->left)
            *content = (size_t)fetch->left;
        fetch->left -= *content;
        fetch->ended = fetch->left == 0;
    }
    return taken < 0 ? -1 : (int)taken;
}

static int read_work(struct job *job)
{
    struct fetch *fetch = job->fetch;
    size_t content = 0;

    while (!fetch->ended && content == 0) {
        int came = fetch->used > 0 ? 1 : more(fetch, conn_deadline(FETCH_SILENCE_MS), &job->err),
            taken;

        if (came < 0)
            return failed(fetch, &job->err);
        if (came == 0) {
            if (fetch->is_chunked || fetch->has_length)
                return conn_cut(&job->err, 0), failed(fetch, &job->err);
            fetch->ended = true;
            break;
        }
        taken = body_take(fetch, &content, &job->err);
        if (taken < 0)
            return failed(fetch, &job->err);
        job->bytes = malloc(content + 1);
        if (job->bytes == NULL)
            return error_set(&job->err, "ENOMEM", ENOMEM, "a part of an answer");
        memcpy(job->bytes, fetch->buffer, content);
        job->bytes_size = content;
        drop(fetch, (size_t)taken);
        if (content == 0) {
            free(job->bytes);
            job->bytes = NULL;
        }
    }
    meta_put(&job->meta, fetch->ended ? "{\"end\":true}" : "{\"end\":false}");
    return 0;
}

static void job_done(struct job *job)
{
    struct js_fetches *fetches = job->fetches;
    const uint64_t one = 1;

    (void)pthread_mutex_lock(&fetches->lock);
    job->next = fetches->done;
    fetches->done = job;
    (void)fd_write_full(fetches->event, &one, sizeof(one));
    (void)pthread_mutex_unlock(&fetches->lock);
}

static void *work(void *arg)
{
    struct job *job = arg;

    job->failed = (job->reads ? read_work(job) : start_work(job)) < 0;
    job_done(job);
    return NULL;
}

/* ---- the thread that runs the kernel ---- */

static void fetch_free(struct fetch *fetch)
{
    if (fetch == NULL)
        return;
    conn_free(&fetch->conn);
    fetch_request_clear(&fetch->request);
    free(fetch->head);
    free(fetch->body);
    free(fetch);
}

static void fetch_forget(struct js_fetches *fetches, struct fetch *fetch)
{
    struct fetch **at = &fetches->list;

    fetch->gone = true;
    if (fetch->busy)
        return;
    while (*at != fetch)
        at = &(*at)->next;
    *at = fetch->next;
    fetches->count--;
    fetch_free(fetch);
}

static void job_clear(struct job *job)
{
    free(job->meta.data);
    free(job->bytes);
    job->meta = (struct meta_text){0};
    job->bytes = NULL;
}

static void job_start(struct js_fetches *fetches, struct job *job)
{
    pthread_attr_t attr;
    sigset_t all, before;
    pthread_t thread;
    int failure;

    /* No signal of the kernel's is its business. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    failure = pthread_create(&thread, &attr, work, job);
    (void)pthread_attr_destroy(&attr);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    fetches->running++;
    if (failure == 0)
        return;
    error_set(&job->err, "EAGAIN", failure, "no thread for a request");
    job->failed = true;
    job_done(job);
}

static void job_add(struct js_fetches *fetches, struct fetch *fetch, uint32_t call, bool reads)
{
    struct job **end = &fetches->waiting;

    fetch->job = (struct job){.fetches = fetches, .fetch = fetch, .call = call, .reads = reads};
    fetch->busy = true;
    while (*end != NULL)
        end = &(*end)->next;
    *end = &fetch->job;
}

/* What a run may have, at once and at all. */
static int may_begin(const struct js_fetches *fetches, const struct kernel_call *call,
                     struct error *err)
{
    if (fetches->begun >= FETCH_COUNT_MAX)
        return fetch_out_of("requests", FETCH_COUNT_MAX, err);
    if (fetches->count >= FETCH_OPEN_MAX)
        return error_set(err, "EMFILE", 0,
                         "%u requests and answers are open: read them or cancel them first",
                         FETCH_OPEN_MAX);
    if (fetches->bytes_out + call->bytes_size > FETCH_OUT_MAX)
        return fetch_out_of("bytes of requests", FETCH_OUT_MAX, err);
    return 0;
}

static int start_take(struct js_fetches *fetches, const struct kernel_call *call, struct error *err)
{
    struct fetch *fetch;

    if (may_begin(fetches, call, err) < 0)
        return -1;
    fetches->begun++;
    fetch = calloc(1, sizeof(*fetch));
    if (fetch == NULL)
        return error_set(err, "ENOMEM", ENOMEM, "a request");
    fetch->conn.fd = fetch->conn.watch_fd = -1;
    if (request_make(fetch, call, err) < 0) {
        fetch_free(fetch);
        return -1;
    }
    fetches->bytes_out += fetch->body_size;
    job_add(fetches, fetch, call->id, false);
    fetch->stream = ++fetches->last_stream;
    fetch->next = fetches->list;
    fetches->list = fetch;
    fetches->count++;
    return 0;
}

static struct fetch *stream_of(const struct js_fetches *fetches, const struct kernel_call *call)
{
    uint32_t stream = fetch_stream(call);
    struct fetch *fetch = fetches->list;

    while (fetch != NULL && (fetch->stream != stream || fetch->gone))
        fetch = fetch->next;
    return fetch;
}

static int call_take(struct js_fetches *fetches, const struct kernel_call *call, struct error *err)
{
    struct fetch *fetch;

    if (kernel_text_is(call->op, "fetch.start"))
        return start_take(fetches, call, err);
    if (!kernel_text_is(call->op, "fetch.read"))
        return error_set(err, "ENOSYS", 0, "cove js has nobody who could answer this call");
    fetch = stream_of(fetches, call);
    if (fetch == NULL || fetch->busy)
        return error_set(err, "EBADF", 0, "there is no answer of this number to be read");
    job_add(fetches, fetch, call->id, true);
    return 0;
}

/* fetch.cancel, the one that is answered at once. */
static int cancel(void *data, const struct kernel_call *call, struct kernel_answer *answer,
                  struct error *err)
{
    struct js_fetches *fetches = data;
    struct fetch *fetch;

    (void)answer;
    if (!kernel_text_is(call->op, "fetch.cancel"))
        return error_set(err, "ENOSYS", 0, "this kernel's host knows no call '%.*s'",
                         (int)(call->op.size < 64 ? call->op.size : 64), call->op.data);
    fetch = stream_of(fetches, call);
    if (fetch != NULL)
        fetch_forget(fetches, fetch);
    return 0;
}

static int job_settle(struct js_fetches *fetches, struct job *job, struct error *err)
{
    struct fetch *fetch = job->fetch;
    int status;

    fetches->running--;
    fetch->busy = false;
    if (job->meta.failed && !job->failed) {
        error_set(&job->err, "ENOMEM", ENOMEM, "an answer");
        job->failed = true;
    }
    fetches->bytes_in += job->bytes_size;
    if (!job->failed && fetches->bytes_in > FETCH_IN_MAX) {
        (void)fetch_out_of("bytes of answers", FETCH_IN_MAX, &job->err);
        job->failed = true;
    }
    status = job->failed ? kernel_settle_error(fetches->context, job->call, job->err.code,
                                               job->err.text, err)
                         : kernel_settle(fetches->context, job->call, job->meta.data,
                                         job->meta.size, job->bytes, job->bytes_size, err);
    job_clear(job);
    if (job->failed || fetch->gone || fetch->ended)
        fetch_forget(fetches, fetch);
    return status;
}

static int all_settle(struct js_fetches *fetches, struct error *err)
{
    struct job *done;
    int status = 0;

    (void)pthread_mutex_lock(&fetches->lock);
    done = fetches->done;
    fetches->done = NULL;
    (void)pthread_mutex_unlock(&fetches->lock);
    while (done != NULL) {
        struct job *next = done->next;

        if (job_settle(fetches, done, err) < 0)
            status = -1;
        done = next;
    }
    return status;
}

static void all_start(struct js_fetches *fetches)
{
    while (fetches->waiting != NULL && fetches->running < FETCH_AT_ONCE) {
        struct job *job = fetches->waiting;

        fetches->waiting = job->next;
        job_start(fetches, job);
    }
}

int js_fetches_turn(struct js_fetches *fetches, uint64_t ms, struct error *err)
{
    struct pollfd ready = {.fd = fetches->event, .events = POLLIN};
    struct kernel_call call;
    struct error refused;
    uint64_t count;

    while (kernel_call_next(fetches->context, &call))
        if (call_take(fetches, &call, &refused) < 0) {
            if (kernel_settle_error(fetches->context, call.id, refused.code, refused.text, err) < 0)
                return -1;
            ms = 0;
        }
    all_start(fetches);
    if (poll(&ready, 1, ms > INT_MAX ? INT_MAX : (int)ms) > 0)
        (void)!read(fetches->event, &count, sizeof(count));
    return all_settle(fetches, err);
}

int js_fetches_new(struct kernel_context *context, const struct kernel_manifest *manifest,
                   struct js_fetches **out, struct error *err)
{
    struct js_fetches *fetches = calloc(1, sizeof(*fetches));

    if (fetches == NULL)
        return error_set(err, "no_memory", ENOMEM, "cove js");
    *fetches = (struct js_fetches){.context = context,
                                   .policy = policy_copy(kernel_manifest_policy(manifest)),
                                   .event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                   .lock = PTHREAD_MUTEX_INITIALIZER};
    if (fetches->event < 0) {
        js_fetches_free(fetches);
        return error_set(err, "no_fd", errno, "eventfd: the kernel refused it");
    }
    kernel_set_answerer(context, cancel, fetches);
    *out = fetches;
    return 0;
}

/* While threads are under way all stays as it is: the program is about to end. */
void js_fetches_free(struct js_fetches *fetches)
{
    struct error ignored;

    if (fetches == NULL)
        return;
    kernel_set_answerer(fetches->context, NULL, NULL);
    (void)all_settle(fetches, &ignored);
    if (fetches->running > 0)
        return;
    while (fetches->list != NULL) {
        struct fetch *next = fetches->list->next;

        fetch_free(fetches->list);
        fetches->list = next;
    }
    policy_free(fetches->policy);
    fd_close(&fetches->event);
    free(fetches);
}

void js_fetches_freep(struct js_fetches **fetches)
{
    js_fetches_free(*fetches);
}
