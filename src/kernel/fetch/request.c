/* See fetch.h: a request is read once, here, and every text of it is checked against what may be in it. */
#include "kernel/fetch/fetch.h"

#include "base/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_token(const char *text)
{
    static const char letters[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return text[0] != 0 && strspn(text, letters) == strlen(text);
}

/* No control character but the tab: a line's end would begin another header. */
static bool is_value(const char *text)
{
    for (; *text != 0; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return false;
    return true;
}

/* What the connection decides, and no code. */
static bool is_ours(const char *name)
{
    static const char *const ours[] = {"accept-encoding",
                                       "connection",
                                       "content-length",
                                       "expect",
                                       "host",
                                       "keep-alive",
                                       "proxy-authorization",
                                       "proxy-connection",
                                       "te",
                                       "trailer",
                                       "transfer-encoding",
                                       "upgrade"};

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (strcasecmp(name, ours[i]) == 0)
            return true;
    return false;
}

static int bad_request(struct error *err, const char *cause)
{
    return error_set(err, "EINVAL", 0, "%s", cause);
}

/* ---- headers ---- */

static int header_add(struct fetch_request *request, const char *name, const char *value)
{
    char *text = NULL;
    size_t size;

    value += strspn(value, " \t");
    size = strlen(value);
    while (size > 0 && strchr(" \t", value[size - 1]) != NULL)
        size--;
    if (asprintf(&text, "%s:%s%.*s", name, size > 0 ? " " : "", (int)size, value) < 0)
        return -1;
    request->headers[request->headers_count++] = text;
    return 0;
}

static int headers_read(struct fetch_request *request, const json_t *headers, struct error *err)
{
    bool has_agent = false, has_accept = false;
    size_t bytes = 0, i;
    json_t *pair;

    if (json_array_size(headers) > FETCH_HEADERS_MAX)
        return error_set(err, "EINVAL", 0, "a request has at most %u headers", FETCH_HEADERS_MAX);
    request->headers = calloc(FETCH_HEADERS_MAX + 3, sizeof(*request->headers));
    if (request->headers == NULL)
        return error_set(err, "ENOMEM", ENOMEM, "a request");
    json_array_foreach(headers, i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));

        if (name == NULL || value == NULL || !is_token(name) || !is_value(value))
            return bad_request(err, "a header is none");
        bytes += strlen(name) + strlen(value) + 4;
        if (bytes > FETCH_HEAD_MAX)
            return error_set(err, "EINVAL", 0, "the headers of a request are at most %u bytes",
                             FETCH_HEAD_MAX);
        if (is_ours(name))
            continue;
        has_agent = has_agent || strcasecmp(name, "user-agent") == 0;
        has_accept = has_accept || strcasecmp(name, "accept") == 0;
        if (header_add(request, name, value) < 0)
            return error_set(err, "ENOMEM", ENOMEM, "a request");
    }
    if ((!has_agent && header_add(request, "user-agent", "cove") < 0) ||
        (!has_accept && header_add(request, "accept", "*/*") < 0))
        return error_set(err, "ENOMEM", ENOMEM, "a request");
    return 0;
}

/* ---- where to ---- */

/* "0x7f.1", "2130706433", "127.1": what would be an address in another's eyes is no name in ours. */
static bool ends_in_number(const char *host)
{
    const char *last = strrchr(host, '.');

    last = last != NULL ? last + 1 : host;
    if (last[0] == '0' && (last[1] == 'x' || last[1] == 'X'))
        return true;
    return last[0] != 0 && strspn(last, "0123456789") == strlen(last);
}

static int host_read(struct fetch_request *request, const char *text, size_t size,
                     struct error *err)
{
    char host[POLICY_NAME_MAX];
    bool has_brackets = size > 2 && text[0] == '[' && text[size - 1] == ']';

    if (has_brackets) {
        text++;
        size -= 2;
    }
    if (size == 0 || size >= sizeof(host))
        return bad_request(err, "the URL names no host, or one that is too long");
    memcpy(host, text, size);
    host[size] = 0;
    request->is_name = policy_address_parse(host, &request->address) < 0;
    if (!request->is_name && has_brackets == (strchr(host, ':') != NULL)) {
        policy_address_text(&request->address, request->host);
        return 0;
    }
    if (!request->is_name || has_brackets || ends_in_number(host) ||
        policy_name(host, request->host, err) < 0)
        return error_set(err, "EINVAL", 0, "'%s' is no name of a host, and no address", host);
    return 0;
}

/* "HOST", "HOST:PORT", "[ADDRESS]:PORT"; a user and a password are none of a URL that is fetched. */
static int authority_read(struct fetch_request *request, const char *text, size_t size,
                          struct error *err)
{
    const char *end = memchr(text, ']', size);
    const char *from = end != NULL && text[0] == '[' ? end : text;
    const char *colon = memchr(from, ':', size - (size_t)(from - text));
    uint16_t usual = request->is_tls ? 443 : 80;
    bool has_colon;

    request->port = usual;
    if (colon != NULL) {
        char port[8] = "";
        uint64_t number = 0;
        size_t digits = size - (size_t)(colon + 1 - text);

        if (digits < sizeof(port))
            memcpy(port, colon + 1, digits);
        if (parse_count("the URL's port", port, 1, 65535, &number, err) < 0)
            return bad_request(err, "the URL's port is none");
        request->port = (uint16_t)number;
        size = (size_t)(colon - text);
    }
    if (host_read(request, text, size, err) < 0)
        return -1;
    has_colon = strchr(request->host, ':') != NULL;
    (void)snprintf(request->authority, sizeof(request->authority), has_colon ? "[%s]" : "%s",
                   request->host);
    if (request->port != usual)
        (void)snprintf(request->authority + strlen(request->authority), 8, ":%u", request->port);
    return 0;
}

static int url_read(struct fetch_request *request, const char *url, struct error *err)
{
    const char *at = url;
    size_t size;

    if (strlen(url) > FETCH_HEAD_MAX)
        return bad_request(err, "the URL is too long");
    for (; *at != 0; at++)
        if (*at <= ' ' || *at > '~')
            return bad_request(err, "the URL holds a character that none has");
    request->is_tls = strncmp(url, "https://", 8) == 0;
    if (!request->is_tls && strncmp(url, "http://", 7) != 0)
        return bad_request(err, "only http and https are fetched");
    at = url + (request->is_tls ? 8 : 7);
    size = strcspn(at, "/?#");
    if (authority_read(request, at, size, err) < 0)
        return -1;
    at += size;
    request->url = strdup(url);
    if (request->url == NULL || asprintf(&request->target, "%s%.*s", *at == '/' ? "" : "/",
                                         (int)strcspn(at, "#"), at) < 0) {
        request->target = NULL;
        return error_set(err, "ENOMEM", ENOMEM, "a request");
    }
    return 0;
}

/* ---- the whole ---- */

static int method_read(struct fetch_request *request, const char *method, size_t body_size,
                       struct error *err)
{
    if (method == NULL || !is_token(method) || strlen(method) >= sizeof(request->method) ||
        strcasecmp(method, "CONNECT") == 0 || strcasecmp(method, "TRACE") == 0 ||
        strcasecmp(method, "TRACK") == 0)
        return bad_request(err, "the request has no method that can be used");
    (void)snprintf(request->method, sizeof(request->method), "%s", method);
    request->is_head = strcasecmp(method, "HEAD") == 0;
    if (body_size > 0 && (request->is_head || strcasecmp(method, "GET") == 0))
        return bad_request(err, "a GET or HEAD has no body");
    return 0;
}

int fetch_request_parse(const struct kernel_call *call, struct fetch_request *request,
                        struct error *err)
{
    const char *url;
    json_t *meta = NULL;
    int status = -1;

    *request = (struct fetch_request){0};
    if (call->bytes_size > FETCH_BODY_MAX)
        return error_set(err, "EFBIG", 0, "a request sends at most %llu bytes", FETCH_BODY_MAX);
    if (call->meta.size <= FETCH_META_MAX)
        meta = json_loadb(call->meta.data, call->meta.size, 0, NULL);
    url = json_string_value(json_object_get(meta, "url"));
    if (url == NULL)
        (void)bad_request(err, "the request has no URL, or is too long");
    else if (method_read(request, json_string_value(json_object_get(meta, "method")),
                         call->bytes_size, err) == 0 &&
             url_read(request, url, err) == 0)
        status = headers_read(request, json_object_get(meta, "headers"), err);
    json_decref(meta);
    if (status < 0)
        fetch_request_clear(request);
    return status;
}

void fetch_request_clear(struct fetch_request *request)
{
    for (size_t i = 0; i < request->headers_count; i++)
        free(request->headers[i]);
    free(request->headers);
    free(request->url);
    free(request->target);
    *request = (struct fetch_request){0};
}

bool fetch_has_body(const struct fetch_request *request, const struct kernel_call *call)
{
    return call->bytes_size > 0 || strcasecmp(request->method, "POST") == 0 ||
           strcasecmp(request->method, "PUT") == 0;
}

uint32_t fetch_stream(const struct kernel_call *call)
{
    struct meta_value value;
    uint64_t stream;

    if (call->meta.size > FETCH_META_MAX || meta_member(call->meta, "stream", &value) < 0 ||
        meta_count(&value, UINT32_MAX, &stream) < 0)
        return 0;
    return (uint32_t)stream;
}

/* ---- answers ---- */

int fetch_denied(const struct fetch_request *request, const struct policy_verdict *verdict,
                 bool by_api, struct error *err)
{
    const char *host = request->host;

    if (strcmp(verdict->reason, "private") == 0)
        return by_api
                   ? error_set(err, "EACCES", 0,
                               "the host '%s' is denied: its address is private; allow that with "
                               "allowed_hosts ('%s private=yes'), where the operator opens it",
                               host, host)
                   : error_set(err, "EACCES", 0,
                               "the host '%s' is denied: its address is private; allow that with "
                               "allowedHosts (--allow-host '%s private=yes')",
                               host, host);
    if (strcmp(verdict->reason, "no_rule") == 0 || strcmp(verdict->reason, "none") == 0)
        return by_api ? error_set(err, "EACCES", 0,
                                  "the host '%s' (port %u) is denied: allow it with allowed_hosts "
                                  "('%s')",
                                  host, request->port, host)
                      : error_set(err, "EACCES", 0,
                                  "the host '%s' (port %u) is denied: allow it with allowedHosts "
                                  "(--allow-host %s)",
                                  host, request->port, host);
    return error_set(err, "EACCES", 0, "the host '%s' is denied, and no rule can allow it: %s",
                     host, verdict->reason);
}

int fetch_out_of(const char *what, uint64_t most, struct error *err)
{
    return error_set(err, "EDQUOT", 0, "a run has at most %" PRIu64 " %s; do the rest in another",
                     most, what);
}

void fetch_head_begin(struct meta_text *meta, unsigned status, const char *text, size_t text_size,
                      const char *url)
{
    meta_put(meta, "{\"status\":");
    meta_put_number(meta, status);
    meta_put(meta, ",\"statusText\":");
    meta_put_string(meta, text, text_size);
    meta_put(meta, ",\"url\":");
    meta_put_string(meta, url, strlen(url));
    meta_put(meta, ",\"headers\":[");
}

void fetch_head_header(struct meta_text *meta, bool is_first, const char *name, size_t name_size,
                       const char *value, size_t value_size)
{
    meta_put(meta, is_first ? "[" : ",[");
    meta_put_string(meta, name, name_size);
    meta_put(meta, ",");
    meta_put_string(meta, value, value_size);
    meta_put(meta, "]");
}

void fetch_head_end(struct meta_text *meta, uint32_t stream)
{
    meta_put(meta, "]");
    if (stream != 0) {
        meta_put(meta, ",\"stream\":");
        meta_put_number(meta, stream);
    }
    meta_put(meta, "}");
}
