/* Any bytes as a form: up to the first NUL what its Content-Type tells, then the body. Cut into however
 * many pieces, it must be the same form, or the same error. */
#include "http/multipart.h"
#include "seen.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int on_begin(void *arg, const struct http_multipart_part *part, struct error *err)
{
    const char *const told[] = {part->name, part->filename, part->content_type};
    struct seen *seen = arg;

    (void)err;
    must(!seen->is_open);
    seen->is_open = true;
    for (size_t i = 0; i < 3; i++) {
        if (told[i]) {
            must(strlen(told[i]) < 8192);
            for (const char *at = told[i]; *at; at++)
                must((unsigned char)*at >= 0x20);
            note(seen, told[i], strlen(told[i]) + 1);
        }
    }
    return 0;
}

static int on_data(void *arg, const void *data, size_t size, struct error *err)
{
    struct seen *seen = arg;

    (void)err;
    must(seen->is_open && size > 0);
    note(seen, data, size);
    return 0;
}

static int on_end(void *arg, struct error *err)
{
    struct seen *seen = arg;

    (void)err;
    must(seen->is_open);
    seen->is_open = false;
    note(seen, "\xff", 1);
    return 0;
}

static int read_form(const char *type, const char *body, size_t size, size_t step,
                     struct seen *seen)
{
    static const struct http_multipart_calls calls = {on_begin, on_data, on_end};
    struct error err = {0};
    struct http_multipart *form = http_multipart_new(type, &calls, seen, &err);
    int code = form ? 0 : -1;

    seen->size = 0;
    seen->is_open = false;
    for (size_t at = 0; code == 0 && at < size; at += step)
        code = http_multipart_feed(form, body + at, size - at < step ? size - at : step, &err);
    if (form && code == 0)
        code = http_multipart_end(form, &err);
    must(code == 0 || (err.code[0] && err.text[0]));
    must(code != 0 || !seen->is_open);
    http_multipart_free(form);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct seen one, other;
    const char *bytes = (const char *)data;
    const char *end = size > 0 && size <= INPUT_MAX ? memchr(bytes, '\0', size) : NULL;
    size_t body_size;
    int code;

    if (!end)
        return 0;
    body_size = size - (size_t)(end + 1 - bytes);
    code = read_form(bytes, end + 1, body_size, body_size ? body_size : 1, &one);
    must(read_form(bytes, end + 1, body_size, 1, &other) == code);
    must(seen_same(&one, &other));
    must(read_form(bytes, end + 1, body_size, 5, &other) == code);
    must(seen_same(&one, &other));
    return 0;
}
