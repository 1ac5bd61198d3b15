/* TLS for a server's connections: the one place of this room that knows OpenSSL.
 *
 * It reads and writes a socket that does not block, and never a byte more than a turn's worth, so that whoever
 * sends without end holds up nobody. It begins no thread: only http_tls_handshake() may be called on another
 * one, alone. A certificate is on the loop's thread, with what counts its connections. */
#pragma once

#include "base/err.h"
#include "http/http.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct http_tls;

/* Of a connection that begins; the certificate lives as long. NULL: no memory. */
struct http_tls *http_tls_new(struct http_certificate *certificate, int fd);
void http_tls_free(struct http_tls *tls);

enum http_tls_step { HTTP_TLS_DONE, HTTP_TLS_READS, HTTP_TLS_WRITES, HTTP_TLS_BROKEN };
/* As far as it comes with what is there: until it can read or write again. */
enum http_tls_step http_tls_handshake(struct http_tls *tls);

/* As recv(2): 0 where the client has said that it says no more; ECONNRESET where it left without that. */
ssize_t http_tls_recv(struct http_tls *tls, void *into, size_t size);
/* Whether there may be more that no poll would tell of. */
bool http_tls_has_more(const struct http_tls *tls);

/* As sendmsg(2). What was not taken has to begin the next call, too. */
ssize_t http_tls_send(struct http_tls *tls, const struct iovec *parts, int count);
/* Says that no more is said; false: not yet, call again when it can be written. */
bool http_tls_farewell(struct http_tls *tls);

/* ---- a certificate: those who hold it are counted ---- */

void http_certificate_hold(struct http_certificate *certificate);
