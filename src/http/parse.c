/* Reading HTTP/1.1, as RFC 9110 and RFC 9112 say, where they leave a choice the strict one.
 *
 * Everything here is a pure function over bytes of a stranger; nothing may read beyond `size`, and
 * nothing is mended. */
#include "http/parse.h"

#include "base/hex.h"
#include "base/utf8.h"

#include <string.h>
#include <strings.h>

#define CHUNK_LINE_MAX 256
#define TRAILER_MAX 8192

/* Two of these are a way to say two things to two readers. */
static const char *const singletons[] = {
    "host",
    "content-length",
    "transfer-encoding",
    "authorization",
    "x-api-key",
    "origin",
    "content-type",
    "expect",
    "if-match",
    "idempotency-key",
    "range",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
};

static bool is_token(unsigned char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
        return true;
    }
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_field_byte(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static int refuse(struct http_refusal *no, unsigned status, const char *code, const char *detail)
{
    *no = (struct http_refusal){.status = status, .code = code, .detail = detail};
    return -1;
}

static int bad(struct http_refusal *no, const char *detail)
{
    return refuse(no, 400, "bad_request", detail);
}

bool http_is_name(const char *name)
{
    if (*name == '\0') {
        return false;
    }
    for (; *name; name++) {
        if (!is_token((unsigned char)*name)) {
            return false;
        }
    }
    return true;
}

bool http_is_value(const char *value)
{
    for (; *value; value++) {
        if (!is_field_byte((unsigned char)*value)) {
            return false;
        }
    }
    return true;
}

enum http_scan http_scan_head(const char *data, size_t size, size_t *scanned, size_t *head_size)
{
    /* `scanned` is always the start of a line. One empty line before a request is let pass: some
     * clients end a body with one. */
    while (*scanned < size) {
        const char *line = data + *scanned;
        const char *end = memchr(line, '\n', size - *scanned);

        if (*scanned == 0 && !is_token((unsigned char)line[0]) && line[0] != '\r') {
            return HTTP_SCAN_BAD;
        }
        if (!end) {
            return HTTP_SCAN_MORE;
        }
        if (end == line || end[-1] != '\r') {
            return HTTP_SCAN_BAD;
        }
        *scanned = (size_t)(end + 1 - data);
        if (end - line == 1 && line != data) {
            /* Two empty lines and nothing else are no request. */
            if (line == data + 2 && data[0] == '\r') {
                return HTTP_SCAN_BAD;
            }
            *head_size = *scanned;
            return HTTP_SCAN_WHOLE;
        }
    }
    return HTTP_SCAN_MORE;
}

/* The line at `*at`, terminated in place, without its CRLF; the scan has seen that each has one. */
static char *next_line(char **at, char *end, size_t *length)
{
    char *line = *at;
    char *feed = memchr(line, '\n', (size_t)(end - line));

    if (!feed || feed == line || feed[-1] != '\r') {
        return NULL;
    }
    feed[-1] = '\0';
    *length = (size_t)(feed - 1 - line);
    *at = feed + 1;
    return line;
}

int http_decode(const char *in, size_t size, bool plus_is_space, char *out)
{
    char *to = out;

    for (size_t i = 0; i < size; i++) {
        char c = in[i];

        if (c == '%') {
            if (i + 2 >= size || !hex_decode(in + i + 1, 1, &c)) {
                return -1;
            }
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (c == '\0') {
            return -1;
        }
        *to++ = c;
    }
    if (!utf8_is_valid(out, (size_t)(to - out))) {
        return -1;
    }
    *to = '\0';
    return 0;
}

/* Decodes "a=b&c" in place: a part is never longer than it was. */
static int parse_query(char *query, struct http_head *head, struct http_refusal *no)
{
    while (query && *query) {
        char *next = strchr(query, '&');
        size_t length = next ? (size_t)(next - query) : strlen(query);
        char *equals = memchr(query, '=', length);
        size_t name_length = equals ? (size_t)(equals - query) : length;
        const char *value = "";

        if (length > 0) {
            if (head->query_count == HTTP_QUERY_MAX) {
                return bad(no, "the query has too many parts");
            }
            if (equals) {
                if (http_decode(equals + 1, length - name_length - 1, true, equals + 1)) {
                    return bad(no, "the query is not percent-encoded UTF-8");
                }
                value = equals + 1;
            }
            if (http_decode(query, name_length, true, query)) {
                return bad(no, "the query is not percent-encoded UTF-8");
            }
            head->query[head->query_count++] = (struct http_field){query, value};
        }
        query = next ? next + 1 : NULL;
    }
    return 0;
}

/* The path's escapes are looked at here, so that a broken one is refused on every route. */
static int check_path(const char *path, struct http_refusal *no)
{
    for (const char *at = path; *at; at++) {
        if (*at == '%' && (hex_digit(at[1]) < 0 || hex_digit(at[2]) < 0)) {
            return bad(no, "the path holds a '%' that two hexadecimal digits do not follow");
        }
        if (*at == '%' && at[1] == '0' && at[2] == '0') {
            return bad(no, "the path holds a NUL");
        }
    }
    return 0;
}

static int parse_version(const char *version, struct http_head *head, struct http_refusal *no)
{
    if (strcmp(version, "HTTP/1.1") == 0) {
        head->keeps_alive = true;
        return 0;
    }
    if (strcmp(version, "HTTP/1.0") == 0) {
        head->is_old = true;
        return 0;
    }
    if (strncmp(version, "HTTP/", 5) == 0 && version[5] >= '0' && version[5] <= '9' &&
        version[6] == '.' && version[7] >= '0' && version[7] <= '9' && version[8] == '\0') {
        return refuse(no, 505, "http_version", "this server speaks HTTP/1.1 and HTTP/1.0");
    }
    return bad(no, "the request line does not end with a version of HTTP");
}

/* METHOD SP target SP version. The host of a target in absolute form is given back; the rest is copied to
 * `kept`. */
static int parse_request_line(char *line, char *kept, struct http_head *head,
                              const char **authority, size_t *authority_length,
                              struct http_refusal *no)
{
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;

    if (!version || target == line || target - line > HTTP_METHOD_MAX) {
        return bad(no, "the request line is not 'METHOD target HTTP/1.1'");
    }
    *target++ = '\0';
    *version++ = '\0';
    head->method = line;
    if (!http_is_name(line)) {
        return bad(no, "the method is not a word");
    }
    if (parse_version(version, head, no)) {
        return -1;
    }
    for (const char *at = target; *at; at++) {
        if (*at <= ' ' || *at > '~' || *at == '#') {
            return bad(no, "the target holds a byte that has to be percent-encoded");
        }
    }
    *authority = NULL;
    if (strncasecmp(target, "http://", 7) == 0) {
        char *host = target + 7;
        *authority_length = strcspn(host, "/?");
        if (host[*authority_length] != '/') {
            return bad(no, "the target has no path");
        }
        *authority = host;
        target = host + *authority_length;
    }
    if (target[0] != '/' && strcmp(target, "*") != 0) {
        return bad(no, "the target does not start with '/'");
    }
    memcpy(kept, target, strlen(target) + 1);
    head->target = kept;
    head->path = target;
    char *query = strchr(target, '?');
    if (query) {
        *query++ = '\0';
    }
    return check_path(target, no) ? -1 : parse_query(query, head, no);
}

/* name ":" OWS value OWS */
static int parse_field(char *line, size_t length, struct http_head *head, struct http_refusal *no)
{
    char *colon = memchr(line, ':', length);
    char *value, *end = line + length;

    if (head->fields_count == HTTP_FIELDS_MAX) {
        return refuse(no, 431, "header_too_large", "the header has too many fields");
    }
    if (line[0] == ' ' || line[0] == '\t') {
        return bad(no, "a field of the header is folded over two lines");
    }
    if (!colon) {
        return bad(no, "a line of the header has no colon");
    }
    /* A NUL within the line would make it shorter for what reads strings. */
    for (const char *at = colon + 1; at < end; at++) {
        if (!is_field_byte((unsigned char)*at)) {
            return bad(no, "a field of the header holds a control character");
        }
    }
    *colon = '\0';
    if (strlen(line) != (size_t)(colon - line) || !http_is_name(line)) {
        return bad(no, "the name of a field of the header is not a word");
    }
    value = colon + 1;
    while (value < end && (*value == ' ' || *value == '\t')) {
        value++;
    }
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    *end = '\0';
    head->fields[head->fields_count++] = (struct http_field){line, value};
    return 0;
}

const char *http_field_find(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->fields_count; i++) {
        if (strcasecmp(head->fields[i].name, name) == 0) {
            return head->fields[i].value;
        }
    }
    return NULL;
}

static int check_singletons(const struct http_head *head, struct http_refusal *no)
{
    unsigned seen = 0;

    for (size_t i = 0; i < head->fields_count; i++) {
        for (unsigned k = 0; k < sizeof(singletons) / sizeof(singletons[0]); k++) {
            if (strcasecmp(head->fields[i].name, singletons[k]) != 0) {
                continue;
            }
            if (seen & (1U << k)) {
                return bad(no, "a field of the header that may be there once is there twice");
            }
            seen |= 1U << k;
        }
    }
    return 0;
}

bool http_is_length(const char *value)
{
    size_t digits = strspn(value, "0123456789");

    return digits > 0 && digits <= 18 && value[digits] == '\0';
}

static int parse_length(const char *value, uint64_t *length, struct http_refusal *no)
{
    uint64_t total = 0;

    if (!http_is_length(value)) {
        return bad(no, "Content-Length is not a number that can be meant");
    }
    for (; *value; value++) {
        total = total * 10 + (uint64_t)(*value - '0');
    }
    *length = total;
    return 0;
}

bool http_list_has(const char *list, const char *word)
{
    size_t length = strlen(word);

    while (*list) {
        list += strspn(list, ", \t");
        size_t part = strcspn(list, ", \t");
        if (part == length && strncasecmp(list, word, length) == 0) {
            return true;
        }
        list += part;
    }
    return false;
}

static int parse_framing(struct http_head *head, struct http_refusal *no)
{
    const char *length = http_field_find(head, "content-length");
    const char *coding = http_field_find(head, "transfer-encoding");

    if (coding && (length || head->is_old)) {
        return bad(no, "Transfer-Encoding does not go with Content-Length or with HTTP/1.0");
    }
    if (coding && strcasecmp(coding, "chunked") != 0) {
        return refuse(no, 501, "unsupported_coding", "the only Transfer-Encoding is 'chunked'");
    }
    head->is_chunked = coding != NULL;
    return length ? parse_length(length, &head->length, no) : 0;
}

static int parse_connection(struct http_head *head, struct http_refusal *no)
{
    const char *expect = http_field_find(head, "expect");
    bool closes = false, keeps = false;

    for (size_t i = 0; i < head->fields_count; i++) {
        if (strcasecmp(head->fields[i].name, "connection") == 0) {
            closes = closes || http_list_has(head->fields[i].value, "close");
            keeps = keeps || http_list_has(head->fields[i].value, "keep-alive");
        }
    }
    head->keeps_alive = !closes && (head->keeps_alive || keeps);
    if (expect && strcasecmp(expect, "100-continue") != 0) {
        return refuse(no, 417, "expectation_failed", "the only Expect is '100-continue'");
    }
    head->expects_continue = expect && !head->is_old;
    return 0;
}

int http_parse_head(char *text, size_t size, char *target, struct http_head *head,
                    struct http_refusal *no)
{
    char *at = text, *end = text + size;
    const char *authority = NULL, *host;
    size_t authority_length = 0, length = 0;
    char *line;

    head->fields_count = head->query_count = 0;
    head->length = 0;
    head->is_old = head->keeps_alive = head->is_chunked = head->expects_continue = false;
    head->method = head->target = head->path = "";
    if (size >= 2 && at[0] == '\r' && at[1] == '\n') {
        at += 2;
    }
    line = next_line(&at, end, &length);
    if (!line || strlen(line) != length) {
        return bad(no, "the request line is broken");
    }
    if (parse_request_line(line, target, head, &authority, &authority_length, no)) {
        return -1;
    }
    for (;;) {
        line = next_line(&at, end, &length);
        if (!line) {
            return bad(no, "a line of the header does not end with CR LF");
        }
        if (length == 0) {
            break;
        }
        if (parse_field(line, length, head, no)) {
            return -1;
        }
    }
    if (check_singletons(head, no) || parse_framing(head, no) || parse_connection(head, no)) {
        return -1;
    }
    host = http_field_find(head, "host");
    if (!host && !head->is_old) {
        return bad(no, "the Host field is missing");
    }
    if (authority && (!host || strlen(host) != authority_length ||
                      strncasecmp(host, authority, authority_length) != 0)) {
        return bad(no, "the host of the target is not that of the Host field");
    }
    return 0;
}

enum chunk_state {
    CHUNK_SIZE,      /* at least one digit */
    CHUNK_EXTENSION, /* up to the CR */
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER, /* start of a line */
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER_VALUE,
    CHUNK_TRAILER_LF,
    CHUNK_LAST_LF,
    CHUNK_OVER,
};

/* One byte of a line that holds a size; false where it breaks the line. */
static bool size_byte(struct http_chunks *chunks, unsigned char c)
{
    int digit = hex_digit((char)c);

    if (++chunks->line > CHUNK_LINE_MAX) {
        return false;
    }
    if (chunks->state == CHUNK_SIZE_LF) {
        chunks->line = 0;
        chunks->state = chunks->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
        return c == '\n';
    }
    if (chunks->state == CHUNK_SIZE && digit >= 0) {
        /* 14 digits are 64 PiB, and leading zeros are no use to anybody. */
        chunks->left = chunks->left * 16 + (unsigned)digit;
        return chunks->line <= 14;
    }
    if (chunks->state == CHUNK_SIZE && chunks->line == 1) {
        return false;
    }
    if (c == '\r') {
        chunks->state = CHUNK_SIZE_LF;
        return true;
    }
    if (chunks->state == CHUNK_SIZE && c != ';') {
        return false;
    }
    chunks->state = CHUNK_EXTENSION;
    return is_field_byte(c);
}

/* One byte of the trailers, which nobody reads. */
static bool trailer_byte(struct http_chunks *chunks, unsigned char c)
{
    if (++chunks->trailer > TRAILER_MAX) {
        return false;
    }
    switch (chunks->state) {
    case CHUNK_TRAILER:
        chunks->state = c == '\r' ? CHUNK_LAST_LF : CHUNK_TRAILER_NAME;
        return c == '\r' || is_token(c);
    case CHUNK_TRAILER_NAME:
        chunks->state = c == ':' ? CHUNK_TRAILER_VALUE : CHUNK_TRAILER_NAME;
        return c == ':' || is_token(c);
    case CHUNK_TRAILER_VALUE:
        chunks->state = c == '\r' ? CHUNK_TRAILER_LF : CHUNK_TRAILER_VALUE;
        return c == '\r' || is_field_byte(c);
    case CHUNK_TRAILER_LF:
        chunks->state = CHUNK_TRAILER;
        return c == '\n';
    default:
        chunks->state = CHUNK_OVER;
        return c == '\n';
    }
}

enum http_chunk http_chunk_next(struct http_chunks *chunks, const char **data, size_t *size,
                                const char **part, size_t *part_size)
{
    while (*size > 0 && chunks->state != CHUNK_OVER) {
        unsigned char c = (unsigned char)**data;

        if (chunks->state == CHUNK_DATA) {
            size_t take = *size < chunks->left ? *size : (size_t)chunks->left;
            *part = *data;
            *part_size = take;
            *data += take;
            *size -= take;
            chunks->left -= take;
            if (chunks->left == 0) {
                chunks->state = CHUNK_DATA_CR;
            }
            return HTTP_CHUNK_PART;
        }
        (*data)++;
        (*size)--;
        if (chunks->state == CHUNK_DATA_CR || chunks->state == CHUNK_DATA_LF) {
            bool is_cr = chunks->state == CHUNK_DATA_CR;
            if (c != (is_cr ? '\r' : '\n')) {
                return HTTP_CHUNK_BAD;
            }
            chunks->state = is_cr ? CHUNK_DATA_LF : CHUNK_SIZE;
        } else if (chunks->state <= CHUNK_SIZE_LF ? !size_byte(chunks, c)
                                                  : !trailer_byte(chunks, c)) {
            return HTTP_CHUNK_BAD;
        }
    }
    return chunks->state == CHUNK_OVER ? HTTP_CHUNK_END : HTTP_CHUNK_MORE;
}
