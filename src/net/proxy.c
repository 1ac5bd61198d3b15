/* The upstream proxy of an operator who must use one: its URL, what is asked of it, what it answers. Pure code.
 * Its password is in no error, and in no memory that was freed. What it answers is hostile like anything else that
 * comes from a network: bounded, and not a byte behind its header is taken for it. */
#include "net/carry.h"

#include "base/base64.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USER_MAX 256 /* with its password */

struct proxy {
    char host[POLICY_NAME_MAX];
    uint16_t port;
    char login[BASE64_SIZE(USER_MAX) + 1]; /* in base64; empty: none */
};

/* "%40" is "@"; -1: it is not so written, or would forge a header. */
static int decode(const char *from, size_t size, char *to, size_t room)
{
    size_t used = 0;

    for (size_t i = 0; i < size; i++) {
        int c = (unsigned char)from[i];

        if (c == '%') {
            unsigned char byte;

            if (i + 2 >= size || !hex_decode(from + i + 1, 1, &byte))
                return -1;
            c = byte;
            i += 2;
        }
        if (c < 32 || c == 127 || used == room)
            return -1;
        to[used++] = (char)c;
    }
    return (int)used;
}

static int take_login(struct proxy *proxy, const char *text, size_t size)
{
    char login[USER_MAX];
    int length = memchr(text, ':', size) == NULL ? -1 : decode(text, size, login, sizeof(login));

    if (length >= 0)
        base64_encode(login, (size_t)length, proxy->login);
    explicit_bzero(login, sizeof(login));
    return length < 0 ? -1 : 0;
}

/* "HOST:PORT", "[ADDRESS]:PORT". */
static int take_host(struct proxy *proxy, const char *text, struct error *err)
{
    struct policy_address address;
    const char *colon = strrchr(text, ':');
    char host[POLICY_NAME_MAX];
    uint64_t port;
    size_t size;

    if (colon == NULL || colon == text || (size_t)(colon - text) >= sizeof(host))
        return error_set(err, "bad_value", 0, "it names no host, or no port");
    if (parse_count("its port", colon + 1, 1, 65535, &port, err) < 0)
        return -1;
    proxy->port = (uint16_t)port;
    size = (size_t)(colon - text);
    if (text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    (void)snprintf(host, sizeof(host), "%.*s", (int)size, text);
    if (policy_address_parse(host, &address) == 0) {
        (void)snprintf(proxy->host, sizeof(proxy->host), "%s", host);
        return 0;
    }
    return policy_name(host, proxy->host, err);
}

int proxy_new(const char *url, struct proxy **out, struct error *err)
{
    struct proxy *proxy = calloc(1, sizeof(*proxy));
    const char *at;
    char text[1024];
    int result = -1;

    if (proxy == NULL)
        return error_set(err, "net_failed", ENOMEM, "cannot use the proxy");
    if (strncmp(url, "http://", 7) != 0 || strlen(url) >= sizeof(text)) {
        (void)error_set(err, "bad_value", 0, "it does not begin with http://, or is too long");
        goto out;
    }
    url += 7;
    at = strrchr(url, '@');
    if (at != NULL && take_login(proxy, url, (size_t)(at - url)) < 0) {
        (void)error_set(
            err, "bad_value", 0,
            "what stands before @ is not USER:PASSWORD with %%XX for all that is special");
        goto out;
    }
    (void)snprintf(text, sizeof(text), "%s", at != NULL ? at + 1 : url);
    if (text[0] != '\0' && text[strlen(text) - 1] == '/')
        text[strlen(text) - 1] = '\0';
    result = take_host(proxy, text, err);
out:
    if (result < 0) {
        proxy_free(proxy);
        return error_wrap(err, "the proxy is to be http://[USER:PASSWORD@]HOST:PORT");
    }
    *out = proxy;
    return 0;
}

int net_proxy_check(const char *text, struct error *err)
{
    struct proxy *proxy = NULL;

    if (proxy_new(text, &proxy, err) < 0)
        return -1;
    proxy_free(proxy);
    return 0;
}

void proxy_free(struct proxy *proxy)
{
    if (proxy == NULL)
        return;
    explicit_bzero(proxy, sizeof(*proxy));
    free(proxy);
}

const char *proxy_host(const struct proxy *proxy)
{
    return proxy->host;
}

uint16_t proxy_port(const struct proxy *proxy)
{
    return proxy->port;
}

bool proxy_request(const struct proxy *proxy, const char *host,
                   const struct policy_address *address, uint16_t port, char *text, size_t room)
{
    char target[POLICY_NAME_MAX + POLICY_ADDRESS_TEXT + 16], literal[POLICY_ADDRESS_TEXT];
    bool is_bare = true;
    int size;

    if (host == NULL) {
        policy_address_text(address, literal);
        host = literal;
        is_bare = strchr(literal, ':') == NULL;
    }
    (void)snprintf(target, sizeof(target), is_bare ? "%s:%u" : "[%s]:%u", host, port);
    size = snprintf(text, room, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", target, target,
                    proxy->login[0] != '\0' ? "Proxy-Authorization: Basic " : "", proxy->login,
                    proxy->login[0] != '\0' ? "\r\n" : "");
    return size > 0 && (size_t)size < room;
}

size_t proxy_answer(const char *text, size_t size, bool *ok)
{
    const char *end = memmem(text, size, "\r\n\r\n", 4);

    *ok = false;
    if (memcmp(text, "HTTP/1.", size < 7 ? size : 7) != 0)
        return SIZE_MAX;
    if (end == NULL)
        return size >= PROXY_HEAD_MAX ? SIZE_MAX : 0;
    *ok = end - text >= 12 && text[8] == ' ' && text[9] == '2';
    return (size_t)(end - text) + 4;
}
