/* A form, cut where its boundary stands at the start of a line.
 *
 * A boundary has no CR, so what looks like its beginning can begin anew only at a CR: the bytes held back
 * between two calls are known without being kept. Nothing is guessed: a boundary that is followed by
 * something else, a bare LF in a header, a name told twice are errors. */
#include "http/multipart.h"

#include "base/utf8.h"
#include "http/parse.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BOUNDARY_MAX 70
#define HEAD_MAX 8192
#define PREAMBLE_MAX 8192
#define TYPE_MAX 1024

enum state {
    BEFORE, /* the first boundary */
    DATA,   /* of a part */
    LINE,   /* behind a boundary */
    HEAD,   /* of a part */
    AFTER,  /* the last boundary: whatever comes means nothing */
};

struct http_multipart {
    struct http_multipart_calls calls;
    void *arg;
    enum state state;
    bool is_broken;
    struct error error;
    char mark[BOUNDARY_MAX + 5]; /* CR LF - - boundary */
    size_t mark_size;
    size_t matched; /* so much of the mark was at the end of what came */
    char last;      /* byte behind a boundary */
    unsigned blanks;
    size_t passed; /* of the preamble */
    char head[HEAD_MAX + 1];
    size_t head_size;
};

static int bad(struct error *err, const char *text)
{
    return error_set(err, "bad_request", 0, "%s", text);
}

/* ---- "; name=value; name="quoted \" value"" ---- */

struct param {
    char *name;
    char *value;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* Takes the backslashes out of a quoted string in place; where it ends, or NULL. Some clients escape a
 * quote and a backslash, others nothing: before any other character a backslash is one. */
static char *unquote(char *at)
{
    char *to = at;

    for (; *at != '"'; at++) {
        if (*at == '\0') {
            return NULL;
        }
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) {
            at++;
        }
        *to++ = *at;
    }
    *to = '\0';
    return at + 1;
}

static char *skip_spaces(char *text)
{
    return text + strspn(text, " \t");
}

/* What follows a value: behind the ';', or the end; NULL where it is something else. */
static char *next_place(char *text)
{
    text = skip_spaces(text);
    return *text == ';' ? text + 1 : *text == '\0' ? text : NULL;
}

/* The parameter at `*at`, cut out in place; 0, 1 at the end, -1 where there is something else. */
static int next_param(char **at, struct param *param)
{
    char *text = skip_spaces(*at), *end;

    if (*text == '\0') {
        return 1;
    }
    param->name = text;
    text += strcspn(text, "=; \t\"");
    if (*text != '=' || text == param->name) {
        return -1;
    }
    *text++ = '\0';
    if (*text == '"') {
        param->value = text + 1;
        end = unquote(text + 1);
        *at = end ? next_place(end) : NULL;
        return *at ? 0 : -1;
    }
    param->value = text;
    end = text + strcspn(text, ";\"");
    if (*end == '"') {
        return -1;
    }
    *at = *end == ';' ? end + 1 : end;
    while (end > text && is_space(end[-1])) {
        end--;
    }
    *end = '\0';
    return 0;
}

/* Behind the word that a field begins with, compared in any case; its parameters, or NULL. */
static char *params_of(char *text, const char *word)
{
    size_t size = strlen(word);

    return strncasecmp(text, word, size) == 0 ? next_place(text + size) : NULL;
}

static bool is_text(const char *text)
{
    for (const char *at = text; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f) {
            return false;
        }
    }
    return utf8_is_valid(text, strlen(text));
}

/* UTF-8''percent-encoded (RFC 5987), in place. */
static char *extended(char *value)
{
    char *language = strchr(value, '\'');
    char *text = language ? strchr(language + 1, '\'') : NULL;

    if (!text || strncasecmp(value, "utf-8'", 6) != 0) {
        return NULL;
    }
    text++;
    return http_decode(text, strlen(text), false, text) ? NULL : text;
}

/* ---- the header of a part ---- */

static int set_once(const char **place, const char *value, struct error *err)
{
    if (*place) {
        return bad(err, "a part of the form tells its name, filename or type twice");
    }
    *place = value;
    return 0;
}

static int read_disposition(char *value, struct http_multipart_part *part, struct error *err)
{
    const char *plain = NULL, *better = NULL;
    struct param param;
    int found;

    value = params_of(value, "form-data");
    if (!value) {
        return bad(err, "a part of the form has a Content-Disposition that is not form-data");
    }
    while ((found = next_param(&value, &param)) == 0) {
        int code = 0;

        if (strcasecmp(param.name, "name") == 0) {
            code = set_once(&part->name, param.value, err);
        } else if (strcasecmp(param.name, "filename") == 0) {
            code = set_once(&plain, param.value, err);
        } else if (strcasecmp(param.name, "filename*") == 0) {
            const char *text = extended(param.value);
            code = text ? set_once(&better, text, err)
                        : bad(err, "filename* of a part is not UTF-8''percent-encoded");
        }
        if (code) {
            return code;
        }
    }
    if (found < 0) {
        return bad(err, "the Content-Disposition of a part cannot be read");
    }
    part->filename = better ? better : plain;
    if ((part->name && !is_text(part->name)) || (part->filename && !is_text(part->filename))) {
        return bad(err, "the name or filename of a part is not UTF-8, or has control characters");
    }
    return 0;
}

/* One line of it, terminated. */
static int read_line(char *line, bool *has_disposition, struct http_multipart_part *part,
                     struct error *err)
{
    char *value = strchr(line, ':');

    if (!value) {
        return bad(err, "a line of a part's header has no colon");
    }
    *value++ = '\0';
    if (!http_is_name(line) || !http_is_value(value)) {
        return bad(err, "a part's header has a name or a value that is not one");
    }
    value = skip_spaces(value);
    if (strcasecmp(line, "content-disposition") == 0) {
        if (*has_disposition) {
            return bad(err, "a part of the form has two Content-Dispositions");
        }
        *has_disposition = true;
        return read_disposition(value, part, err);
    }
    if (strcasecmp(line, "content-type") == 0) {
        return is_text(value) ? set_once(&part->content_type, value, err)
                              : bad(err, "the Content-Type of a part is not UTF-8");
    }
    return 0;
}

/* All of it is there, with the empty line. */
static int begin_part(struct http_multipart *form, struct error *err)
{
    struct http_multipart_part part = {0};
    bool has_disposition = false;
    char *line = form->head, *end;

    form->head[form->head_size] = '\0';
    if (strlen(form->head) != form->head_size) {
        return bad(err, "a part's header holds a NUL");
    }
    for (; (end = strstr(line, "\r\n")) != line; line = end + 2) {
        *end = '\0';
        if (read_line(line, &has_disposition, &part, err)) {
            return -1;
        }
    }
    if (!has_disposition) {
        return bad(err, "a part of the form has no Content-Disposition");
    }
    form->state = DATA;
    return form->calls.begin(form->arg, &part, err);
}

/* ---- the body ---- */

/* Bytes that are no boundary. */
static int pass_on(struct http_multipart *form, const char *data, size_t size, struct error *err)
{
    if (size == 0) {
        return 0;
    }
    if (form->state == DATA) {
        return form->calls.data(form->arg, data, size, err);
    }
    form->passed += size;
    return form->passed <= PREAMBLE_MAX
               ? 0
               : bad(err, "the form does not begin with the boundary that its Content-Type tells");
}

/* A boundary is whole. */
static int end_data(struct http_multipart *form, struct error *err)
{
    bool has_part = form->state == DATA;

    form->matched = 0;
    form->state = LINE;
    form->last = '\0';
    form->blanks = 0;
    form->head_size = 0;
    return has_part ? form->calls.end(form->arg, err) : 0;
}

/* A mark that began in what came before: whether it goes on. */
static int go_on(struct http_multipart *form, const char **data, size_t *size, struct error *err)
{
    size_t held = form->matched;

    while (*size > 0 && form->matched < form->mark_size) {
        if (**data != form->mark[form->matched]) {
            form->matched = 0;
            return pass_on(form, form->mark, held, err);
        }
        form->matched++;
        held = form->matched;
        (*data)++;
        (*size)--;
    }
    return form->matched == form->mark_size ? end_data(form, err) : 0;
}

/* Passes on what comes before a mark, or before what may become one. */
static int read_data(struct http_multipart *form, const char **data, size_t *size,
                     struct error *err)
{
    const char *start = *data, *end = start + *size, *at = start;

    for (; (at = memchr(at, '\r', (size_t)(end - at))) != NULL; at++) {
        size_t most = (size_t)(end - at) < form->mark_size ? (size_t)(end - at) : form->mark_size;
        if (memcmp(at, form->mark, most) == 0) {
            form->matched = most;
            break;
        }
    }
    at = at ? at : end;
    *data = at + form->matched;
    *size = (size_t)(end - *data);
    if (pass_on(form, start, (size_t)(at - start), err)) {
        return -1;
    }
    return form->matched == form->mark_size ? end_data(form, err) : 0;
}

/* A byte behind a boundary: "--", or blanks and the end of the line. */
static int read_line_end(struct http_multipart *form, char c, struct error *err)
{
    char last = form->last;

    form->last = c;
    if (last == '\r' && c == '\n') {
        form->state = HEAD;
        return 0;
    }
    if (last == '-' && c == '-') {
        form->state = AFTER;
        return 0;
    }
    if ((last == '\0' && c == '-') ||
        ((last == '\0' || is_space(last)) && (c == '\r' || (is_space(c) && form->blanks++ < 64)))) {
        return 0;
    }
    return bad(err, "a boundary of the form is followed by something else");
}

/* A byte of a part's header. */
static int read_head(struct http_multipart *form, char c, struct error *err)
{
    const char *end;

    if (form->head_size == HEAD_MAX) {
        return bad(err, "the header of a part is larger than 8 KiB");
    }
    form->head[form->head_size++] = c;
    end = form->head + form->head_size;
    if (c == '\n' && (form->head_size < 2 || end[-2] != '\r')) {
        return bad(err, "a line of a part's header does not end with CR LF");
    }
    if ((form->head_size == 2 && c == '\n') ||
        (form->head_size >= 4 && memcmp(end - 4, "\r\n\r\n", 4) == 0)) {
        return begin_part(form, err);
    }
    return 0;
}

static int read_some(struct http_multipart *form, const char **data, size_t *size,
                     struct error *err)
{
    switch (form->state) {
    case BEFORE:
    case DATA:
        return form->matched > 0 ? go_on(form, data, size, err) : read_data(form, data, size, err);
    case LINE:
        (*size)--;
        return read_line_end(form, *(*data)++, err);
    case HEAD:
        (*size)--;
        return read_head(form, *(*data)++, err);
    case AFTER:
        *size = 0;
        break;
    }
    return 0;
}

int http_multipart_feed(struct http_multipart *form, const void *data, size_t size,
                        struct error *err)
{
    const char *at = data;

    while (size > 0 && !form->is_broken) {
        form->is_broken = read_some(form, &at, &size, &form->error) != 0;
    }
    if (form->is_broken) {
        *err = form->error;
        return -1;
    }
    return 0;
}

int http_multipart_end(struct http_multipart *form, struct error *err)
{
    if (!form->is_broken && form->state != AFTER) {
        form->is_broken = true;
        bad(&form->error, "the form ends before its last boundary");
    }
    if (form->is_broken) {
        *err = form->error;
        return -1;
    }
    return 0;
}

/* ---- the whole ---- */

static bool is_boundary(const char *text)
{
    static const char others[] = "'()+_,-./:=? ";
    size_t size = strlen(text);

    for (const char *at = text; *at; at++) {
        bool is_word = (*at >= '0' && *at <= '9') || ((*at | 32) >= 'a' && (*at | 32) <= 'z');
        if (!is_word && !strchr(others, *at)) {
            return false;
        }
    }
    return size > 0 && size <= BOUNDARY_MAX && text[size - 1] != ' ';
}

/* Into `text`, which is cut up for it; NULL with the error. */
static const char *find_boundary(char *text, struct error *err)
{
    char *at = params_of(text, "multipart/form-data");
    const char *boundary = NULL;
    struct param param;
    int found = -1;

    while (at && (found = next_param(&at, &param)) == 0) {
        if (strcasecmp(param.name, "boundary") == 0) {
            if (boundary) {
                found = -1;
                break;
            }
            boundary = param.value;
        }
    }
    if (found < 0 || !boundary || !is_boundary(boundary)) {
        bad(err,
            "the Content-Type is not 'multipart/form-data; boundary=...' with a boundary of 1 to "
            "70 letters, digits or '()+_,-./:=?");
        return NULL;
    }
    return boundary;
}

struct http_multipart *http_multipart_new(const char *content_type,
                                          const struct http_multipart_calls *calls, void *arg,
                                          struct error *err)
{
    char text[TYPE_MAX] = "";
    struct http_multipart *form;
    const char *boundary;

    if (content_type && strlen(content_type) < sizeof(text)) {
        snprintf(text, sizeof(text), "%s", content_type);
    }
    boundary = find_boundary(text, err);
    if (!boundary) {
        return NULL;
    }
    form = calloc(1, sizeof(*form));
    if (!form) {
        error_set(err, "no_memory", 0, "there is no memory for one more form");
        return NULL;
    }
    form->calls = *calls;
    form->arg = arg;
    memcpy(form->mark, "\r\n--", 4);
    memcpy(form->mark + 4, boundary, strlen(boundary));
    form->mark_size = 4 + strlen(boundary);
    /* The first boundary may stand at the very start. */
    form->matched = 2;
    return form;
}

void http_multipart_free(struct http_multipart *form)
{
    free(form);
}
