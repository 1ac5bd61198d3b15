/* TLS by the system's libssl, or the one that comes with the program: see tls.h.
 *
 * What is used of it is declared here, so that nothing of it is needed to build; it is the interface
 * of libssl.so.3, which does not change under that name. It works on memory alone and the socket is
 * ours, because its own writes would raise SIGPIPE. */
#include "cmd/tls.h"

#include "base/library.h"
#include "cmd/options.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY "libssl.so.3"
#define RECORD_ROOM 18432 /* bytes; the largest record has less */
#define ROUNDS_MAX 64 /* of a read that bring no content, before the caller looks at its clock */

/* Numbers of its headers. */
#define CTRL_SERVER_NAME 55
#define CTRL_MIN_VERSION 123
#define TLS_1_2 0x0303
#define VERIFY_PEER 1
#define NO_PARTIAL_WILDCARDS 4U
#define ERROR_WANT_READ 2
#define ERROR_ZERO_RETURN 6
enum certificate_fault {
    FAULT_NOT_YET_VALID = 9,
    FAULT_EXPIRED = 10,
    FAULT_SELF_SIGNED = 18,
    FAULT_SELF_SIGNED_CHAIN = 19,
    FAULT_NO_ISSUER = 20,
    FAULT_NO_CHAIN = 21,
    FAULT_HOST = 62,
    FAULT_ADDRESS = 64,
};

/* result, name, parameters; the library's own types are void */
#define FUNCTIONS(F)                                                                       \
    F(const void *, TLS_client_method, (void))                                             \
    F(void *, SSL_CTX_new, (const void *method))                                           \
    F(void, SSL_CTX_free, (void *ctx))                                                     \
    F(long, SSL_CTX_ctrl, (void *ctx, int what, long number, void *pointer))               \
    F(void, SSL_CTX_set_verify, (void *ctx, int mode, void *callback))                     \
    F(int, SSL_CTX_set_default_verify_paths, (void *ctx))                                  \
    F(int, SSL_CTX_load_verify_file, (void *ctx, const char *file))                        \
    F(const char *, X509_get_default_cert_dir, (void))                                     \
    F(int, SSL_CTX_set_alpn_protos, (void *ctx, const unsigned char *list, unsigned size)) \
    F(void *, SSL_new, (void *ctx))                                                        \
    F(void, SSL_free, (void *ssl))                                                         \
    F(long, SSL_ctrl, (void *ssl, int what, long number, void *pointer))                   \
    F(int, SSL_set1_host, (void *ssl, const char *name))                                   \
    F(void, SSL_set_hostflags, (void *ssl, unsigned flags))                                \
    F(void, SSL_set_bio, (void *ssl, void *reads, void *writes))                           \
    F(int, SSL_connect, (void *ssl))                                                       \
    F(int, SSL_read, (void *ssl, void *into, int size))                                    \
    F(int, SSL_peek, (void *ssl, void *into, int size))                                    \
    F(int, SSL_write, (void *ssl, const void *data, int size))                             \
    F(int, SSL_shutdown, (void *ssl))                                                      \
    F(int, SSL_get_error, (const void *ssl, int result))                                   \
    F(long, SSL_get_verify_result, (const void *ssl))                                      \
    F(const char *, X509_verify_cert_error_string, (long number))                          \
    F(unsigned long, ERR_get_error, (void))                                                \
    F(void, ERR_clear_error, (void))                                                       \
    F(const char *, ERR_reason_error_string, (unsigned long number))                       \
    F(const void *, BIO_s_mem, (void))                                                     \
    F(void *, BIO_new, (const void *method))                                               \
    F(int, BIO_free, (void *bio))                                                          \
    F(int, BIO_read, (void *bio, void *into, int size))                                    \
    F(int, BIO_write, (void *bio, const void *data, int size))

struct tls {
    void *library;
// NOLINTNEXTLINE(bugprone-macro-parentheses): a type cannot stand in them
#define DECLARE(result, name, parameters) result(*name) parameters;
    FUNCTIONS(DECLARE)
#undef DECLARE
    void *ctx;
    void *ssl;           /* NULL: no connection */
    void *came, *leaves; /* the bytes of the wire; the ssl's */
    int fd;
    bool is_broken; /* no word of farewell */
    unsigned long reason;
    size_t out_start, out_end; /* to be sent */
    char out[RECORD_ROOM];
    char host[256];
};

/* ---- its life ---- */

static int library_load(struct tls *tls, struct error *err)
{
    /* As in the npm package, and in the archive of make tarball. The second needs the first, and gets it by its name. */
    static const struct {
        const char *needed, *library;
    } places[] = {
        {"$ORIGIN/libcrypto.so.3", "$ORIGIN/" LIBRARY},
        {"$ORIGIN/../libexec/cove/libcrypto.so.3", "$ORIGIN/../libexec/cove/" LIBRARY},
    };
    bool is_whole = true;

    tls->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; tls->library == NULL && i < sizeof(places) / sizeof(places[0]); i++)
        if (dlopen(places[i].needed, RTLD_NOW | RTLD_LOCAL) != NULL)
            tls->library = dlopen(places[i].library, RTLD_NOW | RTLD_LOCAL);
    if (tls->library == NULL)
        return error_set(err, "no_tls", 0,
                         "COVE_URL: https needs OpenSSL's " LIBRARY ", which this machine has not; "
                         "install it (Debian: libssl3), or use an ssh tunnel with http");
#define FIND(result, name, parameters)             \
    {                                              \
        void *found = dlsym(tls->library, #name);  \
        memcpy(&tls->name, &found, sizeof(found)); \
        is_whole = is_whole && found != NULL;      \
    }
    FUNCTIONS(FIND)
#undef FIND
    return is_whole ? 0
                    : error_set(err, "no_tls", 0,
                                "COVE_URL: https needs OpenSSL 3, and this machine's " LIBRARY
                                " lacks a part of it; install it anew");
}

/* One that was built for another distribution, as the npm package's, looks in a place that this one may not have. */
static void authorities_add(struct tls *tls)
{
    const char *file = library_authorities();

    if (file != NULL && getenv("SSL_CERT_FILE") == NULL && getenv("SSL_CERT_DIR") == NULL &&
        access(tls->X509_get_default_cert_dir(), F_OK) < 0)
        (void)tls->SSL_CTX_load_verify_file(tls->ctx, file);
}

/* The file that was named in place of this machine's authorities, where it cannot be read. */
static const char *authorities_missing(void)
{
    const char *file = getenv("SSL_CERT_FILE");

    return file != NULL && access(file, R_OK) < 0 ? file : NULL;
}

static int ctx_make(struct tls *tls, struct error *err)
{
    static const unsigned char protocols[] = "\x08http/1.1";

    tls->ctx = tls->SSL_CTX_new(tls->TLS_client_method());
    if (tls->ctx == NULL)
        return error_set(err, "no_tls", 0, "OpenSSL cannot be used; check its openssl.cnf");
    /* After what the machine's openssl.cnf says, so that it can be stricter and never weaker. */
    tls->SSL_CTX_set_verify(tls->ctx, VERIFY_PEER, NULL);
    if (tls->SSL_CTX_ctrl(tls->ctx, CTRL_MIN_VERSION, TLS_1_2, NULL) != 1 ||
        tls->SSL_CTX_set_default_verify_paths(tls->ctx) != 1 ||
        tls->SSL_CTX_set_alpn_protos(tls->ctx, protocols, sizeof(protocols) - 1) != 0)
        return error_set(err, "no_tls", 0, "OpenSSL cannot be set up; check its openssl.cnf");
    authorities_add(tls);
    return 0;
}

int tls_new(const char *host, struct tls **out, struct error *err)
{
    struct tls *tls = calloc(1, sizeof(*tls));

    if (tls == NULL)
        return option_no_memory(err);
    tls->fd = -1;
    (void)snprintf(tls->host, sizeof(tls->host), "%s", host);
    if (library_load(tls, err) < 0 || ctx_make(tls, err) < 0) {
        tls_free(tls);
        return -1;
    }
    *out = tls;
    return 0;
}

void tls_free(struct tls *tls)
{
    if (tls == NULL)
        return;
    if (tls->ssl != NULL)
        tls->SSL_free(tls->ssl);
    if (tls->ctx != NULL)
        tls->SSL_CTX_free(tls->ctx);
    /* The library stays loaded: it has registered what runs at exit. */
    free(tls);
}

static bool is_address(const char *host)
{
    struct in6_addr address;

    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

int tls_begin(struct tls *tls, int fd, struct error *err)
{
    void *came = tls->BIO_new(tls->BIO_s_mem());
    void *leaves = tls->BIO_new(tls->BIO_s_mem());

    tls->ERR_clear_error();
    tls->ssl = tls->SSL_new(tls->ctx);
    if (tls->ssl == NULL || came == NULL || leaves == NULL) {
        (void)tls->BIO_free(came);
        (void)tls->BIO_free(leaves);
        return option_no_memory(err);
    }
    tls->SSL_set_bio(tls->ssl, came, leaves); /* which takes both */
    tls->came = came;
    tls->leaves = leaves;
    tls->fd = fd;
    tls->is_broken = false;
    tls->out_start = tls->out_end = 0;
    tls->SSL_set_hostflags(tls->ssl, NO_PARTIAL_WILDCARDS);
    if (tls->SSL_set1_host(tls->ssl, tls->host) != 1 ||
        (!is_address(tls->host) && tls->SSL_ctrl(tls->ssl, CTRL_SERVER_NAME, 0, tls->host) != 1))
        return error_set(err, "bad_url", 0, "COVE_URL: %s is no name that a certificate can have",
                         tls->host);
    return 0;
}

void tls_end(struct tls *tls)
{
    short ignored;

    if (tls == NULL || tls->ssl == NULL)
        return;
    if (!tls->is_broken && tls->SSL_shutdown(tls->ssl) >= 0)
        (void)tls_flush(tls, &ignored);
    tls->SSL_free(tls->ssl);
    tls->ssl = tls->came = tls->leaves = NULL;
    tls->fd = -1;
}

/* ---- the wire ---- */

int tls_flush(struct tls *tls, short *events)
{
    for (;;) {
        ssize_t n;

        if (tls->out_start == tls->out_end) {
            int size = tls->BIO_read(tls->leaves, tls->out, sizeof(tls->out));

            tls->out_start = 0;
            tls->out_end = size > 0 ? (size_t)size : 0;
            if (size <= 0)
                return 0;
        }
        n = send(tls->fd, tls->out + tls->out_start, tls->out_end - tls->out_start, MSG_NOSIGNAL);
        if (n >= 0) {
            tls->out_start += (size_t)n;
        } else if (errno != EINTR) {
            *events = POLLOUT;
            return -1;
        }
    }
}

/* Takes what came: 0, or -1; the end of a connection whose end nobody announced is a cut. */
static int take(struct tls *tls, short *events)
{
    char bytes[16384];
    ssize_t n;

    do
        n = recv(tls->fd, bytes, sizeof(bytes), 0);
    while (n < 0 && errno == EINTR);
    if (n > 0 && tls->BIO_write(tls->came, bytes, (int)n) == n)
        return 0;
    *events = POLLIN;
    if (n == 0)
        errno = ECONNRESET;
    else if (n > 0)
        errno = ENOMEM;
    if (errno != EAGAIN)
        tls->is_broken = true;
    return -1;
}

/* What the library cannot go on with. */
static int broken(struct tls *tls)
{
    short ignored;

    tls->is_broken = true;
    tls->reason = tls->ERR_get_error();
    (void)tls_flush(tls, &ignored); /* the alert that tells the server why */
    errno = EPROTO;
    return -1;
}

/* Calls `once` until it has a result, giving it what comes. */
static int drive(struct tls *tls, int (*once)(struct tls *tls, void *data, int size), void *data,
                 int size, short *events)
{
    bool waits_to_send;

    for (int round = 0; round < ROUNDS_MAX; round++) {
        int result;
        int error;

        tls->ERR_clear_error();
        result = once(tls, data, size);
        error = result > 0 ? 0 : tls->SSL_get_error(tls->ssl, result);
        if (error != 0 && error != ERROR_WANT_READ && error != ERROR_ZERO_RETURN)
            return broken(tls);
        /* A server that closed may have answered before: what it said comes first. */
        waits_to_send = tls_flush(tls, events) < 0 && errno == EAGAIN;
        if (error == 0)
            return result;
        if (error == ERROR_ZERO_RETURN)
            return 0;
        if (take(tls, events) < 0) {
            if (waits_to_send)
                *events = POLLIN | POLLOUT;
            return -1;
        }
    }
    *events = POLLIN | POLLOUT;
    errno = EAGAIN;
    return -1;
}

static int once_connect(struct tls *tls, void *data, int size)
{
    (void)data;
    (void)size;
    return tls->SSL_connect(tls->ssl);
}

static int once_read(struct tls *tls, void *data, int size)
{
    return tls->SSL_read(tls->ssl, data, size);
}

static int once_peek(struct tls *tls, void *data, int size)
{
    return tls->SSL_peek(tls->ssl, data, size);
}

static int once_write(struct tls *tls, void *data, int size)
{
    return tls->SSL_write(tls->ssl, data, size);
}

int tls_handshake(struct tls *tls, short *events)
{
    if (drive(tls, once_connect, NULL, 0, events) < 0)
        return -1;
    return tls_flush(tls, events);
}

ssize_t tls_read(struct tls *tls, void *into, size_t size, short *events)
{
    return drive(tls, once_read, into, size > INT32_MAX ? INT32_MAX : (int)size, events);
}

ssize_t tls_write(struct tls *tls, const void *data, size_t size, short *events)
{
    char record[16384];
    size_t piece = size > sizeof(record) ? sizeof(record) : size;

    if (tls_flush(tls, events) < 0) /* never more than one record waits */
        return -1;
    memcpy(record, data, piece);
    return drive(tls, once_write, record, (int)piece, events);
}

void tls_end_sending(struct tls *tls)
{
    short ignored;

    tls->ERR_clear_error();
    if (!tls->is_broken && tls->SSL_shutdown(tls->ssl) >= 0)
        (void)tls_flush(tls, &ignored);
}

bool tls_is_quiet(struct tls *tls)
{
    short ignored;
    char byte;

    return drive(tls, once_peek, &byte, 1, &ignored) < 0 && errno == EAGAIN;
}

/* ---- what went wrong ---- */

int tls_explain(struct tls *tls, const char *server, struct error *err)
{
    long fault = tls->SSL_get_verify_result(tls->ssl);
    const char *reason = tls->ERR_reason_error_string(tls->reason);

    switch (fault) {
    case 0:
        return error_set(err, "bad_tls", 0,
                         "%s: no TLS connection comes about: %s; check that COVE_URL has the port "
                         "of a server that speaks TLS 1.2 or 1.3",
                         server, reason == NULL ? "the server speaks something else" : reason);
    case FAULT_HOST:
    case FAULT_ADDRESS:
        return error_set(err, "bad_certificate", 0,
                         "%s: the server's certificate is not for the name %s; use the name that "
                         "it is for in COVE_URL",
                         server, tls->host);
    case FAULT_EXPIRED:
        return error_set(err, "bad_certificate", 0,
                         "%s: the server's certificate has expired; have it renewed, or set this "
                         "machine's clock if it is wrong",
                         server);
    case FAULT_NOT_YET_VALID:
        return error_set(err, "bad_certificate", 0,
                         "%s: the server's certificate is not valid yet; set this machine's clock "
                         "if it is wrong",
                         server);
    case FAULT_SELF_SIGNED:
    case FAULT_SELF_SIGNED_CHAIN:
    case FAULT_NO_ISSUER:
    case FAULT_NO_CHAIN:
        if (authorities_missing() != NULL)
            return error_set(err, "bad_certificate", 0,
                             "%s: the server's certificate cannot be checked: SSL_CERT_FILE names "
                             "%.200s, which cannot be read; name the file of your authority",
                             server, authorities_missing());
        return error_set(
            err, "bad_certificate", 0,
            "%s: the server's certificate is not signed by an authority that this machine "
            "trusts (%s); if it is your own authority, name its certificate by SSL_CERT_FILE",
            server, tls->X509_verify_cert_error_string(fault));
    default:
        return error_set(err, "bad_certificate", 0,
                         "%s: the server's certificate is not good: %s; have it replaced", server,
                         tls->X509_verify_cert_error_string(fault));
    }
}
