/* What fetch() of a kernel asks for, for whoever does the asking: the engine (src/engine/fetch.c) and `cove js`
 * (src/cmd/js_fetch.c). Both have the same bounds, read a request by the same rules and deny with the same words.
 *
 * Pure code over what the kernel's code said, or whoever took its worker over: a request that is not exactly what
 * HTTP/1.1 can say is refused, so that no name, value or URL becomes a second header or request. */
#pragma once

#include "base/err.h"
#include "kernel/kernel.h"
#include "kernel/meta.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- bounds of one run ---- */

#define FETCH_AT_ONCE 32U            /* that no answer has begun of; what comes on top waits */
#define FETCH_OPEN_MAX 256U          /* those, those that wait, and answers that are not read */
#define FETCH_COUNT_MAX 1000U        /* in all; each hop of a redirect is one */
#define FETCH_BODY_MAX (16ULL << 20) /* bytes that one request sends */
#define FETCH_OUT_MAX (64ULL << 20)  /* that all of them send */
#define FETCH_IN_MAX (256ULL << 20)  /* that all answers bring, without their heads */
#define FETCH_HEAD_MAX 65536U        /* bytes of headers, of a request or an answer; and of a URL */
#define FETCH_HEADERS_MAX 128U
#define FETCH_META_MAX (512U << 10) /* of JSON that a request is told in */
#define FETCH_READ_BYTES 65536U     /* that one read gives; no more is kept ready */
#define FETCH_CONNECT_MS 10000U
#define FETCH_SILENCE_MS 120000U /* until an answer begins, and then between two parts of it */

/* ---- a request ---- */

struct fetch_request {
    char method[32];
    bool is_tls, is_head;
    bool is_name;               /* of a host; else `address` */
    char host[POLICY_NAME_MAX]; /* in normal form, without brackets */
    struct policy_address address;
    uint16_t port;
    char authority[POLICY_NAME_MAX + 10]; /* as the Host header and a URL say it */
    char *url;                            /* as it was asked for */
    char *target;                         /* path and query, without a fragment */
    char **headers;                       /* "name: value", or "name:"; NULL ends it */
    size_t headers_count;
};

/* Of the meta of a "fetch.start" with so many bytes of body. Where it asks for neither, "user-agent: cove" and
 * "accept: *" are among the headers; what the connection decides (host, content-length, ...) never is. */
int fetch_request_parse(const struct kernel_call *call, struct fetch_request *request,
                        struct error *err);
void fetch_request_clear(struct fetch_request *request);

/* Whether something is sent behind the head, be it nothing: "content-length" is said then. */
bool fetch_has_body(const struct fetch_request *request, const struct kernel_call *call);

/* The number of the "fetch.read" or "fetch.cancel" that the call is; 0: none. */
uint32_t fetch_stream(const struct kernel_call *call);

/* ---- answers ---- */

/* Sets what the code is told; returns -1. `by_api`: in the words of /v1, else in those of `cove js`. */
int fetch_denied(const struct fetch_request *request, const struct policy_verdict *verdict,
                 bool by_api, struct error *err);
int fetch_out_of(const char *what, uint64_t most, struct error *err);

/* The meta of a "fetch.start" that was answered: begun, each header, and ended with the number of the body's stream,
 * 0 for none. */
void fetch_head_begin(struct meta_text *meta, unsigned status, const char *text, size_t text_size,
                      const char *url);
void fetch_head_header(struct meta_text *meta, bool is_first, const char *name, size_t name_size,
                       const char *value, size_t value_size);
void fetch_head_end(struct meta_text *meta, uint32_t stream);
