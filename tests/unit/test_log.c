/* Log lines stay one line each whatever their arguments hold, are not said below the level and not more
 * often than the burst; and times are read as strictly as they are written. */
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What `say` writes to stderr. */
static const char *heard(void (*say)(void))
{
    static char text[65536];
    _cleanup_close_ int file = memfd_create("stderr", MFD_CLOEXEC);
    _cleanup_close_ int old = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    ssize_t n;

    (void)dup2(file, STDERR_FILENO);
    say();
    (void)dup2(old, STDERR_FILENO);
    n = pread(file, text, sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static unsigned lines(const char *text)
{
    unsigned count = 0;

    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

static void say_one(void)
{
    errno = ENOENT;
    log_say(LOG_LEVEL_WARN, "sandbox_failed", "cannot start id=%s ms=%d", "c0abc", 12);
    CHECK(errno == ENOENT, "errno was lost: %d", errno);
}

static void say_below(void)
{
    log_say(LOG_LEVEL_DEBUG, "detail", "x=1");
}

static void say_hostile(void)
{
    log_say(LOG_LEVEL_ERROR, "odd", "%s", "a\nb\r\x1b[2Jc\x7f\xc2\x9b\x9b d\xc3\x9f");
}

static void say_long(void)
{
    static char text[10000];

    memset(text, '\n', sizeof(text) - 1);
    log_say(LOG_LEVEL_ERROR, "long", "%s", text);
    memset(text, 'x', sizeof(text) - 1);
    log_say(LOG_LEVEL_ERROR, "long", "%s", text);
}

static void say_often(void)
{
    for (unsigned i = 0; i < 10000; i++)
        log_say(LOG_LEVEL_ERROR, "often", "i=%u", i);
}

static void say_after(void)
{
    /* Still in its second, the last one, and in one long ago. */
    struct log_site site = {.second = 1, .said = LOG_BURST, .left_out = 17};

    log_line(&site, LOG_LEVEL_ERROR, "after", "x=1");
    for (unsigned i = 0; i < 2 * LOG_BURST; i++)
        log_line(NULL, LOG_LEVEL_ERROR, "always", "x=1");
}

static void check_lines(void)
{
    const char *text = heard(say_one);
    uint64_t ms = 0;
    char time[CLOCK_TEXT_SIZE];

    CHECK(lines(text) == 1 &&
              strstr(text, " warn engine sandbox_failed cannot start id=c0abc ms=12\n") != NULL,
          "%s", text);
    (void)snprintf(time, sizeof(time), "%s", text);
    CHECK(clock_parse(time, &ms) && clock_wall_ms() - ms < 60000, "%s", time);
    CHECK(heard(say_below)[0] == '\0', "a debug line was said");
    log_start("engine", LOG_LEVEL_DEBUG);
    CHECK(lines(heard(say_below)) == 1, "a debug line was not said");
    log_start("engine", LOG_LEVEL_INFO);
    text = heard(say_hostile);
    CHECK(lines(text) == 1 &&
              strstr(text, "a\\x0ab\\x0d\\x1b[2Jc\\x7f\xc2\\x9b\\x9b d\xc3\x9f\n") != NULL,
          "%s", text);
    text = heard(say_long);
    CHECK(lines(text) == 2 && strlen(text) / 2 < LOG_LINE_MAX + 128, "%zu bytes", strlen(text));
    text = heard(say_often);
    CHECK(lines(text) >= LOG_BURST && lines(text) <= 5 * LOG_BURST, "%u lines", lines(text));
    text = heard(say_after);
    CHECK(lines(text) == 1 + 2 * LOG_BURST && strstr(text, "after x=1 left_out=17\n") != NULL, "%s",
          text);
}

static void say_fields(void)
{
    log_say(LOG_LEVEL_WARN, "odd", "a=1 was tried id=%s name=%s n=3", "c0",
            log_quote("a \"b\" =c\n").text);
}

/* Whatever is in it, a line is one object; and who names things cannot make fields of them. */
static void check_json(void)
{
    const char *text;

    log_use_json(true);
    text = heard(say_one);
    CHECK(lines(text) == 1 &&
              strstr(text, "\"level\":\"warn\",\"part\":\"engine\",\"code\":\"sandbox_failed\","
                           "\"text\":\"cannot start id=c0abc ms=12\","
                           "\"fields\":{\"id\":\"c0abc\",\"ms\":\"12\"}}\n") != NULL,
          "%s", text);
    text = heard(say_hostile);
    CHECK(lines(text) == 1 && strstr(text, "a\\u000ab\\u000d\\u001b[2Jc\\u007f\xc2\x9b\xef\xbf\xbd "
                                           "d\xc3\x9f\"}\n") != NULL,
          "%s", text);
    text = heard(say_fields);
    CHECK(strstr(text, "\"fields\":{\"id\":\"c0\",\"name\":\"a \\u005c\\u0022b\\u005c\\u0022 "
                       "=c\\u005cx0a\",\"n\":\"3\"}}\n") != NULL,
          "%s", text);
    text = heard(say_long);
    CHECK(lines(text) == 2 && strstr(text, "\"}\n{") != NULL && strlen(text) < 8192 &&
              text[strlen(text) - 2] == '}',
          "%zu bytes", strlen(text));
    text = heard(say_after);
    CHECK(strstr(text, ",\"left_out\":17}\n") != NULL, "%s", text);
    log_use_json(false);
}

static void check_quotes(void)
{
    static const char *const rows[][2] = {
        {"plain-1.2/x", "plain-1.2/x"},
        {"", "\"\""},
        {"a b", "\"a b\""},
        {"a=b", "\"a=b\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"a\nid=forged", "\"a\\x0aid=forged\""},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
    };
    char text[2000];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK(strcmp(log_quote(rows[i][0]).text, rows[i][1]) == 0, "%s",
              log_quote(rows[i][0]).text);
    CHECK(strcmp(log_quote(NULL).text, "\"\"") == 0, "NULL");
    for (int c = 1; c < 256; c++) {
        memset(text, c, sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        CHECK(strlen(log_quote(text).text) > 240 &&
                  strcmp(log_quote(text).text + strlen(log_quote(text).text) - 4, "...\"") == 0,
              "%d: %s", c, log_quote(text).text);
    }
}

static void check_times(void)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01T00:00:00.001Z", 1},
        {"2026-03-01T12:34:56.789Z", 1772368496789},
        {"2026-03-01t12:34:56.789z", 1772368496789},
        {"2026-03-01T14:34:56.789999999+02:00", 1772368496789},
        {"2026-03-01T07:04:56.78900-05:30", 1772368496789},
        {"2024-02-29T00:00:00Z", 1709164800000},
        {"2016-12-31T23:59:60Z", 1483228800000},
        {"9999-12-31T23:59:59.999Z", 253402300799999},
    };
    static const char *const bad[] = {
        "",
        "2026",
        "2026-03-01",
        "2026-03-01T12:34:56",
        "2026-03-01T12:34Z",
        "2026-3-01T12:34:56Z",
        "2026-02-29T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-04-00T00:00:00Z",
        "2026-03-01T24:00:00Z",
        "2026-03-01T12:60:00Z",
        "2026-03-01T12:34:61Z",
        "2026-03-01T12:34:56.Z",
        "2026-03-01T12:34:56Zx",
        "2026-03-01T12:34:56 Z",
        "2026-03-01T12:34:56+0200",
        "2026-03-01T12:34:56+24:00",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "+026-03-01T12:34:56Z",
        "20260301T123456Z",
        "2026-03-01X12:34:56Z",
    };
    uint64_t ms;
    char text[CLOCK_TEXT_SIZE];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ms = 1;
        CHECK(clock_parse(good[i].text, &ms) && ms == good[i].ms, "%s: %" PRIu64, good[i].text, ms);
        clock_format(ms, text);
        CHECK(clock_parse(text, &ms) && ms == good[i].ms, "%s", text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!clock_parse(bad[i], &ms), "\"%s\" was taken", bad[i]);
    clock_format(1772368496789, text);
    CHECK(strcmp(text, "2026-03-01T12:34:56.789Z") == 0, "%s", text);
    clock_format(UINT64_MAX, text);
    CHECK(strcmp(text, "9999-12-31T23:59:59.999Z") == 0, "%s", text);
}

int main(void)
{
    log_start("engine", LOG_LEVEL_INFO);
    check_lines();
    check_json();
    check_quotes();
    check_times();
    return check_finish();
}
