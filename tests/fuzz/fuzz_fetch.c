/* A request of fetch() as a kernel's code, or whoever took its worker over, says it: what is accepted is one request
 * and no more, to one host. The input is the JSON of a "fetch.start". */
#include "fuzz.h"
#include "kernel/fetch/fetch.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_one_line(const char *text)
{
    return text[strcspn(text, "\r\n")] == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct kernel_call call = {
        .op = {"fetch.start", 11}, .meta = {(const char *)data, size}, .id = 1};
    struct policy_verdict verdict = {.reason = size % 2 == 0 ? "private" : "no_rule"};
    struct fetch_request request;
    struct error err;

    (void)fetch_stream(&call);
    if (fetch_request_parse(&call, &request, &err) < 0)
        return 0;
    must(is_one_line(request.method) && strcspn(request.method, " \t") == strlen(request.method));
    must(request.target[0] == '/' && strcspn(request.target, " #\r\n\t") == strlen(request.target));
    must(strcspn(request.authority, "/?#@ \\\r\n") == strlen(request.authority));
    must(request.host[0] != 0 && request.port != 0);
    for (size_t i = 0; i < request.headers_count; i++) {
        must(request.headers[i] != NULL && is_one_line(request.headers[i]));
        must(strncasecmp(request.headers[i], "host:", 5) != 0 &&
             strncasecmp(request.headers[i], "content-length:", 15) != 0 &&
             strncasecmp(request.headers[i], "transfer-encoding:", 18) != 0);
    }
    (void)fetch_has_body(&request, &call);
    must(fetch_denied(&request, &verdict, size % 3 == 0, &err) < 0);
    fetch_request_clear(&request);
    return 0;
}
