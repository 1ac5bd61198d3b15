/* The parts of the HTTP room that know no socket: heads, forms, ranges, frames, the key of a WebSocket. */
#include "check.h"
#include "http/frames.h"
#include "http/multipart.h"
#include "http/parse.h"
#include "http/range.h"

#include <stdlib.h>
#include <string.h>

/* ---- heads ---- */

/* The search for the end and the parser each refuse such a line: neither relies on the other. */
static void test_no_line_ends_with_a_bare_lf(void)
{
    static const char *const heads[] = {
        "GET / HTTP/1.1\nHost: a\r\n\r\n",         "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: y\n",     "GET / HTTP/1.1\r\nHost: a\r\nx\n",
    };
    char whole[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n", target[64];
    struct http_refusal no = {0};
    struct http_head head;
    size_t scanned = 0, size = 0;

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        char text[64];

        scanned = 0;
        CHECK(http_scan_head(heads[i], strlen(heads[i]), &scanned, &size) == HTTP_SCAN_BAD,
              "head %zu is searched", i);
        (void)snprintf(text, sizeof(text), "%s", heads[i]);
        CHECK(http_parse_head(text, strlen(heads[i]), target, &head, &no) == -1 && no.status == 400,
              "head %zu is parsed", i);
    }
    scanned = 0;
    CHECK(http_scan_head(whole, strlen(whole), &scanned, &size) == HTTP_SCAN_WHOLE &&
              size == strlen(whole) && http_parse_head(whole, size, target, &head, &no) == 0,
          "with CR LF it is taken: %s", no.detail);
}

/* Byte by byte, whatever the parser makes of the rest. */
static void test_the_target_is_kept_as_it_was_sent(void)
{
    static const struct {
        const char *text, *target;
    } heads[] = {
        {"GET /a%2Fb//c?x=%41&y=+&&z HTTP/1.1\r\nHost: a\r\n\r\n", "/a%2Fb//c?x=%41&y=+&&z"},
        {"\r\nGET /hello?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", "/hello?x=1"},
        {"GET http://a/hello?x=%31 HTTP/1.1\r\nHost: a\r\n\r\n", "/hello?x=%31"},
        {"\r\nOPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "*"},
    };
    struct http_refusal no = {0};
    struct http_head head;

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        size_t size = strlen(heads[i].text);
        char *text = malloc(size + 1), *target = malloc(size);

        memcpy(text, heads[i].text, size);
        CHECK(http_parse_head(text, size, target, &head, &no) == 0 &&
                  strcmp(head.target, heads[i].target) == 0,
              "head %zu: %s, %s", i, head.target, no.detail ? no.detail : "taken");
        free(text);
        free(target);
    }
}

/* Each is one that two readers could see end in two places. */
static void test_an_answer_says_once_where_it_ends(void)
{
    static const struct {
        const char *fields;
        bool is_good;
    } heads[] = {
        {"", true},
        {"Content-Length: 2\r\n", true},
        {"Transfer-Encoding: Chunked\r\n", true},
        {"Content-Length: 2\r\nContent-Length: 3\r\n", false},
        {"Content-Length: 2\r\nX: y\r\ncontent-length: 2\r\n", false},
        {"Content-Length: 2, 3\r\n", false},
        {"Content-Length: 2, 2\r\n", false},
        {"Content-Length: +2\r\n", false},
        {"Content-Length: 0x2\r\n", false},
        {"Content-Length:\r\n", false},
        {"Content-Length: 18446744073709551618\r\n", false},
        {"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", false},
        {"transfer-encoding: chunked\r\ncontent-length: 2\r\n", false},
        {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", false},
        {"Transfer-Encoding: identity\r\n", false},
        {"Transfer-Encoding: x, chunked\r\n", false},
        {"Transfer-Encoding:\r\n", false},
    };
    static struct http_answer answer;

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        char text[256];

        (void)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n%s\r\n", heads[i].fields);
        CHECK((http_parse_answer(text, strlen(text), &answer) == 0) == heads[i].is_good, "%s",
              heads[i].fields);
    }
}

/* These have no body by their status: the one reader goes by that, another by the fields. */
static void test_an_answer_without_a_body_names_none(void)
{
    static const struct {
        unsigned status;
        const char *fields;
        bool is_good;
    } heads[] = {
        {204, "", true},
        {204, "Content-Length: 0\r\n", true},
        {204, "Content-Length: 00\r\n", true},
        {204, "Content-Length: 1\r\n", false},
        {204, "content-length: 010\r\n", false},
        {204, "Transfer-Encoding: chunked\r\n", false},
        {103, "Content-Length: 0\r\n", true},
        {100, "Content-Length: 5\r\n", false},
        {103, "transfer-encoding: chunked\r\n", false},
        {101, "Content-Length: 5\r\n", false},
        {101, "Transfer-Encoding: chunked\r\n", false},
        {199, "Transfer-Encoding: chunked\r\n", false},
        {205, "Content-Length: 0\r\n", true},
        {205, "Content-Length: 5\r\n", false},
        {304, "Content-Length: 5\r\n", true},
        {304, "Transfer-Encoding: chunked\r\n", true},
    };
    static struct http_answer answer;

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        char text[256];

        (void)snprintf(text, sizeof(text), "HTTP/1.1 %u Any\r\n%s\r\n", heads[i].status,
                       heads[i].fields);
        CHECK((http_parse_answer(text, strlen(text), &answer) == 0) == heads[i].is_good, "%u %s",
              heads[i].status, heads[i].fields);
    }
}

/* ---- forms ---- */

struct seen {
    char text[4096]; /* what came, part by part */
    size_t size;
    unsigned fail_at; /* the part whose beginning is an error */
    unsigned parts;
};

static void note(struct seen *seen, const char *data, size_t size)
{
    if (size < sizeof(seen->text) - seen->size) {
        memcpy(seen->text + seen->size, data, size);
        seen->size += size;
        seen->text[seen->size] = '\0';
    }
}

static int on_begin(void *arg, const struct http_multipart_part *part, struct error *err)
{
    struct seen *seen = arg;
    char line[1024];

    if (++seen->parts == seen->fail_at) {
        return error_set(err, "mine", 0, "not this one");
    }
    snprintf(line, sizeof(line), "<%s|%s|%s>", part->name ? part->name : "-",
             part->filename ? part->filename : "-", part->content_type ? part->content_type : "-");
    note(seen, line, strlen(line));
    return 0;
}

static int on_data(void *arg, const void *data, size_t size, struct error *err)
{
    (void)err;
    note(arg, data, size);
    return 0;
}

static int on_end(void *arg, struct error *err)
{
    (void)err;
    note(arg, "</>", 3);
    return 0;
}

static const struct http_multipart_calls calls = {on_begin, on_data, on_end};

/* 0 where it is whole; what came is in `seen`. */
static int read_form(const char *type, const char *body, size_t size, size_t step,
                     struct seen *seen, struct error *err)
{
    struct http_multipart *form = http_multipart_new(type, &calls, seen, err);
    int code = form ? 0 : -1;

    for (size_t at = 0; code == 0 && at < size; at += step) {
        size_t most = size - at < step ? size - at : step;
        /* A copy of its size, so that a byte too far is seen. */
        char *copy = malloc(most);
        memcpy(copy, body + at, most);
        code = http_multipart_feed(form, copy, most, err);
        free(copy);
    }
    if (form && code == 0) {
        code = http_multipart_end(form, err);
    }
    if (form && code) {
        struct error again = {0};
        CHECK(http_multipart_feed(form, "x", 1, &again) == -1 && !strcmp(again.text, err->text),
              "an error is not final");
        CHECK(http_multipart_end(form, &again) == -1, "an error is forgotten at the end");
    }
    http_multipart_free(form);
    return code;
}

#define TYPE "multipart/form-data; boundary=b"
#define DISPOSITION "Content-Disposition: form-data; name=\"file\"; filename=\"/a b\"\r\n"

static void check_form(const char *type, const char *body, const char *want)
{
    size_t size = strlen(body);

    for (size_t step = 1; step <= size; step = step < 20 ? step + 1 : step * 2) {
        struct seen seen = {0};
        struct error err = {0};
        int code = read_form(type, body, size, step, &seen, &err);
        CHECK(code == 0 && strcmp(seen.text, want) == 0, "in steps of %zu: %s: %s", step, err.text,
              seen.text);
    }
}

static void check_bad_form(const char *type, const char *body, const char *why)
{
    size_t size = strlen(body);

    for (size_t step = 1; step < 4 * size; step = step * 3 + 1) {
        struct seen seen = {0};
        struct error err = {0};
        int code = read_form(type, body, size, step, &seen, &err);
        CHECK(code == -1 && strcmp(err.code, "bad_request") == 0 && strstr(err.text, why),
              "'%s' in steps of %zu: %s", body, step, err.text);
    }
}

static void test_forms(void)
{
    check_form(TYPE, "--b--", "");
    check_form(TYPE, "--b--\r\n", "");
    check_form(TYPE, "--b\r\n" DISPOSITION "\r\nhello\r\n--b--\r\n", "<file|/a b|->hello</>");
    check_form(TYPE, "--b\r\n" DISPOSITION "\r\n\r\n--b--", "<file|/a b|-></>");
    check_form(TYPE, "some words\r\nbefore\r\n--b \t \r\n" DISPOSITION "\r\nx\r\n--b-- and behind",
               "<file|/a b|->x</>");
    check_form(TYPE,
               "--b\r\n" DISPOSITION "Content-Type: text/x; y\r\nX-Other: 1\r\n\r\n1\r\n--b\r\n"
               "content-disposition:form-data\r\n\r\n2\r\n--b--\r\n",
               "<file|/a b|text/x; y>1</><-|-|->2</>");
    /* What looks like a boundary and is none. */
    check_form(TYPE,
               "--b\r\n" DISPOSITION "\r\n\r\r\n\r\n-\r\n--\r\n--a\r\n-b--b\n--b\r--b\r\r\n--b--",
               "<file|/a b|->\r\r\n\r\n-\r\n--\r\n--a\r\n-b--b\n--b\r--b\r</>");
    check_form("Multipart/Form-Data ; charset=x; BOUNDARY=\"a b'c\" ",
               "--a b'c\r\n" DISPOSITION "\r\n1\r\n--a b'c--", "<file|/a b|->1</>");
}

static void check_name(const char *params, const char *want)
{
    char body[1024], text[512];

    snprintf(body, sizeof(body), "--b\r\nContent-Disposition: form-data; %s\r\n\r\n1\r\n--b--",
             params);
    snprintf(text, sizeof(text), "<%s|->1</>", want);
    check_form(TYPE, body, text);
}

static void test_names(void)
{
    check_name("name=\"a\"; filename=\"b \\\"c\\\" \\\\d\"", "a|b \"c\" \\d");
    check_name("filename=\"C:\\dir\\x\"", "-|C:\\dir\\x");
    check_name("filename=\"100%25 %22.txt\"", "-|100%25 %22.txt");
    check_name("filename=\"a; name=b\" ; name=c", "c|a; name=b");
    check_name("name=plain ;filename=/x/y.z;", "plain|/x/y.z");
    check_name("name=\"\"; filename=\"\"", "|");
    check_name("filename=\"\xc3\xa4\xf0\x9f\x98\x80\"", "-|\xc3\xa4\xf0\x9f\x98\x80");
    check_name("filename=\"worse\"; filename*=UTF-8''%2Fb%C3%A4%20%22", "-|/b\xc3\xa4 \"");
    check_name("filename*=utf-8'en'x; filename=worse", "-|x");
}

static void test_bad_forms(void)
{
    static const char *const types[] = {
        NULL,
        "",
        "text/plain; boundary=b",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=b; boundary=c",
        "multipart/form-datax; boundary=b",
        "multipart/form-data; boundary=\"b ",
        "multipart/form-data; boundary=\"b \"",
        "multipart/form-data; boundary=b\"c",
        "multipart/form-data; boundary=a@b",
        "multipart/form-data; boundary=\xc3\xa4",
    };
    char type[sizeof(TYPE) + 70] = TYPE;
    struct http_multipart *form;
    struct seen seen = {0};
    struct error err = {0};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        form = http_multipart_new(types[i], &calls, &seen, &err);
        CHECK(!form && strcmp(err.code, "bad_request") == 0, "%s", types[i] ? types[i] : "none");
        http_multipart_free(form);
    }
    memset(type + sizeof(TYPE) - 1, 'b', 70);
    CHECK(!http_multipart_new(type, &calls, &seen, &err), "a boundary of 71");
    type[sizeof(type) - 2] = '\0';
    http_multipart_free(form = http_multipart_new(type, &calls, &seen, &err));
    CHECK(form != NULL, "a boundary of 70: %s", err.text);
    check_bad_form(TYPE, "nothing", "before its last boundary");
    check_bad_form(TYPE, "--b\r\n" DISPOSITION "\r\nhello", "before its last boundary");
    check_bad_form(TYPE, "--b\r\n" DISPOSITION "\r\nhello\r\n--b-", "before its last boundary");
    check_bad_form(TYPE, "--b\r\n\r\nhello\r\n--b--", "no Content-Disposition");
    check_bad_form(TYPE, "--b\r\nX: y\r\n\r\nhello\r\n--b--", "no Content-Disposition");
    check_bad_form(TYPE, "--b\r\n" DISPOSITION DISPOSITION "\r\n", "two Content-Dispositions");
    check_bad_form(TYPE, "--b\n" DISPOSITION "\r\n", "followed by something else");
    check_bad_form(TYPE, "--bc\r\n" DISPOSITION "\r\n", "followed by something else");
    check_bad_form(TYPE, "--b -\r\n" DISPOSITION "\r\n", "followed by something else");
    check_bad_form(TYPE, "--b-\r\n" DISPOSITION "\r\n", "followed by something else");
    check_bad_form(TYPE, "--b\r\n" DISPOSITION "\r\n1\r\n--bb\r\n--b--",
                   "followed by something else");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: form-data\n\r\n", "does not end with CR LF");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: attachment\r\n\r\n", "not form-data");
    check_bad_form(TYPE, "--b\r\nno colon\r\n\r\n", "no colon");
    check_bad_form(TYPE, "--b\r\nA B: c\r\n\r\n", "not one");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\n",
                   "cannot be read");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: form-data; name = x\r\n\r\n",
                   "cannot be read");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n", "twice");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: form-data; filename=\"\xff\"\r\n\r\n",
                   "UTF-8");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: form-data; filename=\"a\tb\"\r\n\r\n",
                   "control");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: form-data; filename*=latin1''a\r\n\r\n",
                   "percent-encoded");
    check_bad_form(TYPE, "--b\r\nContent-Disposition: form-data; filename*=UTF-8''%00\r\n\r\n",
                   "percent-encoded");
}

static void test_limits_of_forms(void)
{
    static char body[40000];
    struct seen seen = {.fail_at = 2};
    struct error err = {0};
    size_t size;

    memset(body, 'p', sizeof(body));
    CHECK(read_form(TYPE, body, 20000, 100, &seen, &err) == -1 &&
              strstr(err.text, "does not begin"),
          "a preamble without end: %s", err.text);
    size = (size_t)snprintf(body, sizeof(body), "--b\r\nX: ");
    memset(body + size, 'h', 20000);
    CHECK(read_form(TYPE, body, 20000, 100, &seen, &err) == -1 && strstr(err.text, "8 KiB"),
          "a header without end: %s", err.text);
    memset(body + 3, ' ', 20000);
    CHECK(read_form(TYPE, body, 20000, 100, &seen, &err) == -1 &&
              strstr(err.text, "something else"),
          "blanks without end: %s", err.text);
    size = (size_t)snprintf(body, sizeof(body),
                            "--b\r\n" DISPOSITION "\r\n1\r\n--b\r\n" DISPOSITION "\r\n2\r\n--b--");
    CHECK(read_form(TYPE, body, size, 7, &seen, &err) == -1 && strcmp(err.code, "mine") == 0,
          "the error of a call: %s", err.text);
}

/* ---- ranges ---- */

static void check_range(const char *value, uint64_t size, enum http_range_kind want,
                        uint64_t offset, uint64_t length)
{
    struct http_range range;
    enum http_range_kind kind = http_range_parse(value, size, &range);

    CHECK(kind == want, "%s of %llu: %d", value ? value : "none", (unsigned long long)size,
          (int)kind);
    CHECK(kind != HTTP_RANGE_PART || (range.offset == offset && range.length == length),
          "%s of %llu: %llu + %llu", value ? value : "none", (unsigned long long)size,
          (unsigned long long)range.offset, (unsigned long long)range.length);
}

static void test_ranges(void)
{
    static const char *const ignored[] = {
        "",           "bytes",      "bytes=",        "bytes=-",    "bytes=5",    "bytes=5-4",
        "bytes=a-b",  "bytes=1-2x", "bytes=0-1,3-4", "bytes= 1-2", "bytes=1 -2", "bytes=+1-2",
        "bytes=0x1-", "items=0-1",  "bytes:0-1",     "bytes=--1",  "bytes=-1-2",
    };

    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        check_range(ignored[i], 100, HTTP_RANGE_WHOLE, 0, 0);
    }
    check_range(NULL, 100, HTTP_RANGE_WHOLE, 0, 0);
    check_range("bytes=0-0", 100, HTTP_RANGE_PART, 0, 1);
    check_range("Bytes=10-19", 100, HTTP_RANGE_PART, 10, 10);
    check_range("bytes=10-", 100, HTTP_RANGE_PART, 10, 90);
    check_range("bytes=99-", 100, HTTP_RANGE_PART, 99, 1);
    check_range("bytes=0-99", 100, HTTP_RANGE_PART, 0, 100);
    check_range("bytes=0-100", 100, HTTP_RANGE_PART, 0, 100);
    check_range("bytes=5-99999999999999999999999", 100, HTTP_RANGE_PART, 5, 95);
    check_range("bytes=-1", 100, HTTP_RANGE_PART, 99, 1);
    check_range("bytes=-100", 100, HTTP_RANGE_PART, 0, 100);
    check_range("bytes=-99999999999999999999999", 100, HTTP_RANGE_PART, 0, 100);
    check_range("bytes=100-", 100, HTTP_RANGE_NONE, 0, 0);
    check_range("bytes=99999999999999999999999-", 100, HTTP_RANGE_NONE, 0, 0);
    check_range("bytes=-0", 100, HTTP_RANGE_NONE, 0, 0);
    check_range("bytes=0-", 0, HTTP_RANGE_NONE, 0, 0);
    check_range("bytes=-5", 0, HTTP_RANGE_WHOLE, 0, 0);
    check_range("bytes=0-", UINT64_MAX, HTTP_RANGE_PART, 0, UINT64_MAX);
    check_range("bytes=1-18446744073709551614", UINT64_MAX, HTTP_RANGE_PART, 1, UINT64_MAX - 1);
}

/* ---- WebSocket ---- */

static void test_keys(void)
{
    static const char *const bad[] = {"",
                                      "dGhlIHNhbXBsZSBub25jZQ=",
                                      "dGhlIHNhbXBsZSBub25jZQ===",
                                      "dGhlIHNhbXBsZSBub25jZR==",
                                      "dGhlIHNhbXBsZSBub25j!Q==",
                                      "dGhlIHNhbXBsZSBub25jZ===",
                                      "AAAAAAAAAAAAAAAAAAAAAAAA"};
    char answer[29];

    /* The example of RFC 6455. */
    CHECK(http_key_is_sane("dGhlIHNhbXBsZSBub25jZQ=="), "the RFC's key");
    http_key_answer("dGhlIHNhbXBsZSBub25jZQ==", answer);
    CHECK(strcmp(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") == 0, "%s", answer);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK(!http_key_is_sane(bad[i]), "%s", bad[i]);
    }
}

/* The examples of RFC 6455, section 5.7. */
static void test_frames(void)
{
    static const char hello[] = "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    struct http_frames frames = {.message_max = 10};
    struct http_framed framed;
    const char *at = hello;
    size_t size = sizeof(hello) - 1;
    unsigned char head[HTTP_FRAME_HEAD_MAX];

    CHECK(http_frame_next(&frames, &at, &size, &framed) == HTTP_FRAME_TEXT && framed.size == 5 &&
              memcmp(framed.data, "Hello", 6) == 0 && size == 0,
          "a masked text");
    at = hello;
    for (size_t i = 0; i < sizeof(hello) - 2; i++) {
        size = 1;
        CHECK(http_frame_next(&frames, &at, &size, &framed) == HTTP_FRAME_MORE, "byte %zu", i);
    }
    size = 1;
    CHECK(http_frame_next(&frames, &at, &size, &framed) == HTTP_FRAME_TEXT &&
              memcmp(framed.data, "Hello", 6) == 0,
          "byte by byte");
    CHECK(http_frame_head(head, HTTP_OP_TEXT, 5) == 2 && memcmp(head, "\x81\x05", 2) == 0, "small");
    CHECK(http_frame_head(head, HTTP_OP_BINARY, 256) == 4 &&
              memcmp(head, "\x82\x7e\x01\x00", 4) == 0,
          "medium");
    CHECK(http_frame_head(head, HTTP_OP_BINARY, 65536) == 10 &&
              memcmp(head, "\x82\x7f\0\0\0\0\0\x01\0\0", 10) == 0,
          "large");
    http_frames_free(&frames);
}

int main(void)
{
    test_no_line_ends_with_a_bare_lf();
    test_the_target_is_kept_as_it_was_sent();
    test_an_answer_says_once_where_it_ends();
    test_an_answer_without_a_body_names_none();
    test_forms();
    test_names();
    test_bad_forms();
    test_limits_of_forms();
    test_ranges();
    test_keys();
    test_frames();
    return check_finish();
}
