/* Spans on their way out: see telemetry.h. The loop's thread only ever takes the mutex to copy a span in;
 * all else (text, network, waiting) is the sender's. */
#include "front/native/telemetry.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/library.h"
#include "base/log.h"
#include "front/native/out.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUE 4096U /* spans that wait */
#define BATCH 512U
#define WAIT_MS 1000             /* for more of a batch */
#define SEND_MS 5000L            /* then the collector is too slow */
#define LAST_MS 2000L            /* the same, at the end */
#define LEAVE_MS (LAST_MS + 250) /* then it hangs where nobody can end it: in a resolver */
#define AGAIN_MOST_MS 30000U     /* between two tries where nobody answers */
#define HEADERS_MAX 65536

/* Of libcurl, by name. */
struct curl_calls {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *curl, CURLoption option, ...);
    CURLcode (*easy_perform)(CURL *curl);
    CURLcode (*easy_getinfo)(CURL *curl, CURLINFO info, ...);
    const char *(*easy_strerror)(CURLcode code);
    void (*easy_cleanup)(CURL *curl);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
};

struct telemetry {
    struct curl_calls calls;
    char *url, *service, *version;
    struct curl_slist *headers;
    CURL *curl;
    struct out out;
    struct telemetry_span batch[BATCH];
    unsigned again_ms;
    pthread_t thread;
    uint64_t end_ns; /* atomic; 0: it goes on */

    pthread_mutex_t mutex; /* for the rest */
    pthread_cond_t work;
    struct telemetry_span queue[QUEUE];
    size_t first, count;
    uint64_t sent, dropped;
    bool is_ending, is_over;
};

/* ---- W3C Trace Context ---- */

bool telemetry_parent(const char *text, uint8_t trace[16], uint8_t parent[8], bool *is_sampled)
{
    static const uint8_t none[16];
    uint8_t version, flags;

    /* In lower case; of a later version more may follow. */
    if (strspn(text, "0123456789abcdef-") < 55 || !hex_decode(text, 1, &version) ||
        version == 0xff || text[2] != '-' || !hex_decode(text + 3, 16, trace) || text[35] != '-' ||
        !hex_decode(text + 36, 8, parent) || text[52] != '-' || !hex_decode(text + 53, 1, &flags) ||
        (text[55] != '\0' && (text[55] != '-' || version == 0)))
        return false;
    *is_sampled = (flags & 1) != 0;
    return memcmp(trace, none, 16) != 0 && memcmp(parent, none, 8) != 0;
}

/* ---- the text ---- */

static void print_hex(struct out *out, const char *key, const uint8_t *bytes, size_t size)
{
    char text[40];

    hex_encode(bytes, size, text);
    out_text(out, key, text);
}

/* Numbers of 64 bits are text in OTLP's JSON. */
static void print_number(struct out *out, const char *key, uint64_t number)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, number);
    out_text(out, key, text);
}

static void attribute(struct out *out, const char *key, const char *value)
{
    if (value == NULL || *value == '\0')
        return;
    out_object(out, NULL);
    out_text(out, "key", key);
    out_object(out, "value");
    out_text(out, "stringValue", value);
    out_object_end(out);
    out_object_end(out);
}

static void print_attributes(struct out *out, const struct telemetry_span *span)
{
    out_array(out, "attributes");
    if (span->is_server) {
        attribute(out, "http.request.method", span->name);
        attribute(out, "http.route", span->route);
        attribute(out, "cove.request_id", span->request);
        attribute(out, "error.type", span->code);
    }
    if (span->status > 0) {
        out_object(out, NULL);
        out_text(out, "key", "http.response.status_code");
        out_object(out, "value");
        print_number(out, "intValue", span->status);
        out_object_end(out);
        out_object_end(out);
    }
    attribute(out, "cove.tenant", span->tenant);
    attribute(out, "cove.sandbox", span->sandbox);
    out_array_end(out);
}

static void print_span(struct out *out, const struct telemetry_span *span)
{
    static const uint8_t none[8];
    char name[256];

    (void)snprintf(name, sizeof(name), "%s%s%s", span->name, span->route != NULL ? " " : "",
                   span->route != NULL ? span->route : "");
    out_object(out, NULL);
    print_hex(out, "traceId", span->trace, sizeof(span->trace));
    print_hex(out, "spanId", span->id, sizeof(span->id));
    if (memcmp(span->parent, none, sizeof(none)) != 0)
        print_hex(out, "parentSpanId", span->parent, sizeof(span->parent));
    out_text(out, "name", name);
    out_number(out, "kind", span->is_server ? 2 : 1);
    print_number(out, "startTimeUnixNano", span->begin_ns);
    print_number(out, "endTimeUnixNano", span->end_ns);
    print_attributes(out, span);
    out_object(out, "status");
    if (span->status >= 500)
        out_number(out, "code", 2);
    out_object_end(out);
    out_object_end(out);
}

static void print_batch(struct telemetry *telemetry, size_t count)
{
    struct out *out = &telemetry->out;

    out_reset(out, 1U << 20);
    out_object(out, NULL);
    out_array(out, "resourceSpans");
    out_object(out, NULL);
    out_object(out, "resource");
    out_array(out, "attributes");
    attribute(out, "service.name", telemetry->service);
    attribute(out, "service.version", telemetry->version);
    out_array_end(out);
    out_object_end(out);
    out_array(out, "scopeSpans");
    out_object(out, NULL);
    out_object(out, "scope");
    out_text(out, "name", "cove");
    out_object_end(out);
    out_array(out, "spans");
    for (size_t i = 0; i < count; i++)
        print_span(out, &telemetry->batch[i]);
    out_array_end(out);
    out_object_end(out);
    out_array_end(out);
    out_object_end(out);
    out_array_end(out);
    out_object_end(out);
}

/* ---- the sender ---- */

static size_t ignore(char *data, size_t size, size_t count, void *arg)
{
    (void)data;
    (void)arg;
    return size * count;
}

/* Called by libcurl every second at least: at the end a slow collector is waited for no longer. */
static int is_too_late(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct telemetry *telemetry = arg;
    uint64_t end_ns = __atomic_load_n(&telemetry->end_ns, __ATOMIC_RELAXED);

    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return end_ns > 0 && clock_monotonic_ns() > end_ns;
}

static bool post(struct telemetry *telemetry, long most_ms)
{
    const struct curl_calls *calls = &telemetry->calls;
    const struct out *out = &telemetry->out;
    CURL *curl = telemetry->curl;
    long status = 0;
    CURLcode code;

    if (out->has_failed)
        return false;
    (void)calls->easy_setopt(curl, CURLOPT_POSTFIELDS, out->data);
    (void)calls->easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)out->used);
    (void)calls->easy_setopt(curl, CURLOPT_TIMEOUT_MS, most_ms);
    code = calls->easy_perform(curl);
    (void)calls->easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && status >= 200 && status < 300)
        return true;
    log_say(LOG_LEVEL_WARN, "telemetry_failed",
            "the collector of traces takes none: %s; is otlp_endpoint right? status=%ld",
            calls->easy_strerror(code), status);
    return false;
}

static void wait_until(struct telemetry *telemetry, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000U),
                             .tv_nsec = (long)(until_ns % 1000000000U)};

    (void)pthread_cond_timedwait(&telemetry->work, &telemetry->mutex, &until);
}

/* Copies the oldest out; the queue takes new ones meanwhile. */
static size_t batch_take(struct telemetry *telemetry)
{
    size_t count = telemetry->count < BATCH ? telemetry->count : BATCH;

    for (size_t i = 0; i < count; i++)
        telemetry->batch[i] = telemetry->queue[(telemetry->first + i) % QUEUE];
    telemetry->first = (telemetry->first + count) % QUEUE;
    telemetry->count -= count;
    return count;
}

/* Where nobody answers it is tried ever less often, and what comes meanwhile finds the queue full. */
static void send_some(struct telemetry *telemetry)
{
    bool is_last = telemetry->is_ending, is_sent;
    size_t count = batch_take(telemetry);

    (void)pthread_mutex_unlock(&telemetry->mutex);
    print_batch(telemetry, count);
    is_sent = post(telemetry, is_last ? LAST_MS : SEND_MS);
    (void)pthread_mutex_lock(&telemetry->mutex);
    if (is_sent) {
        telemetry->sent += count;
        telemetry->again_ms = 0;
        return;
    }
    telemetry->dropped += count;
    telemetry->again_ms = telemetry->again_ms == 0 ? WAIT_MS : telemetry->again_ms * 2;
    if (telemetry->again_ms > AGAIN_MOST_MS)
        telemetry->again_ms = AGAIN_MOST_MS;
    if (is_last)
        telemetry->count = 0;
}

/* Until there is a whole batch, or a part of one has waited long enough; or where the last try failed, it is
 * time for the next. */
static void wait_for_batch(struct telemetry *telemetry)
{
    uint64_t ms = telemetry->again_ms > 0 ? telemetry->again_ms : WAIT_MS;
    uint64_t until = clock_monotonic_ns() + ms * 1000000;

    while (!telemetry->is_ending && clock_monotonic_ns() < until &&
           (telemetry->again_ms > 0 || telemetry->count < BATCH))
        wait_until(telemetry, until);
}

static void *send_main(void *arg)
{
    struct telemetry *telemetry = arg;

    (void)pthread_mutex_lock(&telemetry->mutex);
    for (;;) {
        while (!telemetry->is_ending && telemetry->count == 0)
            (void)pthread_cond_wait(&telemetry->work, &telemetry->mutex);
        if (telemetry->count == 0)
            break;
        wait_for_batch(telemetry);
        send_some(telemetry);
    }
    telemetry->is_over = true;
    (void)pthread_cond_signal(&telemetry->work);
    (void)pthread_mutex_unlock(&telemetry->mutex);
    return NULL;
}

void telemetry_add(struct telemetry *telemetry, const struct telemetry_span *span)
{
    (void)pthread_mutex_lock(&telemetry->mutex);
    if (telemetry->count == QUEUE)
        telemetry->dropped++;
    else
        telemetry->queue[(telemetry->first + telemetry->count++) % QUEUE] = *span;
    if (telemetry->count == 1 || telemetry->count == BATCH)
        (void)pthread_cond_signal(&telemetry->work);
    (void)pthread_mutex_unlock(&telemetry->mutex);
}

void telemetry_count(struct telemetry *telemetry, uint64_t *sent, uint64_t *dropped)
{
    (void)pthread_mutex_lock(&telemetry->mutex);
    *sent = telemetry->sent;
    *dropped = telemetry->dropped;
    (void)pthread_mutex_unlock(&telemetry->mutex);
}

/* ---- its life ---- */

static int curl_load(struct curl_calls *calls, struct error *err)
{
    static const char *const names[] = {
        "curl_global_init",  "curl_easy_init",    "curl_easy_setopt",
        "curl_easy_perform", "curl_easy_getinfo", "curl_easy_strerror",
        "curl_easy_cleanup", "curl_slist_append", "curl_slist_free_all"};
    void *found[sizeof(names) / sizeof(names[0])];
    const char *missing;

    _Static_assert(sizeof(found) == sizeof(*calls), "a name for each call");
    missing = library_find("libcurl.so.4", names, sizeof(names) / sizeof(names[0]), found);
    if (missing != NULL)
        return error_set(err, "no_telemetry", 0,
                         "traces need libcurl 7.85 or later, and %s cannot be found; install the "
                         "package libcurl4",
                         missing);
    memcpy(calls, found, sizeof(*calls));
    return calls->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK
               ? 0
               : error_set(err, "no_telemetry", 0, "libcurl cannot be set up");
}

static int headers_read(struct telemetry *telemetry, int file, struct error *err)
{
    char *text = calloc(1, HEADERS_MAX + 1), *rest = NULL;
    ssize_t size = text != NULL ? fd_read_full(file, text, HEADERS_MAX) : -1;

    if (size < 0) {
        free(text);
        return error_set(err, "no_telemetry", errno, "the headers for traces cannot be read");
    }
    for (char *line = strtok_r(text, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest))
        if (*line != '#' && strchr(line, ':') != NULL)
            // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): curl_load() has set it
            telemetry->headers = telemetry->calls.slist_append(telemetry->headers, line);
    explicit_bzero(text, HEADERS_MAX);
    free(text);
    return 0;
}

static int curl_begin(struct telemetry *telemetry, struct error *err)
{
    // NOLINTBEGIN(clang-analyzer-core.CallAndMessage): curl_load() has set them
    const struct curl_calls *calls = &telemetry->calls;
    CURL *curl = telemetry->curl = calls->easy_init();
    const char *authorities = NULL;

    telemetry->headers = calls->slist_append(telemetry->headers, "Content-Type: application/json");
    // NOLINTEND(clang-analyzer-core.CallAndMessage)
    if (curl == NULL || telemetry->headers == NULL)
        return error_set(err, "no_telemetry", 0, "there is no memory for traces");
    (void)calls->easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    /* A name server that does not answer holds up its own thread and no more; where libcurl is older than
     * this, telemetry_close() leaves ours behind. */
    (void)calls->easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
    (void)calls->easy_setopt(curl, CURLOPT_HTTPHEADER, telemetry->headers);
    (void)calls->easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    (void)calls->easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    (void)calls->easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_too_late);
    (void)calls->easy_setopt(curl, CURLOPT_XFERINFODATA, telemetry);
    if (calls->easy_getinfo(curl, CURLINFO_CAINFO, &authorities) != CURLE_OK || authorities == NULL)
        (void)calls->easy_setopt(curl, CURLOPT_CAINFO, library_authorities());
    (void)calls->easy_setopt(curl, CURLOPT_PROXY, "");
    (void)calls->easy_setopt(curl, CURLOPT_USERAGENT, "cove");
    if (calls->easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK ||
        calls->easy_setopt(curl, CURLOPT_URL, telemetry->url) != CURLE_OK)
        return error_set(err, "no_telemetry", 0, "otlp_endpoint is no URL that can be used");
    return 0;
}

static int thread_begin(struct telemetry *telemetry, struct error *err)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    int failed;

    (void)pthread_mutex_init(&telemetry->mutex, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&telemetry->work, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&telemetry->thread, NULL, send_main, telemetry);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? 0
                       : error_set(err, "no_telemetry", failed, "there is no thread for traces");
}

static void telemetry_free(struct telemetry *telemetry)
{
    if (telemetry->curl != NULL)
        telemetry->calls.easy_cleanup(telemetry->curl);
    if (telemetry->headers != NULL)
        telemetry->calls.slist_free_all(telemetry->headers);
    out_free(&telemetry->out);
    free(telemetry->url);
    free(telemetry->service);
    free(telemetry->version);
    free(telemetry);
}

static char *url_of(const char *endpoint)
{
    size_t length = strlen(endpoint);
    char *url = NULL;

    while (length > 0 && endpoint[length - 1] == '/')
        length--;
    return asprintf(&url, "%.*s/v1/traces", (int)length, endpoint) < 0 ? NULL : url;
}

int telemetry_open(const struct telemetry_options *options, struct telemetry **out,
                   struct error *err)
{
    _cleanup_close_ int headers = options->headers;
    struct telemetry *telemetry = calloc(1, sizeof(*telemetry));

    if (telemetry == NULL)
        return error_set(err, "no_telemetry", ENOMEM, "there is no memory for traces");
    telemetry->url = url_of(options->endpoint);
    telemetry->service = strdup(options->service);
    telemetry->version = strdup(options->version);
    if (telemetry->url == NULL || telemetry->service == NULL || telemetry->version == NULL)
        (void)error_set(err, "no_telemetry", ENOMEM, "there is no memory for traces");
    else if (curl_load(&telemetry->calls, err) == 0 &&
             (headers < 0 || headers_read(telemetry, headers, err) == 0) &&
             curl_begin(telemetry, err) == 0 && thread_begin(telemetry, err) == 0) {
        *out = telemetry;
        return 0;
    }
    telemetry_free(telemetry);
    return -1;
}

/* A thread that does not end in time keeps what it works with: the process is about to end anyway. */
void telemetry_close(struct telemetry *telemetry)
{
    uint64_t now = clock_monotonic_ns();
    bool is_over;

    if (telemetry == NULL)
        return;
    (void)pthread_mutex_lock(&telemetry->mutex);
    telemetry->is_ending = true;
    __atomic_store_n(&telemetry->end_ns, now + LAST_MS * 1000000, __ATOMIC_RELAXED);
    (void)pthread_cond_signal(&telemetry->work);
    while (!telemetry->is_over && clock_monotonic_ns() < now + LEAVE_MS * 1000000)
        wait_until(telemetry, now + LEAVE_MS * 1000000);
    is_over = telemetry->is_over;
    (void)pthread_mutex_unlock(&telemetry->mutex);
    if (!is_over) {
        (void)pthread_detach(telemetry->thread);
        return;
    }
    (void)pthread_join(telemetry->thread, NULL);
    (void)pthread_cond_destroy(&telemetry->work);
    (void)pthread_mutex_destroy(&telemetry->mutex);
    telemetry_free(telemetry);
}
