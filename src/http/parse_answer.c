/* Reading the header of an answer of HTTP/1.1, as strictly as that of a request: see parse.h. */
#include "http/parse.h"

#include <string.h>
#include <strings.h>

static int parse_line(char *line, struct http_answer *answer)
{
    char *colon = strchr(line, ':'), *value, *end;

    if (colon == NULL || answer->count == HTTP_ANSWER_FIELDS_MAX) {
        return -1;
    }
    *colon = '\0';
    value = colon + 1 + strspn(colon + 1, " \t");
    for (end = value + strlen(value); end > value && (end[-1] == ' ' || end[-1] == '\t'); end--) {
        end[-1] = '\0';
    }
    if (!http_is_name(line) || (*value != '\0' && !http_is_value(value))) {
        return -1;
    }
    answer->fields[answer->count++] = (struct http_field){line, value};
    return 0;
}

/* Some readers take the body that such an answer names, and others go by the status. That of 304 is said of what is
 * not sent. */
static bool is_without_body(unsigned status)
{
    return status < 200 || status == 204 || status == 205;
}

/* Of lengths and codings there is one at most, and none where there is no body: a front could hold what follows the
 * one end for an answer of its own. */
static int check_framing(const struct http_answer *answer)
{
    bool is_empty = is_without_body(answer->status);
    unsigned count = 0;

    for (size_t i = 0; i < answer->count; i++) {
        const struct http_field *field = &answer->fields[i];
        bool is_length = strcasecmp(field->name, "Content-Length") == 0;
        bool is_coding = strcasecmp(field->name, "Transfer-Encoding") == 0;

        if (is_empty && (is_coding || (is_length && field->value[strspn(field->value, "0")]))) {
            return -1;
        }

        if ((is_length && !http_is_length(field->value)) ||
            (is_coding && strcasecmp(field->value, "chunked") != 0)) {
            return -1;
        }
        count += is_length || is_coding;
    }
    return count > 1 ? -1 : 0;
}

int http_parse_answer(char *text, size_t size, struct http_answer *answer)
{
    char *line = text, *next;

    *answer = (struct http_answer){0};
    if (memchr(text, '\0', size) != NULL || size < 13 || strncmp(text, "HTTP/1.", 7) != 0 ||
        (text[7] != '0' && text[7] != '1') || text[8] != ' ') {
        return -1;
    }
    for (size_t i = 9; i < 12; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return -1;
        }
        answer->status = answer->status * 10 + (unsigned)(text[i] - '0');
    }
    if (answer->status < 100 || (text[12] != ' ' && text[12] != '\r')) {
        return -1;
    }
    answer->reason = text + 12 + (text[12] == ' ');
    for (; (next = strstr(line, "\r\n")) != NULL; line = next + 2) {
        *next = '\0';
        if (line == next) {
            return http_is_value(answer->reason) ? check_framing(answer) : -1;
        }
        if (line != text && parse_line(line, answer) < 0) {
            return -1;
        }
    }
    return -1;
}
