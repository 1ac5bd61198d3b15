/* The native API's pure parts: what is text and what is not, hosts and origins, bodies that are taken or
 * refused by name, problems, answers that are given again, streams as lines. */
#include "front/native/account_share.h"
#include "front/native/body.h"
#include "front/native/holds.h"
#include "front/native/idempotency.h"
#include "front/native/lines.h"
#include "front/native/origin.h"
#include "front/native/out.h"
#include "front/native/parts.h"
#include "front/native/problem.h"
#include "front/native/text.h"

#include "base/clock.h"
#include "check.h"
#include "http/parts.h"

#include <stdlib.h>
#include <string.h>

#define NOW_MS 1900000000000ULL
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static bool is(const struct out *out, const char *wanted)
{
    return out->used == strlen(wanted) && memcmp(out->data, wanted, out->used) == 0;
}

#define CHECK_OUT(out, wanted)                                                              \
    CHECK(is(&(out), wanted), "printed %.*s, not %s", (int)(out).used, (out).data, wanted); \
    (out).used = 0

/* ---- JSON out ---- */

static void test_out(void)
{
    static const char bytes[] = "q\"b\\n\nt\tc\x01\x7f \xC3\xA9 \xE2\x82 \xFF\xED\xA0\x80.";
    struct out out = {0};

    out_object(&out, NULL);
    out_text(&out, "a", "x");
    out_text(&out, "n", NULL);
    out_text_or_none(&out, "none", NULL);
    out_array(&out, "l");
    out_number(&out, NULL, 0);
    out_number(&out, NULL, UINT64_MAX);
    out_array_end(&out);
    out_object(&out, "o");
    out_object_end(&out);
    out_signed(&out, "s", -1);
    out_milli(&out, "m", 1500);
    out_milli(&out, "w", 2000);
    out_milli(&out, "t", 25);
    out_bool(&out, "t\"", true);
    out_time(&out, "at", 0);
    out_object_end(&out);
    CHECK_OUT(out, "{\"a\":\"x\",\"n\":null,\"l\":[0,18446744073709551615],\"o\":{},\"s\":-1,"
                   "\"m\":1.5,\"w\":2,\"t\":0.025,\"t\\\"\":true,\"at\":null}");
    out_object(&out, NULL);
    out_sent(&out);
    out_number(&out, "a", 1);
    CHECK_OUT(out, "\"a\":1");
    out.last = '1';
    out_number(&out, "b", 2);
    CHECK_OUT(out, ",\"b\":2");
    out_reset(&out, 0);
    out_quoted(&out, bytes, sizeof(bytes) - 1);
    CHECK_OUT(out, "q\\\"b\\\\n\\nt\\tc\\u0001\\u007f \xC3\xA9 \xEF\xBF\xBD "
                   "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD.");
    out_quoted(&out, "a\0b", 3);
    CHECK_OUT(out, "a\\u0000b");
    out_quoted_base64(&out, "\xFF", 1);
    CHECK_OUT(out, "/w==");
    out_free(&out);
}

/* ---- hosts and origins ---- */

static void test_hosts(void)
{
    static const char *const hosts[] = {"cove.example.com", "Box.Example:8443", "10.1.2.3",
                                        "fd00::1", NULL};
    static const char *const known[] = {
        "localhost",        "LocalHost:7070",      "localhost.",
        "localhost.:7070",  "127.0.0.1",           "127.0.0.1:7070",
        "127.1.2.3:1",      "127.0.0.1.",          "[::1]",
        "[::1]:7070",       "[0:0::1]:65535",      "[::ffff:127.0.0.1]:80",
        "cove.example.com", "COVE.example.com.:9", "box.example:8443",
        "10.1.2.3:7070",    "[fd00::1]:7070",      "[FD00:0::1]"};
    static const char *const foreign[] = {"",
                                          "evil.example",
                                          "localhost.evil.example",
                                          "127.0.0.1.evil.example",
                                          "evil-localhost",
                                          "user@127.0.0.1",
                                          "user:pass@localhost",
                                          "127.0.0.1@evil.example",
                                          "localhost:",
                                          "localhost:0",
                                          "localhost:65536",
                                          "localhost:7070x",
                                          "localhost:70 70",
                                          "localhost:-1",
                                          " localhost",
                                          "localhost ",
                                          "localhost/",
                                          "localhost,evil.example",
                                          "127.1",
                                          "127.0.0.01",
                                          "0x7f.0.0.1",
                                          "2130706433",
                                          "0.0.0.0",
                                          "[::]",
                                          "::1",
                                          "::1:7070",
                                          "[::1",
                                          "[::1]7070",
                                          "[::1]:",
                                          "[::1%lo]",
                                          "[::ffff:10.0.0.1]",
                                          "[localhost]",
                                          "box.example",
                                          "box.example:7070",
                                          "128.0.0.1",
                                          "10.1.2.4",
                                          "[fd00::2]",
                                          "localhost..",
                                          ".",
                                          "127.0.0.1:7070:7070",
                                          "lo\xC3\xA9h"};
    char long_name[1000];

    for (size_t i = 0; i < COUNT(known); i++)
        CHECK(origin_host_is_known(known[i], hosts), "\"%s\" is known", known[i]);
    for (size_t i = 0; i < COUNT(foreign); i++)
        CHECK(!origin_host_is_known(foreign[i], hosts), "\"%s\" is foreign", foreign[i]);
    CHECK(!origin_host_is_known(NULL, hosts), "no Host is foreign");
    CHECK(origin_host_is_known("localhost", NULL), "without a list loopback is known");
    CHECK(!origin_host_is_known("cove.example.com", NULL), "and nothing else");
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    CHECK(!origin_host_is_known(long_name, hosts), "a name of 999 bytes");
}

static void test_origins(void)
{
    static const char *const same[][2] = {{"http://127.0.0.1:7070", "127.0.0.1:7070"},
                                          {"http://LOCALHOST:7070", "localhost.:7070"},
                                          {"http://[::1]:7070", "[::1]:7070"},
                                          {"http://localhost", "localhost"},
                                          {"http://localhost", "localhost:80"},
                                          {"https://cove.example.com", "cove.example.com"},
                                          {"https://cove.example.com:443", "cove.example.com"},
                                          {"HTTP://a:1", "A:1"}};
    static const char *const other[][2] = {{"http://evil.example", "127.0.0.1:7070"},
                                           {"null", "127.0.0.1:7070"},
                                           {"", "127.0.0.1:7070"},
                                           {"http://127.0.0.1:8080", "127.0.0.1:7070"},
                                           {"http://127.0.0.1", "127.0.0.1:7070"},
                                           {"http://localhost:7070", "127.0.0.1:7070"},
                                           {"file://127.0.0.1:7070", "127.0.0.1:7070"},
                                           {"127.0.0.1:7070", "127.0.0.1:7070"},
                                           {"http://127.0.0.1:7070/", "127.0.0.1:7070"},
                                           {"http://x@127.0.0.1:7070", "127.0.0.1:7070"},
                                           {"http://127.0.0.1:7070 ", "127.0.0.1:7070"},
                                           {"chrome-extension://abc", "abc"}};

    for (size_t i = 0; i < COUNT(same); i++)
        CHECK(origin_is_host(same[i][0], same[i][1]), "%s under %s", same[i][0], same[i][1]);
    for (size_t i = 0; i < COUNT(other); i++)
        CHECK(!origin_is_host(other[i][0], other[i][1]), "%s under %s", other[i][0], other[i][1]);
    CHECK(!origin_is_host("http://a", NULL), "no Host");
    CHECK(origin_fetch_is_ours(NULL) && origin_fetch_is_ours("same-origin") &&
              origin_fetch_is_ours("none"),
          "a program, the same page, an address that was typed");
    CHECK(!origin_fetch_is_ours("cross-site") && !origin_fetch_is_ours("same-site") &&
              !origin_fetch_is_ours(""),
          "pages elsewhere");
}

/* ---- bodies ---- */

/* How a body is read, by what it is for: all of them take text and fill what is thrown away. */
enum body_kind { SANDBOX, CHANGE, EXEC, PROCESS, SIGNAL, KEY, QUOTA, NONE };

static int read_body(enum body_kind kind, const char *text, size_t size, struct error *err)
{
    struct body_sandbox sandbox = {0};
    struct body_change change = {0};
    struct body_process process = {0};
    struct body_key key = {0};
    struct engine_quota quota;
    int number, status = -1;

    switch (kind) {
    case SANDBOX:
        status = body_sandbox((struct read_body){text, size, NULL}, NOW_MS, &sandbox, err);
        break;
    case CHANGE:
        status = body_change((struct read_body){text, size, NULL}, NOW_MS, &change, err);
        break;
    case EXEC:
    case PROCESS:
        status = body_process((struct read_body){text, size, NULL}, kind == EXEC, &process, err);
        break;
    case SIGNAL:
        status = body_signal((struct read_body){text, size, NULL}, &number, err);
        break;
    case KEY:
        status = body_key((struct read_body){text, size, NULL}, &key, err);
        break;
    case QUOTA:
        status = body_quota((struct read_body){text, size, NULL}, &quota, err);
        break;
    case NONE:
        status = body_none((struct read_body){text, size, NULL}, err);
        break;
    }
    read_free(&sandbox.owner);
    read_free(&change.owner);
    read_free(&process.owner);
    read_free(&key.owner);
    return status;
}

static const struct {
    enum body_kind kind;
    const char *text;
    const char *says; /* NULL: it is taken */
} bodies[] = {
    {SANDBOX, "", NULL},
    {SANDBOX, "{}", NULL},
    {SANDBOX, "{\"name\":null,\"mounts\":null,\"resources\":null}", NULL},
    {SANDBOX, "{\"network\":{\"mode\":\"public\",\"deny\":[\"a.b\"],\"bytes\":null}}", NULL},
    {SANDBOX, "{\"network\":{\"mode\":\"all\"}}", "\"network.mode\""},
    {SANDBOX, "{\"network\":{\"allow\":\"a.b\"}}", "\"network.allow\""},
    {SANDBOX, "{\"network\":{\"connections\":0}}", "\"network.connections\""},
    {SANDBOX, "{\"network\":{\"ports\":[]}}", "\"network.ports\" is unknown"},
    {SANDBOX, "{\"name\":\"\"}", "\"name\""},
    {SANDBOX, "{\"name\":\"cove:x\"}", "must not begin with \"cove:\""},
    {SANDBOX, "{\"name\":7}", "\"name\" must be a string"},
    {SANDBOX, "{\"name\":\"a\\nb\"}", "control"},
    {SANDBOX, "{\"name\":\"a\\u0000b\"}", "no JSON"},
    {SANDBOX, "{\"name\":\"\xC3\xA9\"}", NULL},
    {SANDBOX, "{\"name\":\"\xC3\"}", "no JSON"},
    {SANDBOX, "{\"name\":\"\xED\xA0\x80\"}", "no JSON"},
    {SANDBOX, "{\"name\":\"\\ud800\"}", "no JSON"},
    {SANDBOX, "{\"name\":\"a\",\"name\":\"b\"}", "duplicate"},
    {SANDBOX, "{\"nmae\":\"a\"}", "\"nmae\" is unknown; known are name"},
    {SANDBOX, "[]", "must be a JSON object"},
    {SANDBOX, "7", "no JSON"},
    {SANDBOX, "{} {}", "no JSON"},
    {SANDBOX, "{\"labels\":{\"k\":\"v\",\"e\":\"\"}}", NULL},
    {SANDBOX, "{\"labels\":{\"a=b\":\"v\"}}", "\"labels.a=b\""},
    {SANDBOX, "{\"labels\":{\"\":\"v\"}}", "is no name"},
    {SANDBOX, "{\"labels\":{\"k\":1}}", "\"labels.k\" must be a string"},
    {SANDBOX, "{\"labels\":[]}", "\"labels\" must be an object"},
    {SANDBOX, "{\"env\":{\"PATH\":\"/bin\"}}", NULL},
    {SANDBOX, "{\"env\":{\"A\\nB\":\"x\"}}", "is no name"},
    {SANDBOX, "{\"privileges\":\"root\"}", "one of \"plain\", \"system\""},
    {SANDBOX, "{\"disk_kind\":1}", "one of \"ephemeral\""},
    {SANDBOX, "{\"cwd\":\"tmp\"}", "absolute"},
    {SANDBOX, "{\"hostname\":\"-a\"}", "\"hostname\""},
    {SANDBOX, "{\"hostname\":\"a b\"}", "\"hostname\""},
    {SANDBOX, "{\"resources\":{\"memory_bytes\":1048576,\"cpus\":0.5,\"pids\":1}}", NULL},
    {SANDBOX, "{\"resources\":{\"memory_bytes\":-1}}", "\"resources.memory_bytes\""},
    {SANDBOX, "{\"resources\":{\"memory_bytes\":1}}", "from 1048576"},
    {SANDBOX, "{\"resources\":{\"memory_bytes\":99999999999999999999}}", "no JSON"},
    {SANDBOX, "{\"resources\":{\"memory_bytes\":1048576.5}}", "whole number"},
    {SANDBOX, "{\"resources\":{\"cpus\":0}}", "\"resources.cpus\""},
    {SANDBOX, "{\"resources\":{\"cpus\":\"1\"}}", "\"resources.cpus\""},
    {SANDBOX, "{\"resources\":{\"pids\":4294967297}}", "\"resources.pids\""},
    {SANDBOX, "{\"resources\":{\"gpu\":1}}", "\"resources.gpu\" is unknown"},
    {SANDBOX, "{\"mounts\":[{\"name\":\"a\",\"target\":\"/a\"}]}", NULL},
    {SANDBOX, "{\"mounts\":[{\"name\":\"a\"}]}", "\"mounts[0].target\" is missing"},
    {SANDBOX, "{\"mounts\":[{\"name\":\"a\",\"target\":null}]}", "must not be null"},
    {SANDBOX, "{\"mounts\":[{\"name\":\"a\",\"target\":\"a\"}]}", "absolute"},
    {SANDBOX, "{\"mounts\":[{\"name\":\"a\",\"target\":\"/a/..\"}]}", "without \"..\""},
    {SANDBOX, "{\"mounts\":[{\"name\":\"a\",\"target\":\"/../a\"}]}", "without \"..\""},
    {SANDBOX, "{\"mounts\":[{\"name\":\"a\",\"target\":\"/..a/b..\"}]}", NULL},
    {SANDBOX, "{\"mounts\":[{\"name\":\"../a\",\"target\":\"/a\"}]}", "cannot be registered"},
    {SANDBOX, "{\"mounts\":[{}, 7]}", "is missing"},
    {SANDBOX, "{\"mounts\":{}}", "an array"},
    {SANDBOX, "{\"root\":\"/etc\"}", "cannot be registered"},
    {SANDBOX, "{\"lifecycle\":{\"lifetime_ms\":1000,\"idle_ms\":0,\"then\":\"stop\"}}", NULL},
    {SANDBOX, "{\"lifecycle\":{\"lifetime_ms\":0}}", "\"lifecycle.lifetime_ms\""},
    {SANDBOX, "{\"lifecycle\":{\"deadline\":\"2001-01-01T00:00:00Z\"}}", "in the past"},
    {SANDBOX, "{\"lifecycle\":{\"deadline\":\"soon\"}}", "must be a time"},
    {SANDBOX, "{\"lifecycle\":{\"deadline\":\"2099-01-01T00:00:00Z\",\"lifetime_ms\":5}}", "same"},
    {SANDBOX, "{\"lifecycle\":{\"then\":\"pause\"}}", "\"lifecycle.then\""},
    {CHANGE, "", "is empty"},
    {CHANGE, "{\"labels\":{}}", NULL},
    {CHANGE, "{\"network\":{\"mode\":\"none\"}}", NULL},
    {CHANGE, "{\"network\":{\"bytes_per_second\":1}}", "\"network.bytes_per_second\""},
    {CHANGE, "{\"name\":\"x\"}", "\"name\" is unknown"},
    {EXEC, "", "is empty"},
    {EXEC, "{}", "either \"argv\""},
    {EXEC, "{\"argv\":[\"true\"]}", NULL},
    {EXEC, "{\"argv\":[\"true\"],\"command\":\"true\"}", "either \"argv\""},
    {EXEC, "{\"argv\":[]}", "an array of 1"},
    {EXEC, "{\"argv\":[\"\"]}", "must name a program"},
    {EXEC, "{\"argv\":[\"a\",1]}", "\"argv[1]\" must be a string"},
    {EXEC, "{\"argv\":\"true\"}", "\"argv\""},
    {EXEC, "{\"command\":\"true\",\"timeout_ms\":-1}", "\"timeout_ms\""},
    {EXEC, "{\"command\":\"true\",\"timeout_ms\":1.5}", "\"timeout_ms\""},
    {EXEC, "{\"command\":\"true\",\"timeout_ms\":315576000001}", "\"timeout_ms\""},
    {EXEC, "{\"command\":\"true\",\"output_limit\":67108865}", "\"output_limit\""},
    {EXEC, "{\"command\":\"true\",\"stdin\":\"a\",\"stdin_base64\":\"YQ==\"}", "same"},
    {EXEC, "{\"command\":\"true\",\"stdin_base64\":\"YQ\"}", "must be base64"},
    {SANDBOX, "{\"ports\":[{\"port\":80,\"public\":true},{\"port\":65535}]}", NULL},
    {SANDBOX, "{\"ports\":[{\"port\":80},{\"port\":81},{\"port\":80}]}", "80 is there twice"},
    {SANDBOX, "{\"ports\":[80]}", "\"ports[0]\""},
    {SANDBOX, "{\"ports\":[{\"port\":65536}]}", "\"ports[0].port\""},
    {SANDBOX, "{\"ports\":[{\"public\":true}]}", "\"ports[0].port\" is missing"},
    {SANDBOX, "{\"ports\":[{\"port\":80,\"public\":\"yes\"}]}", "must be true or false"},
    {EXEC, "{\"command\":\"true\",\"stdin\":true}", "\"stdin\" must be a string"},
    {EXEC, "{\"command\":\"cat\",\"stdin_base64\":\"\"}", NULL},
    {EXEC, "{\"command\":\"true\",\"start\":1}", "true or false"},
    {EXEC, "{\"command\":\"true\",\"open_stdin\":true}", "\"open_stdin\" is unknown"},
    {EXEC, "{\"command\":\"true\",\"limits\":{\"open_files\":2}}", "\"limits.open_files\""},
    {EXEC, "{\"command\":\"true\",\"cwd\":\"\"}", "\"cwd\""},
    {EXEC, "{\"command\":\"true\",\"env\":{\"A\":\"1\"},\"user\":\"root\",\"tag\":\"t\"}", NULL},
    {PROCESS, "{\"command\":\"cat\",\"open_stdin\":true,\"stdin\":\"a\"}", NULL},
    {PROCESS, "{\"command\":\"cat\",\"output_limit\":1}", "\"output_limit\" is unknown"},
    {SIGNAL, "{\"signal\":\"TERM\"}", NULL},
    {SIGNAL, "{\"signal\":\"SIGKILL\"}", NULL},
    {SIGNAL, "{\"signal\":64}", NULL},
    {SIGNAL, "{\"signal\":65}", "\"signal\""},
    {SIGNAL, "{\"signal\":0}", "\"signal\""},
    {SIGNAL, "{\"signal\":\"term\"}", "is no signal"},
    {SIGNAL, "{\"signal\":\"\"}", "is no signal"},
    {SIGNAL, "{}", "is missing"},
    {KEY, "{\"label\":\"ci\",\"scopes\":[\"read\",\"write\"]}", NULL},
    {KEY, "{\"label\":\"ci\",\"scopes\":[]}", "at least one"},
    {KEY, "{\"label\":\"ci\",\"scopes\":[\"all\"]}", "\"scopes[0]\" must be one of"},
    {KEY, "{\"scopes\":[\"read\"]}", "\"label\" is missing"},
    {KEY, "{\"label\":\"ci\",\"scopes\":[\"read\"],\"tenant\":\"A\"}", "\"tenant\""},
    {KEY, "{\"label\":\"ci\",\"scopes\":[\"read\"],\"tenant\":\"../a\"}", "\"tenant\""},
    {QUOTA, "{\"sandboxes\":5,\"cpus\":1.5}", NULL},
    {QUOTA, "{\"sandboxes\":-5}", "\"sandboxes\""},
    {NONE, "", NULL},
    {NONE, "{}", NULL},
    {NONE, "{\"a\":1}", "\"a\" is unknown"},
};

static void test_bodies(void)
{
    for (size_t i = 0; i < COUNT(bodies); i++) {
        struct error err = {0};
        size_t size = strlen(bodies[i].text);
        int status = read_body(bodies[i].kind, bodies[i].text, size, &err);

        if (bodies[i].says == NULL)
            CHECK(status == 0, "%s: %s", bodies[i].text, err.text);
        else
            CHECK(status == -1 && strstr(err.text, bodies[i].says) != NULL, "%s: %s",
                  bodies[i].text, err.text);
    }
}

static void test_codes_of_bodies(void)
{
    static const char *const later[] = {"pause", "archive", "snapshot", "volumes", "template"};
    struct error err;
    char text[64];

    for (size_t i = 0; i < COUNT(later); i++) {
        (void)snprintf(text, sizeof(text), "{\"%s\":null}", later[i]);
        CHECK(read_body(SANDBOX, text, strlen(text), &err) < 0 && strcmp(err.code, "not_yet") == 0,
              "%s: %s", text, err.code);
    }
    CHECK(read_body(SANDBOX, "{\"root\":\"A\"}", 12, &err) < 0 &&
              strcmp(err.code, "unknown_root") == 0,
          "%s", err.code);
    CHECK(read_body(EXEC, "{", 1, &err) < 0 && strcmp(err.code, "bad_request") == 0, "%s",
          err.code);
    /* As whole as 134217728, and beyond what a double says exactly nothing is. */
    CHECK(read_body(SANDBOX, "{\"resources\":{\"memory_bytes\":1.34217728e8}}", 43, &err) == 0,
          "%s", err.text);
    CHECK(read_body(SANDBOX, "{\"resources\":{\"memory_bytes\":1e300}}", 36, &err) < 0, "1e300");
    /* NUL as a byte, and in the middle of a body. */
    CHECK(read_body(SANDBOX, "{\"name\":\"a\0b\"}", 14, &err) < 0, "NUL in a string");
    CHECK(read_body(SANDBOX, "{}\0", 3, &err) < 0, "NUL after the body");
}

static void test_bounds_of_bodies(void)
{
    size_t size = 4U << 20;
    char *text = malloc(size + 1);
    struct error err;

    memset(text, '[', size);
    CHECK(read_body(SANDBOX, text, size, &err) < 0 && strstr(err.text, "deeper") != NULL, "%s",
          err.text);
    for (size_t i = 0; i < size; i++)
        text[i] = "[],"[i % 3];
    CHECK(read_body(SANDBOX, text, size, &err) < 0, "many values");
    /* Commas and brackets in a string are no values. */
    memset(text, ',', size);
    memcpy(text, "{\"command\":\"\\\"", 14);
    memcpy(text + 131000, "\"}", 2);
    CHECK(read_body(EXEC, text, 131002, &err) == 0, "%s", err.text);
    memset(text, 'a', size);
    memcpy(text, "{\"command\":\"", 12);
    memcpy(text + 12 + 131072, "\"}", 2);
    CHECK(read_body(EXEC, text, 12 + 131072 + 2, &err) < 0, "a line that no exec would take");
    free(text);
}

static void test_sandbox_body(void)
{
    static const char text[] =
        "{\"name\":\"n\",\"labels\":{\"k\":\"v=w\"},\"env\":{\"E\":\"1\"},\"root\":\"debian\","
        "\"privileges\":\"plain\",\"disk_kind\":\"ephemeral\",\"resources\":{\"memory_bytes\":"
        "2097152,\"cpus\":1.5,\"pids\":7,\"disk_bytes\":3145728},\"mounts\":[{\"name\":\"m\","
        "\"target\":\"/m\",\"read_only\":true}],\"lifecycle\":{\"lifetime_ms\":60000,"
        "\"idle_ms\":5,\"then\":\"stop\"}}";
    struct body_sandbox body;
    struct error err;

    CHECK(body_sandbox((struct read_body){"", 0, NULL}, NOW_MS, &body, &err) == 0 &&
              body.spec.privileges == BOX_SYSTEM && body.spec.disk_kind == KEEPER_PERSISTENT &&
              body.spec.name == NULL && body.spec.deadline_ms == 0 &&
              body.spec.then == SANDBOX_THEN_KILL && body.spec.mounts_count == 0,
          "the defaults");
    read_free(&body.owner);
    CHECK(body_sandbox((struct read_body){text, sizeof(text) - 1, NULL}, NOW_MS, &body, &err) == 0,
          "%s", err.text);
    CHECK(strcmp(body.spec.labels[0], "k=v=w") == 0 && body.spec.labels[1] == NULL, "labels");
    CHECK(strcmp(body.spec.env[0], "E=1") == 0, "env");
    CHECK(body.spec.privileges == BOX_PLAIN && body.spec.disk_kind == KEEPER_EPHEMERAL, "words");
    CHECK(body.spec.limits.memory_bytes == 2097152 && body.spec.limits.cpu_milli == 1500 &&
              body.spec.limits.pids == 7 && body.spec.limits.disk_bytes == 3145728,
          "resources");
    CHECK(body.spec.mounts_count == 1 && strcmp(body.spec.mounts[0].name, "m") == 0 &&
              strcmp(body.spec.mounts[0].target, "/m") == 0 && body.spec.mounts[0].read_only == 1,
          "mounts");
    CHECK(body.spec.deadline_ms == NOW_MS + 60000 && body.spec.idle_ms == 5 &&
              body.spec.then == SANDBOX_THEN_STOP,
          "lifecycle");
    read_free(&body.owner);
}

static void test_change_body(void)
{
    static const char none[] = "{\"lifecycle\":{\"deadline\":null,\"idle_ms\":null}}";
    struct body_change body;
    struct error err;

    CHECK(body_change((struct read_body){"{}", 2, NULL}, NOW_MS, &body, &err) == 0 &&
              body.change.labels == NULL && body.change.deadline_ms == UINT64_MAX &&
              body.change.idle_ms == UINT64_MAX && body.change.then == -1,
          "what is not named stays");
    read_free(&body.owner);
    CHECK(body_change((struct read_body){none, sizeof(none) - 1, NULL}, NOW_MS, &body, &err) == 0 &&
              body.change.deadline_ms == 0 && body.change.idle_ms == 0,
          "null ends it");
    read_free(&body.owner);
}

static void test_process_body(void)
{
    static const char text[] = "{\"argv\":[\"a\",\"\"],\"stdin_base64\":\"AP8=\"}";
    struct body_process body;
    struct error err;

    CHECK(body_process((struct read_body){text, sizeof(text) - 1, NULL}, true, &body, &err) == 0 &&
              body.spec.has_stdin && body.stdin_data.size == 2 &&
              memcmp(body.stdin_data.data, "\0\xFF", 2) == 0 && body.spec.timeout_ms == 300000 &&
              body.output_limit == 1048576 && strcmp(body.spec.argv[1], "") == 0 &&
              body.spec.argv[2] == NULL,
          "exact bytes, and the defaults");
    read_free(&body.owner);
    CHECK(body_process((struct read_body){"{\"command\":\"x\"}", 15, NULL}, false, &body, &err) ==
                  0 &&
              body.spec.timeout_ms == 0 && !body.spec.has_stdin,
          "in the background nothing ends it");
    read_free(&body.owner);
}

/* ---- problems ---- */

static void test_problems(void)
{
    static const struct {
        const char *code;
        unsigned status;
    } wanted[] = {{"bad_request", 400},       {"bad_key", 401},
                  {"forbidden", 403},         {"sandbox_not_found", 404},
                  {"process_not_found", 404}, {"key_not_found", 404},
                  {"sandbox_gone", 410},      {"name_conflict", 409},
                  {"revision_conflict", 409}, {"sandbox_stopped", 409},
                  {"sandbox_outdated", 409},  {"process_ended", 409},
                  {"stdin_closed", 409},      {"idempotency_conflict", 409},
                  {"body_too_large", 413},    {"user_not_found", 422},
                  {"bad_cwd", 422},           {"unknown_root", 422},
                  {"unknown_mount", 422},     {"not_yet", 422},
                  {"too_many_requests", 429}, {"quota", 403},
                  {"capacity", 503},          {"sandbox_failed", 500},
                  {"draining", 503},          {"forbidden_host", 403},
                  {"forbidden_origin", 403},  {"no such code", 500}};
    struct out out = {0};

    for (size_t i = 0; i < COUNT(wanted); i++)
        CHECK(problem_of(wanted[i].code)->status == wanted[i].status, "%s: %u", wanted[i].code,
              problem_of(wanted[i].code)->status);
    for (size_t i = 0; problem_row(i) != NULL; i++) {
        CHECK(problem_of(problem_row(i)->code) == problem_row(i), "%s is there twice",
              problem_row(i)->code);
        CHECK(problem_row(i)->retry_after_s == 0 || problem_row(i)->status == 429 ||
                  problem_row(i)->status == 503,
              "%s says when to come back", problem_row(i)->code);
    }
    problem_print(&out, "sandbox_gone", 410, "sandbox \"x\" was\ndeleted");
    CHECK_OUT(out,
              "{\"type\":\"urn:cove:error:sandbox_gone\",\"title\":\"The sandbox was deleted\","
              "\"status\":410,\"detail\":\"sandbox \\\"x\\\" was\\ndeleted\","
              "\"code\":\"sandbox_gone\",\"remedy\":\"Create another one.\"}");
    out_free(&out);
}

/* ---- answers that are given again ---- */

static enum once_found begin(struct once_table *table, const char *tenant, const char *key,
                             const char *body, uint64_t now_ms, struct once **out)
{
    struct once_part what[] = {{"POST", 4}, {body, strlen(body)}};

    return once_begin(table, tenant, key, what, 2, now_ms, out);
}

static unsigned told_status, told_times;

static void told(void *arg, const struct once_answer *answer)
{
    (void)arg;
    told_status = answer->status;
    told_times++;
}

static void test_once(void)
{
    struct once_table *table = once_table_new();
    struct once_answer answer = {.status = 201,
                                 .content_type = "application/json",
                                 .location = "/v1/x",
                                 .body = "{\"a\":1}",
                                 .size = 7};
    struct once_answer failed = {.status = 409, .body = "no", .size = 2};
    struct once_waiter waiter = {.done = told};
    struct once_waiter left = {.done = told}, more[ONCE_WAITERS_MAX] = {0};
    struct once *once, *again;

    CHECK(begin(table, "t", "k", "b", 0, &once) == ONCE_NEW, "the first");
    CHECK(begin(table, "t", "k", "b", 0, &again) == ONCE_RUNNING && again == once, "while it runs");
    CHECK(begin(table, "t", "k", "c", 0, &again) == ONCE_OTHER, "another body");
    CHECK(begin(table, "u", "k", "c", 0, &again) == ONCE_NEW, "another tenant");
    once_finish(table, again, &failed);
    CHECK(!once_has_waiters(once), "nobody waits");
    CHECK(once_wait(once, &waiter) && once_wait(once, &left), "two may wait");
    for (size_t i = 2; i < ONCE_WAITERS_MAX; i++)
        CHECK(once_wait(once, &more[i]), "another one may");
    CHECK(!once_wait(once, &more[0]), "no more may than the bound");
    for (size_t i = 2; i < ONCE_WAITERS_MAX; i++)
        once_leave(once, &more[i]);
    once_leave(once, &left);
    CHECK(once_has_waiters(once), "one waits");
    once_finish(table, once, &answer);
    CHECK(told_times == 1 && told_status == 201, "it was told once");
    CHECK(begin(table, "t", "k", "b", 5, &again) == ONCE_DONE &&
              once_answer(again)->status == 201 &&
              strcmp(once_answer(again)->location, "/v1/x") == 0 && once_answer(again)->size == 7 &&
              memcmp(once_answer(again)->body, answer.body, 7) == 0 &&
              once_answer(again)->body != answer.body,
          "the same again, from a copy");
    CHECK(begin(table, "t", "k", "c", 5, &again) == ONCE_OTHER, "still another body");
    CHECK(begin(table, "u", "k", "c", 5, &again) == ONCE_NEW, "what failed may be tried again");
    once_finish(table, again, NULL);
    CHECK(begin(table, "t", "k", "c", ONCE_KEEP_MS, &again) == ONCE_NEW, "after 24 hours");
    once_table_free(table);
}

static void test_once_bounds(void)
{
    struct once_table *table = once_table_new();
    struct once_answer large = {.status = 200, .size = ONCE_ANSWER_MAX};
    struct once_answer huge = {.status = 200, .size = ONCE_ANSWER_MAX + 1};
    char *body = calloc(1, ONCE_ANSWER_MAX + 1);
    struct once *once;
    char key[32];
    size_t kept = 0;

    large.body = huge.body = body;
    CHECK(begin(table, "t", "huge", "b", 0, &once) == ONCE_NEW, "begin");
    once_finish(table, once, &huge);
    CHECK(begin(table, "t", "huge", "b", 0, &once) == ONCE_DONE &&
              once_answer(once)->was_too_large && once_answer(once)->size == 0,
          "a huge answer is not kept, but that there was one is");
    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        CHECK(begin(table, "t", key, "b", 1, &once) == ONCE_NEW, "%s", key);
        once_finish(table, once, &large);
    }
    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        CHECK(begin(table, "t", key, "b", 1, &once) == ONCE_DONE, "%s was done", key);
        CHECK(once_answer(once)->status == 200 &&
                  once_answer(once)->was_too_large == (once_answer(once)->size == 0),
              "%s: its answer, or that there was one", key);
        kept += once_answer(once)->size;
    }
    CHECK(kept > 0 && kept <= ONCE_BYTES_MAX, "%zu bytes are kept", kept);
    for (int i = 0; i < ONCE_ENTRIES_MAX; i++) {
        (void)snprintf(key, sizeof(key), "r%d", i);
        CHECK(begin(table, "t", key, "b", 1, &once) == ONCE_NEW, "%s", key);
    }
    CHECK(begin(table, "t", "more", "b", 1, &once) == ONCE_NO_MEMORY, "all of it runs");
    CHECK(begin(table, "u", "more", "b", 1, &once) == ONCE_NEW, "another tenant does not notice");
    CHECK(begin(table, "t", "r0", "b", ONCE_KEEP_MS * 2, &once) == ONCE_RUNNING,
          "what runs does not run out");
    free(body);
    once_table_free(table);
}

static void test_once_keys(void)
{
    char key[258];

    memset(key, 'k', sizeof(key));
    key[255] = '\0';
    CHECK(once_key_is_good(key), "255");
    key[255] = 'k';
    key[256] = '\0';
    CHECK(!once_key_is_good(key), "256");
    CHECK(!once_key_is_good("") && !once_key_is_good("a b") && !once_key_is_good("a\x7f") &&
              !once_key_is_good("\xC3\xA9"),
          "visible ASCII only");
}

/* ---- streams as lines ---- */

static void add(struct lines *lines, struct out *out, uint64_t from, const char *data, size_t size)
{
    char buffer[LINES_ROOM + 64];

    memcpy(buffer + LINES_ROOM, data, size);
    lines_add(lines, out, from, buffer + LINES_ROOM, size);
}

static void test_lines(void)
{
    struct lines lines = {.stream = "stdout"};
    struct lines exact = {.stream = "stderr", .is_base64 = true, .at = 10};
    struct out out = {0};

    add(&lines, &out, 0, "a\xE2", 2);
    CHECK_OUT(out, "{\"type\":\"stdout\",\"from\":0,\"to\":1,\"data\":\"a\"}\n");
    add(&lines, &out, 2, "\x82", 1);
    CHECK_OUT(out, "");
    add(&lines, &out, 3,
        "\xAC"
        "b\xF0\x9F\x98",
        5);
    CHECK_OUT(out, "{\"type\":\"stdout\",\"from\":1,\"to\":5,\"data\":\"\xE2\x82\xAC"
                   "b\"}\n");
    /* A gap: what was held is incomplete for good, and what a character left behind is in the gap. */
    add(&lines, &out, 20,
        "\x80\x80"
        "c",
        3);
    CHECK_OUT(out, "{\"type\":\"stdout\",\"from\":5,\"to\":8,\"data\":\"\xEF\xBF\xBD\"}\n"
                   "{\"type\":\"gap\",\"stream\":\"stdout\",\"from\":8,\"to\":22}\n"
                   "{\"type\":\"stdout\",\"from\":22,\"to\":23,\"data\":\"c\"}\n");
    add(&lines, &out, 23, "\xC3", 1);
    lines_end(&lines, &out);
    CHECK_OUT(out, "{\"type\":\"stdout\",\"from\":23,\"to\":24,\"data\":\"\xEF\xBF\xBD\"}\n");
    lines_end(&lines, &out);
    CHECK_OUT(out, "");
    /* A byte that is wrong for good is not waited for. */
    add(&lines, &out, 24, "\xFF\xC3", 2);
    add(&lines, &out, 26, "(", 1);
    CHECK_OUT(out, "{\"type\":\"stdout\",\"from\":24,\"to\":25,\"data\":\"\xEF\xBF\xBD\"}\n"
                   "{\"type\":\"stdout\",\"from\":25,\"to\":27,\"data\":\"\xEF\xBF\xBD(\"}\n");

    add(&exact, &out, 10, "\xE2\x82", 2);
    add(&exact, &out, 15, "\xAC", 1);
    CHECK_OUT(out, "{\"type\":\"stderr\",\"from\":10,\"to\":12,\"data\":\"4oI=\"}\n"
                   "{\"type\":\"gap\",\"stream\":\"stderr\",\"from\":12,\"to\":15}\n"
                   "{\"type\":\"stderr\",\"from\":15,\"to\":16,\"data\":\"rA==\"}\n");
    out_free(&out);
}

/* Cut anywhere, a text comes out whole and no line has half a character. */
static void test_lines_at_every_cut(void)
{
    static const char text[] = "z\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80!";
    size_t size = sizeof(text) - 1;

    for (size_t first = 0; first <= size; first++) {
        for (size_t second = first; second <= size; second++) {
            struct lines lines = {.stream = "stdout"};
            struct out out = {0};

            add(&lines, &out, 0, text, first);
            add(&lines, &out, first, text + first, second - first);
            add(&lines, &out, second, text + second, size - second);
            lines_end(&lines, &out);
            out_raw(&out, "", 1);
            CHECK(strstr(out.data, "\xEF\xBF\xBD") == NULL && lines.at == size,
                  "cut at %zu and %zu: %s", first, second, out.data);
            out_free(&out);
        }
    }
}

/* ---- what tenants hold ---- */

#define HOLDS_MOST ((size_t)256 << 20)
#define HOLDS_STEP ((size_t)1 << 20)

/* So many steps as it may; in the end it holds nothing more in one large one either. */
static size_t fill_hold(struct holds *holds, struct hold *hold)
{
    while (hold_resize(holds, hold, hold->bytes + HOLDS_STEP, HOLDS_MOST))
        ;
    CHECK(!hold_resize(holds, hold, hold->bytes + HOLDS_MOST / 8, HOLDS_MOST), "a large step");
    return hold->bytes / HOLDS_STEP;
}

static void test_holds(void)
{
    static const size_t shares[] = {64, 64, 64, 32, 16, 8};
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    struct hold hold[COUNT(names)] = {{.tenant = NULL}}, more = {.tenant = names[0]};
    struct holds holds = {.bytes = 0};

    LIST_INIT(&holds.list);
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t steps;

        hold[i].tenant = names[i];
        steps = fill_hold(&holds, &hold[i]);
        CHECK(steps == shares[i], "tenant %s holds %zu MiB beside the others", names[i], steps);
    }
    CHECK(!hold_resize(&holds, &more, 1, HOLDS_MOST),
          "a tenant with its share holds more elsewhere");
    CHECK(hold_resize(&holds, &hold[0], HOLDS_STEP, HOLDS_MOST) &&
              hold_resize(&holds, &more, HOLDS_STEP, HOLDS_MOST),
          "what was given back is there again");
    CHECK(holds.bytes == (shares[1] + shares[2] + 32 + 16 + 8 + 2) * HOLDS_STEP, "all hold %zu",
          holds.bytes);
}

/* ---- shares of the audit log ---- */

static unsigned lines_of(struct account_shares *shares, const char *tenant, enum account_kind kind,
                         uint64_t second)
{
    unsigned lines = 0;

    for (unsigned i = 0; i < 3 * ACCOUNT_SHARE; i++)
        lines += account_share_may(shares, tenant, kind, second);
    return lines;
}

static void test_shares(void)
{
    struct account_shares shares = {.second = 0};

    CHECK(lines_of(&shares, "a", ACCOUNT_READ, 1) == ACCOUNT_SHARE, "no more than its share");
    CHECK(shares.left_out == 2UL * ACCOUNT_SHARE, "the others are counted: %llu",
          (unsigned long long)shares.left_out);
    CHECK(account_share_may(&shares, "a", ACCOUNT_CHANGE, 1),
          "what it changes has a share of its own");
    CHECK(lines_of(&shares, "b", ACCOUNT_READ, 1) == ACCOUNT_SHARE, "and so has another tenant");
    CHECK(lines_of(&shares, "a", ACCOUNT_CHANGE, 1) == ACCOUNT_SHARE - 1,
          "no more of changes either");
    CHECK(lines_of(&shares, "a", ACCOUNT_REFUSAL, 1) == ACCOUNT_REFUSALS, "fewer of refusals");
    CHECK(account_share_may(&shares, "b", ACCOUNT_REFUSAL, 1), "which hide none of another tenant");
    CHECK(account_share_may(&shares, "a", ACCOUNT_READ, 2), "a second later");
    account_shares_forget(&shares);
}

/* ---- turns of streams ---- */

#define CROWD 40

static unsigned crowd_turns, turns_before_other, other_turns;

/* Longer than a round of turns. */
static void crowd_more(struct stream *stream)
{
    uint64_t end = clock_monotonic_ns() + 2000000;

    crowd_turns++;
    while (clock_monotonic_ns() < end)
        ;
    stream_news(stream);
}

static void other_more(struct stream *stream)
{
    (void)stream;
    other_turns++;
    turns_before_other = crowd_turns;
}

static void test_turns(void)
{
    struct native *native = calloc(1, sizeof(*native));
    struct http_request *request = calloc(1, sizeof(*request));
    struct job crowd = {.native = native, .request = request, .caller.tenant = "a"};
    struct job other = {.native = native, .request = request, .caller.tenant = "b"};
    struct stream streams[CROWD], alone;
    uv_loop_t loop;

    (void)uv_loop_init(&loop);
    native->options.loop = &loop;
    streams_open(native);
    for (unsigned i = 0; i < CROWD; i++)
        stream_add(&streams[i], &crowd, false, crowd_more);
    for (unsigned i = 0; i < CROWD; i++)
        stream_news(&streams[i]);
    CHECK(crowd_turns == 0, "news of a crowd wait for their turn: %u", crowd_turns);
    stream_add(&alone, &other, false, other_more);
    stream_news(&alone);
    CHECK(other_turns == 1, "and those of one do not");
    CHECK(!stream_sent(&alone, 1 << 20, 0), "but much that it has to send");
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK(crowd_turns == 1, "the loop hears others after one: %u", crowd_turns);
    for (unsigned i = 0; i < CROWD && other_turns == 1; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    CHECK(other_turns == 2 && turns_before_other <= 2,
          "another tenant waits for one or two of a crowd, not for %u", turns_before_other);
    for (unsigned i = 0; i < CROWD; i++)
        stream_remove(&streams[i]);
    stream_remove(&alone);
    CHECK(native->turns == 0 && TAILQ_EMPTY(&native->turning) && TAILQ_EMPTY(&native->streamers),
          "nothing is left");
    streams_close(native);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop) == 0, "closed");
    free(request);
    free(native);
}

int main(void)
{
    test_shares();
    test_turns();
    test_holds();
    test_out();
    test_hosts();
    test_origins();
    test_bodies();
    test_codes_of_bodies();
    test_bounds_of_bodies();
    test_sandbox_body();
    test_change_body();
    test_process_body();
    test_problems();
    test_once();
    test_once_bounds();
    test_once_keys();
    test_lines();
    test_lines_at_every_cut();
    return check_finish();
}
