/* TLS by OpenSSL: see tls.h. What is spoken is TLS 1.2 with forward secrecy and 1.3, HTTP/1.1, and nothing
 * optional: no tickets, no sessions, no renegotiation, no compression, no early data. */
#include "http/tls.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD ((size_t)16 * 1024) /* the most that one has */
/* Of the wire, in one call; less as long as nothing of it was for the reader. */
#define TURN_BYTES ((size_t)256 * 1024)
#define TURN_BYTES_UNREAD ((size_t)32 * 1024)
#define TURN_RECORDS 64 /* with something for the reader: they may be of one byte each */
/* Records that are not for the reader (keys that change, warnings): so many with each so many bytes of data, either
 * way. Whoever sends more means no good, for each costs far more to read than to send. */
#define ASIDE_MAX 32
#define ASIDE_BYTES ((size_t)1024 * 1024)
#define CHAIN_MAX 16
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

struct http_certificate {
    SSL_CTX *ctx;
    BIO_METHOD *wire;
    size_t holders;
};

struct http_tls {
    SSL *ssl;
    struct http_certificate *certificate;
    int fd;
    size_t budget; /* of this call */
    unsigned
        aside;    /* records that were not for the reader, since the handshake or `data` was full */
    size_t data;  /* bytes for the reader or of the writer */
    bool is_made; /* the handshake is over */
    bool has_more, is_broken;
};

/* ---- the wire: OpenSSL's own sockets raise SIGPIPE, and know no turns ---- */

static int wire_read(BIO *bio, char *into, int size)
{
    struct http_tls *tls = BIO_get_data(bio);
    size_t most = (size_t)size < tls->budget ? (size_t)size : tls->budget;
    ssize_t got = -1;

    BIO_clear_retry_flags(bio);
    if (tls->aside > ASIDE_MAX) {
        errno = EPROTO;
        return -1;
    }
    errno = EAGAIN;
    if (most > 0)
        got = recv(tls->fd, into, most, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_read(bio);
    if (got > 0)
        tls->budget -= (size_t)got;
    return (int)got;
}

static int wire_write(BIO *bio, const char *data, int size)
{
    struct http_tls *tls = BIO_get_data(bio);
    ssize_t sent = send(tls->fd, data, (size_t)size, MSG_NOSIGNAL);

    BIO_clear_retry_flags(bio);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_retry_write(bio);
    return (int)sent;
}

static long wire_control(BIO *bio, int what, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return what == BIO_CTRL_FLUSH ? 1 : 0;
}

static int wire_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

static BIO_METHOD *wire_new(void)
{
    BIO_METHOD *wire = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "wire");

    if (wire == NULL || BIO_meth_set_read(wire, wire_read) != 1 ||
        BIO_meth_set_write(wire, wire_write) != 1 || BIO_meth_set_ctrl(wire, wire_control) != 1 ||
        BIO_meth_set_create(wire, wire_create) != 1) {
        BIO_meth_free(wire);
        return NULL;
    }
    return wire;
}

/* ---- what is not for the reader ---- */

/* Called with each record and message. Of TLS 1.2 the header says what a record is, of 1.3 what was encrypted. */
static void see_record(int is_written, int version, int what, const void *bytes, size_t size,
                       SSL *ssl, void *arg)
{
    struct http_tls *tls = arg;
    unsigned char kind = size > 0 ? *(const unsigned char *)bytes : 0;

    (void)version, (void)ssl;
    if (tls != NULL && tls->is_made && !is_written &&
        (what == SSL3_RT_HEADER || what == SSL3_RT_INNER_CONTENT_TYPE) &&
        kind != SSL3_RT_APPLICATION_DATA)
        tls->aside++;
}

static void count_data(struct http_tls *tls, size_t size)
{
    tls->data += size;
    if (tls->data < ASIDE_BYTES)
        return;
    tls->data = 0;
    if (tls->aside <= ASIDE_MAX)
        tls->aside = 0;
}

/* ---- a certificate ---- */

static int no_passphrase(char *into, int size, int is_writing, void *arg)
{
    (void)into, (void)size, (void)is_writing, (void)arg;
    return -1;
}

/* A client that offers nothing gets nothing, and speaks HTTP/1.1. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                           const unsigned char *in, unsigned in_size, void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;

    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, out_size, ours, sizeof(ours) - 1, in, in_size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static const char *reason(void)
{
    unsigned long number = ERR_peek_last_error();
    const char *text = number != 0 ? ERR_reason_error_string(number) : NULL;

    return text != NULL ? text : "OpenSSL does not say why";
}

static int ctx_make(SSL_CTX *ctx, struct error *err)
{
    /* Stricter than that the system's openssl.cnf may be, weaker not. */
    SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
                                 SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                 SSL_OP_NO_TICKET);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(ctx, 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    SSL_CTX_set_msg_callback(ctx, see_record);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_num_tickets(ctx, 0) != 1 || SSL_CTX_set_cipher_list(ctx, CIPHERS) != 1)
        return error_set(err, "no_tls", 0, "OpenSSL cannot be set up (%s); check its openssl.cnf",
                         reason());
    return 0;
}

/* The server's own first, then those who vouch for it. */
static int take_chain(SSL_CTX *ctx, const struct http_certificate_files *files, struct error *err)
{
    BIO *text = BIO_new_mem_buf(files->certificate, (int)files->certificate_size);
    int count = 0, taken = 1;

    while (text != NULL && taken == 1 && count <= CHAIN_MAX) {
        X509 *certificate = PEM_read_bio_X509(text, NULL, no_passphrase, NULL);

        if (certificate == NULL)
            break;
        taken = count++ == 0 ? SSL_CTX_use_certificate(ctx, certificate)
                             : (int)SSL_CTX_add1_chain_cert(ctx, certificate);
        X509_free(certificate);
    }
    BIO_free(text);
    if (count == 0)
        return error_set(
            err, "bad_certificate", 0,
            "tls_certificate %s has no certificate that can be read (%s); it has to be "
            "PEM, the server's own first",
            files->certificate_path, reason());
    if (taken != 1 || count > CHAIN_MAX)
        return error_set(err, "bad_certificate", 0,
                         "tls_certificate %s cannot be used (%s); it is to hold the server's own "
                         "certificate and those of its authority, at most %d",
                         files->certificate_path,
                         taken != 1 ? reason() : "there are too many certificates in it",
                         CHAIN_MAX);
    return 0;
}

static int take_key(SSL_CTX *ctx, const struct http_certificate_files *files, struct error *err)
{
    BIO *text = BIO_new_mem_buf(files->key, (int)files->key_size);
    EVP_PKEY *key = NULL;
    int fits = 0;

    if (text != NULL)
        key = PEM_read_bio_PrivateKey(text, NULL, no_passphrase, NULL);
    BIO_free(text);
    if (key == NULL)
        return error_set(err, "bad_key", 0,
                         "tls_key %s has no key that can be read (%s); it has to be PEM, without a "
                         "passphrase",
                         files->key_path, reason());
    ERR_clear_error();
    if (X509_check_private_key(SSL_CTX_get0_certificate(ctx), key) == 1)
        fits = SSL_CTX_use_PrivateKey(ctx, key) == 1 ? 1 : -1;
    EVP_PKEY_free(key);
    if (fits < 0)
        return error_set(err, "bad_key", 0, "tls_key %s cannot be used: %s", files->key_path,
                         reason());
    return fits ? 0
                : error_set(err, "bad_key", 0,
                            "tls_key %s is not the key of the certificate in tls_certificate %s; "
                            "name the two that were made together",
                            files->key_path, files->certificate_path);
}

int http_certificate_new(const struct http_certificate_files *files, struct http_certificate **out,
                         struct error *err)
{
    struct http_certificate *certificate = calloc(1, sizeof(*certificate));

    if (certificate == NULL)
        return error_set(err, "no_memory", ENOMEM, "the certificate cannot be read");
    certificate->holders = 1;
    ERR_clear_error();
    certificate->wire = wire_new();
    certificate->ctx = SSL_CTX_new(TLS_server_method());
    if (certificate->wire == NULL || certificate->ctx == NULL)
        (void)error_set(err, "no_tls", 0, "OpenSSL cannot be used (%s); check its openssl.cnf",
                        reason());
    else if (ctx_make(certificate->ctx, err) == 0 &&
             take_chain(certificate->ctx, files, err) == 0 &&
             take_key(certificate->ctx, files, err) == 0) {
        *out = certificate;
        return 0;
    }
    http_certificate_free(certificate);
    return -1;
}

void http_certificate_hold(struct http_certificate *certificate)
{
    certificate->holders++;
}

void http_certificate_free(struct http_certificate *certificate)
{
    if (certificate == NULL || --certificate->holders > 0)
        return;
    SSL_CTX_free(certificate->ctx);
    BIO_meth_free(certificate->wire);
    free(certificate);
}

bool http_certificate_is_for(const struct http_certificate *certificate, const char *host)
{
    X509 *own = SSL_CTX_get0_certificate(certificate->ctx);

    return X509_check_host(own, host, 0, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1;
}

int64_t http_certificate_seconds_left(const struct http_certificate *certificate)
{
    const ASN1_TIME *until = X509_get0_notAfter(SSL_CTX_get0_certificate(certificate->ctx));
    int days = 0, seconds = 0;

    return ASN1_TIME_diff(&days, &seconds, NULL, until) == 1 ? (int64_t)days * 86400 + seconds : 0;
}

/* ---- a connection ---- */

struct http_tls *http_tls_new(struct http_certificate *certificate, int fd)
{
    struct http_tls *tls = calloc(1, sizeof(*tls));
    BIO *wire = BIO_new(certificate->wire);

    if (tls != NULL)
        tls->ssl = SSL_new(certificate->ctx);
    if (tls == NULL || tls->ssl == NULL || wire == NULL) {
        BIO_free(wire);
        if (tls != NULL)
            SSL_free(tls->ssl);
        free(tls);
        return NULL;
    }
    (void)SSL_set_msg_callback_arg(tls->ssl, tls);
    BIO_set_data(wire, tls);
    SSL_set_bio(tls->ssl, wire, wire); /* which takes it */
    SSL_set_accept_state(tls->ssl);
    tls->fd = fd;
    tls->certificate = certificate;
    http_certificate_hold(certificate);
    return tls;
}

void http_tls_free(struct http_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    http_certificate_free(tls->certificate);
    free(tls);
}

static void begin(struct http_tls *tls)
{
    ERR_clear_error();
    tls->budget = TURN_BYTES;
    errno = 0;
}

/* What OpenSSL has said, as errno: EAGAIN, or why it cannot go on. */
static void explain(struct http_tls *tls, int result)
{
    int was = errno;

    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return;
    case SSL_ERROR_SYSCALL:
        errno = was != 0 && was != EAGAIN ? was : ECONNRESET;
        break;
    default:
        errno = EPROTO;
    }
    tls->is_broken = true;
    ERR_clear_error();
}

enum http_tls_step http_tls_handshake(struct http_tls *tls)
{
    int result, error;

    begin(tls);
    result = SSL_accept(tls->ssl);
    error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(tls->ssl, result);
    ERR_clear_error();
    tls->has_more = true; /* a request may have come with its last word */
    if (error == SSL_ERROR_NONE) {
        tls->is_made = true;
        return HTTP_TLS_DONE;
    }
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return error == SSL_ERROR_WANT_READ ? HTTP_TLS_READS : HTTP_TLS_WRITES;
    tls->is_broken = true;
    return HTTP_TLS_BROKEN;
}

ssize_t http_tls_recv(struct http_tls *tls, void *into, size_t size)
{
    size_t got = 0;
    int result = 1;

    if (tls->is_broken) {
        errno = ECONNRESET;
        return -1;
    }
    begin(tls);
    tls->budget = TURN_BYTES_UNREAD;
    for (int records = 0; got < size && result > 0 && records < TURN_RECORDS; records++) {
        size_t most = size - got < RECORD ? size - got : RECORD;

        result = SSL_read(tls->ssl, (char *)into + got, (int)most);
        if (result > 0 && got == 0)
            tls->budget += TURN_BYTES - TURN_BYTES_UNREAD;
        got += result > 0 ? (size_t)result : 0;
    }
    tls->has_more = result > 0;
    count_data(tls, got);
    if (got > 0) {
        /* Whatever else there is to say is said when it is asked again. */
        if (result <= 0 && SSL_get_error(tls->ssl, result) != SSL_ERROR_WANT_READ)
            tls->has_more = true;
        return (ssize_t)got;
    }
    if (SSL_get_error(tls->ssl, result) == SSL_ERROR_ZERO_RETURN)
        return 0;
    explain(tls, result);
    return -1;
}

bool http_tls_has_more(const struct http_tls *tls)
{
    return tls->has_more;
}

/* A record of what the parts have from `skip` on. */
static size_t gather(char record[RECORD], const struct iovec *parts, int count, size_t skip)
{
    size_t size = 0;

    for (int i = 0; i < count && size < RECORD; i++) {
        size_t part = parts[i].iov_len;

        if (skip >= part) {
            skip -= part;
            continue;
        }
        part -= skip;
        part = part < RECORD - size ? part : RECORD - size;
        memcpy(record + size, (const char *)parts[i].iov_base + skip, part);
        size += part;
        skip = 0;
    }
    return size;
}

ssize_t http_tls_send(struct http_tls *tls, const struct iovec *parts, int count)
{
    char record[RECORD];
    size_t sent = 0, size;

    if (tls->is_broken) {
        errno = ECONNRESET;
        return -1;
    }
    begin(tls);
    while ((size = gather(record, parts, count, sent)) > 0) {
        int result = SSL_write(tls->ssl, record, (int)size);

        if (result <= 0) {
            explain(tls, result);
            return sent > 0 && !tls->is_broken ? (ssize_t)sent : -1;
        }
        sent += (size_t)result;
        count_data(tls, (size_t)result);
    }
    return (ssize_t)sent;
}

bool http_tls_farewell(struct http_tls *tls)
{
    int result;

    if (tls->is_broken)
        return true;
    begin(tls);
    result = SSL_shutdown(tls->ssl);
    if (result >= 0)
        return true;
    explain(tls, result);
    return tls->is_broken;
}
