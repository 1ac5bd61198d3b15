/* Sizes, times, CPUs and counts: what people write is read exactly, or refused with a sentence that
 * names the option, the text and an example. */
#include "base/parse.h"

#include "check.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

struct row {
    const char *text;
    bool is_good;
    uint64_t value;
};

#define GOOD(text, value) \
    {                     \
        text, true, value \
    }
#define BAD(text)      \
    {                  \
        text, false, 0 \
    }

static const struct row sizes[] = {
    GOOD("0", 0),
    GOOD("65536", 65536),
    GOOD("1B", 1),
    GOOD("1K", 1024),
    GOOD("1KB", 1024),
    GOOD("1KiB", 1024),
    GOOD("512M", 512ULL << 20),
    GOOD("2G", 2ULL << 30),
    GOOD("2GiB", 2ULL << 30),
    GOOD("512m", 512ULL << 20),
    GOOD("512Mi", 512ULL << 20),
    GOOD("1kb", 1024),
    GOOD("1g", 1ULL << 30),
    GOOD("2ti", 2ULL << 40),
    GOOD("1.5G", 1536ULL << 20),
    GOOD("0.5K", 512),
    GOOD("1.5", 1),
    GOOD("3T", 3ULL << 40),
    GOOD("007", 7),
    GOOD("0.0", 0),
    GOOD("18446744073709551615", UINT64_MAX),
    GOOD("16777215T", 16777215ULL << 40),
    GOOD("1.99999999999999999999K", 2047),
    BAD("18446744073709551616"),
    BAD("16777216T"),
    BAD("99999999999999999999999999G"),
    BAD(""),
    BAD("-1"),
    BAD("+1"),
    BAD(" 1"),
    BAD("1 "),
    BAD("1 G"),
    BAD("1gg"),
    BAD("1X"),
    BAD("1KK"),
    BAD("1Bi"),
    BAD("1iB"),
    BAD(".5G"),
    BAD("1.G"),
    BAD("1..5G"),
    BAD("1,5G"),
    BAD("0x10"),
    BAD("1e3"),
    BAD("G"),
    BAD("lots"),
    BAD("NaN"),
    BAD("inf"),
    BAD("0.1"),
    BAD("0.0000000000000000001K"),
    BAD("\xd9\xa1"),
    BAD("1G\n"),
};

static const struct row durations[] = {
    GOOD("0", 0),
    GOOD("0ms", 0),
    GOOD("30", 30000),
    GOOD("90s", 90000),
    GOOD("1.5m", 90000),
    GOOD("250ms", 250),
    GOOD("2h", 7200000),
    GOOD("1d", 86400000),
    GOOD("0.5d", 43200000),
    GOOD("0.001", 1),
    GOOD("1.3", 1300),
    GOOD("18446744073709551615ms", UINT64_MAX),
    BAD("18446744073709551615"),
    BAD("18446744073709551615h"),
    BAD(""),
    BAD("s"),
    BAD("1S"),
    BAD("1D"),
    BAD("1dd"),
    BAD("1 s"),
    BAD("-1s"),
    BAD("1h30m"),
    BAD("0.1ms"),
    BAD("0.0001"),
    BAD("1us"),
    BAD("1.s"),
    BAD(".5s"),
};

static const struct row cpus[] = {
    GOOD("2", 2000),
    GOOD("1.5", 1500),
    GOOD("0.25", 250),
    GOOD("0.001", 1),
    GOOD("64", 64000),
    GOOD("0.30000000000000004", 300),
    GOOD("4294967.295", UINT32_MAX),
    BAD("0"),
    BAD("0.0"),
    BAD("0.0001"),
    BAD("4294967.296"),
    BAD(""),
    BAD("-1"),
    BAD("1000m"),
    BAD("2 "),
    BAD("all"),
    BAD("1.5.0"),
    BAD("99999999999999999999"),
};

static const struct row counts[] = {
    GOOD("2", 2),
    GOOD("64", 64),
    GOOD("100", 100),
    GOOD("00100", 100),
    BAD("1"),
    BAD("101"),
    BAD(""),
    BAD("-2"),
    BAD("+2"),
    BAD("2.0"),
    BAD("2 "),
    BAD("0x2"),
    BAD("18446744073709551618"),
    BAD("two"),
};

enum kind { SIZE, DURATION, CPUS, COUNT };

static int parse(enum kind kind, const char *text, uint64_t *value, struct error *err)
{
    uint32_t milli = 4242;
    int result = 0;

    switch (kind) {
    case SIZE:
        return parse_size("--thing", text, value, err);
    case DURATION:
        return parse_duration("--thing", text, value, err);
    case COUNT:
        return parse_count("--thing", text, 2, 100, value, err);
    case CPUS:
        result = parse_cpus("--thing", text, &milli, err);
        if (milli != 4242)
            *value = milli;
        break;
    }
    return result;
}

static void check_rows(enum kind kind, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        struct error err = {0};
        uint64_t value = 4242;
        int result = parse(kind, row->text, &value, &err);

        if (row->is_good) {
            CHECK(result == 0 && value == row->value,
                  "kind %d \"%s\" gave %d, %" PRIu64 ", not %" PRIu64, (int)kind, row->text, result,
                  value, row->value);
            continue;
        }
        CHECK(result == -1, "kind %d \"%s\" was taken as %" PRIu64, (int)kind, row->text, value);
        CHECK(value == 4242, "kind %d \"%s\" was refused but left a value", (int)kind, row->text);
        CHECK(strcmp(err.code, "bad_value") == 0, "\"%s\": code %s", row->text, err.code);
        CHECK(strstr(err.text, "--thing") != NULL && strstr(err.text, row->text) != NULL &&
                  strstr(err.text, "such as") != NULL,
              "\"%s\": the error says \"%s\"", row->text, err.text);
    }
}

static void check_long_text(void)
{
    struct error err = {0};
    char text[100001];
    uint64_t value = 4242;

    memset(text, '9', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    CHECK(parse_size("--memory", text, &value, &err) == -1, "100,000 digits were taken");
    CHECK(strlen(err.text) < 200 && strstr(err.text, "...") != NULL,
          "the error has %zu bytes and no sign of the cut", strlen(err.text));
    memset(text, '0', sizeof(text) - 1);
    CHECK(parse_size("--memory", text, &value, &err) == 0 && value == 0, "zeros are zero");
    CHECK(parse_size("--memory", NULL, &value, &err) == -1, "no text was taken");
    CHECK(parse_count("--pids", NULL, 1, 2, &value, &err) == -1, "no text was taken");
}

int main(void)
{
    check_rows(SIZE, sizes, sizeof(sizes) / sizeof(sizes[0]));
    check_rows(DURATION, durations, sizeof(durations) / sizeof(durations[0]));
    check_rows(CPUS, cpus, sizeof(cpus) / sizeof(cpus[0]));
    check_rows(COUNT, counts, sizeof(counts) / sizeof(counts[0]));
    check_long_text();
    return check_finish();
}
