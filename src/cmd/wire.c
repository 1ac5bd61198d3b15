/* HTTP/1.1 as a client reads it: see wire.h. */
#include "cmd/wire.h"

#include "base/hex.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define CHUNK_DIGITS_MAX 15 /* more would not fit into what is left */
#define CHUNK_EXTENSIONS_MAX 4096
#define CHUNK_TRAILERS_MAX 16384

/* ---- where a server is ---- */

static int address_bad(struct error *err, const char *text, const char *cause)
{
    /* Whoever wrote a password into it shall not find that in a log. */
    const char *at = strrchr(text, '@');

    return error_set(
        err, "bad_url", 0,
        "COVE_URL %.100s: %s; write https://HOST, http://HOST:PORT or unix:/PATH/cove.sock",
        at == NULL ? text : "with an @", cause);
}

static bool has_only_visible(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text <= 0x20 || (unsigned char)*text >= 0x7f)
            return false;
    return true;
}

static int address_unix(const char *text, const char *path, struct wire_address *address,
                        struct error *err)
{
    if (strncmp(path, "//", 2) == 0)
        path += 2;
    if (path[0] != '/')
        return address_bad(err, text, "the path of the socket does not start at /");
    if (strlen(path) >= sizeof(address->path))
        return address_bad(err, text, "a socket's path has at most 107 bytes");
    address->is_unix = true;
    (void)snprintf(address->path, sizeof(address->path), "%s", path);
    (void)snprintf(address->header, sizeof(address->header), "localhost");
    return 0;
}

static bool host_is_loopback(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (strncmp(host, "127.", 4) == 0 && host[strspn(host, "0123456789.")] == '\0');
}

static int address_http(const char *text, const char *rest, struct wire_address *address,
                        struct error *err)
{
    size_t length = strcspn(rest, "/?#");
    const char *host = rest;
    size_t host_length;
    const char *port;
    struct error ignored;
    uint64_t number;

    if (!has_only_visible(text))
        return address_bad(err, text, "it holds a character that no address has");
    if (strchr(rest, '@') != NULL)
        return address_bad(err, text, "a name and a password have no place in it");
    if (rest[length] != '\0' && strcmp(rest + length, "/") != 0)
        return address_bad(err, text, "after the host and its port nothing may follow");
    if (host[0] == '[') {
        host++;
        host_length = strcspn(host, "]");
        if (host[host_length] != ']' || strspn(host, "0123456789abcdefABCDEF:.") != host_length)
            return address_bad(err, text, "between its brackets is no address");
        port = host + host_length + 1;
    } else {
        host_length = strcspn(host, ":/");
        port = host + host_length;
    }
    if (host_length == 0 || host_length >= sizeof(address->host))
        return address_bad(err, text, "it names no host");
    (void)snprintf(address->host, sizeof(address->host), "%.*s", (int)host_length, host);
    (void)snprintf(address->port, sizeof(address->port), "%s", address->is_tls ? "443" : "80");
    if (port[0] == ':') {
        (void)snprintf(address->port, sizeof(address->port), "%.*s", (int)strcspn(port + 1, "/"),
                       port + 1);
        if (strcspn(port + 1, "/") >= sizeof(address->port) ||
            parse_count("port", address->port, 1, 65535, &number, &ignored) < 0)
            return address_bad(err, text, "its port is no number from 1 to 65535");
    } else if (port != rest + length) {
        return address_bad(err, text, "there is something between the host and its port");
    }
    (void)snprintf(address->header, sizeof(address->header), "%.*s", (int)length, rest);
    address->is_loopback = host_is_loopback(address->host);
    return 0;
}

int wire_address_parse(const char *text, struct wire_address *address, struct error *err)
{
    *address = (struct wire_address){0};
    if (strncmp(text, "unix:", 5) == 0)
        return address_unix(text, text + 5, address, err);
    if (strncasecmp(text, "http://", 7) == 0)
        return address_http(text, text + 7, address, err);
    if (strncasecmp(text, "https://", 8) == 0) {
        address->is_tls = true;
        return address_http(text, text + 8, address, err);
    }
    return address_bad(err, text, "it is no address of a server");
}

/* ---- the head of an answer ---- */

size_t wire_head_length(const char *data, size_t size)
{
    const char *end = memmem(data, size, "\r\n\r\n", 4);

    return end == NULL ? 0 : (size_t)(end - data) + 4;
}

static int head_bad(struct error *err, const char *cause)
{
    return error_set(err, "bad_answer", 0,
                     "the server's answer is no HTTP: %s; check that COVE_URL leads to cove",
                     cause);
}

static bool is_token(const char *text, size_t length)
{
    static const char others[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < length; i++) {
        char c = text[i];

        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              (c != '\0' && strchr(others, c) != NULL)))
            return false;
    }
    return length > 0;
}

static int status_parse(const char *line, struct wire_head *head, struct error *err)
{
    bool is_old = strncmp(line, "HTTP/1.0 ", 9) == 0;
    const char *status = line + 9;

    if (!is_old && strncmp(line, "HTTP/1.1 ", 9) != 0)
        return head_bad(err, "it does not begin with HTTP/1.1");
    if (strspn(status, "0123456789") != 3 || status[0] == '0' ||
        (status[3] != ' ' && status[3] != '\0'))
        return head_bad(err, "its status is no number of three digits");
    head->status = (unsigned)((status[0] - '0') * 100 + (status[1] - '0') * 10 + status[2] - '0');
    head->closes = is_old;
    return 0;
}

/* Whether `wanted` is in a list such as "keep-alive, close". */
static bool list_has(const char *list, const char *wanted)
{
    size_t length = strlen(wanted);

    while (*list != '\0') {
        list += strspn(list, ", \t");
        if (strncasecmp(list, wanted, length) == 0 && strchr(", \t", list[length]) != NULL)
            return true;
        list += strcspn(list, ",");
    }
    return false;
}

static int header_weigh(struct wire_head *head, const struct wire_header *header, struct error *err)
{
    struct error ignored;
    uint64_t length;

    if (strcasecmp(header->name, "content-length") == 0) {
        if (parse_count("length", header->value, 0, INT64_MAX, &length, &ignored) < 0 ||
            (head->has_length && head->length != length))
            return head_bad(err, "its length is no number");
        head->has_length = true;
        head->length = length;
    } else if (strcasecmp(header->name, "transfer-encoding") == 0) {
        if (head->is_chunked || strcasecmp(header->value, "chunked") != 0)
            return head_bad(err, "it is encoded in a way that was not asked for");
        head->is_chunked = true;
    } else if (strcasecmp(header->name, "content-encoding") == 0) {
        if (strcasecmp(header->value, "identity") != 0)
            return head_bad(err, "it is compressed, which was not asked for");
    } else if (strcasecmp(header->name, "connection") == 0) {
        head->closes = head->closes || list_has(header->value, "close");
    }
    return 0;
}

static int header_parse(struct wire_head *head, char *line, size_t length, struct error *err)
{
    char *colon = memchr(line, ':', length);
    struct wire_header *header;
    char *value;

    if (head->headers_count == WIRE_HEADERS_MAX)
        return head_bad(err, "it has too many headers");
    if (colon == NULL || !is_token(line, (size_t)(colon - line)))
        return head_bad(err, "a header has no name");
    *colon = '\0';
    value = colon + 1 + strspn(colon + 1, " \t");
    for (size_t end = strlen(value); end > 0 && strchr(" \t", value[end - 1]) != NULL; end--)
        value[end - 1] = '\0';
    header = &head->headers[head->headers_count++];
    *header = (struct wire_header){.name = line, .value = value};
    return header_weigh(head, header, err);
}

int wire_head_parse(char *data, size_t size, struct wire_head *head, struct error *err)
{
    char *line = data;
    char *end = data + size - 2; /* the empty line's */

    head->headers_count = 0;
    head->has_length = head->is_chunked = false;
    head->length = 0;
    for (size_t i = 0; i < size; i++)
        if ((data[i] == '\r') != (i + 1 < size && data[i + 1] == '\n') || data[i] == '\0')
            return head_bad(err, "a line has no proper end");
    while (line < end) {
        char *line_end = memchr(line, '\r', (size_t)(end - line) + 2);

        if (line_end == NULL)
            return head_bad(err, "a line has no proper end");
        *line_end = '\0';
        if (line == data ? status_parse(line, head, err) < 0
                         : header_parse(head, line, (size_t)(line_end - line), err) < 0)
            return -1;
        line = line_end + 2;
    }
    if (head->has_length && head->is_chunked)
        return head_bad(err, "it has two lengths");
    if (!head->has_length && !head->is_chunked)
        head->closes = head->status != 204 && head->status != 304 ? true : head->closes;
    return 0;
}

const char *wire_header_get(const struct wire_head *head, const char *name)
{
    for (size_t i = 0; i < head->headers_count; i++)
        if (strcasecmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    return NULL;
}

/* ---- a chunked body ---- */

static int chunk_bad(struct error *err, const char *cause)
{
    return error_set(
        err, "bad_answer", 0,
        "the server's answer is no HTTP: a chunk %s; check that COVE_URL leads to cove", cause);
}

static int chunk_size_take(struct wire_chunks *chunks, char c, struct error *err)
{
    int digit = hex_digit(c);

    if (digit >= 0) {
        if (++chunks->digits > CHUNK_DIGITS_MAX)
            return chunk_bad(err, "is too long");
        chunks->left = chunks->left * 16 + (unsigned)digit;
        return 0;
    }
    if (chunks->digits == 0)
        return chunk_bad(err, "has no length");
    if (c == '\r')
        chunks->state = WIRE_CHUNK_SIZE_LF;
    else if (c == ';' || c == ' ' || c == '\t')
        chunks->state = WIRE_CHUNK_EXTENSION;
    else
        return chunk_bad(err, "has a length that is no number");
    return 0;
}

/* What follows the last chunk: lines, up to an empty one. */
static int chunk_trailer_take(struct wire_chunks *chunks, char c, struct error *err)
{
    if (chunks->state == WIRE_CHUNK_TRAILER_LF) {
        if (c != '\n')
            return chunk_bad(err, "has no proper end");
        chunks->state = chunks->line == 0 ? WIRE_CHUNK_END : WIRE_CHUNK_TRAILER;
        chunks->line = 0;
        return 0;
    }
    if (++chunks->skipped > CHUNK_TRAILERS_MAX)
        return chunk_bad(err, "is followed by too much");
    if (c == '\r')
        chunks->state = WIRE_CHUNK_TRAILER_LF;
    else if (c == '\n')
        return chunk_bad(err, "has no proper end");
    else
        chunks->line++;
    return 0;
}

/* One byte that is no content. */
static int chunk_byte_take(struct wire_chunks *chunks, char c, struct error *err)
{
    switch (chunks->state) {
    case WIRE_CHUNK_SIZE:
        return chunk_size_take(chunks, c, err);
    case WIRE_CHUNK_EXTENSION:
        if (c == '\n' || ++chunks->skipped > CHUNK_EXTENSIONS_MAX)
            return chunk_bad(err, "has a length that does not end");
        if (c == '\r')
            chunks->state = WIRE_CHUNK_SIZE_LF;
        return 0;
    case WIRE_CHUNK_SIZE_LF:
        if (c != '\n')
            return chunk_bad(err, "has a length that does not end");
        chunks->state = chunks->left > 0 ? WIRE_CHUNK_DATA : WIRE_CHUNK_TRAILER;
        chunks->digits = chunks->skipped = 0;
        return 0;
    case WIRE_CHUNK_DATA_CR:
        if (c != '\r')
            return chunk_bad(err, "is longer than it says");
        chunks->state = WIRE_CHUNK_DATA_LF;
        return 0;
    case WIRE_CHUNK_DATA_LF:
        if (c != '\n')
            return chunk_bad(err, "is longer than it says");
        chunks->state = WIRE_CHUNK_SIZE;
        return 0;
    case WIRE_CHUNK_TRAILER:
    case WIRE_CHUNK_TRAILER_LF:
        return chunk_trailer_take(chunks, c, err);
    case WIRE_CHUNK_DATA:
    case WIRE_CHUNK_END:
        break;
    }
    return chunk_bad(err, "came after the last"); /* never: both are the caller's */
}

ssize_t wire_chunks_take(struct wire_chunks *chunks, char *data, size_t size, size_t *content,
                         struct error *err)
{
    size_t at = 0;

    *content = 0;
    while (at < size && chunks->state != WIRE_CHUNK_END) {
        size_t piece = size - at;

        if (chunks->state != WIRE_CHUNK_DATA) {
            if (chunk_byte_take(chunks, data[at++], err) < 0)
                return -1;
            continue;
        }
        if (piece > chunks->left)
            piece = (size_t)chunks->left;
        memmove(data + *content, data + at, piece);
        *content += piece;
        at += piece;
        chunks->left -= piece;
        if (chunks->left == 0)
            chunks->state = WIRE_CHUNK_DATA_CR;
    }
    return (ssize_t)at;
}

/* ---- texts ---- */

bool wire_encode(char *into, size_t size, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    size_t used = strlen(into);
    bool is_dots = strcmp(text, ".") == 0 || strcmp(text, "..") == 0;

    for (; *text != '\0'; text++) {
        if (used + 4 > size)
            return false;
        if (!is_dots && strchr(plain, *text) != NULL)
            used += (size_t)snprintf(into + used, size - used, "%c", *text);
        else
            used += (size_t)snprintf(into + used, size - used, "%%%02X", (unsigned char)*text);
    }
    return true;
}
