/* TLS for a client's connection, by libssl, which is loaded when it is needed: a cove that
 * talks to a unix socket must not pay for it before main, and need not have it installed.
 *
 * The server's certificate and its name are always verified, by the system's store of authorities or by
 * that of SSL_CERT_FILE and SSL_CERT_DIR. There must never be a way to turn that off. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tls;

/* Loads the library and the authorities; `host` is a name, or an address without brackets. */
int tls_new(const char *host, struct tls **out, struct error *err);
void tls_free(struct tls *tls);

/* For a new connection, `fd`, which stays the caller's and must not block. */
int tls_begin(struct tls *tls, int fd, struct error *err);
/* Says farewell if that can be done at once; to be called before the fd is closed. */
void tls_end(struct tls *tls);

/* Each returns -1 with an errno: EAGAIN where `*events` has to be waited for first, ECONNRESET or EPIPE
 * where the connection was cut, EPROTO for what tls_explain() knows. */
int tls_handshake(struct tls *tls, short *events);
/* 0 only where the server said properly that nothing follows. */
ssize_t tls_read(struct tls *tls, void *into, size_t size, short *events);
/* What was taken may still have to be sent; tls_flush() sees to that, and tls_read() tries to. */
ssize_t tls_write(struct tls *tls, const void *data, size_t size, short *events);
int tls_flush(struct tls *tls, short *events);

/* Says that nothing follows, if that can be done at once; what comes can still be read. */
void tls_end_sending(struct tls *tls);

/* Whether nothing came that was not asked for; what TLS says for itself does not count. */
bool tls_is_quiet(struct tls *tls);

/* What failed with EPROTO, with a remedy, of the server that `server` names; returns -1. */
int tls_explain(struct tls *tls, const char *server, struct error *err);
