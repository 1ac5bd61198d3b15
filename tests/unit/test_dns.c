/* What is on the wire of DNS: which questions are read, which are answered with a fault and which not at
 * all, and what an answer looks like, byte for byte. */
#include "check.h"
#include "net/parts.h"

#include <stdlib.h>
#include <string.h>

#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1
#define HEADER_OF(flags, counts) "\x12\x34" flags counts
#define ONE "\0\1\0\0\0\0\0\0"
#define ONE_EDNS "\0\1\0\0\0\0\0\1"
#define EXAMPLE "\7ExAmple\3com\0"
#define EDNS(size) "\0\0\x29" size "\0\0\0\0\0\0"

struct row {
    const char *what;
    const uint8_t *packet;
    size_t size;
    int code;
    const char *name;
};

#define ROW(what, code, name, text)   \
    {                                 \
        what, BYTES(text), code, name \
    }

static const struct row rows[] = {
    ROW("a question", DNS_OK, "example.com", HEADER_OF("\1\0", ONE) EXAMPLE "\0\1\0\1"),
    ROW("with EDNS", DNS_OK, "example.com",
        HEADER_OF("\1\0", ONE_EDNS) EXAMPLE "\0\1\0\1" EDNS("\x10\0")),
    ROW("the root", DNS_OK, "", HEADER_OF("\1\0", ONE) "\0\0\2\0\1"),
    ROW("underscores", DNS_OK, "_a.b", HEADER_OF("\1\0", ONE) "\2_a\1b\0\0\1\0\1"),
    ROW("nothing", -1, NULL, ""),
    ROW("half a header", -1, NULL, "\x12\x34\1\0\0\1\0\0\0\0\0"),
    ROW("an answer", -1, NULL, HEADER_OF("\x81\0", ONE) EXAMPLE "\0\1\0\1"),
    ROW("a notification", DNS_NOT_DONE, "", HEADER_OF("\x21\0", ONE) EXAMPLE "\0\1\0\1"),
    ROW("no question", DNS_BAD_FORMAT, "", HEADER_OF("\1\0", "\0\0\0\0\0\0\0\0")),
    ROW("two questions", DNS_BAD_FORMAT, "",
        HEADER_OF("\1\0", "\0\2\0\0\0\0\0\0") EXAMPLE "\0\1\0\1" EXAMPLE "\0\1\0\1"),
    ROW("a name without its end", DNS_BAD_FORMAT, NULL, HEADER_OF("\1\0", ONE) "\7exam"),
    ROW("no type", DNS_BAD_FORMAT, NULL, HEADER_OF("\1\0", ONE) EXAMPLE "\0"),
    ROW("a pointer to itself", DNS_BAD_FORMAT, NULL, HEADER_OF("\1\0", ONE) "\xc0\x0c\0\1\0\1"),
    ROW("a pointer back", DNS_BAD_FORMAT, NULL, HEADER_OF("\1\0", ONE) "\1a\xc0\x0c\0\1\0\1"),
    ROW("a label of a kind that is not", DNS_BAD_FORMAT, NULL,
        HEADER_OF("\1\0", ONE) "\x41"
                               "a\0\0\1\0\1"),
    ROW("a record that is not there", DNS_BAD_FORMAT, "example.com",
        HEADER_OF("\1\0", ONE_EDNS) EXAMPLE "\0\1\0\1"),
    ROW("a record longer than there is", DNS_BAD_FORMAT, "example.com",
        HEADER_OF("\1\0", ONE_EDNS) EXAMPLE "\0\1\0\1"
                                            "\0\0\x29\x10\0\0\0\0\0\0\1"),
    ROW("more records than anybody sends", DNS_BAD_FORMAT, "",
        HEADER_OF("\1\0", "\0\1\xff\xff\xff\xff\xff\xff") EXAMPLE "\0\1\0\1"),
    ROW("two EDNS", DNS_BAD_FORMAT, "example.com",
        HEADER_OF("\1\0", "\0\1\0\0\0\0\0\2") EXAMPLE "\0\1\0\1" EDNS("\x10\0") EDNS("\x10\0")),
    ROW("EDNS of another version", DNS_BAD_VERSION, "example.com",
        HEADER_OF("\1\0", ONE_EDNS) EXAMPLE "\0\1\0\1"
                                            "\0\0\x29\x10\0\0\1\0\0\0\0"),
    ROW("of class CHAOS", DNS_NOT_DONE, "example.com", HEADER_OF("\1\0", ONE) EXAMPLE "\0\1\0\3"),
    /* What would be another name if it were read as a text. */
    ROW("a dot in a label", DNS_OK, "",
        HEADER_OF("\1\0", ONE) "\xb"
                               "evil.exampl"
                               "\3com\0\0\1\0\1"),
    ROW("a NUL in a label", DNS_OK, "", HEADER_OF("\1\0", ONE) "\5com\0x\3com\0\0\1\0\1"),
    ROW("a space", DNS_OK, "", HEADER_OF("\1\0", ONE) "\3a b\3com\0\0\1\0\1"),
    ROW("a letter beyond ASCII", DNS_OK, "", HEADER_OF("\1\0", ONE) "\3\xc3\xa4z\3com\0\0\1\0\1"),
};

static void test_questions(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct dns_question question;
        /* Of its own and exactly so long: a byte too far is seen. */
        uint8_t *copy = malloc(row->size + (row->size == 0));
        int code;

        memcpy(copy, row->packet, row->size);
        code = dns_parse(copy, row->size, &question);
        CHECK(code == row->code, "%s: %d instead of %d", row->what, code, row->code);
        CHECK(row->name == NULL || strcmp(question.name, row->name) == 0, "%s: \"%s\"", row->what,
              question.name);
        free(copy);
    }
}

/* How long the labels are: the longest name that there is, and one byte more. */
static void test_longest_name(void)
{
    uint8_t packet[512] = "\x12\x34\1\0\0\1\0\0\0\0\0\0";
    static const uint8_t end[] = {0, 0, 1, 0, 1};
    struct dns_question question;

    for (size_t last = 61; last <= 62; last++) {
        size_t at = 12;

        for (int i = 0; i < 4; i++) {
            size_t length = i < 3 ? 63 : last;

            packet[at++] = (uint8_t)length;
            memset(packet + at, 'a', length);
            at += length;
        }
        memcpy(packet + at, end, sizeof(end));
        CHECK(dns_parse(packet, at + sizeof(end), &question) ==
                  (last == 61 ? DNS_OK : DNS_BAD_FORMAT),
              "%zu", last);
        CHECK(last != 61 || (question.wire_size == 255 && strlen(question.name) == 253), "%zu",
              strlen(question.name));
    }
}

static void check_bytes(const char *what, const uint8_t *got, size_t size, const uint8_t *wanted,
                        size_t wanted_size)
{
    CHECK(size == wanted_size && memcmp(got, wanted, size) == 0, "%s: %zu bytes, %zu wanted", what,
          size, wanted_size);
}

static void test_answers(void)
{
    static const uint8_t v4[4] = {198, 18, 0, 2};
    uint8_t out[DNS_UDP_MAX];
    struct dns_question question;
    size_t size;

    (void)dns_parse(BYTES(HEADER_OF("\1\x10", ONE) EXAMPLE "\0\1\0\1"), &question);
    size = dns_answer(&question, DNS_OK, v4, sizeof(v4), 60, "not told without EDNS", out,
                      sizeof(out));
    check_bytes("an address, the name in the client's own letters", out, size,
                BYTES(HEADER_OF("\x81\x90", "\0\1\0\1\0\0\0\0") EXAMPLE
                      "\0\1\0\1\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc6\x12\0\2"));
    size = dns_answer(&question, DNS_NO_NAME, NULL, 0, 60, NULL, out, sizeof(out));
    check_bytes("no such name", out, size,
                BYTES(HEADER_OF("\x81\x93", "\0\1\0\0\0\0\0\0") EXAMPLE "\0\1\0\1"));
    CHECK(dns_answer(&question, DNS_OK, v4, 4, 60, NULL, out, size) == 0, "no room, and yet");

    (void)dns_parse(
        BYTES(HEADER_OF("\1\0", ONE_EDNS) EXAMPLE "\0\1\0\1\0\0\x29\x10\0\0\0\x80\0\0\0"),
        &question);
    CHECK(question.size_max == 4096, "%d", question.size_max);
    size = dns_answer(&question, DNS_REFUSED, NULL, 0, 60, "no", out, sizeof(out));
    check_bytes("refused, and why", out, size,
                BYTES(HEADER_OF("\x81\x85", ONE_EDNS) EXAMPLE
                      "\0\1\0\1\0\0\x29\4\xd0\0\0\x80\0\0\x8\0\xf\0\4\0\x12no"));
    size = dns_answer(&question, DNS_BAD_VERSION, NULL, 0, 60, NULL, out, sizeof(out));
    check_bytes(
        "another version", out, size,
        BYTES(HEADER_OF("\x81\x80", ONE_EDNS) EXAMPLE "\0\1\0\1\0\0\x29\4\xd0\1\0\x80\0\0\0"));
    (void)dns_parse(BYTES(HEADER_OF("\x29\0", ONE) EXAMPLE "\0\1\0\1"), &question);
    size = dns_answer(&question, DNS_NOT_DONE, NULL, 0, 60, NULL, out, sizeof(out));
    check_bytes("what is no question is not repeated", out, size,
                BYTES(HEADER_OF("\xa9\x84", "\0\0\0\0\0\0\0\0")));
}

int main(void)
{
    test_questions();
    test_longest_name();
    test_answers();
    return check_finish();
}
