/* The client reads from a server that may say anything: addresses, heads, chunks,
 * and the texts that it shows to people. */
#include "base/fd.h"
#include "check.h"
#include "cmd/api.h"
#include "cmd/options.h"
#include "cmd/show.h"
#include "cmd/wire.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- addresses ---- */

static void test_addresses_of_servers(void)
{
    static const struct {
        const char *text, *host, *port, *header;
        bool is_loopback, is_tls;
    } good[] = {
        {"http://localhost", "localhost", "80", "localhost", true, false},
        {"http://127.0.0.1:7070", "127.0.0.1", "7070", "127.0.0.1:7070", true, false},
        {"http://127.0.0.1:7070/", "127.0.0.1", "7070", "127.0.0.1:7070", true, false},
        {"HTTP://[::1]:7070", "::1", "7070", "[::1]:7070", true, false},
        {"http://[::1]", "::1", "80", "[::1]", true, false},
        {"http://example.org:1", "example.org", "1", "example.org:1", false, false},
        {"http://127.evil.example", "127.evil.example", "80", "127.evil.example", false, false},
        {"https://example.org", "example.org", "443", "example.org", false, true},
        {"HTTPS://localhost:8443/", "localhost", "8443", "localhost:8443", true, true},
    };
    struct wire_address address;
    struct error err;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        err.text[0] = '\0';
        CHECK(wire_address_parse(good[i].text, &address, &err) == 0, "%s: %s", good[i].text,
              err.text);
        CHECK(!address.is_unix && strcmp(address.host, good[i].host) == 0 &&
                  strcmp(address.port, good[i].port) == 0 &&
                  strcmp(address.header, good[i].header) == 0 &&
                  address.is_loopback == good[i].is_loopback && address.is_tls == good[i].is_tls,
              "%s: %s %s %s", good[i].text, address.host, address.port, address.header);
    }
    CHECK(wire_address_parse("unix:/run/x.sock", &address, &err) == 0 && address.is_unix &&
              strcmp(address.path, "/run/x.sock") == 0,
          "unix:");
    CHECK(wire_address_parse("unix:///run/x.sock", &address, &err) == 0 &&
              strcmp(address.path, "/run/x.sock") == 0,
          "unix://");
}

static void test_what_is_no_address_is_refused(void)
{
    static const char *const bad[] = {
        "",
        "localhost:7070",
        "ftp://x",
        "http://",
        "http:///",
        "http://:80",
        "http://h:0",
        "http://h:65536",
        "http://h:123456",
        "http://h:8x",
        "http://h:",
        "http://h/path",
        "http://h?q",
        "http://h#f",
        "http://u:p@h",
        "http://h\r\nX: y",
        "http://h h",
        "http://h\x7f",
        "http://[::1",
        "http://[::1]x",
        "http://[g]",
        "http://[]",
        "http://h:1:2",
        "unix:",
        "unix:relative",
        "unix://relative",
        "http://\xc3\xa9",
    };
    char long_host[400] = "http://";
    char long_path[200] = "unix:/";
    struct wire_address address;
    struct error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(wire_address_parse(bad[i], &address, &err) < 0 && strcmp(err.code, "bad_url") == 0,
              "%s was taken", bad[i]);
    memset(long_host + 7, 'a', 300);
    CHECK(wire_address_parse(long_host, &address, &err) < 0, "a long host was taken");
    memset(long_path + 6, 'a', 120);
    CHECK(wire_address_parse(long_path, &address, &err) < 0, "a long path was taken");
    (void)wire_address_parse("http://user:secret@host", &address, &err);
    CHECK(strstr(err.text, "secret") == NULL, "a password is shown: %s", err.text);
}

/* ---- heads ---- */

/* Parses a copy of exactly its size, so that a read beyond it is seen. */
static int head_parse(const char *text, struct wire_head *head, char **copy, struct error *err)
{
    size_t size = strlen(text);

    *copy = malloc(size);
    memcpy(*copy, text, size);
    *err = (struct error){0};
    CHECK(wire_head_length(*copy, size) == size, "the length of %s", text);
    return wire_head_parse(*copy, size, head, err);
}

static void test_heads(void)
{
    struct wire_head head;
    struct error err;
    char *copy;

    CHECK(head_parse("HTTP/1.1 200 OK\r\nContent-Length:  12 \r\nX-Empty:\r\n\r\n", &head, &copy,
                     &err) == 0,
          "%s", err.text);
    CHECK(head.status == 200 && head.has_length && head.length == 12 && !head.closes, "length");
    CHECK(strcmp(wire_header_get(&head, "x-empty"), "") == 0, "an empty header");
    CHECK(wire_header_get(&head, "other") == NULL, "a header that is not there");
    free(copy);
    CHECK(head_parse("HTTP/1.1 404\r\nTransfer-Encoding: Chunked\r\nConnection: x, Close\r\n\r\n",
                     &head, &copy, &err) == 0,
          "%s", err.text);
    CHECK(head.status == 404 && head.is_chunked && head.closes, "chunked, close");
    free(copy);
    CHECK(head_parse("HTTP/1.1 204 No\r\n\r\n", &head, &copy, &err) == 0 && !head.closes, "204");
    free(copy);
    CHECK(head_parse("HTTP/1.1 200 OK\r\n\r\n", &head, &copy, &err) == 0 && head.closes,
          "a body without a length lasts as long as the connection");
    free(copy);
    CHECK(head_parse("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", &head, &copy, &err) == 0 &&
              head.closes,
          "HTTP/1.0");
    free(copy);
}

static void test_bad_heads_are_refused(void)
{
    static const char *const bad[] = {
        "\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000\r\n\r\n",
        "HTTP/1.1 099 X\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: v\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : v\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: v\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: v\nB: w\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: v\rB: w\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
    };
    char nul[] = "HTTP/1.1 200 OK\r\nA: \0v\r\n\r\n";
    struct wire_head head;
    struct error err;
    char *copy;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK(head_parse(bad[i], &head, &copy, &err) < 0 && strcmp(err.code, "bad_answer") == 0,
              "number %zu was taken: %s", i, bad[i]);
        free(copy);
    }
    CHECK(wire_head_parse(nul, sizeof(nul) - 1, &head, &err) < 0, "a NUL was taken");
    CHECK(wire_head_length("HTTP/1.1 200 OK\r\nA: b\r\n\r", 25) == 0, "half a head");
}

static void test_a_head_has_so_many_headers_and_no_more(void)
{
    struct wire_head head;
    struct error err;
    char text[4096];
    char *copy;

    for (int more = 0; more < 2; more++) {
        size_t used = (size_t)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n");

        for (int i = 0; i < WIRE_HEADERS_MAX + more; i++)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "A: b\r\n");
        (void)snprintf(text + used, sizeof(text) - used, "\r\n");
        CHECK((head_parse(text, &head, &copy, &err) == 0) == (more == 0), "%d more: %s", more,
              err.text);
        free(copy);
    }
    CHECK(head.headers_count == WIRE_HEADERS_MAX, "%zu", head.headers_count);
}

/* ---- chunks ---- */

/* Decodes `text` in pieces of `step` bytes; the content, to be freed, or NULL. `*ended`: the end came. */
static char *chunks_decode(const char *text, size_t step, bool *ended)
{
    struct wire_chunks chunks = {0};
    size_t size = strlen(text);
    char *content = calloc(1, size + 1);
    size_t used = 0;
    struct error err;

    for (size_t at = 0; at < size && chunks.state != WIRE_CHUNK_END; at += step) {
        size_t piece = size - at < step ? size - at : step;
        char *copy = malloc(piece);
        size_t got;
        ssize_t taken;

        memcpy(copy, text + at, piece);
        taken = wire_chunks_take(&chunks, copy, piece, &got, &err);
        if (taken >= 0)
            memcpy(content + used, copy, got);
        free(copy);
        if (taken < 0) {
            free(content);
            return NULL;
        }
        used += got;
        CHECK((size_t)taken == piece || chunks.state == WIRE_CHUNK_END, "it stopped early");
    }
    *ended = chunks.state == WIRE_CHUNK_END;
    return content;
}

static void test_chunks_in_pieces_of_any_size(void)
{
    static const char text[] = "5\r\nhello\r\n001;a=\"b\"\r\n,\r\nA \r\n world\r\n12\r\n"
                               "0;x\r\nTrailer: y\r\n\r\n";
    bool ended;

    for (size_t step = 1; step <= sizeof(text); step++) {
        char *content = chunks_decode(text, step, &ended);

        CHECK(content != NULL && ended && strcmp(content, "hello, world\r\n12") == 0,
              "step %zu: %s", step, content == NULL ? "refused" : content);
        free(content);
    }
}

static void test_what_follows_the_last_chunk_is_left_alone(void)
{
    struct wire_chunks chunks = {0};
    char text[] = "1\r\nx\r\n0\r\n\r\nHTTP/1.1";
    struct error err;
    size_t content;

    CHECK(wire_chunks_take(&chunks, text, sizeof(text) - 1, &content, &err) == 11 && content == 1,
          "it took what is not its own");
}

static void test_bad_chunks_are_refused(void)
{
    static const char *const bad[] = {
        "\r\n",
        "g\r\n",
        "-1\r\nx\r\n",
        " 1\r\nx\r\n",
        "1\nx\r\n",
        "1\rx\r\n",
        "1\r\nxx\r\n",
        "1\r\nx\n0\r\n\r\n",
        "1\r\nx\rX",
        "1;a\nb\r\nx\r\n",
        "0x1\r\nx\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000000\r\n",
        "0000000000000000001\r\nx\r\n",
        "0\r\nA: b\nC\r\n\r\n",
        "0\r\nA: b\r\rC\r\n\r\n",
    };
    bool ended;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        for (size_t step = 1; step < 8; step++) {
            char *content = chunks_decode(bad[i], step, &ended);

            CHECK(content == NULL, "number %zu was taken: %s", i, bad[i]);
            free(content);
        }
}

static void test_chunks_do_not_go_on_for_ever_without_content(void)
{
    static const char *const starts[] = {"1;", "0\r\n"};
    bool ended;

    for (size_t i = 0; i < 2; i++) {
        char *text = malloc(40001);
        char *content;

        memset(text, 'a', 40000);
        text[40000] = '\0';
        memcpy(text, starts[i], strlen(starts[i]));
        content = chunks_decode(text, 1000, &ended);
        CHECK(content == NULL, "endless %s was taken", starts[i]);
        free(content);
        free(text);
    }
}

/* ---- texts ---- */

static void test_paths_are_encoded(void)
{
    char path[API_PATH_MAX];
    char name[2000];
    char small[8] = "/";
    struct error err;

    CHECK(api_sandbox_path(path, "a/b ?&#%\xc3\xa9", "/exec", &err) == 0 &&
              strcmp(path, "/v1/sandboxes/name:a%2Fb%20%3F%26%23%25%C3%A9/exec") == 0,
          "%s", path);
    CHECK(api_sandbox_path(path, "c0abcdefghij01234567", "", &err) == 0 &&
              strcmp(path, "/v1/sandboxes/c0abcdefghij01234567") == 0,
          "an id: %s", path);
    CHECK(api_sandbox_path(path, "name:c0abcdefghij01234567", "", &err) == 0 &&
              strcmp(path, "/v1/sandboxes/name:c0abcdefghij01234567") == 0,
          "a name like an id: %s", path);
    CHECK(api_sandbox_path(path, "..", "", &err) == 0 &&
              strcmp(path, "/v1/sandboxes/name:%2E%2E") == 0,
          "dots: %s", path);
    CHECK(api_process_path(path, "/v1/sandboxes/name:w", "../x", &err) == 0 &&
              strcmp(path, "/v1/sandboxes/name:w/processes/..%2Fx") == 0,
          "%s", path);
    CHECK(api_sandbox_path(path, "", "", &err) < 0 && api_sandbox_path(path, "name:", "", &err) < 0,
          "an empty name was taken");
    memset(name, '/', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    CHECK(api_sandbox_path(path, name, "", &err) < 0, "a name without end was taken");
    CHECK(!wire_encode(small, sizeof(small), "////"), "more than fits was taken");
}

/* ---- what people see ---- */

static void test_nothing_that_steers_a_terminal_is_shown(void)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"plain \xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x99\x82",
         "plain \xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x99\x82"},
        {"\x1b[2J\a\n\r\t\x7f", "\\x1b[2J\\x07\\x0a\\x0d\\x09\\x7f"},
        {"\xc2\x9b"
         "31m",
         "\\x9b31m"}, /* CSI as one character */
        {"\x9b"
         "31m",
         "\\x9b31m"}, /* and as a byte that is no UTF-8 */
        {"a\xe2\x80\xae"
         "b",
         "a\\u{202e}b"}, /* turns the direction */
        {"a\xe2\x80\x8b"
         "b",
         "a\\u{200b}b"}, /* has no width */
        {"\xe2\x81\xa6\xef\xbb\xbf", "\\u{2066}\\u{feff}"},
        {"\xf3\xa0\x81\x81", "\\u{e0041}"}, /* a tag */
        {"\xc0\x80\xed\xa0\x80\xff", "\\xc0\\x80\\xed\\xa0\\x80\\xff"},
        {"\xe6\xbc", "\\xe6\\xbc"},
    };
    char shown[128];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        show_escape(shown, sizeof(shown), cases[i].text);
        CHECK(strcmp(shown, cases[i].shown) == 0, "number %zu: %s", i, shown);
    }
    for (size_t size = 1; size < 12; size++) {
        char *room = malloc(size);

        show_escape(room, size, "\x1b\xe6\xbc\xa2\x1b");
        CHECK(strlen(room) < size, "size %zu", size);
        free(room);
    }
}

static void test_sizes_and_spans(void)
{
    char text[SHOW_VALUE_MAX];

    CHECK(strcmp(show_size(0, text), "0") == 0, "%s", text);
    CHECK(strcmp(show_size(1023, text), "1023") == 0, "%s", text);
    CHECK(strcmp(show_size(1024, text), "1K") == 0, "%s", text);
    CHECK(strcmp(show_size(1536, text), "1.5K") == 0, "%s", text);
    CHECK(strcmp(show_size(512ULL << 20, text), "512M") == 0, "%s", text);
    CHECK(strcmp(show_size(UINT64_MAX, text), "15E") == 0, "%s", text);
    CHECK(strcmp(show_span(0, text), "0s") == 0, "%s", text);
    CHECK(strcmp(show_span(119999, text), "119s") == 0, "%s", text);
    CHECK(strcmp(show_span(3600000, text), "60m") == 0, "%s", text);
    CHECK(strcmp(show_span(86400000, text), "24h") == 0, "%s", text);
    CHECK(strcmp(show_span(10 * 86400000ULL, text), "10d") == 0, "%s", text);
    CHECK(strcmp(show_age("nonsense", text), "-") == 0, "%s", text);
}

/* ---- options ---- */

struct taken {
    struct options_common common;
    const char *value;
};

static int take_value(void *into, const char *value, struct error *err)
{
    (void)err;
    ((struct taken *)into)->value = value;
    return 0;
}

static const struct option_row rows[] = {
    {"value", "TEXT", NULL, "a value", take_value, 'v', 0},
    OPTION_JSON("a switch"),
    OPTION_HELP,
};

static int words_parse(const struct option_table *table, struct taken *taken,
                       struct option_words *words, const char *const *list)
{
    static char storage[8][32];
    static char *argv[9];
    int argc = 0;
    struct error err;

    for (; list[argc] != NULL; argc++) {
        (void)snprintf(storage[argc], sizeof(storage[0]), "%s", list[argc]);
        argv[argc] = storage[argc];
    }
    argv[argc] = NULL;
    *taken = (struct taken){0};
    return options_parse(table, taken, argc, argv, words, &err);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_options_stand_anywhere_unless_a_command_follows(void)
{
    const struct option_table mixed = {.command = "x", .rows = rows, .rows_count = 3, .words = 2};
    const struct option_table follows = {
        .command = "x", .rows = rows, .rows_count = 3, .words = 1, .command_follows = true};
    const struct option_table many = {.command = "x", .rows = rows, .rows_count = 3, .many = true};
    struct option_words words;
    struct taken taken;

    CHECK(words_parse(&mixed, &taken, &words, WORDS("x", "a", "-v", "b", "c", "--json")) == 0 &&
              words.count == 2 && strcmp(words.word[0], "a") == 0 &&
              strcmp(words.word[1], "c") == 0 && strcmp(taken.value, "b") == 0 && taken.common.json,
          "mixed");
    CHECK(words_parse(&mixed, &taken, &words, WORDS("x", "a", "b", "c")) < 0, "three words of two");
    CHECK(words_parse(&mixed, &taken, &words, WORDS("x", "--", "--json")) == 0 &&
              strcmp(words.word[0], "--json") == 0 && !taken.common.json,
          "after --");
    CHECK(words_parse(&follows, &taken, &words, WORDS("x", "box", "-v1", "ls")) == 0 &&
              strcmp(taken.value, "1") == 0 && strcmp(words.rest[0], "ls") == 0,
          "a letter with its value");
    CHECK(words_parse(&follows, &taken, &words, WORDS("x", "box", "-y1", "ls")) < 0, "-y1");
    CHECK(words_parse(&follows, &taken, &words, WORDS("x", "box", "--json", "ls", "--value")) ==
                  0 &&
              taken.common.json && strcmp(words.rest[0], "ls") == 0 &&
              strcmp(words.rest[1], "--value") == 0 && words.rest[2] == NULL,
          "a command's options are its own");
    CHECK(words_parse(&follows, &taken, &words, WORDS("x", "box", "--", "--json")) == 0 &&
              !taken.common.json && strcmp(words.rest[0], "--json") == 0,
          "a command after --");
    CHECK(words_parse(&many, &taken, &words, WORDS("x", "a", "--json", "b", "c")) == 0 &&
              words.count == 3 && strcmp(words.rest[2], "c") == 0 && words.rest[3] == NULL,
          "many");
}

static void test_ends_of_processes(void)
{
    static const struct {
        const char *json;
        int status;
    } cases[] = {
        {"{\"state\":\"exited\",\"exit_code\":7,\"signal\":null}", 7},
        {"{\"state\":\"exited\",\"exit_code\":null,\"signal\":\"SIGKILL\"}", 137},
        {"{\"state\":\"exited\",\"exit_code\":null,\"signal\":\"SIG35\"}", 163},
        {"{\"state\":\"exited\",\"exit_code\":124,\"signal\":null,\"timed_out\":true}", 124},
        {"{\"state\":\"exited\",\"exit_code\":256}", 125},
        {"{\"state\":\"exited\",\"exit_code\":-1}", 125},
        {"{\"state\":\"exited\",\"exit_code\":\"0\"}", 125},
        {"{\"state\":\"exited\",\"signal\":\"SIGNONE\"}", 125},
        {"{\"state\":\"exited\"}", 125},
        {"{\"state\":\"lost\",\"exit_code\":0,\"reason\":\"keeper_lost\"}", 125},
        {"{\"state\":\"failed\",\"reason\":\"command_not_found\"}", 127},
        {"{\"state\":\"running\"}", 125},
        {"{}", 125},
        {"[]", 125},
    };
    struct error err;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct doc *process = NULL;

        CHECK(doc_parse(cases[i].json, strlen(cases[i].json), &process, &err) == 0, "%s",
              cases[i].json);
        CHECK(api_process_status(process) == cases[i].status, "%s: %d", cases[i].json,
              api_process_status(process));
        doc_free(process);
    }
    CHECK(api_signal_number("TERM") == 15 && api_signal_number("sigterm") == 15 &&
              api_signal_number("15") == 15 && api_signal_number("SIG15") == 15 &&
              api_signal_number("") == 0 && api_signal_number("0") == 0 &&
              api_signal_number("65") == 0 && api_signal_number("NONE") == 0,
          "names of signals");
}

int main(void)
{
    test_addresses_of_servers();
    test_what_is_no_address_is_refused();
    test_heads();
    test_bad_heads_are_refused();
    test_a_head_has_so_many_headers_and_no_more();
    test_chunks_in_pieces_of_any_size();
    test_what_follows_the_last_chunk_is_left_alone();
    test_bad_chunks_are_refused();
    test_chunks_do_not_go_on_for_ever_without_content();
    test_paths_are_encoded();
    test_nothing_that_steers_a_terminal_is_shown();
    test_sizes_and_spans();
    test_options_stand_anywhere_unless_a_command_follows();
    test_ends_of_processes();
    return check_finish();
}
