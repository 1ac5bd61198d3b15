/* Reading the header of an answer of HTTP/1.1, as strictly as that of a request: see parse.h. */
#include "http/parse.h"

#include <string.h>

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
            return *answer->reason == '\0' || http_is_value(answer->reason) ? 0 : -1;
        }
        if (line != text && parse_line(line, answer) < 0) {
            return -1;
        }
    }
    return -1;
}
