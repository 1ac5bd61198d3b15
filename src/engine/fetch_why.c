/* The meaning of libcurl's codes of failure, in words for the code that asked. */
#include "engine/fetch_parts.h"

#include "base/library.h"

#include <curl/curl.h>
#include <errno.h>

void transfer_explain(struct transfer *transfer, int code, const char *why)
{
    const char *host = transfer->request->authority;

    switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
        (void)error_set(&transfer->err, "ETIMEDOUT", 0, "%s does not answer", host);
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
        (void)error_set(&transfer->err, "bad_tls", 0,
                        "no TLS connection to %s that can be trusted comes about: %s%s", host, why,
                        library_authorities() == NULL
                            ? "; this machine has no authorities to trust, install ca-certificates"
                            : "");
        break;
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_BAD_CONTENT_ENCODING:
        (void)error_set(&transfer->err, "EPROTO", 0, "what %s answers is no HTTP", host);
        break;
    case CURLE_OUT_OF_MEMORY:
        (void)error_set(&transfer->err, "ENOMEM", ENOMEM, "a request to %s", host);
        break;
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
        (void)error_set(&transfer->err, "ECONNRESET", 0,
                        "%s ended the connection before its answer was whole", host);
        break;
    default:
        (void)error_set(&transfer->err, "ECONNRESET", 0, "the answer of %s broke off: %s", host,
                        why);
    }
}
