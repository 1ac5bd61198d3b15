/* Any bytes as the body of any request: taken or refused with a code and a sentence, and what was taken is
 * within the ranges that the engine relies on. The first byte says which request. */
#include "base/utf8.h"
#include "front/native/body.h"
#include "front/native/lines.h"
#include "front/native/origin.h"
#include "front/native/text.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define INPUT_MAX 65536
#define NOW_MS 1900000000000ULL

static void check_refusal(int status, const struct error *err)
{
    must(status == 0 || (err->code[0] != '\0' && err->text[0] != '\0'));
}

static void check_pairs(const char *const *pairs)
{
    for (; pairs != NULL && *pairs != NULL; pairs++)
        must(strchr(*pairs, '=') != NULL && **pairs != '=' &&
             utf8_is_valid(*pairs, strlen(*pairs)));
}

static int try_sandbox(const char *data, size_t size, struct error *err)
{
    struct body_sandbox body;
    int status = body_sandbox((struct read_body){data, size, NULL}, NOW_MS, &body, err);

    if (status == 0) {
        const struct sandbox_spec *spec = &body.spec;

        check_pairs(spec->labels);
        check_pairs(spec->env);
        must(spec->name == NULL || (*spec->name != '\0' && strlen(spec->name) <= ENGINE_NAME_MAX));
        must(spec->deadline_ms == 0 || spec->deadline_ms > NOW_MS);
        must(spec->mounts_count <= KEEPER_MOUNTS_MAX);
        for (size_t i = 0; i < spec->mounts_count; i++)
            must(spec->mounts[i].target[0] == '/' && spec->mounts[i].name[0] != '\0');
    }
    read_free(&body.owner);
    return status;
}

static int try_process(const char *data, size_t size, bool is_exec, struct error *err)
{
    struct body_process body;
    int status = body_process((struct read_body){data, size, NULL}, is_exec, &body, err);

    if (status == 0) {
        must((body.spec.argv == NULL) != (body.spec.shell_line == NULL));
        must(body.spec.argv == NULL || body.spec.argv[0] != NULL);
        must(body.spec.timeout_ms <= BODY_TIME_MAX_MS && body.output_limit <= BODY_OUTPUT_MAX);
        must(body.spec.cwd == NULL || body.spec.cwd[0] == '/');
        check_pairs(body.spec.env);
    }
    read_free(&body.owner);
    return status;
}

static int try_change(const char *data, size_t size, struct error *err)
{
    struct body_change body;
    int status = body_change((struct read_body){data, size, NULL}, NOW_MS, &body, err);

    if (status == 0)
        check_pairs(body.change.labels);
    read_free(&body.owner);
    return status;
}

static int try_key(const char *data, size_t size, struct error *err)
{
    struct body_key body;
    int status = body_key((struct read_body){data, size, NULL}, &body, err);

    must(status < 0 || (body.scopes != 0 && body.scopes <= ENGINE_ALL && body.label != NULL));
    read_free(&body.owner);
    return status;
}

/* Bytes of a box as lines, cut at every 7th byte: valid UTF-8 comes out, whatever went in. */
static void try_lines(const char *data, size_t size)
{
    struct lines lines = {.stream = "stdout"};
    char buffer[LINES_ROOM + 7];
    struct out out = {0};

    for (size_t at = 0; at < size; at += 7) {
        size_t part = size - at < 7 ? size - at : 7;

        memcpy(buffer + LINES_ROOM, data + at, part);
        lines_add(&lines, &out, at, buffer + LINES_ROOM, part);
    }
    lines_end(&lines, &out);
    must(lines.at == size && utf8_is_valid(out.data != NULL ? out.data : "", out.used));
    out_free(&out);
}

static void try_host(const char *data, size_t size)
{
    static const char *const hosts[] = {"cove.example.com", "[fd00::1]:7070", NULL};
    char *text = malloc(size + 1);

    if (text == NULL)
        return;
    memcpy(text, data, size);
    text[size] = '\0';
    if (origin_host_is_known(text, hosts))
        must(strpbrk(text, "@/ ,\\") == NULL);
    (void)origin_is_host(text, "127.0.0.1:7070");
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    const char *data = (const char *)input + 1;
    struct error err = {0};
    struct engine_quota quota;
    int number = 0;

    if (size < 1 || size > INPUT_MAX)
        return 0;
    size--;
    switch (input[0]) {
    case 's':
        check_refusal(try_sandbox(data, size, &err), &err);
        break;
    case 'c':
        check_refusal(try_change(data, size, &err), &err);
        break;
    case 'e':
    case 'p':
        check_refusal(try_process(data, size, input[0] == 'e', &err), &err);
        break;
    case 'n':
        check_refusal(body_signal((struct read_body){data, size, NULL}, &number, &err), &err);
        break;
    case 'k':
        check_refusal(try_key(data, size, &err), &err);
        break;
    case 'q':
        check_refusal(body_quota((struct read_body){data, size, NULL}, &quota, &err), &err);
        break;
    case 'h':
        try_host(data, size);
        break;
    default:
        try_lines(data, size);
        break;
    }
    return 0;
}
