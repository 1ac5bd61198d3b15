/* One connection to a server: a unix socket, or TCP with or without TLS.
 *
 * Every wait has an end, and whoever uses it can have another fd served meanwhile. The end of a
 * connection is never taken for one that was cut, nor the other way round. */
#pragma once

#include "base/err.h"
#include "cmd/tls.h"
#include "cmd/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONN_FOREVER UINT64_MAX

struct conn {
    struct wire_address address;
    int fd;          /* -1: not connected */
    struct tls *tls; /* NULL: none, or none yet */
    int watch_fd;    /* -1: none; served by the call while something is waited for */
    void (*watch_call)(void *arg);
    void *watch_arg;
};

void conn_init(struct conn *conn, const struct wire_address *address);
void conn_free(struct conn *conn);

int conn_open(struct conn *conn, struct error *err);
void conn_close(struct conn *conn);

/* Whether an open connection can be used for a further request: nothing came that was not asked for. */
bool conn_is_quiet(struct conn *conn);

/* `deadline` is one of conn_deadline(). A server that closes before it has read all may have answered
 * already: that is no error here. */
int conn_send(struct conn *conn, const char *data, size_t size, uint64_t deadline,
              struct error *err);
/* How many bytes; 0 at the proper end. */
ssize_t conn_receive(struct conn *conn, void *into, size_t size, uint64_t deadline,
                     struct error *err);

/* The same without waiting, for who carries both ways at once: CONN_WAITS where `*events` of `fd` have to come
 * first. What conn_try_send() took may still have to go: with nothing more it returns 0 when it has. */
#define CONN_WAITS (-2)
ssize_t conn_try_send(struct conn *conn, const char *data, size_t size, short *events,
                      struct error *err);
ssize_t conn_try_receive(struct conn *conn, void *into, size_t size, short *events,
                         struct error *err);
/* Says that nothing follows; what comes can still be received. Once, when all has gone. */
void conn_end_sending(struct conn *conn);

uint64_t conn_deadline(unsigned ms); /* UINT_MAX: CONN_FOREVER */

/* The error of a connection that ended too early; returns -1. */
int conn_cut(struct error *err, int errnum);
