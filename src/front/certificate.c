/* See certificate.h. The text is the certificate, a NUL, the key; nothing of it stays in memory but in
 * OpenSSL's, and nothing of it is ever said. */
#include "front/certificate.h"

#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY 86400
#define SOON_DAYS 2 /* those that last a week have been renewed by then */

/* Clients say so, too, but to those who cannot renew it. */
static void look_after(const struct http_certificate *certificate, const struct settings *settings)
{
    int64_t left = http_certificate_seconds_left(certificate);
    char name[512];

    if (left <= 0)
        log_say(LOG_LEVEL_ERROR, "certificate_expired",
                "tls_certificate %s has expired, so that no client connects: renew it; a new one "
                "counts within a minute",
                settings->tls_certificate);
    else if (left < (int64_t)SOON_DAYS * DAY)
        log_say(LOG_LEVEL_WARN, "certificate_expires",
                "tls_certificate %s expires within %" PRId64
                " hours: renew it; a new one counts within a minute",
                settings->tls_certificate, left / 3600 + 1);
    if (settings->port_domain == NULL)
        return;
    (void)snprintf(name, sizeof(name), "port.%s", settings->port_domain);
    if (!http_certificate_is_for(certificate, name))
        log_say(LOG_LEVEL_WARN, "certificate_names",
                "tls_certificate %s is not for *.%s, the port_domain of [network]: clients refuse "
                "the names of ports until it is",
                settings->tls_certificate, settings->port_domain);
}

static int take(const char *text, size_t size, const struct settings *settings,
                struct http_certificate **out, struct error *err)
{
    const char *end = memchr(text, '\0', size);
    struct http_certificate_files files = {
        .certificate = text,
        .certificate_path = settings->tls_certificate,
        .key_path = settings->tls_key,
    };

    if (end == NULL)
        return error_set(err, "bad_certificate", 0, "the keeper gave no certificate and key");
    files.certificate_size = (size_t)(end - text);
    files.key = end + 1;
    files.key_size = size - files.certificate_size - 1;
    return http_certificate_new(&files, out, err);
}

int certificate_read(int fd, const struct settings *settings, struct http_certificate **out,
                     struct error *err)
{
    _cleanup_close_ int file = fd;
    void *text = MAP_FAILED;
    struct stat st;
    int failed;

    if (fstat(file, &st) == 0 && st.st_size > 0)
        text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (text == MAP_FAILED)
        return error_set(err, "bad_certificate", errno, "cannot read %s",
                         settings->tls_certificate);
    failed = take(text, (size_t)st.st_size, settings, out, err);
    (void)munmap(text, (size_t)st.st_size);
    if (failed == 0)
        look_after(*out, settings);
    return failed;
}
