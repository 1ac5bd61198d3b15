/* Requests on sockets that are there already: see fetch_parts.h. libcurl dials nothing and looks up nothing here: it
 * is given the one socket whose address was judged, and no second one. It follows no redirect, knows no proxy, no
 * cookies, no passwords and no connection of before, decodes nothing, and believes no certificate that the host
 * does not.
 *
 * It must never be called from within one of its own callbacks: they only note what is new, and the owner of a
 * transfer hears of it when libcurl has returned. A body is read as far as somebody wants it. */
#include "engine/fetch_parts.h"

#include "base/fd.h"
#include "base/library.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_TURNS 8 /* of libcurl, until it has said something */
#define PARTS_MAX 64  /* of a body, in one turn of libcurl: a server may send a byte in each */
#define ROUND_NS \
    1000000 /* that all may take of a round of the loop; the others have their turns in the next */
#define CA_KEPT_S (-1L) /* for ever: to read them takes the time of thousands of requests */

/* Of libcurl, by name. */
struct curl_calls {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *curl, CURLoption option, ...);
    CURLcode (*easy_getinfo)(CURL *curl, CURLINFO info, ...);
    CURLcode (*easy_pause)(CURL *curl, int mask);
    void (*easy_cleanup)(CURL *curl);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
    CURLM *(*multi_init)(void);
    CURLMcode (*multi_setopt)(CURLM *multi, CURLMoption option, ...);
    CURLMcode (*multi_add_handle)(CURLM *multi, CURL *curl);
    CURLMcode (*multi_remove_handle)(CURLM *multi, CURL *curl);
    CURLMcode (*multi_perform)(CURLM *multi, int *running);
    CURLMcode (*multi_socket_action)(CURLM *multi, curl_socket_t fd, int events, int *running);
    CURLMcode (*multi_assign)(CURLM *multi, curl_socket_t fd, void *arg);
    CURLMsg *(*multi_info_read)(CURLM *multi, int *left);
    CURLMcode (*multi_cleanup)(CURLM *multi);
};

struct transfers {
    struct curl_calls calls;
    CURLM *multi;
    uv_loop_t *loop; /* NULL: not begun */
    uv_timer_t timer;
    uv_idle_t turns; /* runs while anybody waits for a turn */
    TAILQ_HEAD(transfer_news, transfer) news;
    TAILQ_HEAD(transfer_resumes, transfer) resumes; /* what was paused, and may go on */
    TAILQ_HEAD(spots, spot) ready;                  /* sockets on which something has come */
    uint64_t spent_ns;                              /* in this round */
    unsigned handles;                               /* of the loop */
    void (*closed)(void *arg);
    void *arg;
};

/* A socket of libcurl's that is watched. */
struct spot {
    uv_poll_t poll; /* first */
    TAILQ_ENTRY(spot) link;
    struct transfers *transfers;
    int fd, events;
    int what; /* has come, in libcurl's words, where it waits for its turn; else 0 */
    bool is_broken;
};

/* ---- the library ---- */

static int calls_load(struct curl_calls *calls, struct error *err)
{
    static const char *const names[] = {
        "curl_global_init",         "curl_easy_init",       "curl_easy_setopt",
        "curl_easy_getinfo",        "curl_easy_pause",      "curl_easy_cleanup",
        "curl_easy_strerror",       "curl_slist_append",    "curl_slist_free_all",
        "curl_multi_init",          "curl_multi_setopt",    "curl_multi_add_handle",
        "curl_multi_remove_handle", "curl_multi_perform",   "curl_multi_socket_action",
        "curl_multi_assign",        "curl_multi_info_read", "curl_multi_cleanup"};
    void *found[sizeof(names) / sizeof(names[0])];
    const char *missing;

    _Static_assert(sizeof(found) == sizeof(*calls), "a name for each call");
    missing = library_find("libcurl.so.4", names, sizeof(names) / sizeof(names[0]), found);
    if (missing != NULL)
        return error_set(err, "no_fetch", 0,
                         "fetch() needs libcurl 7.85 or later, and %s cannot be found; install the "
                         "package libcurl4",
                         missing);
    memcpy(calls, found, sizeof(*calls));
    return calls->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK
               ? 0
               : error_set(err, "no_fetch", 0, "libcurl cannot be set up");
}

/* ---- what is new ---- */

static void note(struct transfer *transfer)
{
    if (!transfer->has_news)
        TAILQ_INSERT_TAIL(&transfer->transfers->news, transfer, news_link);
    transfer->has_news = true;
    transfer->heard_ms = uv_now(transfer->transfers->loop);
}

static void fail(struct transfer *transfer)
{
    transfer->is_over = transfer->has_failed = true;
    note(transfer);
}

static void explain(struct transfer *transfer, CURLcode code)
{
    if (transfer->has_failed)
        return; /* by a callback, which said why */
    transfer_explain(transfer, (int)code,
                     transfer->why[0] != 0 ? transfer->why
                                           : transfer->transfers->calls.easy_strerror(code));
    fail(transfer);
}

static void detach(struct transfer *transfer)
{
    struct transfers *transfers = transfer->transfers;

    if (transfer->is_added)
        (void)transfers->calls.multi_remove_handle(transfers->multi, transfer->curl);
    transfer->is_added = false;
}

static void ends_take(struct transfers *transfers)
{
    const struct curl_calls *calls = &transfers->calls;
    CURLMsg *message;
    int left;

    while ((message = calls->multi_info_read(transfers->multi, &left)) != NULL) {
        struct transfer *transfer = NULL;
        CURLcode code = message->data.result;

        if (message->msg != CURLMSG_DONE ||
            calls->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer) !=
                CURLE_OK)
            continue;
        detach(transfer);
        if (code == CURLE_OK && !transfer->has_head)
            code = CURLE_GOT_NOTHING;
        if (code != CURLE_OK)
            explain(transfer, code);
        transfer->is_over = true;
        note(transfer);
    }
}

static void news_tell(struct transfers *transfers)
{
    struct transfer *transfer;

    ends_take(transfers);
    while ((transfer = TAILQ_FIRST(&transfers->news)) != NULL) {
        TAILQ_REMOVE(&transfers->news, transfer, news_link);
        transfer->has_news = false;
        transfer->parts = 0;
        transfer->news(transfer, transfer->arg);
    }
}

/* ---- the loop ---- */

static void on_ready(uv_poll_t *poll, int status, int events);

/* Has libcurl look after one socket, or after what is due; `resumed` may go on before. */
static void act(struct transfers *transfers, curl_socket_t fd, int what, struct transfer *resumed)
{
    uint64_t began = uv_hrtime();
    int running;

    if (resumed != NULL && resumed->is_added)
        (void)transfers->calls.easy_pause(resumed->curl, CURLPAUSE_CONT);
    (void)transfers->calls.multi_socket_action(transfers->multi, fd, what, &running);
    news_tell(transfers);
    transfers->spent_ns += uv_hrtime() - began;
}

static void on_timer(uv_timer_t *timer)
{
    act(timer->data, CURL_SOCKET_TIMEOUT, 0, NULL);
}

static void soon(struct transfers *transfers, uint64_t ms)
{
    (void)uv_timer_start(&transfers->timer, on_timer, ms, 0);
}

static int on_timeout(CURLM *multi, long ms, void *arg)
{
    struct transfers *transfers = arg;

    (void)multi;
    if (ms >= 0)
        soon(transfers, (uint64_t)ms);
    else if (TAILQ_EMPTY(&transfers->news))
        (void)uv_timer_stop(&transfers->timer);
    return 0;
}

/* A peer that cut the connection may have answered before: what came is heard first. */
static int broken(struct spot *spot)
{
    int what = CURL_CSELECT_IN | CURL_CSELECT_OUT | (spot->is_broken ? CURL_CSELECT_ERR : 0);

    spot->is_broken = true;
    (void)uv_poll_start(&spot->poll, spot->events, on_ready); /* it was stopped */
    return what;
}

static void resume(struct transfers *transfers, struct transfer *transfer)
{
    TAILQ_REMOVE(&transfers->resumes, transfer, resume_link);
    transfer->resumes = transfer->is_paused = false;
    act(transfers, CURL_SOCKET_TIMEOUT, 0, transfer);
}

static void spot_leave(struct spot *spot)
{
    if (spot->what != 0)
        TAILQ_REMOVE(&spot->transfers->ready, spot, link);
    spot->what = 0;
}

/* A new round: who waits has his turn, a socket and a transfer by turns, until its time is over. */
static void on_turns(uv_idle_t *turns)
{
    struct transfers *transfers = turns->data;
    struct transfer *transfer;
    struct spot *spot;

    transfers->spent_ns = 0;
    while (transfers->spent_ns < ROUND_NS) {
        spot = TAILQ_FIRST(&transfers->ready);
        if (spot != NULL) {
            int what = spot->what;
            spot_leave(spot);
            (void)uv_poll_start(&spot->poll, spot->events, on_ready);
            act(transfers, spot->fd, what, NULL);
        }
        transfer = TAILQ_FIRST(&transfers->resumes);
        if (transfer != NULL)
            resume(transfers, transfer);
        if (spot == NULL && transfer == NULL) {
            (void)uv_idle_stop(turns);
            return;
        }
    }
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct spot *spot = (struct spot *)poll;
    struct transfers *transfers = spot->transfers;
    int what = (events & UV_READABLE ? CURL_CSELECT_IN : 0) |
               (events & UV_WRITABLE ? CURL_CSELECT_OUT : 0);

    if (status < 0)
        what = broken(spot);
    if (transfers->spent_ns < ROUND_NS) {
        act(transfers, spot->fd, what, NULL);
        return;
    }
    (void)uv_poll_stop(&spot->poll);
    spot->what = what;
    TAILQ_INSERT_TAIL(&transfers->ready, spot, link);
    (void)uv_idle_start(&transfers->turns, on_turns);
}

static void release(struct transfers *transfers)
{
    if (--transfers->handles > 0 || transfers->closed == NULL)
        return;
    transfers->closed(transfers->arg);
    free(transfers);
}

static void on_spot_closed(uv_handle_t *handle)
{
    struct spot *spot = (struct spot *)handle;

    release(spot->transfers);
    free(spot);
}

static void on_own_closed(uv_handle_t *handle)
{
    release(handle->data);
}

static struct spot *spot_new(struct transfers *transfers, CURL *curl, int fd)
{
    struct spot *spot = calloc(1, sizeof(*spot));
    struct transfer *transfer = NULL;

    if (spot != NULL && uv_poll_init(transfers->loop, &spot->poll, fd) == 0) {
        spot->transfers = transfers;
        spot->fd = fd;
        transfers->handles++;
        (void)transfers->calls.multi_assign(transfers->multi, fd, spot);
        return spot;
    }
    free(spot);
    if (transfers->calls.easy_getinfo(curl, CURLINFO_PRIVATE, (char **)&transfer) != CURLE_OK ||
        transfer == NULL)
        return NULL;
    /* To say no here would end all others, too. */
    (void)error_set(&transfer->err, "EAGAIN", 0, "a connection cannot be watched");
    fail(transfer);
    soon(transfers, 0);
    return NULL;
}

static int on_socket(CURL *curl, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct transfers *transfers = arg;
    struct spot *spot = socket_arg;
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);

    if (what == CURL_POLL_REMOVE) {
        if (spot != NULL) {
            spot_leave(spot);
            uv_close((uv_handle_t *)&spot->poll, on_spot_closed);
        }
        (void)transfers->calls.multi_assign(transfers->multi, fd, NULL);
        return 0;
    }
    if (spot == NULL)
        spot = spot_new(transfers, curl, fd);
    if (spot != NULL) {
        spot->events = events;
        if (spot->what == 0)
            (void)uv_poll_start(&spot->poll, events, on_ready);
    }
    return 0;
}

void transfers_begin(struct transfers *transfers, uv_loop_t *loop)
{
    const struct curl_calls *calls = &transfers->calls;

    transfers->loop = loop;
    (void)uv_timer_init(loop, &transfers->timer);
    transfers->timer.data = transfers;
    (void)uv_idle_init(loop, &transfers->turns);
    transfers->turns.data = transfers;
    transfers->handles = 2;
    (void)calls->multi_setopt(transfers->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)calls->multi_setopt(transfers->multi, CURLMOPT_SOCKETDATA, transfers);
    (void)calls->multi_setopt(transfers->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    (void)calls->multi_setopt(transfers->multi, CURLMOPT_TIMERDATA, transfers);
    (void)calls->multi_setopt(transfers->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
}

void transfers_close(struct transfers *transfers, void (*closed)(void *arg), void *arg)
{
    if (transfers->loop == NULL) {
        (void)transfers->calls.multi_cleanup(transfers->multi);
        free(transfers);
        closed(arg);
        return;
    }
    transfers->closed = closed;
    transfers->arg = arg;
    (void)transfers->calls.multi_cleanup(transfers->multi);
    uv_close((uv_handle_t *)&transfers->timer, on_own_closed);
    uv_close((uv_handle_t *)&transfers->turns, on_own_closed);
}

/* ---- an answer ---- */

static size_t refuse(struct transfer *transfer, const char *what)
{
    (void)error_set(&transfer->err, "EPROTO", 0, "%s of the answer of %s", what,
                    transfer->request->authority);
    fail(transfer);
    return 0;
}

/* "HTTP/1.1 200 Fine": a head begins; that of another answer than the last (1xx) is for nobody. */
static void status_take(struct transfer *transfer, const char *line, size_t size)
{
    const char *text = size > 13 ? line + 13 : "";

    free(transfer->head.data);
    transfer->head = (struct meta_text){0};
    transfer->headers = 0;
    transfer->is_empty = transfer->is_coded = false;
    transfer->status = size >= 12 ? (unsigned)strtoul(line + 9, NULL, 10) : 0;
    fetch_head_begin(&transfer->head, transfer->status, text, size > 13 ? size - 13 : 0,
                     transfer->request->url);
}

static void header_take(struct transfer *transfer, const char *line, size_t size)
{
    const char *colon = memchr(line, ':', size), *value;

    if (colon == NULL || colon == line)
        return;
    for (value = colon + 1; value < line + size && (*value == ' ' || *value == '\t');)
        value++;
    while (size > (size_t)(value - line) && (line[size - 1] == ' ' || line[size - 1] == '\t'))
        size--;
    transfer->is_empty |= strncasecmp(line, "content-length:", 15) == 0 &&
                          line + size == value + 1 && *value == '0';
    transfer->is_coded |= strncasecmp(line, "transfer-encoding:", 18) == 0;
    fetch_head_header(&transfer->head, transfer->headers == 0, line, (size_t)(colon - line), value,
                      (size_t)(line + size - value));
    transfer->headers++;
}

/* A line with its end, at a time; libcurl ends it with a NUL that is not counted. */
static size_t on_header(char *line, size_t one, size_t count, void *arg)
{
    struct transfer *transfer = arg;
    size_t size = one * count, whole = size;

    transfer->heard_ms = uv_now(transfer->transfers->loop);
    transfer->head_bytes += size;
    if (transfer->head_bytes > FETCH_HEAD_MAX)
        return refuse(transfer, "too large is the head");
    while (size > 0 && (line[size - 1] == '\r' || line[size - 1] == '\n'))
        size--;
    if (transfer->has_head) /* what is behind a chunked body is of no interest */
        return whole;
    if (size == 0) {
        transfer->has_head = transfer->status >= 200;
        transfer->is_empty = (transfer->is_empty && !transfer->is_coded) ||
                             transfer->request->is_head || transfer->status == 204 ||
                             transfer->status == 304;
        if (transfer->has_head)
            note(transfer);
    } else if (strncmp(line, "HTTP/", 5) == 0 && memchr(line, ':', size) == NULL) {
        status_take(transfer, line, size);
    } else {
        if (transfer->headers == FETCH_HEADERS_MAX)
            return refuse(transfer, "too many are the headers");
        header_take(transfer, line, size);
    }
    if (transfer->head.failed)
        return refuse(transfer, "no memory is there for the head");
    return whole;
}

static size_t on_body(char *data, size_t one, size_t count, void *arg)
{
    struct transfer *transfer = arg;
    size_t size = one * count;

    if (size > sizeof(transfer->data) && transfer->used == 0)
        return refuse(transfer, "too large is a part");
    if (size > sizeof(transfer->data) - transfer->used ||
        (transfer->parts >= PARTS_MAX && transfer->used > 0)) {
        transfer->is_paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    memcpy(transfer->data + transfer->used, data, size);
    transfer->used += size;
    transfer->parts++;
    note(transfer);
    return size;
}

/* ---- a request ---- */

/* The one socket. Who asks for a second one gets none: nothing but what was judged is dialled. */
static curl_socket_t on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct transfer *transfer = arg;

    (void)purpose;
    (void)address;
    return transfer->fd >= 0 ? fd_take(&transfer->fd) : CURL_SOCKET_BAD;
}

/* Some versions pass this over and call connect(); to a socket that has been connecting that is to ask how it went, and
 * to one that is connected a failure: it never leads anywhere else. */
static int on_options(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    (void)arg;
    (void)fd;
    (void)purpose;
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

static int on_close(void *arg, curl_socket_t fd)
{
    (void)arg;
    return close(fd);
}

static int line_add(struct transfer *transfer, const char *text)
{
    void *more = transfer->transfers->calls.slist_append(transfer->lines, text);

    if (more != NULL)
        transfer->lines = more;
    return more != NULL ? 0 : -1;
}

/* To libcurl "name:" means that it is left out; one without a value is "name;". */
static int empty_add(struct transfer *transfer, const char *text)
{
    _cleanup_free_ char *line = strdup(text);

    if (line == NULL)
        return -1;
    line[strlen(line) - 1] = ';';
    return line_add(transfer, line);
}

static int headers_set(struct transfer *transfer)
{
    const struct fetch_request *request = transfer->request;
    bool has_type = false;
    int status = 0;

    if (line_add(transfer, "accept-encoding: identity") < 0 ||
        line_add(transfer, "connection: close") < 0 || line_add(transfer, "expect:") < 0)
        return -1;
    for (size_t i = 0; i < request->headers_count && status == 0; i++) {
        const char *text = request->headers[i];

        has_type = has_type || strncasecmp(text, "content-type:", 13) == 0;
        status = strcspn(text, ":") + 1 == strlen(text) ? empty_add(transfer, text)
                                                        : line_add(transfer, text);
    }
    if (!has_type && status == 0)
        status = line_add(transfer, "content-type:"); /* libcurl would say one */
    return status == 0 && transfer->transfers->calls.easy_setopt(transfer->curl, CURLOPT_HTTPHEADER,
                                                                 transfer->lines) == CURLE_OK
               ? 0
               : -1;
}

static int method_set(struct transfer *transfer, const void *body, size_t body_size)
{
    const struct curl_calls *calls = &transfer->transfers->calls;
    CURL *curl = transfer->curl;
    bool ok = true;

    if (transfer->request->is_head) {
        ok = calls->easy_setopt(curl, CURLOPT_NOBODY, 1L) == CURLE_OK;
    } else if (body != NULL) {
        ok = calls->easy_setopt(curl, CURLOPT_POST, 1L) == CURLE_OK &&
             calls->easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_size) ==
                 CURLE_OK &&
             calls->easy_setopt(curl, CURLOPT_POSTFIELDS, body) == CURLE_OK;
    } else {
        ok = calls->easy_setopt(curl, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    }
    return ok && calls->easy_setopt(curl, CURLOPT_CUSTOMREQUEST, transfer->request->method) ==
                       CURLE_OK
               ? 0
               : -1;
}

/* What must hold, or nothing is sent: an option that this libcurl does not have is an error. */
static bool walls_set(struct transfer *transfer)
{
    const struct curl_calls *calls = &transfer->transfers->calls;
    CURL *curl = transfer->curl;
    static char address[] = "::192.0.2.1:9"; /* nobody's (RFC 5737) */
    static struct curl_slist nowhere = {.data = address};
    const struct {
        CURLoption option;
        long value;
    } numbers[] = {
        {CURLOPT_NOSIGNAL, 1},
        {CURLOPT_FOLLOWLOCATION, 0},
        {CURLOPT_FRESH_CONNECT, 1},
        {CURLOPT_FORBID_REUSE, 1},
        {CURLOPT_NETRC, 0},
        {CURLOPT_SSL_VERIFYPEER, 1},
        {CURLOPT_SSL_VERIFYHOST, 2},
        {CURLOPT_SSL_SESSIONID_CACHE, 0},
        {CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2},
        {CURLOPT_SSL_ENABLE_ALPN, 0},
        {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
        {CURLOPT_HTTP09_ALLOWED, 0},
        {CURLOPT_PATH_AS_IS, 1},
        {CURLOPT_HTTP_CONTENT_DECODING, 0},
        {CURLOPT_CONNECTTIMEOUT_MS, FETCH_CONNECT_MS},
        {CURLOPT_BUFFERSIZE, 16384},
    };
    const struct {
        CURLoption option;
        const void *value;
    } pointers[] = {
        {CURLOPT_PROXY, ""},
        {CURLOPT_NOPROXY, "*"},
        {CURLOPT_CONNECT_TO, &nowhere},
        {CURLOPT_OPENSOCKETDATA, transfer},
        {CURLOPT_PROTOCOLS_STR, transfer->request->is_tls ? "https" : "http"},
        {CURLOPT_HEADERDATA, transfer},
        {CURLOPT_WRITEDATA, transfer},
        {CURLOPT_PRIVATE, transfer},
        {CURLOPT_ERRORBUFFER, transfer->why},
    };

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (calls->easy_setopt(curl, numbers[i].option, numbers[i].value) != CURLE_OK)
            return false;
    for (size_t i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++)
        if (calls->easy_setopt(curl, pointers[i].option, pointers[i].value) != CURLE_OK)
            return false;
    return calls->easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, on_open) == CURLE_OK &&
           calls->easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, on_options) == CURLE_OK &&
           calls->easy_setopt(curl, CURLOPT_CLOSESOCKETFUNCTION, on_close) == CURLE_OK &&
           calls->easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
           calls->easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK;
}

/* By the file of authorities alone, if there is one: then it is read once, and kept. Where libcurl was built for all
 * distributions, it knows none. */
static void authorities_set(struct transfer *transfer)
{
    const struct curl_calls *calls = &transfer->transfers->calls;
    const char *file = NULL;

    if (calls->easy_getinfo(transfer->curl, CURLINFO_CAINFO, &file) != CURLE_OK || file == NULL) {
        file = library_authorities();
        (void)calls->easy_setopt(transfer->curl, CURLOPT_CAINFO, file);
    }
    if (file != NULL)
        (void)calls->easy_setopt(transfer->curl, CURLOPT_CAPATH, NULL);
    (void)calls->easy_setopt(transfer->curl, CURLOPT_CA_CACHE_TIMEOUT, CA_KEPT_S);
}

static int url_set(struct transfer *transfer)
{
    const struct curl_calls *calls = &transfer->transfers->calls;
    const struct fetch_request *request = transfer->request;
    _cleanup_free_ char *url = NULL;

    if (asprintf(&url, "%s://%s%s", request->is_tls ? "https" : "http", request->authority,
                 request->target) < 0) {
        url = NULL;
        return -1;
    }
    return calls->easy_setopt(transfer->curl, CURLOPT_URL, url) == CURLE_OK ? 0 : -1;
}

int transfer_new(struct transfers *transfers, const struct fetch_request *request, const void *body,
                 size_t body_size, int fd, void (*news)(struct transfer *transfer, void *arg),
                 void *arg, struct transfer **out, struct error *err)
{
    struct transfer *transfer = calloc(1, sizeof(*transfer));

    if (transfer == NULL) {
        fd_close(&fd);
        return error_set(err, "ENOMEM", ENOMEM, "a request");
    }
    transfer->transfers = transfers;
    transfer->request = request;
    transfer->fd = fd;
    transfer->news = news;
    transfer->arg = arg;
    transfer->heard_ms = uv_now(transfers->loop);
    transfer->curl = transfers->calls.easy_init();
    if (transfer->curl != NULL)
        authorities_set(transfer);
    if (transfer->curl == NULL || !walls_set(transfer) || url_set(transfer) < 0 ||
        method_set(transfer, body, body_size) < 0 || headers_set(transfer) < 0 ||
        transfers->calls.multi_add_handle(transfers->multi, transfer->curl) != CURLM_OK) {
        transfer_free(transfer);
        return error_set(err, "no_fetch", 0,
                         "the request to %s cannot be made; is libcurl4 older than 7.85?",
                         request->authority);
    }
    transfer->is_added = true;
    *out = transfer;
    return 0;
}

void transfer_taken(struct transfer *transfer)
{
    transfer->used = 0;
    transfer->heard_ms = uv_now(transfer->transfers->loop);
    if (!transfer->is_paused || !transfer->is_added || transfer->resumes)
        return;
    transfer->resumes = true;
    TAILQ_INSERT_TAIL(&transfer->transfers->resumes, transfer, resume_link);
    (void)uv_idle_start(&transfer->transfers->turns, on_turns);
}

void transfer_free(struct transfer *transfer)
{
    const struct curl_calls *calls = &transfer->transfers->calls;

    detach(transfer);
    if (transfer->has_news)
        TAILQ_REMOVE(&transfer->transfers->news, transfer, news_link);
    if (transfer->resumes)
        TAILQ_REMOVE(&transfer->transfers->resumes, transfer, resume_link);
    if (transfer->curl != NULL)
        calls->easy_cleanup(transfer->curl);
    if (transfer->lines != NULL)
        calls->slist_free_all(transfer->lines);
    fd_close(&transfer->fd);
    free(transfer->head.data);
    free(transfer);
}

/* ---- the beginning ---- */

/* A server on loopback that says nothing, and the socket with which it is to be dialled. */
static int mute_open(int *dialled, char *where, size_t size)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof(at);

    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 1) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &length) < 0)
        return -1;
    *dialled = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)snprintf(where, size, "::127.0.0.1:%u", ntohs(at.sin_port));
    return *dialled < 0 ? -1 : fd_take(&fd);
}

/* To read the authorities of a host takes a tenth of a second: it is done here, where nothing waits for it, by a first
 * connection to nobody. What is read is kept for all that follow. Without it they are read by the first request. */
static void authorities_read(struct transfers *transfers)
{
    const struct curl_calls *calls = &transfers->calls;
    char target[] = "/", where[32];
    const struct fetch_request nobody = {
        .method = "GET", .authority = "localhost", .target = target, .is_tls = true};
    struct curl_slist there = {.data = where};
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    _cleanup_close_ int server = -1;
    int running = 0;

    if (transfer == NULL)
        return;
    *transfer = (struct transfer){.transfers = transfers, .request = &nobody, .fd = -1};
    server = mute_open(&transfer->fd, where, sizeof(where));
    transfer->curl = server >= 0 ? calls->easy_init() : NULL;
    if (transfer->curl != NULL && walls_set(transfer) && url_set(transfer) == 0 &&
        calls->easy_setopt(transfer->curl, CURLOPT_SOCKOPTFUNCTION, NULL) == CURLE_OK &&
        calls->easy_setopt(transfer->curl, CURLOPT_CONNECT_TO, &there) == CURLE_OK) {
        authorities_set(transfer);
        transfer->is_added = calls->multi_add_handle(transfers->multi, transfer->curl) == CURLM_OK;
    }
    for (int i = 0; i < HELLO_TURNS && transfer->is_added; i++)
        (void)calls->multi_perform(transfers->multi, &running);
    transfer_free(transfer);
}

int transfers_load(struct transfers **out, struct error *err)
{
    struct transfers *transfers = calloc(1, sizeof(*transfers));

    if (transfers == NULL)
        return error_set(err, "no_fetch", ENOMEM, "fetch()");
    TAILQ_INIT(&transfers->news);
    TAILQ_INIT(&transfers->resumes);
    TAILQ_INIT(&transfers->ready);
    if (calls_load(&transfers->calls, err) < 0) {
        free(transfers);
        return -1;
    }
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): calls_load() has set it
    transfers->multi = transfers->calls.multi_init();
    if (transfers->multi == NULL) {
        free(transfers);
        return error_set(err, "no_fetch", ENOMEM, "fetch()");
    }
    authorities_read(transfers);
    *out = transfers;
    return 0;
}
