/* Hosts and origins: see origin.h. Whatever does not parse is foreign. */
#include "front/native/origin.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES 255

/* "[::1]:7070" is "::1" and 7070. */
struct authority {
    char name[NAME_MAX_BYTES + 1]; /* without brackets and without the dot at the end */
    bool is_bracketed;
    long port; /* -1: none */
};

static bool take_port(const char *text, long *port)
{
    size_t digits = strspn(text, "0123456789");

    *port = 0;
    if (digits == 0 || digits > 5 || text[digits] != '\0')
        return false;
    for (size_t i = 0; i < digits; i++)
        *port = *port * 10 + (text[i] - '0');
    return *port >= 1 && *port <= 65535;
}

static bool take_name(const char *text, size_t length, struct authority *out)
{
    if (length > 1 && !out->is_bracketed && text[length - 1] == '.')
        length--;
    if (length == 0 || length > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool is_of_name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';

        if (!is_of_name && !(out->is_bracketed && c == ':'))
            return false;
    }
    memcpy(out->name, text, length);
    out->name[length] = '\0';
    return true;
}

/* Nothing but name or address, and port: no "user@", no path, no space. */
static bool parse_authority(const char *text, struct authority *out)
{
    const char *end;

    out->port = -1;
    out->is_bracketed = text[0] == '[';
    text += out->is_bracketed;
    end = strpbrk(text, out->is_bracketed ? "]" : ":");
    if (end == NULL)
        return !out->is_bracketed && take_name(text, strlen(text), out);
    if (!take_name(text, (size_t)(end - text), out))
        return false;
    end += out->is_bracketed;
    if (*end == '\0')
        return true;
    return *end == ':' && take_port(end + 1, &out->port);
}

static bool is_loopback(const struct authority *host)
{
    struct in_addr four;
    struct in6_addr six;

    if (host->is_bracketed) {
        if (inet_pton(AF_INET6, host->name, &six) != 1)
            return false;
        return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
    }
    if (inet_pton(AF_INET, host->name, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return strcasecmp(host->name, "localhost") == 0;
}

/* One that was configured may be a bare IPv6 address, which needs no brackets there. */
static bool parse_configured(const char *text, struct authority *out)
{
    struct in6_addr six;

    if (inet_pton(AF_INET6, text, &six) != 1)
        return parse_authority(text, out);
    out->port = -1;
    out->is_bracketed = true;
    return take_name(text, strlen(text), out);
}

static bool has_same_name(const struct authority *a, const struct authority *b)
{
    struct in6_addr left, right;

    if (a->is_bracketed != b->is_bracketed)
        return false;
    if (a->is_bracketed && inet_pton(AF_INET6, a->name, &left) == 1 &&
        inet_pton(AF_INET6, b->name, &right) == 1)
        return memcmp(&left, &right, sizeof(left)) == 0;
    return strcasecmp(a->name, b->name) == 0;
}

bool origin_host_is_known(const char *host, const char *const *hosts)
{
    struct authority asked, known;

    if (host == NULL || !parse_authority(host, &asked))
        return false;
    if (is_loopback(&asked))
        return true;
    for (; hosts != NULL && *hosts != NULL; hosts++)
        if (parse_configured(*hosts, &known) && has_same_name(&asked, &known) &&
            (known.port < 0 || known.port == asked.port))
            return true;
    return false;
}

bool origin_is_host(const char *origin, const char *host)
{
    struct authority page, here;
    bool is_tls = strncasecmp(origin, "https://", 8) == 0;

    if (host == NULL || (!is_tls && strncasecmp(origin, "http://", 7) != 0))
        return false;
    if (!parse_authority(origin + (is_tls ? 8 : 7), &page) || !parse_authority(host, &here))
        return false;
    /* Each leaves out the port that its scheme implies; a Host does not say its scheme. */
    if (page.port < 0)
        page.port = is_tls ? 443 : 80;
    if (here.port < 0)
        here.port = is_tls ? 443 : 80;
    return page.port == here.port && has_same_name(&page, &here);
}

bool origin_fetch_is_ours(const char *site)
{
    return site == NULL || strcasecmp(site, "same-origin") == 0 || strcasecmp(site, "none") == 0;
}
